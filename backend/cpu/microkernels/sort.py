"""Sorting of one row: a function for each element type, direction and kind of result, written when it is called.

The elements become words, unsigned integers in the order wanted (kernels/sort.py). Short rows go through a bitonic
network of vector minima and maxima, longer ones through a radix sort from the lowest digit to the highest, which leaves
out digits that are equal in all words. The words are turned into places or elements again.

Words of elements alone do not tell -0.0 from 0.0, nor NaNs from each other: if the row has any of these, they are
copied again from the source in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir.record import Record
from ....ir.types import DType
from ....kernels.sort import SORTING, key_bits, word_bits
from ..abi import I1, I64, PTR
from ..llvm.types import vector
from ..llvm.values import Value
from ..llvm.writer import Function

ATTRIBUTES = "noinline #0"
MANTISSAS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


class SortTuning(Record):
    """Lengths of rows, in elements, by the way to sort them."""

    network: int = 2048  # words of a row, at most, that a bitonic network sorts
    selected: int = 512  # words at the front of the order, at most, that are selected from a longer row
    share: int = 8  # words of the row for each word of the selection's buffer, at least
    inserted: int = 24  # the same for words that vectors do not hold, by insertion


TUNING = SortTuning()


def called(dtype: DType, places: bool, descending: bool) -> str:
    """Return the name of a row's function."""
    return f"sort.{dtype}{'.places' if places else ''}{'.down' if descending else ''}"


def sort_texts(dtype: DType, places: bool, descending: bool, bits: int, declarations: set[str]) -> None:
    """Add the function of a row, and those that it calls, to the declarations of a module."""
    SortText(dtype, places, descending, bits, declarations).write()


def splat(kind: str, lanes: int, number: int) -> str:
    return str(number) if lanes == 1 else f"<{', '.join(f'{kind} {number}' for _ in range(lanes))}>"


