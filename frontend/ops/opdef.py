"""An op: its schema, its definition, and what a call of it does."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..ir import asked
from ..ir.caller import is_internal
from ..ir.decided import DecidesSize
from ..ir.errors import ArgumentError, DTypeError, SmeltError, suggest
from ..ir.graph import Array, Handle, Op, Value, current_location, located, operands_of, ops_behind, plain
from ..ir.open_size import expression
from ..ir.symbolic import Expr
from ..ir.types import (
    ANY,
    STORAGE,
    DType,
    TensorType,
    c64,
    c128,
    dtype,
    dtype_beside,
    f32,
    f64,
    i64,
    number_dtype,
    scalar_type,
    user_dtype,
)
from .attributes import attribute
from .captures import as_array, captured
from .derivatives import HasDerivatives
from .handles import as_handles, call_users
from .kinds import Kind
from .open_array import OpenArray
from .parameters import NUMBERS, Parameter, names_of, normal_classes, parameters_of
from .pickled import owner_of, plain_copy, restored_name
from .registry import REGISTRY, constant, lookup
from .shapes import are_ints
from .streams import Streams
from .traits import HasTraits, Traits
from .values import as_arrays, as_dtype, known_number, results_of

_ANY_NAMES = frozenset(entry.name for entry in ANY)
_MOVED_NAMES = frozenset(entry.name for entry in (*ANY, *STORAGE))
_REMEMBERED = 4096  # memoised argument types of one composite. A program has some dozens
NUMPY_NAMES = {"axis": "dim", "axes": "dims", "keepdims": "keepdim"}


def _empty() -> None:
    """The body of a primitive without argument normalisation, for comparison of bytecode."""


_NOTHING = _empty.__code__.co_code


class OpDef(HasTraits, HasDerivatives):
    """An op: its schema, its definition, and its derivatives."""

    # Runs an op on arrays outside a trace; set by the public face, which knows the back ends.
    evaluate: ClassVar[Callable[[OpDef, dict[str, Any]], Any] | None] = None
    # Called when an op that traced programs may contain is redefined; set by the public face, too.
    on_change: ClassVar[Callable[[], None] | None] = None

    def __init__(
        self,
        function: Callable[..., Any],
        kind: Kind | None,
        dtypes: Sequence[DType],
        differentiable: bool,
        traits: Traits,
    ):
        self.name = function.__name__
        self.function = function
        self.kind = kind
        self.dtypes = dtypes if dtypes is ANY else tuple(dtypes)
        moves = kind is None or kind.moves  # a composite leaves the check to the ops of its body
        every = _MOVED_NAMES if moves else _ANY_NAMES
        self.takes = every if dtypes is ANY else frozenset([entry.name for entry in dtypes])
        self.differentiable = differentiable
        self.doc = (function.__doc__ or "").strip().split("\n")[0]
        schema = inspect.unwrap(function)
        # With `-> tuple[Tensor, ...]` a single result is a tuple, too.
        self.returns_tuple = str(schema.__annotations__.get("return")).startswith("tuple[")
        self.names = names_of(schema)
        self.takes_stream = "stream" in self.names
        self.module = function.__module__.rsplit(".", 1)[-1]
        self.set_traits(traits)
        # Keyed by _body_key: the types of a composite's results, and whether its body draws random numbers.
        self._bodies: dict[tuple, tuple[tuple[TensorType, ...], bool]] = {}
        self.__doc__ = function.__doc__

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(parameters_of(inspect.unwrap(self.function)))

    # Computed by __getattr__ on an op's first call: a program calls few of the hundreds of ops.
    by_name: dict[str, Parameter]
    tensors: tuple[Parameter, ...]
    tensor_names: tuple[str, ...]
    # For the fast path of bind: the least and largest number of positional arguments (1 and -1: no fast path), the
    # positions that take sequences, and all defaults.
    _plain: tuple[int, int, list[int], tuple[Any, ...]]
    _normal: dict[str, frozenset[type]]  # by parameter: classes of arguments that are in normal form already
    plain: Any  # the copy of the function that is pickled
    is_own: bool  # whether it is defined in smelt's sources: only then does its name identify it
    _is_declared: bool  # whether the body is only a docstring

    def __getattr__(self, name: str) -> Any:
        if name not in OpDef.__annotations__:
            raise AttributeError(f"an op has no {name!r}")
        numbers = self.kind is not None and self.kind.promotes
        fewest = most = 0
        for position, parameter in enumerate(self.parameters):
            most += parameter.positional
            if parameter.required:
                fewest = position + 1
        if self.takes_stream and any(isinstance(item.default, Streams) for item in self.parameters):
            fewest, most = 1, -1
        sequences = [position for position, item in enumerate(self.parameters) if item.is_spread]
        code = self.function.__code__
        self.tensors = tuple([item for item in self.parameters if item.is_tensor])
        self.tensor_names = tuple([item.name for item in self.tensors])
        self._plain = fewest, most, sequences, tuple([item.default for item in self.parameters])
        self._normal = {item.name: normal_classes(item, numbers) for item in self.parameters}
        self.is_own = is_internal(code.co_filename)
        self._is_declared = code.co_code == _NOTHING
        self.by_name = dict(zip(self.names, self.parameters))
        if not self.is_own:
            self.plain = plain_copy(self, self.function)
        return self.__dict__[name]

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> Any:
        """Pickle smelt's ops by name; a user's op as a function, by name or by value."""
        if self.is_own:
            return lookup, (self.name,)
        rules = self.vjp_rule, self.jvp_rule
        return _unpickled, (self.plain, self.kind, self.dtypes, self.differentiable, self.traits, rules)

    def __copy__(self) -> OpDef:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> OpDef:
        return self

    @property
    def is_composite(self) -> bool:
        return self.kind is None

    def change(self) -> None:
        """Drop programs that may contain this op or its derivative, so that they are traced again."""
        if OpDef.on_change is not None and "_plain" in self.__dict__:  # set by the first call
            for op in REGISTRY.values():
                op._bodies.clear()  # any body may call this op
            OpDef.on_change()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        arguments = self.bind(args, kwargs)
        given = _class_of_tensors(arguments)
        if given is Value:
            return self.apply(arguments)
        arguments = {name: expression(value) for name, value in arguments.items()}
        if given is np.ndarray and OpDef.evaluate is not None:
            return OpDef.evaluate(self, arguments)
        if given is Handle:
            return as_handles(self.apply(arguments))
        # No tensor given: user code gets an Array, the bodies of smelt's ops get a Value.
        if given is Array or not is_internal(sys._getframe(1).f_code.co_filename):
            return as_arrays(self.apply_in(f64, arguments), self._of_numbers(arguments))
        return self.apply(arguments)

    def _of_numbers(self, arguments: dict[str, Any]) -> bool:
        """Whether all operands are Python numbers and some came as arguments, so that the result is a weak number,
        too."""
        given = [arguments[name] for name in self.tensor_names if arguments[name] is not None]
        weak = [item.__class__ is Array and item.weak is not None for item in given]
        return "dtype" not in self.by_name and any(weak) and all(map(_is_number_or, given, weak))

    def apply_in(self, default_float: DType, arguments: dict[str, Any]) -> Any:
        """Make the op for a trace in which integers become `default_float` where an op needs floats. The op itself
        converts them to f32, so they are cast before it."""
        made = self._beside_numbers(default_float, arguments)
        result = self.apply(made)
        if full := self._narrowed(arguments, made, result):
            made |= full
            result = self.apply(made)
        if default_float is f32 or made.get("dtype") is not None or _precise(result):
            return result
        if any(value.dtype.is_inexact for value in operands_of(self, made)):
            return result
        convert = REGISTRY["cast"].apply
        for parameter in self.tensors:
            value = made[parameter.name]
            if parameter.name in _CHOOSING or value is None:
                continue
            if isinstance(value, Value):
                made[parameter.name] = convert({"self": value, "dtype": default_float})
            elif isinstance(value, tuple):
                made[parameter.name] = tuple([convert({"self": item, "dtype": default_float}) for item in value])
            elif isinstance(value, (float, complex)):
                number = number_dtype(value)
                made[parameter.name] = constant(value, dtype_beside(number, (scalar_type(default_float),), f32))
        return self.apply(made)

    def _beside_numbers(self, default_float: DType, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with arrays as values, and with weak numbers cast to the type that they promote to."""
        made = dict(arguments)
        weak: list[tuple[str, int | None]] = []
        for parameter in self.tensors:
            name, value = parameter.name, arguments[parameter.name]
            if parameter.is_list and isinstance(value, (tuple, list)):
                items = [self._beside(parameter, item, default_float, arguments) for item in value]
                weak += [(name, at) for at, item in enumerate(items) if item.__class__ is Array and item.weak]
                made[name] = tuple(items)
            else:
                item = made[name] = self._beside(parameter, value, default_float, arguments)
                if item.__class__ is Array and item.weak:
                    weak.append((name, None))
        for name, at in weak:
            number = made[name] if at is None else made[name][at]
            value = as_dtype(number.value, dtype_beside(number.dtype, self._strong(made), default_float))
            made[name] = value if at is None else (*made[name][:at], value, *made[name][at + 1 :])
        return made

    def _narrowed(self, arguments: dict[str, Any], made: dict[str, Any], result: Any) -> dict[str, Value]:
        """Return the weak numbers in full precision if the op computes in f64 and they were rounded to a narrower
        type."""
        if not any(value.dtype is f64 or value.dtype is c128 for value in results_of(result)):
            return {}
        return {
            name: given.value
            for name in self.tensor_names
            if (given := arguments[name]).__class__ is Array
            and given.weak
            and given.dtype in (f64, c128)
            and isinstance(made[name], Value)
            and made[name].dtype.compute in (f32, c64)
        }

    def _beside(self, parameter: Parameter, value: Any, default_float: DType, arguments: dict[str, Any]) -> Any:
        if value.__class__ is Array:
            return value if value.weak else value.value
        if isinstance(value, (list, tuple)):
            return captured(self._typed_list(value, default_float, arguments))
        numbers = (bool, int, float, complex, np.generic, Expr)
        return value if value is None or isinstance(value, (Value, *numbers)) else self._tensor(parameter, value, {})

    def _typed_list(self, items: Sequence[Any], default_float: DType, arguments: dict[str, Any]) -> np.ndarray:
        """Return a list of Python numbers as an array, with the type that a number would have in its place."""
        array = np.asarray(items)
        if array.dtype != np.float64 and array.dtype != np.complex128:
            return as_array(array, self.name)
        return array.astype(dtype_beside(dtype(array.dtype), self._strong(arguments), default_float).numpy)

    def dtype_of_number(self, number: DType, arguments: dict[str, Any]) -> DType:
        """Return the type of a Python number beside the tensors of a call; `number` is the type that holds it
        exactly."""
        return dtype_beside(number, self._strong(arguments), f32)

    def _strong(self, arguments: dict[str, Any]) -> list[TensorType]:
        """Return the types of the tensors that numbers promote with."""
        types: list[TensorType] = []
        for parameter in self.tensors:
            if parameter.name in _CHOOSING:
                continue
            value = arguments[parameter.name]
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(item, Value) and not (item.__class__ is Array and item.weak):
                    types.append(item.type)
                elif isinstance(item, np.ndarray):
                    types.append(TensorType(dtype(item.dtype), item.shape))
        return types

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by parameter name, with defaults, in the order of the signature."""
        given = len(args)
        fewest, most, sequences, defaults = self._plain
        if given <= most and (given >= fewest if not kwargs else self._completes(given, kwargs)):
            for position in sequences:
                if position < given and not isinstance(args[position], (tuple, list)):
                    break
            else:
                bound = dict(zip(self.names, args + defaults[given:]))
                return bound | kwargs if kwargs else bound
        for name in kwargs:
            if name not in self.by_name:
                raise ArgumentError(
                    f"{self.name}: unexpected argument {name!r}{suggest(NUMPY_NAMES.get(name, name), self.by_name)}; "
                    f"the signature is {self.signature()}",
                    current_location(),
                )
        arguments: dict[str, Any] = {}
        position = 0
        for parameter in self.parameters:
            if position < given and parameter.positional:
                value = args[position]
                position += 1
                if parameter.is_spread and not isinstance(value, (tuple, list)):
                    value = (value, *args[position:])
                    position = given
                if parameter.name in kwargs:
                    raise ArgumentError(f"{self.name}: {parameter.name} is given twice", current_location())
            elif parameter.name in kwargs:
                value = kwargs[parameter.name]
            elif parameter.required:
                raise ArgumentError(
                    f"{self.name}: {parameter.name} is missing; the signature is {self.signature()}", current_location()
                )
            elif isinstance(parameter.default, Streams):
                # A fresh number for each call: a random op's stream.
                value = next(parameter.default)
            else:
                value = parameter.default
            arguments[parameter.name] = value
        if position < given:
            raise ArgumentError(
                f"{self.name}: {given} arguments given; the signature is {self.signature()}", current_location()
            )
        return arguments

    def _completes(self, given: int, kwargs: dict[str, Any]) -> bool:
        """Whether keyword arguments fit a call with so many positional ones: no unknown name, no missing argument."""
        names = self.names[given:]
        return all(name in names for name in kwargs) and all(
            name in kwargs for name in names[: max(self._plain[0] - given, 0)]
        )

    def apply(self, arguments: dict[str, Any]) -> Any:
        """Make the op. Arrays become constants; errors get the user's line and the call."""
        kind = self.kind
        try:
            normal, made = self._normal, dict(arguments)
            for name, value in arguments.items():
                if type(value) not in normal[name]:
                    made[name] = self._argument(self.by_name[name], value, arguments)
            arguments = made
            if kind is None:
                try:
                    types = self._composite_types(arguments)
                except DecidesSize:
                    return self._in_place(arguments)
            else:
                if not self._is_declared:
                    update = self.function(**arguments) if self.is_own else call_users(self.function, arguments)
                    if isinstance(update, Value):
                        return update
                    if update:
                        arguments.update(update)
                inferred = kind.infer_alike(self, arguments)
                if inferred is None:
                    prepared = kind.prepare(self, arguments)
                    if isinstance(prepared, Value):
                        return prepared
                    arguments = prepared
                    if self.takes is not _MOVED_NAMES:
                        self._check_dtypes(arguments)
                    inferred = kind.infer(self, arguments)
                types = inferred
            op = Op(self, arguments, types, current_location(2))
        except SmeltError as error:
            # The outermost call, which the user wrote, overwrites the inner ones.
            if error.location is None:
                error.location = current_location()
            error.op = self.name
            error.detail = self._call_text(arguments)
            raise
        return op.results[0] if len(op.results) == 1 and not self.returns_tuple else op.results

    def _in_place(self, arguments: dict[str, Any]) -> Any:
        """Return the results of a composite's body, in which data decide a size: each call has sizes of its own."""
        with located(current_location(3)):
            values = self.expand(arguments)
        return values[0] if len(values) == 1 and not self.returns_tuple else values

    def expand(self, arguments: dict[str, Any]) -> tuple[Value, ...]:
        """Return the results of a composite's body."""
        results = self.function(**arguments) if self.is_own else call_users(self.function, arguments)
        values = tuple(map(plain, results)) if isinstance(results, (tuple, list)) else (plain(results),)
        for value in values:
            if not isinstance(value, Value):
                raise ArgumentError(f"{self.name}: the body returned {type(value).__name__}, expected a tensor")
        return values

    def _composite_types(self, arguments: dict[str, Any]) -> tuple[TensorType, ...]:
        return self._body(arguments)[0]

    def _body(self, arguments: dict[str, Any]) -> tuple[tuple[TensorType, ...], bool]:
        """Return the types of a composite's results, and whether its body draws random numbers; memoised."""
        key = self._body_key(arguments)
        known = self._bodies.get(key)
        if known is None:
            # The key lacks the sizes at hand, so they must not influence the body.
            with located(current_location(2) if self.is_own else None), asked.without_hints():
                results = self.expand(arguments)
            draws = False
            if self.takes_stream:
                operands = {value.op.serial for value in operands_of(self, arguments) if value.op is not None}
                draws = any(op.defn.draws(op.arguments) for op in ops_behind(results, operands))
            if len(self._bodies) >= _REMEMBERED:
                self._bodies.clear()
            known = self._bodies[key] = tuple([value.type for value in results]), draws
        return known

    def _body_key(self, arguments: dict[str, Any]) -> tuple:
        """Return the facts about arguments that decide the ops and types of a composite's body."""
        if self.takes_stream:
            arguments = {name: value for name, value in arguments.items() if name != "stream"}
        return tuple(map(_type_key, arguments.values()))

    def draws(self, arguments: dict[str, Any]) -> bool:
        """Whether an op of these arguments draws random numbers: dropout with probability 0 does not."""
        if not self.takes_stream or self.kind is not None:
            return self.takes_stream
        return self._body(arguments)[1]

    def _argument(self, parameter: Parameter, value: Any, arguments: dict[str, Any]) -> Any:
        value = expression(value)
        if parameter.is_tensor:
            if parameter.is_list and isinstance(value, (tuple, list)):
                return tuple(self._tensor(parameter, item, arguments) for item in value)
            return self._tensor(parameter, value, arguments)
        if parameter.is_dtype and value is not None:
            return user_dtype(value)
        return attribute(value, parameter.annotation, parameter.name)

    def _tensor(self, parameter: Parameter, value: Any, arguments: dict[str, Any]) -> Any:
        if isinstance(value, Value) or value is None:
            return plain(value)
        if isinstance(value, OpenArray):
            return plain(value.value)
        if isinstance(value, np.generic):
            if parameter.scalars or (self.kind is not None and self.kind.promotes):
                return value.item()
            return constant(value.item(), dtype(value.dtype))
        if isinstance(value, (bool, int, float, complex)):
            if parameter.scalars or (self.kind is not None and self.kind.promotes):
                return value
            return constant(value, self.dtype_of_number(number_dtype(value), arguments))
        if isinstance(value, Expr):
            return self._extent(value, arguments)
        if isinstance(value, (list, tuple)):
            return captured(self._typed_list(value, f32, arguments))
        return captured(as_array(value, f"{self.name}: {parameter.name}"))

    def _extent(self, size: Expr, arguments: dict[str, Any]) -> Value:
        """Return an open size as a value: a weak number, cast with a check to the type that it promotes to."""
        value: Value = REGISTRY["extent"].apply({"value": size, "dtype": i64})
        wanted = self.dtype_of_number(i64, arguments)
        is_compared = getattr(self.kind, "result", None) == "bool"  # a comparison is valid out of range
        return as_dtype(value, wanted) if wanted.is_integer and not is_compared else value

    def _check_dtypes(self, arguments: dict[str, Any]) -> None:
        for parameter in self.tensors:
            value = arguments[parameter.name]
            for item in value if value.__class__ is tuple else (value,):
                if item.__class__ is Value and item.type.dtype.name not in self.takes:
                    accepted = ", ".join(entry.name for entry in self.dtypes)
                    advice = ": cast it first, x.astype('float32')" if item.dtype in STORAGE else ""
                    raise DTypeError(f"{parameter.name} is {item.dtype}, accepted are {accepted}{advice}")
            if self.kind is None or not self.kind.promotes:
                break

    def signature(self) -> str:
        parts: list[str] = []
        keyword = False
        for parameter in self.parameters:
            if not parameter.positional and not keyword:
                parts.append("*")
                keyword = True
            default = "" if parameter.required else f" = {parameter.default!r}"
            parts.append(f"{parameter.name}: {parameter.annotation}{default}")
        return f"{self.name}({', '.join(parts)})"

    def _call_text(self, arguments: dict[str, Any]) -> str:
        names: dict[Value, str] = {}

        def show(value: Any) -> str:
            if isinstance(value, Value):
                names.setdefault(value, f"%{value.name or len(names)}")
                return names[value]
            if isinstance(value, (tuple, list)):
                return f"[{', '.join(show(item) for item in value)}]"
            if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
                return f"array{list(value.shape)}"
            return repr(value)

        shown = [
            show(value) if self.by_name[name].is_tensor else f"{name} = {show(value)}"
            for name, value in arguments.items()
            if value is not self.by_name[name].default
        ]
        types = "   ".join(f"{name}: {value.type}" for value, name in names.items())
        return f"{self.name}({', '.join(shown)})     {types}".rstrip()


