"""Define the closed table of scalar ops, of which the computation of one element consists.

One row = one scalar op: its name, how NumPy computes it (the reference), how LLVM and CUDA spell it, or an expansion
into other scalar ops. A back end that has every row without an expansion can compile every elementwise op.

LLVM spellings are by the kind of the operand type (b u i f): either an intrinsic ("llvm.sqrt"), called on
operands of one type, or an instruction template with {t} for the type, {m} for the bool type of the same
width, {a} {b} {c} for the operands and {f} for the fast-math flags. Both serve scalars and vectors alike. In
registers a bool is an i1, f16 and bf16 are f32, and a complex number is a pair.

CUDA spellings are Python text for numba.cuda, by the same kinds: either the name of a function of CUDA's math library
for f64 ("exp", of which the f32 one is expf), or an expression with {a} {b} {c} for the operands, {t} for the type's
name in NumPy and {w} for that of the type of 32 bits or more. Numba computes integers in 64 bits, so results are cut
to their width by {t}(...). A library function is as accurate as the expansion, and shorter code.

An expansion is a function `(b, *operands) -> operand` over a ScalarBuilder. It is straight-line code, inlined
into vector loops, but for `rare`: a branch around code that hardly any operand needs, and for `loop`: as many steps as
the operands need. Where a row has a spelling for the operands' kind, that is used, otherwise the expansion; complex
operands always take `complex_expansion`. All other rows are in BASE. Inside an expansion no fast-math flags apply: it
relies on every rounding, on nan and on the sign of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol

import numpy as np

from ...ir.process import process
from ...ir.record import Record
from ...ir.types import DType, bf16, bool_, c64, c128, dtype, f16, f64
from . import (
    basic,
    bessel,
    complexmath,
    incomplete,
    normal,
    philox,
    polynomials,
    reference,
    special,
    trigonometry,
    vecmath,
    zeta,
)
from .term import expand


class Operand(Protocol):
    """An operand of a builder: opaque but for its element type."""

    dtype: DType


class ScalarBuilder(Protocol):
    """The operations that an expansion may use."""

    def op(self, name: str, *operands: Any) -> Any:
        """Another scalar op. Operands have one type (the condition of `where` apart)."""

    def constant(self, value: Any, dtype: DType) -> Any: ...

    def cast(self, operand: Any, dtype: DType) -> Any: ...

    def bitcast(self, operand: Any, dtype: DType) -> Any:
        """The same bits as another type of the same width."""

    def rare(self, condition: Any, fast: Any, slow: Callable[..., Any], operands: Sequence[Any]) -> Any:
        """Return `fast`, but where the condition holds the result of the expansion `slow`, which is run only if the
        condition holds in some lane. Expansions of the same name are the same."""

    def loop(self, step: Callable[..., Sequence[Any]], state: Sequence[Any]) -> Any:
        """Return the first of the state after `step(builder, *state)`, which gives a condition and the next state, ran
        until its condition holds in no lane. A lane keeps its state from when the condition is false for it. Steps of
        the same name are the same."""


class ScalarOp(Record):
    """One row of the table."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    llvm: Mapping[str, str] | None = None
    cuda: Mapping[str, str] | None = None
    expansion: Callable[..., Any] | None = None
    complex_expansion: Callable[..., Any] | None = None
    result: str = "same"  # same | bool | real | complex
    cost: int = 1  # of recomputing it, in additions, roughly


SCALARS: dict[str, ScalarOp] = process.keep("scalar ops", {})

# Rows that a back end implements by hand: conversions, and the parts of a complex number. reference.cast defines the
# results of conversions: there is no undefined behaviour.
BASE = frozenset({"cast", "round_off", "real", "imag", "complex"})


def scalar(
    name: str,
    arity: int,
    numpy: Callable[..., Any] | None = None,
    *,
    llvm: Mapping[str, str] | None = None,
    cuda: Mapping[str, str] | None = None,
    terms: Callable[..., Any] | None = None,
    complex_terms: Callable[..., Any] | None = None,
    result: str = "same",
    cost: int = 1,
) -> None:
    """Add a row. Expansions are given as functions of terms; without a NumPy spelling, NumPy evaluates it."""
    if name in SCALARS:
        raise ValueError(f"scalar op {name} is defined twice")
    expansion = expand(terms) if terms is not None else None
    if numpy is None:
        assert expansion is not None
        numpy = by_expansion(expansion)
    complex_expansion = expand(complex_terms) if complex_terms is not None else None
    SCALARS[name] = ScalarOp(name, arity, quiet(numpy), llvm, cuda, expansion, complex_expansion, result, cost)


