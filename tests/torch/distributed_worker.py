"""One of two processes of tests/torch/test_torch_distributed.py: python distributed_worker.py PORT RANK"""

from __future__ import annotations

import copy
import os
import sys
from datetime import timedelta
from typing import Any

import smelt.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


class Model(nn.Module):
    """Dynamo compiles frames of one's own: those of nn.Sequential under DistributedDataParallel it leaves alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 600), nn.GELU(), nn.LayerNorm(600), nn.Linear(600, 600), nn.GELU(), nn.Linear(600, 4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def train(parallel: Any, model: nn.Module, rank: int) -> list[torch.Tensor]:
    """Gradients of each step, and the parameters in the end; the two processes have different data."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(rank)
    found: list[torch.Tensor] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        x, labels = torch.randn(6, 8, generator=data), torch.randint(4, (6,), generator=data)
        cross_entropy(parallel(x), labels).backward()
        found += [param.grad.clone() for param in model.parameters() if param.grad is not None]
        optimizer.step()
    return [*found, *(param.detach() for param in model.parameters())]


def main(port: int, rank: int) -> None:
    os.environ["SMELT_CACHE_DIR"] = "off"
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    torch.manual_seed(0)
    model = Model()
    other = copy.deepcopy(model)
    # The smallest buckets that Dynamo takes: it cuts the graph where one is full.
    parallel = DistributedDataParallel(model, bucket_cap_mb=1)
    got = train(torch.compile(parallel, backend="smelt"), model, rank)
    expected = train(DistributedDataParallel(other), other, rank)
    for one, two in zip(got, expected, strict=True):
        torch.testing.assert_close(one, two)
    # Both processes have the mean of their gradients.
    for item in got:
        both = [torch.empty_like(item) for _ in range(2)]
        dist.all_gather(both, item.contiguous())
        assert torch.equal(*both)
    receipt = smelt.torch.stats()
    assert receipt["graphs"] >= 4 and not receipt["fallback_names"], receipt
    dist.barrier()
    dist.destroy_process_group()
    # All is compared. The store of process 0, which this function owns, now and then never gets to its end on a busy
    # machine: its destructor keeps the interpreter's lock, for which a thread of PyTorch's waits.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
