"""Take and make arrays in a GPU's memory: PyTorch's, CuPy's, Numba's, and those of other libraries.

Each library tells its caller's current stream: kernels run on that of the first argument, and results are made by
its library. So there is no synchronization with the host, and no copy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....ir.errors import ArgumentError, DTypeError
from ....ir.process import process
from ....ir.types import STORAGE, DType, bf16, dtype
from ..codegen.launch import ALIGN
from .driver import read, write

if TYPE_CHECKING:
    from cuda.core import Buffer, Stream

DLPACK_DEVICES = (2, 13)  # kDLCUDA and kDLCUDAManaged
LEGACY = 1  # the handle of the default stream


class Argument:
    """An array in a GPU's memory as compiled code takes it: aligned, with dims permuted so that it is row-major."""

    __slots__ = ("address", "array", "device", "dtype", "library", "order", "shape", "stream")

    def __init__(
        self,
        library: Library,
        array: Any,
        kind: np.dtype,
        shape: Sequence[int],
        order: tuple[int, ...],
        address: int,
        device: int,
        stream: int,
    ):
        self.library = library
        self.array = array  # owns the memory
        self.dtype = kind
        self.shape = tuple(shape[dim] for dim in order)
        self.order = None if order == tuple(range(len(order))) else order  # of the caller's dims
        self.address = address
        self.device = device
        self.stream = stream  # handle of the stream on which its memory is ready

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Library:
    """Interface to one library's arrays."""

    name = ""

    def argument(self, array: Any) -> Argument:
        raise NotImplementedError

    def empty(self, like: Argument, kind: DType, shape: tuple[int, ...], stream: Stream) -> tuple[Any, int]:
        """Make an array on the same device as another one; return it and its address."""
        raise NotImplementedError

    def memory(self, like: Argument, size: int, stream: Stream) -> tuple[Any, int]:
        """Allocate so many bytes for one call; return their owner and address."""
        return allocate(like.device, size, stream)


class Torch(Library):
    """PyTorch's tensors. The stream is PyTorch's current one, which its allocator uses, too."""

    name = "torch"

    def argument(self, array: Any) -> Argument:
        if array.requires_grad:
            raise ArgumentError("a tensor that requires grad: pass x.detach(); gradients come from smelt.grad")
        kind = TORCH_NAMES.get(str(array.dtype))
        if kind is None or array.layout is not sys.modules["torch"].strided:
            raise DTypeError(f"a tensor of {array.dtype} and layout {array.layout} is not supported")
        array = array.resolve_conj().resolve_neg()
        order = memory_order(array.shape, array.stride())
        if order is None:
            array = array.contiguous()
        elif array.data_ptr() % ALIGN:
            array = array.clone()  # keeps the memory order
        order = order or tuple(range(array.ndim))
        device = array.device.index
        stream = sys.modules["torch"].cuda.current_stream(device).cuda_stream or LEGACY
        return Argument(self, array, dtype(kind).numpy, array.shape, order, array.data_ptr(), device, stream)

    def empty(self, like: Argument, kind: DType, shape: tuple[int, ...], stream: Stream) -> tuple[Any, int]:
        torch = sys.modules["torch"]
        made = torch.empty(shape, dtype=getattr(torch, KIND_NAMES[kind.name]), device=like.array.device)
        return made, made.data_ptr()

    def memory(self, like: Argument, size: int, stream: Stream) -> tuple[Any, int]:
        return self.empty(like, dtype("u8"), (size,), stream)


