"""tests/golden/<stage>/*.ir: programs and what a stage makes of them, programs and why they are wrong.

A file is a list of cases between `// =====` lines. A case is `// run: <passes>`, a graph, `// ----- expect` and the
text that the stage gives; or a graph and `// error: <part of the message>`, one line for each part. A case without a
`// run:` line takes the one above it. `pytest --update-golden` writes what is expected. `golden.py` has the stages.
"""

from __future__ import annotations

import pytest
from golden import EXPECT, FOLDER, READERS, STAGES, Case, found_text, read_cases, write_expected
from smelt.ir.errors import SmeltError
from smelt.passes.pipelines import CUDA_LOOPS

FILES = sorted(FOLDER.rglob("*.ir"))
CASES = [case for file in FILES for case in read_cases(file)]
TEXTS = [case for case in CASES if not case.errors]


@pytest.mark.parametrize("case", TEXTS, ids=str)
def test_golden(case: Case, request: pytest.FixtureRequest) -> None:
    text = found_text(case)
    if request.config.getoption("--update-golden"):
        write_expected(case, text)
        return
    assert text == case.expected, "run pytest --update-golden if the new text is right"


@pytest.mark.parametrize("case", [case for case in CASES if case.errors], ids=str)
def test_errors(case: Case) -> None:
    with pytest.raises(SmeltError) as caught:
        found_text(case)
    for part in case.errors:
        assert part in str(caught.value)


@pytest.mark.parametrize("case", [case for case in TEXTS if case.stage in READERS and case.expected], ids=str)
def test_expected_text_round_trips(case: Case) -> None:
    assert READERS[case.stage](case.expected) == case.expected


def test_every_file_is_that_of_a_stage() -> None:
    assert {file.parent for file in FILES} == {FOLDER / stage for stage in STAGES}
    assert not [str(case) for case in TEXTS if EXPECT not in case.file.read_text()]


def test_grids_are_made_by_the_whole_pipeline() -> None:
    for case in (case for case in CASES if case.stage == "grid"):
        assert [part.split("{")[0] for part in case.pipeline.replace(",pad", ";pad").split(",")] == list(CUDA_LOOPS)
