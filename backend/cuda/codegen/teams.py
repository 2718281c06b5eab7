"""Write reductions and scans over the threads of a warp or a block, by shuffles and shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.types import DType
from ....kernels.gpu import GPU
from ....kernels.scalar.table import COMBINERS
from .scalars import NAMES, Text, TextBuilder

# Shuffles move 32 or 64 bits; other types are converted to these.
CARRIERS = {
    "bool": "int32",
    "i8": "int32",
    "i16": "int32",
    "u8": "int32",
    "u16": "int32",
    "u32": "int32",
    "u64": "int64",
}


class Team:
    """Threads that run a body together."""

    def __init__(self, kind: str, lanes: int, threads: int):
        self.kind = kind
        self.lanes = lanes
        self.threads = threads  # of a block

    @property
    def barrier(self) -> str:
        return "sync_warp()" if self.kind == "warp" else "cuda.syncthreads()"

    def reduction(self, builder: TextBuilder, combiner: str, dtypes: Sequence[DType]) -> str:
        """Name the device function of an all-reduce over the team: every thread gets the result."""
        name = f"{combiner}_{'_'.join(map(str, dtypes))}"
        warp = builder.functions.sources
        if f"warp_{name}" not in warp:
            self._write(builder, f"warp_{name}", combiner, dtypes, [16, 8, 4, 2, 1])
        if self.kind == "warp" or self.lanes == GPU.warp:
            return f"warp_{name}"
        warps = self.lanes // GPU.warp
        if f"block{self.lanes}_{name}" not in warp:
            self._write_block(builder, f"block{self.lanes}_{name}", f"warp_{name}", combiner, dtypes, warps)
        return f"block{self.lanes}_{name}"

    def _write(
        self, builder: TextBuilder, name: str, combiner: str, dtypes: Sequence[DType], masks: Sequence[int]
    ) -> None:
        values = [Text(item, tuple(names)) for item, names in zip(dtypes, _names(dtypes), strict=True)]
        parts = [part for value in values for part in value.parts]
        lines = [f"def {name}({', '.join(parts)}):"]
        self._butterfly(builder, lines, combiner, values, masks)
        lines.append(f"    return {', '.join(parts)}")
        builder.functions.sources[name] = ["@device", *lines]

    def _butterfly(
        self,
        builder: TextBuilder,
        lines: list[str],
        combiner: str,
        values: Sequence[Text],
        masks: Sequence[int],
    ) -> None:
        """Write a butterfly reduction: lanes exchange with those at each xor mask."""
        parts = [part for value in values for part in value.parts]
        function = builder.combiner(combiner, [value.dtype for value in values])
        for mask in masks:
            others = [
                shuffled(f"shuffle_xor({{}}, {mask})", part, value.dtype) for value in values for part in value.parts
            ]
            lines.append(f"    {', '.join(parts)} = {function}({', '.join([*parts, *others])})")

    def _write_block(
        self, builder: TextBuilder, name: str, warp: str, combiner: str, dtypes: Sequence[DType], warps: int
    ) -> None:
        values = [Text(item, tuple(names)) for item, names in zip(dtypes, _names(dtypes), strict=True)]
        parts = [(part, value.dtype.real) for value in values for part in value.parts]
        given = ", ".join(part for part, _ in parts)
        lines = [f"def {name}({given}):", f"    {given} = {warp}({given})"]
        for part, dtype in parts:
            lines.append(f"    {part}_all = cuda.shared.array({warps}, {_shared(dtype)})")
        lines.append("    if cuda.threadIdx.x % 32 == 0:")
        lines += [f"        {part}_all[cuda.threadIdx.x // 32] = {part}" for part, _ in parts]
        lines.append("    cuda.syncthreads()")
        for part, dtype in parts:
            loaded = f"{part}_all[cuda.threadIdx.x % {warps}]"
            lines.append(f"    {part} = {loaded} != 0" if dtype.kind == "b" else f"    {part} = {loaded}")
        masks = [1 << bit for bit in reversed(range(warps.bit_length() - 1))]
        self._butterfly(builder, lines, combiner, values, masks)
        lines += ["    cuda.syncthreads()", f"    return {given}"]
        builder.functions.sources[name] = ["@device", *lines]

    def scan(self, builder: TextBuilder, combiner: str, dtype: DType) -> str:
        """Name the device function of an inclusive scan over the team; it also returns the total."""
        lanes = self.lanes
        name = f"{self.kind}{lanes}_scan_{combiner}_{dtype}"
        if name in builder.functions.sources:
            return name
        function = builder.combiner(combiner, [dtype])
        (names,) = _names([dtype])
        value = Text(dtype, tuple(names))
        parts, real = list(value.parts), dtype.real
        given = ", ".join(parts)
        lines = [f"def {name}({given}):", "    lane = cuda.threadIdx.x % 32"]
        distance = 1
        while distance < GPU.warp:
            others = [f"{part}_up" for part in parts]
            for part, other in zip(parts, others, strict=True):
                lines.append(f"    {other} = {shuffled(f'shuffle_up({{}}, {distance})', part, real)}")
            lines.append(f"    if lane >= {distance}:")
            lines.append(f"        {given} = {function}({', '.join([*others, *parts])})")
            distance *= 2
        if self.kind == "warp" or lanes == GPU.warp:
            totals = ", ".join(shuffled("shuffle_from({}, 31)", part, real) for part in parts)
            lines.append(f"    return {given}, {totals}")
        else:
            warps = lanes // GPU.warp
            (neutral,) = COMBINERS[combiner].identity(dtype)
            before = builder.constant(neutral, dtype).parts
            for part in parts:
                lines.append(f"    {part}_all = cuda.shared.array({warps}, {_shared(real)})")
            lines.append("    if lane == 31:")
            lines += [f"        {part}_all[cuda.threadIdx.x // 32] = {part}" for part in parts]
            lines.append("    cuda.syncthreads()")
            lines += [f"    {part}_sum = {start}" for part, start in zip(parts, before, strict=True)]
            lines += [f"    {part}_before = {start}" for part, start in zip(parts, before, strict=True)]
            lines += ["    warp = 0", f"    while warp < {warps}:", "        if warp == cuda.threadIdx.x // 32:"]
            lines += [f"            {part}_before = {part}_sum" for part in parts]
            sums = ", ".join(f"{part}_sum" for part in parts)
            loaded = ", ".join(f"{part}_all[warp]" for part in parts)
            lines += [f"        {sums} = {function}({sums}, {loaded})", "        warp += 1"]
            befores = ", ".join(f"{part}_before" for part in parts)
            lines += [f"    {given} = {function}({befores}, {given})", "    cuda.syncthreads()"]
            lines.append(f"    return {given}, {sums}")
        builder.functions.sources[name] = ["@device", *lines]
        return name


def _names(dtypes: Sequence[DType]) -> list[list[str]]:
    return [
        [f"{letter}_re", f"{letter}_im"] if item.is_complex else [letter]
        for item, letter in zip(dtypes, "abcd", strict=False)
    ]


def _shared(dtype: DType) -> str:
    return "uint8" if dtype.kind == "b" else NAMES[dtype.name]


def shuffled(call: str, part: str, dtype: DType) -> str:
    """Write a shuffle: a value of another lane, in its own type."""
    real = dtype.real
    carrier = CARRIERS.get(real.name)
    if carrier is None:
        return call.format(part)
    moved = call.format(f"{carrier}({part})")
    return f"({moved} != 0)" if real.kind == "b" else f"{NAMES[real.name]}({moved})"
