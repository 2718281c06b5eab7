"""Simplify programs by rules that keep every result, to the bit.

The exceptions are PyTorch's too: pow(x, 3) is x * x * x, which rounds twice, and pow(x, 0.5) is sqrt(x), though
they differ for -0.0 and -inf; pow(z, 1) of a complex z is z, with the signs of its zeros. exp(log_softmax(x)) is
softmax(x): rounded fewer times, and no logarithm's error grows with the exponential. The sign of a NaN may change. No
rules are: x + 0.0 is not x, because -0.0 + 0.0 is 0.0; x * 0.0 is not 0.0, because of infinities and NaNs.

Views move towards the inputs, through elementwise ops whose value has no other reader: there they meet other
views and cancel, slices save work, and an elementwise op stands next to the op that makes its operand.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir.graph import Graph, Op, Value, operands_of
from ...ir.record import Record
from ...ir.symbolic import Dim, Expr, UndecidedSize
from ...ir.types import DType, i32, i64, u32
from ...kernels.scalar.table import COMBINERS
from ...ops.create import iota
from ...ops.define import REGISTRY, constant, scalar_value
from ...ops.kinds import Contract, Elementwise, Reduce, View
from ...ops.pointwise import eq, logical_and, mul
from ...ops.view import dim_groups, reshape, unit_reshape
from ..registry import graph_pass
from ..rewrite import rebuild, remake, splat_number
from .cleanup import folded, splat
from .rules import ANY, Rules


class SimplifyLimits(Record):
    """Limits that make the pass terminate. Chosen, not measured."""

    depth: int = 64  # ops, at most, that a view moves over in one step; the next visit moves it further
    rounds: int = 6  # walks over the graph, at most


LIMITS = SimplifyLimits()

rules = Rules()


@graph_pass("simplify")
def simplify(graph: Graph) -> Graph:
    """Remove identities, fold constants, merge casts and views, move views towards the inputs."""
    for _round in range(LIMITS.rounds):
        simple = rebuild(graph, simplified)
        graph = move_views(simple)
        if graph is simple:
            break  # a rule depends on an op and its operands alone, so no rule has work left
    return graph


def simplified(op: Op, arguments: dict[str, Any]) -> Value | None:
    """Simplify an op by the rules of its kind, then by those of its name; None if none applies."""
    kind = op.defn.kind
    if isinstance(kind, Elementwise):
        result = folded(op, arguments)
    elif isinstance(kind, View):
        number = splat_number(arguments["self"])
        result = None if number is None else splat(number, op.results[0].type)
    elif isinstance(kind, Reduce):
        result = trivial_reduction(op, arguments)
    else:
        result = None
    return rules.apply(op, arguments) if result is None else result


# Arithmetic ------------------------------------------------------------------------------------------------


@rules.rule("mul(%x, 1)", "mul(1, %x)", "true_divide(%x, 1)", on="biuf")
def times_one(x: Value) -> Value | None:
    return x  # of complex numbers (a + bi)(1 + 0i) has NaNs where a or b is infinite


@rules.rule("mul(%x, -1)", "mul(-1, %x)", "true_divide(%x, -1)", on="if")
def times_minus_one(x: Value) -> Value | None:
    return REGISTRY["neg"](x)


@rules.rule("mul(%x, 0)", "mul(0, %x)", on="biu")
def integer_times_zero(x: Value, op: Op) -> Value | None:
    return splat(0, op.results[0].type)


@rules.rule("add(%x, 0)", "add(0, %x)", on="biuf")
def plus_zero(x: Value) -> Value | None:
    return x if not x.dtype.is_float or never_negative(x) else None


@rules.rule("add(%x, -0.0)", "add(-0.0, %x)", "sub(%x, 0)", on="iuf")
def plus_minus_zero(x: Value) -> Value | None:
    return x


@rules.rule("add(%x, neg(%y))", on="iufc")
def plus_negative(x: Value, y: Value) -> Value | None:
    return REGISTRY["sub"](x, y)


@rules.rule("add(neg(%x), %y)", on="iufc")
def negative_plus(x: Value, y: Value) -> Value | None:
    return REGISTRY["sub"](y, x)


@rules.rule("sub(%x, neg(%y))", on="iufc")
def minus_negative(x: Value, y: Value) -> Value | None:
    return REGISTRY["add"](x, y)


@rules.rule("neg(neg(%x))", "bitwise_not(bitwise_not(%x))", "conj(conj(%x))", on=ANY)
def involution(x: Value) -> Value | None:
    return x


@rules.rule("logical_not(logical_not(%x))", on="b")
def double_negation(x: Value) -> Value | None:
    return x


@rules.rule("maximum(%x, %x)", "minimum(%x, %x)", "bitwise_and(%x, %x)", "bitwise_or(%x, %x)", on="biuf")
def idempotent(x: Value) -> Value | None:
    return x


@rules.rule("abs(neg(%x))", on="ifc")  # -x of an unsigned x is 256 - x
@rules.rule("abs(abs(%x))", on="iuf")
def absolute_drops_sign(x: Value) -> Value | None:
    return REGISTRY["abs"](x)


@rules.rule("logical_and(%x, true)", "logical_and(true, %x)", on="b")
@rules.rule("logical_or(%x, false)", "logical_or(false, %x)", on="b")
def neutral_logic(x: Value) -> Value | None:
    return x


@rules.rule("true_divide(%x, #c)", on="f")
def divide_by_power_of_two(x: Value, c: Any, op: Op) -> Value | None:
    dtype = op.results[0].dtype
    if c == 0 or not math.isfinite(c) or abs(math.frexp(c)[0]) != 0.5:
        return None
    inverse = 1 / c
    # Exact only if the reciprocal is, and neither it nor the quotient differ in range from the division.
    if not math.isfinite(inverse) or scalar_value(inverse, dtype) != inverse:
        return None
    return REGISTRY["mul"](x, constant(inverse, dtype))


@rules.rule("pow(%x, 0)", on="iufc")
def power_zero(op: Op) -> Value | None:
    return splat(1, op.results[0].type)


@rules.rule("pow(%x, 1)", on="iufc")
def power_one(x: Value) -> Value | None:
    return x


@rules.rule("pow(%x, 2)", on="iufc")
def power_two(x: Value) -> Value | None:
    return REGISTRY["mul"](x, x)


@rules.rule("pow(%x, 3)", on="iuf")
def power_three(x: Value) -> Value | None:
    return REGISTRY["mul"](REGISTRY["mul"](x, x), x)


@rules.rule("pow(%x, -1)", on="f")
def power_minus_one(x: Value) -> Value | None:
    return REGISTRY["reciprocal"](x)


@rules.rule("pow(%x, 0.5)", on="f")
def power_half(x: Value) -> Value | None:
    return REGISTRY["sqrt"](x)


_SHIFTED = "sub(%x, amax(%x) {dim = %dim, keepdim = true})"


@rules.rule(f"exp(sub({_SHIFTED}, log(sum(exp({_SHIFTED})) {{dim = %dim, keepdim = true}})))", on="f")
def exp_of_log_softmax(x: Value, dim: Any) -> Value | None:
    """Rewrite exp(log_softmax(x)) as a softmax: exponentials are at most 1, and their sum is at least 1."""
    make = REGISTRY
    powers = make["exp"](make["sub"](x, make["amax"](x, dim, True)))
    return make["mul"](powers, make["reciprocal"](make["sum"](powers, dim, True)))


def never_negative(value: Value, depth: int = 4) -> bool:
    """Whether no element is negative, -inf or -0.0, as far as the ops that compute the value prove it."""
    op = value.op
    if not value.dtype.is_float or op is None or depth == 0:
        return False  # an integer's square may be negative, and a complex number is neither
    number = splat_number(value)
    if number is not None:
        return math.copysign(1, float(number)) > 0  # type: ignore[arg-type]
    if op.defn.never_negative:
        return True
    if op.defn is mul and op.operands[0] is op.operands[1]:
        return True
    if op.defn.keeps_sign:
        return all(never_negative(operand, depth - 1) for operand in op.operands)
    return False


@rules.rule("where(true, %x, %y)", on=ANY)
def where_true(x: Value) -> Value | None:
    return x


@rules.rule("where(false, %x, %y)", on=ANY)
def where_false(y: Value) -> Value | None:
    return y


@rules.rule("where(%c, %x, %x)", on=ANY)
def where_same(x: Value) -> Value | None:
    return x


@rules.rule("where(logical_not(%c), %x, %y)", on=ANY)
def where_not(c: Value, x: Value, y: Value) -> Value | None:
    return REGISTRY["where"](c, y, x) if c.dtype.kind == "b" else None


# Casts -----------------------------------------------------------------------------------------------------


@rules.rule("cast(%x) {dtype = %dtype}", on=ANY)
def cast_to_same(x: Value, dtype: Any) -> Value | None:
    return x if x.dtype is dtype else None


@rules.rule("cast(cast(%x)) {dtype = %dtype}", on=ANY)
def cast_of_cast(x: Value, dtype: Any, op: Op) -> Value | None:
    between = op.operands[0].dtype
    return (
        REGISTRY["cast"](x, dtype) if holds_all(x.dtype, between) and not _saturates(x.dtype, between, dtype) else None
    )


def _saturates(source: DType, between: DType, dtype: DType) -> bool:
    """Whether a cast of an integer by way of a float may end at a limit of a type where a direct cast wraps."""
    if not source.is_integer or between.is_integer or not dtype.is_integer:
        return False
    made = i32 if dtype.bits < 32 else i64 if dtype is u32 else dtype  # of the float (kernels/scalar/reference.py)
    return source.bounds[0] < made.bounds[0] or source.bounds[1] > made.bounds[1]


# The bits of an integer's magnitude, and those that a float type has for it.
_MAGNITUDE = {"bool": 1, "u8": 8, "u16": 16, "u32": 32, "u64": 64, "i8": 7, "i16": 15, "i32": 31, "i64": 63}
_SIGNIFICAND = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53, "c64": 24, "c128": 53, "f8_e4m3fn": 4, "f8_e5m2": 3}


def holds_all(narrow: DType, wide: DType) -> bool:
    """Whether every value of one type is a value of the other."""
    if narrow is wide:
        return True
    if narrow.name in _MAGNITUDE:
        if wide.name in _SIGNIFICAND:
            # 2**15 is beyond the range of no float type; 2**16 is beyond f16.
            return _MAGNITUDE[narrow.name] <= _SIGNIFICAND[wide.name]
        signed = narrow.kind == "i" and wide.kind != "i"
        return not signed and _MAGNITUDE[narrow.name] <= _MAGNITUDE[wide.name]
    if wide.name in _MAGNITUDE or (narrow.is_complex and not wide.is_complex):
        return False
    return wide.real.bits > narrow.real.bits or wide.real is narrow.real


# Views -----------------------------------------------------------------------------------------------------


@rules.rule("alias(%x)", on=ANY)
def alias_is_itself(x: Value) -> Value | None:
    return x


@rules.rule("permute(%x) {dims = %dims}", on=ANY)
def permute_nothing(x: Value, dims: Any) -> Value | None:
    return x if dims == tuple(range(len(dims))) else None


@rules.rule("permute(permute(%x) {dims = %inner}) {dims = %outer}", on=ANY)
def permute_twice(x: Value, inner: Any, outer: Any) -> Value | None:
    return REGISTRY["permute"](x, tuple(inner[dim] for dim in outer))


@rules.rule("reshape(%x) {shape = %shape}", "expand(%x) {size = %shape}", on=ANY)
def same_shape(x: Value, shape: Any) -> Value | None:
    return x if x.shape == shape else None


@rules.rule("reshape(reshape(%x)) {shape = %shape}", on=ANY)
def reshape_twice(x: Value, shape: Any) -> Value | None:
    return REGISTRY["reshape"](x, shape)


@rules.rule("reshape(permute(%x) {dims = %dims}) {shape = %shape}", on=ANY)
def reshape_before_permute(x: Value, dims: Any, shape: Any) -> Value | None:
    """Move a reshape before a permute, if it regroups dims that are neighbours there: an alias, where it was a copy."""
    moved = tuple(x.shape[dim] for dim in dims)
    if unit_reshape(moved, shape) is not None or any(size == 0 for size in moved):
        return None
    wide = [dim for dim, size in enumerate(x.shape) if size != 1]
    groups = []  # the first dim of each group in x, and the sizes that the group becomes
    for olds, news in dim_groups(moved, shape):
        places = [wide.index(dims[position]) for position in olds]
        if places != list(range(places[0], places[0] + len(places))):
            return None
        groups.append((places[0], tuple(shape[position] for position in news)))
    order = sorted(range(len(groups)), key=lambda number: groups[number][0])
    inner = REGISTRY["reshape"](x, tuple(size for number in order for size in groups[number][1]))
    starts, start = {}, 0
    for number in order:
        starts[number] = start
        start += len(groups[number][1])
    outer = tuple(starts[number] + at for number, (_, sizes) in enumerate(groups) for at in range(len(sizes)))
    return REGISTRY["reshape"](REGISTRY["permute"](inner, outer), shape)


@rules.rule("expand(expand(%x)) {size = %size}", on=ANY)
def expand_twice(x: Value, size: Any) -> Value | None:
    return REGISTRY["expand"](x, size)


@rules.rule("slice(%x) {dim = %dim, start = 0, end = %end, step = 1}", on=ANY)
def slice_all(x: Value, dim: Any, end: Any) -> Value | None:
    return x if x.shape[dim] == end else None


@rules.rule(
    "slice(slice(%x) {dim = %dim, start = %first, step = %stride})"
    "{dim = %dim, start = %start, end = %end, step = %step}",
    on=ANY,
)
def slice_twice(x: Value, dim: Any, first: Any, stride: Any, start: Any, end: Any, step: Any) -> Value | None:
    if not all(isinstance(item, int) for item in (first, start, end)):
        return None
    count = -(-(end - start) // step)
    begin, jump = first + start * stride, stride * step
    stop = begin + (count - 1) * jump + 1 if count else begin
    return REGISTRY["slice"](x, dim, begin, stop, jump)


@rules.rule("slice(permute(%x) {dims = %dims}) {dim = %dim, start = %start, end = %end, step = %step}", on=ANY)
def slice_before_permute(x: Value, dims: Any, dim: Any, start: Any, end: Any, step: Any) -> Value | None:
    # One canonical order of the two, so that permutes meet permutes and slices meet slices.
    return REGISTRY["permute"](REGISTRY["slice"](x, dims[dim], start, end, step), dims)


@rules.rule("flip(permute(%x) {dims = %dims}) {dims = %flipped}", on=ANY)
def flip_before_permute(x: Value, dims: Any, flipped: Any) -> Value | None:
    return REGISTRY["permute"](REGISTRY["flip"](x, tuple(dims[dim] for dim in flipped)), dims)


@rules.rule("flip(%x) {dims = %dims}", on=ANY)
def flip_nothing(x: Value, dims: Any) -> Value | None:
    return x if all(x.shape[dim] == 1 for dim in dims) else None


@rules.rule("flip(flip(%x) {dims = %inner}) {dims = %outer}", on=ANY)
def flip_twice(x: Value, inner: Any, outer: Any) -> Value | None:
    return REGISTRY["flip"](x, tuple(sorted(set(inner) ^ set(outer))))


@rules.rule("cat(%tensors)", on=ANY)
def cat_one(tensors: Any) -> Value | None:
    return tensors[0] if len(tensors) == 1 else None


@rules.rule("constant_pad_nd(%x) {pad = %pad}", on=ANY)
def pad_nothing(x: Value, pad: Any) -> Value | None:
    return x if all(size == 0 for size in pad) else None


def trivial_reduction(op: Op, arguments: dict[str, Any]) -> Value | None:
    """Replace a reduction over no dims, or over dims of size 1, by its operand.

    A sum starts at 0.0, so the sum of one -0.0 is 0.0. A product starts at 1, which times a complex infinity has a NaN.
    """
    value, result = arguments["self"], op.results[0]
    kind: Reduce = op.defn.kind  # type: ignore[assignment]
    if not COMBINERS[kind.combiner].keeps_one or value.dtype is not result.dtype:
        return None
    if kind.combiner == "mul" and value.dtype.is_complex:
        return None
    if not all(value.shape[dim] == 1 for dim in arguments["dim"]):
        return None
    if value.shape != result.shape:
        value = REGISTRY["reshape"](value, result.shape)
    if kind.combiner == "add" and value.dtype.is_inexact:
        return REGISTRY["add"](value, constant(0.0, value.dtype))
    return value


@rules.rule("sum(where(%condition, %x, 0.0)) {dim = %dim}", on=ANY)
def sum_of_one_hot(condition: Value, x: Value, dim: Any, op: Op) -> Value | None:
    """Replace a sum along a dim, of values that are zero but where the index equals a label, by that one element.

    Gradients of losses by class labels are such values."""
    whole = op.arguments["self"].type
    if len(dim) != 1 or x.dtype is not op.results[0].dtype:
        return None
    (at,) = dim

    def size(value: Value) -> Dim:
        place = at - (len(whole.shape) - value.ndim)
        return 1 if place < 0 else value.shape[place]

    conditions, pending, label = [], [condition], None
    while pending:
        item = pending.pop()
        if item.op is not None and item.op.defn is logical_and and item.dtype.kind == "b" and size(item) != 1:
            pending.extend(item.op.operands)
            continue
        if item.op is not None and item.op.defn is eq and label is None:
            left, right = item.op.operands
            if right.op is not None and right.op.defn is iota:
                left, right = right, left
            if left.op is not None and left.op.defn is iota and size(right) == 1 and left.dtype is right.dtype:
                if left.op.arguments["dim"] - left.ndim == at - len(whole.shape) and size(left) == whole.shape[at]:
                    label = right
                    continue
        conditions.append(item)
    if label is None or any(size(item) != 1 for item in (*conditions, x)) or isinstance(whole.shape[at], Expr):
        return None
    # A label of 1.5 is within range but no index; in a type that is too narrow, indices repeat.
    if not label.dtype.is_integer or whole.shape[at] >> _MAGNITUDE[label.dtype.name]:
        return None
    make = REGISTRY
    chosen = make["logical_and"](make["ge"](label, 0), make["lt"](label, whole.shape[at]))
    for item in conditions:
        chosen = make["logical_and"](chosen, item)
    # A sum starts at 0.0, so it is never -0.0.
    total = make["add"](make["where"](chosen, x, constant(0.0, x.dtype)), constant(0.0, x.dtype))
    kept = [1 if place == at else extent for place, extent in enumerate(whole.shape)]
    return make["reshape"](make["expand"](total, kept), op.results[0].shape)


def move_views(graph: Graph) -> Graph:
    """Rewrite view(elementwise(a, b)) as elementwise(view(a), view(b)) if nothing else reads the viewed value.

    A reshape that a broadcast keeps from moving so moves after the elementwise ops that read it.
    A value counts as having one reader if the value that it replaces had one."""
    single = {value for value, users in graph.uses().items() if len(users) == 1}
    single.difference_update(graph.results)

    def visit(op: Op, arguments: dict[str, Any]) -> Value | None:
        if arguments is not op.arguments:
            for old, new in zip(op.operands, operands_of(op.defn, arguments), strict=True):
                if old in single:
                    single.add(new)
        kind = op.defn.kind
        if not (isinstance(kind, View) and kind.once):  # moving any other view would duplicate work
            return sunk(op, arguments, single) if isinstance(kind, Elementwise) else None
        source = arguments["self"]
        if not movable(source, single):
            return None
        if op.defn is reshape and not reshapes_well(source, single, LIMITS.depth):
            return None
        try:
            return moved(op, arguments, source, single, {}, LIMITS.depth)
        except UndecidedSize:
            return None  # it cannot be proved that views of the operands have the same sizes: the view stays

    return rebuild(graph, visit)


def movable(value: Value, single: set[Value]) -> bool:
    """Whether a view of this value can be taken of its operands instead."""
    op = value.op
    if op is None or not value.shape or value not in single or not isinstance(op.defn.kind, Elementwise):
        return False
    return all(operand.shape == value.shape or not operand.shape for operand in op.operands)


def reshapes_well(value: Value, single: set[Value], depth: int) -> bool:
    """Whether a reshape can move up to values that have memory of their own or are reshapes already.

    Anywhere else it would keep the ops on both sides of it from sharing a kernel."""
    level = {value}
    for _step in range(depth + 1):
        further: set[Value] = set()  # each value once: an op may read the same one twice
        for item in level:
            op = item.op
            if not item.shape or op is None or op.defn is reshape or isinstance(op.defn.kind, Contract):
                continue
            if not movable(item, single):
                return False
            further.update(op.operands)
        if not further:
            return True
        level = further
    return False


def sunk(op: Op, arguments: dict[str, Any], single: set[Value]) -> Value | None:
    """Rewrite elementwise(reshape(a), b) as reshape(elementwise(a, reshape(b))), if the reshape cannot move into a."""
    operands = [item for item in operands_of(op.defn, arguments) if item.shape]
    shape = op.results[0].shape
    if any(item.shape != shape for item in operands):
        return None
    for item in operands:
        if item.op is not None and item.op.defn is reshape:
            (source,) = item.op.operands
            kind = None if source.op is None else source.op.defn.kind
            if isinstance(kind, Elementwise) and not reshapes_well(source, single, LIMITS.depth):
                break
    else:
        return None
    inner: dict[str, Any] = {}
    for name, item in arguments.items():
        if not isinstance(item, Value) or not item.shape:
            inner[name] = item
        elif item.op is not None and item.op.defn is reshape and item.op.operands[0].shape == source.shape:
            inner[name] = item.op.operands[0]
        elif reshapes_well(item, single, LIMITS.depth):
            inner[name] = REGISTRY["reshape"](item, source.shape)
        else:
            return None
    return REGISTRY["reshape"](remake(op, inner)[0], shape)


def moved(
    view: Op,
    arguments: dict[str, Any],
    value: Value,
    single: set[Value],
    known: dict[Value, Value],
    depth: int,
) -> Value:
    """Return the view of a value, moved as near to the inputs as possible."""
    if value in known:
        return known[value]
    if not value.shape:
        result = value
    elif depth and movable(value, single):
        op: Op = value.op  # type: ignore[assignment]
        inner = {
            name: moved(view, arguments, item, single, known, depth - 1) if isinstance(item, Value) else item
            for name, item in op.arguments.items()
        }
        (result,) = remake(op, inner)
    else:
        (result,) = remake(view, arguments | {"self": value})
    known[value] = result
    return result