def by_kind(spellings: Mapping[str, str] | None, dtype: DType) -> str | None:
    """Return the spelling for operands of this type, or None: expand the row."""
    for kinds, text in (spellings or {}).items():
        if dtype.kind in kinds:
            return text
    return None


def spelling(op: ScalarOp, dtype: DType) -> str | None:
    """Return LLVM's spelling of the row on operands of this type, or None: expand it."""
    return by_kind(op.llvm, dtype)


def cuda_spelling(op: ScalarOp, dtype: DType) -> str | None:
    """Return CUDA's spelling of the row on operands of this type, or None: expand it."""
    return by_kind(op.cuda, dtype)


def cuda_function(op: ScalarOp) -> str | None:
    """Return the function of CUDA's math library that computes the row on f64, or None."""
    text = (op.cuda or {}).get("f")
    return text if text is not None and text.isidentifier() else None


def expansion(op: ScalarOp, dtype: DType) -> Callable[..., Any] | None:
    """Return the expansion to use on operands of this type, or None: spell it, or the row is in BASE."""
    if dtype.is_complex:
        return op.complex_expansion
    return op.expansion if spelling(op, dtype) is None else None


def result_dtype(op: ScalarOp, dtype: DType) -> DType:
    """Return the type of the result on operands of this type (of the last operand, for `where`)."""
    if op.result == "bool":
        return bool_
    if op.result == "real":
        return dtype.real
    if op.result == "complex":
        return c128 if dtype is f64 else c64
    return dtype


# NumPy as a builder


@dataclass(frozen=True)
class NumpyOperand:
    """An array as an operand."""

    array: np.ndarray
    dtype: DType


class NumpyBuilder:
    """Evaluates expansions on NumPy arrays as a back end would: spelled rows by NumPy, others expanded."""

    def op(self, name: str, *operands: NumpyOperand) -> NumpyOperand:
        row = SCALARS[name]
        kind = operands[-1].dtype
        expand_row = expansion(row, kind)
        if expand_row is not None:
            return expand_row(self, *operands)
        array = np.asarray(row.numpy(*(operand.array for operand in operands)))
        return NumpyOperand(array, result_dtype(row, kind))

    def constant(self, value: Any, dtype: DType) -> NumpyOperand:
        return NumpyOperand(np.array(value, dtype.numpy), dtype)

    def cast(self, operand: NumpyOperand, dtype: DType) -> NumpyOperand:
        return NumpyOperand(SCALARS["cast"].numpy(operand.array, dtype), dtype)

    def rare(
        self,
        condition: NumpyOperand,
        fast: NumpyOperand,
        slow: Callable[..., NumpyOperand],
        operands: Sequence[NumpyOperand],
    ) -> NumpyOperand:
        return NumpyOperand(np.where(condition.array, slow(self, *operands).array, fast.array), fast.dtype)

    def loop(self, step: Callable[..., Sequence[NumpyOperand]], state: Sequence[NumpyOperand]) -> NumpyOperand:
        while True:
            more, *following = step(self, *state)
            state = [
                NumpyOperand(np.where(more.array, new.array, old.array), old.dtype)
                for new, old in zip(following, state, strict=True)
            ]
            if not more.array.any():
                return state[0]

    def bitcast(self, operand: NumpyOperand, dtype: DType) -> NumpyOperand:
        return NumpyOperand(np.asarray(operand.array).view(dtype.numpy), dtype)


def by_expansion(expand_row: Callable[..., Any]) -> Callable[..., Any]:
    """The NumPy function that evaluates an expansion."""

    def evaluate(*arrays: Any) -> np.ndarray:
        operands = [NumpyOperand(np.asarray(array), dtype(np.asarray(array).dtype)) for array in arrays]
        return expand_row(NumpyBuilder(), *operands).array

    return evaluate


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without NumPy's warnings: overflow and nan are results like others here."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return call


