"""The contenders: smelt, NumPy, PyTorch eager and compiled, JAX, Numba.

Each contender turns a workload and its inputs into a call without arguments that returns when the results are complete.
Its library is imported only if it takes part, in the measuring process.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from .define import Workload

# The module that each contender needs.
CONTENDERS = {
    "smelt": "smelt",
    "numpy": "numpy",
    "eager": "torch",
    "inductor": "torch",
    "jax": "jax",
    "numba": "numba",
}

# Rivals in the ratio: smelt is compared with the fastest of them.
PEERS = ("eager", "inductor", "jax")


def installed() -> list[str]:
    return [name for name, module in CONTENDERS.items() if importlib.util.find_spec(module) is not None]


def takes(name: str, workload: Workload) -> bool:
    """Whether a contender has a version of a workload."""
    if name == "numba":
        return "numba" in workload.own
    return name != "numpy" or workload.has_numpy


@dataclass
class Prepared:
    """A workload, prepared by one contender."""

    name: str
    call: Callable[[], Any]
    release: Callable[[], None]  # frees memory kept between calls, so that a call's memory can be measured


def prepare(name: str, workload: Workload, inputs: list[Any], threads: int) -> Prepared:
    return _PREPARE[name](workload, inputs, threads)


def arrays_of(result: Any) -> list[np.ndarray]:
    """Return copies of the arrays in a result of any contender."""
    return [np.asarray(leaf).copy() for leaf in optree.tree_leaves(result)]


def _bound(workload: Workload, names: Any) -> Callable[..., Any]:
    function = workload.function

    def run(*inputs: Any) -> Any:
        return function(names, *inputs)

    run.__name__ = workload.name
    return run


def _nothing() -> None:
    return None


def _smelt(workload: Workload, inputs: list[Any], threads: int) -> Prepared:
    from ... import empty_cache, jit, set_num_threads
    from . import names_smelt

    set_num_threads(threads)
    compiled = jit(_bound(workload, names_smelt))
    return Prepared("smelt", functools.partial(compiled, *inputs), empty_cache)


def _numpy(workload: Workload, inputs: list[Any], threads: int) -> Prepared:
    from . import names_numpy

    np.seterr(all="ignore")
    function = workload.own.get("numpy") or _bound(workload, names_numpy)
    return Prepared("numpy", functools.partial(function, *inputs), _nothing)


def _tensors(inputs: list[Any], threads: int) -> list[Any]:
    import torch

    torch.set_num_threads(threads)
    # Workloads that need gradients enable them.
    torch.set_grad_enabled(False)
    return [optree.tree_map(torch.from_numpy, item) for item in inputs]


def _eager(workload: Workload, inputs: list[Any], threads: int) -> Prepared:
    tensors = _tensors(inputs, threads)
    from . import names_torch

    return Prepared("eager", functools.partial(_bound(workload, names_torch), *tensors), _nothing)


def _inductor(workload: Workload, inputs: list[Any], threads: int) -> Prepared:
    import torch

    tensors = _tensors(inputs, threads)
    from . import names_torch

    # All workloads share the code object of one closure, and Dynamo has a limit of recompiles for each.
    torch._dynamo.reset()
    compiled = torch.compile(_bound(workload, names_torch), dynamic=False, fullgraph=True)
    return Prepared("inductor", functools.partial(compiled, *tensors), _nothing)


def _jax(workload: Workload, inputs: list[Any], threads: int) -> Prepared:
    import jax

    jax.config.update("jax_platforms", "cpu")
    leaves: list[np.ndarray] = optree.tree_leaves(inputs)  # type: ignore[arg-type]
    wide = any(leaf.dtype == np.float64 for leaf in leaves)
    jax.config.update("jax_enable_x64", wide)
    from . import names_jax

    compiled = jax.jit(_bound(workload, names_jax))
    arrays = [optree.tree_map(jax.numpy.asarray, item) for item in inputs]

    def call() -> Any:
        return jax.block_until_ready(compiled(*arrays))

    return Prepared("jax", call, _nothing)


def _numba(workload: Workload, inputs: list[Any], threads: int) -> Prepared:
    import numba

    numba.set_num_threads(threads)
    return Prepared("numba", functools.partial(workload.own["numba"](numba), *inputs), _nothing)


_PREPARE = {
    "smelt": _smelt,
    "numpy": _numpy,
    "eager": _eager,
    "inductor": _inductor,
    "jax": _jax,
    "numba": _numba,
}
