"""All workloads, by name."""

from __future__ import annotations

from . import images, layout, pointwise, reduce, rows, science, small, sort, special, training
from .define import Workload

MODULES = (pointwise, rows, reduce, layout, images, training, science, small, sort, special)


def all_workloads() -> dict[str, Workload]:
    found = [item for module in MODULES for item in vars(module).values() if isinstance(item, Workload)]
    return {item.name: item for item in found}
