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
form or to fold an `alpha` away. Normalising twice must change nothing, since the parser calls ops too.

The body of a composite is its decomposition and its type rule. Its derivatives follow from the body unless
`.vjp` or `.jvp` gives a cheaper one. A rule names what it wants: `grad` (`grads` for several results),
`result` (`results`), and any parameter of the op. It returns one gradient for each tensor parameter, in
order (just the one if there is one), or a dict by name; None is zero.

A parameter annotated `Tensor` takes tensors, and Python numbers too where the kind promotes; `Tensor | Scalar`
keeps a Python number as it is; `Tensor | None` and `Sequence[Tensor]` say what they say; `Size` takes a
sequence of sizes or the sizes one by one; all other parameters are attributes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from ..ir.caller import is_internal
from ..ir.errors import ArgumentError, DTypeError, SmeltError, suggest
from ..ir.graph import Op, Value, current_location, located, operands_of, ops_behind
from ..ir.symbolic import Dim, Expr
from ..ir.types import ANY, DType, TensorType, dtype, i64, scalar_dtype, user_dtype
from .kinds import Kind
from .registry import REGISTRY, Scalar, constant, scalar_value  # noqa: F401  (every family takes them from here)
from .shapes import are_ints
from .streams import Streams

Tensor = Value
Size = Sequence[Dim]
Dims = int | Sequence[int] | None

_ANY_NAMES = frozenset(entry.name for entry in ANY)
REQUIRED = object()  # in place of a default
NUMPY_NAMES = {"axis": "dim", "axes": "dims", "keepdims": "keepdim"}


class Parameter:
    """One parameter of an op: its name, default, and what it takes."""

    __slots__ = (
        "annotation",
        "default",
        "is_dtype",
        "is_list",
        "is_size",
        "is_tensor",
        "name",
        "positional",
        "scalars",
    )

    def __init__(self, name: str, annotation: object, default: Any, positional: bool):
        if not isinstance(annotation, str):
            raise ValueError(
                f"the annotation of {name} must be kept as text, it is the schema: "
                "start the module with `from __future__ import annotations` and annotate every parameter"
            )
        self.name = name
        self.default = default
        self.annotation = annotation
        self.positional = positional
        self.is_list = "[Tensor" in self.annotation
        self.is_tensor = "Tensor" in self.annotation
        self.scalars = "Scalar" in self.annotation
        self.is_size = self.annotation == "Size"
        self.is_dtype = "DType" in self.annotation

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


def parameters_of(function: Callable[..., Any]) -> Iterator[Parameter]:
    """What inspect.signature would say, in a tenth of the time: `import smelt` asks for some hundred functions."""
    code, defaults, annotations = function.__code__, function.__defaults__ or (), function.__annotations__
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise ValueError(f"{function.__name__}: an op has no *arguments or **arguments, the signature is the schema")
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = dict(zip(names[code.co_argcount - len(defaults) :], defaults)) | (function.__kwdefaults__ or {})
    for position, name in enumerate(names):
        yield Parameter(name, annotations.get(name), known.get(name, REQUIRED), position < code.co_argcount)


