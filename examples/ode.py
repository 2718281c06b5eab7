"""Find the constants of a predator-prey system from a few observations.

The system is integrated with Runge-Kutta steps inside a compiled function. Newton's method then needs the
gradient of the misfit and its Hessian: forward mode over reverse mode, compiled as well.

    python examples/ode.py
"""

from __future__ import annotations

import numpy as np
import smelt
from smelt.ops import stack, sum

STEP = 0.25
STEPS = 12


def rates(state, constants):
    prey, predators = state
    birth, hunt, growth, death = constants
    return birth * prey - hunt * prey * predators, growth * prey * predators - death * predators


def moved(state, slope, step):
    return tuple(part + step * change for part, change in zip(state, slope))


def simulate(constants, start):
    """The populations at every fourth step, as one tensor."""
    # One number at a time: a chain of scalar ops is one kernel without loops.
    constants, state, seen = tuple(constants), tuple(start), []
    for step in range(1, STEPS + 1):
        slope_1 = rates(state, constants)
        slope_2 = rates(moved(state, slope_1, STEP / 2), constants)
        slope_3 = rates(moved(state, slope_2, STEP / 2), constants)
        slope_4 = rates(moved(state, slope_3, STEP), constants)
        for slope, share in ((slope_1, 1), (slope_2, 2), (slope_3, 2), (slope_4, 1)):
            state = moved(state, slope, share * STEP / 6)
        if step % 4 == 0:
            seen.extend(state)
    return stack(seen)


def misfit(constants, start, observed):
    difference = simulate(constants, start) - observed
    return sum(difference * difference)


@smelt.jit
def derivatives(constants, start, observed, direction):
    """The misfit, its gradient, and the derivative of the gradient in one direction."""
    primal, tangent = smelt.jvp(
        lambda values: smelt.value_and_grad(misfit)(values, start, observed), (constants,), (direction,)
    )
    return *primal, tangent[1]


def main():
    truth = np.array([1.1, 0.4, 0.1, 0.4])
    start = np.array([10.0, 5.0])
    observed = smelt.jit(simulate)(truth, start)
    constants = np.array([1.0, 0.38, 0.11, 0.42])
    for iteration in range(6):
        rows = []
        for direction in np.eye(4):
            value, gradient, row = derivatives(constants, start, observed, direction)
            rows.append(row)
        print(f"iteration {iteration}   misfit {float(value):.2e}   constants {np.round(constants, 6)}")
        constants = constants - np.linalg.solve(np.stack(rows), gradient)
    print(f"found {np.round(constants, 6)}, truth {truth}")


if __name__ == "__main__":
    main()
