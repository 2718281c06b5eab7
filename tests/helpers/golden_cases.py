"""Files of golden cases: read, and written anew."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden"
SPLIT = "// =====\n"
EXPECT = "// ----- expect\n"


@dataclass(frozen=True)
class Case:
    file: Path
    position: int
    pipeline: str
    source: str
    expected: str | None
    errors: tuple[str, ...]

    def __str__(self) -> str:
        name = re.search(r"@([\w.]+)", self.source)
        return f"{self.file.stem}-{self.position}-{name[1] if name else 'text'}"


def read_cases(file: Path) -> list[Case]:
    cases: list[Case] = []
    pipeline = ""
    for position, section in enumerate(file.read_text().split(SPLIT)):
        run = re.search(r"^// run: *(.*)$", section, re.MULTILINE)
        pipeline = run[1].strip() if run else pipeline
        source, _, expected = section.partition(EXPECT)
        errors = tuple(re.findall(r"^// error: *(.*)$", section, re.MULTILINE))
        cases.append(Case(file, position, pipeline, source, None if errors else expected, errors))
    return cases


def update(case: Case, text: str) -> None:
    sections = case.file.read_text().split(SPLIT)
    sections[case.position] = f"{case.source.rstrip()}\n{EXPECT}{text}\n"
    case.file.write_text(SPLIT.join(sections))
