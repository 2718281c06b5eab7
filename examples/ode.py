"""Find the constants of a predator-prey system from a few observations.

The system is integrated with Runge-Kutta steps inside a compiled function. Newton's method then needs the
gradient of the misfit and its Hessian: forward mode over reverse mode, compiled as well.

    python examples/ode.py
"""

from __future__ import annotations

import numpy as np
import smelt
from smelt.ops import stack, sum

STEP = 0.1
STEPS = 30


def rates(state, constants):
    prey, predators = state[0], state[1]
    birth, hunt, growth, death = (constants[index] for index in range(4))
    return stack([birth * prey - hunt * prey * predators, growth * prey * predators - death * predators])


def simulate(constants, start):
    """The populations at every tenth step, as one tensor."""
    state, seen = start, []
    for step in range(1, STEPS + 1):
        slope_1 = rates(state, constants)
        slope_2 = rates(state + STEP / 2 * slope_1, constants)
        slope_3 = rates(state + STEP / 2 * slope_2, constants)
        slope_4 = rates(state + STEP * slope_3, constants)
        state = state + STEP / 6 * (slope_1 + 2 * slope_2 + 2 * slope_3 + slope_4)
        if step % 10 == 0:
            seen.append(state)
    return stack(seen)


def misfit(constants, start, observed):
    difference = simulate(constants, start) - observed
    return sum(difference * difference)


@smelt.jit
def gradient_and_hessian_row(constants, start, observed, direction):
    """The gradient of the misfit, and its derivative in one direction."""
    return smelt.jvp(lambda c: smelt.grad(misfit)(c, start, observed), (constants,), (direction,))


def main():
    truth = np.array([1.1, 0.4, 0.1, 0.4])
    start = np.array([10.0, 5.0])
    observed = smelt.jit(simulate)(truth, start)
    constants = np.array([1.0, 0.38, 0.11, 0.42])
    identity = np.eye(4)
    for iteration in range(6):
        pairs = [gradient_and_hessian_row(constants, start, observed, direction) for direction in identity]
        gradient = np.asarray(pairs[0][0])
        hessian = np.stack([np.asarray(row) for _, row in pairs])
        value = float(smelt.jit(misfit)(constants, start, observed))
        print(f"iteration {iteration}   misfit {value:.2e}   constants {np.round(constants, 6)}")
        constants = constants - np.linalg.solve(hessian, gradient)
    print(f"found {np.round(constants, 6)}, truth {truth}")


if __name__ == "__main__":
    main()
