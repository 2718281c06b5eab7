"""The launcher of GPUs on a stand-in for cuda.core, which runs kernels in Numba's simulator: numbers, and calls.

test_cuda_device.py runs all of this in a process of its own:

    NUMBA_ENABLE_CUDASIM=1 pytest tests/cuda/cuda_launched.py -k graph
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import cuda_stand_in
import numpy as np
import pytest
import smelt
import torch
from cuda_simulated import ALL
from cuda_stand_in import Gpu
from loop_programs import assert_close, numbers
from smelt import ops
from smelt.backend.cuda.run.arrays import dense_strides
from smelt.ir.errors import ArgumentError, DTypeError, IndexRangeError
from support import flatten, interpret, trace

STREAM = 77  # the caller's


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with cuda_stand_in.gpu() as found:
        yield found


class Array:
    """An array of a library that nobody knows, by its interface."""

    device_id = 0

    def __init__(self, gpu: Gpu, array: np.ndarray, offset: int = 0, stream: int | None = STREAM):
        self.gpu, self.dtype, self.shape, self.stream = gpu, array.dtype, array.shape, stream
        self.strides: tuple[int, ...] | None = None
        self.address = gpu.allocate(array.nbytes + offset) + offset
        gpu.bytes(self.address, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": self.strides,
            "stream": self.stream,
            "version": 3,
        }


def on_host(gpu: Gpu, array: Any) -> np.ndarray:
    found = array.__cuda_array_interface__
    return gpu.read(found["data"][0], np.dtype(found["typestr"]), found["shape"])


# Numbers.

NAMES = (
    *(
        "vectors and a tail",
        "halves and a tail",
        "bytes",
        "long rows",
        "softmax of halves",
        "all of many",
        "transposes",
    ),
    *("scan of columns", "product of bf16", "scatters that meet", "empty", "attention"),
)


@pytest.mark.parametrize("name", NAMES)
def test_numbers(gpu: Gpu, name: str) -> None:
    function, arrays = ALL[name]
    wanted = interpret(trace(function, arrays), arrays)
    compiled = smelt.jit(function, target="cuda")
    for _ in range(3):  # launched, captured, and launched as a graph
        for expected, result in zip(wanted, flatten(compiled(*arrays)), strict=True):
            assert_close(name, expected, result)
    assert not gpu.blocks or len(gpu.blocks) == len(compiled.latest.hidden)  # all else was given back


def test_open_sizes(gpu: Gpu) -> None:
    softmax = smelt.jit(lambda x: ops.softmax(x, 1), target="cuda")
    for rows, columns in ((3, 5), (4, 5), (7, 9), (2, 40), (4, 5)):
        x = numbers(rows, columns)
        wanted = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(softmax(x), wanted / wanted.sum(1, keepdims=True), rtol=1e-5)
    assert len(gpu.noted("compile")) == softmax.compiles == 3


def test_sizes_beyond_32_bits(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices of open sizes have 32 bits where that is enough; another program is compiled where it is not."""
    from smelt.backend.cuda.codegen import launch

    function = smelt.jit(lambda x: x * 2 + 1, target="cuda")
    for size, limit in ((5, 1 << 31), (9, 1 << 31), (300, 200)):
        monkeypatch.setattr(launch, "LIMIT", limit)
        x = numbers(size)
        np.testing.assert_array_equal(function(x), x * 2 + 1)
    assert [launch.narrow for _, launch in gpu.launches.values()] == [True, True, False] and function.compiles == 2


def test_one_allocation_for_each_call(gpu: Gpu) -> None:
    function = smelt.jit(lambda x: (ops.cumsum(x, 0) * 2, x.sum()), target="cuda")
    function(numbers(6, 40))
    assert len(gpu.noted("allocate")) == 1 and gpu.noted("launch")


# Arrays on the GPU.


