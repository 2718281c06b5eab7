"""Load the run time's native code as one image: thread pool, allocator, entry of calls.

Its LLVM text is made only on a cache miss: it depends on smelt's sources alone, which are a part of every key.
"""

from __future__ import annotations

import ctypes

from ...process.process_wide import Once
from ..image.cached import Kept
from ..image.image import Image
from .records import DATA_OFFSET, HAS_ALLOCATOR, HAS_ENTRY, PAGE


def texts() -> list[str]:
    """Write the run time for this process as LLVM text."""
    import platform

    from . import native_allocator, native_entry, native_guards, native_pool, native_results

    found = [native_pool.unit.text(native_pool.Platform(platform.system(), platform.machine()))]
    if HAS_ALLOCATOR:
        found.append(native_allocator.unit.text())
    if HAS_ENTRY:
        found += [native_entry.unit.text(), native_guards.unit.text(), native_results.unit.text()]
    return found


def _load() -> Image:
    kept = Kept("the run time", {"data_offset": DATA_OFFSET, "page": PAGE})
    code = kept.find()
    if code is None:
        from ..llvm.engine import engine
        from ..llvm.parts import Part

        # plain, without optimization: the run time has no hot loop.
        code = engine().object_code([Part(text, plain=True) for text in texts()])
        kept.store(code)
    image = Image(code)
    # Never unloaded: workers, arrays and built-in functions outlive this module.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(image))
    return image


runtime = Once("native run time", _load)
