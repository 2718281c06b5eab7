"""Make native entries: built-in functions that check the arguments of a call and make it, one for each set of types.

An entry takes the tuple and the dict of a call's arguments and checks them against the guards of a compiled version:
the same nesting of tuples, lists and dicts, plain arrays of the same types and shapes, numbers of the same kinds, equal
static arguments (mutable ones are compared in Python). If all match, it makes the results, runs the kernels without the
GIL and builds the output; otherwise, or while another thread is inside, it returns NotImplemented, and Python handles
the call.

It relies on the layout of CPython's and NumPy's objects; `native_code` verifies that by inspecting objects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.record import Record
from ...process.process_wide import Once
from ...pytree import Structure, count_leaves, unflatten
from ...static_args import is_fixed, is_known_by_value, static_key
from ..abi import Problem
from ..runtime import records
from ..runtime.allocator import allocator, numpy_functions
from ..runtime.records import ALLOCATOR, HAS_ENTRY, ArrayGuard, ArrayObject, Descriptor, Guard, Object, Plan, Result
from ..runtime.runtime import runtime
from ..runtime.threads import pool
from .executable import MEMORY, Frame, Launcher

_FASTCALL = 0x80
# Python numbers without an element type of their own; a bool has one.
_NUMBERS = {int: records.INT_NUMBER, float: records.FLOAT_NUMBER}

_NO_DTYPE = -1  # facts of no dtype: the guard takes only a number


class Unsupported(Exception):
    """Raised for a call that only Python can make."""


class Words:
    """64-bit words for native code, and references to the objects whose addresses are among them."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.objects: list[Any] = []

    def add(self, record: ctypes.Structure, *numbers: int) -> None:
        self.words += records.words(record)
        self.words += numbers

    def object(self, kind: int, item: Any) -> None:
        self.add(Guard(kind, self.address(item)))

    def key(self, item: Any) -> None:
        self.words.append(self.address(item))

    def address(self, item: Any) -> int:
        self.objects.append(item)
        return id(item)

    def array(self) -> np.ndarray:
        return np.array(self.words, np.int64)


class Holder(np.ndarray):
    """An array whose data is an entry's plan; it holds references to all objects that the plan points to."""

    kept: list[Any]


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("summary", ctypes.c_char_p),
    ]


class Entry(Record):
    """A native function of (args, kwargs), and the pool that its frame was made for."""

    enter: Callable[[tuple[Any, ...], dict[str, Any]], Any]
    workers: int
    pool_address: int

    def outdated(self) -> bool:
        """Whether the pool now has more threads than the frame has memory for, or this is a forked process."""
        threads = pool()
        return self.pool_address != threads.address or self.workers < threads.limit


