"""smelt.jit: compile a function of arrays.

    @smelt.jit
    def f(x, y): ...

The first call traces and compiles; later calls with the same types run native code. A dimension that comes with a
second size becomes symbolic: one more compile, and none for further sizes.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend.arrays import is_plain
from .backend.options import CompileOptions
from .backend.process.forks import no_forks
from .backend.pytree import flatten, paths, unflatten
from .backend.static_args import static_key
from .backend.targets import Target, targets
from .ir import asked
from .ir.errors import ArgumentError, DTypeError
from .ir.graph import Array, Graph, Value, current_location
from .ir.open_size import OpenSize, expression
from .ir.process import process
from .ir.record import Record
from .ir.symbolic import Dim, Symbol
from .ir.types import DType, Order, TensorType, dtype, f64, inverse, number_dtype
from .layout import in_memory
from .opened import opened
from .ops.captures import as_array, captured
from .ops.opdef import OpDef
from .ops.pickled import is_named, owner_of, plain_copy, restored_name
from .ops.values import as_arrays
from .ops.view import permute
from .questions import asked_by
from .recompiles import Reasons, reason_for
from .trace import SMALLEST, ArraySpec, Traced, as_value, trace
from .versions import Bound, Compiled

if TYPE_CHECKING:
    from .backend.report.report import Report


class Remembered(Record):
    """Numbers of entries that a function keeps of its calls. Chosen, not measured."""

    shapes: int = 8  # argument shapes of earlier compiles, which decide which dimensions become symbolic
    bound: int = 1024  # shapes with a bound version: one dict lookup
    recent: int = 8  # calls that native code recognises


REMEMBERED = Remembered()

SIZE_NAMES = "NMKLPQRSTUVW"
NUMBER: Order = (0,)  # in place of an array's order: the leaf is a weakly typed Python number


def _compile(graph: Graph, options: CompileOptions) -> Any:
    # The compiler is loaded on the first compilation.
    with no_forks():
        from .backend.compile import compile_graph

    return compile_graph(graph, options)


_all: weakref.WeakSet[Jitted] = process.keep("jitted functions", weakref.WeakSet())


def _unlock() -> None:
    """Replace the locks in a forked child: the threads that held them do not exist there."""
    for jitted in _all:
        jitted.lock = threading.RLock()


def forget_programs() -> None:
    """Drop all versions, so that every function is traced again: an op was redefined, or has another derivative."""
    for jitted in list(_all):
        jitted.exact, jitted.versions, jitted.recent = {}, {}, []


process.in_child(_unlock)


def _names_by_position(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameters that can be passed by name or by position, of a plain function without positional-only
    ones. Any other callable may see how it is called, so it has none."""
    if not isinstance(function, FunctionType) or function.__code__.co_posonlyargcount:
        return ()
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def _declared_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameters of a plain function that can be passed by name; it does not see their order."""
    if not isinstance(function, FunctionType):
        return ()
    code = function.__code__
    return code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]


def _labels(function: Callable[..., Any]) -> Sequence[str]:
    """Return names for positional arguments: those of the parameters, then that of *args for the first of these."""
    if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
        code = function.__code__  # inspect.signature takes as long as tracing a dozen ops
        named = code.co_argcount + code.co_kwonlyargcount
        rest = code.co_varnames[named : named + 1] if code.co_flags & inspect.CO_VARARGS else ()
        return (*code.co_varnames[: code.co_argcount], *rest)
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


class Jitted:
    """A function that compiles itself for the types it is called with."""

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
        dynamic: bool,
        options: CompileOptions,
    ):
        functools.update_wrapper(self, function)
        self.function = function
        self.static_argnums = frozenset(static_argnums)
        self.static_argnames = frozenset(static_argnames)
        self.dynamic = dynamic
        self.options = options
        self.name = getattr(function, "__name__", "function").strip("<>")
        self.is_op = False  # one op: it closes over no tensors of a trace
        self.exact: dict[Any, Bound] = {}
        self.recent: list[tuple[Callable[[Any, Any], Any], Compiled]] = []
        self.versions: dict[Any, list[Compiled]] = {}
        self.seen: dict[Any, list[tuple[tuple[int, ...], ...]]] = {}
        self.lock = threading.RLock()
        _all.add(self)
        self.latest: Compiled | None = None
        self.reasons = Reasons(self.name)
        self.by_position = _names_by_position(function)
        self.declared = _declared_names(function)
        self._check_static(function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind as a method: the instance is the first argument, static unless it is a pytree of arrays."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """Pickle as a function, by name or by value, without its compiled versions."""
        chosen = tuple(sorted(self.static_argnums)), tuple(sorted(self.static_argnames)), self.dynamic, self.options
        return _unpickled, (self.function if is_named(self.function) else self.plain, *chosen)

    @functools.cached_property
    def plain(self) -> Any:
        """The copy of the function that is pickled (ops/pickled.py)."""
        return plain_copy(self, self.function)

    @functools.cached_property
    def target(self) -> Target:
        return targets.find(self.options.target)

    def __copy__(self) -> Jitted:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Jitted:
        return self

    def _check_static(self, function: Callable[..., Any]) -> None:
        if not self.static_argnums and not self.static_argnames:
            return
        try:
            names = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            return
        for number in self.static_argnums:
            if not -len(names) <= number < len(names):
                problem = f"static_argnums has {number}, but {self.name} takes {len(names)} arguments"
                raise ArgumentError(problem, current_location())
        for name in self.static_argnames:
            if name not in names and not any(
                item.kind is inspect.Parameter.VAR_KEYWORD for item in inspect.signature(function).parameters.values()
            ):
                problem = f"static_argnames has {name!r}, but the parameters of {self.name} are {', '.join(names)}"
                raise ArgumentError(problem, current_location())
        # A static argument is static by position and by name.
        self.static_argnames |= {names[number] for number in self.static_argnums}
        self.static_argnums |= {names.index(name) for name in self.static_argnames if name in names}
        self.static_argnums = frozenset(number % len(names) for number in self.static_argnums)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        for enter, version in self.recent:
            result = enter(args, kwargs)
            if result is not NotImplemented:
                self.latest = version
                return result
        call = args, kwargs
        if kwargs:
            args, kwargs = self._by_position(args, kwargs)
        leaves, structure, static = self._flatten(args, kwargs)
        if any(isinstance(leaf, Value) or type(leaf) is OpenSize for leaf in leaves):
            # Inside another trace: the call is inlined.
            return self._called(structure, list(map(_traced, leaves)), args, kwargs)
        arrays, orders = self._arrays(leaves)
        dtypes, ranks = tuple([array.dtype for array in arrays]), tuple([array.ndim for array in arrays])
        key = (structure, static, dtypes, ranks, tuple(orders))
        shapes = tuple([array.shape for array in arrays])
        bound = self.exact.get((key, shapes))
        if bound is None:
            if asked.current() is not None and not self.is_op and self.target.inlines:
                # The function may close over tensors of the enclosing trace; it is inlined then.
                return self._constant(self._called(structure, list(map(_traced, leaves)), args, kwargs))
            with self.lock:
                bound = self._find(key, shapes, orders, args, kwargs).bind(shapes)
                _keep(self.exact, (key, shapes), bound)
        else:
            names = [*self.by_position[len(call[0]) : len(args)], *kwargs]
            self._enter_quickly(bound, *call, names, leaves, arrays)
        self.latest = bound.version
        return bound(arrays)

    def _by_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments in normal form, so that f(x, y=y) and f(x, y), f(a=a, b=b) and f(b=b, a=a) share
        compiled code. Arguments for `**rest` keep their order, which the function sees."""
        moved: list[Any] = []
        rest = dict(kwargs)
        for name in self.by_position[len(args) :]:
            if name not in rest:
                break
            moved.append(rest.pop(name))
        declared = {name: rest.pop(name) for name in self.declared if name in rest}
        return (*args, *moved), declared | rest

    def _enter_quickly(
        self,
        bound: Bound,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: list[str],
        leaves: list[Any],
        arrays: list[np.ndarray],
    ) -> None:
        """Make or reuse a native entry, which recognises later calls like this one."""
        form = tuple(kwargs)
        known = entry = bound.entries.get(form)
        if entry is None or entry.outdated():
            # Back off: after refusals, try again at calls 1, 2, 4, 8, ...
            bound.refused += 1
            if bound.refused & (bound.refused - 1):
                return
            entry = bound.make_entry(args, kwargs, names, self.static_argnums, self.static_argnames, leaves, arrays)
        if entry is not None and all(item[0] is not entry.enter for item in self.recent):
            others = [item for item in self.recent if known is None or item[0] is not known.enter]
            bound.entries[form] = entry
            self.recent = [(entry.enter, bound.version), *others[: REMEMBERED.recent - 1]]

    def _flatten(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], Any, Any]:
        static_args = tuple((number, args[number]) for number in sorted(self.static_argnums) if number < len(args))
        static_kwargs = tuple((name, value) for name, value in kwargs.items() if name in self.static_argnames)
        moving = (
            tuple(None if number in self.static_argnums else item for number, item in enumerate(args)),
            {name: None if name in self.static_argnames else item for name, item in kwargs.items()},
        )
        leaves, structure = flatten(moving)
        for which, value in (*static_args, *static_kwargs):
            try:
                hash(expression(value))
            except TypeError:
                if isinstance(which, int) and which < len(self.by_position):
                    which = self.by_position[which]
                raise ArgumentError(
                    f"{self.name}: the static argument {which} must be hashable, got {value!r}: "
                    f"a tuple is, where a list is not",
                    current_location(),
                ) from None
        given = (*static_args, *static_kwargs)
        return leaves, structure, tuple([(which, static_key(expression(value))) for which, value in given])

    def _arrays(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Order | None]]:
        """Return leaves as arrays in memory order, and those orders. Arrays in the target's own memory stay there."""
        arrays: list[Any] = []
        orders: list[Order | None] = []
        has_own = False
        for leaf in leaves:
            if is_plain(leaf):
                arrays.append(leaf)
                orders.append(None)
                continue
            own = self.target.argument(leaf, self.name)
            if own is not None:
                has_own = True
                array, order = own, own.order
            else:
                array, order = in_memory(self._array(leaf))
            arrays.append(array)
            orders.append(NUMBER if is_number(leaf) else order)
        if has_own:
            self.target.check_arguments(arrays, self.name)
        return arrays, orders

    def _array(self, leaf: Any) -> np.ndarray:
        """Return a leaf as an array; a Python number becomes a 0-dim one."""
        if type(leaf) is np.ndarray:
            return leaf
        if isinstance(leaf, np.generic):
            return np.asarray(leaf)
        if isinstance(leaf, (bool, int, float, complex)):
            try:
                return np.asarray(leaf, number_dtype(leaf).numpy)
            except OverflowError:
                raise ArgumentError(f"{self.name}: {leaf} does not fit into an i64", current_location()) from None
        if isinstance(leaf, (str, bytes)):
            raise ArgumentError(
                f"{self.name}: got the string {leaf!r}: pass it as a static argument (static_argnames)",
                current_location(),
            )
        try:
            return as_array(leaf, "an argument")
        except ArgumentError as error:
            raise ArgumentError(
                f"{self.name}: {error.message}. What is no array and no number is passed as a static argument "
                "(static_argnames)",
                current_location(),
            ) from None

    def _dtype(self, given: Any) -> DType:
        try:
            return dtype(given)
        except DTypeError as error:
            raise DTypeError(f"{self.name}: {error.message}", current_location()) from None

    def _find(
        self,
        key: Any,
        shapes: tuple[tuple[int, ...], ...],
        orders: list[Order | None],
        args: Any,
        kwargs: Any,
    ) -> Compiled:
        versions = self.versions.setdefault(key, [])
        for version in reversed(versions):
            if version.takes(shapes):
                return version
        seen = self.seen.setdefault(key, [])
        patterns: list[tuple[Dim, ...]] = list(shapes)
        hints: dict[str, int] = {}
        if self.dynamic and seen:
            patterns, hints = _symbolic(seen, shapes)
        nesting, _, given, _, _ = key
        known = {item: self._dtype(item) for item in dict.fromkeys(given)}
        dtypes = [known[item] for item in given]
        names = self._names(args, kwargs, len(shapes))
        labels = (*self.by_position, *(f"argument {at}" for at in range(len(self.by_position), len(args))))
        statics = dict(enumerate(zip(labels, args))) | {name: (name, item) for name, item in kwargs.items()}
        reason = reason_for(self.versions, key, shapes, names, statics, self.dynamic)
        types = _types(dtypes, patterns)
        try:
            traced, structure, fixed, used = self._trace(types, orders, nesting, args, kwargs, hints)
        except Exception as error:
            if not hints:
                raise
            # Tracing with symbols may fail where the program works for the sizes at hand, as in a call that needs an
            # int: trace again without symbols. A mistake of the user's raises again.
            why = asked_by(error, types, names)
            types = _types(dtypes, shapes)
            traced, structure, fixed, used = self._trace(types, orders, nesting, args, kwargs, {})
            traced.asked.append(why)
        from .passes.graph.layout import result_orders, store_in_order  # loads the passes' registry

        stored = result_orders(traced.graph)
        traced.graph = store_in_order(traced.graph, stored)
        back = [None if order is None else inverse(order) for order in stored]
        if traced.decisions:
            from .parts import CompiledParts, Parts  # few programs have parts

            parts = Parts(traced, len(types), self.options)
            made: Compiled = CompiledParts(traced, back, parts, structure, fixed)
        else:
            made = Compiled(traced, back, _compile(traced.graph, self.options), structure, fixed)
        self.versions.setdefault(key, []).append(made)  # not `versions`: forget_programs may have replaced it
        self.reasons.add(*reason)
        seen.append(shapes)
        del seen[: -REMEMBERED.shapes]
        return made

    def _trace(
        self,
        types: Sequence[TensorType],
        orders: Sequence[Order | None],
        structure: Any,
        args: Any,
        kwargs: Any,
        hints: dict[str, int],
    ) -> tuple[Traced, Any, dict[int, Any], list[TensorType]]:
        kept: dict[str, Any] = {}

        def run(params: list[Value]) -> list[Value]:
            given = [_given(param, order) for param, order in zip(params, orders, strict=True)]
            result = self._called(structure, given, args, kwargs)
            leaves, kept["structure"] = flatten(result)
            kept["fixed"] = {
                at: expression(leaf)
                for at, leaf in enumerate(leaves)
                if isinstance(leaf, (bool, int, float, complex, str))
            }
            return [as_value(leaf) for at, leaf in enumerate(leaves) if at not in kept["fixed"]]

        traced, used = trace(run, types, self._names(args, kwargs, len(types)), self.name, hints)
        return traced, kept["structure"], kept["fixed"], used

    def _called(self, structure: Any, leaves: Sequence[Any], args: Any, kwargs: Any) -> Any:
        """Call the function with these leaves in place of those of the arguments; return its result."""
        moving_args, moving_kwargs = unflatten(structure, leaves)
        full = [args[at] if at in self.static_argnums else item for at, item in enumerate(moving_args)]
        named = {name: kwargs[name] if name in self.static_argnames else item for name, item in moving_kwargs.items()}
        return opened(self.function)(*full, **named)

    def _constant(self, result: Any) -> Any:
        """Return the result of a call inside a trace, as arrays if it depends on no parameter of that trace."""
        leaves, structure = flatten(result)
        values = [leaf for leaf in leaves if isinstance(leaf, Value)]
        if not values or any(value.has_parameters() for value in values):
            return result
        state = asked.current()
        if state is not None and state.decisions:
            return result  # it may have a size that data decide
        traced, _ = trace(lambda params: values, [], [], self.name)
        if traced.seeded:
            return result  # each call draws new numbers, so the result is no constant
        arrays = iter(_compile(traced.graph, self.options)(traced.arrays))
        return unflatten(structure, [next(arrays) if isinstance(leaf, Value) else leaf for leaf in leaves])

    def _names(self, args: Any, kwargs: Any, count: int) -> list[str]:
        """Return parameter names for the leaves: x, or params_weight_0 for the leaf params["weight"][0]."""
        names = _labels(self.function)
        labels: list[str] = []
        pieces = [
            (names[at] if at < len(names) else f"arg{at}", item, at in self.static_argnums)
            for at, item in enumerate(args)
        ]
        pieces += [(name, item, name in self.static_argnames) for name, item in kwargs.items()]
        for name, item, is_static in pieces:
            if is_static:
                continue
            for path in paths(flatten(item)[1]):
                labels.append("_".join([name, *map(_word, path)]) if path else name)
        unique: dict[str, None] = {}
        for label in labels[:count]:
            while label in unique:
                label += "_"
            unique[label] = None
        return [*unique, *(f"p{at}" for at in range(len(unique), count))]

    def __repr__(self) -> str:
        return f"<smelt.jit of {self.name}, {self.compiles} version{'s' * (self.compiles != 1)}>"

    def trace(self, *args: Any, **kwargs: Any) -> Graph:
        """Return the graph for arguments that are arrays or specs (smelt.spec("f32[N, 64]"))."""
        return self._graph(args, kwargs)

    def _graph(self, args: Any, kwargs: Any) -> Graph:
        args, kwargs = self._by_position(args, kwargs)
        leaves, structure, _ = self._flatten(args, kwargs)
        types: list[TensorType] = []
        orders: list[Order | None] = []
        for leaf in leaves:
            if isinstance(leaf, ArraySpec):
                types.append(TensorType(leaf.dtype, leaf.shape))
                orders.append(None)
            else:
                (array,), (order,) = self._arrays([leaf])
                shape = array.shape
                if order is not None and order != NUMBER:
                    shape, order = tuple(shape[dim] for dim in inverse(order)), None
                types.append(TensorType(self._dtype(array.dtype), shape))
                orders.append(order)
        return self._trace(types, orders, structure, args, kwargs, {})[0].graph

    def report(self) -> Report:
        """Return the compilation report of the latest call's version."""
        if self.latest is None:
            raise ArgumentError(f"{self.name} has not been called yet, so there is nothing to report")
        return replace(self.latest.executable.report, reasons=list(self.reasons.texts))

    @property
    def compiles(self) -> int:
        """The number of versions compiled so far."""
        return sum(len(versions) for versions in self.versions.values())


