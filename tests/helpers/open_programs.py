"""Random programs of open sizes, for smelt and for torch.

A program is a list of steps that was drawn with two different sets of sizes at once: two shapes count as the same only
if they are for both, so the steps are the same for all sizes. Some sizes are too small for some programs: then torch
raises an error, and so must smelt.

Values are small whole numbers, which are the same in every order of additions. What is not exact (a mean, a softmax)
only goes into steps that a last bit does not change much.

    program = draw(7)
    program.run(TORCH, program.inputs(5, 7))
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from smelt import ops

DRAWN = ((11, 7), (13, 10))  # rows and columns that programs are drawn with
MOST_ELEMENTS = 20_000
MOST_DIMS = 4
MOST_RESULTS = 4
LARGEST = 16  # values are clamped to this after each step that makes them larger


class Torch:
    """torch, with those of its functions that have another home."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name, None) or getattr(torch.nn.functional, name)


TORCH = Torch()
SMELT = ops


@dataclass(frozen=True)
class Step:
    """One op of a program: `run` gets a library and the operands, whose numbers are given."""

    name: str
    run: Callable[..., Any]
    operands: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} of {', '.join(f'%{number}' for number in self.operands)}"


@dataclass(frozen=True)
class Program:
    """x[N, M], y[N, M], v[M] and the indices k[N] are values 0 to 3, then comes one for each step."""

    seed: int
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    exact: tuple[bool, ...]

    def run(self, library: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        values = list(inputs)
        for step in self.steps:
            values.append(step.run(library, *(values[number] for number in step.operands)))
        return tuple(values[number] for number in self.results)

    def inputs(self, rows: int, columns: int) -> list[np.ndarray]:
        return inputs(self.seed, rows, columns)

    def __str__(self) -> str:
        lines = [f"%{number} = {step}" for number, step in enumerate(self.steps, 4)]
        return "\n".join([f"seed {self.seed}", *lines, f"return {self.results}"])


def inputs(seed: int, rows: int, columns: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    floats = [
        generator.integers(-8, 9, shape).astype(np.float32) for shape in ((rows, columns), (rows, columns), columns)
    ]
    return [*floats, generator.integers(0, rows, rows)]


def small(library: Any, value: Any) -> Any:
    return library.clamp(value, -LARGEST, LARGEST)


class Drawing:
    """What has been drawn so far: each value for both sets of sizes."""

    def __init__(self, seed: int, inexact: bool):
        self.random = random.Random(seed)
        self.inexact = inexact  # whether steps that round may be drawn
        self.values = [list(map(torch.from_numpy, inputs(seed, *sizes))) for sizes in DRAWN]
        self.exact = [True] * 4
        self.steps: list[Step] = []

    def shapes(self, number: int) -> tuple[torch.Size, ...]:
        return tuple(values[number].shape for values in self.values)

    def ndim(self, number: int) -> int:
        return self.values[0][number].ndim

    def pick(self, wanted: Callable[[int], bool] = lambda number: True) -> int:
        """A value of floats, more often a late one. There is always one if any is there: what was asked about."""
        found = [number for number in range(len(self.exact)) if number != 3 and wanted(number)]
        if not found:
            raise Unfit
        half = found[len(found) // 2 :]
        return self.random.choice(half if self.random.random() < 0.5 else found)

    def alike(self, number: int) -> int:
        """A value of the same shape."""
        return self.pick(lambda other: self.shapes(other) == self.shapes(number))

    def has_rows(self, number: int) -> bool:
        """Whether the first dim has the size of k."""
        return self.ndim(number) > 0 and all(values[number].shape[0] == values[3].shape[0] for values in self.values)

    def dim(self, number: int) -> int:
        if self.ndim(number) == 0:
            raise Unfit
        return self.random.randrange(self.ndim(number))

    def add(self, name: str, operands: Sequence[int], run: Callable[..., Any], exact: bool = True) -> None:
        """One more step, unless its values would be too large or it fits no size."""
        if not exact and not self.inexact:
            raise Unfit
        step = Step(name, run, tuple(operands))
        try:
            made = [step.run(TORCH, *(values[number] for number in operands)) for values in self.values]
        except (RuntimeError, IndexError, ValueError, TypeError):
            raise Unfit from None
        if any(value.numel() > MOST_ELEMENTS or value.ndim > MOST_DIMS for value in made):
            raise Unfit
        self.steps.append(step)
        self.exact.append(exact and all(self.exact[number] for number in operands))
        for values, value in zip(self.values, made, strict=True):
            values.append(value)


class Unfit(Exception):
    """What was drawn makes no step."""


# Each draws one step.


def unary(d: Drawing) -> None:
    name, run = d.random.choice(
        [
            ("negative", lambda m, t: -t),
            ("abs", lambda m, t: m.abs(t)),
            ("relu", lambda m, t: m.relu(t)),
            ("square", lambda m, t: small(m, t * t)),
            ("more", lambda m, t: small(m, t + 3)),
        ]
    )
    d.add(name, [d.pick()], run)


def binary(d: Drawing) -> None:
    name, run = d.random.choice(
        [
            ("add", lambda m, a, b: small(m, a + b)),
            ("sub", lambda m, a, b: small(m, a - b)),
            ("mul", lambda m, a, b: small(m, a * b)),
            ("maximum", lambda m, a, b: m.maximum(a, b)),
            ("minimum", lambda m, a, b: m.minimum(a, b)),
        ]
    )
    first = d.pick()
    d.add(name, [first, d.alike(first)], run)


def broadcast(d: Drawing) -> None:
    """Whatever torch lets meet."""
    d.add("broadcast", [d.pick(), d.pick()], lambda m, a, b: small(m, a - b))


def where(d: Drawing) -> None:
    first = d.pick()
    other = d.alike(first)
    if not (d.exact[first] and d.exact[other]):
        raise Unfit
    d.add("where", [first, other], lambda m, a, b: m.where(a > b, a, -b))


def reduction(d: Drawing) -> None:
    name = d.random.choice(["sum", "sum", "amax", "amin", "mean", "prod", "any"])
    first, keep = d.pick(), d.random.random() < 0.3
    dim = d.dim(first)

    def run(m: Any, t: Any) -> Any:
        if name == "prod":
            t = m.clamp(t, -1, 1)
        if name == "any":
            return m.any(t > 2, dim, keep).to(t.dtype)
        return small(m, getattr(m, name)(t, dim, keep))

    if name == "any" and not d.exact[first]:
        raise Unfit
    d.add(f"{name} over {dim}", [first], run, exact=name != "mean")


def whole(d: Drawing) -> None:
    name = d.random.choice(["sum", "amax", "max", "min"])
    d.add(f"{name} of all", [d.pick()], lambda m, t: small(m, getattr(m, name)(t)))


def argument(d: Drawing) -> None:
    name = d.random.choice(["argmax", "argmin"])
    first = d.pick(lambda number: d.exact[number])
    dim = d.dim(first)
    d.add(f"{name} over {dim}", [first], lambda m, t: small(m, getattr(m, name)(t, dim).to(t.dtype)))


def running(d: Drawing) -> None:
    first = d.pick()
    dim = d.dim(first)
    if d.random.random() < 0.3 and d.exact[first]:
        d.add(f"cummax over {dim}", [first], lambda m, t: m.cummax(t, dim)[0])
    else:
        d.add(f"cumsum over {dim}", [first], lambda m, t: small(m, m.cumsum(t, dim)))


def softmax(d: Drawing) -> None:
    first = d.pick()
    dim = d.dim(first)
    d.add(f"softmax over {dim}", [first], lambda m, t: m.softmax(t, dim), exact=False)


def arrange(d: Drawing) -> None:
    first = d.pick(lambda number: d.ndim(number) > 0)
    dim, by = d.dim(first), d.random.randint(-4, 4)
    order = list(range(d.ndim(first)))
    d.random.shuffle(order)
    name, run = d.random.choice(
        [
            (f"permute {order}", lambda m, t: m.permute(t, order)),
            (f"flip {dim}", lambda m, t: m.flip(t, [dim])),
            (f"roll {dim} by {by}", lambda m, t: m.roll(t, [by], [dim])),
            ("flatten", lambda m, t: m.flatten(t)),
            (f"unsqueeze {dim}", lambda m, t: m.unsqueeze(t, dim)),
            (f"merge {dim}", lambda m, t: m.flatten(t, dim, min(dim + 1, t.ndim - 1))),
        ]
    )
    d.add(name, [first], run)


def cut(d: Drawing) -> None:
    """A slice, from either end."""
    first = d.pick()
    dim = d.dim(first)
    start = d.random.choice([None, None, 0, 1, 2, 3, -1, -2, -4])
    end = d.random.choice([None, None, -1, -2, -3, 2, 4])
    step = d.random.choice([None, None, None, 2, 3])
    place = (slice(None),) * dim + (slice(start, end, step),)
    d.add(f"slice {dim} from {start} to {end} by {step}", [first], lambda m, t: t[place])


def difference(d: Drawing) -> None:
    first, by = d.pick(), d.random.randint(1, 3)
    dim = d.dim(first)
    front, back = (slice(None),) * dim + (slice(by, None),), (slice(None),) * dim + (slice(None, -by),)
    d.add(f"difference over {dim} by {by}", [first], lambda m, t: small(m, t[front] - t[back]))


def element(d: Drawing) -> None:
    first, at = d.pick(), d.random.choice([0, -1, 1, 3, -3, -5])
    dim = d.dim(first)
    d.add(f"select {at} of {dim}", [first], lambda m, t: m.select(t, dim, at))


def narrow(d: Drawing) -> None:
    first, start, length = d.pick(), d.random.choice([0, 1, 3, -3, -4]), d.random.randint(0, 4)
    dim = d.dim(first)
    if d.random.random() < 0.5:
        d.add(f"narrow {dim} {start} {length}", [first], lambda m, t: m.narrow(t, dim, start, length))
    else:
        d.add(f"narrow {dim} 1 but {length}", [first], lambda m, t: m.narrow(t, dim, 1, t.shape[dim] - length))


def part(d: Drawing) -> None:
    """One of the parts of a split."""
    first, number = d.pick(), d.random.randint(1, 4)
    dim, which = d.dim(first), d.random.choice([0, -1, 1])
    name, run = d.random.choice(
        [
            (f"part {which} of split {dim} by {number}", lambda m, t: m.split(t, number, dim)[which]),
            (f"part {which} of {number} chunks of {dim}", lambda m, t: m.chunk(t, number, dim)[which]),
            (f"part {which} of {number} of {dim}", lambda m, t: m.tensor_split(t, number, dim)[which]),
        ]
    )
    d.add(name, [first], run)


def join(d: Drawing) -> None:
    first = d.pick()
    dim = d.dim(first)

    def fits(other: int) -> bool:
        pairs = zip(d.shapes(first), d.shapes(other), strict=True)
        return all(
            len(one) == len(two) and all(a == b for at, (a, b) in enumerate(zip(one, two, strict=True)) if at != dim)
            for one, two in pairs
        )

    d.add(f"cat over {dim}", [first, *(d.pick(fits) for _ in range(d.random.randint(1, 2)))],
          lambda m, *parts: m.cat(list(parts), dim))  # fmt: skip


def stack(d: Drawing) -> None:
    first = d.pick()
    dim = d.random.randint(0, d.ndim(first))
    d.add(f"stack over {dim}", [first, d.alike(first)], lambda m, a, b: m.stack([a, b], dim))


def pad(d: Drawing) -> None:
    first = d.pick()
    dim = d.dim(first)
    before, after = d.random.randint(-3, 3), d.random.randint(-3, 3)
    edges = [0, 0] * (d.ndim(first) - 1 - dim) + [before, after]
    d.add(f"pad {edges}", [first], lambda m, t: m.constant_pad_nd(t, edges, 1))


def edge(d: Drawing) -> None:
    first = d.pick(lambda number: d.ndim(number) in (2, 3))
    mode = d.random.choice(["reflect", "replicate", "circular"])
    edges = [d.random.randint(0, 3), d.random.randint(0, 3)]
    d.add(f"pad {edges} {mode}", [first], lambda m, t: m.pad(t, edges, mode))


def window(d: Drawing) -> None:
    first, size, step = d.pick(), d.random.randint(1, 5), d.random.randint(1, 3)
    dim = d.dim(first)
    d.add(f"unfold {dim} {size} {step}", [first], lambda m, t: t.unfold(dim, size, step))


def pool(d: Drawing) -> None:
    first = d.pick(lambda number: d.ndim(number) in (2, 3))
    size, step, ceil = d.random.randint(1, 4), d.random.randint(1, 3), d.random.random() < 0.3
    padding = d.random.randint(0, size // 2)
    if d.random.random() < 0.6:
        spread = d.random.randint(1, 2) if padding == 0 else 1  # no window of padding alone
        d.add(f"max_pool1d {size} {step} {padding} {spread} {ceil}", [first],
              lambda m, t: m.max_pool1d(t, size, step, padding, spread, ceil))  # fmt: skip
    else:
        d.add(f"avg_pool1d {size} {step} {padding} {ceil}", [first],
              lambda m, t: m.avg_pool1d(t, size, step, padding, ceil), exact=False)  # fmt: skip


def convolve(d: Drawing) -> None:
    """Every row by itself, into two channels."""
    first = d.pick(lambda number: d.ndim(number) == 2)
    size, step, padding, spread = (d.random.randint(*ends) for ends in ((1, 5), (1, 3), (0, 2), (1, 2)))
    weight = np.random.default_rng(size).integers(-2, 3, (2, 1, size)).astype(np.float32)
    weights = {TORCH: torch.from_numpy(weight), SMELT: weight}
    if d.random.random() < 0.3:
        padding = min(padding, (size - 1) // 2)  # torch's libraries differ about results of no size
        turned = {TORCH: weights[TORCH].transpose(0, 1), SMELT: weight.swapaxes(0, 1).copy()}
        d.add(f"conv_transpose1d {size} {step} {padding}", [first], lambda m, t: small(
            m, m.conv_transpose1d(m.unsqueeze(t, 1), turned[m], None, step, padding)))  # fmt: skip
    else:
        d.add(f"conv1d {size} {step} {padding} {spread}", [first], lambda m, t: small(
            m, m.conv1d(m.unsqueeze(t, 1), weights[m], None, step, padding, spread)))  # fmt: skip


def product(d: Drawing) -> None:
    first = d.pick(lambda number: d.ndim(number) == 2)
    other = d.pick(
        lambda number: (
            d.ndim(number) == 2
            and all(one[1] == two[1] for one, two in zip(d.shapes(first), d.shapes(number), strict=True))
        )
    )
    d.add("matmul", [first, other], lambda m, a, b: small(m, a @ m.transpose(b, 0, 1)))


def triangle(d: Drawing) -> None:
    first, at = d.pick(lambda number: d.ndim(number) > 1), d.random.randint(-2, 2)
    name = d.random.choice(["tril", "triu", "diagonal"])
    d.add(f"{name} {at}", [first], lambda m, t: getattr(m, name)(t, at))


def gather(d: Drawing) -> None:
    first = d.pick(d.has_rows)
    if d.random.random() < 0.5:
        d.add("index_select", [first, 3], lambda m, t, k: m.index_select(t, 0, k))
        return
    cropped = d.random.randint(0, 2)
    first = d.pick(lambda number: d.has_rows(number) and d.ndim(number) == 2)
    d.add(f"gather but {cropped}", [first, 3], lambda m, t, k: m.gather(
        t, 0, m.unsqueeze(k, 1).expand(t.shape)[: t.shape[0] - cropped]))  # fmt: skip


def scatter(d: Drawing) -> None:
    first = d.pick(d.has_rows)
    other = d.alike(first)
    if d.random.random() < 0.5:
        d.add("index_add", [first, 3, other], lambda m, t, k, u: small(m, m.index_add(t, 0, k, u)))
        return
    first = d.pick(lambda number: d.has_rows(number) and d.ndim(number) == 2)
    other = d.alike(first)
    d.add("scatter_add", [first, 3, other], lambda m, t, k, u: small(
        m, m.scatter_add(t, 0, m.unsqueeze(k, 1).expand(t.shape), u)))  # fmt: skip


def put(d: Drawing) -> None:
    """A part put back. Into a copy: torch writes through windows that overlap."""
    first, start, end = d.pick(), d.random.randint(0, 3), d.random.choice([None, -1, -2])
    dim = d.dim(first)
    place = (slice(None),) * dim + (slice(start, end),)
    d.add(f"slice_scatter {dim} from {start} to {end}", [first],
          lambda m, t: m.slice_scatter(t + 0, -t[place], dim, start, end))  # fmt: skip


def count(d: Drawing) -> None:
    first = d.pick(lambda number: d.ndim(number) > 0)
    name, run = d.random.choice(
        [
            ("arange", lambda m, t: small(m, t + m.arange(t.shape[-1]).to(t.dtype))),
            ("arange less 4", lambda m, t: small(m, m.arange(t.shape[-1] - 4).to(t.dtype))),
            ("full", lambda m, t: m.full((t.shape[0] - 3, 2), 1.5)),
            ("times its size", lambda m, t: small(m, t * t.shape[0])),
        ]
    )
    d.add(name, [first], run)


def repeat(d: Drawing) -> None:
    first = d.pick(lambda number: d.ndim(number) > 0)
    times = [d.random.randint(1, 2) for _ in range(d.ndim(first))]
    d.add(f"repeat {times}", [first], lambda m, t: t.repeat(times))


def spread(d: Drawing) -> None:
    first = d.pick(lambda number: 0 < d.ndim(number) < 3)
    d.add("outer", [first], lambda m, t: small(m, m.unsqueeze(t, 1) * m.unsqueeze(t, 0)))


KINDS = (
    unary, binary, binary, broadcast, where, reduction, reduction, whole, argument, running, softmax, arrange, arrange,
    cut, cut, difference, element, narrow, part, join, stack, pad, edge, window, pool, convolve, product, triangle,
    gather, scatter, put, count, repeat, spread,
)  # fmt: skip


def draw(seed: int, inexact: bool = True) -> Program:
    drawing = Drawing(seed, inexact)
    wanted = drawing.random.randint(1, 12)
    while len(drawing.steps) < wanted:
        try:
            drawing.random.choice(KINDS)(drawing)
        except Unfit:
            continue
    numbers = range(4, len(drawing.exact))[-MOST_RESULTS:]
    exact = tuple(drawing.exact[number] for number in numbers)
    return Program(seed, tuple(drawing.steps), tuple(numbers), exact)
