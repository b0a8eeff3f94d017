"""Failures: kinds, places, texts, policies."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headpond as hp
from headpond import _core


@pytest.fixture
def broken(tmp_path: Path, jpeg: Callable[..., bytes]) -> Path:
    """Twelve pictures; numbers 3 and 7 are damaged."""
    for number in range(12):
        data = jpeg(number % 3, number)
        if number == 3:
            data = data[: len(data) // 3]
        if number == 7:
            data = b"this is no picture"
        (tmp_path / f"{number:02}.jpg").write_bytes(data)
    return tmp_path


def pictures(folder: Path) -> hp.Pipeline:
    ds = hp.from_files(folder, label=None)
    return ds.image("data", size=8, crop="none").select("data", "__index__", "__valid__")


def test_every_kind_has_its_class_and_builtin() -> None:
    for number, name, summary, advice in _core.error_kinds():
        assert number.startswith("HP")
        assert issubclass(getattr(hp, name), hp.Error)
        assert summary.endswith(".")
        assert advice
    kinds = {
        hp.NotFound: FileNotFoundError,
        hp.AccessDenied: PermissionError,
        hp.Timeout: TimeoutError,
        hp.Unavailable: ConnectionError,
        hp.CorruptData: ValueError,
        hp.InvalidArgument: ValueError,
    }
    for ours, builtin in kinds.items():
        assert issubclass(ours, builtin)


def test_errors_keep_text_and_place_when_pickled() -> None:
    error = hp.NotFound("gone", code="HP0101", uri="file:///a", range=(1, 2), sample_index=3)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.code, copy.uri, copy.range, copy.sample_index) == (
        "gone",
        "HP0101",
        "file:///a",
        (1, 2),
        3,
    )


def test_a_damaged_sample_names_itself_and_the_next_batch_comes(broken: Path) -> None:
    loader = pictures(broken).batch(2).loader()
    seen, failed = [], []
    iterator = iter(loader)
    while True:
        try:
            seen += next(iterator)["__index__"].tolist()
        except StopIteration:
            break
        except hp.CorruptData as error:
            failed.append(error)
    assert [error.sample_index for error in failed] == [3, 7]
    assert failed[0].uri is not None
    assert failed[0].uri.endswith("03.jpg")
    assert failed[0].range is not None
    assert failed[0].range[0] == 0
    assert "03.jpg" in str(failed[0])
    assert seen == [0, 1, 4, 5, 8, 9, 10, 11]


def test_a_failed_batch_counts_once_a_later_one_returned(broken: Path) -> None:
    loader = pictures(broken).batch(2).loader()
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(hp.CorruptData):
        next(iterator)
    assert loader.state_dict()["cursor"] == 2
    next(iterator)
    assert loader.state_dict()["cursor"] == 6


def test_a_batch_that_numpy_cannot_hold_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    (tmp_path / "b.bin").write_bytes(bytes(8))
    loader = hp.from_records(tmp_path / "b.bin", "bfloat16", 1).batch(2).loader()
    iterator = iter(loader)
    for _ in range(2):
        with pytest.raises(hp.Error, match="ml_dtypes"):
            next(iterator)
    assert list(iterator) == []
    assert loader.state_dict()["ended"]


def test_skip_leaves_rows_out(broken: Path) -> None:
    loader = pictures(broken).batch(4).loader(on_error="skip")
    batches = list(loader)
    assert [batch["__index__"].tolist() for batch in batches] == [
        [0, 1, 2],
        [4, 5, 6],
        [8, 9, 10, 11],
    ]
    assert [len(batch["data"]) for batch in batches] == [3, 3, 4]
    report = loader.report()
    assert report.skipped == 2
    assert [error.sample_index for error in report.errors] == [3, 7]
    assert "03.jpg" in report.errors[0].uri
    assert report.errors[0].reason
    assert "2 samples skipped" in str(report)


def test_replace_keeps_shapes_and_marks_rows(broken: Path) -> None:
    loader = pictures(broken).batch(4).loader(on_error="replace")
    batches = list(loader)
    assert [len(batch["data"]) for batch in batches] == [4, 4, 4]
    valid = np.concatenate([batch["__valid__"] for batch in batches])
    assert np.flatnonzero(~valid).tolist() == [3, 7]
    stand_in = batches[0]["data"][3]
    assert any(np.array_equal(stand_in, batches[0]["data"][row]) for row in range(3))
    assert loader.report().replaced == 2


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_more_errors_than_allowed_raise(broken: Path, policy: str) -> None:
    loader = pictures(broken).batch(12).loader(on_error=policy, max_errors=1)  # type: ignore[arg-type]
    with pytest.raises(hp.Error) as caught:
        list(loader)
    assert caught.value.code == "HP0302"


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_batch_without_any_good_row_raises(broken: Path, policy: str) -> None:
    loader = pictures(broken).batch(1).loader(on_error=policy)  # type: ignore[arg-type]
    iterator = iter(loader)
    seen = []
    for _ in range(12):
        try:
            seen += next(iterator)["__index__"].tolist()
        except hp.CorruptData:
            seen.append(None)
    assert seen == [0, 1, 2, None, 4, 5, 6, None, 8, 9, 10, 11]


def test_a_vanished_file_is_not_found(broken: Path) -> None:
    loader = hp.from_files(broken, label=None).batch(12).loader()
    (broken / "05.jpg").unlink()
    with pytest.raises(hp.NotFound) as caught:
        next(iter(loader))
    assert caught.value.sample_index == 5


def test_a_changed_file_is_object_changed(broken: Path) -> None:
    ds = hp.from_files(broken, label=None)
    (broken / "05.jpg").write_bytes(b"another length")
    with pytest.raises(hp.ObjectChanged) as caught:
        next(iter(ds.batch(12).loader()))
    assert caught.value.sample_index == 5
    with pytest.raises(hp.ObjectChanged):
        ds[5]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_access_denied(broken: Path) -> None:
    ds = hp.from_files(broken, label=None)
    (broken / "05.jpg").chmod(0)
    with pytest.raises(hp.AccessDenied):
        ds[5]


def test_a_fifo_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(hp.Error):
        hp.read(tmp_path / "pipe")


def test_something_else_in_a_jpg_is_recognised_by_its_bytes(broken: Path) -> None:
    (broken / "00.jpg").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(hp.CorruptData, match="PNG") as caught:
        next(iter(pictures(broken).batch(1).loader()))
    assert caught.value.code == "HP0202"
