"""The kinds of primitives. A kind is a type rule and a lowering shared by all ops of that kind.

    Elementwise  each result element from the operands' elements at the same (broadcast) place
    View         result[i] = operand[map(i)]: nothing is computed, an index map is applied where it is read
    Generate     result[i] from the index alone: iota, full, constants, random bits
    Gather       result[i] from operand elements at data-dependent indices
    Join         result[i] from one of several operands or a fill value, chosen by the index: cat, pad
    Reduce       a combiner over some dimensions
    Scan         a combiner over all prefixes of one dimension
    Scatter      a copy of an operand with updates combined in at data-dependent indices
    Sort         the rows of the last dimension in sorted order, or the places of their elements
    Contract     batched matrix product
    Captured     an array held by the program; tracing turns it into a parameter

Scalar ops and combiners are named here and defined once, in kernels/scalar/table.py. Generate, Gather and Join share
one idea: `element(builder, index, arguments)` defines one result element. The lowering passes a
builder that writes loop IR, the interpreter one that computes with NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..ir.graph import Value
from ..ir.symbolic import Dim
from ..ir.types import DType, TensorType, bool_, c64, c128, f64, float_of, i64, promote
from .registry import REGISTRY, constant, rounded
from .shapes import Shape, broadcast, equal, reduced

if TYPE_CHECKING:
    from .opdef import OpDef

Arguments = dict[str, Any]
Index = Sequence[Dim]


class ElementBuilder(Protocol):
    """The operations of an `element` function. Scalars are opaque; indices are integers or expressions."""

    def load(self, value: Value, index: Index, guard: Any = None) -> Any:
        """The element of `value` at `index`; zero where the guard (a bool scalar) is false."""

    def constant(self, value: Any, dtype: DType) -> Any: ...

    def scalar(self, name: str, *operands: Any) -> Any:
        """A scalar op of kernels/scalar/table.py on operands of one type."""

    def cast(self, operand: Any, dtype: DType) -> Any: ...

    def bitcast(self, operand: Any, dtype: DType) -> Any:
        """The bits of an operand as a type of the same width."""

    def index(self, expression: Dim) -> Any:
        """An index expression as an i64 scalar."""

    def inside(self, expression: Dim, low: Dim, high: Dim) -> Any:
        """low <= expression < high as a bool scalar."""

    def dynamic(self, value: Any, size: Dim, wrap: bool) -> tuple[Dim, Any]:
        """A data-dependent index into `size`: its expression, and the guard that it is in range.

        An index out of range is reported as an error of the op, and the guard suppresses the access.
        With `wrap`, negative values count from the end."""


class Kind:
    """Base of all kinds."""

    promotes = False  # whether Python numbers may stand for tensors and operands are cast to a common type
    linear = False  # whether every derivative is the op itself applied to tangents
    own_kernel = False  # whether each of its ops is a separate kernel with operands in memory
    moves = False  # whether elements are only moved, so that types without arithmetic will do
    dense_operands = False  # whether that kernel reads the operands as dense buffers, so that none may be inline

    @property
    def name(self) -> str:
        return type(self).__name__

    def prepare(self, defn: OpDef, arguments: Arguments) -> Arguments | Value:
        """Return arguments in normal form, with casts and constants inserted; or the result, if another op computes
        it."""
        return arguments

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        raise NotImplementedError

    def infer_alike(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...] | None:
        """Do `prepare`, the check of element types and `infer` at once for the common arguments, which need no casts.
        Return None for others, and leave them unchanged."""
        return None


def common_dtype(items: Sequence[Any]) -> DType:
    """Return the promoted type of tensors and numbers."""
    return promote([item.type if isinstance(item, Value) else item for item in items])


def _is_open_size(item: Any) -> bool:
    return isinstance(item, Value) and item.op is not None and item.op.defn.name == "extent"


Entry = TypeVar("Entry")


def registered(table: Mapping[type[Kind], Entry], kind: Kind) -> Entry:
    """Return a table's entry for a kind: that of its class, or of the nearest base with an entry."""
    for base in type(kind).__mro__:
        if base in table:
            return table[base]
    raise LookupError(f"nothing is registered for the kind {kind.name}")


