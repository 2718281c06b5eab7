"""Instructions and bytes per element, counted in disassembled machine code.

A kernel's work is in segments: its innermost loops, and the code between them inside its outermost loop. The elements
of a segment's iteration follow from the bytes that it moves, so that unrolled and rolled loops are comparable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}  # bytes, by the suffix of an access


@dataclass(frozen=True)
class Instruction:
    name: str  # with suffixes, such as LDG.E.128
    target: str | None  # label, for a branch
    guarded: bool  # whether it is predicated


@dataclass(frozen=True)
class Segment:
    """The instructions of one iteration, and the bytes that it moves."""

    instructions: int
    loads: int
    stores: int
    shared: int
    multiplications: int  # fused multiply-adds
    widest: int  # bytes of the widest access to global memory
    between: bool = False  # whether it is the code between inner loops


def functions(text: str) -> dict[str, list[Instruction | str]]:
    """Parse a disassembly; return each function's code: instructions, and labels as strings."""
    found: dict[str, list[Instruction | str]] = {}
    current: list[Instruction | str] = []
    for line in text.splitlines():
        if match := re.match(r"\.text\.(\S+):", line):
            current = found.setdefault(match[1], [])
        elif match := re.match(r"(\.L_x?_?\w+):", line):
            current.append(match[1])
        elif match := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*);", line):
            jump = re.search(r"`\((\.L\w+)\)", match[3]) if match[2].startswith(("BRA", "CALL.REL")) else None
            current.append(Instruction(match[2], jump[1] if jump else None, match[1] is not None))
    return found


def segments(code: Sequence[Instruction | str]) -> list[Segment]:
    """Return the segments of a function that access memory."""
    blocks, follow = basic_blocks(code)
    loops = natural_loops(follow)
    if not loops:
        return _moving([_segment([item for block in blocks for item in block])])
    leaves = [loop for loop in loops if not any(other < loop for other in loops)]
    outermost = max(loops, key=len)
    found = [_segment([item for block in sorted(loop) for item in blocks[block]]) for loop in leaves]
    if outermost in leaves:
        return _moving(found)
    rest = sorted(outermost - frozenset().union(*leaves))
    between = _segment([item for block in rest for item in blocks[block]])
    return [*_moving(found), replace(between, between=True)]


def basic_blocks(code: Sequence[Instruction | str]) -> tuple[list[list[Instruction]], list[list[int]]]:
    """Return the basic blocks of a function, and the successors of each."""
    blocks: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for item in code:
        if isinstance(item, str):
            if blocks[-1]:
                blocks.append([])
            labels[item] = len(blocks) - 1
            continue
        blocks[-1].append(item)
        if item.target is not None or item.name in ("EXIT", "RET.REL.NODEC"):
            blocks.append([])
    follow: list[list[int]] = []
    for number, block in enumerate(blocks):
        last = block[-1] if block else None
        after = [labels[last.target]] if last is not None and last.target in labels else []
        ends = (
            last is not None and not last.guarded and (last.target is not None or last.name.startswith(("EXIT", "RET")))
        )
        if not ends and number + 1 < len(blocks):
            after.append(number + 1)
        follow.append(after)
    return blocks, follow


def natural_loops(follow: Sequence[Sequence[int]]) -> list[frozenset[int]]:
    """Return the natural loops of a control-flow graph, those with one header merged."""
    count = len(follow)
    before: list[list[int]] = [[] for _ in range(count)]
    reached, pending = {0}, [0]
    while pending:
        block = pending.pop()
        for item in follow[block]:
            before[item].append(block)
            if item not in reached:
                reached.add(item)
                pending.append(item)
    everything = set(range(count))
    dominators = [{0}] + [set(everything) for _ in range(count - 1)]
    changed = True
    while changed:
        changed = False
        for block in sorted(reached - {0}):
            new = {block} | set.intersection(*(dominators[item] for item in before[block]))
            changed = changed or new != dominators[block]
            dominators[block] = new
    loops: dict[int, set[int]] = {}
    for block in sorted(reached):
        for head in follow[block]:
            if head in dominators[block]:
                inside = loops.setdefault(head, {head})
                pending = [block]
                while pending:
                    item = pending.pop()
                    if item not in inside:
                        inside.add(item)
                        pending.extend(before[item])
    return [frozenset(loop) for loop in loops.values()]


def _moving(found: Sequence[Segment]) -> list[Segment]:
    return [item for item in found if item.loads or item.stores or item.shared]


def _segment(code: Sequence[Instruction | str]) -> Segment:
    instructions = [item for item in code if isinstance(item, Instruction) and item.name != "NOP"]
    moved = {"LDG": 0, "STG": 0, "LDS": 0, "STS": 0}
    widest = 0
    for item in instructions:
        kind, *suffixes = item.name.split(".")
        if kind in moved:
            width = next((WIDTHS[suffix] for suffix in suffixes if suffix in WIDTHS), 4)
            moved[kind] += width
            if kind in ("LDG", "STG"):
                widest = max(widest, width)
    multiplications = sum(item.name.startswith("FFMA") for item in instructions)
    return Segment(len(instructions), moved["LDG"], moved["STG"], moved["LDS"] + moved["STS"], multiplications, widest)
