"""The counting behind the closing line of scripts/test: a failure is never lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COUNT = Path(__file__).resolve().parents[2] / "scripts" / "count_tests.py"

PYTEST = """<testsuites><testsuite>
  <testcase name="a"/><testcase name="b"><failure/></testcase><testcase name="c"><error/></testcase>
  <testcase name="d"><skipped/></testcase></testsuite></testsuites>"""
CTEST = """<testsuite tests="3" failures="1" disabled="0" skipped="1">
  <testcase name="a" status="run"/><testcase name="b" status="fail"><failure message=""/></testcase>
  <testcase name="c" status="notrun"><skipped message="4"/></testcase></testsuite>"""
GOOD = """<testsuite><testcase name="a"/><testcase name="b"/></testsuite>"""


def count(path: Path, status: int) -> list[int]:
    done = subprocess.run(
        [sys.executable, COUNT, path, str(status)], capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("xml", "status", "expected"),
    [
        (PYTEST, 1, [1, 2, 1]),
        (CTEST, 8, [1, 1, 1]),
        (GOOD, 0, [2, 0, 0]),
        (GOOD, 139, [2, 1, 0]),  # a crash after the last test
    ],
)
def test_results_are_counted_case_by_case(
    tmp_path: Path, xml: str, status: int, expected: list[int]
) -> None:
    path = tmp_path / "results.xml"
    path.write_text(xml)
    assert count(path, status) == expected


@pytest.mark.parametrize(
    ("status", "expected"), [(0, [1, 0, 0]), (1, [0, 1, 0]), (77, [0, 0, 1]), (137, [0, 1, 0])]
)
def test_a_part_without_results_counts_as_one(
    tmp_path: Path, status: int, expected: list[int]
) -> None:
    assert count(tmp_path / "missing.xml", status) == expected