class Elementwise(Kind):
    """One scalar op on broadcast operands.

    promote: "same" casts the operands to their common type, "float" also turns integers into floats, "where"
    leaves the first operand a bool, "fixed" casts nothing.
    result: "same" as the operands, "bool", or "real" (the parts of a complex number).
    wide: operands that are used in f32 if they are numbers or 0-dim tensors beside f16 or bf16; all others are rounded
    to the operands' type first, as in PyTorch.
    narrow: whether f16 and bf16 have scalar ops of their own, because rounding the result of f32 would be wrong.
    """

    promotes = True

    def __init__(
        self,
        scalar: str,
        promote: str = "same",
        result: str = "same",
        narrow: bool = False,
        wide: tuple[str, ...] = (),
    ):
        self.scalar = scalar
        self.promote = promote
        self.result = result
        self.narrow = narrow
        self.wide = wide

    def scalar_on(self, dtype: DType) -> str:
        """Return the scalar op for operands of a type."""
        return f"{self.scalar}_{dtype}" if self.narrow and dtype.compute is not dtype else self.scalar

    def _number(self, name: str, value: Any, dtype: DType) -> Value:
        """Return the constant for a Python number beside operands of a type."""
        return constant(value if name in self.wide else rounded(value, dtype), dtype)

    def _widened(self, defn: OpDef, arguments: Arguments, dtype: DType) -> Value | None:
        """Return the op on f32, rounded at the end, if a wide operand is a 0-dim tensor beside a narrow type; else
        None."""
        if not any(
            isinstance(arguments[name], Value) and not arguments[name].shape and arguments[name].dtype is not dtype
            for name in self.wide
        ):
            return None
        cast, compute = REGISTRY["cast"], dtype.compute
        wide = {
            name: cast(item, compute) if isinstance(item, Value) and item.dtype is not compute else item
            for name, item in arguments.items()
        }
        found: Value = cast(defn(**wide), dtype)
        return found

    def prepare(self, defn: OpDef, arguments: Arguments) -> Arguments | Value:
        names = defn.tensor_names
        if self.promote == "where":
            names = names[1:]
        for name in names:
            if arguments[name] is None:
                raise ArgumentError(f"{name} must be a tensor or a number, got None")
        wanted = common_dtype([arguments[name] for name in names])
        if self.promote == "float":
            wanted = float_of(wanted)
        elif self.result == "bool" and wanted.is_integer and any(_is_open_size(arguments[name]) for name in names):
            wanted = i64  # i64 holds all sizes, and compared numbers need not fit the operands' type
        if self.wide and wanted.compute is not wanted:
            widened = self._widened(defn, arguments, wanted)
            if widened is not None:
                return widened
        for name in names:
            item = arguments[name]
            if not isinstance(item, Value):
                arguments[name] = self._number(name, item, wanted)
            elif item.dtype is not wanted and self.promote != "fixed":
                arguments[name] = REGISTRY["cast"](item, wanted)
        if self.promote == "where":
            condition = defn.tensors[0].name
            if not isinstance(arguments[condition], Value):
                arguments[condition] = constant(arguments[condition], bool_)
            elif arguments[condition].dtype is not bool_:
                raise DTypeError(f"{condition} is {arguments[condition].dtype}, accepted is bool")
        return arguments

    def infer_alike(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...] | None:
        """The fast path for operands of one float type and numbers, which become that type."""
        if self.promote == "where":
            return None
        wanted: DType | None = None
        common: TensorType | None = None  # type of the operands with dimensions
        is_one, numbers = True, False
        for name in defn.tensor_names:
            item = arguments[name]
            if item.__class__ is Value:
                type = item.type
                if type.dtype is not wanted:
                    if wanted is not None:
                        return None
                    wanted = type.dtype
                if type.shape and type is not common:
                    is_one, common = common is None, type
            elif item.__class__ is float or item.__class__ is int:
                numbers = True
            else:
                return None
        if wanted is None or wanted.kind != "f" or wanted.name not in defn.takes:
            return None
        if numbers:
            for name in defn.tensor_names:
                item = arguments[name]
                if item.__class__ is not Value:
                    arguments[name] = self._number(name, item, wanted)
        return (common,) if is_one and common is not None and self.result == "same" else self.infer(defn, arguments)

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        types: list[TensorType] = [arguments[name].type for name in defn.tensor_names]
        shape = broadcast([type.shape for type in types])
        element: DType = types[-1].dtype
        if self.result == "bool":
            element = bool_
        elif self.result == "real":
            element = element.real
        elif self.result == "complex":
            element = c128 if element is f64 else c64
        elif self.result == "cast":
            element = arguments["dtype"]
        # Most results have an operand's type: share the object.
        for type in types:
            if type.shape is shape and type.dtype is element:
                return (type,)
        return (TensorType(element, shape),)


class View(Kind):
    """An index map. `shape(arguments)` is the result's shape, `index(index, arguments)` the operand's index.

    once: whether each element is read at most once, so that arithmetic may move from its operand to its result.
    keeps_order: whether the elements stay in row-major order, so that the result may share the operand's memory.
    rigid: `rigid(arguments, shape of the result)` gives for each dim of the operand the result's dim that it becomes
    (None: it has size 1), or None if dims are regrouped. A view that is never rigid has no such function.
    """

    moves = True

    linear = True

    def __init__(
        self,
        shape: Callable[[Arguments], Shape],
        index: Callable[[Index, Arguments], Index],
        once: bool = False,
        keeps_order: bool = False,
        rigid: Callable[[Arguments, Shape], tuple[int | None, ...] | None] | None = None,
    ):
        self.shape = shape
        self.index = index
        self.once = once
        self.keeps_order = keeps_order
        self.rigid = rigid

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        return (TensorType(arguments["self"].dtype, self.shape(arguments)),)


class Element(Kind):
    """Base of the kinds that define one result element by an `element` function."""

    def __init__(
        self,
        type: Callable[[Arguments], TensorType],
        element: Callable[[ElementBuilder, Index, Arguments], Any],
    ):
        self.type = type
        self.element = element

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        return (self.type(arguments),)


