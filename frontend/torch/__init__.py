"""smelt behind `torch.compile(model, backend="smelt")`."""

from __future__ import annotations

from .backend import smelt as backend
from .exported import from_exported
from .receipt import graphs, report, reset_stats, stats

__all__ = ["backend", "from_exported", "graphs", "report", "reset_stats", "stats"]
