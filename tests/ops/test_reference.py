"""The checklist of ops: what the reference documents describe exists, with derivatives where they have rules.

`reference_ops.csv` has a row for each op that PyTorch's decompositions, its table of derivatives or Inductor's lowering
describe, and whether the table of derivatives has a reverse and a forward rule.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from smelt.tools.ops import forward_rule, reverse_rule
from support import OWN_OPS

ROWS = {row["op"]: row for row in csv.DictReader((Path(__file__).parent / "reference_ops.csv").open())}
FFT = "Fourier transforms are not built yet"
LINALG = "factorisations are not built yet"
# Absent: why.
ABSENT = {
    **dict.fromkeys(("_fft_c2c", "_fft_c2r", "_fft_r2c"), FFT),
    **dict.fromkeys(
        (
            "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "linalg_cholesky_ex", "_linalg_det",
            "linalg_eig", "_linalg_eigh", "linalg_householder_product", "linalg_inv_ex", "linalg_lu",
            "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_matrix_exp", "linalg_pinv", "linalg_qr",
            "_linalg_slogdet", "_linalg_solve_ex", "linalg_solve_triangular", "_linalg_svd", "lu_unpack", "ormqr",
            "triangular_solve", "linalg_lstsq",
        ),
        LINALG,
    ),
}  # fmt: skip
# (op, "reverse" or "forward"): why there is no rule. Results that are no floats need none.
NO_RULE: dict[tuple[str, str], str] = dict.fromkeys(
    ((name, mode) for name in ("eq", "ge", "gt", "le", "lt", "ne") for mode in ("reverse", "forward")),
    "the results are bools",
)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_an_op_of_the_checklist_is_there(name: str) -> None:
    op = OWN_OPS.get(name)
    if name in ABSENT:
        assert op is None, f"{name} exists: take it out of ABSENT"
        return
    assert op is not None, f"smelt.ops has no {name}"
    for mode, rule in (("reverse", reverse_rule), ("forward", forward_rule)):
        has = rule(op) != "-"
        if (name, mode) in NO_RULE:
            assert not has, f"{name} has a {mode} rule: take it out of NO_RULE"
        elif int(ROWS[name][mode]):
            assert has, f"{name} has no {mode} derivative"


def test_the_checklist_is_whole() -> None:
    assert (len(ROWS), sum(int(row["reverse"]) for row in ROWS.values())) == (511, 412)
    assert sum(int(row["forward"]) for row in ROWS.values()) == 341
    assert ABSENT.keys() <= ROWS.keys() and {name for name, _ in NO_RULE} <= ROWS.keys()
