"""The table in tests/README.md: every fault names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_faults_names_tests_that_exist() -> None:
    cpp = "\n".join(path.read_text() for path in (ROOT / "tests/cpp").rglob("*_test.cpp"))
    names = [
        "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals))
        for literals in re.findall(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', cpp)
    ]
    python = "\n".join(path.read_text() for path in (ROOT / "tests/python").glob("test_*.py"))
    names += re.findall(r"^def test_(\w+)", python, re.M)
    text = (ROOT / "tests/README.md").read_text()
    faults = text[text.index("## Faults") : text.index("## Kinds")]
    cited = [
        part.strip()
        for row in re.findall(r"^\| (?!fault|-)(.*) \|$", faults, re.M)
        for cell in row.split("|")[1:]
        for part in cell.split("·")
        if part.strip()
    ]
    assert len(cited) > 80
    assert [part for part in cited if not any(part in name for name in names)] == []