class OpDef:
    """An op: its schema, what it means, and its derivatives."""

    # How to run an op at once on arrays; set by the public face, which knows the back ends.
    evaluate: ClassVar[Callable[[OpDef, dict[str, Any]], Any] | None] = None
    _types: ClassVar[dict[tuple, tuple[TensorType, ...]]] = {}
    _drawing: ClassVar[set[tuple]] = set()  # those of these keys whose bodies draw random numbers

    def __init__(self, function: Callable[..., Any], kind: Kind | None, dtypes: Sequence[DType], differentiable: bool):
        self.name = function.__name__
        self.function = function
        self.kind = kind
        self.dtypes = dtypes if dtypes is ANY else tuple(dtypes)
        self.takes = _ANY_NAMES if dtypes is ANY else frozenset([entry.name for entry in dtypes])
        self.differentiable = differentiable
        self.doc = (function.__doc__ or "").strip().split("\n")[0]
        schema = inspect.unwrap(function)
        self.parameters = tuple(parameters_of(schema))
        # `-> tuple[Tensor, ...]` gives a tuple also when there is just one result.
        self.returns_tuple = str(schema.__annotations__.get("return")).startswith("tuple[")
        self.names = tuple([parameter.name for parameter in self.parameters])
        self.takes_stream = "stream" in self.names
        self.module = function.__module__.rsplit(".", 1)[-1]
        self.vjp_rule: Callable[..., Any] | None = None
        self.jvp_rule: Callable[..., Any] | None = None
        self.linear = False
        self.__doc__ = function.__doc__

    # What only ops that are called need is worked out when they first are: a program has few of the hundreds.
    by_name: dict[str, Parameter]
    tensors: tuple[Parameter, ...]
    tensor_names: tuple[str, ...]
    # The fewest and the most arguments that stand for the first parameters, one for one (1 and -1 if none do); which of
    # these take sequences; all defaults.
    _plain: tuple[int, int, list[int], tuple[Any, ...]]
    _normal: dict[str, frozenset[type]]  # of each argument: the classes of those that are in normal form as they are
    _is_internal: bool
    _is_declared: bool  # whether the body is a docstring and no more

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
        sequences = [position for position, item in enumerate(self.parameters) if item.is_size or item.is_list]
        code = self.function.__code__
        self.tensors = tuple([item for item in self.parameters if item.is_tensor])
        self.tensor_names = tuple([item.name for item in self.tensors])
        self._plain = fewest, most, sequences, tuple([item.default for item in self.parameters])
        self._normal = {item.name: _normal_classes(item, numbers) for item in self.parameters}
        self._is_internal = is_internal(code.co_filename)
        self._is_declared = code.co_code == _NOTHING
        self.by_name = dict(zip(self.names, self.parameters))
        return self.__dict__[name]

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def is_composite(self) -> bool:
        return self.kind is None

    def vjp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Register the reverse-mode rule."""
        self.vjp_rule = rule
        return rule

    def jvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Register the forward-mode rule. It takes `<parameter>_tangent` (None for zero) beside what a vjp takes."""
        self.jvp_rule = rule
        return rule

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        arguments = self.bind(args, kwargs)
        if OpDef.evaluate is not None and _concrete(arguments):
            return OpDef.evaluate(self, arguments)
        return self.apply(arguments)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in, in the order of the signature."""
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
                if (parameter.is_size or parameter.is_list) and not isinstance(value, (tuple, list)):
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
                # A fresh number for each call: the stream of a random op.
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
        """Whether named arguments are those that so many others leave open."""
        names = self.names[given:]
        return all(name in names for name in kwargs) and all(
            name in kwargs for name in names[: max(self._plain[0] - given, 0)]
        )

    def apply(self, arguments: dict[str, Any]) -> Any:
        """Make the op. Arrays become constants; errors get the user's line and the call."""
        given = arguments
        kind = self.kind
        try:
            normal, made = self._normal, dict(arguments)
            for name, value in arguments.items():
                if value.__class__ not in normal[name]:
                    made[name] = self._argument(self.by_name[name], value)
            arguments = made
            if kind is None:
                types = self._composite_types(arguments)
            else:
                if not self._is_declared:
                    update = self.function(**arguments)
                    if update:
                        arguments.update(update)
                inferred = kind.infer_alike(self, arguments)
                if inferred is None:
                    arguments = kind.prepare(self, arguments)
                    if self.dtypes is not ANY:
                        self._check_dtypes(arguments)
                    inferred = kind.infer(self, arguments)
                types = inferred
            op = Op(self, arguments, types, current_location(2))
            if kind is not None and kind.promotes and not types[0].shape:
                op.results[0].exact = self._exact(given)
        except SmeltError as error:
            # The outermost call has the last word: that is what the user wrote.
            if error.location is None:
                error.location = current_location()
            error.op = self.name
            error.detail = self._call_text(arguments)
            raise
        return op.results[0] if len(op.results) == 1 and not self.returns_tuple else op.results

    def _exact(self, given: dict[str, Any]) -> Value | None:
        """What comes of Python numbers alone is one, too."""
        numbers = [given[name] for name in self.tensor_names if isinstance(given[name], Value)]
        if not numbers or any(value.exact is None for value in numbers) or "dtype" in given:
            return None
        return self.apply({name: item.exact if isinstance(item, Value) else item for name, item in given.items()})

    def expand(self, arguments: dict[str, Any]) -> tuple[Value, ...]:
        """The results of a composite's body."""
        results = self.function(**arguments)
        values = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        for value in values:
            if not isinstance(value, Value):
                raise ArgumentError(f"{self.name}: the body returned {type(value).__name__}, expected a tensor")
        return values

    def _composite_types(self, arguments: dict[str, Any]) -> tuple[TensorType, ...]:
        key = self._body_key(arguments)
        types = OpDef._types.get(key)
        if types is None:
            with located(current_location(2) if self._is_internal else None):
                results = self.expand(arguments)
            if self.takes_stream:
                known = {value.op.serial for value in operands_of(self, arguments) if value.op is not None}
                if any(op.defn.draws(op.arguments) for op in ops_behind(results, known)):
                    OpDef._drawing.add(key)
            types = OpDef._types[key] = tuple([value.type for value in results])
        return types

    def _body_key(self, arguments: dict[str, Any]) -> tuple:
        """What decides the types in a composite's body, and which ops it has."""
        if self.takes_stream:
            arguments = {name: value for name, value in arguments.items() if name != "stream"}
        return (self.name, *map(_type_key, arguments.values()))

    def draws(self, arguments: dict[str, Any]) -> bool:
        """Whether an op of these arguments draws random numbers: dropout with probability 0 does not."""
        if not self.takes_stream or self.kind is not None:
            return self.takes_stream
        self._composite_types(arguments)
        return self._body_key(arguments) in OpDef._drawing

    def _argument(self, parameter: Parameter, value: Any) -> Any:
        if parameter.is_tensor:
            if parameter.is_list and isinstance(value, (tuple, list)):
                return tuple(self._tensor(parameter, item) for item in value)
            return self._tensor(parameter, value)
        if parameter.is_dtype and value is not None:
            return user_dtype(value)
        return attribute(value, f"{self.name}: {parameter.name}")

    def _tensor(self, parameter: Parameter, value: Any) -> Any:
        if isinstance(value, Value) or value is None:
            return value
        if isinstance(value, np.generic):
            if parameter.scalars or (self.kind is not None and self.kind.promotes):
                return value.item()
            return constant(value.item(), dtype(value.dtype))
        if isinstance(value, (bool, int, float, complex)):
            if parameter.scalars or (self.kind is not None and self.kind.promotes):
                return value
            return constant(value, scalar_dtype(value))
        if isinstance(value, Expr):
            return REGISTRY["extent"].apply({"value": value, "dtype": i64})
        return captured(as_array(value, f"{self.name}: {parameter.name}"))

    def _check_dtypes(self, arguments: dict[str, Any]) -> None:
        for parameter in self.tensors:
            value = arguments[parameter.name]
            for item in value if value.__class__ is tuple else (value,):
                if item.__class__ is Value and item.type.dtype.name not in self.takes:
                    accepted = ", ".join(entry.name for entry in self.dtypes)
                    raise DTypeError(f"{parameter.name} is {item.dtype}, accepted are {accepted}")
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


