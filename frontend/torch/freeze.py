"""Parameters as constants: `options={"freeze": True}`.

Batch norms with fixed statistics are folded into the weights of the convolution or product before them, and the weights
of matrix products are packed in panels for the GEMM micro-kernels. Then the part of the graph that depends on
parameters alone becomes a prologue, a program that runs before the first call, and again before a call with other or
modified parameters.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..backend.cpu.host import host
from ..kernels.gemm import RegisterTile
from .importer import result_tensors
from .limits import LIMITS
from .memory import lineage
from .program import Constants, Program
from .rules import RANDOM

aten = torch.ops.aten
_is_freed: Callable[[int], bool] = torch.UntypedStorage._expired  # type: ignore[assignment]
# Ops whose weight has a row for each channel. Those that AOTAutograd decomposes occur in exported programs.
WITH_ROWS = {
    aten.convolution.default, aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.linear.default
}  # fmt: skip

ENCODER = aten._transformer_encoder_layer_fwd.default
# Products: the dim of their weights with the columns of the result, and the names of the weights.
WEIGHTS: dict[Any, tuple[int, tuple[str, ...]]] = {
    aten.mm.default: (1, ("mat2",)),
    aten.addmm.default: (1, ("mat2",)),
    aten.linear.default: (0, ("weight",)),
    ENCODER: (0, ("qkv_weight", "proj_weight", "ffn_weight_1", "ffn_weight_2")),
}
PACKED = {torch.float32: "f32", torch.float64: "f64"}
HELD = "smelt_held"  # key in a node's meta that overrides whether it is a constant


def freeze(module: GraphModule, static: Mapping[int, str]) -> Prologue:
    """Move the part that depends only on the inputs at these positions out of a graph; their names are for the
    receipt."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    held = {number: placeholders[number] for number in static if _may_be_held(placeholders[number])}
    names = {node: static[number] for number, node in held.items()}
    _fold_batch_norms(module.graph, _constants(module.graph, held.values()))
    packed = _pack_weights(module.graph, _constants(module.graph, held.values()))
    return Prologue(module, held, [(names[_origin(weight, names)], count) for weight, count in packed])


def _origin(node: Node, names: Container[Node]) -> Node:
    """Return the largest of the inputs that a weight is computed from, whose name it gets in the receipt: the others
    scale it, or are concatenated to it."""
    found: dict[Node, None] = {}
    pending, seen = [node], {node}
    while pending:
        item = pending.pop()
        if item in names:
            found[item] = None
        new = [other for other in item.all_input_nodes if other not in seen]
        seen.update(new)
        pending += new
    return max(found, key=_elements)


def _may_be_held(node: Node) -> bool:
    """Whether an input is a tensor that the graph itself does not overwrite."""
    written = any(user.target is aten.copy_.default and user.args[0] is node for user in node.users)
    return isinstance(node.meta.get("val"), torch.Tensor) and not written


def _constants(graph: Graph, held: Any) -> dict[Node, None]:
    """Return the held inputs and the nodes that depend on them alone, in order.

    A node larger than its operands is left out: recomputing it is cheaper than reading it. So is memory that the caller
    gets and may overwrite.
    """
    found: dict[Node, None] = dict.fromkeys(held)
    (output,) = (node for node in graph.nodes if node.op == "output")
    given_away = {item for result in output.all_input_nodes for item in lineage(result)}
    for node in graph.nodes:
        if node.op != "call_function" or not node.all_input_nodes or node.is_impure():
            continue
        if not all(item in found for item in node.all_input_nodes):
            continue
        is_op = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in ("aten", "prims")
        if node.target is not operator.getitem and not (is_op and node.target._schema.name[6:] not in RANDOM):
            continue
        if node in given_away or any(user.target is aten.copy_.default for user in node.users):
            continue
        if node.meta.get(HELD, _elements(node) <= sum(map(_elements, node.all_input_nodes))):
            found[node] = None
    return found


