"""Objects read whole, by range, in numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headpond as hp


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "a" / "b.bin"
    path.parent.mkdir()
    path.write_bytes(bytes(range(256)) * 40)
    return path


def test_ranges_are_those_of_the_file(data: Path) -> None:
    whole = data.read_bytes()
    assert hp.read(data) == whole
    assert hp.read(f"file://{data}", 5) == whole[5:]
    assert hp.read(data, 5, 5) == b""
    assert hp.read(data, None, 7) == whole[:7]
    ranges = [(data, start, start + 100) for start in range(0, 10000, 37)]
    assert hp.read_many(ranges) == [whole[start:stop] for _, start, stop in ranges]
    assert hp.read_many([]) == []


def test_a_range_past_the_end_names_itself(data: Path) -> None:
    with pytest.raises(hp.InvalidArgument) as caught:
        hp.read_many([(data, 0, 10), (data, 10000, 20000)])
    assert caught.value.range == (10000, 20000)
    assert caught.value.uri is not None
    assert caught.value.uri.endswith("b.bin")
    with pytest.raises(hp.InvalidArgument):
        hp.read(data, 10, 5)


def test_what_is_missing_is_not_found(data: Path) -> None:
    for ask in (hp.read, hp.stat):
        with pytest.raises(hp.NotFound) as caught:
            ask(data.parent / "none")
        assert "none" in str(caught.value)


def test_read_into_fills_a_buffer(data: Path) -> None:
    whole = data.read_bytes()
    out = bytearray(100)
    assert hp.read_into(data, 50, out) == 100
    assert out == whole[50:150]
    array = np.zeros((5, 4), np.uint32)
    assert hp.read_into(data, 0, array) == 80
    assert array.tobytes() == whole[:80]
    with pytest.raises(hp.InvalidArgument):
        hp.read_into(data, 0, np.zeros((4, 4))[:, ::2])
    with pytest.raises((BufferError, ValueError)):
        hp.read_into(data, 0, b"fixed")


def test_stat_and_list_tell_sizes(data: Path) -> None:
    info = hp.stat(data)
    assert info.size == 10240
    assert info.mtime_ns == data.stat().st_mtime_ns
    (data.parent / "c.bin").write_bytes(b"")
    listed = hp.list(data.parent.parent)
    assert [(Path(entry.uri).name, entry.size) for entry in listed] == [
        ("b.bin", 10240),
        ("c.bin", 0),
    ]


def test_relative_paths_are_of_the_working_directory(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    assert hp.read("b.bin", 0, 2) == b"\0\1"
