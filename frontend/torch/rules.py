"""Rules for nodes whose arguments or results differ from those of smelt's op of the same name."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.fx import Node

from ..ir.errors import CompileError
from ..ir.graph import Value
from ..ir.process import process
from ..ir.symbolic import Expr
from ..ir.types import DTYPES, INTEGER
from ..ops import bits, checks, concat_pad, create, indexing, pointwise
from ..ops.define import REGISTRY
from ..ops.opdef import OpDef
from ..ops.values import as_dtype
from ..ops.view import as_strided, expand, permute, split_with_sizes
from ..ops.view import reshape as reshape_to
from ..ops.view import slice as slice_of
from .memory import root_of
from .types import DTYPE, layout_of

Rule = Callable[[Node, dict[str, Any]], Any]
RULES: dict[str, Rule] = process.keep("rules of PyTorch's ops", {})

# Ops that draw random numbers.
RANDOM = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "native_dropout", "normal",
    "normal_functional", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random",
    "randperm", "rrelu_with_noise_functional", "uniform",
}  # fmt: skip


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ops of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def apply(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call an op by name; integers become PyTorch's default float type where the op needs floats."""
    defn = REGISTRY[name]
    arguments = defn.bind(args, kwargs)
    for parameter in defn.tensors:
        if isinstance(arguments[parameter.name], Expr):
            arguments[parameter.name] = _wrapped(defn, parameter.name, arguments)
    return defn.apply_in(DTYPE[torch.get_default_dtype()], arguments)


def _wrapped(defn: OpDef, name: str, arguments: dict[str, Any]) -> Any:
    """Return an open size beside a narrower integer type: PyTorch's binary ops wrap it, others raise if it is too
    large, but wrap negative numbers for u8."""
    wanted = defn.dtype_of_number(DTYPES["i64"], arguments)
    if not wanted.is_integer or wanted.bits == 64:
        return arguments[name]
    size = create.extent(value=arguments[name], dtype=DTYPES["i64"])
    if defn.name in ("div", "true_divide"):  # computed in floats
        return size
    is_binary = defn.name == "rsub" or getattr(defn.kind, "promote", "") == "same"
    if not is_binary or (defn.name, name) == ("pow", "exponent"):
        if wanted is DTYPES["u8"]:
            raise CompileError(_TOO_NARROW)
        return arguments[name]
    return pointwise.cast(size, wanted)


_TOO_NARROW = "whether a u8 holds the number is known only at the call"


@rule("alias", "clone", "detach", "contiguous")
def same(node: Node, a: dict[str, Any]) -> Any:
    return a["self"].alias()


@rule("view", "view_copy", "reshape")
def reshaped(node: Node, a: dict[str, Any]) -> Any:
    if a.get("size") is None and a.get("shape") is None:
        return bits.view_dtype(a["self"], a["dtype"])
    return reshape_to(a["self"], a["size"] if "size" in a else a["shape"])


@rule("resize")
def resized(node: Node, a: dict[str, Any]) -> Any:
    order = _memory_order(node.args[0])
    old, new = prod(a["self"].shape), prod(a["size"])
    if order is None or not isinstance(old, int) or not isinstance(new, int):
        return NotImplemented
    flat = reshape_to(permute(a["self"], order), (old,))
    if new > old:  # new elements are undefined
        flat = concat_pad.cat([flat, create.full((new - old,), 0, dtype=flat.dtype)])
    return reshape_to(slice_of(flat, 0, 0, new), a["size"])


@rule("as_strided", "as_strided_copy")
def strided(node: Node, a: dict[str, Any]) -> Any:
    order = _memory_order(node.args[0])
    if order is None:
        return NotImplemented
    return as_strided(permute(a["self"], order), a["size"], a["stride"], a.get("storage_offset"))


@rule("as_strided_scatter")
def scattered(node: Node, a: dict[str, Any]) -> Any:
    order = _memory_order(node.args[0])
    if order is None:
        return NotImplemented
    memory = permute(a["self"], order)
    offset = a.get("storage_offset")
    found = indexing.as_strided_scatter(memory, a["src"], a["size"], a["stride"], offset)
    return permute(found, tuple(order.index(dim) for dim in range(len(order))))


def _memory_order(node: Any) -> tuple[int, ...] | None:
    """Return the memory order of a tensor's dims, if it covers all of its base's memory; else None.

    Strides and offsets count from the start of eager's storage, and an argument may begin anywhere in its storage, so
    only computed tensors have an order here.
    """
    root = root_of(node)
    layout, whole = (layout_of(item.meta["val"]) for item in (node, root))
    if root.op != "call_function" or layout.repeated or prod(layout.shape) != prod(whole.shape):
        return None
    return layout.order


@rule("split", "split_copy", "unsafe_split")
def parted(node: Node, a: dict[str, Any]) -> Any:
    # PyTorch guards the number of parts, so the size may stay open.
    size, dim, count = a["split_size"], a.get("dim", 0), len(node.meta["val"])
    if not isinstance(size, tuple):
        size = (*(size,) * (count - 1), a["self"].shape[dim] - size * (count - 1))
    return split_with_sizes(a["self"], size, dim)


@rule("empty", "new_empty", "empty_like", "new_empty_strided", "empty_strided", "empty_permuted")
def anything(node: Node, a: dict[str, Any]) -> Any:
    shape = a["self"].shape if "empty_like" in str(node.target) else a["size"]
    return create.full(shape, 0, dtype=DTYPE[node.meta["val"].dtype])