def test_an_unknown_library(gpu: Gpu) -> None:
    x, y = numbers(6, 40), numbers(40, seed=1)
    function = smelt.jit(lambda x, y: (x * y, x.sum(1)), target="cuda")
    first, second = function(Array(gpu, x), Array(gpu, y))
    np.testing.assert_array_equal(on_host(gpu, first), x * y)
    np.testing.assert_array_equal(first.copy_to_host(), x * y)
    np.testing.assert_allclose(on_host(gpu, second), x.sum(1), rtol=1e-5)
    own = first.__cuda_array_interface__["stream"]
    assert gpu.noted("wait") == [("wait", own, STREAM)] * 2  # for what made the arguments
    assert not gpu.noted("cuMemcpyHtoDAsync")
    # What came out goes in again.
    again = smelt.jit(lambda x: x + 1, target="cuda")(first)
    np.testing.assert_array_equal(on_host(gpu, again), x * y + 1)
    # Consumers of DLPack name their own stream, which waits for smelt's.
    assert first.__dlpack_device__() == (2, 0)
    before = len(gpu.noted("wait"))
    assert first.__dlpack__(stream=STREAM) == first.__cuda_array_interface__["data"][0]
    first.__dlpack__(stream=-1)
    first.__dlpack__()
    assert gpu.noted("wait")[before:] == [("wait", STREAM, own), ("wait", 1, own)]


def test_numbers_beside_arrays(gpu: Gpu) -> None:
    x = numbers(9)
    function = smelt.jit(lambda x, a, b, c: x * a + b + c, target="cuda")
    result = function(Array(gpu, x), 2.5, np.float16(3), True)
    np.testing.assert_allclose(on_host(gpu, result), x * 2.5 + 3 + 1, rtol=1e-6)
    assert not gpu.noted("cuMemcpyHtoDAsync")  # they travel in commands


def test_random_numbers(gpu: Gpu) -> None:
    x = numbers(5, 37)
    smelt.manual_seed(3)
    wanted = smelt.jit(lambda x: ops.rand_like(x))(x)
    smelt.manual_seed(3)
    found = smelt.jit(lambda x: ops.rand_like(x), target="cuda")(Array(gpu, x))
    np.testing.assert_array_equal(on_host(gpu, found), wanted)


def test_constants_are_sent_once(gpu: Gpu) -> None:
    x, table = numbers(4, 9), numbers(9, seed=4)
    function = smelt.jit(lambda x: x + table, target="cuda")
    for _ in range(3):
        np.testing.assert_array_equal(on_host(gpu, function(Array(gpu, x))), x + table)
    assert len(gpu.noted("cuMemcpyHtoDAsync")) == 1
    np.testing.assert_array_equal(function(x), x + table)


def test_results_that_are_parameters(gpu: Gpu) -> None:
    x = numbers(3, 4)
    same, twice, again = smelt.jit(lambda x: (x, x * 2, ops.reshape(x * 2, (12,))), target="cuda")(
        given := Array(gpu, x)
    )
    np.testing.assert_array_equal(on_host(gpu, same), x)
    np.testing.assert_array_equal(on_host(gpu, again), 2 * x.reshape(12))
    addresses = {item.__cuda_array_interface__["data"][0] for item in (same, twice, again, given)}
    assert len(addresses) == 4  # none shares memory


def test_the_layout_of_arrays(gpu: Gpu) -> None:
    function = smelt.jit(lambda x: (x + 1, x.sum(1)), target="cuda")
    x = numbers(3, 4, 6)
    given = Array(gpu, np.ascontiguousarray(x.transpose(2, 0, 1)))
    given.shape, given.strides = x.shape, (16, 4, 48)
    more, total = function(given)  # read as it lies, and so do results lie
    np.testing.assert_array_equal(more.copy_to_host(), x + 1)
    assert more.shape == x.shape and more.__cuda_array_interface__["strides"] == (16, 4, 48)
    np.testing.assert_allclose(total.copy_to_host(), x.sum(1), rtol=1e-5)
    again, _ = function(more)
    np.testing.assert_array_equal(again.copy_to_host(), x + 1 + 1)
    assert function.trace(given).params[0].shape == x.shape
    spread = Array(gpu, numbers(4, 6))
    spread.strides = (48, 4)
    with pytest.raises(ArgumentError, match=r"lambda: a Array must be dense: its shape is .4, 6., its strides .12, 1."):
        smelt.jit(lambda x: x + 1, target="cuda")(spread)
    with pytest.raises(ArgumentError, match="aligned to 16 bytes"):
        function(Array(gpu, numbers(4, 6), offset=4))


def test_arrays_in_different_places(gpu: Gpu) -> None:
    function = smelt.jit(lambda x, y: x + y, target="cuda")
    x = numbers(4)
    with pytest.raises(ArgumentError, match="argument 1 is in the host's memory, others are on GPU 0"):
        function(Array(gpu, x), x)
    other = Array(gpu, x)
    other.device_id = 1
    with pytest.raises(ArgumentError, match="on GPU 0 and .argument 1. on GPU 1"):
        function(Array(gpu, x), other)
    with pytest.raises(ArgumentError, match="argument 1 is in the host's memory"):
        function(Array(gpu, x), torch.ones(4))


