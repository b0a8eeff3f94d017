"""Every Python block of README.md runs, in order, in one namespace, beside made data."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_readme_blocks_run(
    run_python: Callable[..., str], photos: Path, shards: str, tmp_path: Path
) -> None:
    (tmp_path / "photos").symlink_to(photos)
    (tmp_path / "shards").symlink_to(Path(shards).parent)
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    program = tmp_path / "readme.py"
    program.write_text("\n".join(blocks))
    printed = run_python(program)
    assert "(16, 96, 96, 3)" in printed
    assert "HP" in printed, "the error block prints its code"


def test_readme_is_short_and_names_the_two_commands() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 200
    assert "bash scripts/demo" in text
    assert "bash scripts/test" in text