# Arithmetic

scalar(
    "add",
    2,
    np.add,
    llvm={"f": "fadd {f}{t} {a}, {b}", "iu": "add {t} {a}, {b}", "b": "or {t} {a}, {b}"},
    cuda={"f": "{a} + {b}", "iu": "{t}({a} + {b})", "b": "{a} | {b}"},
    complex_terms=complexmath.add,
)
scalar(
    "sub",
    2,
    np.subtract,
    llvm={"f": "fsub {f}{t} {a}, {b}", "iu": "sub {t} {a}, {b}"},
    cuda={"f": "{a} - {b}", "iu": "{t}({a} - {b})"},
    complex_terms=complexmath.sub,
)
scalar(
    "mul",
    2,
    np.multiply,
    llvm={"f": "fmul {f}{t} {a}, {b}", "iu": "mul {t} {a}, {b}", "b": "and {t} {a}, {b}"},
    cuda={"f": "{a} * {b}", "iu": "{t}({a} * {b})", "b": "{a} & {b}"},
    complex_terms=complexmath.mul,
)
scalar("rounded_product", 2, np.multiply, terms=basic.product)
scalar(
    "div",
    2,
    np.divide,
    llvm={"f": "fdiv {f}{t} {a}, {b}"},
    cuda={"f": "{a} / {b}"},
    complex_terms=complexmath.div,
    cost=4,
)
scalar(
    "neg",
    1,
    np.negative,
    llvm={"f": "fneg {t} {a}", "iu": "sub {t} zeroinitializer, {a}"},
    cuda={"f": "-{a}", "iu": "{t}({t}(0) - {a})"},
    complex_terms=complexmath.neg,
)
scalar(
    "abs",
    1,
    np.abs,
    llvm={"f": "llvm.fabs"},
    cuda={"f": "fabs"},
    terms=basic.integer_abs,
    complex_terms=complexmath.absolute,
    result="real",
)
scalar("sign", 1, reference.sign, terms=basic.sign, cost=3)
scalar(
    "reciprocal",
    1,
    reference.reciprocal,
    terms=basic.reciprocal,
    complex_terms=complexmath.reciprocal,
    cost=4,
)
scalar("fma", 3, reference.fma, llvm={"f": "llvm.fma"}, cuda={"f": "fma"})
scalar("sqrt", 1, np.sqrt, llvm={"f": "llvm.sqrt"}, cuda={"f": "sqrt"}, complex_terms=complexmath.sqrt, cost=6)
scalar("rsqrt", 1, reference.rsqrt, cuda={"f": "rsqrt"}, terms=basic.rsqrt, complex_terms=complexmath.rsqrt, cost=10)
scalar("cbrt", 1, np.cbrt, cuda={"f": "cbrt"}, terms=vecmath.cbrt, cost=60)
scalar("hypot", 2, np.hypot, cuda={"f": "hypot"}, terms=vecmath.hypot, cost=12)

# Division with a remainder. The raw rows trap or are undefined for a zero divisor and for the least integer
# divided by -1, and of floats they are slow: only guarded expansions may use them.

scalar(
    "raw_divide",
    2,
    reference.trunc_divide,
    llvm={"i": "sdiv {t} {a}, {b}", "u": "udiv {t} {a}, {b}"},
    cuda={"iu": "{t}(divide_{w}({a}, {b}))"},
    cost=20,
)
scalar(
    "raw_remainder",
    2,
    np.fmod,
    llvm={"i": "srem {t} {a}, {b}", "u": "urem {t} {a}, {b}", "f": "frem {t} {a}, {b}"},
    cuda={"f": "fmod", "iu": "{t}(remainder_{w}({a}, {b}))"},
    cost=20,
)
scalar("trunc_divide", 2, reference.trunc_divide, terms=basic.trunc_divide, cost=20)
scalar("floor_divide", 2, np.floor_divide, terms=basic.floor_divide, cost=30)
scalar("fmod", 2, np.fmod, terms=basic.fmod, cost=25)
scalar("remainder", 2, reference.remainder, terms=basic.remainder, cost=30)

