"""mypy --strict over a user's program: what is right passes, what is wrong is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "typing" / "user_code.py"


def test_mypy_accepts_right_code_and_finds_mistakes(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    # From another folder, so that the installed package and its py.typed are what is seen.
    options = ["--strict", "--config-file", "", "--cache-dir", str(tmp_path)]
    printed, _, _ = api.run([*options, str(PROGRAM)])
    found = {
        (int(line), code) for line, code in re.findall(r":(\d+): error: .*\[([\w-]+)\]", printed)
    }
    expected = {
        (number, code)
        for number, line in enumerate(PROGRAM.read_text().splitlines(), start=1)
        for code in re.findall(r"# E: ([\w-]+)$", line)
    }
    assert len(expected) >= 5
    assert found == expected, printed
