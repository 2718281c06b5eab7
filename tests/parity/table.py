"""The vocabulary of the sample tables: what to call an op with, and in which element types.

    "add": entry(S(t(37), t(37)), S(t(2, 3), t(3), alpha=2), dtypes=ANY)

A tensor is described (`t(2, 3, low=0.1)`), not given, so that it can be made in each element type. A sample
is made for f32 and f64 always; the other types of an entry are spread over its samples, each at least once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from smelt.ir.types import DTYPES
from support import TORCH_DTYPES

FLOAT = ("f32", "f64", "f16", "bf16")
FULL = ("f32", "f64")
COMPLEX = ("c64", "c128")
INTEGER = ("i64", "i32", "u8", "i8", "i16", "u16", "u32", "u64")
EXACT = (*INTEGER, "bool")
SIGNED = (*FLOAT, "i64", "i32", "i8", "i16")
NUMBER = (*FLOAT, *INTEGER)
REAL = (*FLOAT, *EXACT)
INEXACT = (*FLOAT, *COMPLEX)
ANY = (*REAL, *COMPLEX)
ALWAYS = ("f32", "f64")


@dataclass(frozen=True)
class T:
    """A tensor to be made. dtype None is the element type under test."""

    shape: tuple[int, ...]
    low: float = -3.0
    high: float = 3.0
    dtype: str | None = None
    kind: str = "uniform"  # uniform | nonzero | distinct | values
    values: tuple[Any, ...] = ()
    differentiate: bool = True

    def make(self, dtype: str, seed: int) -> np.ndarray:
        """The array for one element type."""
        dtype = self.dtype or dtype
        kind, numpy = DTYPES[dtype].kind, DTYPES[dtype].numpy
        random = np.random.default_rng(seed)
        if self.kind == "values":
            return np.array(self.values).astype(numpy).reshape(self.shape)
        if kind == "b":
            return random.random(self.shape) < 0.5
        count = int(np.prod(self.shape))
        if self.kind == "distinct":
            # Apart by a whole step, so that an order does not depend on rounding.
            spaced = random.permutation(count) if kind in "iu" else np.linspace(self.low, self.high, max(count, 2))
            return random.permutation(spaced[:count]).reshape(self.shape).astype(numpy)
        if kind in "iu":
            low, high = int(np.ceil(self.low)), int(np.floor(self.high))
            low = max(low, 0) if kind == "u" else low
            if self.kind == "nonzero":
                magnitude = random.integers(max(low, 1), max(high, 1), self.shape, endpoint=True)
                return (magnitude * (1 if kind == "u" else random.choice([-1, 1], self.shape))).astype(numpy)
            return random.integers(low, max(high, low), self.shape, endpoint=True).astype(numpy)
        real = self._floats(random)
        if kind == "c":
            return np.asarray(real + 1j * self._floats(random)).astype(numpy)
        return np.asarray(real).astype(numpy)

    def _floats(self, random: np.random.Generator) -> Any:
        floats = random.uniform(self.low, self.high, self.shape)
        return floats * random.choice([-1, 1], self.shape) if self.kind == "nonzero" else floats


def t(*shape: int, low: float = -3.0, high: float = 3.0, dtype: str | None = None, differentiate: bool = True) -> T:
    """Uniform in low..high; integers in the same range."""
    return T(shape, low, high, dtype, differentiate=differentiate)


def nonzero(*shape: int, low: float = 0.3, high: float = 3.0, dtype: str | None = None) -> T:
    """Of either sign, at least `low` in magnitude."""
    return T(shape, low, high, dtype, "nonzero")


def distinct(*shape: int, low: float = -3.0, high: float = 3.0) -> T:
    """No two elements equal or nearly so."""
    return T(shape, low, high, None, "distinct")


def values(
    *items: Any, dtype: str | None = None, shape: tuple[int, ...] | None = None, differentiate: bool = True
) -> T:
    """Just these."""
    return T(
        (len(items),) if shape is None else shape,
        dtype=dtype,
        kind="values",
        values=items,
        differentiate=differentiate,
    )


def index(*shape: int, below: int, low: int = 0, dtype: str = "i64") -> T:
    """Integers in low..below-1."""
    return T(shape, low, below - 1, dtype, differentiate=False)


def mask(*shape: int) -> T:
    """Random bools."""
    return T(shape, dtype="bool", differentiate=False)


@dataclass(frozen=True)
class D:
    """A dtype attribute: each side gets its own object."""

    name: str


@dataclass(frozen=True)
class Sample:
    """One call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dtypes: tuple[str, ...] | None = None
    modes: tuple[str, ...] = ("forward", "vjp", "jvp")

    def only(self, *dtypes: str) -> Sample:
        """The same for these element types alone."""
        return replace(self, dtypes=dtypes)

    def forward_only(self) -> Sample:
        """The same without derivatives: where the point is no place to differentiate at."""
        return replace(self, modes=("forward",))


