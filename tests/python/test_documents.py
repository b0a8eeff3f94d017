"""README.md and docs/: every Python block runs, every command exists, every name is there."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import headpond as hp
from headpond.cli import _COMMANDS, make_parser

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def runnable(programs: list[str]) -> list[str]:
    """Without those that import torch where there is none."""
    if importlib.util.find_spec("torch"):
        return programs
    return [program for program in programs if "import torch" not in program]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_python_blocks_run_in_order(
    run_python: Callable[..., str],
    photos: Path,
    shards: str,
    web: str,
    tmp_path: Path,
    page: Path,
) -> None:
    """A page is one program, beside made data; its web server is one of ours."""
    program = "\n".join(runnable(blocks(page, "python"))).replace("https://data.example.org", web)
    (tmp_path / "photos").symlink_to(photos)
    (tmp_path / "shards").symlink_to(Path(shards).parent)
    (tmp_path / "page.py").write_text(program)
    printed = run_python(tmp_path / "page.py")
    if page == README:
        assert "(16, 96, 96, 3)" in printed
        assert "HP" in printed, "the error block prints its code"


def commands() -> list[tuple[str, str]]:
    return [
        (page.stem, line)
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if line.startswith("headpond ")
    ]


@pytest.mark.parametrize(("page", "line"), commands())
def test_command_lines_are_understood(page: str, line: str) -> None:
    parsed = make_parser().parse_args(shlex.split(line, comments=True)[1:])
    assert parsed.command is not None


def test_readme_is_short_and_names_the_two_commands() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 200
    assert "bash scripts/demo" in text
    assert "bash scripts/test" in text


def test_every_public_name_and_command_has_its_place() -> None:
    api = (ROOT / "docs" / "api.md").read_text()
    documented = re.findall(r"auto(?:function|class|exception):: headpond\.(\w+)", api)
    assert sorted(documented) == sorted(hp.__all__)
    page = (ROOT / "docs" / "command_line.md").read_text()
    names = {module.__name__.rpartition(".")[2] for module in _COMMANDS}
    assert set(re.findall(r"\{headpond-command\} (\w+)", page)) == names
