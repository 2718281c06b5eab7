"""Spell element types in LLVM: in registers, in memory, as literals."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.types import DType

REGISTER = {
    "bool": "i1", "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64", "i8": "i8", "i16": "i16", "i32": "i32",
    "i64": "i64", "f32": "float", "f64": "double", "f8_e4m3fn": "i8", "f8_e5m2": "i8",
}  # fmt: skip
# f16 and bf16 are converted at loads and stores; a bool is a byte in memory.
MEMORY = REGISTER | {"bool": "i8", "f16": "i16", "bf16": "i16"}
SUFFIX = {
    "i1": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "float": "f32",
    "double": "f64",
}


@dataclass(frozen=True, slots=True)
class Lanes:
    """A value in registers: its type, its number of lanes (1: uniform), and its components (two for a complex).
    `stored`: the f16 or bf16 type that represents it exactly, and its bits in memory."""

    dtype: DType
    lanes: int
    parts: tuple[str, ...]
    stored: tuple[DType, str] | None = None

    @property
    def name(self) -> str:
        return self.parts[0]


def vector(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def register_type(dtype: DType, lanes: int) -> str:
    return vector(REGISTER[dtype.name], lanes)


def suffix(element: str, lanes: int) -> str:
    """Return the type suffix of an intrinsic's name: v16f32."""
    return SUFFIX[element] if lanes == 1 else f"v{lanes}{SUFFIX[element]}"


def literal(value: Any, dtype: DType) -> str:
    """Spell a number as an LLVM literal; floats by their bits, so that nothing is rounded."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        number = int(value) & ((1 << dtype.bits) - 1)
        return str(number - (1 << dtype.bits) if number >> (dtype.bits - 1) else number)
    if dtype.kind == "e":
        return str(int(np.asarray(value, np.float32).astype(dtype.numpy).view(np.int8)))
    real = _to_f32(float(value)) if dtype.bits == 32 else float(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', real))[0]:016X}"


def _to_f32(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def constant(value: Any, dtype: DType, lanes: int) -> str:
    text = literal(value, dtype)
    return text if lanes == 1 else f"splat ({REGISTER[dtype.name]} {text})"


def stored_literal(text: str, dtype: DType) -> str | None:
    """Return the f16 or bf16 bits that represent a literal of f32 exactly; None if there are none."""
    if not text.startswith("0x"):
        return None
    (number,) = struct.unpack("<d", struct.pack("<Q", int(text, 16)))
    if number != number:
        return None
    if dtype.name == "bf16":
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        return None if bits & 0xFFFF else str(bits >> 16)
    try:
        packed = struct.pack("<e", number)
    except OverflowError:
        return None
    return str(struct.unpack("<H", packed)[0]) if struct.unpack("<e", packed)[0] == number else None
