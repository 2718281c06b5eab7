"""Programs of science and finance: long elementwise formulas, stencils and integrators, mostly in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .define import Array, Draw, Function, Names, sizes, workload

# ----- integrators

State = tuple[Array, ...]


def runge_kutta(slope: Callable[[State], State], state: State, step: float) -> State:
    """One step of the classical method of fourth order."""

    def moved(slopes: State, distance: float) -> State:
        return tuple(place + distance * change for place, change in zip(state, slopes))

    first = slope(state)
    second = slope(moved(first, step / 2))
    third = slope(moved(second, step / 2))
    fourth = slope(moved(third, step))
    return tuple(
        place + step / 6 * (a + 2 * b + 2 * c + d) for place, a, b, c, d in zip(state, first, second, third, fourth)
    )


def lorenz_inputs(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(-10.0, 10.0, count), draw.uniform(-10.0, 10.0, count), draw.uniform(10.0, 30.0, count)]


ENSEMBLE = sizes(tiny=(5,), small=(1000,), medium=(50_000,), large=(1_000_000,))


@workload("science", lorenz_inputs, ENSEMBLE, dtype="f64")
def lorenz_ensemble(xp: Names, x: Array, y: Array, z: Array) -> Array:
    """Four Runge-Kutta steps of many Lorenz systems."""

    def slope(state: State) -> State:
        x, y, z = state
        return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z

    state: State = (x, y, z)
    for _ in range(4):
        state = runge_kutta(slope, state, 0.01)
    return state


@lorenz_ensemble.by_numba
def lorenz_ensemble_numba(numba: Any) -> Function:
    @numba.njit(fastmath=True)
    def slope(x: float, y: float, z: float) -> tuple[float, float, float]:
        return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z

    @numba.njit(parallel=True, fastmath=True)
    def lorenz_ensemble(x: Array, y: Array, z: Array) -> Array:
        new_x, new_y, new_z = np.empty_like(x), np.empty_like(y), np.empty_like(z)
        h = 0.01
        for i in numba.prange(x.size):
            p, q, r = x[i], y[i], z[i]
            for _ in range(4):
                a, b, c = slope(p, q, r)
                d, e, f = slope(p + h / 2 * a, q + h / 2 * b, r + h / 2 * c)
                k, l, m = slope(p + h / 2 * d, q + h / 2 * e, r + h / 2 * f)
                s, t, u = slope(p + h * k, q + h * l, r + h * m)
                p += h / 6 * (a + 2 * d + 2 * k + s)
                q += h / 6 * (b + 2 * e + 2 * l + t)
                r += h / 6 * (c + 2 * f + 2 * m + u)
            new_x[i], new_y[i], new_z[i] = p, q, r
        return new_x, new_y, new_z

    return lorenz_ensemble


def pendulum_inputs(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(-2.0, 2.0, count), draw.normal(count)]


@workload("science", pendulum_inputs, ENSEMBLE, dtype="f64")
def pendulum_ensemble(xp: Names, angle: Array, speed: Array) -> Array:
    """Four Runge-Kutta steps of many damped pendulums."""

    def slope(state: State) -> State:
        angle, speed = state
        return speed, -9.81 * xp.sin(angle) - 0.1 * speed

    state: State = (angle, speed)
    for _ in range(4):
        state = runge_kutta(slope, state, 0.01)
    return state


def body_inputs(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.normal(count, 3), draw.uniform(0.5, 1.5, count)]


@workload("science", body_inputs, sizes(tiny=(5,), small=(64,), medium=(256,), large=(1024,)), dtype="f64")
def gravity(xp: Names, places: Array, masses: Array) -> Array:
    """The acceleration of each body by all others."""
    apart = places[None, :, :] - places[:, None, :]
    square = xp.sum(apart * apart, -1) + 1e-4
    pull = masses[None, :] / (square * xp.sqrt(square))
    return xp.sum(apart * pull[:, :, None], 1)


def option_inputs(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(50.0, 150.0, count), draw.uniform(50.0, 150.0, count), draw.uniform(0.1, 2.0, count)]


@workload("science", option_inputs, ENSEMBLE, dtype="f64")
def option_prices(xp: Names, spot: Array, strike: Array, years: Array) -> Array:
    """Calls and puts by the formula of Black and Scholes."""
    rate, volatility = 0.03, 0.25
    spread = volatility * xp.sqrt(years)
    above = (xp.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
    below = above - spread

    def normal(x: Array) -> Array:
        return 0.5 * (1.0 + xp.erf(x * 0.7071067811865476))

    discounted = strike * xp.exp(-rate * years)
    call = spot * normal(above) - discounted * normal(below)
    return call, call - spot + discounted


def plane_inputs(draw: Draw, count: int) -> Sequence[Array]:
    return [draw.uniform(-2.0, 0.5, count), draw.uniform(-1.0, 1.0, count)]


@workload("science", plane_inputs, sizes(tiny=(7,), small=(1024,), medium=(1 << 16,), large=(1 << 20,)), dtype="f64")
def mandelbrot(xp: Names, real: Array, imaginary: Array) -> Array:
    """How many of twelve iterations stay bounded."""
    x, y = real, imaginary
    count = xp.zeros_like(real)
    for _ in range(12):
        x, y = x * x - y * y + real, 2 * x * y + imaginary
        # Escaped points stay in place, so that they do not overflow.
        x, y = xp.clamp(x, -4.0, 4.0), xp.clamp(y, -4.0, 4.0)
        count = count + xp.where(x * x + y * y < 4.0, 1.0, 0.0)
    return count


# ----- an ocean


def horner(x: Array, *coefficients: float) -> Array:
    """A polynomial in x, the constant coefficient first."""
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def water_inputs(draw: Draw, rows: int, columns: int, levels: int) -> Sequence[Array]:
    shape = (rows, columns, levels)
    return [draw.uniform(30.0, 38.0, *shape), draw.uniform(-1.0, 28.0, *shape), draw.uniform(0.0, 400.0, *shape)]


OCEAN = sizes(tiny=(4, 5, 6), small=(16, 16, 8), medium=(64, 64, 26), large=(224, 224, 26))


@workload("science", water_inputs, OCEAN, dtype="f64")
def equation_of_state(xp: Names, salinity: Array, temperature: Array, pressure: Array) -> Array:
    """The density of sea water by the UNESCO polynomials of 1981: about 60 coefficients."""
    s, t, p = salinity, temperature, pressure
    root = s * xp.sqrt(s)
    fresh = horner(t, 999.842594, 6.793952e-2, -9.095290e-3, 1.001685e-4, -1.120083e-6, 6.536332e-9)
    surface = (
        fresh
        + s * horner(t, 8.24493e-1, -4.0899e-3, 7.6438e-5, -8.2467e-7, 5.3875e-9)
        + root * horner(t, -5.72466e-3, 1.0227e-4, -1.6546e-6)
        + 4.8314e-4 * s * s
    )
    stiffness = (
        horner(t, 19652.21, 148.4206, -2.327105, 1.360477e-2, -5.155288e-5)
        + s * horner(t, 54.6746, -0.603459, 1.09987e-2, -6.1670e-5)
        + root * horner(t, 7.944e-2, 1.6483e-2, -5.3009e-4)
    )
    linear = (
        horner(t, 3.239908, 1.43713e-3, 1.16092e-4, -5.77905e-7)
        + s * horner(t, 2.2838e-3, -1.0981e-5, -1.6078e-6)
        + 1.91075e-4 * root
    )
    square = horner(t, 8.50935e-5, -6.12293e-6, 5.2787e-8) + s * horner(t, -9.9348e-7, 2.0816e-8, 9.1697e-10)
    return surface / (1.0 - p / (stiffness + p * (linear + p * square)))


def tracer_inputs(draw: Draw, rows: int, columns: int, levels: int) -> Sequence[Array]:
    shape = (rows, columns, levels)
    return [
        draw.uniform(0.0, 25.0, *shape),
        draw.uniform(33.0, 37.0, *shape),
        draw.normal(*shape),
        draw.uniform(5.0, 50.0, levels - 1),
    ]


@workload("science", tracer_inputs, OCEAN, dtype="f64")
def isoneutral_mixing(xp: Names, temperature: Array, salinity: Array, tracer: Array, depths: Array) -> Array:
    """A tracer spread along surfaces of equal density: slopes of four neighbours, tapered, and their fluxes."""
    width, largest, sharpness, strength = 1000.0, 4e-3, 1e-3, 1000.0
    by_temperature = -0.08 - 0.012 * temperature + 0.0001 * temperature * temperature
    by_salinity = 0.78 - 0.002 * temperature

    def along(x: Array, axis: int) -> Array:
        later, earlier = [slice(None)] * 3, [slice(None)] * 3
        later[axis], earlier[axis] = slice(1, None), slice(None, -1)
        return x[tuple(later)] - x[tuple(earlier)]

    temperature_up, salinity_up, tracer_up = (along(x, 2) / depths for x in (temperature, salinity, tracer))
    fluxes = []
    for axis in (0, 1):
        temperature_on, salinity_on, tracer_on = (along(x, axis) / width for x in (temperature, salinity, tracer))
        flux = 0.0
        for side in (0, 1):
            place = [slice(None)] * 3
            place[axis] = slice(1, None) if side else slice(None, -1)
            for level in (0, 1):
                # The triad at one side of the face, with the difference to the level above or below.
                inner = slice(1, -1)
                upper = slice(1, None) if level else slice(None, -1)
                here, beside = (*place[:2], inner), (*place[:2], upper)
                across = by_temperature[here] * temperature_on[:, :, 1:-1] + by_salinity[here] * salinity_on[:, :, 1:-1]
                upward = by_temperature[here] * temperature_up[beside] + by_salinity[here] * salinity_up[beside]
                slope = -across / xp.minimum(upward, -1e-7)
                taper = 0.5 * (1.0 + xp.tanh((largest - xp.abs(slope)) / sharpness))
                flux = flux + 0.25 * taper * (tracer_on[:, :, 1:-1] - slope * tracer_up[beside])
        fluxes.append(strength * flux)
    spread = along(fluxes[0], 0)[:, 1:-1] + along(fluxes[1], 1)[1:-1]
    return tracer[1:-1, 1:-1, 1:-1] + 100.0 * spread / width


def energy_inputs(draw: Draw, levels: int, rows: int, columns: int) -> Sequence[Array]:
    shape = (levels, rows, columns)
    return [
        draw.uniform(1e-6, 1e-2, *shape),
        draw.normal(*shape, scale=0.2),
        draw.normal(*shape, scale=0.2),
        draw.uniform(-1e-6, 1e-4, *shape),
        draw.uniform(0.0, 1e-3, rows, columns),
    ]


@workload(
    "science",
    energy_inputs,
    sizes(tiny=(4, 3, 5), small=(8, 8, 8), medium=(8, 64, 64), large=(8, 400, 400)),
    dtype="f64",
)
def turbulent_energy(xp: Names, energy: Array, east: Array, north: Array, stability: Array, wind: Array) -> Array:
    """Turbulent kinetic energy of water columns: mixing lengths, sources, and an implicit step of diffusion in depth
    (a tridiagonal system in every column, eliminated level by level)."""
    levels, height, step = energy.shape[0], 10.0, 600.0
    root = xp.sqrt(energy)
    length = 1.4142135 * root / xp.sqrt(xp.maximum(stability, 1e-12))
    # No eddy is larger than the way to the next boundary.
    lengths = [xp.clamp(length[level], 0.1, height * min(level + 1, levels - level)) for level in range(levels)]
    rows = []
    for level in range(levels):
        above = max(level - 1, 0)
        shear_east = (east[level] - east[above]) / height
        shear_north = (north[level] - north[above]) / height
        shear = shear_east * shear_east + shear_north * shear_north
        viscosity = xp.minimum(0.1 * lengths[level] * root[level], 100.0)
        number = xp.clamp(6.6 * stability[level] / (shear + 1e-8), 1.0, 10.0)
        source = viscosity * shear - viscosity / number * stability[level]
        rows.append((viscosity, source, 0.7 * root[level] / lengths[level]))
    above_factors: list[Array] = []
    sides: list[Array] = []
    for level, (viscosity, source, loss) in enumerate(rows):
        lower = -step * 0.5 * (viscosity + rows[level - 1][0]) / (height * height) if level else None
        upper = -step * 0.5 * (viscosity + rows[level + 1][0]) / (height * height) if level + 1 < levels else None
        middle = 1.0 + step * loss - (0.0 if lower is None else lower) - (0.0 if upper is None else upper)
        side = energy[level] + step * xp.maximum(source, 0.0) + (wind if level == 0 else 0.0)
        if lower is not None:
            middle = middle - lower * above_factors[-1]
            side = side - lower * sides[-1]
        above_factors.append(middle * 0.0 if upper is None else upper / middle)
        sides.append(side / middle)
    found = sides[-1]
    solution = [found]
    for level in range(levels - 2, -1, -1):
        found = sides[level] - above_factors[level] * found
        solution.append(found)
    return xp.stack(solution[::-1], 0)
