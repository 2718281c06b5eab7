"""Places of temporaries: those that live at the same time never overlap, and the plan of a long program is quick."""

from __future__ import annotations

import itertools
import random
import time

from smelt.ir.types import f32
from smelt.kernels.loop.ir import Buffer, Kernel
from smelt.kernels.machine import CACHE_LINE
from smelt.passes.memory.arena import plan_memory

SECONDS = 20  # a plan that looks at every buffer for every kernel of a life takes minutes


def kernel(names: list[str], sizes: dict[str, int]) -> Kernel:
    return Kernel("k", tuple(Buffer(name, f32, (sizes[name],), "temp") for name in names), ())


def test_lives_that_meet_have_places_of_their_own() -> None:
    draw = random.Random(0)
    for _ in range(100):
        sizes = {f"b{number}": draw.choice((1, 16, 17, 100, 1000)) for number in range(draw.randint(1, 30))}
        used = [draw.sample(sorted(sizes), draw.randint(0, min(len(sizes), 4))) for _ in range(draw.randint(1, 30))]
        plan = plan_memory([kernel(names, sizes) for names in used], ["b0"])
        times = {name: [at for at, names in enumerate(used) if name in names] for name in sizes if name != "b0"}
        lives = {name: (found[0], found[-1]) for name, found in times.items() if found}
        assert set(plan.offsets) == set(lives)
        for name, offset in plan.offsets.items():
            assert offset % CACHE_LINE == 0 and offset + 4 * sizes[name] <= plan.size
        for one, other in itertools.combinations(lives, 2):
            if lives[one][0] <= lives[other][1] and lives[other][0] <= lives[one][1]:
                low, high = sorted((one, other), key=lambda name: plan.offsets[name])
                assert plan.offsets[low] + 4 * sizes[low] <= plan.offsets[high]


def test_a_long_program_with_its_derivative_is_planned_quickly() -> None:
    """Each value is read again on the way back: half of them live for half of the time."""
    count = 1500
    sizes = {f"{way}{number}": 16 for way in "fb" for number in range(count)}
    forward = [kernel([f"f{max(at - 1, 0)}", f"f{at}"], sizes) for at in range(count)]
    backward = [kernel([f"b{at}", f"b{min(at + 1, count - 1)}", f"f{at}"], sizes) for at in reversed(range(count))]
    begin = time.process_time()
    plan = plan_memory(forward + backward, [])
    assert time.process_time() - begin < SECONDS
    assert plan.size <= (count + 2) * CACHE_LINE
