"""tests/golden/*.ir: programs and what passes make of them, programs and why they are wrong.

A file is a list of cases between `// =====` lines. A case is `// run: <pipeline>`, a graph, `// ----- expect`
and the graph after the passes; or a graph and `// error: <part of the message>`, one line for each part.
A case without a `// run:` line takes the one above it. `pytest --update-golden` writes what is expected.
"""

from __future__ import annotations

import pytest
from golden_cases import FOLDER, Case, read_cases, update
from smelt.ir.errors import SmeltError
from smelt.ir.parser import parse_graph
from smelt.ir.printer import print_graph
from smelt.ir.verify import verify_graph
from smelt.passes.manager import parse_pipeline

CASES = [case for file in sorted(FOLDER.glob("*.ir")) for case in read_cases(file)]


def run(case: Case) -> str:
    graph = parse_graph(case.source, case.file.name)
    verify_graph(graph)
    return print_graph(parse_pipeline(case.pipeline).run(graph, verify_each=True), locations=False)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden(case: Case, request: pytest.FixtureRequest) -> None:
    if case.errors:
        with pytest.raises(SmeltError) as caught:
            run(case)
        for part in case.errors:
            assert part in str(caught.value)
        return
    text = run(case)
    if request.config.getoption("--update-golden"):
        update(case, text)
        return
    assert text == (case.expected or "").strip(), "run pytest --update-golden if the new text is right"


@pytest.mark.parametrize("case", [case for case in CASES if case.expected], ids=str)
def test_expected_text_round_trips(case: Case) -> None:
    text = (case.expected or "").strip()
    assert print_graph(parse_graph(text), locations=False) == text


def test_there_are_cases() -> None:
    assert len(CASES) > 30
