"""Records: declared and used as frozen dataclasses, and cheaper to make."""

from __future__ import annotations

import pickle

import pytest
from smelt.ir.record import Record


class Costs(Record):
    """Two costs."""

    kind: str
    near: int = 1
    far: tuple[int, ...] = (2, 3)


def test_fields() -> None:
    costs = Costs("a", far=(4,))
    assert (costs.kind, costs.near, costs.far) == ("a", 1, (4,))
    assert repr(costs) == "Costs(kind='a', near=1, far=(4,))"
    assert costs.but(near=5) == Costs("a", 5, (4,)) != costs
    assert hash(costs) == hash(Costs("a", far=(4,))) and len({costs, Costs("a", far=(4,))}) == 1
    assert pickle.loads(pickle.dumps(costs)) == costs


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Costs(), "Costs: kind is missing"),
        (lambda: Costs("a", speed=3), "speed does not fit"),
        (lambda: Costs("a", kind="b"), "kind does not fit|does not fit"),
        (lambda: Costs("a", 1, (), 4), "does not fit"),
        (lambda: Costs("a").but(speed=3), "speed does not fit"),
    ],
)
def test_wrong_fields(make: object, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        make()  # type: ignore[operator]


def test_records_do_not_change() -> None:
    costs = Costs("a")
    with pytest.raises(AttributeError, match=r"immutable: make another one by .but\(near=...\)"):
        costs.near = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del costs.kind
    assert costs.near == 1
