"""NumPy's promotion (NEP 50) for operators and NumPy's functions on traced tensors.

NumPy itself decides the types that a ufunc computes with; casts to them are ops of the graph, so the equivalent op,
whose own promotion is PyTorch's, has nothing left to promote. Python numbers are weak: a literal is known
while tracing, an argument of the traced function is an `Array` that is `weak`, and an open size is an `Expr`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .ir.errors import ArgumentError, DTypeError, NumberRangeError, SmeltError
from .ir.graph import Array, Value, current_location, plain
from .ir.open_size import expression
from .ir.symbolic import Expr
from .ir.types import ANY, DType, bf16, bool_, c128, dtype, f16, f32, f64, i64, u64
from .ops.captures import as_array, captured
from .ops.define import REGISTRY
from .ops.opdef import OpDef
from .ops.open_array import OpenArray
from .ops.registry import holds
from .ops.values import as_arrays, as_dtype

UFUNCS = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "power": "pow",
    "absolute": "abs", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "equal": "eq", "not_equal": "ne", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "invert": "bitwise_not", "rint": "round",
    "mod": "remainder",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "conjugate": "conj",
}  # fmt: skip
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
_ABOVE = frozenset(("lt", "le", "ne"))  # true beside a number above the range of the tensor's type
_BELOW = frozenset(("gt", "ge", "ne"))
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}

_NUMBERS = {int: 1, float: 1.0, complex: 1j}
_ALONE = {int: np.dtype(np.int64), float: np.dtype(np.float64), complex: np.dtype(np.complex128)}

Kind = np.dtype | type  # an element type, or the class of a Python number


_KINDS: dict[type, Kind] = {int: int, float: float, complex: complex, bool: np.dtype(np.bool_), Expr: int}
_OPERANDS = frozenset((Array, Value, *_KINDS))


def kind_of(item: Any) -> Kind:
    """Return the part of an operand that decides promotion: its element type, or the class of a Python number."""
    if item.__class__ is Array:
        return item.weak or item.type.dtype.numpy
    known = _KINDS.get(item.__class__)
    if known is not None:
        return known
    if isinstance(item, (Value, np.generic, np.ndarray)):
        return item.dtype.numpy if isinstance(item, Value) else item.dtype
    if isinstance(item, bool):
        return np.dtype(np.bool_)
    for number in (int, float, complex):
        if isinstance(item, number):
            return number
    return int if isinstance(item, Expr) else operand(item).dtype.numpy


def operand(item: Any) -> Any:
    """Return an operand as a tensor or a number; lists are arrays, as in NumPy."""
    item = expression(item)
    if item.__class__ in _OPERANDS or isinstance(item, (Value, bool, int, float, complex, Expr)):
        return item
    if isinstance(item, OpenArray):
        return item.value
    return captured(as_array(item, "an operand"))


def is_number(item: Any) -> bool:
    return isinstance(item, (bool, int, float, complex)) and not isinstance(item, np.generic)


def result_dtype(*items: Any) -> DType:
    """Return the promoted type of the operands, as np.result_type does."""
    return _result_dtype(tuple(map(kind_of, items)))


@lru_cache(maxsize=4096)
def _result_dtype(kinds: tuple[Kind, ...]) -> DType:
    kinds, narrow = _without_bf16(kinds)
    found = dtype(np.result_type(*(_NUMBERS.get(kind, kind) for kind in kinds)))  # type: ignore[call-overload, arg-type]
    return narrow if found is f16 else found


def _without_bf16(kinds: tuple[Kind, ...]) -> tuple[tuple[Kind, ...], DType]:
    """Return the kinds with a stand-in for bf16, which NumPy lacks, and the type that f16 stands for in the result.
    bf16 promotes as f16 does, and the two of them to f32."""
    if bf16.numpy not in kinds:
        return kinds, f16
    stand_in = f32.numpy if f16.numpy in kinds else f16.numpy
    return tuple(stand_in if kind == bf16.numpy else kind for kind in kinds), bf16


def in_dtype(item: Any, wanted: DType) -> Value:
    """Return an operand as a value of a type; a number out of its range is an error."""
    item = operand(item)
    if isinstance(item, Expr):
        return as_dtype(REGISTRY["extent"].apply({"value": item, "dtype": i64}), wanted)
    if isinstance(item, Value):
        return _cast(item, wanted)
    return captured(np.asarray(_rounded(item, wanted), wanted.numpy))


def _cast(item: Value, wanted: DType) -> Value:
    value: Value = plain(item)
    if value.dtype is wanted:
        return value
    if item.__class__ is Array and item.weak:  # type: ignore[attr-defined]
        return as_dtype(value, wanted)
    return REGISTRY["cast"].apply({"self": value, "dtype": wanted})  # type: ignore[no-any-return]


def _rounded(number: Any, wanted: DType) -> Any:
    """Return a Python number as NumPy converts it: rounded to f16 or bf16 beside tensors of these types."""
    if number.__class__ is float and wanted.kind == "f" and wanted.bits > 16:
        return number
    if wanted.is_integer:
        if not holds(wanted, number):
            low, high = wanted.bounds
            advice = "" if wanted.bits == 64 else ": convert the tensor first, x.astype('int64')"
            raise NumberRangeError(f"{number} is out of range for {wanted}, which goes from {low} to {high}{advice}")
        return number
    if wanted.compute is wanted:
        return number
    with np.errstate(over="ignore"):
        return float(np.asarray(number, np.float64).astype(wanted.numpy))


def meet(*items: Any) -> list[Value]:
    """Return operands as values of their promoted type."""
    items = expression(items)
    wanted = result_dtype(*items)
    return [in_dtype(item, wanted) for item in items]


@lru_cache(maxsize=4096)
def _loop(ufunc: np.ufunc, kinds: tuple[Kind, ...]) -> tuple[DType, ...] | None:
    """Return the operand and result types of a ufunc's loop; None if NumPy has no loop for these operands."""
    if all(isinstance(kind, type) for kind in kinds):
        kinds = tuple(_ALONE[kind] for kind in kinds)  # type: ignore[index]
    kinds, narrow = _without_bf16(kinds)
    try:
        found = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout))  # type: ignore[arg-type]
        return tuple([narrow if item == f16.numpy else dtype(item) for item in found])
    except (TypeError, DTypeError):
        return None


