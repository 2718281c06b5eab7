"""Whether results of a PyTorch module are right: their errors against float64, measured by those of eager.

A tolerance says little about a gradient. That of the bias of an attention's keys is zero, and what comes out is nothing
but rounding, which differs from one program to the next by more than any tolerance; another one may be wrong in its
fourth digit and within it. How much rounding may change is told by eager's own errors.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

# Sums in another order, and functions by another formula, have other errors: a few times those of eager.
MULTIPLE = 8.0
FEW = 1e-3  # of integers may differ: which of two nearly equal numbers is the larger one is a matter of rounding

Tensors = Sequence[torch.Tensor]


def in_float64(module: torch.nn.Module, inputs: Any) -> tuple[torch.nn.Module, Any]:
    """A copy of the module, and its inputs, with all numbers in double precision."""
    return copy.deepcopy(module)._apply(_wide), torch.utils._pytree.tree_map_only(torch.Tensor, _wide, inputs)


def exact_results(call: Callable[[], Tensors]) -> list[torch.Tensor] | None:
    """Results of a call of a module in float64; None if the module insists on another type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return kept(call())
    except (RuntimeError, TypeError, ValueError):
        return None
    finally:
        torch.set_default_dtype(before)


def kept(results: Tensors) -> list[torch.Tensor]:
    """Results as they are now, whatever the next call does to them."""
    return [item.detach().clone() for item in results]


def excess(ours: Tensors, eager: Tensors, exact: Tensors) -> float:
    """The largest error, in acceptable ones: 1 is just acceptable.

    It is that of an array as a whole (root mean square) or that of its worst element. A single number may be right by
    chance: eager's error of an array counts as no less than is usual for eager, nor less than the type can say.
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
    """Whether infinities and what is not a number are the same, and in the same places."""
    places = ~reference.isfinite()
    if not torch.equal(~found.isfinite(), places):
        return False
    return torch.allclose(found[places], reference[places], equal_nan=True)


def _usual_errors(eager: Tensors, exact: Tensors) -> tuple[float, float]:
    """The median over all arrays of eager's errors, as parts of what they are errors of."""
    scales = [_size(item) if item.is_floating_point() or item.is_complex() else 0.0 for item in exact]
    parts = [
        [error / scale for error in _errors(found, right)] for found, right, scale in zip(eager, exact, scales) if scale
    ]
    if not parts:
        return 0.0, 0.0
    whole, single = (statistics.median(column) for column in zip(*parts))
    return whole, single


def _errors(found: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """The root mean square of differences, and the largest one."""
    difference = _wide(found) - _wide(right)
    difference = difference[difference.isfinite()].abs()
    if not difference.numel():
        return 0.0, 0.0
    return _size(difference), difference.max().item()


def _size(tensor: torch.Tensor) -> float:
    """The root mean square of what is finite."""
    finite = tensor[tensor.isfinite()].abs()
    return finite.square().mean().sqrt().item() if finite.numel() else 0.0


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
