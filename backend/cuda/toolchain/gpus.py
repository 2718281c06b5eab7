"""Limits of a streaming multiprocessor by architecture, and speeds of some common GPUs.

From NVIDIA's tables (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability") and data sheets.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....kernels.gpu import GPU
from .code import Resources


@dataclass(frozen=True)
class Limits:
    """Limits of one streaming multiprocessor."""

    threads: int
    blocks: int
    shared: int  # bytes
    reserved: int  # bytes of shared memory per block that the driver reserves


ARCHITECTURES = {
    "sm_75": Limits(1024, 16, 64 << 10, 0),
    "sm_80": Limits(2048, 32, 164 << 10, 1024),
    "sm_86": Limits(1536, 16, 100 << 10, 1024),
    "sm_87": Limits(1536, 16, 164 << 10, 1024),
    "sm_89": Limits(1536, 24, 100 << 10, 1024),
    "sm_90": Limits(2048, 32, 228 << 10, 1024),
    "sm_100": Limits(2048, 32, 228 << 10, 1024),
    "sm_103": Limits(2048, 32, 228 << 10, 1024),
    "sm_120": Limits(1536, 24, 100 << 10, 1024),
    "sm_121": Limits(1536, 24, 100 << 10, 1024),
}


@dataclass(frozen=True)
class Gpu:
    name: str
    architecture: str
    bandwidth: float  # bytes a second
    peak: float  # f32 operations a second


GPUS = (
    Gpu("T4", "sm_75", 320e9, 8.1e12),
    Gpu("A100", "sm_80", 1555e9, 19.5e12),
    Gpu("RTX 4090", "sm_89", 1008e9, 82.6e12),
    Gpu("H100", "sm_90", 3350e9, 66.9e12),
    Gpu("B200", "sm_100", 8000e9, 74.5e12),
    Gpu("RTX 5090", "sm_120", 1792e9, 104.8e12),
)


def occupancy(resources: Resources, threads: int, architecture: str) -> float:
    """Compute the occupancy: the fraction of a multiprocessor's threads that can be resident."""
    limits = ARCHITECTURES[architecture]
    warps = -(-threads // GPU.warp)
    registers = -(-resources.registers * GPU.warp // GPU.register_unit) * GPU.register_unit * warps
    shared = -(-(resources.shared + limits.reserved) // GPU.shared_unit) * GPU.shared_unit
    blocks = min(
        limits.blocks,
        limits.threads // (warps * GPU.warp),
        GPU.registers // registers if registers else limits.blocks,
        limits.shared // shared if shared else limits.blocks,
    )
    return blocks * warps * GPU.warp / limits.threads


def predicted(moved: int, operations: int, gpu: Gpu) -> float:
    """Compute a lower bound of a kernel's seconds (roofline): the longer of memory and arithmetic, plus its launch."""
    return max(moved / gpu.bandwidth, operations / gpu.peak) + GPU.launch
