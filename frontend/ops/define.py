"""How an op is declared: `@prim` and `@composite`. The Python signature is the schema.

    @prim(Elementwise("erf", promote="float"), dtypes=FLOAT)
    def erf(self: Tensor) -> Tensor:
        '''2/sqrt(pi) times the integral of exp(-t*t) from 0 to self.'''

    @erf.vjp
    def erf_vjp(grad, result, self):
        return grad * (2 / sqrt(pi)) * exp(-self * self)

    @composite
    def softsign(self: Tensor) -> Tensor:
        '''self / (1 + |self|).'''
        return self / (1 + abs(self))

A primitive has a kind (kinds.py), and the kind is its type rule, its lowering and its interpretation. If the
body of a primitive returns a dict, those arguments replace the given ones: the place to put dims into normal
form or to fold an `alpha` away. Normalising must be idempotent, since the parser calls ops too.

Both decorators take traits by name, such as commutes=True: properties that passes rely on (traits.py).

The body of a composite is its decomposition and its type rule. Its derivatives follow from the body unless
`.vjp` or `.jvp` gives a cheaper one. A rule takes its arguments by name: `grad` (`grads` for several results),
`result` (`results`), and any parameter of the op. It returns one gradient for each tensor parameter, in
order (just the one if there is one), or a dict by name; None is zero. A rule that is a call of another op takes one
line: `gelu.derivative = gelu_backward` (derivatives.py).

A parameter annotated `Tensor` takes tensors, and Python numbers too where the kind promotes; `Tensor | Scalar`
keeps a Python number as it is; `Tensor | None` and `Sequence[Tensor]` say what they say; `Size` takes a
sequence of sizes or the sizes one by one; all other parameters are attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ..ir.graph import Value
from ..ir.symbolic import Dim
from ..ir.types import ANY, DType
from .kinds import Kind
from .opdef import OpDef
from .registry import REGISTRY, Scalar, constant, scalar_value  # noqa: F401  (every family takes them from here)
from .traits import Traits

Tensor = Value
Size = Sequence[Dim]
Dims = int | Sequence[int] | None


def _register(defn: OpDef) -> OpDef:
    known = REGISTRY.get(defn.name)
    if known is not None:
        where, again = known.function.__module__, defn.function.__module__
        if known.is_own or where != again:
            raise ValueError(f"op {defn.name} is defined twice, in {where} and {again}: give one of them another name")
    if not defn.doc and sys.flags.optimize < 2:  # python -OO drops docstrings
        raise ValueError(f"op {defn.name} has no docstring")
    REGISTRY[defn.name] = defn
    if known is not None:
        known.change()
    return defn


def prim(
    kind: Kind, dtypes: Sequence[DType] = ANY, differentiable: bool = True, **traits: Unpack[Traits]
) -> Callable[..., OpDef]:
    """Declare a primitive of a kind."""
    return lambda function: _register(OpDef(function, kind, dtypes, differentiable, traits))


def composite(
    function: Callable[..., Any] | None = None, *, differentiable: bool = True, **traits: Unpack[Traits]
) -> Any:
    """Declare an op by its decomposition."""
    if function is None:
        return lambda body: composite(body, differentiable=differentiable, **traits)
    return _register(OpDef(function, None, ANY, differentiable, traits))


def zero_derivative(*ops: OpDef) -> None:
    """Declare the derivative of piecewise constant ops: zero."""
    for op in ops:
        op.vjp_rule = _zero


def _zero() -> None:
    return None
