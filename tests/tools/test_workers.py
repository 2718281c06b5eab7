"""Processes that answer tasks: what ends, hangs or takes all memory costs one answer, and says why."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import workers


def misbehave(task: tuple[str, ...], skip: int) -> Iterator[dict[str, Any]]:
    if not skip:
        if task[0] == "end":
            os._exit(3)
        if task[0] == "hang":
            time.sleep(100)
        held = []
        while task[0] == "hold":
            held.append(bytearray(1 << 24))
    yield {"passed": True}


@pytest.mark.parametrize(
    ("task", "patience", "why"),
    [
        ("end", 60.0, "crash: the process ended with 3"),
        ("hang", 1.0, "hang: no answer in 1 s"),
        ("hold", 60.0, "memory: the process held"),
    ],
)
def test_a_process_that_does_not_answer_costs_one_answer(
    task: str, patience: float, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MEMORY", 1 << 29)
    monkeypatch.setattr(workers, "LOOK", 0.01)
    monkeypatch.setattr("sys.argv", [""])
    found = list(workers.run([(task,), ("answer",)], misbehave, most=2, workers=1, patience=patience))
    assert [name for (name,), _ in found] == [task, "answer"]
    assert found[0][1][0]["why"].startswith(why), found
    assert [outcome["passed"] for _, outcomes in found for outcome in outcomes] == [False, True, True]