# Extremes and comparison

scalar(
    "maximum",
    2,
    np.maximum,
    llvm={"f": "llvm.maximum", "i": "llvm.smax", "u": "llvm.umax", "b": "or {t} {a}, {b}"},
    cuda={"f": "maximum({a}, {b})", "iu": "{t}(max({a}, {b}))", "b": "{a} | {b}"},
    cost=2,
)
scalar(
    "minimum",
    2,
    np.minimum,
    llvm={"f": "llvm.minimum", "i": "llvm.smin", "u": "llvm.umin", "b": "and {t} {a}, {b}"},
    cuda={"f": "minimum({a}, {b})", "iu": "{t}(min({a}, {b}))", "b": "{a} & {b}"},
    cost=2,
)
scalar("fmax", 2, np.fmax, llvm={"f": "llvm.maxnum"}, cuda={"f": "fmax"}, terms=basic.integer_fmax, cost=2)
scalar("fmin", 2, np.fmin, llvm={"f": "llvm.minnum"}, cuda={"f": "fmin"}, terms=basic.integer_fmin, cost=2)
scalar(
    "eq",
    2,
    np.equal,
    llvm={"f": "fcmp oeq {t} {a}, {b}", "iub": "icmp eq {t} {a}, {b}"},
    cuda={"fiub": "{a} == {b}"},
    complex_terms=complexmath.eq,
    result="bool",
)
scalar(
    "ne",
    2,
    np.not_equal,
    llvm={"f": "fcmp une {t} {a}, {b}", "iub": "icmp ne {t} {a}, {b}"},
    cuda={"fiub": "{a} != {b}"},
    complex_terms=complexmath.ne,
    result="bool",
)
scalar(
    "lt",
    2,
    np.less,
    llvm={"f": "fcmp olt {t} {a}, {b}", "i": "icmp slt {t} {a}, {b}", "ub": "icmp ult {t} {a}, {b}"},
    cuda={"fiub": "{a} < {b}"},
    result="bool",
)
scalar(
    "le",
    2,
    np.less_equal,
    llvm={"f": "fcmp ole {t} {a}, {b}", "i": "icmp sle {t} {a}, {b}", "ub": "icmp ule {t} {a}, {b}"},
    cuda={"fiub": "{a} <= {b}"},
    result="bool",
)
scalar(
    "gt",
    2,
    np.greater,
    llvm={"f": "fcmp ogt {t} {a}, {b}", "i": "icmp sgt {t} {a}, {b}", "ub": "icmp ugt {t} {a}, {b}"},
    cuda={"fiub": "{a} > {b}"},
    result="bool",
)
scalar(
    "ge",
    2,
    np.greater_equal,
    llvm={"f": "fcmp oge {t} {a}, {b}", "i": "icmp sge {t} {a}, {b}", "ub": "icmp uge {t} {a}, {b}"},
    cuda={"fiub": "{a} >= {b}"},
    result="bool",
)
scalar(
    "where",
    3,
    reference.where,
    llvm={"fiube": "select {m} {a}, {t} {b}, {t} {c}"},
    cuda={"fiube": "{b} if {a} else {c}"},
    complex_terms=complexmath.where,
)
scalar(
    "isnan",
    1,
    np.isnan,
    llvm={"f": "fcmp uno {t} {a}, {a}", "iub": "icmp ne {t} {a}, {a}"},
    cuda={"fiub": "{a} != {a}"},
    complex_terms=complexmath.isnan,
    result="bool",
)
scalar("isinf", 1, np.isinf, terms=basic.isinf, complex_terms=complexmath.isinf, result="bool")
scalar("isfinite", 1, np.isfinite, terms=basic.isfinite, complex_terms=complexmath.isfinite, result="bool")
scalar("signbit", 1, np.signbit, terms=basic.signbit, result="bool")
scalar("copysign", 2, np.copysign, llvm={"f": "llvm.copysign"}, cuda={"f": "copysign"})
scalar("nextafter", 2, np.nextafter, cuda={"f": "nextafter"}, terms=basic.nextafter, cost=10)
scalar("nextafter_f16", 2, reference.narrow_nextafter(f16), terms=basic.nextafter_f16, cost=18)
scalar("nextafter_bf16", 2, reference.narrow_nextafter(bf16), terms=basic.nextafter_bf16, cost=18)

