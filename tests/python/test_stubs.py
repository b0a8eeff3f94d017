"""_core.pyi is what the extension says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import headpond


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="other Pythons spell some types in another way"
)
def test_the_stub_is_current(run_python, tmp_path: Path) -> None:
    pytest.importorskip("pybind11_stubgen")
    run_python("-m", "pybind11_stubgen", "headpond._core", "-o", tmp_path, "--exit-code")
    made = (tmp_path / "headpond" / "_core.pyi").read_text()
    committed = (Path(headpond.__file__).parent / "_core.pyi").read_text()
    assert made == committed, "run scripts/stubs and commit the result"
