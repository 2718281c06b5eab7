"""Samples of the random ops: with a seed given they are functions, and the interpreter is their reference.

That the numbers are distributed as they should be is tested in test_random_ops.py.
"""

from __future__ import annotations

from .table import FLOAT, FULL, Entry, S, Sample, entry, mask, nonzero, t, values

SEED = values(1234, 5, dtype="i64", differentiate=False)


def seeded(*samples: Sample, **fields: object) -> Entry:
    """The samples with a seed and a stream."""
    given = (Sample(item.args, {**item.kwargs, "seed": SEED, "stream": 0}, item.dtypes, item.modes) for item in samples)
    return entry(*given, torch="interp", special=False, **fields)


CHANCES = t(3, low=0.0, high=1.0, differentiate=False)

ENTRIES = {
    "random_bits": seeded(S((37,)), S((2, 3)), S(()), S((0,)), dtypes=("f64",)),
    "rand": seeded(*(S((37,), dtype=name) for name in FLOAT), S(()), S((2, 3)), dtypes=("f64",)),
    "randn": seeded(*(S((37,), dtype=name) for name in FULL), S(()), S((2, 3)), dtypes=("f64",)),
    "rand_like": seeded(S(t(37)), S(t(2, 3), dtype="f64")),
    "randn_like": seeded(S(t(37)), S(t(2, 3), dtype="f64"), dtypes=FULL),
    "randint": seeded(S(0, 10, (37,)), S(-5, 5, (2, 3), dtype="i32"), S(0, 2**40, (5,)), dtypes=("f64",)),
    "bernoulli": seeded(
        S(t(37, low=0.0, high=1.0)), S(t(2, 3), 0.3), S(t(2, 3), t(3, low=0.0, high=1.0, differentiate=False))
    ),
    "uniform": seeded(S(t(37)), S(t(2, 3), -1.0, 2.0)),
    "normal_functional": seeded(S(t(37)), S(t(2, 3), 1.0, 2.0), dtypes=FULL),
    "normal": seeded(S(t(37), 2.0), S(t(3, 1), t(4, low=0.5)), S(1.0, 2.0, (5,)), dtypes=FULL),
    "_standard_gamma": seeded(S(t(37, low=0.1)), S(t(2, 3, low=5.0, high=90.0)), dtypes=FULL, derivative=False),
    "_standard_gamma_grad": entry(
        S(t(37, low=0.1, high=8.0), t(37, low=0.01, high=20.0)),
        S(t(37, low=8.5, high=90.0), t(37, low=8.0, high=90.0)),
        S(values(9.0, 9.0, 20.0, 0.5), values(9.0, 0.1, 25.0, 1e-4)),
        special=False,
        derivative=False,
        dtypes=FULL,
    ),
    "_sample_dirichlet": seeded(S(t(7, 3, low=0.3)), dtypes=FULL, derivative=False),
    "poisson": seeded(
        S(t(37, low=0.0, high=30.0)), S(values(-1.0, 0.0, float("nan"), 1e6)), dtypes=FULL, derivative=False
    ),
    "binomial": seeded(
        S(values(5.0, 40.0, 1000.0, 0.0), t(3, 4, low=0.0, high=1.0)),
        S(values(5.0, -1.0, 9.0), values(1.5, 0.5, 1.0)),
        dtypes=FULL,
        derivative=False,
    ),
    "native_dropout": seeded(S(t(37), 0.3), S(t(2, 3), 0.5, False), S(t(5), 0.0), S(t(5), 1.0, True)),
    "native_dropout_backward": entry(S(t(37), mask(37), 1.5), S(t(2, 3), mask(2, 3), 2.0), special=False),
    "dropout": seeded(S(t(37)), S(t(37), 0.2), S(t(2, 3), 0.5, False)),
    "rrelu_with_noise_functional": seeded(
        S(nonzero(37), t(37, differentiate=False), 0.1, 0.3, True),
        S(nonzero(2, 3), t(2, 3, differentiate=False)),
        outputs=1,
        dtypes=FULL,
    ),
    "rrelu_with_noise_backward": entry(
        S(t(37), nonzero(37), t(37, differentiate=False), 0.1, 0.3, True, False),
        S(t(37), nonzero(37), t(37, differentiate=False), 0.1, 0.3, False, False),
        special=False,
        dtypes=FULL,
    ),
}
