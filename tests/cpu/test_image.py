"""Objects linked to images, and images in memory."""

from __future__ import annotations

import ctypes
import gc
import json
import struct
from collections.abc import Sequence
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from smelt.backend.cpu.host import Processor
from smelt.backend.cpu.image.image import Image, encode
from smelt.backend.cpu.image.link import link
from smelt.backend.cpu.llvm.engine import Engine, engine
from smelt.backend.cpu.llvm.parts import Part
from smelt.ir.errors import CompileError


def image_of(*texts: str) -> Image:
    code = engine().object_code([Part(text, plain=True) for text in texts])
    return Image(code)


def call(image: Image, name: str, *numbers: int) -> int:
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(numbers))
    return int(kind(image[name])(*numbers))


def test_parts_reach_each_other_by_calls_addresses_and_constants() -> None:
    first = """
@primes = constant [4 x i64] [i64 2, i64 3, i64 5, i64 7]
@functions = constant [2 x ptr] [ptr @twice, ptr @other]
declare i64 @other(i64)
define internal i64 @twice(i64 %x) noinline {
  %y = mul i64 %x, 2
  ret i64 %y
}
define i64 @both(i64 %which, i64 %x) {
  %at = getelementptr ptr, ptr @functions, i64 %which
  %function = load ptr, ptr %at
  %y = call i64 %function(i64 %x)
  %z = call i64 @other(i64 %y)
  ret i64 %z
}
"""
    second = """
@primes = external constant [4 x i64]
define internal i64 @twice(i64 %x) noinline {
  %y = add i64 %x, 1000
  ret i64 %y
}
define i64 @other(i64 %x) {
  %index = and i64 %x, 3
  %at = getelementptr i64, ptr @primes, i64 %index
  %prime = load i64, ptr %at
  %y = call i64 @twice(i64 %prime)
  ret i64 %y
}
"""
    image = image_of(first, second)
    assert call(image, "both", 0, 9) == 1005  # 18 & 3 is 2: that prime, by the second part's own function
    assert call(image, "both", 1, 1) == 1007
    table = (ctypes.c_int64 * 4).from_address(image["primes"])
    assert list(table) == [2, 3, 5, 7]
    with pytest.raises(KeyError):
        image["twice"]


def test_functions_of_the_process_by_calls_and_addresses() -> None:
    text = """
declare i64 @labs(i64)
declare i64 @PyTuple_Size(ptr)
@kept = constant ptr @labs
define i64 @distance(i64 %a, i64 %b) {
  %c = sub i64 %a, %b
  %d = call i64 @labs(i64 %c)
  ret i64 %d
}
define ptr @address() {
  ret ptr @labs
}
define i64 @size(ptr %tuple) {
  %count = tail call i64 @PyTuple_Size(ptr %tuple)
  ret i64 %count
}
"""
    image = image_of(text)
    labs = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value
    assert call(image, "distance", 3, 10) == 7
    assert call(image, "address") == labs == ctypes.c_int64.from_address(image["kept"]).value
    assert call(image, "size", id((1, 2, 3))) == 3


def test_what_nobody_has_is_an_error() -> None:
    with pytest.raises(CompileError, match="nobody_has_this"):
        image_of("declare void @nobody_has_this()\ndefine void @f() {\n  call void @nobody_has_this()\n  ret void\n}")


def test_variables_are_an_error() -> None:
    for text in ("@count = global i64 0", "@count = global i64 5"):
        with pytest.raises(CompileError, match="writable section"):
            image_of(f"{text}\ndefine ptr @f() {{\n  ret ptr @count\n}}")


def mapping(address: int) -> str:
    """What the system lets this process do at an address; nothing where there is no memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        if start <= address < end:
            return line.split()[1]
    return ""


def test_code_cannot_be_written_and_goes_with_its_image() -> None:
    image = image_of("define i64 @f() {\n  ret i64 5\n}")
    address = image["f"]
    assert address % 64 == 0
    assert mapping(address) == "r-xp"
    del image
    gc.collect()
    assert mapping(address) in ("", "rw-p")  # or someone else's by now


def test_an_image_has_its_bytes_and_words() -> None:
    data = struct.pack("<4Q", 7, 16, 0, 99)
    image = Image(encode(data, {"all": 0, "last": 24}, [8], {"labs": [16]}))
    words = (ctypes.c_uint64 * 4).from_address(image["all"])
    labs = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value
    assert list(words) == [7, image["all"] + 16, labs, 99]
    assert image["last"] == image["all"] + 24


# ----- other processors


def arm_objects(texts: Sequence[str]) -> list[bytes]:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    arm = Engine(Processor("aarch64-unknown-linux-gnu", "generic", "+neon", ""))
    return [arm.emit(Part(text, plain=False)) for text in texts]


def page(word: int, place: int) -> int:
    """What adrp has for a result."""
    pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    return (place & ~0xFFF) + (pages << 12)


def test_arm_code_points_to_what_it_should() -> None:
    """Without such a processor: the addresses that its instructions make are put together by hand."""
    first = """
declare i64 @other(i64)
declare i64 @getpid()
@numbers = external constant [5 x i64]
define i64 @start(i64 %x) {
  %a = call i64 @other(i64 %x)
  %p = call i64 @getpid()
  %b = add i64 %a, %p
  %at = getelementptr i64, ptr @numbers, i64 2
  %c = load i64, ptr %at
  %d = add i64 %b, %c
  ret i64 %d
}
"""
    second = """
@numbers = constant [5 x i64] [i64 10, i64 20, i64 30, i64 40, i64 50]
@table = constant [1 x ptr] [ptr @other]
define i64 @other(i64 %x) {
  ret i64 %x
}
"""
    code = link(arm_objects([first, second]))
    head, _, data = code.partition(b"\n")
    facts = json.loads(head)
    symbols = facts["symbols"]
    calls, loads = [], []
    pages: dict[int, int] = {}  # by register
    for place in range(symbols["start"], len(data), 4):
        (word,) = struct.unpack_from("<I", data, place)
        first_register, second_register = word & 31, word >> 5 & 31
        if word >> 26 == 0b100101:  # bl
            calls.append(place + 4 * ((word & 0x3FFFFFF) - ((word & 0x2000000) << 1)))
        elif word & 0x9F000000 == 0x90000000:  # adrp
            pages[first_register] = page(word, place)
        elif word >> 22 == 0b1111100101 and second_register in pages:  # ldr of 64 bits
            loads.append(pages.pop(second_register) + (word >> 10 & 0xFFF) * 8)
        elif word == 0xD65F03C0:  # ret
            break
    assert calls[0] == symbols["other"]
    (entry,) = facts["outside"]["getpid"]
    way = struct.unpack_from("<3I", data, calls[1])
    assert way[0] & 0x9F00001F == 0x90000010 and way[2] == 0xD61F0200  # adrp x16 ... br x16
    assert page(way[0], calls[1]) + (way[1] >> 10 & 0xFFF) * 8 == entry
    assert symbols["table"] in facts["inside"]
    assert struct.unpack_from("<Q", data, symbols["table"]) == (symbols["other"],)
    (found,) = loads
    assert found in facts["inside"] and struct.unpack_from("<Q", data, found) == (symbols["numbers"],)
