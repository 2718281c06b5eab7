"""Write the text of a function in frames, one for each open loop, and its index arithmetic.

Index arithmetic is hoisted to the outermost loop where its variables exist: lines can be added to the frames around a
loop until it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from ....ir.proofs import fits, non_negative
from ....ir.symbolic import Compound, Dim, Expr, Symbol, symbols_of
from ....ir.types import i64
from ..llvm.types import Lanes, constant, suffix, vector
from .scalars import ScalarEmitter


def ordered_symbols(value: Dim) -> list[Symbol]:
    """Sort the symbols of an expression by name: sizes are loaded in the order of first use, which must not depend on
    the hashes of this process."""
    return sorted(symbols_of(value), key=attrgetter("name"))


class Frame:
    """A loop body under construction."""

    def __init__(self, label: str):
        self.lines: list[str] = []
        self.label = label  # of the current basic block
        self.cache: dict[Dim, str] = {}


class Outside:
    """Context manager that writes to an outer frame. Not a generator, which is slower: every statement uses one."""

    def __init__(self, frames: Frames, depth: int):
        self.frames = frames
        self.depth = depth

    def __enter__(self) -> None:
        self.previous, self.frames.target = self.frames.target, self.depth

    def __exit__(self, *raised: object) -> None:
        self.frames.target = self.previous


class Frames:
    """The frames of a region and its index arithmetic. In a vector loop an index is uniform or has a value per lane."""

    def __init__(self, emitter: ScalarEmitter, size: Callable[[Symbol], str], mark: str):
        self.frames = [Frame("entry")]
        self.target = 0
        self.emitter = emitter
        self.registers: dict[str, Lanes] = {}
        self.symbols: dict[str, Lanes] = {}
        self.depths: dict[str, int] = {}
        self.variable: Symbol | None = None  # of the vector loop
        self.lanes = 1
        self.hides = False  # whether the lanes of the vector loop's variable are made opaque to LLVM
        self.labels = 0
        self.mark = mark  # suffix of every instruction: the user's line, with debug information
        self.size = size

    def write(self, text: str) -> None:
        self.frames[self.target].lines.append(f"  {text}{self.mark}")

    def at(self, depth: int) -> Outside:
        """Write to an outer frame, by its number."""
        return Outside(self, depth)

    def push(self, label: str) -> None:
        self.frames.append(Frame(label))
        self.target = len(self.frames) - 1

    def pop(self) -> Frame:
        frame = self.frames.pop()
        self.target = len(self.frames) - 1
        return frame

    def new_label(self, name: str) -> str:
        self.labels += 1
        return f"{name}{self.labels}"

    def symbol(self, symbol: Symbol) -> tuple[Lanes, int]:
        """Return a symbol's value and the frame that defines it; of a vector variable, the first lane."""
        known = self.symbols.get(symbol.name)
        if known is not None:
            return known, self.depths[symbol.name]
        if symbol.name.startswith("%"):
            register = self.registers[symbol.name]
            return register, len(self.frames) - 1
        with self.at(0):
            name = self.size(symbol)
        self.symbols[symbol.name] = Lanes(i64, 1, (name,))
        self.depths[symbol.name] = 0
        return self.symbols[symbol.name], 0

    def moves_along(self, place: Dim) -> bool:
        """Whether an index has stride 1 over the lanes."""
        if self.variable is None or not isinstance(place, Expr) or place.coefficient(self.variable) != 1:
            return False
        return all(symbol == self.variable or self.symbol(symbol)[0].lanes == 1 for symbol in ordered_symbols(place))

    def varying(self, value: Dim) -> bool:
        return any(symbol == self.variable or self.symbol(symbol)[0].lanes > 1 for symbol in ordered_symbols(value))

    def uniform(self, value: Dim) -> str:
        """Compute a uniform index (or its value in the first lane) as an i64."""
        if isinstance(value, int):
            return str(value)
        parts: dict[int, list] = {}
        for monomial, coefficient in value.terms:
            deepest = 0
            for atom in monomial:
                for symbol in ordered_symbols(Expr((((atom,), 1),))):
                    deepest = max(deepest, self.symbol(symbol)[1])
            parts.setdefault(deepest, []).append((monomial, coefficient))
        total = ""
        so_far: list = []
        for depth in sorted(parts):
            so_far = so_far + parts[depth]
            key = Expr(tuple(so_far))
            cached = self.frames[depth].cache.get(key)
            if cached is None:
                with self.at(depth):
                    cached = total
                    for monomial, coefficient in parts[depth]:
                        term = self._product(monomial, coefficient)
                        cached = self.emitter.instruction(f"add i64 {cached}, {term}") if cached else term
                self.frames[depth].cache[key] = cached
            total = cached
        return total

    def _product(self, monomial: Sequence, coefficient: int) -> str:
        result = ""
        for atom in monomial:
            if isinstance(atom, Symbol):
                factor = self.symbol(atom)[0].name
            else:
                factor = self._compound(atom, self.uniform(atom.left), self.uniform(atom.right), 1)
            result = self.emitter.instruction(f"mul i64 {result}, {factor}") if result else factor
        if not result:
            return str(coefficient)
        return result if coefficient == 1 else self.emitter.instruction(f"mul i64 {result}, {coefficient}")

    def _compound(self, atom: Compound, left: str, right: str, lanes: int) -> str:
        kind = vector("i64", lanes)
        write = self.emitter.instruction
        if atom.operator in ("min", "max"):
            function = f"llvm.s{atom.operator}.{suffix('i64', lanes)}"
            return self.emitter.call(kind, function, (kind, left), (kind, right))
        if not non_negative(atom.right - 1):
            return self._divided(atom.operator, left, right, lanes)
        if atom.operator == "%" and fits(atom.left, atom.right * 2):
            # At most one period out of range; unsigned, a negative number is larger than any index.
            turned = write(f"sub {kind} {left}, {right}")
            return self.emitter.call(kind, f"llvm.umin.{suffix('i64', lanes)}", (kind, left), (kind, turned))
        if non_negative(atom.left):
            return write(f"{'udiv' if atom.operator == '//' else 'urem'} {kind} {left}, {right}")
        rest = write(f"srem {kind} {left}, {right}")
        negative = write(f"icmp slt {kind} {rest}, {constant(0, i64, lanes)}")
        mask = vector("i1", lanes)
        if atom.operator == "%":
            lifted = write(f"add {kind} {rest}, {right}")
            return write(f"select {mask} {negative}, {kind} {lifted}, {kind} {rest}")
        quotient = write(f"sdiv {kind} {left}, {right}")
        lower = write(f"sub {kind} {quotient}, {constant(1, i64, lanes)}")
        return write(f"select {mask} {negative}, {kind} {lower}, {kind} {quotient}")

    def _divided(self, operator: str, left: str, right: str, lanes: int) -> str:
        """Compute the quotient or remainder by a divisor of any sign, rounded down as in Python. By zero it is zero: a
        size such as N - 2 may be zero, and though no loop over it runs, the division is hoisted before the loop."""
        kind, mask, write = vector("i64", lanes), vector("i1", lanes), self.emitter.instruction
        zero, one = constant(0, i64, lanes), constant(1, i64, lanes)
        by_zero = write(f"icmp eq {kind} {right}, {zero}")
        divisor = write(f"select {mask} {by_zero}, {kind} {one}, {kind} {right}")
        rest = write(f"srem {kind} {left}, {divisor}")
        signs = write(f"xor {kind} {rest}, {divisor}")
        differ = write(f"icmp slt {kind} {signs}, {zero}")
        is_rest = write(f"icmp ne {kind} {rest}, {zero}")
        down = write(f"and {mask} {differ}, {is_rest}")
        if operator == "%":
            moved = write(f"add {kind} {rest}, {divisor}")
            found = write(f"select {mask} {down}, {kind} {moved}, {kind} {rest}")
        else:
            quotient = write(f"sdiv {kind} {left}, {divisor}")
            moved = write(f"sub {kind} {quotient}, {one}")
            found = write(f"select {mask} {down}, {kind} {moved}, {kind} {quotient}")
        return write(f"select {mask} {by_zero}, {kind} {zero}, {kind} {found}")

    def wide(self, value: Dim) -> str:
        """Compute an index with a value per lane as a vector of i64."""
        kind = vector("i64", self.lanes)
        if not self.varying(value):
            return self.emitter.splat(Lanes(i64, 1, (self.uniform(value),)), self.lanes).name
        assert isinstance(value, Expr)
        still = tuple(term for term in value.terms if not self.varying(Expr((term,)) if term[0] else term[1]))
        total = ""
        if still:
            base: Dim = Expr(still) if any(monomial for monomial, _ in still) else still[0][1]
            total = self.emitter.splat(Lanes(i64, 1, (self.uniform(base),)), self.lanes).name
        for monomial, coefficient in value.terms:
            if (monomial, coefficient) in still:
                continue
            term = constant(coefficient, i64, self.lanes) if coefficient != 1 else ""
            for atom in monomial:
                factor = self._wide_atom(atom)
                term = self.emitter.instruction(f"mul {kind} {term}, {factor}") if term else factor
            total = self.emitter.instruction(f"add {kind} {total}, {term}") if total else term
        return total

    def _wide_atom(self, atom: Symbol | Compound) -> str:
        kind = vector("i64", self.lanes)
        if isinstance(atom, Compound):
            return self._compound(atom, self.wide(atom.left), self.wide(atom.right), self.lanes)
        value, _ = self.symbol(atom)
        if atom == self.variable and self.hides:
            value = Lanes(i64, 1, (self.emitter.hidden(value.name),))
        spread = self.emitter.splat(value, self.lanes).name
        if atom == self.variable:
            return self.emitter.instruction(f"add {kind} {spread}, {self.emitter.iota(self.lanes)}")
        return spread