class SortText:
    """Writer of one row's functions."""

    def __init__(self, dtype: DType, places: bool, descending: bool, bits: int, declarations: set[str]):
        self.dtype, self.places, self.descending = dtype, places, descending
        self.declarations = declarations
        self.vector_bits = bits
        self.key, self.bits = key_bits(dtype), word_bits(dtype, places)
        self.word, self.item = f"i{self.bits}", f"i{self.key}"
        self.shift = self.bits // 2 if places else 0  # of the key in a word
        self.lanes = min(bits // self.bits, 16) if self.bits in (32, 64) else 1
        self.step = self.lanes
        self.align = min(self.bits // 8, 8)
        self.name = called(dtype, places, descending)

    def write(self) -> None:
        self.declarations.add(self.row())

    def function(self, name: str, pointers: Sequence[str], numbers: Sequence[str], returns: object = None) -> Function:
        given = [*(("ptr", item) for item in pointers), *(("i64", item) for item in numbers)]
        return Function(name, given, ATTRIBUTES, returns)

    # Words.

    def mapped(self, f: Function, raw: str, lanes: int) -> tuple[str, str]:
        """Write the key of elements; return it, and the mask of elements whose key does not tell their bits."""
        kind, mask = vector(self.item, lanes), vector("i1", lanes)

        def const(number: int) -> str:
            return splat(self.item, lanes, number)

        sign, odd = -(1 << self.key - 1), ""
        if self.dtype.kind == "f":
            magnitude = f.op(f"and {kind} {raw}, {const(~sign)}")
            infinity = ~sign >> MANTISSAS[self.dtype.name] << MANTISSAS[self.dtype.name]
            nan = f.op(f"icmp ugt {kind} {magnitude}, {const(infinity)}")
            odd = f.op(f"or {mask} {nan}, {f.op(f'icmp eq {kind} {raw}, {const(sign)}')}")
            zero = f.op(f"icmp eq {kind} {magnitude}, {const(0)}")
            raw = f.op(f"select {mask} {zero}, {kind} {const(0)}, {kind} {raw}")
            flip = f.op(f"or {kind} {f.op(f'ashr {kind} {raw}, {const(self.key - 1)}')}, {const(sign)}")
            key = f.op(f"xor {kind} {raw}, {flip}")
            key = f.op(f"select {mask} {nan}, {kind} {const(-1)}, {kind} {key}")
        elif self.dtype.kind == "i":
            key = f.op(f"xor {kind} {raw}, {const(sign)}")
        else:
            key = raw
        return (f.op(f"xor {kind} {key}, {const(-1)}") if self.descending else key), odd

    def unmapped(self, f: Function, key: str, lanes: int) -> str:
        """Write the elements of keys."""
        kind, sign = vector(self.item, lanes), -(1 << self.key - 1)

        def const(number: int) -> str:
            return splat(self.item, lanes, number)

        if self.descending:
            key = f.op(f"xor {kind} {key}, {const(-1)}")
        if self.dtype.kind == "f":
            below = f.op(f"xor {kind} {f.op(f'ashr {kind} {key}, {const(self.key - 1)}')}, {const(-1)}")
            return f.op(f"xor {kind} {key}, {f.op(f'or {kind} {below}, {const(sign)}')}")
        return f.op(f"xor {kind} {key}, {const(sign)}") if self.dtype.kind == "i" else key

    def load(self, f: Function, pointer: str, place: str, lanes: int, item: str) -> str:
        align = min(int(item[1:]) // 8, 8)
        return f.op(f"load {vector(item, lanes)}, ptr {f.at(pointer, place, item)}, align {align}")

    def store(self, f: Function, value: str, pointer: str, place: str, lanes: int, item: str) -> None:
        align = min(int(item[1:]) // 8, 8)
        f.write(f"store {vector(item, lanes)} {value}, ptr {f.at(pointer, place, item)}, align {align}")

    def each(self, f: Function, stop: str, body: Callable[[str, int], None]) -> None:
        """Write a loop from 0 to stop, by vectors and then one by one."""
        whole = "0"
        if self.step > 1:
            whole = f.op(f"and i64 {stop}, {-self.step}")

            def several(at: str, _: list[str]) -> list[str]:
                body(at, self.step)
                return []

            f.loop(0, whole, self.step, several)

        def one(at: str, _: list[str]) -> list[str]:
            body(at, 1)
            return []

        f.loop(whole, stop, 1, one)

    def fill(self, f: Function, stop: str = "%length") -> str | None:
        """Write the words of the source; return where it is noted that keys do not tell all elements, if they may."""
        noted = None
        if self.dtype.kind == "f" and not self.places:
            f.locals.append("  %odd = alloca i8, align 1")
            noted = "%odd"
            f.write("store i8 0, ptr %odd")

        def words(at: str, lanes: int) -> None:
            raw = self.load(f, "%source", at, lanes, self.item)
            word, odd = self.mapped(f, raw, lanes)
            if self.places:
                word = self.packed(f, word, at, lanes)
            elif noted:
                mask = f.op(f"bitcast <{lanes} x i1> {odd} to i{lanes}") if lanes > 1 else odd
                some = f.op(f"icmp ne i{lanes} {mask}, 0") if lanes > 1 else odd
                with f.if_(Value(f, I1, some)):
                    f.write("store i8 1, ptr %odd")
            self.store(f, word, "%room", at, lanes, self.word)

        self.each(f, stop, words)
        return noted

    def packed(self, f: Function, key: str, first: str, lanes: int) -> str:
        """Write words of keys and their places, from `first` on."""
        kind = vector(self.word, lanes)
        word = f.op(f"zext {vector(self.item, lanes)} {key} to {kind}")
        word = f.op(f"shl {kind} {word}, {splat(self.word, lanes, self.shift)}")
        return f.op(f"or {kind} {word}, {self.numbers(f, first, lanes)}")

    def numbers(self, f: Function, first: str, lanes: int) -> str:
        """Write the places from `first` on, as words."""
        if self.bits == 128:
            return f.op(f"zext i64 {first} to i128")
        if lanes == 1:
            return first
        kind = f"<{lanes} x i64>"
        one = f.op(f"insertelement {kind} poison, i64 {first}, i64 0")
        all_ = f.op(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
        return f.op(f"add {kind} {all_}, <{', '.join(f'i64 {lane}' for lane in range(lanes))}>")

    # The row.

    def row(self) -> str:
        f = self.function(self.name, ("target", "source", "room"), ("length", "first", "kept"))
        f.return_if(Value(f, I1, f.compare("sle", "%kept", 0)))
        if self.places and self.lanes > 1:
            self.select_few(f)
        noted = self.fill(f)
        limit = TUNING.network if self.lanes > 1 else TUNING.inserted if self.bits == 128 else 0

        def by_digits() -> list[tuple[str, str]]:
            other = f.at("%room", "%length", self.word)
            words = f.op(f"udiv i64 {f.add(f.multiply('%length', 2 * self.bits), 63)}, 64")
            counters = f.at("%room", words, "i64")
            name = self.radix()
            return [("ptr", f.op(f"call ptr @{name}(ptr %room, ptr {other}, ptr {counters}, i64 %length)"))]

        def by_exchanges() -> list[tuple[str, str]]:
            if self.lanes > 1:
                f.write(f"call void @{self.network()}(ptr %room, i64 %length)")
            else:
                f.write(f"call void @{self.insertion()}(ptr %room, i64 %length)")
            return [("ptr", "%room")]

        if limit:
            (words,) = f.choose(f.compare("sle", "%length", limit), by_exchanges, by_digits)
        else:
            ((_, words),) = by_digits()

        self.unpack(f, words)
        if noted:
            found = f.op(f"load i8, ptr {noted}")
            with f.if_(Value(f, I1, f.op(f"icmp ne i8 {found}, 0"))):
                f.write(f"call void @{self.mend()}(ptr %target, ptr %source, i64 %length, i64 %first, i64 %kept)")
        return self.finish(f)

    def unpack(self, f: Function, words: str) -> None:
        """Write the target from sorted words."""
        words = f.at(words, "%first", self.word)

        def result(at: str, lanes: int) -> None:
            word = self.load(f, words, at, lanes, self.word)
            if not self.places:
                self.store(f, self.unmapped(f, word, lanes), "%target", at, lanes, self.item)
                return
            if self.bits == 128:
                word = f.op(f"trunc i128 {word} to i64")
            else:
                word = f.op(f"and {vector('i64', lanes)} {word}, {splat('i64', lanes, (1 << 32) - 1)}")
            self.store(f, word, "%target", at, lanes, "i64")

        self.each(f, "%kept", result)

    def select_few(self, f: Function) -> None:
        """Return after the selection of a few words from a long row."""
        end = f.add("%first", "%kept")
        size = self.buffer_size(f, end)
        few, long = f.compare("sle", end, TUNING.selected), f.compare("sle", f.multiply(size, TUNING.share), "%length")
        with f.if_(Value(f, I1, f.op(f"and i1 {few}, {long}"))):
            f.write(f"call void @{self.selection()}(ptr %source, ptr %room, i64 %length, i64 {end}, i64 {size})")
            self.unpack(f, "%room")
            f.return_()

    def buffer_size(self, f: Function, end: str) -> str:
        """Compute the words of a selection's buffer: a power of two of which at least half is free after each sort."""
        self.declarations |= {"declare i64 @llvm.ctlz.i64(i64, i1)", "declare i64 @llvm.smax.i64(i64, i64)"}
        most = f.op(f"call i64 @llvm.smax.i64(i64 {end}, i64 {2 * SORTING.spare})")
        zeros = f.op(f"call i64 @llvm.ctlz.i64(i64 {f.add(most, -1)}, i1 false)")
        return f.op(f"shl i64 2, {f.subtract(64, zeros)}")

    def selection(self) -> str:
        """Write the selection of the first words of the order: those that may be among them go to a buffer, which is
        sorted and cut off when it is full. Its last word is the limit for what follows."""
        f = Function(
            f"{self.name}.selection",
            [("ptr", "source"), ("ptr", "room"), ("i64", "length"), ("i64", "end"), ("i64", "size")],
            ATTRIBUTES,
        )
        lanes = min(self.vector_bits // self.key, 16)
        kind, mask = vector(self.item, lanes), f"<{lanes} x i1>"
        self.declarations.add(f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)")
        v = f.variables
        self.fill(f, "%size")
        v.count = Value(f, I64, "%size")
        v.limit = Value(f, self.item, "0")

        def shrink() -> None:
            f.write(f"call void @{self.network()}(ptr %room, i64 {v.count})")
            last = self.load(f, "%room", f.add("%end", -1), 1, self.word)
            v.limit = Value(f, self.item, f.op(f"trunc i64 {f.op(f'lshr i64 {last}, {self.shift}')} to {self.item}"))
            v.count = Value(f, I64, "%end")

        def append(place: str) -> None:
            key, _ = self.mapped(f, self.load(f, "%source", place, 1, self.item), 1)
            self.store(f, self.packed(f, key, place, 1), "%room", str(v.count), 1, self.word)
            v.count = v.count + 1

        def room_for(more: int) -> None:
            with f.if_(Value(f, I1, f.compare("sgt", f.add(str(v.count), more), "%size"))):
                shrink()

        shrink()
        rest = f.op(f"and i64 {f.subtract('%length', '%size')}, {-lanes}")
        whole = f.add("%size", rest)
        with f.for_(Value(f, I64, "%size"), Value(f, I64, whole), lanes) as at:
            keys, _ = self.mapped(f, self.load(f, "%source", str(at), lanes, self.item), lanes)
            one = f.op(f"insertelement {kind} poison, {self.item} {v.limit}, i64 0")
            limit = f.op(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
            hits = f.op(f"bitcast {mask} {f.op(f'icmp ult {kind} {keys}, {limit}')} to i{lanes}")
            with f.if_(Value(f, I1, f.op(f"icmp ne i{lanes} {hits}, 0"))):
                room_for(lanes)
                v.hits = Value(f, f"i{lanes}", hits)
                with f.while_(lambda: Value(f, I1, f.op(f"icmp ne i{lanes} {v.hits}, 0"))):
                    lane = f.op(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {v.hits}, i1 true)")
                    append(f.add(str(at), f.op(f"zext i{lanes} {lane} to i64")))
                    less = f.op(f"add i{lanes} {v.hits}, -1")
                    v.hits = Value(f, f"i{lanes}", f.op(f"and i{lanes} {v.hits}, {less}"))
                f.values.pop("hits")
        with f.for_(Value(f, I64, whole), Value(f, I64, "%length")) as at:
            key, _ = self.mapped(f, self.load(f, "%source", str(at), 1, self.item), 1)
            with f.if_(Value(f, I1, f.op(f"icmp ult {self.item} {key}, {v.limit}"))):
                room_for(1)
                append(str(at))
        shrink()
        self.declarations.add(self.finish(f))
        return f.name

    def finish(self, f: Function) -> str:
        self.declarations.update(routine.declaration for routine in f.called.values())
        return f.finish()

    def mend(self) -> str:
        """Write the zeros and NaNs of the source again, in their order."""
        f = self.function(f"{self.name}.mend", ("target", "source"), ("length", "first", "kept"))
        zero, nan = (1 << self.key - 1) - 1 if self.descending else -(1 << self.key - 1), 0 if self.descending else -1

        def count(at: str, carried: list[str]) -> list[str]:
            key, _ = self.mapped(f, self.load(f, "%source", at, 1, self.item), 1)
            less = [f.op(f"icmp ult {self.item} {key}, {number}") for number in (zero, nan)]
            return [f.add(total, f.op(f"zext i1 {item} to i64")) for total, item in zip(carried, less, strict=True)]

        # Places in the target; those before it are negative, unsigned too large.
        starts = f.loop(0, "%length", 1, count, [("i64", f.subtract(0, "%first"))] * 2)

        def copy(at: str, carried: list[str]) -> list[str]:
            raw = self.load(f, "%source", at, 1, self.item)
            key, _ = self.mapped(f, raw, 1)
            following: list[str] = []
            for place, number in zip(carried, (zero, nan), strict=True):
                same = f.op(f"icmp eq {self.item} {key}, {number}")
                fits = f.op(f"and i1 {same}, {f.compare('ult', place, '%kept')}")
                with f.if_(Value(f, I1, fits)):
                    self.store(f, raw, "%target", place, 1, self.item)
                following.append(f.add(place, f.op(f"zext i1 {same} to i64")))
            return following

        f.loop(0, "%length", 1, copy, list(zip(("i64", "i64"), starts, strict=True)))
        self.declarations.add(self.finish(f))
        return f.name

    # Ways to sort words.

    def radix(self) -> str:
        """Write the radix sort of words by their keys; it returns where the sorted words are."""
        digits, size = self.key // SORTING.digit, 1 << SORTING.digit
        f = self.function(f"sort.radix.{self.word}.{self.key}", ("words", "other", "counters"), ("length",), PTR)
        f.write(f"call void @llvm.memset.p0.i64(ptr %counters, i8 0, i64 {digits * size * 8}, i1 false)")
        self.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")

        def value(word: str, number: int) -> str:
            moved = (
                f.op(f"lshr {self.word} {word}, {self.shift + number * SORTING.digit}") if number + self.shift else word
            )
            masked = f.op(f"and {self.word} {moved}, {size - 1}") if self.bits > SORTING.digit else moved
            how = "trunc" if self.bits > 64 else "zext"
            return masked if self.bits == 64 else f.op(f"{how} {self.word} {masked} to i64")

        def count(at: str, _: list[str]) -> list[str]:
            word = self.load(f, "%words", at, 1, self.word)
            for number in range(digits):
                place = f.at("%counters", f.add(value(word, number), number * size), "i64")
                f.write(f"store i64 {f.add(f.op(f'load i64, ptr {place}'), 1)}, ptr {place}")
            return []

        f.loop(0, "%length", 1, count)
        here, there = "%words", "%other"
        for number in range(digits):
            counters = f.at("%counters", number * size, "i64")
            first = value(self.load(f, here, "0", 1, self.word), number)
            equal = f.compare("eq", self.load(f, counters, first, 1, "i64"), "%length")

            def keep(here: str = here, there: str = there) -> list[tuple[str, str]]:
                return [("ptr", here), ("ptr", there)]

            def deal(
                here: str = here, there: str = there, counters: str = counters, number: int = number
            ) -> list[tuple[str, str]]:
                def sum_up(at: str, carried: list[str]) -> list[str]:
                    found = self.load(f, counters, at, 1, "i64")
                    self.store(f, carried[0], counters, at, 1, "i64")
                    return [f.add(carried[0], found)]

                f.loop(0, size, 1, sum_up, [("i64", "0")])

                def move(at: str, _: list[str]) -> list[str]:
                    word = self.load(f, here, at, 1, self.word)
                    counter = f.at(counters, value(word, number), "i64")
                    place = f.op(f"load i64, ptr {counter}")
                    self.store(f, word, there, place, 1, self.word)
                    f.write(f"store i64 {f.add(place, 1)}, ptr {counter}")
                    return []

                f.loop(0, "%length", 1, move)
                return [("ptr", there), ("ptr", here)]

            here, there = f.choose(equal, keep, deal)
        f.return_(Value(f, PTR, here))
        self.declarations.add(self.finish(f))
        return f.name

    def insertion(self) -> str:
        """Write the insertion sort of words."""
        f = self.function(f"sort.insertion.{self.word}", ("words",), ("length",))

        def insert(at: str, _: list[str]) -> list[str]:
            word = self.load(f, "%words", at, 1, self.word)
            v = f.variables
            v.place = Value(f, I64, at)
            with f.while_(lambda: v.place > 0):
                before = f.add(str(v.place), -1)
                other = self.load(f, "%words", before, 1, self.word)
                f.break_if(Value(f, I1, f.op(f"icmp ult {self.word} {other}, {word}")))
                self.store(f, other, "%words", str(v.place), 1, self.word)
                v.place = Value(f, I64, before)
            self.store(f, word, "%words", str(v.place), 1, self.word)
            f.values.pop("place")
            return []

        f.loop(1, "%length", 1, insert)
        self.declarations.add(self.finish(f))
        return f.name

    def network(self) -> str:
        """Write the bitonic sort of words in place, padded with the largest word to a power of two.

        A block of `size` sorted words is made of its two halves: their mirrored elements are exchanged, then those
        `apart`, by halves. What is closer than a vector's lanes is exchanged in registers.
        """
        f = self.function(f"sort.network.{self.word}", ("words",), ("given",))
        lanes, kind = self.lanes, vector(self.word, self.lanes)
        names = {which: f"@llvm.u{which}.v{lanes}{self.word}" for which in ("min", "max")}
        self.declarations.update(f"declare {kind} {name}({kind}, {kind})" for name in names.values())
        self.declarations.add("declare i64 @llvm.ctlz.i64(i64, i1)")
        self.declarations.add("declare i64 @llvm.smax.i64(i64, i64)")

        def extreme(which: str, left: str, right: str) -> str:
            return f.op(f"call {kind} {names[which]}({kind} {left}, {kind} {right})")

        def shuffled(left: str, right: str, places: Sequence[int]) -> str:
            picked = ", ".join(f"i32 {place}" for place in places)
            return f.op(f"shufflevector {kind} {left}, {kind} {right}, <{lanes} x i32> <{picked}>")

        def exchanged(value: str, distance: int, upper: int) -> str:
            """Exchange the lanes n and n ^ distance; those with the bit `upper` become the larger ones."""
            other = shuffled(value, value, [lane ^ distance for lane in range(lanes)])
            low, high = extreme("min", value, other), extreme("max", value, other)
            return shuffled(low, high, [lane + lanes * bool(lane & upper) for lane in range(lanes)])

        def inside(value: str, apart: int) -> str:
            while apart:
                value = exchanged(value, apart, apart)
                apart //= 2
            return value

        zeros = f.op(f"call i64 @llvm.ctlz.i64(i64 {f.add('%given', -1)}, i1 false)")
        total = f.op(f"shl i64 1, {f.subtract(64, zeros)}")
        total = f.op(f"call i64 @llvm.smax.i64(i64 {total}, i64 {lanes})")

        def pad(at: str, _: list[str]) -> list[str]:
            self.store(f, "-1", "%words", at, 1, self.word)
            return []

        f.loop("%given", total, 1, pad)

        def vectors(change: Callable[[str], str]) -> None:
            def one(at: str, _: list[str]) -> list[str]:
                self.store(f, change(self.load(f, "%words", at, lanes, self.word)), "%words", at, lanes, self.word)
                return []

            f.loop(0, total, lanes, one)

        def sort_vector(value: str) -> str:
            size = 2
            while size <= lanes:
                value = inside(exchanged(value, size - 1, size // 2), size // 4)
                size *= 2
            return value

        vectors(sort_vector)
        pairs = f.op(f"lshr i64 {total}, 1")
        backwards = list(range(lanes))[::-1]

        def pair(half: str, partner: Callable[[str], str], mirrored: bool) -> None:
            negative = f.subtract(0, half)

            def one(number: str, _: list[str]) -> list[str]:
                first = f.add(number, f.op(f"and i64 {number}, {negative}"))
                second = partner(first)
                left, right = (self.load(f, "%words", at, lanes, self.word) for at in (first, second))
                if mirrored:
                    right = shuffled(right, right, backwards)
                low, high = extreme("min", left, right), extreme("max", left, right)
                if mirrored:
                    high = shuffled(high, high, backwards)
                self.store(f, low, "%words", first, lanes, self.word)
                self.store(f, high, "%words", second, lanes, self.word)
                return []

            f.loop(0, pairs, lanes, one)

        v = f.variables
        v.size = Value(f, I64, str(2 * lanes))
        with f.while_(lambda: v.size <= Value(f, I64, total)):
            far = f.add(str(v.size), -lanes)
            pair(f.op(f"lshr i64 {v.size}, 1"), lambda first: f.op(f"xor i64 {first}, {far}"), True)
            v.apart = Value(f, I64, f.op(f"lshr i64 {v.size}, 2"))
            with f.while_(lambda: v.apart >= lanes):
                apart = str(v.apart)
                pair(apart, lambda first: f.add(first, apart), False)
                v.apart = Value(f, I64, f.op(f"lshr i64 {apart}, 1"))
            f.values.pop("apart")
            vectors(lambda value: inside(value, lanes // 2))
            v.size = Value(f, I64, f.op(f"shl i64 {v.size}, 1"))
        self.declarations.add(self.finish(f))
        return f.name