def test_another_gpu(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is compiled for the architecture of the arrays' GPU; the thread's own GPU stays current."""
    architectures = property(lambda device: "90" if device.device_id else "80")
    monkeypatch.setattr(cuda_stand_in.Device, "arch", architectures)
    x = numbers(4)
    function = smelt.jit(lambda x: x + 1, target="cuda")
    function(x)
    there = Array(gpu, x)
    there.device_id = 1
    np.testing.assert_array_equal(on_host(gpu, function(there)), x + 1)
    assert [item[1] for item in gpu.noted("compile")] == ["sm_80", "sm_90"]
    assert gpu.current == 0


# Graphs.


def many(x: Any) -> Any:
    return ops.cumsum(x, 0) * 2, x.sum()


def test_a_graph_is_made_of_calls_that_come_again(gpu: Gpu) -> None:
    function = smelt.jit(many, target="cuda")
    x = Array(gpu, numbers(6, 40))
    for number in range(7):
        content = numbers(6, 40, seed=number)
        gpu.bytes(x.address, content.nbytes)[:] = content.reshape(-1).view(np.uint8)
        # Results are freed after each call, so their memory comes again, and so does that of the arena.
        running, total = (on_host(gpu, item) for item in function(x))
        np.testing.assert_allclose(running, content.cumsum(0) * 2, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(total, content.sum(), rtol=1e-4)
        if number == 4:
            launches = len(gpu.noted("launch"))
    each = len(function.latest.executable.artifact.launches)
    assert set(gpu.noted("capture")) == {("capture", each)} and each > 1
    assert len(gpu.noted("launch")) == launches  # the last calls were graphs, each a single launch
    assert [item[0] for item in gpu.log[-2:]] == ["graph", "sync"]


def test_graphs_are_few(gpu: Gpu) -> None:
    from smelt.backend.cuda.run.device import LIMITS

    function = smelt.jit(many, target="cuda")
    held = [function(Array(gpu, numbers(6, 40))) for _ in range(LIMITS.graphs + 5)]  # always other addresses
    (ready,) = next(iter(function.exact.values())).launch.ready.values()
    assert len(held) == LIMITS.graphs + 5 and len(ready.captured) == LIMITS.graphs and not gpu.noted("graph")


def test_one_launch_is_no_graph(gpu: Gpu) -> None:
    function = smelt.jit(lambda x: x * 2, target="cuda")
    x = Array(gpu, numbers(40))
    for _ in range(4):
        function(x)
    assert len(gpu.noted("launch")) == 4 and not gpu.noted("graph")


# Errors.


def test_indices_are_checked(gpu: Gpu) -> None:
    function = smelt.jit(lambda x, i: ops.index(x * 2, [i]) + 1, target="cuda")
    x, places = numbers(6, 4), Array(gpu, np.array([0, 5, 3]))
    given = Array(gpu, x)
    for _ in range(3):
        np.testing.assert_array_equal(on_host(gpu, function(given, places)), x[[0, 5, 3]] * 2 + 1)
    for _ in range(3):
        gpu.bytes(places.address, 24).view(np.int64)[1] = 6
        with pytest.raises(IndexRangeError, match="index 6 is out of range for a dimension of size 6"):
            function(given, places)
        gpu.bytes(places.address, 24).view(np.int64)[1] = -6
        np.testing.assert_array_equal(on_host(gpu, function(given, places)), x[[0, 0, 3]] * 2 + 1)


def test_nothing_is_read_back_without_checks(gpu: Gpu) -> None:
    smelt.jit(many, target="cuda")(Array(gpu, numbers(6, 40)))
    assert not gpu.noted("cuMemcpyDtoHAsync") and not gpu.noted("cuMemsetD8Async")


def test_the_driver_fails(gpu: Gpu) -> None:
    gpu.fails = "cuMemcpyHtoDAsync"
    with pytest.raises(RuntimeError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        smelt.jit(lambda x: x + 1, target="cuda")(numbers(4))


# Libraries, as far as smelt calls them.


class Tensor:
    """What PyTorch's tensors have."""

    is_cuda = True
    layout = torch.strided

    def __init__(self, gpu: Gpu, shape: Sequence[int], dtype: torch.dtype, address: int | None = None):
        self.gpu, self.shape, self.dtype = gpu, tuple(shape), dtype
        self.device = SimpleNamespace(index=0)
        self.requires_grad = False
        self.ndim, self.strides = len(self.shape), dense_strides(shape)
        size = int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
        self.address = gpu.allocate(size) if address is None else address
        self.made: list[str] = []

    def data_ptr(self) -> int:
        return self.address

    def resolve_conj(self) -> Tensor:
        return self

    resolve_neg = resolve_conj

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def permute(self, order: Sequence[int]) -> Tensor:
        made = Tensor(self.gpu, [self.shape[dim] for dim in order], self.dtype, self.address)
        made.strides = tuple(self.strides[dim] for dim in order)
        return made

    def contiguous(self) -> Tensor:
        self.made.append("contiguous")
        return filled(self.gpu, np.ascontiguousarray(on_gpu(self)))

    def clone(self) -> Tensor:
        self.made.append("clone")
        return filled(self.gpu, on_gpu(self))


def on_gpu(tensor: Any) -> np.ndarray:
    kind = np.dtype(str(tensor.dtype).removeprefix("torch."))
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides))
    memory = tensor.gpu.read(tensor.address, kind, (last + 1,))
    return np.lib.stride_tricks.as_strided(
        memory, tensor.shape, [step * kind.itemsize for step in tensor.strides]
    ).copy()


