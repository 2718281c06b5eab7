"""A step that smelt compiles: some nodes of a graph as one native call on PyTorch's memory.

Tensors are taken where they lie. One that is dense in some order of its dims is a parameter in that order, seen through
`permute`; any other is a parameter of one dim, seen through `as_strided`. Results are written in the order that PyTorch
expects of them. A result that only shows another tensor's memory is made by PyTorch, as a view.

Symbolic sizes are numbers at run time. Code that had to know more of them than PyTorch promised serves those sizes
alone; others are compiled when they come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch._aot_autograd.descriptors import ParamAOTInput
from torch.fx import Node

from ..backend.compile import start_graph
from ..backend.options import CompileOptions
from ..ir.errors import CompileError, SmeltError
from ..ir.graph import Value
from ..ir.proofs import substitute
from ..ir.symbolic import Dim, Expr, Symbol, evaluate, symbols_of
from ..ir.types import TensorType, u8
from ..kernels.memory import CACHE_LINE
from ..ops.view import as_strided, expand, permute
from ..ops.view import slice as slice_of
from ..trace import Traced, trace
from . import gpu
from .importer import Importer, Unsupported, extents_of, location_of, op_name
from .sizes import symbol_name
from .types import DTYPE, is_supported, layout_of, storage_of

if TYPE_CHECKING:
    from .program import Program, Slots


MOST_CALLS = 1024  # sizes that a step remembers; a program whose sizes grow with every call has no end of them


class Input:
    """A tensor that native code reads, as a parameter."""

    def __init__(self, node: Node, slot: int):
        tensor = node.meta["val"]
        self.node, self.slot = node, slot
        self.layout = layout = layout_of(tensor)
        self.dtype = DTYPE[tensor.dtype]
        # Memory that is still to be conjugated or negated, which PyTorch may leave to the reader.
        self.may_be_lazy = tensor.dtype.is_complex or tensor.is_neg() or node.op == "call_function"
        if layout.order is None:
            self.shape: tuple[Dim, ...] = (layout.span,)
        else:
            self.shape = tuple(layout.held[dim] for dim in layout.order)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)

    def seen(self, param: Value, size: Any) -> Value:
        """The tensor as its shape says; `size` puts what is known of symbolic sizes into one."""
        layout = self.layout
        shape = tuple(map(size, layout.shape))
        if layout.order is None:
            return as_strided(param, shape, tuple(map(size, layout.strides)), 0)
        back = tuple(layout.order.index(dim) for dim in range(len(shape)))
        value = param if back == tuple(range(len(shape))) else permute(param, back)
        return expand(value, shape) if layout.repeated else value


class Output:
    """A tensor that native code writes."""

    def __init__(self, node: Node, slot: int):
        tensor = node.meta["val"]
        self.node, self.slot = node, slot
        self.layout = layout_of(tensor)
        self.dtype: torch.dtype = tensor.dtype
        self.is_spread = self.layout.order is None
        # The slot of an input that this is only copied into, so that it may be computed there.
        self.over: int | None = None
        self.is_weight = False  # one of a model's, there

    def write_over(self, node: Node, slot: int) -> None:
        layout = layout_of(node.meta["val"])
        if layout.order is not None and not layout.repeated and node.meta["val"].dtype is self.dtype:
            self.layout, self.is_spread, self.over = layout, False, slot
            self.is_weight = isinstance(node.meta.get("desc"), ParamAOTInput)

    def written(self, value: Value) -> Value:
        """The value in the order in which it lies in memory."""
        layout = self.layout
        for dim in layout.repeated:
            value = slice_of(value, dim, 0, 1)
        if layout.order is None or layout.order == tuple(range(value.ndim)):
            return value
        return permute(value, layout.order)


class Shown:
    """A tensor that is a view of another's memory."""

    def __init__(self, node: Node, slot: int, base: Node, base_slot: int):
        tensor, whole = node.meta["val"], base.meta["val"]
        self.node, self.slot, self.base = node, slot, base_slot
        self.layout = layout_of(tensor)
        ahead = tensor.storage_offset() * tensor.itemsize - whole.storage_offset() * whole.itemsize
        self.offset = ahead // tensor.itemsize
        # How its memory is read, if in another way than the other's.
        self.reading = _reading(tensor) if _reading(tensor) != _reading(whole) else None


