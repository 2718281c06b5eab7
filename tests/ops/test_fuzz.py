"""Random programs from the schemas of all ops, against PyTorch eager: see tests/fuzz. `--long` tries 20 000."""

from __future__ import annotations

import pytest
from fuzz.check import NUMPY, WAYS, check
from fuzz.defects import DEFECTS

EXAMPLES = 20  # of a way
LONG_EXAMPLES = 20_000 // len(WAYS)
# Compiling with Dynamo takes ten times as long as the rest. Programs in the simulator are in cuda_simulated.py.
SLOW = 4


@pytest.mark.parametrize("way", WAYS)
def test_random_programs_agree_with_pytorch(way: str, request: pytest.FixtureRequest) -> None:
    count = LONG_EXAMPLES if request.config.getoption("--long") else EXAMPLES if way in NUMPY else SLOW
    first = 1_000_000 * (1 + list(WAYS).index(way))
    failed = [outcome for seed in range(first, first + count) if "failure" in (outcome := check(seed, (way,)))]
    assert not failed, "\n\n".join(f"seed {item['seed']}: {item['failure']}" for item in failed[:5])


@pytest.mark.parametrize("name", DEFECTS)
def test_defects_can_be_put_back(name: str) -> None:
    """What each edit changes is still there. `make fuzz ARGS="--defect gather"` shows that programs find it."""
    for edit in DEFECTS[name]:
        compile(edit.source(), edit.place, "exec")