def _concrete(arguments: dict[str, Any]) -> bool:
    """Some argument is an array and none is traced: there is nothing to wait for."""
    found = False
    for value in arguments.values():
        if isinstance(value, Value):
            return False
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, Value):
                return False
            found = found or hasattr(item, "__array__") and not isinstance(item, np.generic)
    return found


def _type_key(value: Any) -> Any:
    if value.__class__ is Value:
        return value.type
    if value is None or value.__class__ is str:
        return value
    if isinstance(value, tuple):
        return value if are_ints(value) else tuple(map(_type_key, value))
    if isinstance(value, (bool, int, float)):
        # True == 1 == 1.0 for a dict, but not for an op; -0.0 == 0.0 likewise.
        return (type(value), repr(value))
    return value


def attribute(value: Any, what: str) -> Any:
    """An attribute in normal form: plain Python, hashable, printable."""
    if value.__class__ is tuple and are_ints(value):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(attribute(item, what) for item in value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    if isinstance(value, Value):
        raise ArgumentError(f"{what} must be known while tracing, got the traced tensor {value!r}")
    try:
        hash(value)
    except TypeError:
        raise ArgumentError(f"{what}: cannot use a {type(value).__name__} here") from None
    return value


def as_array(value: Any, what: str) -> np.ndarray:
    """A NumPy array that shares memory with an array-like where it can."""
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(f"{what}: masks of arrays are not supported: fill them (x.filled(0))", current_location())
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        try:
            array = np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
        except (TypeError, RuntimeError, BufferError, ValueError) as error:
            name = type(value).__name__
            raise ArgumentError(
                f"{what}: this {name} cannot become a NumPy array: {error}", current_location()
            ) from error
    elif isinstance(value, (list, tuple)):
        array = np.asarray(value)
        if array.dtype == np.float64 or array.dtype == np.complex128:
            # A list of Python numbers is typed like a Python number.
            array = array.astype(np.complex64 if array.dtype.kind == "c" else np.float32)
    else:
        raise ArgumentError(f"{what} must be a tensor, got {type(value).__name__}", current_location())
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    dtype(array.dtype)
    return array


class ArrayConstant:
    """An array that a traced function captured. It becomes a hidden parameter when tracing ends."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array

    def __repr__(self) -> str:
        return f"array{list(self.array.shape)}"


def captured(array: np.ndarray) -> Value:
    """An array as a value; a 0-dim one becomes a literal."""
    if array.ndim == 0:
        return constant(array.item(), dtype(array.dtype))
    return REGISTRY["captured"].apply({"array": ArrayConstant(array)})


_NUMBERS = (bool, int, float, complex)
_TENSOR = frozenset((Value, type(None)))
_TENSOR_OR_NUMBER = _TENSOR | set(_NUMBERS)
_DTYPE = frozenset((DType, type(None)))
_ATTRIBUTE = frozenset((bool, int, float, str, type(None)))


def _normal_classes(parameter: Parameter, numbers: bool) -> frozenset[type]:
    """The classes whose objects are arguments in normal form as they are, which most are."""
    if parameter.is_tensor:
        return _TENSOR_OR_NUMBER if numbers or parameter.scalars else _TENSOR
    return _DTYPE if parameter.is_dtype else _ATTRIBUTE


def _register(defn: OpDef) -> OpDef:
    if defn.name in REGISTRY:
        raise ValueError(f"op {defn.name} is defined twice: {REGISTRY[defn.name].module} and {defn.module}")
    if not defn.doc:
        raise ValueError(f"op {defn.name} has no docstring")
    REGISTRY[defn.name] = defn
    return defn


def prim(kind: Kind, dtypes: Sequence[DType] = ANY, differentiable: bool = True) -> Callable[..., OpDef]:
    """Declare a primitive of a kind."""
    return lambda function: _register(OpDef(function, kind, dtypes, differentiable))


def composite(function: Callable[..., Any] | None = None, *, differentiable: bool = True) -> Any:
    """Declare an op by its decomposition."""
    if function is None:
        return lambda body: composite(body, differentiable=differentiable)
    return _register(OpDef(function, None, ANY, differentiable))


def zero_derivative(*ops: OpDef) -> None:
    """Piecewise constant ops: differentiable, with derivative zero."""
    for op in ops:
        op.vjp_rule = _zero


def _zero() -> None:
    return None


def _empty() -> None:
    """The body of a primitive that takes its arguments as they are."""


_NOTHING = _empty.__code__.co_code


def lookup(name: str) -> OpDef:
    if name not in REGISTRY:
        raise ArgumentError(f"unknown op {name!r}{suggest(name, REGISTRY)}")
    return REGISTRY[name]