class Version:
    """Compiled code, and the sizes that it serves."""

    def __init__(self, traced: Traced, pinned: dict[Symbol, Dim], lower: dict[str, int], options: CompileOptions):
        self.finish = start_graph(traced.graph, options)
        self.finished: Any = None
        self.traced = traced
        self.pinned = pinned
        self.lower = lower

    @property
    def executable(self) -> Any:
        """Without a lock, which a fork would copy as it is: two threads may both finish it."""
        if self.finished is None:
            self.finished = self.finish()
        return self.finished

    def serves(self, sizes: dict[str, int]) -> bool:
        return all(evaluate(dim, sizes) == sizes[symbol.name] for symbol, dim in self.pinned.items()) and all(
            sizes[name] >= lower for name, lower in self.lower.items()
        )


class Call:
    """All that is known beforehand of calls with some sizes."""

    def __init__(self, step: NativeStep, version: Version, sizes: dict[str, int]):
        known = {symbol.name: sizes[symbol.name] for symbol in version.traced.graph.sizes}
        self.launch: Callable[..., None]
        self.misaligned = 0  # bits of addresses that native code cannot take
        # Of results whose stores bypass the caches these are more. PyTorch's memory starts at a multiple of a cache
        # line, but a view, whose memory is written in place, may start anywhere.
        streamed: Sequence[int] = ()
        if step.device.type == "cpu":
            from ..backend.cpu.executable import Launcher
            from ..backend.cpu.team import openmp_threads

            streamed = version.executable.artifact.streamed
            self.launch = Launcher(version.executable, known, openmp_threads).launch
            self.empty: Callable[..., torch.Tensor] = torch.empty_strided
            arrays = [array.__array_interface__["data"][0] for array in version.traced.arrays]
        else:
            self.launch = gpu.Launch(version.executable, known, step.device)
            self.empty = partial(torch.empty_strided, device=step.device)
            self.misaligned = gpu.ALIGN - 1
            self.constants = [gpu.moved(array, step.device) for array in version.traced.arrays]
            arrays = [tensor.data_ptr() for tensor in self.constants]
        self.seeded = version.traced.seeded
        # Parameters that only stand for sizes have no memory.
        sizes_only = len(version.traced.graph.params) - len(step.inputs) - len(arrays) - self.seeded
        self.hidden = [0] * sizes_only + arrays

        def number(dim: Dim) -> int:
            return dim if isinstance(dim, int) else evaluate(dim, sizes)

        self.read = [
            (
                item.slot,
                item.may_be_lazy,
                tuple(map(number, item.layout.shape)),
                tuple(map(number, item.layout.strides)),
            )
            for item in step.inputs
        ]
        sources = version.executable.artifact.sources
        self.copies = [(at, how, source) for at, (how, source) in enumerate(sources) if how != "own"]
        owners = {source: at for at, (how, source) in enumerate(sources) if how == "own"}
        self.stored = [owners[number] for number in range(len(version.executable.artifact.stored))]
        self.streamed = {self.stored[number] for number in streamed}
        self.made: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]] = []
        for item in step.outputs:
            shape = tuple(map(number, item.layout.held))
            strides = tuple(map(number, item.layout.strides))
            self.made.append((shape, _row_major(shape) if item.is_spread else strides, item.dtype))
        self._check_sizes(step, version, known)
        # What is more than memory that was just written: repeated dims, and gaps between elements.
        self.spread = [
            (at, tuple(map(number, item.layout.shape)), tuple(map(number, item.layout.strides)), item.is_spread)
            for at, item in enumerate(step.outputs)
            if item.is_spread or item.layout.repeated
        ]
        self.over = self._over(step, version)
        self.shown = [
            (
                item.slot,
                item.base,
                tuple(map(number, item.layout.shape)),
                tuple(map(number, item.layout.strides)),
                int(item.offset) if isinstance(item.offset, int) else number(step.size(item.offset)),
                item.reading,
            )
            for item in step.shown
        ]

    def misalignment(self, at: int) -> int:
        """Bits of an address at which a result cannot be stored."""
        return CACHE_LINE - 1 if at in self.streamed else self.misaligned

    def _check_sizes(self, step: NativeStep, version: Version, sizes: dict[str, int]) -> None:
        """PyTorch's memory has room for what native code writes: sizes were open when both were traced."""
        for at, (*_, shape) in zip(self.stored, version.executable.artifact.stored):
            own = math.prod(evaluate(dim, sizes) for dim in shape)
            if own != math.prod(self.made[at][0]):
                node, wanted = step.outputs[at].node, list(self.made[at][0])
                raise CompileError(
                    f"{op_name(node)}: smelt computes {own} elements, PyTorch expects the shape {wanted}. This is an "
                    "error of smelt; fewer open sizes (dynamic=False) get around it",
                    location_of(node),
                )

    def _over(self, step: NativeStep, version: Version) -> dict[int, int]:
        """The outputs that are computed in an input's memory, and its slot."""
        params = {item.slot: number for number, item in enumerate(step.inputs)}
        overwrites = version.executable.artifact.overwrites
        copied = {source for _, how, source in self.copies if how == "parameter"}
        found: dict[int, int] = {}
        for number, at in enumerate(self.stored):
            slot = step.outputs[at].over
            if slot is None or params.get(slot) in copied:
                continue
            if slot not in params or overwrites.allow(number, params[slot]):
                found[at] = slot
        return found


