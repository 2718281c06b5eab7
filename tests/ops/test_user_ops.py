"""Ops that users define: their names are theirs, so no key of compiled code may have a name in place of its meaning."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import smelt
from cached_programs import fresh, run, state_of
from smelt import ops
from smelt.backend.compile import graph_key, with_own_ops
from smelt.backend.options import CompileOptions
from smelt.backend.store import cache
from smelt.ir.printer import Printer
from smelt.ops.define import REGISTRY
from smelt.passes.graph.cleanup import cse
from smelt.passes.graph.decompose import decompose

X = np.arange(6, dtype=np.float32).reshape(2, 3)

HEAD = """
from __future__ import annotations
import smelt
from smelt import ops
from smelt.ops.define import Tensor, composite, prim
from smelt.ops.opdef import OpDef
from smelt.ops.kinds import Elementwise
"""

SCALED = '''
@composite
def scaled_by_user(self: Tensor) -> Tensor:
    """A multiple of self."""
    return ops.softmax(self, 1) * FACTOR
'''


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs code in one module, as cells of a notebook; its ops are forgotten afterwards."""
    before = dict(REGISTRY)
    module = ModuleType("cells_of_a_notebook")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(HEAD, "<cell>", "exec"), module.__dict__)

    def cell(code: str) -> Any:
        exec(compile(f"from __future__ import annotations\n{code}", "<cell>", "exec"), module.__dict__)
        return module

    yield cell
    for name in set(REGISTRY) - set(before):
        del REGISTRY[name]


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


PROGRAM = (
    HEAD
    + SCALED
    + '''
@scaled_by_user.vjp
def rule(grad, self):
    return grad * FACTOR * 10

@composite
def twice_scaled(self: Tensor) -> Tensor:
    """An op of an op."""
    return scaled_by_user(scaled_by_user(self))

import json, numpy as np
x = np.arange(6, dtype=np.float32).reshape(2, 3)
programs = [smelt.jit(lambda x: scaled_by_user(x)), smelt.jit(lambda x: twice_scaled(x) + 1),
            smelt.jit(smelt.grad(lambda x: scaled_by_user(x).sum()))]
print(json.dumps([[program(x).tolist(), program.report().cache.state] for program in programs]))
'''
)


def test_an_edited_file_computes_what_it_says_now(tmp_path: Path) -> None:
    environment = {**os.environ, cache.VARIABLE: str(tmp_path)}
    for factor, state in ((2, "missed"), (3, "missed"), (2, "hit")):
        found = json.loads(run(PROGRAM.replace("FACTOR", str(factor)), environment=environment).stdout)
        once = softmax(X) * factor
        expected = [once, softmax(once) * factor + 1, np.full_like(X, factor * 10)]
        for (values, how), array in zip(found, expected, strict=True):
            np.testing.assert_allclose(values, array, rtol=1e-5)
            assert how == state


def test_an_op_is_defined_anew(folder: Path, cells: Any) -> None:
    module = cells("FACTOR = 2\n" + SCALED)
    program = smelt.jit(lambda x: module.scaled_by_user(x))
    method = smelt.jit(lambda x: x.scaled_by_user().sum())
    for _ in range(3):  # native code recognises the last of them
        np.testing.assert_allclose(program(X), softmax(X) * 2, rtol=1e-6)
        np.testing.assert_allclose(method(X), 4, rtol=1e-6)
    np.testing.assert_allclose(module.scaled_by_user(X), softmax(X) * 2, rtol=1e-6)
    old = module.scaled_by_user
    cells("FACTOR = 3\n" + SCALED)
    for _ in range(3):
        np.testing.assert_allclose(program(X), softmax(X) * 3, rtol=1e-6)
        np.testing.assert_allclose(method(X), 6, rtol=1e-6)
    np.testing.assert_allclose(module.scaled_by_user(X), softmax(X) * 3, rtol=1e-6)
    assert program.compiles == 1
    # The factor is read while compiling, so both ops of this name have it; one of them has another type of result.
    cells(SCALED.replace("softmax(self, 1)", "cast(self, 'int32')"))
    both = smelt.jit(lambda x: (old(x), module.scaled_by_user(x)))
    first, second = both(X)
    assert first.dtype == np.float32 and second.dtype == np.int32
    np.testing.assert_array_equal(second, X.astype(int) * 3)
    graph = both.trace(X)
    assert len(cse(graph).ops) == 2, "one name, but not one op"


def test_a_derivative_is_defined_anew(folder: Path, cells: Any) -> None:
    module = cells("FACTOR = 2\n" + SCALED)
    gradient = smelt.grad(lambda x: module.scaled_by_user(x).sum())
    np.testing.assert_allclose(gradient(X), np.zeros_like(X), atol=1e-6)
    for number in (5, 7):
        cells(f"@scaled_by_user.vjp\ndef rule(grad, self):\n    return grad * {number}")
        np.testing.assert_allclose(gradient(X), np.full_like(X, number))


def test_names_that_are_taken(cells: Any) -> None:
    with pytest.raises(ValueError, match="op softmax is defined twice, in smelt.ops.softmax and cells_of_a_notebook"):
        cells(SCALED.replace("scaled_by_user", "softmax"))
    cells("FACTOR = 2\n" + SCALED)
    with pytest.raises(ValueError, match="op scaled_by_user is defined twice, in cells_of_a_notebook and another"):
        cells('__name__ = "another"\n' + SCALED)