def _elements(node: Node) -> int:
    return sum(item.numel() for item in result_tensors(node) if isinstance(item, torch.Tensor))


class Prologue:
    """The graph of constants computed from held inputs; in the main graph, constants stand for its results."""

    def __init__(self, module: GraphModule, held: dict[int, Node], packed: Sequence[tuple[str, int]]):
        self.packed = packed  # packed weights: name, bytes of the panels
        graph = module.graph
        constants = _constants(graph, held.values())
        self.held = list(held)
        self.names: list[str] = []
        own, copies = Graph(), {}
        for node in held.values():
            copies[node] = own.placeholder(node.name)
        results: list[Node] = []
        for node in list(constants):
            if node not in copies:
                copies[node] = own.node_copy(node, lambda item: copies[item])
            readers = [user for user in node.users if user not in constants]
            if node.op == "placeholder" or isinstance(node.meta.get("val"), (tuple, list)) or not readers:
                continue
            name = f"frozen_{len(self.names)}"
            module.register_buffer(name, torch.empty(0), persistent=False)  # a placeholder until the prologue runs
            with graph.inserting_after(list(held.values())[-1]):
                constant = graph.create_node("get_attr", name)
            constant.meta = dict(node.meta)
            for user in readers:
                user.replace_input_with(node, constant)
            self.names.append(name)
            results.append(copies[node])
        own.output(results)
        graph.eliminate_dead_code()
        self.compute = GraphModule(module, own)

    @property
    def count(self) -> int:
        return sum(node.op == "call_function" for node in self.compute.graph.nodes)


@cache
def _fused_steps() -> list[int]:
    """Return a counter of steps of optimizers with fused=True from now on: PyTorch's fused kernels write parameters
    without incrementing their `_version`."""
    count = [0]

    @torch.compiler.disable
    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        count[0] += any(group.get("fused") for group in optimizer.param_groups)

    register_optimizer_step_post_hook(note)
    return count


class Folded:
    """Constants computed from some tensors, valid while these are unchanged."""

    def __init__(self, held: Sequence[torch.Tensor], is_guarded: bool):
        self.fused_steps = _fused_steps()[0]
        self.tensors = [weakref.ref(tensor) for tensor in held]
        self.state = [(_version(tensor), tensor.data_ptr()) for tensor in held]
        # An address identifies memory only while its storage lives: `p.data = other` frees it and keeps `_version`.
        self.storages = [StorageWeakRef(tensor.untyped_storage()) for tensor in held]
        self.storage_words = [storage.cdata for storage in self.storages]
        # Strides and lazy bits, unless Dynamo's guards compare them.
        self.layouts = None if is_guarded else [_layout(tensor) for tensor in held]
        self.constants = Constants([])

    def is_of(self, held: Sequence[torch.Tensor]) -> bool:
        return all(known() is tensor for known, tensor in zip(self.tensors, held))

    def serves(self, held: Sequence[torch.Tensor]) -> bool:
        return (
            self.fused_steps == _fused_steps()[0]
            and all(
                known() is tensor and _version(tensor) == version and tensor.data_ptr() == address
                for tensor, known, (version, address) in zip(held, self.tensors, self.state)
            )
            and not any(map(_is_freed, self.storage_words))
            and (self.layouts is None or self.layouts == [_layout(tensor) for tensor in held])
        )

    @property
    def is_dead(self) -> bool:
        return any(known() is None for known in self.tensors)