# Logic and bits. The counts of shl, lshr and ashr must be in range; the bitwise shifts take any.

scalar("logical_and", 2, np.logical_and, llvm={"b": "and {t} {a}, {b}"}, cuda={"b": "{a} & {b}"}, result="bool")
scalar("logical_or", 2, np.logical_or, llvm={"b": "or {t} {a}, {b}"}, cuda={"b": "{a} | {b}"}, result="bool")
scalar("logical_xor", 2, np.logical_xor, llvm={"b": "xor {t} {a}, {b}"}, cuda={"b": "{a} ^ {b}"}, result="bool")
scalar("logical_not", 1, np.logical_not, cuda={"b": "not {a}"}, terms=basic.bitwise_not, result="bool")
scalar(
    "bitwise_and", 2, np.bitwise_and, llvm={"iub": "and {t} {a}, {b}"}, cuda={"iu": "{t}({a} & {b})", "b": "{a} & {b}"}
)
scalar("bitwise_or", 2, np.bitwise_or, llvm={"iub": "or {t} {a}, {b}"}, cuda={"iu": "{t}({a} | {b})", "b": "{a} | {b}"})
scalar(
    "bitwise_xor", 2, np.bitwise_xor, llvm={"iub": "xor {t} {a}, {b}"}, cuda={"iu": "{t}({a} ^ {b})", "b": "{a} ^ {b}"}
)
scalar("bitwise_not", 1, np.bitwise_not, cuda={"iu": "{t}(~{a})", "b": "not {a}"}, terms=basic.bitwise_not)
scalar("shl", 2, np.left_shift, llvm={"iu": "shl {t} {a}, {b}"}, cuda={"iu": "{t}({a} << {b})"})
scalar(
    "lshr",
    2,
    reference.logical_shift_right,
    llvm={"iu": "lshr {t} {a}, {b}"},
    cuda={"u": "{t}({a} >> {b})", "i": "{t}(u{t}({a}) >> u{t}({b}))"},
)
scalar("ashr", 2, np.right_shift, llvm={"iu": "ashr {t} {a}, {b}"}, cuda={"iu": "{t}({a} >> {b})"})
scalar("bitwise_left_shift", 2, np.left_shift, terms=basic.bitwise_left_shift, cost=3)
scalar("bitwise_right_shift", 2, np.right_shift, terms=basic.bitwise_right_shift, cost=3)

# Rounding

scalar("floor", 1, reference.whole(np.floor), llvm={"f": "llvm.floor"}, cuda={"f": "floor"}, terms=basic.identity)
scalar("ceil", 1, reference.whole(np.ceil), llvm={"f": "llvm.ceil"}, cuda={"f": "ceil"}, terms=basic.identity)
scalar("trunc", 1, reference.whole(np.trunc), llvm={"f": "llvm.trunc"}, cuda={"f": "trunc"}, terms=basic.identity)
scalar("round", 1, reference.whole(np.rint), llvm={"f": "llvm.roundeven"}, cuda={"f": "rint"}, terms=basic.identity)
scalar("frac", 1, reference.frac, terms=basic.frac, cost=2)
scalar("ldexp", 2, reference.ldexp, terms=basic.ldexp, cost=12)
scalar("mantissa", 1, lambda x: np.frexp(x)[0], terms=basic.mantissa, cost=6)
scalar("exponent", 1, lambda x: np.frexp(x)[1].astype(x.dtype), terms=basic.exponent, cost=7)

# Conversion, and the parts of complex numbers

scalar("cast", 1, reference.cast)
scalar("round_off", 1, lambda operand: operand)  # which lowering makes round_f16 or round_bf16
# Costly by name, so that no kernel computes its operand again.
scalar("tabulated", 1, lambda operand: operand, terms=basic.identity, cost=16)
scalar("real", 1, np.real, terms=basic.identity, result="real", cost=0)
scalar("imag", 1, np.imag, result="real", cost=0)
scalar("complex", 2, reference.join, result="complex", cost=0)
scalar("conj", 1, np.conjugate, terms=basic.identity, complex_terms=complexmath.conj)
scalar("angle", 1, reference.angle, terms=basic.angle, complex_terms=complexmath.angle, result="real", cost=30)

