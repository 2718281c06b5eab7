"""Calls that differ from eager, by name, each with its reason. A gap that no call shows is an error of a whole run."""

from __future__ import annotations

import fnmatch

# (op, mode, pattern of the call): why.
# PyTorch's rule for the backward op takes the statistics for functions of the input, smelt's for arguments. Derivatives
# of the norms themselves agree.
STATISTICS = "PyTorch differentiates through the statistics, which are arguments"
GAPS: dict[tuple[str, str, str], str] = {
    ("native_layer_norm_backward", "*", "*"): STATISTICS,
    ("native_batch_norm_backward", "*", "*"): STATISTICS,
    ("native_group_norm_backward", "*", "*"): STATISTICS,
    # Errors up to 2e-6 in float64 beside mpmath, where smelt's are below 1e-15 of the amplitude.
    **{
        (f"special_{name}", "forward", "*float64*"): "PyTorch's asymptotic forms have few digits in float64"
        for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")
    },
    ("nll_loss_forward", "tangent", "*"): "PyTorch's forward mode leaves the weight out",
    ("rrelu_with_noise_backward", "tangent", "*"): "PyTorch's forward mode leaves the noise out",
    ("_ctc_loss", "forward", "*"): "PyTorch does not write the states after a sequence's last one",
}


def reason(op: str, mode: str, call: str) -> str:
    """Why a call may differ in a mode, or ''."""
    for (name, where, pattern), why in GAPS.items():
        if name == op and where in ("*", mode) and fnmatch.fnmatchcase(call, pattern):
            return why
    return ""
