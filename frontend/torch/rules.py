"""Nodes whose arguments or results are not quite those of smelt's op of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

from ..ir.types import DTYPES
from ..ops import create, extremes, indexing, pointwise, reduce, scan
from ..ops.define import REGISTRY
from ..ops.view import as_strided, expand, permute, split_with_sizes, unsqueeze
from ..ops.view import reshape as reshape_to
from .types import DTYPE, layout_of

Rule = Callable[[Node, dict[str, Any]], Any]
RULES: dict[str, Rule] = {}

# Ops that draw random numbers.
RANDOM = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "native_dropout", "normal",
    "normal_functional", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "rrelu_with_noise_functional", "uniform",
}  # fmt: skip


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ops of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


@rule("_to_copy")
def to_copy(node: Node, a: dict[str, Any]) -> Any:
    return a["self"].alias() if a.get("dtype") is None else pointwise.convert(a["self"], a["dtype"])


@rule("alias", "clone", "detach", "lift_fresh", "contiguous")
def same(node: Node, a: dict[str, Any]) -> Any:
    return a["self"].alias()


@rule("view", "view_copy", "_unsafe_view", "reshape")
def reshaped(node: Node, a: dict[str, Any]) -> Any:
    if a.get("size") is None and a.get("shape") is None:
        return NotImplemented  # a view as another element type
    return reshape_to(a["self"], a["size"] if "size" in a else a["shape"])


@rule("as_strided", "as_strided_copy")
def strided(node: Node, a: dict[str, Any]) -> Any:
    # Strides are of the memory that eager has.
    base = node.args[0].meta["val"]  # type: ignore[union-attr]
    layout = layout_of(base)
    if layout.order is None or layout.repeated or base.storage_offset() != 0:
        return NotImplemented
    return as_strided(permute(a["self"], layout.order), a["size"], a["stride"], a.get("storage_offset"))


@rule("split", "split_copy", "unsafe_split")
def parted(node: Node, a: dict[str, Any]) -> Any:
    # PyTorch has counted the parts, and guards their number: sizes need not be known for it.
    size, dim, count = a["split_size"], a.get("dim", 0), len(node.meta["val"])
    if not isinstance(size, tuple):
        size = (*(size,) * (count - 1), a["self"].shape[dim] - size * (count - 1))
    return split_with_sizes(a["self"], size, dim)


@rule("empty", "new_empty", "empty_like", "new_empty_strided", "empty_strided", "empty_permuted")
def anything(node: Node, a: dict[str, Any]) -> Any:
    shape = a["self"].shape if "empty_like" in str(node.target) else a["size"]
    return create.full(shape, 0, dtype=DTYPE[node.meta["val"].dtype])


@rule("index_select")
def selected(node: Node, a: dict[str, Any]) -> Any:
    # A number is its own first element.
    return a["self"].alias() if a["self"].ndim == 0 else indexing.index_select(**a)


@rule("put")
def put_flat(node: Node, a: dict[str, Any]) -> Any:
    flat, index, source = (reshape_to(a[name], (-1,)) for name in ("self", "index", "source"))
    return reshape_to(indexing.index_put(flat, (index,), source, a.get("accumulate", False)), a["self"].shape)


@rule("masked_scatter")
def masked(node: Node, a: dict[str, Any]) -> Any:
    shape = a["self"].shape
    mask = expand(a["mask"], shape)
    source = reshape_to(a["source"], (-1,))
    if source.shape[0] == 0:
        return NotImplemented
    # The first chosen place takes the first number, the second the second.
    order = scan.cumsum(reshape_to(mask, (-1,)), 0, dtype=DTYPES["i64"]) - 1
    chosen = reshape_to(indexing.index(source, (extremes.clamp_min(order, 0),)), shape)
    return pointwise.where(mask, chosen, a["self"])


@rule("_trilinear")
def trilinear(node: Node, a: dict[str, Any]) -> Any:
    product = None
    for name, dims in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        factor = a[name]
        for dim in sorted(a[dims]):
            factor = unsqueeze(factor, dim)
        product = factor if product is None else product * factor
    return reduce.sum(product, a["sumdim"]) if a["sumdim"] else product


@rule("_neg_view")
def negated(node: Node, a: dict[str, Any]) -> Any:
    return pointwise.neg(a["self"])


@rule("resolve_conj", "resolve_neg")
def resolved(node: Node, a: dict[str, Any]) -> Any:
    return a["self"].alias()


@rule("__lshift__", "__rshift__")
def moved_bits(node: Node, a: dict[str, Any]) -> Any:
    # What `<<` and `>>` call; all other operators are ops that have a name.
    name = "left" if "lshift" in str(node.target) else "right"
    return REGISTRY[f"bitwise_{name}_shift"](a["self"], a["other"])


@rule("scalar_tensor")
def scalar(node: Node, a: dict[str, Any]) -> Any:
    dtype = DTYPE[node.meta["val"].dtype]
    return create.full((), a["s"], dtype=dtype) if isinstance(a["s"], (bool, int, float)) else NotImplemented


@rule("arange")
def counted(node: Node, a: dict[str, Any]) -> Any:
    # With one number aten calls it the end.
    dtype = DTYPE[node.meta["val"].dtype]
    return create.arange(a.get("start", 0), a["end"], a.get("step", 1), dtype=dtype)


@rule("prims::convert_element_type")
def converted(node: Node, a: dict[str, Any]) -> Any:
    return pointwise.convert(a["a"], a["dtype"])


@rule("prims::fma")
def multiply_add(node: Node, a: dict[str, Any]) -> Any:
    return a["a"] * a["b"] + a["c"]


@rule("max", "min")
def extreme(node: Node, a: dict[str, Any]) -> Any:
    name = str(node.target).split(".")[1]
    if "dim" in a:
        return REGISTRY[f"{name}_dim"](**a)
    if "other" in a:
        return REGISTRY[f"{name}imum"](a["self"], a["other"])
    return REGISTRY[f"a{name}"](a["self"])


from . import convolution  # noqa: E402, F401  (rules of its own, which need `rule`)


@rule("_transformer_encoder_layer_fwd")
def encoder_layer(node: Node, a: dict[str, Any]) -> Any:
    """What nn.TransformerEncoderLayer calls in inference, in place of all that it is made of."""
    if a.get("mask") is not None:
        return NotImplemented
    linear, norm = REGISTRY["linear"], REGISTRY["layer_norm"]
    x, width, heads = a["src"], a["embed_dim"], a["num_heads"]
    batch, length, _ = x.shape

    def attend(value: Any) -> Any:
        parts = reshape_to(linear(value, a["qkv_weight"], a["qkv_bias"]), (batch, length, 3, heads, width // heads))
        query, key, content = (REGISTRY["select"](parts, 2, part).transpose(1, 2) for part in range(3))
        mixed = REGISTRY["scaled_dot_product_attention"](query, key, content).transpose(1, 2)
        return linear(reshape_to(mixed, (batch, length, width)), a["proj_weight"], a["proj_bias"])

    def feed_forward(value: Any) -> Any:
        hidden = linear(value, a["ffn_weight_1"], a["ffn_bias_1"])
        active = REGISTRY["gelu" if a["use_gelu"] else "relu"](hidden)
        return linear(active, a["ffn_weight_2"], a["ffn_bias_2"])

    def normal(value: Any, number: int) -> Any:
        return norm(value, (width,), a[f"norm_weight_{number}"], a[f"norm_bias_{number}"], a["eps"])

    if a["norm_first"]:
        x = x + attend(normal(x, 1))
        return x + feed_forward(normal(x, 2))
    x = normal(x + attend(x), 1)
    return normal(x + feed_forward(x), 2)