def S(*args: Any, **kwargs: Any) -> Sample:
    return Sample(args, kwargs)


@dataclass(frozen=True)
class Entry:
    """All samples of an op. `torch` is its counterpart if not of the same name, "interp" if there is none."""

    samples: tuple[Sample, ...]
    dtypes: tuple[str, ...] = FLOAT
    torch: Callable[..., Any] | str | None = None
    special: bool = True  # whether an elementwise op is also tried on nan, infinities and the like
    derivative: bool = True  # whether there is a derivative worth comparing
    forward_mode: bool = True  # whether torch's forward mode is to be trusted; else it is made from the reverse
    outputs: int | None = None  # how many of the results have derivatives; torch's saved statistics have none
    loose: float = 1.0  # tolerances times this, where the samples are ill-conditioned

    def cases(self) -> list[tuple[int, str]]:
        """(sample number, element type): all of f32 and f64, the other types spread."""
        found: list[tuple[int, str]] = []
        count = len(self.samples)
        spread: dict[int, list[str]] = {}
        for position, dtype in enumerate(item for item in self.dtypes if item not in ALWAYS):
            for step in range(count):
                number = (position + step) % count
                allowed = self.samples[number].dtypes
                if allowed is None or dtype in allowed:
                    spread.setdefault(number, []).append(dtype)
                    break
        for number, sample in enumerate(self.samples):
            always = [
                dtype for dtype in ALWAYS if dtype in self.dtypes and (sample.dtypes is None or dtype in sample.dtypes)
            ]
            found.extend((number, dtype) for dtype in (*always, *spread.get(number, ())))
        return found


def entry(*samples: Sample, **fields: Any) -> Entry:
    return Entry(tuple(samples), **fields)


UNARY_SHAPES = ((37,), (), (0,), (1,), (2, 3, 5), (3, 0, 2))
BINARY_SHAPES = (
    ((37,), (37,)),
    ((2, 3, 1), (4,)),
    ((), (5,)),
    ((3, 1), ()),
    ((0,), (1,)),
    ((2, 1, 3), (2, 4, 1)),
)
TERNARY_SHAPES = (((37,), (37,), (37,)), ((2, 3), (3,), (1,)), ((), (4,), ()), ((0,), (0,), (1,)))


def unary(*extra: Sample, low: float = -3.0, high: float = 3.0, kind: str = "uniform", **fields: Any) -> Entry:
    """An elementwise op of one tensor, on the usual shapes."""
    shapes = [Sample((T(shape, low, high, None, kind),), {}) for shape in UNARY_SHAPES]
    return entry(*shapes, *extra, **fields)