@rule("full", "full_like", "new_full")
def filled(node: Node, a: dict[str, Any]) -> Any:
    shape, dtype = a["size"] if "size" in a else a["self"].shape, DTYPE[node.meta["val"].dtype]
    value = a["fill_value"]
    if isinstance(value, Expr):
        value = create.extent(value=value, dtype=DTYPES["i64"])
    if isinstance(value, Value):  # an open size, or a number passed to each call
        if dtype is DTYPES["u8"] and value.dtype is DTYPES["i64"]:
            raise CompileError(_TOO_NARROW)
        return expand(as_dtype(value, dtype) if dtype.is_integer else pointwise.convert(value, dtype), shape)
    return create.full(shape, value, dtype=dtype)


@rule("index_select")
def selected(node: Node, a: dict[str, Any]) -> Any:
    # A 0-dim tensor has one element, which is selected.
    return a["self"].alias() if a["self"].ndim == 0 else indexing.index_select(**a)


@rule("repeat_interleave")
def repeated(node: Node, a: dict[str, Any]) -> Any:
    if "self" not in a:  # the overload that returns places
        a = {"self": a["repeats"], "output_size": a.get("output_size")}
    return apply("repeat_interleave", **a)


@rule("resolve_conj", "resolve_neg")
def resolved(node: Node, a: dict[str, Any]) -> Any:
    return a["self"].alias()


@rule("__lshift__", "__rshift__")
def moved_bits(node: Node, a: dict[str, Any]) -> Any:
    # The ops of `<<` and `>>`; all other operators have named ops.
    name = "left" if "lshift" in str(node.target) else "right"
    return apply(f"bitwise_{name}_shift", a["self"], a["other"])


@rule("scalar_tensor")
def scalar(node: Node, a: dict[str, Any]) -> Any:
    return filled(node, {"size": (), "fill_value": a["s"]})


@rule("arange")
def counted(node: Node, a: dict[str, Any]) -> Any:
    # A single number is `end`.
    dtype = DTYPE[node.meta["val"].dtype]
    return create.arange(a.get("start", 0), a["end"], a.get("step", 1), dtype=dtype)


@rule("prims::convert_element_type", "prims::broadcast_in_dim", "prims::view_of", "prims::device_put")
def step(node: Node, a: dict[str, Any]) -> Any:
    """Call the op of a step of PyTorch's compiler. Not all names of that namespace mean what aten's mean."""
    defn = REGISTRY[str(node.target).split(".")[1]]
    return defn(**{name: item for name, item in a.items() if name != "device"})


@rule("convert_element_type")
def converted(node: Node, a: dict[str, Any]) -> Any:
    return pointwise.convert(a["input"], a["dtype"])


@rule("_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu")
def packed_weight(node: Node, a: dict[str, Any]) -> Any:
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        raise CompileError("PyTorch packs weights of 4 bits in another order on this processor")
    return apply(str(node.target).split(".")[1], **a)


@rule("prims::fma")
def multiply_add(node: Node, a: dict[str, Any]) -> Any:
    return a["a"] * a["b"] + a["c"]


@rule("add", "sub", "rsub")
def scaled_sum(node: Node, a: dict[str, Any]) -> Any:
    name = str(node.target).split(".")[1]
    if isinstance(a.get("alpha"), Value):
        a["other"] = apply("mul", a["other"], a.pop("alpha"))
    return apply(name, **a)


@rule("adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
@rule("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_pool(node: Node, a: dict[str, Any]) -> Any:
    if not a["self"].dtype.is_float:
        raise CompileError("adaptive pools of integers are not supported, nor are they in PyTorch")
    if 0 in a["output_size"]:
        raise CompileError("a result without elements needs no code")
    return apply(str(node.target).split(".")[1], **a)


@rule("floor_divide", "remainder", "fmod", "div", "divide")
def divided(node: Node, a: dict[str, Any]) -> Any:
    name = str(node.target).split(".")[1]
    divisor = a["other"]
    if not node.meta["val"].dtype.is_floating_point and not node.meta["val"].dtype.is_complex:
        if isinstance(divisor, Expr):
            divisor = create.extent(value=divisor, dtype=DTYPES["i64"])
        if isinstance(divisor, Value):
            a["other"] = checks.checked_divisor(divisor) if divisor.dtype in INTEGER else divisor
        elif not divisor:
            raise CompileError("an integer is divided by zero, which is an error in PyTorch")
    return apply(name, **a)


@rule("max", "min")
def extreme(node: Node, a: dict[str, Any]) -> Any:
    name = str(node.target).split(".")[1]
    if "dim" in a:
        return apply(f"{name}_dim", **a)
    if "other" in a:
        return apply(f"{name}imum", a["self"], a["other"])
    return apply(f"a{name}", a["self"])


@rule("_native_batch_norm_legit")
def batch_norm(node: Node, a: dict[str, Any]) -> Any:
    if a["training"] and a.get("running_mean") is not None:
        return NotImplemented  # it would have to change the running statistics in place
    return apply("_native_batch_norm_legit", **a)


@rule("_transformer_encoder_layer_fwd")
def encoder_layer(node: Node, a: dict[str, Any]) -> Any:
    """Expand the fused op that nn.TransformerEncoderLayer calls in inference."""
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
