"""Jitted functions, ops, errors and exported programs in other processes: by name, and by value as cloudpickle does it
for joblib, Dask and notebooks."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smelt
from smelt import ops
from smelt.ir import errors
from smelt.ir.graph import Location
from smelt.ir.parser import parse_graph

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@smelt.jit(static_argnames="factor", dynamic=False)
def scaled(x: Any, factor: float = 2) -> Any:
    return x * factor


class Model:
    @smelt.jit
    def step(self: Any, x: Any) -> Any:
        return x + 1


def test_by_name() -> None:
    for protocol in range(4, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(scaled, protocol)) is scaled
        assert pickle.loads(pickle.dumps(Model.step, protocol)) is Model.step
    assert pickle.loads(pickle.dumps([ops.gelu, ops.sum])) == [ops.gelu, ops.sum]
    assert copy.deepcopy(scaled) is scaled and copy.copy(ops.gelu) is copy.deepcopy(ops.gelu) is ops.gelu


def shifted(x: Any, by: int) -> Any:
    return x + by


def test_under_another_name_than_the_function() -> None:
    found = pickle.loads(pickle.dumps(smelt.jit(shifted, static_argnames="by")))
    np.testing.assert_array_equal(found(X, by=3), X + 3)
    assert found.static_argnames == {"by"} and found.function is shifted


def test_what_has_no_name_says_so() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda|local"):
        pickle.dumps(smelt.jit(lambda x: x + 1))


SENDER = '''
from __future__ import annotations
import sys, cloudpickle, numpy as np, smelt
from smelt import ops
from smelt.ops.define import Tensor, composite

W = np.full((3,), 2.0, np.float32)

@composite
def sent(self: Tensor) -> Tensor:
    """An op of this process."""
    return self * 10

@sent.vjp
def sent_vjp(grad, self):
    return grad * 100

@smelt.jit(static_argnums=1)
def power(x, n):
    return x if n == 0 else x * power(x, n - 1)

def outer(shift):
    @smelt.jit
    def inner(x):
        return ops.softmax(x, 1) * shift + W
    return inner

@smelt.jit
def chained(x):
    return power(sent(x), 2) + x.sent()

class Net:
    def __init__(self):
        self.w = 3
    @smelt.jit
    def call(self, x):
        return x * 4

def failing(x):
    return x @ x

try:
    smelt.jit(failing)(np.ones((2, 3), np.float32))
except smelt.SmeltError as caught:
    error = caught

made = [power, smelt.jit(lambda x: x - 1), outer(5), chained, smelt.grad(lambda x: sent(x).sum()), sent, Net.call,
        smelt.jit(ops.exp), error]
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump(made, file)
'''

RECEIVER = """
import pickle, sys, numpy as np
with open(sys.argv[1], "rb") as file:
    power, less, inner, chained, gradient, sent, call, exp, error = pickle.load(file)
import smelt
x = np.arange(6, dtype=np.float32).reshape(2, 3)
equal = np.testing.assert_allclose
soft = np.exp(x) / np.exp(x).sum(1, keepdims=True)
for _ in range(3):
    equal(power(x, 3), x**4)
    equal(less(x), x - 1)
    equal(inner(x), soft * 5 + 2, rtol=1e-5)
    equal(chained(x), (10 * x) ** 3 + 10 * x, rtol=1e-6)
    equal(gradient(x), np.full_like(x, 100))
    equal(sent(x), 10 * x)
    equal(exp(x), np.exp(x), rtol=1e-6)
assert type(power).__name__ == "Jitted" and power.static_argnums == {1} and power.__name__ == "power"
assert isinstance(error, smelt.SmeltError) and "operand 1 has 2 rows" in str(error), error
assert error.location.line and error.op == "matmul"
print("fine")
"""


def test_by_value(tmp_path: Path) -> None:
    """What the sender's __main__ defines is not there in the receiver's."""
    pytest.importorskip("cloudpickle")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for name, code in (("sender.py", SENDER), ("receiver.py", RECEIVER)):
        (tmp_path / name).write_text(code)
        command = [sys.executable, name, "made.pickle"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "fine"


MAIN = """
import multiprocessing, numpy as np, smelt

@smelt.jit
def doubled(x):
    return x * 2

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.map(doubled, [np.ones(3, np.float32)] * 2)[1].tolist() == [2, 2, 2]
    print("fine")
"""


def test_functions_of_main_in_spawned_processes(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(MAIN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "fine", done.stderr


ERRORS = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, smelt.SmeltError)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_errors(kind: type[smelt.SmeltError]) -> None:
    error = kind("what", Location("model.py", 3).inside("gelu"), "detail\nof it")
    error.op = "matmul"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) and again.location == error.location
    assert str(copy.deepcopy(error)) == str(error) and again.args == error.args


def test_errors_that_were_raised() -> None:
    for call in (
        lambda: smelt.jit(lambda x: x @ x)(X),
        lambda: smelt.jit(lambda x: x if x.sum() > 0 else -x)(X),
        lambda: parse_graph("graph @g(%x: f32[4]) { return %y }"),
    ):
        with pytest.raises(smelt.SmeltError) as caught:
            call()
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value) and type(again) is type(caught.value)


def test_exported_programs() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.BatchNorm1d(3)).eval()
    x = torch.randn(5, 4)
    size = {"input": {0: torch.export.Dim("batch", min=2)}}
    program = smelt.from_exported(torch.export.export(module, (x,), dynamic_shapes=size), options={"freeze": True})
    again = pickle.loads(pickle.dumps(program))
    torch.testing.assert_close(again(x), module(x))
    torch.testing.assert_close(again(x[:3]), module(x[:3]))
    trained = torch.nn.BatchNorm1d(4, momentum=0.5)
    counted = smelt.from_exported(torch.export.export(trained, (x,)))
    counted(x + 10)
    mean = pickle.loads(pickle.dumps(counted)).exported.state_dict["running_mean"]
    torch.testing.assert_close(mean, (x + 10).mean(0) * 0.5)  # what calls changed goes with it
    assert again.options == program.options and str(again.graphs[0]) == str(program.graphs[0])
