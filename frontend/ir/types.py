"""Element types, tensor types, and PyTorch's promotion rules. (NumPy's: frontend/promotion.py.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .errors import DTypeError, suggest
from .symbolic import Dim, Expr, product


class DType:
    """An element type. There is one object for each: smelt itself compares with `is`.

    It compares equal to NumPy's type and its names, and NumPy accepts it: `np.zeros(3, x.dtype)`.
    """

    __slots__ = ("_hash", "bits", "kind", "name", "numpy")

    def __init__(self, name: str, kind: str, bits: int, numpy: Any):
        self.name = name
        self.kind = kind  # b: bool, u: unsigned, i: signed, f: float, c: complex, e: float8, which is only stored
        self.bits = bits  # size in memory
        self.numpy = np.dtype(numpy)
        self._hash = hash(self.numpy)

    def __eq__(self, other: object) -> bool:
        if self is other or other.__class__ is DType:
            return self is other
        try:
            return user_dtype(other) is self
        except DTypeError:
            return False

    def __hash__(self) -> int:
        return self._hash  # equal to NumPy's type, so the hash is the same

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype, (self.name,))

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type: the attribute that `np.dtype(...)` reads."""
        return self.numpy

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        """Float or complex: the types that have derivatives."""
        return self.kind in "fce"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned, not bool."""
        return self.kind in "iu"

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest number of an integer type."""
        top = 1 << (self.bits - (self.kind == "i"))
        return (-top if self.kind == "i" else 0), top - 1

    @property
    def compute(self) -> DType:
        """The type that arithmetic on this type is done in: f16 and bf16 in f32, rounded when stored."""
        return f32 if self.bits == 16 and self.kind == "f" else self

    @property
    def real(self) -> DType:
        """The type of the parts of a complex type; the type itself otherwise."""
        return {"c64": f32, "c128": f64}.get(self.name, self)


bool_ = DType("bool", "b", 8, np.bool_)
u8 = DType("u8", "u", 8, np.uint8)
u16 = DType("u16", "u", 16, np.uint16)
u32 = DType("u32", "u", 32, np.uint32)
u64 = DType("u64", "u", 64, np.uint64)
i8 = DType("i8", "i", 8, np.int8)
i16 = DType("i16", "i", 16, np.int16)
i32 = DType("i32", "i", 32, np.int32)
i64 = DType("i64", "i", 64, np.int64)
f16 = DType("f16", "f", 16, np.float16)
bf16 = DType("bf16", "f", 16, ml_dtypes.bfloat16)
f32 = DType("f32", "f", 32, np.float32)
f64 = DType("f64", "f", 64, np.float64)
c64 = DType("c64", "c", 64, np.complex64)
c128 = DType("c128", "c", 128, np.complex128)

f8_e4m3fn = DType("f8_e4m3fn", "e", 8, ml_dtypes.float8_e4m3fn)
f8_e5m2 = DType("f8_e5m2", "e", 8, ml_dtypes.float8_e5m2)

STORAGE = (f8_e4m3fn, f8_e5m2)  # no arithmetic: they are cast, moved and stored
DTYPES: dict[str, DType] = {
    entry.name: entry
    for entry in (bool_, u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64, c64, c128, *STORAGE)
}
FLOAT = (f16, bf16, f32, f64)
COMPLEX = (c64, c128)
INEXACT = FLOAT + COMPLEX
INTEGER = (u8, u16, u32, u64, i8, i16, i32, i64)
REAL = (bool_, *INTEGER, *FLOAT)
EXACT = (bool_, *INTEGER)
ANY = (*REAL, *COMPLEX)

_BY_NUMPY = {entry.numpy: entry for entry in DTYPES.values()}
_BY_NAME = DTYPES | {str(entry.numpy): entry for entry in DTYPES.values()}
# Names that count bits in smelt and bytes in NumPy. (f16, too, but NumPy's type of 16 bytes is not portable.)
_OF_NUMPY_TOO = ("i8", "u8")


def dtype(value: object) -> DType:
    """Return the element type for a name, a NumPy, Python or torch type; smelt's meaning of a name comes first."""
    if isinstance(value, DType):
        return value
    if isinstance(value, np.dtype) and value in _BY_NUMPY:
        return _BY_NUMPY[value]
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    return user_dtype(value)


