"""Every op, by name: `smelt.ops.gelu`. One file per family; naming a file in FAMILIES adds its ops."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..ir.errors import suggest
from .define import REGISTRY

FAMILIES = (
    "create",
    "pointwise",
    "minmax",
    "rounding",
    "elementary",
    "special",
    "bessel",
    "polynomials",
    "activation",
    "view",
    "concat_pad",
    "reduce",
    "linalg",
    "conv",
    "places",
    "indexing",
    "scatter_derivatives",
    "scan",
    "products",
    "random",
    "softmax",
    "norm",
    "batch_norm_update",
    "attention",
    "loss",
    "pooling",
    "adaptive_pool",
    "pad",
    "rearrange",
    "view_copies",
    "ordering",
    "sampling",
    "sorted_search",
    "distance",
    "grid_sample",
    "upsample",
    "unpool",
    "affine_grid",
    "checks",
    "bits",
    "margin_losses",
    "embedding_bag",
    "segment_reduce",
    "histogram",
    "grouped",
    "recurrent",
    "ctc",
    "distributions",
    "rejection",
    "foreach",
    "kernel_names",
    "aliases",
    "data_sizes",
    "quantize",
    "fake_quantize",
    "quantized_products",
    "unique",
)

for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")

# An op named like its family's module (view, norm) shadows the module.
for _family in FAMILIES:
    if _family in REGISTRY:
        globals()[_family] = REGISTRY[_family]

from ..tensor import install as _install  # noqa: E402  (operators need the registry)

_install()


def __getattr__(name: str) -> Any:
    if name in REGISTRY:
        return REGISTRY[name]
    raise AttributeError(f"smelt has no op {name!r}{suggest(name, REGISTRY)}")


def __dir__() -> list[str]:
    return sorted(REGISTRY)