def test_primitives_of_users_are_not_kept(folder: Path, cells: Any) -> None:
    code = '@prim(Elementwise("SCALAR", promote="float"))\ndef mine(self: Tensor) -> Tensor:\n    """Its own."""\n'
    module = cells(code.replace("SCALAR", "exp"))
    program = smelt.jit(lambda x: module.mine(x) + 1)
    np.testing.assert_allclose(program(X), np.exp(X) + 1, rtol=1e-6)
    assert str(program.report().cache).startswith("off: the op mine is not smelt's own")
    cells(code.replace("SCALAR", "sin"))
    np.testing.assert_allclose(program(X), np.sin(X) + 1, rtol=1e-6)


def test_the_body_written_out_has_the_same_code(folder: Path, cells: Any) -> None:
    """And errors name the lines of the program at hand, whichever of the two was compiled."""
    module = cells(
        "@composite\ndef chosen_rows(self: Tensor, rows: Tensor) -> Tensor:\n"
        '    """Some rows."""\n    return ops.exp(ops.index_select(self, 0, rows))\n'
    )
    rows = np.array([1, 0])

    def calls(x: Any, rows: Any) -> Any:
        return module.chosen_rows(x, rows)

    def same(x: Any, rows: Any) -> Any:
        return ops.exp(ops.index_select(x, 0, rows))

    def text_of(function: Any) -> str:
        graph = with_own_ops(smelt.jit(function).trace(X, rows))
        assert graph_key(graph, CompileOptions())[0] is not None
        return Printer(decompose(graph)).text(locations=False).partition("(")[2]

    program = smelt.jit(calls)
    np.testing.assert_allclose(program(X, rows), np.exp(X[rows]), rtol=1e-6)
    fresh(folder)
    again = smelt.jit(calls)
    again(X, rows)
    assert state_of(again) == "hit" and text_of(calls) == text_of(same)
    with pytest.raises(smelt.SmeltError, match="index 5 is out of range") as caught:
        again(X, np.array([0, 5]))
    location = caught.value.location
    assert location is not None and location.line == calls.__code__.co_firstlineno + 1


def test_what_other_libraries_call_by_name_is_never_a_users_op(cells: Any) -> None:
    torch = pytest.importorskip("torch")
    assert "gcd" not in REGISTRY, "choose another one"
    cells('@composite\ndef gcd(self: Tensor, other: Tensor) -> Tensor:\n    """Not NumPy\'s."""\n    return self * 0\n')
    numbers = np.arange(1, 6)
    with pytest.raises(smelt.SmeltError, match="smelt.ops has no op of that name"):
        smelt.jit(lambda x: np.gcd(x, 6))(numbers)
    x = torch.from_numpy(numbers)
    function = torch.compile(torch.gcd, backend="smelt")
    torch.testing.assert_close(function(x, x + 3), torch.gcd(x, x + 3))


def test_composites_of_smelt_stay_in_the_text(folder: Path) -> None:
    graph = smelt.jit(lambda x: ops.softmax(x, 1)).trace(X)
    key, _ = graph_key(graph, CompileOptions())
    assert key is not None and "softmax(" in str(graph)


def test_traits_and_forwarding_derivatives_of_a_declaration(cells: Any) -> None:
    """Both are said where an op is declared, and wrong ones there and then."""
    cells('''
@prim(Elementwise("add"), commutes=True)
def plus_of_user(self: Tensor, other: Tensor) -> Tensor:
    """self + other."""

@composite
def cube_of_user(self: Tensor) -> Tensor:
    """self * self * self."""
    return self * self * self

@composite
def cube_of_user_backward(grad_output: Tensor, self: Tensor, times: float = 3.0) -> Tensor:
    """grad_output * times * self * self."""
    return grad_output * times * self * self

cube_of_user.slope = cube_of_user_backward
''')
    plus, cube, backward = (REGISTRY[name] for name in ("plus_of_user", "cube_of_user", "cube_of_user_backward"))
    graph = smelt.jit(lambda x, y: (plus(x, y), plus(y, x))).trace(smelt.spec("f32[2]"), smelt.spec("f32[2]"))
    assert len(cse(decompose(graph)).ops) == 1
    assert plus.commutes and not plus.turns
    with pytest.raises(ValueError, match="'commute' is no trait of ops; traits are commutes"):
        cells(
            '@prim(Elementwise("sub"), commute=True)\ndef minus_of_user(self: Tensor, other: Tensor) -> Tensor:\n  ""'
        )
    traced = smelt.jit(smelt.grad(lambda x: cube(x).sum())).trace(smelt.spec("f32[3]"))
    assert backward in [op.defn for op in traced.ops]
    np.testing.assert_allclose(smelt.grad(lambda x: cube(x).sum())(X[0]), 3 * X[0] ** 2)
    np.testing.assert_allclose(smelt.jvp(cube, (X[0],), (np.ones(3, np.float32),))[1], 3 * X[0] ** 2)
    with pytest.raises(ValueError, match="nothing is known of 'self'"):
        cells('''
@composite
def named_of_user(x: Tensor) -> Tensor:
    """x."""
    return x

named_of_user.derivative = cube_of_user_backward
''')
    with pytest.raises(ValueError, match="takes no 'slope'"):
        cells("""
from smelt.ops.derivatives import forward_to
cube_of_user.derivative = forward_to(cube_of_user_backward, slope=1)
""")