class Cupy(Library):
    """CuPy's arrays. The stream is CuPy's current one, which its memory pool uses, too."""

    name = "cupy"

    def argument(self, array: Any) -> Argument:
        cupy = sys.modules["cupy"]
        device = array.device.id
        with cupy.cuda.Device(device):
            order = memory_order(array.shape, [step // array.dtype.itemsize for step in array.strides])
            if order is None or array.data.ptr % ALIGN:
                array, order = array.copy(order="C"), tuple(range(array.ndim))
            stream = cupy.cuda.get_current_stream().ptr or LEGACY
        return Argument(self, array, array.dtype, array.shape, order, array.data.ptr, device, stream)

    def empty(self, like: Argument, kind: DType, shape: tuple[int, ...], stream: Stream) -> tuple[Any, int]:
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device):
            made = cupy.empty(shape, kind.numpy)
        return made, made.data.ptr

    def memory(self, like: Argument, size: int, stream: Stream) -> tuple[Any, int]:
        return self.empty(like, dtype("u8"), (size,), stream)


class Other(Library):
    """Arrays with `__cuda_array_interface__` or DLPack's methods. Results are smelt's DeviceArray, which has both."""

    name = "other"

    def argument(self, array: Any) -> Argument:
        from cuda.core.utils import StridedMemoryView

        device = _device_of(array)
        stream = int(own_stream(device).handle)
        view = StridedMemoryView(array, stream)  # ordered after the work on the array's own stream
        order = dense_order(type(array).__name__, view.shape, view.strides, view.ptr)
        kind: Any = view.dtype
        return Argument(self, view, np.dtype(kind), view.shape, order, view.ptr, device, stream)

    def empty(self, like: Argument, kind: DType, shape: tuple[int, ...], stream: Stream) -> tuple[Any, int]:
        size = int(np.prod(shape, dtype=np.int64)) * kind.bytes
        buffer, address = allocate(like.device, size, stream)
        return DeviceArray(buffer, kind.numpy, shape, stream), address


class Numba(Other):
    """Numba's device arrays. The stream is the array's own, else the default one."""

    name = "numba"

    def argument(self, array: Any) -> Argument:
        shape, counts = tuple(array.shape), [step // array.dtype.itemsize for step in array.strides]
        if not hasattr(array, "__cuda_array_interface__"):
            # In the simulator: no addresses.
            order = dense_order(type(array).__name__, shape, counts, 0)
            return Argument(self, array, array.dtype, shape, order, 0, 0, LEGACY)
        found = array.__cuda_array_interface__
        address = found["data"][0]
        order = dense_order(type(array).__name__, shape, counts, address)
        device = array.gpu_data.context.device.id
        return Argument(self, array, array.dtype, shape, order, address, device, found["stream"] or LEGACY)

    def empty(self, like: Argument, kind: DType, shape: tuple[int, ...], stream: Stream) -> tuple[Any, int]:
        if kind in (bf16, *STORAGE):
            return super().empty(like, kind, shape, stream)  # NumPy has no such type, so neither has Numba
        made = sys.modules["numba"].cuda.device_array(shape, kind.numpy, stream=like.array.stream)
        return made, made.__cuda_array_interface__["data"][0]


TORCH, CUPY, NUMBA, OTHER = Torch(), Cupy(), Numba(), Other()
KIND_NAMES = {
    "bool": "bool",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}
TORCH_NAMES = {f"torch.{name}": kind for kind, name in KIND_NAMES.items()}


def library_of(array: Any) -> Library | None:
    """Return the library of an array in a GPU's memory; None for anything else."""
    if isinstance(array, (np.ndarray, np.generic, bool, int, float, complex, str, bytes)):
        return None
    module = type(array).__module__.partition(".")[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return TORCH if array.is_cuda else None
    if module == "cupy":
        return CUPY
    if getattr(type(array), "__cuda_ndarray__", False):
        return NUMBA
    if hasattr(array, "__cuda_array_interface__"):
        return OTHER
    if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] in DLPACK_DEVICES:
        return OTHER
    return None


def argument_of(array: Any, function: str) -> Argument | None:
    """Prepare an array in a GPU's memory for compiled code; None for anything else."""
    library = library_of(array)
    if library is None:
        return None
    try:
        return library.argument(array)
    except (ArgumentError, DTypeError) as error:
        raise type(error)(f"{function}: {error.message}") from None


def first_argument(arrays: Sequence[Any]) -> Argument | None:
    """Return the first argument in a GPU's memory, where results go; None if all arrays are the host's."""
    return next((array for array in arrays if isinstance(array, Argument)), None)


def check_places(arrays: Sequence[Any], function: str) -> None:
    """Raise ArgumentError unless all arrays are in the same memory; numbers may be the host's."""
    first = first_argument(arrays)
    if first is None:
        return
    for number, array in enumerate(arrays):
        if isinstance(array, Argument):
            if array.device != first.device:
                raise ArgumentError(
                    f"{function}: arguments are on GPU {first.device} and (argument {number}) on GPU {array.device}: "
                    "move all to one"
                )
        elif array.ndim:
            raise ArgumentError(
                f"{function}: argument {number} is in the host's memory, others are on GPU {first.device}: move all to "
                "the GPU, or all to the host"
            )


def memory_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """Find the order of dims, slowest first, in which an array is dense; None if there is none.

    Strides are in elements; those of dims of size 1 do not count.
    """
    plain = tuple(range(len(shape)))
    if 0 in shape:
        return plain
    for order in (plain, tuple(sorted(plain, key=lambda dim: -strides[dim]))):
        wanted = dense_strides([shape[dim] for dim in order])
        if all(shape[dim] == 1 or strides[dim] == step for dim, step in zip(order, wanted)):
            return order
    return None


def dense_order(name: str, shape: Sequence[int], strides: Sequence[int] | None, address: int) -> tuple[int, ...]:
    """Find the order of dims of an array that smelt cannot copy; raise ArgumentError unless dense and aligned."""
    order = tuple(range(len(shape))) if strides is None else memory_order(shape, strides)
    if order is None:
        raise ArgumentError(
            f"a {name} must be dense: its shape is {tuple(shape)}, its strides {tuple(strides or ())}; "
            "make a dense copy first"
        )
    if address % ALIGN and 0 not in shape:
        raise ArgumentError(f"a {name} must be aligned to {ALIGN} bytes: make a copy of it first")
    return order


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Compute the strides of a row-major array, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _device_of(array: Any) -> int:
    """Find the number of the GPU that has an array of an unknown library."""
    if hasattr(array, "__dlpack_device__"):
        return array.__dlpack_device__()[1]
    from cuda.core.utils import StridedMemoryView

    return StridedMemoryView(array, -1).device_id


def turned(array: Any, order: Sequence[int]) -> Any:
    """Make a view of a result with permuted dims."""
    if hasattr(array, "permute"):
        return array.permute(order)
    if getattr(type(array), "__cuda_ndarray__", False) and hasattr(array, "__cuda_array_interface__"):
        # Numba's own transpose copies.
        found = array.__cuda_array_interface__
        shape, strides = (tuple(item[dim] for dim in order) for item in (array.shape, array.strides))
        return sys.modules["numba"].cuda.from_cuda_array_interface(
            found | {"shape": shape, "strides": strides}, owner=array, sync=False
        )
    return array.transpose(order)


# smelt's own memory and streams.


def own_stream(device: int) -> Stream:
    """Return the stream for calls without a stream of the caller's."""
    found = _own_streams.get(device)
    if found is None:
        from cuda.core import Device

        before, chosen = Device(), Device(device)
        chosen.set_current()
        found = _own_streams.setdefault(device, chosen.create_stream())
        before.set_current()
    return found


_own_streams: dict[int, Stream] = process.keep("streams of GPUs", {})


def stream_of(handle: int) -> Stream:
    """Wrap a stream of another library by its handle."""
    from cuda.core import LEGACY_DEFAULT_STREAM, Stream

    return LEGACY_DEFAULT_STREAM if handle == LEGACY else Stream.from_handle(handle)


def allocate(device: int, size: int, stream: Stream) -> tuple[Buffer, int]:
    """Allocate bytes from the device's pool in stream order; they are freed on the same stream."""
    from cuda.core import Device

    buffer = Device(device).allocate(max(size, 1), stream=stream)
    return buffer, int(buffer.handle)


class DeviceArray:
    """A result for callers with arrays of an unknown library, with `__cuda_array_interface__` and DLPack's methods."""

    def __init__(
        self,
        buffer: Buffer,
        kind: np.dtype,
        shape: tuple[int, ...],
        stream: Stream,
        strides: tuple[int, ...] | None = None,
    ):
        self.buffer = buffer
        self.dtype = kind
        self.shape = shape
        self.strides = dense_strides(shape) if strides is None else strides  # in elements
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (int(self.buffer.handle), False),
            "strides": tuple(step * self.dtype.itemsize for step in self.strides),
            "stream": int(self.stream.handle),
            "version": 3,
        }

    def transpose(self, order: Sequence[int]) -> DeviceArray:
        """Make a view with permuted dims."""
        shape, strides = (tuple(item[dim] for dim in order) for item in (self.shape, self.strides))
        return DeviceArray(self.buffer, self.dtype, shape, self.stream, strides)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._view().__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """Export by DLPack; the consumer's stream waits for this array's, unless it is -1."""
        if stream != -1:
            stream_of(stream or LEGACY).wait(self.stream)
        return self._view().__dlpack__(stream=-1, **options)

    def _view(self) -> Any:
        from cuda.core.utils import StridedMemoryView

        return StridedMemoryView.from_buffer(self.buffer, self.shape, self.strides, dtype=self.dtype)

    def copy_to_host(self) -> np.ndarray:
        """Copy to a NumPy array."""
        array = np.empty(int(np.prod(self.shape, dtype=np.int64)), self.dtype)
        read(int(self.buffer.handle), array, self.stream)
        self.stream.sync()
        steps = [step * self.dtype.itemsize for step in self.strides]
        return np.lib.stride_tricks.as_strided(array, self.shape, steps)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, {self.shape})"


class Constant:
    """A captured array, copied to each GPU once."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype
        self.ndim = array.ndim
        self.copies: dict[int, tuple[Buffer, int]] = {}  # by device

    def address(self, device: int) -> int:
        found = self.copies.get(device)
        if found is None:
            stream = own_stream(device)
            buffer, address = allocate(device, self.array.nbytes, stream)
            write(address, self.array, stream)
            stream.sync()
            found = self.copies.setdefault(device, (buffer, address))
        return found[1]