def _unpickled(function: Any, numbers: Any, names: Any, dynamic: bool, options: CompileOptions) -> Jitted:
    return owner_of(function) or Jitted(restored_name(function), numbers, names, dynamic, options)


def _types(dtypes: Sequence[DType], shapes: Sequence[tuple[Dim, ...]]) -> list[TensorType]:
    """Return the parameters' types, one object for each distinct type: comparing them is then an identity check."""
    found: dict[tuple[DType, tuple[Dim, ...]], TensorType] = {}
    return [found.get(item) or found.setdefault(item, TensorType(*item)) for item in zip(dtypes, shapes, strict=True)]


def _word(part: Any) -> str:
    """Return a part of a leaf's path, spelled as in a parameter's name."""
    text = str(part)
    return text if text.isalnum() else re.sub(r"\W", "_", text)


def _given(param: Value, order: Order | None) -> Value:
    """Return the traced tensor that the function gets for a parameter."""
    if order is None:
        return Array(param)
    if order != NUMBER:
        return Array(permute(param, inverse(order)))
    return Array(param, {"i": int, "f": float, "c": complex}[param.dtype.kind])


def is_number(leaf: Any) -> bool:
    """Whether a leaf is a weakly typed Python number; a bool has the type bool."""
    return isinstance(leaf, (int, float, complex)) and not isinstance(leaf, (bool, np.generic))


