"""How many blocks a launch has."""

from __future__ import annotations

from .emit import Launch

MOST = 1 << 16  # blocks: enough for any GPU; more iterations are loops of their threads


def blocks(launch: Launch, count: int) -> int:
    """Blocks for so many iterations of the outermost loop."""
    each = {"grid": launch.threads, "warp": launch.threads // 32, "block": 1}[launch.kind]
    return min(-(-count // each), MOST)
