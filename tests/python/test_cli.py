"""The command line."""

from __future__ import annotations

import json
import sys

import pytest

import headpond as hp
from headpond.cli import main


def test_explain_tells_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "hp0101"]) == 0
    assert "NotFound" in capsys.readouterr().out
    assert main(["explain", "HP0201", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["class"] == "headpond.CorruptData"
    assert main(["explain"]) == 0
    assert capsys.readouterr().out.count("HP0") >= 15


def test_an_unknown_code_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "HP9999"]) == 2
    assert "HP9999" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["no-such-command"])
    assert caught.value.code == 2


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "explain" in capsys.readouterr().err
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == hp.__version__


def test_env_names_versions_and_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headpond"] == hp.__version__
    assert found["io"] in ("uring", "threads", "")


def test_demo_trains_and_resumes_exactly(run_python, tmp_path) -> None:
    printed = run_python("-m", "headpond.cli", "demo", "--count", 200, "--dir", tmp_path, "--json")
    result = json.loads(printed)
    assert result["resumed_exactly"]
    assert result["http_exactly"]
    names = [row["loader"] for row in result["rows"]]
    assert names[:3] == ["headpond, folder", "headpond, shards", "headpond, shards over HTTP"]
    assert all(row["samples_per_s"] > 0 for row in result["rows"])
    assert len(list((tmp_path / "folder").glob("*/*.jpg"))) == 200
    assert sys.version_info >= (3, 11)


def test_bench_measures_files_and_shards(run_python, tmp_path) -> None:
    run_python("-m", "headpond.cli", "demo", "--count", 100, "--dir", tmp_path, "--json")
    for source, field in ((tmp_path / "folder", "data"), (tmp_path / "shards", "jpg")):
        command = ("bench", "--source", source, "--seconds", 0.2, "--rounds", 2, "--json")
        runs = json.loads(run_python("-m", "headpond.cli", *command))
        assert [run["loader"] for run in runs] == ["headpond", "headpond"]
        assert all(run["field"] == field and run["decoded"] for run in runs)
        assert all(run["samples"] == 100 and run["samples_per_s"] > 0 for run in runs)


def test_bench_without_data_says_so(capfd: pytest.CaptureFixture[str], tmp_path) -> None:
    assert main(["bench", "--source", str(tmp_path / "nothing"), "--rounds", "1"]) == 1
    assert "nothing" in capfd.readouterr().err
    assert main(["bench", "--source", str(tmp_path), "--batch", "0"]) == 2
