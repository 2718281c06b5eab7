"""What Numba has no name for: vector accesses to memory, sums that cannot overflow, division as the machine does it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.cuda.extending import intrinsic

WIDTHS = (2, 4, 8)
ALIGNED = 16  # bytes to a multiple of which buffers begin


def _element(kind: Any) -> Any:
    """The element type of what is indexed: a pointer, or a shared array."""
    return kind.dtype


def _place(context: Any, builder: Any, kind: Any, base: Any, index: Any, signed: bool, vector: ir.Type) -> Any:
    """The address of an element, as one of a vector."""
    if isinstance(kind, types.Array):
        base = cgutils.create_struct_proxy(kind)(context, builder, base).data
    if index.type.width < 64:
        index = (builder.sext if signed else builder.zext)(index, ir.IntType(64))
    place = builder.gep(base, [index], inbounds=True)
    space = getattr(base.type, "addrspace", 0)
    return builder.bitcast(place, ir.PointerType(vector, addrspace=space))


def _load(width: int) -> Any:
    def load(typing: Any, array: Any, index: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            element = context.get_data_type(_element(array))
            vector = ir.VectorType(element, width)
            place = _place(context, builder, array, arguments[0], arguments[1], index.signed, vector)
            loaded = builder.load(place, align=_alignment(element, width))
            parts = [builder.extract_element(loaded, ir.IntType(32)(lane)) for lane in range(width)]
            return cgutils.pack_array(builder, parts)

        return types.UniTuple(_element(array), width)(array, index), emit

    load.__name__ = f"load{width}"
    return intrinsic(load)


def _store(width: int) -> Any:
    def store(typing: Any, array: Any, index: Any, values: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            element = context.get_data_type(_element(array))
            vector = ir.VectorType(element, width)
            place = _place(context, builder, array, arguments[0], arguments[1], index.signed, vector)
            made = ir.Constant(vector, ir.Undefined)
            for lane, value in enumerate(cgutils.unpack_tuple(builder, arguments[2], width)):
                made = builder.insert_element(made, value, ir.IntType(32)(lane))
            builder.store(made, place, align=_alignment(element, width))
            return context.get_dummy_value()

        return types.void(array, index, types.UniTuple(_element(array), width)), emit

    store.__name__ = f"store{width}"
    return intrinsic(store)


def _alignment(element: ir.Type, width: int) -> int:
    """Bytes to a multiple of which vectors lie: memory is aligned to 16, and accesses of more would be two of them."""
    if isinstance(element, ir.IntType):
        size = max(element.width // 8, 1)
    else:
        size = {ir.HalfType: 2, ir.FloatType: 4, ir.DoubleType: 8}[type(element)]
    return min(width * size, ALIGNED)


def _sum32() -> Any:
    def sum32(typing: Any, *terms: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            total = None
            for term in cgutils.unpack_tuple(builder, arguments[0], len(terms)):
                part = builder.trunc(term, ir.IntType(32)) if term.type.width > 32 else term
                total = part if total is None else builder.add(total, part, flags=("nsw",))
            return total

        return types.int32(types.StarArgTuple(terms)), emit

    return intrinsic(sum32)


def _division(kind: str, remainder: bool) -> Any:
    def divide(typing: Any, left: Any, right: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return (builder.srem if remainder else builder.sdiv)(*arguments)

        target = getattr(types, kind)
        return target(target, target), emit

    divide.__name__ = f"{'remainder' if remainder else 'divide'}_{kind}"
    return intrinsic(divide)


def _extreme(name: str, better: str, modern: bool) -> Any:
    """The larger or the smaller of two numbers, or nan if one of them is: one instruction on modern GPUs, of f32."""

    def extreme(typing: Any, left: Any, right: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, b = arguments
            if modern and isinstance(a.type, ir.FloatType):
                kind = ir.FunctionType(a.type, [a.type, a.type])
                return builder.asm(kind, f"{name[:3]}.NaN.f32 $0, $1, $2;", "=f,f,f", [a, b], False)
            wins = builder.or_(builder.fcmp_ordered(better, a, b), builder.fcmp_unordered("uno", a, a))
            return builder.select(wins, a, b)

        return left(left, right), emit

    extreme.__name__ = name
    return intrinsic(extreme)


def intrinsics(modern: bool) -> dict[str, Any]:
    """By name. `modern`: for sm_80 and later."""
    found: dict[str, Any] = {
        "sum32": _sum32(),
        "maximum": _extreme("maximum", ">", modern),
        "minimum": _extreme("minimum", "<", modern),
    }
    for width in WIDTHS:
        found |= {f"load{width}": _load(width), f"store{width}": _store(width)}
    for kind in ("int32", "int64"):
        found |= {f"divide_{kind}": _division(kind, False), f"remainder_{kind}": _division(kind, True)}
    return found