# Parameters that choose positions or seeds: they take no part in promotion.
_CHOOSING = frozenset(("condition", "index", "indices", "mask", "seed"))


def _class_of_tensors(arguments: dict[str, Any]) -> type | None:
    """Return Array if any argument is one, else Handle, Value or np.ndarray; None if there is no tensor."""
    found: type | None = None
    for value in arguments.values():
        for item in value if value.__class__ is tuple or value.__class__ is list else (value,):
            kind = type(item)
            if kind is Array or kind is OpenArray:
                return Array
            if kind is Value:
                found = found if found is Handle else Value
            elif kind is Handle:
                found = Handle
            elif found is None and hasattr(item, "__array__") and not isinstance(item, np.generic):
                found = np.ndarray
    return found


def _precise(result: Any) -> bool:
    """Whether no result is f32 or c64, the types that ops convert integers to."""
    return all(value.dtype is not f32 and value.dtype is not c64 for value in results_of(result))


def _is_number_or(value: Any, is_weak: bool) -> bool:
    return is_weak or (isinstance(value, NUMBERS) and not isinstance(value, np.generic))


def _type_key(value: Any) -> Any:
    if value.__class__ is Value:
        number = known_number(value)
        if number is None:
            return value.type
        return value.type, number if isinstance(number, Expr) else repr(number)
    if value is None or value.__class__ is str:
        return value
    if isinstance(value, tuple):
        return value if are_ints(value) else tuple(map(_type_key, value))
    if isinstance(value, (bool, int, float)):
        # True == 1 == 1.0 for a dict, but not for an op; -0.0 == 0.0 likewise.
        return (type(value), repr(value))
    return value


def _unpickled(
    function: Any, kind: Kind | None, dtypes: Sequence[DType], differentiable: bool, traits: Traits, rules: Any
) -> OpDef:
    op = owner_of(function)
    if op is None:
        op = OpDef(restored_name(function), kind, ANY if len(dtypes) == len(ANY) else dtypes, differentiable, traits)
        op.vjp_rule, op.jvp_rule = rules
        known = REGISTRY.get(op.name)
        if known is None or not known.is_own:
            REGISTRY[op.name] = op  # found by the parser and as a method
    return op  # type: ignore[no-any-return]
