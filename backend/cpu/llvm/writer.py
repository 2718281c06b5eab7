"""Writes functions of the run time as LLVM text: instructions, loops and branches of one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Parameters = Sequence[tuple[str, str]]  # type and name
Typed = tuple[str, str]  # type and value


class Function:
    """The text of a function while it is being written. Integers are i64 unless an instruction says otherwise."""

    def __init__(self, name: str, parameters: Parameters, attributes: str):
        given = ", ".join(f"{kind} %{item}" for kind, item in parameters)
        self.lines = [f"define void @{name}({given}) {attributes} {{", "entry:"]
        self.block = "entry"
        self.count = 0

    def finish(self) -> str:
        return "\n".join([*self.lines, "  ret void", "}"])

    def write(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def op(self, text: str) -> str:
        """An instruction with a result."""
        self.count += 1
        name = f"%v{self.count}"
        self.write(f"{name} = {text}")
        return name

    # Integers and addresses.

    def add(self, left: str, right: str | int) -> str:
        return self.op(f"add nsw i64 {left}, {right}")

    def subtract(self, left: str | int, right: str) -> str:
        return self.op(f"sub nsw i64 {left}, {right}")

    def multiply(self, left: str, right: str | int) -> str:
        return self.op(f"mul nsw i64 {left}, {right}")

    def minimum(self, left: str, right: str | int) -> str:
        return self.op(f"call i64 @llvm.smin.i64(i64 {left}, i64 {right})")

    def even(self, size: str, most: str | int, unit: int = 1) -> str:
        """The length of equal parts of at most `most`; a multiple of `unit`, a power of two, if `most` is one."""
        pieces = self.op(f"udiv i64 {self.add(self.add(size, most), -1)}, {most}")
        pieces = self.op(f"call i64 @llvm.smax.i64(i64 {pieces}, i64 1)")
        each = self.op(f"udiv i64 {self.add(self.add(size, pieces), -1)}, {pieces}")
        each = self.op(f"call i64 @llvm.smax.i64(i64 {each}, i64 1)")
        return each if unit == 1 else self.op(f"and i64 {self.add(each, unit - 1)}, {-unit}")

    def first_lanes(self, count: str, lanes: int) -> str:
        """A mask of so many lanes, of which the first `count` are set."""
        kind = f"<{lanes} x i64>"
        one = self.op(f"insertelement {kind} poison, i64 {count}, i64 0")
        spread = self.op(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        return self.op(f"icmp slt {kind} <{numbers}>, {spread}")

    def compare(self, how: str, left: str, right: str | int) -> str:
        return self.op(f"icmp {how} i64 {left}, {right}")

    def at(self, pointer: str, place: str | int, element: str = "i8") -> str:
        return self.op(f"getelementptr {element}, ptr {pointer}, i64 {place}")

    # Control.

    def label(self, name: str) -> str:
        self.count += 1
        return f"{name}{self.count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def loop(
        self,
        start: str | int,
        stop: str | int,
        step: str | int,
        body: Callable[[str, list[str]], Sequence[str]],
        carried: Sequence[Typed] = (),
    ) -> list[str]:
        """for i in start..stop by step: carried = body(i, carried). Gives what is carried at the end."""
        label, done = self.label("loop"), self.label("done")
        variable = f"%{label}.i"
        names = [f"%{label}.c{number}" for number in range(len(carried))]
        before = self.block
        self.write(f"br i1 {self.compare('slt', str(start), stop)}, label %{label}, label %{done}")
        self.start(label)
        mark = len(self.lines)
        after = body(variable, names)
        following = self.add(variable, step)
        self.write(f"br i1 {self.compare('slt', following, stop)}, label %{label}, label %{done}")
        latch = self.block
        phis = [f"  {variable} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]"]
        for name, (kind, first), last in zip(names, carried, after, strict=True):
            phis.append(f"  {name} = phi {kind} [ {first}, %{before} ], [ {last}, %{latch} ]")
        self.lines[mark:mark] = phis
        self.start(done)
        return [
            self.op(f"phi {kind} [ {first}, %{before} ], [ {last}, %{latch} ]")
            for (kind, first), last in zip(carried, after, strict=True)
        ]

    def choose(
        self,
        condition: str,
        yes: Callable[[], Sequence[Typed] | None],
        no: Callable[[], Sequence[Typed] | None] | None = None,
    ) -> list[str]:
        """if condition: yes() else: no(). Gives what the branches give."""
        first, second, done = self.label("yes"), self.label("no"), self.label("done")
        self.write(f"br i1 {condition}, label %{first}, label %{second}")
        ends: list[tuple[Sequence[Typed], str]] = []
        for label, branch in ((first, yes), (second, no)):
            self.start(label)
            values = (branch() if branch is not None else None) or ()
            ends.append((values, self.block))
            self.write(f"br label %{done}")
        self.start(done)
        (left, left_block), (right, right_block) = ends
        return [
            self.op(f"phi {kind} [ {one}, %{left_block} ], [ {other}, %{right_block} ]")
            for (kind, one), (_, other) in zip(left, right, strict=True)
        ]
