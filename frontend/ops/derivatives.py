"""The derivative rules of an op, and those that are a call of another op, in one line each.

    gelu.derivative = gelu_backward      # reverse mode: gelu_backward(grad, self, approximate=approximate)
    hardtanh.slope = hardtanh_backward   # both modes: the Jacobian is diagonal, so a tangent may stand for the gradient
    elu.slope = forward_to(elu_backward, is_result=False, self_or_result="self")
    upsample_nearest1d.derivative = forward_to(upsample_nearest1d_backward, input_size=ShapeOf("self"))

Arguments for the other op are found by parameter name: the gradient is `grad_output` (or `grad`, `grad_out`), the
result is `output`, all others are parameters of the op itself or keep their defaults. `forward_to` names another source
for a parameter: a name that rules may take (see define.py), the shape of one, or a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .opdef import OpDef

_GRADIENTS = frozenset(("grad", "grad_out", "grad_output"))


class ShapeOf(NamedTuple):
    """The shape of what a parameter of a rule stands for, as the source of a parameter."""

    name: str


class Forwarding:
    """A call of an op, with the sources of the parameters that are not found by name."""

    __slots__ = ("op", "sources")

    def __init__(self, op: OpDef, sources: dict[str, Any]):
        self.op = op
        self.sources = sources


def forward_to(op: OpDef, **sources: Any) -> Forwarding:
    """Return a call of `op` as a derivative; each source is the name of a rule's parameter, its shape, or a number."""
    return Forwarding(op, sources)


class ForwardingRule:
    """The derivative rule of an op that calls another op."""

    __slots__ = ("constants", "op", "shapes", "sources")

    def __init__(self, owner: OpDef, other: OpDef | Forwarding, gradient: str):
        given: dict[str, Any] = {}
        if isinstance(other, Forwarding):
            other, given = other.op, other.sources
        self.op = other
        self.sources: dict[str, str] = {}  # the rule's parameter for each parameter of the other op
        self.shapes: dict[str, str] = {}  # likewise, where its shape is passed
        self.constants: dict[str, Any] = {}
        for parameter in other.parameters:
            name = parameter.name
            source = given.get(name, name)
            if isinstance(source, ShapeOf):
                self.shapes[name] = source.name
            elif not isinstance(source, str):
                self.constants[name] = source
            elif source in _GRADIENTS:
                self.sources[name] = gradient
            elif source == "output":
                self.sources[name] = "result"
            elif source == "result" or source in owner.names:
                self.sources[name] = source
            elif parameter.required:
                raise ValueError(f"the derivative of {owner.name}: nothing is known of {name!r}, which {other} takes")
        for name in given.keys() - set(other.names):
            raise ValueError(f"the derivative of {owner.name}: {other} takes no {name!r}")

    @property
    def __name__(self) -> str:
        return self.op.name

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that the rule takes, each once."""
        return tuple(dict.fromkeys((*self.sources.values(), *self.shapes.values())))

    def __call__(self, /, **given: Any) -> Any:
        found = {name: given[source] for name, source in self.sources.items()}
        shapes = {name: given[source].shape for name, source in self.shapes.items()}
        return self.op(**found, **shapes, **self.constants)


class HasDerivatives:
    """The derivative rules of an op."""

    vjp_rule: Callable[..., Any] | None = None
    jvp_rule: Callable[..., Any] | None = None

    def change(self) -> None:
        """Drop programs whose derivatives may contain this op, so that they are traced again."""

    def vjp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Register the reverse-mode rule."""
        self.vjp_rule = rule
        self.change()
        return rule

    def jvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Register the forward-mode rule. It takes `<parameter>_tangent` (None for zero) beside the names of a vjp."""
        self.jvp_rule = rule
        self.change()
        return rule

    @property
    def derivative(self: Any) -> Callable[..., Any] | None:
        """The reverse-mode rule. May be set to another op, which takes the gradient."""
        return self.vjp_rule  # type: ignore[no-any-return]

    @derivative.setter
    def derivative(self: Any, other: OpDef | Forwarding) -> None:
        self.vjp(ForwardingRule(self, other, "grad"))

    def _set_slope(self: Any, other: OpDef | Forwarding) -> None:
        self.derivative = other
        self.jvp(
            ForwardingRule(self, other, f"{next(item.name for item in self.parameters if item.is_tensor)}_tangent")
        )

    # Set to another op if the Jacobian is diagonal: both rules call it, one with the gradient, one with the tangent.
    slope = property(None, _set_slope)