# Exponentials and logarithms

scalar("exp", 1, np.exp, cuda={"f": "exp"}, terms=vecmath.exp, complex_terms=complexmath.exp, cost=12)
scalar("exp2", 1, np.exp2, cuda={"f": "exp2"}, terms=vecmath.exp2, complex_terms=complexmath.exp2, cost=12)
scalar("expm1", 1, np.expm1, cuda={"f": "expm1"}, terms=vecmath.expm1, complex_terms=complexmath.expm1, cost=15)
scalar("log", 1, np.log, cuda={"f": "log"}, terms=vecmath.log, complex_terms=complexmath.log, cost=18)
scalar("log2", 1, np.log2, cuda={"f": "log2"}, terms=vecmath.log2, complex_terms=complexmath.log2, cost=20)
scalar("log10", 1, np.log10, cuda={"f": "log10"}, terms=vecmath.log10, complex_terms=complexmath.log10, cost=20)
scalar("log1p", 1, np.log1p, cuda={"f": "log1p"}, terms=vecmath.log1p, complex_terms=complexmath.log1p, cost=25)
scalar("logaddexp", 2, np.logaddexp, terms=special.logaddexp, cost=45)
scalar("pow", 2, reference.power, cuda={"f": "pow"}, terms=vecmath.power, complex_terms=complexmath.power, cost=60)
scalar("sigmoid", 1, reference.sigmoid, terms=vecmath.sigmoid, complex_terms=complexmath.sigmoid, cost=20)

# Trigonometry

scalar("sin", 1, np.sin, cuda={"f": "sin"}, terms=trigonometry.sin, complex_terms=complexmath.sin, cost=40)
scalar("cos", 1, np.cos, cuda={"f": "cos"}, terms=trigonometry.cos, complex_terms=complexmath.cos, cost=40)
scalar("tan", 1, np.tan, cuda={"f": "tan"}, terms=trigonometry.tan, complex_terms=complexmath.tan, cost=50)
scalar("asin", 1, np.arcsin, cuda={"f": "asin"}, terms=trigonometry.asin, complex_terms=complexmath.asin, cost=40)
scalar("acos", 1, np.arccos, cuda={"f": "acos"}, terms=trigonometry.acos, complex_terms=complexmath.acos, cost=40)
scalar("atan", 1, np.arctan, cuda={"f": "atan"}, terms=trigonometry.atan, complex_terms=complexmath.atan, cost=30)
scalar("atan2", 2, np.arctan2, cuda={"f": "atan2"}, terms=trigonometry.atan2, cost=40)
scalar("sinh", 1, np.sinh, cuda={"f": "sinh"}, terms=vecmath.sinh, complex_terms=complexmath.sinh, cost=40)
scalar("cosh", 1, np.cosh, cuda={"f": "cosh"}, terms=vecmath.cosh, complex_terms=complexmath.cosh, cost=35)
scalar("tanh", 1, np.tanh, cuda={"f": "tanh"}, terms=vecmath.tanh, complex_terms=complexmath.tanh, cost=25)
scalar("asinh", 1, np.arcsinh, cuda={"f": "asinh"}, terms=vecmath.asinh, complex_terms=complexmath.asinh, cost=60)
scalar("acosh", 1, np.arccosh, cuda={"f": "acosh"}, terms=vecmath.acosh, complex_terms=complexmath.acosh, cost=60)
scalar("atanh", 1, np.arctanh, cuda={"f": "atanh"}, terms=vecmath.atanh, complex_terms=complexmath.atanh, cost=40)

# Special functions

