"""Memory traffic of a kernel, from walking its PTX thread by thread.

Only values that decide branches and addresses are computed, and only integers: floating-point numbers are 0, their
comparisons false, memory holds zeros, and a shuffle returns a thread's own value. Global memory moves in sectors of 32
bytes: a sector that the threads of a warp touch with one instruction counts once, so that repeated and uncoalesced
loads show.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...kernels.gpu import GPU

SECTOR = 32  # bytes
ELEMENT = re.compile(r"(?:^|\.)[bfsu](8|16|32|64)$")
FLOAT = re.compile(r"\.b?f(16|16x2|32|64)\b")
BASE = 1 << 40  # bytes between the made-up addresses of array parameters


@dataclass(frozen=True)
class Instruction:
    name: str  # with suffixes, such as ld.global.v4.f32
    operands: tuple[str, ...]
    guard: str  # a Python condition, or ''
    reads: frozenset[str]
    writes: frozenset[str]

    @property
    def is_access(self) -> bool:
        return self.name.startswith(("ld.global", "st.global", "ld.shared", "st.shared"))

    @property
    def bytes(self) -> int:
        """The bytes that one thread moves."""
        match = ELEMENT.search(self.name)
        assert match is not None, self.name
        many = re.search(r"\.v(\d)\.", self.name)
        return int(match[1]) // 8 * (int(many[1]) if many else 1)


@dataclass(frozen=True)
class Function:
    """The PTX of one kernel."""

    params: tuple[tuple[str, str], ...]  # name, type
    threads: int
    code: tuple[Instruction | str, ...]  # instructions, and labels


@dataclass(frozen=True)
class Traffic:
    """Bytes moved: of global memory in whole sectors, of shared memory as accessed."""

    loads: int
    stores: int
    shared: int

    @property
    def moved(self) -> int:
        return self.loads + self.stores


def parse(text: str) -> dict[str, Function]:
    """Parse a PTX module; return its kernels by name."""
    found: dict[str, Function] = {}
    pattern = re.compile(r"\.entry\s+(\w+)\s*\(([^)]*)\)([^{]*)\{(.*?)^\}", re.M | re.S)
    for name, params, directives, body in pattern.findall(text):
        threads = re.search(r"\.(?:maxntid|reqntid)\s+(\d+)", directives)
        assert threads is not None, f"{name} does not say how many threads a block has"
        declared = re.findall(
            r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.\w+\s+(?:\.align\s+\d+\s+)?)?(\w+)", params
        )
        code: list[Instruction | str] = []
        for line in re.sub(r"//.*", "", body).split("\n"):
            line = line.strip()
            if match := re.fullmatch(r"(\$\w+):", line):
                code.append(match[1])
            elif match := re.fullmatch(r"(?:@(!?)(%p\d+)\s+)?([a-z][\w.]*)\s*(.*);", line):
                code.append(_instruction(match[3], match[4], ("not " if match[1] else "") + _name(match[2] or "")))
        found[name] = Function(tuple((item, kind) for kind, item in declared), int(threads[1]), tuple(code))
    return found


def _name(operand: str) -> str:
    """Return a register's name as a Python identifier."""
    return operand.strip().lstrip("%").replace(".", "_")


def _instruction(name: str, rest: str, guard: str) -> Instruction:
    operands = tuple(item.strip() for item in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,]+", rest) if item.strip())
    registers = [frozenset(map(_name, re.findall(r"%[\w.]+", item))) for item in operands]
    has_result = not name.startswith(("st.", "bar", "bra", "ret", "membar", "red", "exit"))
    reads = frozenset().union(*registers[has_result:], [guard.removeprefix("not ")] if guard else [])
    if FLOAT.search(name):
        reads = frozenset()  # floats are not tracked
    return Instruction(name, operands, guard, reads, registers[0] if has_result and registers else frozenset())


# PTX to Python.

SIGNED = "({0} - (({0} >> {1}) << {2}))"  # an unsigned number as two's complement
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARISONS |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
SIMPLE = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "mad": "{0} * {1} + {2}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "neg": "-{0}",
    "shl": "{0} << {1}",
    "shr": "{0} >> {1}",
}


