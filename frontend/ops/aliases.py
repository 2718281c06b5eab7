"""Other names of ops. smelt's values are never overwritten, so a copy of a view is the view, and an in-place op (`x_`)
returns the new value."""

from __future__ import annotations

from functools import wraps
from typing import Any

from .define import REGISTRY, composite
from .opdef import OpDef

# NAME_copy is the op NAME.
VIEWS = (
    "alias",
    "as_strided",
    "detach",
    "diagonal",
    "narrow",
    "permute",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unfold",
    "unsqueeze",
    "view",
    "view_as_complex",
    "view_as_real",
)

# Another name, and the op of the same signature.
NAMES = {
    "_grid_sampler_2d_cpu_fallback": "grid_sampler_2d",
    "_neg_view": "neg",
    "_unsafe_view": "view",
    "as_strided_": "as_strided",
    "bernoulli_": "bernoulli",
    "conj_physical": "conj",
    "detach_": "detach",
    "lift": "alias",
    "lift_fresh": "alias",
    "lift_fresh_copy": "alias",
    "squeeze_": "squeeze",
    "unsqueeze_": "unsqueeze",
    "view_of": "alias",
}


def _declare(name: str, op: OpDef) -> None:
    @wraps(op.function)
    def body(**arguments: Any) -> Any:
        return op(**arguments)

    # The signature, which is the schema, is the op's.
    body.__name__, body.__module__ = name, __name__
    composite(body, differentiable=op.differentiable)


for _name in VIEWS:
    _declare(f"{_name}_copy", REGISTRY[_name])
for _name, _op in NAMES.items():
    _declare(_name, REGISTRY[_op])