def apply_ufunc(ufunc: np.ufunc, *inputs: Any) -> Any:
    """Apply a ufunc's equivalent op to operands cast to the types that NumPy computes with."""
    if ufunc is np.divmod:
        return apply_ufunc(np.floor_divide, *inputs), apply_ufunc(np.remainder, *inputs)
    op = REGISTRY[UFUNCS.get(ufunc.__name__, ufunc.__name__)]
    try:
        return _apply(ufunc, op, tuple(map(operand, inputs)))
    except SmeltError as error:
        error.location = error.location or current_location()
        error.op = op.name
        error.detail = op._call_text(op.bind(tuple(map(plain, inputs)), {}))
        raise


def _apply(ufunc: np.ufunc, op: OpDef, inputs: tuple[Any, ...]) -> Any:
    kinds = tuple(map(kind_of, inputs))
    if op.name in COMPARISONS and int in kinds:
        known = _compared(op.name, inputs)
        if known is not None:
            return known
        inputs = _wide(inputs)
        kinds = tuple(map(kind_of, inputs))
    loop = _loop(ufunc, kinds)
    if loop is None:
        raise DTypeError(_refusal(ufunc, op, kinds))
    operands = _operands(inputs, loop)
    if op.name in COMPARISONS and {loop[0], loop[1]} == {i64, u64}:
        return Array(_compared_signs(op.name, *operands))
    special = _SPECIAL.get(op.name)
    result = op.apply(op.bind(operands, {})) if special is None else special(*operands)
    if result.__class__ is Value and result.type.dtype is loop[-1] and kinds[0].__class__ is not type:
        return Array(result)  # the common case
    if isinstance(result, tuple):
        return as_arrays(tuple(map(_cast, result, loop[ufunc.nin :])))
    weak = all(isinstance(kind, type) for kind in kinds)
    number = {"i": int, "f": float, "c": complex}.get(loop[-1].kind) if weak else None
    return Array(_cast(result, loop[-1]), number)


