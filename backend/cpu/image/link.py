"""Link LLVM's objects to one image (image.py): lay out their sections and resolve their relocations.

PC-relative relocations between sections do not depend on the image's address and are resolved here, once. Absolute
addresses are left for the loader. They are in LLVM's own tables, or in a table at the end of the image (as an ELF GOT),
through which code reaches functions of the process: these may be out of range of a relative branch.

Objects are ELF, on every system (target.py). A relocation that code of kernels does not need is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ....ir.errors import CompileError
from ....kernels.machine import CACHE_LINE
from .image import WORD, encode

# Records and constants of ELF.
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_CONSTANT = ".data.rel.ro"  # tables of addresses: only the loader writes to them


class Kind(IntEnum):
    """Types of sections."""

    SYMBOLS = 2
    RELOCATIONS = 4


class Flag(IntEnum):
    """Flags of sections."""

    WRITE = 1
    ALLOCATE = 2
    EXECUTE = 4


class Binding(IntEnum):
    """Bindings of symbols."""

    LOCAL = 0  # visible only in its own object


class Section(NamedTuple):
    name: str
    kind: int
    flags: int
    place: int
    size: int
    link: int
    info: int
    alignment: int


class Object:
    """A parsed object file of LLVM's."""

    def __init__(self, content: bytes):
        self.content = content
        (self.machine,) = struct.unpack_from("<H", content, 18)
        (table,) = struct.unpack_from("<Q", content, 40)
        size, count, names = struct.unpack_from("<HHH", content, 58)
        rows = [_SECTION.unpack_from(content, table + number * size) for number in range(count)]
        self.sections = [
            Section(self._text(rows[names][4] + name), kind, flags, place, length, link, info, alignment)
            for name, kind, flags, _, place, length, link, info, alignment, _ in rows
        ]
        self.bases: dict[int, int] = {}  # offset of each placed section in the image
        self.symbols: list[tuple[str, int | None]] = []  # name, and offset in the image if defined in this object

    def _text(self, place: int) -> str:
        return self.content[place : self.content.index(b"\0", place)].decode()

    def data(self, section: Section) -> bytes:
        return self.content[section.place : section.place + section.size]

    def placed(self) -> dict[str, int]:
        """Resolve the symbols, after all sections are placed; return those that other objects see."""
        seen: dict[str, int] = {}
        for table in self.sections:
            if table.kind != Kind.SYMBOLS:
                continue
            names = self.sections[table.link].place
            for at, info, _, section, value, _ in _SYMBOL.iter_unpack(self.data(table)):
                name, base = self._text(names + at), self.bases.get(section)
                place = None if base is None else base + value
                self.symbols.append((name, place))
                if place is not None and info >> 4 != Binding.LOCAL:
                    seen[name] = place
        return seen


class Linker:
    """The image under construction."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.image = bytearray()
        self.symbols: dict[str, int] = {}  # global ones
        self.inside: list[int] = []
        self.outside: dict[str, list[int]] = {}
        self.entries: dict[tuple[str, int | None], int] = {}  # offsets of words in the address table
        self.ways: dict[str, int] = {}  # offsets of stubs that jump to functions of the process

    def place(self, item: Object) -> None:
        for number, section in enumerate(item.sections):
            if not section.flags & Flag.ALLOCATE or not section.size:
                continue
            if section.flags & Flag.WRITE and not section.name.startswith(_CONSTANT):
                raise CompileError(f"compiled code has a writable section ({section.name})")
            # Code is aligned to cache lines, so that its speed does not depend on the code before it.
            self.align(CACHE_LINE if section.flags & Flag.EXECUTE else section.alignment)
            item.bases[number] = len(self.image)
            self.image += item.data(section)

    def align(self, alignment: int) -> None:
        self.image += bytes(-len(self.image) % max(alignment, 1))

    def relocate(self, item: Object) -> None:
        for section in item.sections:
            base = item.bases.get(section.info)
            if section.kind != Kind.RELOCATIONS or base is None:
                continue
            for offset, info, addend in _RELOCATION.iter_unpack(item.data(section)):
                name, value = item.symbols[info >> 32]
                target = self.symbols.get(name) if value is None else value
                self.machine.relocate(self, info & 0xFFFFFFFF, base + offset, name, target, addend)

    def absolute(self, place: int, name: str, target: int | None, addend: int = 0) -> None:
        """Write a word with an absolute address: relocated by the loader, inside or outside of the image."""
        if target is None:
            if addend:
                raise CompileError(f"compiled code refers to {name}, outside of the image, with an addend")
            self.outside.setdefault(name, []).append(place)
        else:
            WORD.pack_into(self.image, place, target + addend)
            self.inside.append(place)

    def entry(self, name: str, target: int | None) -> int:
        """Return the offset of the table's word with an address; add it if it is missing."""
        key = name, target
        if key not in self.entries:
            self.align(WORD.size)
            self.entries[key] = len(self.image)
            self.image += bytes(WORD.size)
            self.absolute(self.entries[key], name, target)
        return self.entries[key]

    def function(self, name: str, target: int | None) -> int:
        """Return the target of a call: the function itself, or a stub that jumps to one of the process."""
        if target is not None:
            return target
        if name not in self.ways:
            entry = self.entry(name, None)
            self.align(16)
            self.ways[name] = len(self.image)
            self.image += self.machine.way(self.ways[name], entry)
        return self.ways[name]

    def near(self, name: str, target: int | None) -> int:
        if target is None:
            raise CompileError(f"compiled code has a PC-relative relocation to {name}, which is not in the image")
        return target