def _expression(name: str, given: Sequence[str]) -> str:
    """Return the Python expression of an integer instruction on unsigned operands."""
    kind, *suffixes = name.split(".")
    last = suffixes[-1]
    width = 64 if last.endswith("64") else 16 if last.endswith("16") else 32
    mask = (1 << width) - 1

    def signed(operand: str, bits: int = width) -> str:
        return SIGNED.format(f"({operand})", bits - 1, bits)

    if kind == "setp" and len(suffixes) == 2:
        a, b = (signed(item) if last.startswith("s") else item for item in given[:2])
        return f"{a} {COMPARISONS[suffixes[0]]} {b}"
    if last == "pred":
        a, b = (given[0], given[-1])
        return {"and": f"{a} and {b}", "or": f"{a} or {b}", "xor": f"{a} != {b}", "not": f"not {a}", "mov": a}[kind]
    if kind == "selp":
        return f"{given[0]} if {given[2]} else {given[1]}"
    if kind in ("mov", "cvta"):
        return given[0]
    if kind == "cvt":
        source = int(last[1:])
        whole = int(suffixes[-2][1:])
        operand = signed(given[0], source) if last.startswith("s") else given[0]
        return f"{operand} & {(1 << whole) - 1}"
    if kind in ("mul", "mad") and suffixes[0] == "wide":
        a, b = (signed(item) if last.startswith("s") else item for item in given[:2])
        more = f" + {given[2]}" if kind == "mad" else ""
        return f"({a} * {b}{more}) & {(1 << 2 * width) - 1}"
    if kind in ("mul", "mad") and suffixes[0] == "hi":
        a, b = (signed(item) if last.startswith("s") else item for item in given[:2])
        more = f" + {given[2]}" if kind == "mad" else ""
        return f"(({a} * {b} >> {width}){more}) & {mask}"
    if kind == "shr" and last.startswith("s"):
        return f"({signed(given[0])} >> {given[1]}) & {mask}"
    if kind in ("min", "max"):
        a, b = (signed(item) if last.startswith("s") else item for item in given)
        return f"{kind}({a}, {b}) & {mask}"
    if kind == "bfi":
        place = f"(((1 << {given[3]}) - 1) << {given[2]})"
        return f"({given[0]} << {given[2]}) & {place} & {mask} | {given[1]} & ~{place} & {mask}"
    if kind == "bfe" and last.startswith("u"):
        return f"({given[0]} >> {given[1]}) & ((1 << {given[2]}) - 1)"
    if kind in ("div", "rem") and last.startswith("u"):
        return f"{given[0]} {'//' if kind == 'div' else '%'} {given[1]}"
    if kind not in SIMPLE:
        raise NotImplementedError(f"branches or addresses of a kernel depend on {name}")
    return f"({SIMPLE[kind].format(*given)}) & {mask}"


def _operand(text: str, width: int) -> str:
    if text.startswith("%"):
        return _name(text)
    if re.fullmatch(r"-?\d+|0[xX][0-9a-fA-F]+", text):
        return str(int(text, 0) & ((1 << width) - 1))
    return "0"  # an address in shared memory, where only bytes are counted


def _needed(function: Function) -> set[str]:
    """Return the registers that branches and addresses depend on."""
    instructions = [item for item in function.code if isinstance(item, Instruction)]
    needed: set[str] = set()
    for item in instructions:
        if item.guard and (item.is_access or item.name.startswith(("bra", "ret", "exit"))):
            needed.add(item.guard.removeprefix("not "))
        if item.is_access and ".global" in item.name:
            needed |= frozenset(map(_name, re.findall(r"%\w+", _address(item))))
    size = -1
    while size != len(needed):
        size = len(needed)
        for item in instructions:
            if item.writes & needed and not item.is_access:
                needed |= item.reads
    return needed


def _address(item: Instruction) -> str:
    return item.operands[1 if item.name.startswith("ld") else 0]