def _operands(inputs: Sequence[Any], loop: Sequence[DType]) -> tuple[Any, ...]:
    """Return operands in the types of the loop. A Python number stays one, so that ops can specialise x ** 2."""
    found: list[Any] = []
    for item, wanted in zip(inputs, loop):
        if item.__class__ is Array and item.type.dtype is wanted:
            found.append(item.value)
        elif is_number(item):
            found.append(_rounded(item, wanted))
        else:
            found.append(in_dtype(item, wanted))
    return tuple(found)


def _refusal(ufunc: np.ufunc, op: OpDef, kinds: Sequence[Kind]) -> str:
    names = [f"a Python {kind.__name__}" if isinstance(kind, type) else dtype(kind).name for kind in kinds]
    advice = {"sub": "for bools there is ^", "neg": "for bools there is ~"}.get(op.name)
    accepted = "" if op.dtypes is ANY else f"; accepted are {', '.join(entry.name for entry in op.dtypes)}"
    return f"numpy.{ufunc.__name__} takes no {' and '.join(names)}{accepted}: {advice or 'convert them, x.astype(...)'}"


def _compared(name: str, inputs: Sequence[Any]) -> Any:
    """Return the constant result of comparing integers with a number out of their type's range; None otherwise."""
    if len(inputs) != 2:
        return None
    for tensor, number, holding in ((*inputs, name), (inputs[1], inputs[0], _MIRRORED.get(name, name))):
        if isinstance(number, int) and isinstance(tensor, Value) and tensor.dtype.is_integer:
            if tensor.__class__ is Array and not tensor.weak and not holds(tensor.dtype, number):  # type: ignore[attr-defined]
                answer = holding in (_ABOVE if number > 0 else _BELOW)
                return REGISTRY["full_like"](tensor, answer, dtype=bool_)
    return None


def _compared_signs(name: str, left: Value, right: Value) -> Value:
    """Return the comparison of an i64 with a u64: a negative number is less than all of the other type."""
    if left.dtype is u64:
        return _compared_signs(_MIRRORED.get(name, name), right, left)
    found, is_negative = REGISTRY[name](_cast(left, u64), right), REGISTRY["lt"](left, 0)
    return REGISTRY["where"](is_negative, name in _ABOVE, found)


