"""Samples of the special functions: Bessel and Airy functions, the normal distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
import torch

from .table import FLOAT, FULL, REAL, Entry, S, binary, entry, t, unary, values

# Both sides of the places where other formulas begin; PyTorch has no kernels of most of these for f16 and bf16.
WAVES = (S(t(40, low=-40.0, high=40.0)).only(*FULL), S(values(0.0, 1e-3, 2.4, 5.9, 6.1)).only(*FULL))
POSITIVE = (S(t(40, low=0.1, high=40.0)).only(*FULL), S(values(0.1, 1.4, 1.6, 5.9, 6.1)).only(*FULL))


def scipy_function(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """SciPy's function in f64, on tensors: PyTorch's of the same name is wrong in the seventh digit."""

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        results = np.asarray(function(*(item.double().numpy() for item in tensors)))
        kind = tensors[0].dtype
        return torch.from_numpy(results).to(kind if kind.is_floating_point else torch.float32)

    return call


DEGREES = values(0, 1, 2, 3, 5, 8, 9, 12, 30, 2.7, -1, dtype="f64", shape=(11, 1))
# Within, on and beyond the ends of the interval of orthogonality.
PLACES = values(-1.0, 1.0, 0.0, 0.3, -0.7, 0.99, 2.5, -1.25)


def polynomial(**fields: Any) -> Entry:
    return binary(
        S(PLACES, DEGREES).only("f64"),
        S(PLACES, values(0, 1, 2, 4, 7, 11, 20, 3)),
        S(PLACES, 4),
        S(0.5, values(1, 2, 3)),
        left=t(low=-2.0, high=2.0),
        right=t(low=0.0, high=9.0),
        dtypes=REAL,
        derivative=False,
        special=False,
        **fields,
    )


POLYNOMIALS = (
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
)
ZETA = (
    S(values(1.0, 0.5, 2.0, 3.0, 2.5, 30.0, 700.0), values(2.0, 2.0, 0.1, 50.0, 1e6, 3.0, 40.0)).forward_only(),
    S(values(2.0, 3.0, 4.0, 2.5, 2.0, 5.0), values(-0.5, -3.25, -7.75, -0.5, -2.0, 0.0)).forward_only(),
)

ENTRIES = {
    **{f"special_{name}": polynomial() for name in POLYNOMIALS},
    "special_zeta": binary(
        *ZETA,
        S(2.5, t(5, low=0.2)),
        left=t(low=1.2, high=9.0, differentiate=False),
        right=t(low=0.2, high=9.0),
        dtypes=REAL,
    ),
    "hurwitz_zeta": binary(
        *ZETA[:1],
        left=t(low=1.2, high=9.0, differentiate=False),
        right=t(low=0.2, high=9.0),
        dtypes=REAL,
        torch="special.zeta",
        special=False,  # those of special_zeta
    ),
    **{
        name: binary(
            S(
                values(0.5, 0.1, 2.0, 9.0, 60.0, 60.0, 400.0, differentiate=False),
                values(0.1, 1.0, 7.0, 4.0, 55.0, 120.0, 390.0),
            ),
            left=t(low=0.2, high=12.0, differentiate=False),
            right=t(low=0.2, high=12.0),
            mixed=False,
            dtypes=REAL,
            torch=torch_name,
            special=special,
        )
        for name, torch_name, special in (
            ("igamma", "igamma", True),
            ("igammac", "igammac", True),
            ("lower_gamma", "igamma", False),
            ("upper_gamma", "igammac", False),
        )
    },
    "without_derivative": unary(torch=lambda x: x + 0),
    "i0": unary(*WAVES, S(values(11.9, 12.1, -12.1)).only(*FULL), dtypes=REAL),
    "special_i0e": unary(*WAVES[:1], S(values(11.9, 12.1, -12.1)).only(*FULL), dtypes=REAL),
    "special_i1": unary(*WAVES, S(values(11.9, 12.1, -12.1)).only(*FULL), dtypes=REAL),
    "special_i1e": unary(*WAVES[:1], S(values(11.9, 12.1, -12.1)).only(*FULL), dtypes=REAL),
    "special_modified_bessel_i0": unary(*WAVES, dtypes=REAL),
    "special_modified_bessel_i1": unary(*WAVES, dtypes=REAL),
    "special_modified_bessel_k0": unary(*POSITIVE, low=0.1, dtypes=REAL),
    "special_modified_bessel_k1": unary(*POSITIVE, low=0.1, dtypes=REAL),
    "special_scaled_modified_bessel_k0": unary(*POSITIVE, low=0.1, dtypes=REAL),
    "special_scaled_modified_bessel_k1": unary(*POSITIVE, low=0.1, dtypes=REAL),
    "special_bessel_j0": unary(*WAVES, dtypes=REAL, torch=scipy_function(scipy.special.j0)),
    "special_bessel_j1": unary(*WAVES, dtypes=REAL, torch=scipy_function(scipy.special.j1)),
    "special_bessel_y0": unary(*POSITIVE, low=0.1, dtypes=REAL, torch=scipy_function(scipy.special.y0)),
    "special_bessel_y1": unary(*POSITIVE, low=0.1, dtypes=REAL, torch=scipy_function(scipy.special.y1)),
    "special_spherical_bessel_j0": unary(*WAVES, dtypes=REAL),
    "special_airy_ai": unary(
        S(t(40, low=-30.0, high=30.0)).only(*FULL),
        S(values(-3.1, -2.9, 0.4, 0.6)).only(*FULL),
        dtypes=REAL,
        # SciPy gives nan where it is 0.
        torch=scipy_function(lambda x: np.where(x > 110, 0.0, scipy.special.airy(x)[0])),
    ),
    "special_erfcx": unary(
        S(t(40, low=-5.0, high=40.0)).only(*FULL), S(values(0.44, 0.46, -0.9, -1.1)).only(*FULL), dtypes=REAL
    ),
    "special_log_ndtr": unary(
        S(t(40, low=-40.0, high=8.0)).only(*FULL), S(values(0.6, 0.7, -0.9, -1.1)).only(*FULL), dtypes=REAL
    ),
    "special_ndtri": unary(
        S(values(1e-30, 1e-8, 0.24, 0.26, 0.74, 0.76, 0.999)).only(*FULL).forward_only(),
        low=0.05,
        high=0.95,
        dtypes=REAL,
    ),
    "frexp": entry(
        *(S(t(*shape, low=-1e3, high=1e3)) for shape in ((37,), (), (0,), (2, 3))),
        S(values(0.0, 1.0, -2.0, 1e-40, 4.0, 0.5)).forward_only(),
        dtypes=FLOAT,
        special=False,
    ),
    "mantissa": unary(dtypes=FLOAT, torch=lambda x: torch.frexp(x)[0]),
    "exponent": unary(dtypes=FLOAT, torch=lambda x: torch.frexp(x)[1].to(x.dtype), derivative=False),
}
