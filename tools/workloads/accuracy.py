"""Accuracy of a PyTorch module's results: their errors against float64, relative to the errors of eager.

A fixed tolerance is not meaningful for gradients. The gradient of the bias of an attention's keys is zero, so its
result is only rounding error, which differs between programs by more than any tolerance; another gradient may be wrong
in its fourth digit and within tolerance. Eager's own errors are the scale of acceptable rounding.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Accepted errors, as a multiple of eager's: other orders of sums and other formulas have other errors. Chosen.
MULTIPLE = 8.0
FEW = 1e-3  # fraction of integers that may differ: an argmax of nearly equal numbers depends on rounding

Tensors = Sequence[torch.Tensor]


def in_float64(module: torch.nn.Module, inputs: Any) -> tuple[torch.nn.Module, Any]:
    """Return a copy of the module, and its inputs, in double precision."""
    return copy.deepcopy(module)._apply(_wide), torch.utils._pytree.tree_map_only(torch.Tensor, _wide, inputs)


def exact_results(call: Callable[[], Tensors]) -> list[torch.Tensor] | None:
    """Return the results of a call of a module in float64; None if it does not run in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return kept(call())
    except (RuntimeError, TypeError, ValueError):
        return None
    finally:
        torch.set_default_dtype(before)


def kept(results: Tensors) -> list[torch.Tensor]:
    """Return copies of results, which the next call may overwrite."""
    return [item.detach().clone() for item in results]


def excess(ours: Tensors, eager: Tensors, exact: Tensors) -> float:
    """Return the largest error relative to the accepted one: 1 is just acceptable.

    Compared are each array's root mean square error and its worst element. Eager's error may be small by chance, so it
    counts as at least eager's median error, and at least the type's epsilon.
    """
    if [item.shape for item in ours] != [item.shape for item in exact]:
        return math.inf
    usual = _usual_errors(eager, exact)
    worst = 0.0
    for found, reference, right in zip(ours, eager, exact):
        if not (right.is_floating_point() or right.is_complex()):
            wrong = (found != reference).double().mean().item() if found.numel() else 0.0
            worst = max(worst, wrong / FEW)
            continue
        if not _same_beyond_numbers(_wide(found), _wide(reference)):
            return math.inf
        epsilon, scale = torch.finfo(found.dtype).eps, _size(right)
        for error, known, typical in zip(_errors(found, right), _errors(reference, right), usual):
            allowed = MULTIPLE * max(known, scale * max(typical, epsilon))
            if error:
                worst = max(worst, error / allowed if allowed else math.inf)
    return worst


def _same_beyond_numbers(found: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether infinities and NaNs are the same, and in the same positions."""
    places = ~reference.isfinite()
    if not torch.equal(~found.isfinite(), places):
        return False
    return torch.allclose(found[places], reference[places], equal_nan=True)


def _usual_errors(eager: Tensors, exact: Tensors) -> tuple[float, float]:
    """Return the medians over all arrays of eager's relative errors: root mean square, and largest."""
    scales = [_size(item) if item.is_floating_point() or item.is_complex() else 0.0 for item in exact]
    parts = [
        [error / scale for error in _errors(found, right)] for found, right, scale in zip(eager, exact, scales) if scale
    ]
    if not parts:
        return 0.0, 0.0
    whole, single = (statistics.median(column) for column in zip(*parts))
    return whole, single


def _errors(found: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """Return the root mean square of finite differences, and the largest one."""
    difference = _wide(found) - _wide(right)
    difference = difference[difference.isfinite()].abs()
    if not difference.numel():
        return 0.0, 0.0
    return _size(difference), difference.max().item()


def _size(tensor: torch.Tensor) -> float:
    """Return the root mean square of the finite elements."""
    finite = tensor[tensor.isfinite()].abs()
    return finite.square().mean().sqrt().item() if finite.numel() else 0.0


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