def _wide(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Cast integers to i64 where they are compared with a number known only at run time; u64 stays, and the number is
    an i64 beside it."""
    numbers = [item for item in inputs if isinstance(item, Expr) or (item.__class__ is Array and item.weak is int)]
    if not numbers:
        return tuple(inputs)
    if any(isinstance(item, Value) and item.dtype is u64 for item in inputs):
        return tuple(
            Array(in_dtype(item, i64)) if any(item is number for number in numbers) else item for item in inputs
        )
    return tuple(
        Array(_cast(item, i64))
        if isinstance(item, Value) and kind_of(item) is not int and item.dtype.is_integer
        else item
        for item in inputs
    )


def _power(base: Any, exponent: Any) -> Any:
    """Apply pow; a negative exponent of integers is an error, as in NumPy."""
    power = REGISTRY["pow"]
    if all(item.dtype.is_integer if isinstance(item, Value) else isinstance(item, int) for item in (base, exponent)):
        if not isinstance(exponent, Value):
            if exponent < 0:
                raise ArgumentError(
                    "integers to negative integer powers are no integers: convert them to floats, x.astype('float64')",
                    current_location(),
                )
        elif exponent.dtype.kind == "i":
            checked = REGISTRY["checked_exponent"].apply({"self": _cast(exponent, i64)})
            exponent = _cast(checked, exponent.dtype)
    return power.apply({"self": base, "exponent": exponent})


def _remainder(left: Any, right: Any) -> Any:
    """Apply remainder; a zero result has the divisor's sign, as in NumPy. (In PyTorch it has the dividend's.)"""
    result = REGISTRY["remainder"](left, right)
    if not result.dtype.is_float:
        return result
    sign = REGISTRY["copysign"](REGISTRY["ones_like"](result), right)
    return (result * sign + 0.0) * sign


def _sign(value: Value) -> Any:
    if value.dtype.is_complex:
        return REGISTRY["sgn"](value)
    found = REGISTRY["sign"](value)
    return REGISTRY["where"](REGISTRY["isnan"](value), value, found) if value.dtype.is_float else found


def _reciprocal(value: Value) -> Any:
    if not value.dtype.is_inexact:
        raise DTypeError("numpy.reciprocal of integers: use 1 // x, or x.astype('float64')", current_location())
    return REGISTRY["reciprocal"](value)


def _heaviside(value: Value, at_zero: Any) -> Any:
    return REGISTRY["where"](REGISTRY["isnan"](value), value, REGISTRY["heaviside"](value, at_zero))


def _ldexp(value: Any, exponent: Any) -> Any:
    """Return value * 2**exponent, scaled in three steps of finite powers of two: the result may be finite where a
    single power of two is not."""
    power, minimum, maximum = REGISTRY["exp2"], REGISTRY["minimum"], REGISTRY["maximum"]
    wide = in_dtype(value, f64)
    rest = maximum(minimum(in_dtype(exponent, i64), 3000), -3000)
    for _ in range(3):
        step = maximum(minimum(rest, 1000), -1000)
        wide, rest = wide * power(_cast(step, f64)), rest - step
    return wide


def _rint(value: Value) -> Any:
    op = REGISTRY["round"]
    if not value.dtype.is_complex:
        return op(value)
    return REGISTRY["complex"](op(REGISTRY["real"](value)), op(REGISTRY["imag"](value)))


def _of_bools_too(name: str) -> Any:
    return lambda value: value if value.dtype is bool_ else REGISTRY[name](value)


def _ordered(name: str) -> Any:
    """Return a comparison that orders complex numbers by their real parts, then by their imaginary parts. A NaN
    imaginary part makes it false, as in NumPy."""
    op = REGISTRY[name]

    def compare(left: Any, right: Any) -> Any:
        if not any(isinstance(item, Value) and item.dtype.is_complex for item in (left, right)):
            return op(left, right)
        (a, b), (c, d) = _parts(left), _parts(right)
        isnan, either = REGISTRY["isnan"], REGISTRY["logical_or"]
        strict = REGISTRY[name[0] + "t"](a, c) & ~either(isnan(b), isnan(d))
        return strict | (REGISTRY["eq"](a, c) & op(b, d))

    return compare


def _parts(item: Any) -> tuple[Value, Value]:
    value = item if isinstance(item, Value) else in_dtype(item, c128)
    return REGISTRY["real"](value), REGISTRY["imag"](value)


def _extreme(name: str, comparison: str) -> Any:
    """Return an op for the greater or the smaller operand, also of complex numbers. maximum and minimum return NaN
    operands, fmax and fmin avoid them."""
    op, prefers_nan = REGISTRY[name], name[0] == "m"

    def extreme(left: Any, right: Any) -> Any:
        if not any(isinstance(item, Value) and item.dtype.is_complex for item in (left, right)):
            return op(left, right)
        isnan = REGISTRY["isnan"](left if prefers_nan else right)
        return REGISTRY["where"](isnan | _ordered(comparison)(left, right), left, right)

    return extreme


# Ufuncs whose results differ from those of the op.
_SPECIAL: dict[str, Any] = {
    "pow": _power, "sign": _sign, "reciprocal": _reciprocal, "heaviside": _heaviside, "ldexp": _ldexp, "round": _rint,
    "abs": _of_bools_too("abs"), "ceil": _of_bools_too("ceil"), "floor": _of_bools_too("floor"),
    "trunc": _of_bools_too("trunc"), "lt": _ordered("lt"), "le": _ordered("le"), "gt": _ordered("gt"),
    "ge": _ordered("ge"), "maximum": _extreme("maximum", "ge"), "minimum": _extreme("minimum", "le"),
    "fmax": _extreme("fmax", "ge"), "fmin": _extreme("fmin", "le"), "remainder": _remainder,
}  # fmt: skip
