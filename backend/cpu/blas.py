"""Addresses of BLAS's matrix products, held at one thread: our pool splits the work."""

from __future__ import annotations

import ctypes
from functools import lru_cache

NAMES = ("sgemm", "dgemm", "cgemm", "zgemm")


@lru_cache
def table() -> ctypes.Array:
    """Pointers to the four products, in the order of f32, f64, c64, c128."""
    from scipy.linalg import cython_blas

    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    block = (ctypes.c_void_p * len(NAMES))()
    for position, name in enumerate(NAMES):
        capsule = cython_blas.__pyx_capi__[name]
        block[position] = get_pointer(capsule, get_name(capsule))
    _single_thread()
    return block


def _single_thread() -> None:
    """OpenBLAS's own threads and ours would fight for the cores."""
    library = openblas()
    if library is None:
        return
    for name in ("scipy_openblas_set_num_threads", "openblas_set_num_threads"):
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        function.argtypes, function.restype = [ctypes.c_int], None
        function(1)
        return


@lru_cache
def openblas() -> ctypes.CDLL | None:
    """The OpenBLAS that SciPy brings, if it is one."""
    import glob
    import os

    import scipy

    folder = os.path.join(os.path.dirname(os.path.dirname(scipy.__file__)), "scipy.libs")
    for path in glob.glob(os.path.join(folder, "*openblas*")):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None
