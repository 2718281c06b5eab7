"""Compile nodes of a graph to one native call on PyTorch's memory.

Tensors are not copied. A tensor that is dense in some order of its dims is a parameter in that order, read through
`permute`; any other is a parameter of one dim, read through `as_strided`. Results are written in the layout expected by
PyTorch. A result that is a view of another tensor's memory is made by PyTorch.

Symbolic sizes are numbers at run time. Code that was specialized on more facts of them than PyTorch's guards hold
serves only the sizes with these facts; other sizes are compiled at their first call.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ..backend.compile import start_graph
from ..backend.options import CompileOptions
from ..ir.errors import CompileError
from ..ir.graph import Value
from ..ir.process import process
from ..ir.proofs import substitute
from ..ir.symbolic import Dim, Expr, Symbol, evaluate, symbols_of
from ..ir.types import TensorType, u8
from ..trace import Traced, trace
from . import gpu
from .importer import Importer, extents_of, location_of, op_name, reason_of
from .limits import LIMITS
from .memory import (
    are_apart,
    laid_out,
    lies_as,
    lineage,
    moved,
    overlaps_itself,
    placed_absolutely,
    root_of,
    row_major,
    same_memory,
)
from .operands import Input, Output, Overwritten, Read, Shown, View, bytes_of
from .receipt import warn_of_fallback
from .sizes import dim_of, symbol_name
from .types import is_supported, layout_of, number_type

if TYPE_CHECKING:
    from ..backend.call_plan import SizedPlan
    from .program import Program, Slots


class Version:
    """Compiled code, and the sizes for which it is valid."""

    def __init__(self, traced: Traced, pinned: dict[Symbol, Dim], lower: dict[str, int], options: CompileOptions):
        self.finish = start_graph(traced.graph, options)
        self.options = options
        self.finished: Any = None
        self.traced = traced
        self.pinned = pinned
        self.lower = lower

    @property
    def executable(self) -> Any:
        """Finish the compilation, without a lock, which a fork would copy in its state: two threads may both do it."""
        if self.finished is None:
            self.finished = self.finish()
        return self.finished

    def serves(self, sizes: dict[str, int]) -> bool:
        return (
            all(evaluate(dim, sizes) == sizes[symbol.name] for symbol, dim in self.pinned.items())
            and all(sizes[name] >= lower for name, lower in self.lower.items())
            and self.traced.takes(sizes)
        )


class Call:
    """The facts of calls with the same sizes, computed once."""

    def __init__(self, step: NativeStep, version: Version, sizes: dict[str, int]):
        known = {symbol.name: sizes[symbol.name] for symbol in version.traced.graph.sizes}
        traced, executable = version.traced, version.executable
        self.plan = executable.plan.hiding(traced.arrays, traced.seeded, given=len(step.inputs))
        sized = self.plan.at(known)
        self.launch: Callable[..., None]
        self.misaligned = self.plan.param_alignment - 1  # mask of address bits that must be zero
        if step.device.type == "cpu":
            from ..backend.cpu.call.executable import Launcher
            from ..backend.cpu.runtime.openmp import openmp_threads

            self.launch = Launcher(executable, sized, openmp_threads).launch
            self.empty: Callable[..., torch.Tensor] = torch.empty_strided
            arrays = [array.__array_interface__["data"][0] for array in self.plan.constants]
        else:
            self.launch = gpu.Launch(executable, sized, step.device)
            self.empty = partial(torch.empty_strided, device=step.device)
            self.constants = [gpu.moved(array, step.device) for array in self.plan.constants]
            arrays = [tensor.data_ptr() for tensor in self.constants]
        self.hidden = [0] * self.plan.absent + arrays

        def number(dim: Dim) -> int:
            return dim if isinstance(dim, int) else evaluate(dim, sizes)

        self.read = [Read(item, step.device, number) for item in step.inputs]
        self.made: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]] = []
        # Results that are not the written memory itself: with repeated dims, or gaps between elements.
        self.spread: list[tuple[int, tuple[int, ...], tuple[int, ...], bool]] = []
        own = {item.slot for item in step.outputs}
        for at, item in enumerate(step.outputs):
            held, shape = (tuple(map(number, dims)) for dims in (item.layout.held, item.layout.shape))
            strides, is_spread = tuple(map(number, item.layout.strides)), item.is_spread
            if is_spread and overlaps_itself(held, strides):
                # torch.export traced fixed strides for open sizes; they overlap here, so row-major ones are used.
                strides, is_spread = row_major(held), False
                own.discard(item.slot)
            self.made.append((held, row_major(held) if is_spread else strides, item.dtype))
            if item.is_spread or item.layout.repeated:
                shown = tuple(0 if dim in item.layout.repeated else step for dim, step in enumerate(strides))
                self.spread.append((at, shape, shown, is_spread))
        self._check_sizes(step, sized)
        self.over = self._over(step)
        sizes_in_place = {item.slot: bytes_of(*self.made[at]) for at, item in self.over.items()}
        # Bytes of the arguments that a call reads or overwrites, by slot, if it overwrites any.
        self.pieces = {item.slot: item.bytes for item in self.read} | sizes_in_place if self.over else {}
        self.shown = [View(item, item.base in own, number) for item in step.shown]

    def _check_sizes(self, step: NativeStep, sized: SizedPlan) -> None:
        """Raise unless PyTorch's results have as many elements as native code writes: both traces had open sizes."""
        for at, (shape, _) in zip(self.plan.owners, sized.stored, strict=True):
            own = math.prod(shape)
            if own != math.prod(self.made[at][0]):
                node, wanted = step.outputs[at].node, list(self.made[at][0])
                raise CompileError(
                    f"{op_name(node)}: smelt computes {own} elements, PyTorch expects the shape {wanted}. This is an "
                    "error of smelt; fewer open sizes (dynamic=False) get around it",
                    location_of(node),
                )

    def targets(self, slots: Slots) -> dict[int, torch.Tensor]:
        """Return the outputs to compute in an argument's memory, with the argument: it has the expected layout, and no
        other argument of this call overlaps it."""
        starts = [slots[slot].data_ptr() for slot in self.pieces]
        over = self.over
        if not are_apart(starts, tuple(self.pieces.values())):
            places = {slot: (start, start + size) for start, (slot, size) in zip(starts, self.pieces.items())}
            over = {
                at: item
                for at, item in over.items()
                if all(
                    other == item.slot or end <= places[item.slot][0] or start >= places[item.slot][1]
                    for other, (start, end) in places.items()
                )
            }
        found: dict[int, torch.Tensor] = {}
        for at, item in over.items():
            tensor = slots[item.slot]
            is_lazy = item.may_be_lazy and (tensor.is_neg() or tensor.is_conj())
            if tensor.stride() == item.strides and not tensor.data_ptr() & item.misaligned and not is_lazy:
                found[at] = tensor
        return found

    def _over(self, step: NativeStep) -> dict[int, Overwritten]:
        """Return the outputs that may be computed in an input's memory, with that input."""
        params = {item.slot: number for number, item in enumerate(step.inputs)}
        found: dict[int, Overwritten] = {}
        for number, at in enumerate(self.plan.owners):
            item = step.outputs[at]
            if item.over is not None and self.plan.may_overwrite(number, params.get(item.over)):
                found[at] = Overwritten(item, item.over, self.made[at][1], self.plan.stored_alignment[number])
        return found