def user_dtype(value: object) -> DType:
    """Return the element type for a user's argument: NumPy's spellings mean NumPy's types, so 'i8' is i64; Python's
    types mean what they mean in NumPy and PyTorch."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in _BY_NAME and value not in _OF_NUMPY_TOO:
        return _BY_NAME[value]
    text = str(value)
    if text.startswith("torch."):
        return dtype(text[len("torch.") :])
    try:
        named = None if value is None else np.dtype(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        named = None
    found = None if named is None else _BY_NUMPY.get(named)
    if found is not None:
        return found
    known = f"; smelt has {', '.join(DTYPES)}"
    if isinstance(value, str):
        raise DTypeError(f"unknown dtype {value!r}{suggest(value, _BY_NAME)}{known}")
    advice = ": convert the array first" if isinstance(value, np.dtype) else ""
    raise DTypeError(f"unknown dtype {text if named is None else named}{known}{advice}")


class TensorType:
    """dtype and shape, printed as f32[N, 64]."""

    __slots__ = ("_hash", "_static", "_text", "dtype", "shape")

    def __init__(self, dtype: DType, shape: Sequence[Dim]):
        self.dtype = dtype
        self.shape = tuple(shape)
        self._hash = hash((dtype.name, self.shape))
        self._text = ""  # made on first use: many values share a type
        self._static: bool | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType) and self.dtype is other.dtype and self.shape == other.shape

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if not self._text:
            self._text = f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"
        return self._text

    @property
    def is_static(self) -> bool:
        """Whether no size is symbolic."""
        if self._static is None:
            self._static = Expr not in map(type, self.shape)
        return self._static

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dim:
        return product(self.shape)

    @property
    def nbytes(self) -> Dim:
        return self.numel * self.dtype.bytes


_SCALARS = {entry: TensorType(entry, ()) for entry in DTYPES.values()}


def scalar_type(value: DType) -> TensorType:
    """Return the type of a 0-dim tensor."""
    return _SCALARS[value]


_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3, "e": 4}
_ALONE = {u16, u32, u64}  # promote with bool and floats only
_INTEGER_ORDER = {"i8": 0, "i16": 1, "i32": 2, "i64": 3}


def promote_pair(a: DType, b: DType) -> DType:
    """The smallest type that holds both, as PyTorch's promotion lattice has it."""
    if a is b:
        return a
    if _CATEGORY[a.kind] < _CATEGORY[b.kind]:
        a, b = b, a
    if a.kind == "e":
        raise DTypeError(f"{a} and {b} have no common type, as in PyTorch: cast them, x.astype('float32')")
    if a.kind == "c":
        if b.kind == "c":
            return c128
        return c128 if b is f64 else a
    if a.kind == "f":
        if b.kind != "f":
            return a
        if {a, b} == {f16, bf16}:
            return f32
        return a if a.bits > b.bits else b
    if b.kind == "b":
        return a
    if {a, b} & _ALONE:
        raise DTypeError(f"{a} and {b} have no common type, as in PyTorch: cast one of them")
    if a is u8 or b is u8:
        other = b if a is u8 else a
        return i16 if other is i8 else other
    return a if _INTEGER_ORDER[a.name] > _INTEGER_ORDER[b.name] else b


def _common(types: Sequence[TensorType | bool | int | float | complex]) -> DType | None:
    """Return the dtype that all tensors share, if no number can raise its category; else None. The fast path."""
    common: DType | None = None
    numbers = False
    for item in types:
        if isinstance(item, TensorType):
            if common is None:
                common = item.dtype
            elif item.dtype is not common:
                return None
        elif item.__class__ is complex:
            return None
        else:
            numbers = True
    return common if common is None or not numbers or common.kind in "fc" else None


def promote(types: Sequence[TensorType | bool | int | float | complex]) -> DType:
    """Return the promoted type by PyTorch's rule: tensors with dimensions decide; 0-dim tensors, then Python scalars,
    only raise the category."""
    common = _common(types)
    if common is not None:
        return common
    dimensioned: DType | None = None
    zero: DType | None = None
    scalar: DType | None = None
    for item in types:
        if isinstance(item, TensorType):
            if item.shape:
                dimensioned = item.dtype if dimensioned is None else promote_pair(dimensioned, item.dtype)
            else:
                zero = item.dtype if zero is None else promote_pair(zero, item.dtype)
        else:
            kind = scalar_dtype(item)
            scalar = kind if scalar is None else promote_pair(scalar, kind)
    result = dimensioned
    for weaker in (zero, scalar):
        if weaker is None:
            continue
        if result is None:
            result = weaker
        elif _CATEGORY[weaker.kind] > _CATEGORY[result.kind]:
            # A weak complex takes its precision from the strong real type.
            if weaker.kind == "c" and result.kind == "f":
                result = c128 if result is f64 else c64
            else:
                result = weaker if weaker is not scalar or weaker.kind != "f" else f32
    if result is None:
        raise DTypeError("nothing to promote")
    return result


def dtype_beside(number: DType, types: Sequence[TensorType], default_float: DType) -> DType:
    """Return the type of a Python number beside tensors, by PyTorch's rule; `number` is the type that holds it exactly.

    default_float: the type that integers promote to beside a float number.
    """
    strong = promote(types) if types else bool_
    if _CATEGORY[number.kind] <= _CATEGORY[strong.kind]:
        # Beside f16 and bf16 a number keeps the precision that the arithmetic is done in.
        return strong.compute if any(type.shape for type in types) else strong
    if number.kind not in "fc":
        return number
    real = strong if strong.kind == "f" else default_float
    return real if number.kind == "f" else c128 if real is f64 else c64


def number_dtype(value: bool | int | float | complex) -> DType:
    """Return the type that holds a Python number exactly."""
    kind = scalar_dtype(value)
    return {f32: f64, c64: c128}.get(kind, kind)


def scalar_dtype(value: object) -> DType:
    """Return the type of a Python or NumPy scalar without tensors beside it."""
    if isinstance(value, bool | np.bool_):
        return bool_
    if isinstance(value, int | np.integer):
        return i64
    if isinstance(value, float | np.floating):
        return f32
    if isinstance(value, complex | np.complexfloating):
        return c64
    raise DTypeError(f"{type(value).__name__} is not a number")


def float_of(value: DType) -> DType:
    """Return the type in which an op that needs floats takes a type: integers become f32."""
    return value if value.is_inexact else f32


# A layout: dims from the one with the largest stride to that with the smallest.
Order = tuple[int, ...]


def inverse(order: Order) -> Order:
    """Return the permutation that undoes another."""
    return tuple(order.index(dim) for dim in range(len(order)))