class Generate(Element):
    """Each element from its index alone."""

    moves = True


class Gather(Element):
    """Each element from data-dependent indices into operands. Linear in `self`.

    `aligned(arguments)` gives, for each operand by name, the result dim that each of its dims follows (None: the index
    is data-dependent). By it a gather can be fused with the producer of its operand, if it reads along rows and the
    sizes are equal: an operand may be larger than the result in a dim that follows it.
    """

    moves = True

    linear = True

    def __init__(
        self,
        type: Callable[[Arguments], TensorType],
        element: Callable[[ElementBuilder, Index, Arguments], Any],
        aligned: Callable[[Arguments], dict[str, tuple[int | None, ...]]] | None = None,
    ):
        super().__init__(type, element)
        self.aligned = aligned


class Join(Element):
    """Each element from one of several operands. Linear in all of them."""

    moves = True

    linear = True


class Reduce(Kind):
    """A combiner over the dimensions `dim` (a sorted tuple). result: "same", "bool" or "i64"."""

    def __init__(self, combiner: str, result: str = "same"):
        self.combiner = combiner
        self.result = result
        self.linear = combiner == "add"

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        value: Value = arguments["self"]
        element = {"same": value.dtype, "bool": bool_, "i64": i64}[self.result]
        return (TensorType(element, reduced(value.shape, arguments["dim"], arguments["keepdim"])),)


class Scan(Kind):
    """A combiner over all prefixes along `dim`."""

    own_kernel = True

    def __init__(self, combiner: str):
        self.combiner = combiner
        self.linear = combiner == "add"

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        return (arguments["self"].type,)


class Scatter(Kind):
    """A copy of `self` with one element combined in for each index of `updates(arguments)`, in row-major order.

    `updates` gives the shape of the update space; `place(builder, index, arguments)` gives the index into the
    result and the guard that it is in range, `item(builder, index, arguments)` the scalar to combine. combine: a
    combiner, or None to overwrite. Several updates of one element are combined in the order of the update space, so the
    result is deterministic.

    `follows(arguments)` gives the dim of the update space that each dim of the result follows (None: the index is
    data-dependent), and `chosen_by(arguments)` the dims of the update space that the index data has.

    `starts(arguments)` gives a tensor of one more number than the result has rows, if the updates of a row are a run:
    those from its number up to the next row's. Then lowering does not ask where an update goes.
    """

    own_kernel = True

    def __init__(
        self,
        updates: Callable[[Arguments], Shape],
        place: Callable[[ElementBuilder, Index, Arguments], tuple[Index, Any]],
        item: Callable[[ElementBuilder, Index, Arguments], Any],
        combine: Callable[[Arguments], str | None],
        follows: Callable[[Arguments], tuple[int | None, ...]],
        chosen_by: Callable[[Arguments], range],
        starts: Callable[[Arguments], Value] | None = None,
    ):
        self.updates = updates
        self.place = place
        self.item = item
        self.combine = combine
        self.follows = follows
        self.chosen_by = chosen_by
        self.starts = starts

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        return (arguments["self"].type,)


class Sort(Kind):
    """The elements from `start` on, `count` of them (None: all), of each row in sorted order, or their places: a stable
    sort along the last dim. NaN is the largest; -0.0 and 0.0 are equal, and so are all NaNs."""

    own_kernel = True
    dense_operands = True

    def __init__(self, places: bool):
        self.places = places

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        value: Value = arguments["self"]
        count = arguments["count"]
        length = value.shape[-1] - arguments["start"] if count is None else count
        return (TensorType(i64 if self.places else value.dtype, (*value.shape[:-1], length)),)


class Compact(Kind):
    """The places of the true elements of `self`, in order: the first `size` of them, then `fill_value`."""

    own_kernel = True

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        return (TensorType(i64, (arguments["size"],)),)


class Contract(Kind):
    """self[B, M, K] times mat2[B, K, N]."""

    own_kernel = True

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        left, right = arguments["self"], arguments["mat2"]
        for position, value in enumerate((left, right)):
            if value.ndim != 3:
                raise ShapeError(f"operand {position} has {value.ndim} dimensions, expected 3 (batch, rows, columns)")
        if left.dtype is not right.dtype:
            raise DTypeError(f"operand 0 is {left.dtype} and operand 1 is {right.dtype}, expected the same")
        if not equal(left.shape[0], right.shape[0]):
            raise ShapeError(f"operand 1 has batch size {right.shape[0]}, expected {left.shape[0]} (that of operand 0)")
        if not equal(left.shape[2], right.shape[1]):
            raise ShapeError(
                f"operand 1 has {right.shape[1]} rows, expected {left.shape[2]} (the columns of operand 0)"
            )
        return (TensorType(left.dtype, (left.shape[0], left.shape[1], right.shape[2])),)


class Captured(Kind):
    """An array that the program refers to."""

    def infer(self, defn: OpDef, arguments: Arguments) -> tuple[TensorType, ...]:
        from ..ir.types import dtype

        array = arguments["array"].array
        return (TensorType(dtype(array.dtype), array.shape),)