def filled(gpu: Gpu, array: np.ndarray) -> Tensor:
    return Tensor(gpu, array.shape, getattr(torch, array.dtype.name), gpu.place(array))


@pytest.fixture
def with_torch(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    def empty(shape: Sequence[int], dtype: torch.dtype, device: Any) -> Tensor:
        assert device.index == 0
        return Tensor(gpu, shape, dtype)

    stand_in = SimpleNamespace(
        **{str(item).removeprefix("torch."): item for item in (torch.uint8, torch.float32, torch.int64)},
        Tensor=Tensor,
        strided=torch.strided,
        empty=empty,
        cuda=SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=STREAM)),
    )
    monkeypatch.setitem(sys.modules, "torch", stand_in)  # type: ignore[arg-type]
    return gpu


def test_tensors(with_torch: Gpu) -> None:
    x = numbers(6, 40)
    result, total = smelt.jit(many, target="cuda")(filled(with_torch, x))
    assert type(result) is type(total) is Tensor and result.dtype is torch.float32
    np.testing.assert_allclose(on_gpu(result), x.cumsum(0) * 2, rtol=1e-5, atol=1e-6)
    # On the stream that is PyTorch's at the moment, in PyTorch's memory; the host waits for nothing.
    assert {item[-1] for item in with_torch.noted("launch")} == {STREAM}
    assert not with_torch.noted("allocate") and not with_torch.noted("sync") and not with_torch.noted("wait")


def test_the_layout_of_tensors(with_torch: Gpu) -> None:
    x = numbers(6, 8)
    function = smelt.jit(lambda x: x + 1, target="cuda")
    turned = filled(with_torch, x).permute((1, 0))
    result = function(turned)
    np.testing.assert_array_equal(on_gpu(result), x.T + 1)
    assert result.stride() == (1, 8) and not turned.made
    spread = filled(with_torch, x)
    spread.shape, spread.strides = (6, 4), (8, 1)
    np.testing.assert_array_equal(on_gpu(function(spread)), x[:, :4] + 1)
    whole = filled(with_torch, x.reshape(-1))
    part = Tensor(with_torch, (47,), torch.float32, whole.address + 4)
    np.testing.assert_array_equal(on_gpu(function(part)), x.reshape(-1)[1:] + 1)
    assert spread.made == ["contiguous"] and part.made == ["clone"]


def test_tensors_that_are_refused(with_torch: Gpu) -> None:
    function = smelt.jit(lambda x: x + 1, target="cuda")
    tensor = filled(with_torch, numbers(3))
    tensor.requires_grad = True
    with pytest.raises(ArgumentError, match=r"lambda: a tensor that requires grad: pass x.detach"):
        function(tensor)
    tensor.requires_grad, tensor.dtype = False, torch.float8_e8m0fnu
    with pytest.raises(DTypeError, match=r"float8_e8m0fnu"):
        function(tensor)


