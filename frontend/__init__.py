"""smelt: a small tensor compiler. Op calls in, one native function out."""

from __future__ import annotations

from . import ops

__all__ = ["ops"]
__version__ = "0.1.0"