scalar("erf", 1, cuda={"f": "erf"}, terms=special.erf, cost=30)
scalar("erfc", 1, cuda={"f": "erfc"}, terms=special.erfc, cost=60)
scalar("erfinv", 1, cuda={"f": "erfinv"}, terms=special.erfinv, cost=70)
scalar("normal_cdf", 1, terms=special.normal_cdf, cost=25)
scalar("lgamma", 1, cuda={"f": "lgamma"}, terms=special.lgamma, cost=100)
scalar("digamma", 1, terms=special.digamma, cost=90)
scalar("trigamma", 1, terms=special.trigamma, cost=90)
scalar("tetragamma", 1, terms=special.tetragamma, cost=90)
scalar("erfcx", 1, terms=normal.erfcx, cost=80)
scalar("log_ndtr", 1, terms=normal.log_ndtr, cost=130)
scalar("ndtri", 1, terms=normal.ndtri, cost=90)
scalar("i0", 1, terms=bessel.i0, cost=30)
scalar("i1", 1, terms=bessel.i1, cost=30)
scalar("i0e", 1, terms=bessel.i0e, cost=40)
scalar("i1e", 1, terms=bessel.i1e, cost=40)
scalar("k0", 1, terms=bessel.k0, cost=100)
scalar("k1", 1, terms=bessel.k1, cost=100)
scalar("scaled_k0", 1, terms=bessel.scaled_k0, cost=100)
scalar("scaled_k1", 1, terms=bessel.scaled_k1, cost=100)
scalar("j0", 1, terms=bessel.j0, cost=110)
scalar("j1", 1, terms=bessel.j1, cost=110)
scalar("y0", 1, terms=bessel.y0, cost=150)
scalar("y1", 1, terms=bessel.y1, cost=150)
scalar("airy_ai", 1, terms=bessel.airy_ai, cost=200)
scalar("igamma", 2, terms=incomplete.igamma, cost=800)
scalar("igammac", 2, terms=incomplete.igammac, cost=800)
scalar("zeta", 2, terms=zeta.zeta, cost=1000)
scalar("chebyshev_t", 2, terms=polynomials.usual(polynomials.chebyshev_t), cost=200)
scalar("chebyshev_u", 2, terms=polynomials.usual(polynomials.chebyshev_u), cost=200)
scalar("chebyshev_v", 2, terms=polynomials.usual(polynomials.chebyshev_v), cost=200)
scalar("chebyshev_w", 2, terms=polynomials.usual(polynomials.chebyshev_w), cost=200)
scalar("shifted_chebyshev_t", 2, terms=polynomials.shifted(polynomials.chebyshev_t), cost=200)
scalar("shifted_chebyshev_u", 2, terms=polynomials.shifted(polynomials.chebyshev_u), cost=200)
scalar("shifted_chebyshev_v", 2, terms=polynomials.shifted(polynomials.chebyshev_v), cost=200)
scalar("shifted_chebyshev_w", 2, terms=polynomials.shifted(polynomials.chebyshev_w), cost=200)
scalar("hermite_h", 2, terms=polynomials.hermite_h, cost=200)
scalar("hermite_he", 2, terms=polynomials.hermite_he, cost=200)
scalar("laguerre_l", 2, terms=polynomials.laguerre_l, cost=200)
scalar("legendre_p", 2, terms=polynomials.legendre_p, cost=200)

# Random bits: of a key, an offset, a stream and an element's number, all i64

scalar("philox", 4, terms=philox.philox, cost=100)


# Combiners of reductions and scans