def test_tensors_beside_others(with_torch: Gpu) -> None:
    """The first argument's stream waits for the others' before, and they for it afterwards."""
    x = numbers(5)
    result = smelt.jit(lambda x, y: x * y, target="cuda")(filled(with_torch, x), Array(with_torch, x, stream=88))
    np.testing.assert_array_equal(on_gpu(result), x * x)
    (made, (_, first, own), (_, back, first_again)) = with_torch.noted("wait")
    assert made == ("wait", own, 88) and back == own and first == first_again == STREAM


class CupyArray:
    """What CuPy's arrays have."""

    def __init__(self, gpu: Gpu, address: int, shape: Sequence[int], dtype: Any):
        self.gpu, self.shape, self.dtype = gpu, tuple(shape), np.dtype(dtype)
        self.data, self.device = SimpleNamespace(ptr=address), SimpleNamespace(id=0)
        self.ndim, self.strides = len(shape), [step * self.dtype.itemsize for step in dense_strides(shape)]

    def copy(self, order: str) -> CupyArray:
        content = self.gpu.read(self.data.ptr, self.dtype, self.shape)
        return CupyArray(self.gpu, self.gpu.place(content), self.shape, self.dtype)


CupyArray.__module__ = "cupy"


def test_cupy(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    class Chosen:
        def __init__(self, device: int):
            assert device == 0

        def __enter__(self) -> None: ...

        def __exit__(self, *error: Any) -> None: ...

    def empty(shape: Sequence[int], dtype: Any) -> CupyArray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return CupyArray(gpu, gpu.allocate(size), shape, dtype)

    cuda = SimpleNamespace(Device=Chosen, get_current_stream=lambda: SimpleNamespace(ptr=STREAM))
    stand_in: Any = SimpleNamespace(cuda=cuda, empty=empty)
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    x = numbers(7)
    function = smelt.jit(lambda x: ops.cumsum(x, 0) * 2 + x.sum(), target="cuda")
    for address in (gpu.place(x), gpu.place(np.concatenate([x[:1], x])) + 4):
        result = function(CupyArray(gpu, address, (7,), np.float32))
        assert type(result) is CupyArray and not gpu.noted("sync")
        np.testing.assert_allclose(gpu.read(result.data.ptr, x.dtype, (7,)), x.cumsum() * 2 + x.sum(), rtol=1e-5)
    assert {item[-1] for item in gpu.noted("launch")} == {STREAM}


class NumbaArray(Array):
    """What Numba's device arrays have."""

    __cuda_ndarray__ = True
    gpu_data = SimpleNamespace(context=SimpleNamespace(device=SimpleNamespace(id=0)))

    def __init__(self, gpu: Gpu, array: np.ndarray, stream: int | None = None):
        super().__init__(gpu, array, stream=stream)
        self.strides = array.strides


@pytest.mark.parametrize("stream", [None, STREAM])
def test_numba(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, stream: int | None) -> None:
    from numba import cuda

    def device_array(shape: Sequence[int], dtype: Any, stream: Any) -> NumbaArray:
        return NumbaArray(gpu, np.zeros(shape, dtype), stream=stream)

    def from_cuda_array_interface(desc: dict[str, Any], owner: Any, sync: bool) -> NumbaArray:
        made = NumbaArray(gpu, np.zeros(desc["shape"], desc["typestr"]), desc["stream"])
        made.address, made.strides = desc["data"][0], desc["strides"]
        return made

    monkeypatch.setattr(cuda, "device_array", device_array)
    monkeypatch.setattr(cuda, "from_cuda_array_interface", from_cuda_array_interface, raising=False)
    x = numbers(7, 5)
    function = smelt.jit(lambda x: x + 1, target="cuda")
    result = function(NumbaArray(gpu, x, stream=stream))
    assert type(result) is NumbaArray and result.stream == stream
    np.testing.assert_array_equal(on_host(gpu, result), x + 1)
    assert [item[-1] for item in gpu.noted("launch")] == [stream or 1]  # 1: the default stream
    # In the order of Fortran: so are results.
    turned = NumbaArray(gpu, x, stream=stream)
    turned.shape, turned.strides = (5, 7), (4, 20)
    result = function(turned)
    assert result.shape == (5, 7) and result.strides == (4, 20)
    np.testing.assert_array_equal(gpu.read(result.address, x.dtype, x.shape), x + 1)
