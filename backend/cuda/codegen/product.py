"""Write the GEMM of one tile by the threads of a block, as a device function.

Both matrices are staged in shared memory, a slice of the depth (K) at a time; each thread keeps a square of the result
in registers. Elements outside of the matrices are zeros.
"""

from __future__ import annotations

from ....ir.types import DType
from ....kernels.gpu import GPU, block_threads
from .scalars import NAMES, literal


def product_source(
    name: str, dtype: DType, tile: int, left: str, right: str, alignment: str, integer: str
) -> list[str]:
    """Write the function `name(tile, left, at, row stride, column stride, right, ..., rows, columns, depth)`. left,
    right: texts that convert `{}`, an element in memory, to the output's type. integer: type of the depth's counter."""
    kind, zero = NAMES[dtype.name], literal(0.0, dtype)
    multiply = "fmaf" if dtype.name == "f32" else "fma"
    across = tile // GPU.square  # threads along a row of the tile
    steps = [range(GPU.square)] * 2
    operands = ", ".join(f"{item}, {item}_at, {item}_row, {item}_column" for item in ("left", "right"))
    lines = [
        "@device",
        f"def {name}(tile, {operands}, rows, columns, depth):",
        f"    lefts = cuda.shared.array({GPU.depth * tile}, {kind}{alignment})",
        f"    rights = cuda.shared.array({GPU.depth * tile}, {kind}{alignment})",
        "    thread = int32(cuda.threadIdx.x)",
        f"    down = int32(thread // {across} * {GPU.square})",
        f"    across = int32(thread % {across} * {GPU.square})",
    ]
    lines += [f"    c{r}{c} = {zero}" for r in steps[0] for c in steps[1]]
    aligned = " & ".join(
        f"({item}_at % 4 == 0) & ({item}_row * {item}_column % 4 == 0) & (({item}_row == 1) | ({item}_column == 1))"
        for item in ("left", "right")
    )
    # A tile wholly inside of the matrices and aligned: vector loads.
    lines.append(f"    whole = (rows == {tile}) & (columns == {tile}) & (depth % {GPU.depth} == 0) & {aligned}")
    lines += [f"    start = {integer}(0)", "    while start < depth:"]
    matrices = (("left", "lefts", "column", "row", left), ("right", "rights", "row", "column", right))
    lines.append("        if whole:")
    for matrix, target, depthwise, linewise, element in matrices:
        lines += _fetch_vectors(tile, matrix, target, element, depthwise, linewise)
    lines.append("        else:")
    for (matrix, target, depthwise, linewise, element), count in zip(matrices, ("rows", "columns"), strict=True):
        lines += _fetch(tile, matrix, target, count, element, zero, depthwise, linewise)
    lines += ["        cuda.syncthreads()", "        k = int32(0)", f"        while k < {GPU.depth}:"]
    names = [", ".join(f"{letter}{part}" for part in steps[0]) for letter in "ab"]
    lines.append(f"            {names[0]} = load{GPU.square}(lefts, k * {tile} + down)")
    lines.append(f"            {names[1]} = load{GPU.square}(rights, k * {tile} + across)")
    lines += [f"            c{r}{c} = {multiply}(a{r}, b{c}, c{r}{c})" for r in steps[0] for c in steps[1]]
    lines += ["            k = int32(k + 1)", "        cuda.syncthreads()"]
    lines.append(f"        start = {integer}(start + {GPU.depth})")
    for r in steps[0]:
        values = ", ".join(f"c{r}{c}" for c in steps[1])
        lines.append(f"    store{GPU.square}(tile, int32((down + {r}) * {tile} + across), ({values}))")
    return [*lines, "    cuda.syncthreads()"]


def _fetch_vectors(tile: int, matrix: str, target: str, element: str, depthwise: str, linewise: str) -> list[str]:
    """Write the copy of a slice of a matrix to shared memory by vectors of four elements."""
    threads = block_threads(tile)
    lines: list[str] = []
    for head, across in ((f"if {matrix}_{depthwise} == 1:", True), ("else:", False)):
        lines.append(f"            {head}")
        for part in range(GPU.depth * tile // threads // 4):
            number = f"(thread + {part * threads})" if part else "thread"
            if across:
                lines.append(f"                line = int32({number} // {GPU.depth // 4})")
                lines.append(f"                k = int32({number} % {GPU.depth // 4} * 4)")
                place = f"{matrix}_at + line * {matrix}_{linewise} + start + k"
            else:
                lines.append(f"                line = int32({number} % {tile // 4} * 4)")
                lines.append(f"                k = int32({number} // {tile // 4})")
                place = f"{matrix}_at + line + (start + k) * {matrix}_{depthwise}"
            lines.append(f"                v0, v1, v2, v3 = fetch4({matrix}, {place})")
            values = [element.format(f"v{item}") for item in range(4)]
            if across:
                for item, value in enumerate(values):
                    lines.append(f"                {target}[uint32((k + {item}) * {tile} + line)] = {value}")
            else:
                lines.append(f"                store4({target}, int32(k * {tile} + line), ({', '.join(values)}))")
    return lines


def _fetch(
    tile: int, matrix: str, target: str, count: str, element: str, zero: str, depthwise: str, linewise: str
) -> list[str]:
    """Write the copy of a slice of a matrix to shared memory by single elements, with coalesced loads."""
    threads = block_threads(tile)
    each = GPU.depth * tile // threads
    lines: list[str] = []
    for head, across in ((f"if {matrix}_{depthwise} == 1:", True), ("else:", False)):
        lines += [f"            {head}", "                part = int32(0)", f"                while part < {each}:"]
        lines.append(f"                    number = int32(part * {threads} + thread)")
        along, beside = ("//", "%") if across else ("%", "//")
        by = GPU.depth if across else tile
        lines.append(f"                    line = int32(number {along} {by})")
        lines.append(f"                    k = int32(number {beside} {by})")
        place = f"{matrix}_at + line * {matrix}_{linewise} + (start + k) * {matrix}_{depthwise}"
        lines += [
            f"                    value = {zero}",
            f"                    if (line < {count}) & (start + k < depth):",
            f"                        value = {element.format(f'fetch1({matrix}, {place})')}",
            f"                    {target}[uint32(k * {tile} + line)] = value",
            "                    part = int32(part + 1)",
        ]
    return lines