def _traced(leaf: Any) -> Any:
    """Return an argument of a call inside a trace as a traced tensor, as in any other call."""
    if isinstance(leaf, (Value, bool, int, float, complex, str, bytes)) and not isinstance(leaf, np.generic):
        return leaf
    return Array(captured(as_array(leaf, "an argument")))


def _keep(table: dict[Any, Bound], key: Any, bound: Bound) -> None:
    """Add an entry; evict the oldest one if the table is full."""
    if len(table) >= REMEMBERED.bound:
        del table[next(iter(table))]
    table[key] = bound


def _symbolic(
    seen: Sequence[tuple[tuple[int, ...], ...]], shapes: tuple[tuple[int, ...], ...]
) -> tuple[list[tuple[Dim, ...]], dict[str, int]]:
    """Return the shapes with symbols for dimensions that vary, and the symbols' sizes at hand. Dimensions that had
    equal sizes in every call share a symbol."""
    names: dict[tuple[int, ...], Symbol] = {}
    hints: dict[str, int] = {}
    patterns: list[tuple[Dim, ...]] = []
    for leaf, shape in enumerate(shapes):
        pattern: list[Dim] = []
        for dim, size in enumerate(shape):
            history = (*(earlier[leaf][dim] for earlier in seen), size)
            if len(set(history)) == 1 or size < SMALLEST:
                pattern.append(size)
                continue
            if history not in names:
                number = len(names)
                name = SIZE_NAMES[number] if number < len(SIZE_NAMES) else f"N{number}"
                names[history] = Symbol(name, SMALLEST)
                hints[name] = size
            pattern.append(names[history].expr())
        patterns.append(tuple(pattern))
    return patterns, hints


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    dynamic: bool = True,
    options: CompileOptions | None = None,
    target: str | None = None,
) -> Any:
    """Compile a function of arrays (or pytrees of them) on its first call.

    static_argnums, static_argnames: arguments that are plain Python; each value compiles anew.
    dynamic: a dimension seen with a second size becomes symbolic instead of compiling for every size.
    options: how to compile.
    target: overrides that of the options, whose default is "cpu": "cuda" for NVIDIA GPUs.
    """
    chosen = CompileOptions() if options is None else options
    if not isinstance(chosen, CompileOptions):
        problem = f"jit: options must be smelt.CompileOptions(...), got {type(options).__name__}"
        raise ArgumentError(problem, current_location())
    if target is not None:
        chosen = replace(chosen, target=target)
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)

    def wrap(body: Callable[..., Any]) -> Jitted:
        if not callable(body):
            raise ArgumentError(f"jit takes a function, got {type(body).__name__}", current_location())
        return Jitted(body, numbers, names, dynamic, chosen)

    return wrap if function is None else wrap(function)


