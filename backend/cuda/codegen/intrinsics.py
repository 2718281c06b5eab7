"""Intrinsics that Numba lacks: vector accesses to memory, sums that cannot overflow, machine instructions."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.cuda.extending import intrinsic

from .launch import ALIGN

WIDTHS = (2, 4, 8)


def _element(kind: Any) -> Any:
    """Return the element type of an indexed object: a pointer, or a shared array."""
    return kind.dtype


def _place(context: Any, builder: Any, kind: Any, base: Any, index: Any, signed: bool, moved: ir.Type) -> Any:
    """Compute the address of an element as a pointer to the type that is moved."""
    if isinstance(kind, types.Array):
        base = cgutils.create_struct_proxy(kind)(context, builder, base).data
    if index.type.width < 64:
        index = (builder.sext if signed else builder.zext)(index, ir.IntType(64))
    place = builder.gep(base, [index], inbounds=True)
    space = getattr(base.type, "addrspace", 0)
    return builder.bitcast(place, ir.PointerType(moved, addrspace=space))


def _words(context: Any, kind: Any, width: int) -> tuple[ir.Type, ir.VectorType, int]:
    """Return the type of an element, the type that moves `width` of them at a time, and its alignment in bytes.

    Small elements are moved as words: some compilers split a vector of them into several accesses. Some also split a
    vector larger than 16 bytes, and others make one access of it that is not aligned: memory is aligned to 16 bytes.
    """
    element = context.get_data_type(_element(kind))
    if isinstance(element, ir.IntType):
        size = max(element.width // 8, 1)
    else:
        size = {ir.HalfType: 2, ir.FloatType: 4, ir.DoubleType: 8}[type(element)]
    whole = size * width
    word, count = (element, width) if size >= 4 else (ir.IntType(min(32, 8 * whole)), max(whole // 4, 1))
    return element, ir.VectorType(word, count), min(whole, ALIGN)


def _joined(builder: Any, parts: Any) -> Any:
    """Build a vector of numbers."""
    made = ir.Constant(ir.VectorType(parts[0].type, len(parts)), ir.Undefined)
    for at, part in enumerate(parts):
        made = builder.insert_element(made, part, ir.IntType(32)(at))
    return made


def _unpacked(builder: Any, word: Any, element: ir.Type, count: int) -> list[Any]:
    """Unpack the elements of a word, from the lowest bits on."""
    if isinstance(element, ir.HalfType):
        halves = builder.bitcast(word, ir.VectorType(element, count))
        return [builder.extract_element(halves, ir.IntType(32)(at)) for at in range(count)]
    return [builder.trunc(builder.lshr(word, word.type(element.width * at)), element) for at in range(count)]


def _packed(builder: Any, parts: Any, word: ir.Type) -> Any:
    """Pack elements into a word: two by a vector, which compilers know for halves; more by shifts."""
    if len(parts) == 2:
        return builder.bitcast(_joined(builder, parts), word)
    made = word(0)
    for at, part in enumerate(parts):
        made = builder.or_(made, builder.shl(builder.zext(part, word), word(part.type.width * at)))
    return made


def _load(name: str, width: int) -> Any:
    """Make the intrinsic that loads contiguous elements. `fetch` is for memory that the kernel does not write
    (invariant.load): the compiler may move it before stores."""

    def load(typing: Any, array: Any, index: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            element, moved, alignment = _words(context, array, width)
            place = _place(context, builder, array, arguments[0], arguments[1], index.signed, moved)
            loaded = builder.load(place, align=alignment)
            if name == "fetch":
                loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
            parts = [builder.extract_element(loaded, ir.IntType(32)(at)) for at in range(moved.count)]
            if moved.element != element:
                parts = [part for word in parts for part in _unpacked(builder, word, element, width // moved.count)]
            return cgutils.pack_array(builder, parts) if width > 1 else parts[0]

        result = types.UniTuple(_element(array), width) if width > 1 else _element(array)
        return result(array, index), emit

    load.__name__ = f"{name}{width}"
    return intrinsic(load)


def _store(width: int) -> Any:
    def store(typing: Any, array: Any, index: Any, values: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            element, moved, alignment = _words(context, array, width)
            place = _place(context, builder, array, arguments[0], arguments[1], index.signed, moved)
            parts = cgutils.unpack_tuple(builder, arguments[2], width)
            if moved.element != element:
                each = width // moved.count
                parts = [_packed(builder, parts[at : at + each], moved.element) for at in range(0, width, each)]
            builder.store(_joined(builder, parts), place, align=alignment)
            return context.get_dummy_value()

        return types.void(array, index, types.UniTuple(_element(array), width)), emit

    store.__name__ = f"store{width}"
    return intrinsic(store)


def _to_bf16(modern: bool) -> Any:
    """Round to the bits of the nearest bf16, by an instruction of modern GPUs."""

    def to_bf16(typing: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            (number,) = arguments
            half, word = ir.IntType(16), ir.IntType(32)
            if modern:
                kind = ir.FunctionType(half, [number.type])
                return builder.asm(kind, "cvt.rn.bf16.f32 $0, $1;", "=h,f", [number], False)
            bits = builder.bitcast(number, word)
            odd = builder.and_(builder.lshr(bits, word(16)), word(1))
            rounded = builder.add(bits, builder.add(odd, word(0x7FFF)))
            is_nan = builder.fcmp_unordered("uno", number, number)
            chosen = builder.select(is_nan, builder.or_(bits, word(0x400000)), rounded)
            return builder.trunc(builder.lshr(chosen, word(16)), half)

        return types.uint16(types.float32), emit

    return intrinsic(to_bf16)


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
            sign = "u" if kind[0] == "u" else "s"
            return getattr(builder, sign + ("rem" if remainder else "div"))(*arguments)

        target = getattr(types, kind)
        return target(target, target), emit

    divide.__name__ = f"{'remainder' if remainder else 'divide'}_{kind}"
    return intrinsic(divide)


def _extreme(name: str, better: str, modern: bool) -> Any:
    """Make the intrinsic for the maximum or minimum that propagates nan: one instruction of modern GPUs, of f32."""

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
    """Return the intrinsics by name. modern: those for sm_80 and later."""
    found: dict[str, Any] = {
        "sum32": _sum32(),
        "to_bf16": _to_bf16(modern),
        "maximum": _extreme("maximum", ">", modern),
        "minimum": _extreme("minimum", "<", modern),
    }
    for width in WIDTHS:
        found |= {f"load{width}": _load("load", width), f"store{width}": _store(width)}
    for width in (1, *WIDTHS):
        found[f"fetch{width}"] = _load("fetch", width)
    for kind in ("int32", "int64", "uint32", "uint64"):
        found |= {f"divide_{kind}": _division(kind, False), f"remainder_{kind}": _division(kind, True)}
    return found
