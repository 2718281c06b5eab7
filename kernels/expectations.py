"""What kernels expect of the memory that large results get."""

from __future__ import annotations

CACHE_LINE = 64  # bytes; large results and all temporaries start at a multiple of it
STREAMED = 8 << 20  # bytes from which a result may be streamed,
TOGETHER = 32 << 20  # if a kernel's arrays are so large that the caches would not keep them
SHARED = 64 << 10  # bytes from which a result is streamed whose memory the caches of other processors hold, too
