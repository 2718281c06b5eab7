"""Ops that choose among equal elements: PyTorch leaves open which, smelt says. PyTorch's stable sort decides here."""

from __future__ import annotations

from typing import Any

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


def sort(self: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    return torch.sort(self, dim=dim, descending=descending, stable=True)


def argsort(self: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> torch.Tensor:
    return sort(self, dim, descending)[1]


def topk(self: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    values, places = sort(self, dim, largest)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


def kthvalue(self: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    return chosen(self, argsort(self, dim).narrow(dim, k - 1, 1), dim, keepdim)


def median(self: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor | Pair:
    """The first NaN, if there is one."""
    if dim is None:
        return torch.median(self)
    nan, middle = self.isnan(), argsort(self, dim).narrow(dim, (self.shape[dim] - 1) // 2, 1)
    place = torch.where(nan.any(dim, True), nan.to(torch.int8).argmax(dim, True), middle)
    return chosen(self, place, dim, keepdim)


def nanmedian(self: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor | Pair:
    if dim is None:
        return torch.nanmedian(self)
    middle = (((~self.isnan()).sum(dim, True) - 1) >> 1).clamp_min(0)
    return chosen(self, argsort(self, dim).gather(dim, middle), dim, keepdim)


def mode(self: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    """The last place of the mode; faults.py leaves NaN out."""
    numbers = torch.ones_like(self, dtype=torch.int64).cumsum(dim) - 1
    place = torch.where(self == torch.mode(self, dim, True).values, numbers, 0).amax(dim, True)
    return chosen(self, place, dim, keepdim)


def chosen(self: torch.Tensor, place: torch.Tensor, dim: int, keepdim: bool) -> Pair:
    value = self.gather(dim, place)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


ORDERED = {
    "sort": sort,
    "argsort": argsort,
    "topk": topk,
    "kthvalue": kthvalue,
    "median": median,
    "nanmedian": nanmedian,
    "mode": mode,
}
