"""The error of one f32 function over all 2 ** 32 operands, in units in the last place.

    python -m smelt.tools.ulp exp            (make ulp FUNCTION=exp)
    python -m smelt.tools.ulp sin --step 97  every 97th operand only

The compiled code is compared with the function in f64; the worst operand is compared again with mpmath.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.errors import suggest
from .terminal import FINE, WRONG_USAGE, fail

CHUNK = 1 << 20


def references() -> dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]]:
    """By the op's name: the function in f64, and its name in mpmath."""
    from scipy import special

    return {
        "exp": (np.exp, "exp"),
        "exp2": (np.exp2, ""),
        "expm1": (np.expm1, "expm1"),
        "log": (np.log, "log"),
        "log2": (np.log2, ""),
        "log10": (np.log10, "log10"),
        "log1p": (np.log1p, "log1p"),
        "sin": (np.sin, "sin"),
        "cos": (np.cos, "cos"),
        "tan": (np.tan, "tan"),
        "asin": (np.arcsin, "asin"),
        "acos": (np.arccos, "acos"),
        "atan": (np.arctan, "atan"),
        "sinh": (np.sinh, "sinh"),
        "cosh": (np.cosh, "cosh"),
        "tanh": (np.tanh, "tanh"),
        "asinh": (np.arcsinh, "asinh"),
        "acosh": (np.arccosh, "acosh"),
        "atanh": (np.arctanh, "atanh"),
        "sigmoid": (special.expit, ""),
        "erf": (special.erf, "erf"),
        "erfc": (special.erfc, "erfc"),
        "erfinv": (special.erfinv, "erfinv"),
        "lgamma": (special.gammaln, ""),
        "digamma": (special.psi, "digamma"),
        "sqrt": (np.sqrt, "sqrt"),
        "rsqrt": (lambda x: 1 / np.sqrt(x), ""),
        "reciprocal": (lambda x: 1 / x, ""),
    }


def error_in_ulp(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|result - exact| in units of the last place of f32; infinite where only one of them is nan.

    Infinity counts as 2 ** 128, the number that would follow the largest.
    """
    limit = 2.0**128
    with np.errstate(all="ignore"):
        rounded = np.minimum(np.abs(exact), np.finfo(np.float32).max).astype(np.float32)
        unit = np.spacing(rounded).astype(np.float64)
        error = np.abs(np.clip(result.astype(np.float64), -limit, limit) - np.clip(exact, -limit, limit)) / unit
    undefined = np.isnan(result), np.isnan(exact)
    return np.where(undefined[0] & undefined[1], 0.0, np.where(undefined[0] | undefined[1], np.inf, error))


@dataclass(frozen=True)
class Worst:
    """Where the error is largest."""

    operand: np.float32
    result: np.float32
    error: float


def chunks(step: int) -> Iterator[np.ndarray]:
    """Yield all f32 numbers in the order of their bits, or every step-th of them."""
    for begin in range(0, 1 << 32, CHUNK * step):
        bits = np.arange(begin, min(begin + CHUNK * step, 1 << 32), step, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def sweep(function: Callable[..., Any], exact: Callable[[np.ndarray], np.ndarray], step: int = 1) -> Worst:
    """Return the worst of all operands; show a progress bar on standard error."""
    worst = Worst(np.float32(0), np.float32(0), -1.0)
    count = -(-(1 << 32) // (CHUNK * step))
    for position, x in enumerate(chunks(step)):
        result = np.asarray(function(x))
        with np.errstate(all="ignore"):
            error = error_in_ulp(result, exact(x.astype(np.float64)))
        place = int(np.argmax(error))
        if error[place] > worst.error:
            worst = Worst(x[place], result[place], float(error[place]))
        if sys.stderr.isatty() or position + 1 == count:
            done = (position + 1) * 40 // count
            bar = "#" * done + "." * (40 - done)
            end = "\n" if position + 1 == count else ""
            print(f"\r[{bar}] {worst.error:.3f} ulp at {worst.operand!r}", end=end, file=sys.stderr, flush=True)
    return worst


def precise_error(worst: Worst, name: str) -> float | None:
    """Return the error of the worst operand by mpmath, if that has the function."""
    if not name or not np.isfinite(worst.operand) or not np.isfinite(worst.result):
        return None
    try:
        import mpmath
    except ImportError:
        return None
    with mpmath.workprec(300):
        exact = mpmath.re(getattr(mpmath, name)(mpmath.mpf(float(worst.operand))))
        unit = mpmath.mpf(float(np.spacing(np.abs(np.float32(float(exact))))))
        return float(abs(mpmath.mpf(float(worst.result)) - exact) / unit)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m smelt.tools.ulp", description=__doc__.splitlines()[0])
    parser.add_argument("function", help="the name of an op with one f32 operand")
    parser.add_argument("--step", type=int, default=1, help="take every STEP-th operand only")
    parser.add_argument("--vector-bits", type=int, help="how wide vectors are")
    options = parser.parse_args(arguments)
    known = references()
    if options.function not in known:
        fail(f"no reference for {options.function!r}{suggest(options.function, known)}; there are {', '.join(known)}")
        return WRONG_USAGE
    from .. import CompileOptions, jit, ops

    exact, precise = known[options.function]
    compiled = jit(getattr(ops, options.function), options=CompileOptions(vector_bits=options.vector_bits))
    worst = sweep(compiled, exact, options.step)
    by_mpmath = precise_error(worst, precise)
    check = "" if by_mpmath is None else f" ({by_mpmath:.4f} by mpmath)"
    print(f"{options.function}: {worst.error:.4f} ulp{check} at {worst.operand!r}, which gives {worst.result!r}")
    return FINE


if __name__ == "__main__":
    sys.exit(main())