class NativeStep:
    """Nodes as one native call."""

    def __init__(self, program: Program, device: torch.device, nodes: Sequence[Node], wanted: Sequence[Node]):
        self.program = program
        self.device = device
        self.nodes = nodes
        inside = set(nodes)
        bases = {
            _memory(item): item
            for node in nodes
            for item in node.all_input_nodes
            if item not in inside and _is_tensor(item)
        }
        self.outputs: list[Output] = []
        self.shown: list[Shown] = []
        for node, base in self._owners(wanted, bases).items():
            slot = program.slot(node)
            if base is not node:
                self.shown.append(Shown(node, slot, base, program.slot(base)))
            else:
                self.outputs.append(Output(node, slot))
        self.is_needed = bool(self.outputs or self.shown)
        self._mark_writes(inside)
        read = self._read_nodes()
        self.inputs = [Input(node, program.slot(node)) for node in read]
        self.symbols = self._symbols()
        others = {item.base for item in self.shown} | {slot for slot, _ in self.symbols.values()}
        self.reads = {*read, *(node for node, slot in program.slots.items() if slot in others)}
        self.versions: list[Version] = []
        self.calls: dict[tuple[int, ...], Call] = {}
        self.compile_seconds = 0.0

    def _owners(self, wanted: Sequence[Node], bases: dict[tuple[Any, ...], Node]) -> dict[Node, Node]:
        """Whose memory each wanted tensor is a view of: its own if that is nobody else's.

        Several that share memory stay views of one tensor, also if that itself is not wanted: who writes into one of
        them sees it in the others. So does one whose elements lie apart, or more than once in the same place, and one
        that reads complex numbers as pairs: nothing need put these together.
        """
        sharing: dict[int, list[Node]] = {}
        for node in wanted:
            if _memory(node) not in bases:
                sharing.setdefault(_storage(node), []).append(node)
        first: dict[int, Node] = {}
        for node in self.nodes:
            if _is_tensor(node):
                first.setdefault(_storage(node), node)
        found: dict[Node, Node] = {}
        for node in wanted:
            base = bases.get(_memory(node), node)
            has_gaps = layout_of(node.meta["val"]).order is None
            whole = first[_storage(node)]
            is_reread = whole.meta["val"].dtype is not node.meta["val"].dtype
            if base is node and (has_gaps or is_reread or len(sharing[_storage(node)]) > 1):
                if not any(_storage(item) == _storage(node) for item in whole.all_input_nodes if _is_tensor(item)):
                    found[whole] = base = whole
            found[node] = base
        return found

    def _mark_writes(self, inside: set[Node]) -> None:
        """Outputs that are only copied into an input which nobody else reads: they may be computed there."""
        shown = {item.base for item in self.shown}
        outputs = {item.node: item for item in self.outputs if item.slot not in shown}
        for write in self.program.partition.writes:
            target, source = write.args[:2]
            if source not in outputs or not isinstance(target, Node) or self.program.slot(target) in shown:
                continue
            assert isinstance(source, Node)
            if all(user in inside or user is write for item in (target, source) for user in item.users):
                outputs[source].write_over(target, self.program.slot(target))

    def _read_nodes(self) -> list[Node]:
        """What the outputs are computed from; nodes that only make views are done without."""
        inside = set(self.nodes)
        seen: dict[Node, None] = {}
        pending = [item.node for item in self.outputs]
        visited: set[Node] = set()
        while pending:
            node = pending.pop()
            if node in visited:
                continue
            visited.add(node)
            if node in inside:
                pending.extend(node.all_input_nodes)
            elif is_supported(node.meta.get("val")):
                seen[node] = None
        self.nodes = [node for node in self.nodes if node in visited]
        return [node for node in self.program.graph.nodes if node in seen]

    # Sizes.

    def size(self, size: Any) -> Dim:
        return Importer({}, False).size(size)

    def _symbols(self) -> dict[str, tuple[int, int | None]]:
        """Where the number of each symbol is found: a slot, and the dim of the tensor there (None: it is the size)."""
        found: dict[str, tuple[int, int | None]] = {}
        for node in self.program.graph.nodes:
            item = node.meta.get("val")
            name = symbol_name(item)
            if name is not None:
                found.setdefault(name, (self.program.slot(node), None))
        for item in self.inputs:
            for dim, size in enumerate(item.layout.shape):
                if isinstance(size, Expr) and size.symbol is not None:
                    found[size.symbol.name] = (item.slot, dim)
        # A size that only later steps use may not be known yet.
        wanted = self._used_symbols()
        return {name: place for name, place in found.items() if name in wanted}

    def sizes(self, slots: Slots) -> tuple[int, ...]:
        return tuple(int(slots[slot]) if dim is None else slots[slot].shape[dim] for slot, dim in self.symbols.values())

    # Compilation.

    def compile(self, sizes: dict[str, int]) -> Version:
        """Code for these sizes, and for as many others as it can serve."""
        started = time.perf_counter()
        types = [item.type for item in self.inputs]
        names = [item.node.name for item in self.inputs]
        # A parameter that nobody reads says that there is such a size.
        symbols = self._used_symbols()
        free = list(self.symbols)
        types += [TensorType(u8, (symbols[name].expr(),)) for name in free]
        names += [f"size_{name}" for name in free]
        found: dict[str, Any] = {}

        def run(params: list[Value]) -> list[Value]:
            pinned: dict[Symbol, Dim] = {}
            lower: dict[str, int] = {}
            for name, param in zip(free, params[len(self.inputs) :]):
                (size,) = param.shape
                if size == symbols[name].expr():
                    continue
                pinned[symbols[name]] = size
                symbol = size.measured if isinstance(size, Expr) else None
                if symbol is not None and symbol.name == name:
                    lower[name] = symbol.lower or 0
            found["pinned"], found["lower"] = pinned, lower
            return self._import(params, pinned)

        try:
            traced, _ = trace(run, types, names, "graph", sizes)
        except (SmeltError, Unsupported):
            if not sizes:
                raise
            fixed: dict[Symbol, Dim] = {symbols[name]: sizes[name] for name in free}
            known = [TensorType(item.dtype, tuple(substitute(dim, fixed) for dim in item.shape)) for item in types]
            traced, _ = trace(run, known, names, "graph", sizes)
        version = Version(traced, found["pinned"], found["lower"], self._options())
        self.versions.append(version)
        self.compile_seconds += time.perf_counter() - started
        return version

    def _options(self) -> CompileOptions:
        if self.device.type != "cpu":
            return gpu.options_for(self.device)
        replaced = [number for number, item in enumerate(self.outputs) if item.over is not None]
        shared = [number for number in replaced if self.outputs[number].is_weight]
        return CompileOptions(addresses=True, replaced=tuple(replaced), shared=tuple(shared))

    def finish(self) -> None:
        """Wait for code that is being compiled while other steps go through their passes."""
        started = time.perf_counter()
        for version in self.versions:
            version.executable  # noqa: B018
        self.compile_seconds += time.perf_counter() - started

    def _used_symbols(self) -> dict[str, Symbol]:
        found: dict[str, Symbol] = {}
        if not self.program.partition.sizes:
            return found
        made = (*self.nodes, *(item.node for item in self.shown))
        for node in dict.fromkeys(item for own in made for item in (*own.all_input_nodes, own)):
            for entry in _tensors(node.meta.get("val")):
                dims = extents_of(entry) if isinstance(entry, torch.Tensor) else (entry,)
                for dim in dims:
                    for symbol in symbols_of(self.size(dim)):
                        found.setdefault(symbol.name, symbol)
        return found

    def _import(self, params: Sequence[Value], pinned: dict[Symbol, Dim]) -> list[Value]:
        importer = Importer(pinned, self.program.eager_random)

        def known(dim: Dim) -> Dim:
            return dim if isinstance(dim, int) or not pinned else substitute(dim, pinned)

        values: dict[Node, Any] = {item.node: item.seen(param, known) for item, param in zip(self.inputs, params)}

        def lookup(node: Node) -> Any:
            if node not in values:
                values[node] = importer.size(node.meta["val"])
            return values[node]

        for node in self.nodes:
            values[node] = importer.call(node, lookup)
        return [item.written(values[item.node]) for item in self.outputs]

    # Running.

    def __call__(self, slots: Slots) -> None:
        if torch.get_num_threads() != _threads:
            follow_threads()
        key = self.sizes(slots) if self.symbols else ()
        call = self.calls.get(key) or self._call(key)
        tensors: list[torch.Tensor] = []
        addresses: list[int] = []
        for slot, is_lazy, shape, strides in call.read:
            tensor = slots[slot]
            if is_lazy:
                tensor = tensor.resolve_conj().resolve_neg()
            if tensor.stride() != strides:
                tensor = _laid_out(tensor, shape, strides)
            address = tensor.data_ptr()
            if address & call.misaligned:
                tensor = _moved(tensor)
                address = tensor.data_ptr()
            tensors.append(tensor)
            addresses.append(address)
        if call.over:
            made = [
                self._target(slots, call, at) if at in call.over else call.empty(*item[:2], dtype=item[2])
                for at, item in enumerate(call.made)
            ]
        else:
            empty = call.empty
            made = [empty(shape, strides, dtype=dtype) for shape, strides, dtype in call.made]
        addresses += call.hidden
        if call.seeded:
            seed = torch.empty(2, dtype=torch.int64, device=self.device).random_()
            addresses.append(seed.data_ptr())
        for at in call.stored:
            addresses.append(made[at].data_ptr())
        call.launch(*addresses)
        for at, how, source in call.copies:
            origin = tensors[source] if how == "parameter" else made[call.stored[source]]
            made[at].copy_(_same_memory(origin, made[at]))
        for at, shape, strides, gaps in call.spread:
            made[at] = _laid_out(made[at], shape, strides) if gaps else made[at].as_strided(shape, strides)
        for output, tensor in zip(self.outputs, made):
            slots[output.slot] = tensor
        for slot, base, shape, strides, offset, reading in call.shown:
            slots[slot] = view_of(slots[base], shape, strides, offset, reading)

    def _target(self, slots: Slots, call: Call, at: int) -> torch.Tensor:
        """The input in whose memory a result is computed, if it lies as expected."""
        tensor: torch.Tensor = slots[call.over[at]]
        shape, strides, dtype = call.made[at]
        misaligned = tensor.data_ptr() & call.misalignment(at)
        if tensor.stride() != strides or tensor.is_neg() or tensor.is_conj() or misaligned:
            return call.empty(shape, strides, dtype=dtype)
        torch.autograd.graph.increment_version(tensor)
        return tensor

    def _call(self, key: tuple[int, ...]) -> Call:
        sizes = dict(zip(self.symbols, key))
        version = next((item for item in self.versions if item.serves(sizes)), None) or self.compile(sizes)
        call = Call(self, version, sizes)
        if len(self.calls) >= MOST_CALLS:
            self.calls.pop(next(iter(self.calls)), None)
        self.calls[key] = call
        return call

    @property
    def kernels(self) -> int:
        return sum(len(version.executable.artifact.report["kernels"]) for version in self.versions)