class NativeStep:
    """A step of a program: nodes compiled to one native call."""

    def __init__(
        self,
        program: Program,
        device: torch.device,
        nodes: Sequence[Node],
        wanted: Sequence[Node],
        is_apart: bool = False,
    ):
        self.program = program
        self.device = device
        self.nodes = self.given = nodes
        self.wanted = wanted
        self.outputs: list[Output] = []
        self.shown: list[Shown] = []
        for node, base in self._owners(wanted).items():
            slot = program.slot(node)
            if base is not node:
                self.shown.append(Shown(node, slot, base, program.slot(base)))
            else:
                self.outputs.append(Output(node, slot))
        self.is_needed = bool(self.outputs or self.shown)
        self.writes_inputs = self.is_refused = False
        read = self._read_nodes()
        self.inputs = [Input(node, program.slot(node), program, is_apart) for node in read]
        self.apart: NativeStep | None = None  # for arguments whose elements share fewer addresses than while tracing
        self.symbols = self._symbols()
        others = {item.base for item in self.shown} | {slot for slot, _ in self.symbols.values()}
        self.reads = {*read, *(node for node, slot in program.slots.items() if slot in others)}
        self.versions: list[Version] = []
        self.calls: dict[tuple[int, ...], Call] = {}
        self.compile_seconds = 0.0

    def _owners(self, wanted: Sequence[Node]) -> dict[Node, Node]:
        """Return the owner of each wanted tensor's memory: the tensor itself if it shares its memory with no other.

        Tensors that share memory stay views of one base, even if that itself is not wanted: a write into one shows in
        the others. These stay views of their base, too: tensors with gaps or repeated elements, complex numbers read
        as pairs (no copy is needed), and tensors in memory that `as_strided` addresses absolutely.
        """
        inside = set(self.nodes)
        placed = placed_absolutely(self.program.graph)
        bases = {node: next((item for item in lineage(node) if item not in inside), root_of(node)) for node in wanted}
        sharing = Counter(bases.values())
        found: dict[Node, Node] = {}
        for node, whole in bases.items():
            tensor = node.meta["val"]
            is_reread = whole.meta["val"].dtype is not tensor.dtype
            has_gaps = layout_of(tensor).order is None
            if whole not in inside:
                found[node] = whole
            elif has_gaps or is_reread or sharing[whole] > 1 or node in placed:
                found[whole] = whole
                found[node] = whole
            else:
                found[node] = node
        return found

    def mark_writes(self) -> None:
        """Let outputs be computed in place of an input: those that are only copied into it, if no other node reads the
        input. Called if no later step may raise an error."""
        self.writes_inputs = True
        inside = set(self.given)
        shown = {item.base for item in self.shown}
        outputs = {item.node: item for item in self.outputs if item.slot not in shown}
        for write in self.program.partition.writes:
            target, source = write.args[:2]
            if source not in outputs or not isinstance(target, Node) or self.program.slot(target) in shown:
                continue
            assert isinstance(source, Node)
            if all(user in inside or user is write for item in (target, source) for user in item.users):
                outputs[source].write_over(target, self.program.slot(target), self.program.is_guarded)

    def _read_nodes(self) -> list[Node]:
        """Find the nodes that the outputs are computed from; drop nodes that only make views."""
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
            elif is_supported(node.meta.get("val")) or number_type(node.meta.get("val")) is not None:
                seen[node] = None
        self.nodes = [node for node in self.nodes if node in visited]
        return [node for node in self.program.graph.nodes if node in seen]

    # Sizes.

    def size(self, size: Any) -> Dim:
        return Importer({}, False).size(size)

    def _symbols(self) -> dict[str, tuple[int, int | None]]:
        """Locate the value of each symbol: a slot, and the dim of its tensor (None: the slot holds the size itself)."""
        found: dict[str, tuple[int, int | None]] = {}
        for node in self.program.graph.nodes:
            item = node.meta.get("val")
            name = symbol_name(item)
            if name is not None:
                found.setdefault(name, (self.program.slot(node), None))
        for item in self.inputs:
            for dim, size in enumerate(item.layout.shape):
                if isinstance(size, Expr) and size.symbol is not None:
                    if not item.may_differ or size.symbol.name not in found:
                        found[size.symbol.name] = (item.slot, dim)
        # Only those of this step: the size that a later step uses may not be known yet.
        wanted = self._used_symbols()
        return {name: place for name, place in found.items() if name in wanted}

    def sizes(self, slots: Slots) -> tuple[int, ...]:
        return tuple(int(slots[slot]) if dim is None else slots[slot].shape[dim] for slot, dim in self.symbols.values())

    # Compilation.

    def compile(self, sizes: dict[str, int]) -> None:
        """Start to compile code for these sizes, generalized to as many others as possible."""
        with self._refusing():
            self._compile(sizes)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Let PyTorch run these nodes if compiling fails within the block; the receipt has the reason."""
        try:
            yield
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            if not self.program.may_fall_back:
                raise
            reason = reason_of(error)
            self.program.fallback += [(op_name(node), reason) for node in self.given]
            warn_of_fallback(self.program.fallback)
            self.is_refused, self.calls = True, {}

    def _compile(self, sizes: dict[str, int]) -> Version:
        started = time.perf_counter()
        types = [item.type for item in self.inputs]
        names = [item.node.name for item in self.inputs]
        # A parameter that is never read introduces each size.
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
        except Exception:
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
            return gpu.options_for(self.device, self.program.rounding)
        replaced = [number for number, item in enumerate(self.outputs) if item.over is not None]
        shared = [number for number in replaced if self.outputs[number].is_weight]
        return CompileOptions(
            addresses=True, replaced=tuple(replaced), shared=tuple(shared), rounding=self.program.rounding
        )

    def finish(self) -> None:
        """Wait for code that is compiled in the background of other steps' passes."""
        started = time.perf_counter()
        with self._refusing():
            for version in self.versions:
                version.executable  # noqa: B018
        self.compile_seconds += time.perf_counter() - started

    def _used_symbols(self) -> dict[str, Symbol]:
        found: dict[str, Symbol] = {}
        if not self.program.partition.sizes:
            return found
        made = (*self.nodes, *(node for item in self.shown for node in item.replay.nodes))
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
        if torch.get_num_threads() != followed.count:
            follow_threads()
        try:
            key = self.sizes(slots) if self.symbols else ()
        except IndexError:  # a tensor with fewer dims than its fake kernel's result
            return self._run_by_torch(slots)
        call = self.calls.get(key) or self._call(key)
        if call is None:
            return self._run_by_torch(slots)
        plan = call.plan
        tensors: list[torch.Tensor] = []
        addresses: list[int] = []
        for item in call.read:
            tensor = slots[item.slot]
            if item.may_differ and not item.fits(tensor):
                return self._run_by_torch(slots)
            if item.may_be_lazy:
                tensor = item.resolved(tensor)
            if tensor.stride() != item.strides:
                if item.overlaps and not lies_as(tensor, item.shape, item.strides):
                    return self._apart()(slots)
                tensor = laid_out(tensor, item.shape, item.strides)
            address = tensor.data_ptr()
            if address & call.misaligned:
                tensor = moved(tensor)
                address = tensor.data_ptr()
            tensors.append(tensor)
            addresses.append(address)
        if call.over:
            over = call.targets(slots)
            torch.autograd.graph.increment_version(list(over.values()))
            made = [
                over[at] if at in over else call.empty(*item[:2], dtype=item[2]) for at, item in enumerate(call.made)
            ]
        else:
            empty = call.empty
            made = [empty(shape, strides, dtype=dtype) for shape, strides, dtype in call.made]
        addresses += call.hidden
        if plan.is_seeded:
            seed = torch.empty(2, dtype=torch.int64, device=self.device).random_()
            addresses.append(seed.data_ptr())
        for at in plan.owners:
            addresses.append(made[at].data_ptr())
        call.launch(*addresses)
        for at, how, source in plan.copies:
            origin = tensors[source] if how == "parameter" else made[plan.owners[source]]
            made[at].copy_(same_memory(origin, made[at]))
        for at, shape, strides, gaps in call.spread:
            if gaps:
                made[at] = laid_out(made[at], made[at].shape, strides)
            made[at] = made[at].as_strided(shape, strides)
        for output, tensor in zip(self.outputs, made):
            slots[output.slot] = tensor
        for view in call.shown:
            slots[view.slot] = view.of(slots[view.base])
        return None

    def _apart(self) -> NativeStep:
        """Return the variant of this step that assumes no shared elements, where tracing saw some, as with stride 0."""
        if self.apart is None:
            apart = NativeStep(self.program, self.device, self.given, self.wanted, is_apart=True)
            if self.writes_inputs:
                apart.mark_writes()
            self.program.natives.append(apart)
            self.apart = apart
        return self.apart

    def _run_by_torch(self, slots: Slots) -> None:
        sizes: dict[str, int] = {}
        for name, (slot, dim) in self.symbols.items():
            if dim is None or dim < slots[slot].ndim:
                sizes[name] = int(slots[slot]) if dim is None else slots[slot].shape[dim]
        made: dict[Node, Any] = {}
        needed = {*self.nodes, *(node for item in self.shown for node in item.replay.nodes)}

        def find(node: Node) -> Any:
            if node in made:
                return made[node]
            value = node.meta.get("val")
            is_known = isinstance(value, torch.SymInt) and number_type(value) is None
            return evaluate(dim_of(value), sizes) if is_known else slots[self.program.slots[node]]

        with torch.no_grad():
            for node in self.given:
                if node in needed:
                    args, kwargs = map_arg((node.args, dict(node.kwargs)), find)
                    made[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        results: list[Output | Shown] = [*self.outputs, *self.shown]
        for item in results:
            slots[item.slot] = made[item.node]

    def _call(self, key: tuple[int, ...]) -> Call | None:
        """Make the call of native code for these sizes; None if compiling was refused."""
        if self.is_refused:
            return None
        sizes = dict(zip(self.symbols, key))
        call = None
        with self._refusing():
            version = next((item for item in self.versions if item.serves(sizes)), None) or self._compile(sizes)
            call = Call(self, version, sizes)
        if call is None:
            return None
        if len(self.calls) >= LIMITS.calls:
            self.calls.pop(list(self.calls)[0], None)  # not by an iterator: another thread may add a call
        self.calls[key] = call
        return call

    @property
    def kernels(self) -> int:
        versions = () if self.is_refused else self.versions
        return sum(len(version.executable.artifact.report["kernels"]) for version in versions)


class _Threads:
    """PyTorch's number of threads at the last query."""

    count = 0


followed = process.keep("threads of PyTorch", _Threads())


def follow_threads() -> None:
    """Set smelt's number of threads to PyTorch's. smelt.set_num_threads then holds until PyTorch's number changes."""
    from ..backend.cpu.runtime.threads import set_num_threads

    followed.count = torch.get_num_threads()
    set_num_threads(followed.count)


def _tensors(item: Any) -> list[Any]:
    found = item if isinstance(item, (tuple, list)) else [item]
    return [
        entry
        for entry in found
        if isinstance(entry, torch.Tensor) or (isinstance(entry, torch.SymInt) and number_type(entry) is None)
    ]