def binary(*extra: Sample, left: T | None = None, right: T | None = None, mixed: bool = True, **fields: Any) -> Entry:
    """An elementwise op of two tensors: broadcasting pairs, and pairs of different types."""
    left, right = left or t(), right or t()
    pairs = [Sample((replace(left, shape=a), replace(right, shape=b)), {}) for a, b in BINARY_SHAPES]
    if mixed:
        other = replace(right, shape=(5,))
        pairs += [
            S(replace(left, shape=(5,)), replace(other, dtype="i32", differentiate=False)),
            S(replace(left, shape=(5,)), replace(other, shape=(), dtype="f64")),
            S(replace(left, shape=(), dtype="f64"), replace(other, dtype="f32")),
            S(replace(left, shape=(5,)), replace(other, dtype="bool", differentiate=False)).only(*FLOAT),
        ]
    return entry(*pairs, *extra, **fields)


def ternary(*extra: Sample, parts: Sequence[T] = (t(), t(), t()), **fields: Any) -> Entry:
    """An elementwise op of three tensors."""
    triples = [
        Sample(tuple(replace(part, shape=shape) for part, shape in zip(parts, shapes)), {}) for shapes in TERNARY_SHAPES
    ]
    return entry(*triples, *extra, **fields)


@dataclass
class Call:
    """A sample made in one element type: arrays, and where they go among the arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arrays: list[np.ndarray] = field(default_factory=list)
    differentiate: list[int] = field(default_factory=list)

    def arguments(self, tensors: Sequence[Any], torch_side: bool) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with these tensors in the place of the arrays."""

        def fill(item: Any) -> Any:
            if isinstance(item, Slot):
                return tensors[item.position]
            if isinstance(item, D):
                return (TORCH_DTYPES if torch_side else DTYPES)[item.name]
            if isinstance(item, (tuple, list)):
                return [fill(part) for part in item]
            return item

        return [fill(item) for item in self.args], {name: fill(item) for name, item in self.kwargs.items()}


@dataclass(frozen=True)
class Slot:
    """The place of an array among the arguments."""

    position: int


def make(sample: Sample, dtype: str, name: str) -> Call:
    """The call for one element type. The same name makes the same arrays."""
    call = Call((), {})
    # Not by dtype: the same numbers in every type, as far as a type can hold them.
    seed = zlib.crc32(name.encode())

    def place(item: Any) -> Any:
        if isinstance(item, T):
            array = item.make(dtype, seed + len(call.arrays))
            if item.differentiate and array.dtype.kind not in "biu":
                call.differentiate.append(len(call.arrays))
            call.arrays.append(array)
            return Slot(len(call.arrays) - 1)
        if isinstance(item, (tuple, list)):
            return tuple(place(part) for part in item)
        return item

    call.args = tuple(place(item) for item in sample.args)
    call.kwargs = {key: place(item) for key, item in sample.kwargs.items()}
    return call


SPECIAL = (
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 3.14159265, 20.0, -20.0, 90.0,
    -110.0, 1e4, -6e4, 1e-4, -6e-8, 0.99999, -0.99999, 1.5, 2.5, -2.5,
)  # fmt: skip


def special_sample(sample: Sample) -> Sample | None:
    """The sample with its float tensors replaced by special values; two tensors meet in all combinations."""
    tensors = [item for item in (*sample.args, *sample.kwargs.values()) if isinstance(item, T) and item.dtype is None]
    if not tensors or len(tensors) > 3:
        return None
    count = len(SPECIAL)
    columns = {1: (1,), 2: (1, count), 3: (1, count, 7)}[len(tensors)]
    length = count if len(tensors) == 1 else count * count
    taken = iter(columns)

    def place(item: Any) -> Any:
        if isinstance(item, T) and item.dtype is None:
            stride = next(taken)
            return values(*(SPECIAL[(position // stride) % count] for position in range(length)))
        if isinstance(item, T):
            return replace(item, shape=(length,))
        return item

    args = tuple(place(item) for item in sample.args)
    return Sample(args, {key: place(item) for key, item in sample.kwargs.items()}, FLOAT, ("forward",))


def torch_function(path: str) -> Callable[..., Any] | None:
    """torch.<path>, or None if there is none."""
    found: Any = torch
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found if callable(found) else None