class Machine:
    """A processor's relocations. Image offsets serve as addresses, since the image is page-aligned."""

    def way(self, place: int, entry: int) -> bytes:
        raise NotImplementedError

    def relocate(self, to: Linker, kind: int, place: int, name: str, target: int | None, addend: int) -> None:
        raise NotImplementedError


class X86(Machine):
    def way(self, place: int, entry: int) -> bytes:
        return b"\xff\x25" + struct.pack("<i", entry - place - 6)  # jmp *entry(%rip)

    def relocate(self, to: Linker, kind: int, place: int, name: str, target: int | None, addend: int) -> None:
        match kind:
            case 1:  # R_X86_64_64
                to.absolute(place, name, target, addend)
            case 2:  # PC32
                struct.pack_into("<i", to.image, place, to.near(name, target) + addend - place)
            case 4:  # PLT32
                struct.pack_into("<i", to.image, place, to.function(name, target) + addend - place)
            case 9 | 41 | 42:  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
                struct.pack_into("<i", to.image, place, to.entry(name, target) + addend - place)
            case 24:  # PC64
                struct.pack_into("<q", to.image, place, to.near(name, target) + addend - place)
            case _:
                raise CompileError(f"compiled code has an unsupported relocation {kind}")


class Arm(Machine):
    """AArch64."""

    SCALES = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # ADD, LDST8 to LDST128: log2 of the offset's unit

    def way(self, place: int, entry: int) -> bytes:
        code = bytearray(struct.pack("<III", 0x90000010, 0xF9400210, 0xD61F0200))  # adrp x16; ldr x16, [x16]; br x16
        _page(code, 0, place, entry)
        _offset(code, 4, entry, 3)
        return bytes(code)

    def relocate(self, to: Linker, kind: int, place: int, name: str, target: int | None, addend: int) -> None:
        match kind:
            case 257:  # R_AARCH64_ABS64
                to.absolute(place, name, target, addend)
            case 260:  # PREL64
                struct.pack_into("<q", to.image, place, to.near(name, target) + addend - place)
            case 261:  # PREL32
                struct.pack_into("<i", to.image, place, to.near(name, target) + addend - place)
            case 275:  # ADR_PREL_PG_HI21
                _page(to.image, place, place, to.near(name, target) + addend)
            case 277 | 278 | 284 | 285 | 286 | 299:
                _offset(to.image, place, to.near(name, target) + addend, self.SCALES[kind])
            case 282 | 283:  # JUMP26, CALL26
                _fill(to.image, place, (to.function(name, target) + addend - place) >> 2, 0, 26)
            case 311:  # ADR_GOT_PAGE
                _page(to.image, place, place, to.entry(name, target))
            case 312:  # LD64_GOT_LO12_NC
                _offset(to.image, place, to.entry(name, target), 3)
            case _:
                raise CompileError(f"compiled code has an unsupported relocation {kind}")


def _fill(code: bytearray, place: int, value: int, bit: int, count: int) -> None:
    """Set a bit field of an instruction."""
    (word,) = struct.unpack_from("<I", code, place)
    mask = (1 << count) - 1
    struct.pack_into("<I", code, place, word & ~(mask << bit) | (value & mask) << bit)


def _page(code: bytearray, at: int, place: int, target: int) -> None:
    """Relocate an instruction that takes the page of an address (ADRP)."""
    pages = (target >> 12) - (place >> 12)
    _fill(code, at, pages, 29, 2)
    _fill(code, at, pages >> 2, 5, 19)


def _offset(code: bytearray, at: int, target: int, scale: int) -> None:
    """Relocate an instruction that adds the offset in the page, in units of 1 << scale bytes."""
    _fill(code, at, (target & 0xFFF) >> scale, 10, 12)


MACHINES: dict[int, Any] = {62: X86, 183: Arm}  # by ELF's number


def link(objects: Sequence[bytes]) -> bytes:
    """Link objects to one image."""
    items = [Object(content) for content in objects]
    for machine in {item.machine for item in items} - set(MACHINES):
        raise CompileError(f"compiled code is for an unsupported machine (ELF's {machine})")
    linker = Linker(MACHINES[items[0].machine]())
    for item in items:
        linker.place(item)
        linker.symbols |= item.placed()
    for item in items:
        linker.relocate(item)
    return encode(linker.image, linker.symbols, linker.inside, linker.outside)