class Frozen:
    """A program that runs with constants computed from its arguments; keeps the constants of the latest few models."""

    def __init__(self, program: Program, prologue: Prologue):
        self._boxed_call = True
        self.program, self.prologue = program, prologue
        slots = {node.target: slot for node, slot in program.slots.items() if node.op == "get_attr"}
        self.places = [slots[name] for name in prologue.names]
        self.folded: tuple[Folded, ...] = ()  # newest first; an immutable tuple, since threads read it without a lock
        self.lock = threading.Lock()
        self.folds = 0

    @property
    def natives(self) -> Any:
        return self.program.natives

    def __call__(self, args: list[Any]) -> Any:
        held = [args[number] for number in self.prologue.held]
        for folded in self.folded:
            if folded.serves(held):
                break
        else:
            folded = self._fold(held)
        return self.program.run(args, folded.constants)

    def _fold(self, held: list[torch.Tensor]) -> Folded:
        folded = Folded(held, self.program.is_guarded)  # notes versions before the tensors are read
        with self.lock, torch.no_grad():
            template = folded.constants.template
            template += self.program.template
            for place, tensor in zip(self.places, self.prologue.compute(*held)):
                template[place] = tensor
            others = [item for item in self.folded if not item.is_of(held) and not item.is_dead]
            self.folded = (folded, *others[: LIMITS.models - 1])
            self.folds += 1
        return folded


def _version(tensor: torch.Tensor) -> Any:
    """Return the version counter of a tensor. Inference tensors have none: a new object, so that none compares
    equal."""
    return object() if tensor.is_inference() else tensor._version


def _layout(tensor: torch.Tensor) -> Any:
    return tensor.stride(), tensor.is_neg(), tensor.is_conj()


# Batch norms.


def _fold_batch_norms(graph: Graph, constants: dict[Node, None]) -> None:
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.target is not aten._native_batch_norm_legit_no_training.default:
            continue
        before, *numbers = node.args[:5]
        results = list(node.users)
        if any(item.target is not operator.getitem or item.args[1] != 0 for item in results):
            continue
        if len(before.users) != 1 or not all(item is None or item in constants for item in numbers):
            continue
        found = _product_of(before, constants)
        if found is None or not _have_one_type(before, *found[:2], *numbers):
            continue
        folded = _with_norm(graph, before, *found, node.args)
        for item in results:
            item.replace_all_uses_with(folded)
    graph.eliminate_dead_code()


def _product_of(node: Node, constants: dict[Node, None]) -> tuple[Node, Node | None, int] | None:
    """Return the weight, the bias, and the weight's channel dim of a product that a batch norm can be folded into."""
    weight: Any
    bias: Any
    if node.target in WITH_ROWS:
        weight, bias, dim = node.args[1], node.args[2] if len(node.args) > 2 else None, 0
        if node.target is aten.convolution.default and node.args[6]:  # transposed
            if node.args[8] != 1:
                return None
            dim = 1
        if node.target is aten.linear.default and node.meta["val"].ndim != 2:
            return None
    elif node.target is aten.addmm.default and not node.kwargs:
        weight, bias, dim = node.args[2], node.args[0], 1
    elif node.target is aten.mm.default:
        weight, bias, dim = node.args[1], None, 1
    else:
        return None
    if weight not in constants or (bias is not None and bias not in constants):
        return None
    if bias is not None and tuple(bias.meta["val"].shape) != (weight.meta["val"].shape[dim],):
        return None
    return weight, bias, dim


def _have_one_type(*nodes: Any) -> bool:
    """Whether all tensors are f32, or all f64, so that folding removes no rounding."""
    types = {node.meta["val"].dtype for node in nodes if node is not None}
    return len(types) == 1 and types <= {torch.float32, torch.float64}