def evaluate_value(value: Value) -> np.ndarray | None:
    """Return the array of a value that depends on no parameter, such as ops.zeros((2, 2)); None for all others."""
    state = asked.current()
    if value.has_parameters() or (state is not None and state.decisions):
        return None
    traced, _ = trace(lambda params: [value], [], [], "value")
    if traced.seeded:
        return None  # each evaluation would draw new numbers
    return _compile(traced.graph, CompileOptions())(traced.arrays)[0]


@functools.lru_cache(maxsize=1024)
def _eager(op: OpDef, numbers: frozenset[str]) -> Jitted:
    statics = {parameter.name for parameter in op.parameters if not parameter.is_tensor} | numbers
    compiled = Jitted(lambda **arguments: as_arrays(op.apply_in(f64, arguments)), (), (), False, CompileOptions())
    compiled.static_argnames = frozenset(statics)
    compiled.reasons.warned = True  # no warnings: an op has a version for each shape, and is not the user's function
    compiled.is_op = True
    compiled.name = op.name
    return compiled


def evaluate_op(op: OpDef, arguments: dict[str, Any]) -> Any:
    """Compile and run an op on arrays, outside any trace."""
    named = {
        name: tuple(value) if isinstance(value, list) and not op.by_name[name].is_tensor else value
        for name, value in arguments.items()
    }
    # A Python number stays one where the op takes both: in ops.max(x, 1) it is the dim, not a tensor.
    numbers = {
        name
        for name, value in named.items()
        if op.by_name[name].scalars and isinstance(value, (bool, int, float, complex))
    }
    return _eager(op, frozenset(numbers))(**named)