def walker(function: Function) -> Callable[..., Any]:
    """Generate a Python function that runs one thread and calls note(site, address) for each access to global memory.

    Loads return 0. The function returns the bytes that the thread moved to and from shared memory.
    """
    needed = _needed(function)
    blocks: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for item in function.code:
        if isinstance(item, str):
            blocks.append([])
            labels[item] = len(blocks) - 1
        else:
            blocks[-1].append(item)
            if item.name.startswith("bra"):
                blocks.append([])
    lines = [f"def walk(note, params, {', '.join(SPECIAL)}):", "    shared = 0", "    block = 0", "    while True:"]
    site = 0
    for number, block in enumerate(blocks):
        lines.append(f"        if block == {number}:")
        for item in block:
            text: list[str] = []
            if item.name.startswith("bra"):
                text = [f"block = {labels[item.operands[0]]}", "continue"]
            elif item.name.startswith(("ret", "exit")):
                text = ["return shared"]
            elif item.is_access:
                if ".shared" in item.name:
                    text = [f"shared += {item.bytes}"]
                else:
                    register, _, offset = _address(item).strip("[] ").partition("+")
                    text = [f"note({site}, {_name(register)} + {int(offset or '0')})"]
                    site += 1
                text += [f"{name} = 0" for name in sorted(item.writes & needed)]
            elif item.writes & needed:
                text = [_assignment(item, function)]
            if text and item.guard:
                text = [f"if {item.guard}:", *(f"    {line}" for line in text)]
            lines += [f"            {line}" for line in text]
        lines.append(f"            block = {number + 1}")
    lines.append("        return shared")
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    walk: Callable[..., Any] = space["walk"]
    return walk


SPECIAL = ("tid_x", "ctaid_x", "ntid_x", "nctaid_x", "laneid")


def _assignment(item: Instruction, function: Function) -> str:
    kind = item.name.split(".")[0]
    if item.name.startswith("ld.param"):
        name, _, offset = item.operands[1].strip("[] ").partition("+")
        numbers = [param for param, _ in function.params]
        return f"{_name(item.operands[0])} = params[{numbers.index(name)}]"
    if FLOAT.search(item.name):
        return "; ".join(f"{name} = 0" for name in sorted(item.writes))
    if kind == "shfl":
        return f"{_name(item.operands[0].split('|')[0])} = {_operand(item.operands[1], 32)}"
    if kind == "mov" and item.operands[0].startswith("{"):
        low, high = map(_name, item.operands[0].strip("{} ").split(","))
        whole = _name(item.operands[1])
        return f"{low}, {high} = {whole} & 0xffffffff, {whole} >> 32"
    if kind == "mov" and item.operands[1].startswith("{"):
        low, high = map(_name, item.operands[1].strip("{} ").split(","))
        return f"{_name(item.operands[0])} = {low} | {high} << 32"
    width = 64 if item.name.endswith("64") else 32
    given = [_operand(text, width) for text in item.operands[1:]]
    return f"{_name(item.operands[0])} = {_expression(item.name, given)}"


def traffic(function: Function, sizes: Sequence[int], blocks: int, sampled: Sequence[int]) -> Traffic:
    """Return the traffic of sampled blocks of a grid. `sizes` are the parameters that are not pointers."""
    rest = iter(sizes)
    params = [
        BASE * (number + 1) if kind.endswith("64") else next(rest) for number, (_, kind) in enumerate(function.params)
    ]
    accesses = [item for item in function.code if isinstance(item, Instruction) and item.is_access]
    sites = [item for item in accesses if ".global" in item.name]
    walk = walker(function)
    shared = 0
    moved = {"ld": 0, "st": 0}
    for block in sampled:
        for first in range(0, function.threads, GPU.warp):
            warp = _Warp(sites)
            for thread in range(first, min(first + GPU.warp, function.threads)):
                warp.times.clear()
                shared += walk(warp.note, params, thread, block, function.threads, blocks, thread % GPU.warp)
            for site, _, _ in warp.touched:
                moved[sites[site].name[:2]] += SECTOR
    return Traffic(moved["ld"], moved["st"], shared)


class _Warp:
    """The sectors that the threads of a warp touch in each execution of an instruction."""

    def __init__(self, sites: Sequence[Instruction]):
        self.widths = [item.bytes for item in sites]
        self.times: Counter[int] = Counter()  # executions of each instruction by the current thread
        self.touched: set[tuple[int, int, int]] = set()  # instruction, its execution, sector

    def note(self, site: int, address: int) -> None:
        self.times[site] += 1
        for sector in range(address // SECTOR, (address + self.widths[site] - 1) // SECTOR + 1):
            self.touched.add((site, self.times[site], sector))