class Call:
    """The arguments of a call: their nesting, which of them are static, and the leaves with the arrays made of them.
    names: the names of kwargs in the order of the leaves."""

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: Sequence[str],
        static_numbers: frozenset[int],
        static_names: frozenset[str],
        leaves: Sequence[Any],
        arrays: Sequence[np.ndarray],
    ):
        self.args, self.kwargs, self.names = args, kwargs, names
        self.static_numbers, self.static_names = static_numbers, static_names
        self.leaves, self.arrays = leaves, arrays
        self.asked: list[tuple[Any, Any, int]] = []  # static arguments by position or name, their keys and hashes

    def guards(self, first_slot: int) -> Words:
        self.words, self.number, self.first_slot = Words(), 0, first_slot
        self.words.add(Guard(records.IS_TUPLE, len(self.args)))
        for number, item in enumerate(self.args):
            self._static(number, item) if number in self.static_numbers else self._moving(item)
        self.words.add(Guard(records.IS_DICT, len(self.kwargs)))
        begin = len(self.words.words)
        guards: dict[str, list[int]] = {}
        for name in self.names:
            self._key(name)
            item = self.kwargs[name]
            self._static(name, item) if name in self.static_names else self._moving(item)
            guards[name] = self.words.words[begin:]
            del self.words.words[begin:]
        for name in self.kwargs:  # native code compares them in the call's order
            self.words.words += guards[name]
        if self.number != len(self.leaves):
            raise Unsupported
        return self.words

    def _static(self, place: int | str, item: Any) -> None:
        if is_known_by_value(item) or is_fixed(item):
            self.words.object(records.IS_EQUAL if is_known_by_value(item) else records.IS_SAME, item)
        else:  # mutable, or with an __eq__ of its own: compared in Python
            self.words.add(Guard(records.IS_ANYTHING))
            key = static_key(item)
            self.asked.append((place, key, hash(key)))

    def still_equal(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the static arguments that native code does not compare are equal to this call's."""
        for place, expected, expected_hash in self.asked:
            try:
                key = static_key(args[place] if type(place) is int else kwargs[place])
                if hash(key) != expected_hash or key != expected:
                    return False
            except (IndexError, KeyError, TypeError):
                return False
        return True

    def _moving(self, item: Any) -> None:
        if item is None:
            self.words.object(records.IS_SAME, item)
        elif type(item) in (tuple, list):
            self.words.add(Guard(records.IS_TUPLE if type(item) is tuple else records.IS_LIST, len(item)))
            for member in item:
                self._moving(member)
        elif type(item) is dict:
            self.words.add(Guard(records.IS_DICT, len(item)))
            for key, member in item.items():
                self._key(key)
                self._moving(member)
        else:
            self._leaf(item)

    def _key(self, key: Any) -> None:
        if type(key) is not str:
            raise Unsupported  # comparing it may run user code
        self.words.key(key)

    def _leaf(self, item: Any) -> None:
        if type(item) not in (np.ndarray, bool, int, float) or self.leaves[self.number] is not item:
            raise Unsupported
        array = self.arrays[self.number]
        if type(item) is np.ndarray and array is not item:
            raise Unsupported  # it has another memory order, or was copied
        guard = ArrayGuard(records.IS_ARRAY, self.first_slot + self.number, _dtype_facts(array.dtype), array.ndim)
        if type(item) in _NUMBERS:
            guard.dtype, guard.number = _NO_DTYPE, _NUMBERS[type(item)]
        elif not array.ndim and array.dtype == np.bool_:
            guard.number = records.BOOL_NUMBER
        if guard.number != records.NO_NUMBER:
            number = records.StandIn()  # native code finds the number as the data of this array
            number.array.data = ctypes.addressof(number) + records.StandIn.number.offset
            guard.stand_in = ctypes.addressof(number)
            self.words.objects.append(number)
        self.words.add(guard, *array.shape)
        self.number += 1


def make_entry(
    launcher: Launcher,
    call: Call,
    draw_seed: Callable[[], np.ndarray] | None,
    structure: Structure,
    fixed: dict[int, Any],
) -> Entry | None:
    """Make the native entry for calls like this one; None if only Python can make them.

    draw_seed: returns the seed state of a call. structure: the pytree of the output, whose leaves in `fixed` are
    constants, not results.
    """
    method = native_code()
    own = allocator()
    sized, call_plan = launcher.plan, launcher.plan.plan
    if method is None or call_plan.copies:
        return None
    stored_bytes = sized.stored_bytes()
    if own is None and any(size >= ALLOCATOR.middle for size in stored_bytes):
        return None
    first = launcher.executable.first_param
    try:
        guards = call.guards(first)
    except Unsupported:
        return None
    output, whole = _output(structure, fixed, list(map(call_plan.owners.index, range(len(call_plan.results)))))
    threads = pool()
    frame = Frame(launcher.executable)
    frame.prepare(launcher, threads)
    needed = launcher.memory_bytes(frame.workers)
    borrows = own is not None and needed > MEMORY.kept
    if not borrows:
        frame.give_memory(launcher, np.empty(needed, np.uint8))
    constants = call_plan.constants
    for number, array in enumerate(constants):
        frame.block[first + call_plan.given + number] = id(array)
    held = (ctypes.c_void_p * (len(call.leaves) + 2))()

    def complain() -> None:
        found = Problem.from_buffer_copy(frame.problem)
        frame.problem.found = 0
        launcher.executable.raise_noted(found)

    results = Words()
    for (_, dtype), size, (shape, strides) in zip(sized.stored, stored_bytes, sized.layouts(), strict=True):
        results.add(Result(len(shape), results.address(dtype), size), *shape, *strides)
    lists = [words.array() for words in (guards, results, output)]
    holder = np.zeros(ctypes.sizeof(Plan), np.uint8).view(Holder)
    holder.kept = [launcher, frame, held, constants, draw_seed, complain, own, threads, lists]
    holder.kept += [words.objects for words in (guards, results, output)]
    plan = Plan.from_buffer(holder.data)
    plan.context, plan.run = frame.address, ctypes.cast(launcher.run, ctypes.c_void_p)
    plan.pool_at = ctypes.addressof(threads.current)
    plan.guards, plan.results, plan.output = (words.__array_interface__["data"][0] for words in lists)
    plan.result_count, plan.first_result = len(sized.stored), launcher.executable.first_stored
    plan.held, plan.problem, plan.on_error = ctypes.addressof(held), ctypes.addressof(frame.problem), id(complain)
    if draw_seed is not None:
        plan.seed, plan.seed_slot = id(draw_seed), first + call_plan.given + len(constants)
    if borrows:
        plan.borrowed = needed
    plan.arena_bytes = launcher.arena_bytes
    if own is not None:
        plan.state, plan.handler = ctypes.addressof(own.state), id(own.handler)
        plan.allocate, plan.release = own.allocate, own.release
    plan.numpy = numpy_functions()
    plan.otherwise, plan.true = id(NotImplemented), id(True)
    plan.ndarray, plan.float, plan.int = id(np.ndarray), id(float), id(int)
    plan.tuple, plan.list, plan.dict = id(tuple), id(list), id(dict)
    enter = _built_in(holder, method)

    def enter_and_finish(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not call.still_equal(args, kwargs):
            return NotImplemented
        leaves = enter(args, kwargs)
        return leaves if whole or leaves is NotImplemented else unflatten(structure, leaves)

    return Entry(enter if whole and not call.asked else enter_and_finish, frame.workers, threads.address)


class _Leaf:
    def __init__(self, number: int):
        self.number = number


def _output(structure: Structure, fixed: dict[int, Any], order: Sequence[int]) -> tuple[Words, bool]:
    """Make the records that build the output, and whether they are complete: other containers are left to Python."""
    made = iter(order)
    leaves: list[Any] = [fixed.get(at, _Leaf) for at in range(count_leaves(structure))]
    leaves = [_Leaf(next(made)) if leaf is _Leaf else leaf for leaf in leaves]
    try:
        words = Words()
        _put(words, unflatten(structure, leaves))
        return words, True
    except Unsupported:
        words = Words()
        _put(words, leaves)
        return words, False


def _put(words: Words, item: Any) -> None:
    if isinstance(item, _Leaf):
        words.add(Guard(records.PUT_RESULT, item.number))
    elif type(item) in (tuple, list):
        words.add(Guard(records.PUT_TUPLE if type(item) is tuple else records.PUT_LIST, len(item)))
        for member in item:
            _put(words, member)
    elif type(item) is dict:
        words.add(Guard(records.PUT_DICT, len(item)))
        for key, member in item.items():
            if type(key) not in (str, int):
                raise Unsupported  # hashing it may run user code, and raise
            words.key(key)
            _put(words, member)
    elif item is None or isinstance(item, (bool, int, float, complex, str)):
        words.object(records.PUT_OBJECT, item)
    else:
        raise Unsupported


def _dtype_facts(dtype: np.dtype) -> int:
    """Return a dtype's kind, byte order and number as one integer, the same for all objects of equal dtypes."""
    return Descriptor.from_address(id(dtype)).facts & records.FACTS


def _make_code() -> _Method | None:
    if not (HAS_ENTRY and numpy_functions() and _layout_known()):
        return None
    method = _Method(b"call", runtime()["enter"], _FASTCALL, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))  # built-in functions may outlive this module
    return method


native_code = Once("native entry", _make_code)  # None if the layout of objects is not as expected


def _layout_known() -> bool:
    """Whether the fields of objects have the offsets of records.py."""
    probe = np.zeros((3, 5), np.float32)
    across = probe.T
    array, turned = ArrayObject.from_address(id(probe)), ArrayObject.from_address(id(across))
    described = [
        facts >> 32 == kind.num and chr(facts >> 16 & 0xFF) == kind.byteorder
        for kind in (np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.float64).newbyteorder("S"))
        if (facts := Descriptor.from_address(id(kind)).facts)
    ]
    return (
        array.type == id(np.ndarray)
        and Object.from_address(id(1.5)).type == id(float)
        and array.rank == 2
        and tuple((ctypes.c_int64 * 2).from_address(array.sizes.value)) == (3, 5)
        and array.descriptor.value == id(probe.dtype)
        and array.flags & records.PLAIN == records.PLAIN
        and turned.flags & records.PLAIN == records.PLAIN & ~1
        and described == [True] * 3
        and _handler_known()
    )


def _handler_known() -> bool:
    """Whether an array's memory handler has the expected offset."""
    own = allocator()
    if own is None:
        return True
    probe = own.empty([((ALLOCATOR.middle,), np.dtype(np.uint8))])[0]
    return bool(ArrayObject.from_address(id(probe)).handler == id(own.handler))


def _built_in(plan: Holder, method: _Method) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., Any] = make(ctypes.addressof(method), plan, None)
    return function
