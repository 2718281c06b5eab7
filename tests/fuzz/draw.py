"""Draws programs: op calls whose arguments follow from the annotations of the registry's schemas.

PyTorch decides what is a call: arguments are drawn until its function of the same name takes them. An op that is
added to the registry is drawn without further work, if its parameters have annotations that are known here.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import torch
from smelt.ir.errors import SmeltError
from smelt.ir.graph import Array, Value
from smelt.ir.types import DTYPES, TensorType
from smelt.ops.define import REGISTRY
from smelt.ops.opdef import OpDef
from smelt.ops.parameters import REQUIRED, Parameter
from support import TORCH_DTYPES, flatten, to_torch

from . import faults
from .habits import Habits
from .oracle import inexact
from .program import Program, Ref, Step, Type, call, functions, references, renumber, substitute

MOST_ELEMENTS = 2**13
DIFFERENTIABLE = (torch.float32, torch.float64)
MOST_LONG_ELEMENTS = 2**20
# A call on fewer elements, with sizes of a smaller product, is made; a larger one runs without data first.
FEW_OPERANDS, FEW_SIZES = 512, 4096
TRIES = 30
MOST_RESULTS = 64  # of a call: each later one looks at all values
STEPS = 16
NUMBERS = (0, 1, -1, 2, 3, 0.5, -0.5, 0.1, 1.5, 2.0, 1e-3, 10, 100.0, True)
# Python numbers that few types hold: beyond f16, beyond u8, with more digits than f32 has.
MOST_F64 = 1e150  # the largest f64 element: products of two are in range
RARE_NUMBERS = (65536.0, 300, -7, 1 / 3, math.pi, 1e-8, 70000, float("inf"), float("nan"), -0.0)

SORTED = ("sorted_sequence", "boundaries")  # operands that must be in order
# Parameters that are left at their defaults: no other argument is likely to be right.
FIXED = {"sorter": "a permutation that sorts", "indexing": "PyTorch warns", "memory_format": "no text of an op has it"}
CONVERTING = ("type", "scatter", "copy", "put", "fill")  # parts of the names of ops that make one type of another
# Parameters of one value. Other modes of cdist are a product of matrices, which cancels.
CHOSEN = {"compute_mode": 2}

# Ops that are not drawn, by the reason. Neither are those with a random stream, and those whose counterpart in PyTorch
# trusts its operands and reads beyond them if they are wrong: backward, native and private forms. They are reached by
# differentiation, and by torch.compile.
LEFT_OUT = {
    "empty": "contents of memory", "empty_like": "contents of memory", "new_empty": "contents of memory",
    "empty_strided": "contents of memory", "new_empty_strided": "contents of memory",
    "as_strided": "the result depends on the operand's strides, which programs here do not fix",
    "as_strided_copy": "the result depends on the operand's strides, which programs here do not fix",
    "as_strided_scatter": "the result depends on the operand's strides, which programs here do not fix",
    "captured": "made by tracing", "constant": "made by tracing", "extent": "made by tracing",
}  # fmt: skip


def drawable() -> list[OpDef]:
    """The ops that programs are made of."""
    found = []
    for name, defn in REGISTRY.items():
        unsafe = "backward" in name or "unsafe" in name or name.startswith(("_", "native_"))
        if not (unsafe or name in LEFT_OUT or defn.takes_stream) and functions(name):
            found.append(defn)
    return found


class Finding(Exception):
    """Something that smelt does wrong."""


class Drawer:
    """Draws one program. The seed decides everything.

    mode: how it is to be differentiated, if it is. numpy: one of a function of NumPy arrays, in which integers become
    f64. most: elements of a value."""

    def __init__(
        self,
        seed: int,
        ops: Sequence[OpDef] | None = None,
        mode: str | None = None,
        numpy: bool = False,
        most: int | None = None,
    ):
        self.random = random.Random(seed)
        self.ops = ops or drawable()
        self.smooth, self.numpy = mode is not None, numpy
        self.excuses = (faults.UNDEFINED, *(faults.MODES[mode] if mode is not None else ()))
        self.program = Program()
        self.values: list[Any] = []
        self.input_numbers: list[int] = []
        self.refused: Counter[str] = Counter()  # calls that PyTorch takes and smelt does not
        self.typed: Counter[str] = Counter()  # calls whose results have another type or shape in PyTorch
        self.differentiable: set[int] = set()  # floats that depend on an f32 or f64 input
        self.habits = Habits(self.random, self.ops, self.smooth, most is not None)
        self.most = most or (MOST_LONG_ELEMENTS if self.habits.long else MOST_ELEMENTS)

    def coin(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def draw(self) -> Program:
        wanted = self.random.randint(1, STEPS)
        for _ in range(self.random.randint(1, 2)):
            self.input(self.shape(), self.habits.element)
        for _ in range(wanted * 3):
            if len(self.program.steps) >= wanted and self.made():
                break
            if self.program.steps and self.coin(0.15):
                known = self.random.choice(self.program.steps)
                self.step(REGISTRY[known.op], known)
            else:
                self.step(self.habits.op())
        if made := self.made():
            chosen = {made[-1], *self.random.sample(made, min(len(made), self.random.randint(0, 3)))}
            if self.coin(0.85):  # all that was drawn is computed
                read = {number for step in self.program.steps for number in references(tuple(step.arguments.values()))}
                chosen |= set(made) - read
            self.program.results = sorted(chosen)
        return self.renumbered()

    def made(self) -> list[int]:
        """The values that may be results: of a program to differentiate, those with a derivative."""
        made = [at for at, item in enumerate(self.values) if isinstance(item, torch.Tensor)]
        if self.smooth:
            made = [at for at in made if at in self.differentiable and self.values[at].dtype in DIFFERENTIABLE]
        return [at for at in made if at not in set(self.input_numbers)]

    def renumbered(self) -> Program:
        """Inputs first: they were numbered among the results when they were drawn."""
        program = self.program
        order = [*self.input_numbers, *(at for at in range(len(self.values)) if at not in set(self.input_numbers))]
        numbers = {old: new for new, old in enumerate(order)}
        values = [Ref(numbers[at]) for at in range(len(self.values))]
        steps = [
            replace(item, arguments={name: renumber(value, values) for name, value in item.arguments.items()})
            for item in program.steps
        ]
        return Program(program.inputs, steps, program.counts, [numbers[item] for item in program.results]).needed()

    # Values

    def shape(self, dims: int | None = None) -> tuple[int, ...]:
        count = self.habits.count() if dims is None else dims
        return self.limited(self.habits.size() for _ in range(count))

    def limited(self, shape: Iterable[int]) -> tuple[int, ...]:
        """A shape with 1 in place of sizes that make too many elements."""
        found: list[int] = []
        for size in shape:
            found.append(size if math.prod(max(other, 1) for other in (*found, size)) <= self.most else 1)
        return tuple(found)

    def input(self, shape: Sequence[int], name: str, below: int | None = None) -> Ref:
        array = self.array(tuple(shape), name, below)
        self.input_numbers.append(len(self.values))
        self.program.inputs.append(array)
        self.values.append(to_torch(array))
        if self.values[-1].dtype in DIFFERENTIABLE:
            self.differentiable.add(len(self.values) - 1)
        return Ref(len(self.values) - 1)

    def array(self, shape: tuple[int, ...], name: str, below: int | None = None) -> np.ndarray:
        element = DTYPES[name]
        source = np.random.default_rng(self.random.getrandbits(32))
        if element.kind == "b":
            return np.asarray(source.random(shape) < 0.5)
        if element.kind in "iu":
            low, high = element.bounds
            if below is not None:
                low, high = (-below if self.coin(0.2) and element.kind == "i" else 0), max(below - 1, 0)
            elif element.bytes > 1 and not self.habits.special and not self.habits.decades or self.coin():
                low, high = max(low, -5), 5
            return source.integers(low, high, shape, endpoint=True).astype(element.numpy)
        real = self.floats(source, shape)
        if element.kind == "c":
            return np.asarray(real + 1j * self.floats(source, shape)).astype(element.numpy)
        info = ml_dtypes.finfo(element.numpy)
        # Nothing wider than f64 says whether a sum of products overflows in one order only.
        most = float(info.max) if name != "f64" else MOST_F64
        array = np.asarray(np.clip(real, -most, most)).astype(element.numpy)
        if self.habits.special and array.size:
            rare = [-0.0, 0.0, most, -most, float(info.tiny) / 4, -float(info.tiny)]
            rare += [math.nan, math.inf, -math.inf] if self.habits.special == "any" else []
            for place in source.integers(0, array.size, 1 + array.size // 8):
                array.flat[place] = self.random.choice(rare)
        return array

    def floats(self, source: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        kind = self.random.randrange(4)
        if kind == 0:
            return source.integers(-4, 4, shape, endpoint=True).astype(np.float64)
        if kind == 1:
            return source.uniform(0.05, 0.95, shape)
        found = source.standard_normal(shape) * self.random.choice((0.5, 1.0, 3.0, 30.0 if kind == 3 else 1.0))
        if self.habits.decades and self.coin(0.6):
            found = found * 10 ** self.random.uniform(-self.habits.decades, self.habits.decades)
        return found

    def existing(self, test: Any = None) -> Ref | None:
        found = [
            at for at, item in enumerate(self.values) if isinstance(item, torch.Tensor) and (test is None or test(item))
        ]
        if not found:
            return None
        return Ref(self.random.choice(found[len(found) // 2 :] if self.coin() else found))

    # Arguments

    def step(self, defn: OpDef, like: Step | None = None) -> None:
        """Add a call of an op: a new one, or one that differs from an earlier one in one argument."""
        known = len(self.values), len(self.program.inputs), len(self.program.steps)
        for _ in range(TRIES):
            try:
                arguments = self.arguments(defn) if like is None else self.varied(defn, like)
            except LookupError:
                return  # an annotation that nothing here knows
            for step in self.spellings(defn, arguments):
                versions = [getattr(item, "_version", 0) for item in self.values]
                try:
                    with torch.no_grad():
                        if not self.has_room(step):
                            break
                        results = call(step, self.values)
                except Exception:
                    continue
                if versions != [getattr(item, "_version", 0) for item in self.values]:
                    return  # running statistics, which PyTorch changes in place
                if self.fits(results) and self.accepted(step, results) and self.defined(step, results):
                    self.add(step, results)
                    return
                break
            del self.values[known[0] :], self.program.inputs[known[1] :], self.program.steps[known[2] :]
            del self.program.counts[known[2] :]
            self.input_numbers = [number for number in self.input_numbers if number < known[0]]
            self.differentiable = {number for number in self.differentiable if number < known[0]}

    def spellings(self, defn: OpDef, arguments: dict[str, Any]) -> list[Step]:
        """The ways to call PyTorch, which takes one or none of them."""
        steps = [Step(defn.name, path, arguments) for path in functions(defn.name)]
        operands = [self.values[number] for number in references(tuple(arguments.values()))]
        if self.numpy and any(isinstance(item, torch.Tensor) and not inexact(item) for item in operands):
            steps += [replace(step, floats=True) for step in steps]
        return steps

    def add(self, step: Step, results: list[Any]) -> None:
        self.program.steps.append(step)
        self.program.counts.append(len(results))
        if self.differentiable & set(references(tuple(step.arguments.values()))):
            self.differentiable |= {
                len(self.values) + at
                for at, item in enumerate(results)
                if isinstance(item, torch.Tensor) and item.is_floating_point()
            }
        self.values.extend(item.detach().clone() if isinstance(item, torch.Tensor) else item for item in results)

    def has_room(self, step: Step) -> bool:
        """Whether the results are small enough to be made; known of most ops without making them."""
        operands = [self.values[number] for number in references(tuple(step.arguments.values()))]
        operands = [item for item in operands if isinstance(item, torch.Tensor)]
        elements = sum(item.numel() for item in operands)
        if elements > FEW_OPERANDS and broadcast(operands) > MOST_LONG_ELEMENTS:
            return False  # a loss may be one number
        if elements <= FEW_OPERANDS and math.prod(map(abs, integers(tuple(step.arguments.values())))) <= FEW_SIZES:
            return True
        try:
            return self.fits(call(step, [on_meta(item) for item in self.values]))
        except Exception:
            return not self.habits.long

    def fits(self, results: list[Any]) -> bool:
        tensors = [item for item in results if isinstance(item, torch.Tensor)]
        return 0 < len(tensors) <= MOST_RESULTS and all(
            math.prod(max(size, 1) for size in item.shape) <= self.most and item.dtype in TORCH_DTYPES.values()
            for item in tensors
        )

    def defined(self, step: Step, results: list[Any]) -> bool:
        """Not so where floats become integers that do not hold them: every processor has its own answer."""
        operands = [self.values[number] for number in references(tuple(step.arguments.values()))]
        operands = [item for item in operands if isinstance(item, torch.Tensor)]
        if self.smooth and not all(bool(item.isfinite().all()) for item in results if isinstance(item, torch.Tensor)):
            return False  # every library has rules of its own beside infinities and NaN
        if any(step.op in table and table[step.op](operands, step.arguments) for table in self.excuses):
            return False
        if self.smooth and not self.has_finite_slopes(step):
            return False
        if all(item.dtype.is_floating_point or item.dtype is torch.bool for item in results):
            return True
        converts = any(isinstance(item, Type) for item in step.arguments.values())
        if not converts and not any(word in step.op for word in CONVERTING):
            return True
        return all(bool((item.abs() < 100).all()) for item in operands if item.is_floating_point())

    def has_finite_slopes(self, step: Step) -> bool:
        """Whether the derivatives of a step's results by its operands are finite, as far as PyTorch has them."""
        values = [
            item.detach().clone().requires_grad_()
            if isinstance(item, torch.Tensor) and item.is_floating_point()
            else item
            for item in self.values
        ]
        leaves = [values[number] for number in references(tuple(step.arguments.values()))]
        leaves = [item for item in leaves if isinstance(item, torch.Tensor) and item.requires_grad]
        try:
            results = [item for item in call(step, values) if isinstance(item, torch.Tensor) and item.requires_grad]
            found = torch.autograd.grad([item.sum() for item in results], leaves, allow_unused=True) if results else ()
            finite = [item is None or bool(item.to_dense().isfinite().all()) for item in found]
        except Exception:  # PyTorch has no derivative
            return False
        return all(finite)

    def accepted(self, step: Step, results: list[Any]) -> bool:
        """Whether smelt takes the call, too, and infers the same types."""
        names = {found: name for name, found in TORCH_DTYPES.items()}
        values: list[Any] = list(self.values)
        for at, item in enumerate(values):
            if isinstance(item, torch.Tensor):
                value = Value(TensorType(DTYPES[names[item.dtype]], tuple(item.shape)))
                values[at] = Array(value) if self.numpy else value
            elif self.numpy and isinstance(item, (int, float)):
                values[at] = Array(Value(TensorType(DTYPES["i64" if type(item) is int else "f64"], ())), type(item))
        arguments = {name: substitute(item, values, DTYPES.get) for name, item in step.arguments.items()}
        try:
            made = flatten(REGISTRY[step.op](**arguments))
        except SmeltError as error:
            self.refused[f"{step.op}: {error.message}"] += 1
            return False
        except Exception as error:
            shown = {name: getattr(value, "type", value) for name, value in arguments.items()}
            raise Finding(f"{step!r} with {shown}: {type(error).__name__}: {error}") from error
        got = [(item.dtype.name, tuple(item.shape)) for item in made]
        want = [(names[item.dtype], tuple(item.shape)) for item in results if isinstance(item, torch.Tensor)]
        if got != want:
            operands = [getattr(value, "type", value) for value in arguments.values()]
            self.typed[f"{step!r} of {operands}: {got}, PyTorch has {want}"] += 1
        return got == want

    def arguments(self, defn: OpDef) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.first: torch.Tensor | None = None
        for parameter in defn.parameters:
            optional = parameter.default is not REQUIRED
            if parameter.name in CHOSEN:
                found[parameter.name] = CHOSEN[parameter.name]
                continue
            if parameter.name in FIXED or optional and self.coin(self.habits.defaults):
                continue
            value = self.argument(defn, parameter)
            if value is None and optional:
                continue
            found[parameter.name] = value
            if self.first is None and isinstance(value, Ref) and isinstance(self.values[value.number], torch.Tensor):
                self.first = self.values[value.number]
        return found

    def varied(self, defn: OpDef, like: Step) -> dict[str, Any]:
        """The arguments of a call but for one."""
        operands = [self.values[number] for number in references(tuple(like.arguments.values()))]
        self.first = next((item for item in operands if isinstance(item, torch.Tensor)), None)
        given = [item for item in defn.parameters if item.name in like.arguments and item.name not in CHOSEN]
        if not given:
            raise LookupError
        parameter = self.random.choice(given)
        value = self.argument(defn, parameter)
        if value is None:
            raise LookupError
        return like.arguments | {parameter.name: value}

    def argument(self, defn: OpDef, parameter: Parameter) -> Any:
        annotation = parameter.annotation
        if parameter.is_list:
            count = self.random.choice((1, 2, 2, 3, 4))
            return tuple(
                None if "None" in annotation and self.coin(0.25) else self.tensor(defn, parameter) for _ in range(count)
            )
        if parameter.is_tensor:
            promotes = defn.kind is not None and defn.kind.promotes and self.first is not None
            if self.coin(0.4 if parameter.scalars else 0.25 if promotes else 0.0):
                return self.number_or_input()
            return self.tensor(defn, parameter)
        if defn.name == "mvlgamma" and parameter.name == "p":  # PyTorch's takes p times the memory
            return self.random.randint(1, 5)
        if parameter.name == "eps" and self.coin(0.9):  # below 0 it makes NaN of most norms
            return abs(self.random.choice(NUMBERS))
        for name, draw in DRAWS.items():
            if annotation.split(" | ")[0] == name:
                return draw(self, parameter)
        raise LookupError(annotation)

    def number(self) -> Any:
        return self.random.choice(RARE_NUMBERS if self.coin(0.5 if self.habits.decades else 0.2) else NUMBERS)

    def setting(self) -> Any:
        """A number that says what an op does, an order or a slope: none of these is NaN."""
        number = self.number()
        return 1 if isinstance(number, float) and math.isnan(number) else number

    def number_or_input(self) -> Any:
        """A Python number: written down in the program, or an argument of it."""
        number = self.number()
        if isinstance(number, bool) or self.coin(0.7):
            return number
        self.input_numbers.append(len(self.values))
        self.program.inputs.append(number)
        self.values.append(number)
        return Ref(len(self.values) - 1)

    def tensor(self, defn: OpDef, parameter: Parameter) -> Ref:
        """An operand: a value that is there, a new input, or a number that fills a tensor."""
        takes = sorted(name for name in defn.takes if name in TORCH_DTYPES)
        indexes = "ind" in parameter.name or parameter.name in ("target", "sorter")
        first = self.first
        if parameter.name in SORTED:
            ref = self.input(self.shape(1) if first is None or self.coin(0.7) else first.shape, self.habits.element)
            array = self.program.inputs[-1]
            if array.dtype.kind not in "biu":  # NaN last, for bf16 too
                array[...] = np.sort(array.astype(np.float64), axis=-1).astype(array.dtype)
            else:
                array.sort(axis=-1)
            self.values[ref.number] = to_torch(array)
            return ref
        if not indexes:
            wanted = self.existing(lambda item: self.alike(item, first))
            if wanted is not None and self.coin(self.habits.reuse):
                return wanted
        shape = self.shape() if first is None else self.limited(self.related(tuple(first.shape)))
        if first is not None and not indexes and self.coin(self.habits.scalars):
            shape = ()
        if indexes:
            sizes = [size for size in (first.shape if first is not None else self.habits.sizes) if size] or [1]
            below = self.random.choice(sizes) if self.coin(0.7) else min(sizes)
            if "mask" not in parameter.name and self.coin(0.25):
                return self.filled(shape, self.random.randrange(below))
            return self.input(shape, self.random.choice(("i64", "i64", "i64", "i32", "bool")), below)
        name = self.habits.type()
        if first is not None and self.coin(0.75 if shape else 0.4):
            name = next(key for key, item in TORCH_DTYPES.items() if item is first.dtype)
        elif first is None and self.coin(0.7):
            name = self.habits.element
        if "mask" in parameter.name or parameter.name == "condition":
            name = "bool"
        if defn.kind is not None and name not in takes:
            name = self.random.choice(takes)
        return self.input(shape, name)

    def alike(self, item: torch.Tensor, first: torch.Tensor | None) -> bool:
        """Whether a value is likely to go with the first operand."""
        if first is None:
            return True
        same = item.dtype == first.dtype or self.coin(0.15)
        pairs = list(zip(reversed(item.shape), reversed(first.shape)))
        return same and (self.coin(0.1) or all(a == b or 1 in (a, b) for a, b in pairs))

    def related(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape for an operand beside another one: equal, broadcast, smaller, for a product, or unrelated."""
        kind = self.habits.relation()
        if kind == 0 or not shape:
            return shape if kind == 0 or self.coin() else self.shape()
        if kind == 1:
            return tuple(1 if self.coin(0.4) else size for size in shape)
        if kind == 2:
            return shape[self.random.randint(0, len(shape)) :]
        if kind == 3:
            # Smaller or larger beside one dim, as gathers and scatters allow.
            return tuple(max(size + self.random.choice((-2, -1, 0, 0, 0, 1, 3)), 0) for size in shape)
        if kind == 4:
            return tuple(self.random.randint(0, size) for size in shape)
        if kind == 5:
            return (*shape[:-2], shape[-1], self.random.choice(self.habits.sizes))
        if kind == 6:
            return (self.random.choice(shape),)
        if kind == 7 and len(shape) > 2:
            # A kernel for the first operand's channels.
            return (self.random.choice((1, 2, 3, 4)), shape[1], *(self.random.choice((1, 2, 3)) for _ in shape[2:]))
        return self.shape(len(shape) if self.coin() else None)

    def filled(self, shape: tuple[int, ...], value: int) -> Ref:
        """One number everywhere, made by the program: `full`, or a 0-dim input that is expanded."""
        if self.coin():
            step = Step("full", "ops.aten.full", {"size": shape, "fill_value": value, "dtype": Type("i64")})
        else:
            source = self.input((), "i64", value + 1)
            step = Step("expand", "ops.aten.expand", {"self": source, "size": shape})
        (result,) = call(step, self.values)
        self.program.steps.append(step)
        self.program.counts.append(1)
        self.values.append(result.clone())
        return Ref(len(self.values) - 1)

    # Attributes, by annotation

    def dim(self, parameter: Parameter) -> int:
        dims = len(self.first.shape) if self.first is not None else 2
        if "dim" in parameter.name or "axis" in parameter.name:
            return self.random.randint(-dims, max(dims - 1, 0))
        return self.size(parameter)

    def size(self, parameter: Parameter) -> int:
        if "size" in parameter.name or "length" in parameter.name or self.coin(0.3):
            sizes = (*(self.first.shape if self.first is not None else ()), *self.habits.sizes)
            return int(self.random.choice(sizes))
        return self.random.choice((0, 1, 1, 2, 2, 3, 4, -1, -2, 5))

    def dims(self, parameter: Parameter) -> Any:
        dims = len(self.first.shape) if self.first is not None else 2
        if self.coin(0.4):
            return self.dim(parameter)
        return tuple(self.random.sample(range(dims), self.random.randint(0, dims)))

    def lengths(self, parameter: Parameter) -> Any:
        """Sizes of windows, strides and the like: one for each of some dims, or one for all."""
        count = self.random.choice((1, 2, 2, 3))
        if parameter.annotation == "Size" or "size" in parameter.name and "kernel" not in parameter.name:
            shape = tuple(self.first.shape) if self.first is not None else ()
            choice = self.random.randrange(5)
            if choice == 0 and shape:
                return self.related(shape)
            if choice == 1 and shape:
                return tuple(self.random.sample(shape, len(shape)))
            if choice == 2 and shape:
                return factors(math.prod(shape), self.random)
            if choice == 3:
                return (*self.shape(1), *shape)
            return self.shape()
        if "pad" in parameter.name:
            count = self.random.choice((1, 2, 2, 3, 4, 6))
            return tuple(self.random.choice((0, 0, 1, 2)) for _ in range(count))
        if "dim" in parameter.name:
            dims = len(self.first.shape) if self.first is not None else 2
            return tuple(self.random.sample(range(dims), self.random.randint(0, dims)))
        return tuple(self.random.choice((1, 1, 2, 3)) for _ in range(count))

    def output_size(self, parameter: Parameter) -> Any:
        return tuple(self.random.choice((0, 1, 2, 3, 5, 7)) for _ in range(self.random.randint(1, 3)))

    def text(self, parameter: Parameter) -> str | None:
        return self.random.choice(TEXTS)

    def element_type(self, parameter: Parameter) -> Type:
        return Type(self.habits.type())

    def real(self, parameter: Parameter) -> float:
        return float(self.setting())


def broadcast(operands: Sequence[torch.Tensor]) -> int:
    """The elements of what operands are broadcast to; 0 if they cannot be."""
    try:
        return math.prod(torch.broadcast_shapes(*(item.shape for item in operands)))
    except RuntimeError:
        return 0


def integers(item: Any) -> list[int]:
    """All integers but 0 in an argument."""
    if isinstance(item, tuple):
        return [number for inner in item for number in integers(inner)]
    return [item] if type(item) is int and item else []


def on_meta(item: Any) -> Any:
    """Without data: what becomes of it takes no memory."""
    return item.to("meta") if isinstance(item, torch.Tensor) else item


def factors(count: int, source: random.Random) -> tuple[int, ...]:
    """A shape of so many elements."""
    found: list[int] = []
    for _ in range(source.randint(0, 3)):
        divisors = [size for size in range(1, min(count, 64) + 1) if count % size == 0] or [0]
        found.append(source.choice(divisors))
        count = count // found[-1] if found[-1] else 0
    return (*found, count)


# What strings are in schemas; most are wrong for a parameter, and drawn anew.
TEXTS = (
    "tanh", "none", "mean", "sum", "floor", "trunc", "reflect", "constant", "replicate", "circular", "amax", "amin",
    "prod", "left", "right", "same", "valid", "bilinear", "nearest", "add", "multiply",
)  # fmt: skip
DRAWS = {
    "int": Drawer.dim,
    "Dim": Drawer.size,
    "bool": lambda drawer, parameter: drawer.coin(),
    "float": Drawer.real,
    "Scalar": lambda drawer, parameter: drawer.setting(),
    "Size": Drawer.lengths,
    "Lengths": Drawer.lengths,
    "OutputSize": Drawer.output_size,
    "Sequence[int]": Drawer.lengths,
    "Sequence[Dim]": Drawer.lengths,
    "Dims": Drawer.dims,
    "DType": Drawer.element_type,
    "str": Drawer.text,
    "Reduction": lambda drawer, parameter: drawer.random.choice((0, 1, 2)),
    "Sequence[bool]": lambda drawer, parameter: tuple(drawer.coin() for _ in range(3)),
}