def _with_norm(graph: Graph, node: Node, weight: Node, bias: Node | None, dim: int, norm: Sequence[Any]) -> Node:
    """Emit (w x + b - mean) * scale / sqrt(variance + epsilon) + shift as one product."""
    scale, shift, mean, variance, _, epsilon = norm[1:]
    with graph.inserting_before(node):
        emit = partial(_emit, graph, node)
        factor = emit(aten.rsqrt.default, emit(aten.add.Scalar, variance, epsilon))
        if scale is not None:
            factor = emit(aten.mul.Tensor, factor, scale)
        shape = [1] * weight.meta["val"].ndim
        shape[dim] = -1
        weight = emit(aten.mul.Tensor, weight, emit(aten.view.default, factor, shape))
        offset = emit(aten.neg.default, mean) if bias is None else emit(aten.sub.Tensor, bias, mean)
        offset = emit(aten.mul.Tensor, offset, factor)
        if shift is not None:
            offset = emit(aten.add.Tensor, offset, shift)
        if node.target in WITH_ROWS:
            return emit(node.target, node.args[0], weight, offset, *node.args[3:])
        left = node.args[0] if node.target is aten.mm.default else node.args[1]
        return emit(aten.addmm.default, offset, left, weight)


def _emit(graph: Graph, origin: Node, target: Any, *args: Any) -> Node:
    """Emit a call with the user's line of another node."""
    made = graph.call_function(target, args)
    fake = [item.meta["val"] if isinstance(item, Node) else item for item in args]
    mode = next(item.fake_mode for item in fake if isinstance(item, FakeTensor))
    with mode:
        made.meta["val"] = target(*fake)
    made.meta["stack_trace"] = origin.meta.get("stack_trace")
    return made


# Packed weights.


def _pack_weights(graph: Graph, constants: dict[Node, None]) -> list[tuple[Node, int]]:
    """Pack the weights of products in panels; products read them through views that lowering recognises.

    Returns the weights and the bytes of their panels.
    """
    packed: dict[tuple[Node, int], Node] = {}
    found: list[tuple[Node, int]] = []
    for node in list(graph.nodes):
        dim, names = WEIGHTS.get(node.target, (0, ()))
        if node.target is ENCODER and any(isinstance(item, Node) for item in (*node.args[18:], *node.kwargs.values())):
            continue  # with a mask it is left to PyTorch, and the weight would be unpacked in each call
        for position in (_position(node.target, name) for name in names):
            weight = node.args[position]
            if weight not in constants or not _may_be_packed(weight.meta["val"], node.meta["val"]):
                continue
            if (weight, dim) not in packed:
                with graph.inserting_before(node):
                    panels, packed[weight, dim] = _packed(partial(_emit, graph, node), weight, dim)
                found.append((weight, panels.meta["val"].nbytes))
            node.update_arg(position, packed[weight, dim])
    return found


def _position(target: Any, name: str) -> int:
    return [item.name for item in target._schema.arguments].index(name)


def _may_be_packed(weight: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether a product reads its weight in panels. A product of a single row reads its matrix once, in memory
    order."""
    known = all(isinstance(size, int) and size > 1 for size in weight.shape)
    is_row = all(isinstance(size, int) and size == 1 for size in result.shape[:-1])
    return known and not is_row and weight.device.type == "cpu" and weight.dtype in PACKED


def _packed(emit: Callable[..., Node], weight: Node, dim: int) -> tuple[Node, Node]:
    """Return a weight in panels, as a constant, and the weight as views of the panels. `dim`: the weight's dim with the
    columns of the product."""
    whole = weight if dim else emit(aten.permute.default, weight, [1, 0])
    value = whole.meta["val"]
    depth, columns = value.shape
    width = RegisterTile(PACKED[value.dtype], host().machine).width
    missing = -columns % width
    if missing:
        whole = emit(aten.constant_pad_nd.default, whole, [0, missing])
        whole.meta[HELD] = True
    panels = emit(aten.reshape.default, whole, [depth, (columns + missing) // width, width])
    panels = emit(aten.contiguous.default, emit(aten.permute.default, panels, [1, 0, 2]))
    again = emit(aten.permute.default, panels, [1, 0, 2])
    again.meta[HELD] = False
    again = emit(aten.reshape.default, again, [depth, columns + missing])
    if missing:
        again = emit(aten.slice.Tensor, again, 1, 0, columns)
    return panels, again if dim else emit(aten.permute.default, again, [1, 0])