class Combiner(Record):
    """An associative way to combine partial results, each a tuple of `arity` scalars.

    `identity(dtype)` is the partial result of nothing, `combine(b, left, right)` combines two by scalar ops, and
    `numpy(array, axis)` does it all for an array, over one axis or several. `append(b, left, right)` combines, too,
    where all of the left came before the right: that may take less.
    """

    name: str
    arity: int
    identity: Callable[[DType], tuple[Any, ...]]
    combine: Callable[[ScalarBuilder, tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
    numpy: Callable[[np.ndarray, Any], np.ndarray]
    append: Callable[[ScalarBuilder, tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
    keeps_one: bool = False  # whether the result for one element is that element, bit for bit


def lowest(dtype: DType) -> Any:
    """Return the least value of a type, -inf for floats."""
    if dtype.is_float:
        return -np.inf
    return False if dtype.kind == "b" else int(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> Any:
    """Return the greatest value of a type, inf for floats."""
    if dtype.is_float:
        return np.inf
    return True if dtype.kind == "b" else int(np.iinfo(dtype.numpy).max)


def one(dtype: DType) -> Any:
    return True if dtype.kind == "b" else 1


def zero(dtype: DType) -> Any:
    return False if dtype.kind == "b" else 0


def simple(name: str, op: str, identity: Callable[[DType], Any], ufunc: Any, keeps_one: bool = True) -> Combiner:
    """One scalar, combined by one scalar op."""

    def combine(b: ScalarBuilder, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (b.op(op, left[0], right[0]),)

    def numpy(array: np.ndarray, axis: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            start = identity(dtype(array.dtype))
            return ufunc.reduce(array, axis=axis, dtype=array.dtype, initial=start)

    return Combiner(name, 1, lambda dtype: (identity(dtype),), combine, numpy, combine, keeps_one)


def extreme(name: str, op: str, better: str, identity: Callable[[DType], Any], ufunc: Any) -> Combiner:
    """The largest or smallest of all; nan if one is. Which of 0.0 and -0.0 it is depends on their places."""
    combiner = simple(name, op, identity, ufunc)

    def append(b: ScalarBuilder, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        (value,), (other,) = left, right
        if not value.dtype.is_float:
            return combiner.combine(b, left, right)
        # One instruction on x86, where `maximum` is six on the loop-carried chain, for the sign of zero.
        # A nan that was there before stays, as it is not less; a new one has a test of its own that waits for nothing.
        best = b.op("where", b.op(better, other, value), other, value)
        return (b.op("where", b.op("isnan", other), b.constant(np.nan, other.dtype), best),)

    return combiner.but(append=append)


def extreme_index(name: str, better: str, worse: str, identity: Callable[[DType], Any], function: Any) -> Combiner:
    """The place of the extreme: pairs (value, index). nan beats all, and of equals the smaller index wins."""

    def combine(b: ScalarBuilder, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        (value, index), (other, other_index) = left, right
        wins = b.op(better, value, other)
        tie = b.op("eq", value, other)
        if value.dtype.is_float:
            nan, other_nan = b.op("isnan", value), b.op("isnan", other)
            wins = b.op("logical_or", wins, b.op("logical_and", nan, b.op("logical_not", other_nan)))
            tie = b.op("logical_or", tie, b.op("logical_and", nan, other_nan))
        earlier = b.op("logical_and", tie, b.op("lt", index, other_index))
        wins = b.op("logical_or", wins, earlier)
        return b.op("where", wins, value, other), b.op("where", wins, index, other_index)

    def append(b: ScalarBuilder, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        (value, index), (other, other_index) = left, right
        wins = b.op(better, other, value)
        if value.dtype.is_float:  # or neither is, and there was no nan before
            wins = b.op("logical_and", b.op("logical_not", b.op(worse, other, value)), b.op("eq", value, value))
        return b.op("where", wins, other, value), b.op("where", wins, other_index, index)

    def numpy(array: np.ndarray, axis: Any) -> np.ndarray:
        axes = tuple(range(array.ndim)) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        kept = [position for position in range(array.ndim) if position not in axes]
        moved = np.transpose(array, (*kept, *axes))
        count = int(np.prod([array.shape[position] for position in axes]))
        flat = moved.reshape(*(array.shape[position] for position in kept), count)
        return function(flat, axis=-1)

    # Only if all are as extreme as the identity does its place count, and then it is the first one's.
    return Combiner(name, 2, lambda dtype: (identity(dtype), 0), combine, numpy, append)


COMBINERS: dict[str, Combiner] = {
    combiner.name: combiner
    for combiner in (
        simple("add", "add", zero, np.add),
        simple("mul", "mul", one, np.multiply),
        extreme("max", "maximum", "gt", lowest, np.maximum),
        extreme("min", "minimum", "lt", highest, np.minimum),
        simple("any", "logical_or", lambda dtype: False, np.logical_or),
        simple("all", "logical_and", lambda dtype: True, np.logical_and),
        simple("logaddexp", "logaddexp", lowest, np.logaddexp, keeps_one=False),
        extreme_index("argmax", "gt", "le", lowest, np.argmax),
        extreme_index("argmin", "lt", "ge", highest, np.argmin),
    )
}