_threads = 0  # that PyTorch used when this was last looked at


def follow_threads() -> None:
    """As many threads as PyTorch uses; what the user tells smelt later holds until PyTorch's number changes again."""
    global _threads
    from ..backend.cpu.threads import set_num_threads

    _threads = torch.get_num_threads()
    set_num_threads(_threads)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _laid_out(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """The tensor with these strides; itself where they say the same."""
    if all(a == b or size == 1 for a, b, size in zip(tensor.stride(), strides, shape)) or 0 in shape:
        return tensor
    # What repeats the same memory is written once.
    held = [1 if stride == 0 else size for size, stride in zip(shape, strides)]
    made = torch.empty_strided(held, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor.as_strided(held, tensor.stride())).as_strided(shape, strides)


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """The same at an address where native code can read it, gaps and all."""
    if tensor.numel() == 0:
        return torch.empty_like(tensor)
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    memory = tensor.as_strided((span,), (1,), tensor.storage_offset()).clone()
    return memory.as_strided(tensor.shape, tensor.stride(), 0)


def _same_memory(origin: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The elements of one tensor, in the order of memory, in the shape and order of another."""
    flat = origin.as_strided((origin.numel(),), (1,), origin.storage_offset())
    return flat.as_strided(target.shape, target.stride(), origin.storage_offset())


Reading = tuple[torch.dtype, bool, bool]  # of memory: the element type, and whether to conjugate and to negate


def _reading(tensor: torch.Tensor) -> Reading:
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _storage(node: Node) -> int:
    return storage_of(node.meta["val"])


def _memory(node: Node) -> tuple[Any, ...]:
    """The same, and how it is read."""
    return _storage(node), _reading(node.meta["val"])


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def view_of(
    tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int, reading: Reading | None
) -> torch.Tensor:
    """A view that begins so many of its elements behind a tensor."""
    if reading is None:
        return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)
    dtype, is_conjugate, is_negative = reading
    found = torch.empty(0, dtype=dtype, device=tensor.device)
    start = tensor.storage_offset() * tensor.itemsize // dtype.itemsize + offset
    found.set_(tensor.untyped_storage(), start, shape, strides)  # type: ignore[call-overload]
    found = torch._conj(found) if is_conjugate else found
    return torch._neg_view(found) if is_negative else found


def _tensors(item: Any) -> list[Any]:
    found = item if isinstance(item, (tuple, list)) else [item]
    return [entry for entry in found if isinstance(entry, (torch.Tensor, torch.SymInt))]
