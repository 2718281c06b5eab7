"""The run time's own native code: the pool of threads, the allocator and the entry of calls, loaded as one image.

Their texts are made only to compile them. smelt's sources decide what they say, and are a part of every key.
"""

from __future__ import annotations

import ctypes
import os
import sys

import numpy as np

from ...process.process_wide import Once
from ..image.cached import Kept
from ..image.image import Image


def _find_data_offset() -> int | None:
    """Where an array object holds the address of its data, by looking; None if it does not show."""
    probe = np.empty(3)
    data = probe.__array_interface__["data"][0]
    for offset in (16, 24, 32, 40):
        if ctypes.c_int64.from_address(id(probe) + offset).value == data:
            return offset
    return None


DATA_OFFSET = _find_data_offset()
HAS_ALLOCATOR = sys.platform == "linux" and sys.maxsize > 2**32  # it needs Linux's way of mapping memory
# Its blocks are pages; 64 KB on some ARM machines: parts of a page cannot be given back.
PAGE = os.sysconf("SC_PAGE_SIZE") if HAS_ALLOCATOR else 0


def _compile() -> bytes:
    import platform

    from ..llvm.engine import engine
    from ..llvm.parts import Part
    from .allocator_text import TEXT
    from .openmp import TEXT as TEAM
    from .pool import runtime_text

    # None of this has a hot loop.
    texts = [runtime_text(platform.system(), platform.machine()), TEAM]
    if HAS_ALLOCATOR:
        texts.append(TEXT)
    if DATA_OFFSET is not None:
        from .entry_text import entry_text

        texts.append(entry_text(DATA_OFFSET))
    code = engine().object_code([Part(text, plain=True) for text in texts])
    return code


def _load() -> Image:
    kept = Kept("the run time", {"data_offset": DATA_OFFSET, "page": PAGE})
    code = kept.find()
    if code is None:
        code = _compile()
        kept.store(code)
    image = Image(code)
    # Workers, arrays and built-in functions outlive this module.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(image))
    return image


runtime = Once(_load)
