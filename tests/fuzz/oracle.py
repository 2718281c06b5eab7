"""What a program's results may be, by PyTorch alone.

The program runs eagerly in its own types and once more in float64. Roundings that an implementation is free to make
are imitated: further runs disturb, by some units in the last place, the operands and results of every step that
rounds. A result may differ from eager's as far as these runs do; an element that they throw from one number to another
(a comparison of rounded numbers, an argmax of a tie) says nothing, is excused, and counted as such. A step whose
results are the same in float64 does not round and is not disturbed, so whole numbers stay exact through comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from smelt.ir.types import DTYPES
from support import TORCH_DTYPES, from_torch

from .program import Program, call

DISTURBED = 5  # runs
ULPS = 2  # of a disturbance at most
SLACK = 8.0  # times the spread of the disturbed runs
EPSILON = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23, torch.float64: 2.0**-52}
SMALLEST = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133, torch.float32: 2.0**-149, torch.float64: 0.0}
LARGEST = {name: torch.finfo(name).max for name in EPSILON}
# Of the largest number. f16 is computed in f32, which holds sums of all f16 numbers.
NEAR_OVERFLOW = dict.fromkeys(EPSILON, 2.0**-10) | {torch.float16: 0.25}
REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
# Units in the last place of the largest element that the inside of a step may cost. f16 and bf16 are computed in f32:
# float64 is the better reference. It is none for f64, where equal terms of long sums round alike.
COMPOSITE = {torch.float16: 4.0, torch.bfloat16: 4.0, torch.float32: 64.0, torch.float64: 512.0}
SHORT = 2.0**24  # f64 results with so few bits count as exact

Runner = Callable[[list[torch.Tensor], Callable[..., tuple[torch.Tensor, ...]]], list[torch.Tensor | None]]


def widened(name: str) -> torch.dtype:
    """The type of the float64 run in place of a type."""
    kind = DTYPES[name].kind
    return torch.float64 if kind == "f" else torch.complex128 if kind == "c" else TORCH_DTYPES[name]


def widen(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor


def epsilon(tensor: torch.Tensor) -> float:
    return EPSILON[REAL.get(tensor.dtype, tensor.dtype)]


def inexact(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and (item.is_floating_point() or item.is_complex())


@dataclass
class Execution:
    """Runs the steps of a program in one way; `rounds` says of each step which elements of its results are rounded."""

    program: Program
    rounds: list[list[Any]] | None = None  # None: nothing is disturbed
    wide: bool = False
    seed: int = 0
    kept: list[list[Any]] = field(default_factory=list)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        source = torch.Generator().manual_seed(self.seed)
        values: list[Any] = list(tensors)
        self.kept = []
        for at, step in enumerate(self.program.steps):
            rounded = None if self.rounds is None else self.rounds[at]
            disturbs = rounded is not None and any(item is not None and bool(item.any()) for item in rounded)
            # Each use of a value has a disturbance of its own, and so has its share of a gradient.
            operands = [partial(disturb, item, None, source) for item in values] if disturbs else values
            results = call(step, operands, widened) if self.wide else call(step, operands)
            if disturbs:
                assert rounded is not None
                results = [disturb(item, mask, source) for item, mask in zip(results, rounded)]
            self.kept.append([item.detach() if isinstance(item, torch.Tensor) else item for item in results])
            values.extend(results)
        return tuple(values[number] for number in self.program.results)


def disturb(item: Any, where: torch.Tensor | None, source: torch.Generator) -> Any:
    """A tensor with the last bits of its elements changed, everywhere or where a mask says so."""
    if not inexact(item):
        return item
    noise = torch.randint(-ULPS, ULPS + 1, item.shape, generator=source).to(torch.float64) * epsilon(item)
    if where is not None:
        noise = noise * where
    elif item.dtype in (torch.float64, torch.complex128):
        noise = noise * ~short(item.detach())
    changed = item * (1 + noise).to(item.dtype if item.dtype is not torch.complex64 else torch.complex64)
    if item.dtype in (torch.float16, torch.bfloat16):
        # 1 + noise has no more bits than the type: the product is made in f32.
        changed = (item.to(torch.float32) * (1 + noise).to(torch.float32)).to(item.dtype)
    return torch.where(torch.isfinite(item.detach()), changed, item)


def short(item: torch.Tensor) -> torch.Tensor:
    """Where f64 numbers have few bits, as whole numbers do."""
    if item.is_complex():
        return short(item.real) & short(item.imag)
    scaled = item * 1024
    return (scaled == scaled.round()) & (scaled.abs() < SHORT)


def rounded_elements(native: Any, wide: Any) -> torch.Tensor | None:
    """Where a result is not exactly what float64 has."""
    if not inexact(native) or not isinstance(wide, torch.Tensor) or native.shape != wide.shape:
        return None
    same = (widen(native) == wide) | (native.isnan() & wide.isnan())
    if native.dtype in (torch.float64, torch.complex128):
        same = same & short(native)
    return ~same


@dataclass
class Expected:
    """The results of all runs, one list a result: eager's own first, float64's second."""

    runs: list[list[np.ndarray | None]]
    coarsest: torch.dtype | None = None  # the coarsest type of the values that derivatives are made of
    room: float = 1.0  # times the error that a composite may have: a derivative has many steps inside of one
    derivative: bool = False  # whose NaN says nothing: rules multiply what is not used by zero

    def check(self, results: Sequence[Any]) -> tuple[str, float]:
        """How results disagree, or nothing; and the share of elements that are excused."""
        native, wide, *disturbed = self.runs
        if len(results) != len(native):
            return f"{len(results)} results, expected {len(native)}", 0.0
        excused = total = 0
        for at, got in enumerate(results):
            want = native[at]
            if want is None:
                continue
            got = np.asarray(got)
            if got.dtype != want.dtype or got.shape != want.shape:
                return f"result {at}: {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}", 0.0
            others = [run[at] for run in disturbed]
            wrong, unstable = compare(
                got,
                want,
                wide[at],
                [item for item in others if item is not None],
                self.room,
                self.coarsest if self.derivative else None,
            )
            if self.derivative and want.dtype.kind in "fc":
                unstable |= np.isnan(want)
                wrong &= ~unstable
            excused, total = excused + int(unstable.sum()), total + got.size
            if wrong.any():
                place = tuple(int(item) for item in np.argwhere(wrong)[0])
                shown = wide[at][place] if wide[at] is not None else None  # type: ignore[index]
                return (
                    f"result {at}: {int(wrong.sum())} of {got.size} differ; at {list(place)} got {got[place]}, "
                    f"expected {want[place]} (float64: {shown})",
                    0.0,
                )
        return "", excused / max(total, 1)


def compare(
    got: np.ndarray,
    want: np.ndarray,
    wide: np.ndarray | None,
    others: Sequence[np.ndarray],
    room: float,
    coarsest: torch.dtype | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Where a result is wrong, and where no answer can be wrong."""
    if got.dtype.kind in "biu":
        unstable = np.zeros(got.shape, bool)
        for other in others:
            unstable |= other != want
        wrong = (got != want) & ~unstable
        return wrong if wide is None or wide.shape != got.shape else wrong & (got != wide), unstable
    with np.errstate(all="ignore"):
        as_wide = np.complex128 if got.dtype.kind == "c" else np.float64
        name = TORCH_DTYPES_BY_NUMPY[got.dtype]
        actual, known = got.astype(as_wide), want.astype(as_wide)
        exact = known if wide is None or wide.shape != known.shape else wide.astype(as_wide)
        spread = np.zeros(got.shape)
        unstable = np.zeros(got.shape, bool)
        for other in others:
            moved = other.astype(as_wide)
            finite = np.isfinite(moved) & np.isfinite(known)
            spread = np.maximum(spread, np.where(finite, np.abs(moved - known), 0.0))
            unstable |= ~finite & ~same(moved, known)
        # A composite cancels inside of one step, where no disturbance reaches: its error is of the operands' size.
        tiny = SMALLEST[name] * 4
        finite = np.abs(known)[np.isfinite(known)]
        largest = max(float(finite.max(initial=0.0)), 1.0)
        magnitude = np.maximum(np.abs(known), np.abs(exact))
        allowed = SLACK * spread + EPSILON[name] * (8 * magnitude + room * COMPOSITE[name] * largest) + tiny
        if coarsest is not None and EPSILON[coarsest] > EPSILON[name]:  # steps in a narrower type may run in either
            allowed += EPSILON[coarsest] * (8 * magnitude + COMPOSITE[coarsest] * largest)
        near = (np.abs(actual - known) <= allowed) | (np.abs(actual - exact) <= allowed)
        # A number of a narrow type on the way to a wider one, which eager rounds and a kernel need not.
        near |= np.abs(actual - exact) <= np.abs(known - exact)
        rounded = exact.astype(got.dtype).astype(as_wide)
        right = near | same(actual, known) | same(actual, rounded)
        # A sum of products is scaled before or after the others are added: near the end of the range one way overflows.
        unstable |= ~np.isfinite(actual) & (np.abs(exact) > LARGEST[name] * NEAR_OVERFLOW[name])
        # Terms that overflow and cancel: what eager makes of them depends on its order, and is no number.
        unstable |= ~np.isfinite(known) & (np.abs(exact) <= LARGEST[name])
        # Sums that cancel to nothing, overflows that depend on the order: as large as what the runs disagree by.
        unstable |= spread > 0.1 * np.maximum(np.abs(known), np.abs(exact)) + tiny
    return ~right & ~unstable, unstable


def same(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left == right) | (np.isnan(left) & np.isnan(right))


def _numpy_types() -> dict[np.dtype, torch.dtype]:
    found = {}
    for name, element in TORCH_DTYPES.items():
        found[np.dtype(DTYPES[name].numpy)] = REAL.get(element, element)
    return found


TORCH_DTYPES_BY_NUMPY = _numpy_types()


def expected(program: Program, runner: Runner) -> Expected:
    """What `runner` makes of the program, in all runs. It gets inputs and the program as a function of them."""
    native, wide = Execution(program), Execution(program, wide=True)
    tensors = program.tensors()
    results = [runner(tensors, native), runner([widen(item) for item in tensors], wide)]
    rounds = [[rounded_elements(left, right) for left, right in zip(*pair)] for pair in zip(native.kept, wide.kept)]
    for seed in range(DISTURBED):
        results.append(runner(program.tensors(), Execution(program, rounds, seed=seed + 1)))
    made = [item for step in native.kept for item in step if inexact(item)]
    return Expected(
        [[None if item is None else from_torch(item) for item in run] for run in results],
        max((REAL.get(item.dtype, item.dtype) for item in made), key=EPSILON.__getitem__, default=None),
    )
