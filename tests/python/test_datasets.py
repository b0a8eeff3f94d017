"""Datasets: samples, order, identity, mistakes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

import headpond as hp


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "b/2.txt": "two",
        "a/1.txt": "one",
        "a/B.TXT": "bee",
        "b/.hidden": "no",
    }.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def test_files_are_samples_in_the_order_of_their_path_bytes(tree: Path) -> None:
    ds = hp.from_files(tree)
    assert [ds.key(i) for i in range(len(ds))] == ["a/1.txt", "a/B.TXT", "b/2.txt"]
    assert [sample["data"] for sample in ds] == [b"one", b"bee", b"two"]
    assert [sample["label"] for sample in ds] == [0, 0, 1]
    assert ds.classes == ["a", "b"]
    assert ds.fields == {"data": ("bytes", None), "label": ("int64", ())}


def test_patterns_ignore_case(tree: Path) -> None:
    assert len(hp.from_files(tree, pattern="**/*.TXT")) == 3
    assert len(hp.from_files(tree, pattern="a/*.txt")) == 2


def test_a_flat_folder_names_the_way_out(tree: Path) -> None:
    with pytest.raises(hp.InvalidArgument, match="label=None"):
        hp.from_files(tree / "a")
    flat = hp.from_files(tree / "a", label=None)
    assert list(flat.fields) == ["data"]
    assert flat.classes == []


def test_a_missing_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(hp.NotFound) as caught:
        hp.from_files(tmp_path / "none")
    assert isinstance(caught.value, FileNotFoundError)
    assert "none" in str(caught.value)


def test_indices_count_from_both_ends(tree: Path) -> None:
    ds = hp.from_files(tree)
    assert ds[-1]["data"] == b"two"
    assert ds[np.int64(0)]["data"] == b"one"
    assert [s["data"] for s in ds.__getitems__([2, 0, 2])] == [b"two", b"one", b"two"]
    for index in (3, -4, 10**20):
        with pytest.raises(IndexError):
            ds[index]
    with pytest.raises(IndexError):
        ds.key(3)


def test_locate_tells_where_the_bytes_lie(tree: Path) -> None:
    (uri, start, stop), *_ = hp.from_files(tree).locate(0)
    assert uri.endswith("a/1.txt")
    assert (start, stop) == (0, 3)
    assert hp.read(uri, start, stop) == b"one"


def test_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(hp.Error):
        hp.from_files(tmp_path)
    (tmp_path / "none.tar").write_bytes(bytes(1024))
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero" / "empty").touch()
    assert hp.from_files(tmp_path / "zero", label=None)[0]["data"] == b""
    (batch,) = hp.from_files(tmp_path / "zero", label=None).batch(1).loader()
    assert batch["data"].to_list() == [b""]


def test_a_path_that_is_not_utf8_survives(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.bin")
    (tmp_path / name).write_bytes(b"x")
    ds = hp.from_files(tmp_path, label=None)
    assert ds.key(0) == name
    assert ds[0]["data"] == b"x"


def test_shards_have_a_field_per_extension(shards: str, photos: Path) -> None:
    ds = hp.from_webdataset(shards)
    assert len(ds) == 120
    assert list(ds.fields) == ["jpg", "cls"]
    assert ds.key(0) == "coot_000"
    assert ds[0]["jpg"] == (photos / "coot" / "000.jpg").read_bytes()
    assert ds[0]["cls"] == b"0"


def test_a_cut_shard_is_corrupt_data_that_names_it(tmp_path: Path, shards: str) -> None:
    whole = Path(shards.replace("{0000..0003}", "0000")).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(hp.CorruptData, match=r"cut\.tar"):
        hp.from_webdataset(tmp_path / "cut.tar")


def test_a_field_twice_in_a_sample_is_corrupt_data(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "twice.tar", "w") as tar:
        for _ in range(2):
            info = tarfile.TarInfo("a.txt")
            tar.addfile(info)
    with pytest.raises(hp.CorruptData, match=r"a\.txt"):
        hp.from_webdataset(tmp_path / "twice.tar")


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "uint8", "<i2", ">u8", "bool", "float16"])
def test_records_are_read_in_their_dtype(tmp_path: Path, dtype: str) -> None:
    values = (np.arange(24).reshape(4, 2, 3) % 2).astype(dtype)
    (tmp_path / "r.bin").write_bytes(b"head" + values.tobytes())
    ds = hp.from_records(tmp_path / "r.bin", dtype, (2, 3), header_bytes=4)
    assert len(ds) == 4
    for i in range(4):
        assert ds[i]["data"].dtype == np.dtype(dtype).newbyteorder("=")
        assert np.array_equal(ds[i]["data"], values[i])
    batch = next(iter(ds.batch(4).loader()))
    assert np.array_equal(batch["data"], values)


def test_records_of_one_number_are_scalars(tmp_path: Path) -> None:
    np.arange(5, dtype=np.int64).tofile(tmp_path / "n.bin")
    ds = hp.from_records(tmp_path / "n.bin", "int64", ())
    assert ds[3]["data"] == 3
    assert ds.batch(5).fields == {"data": ("int64", ())}


def test_a_file_that_is_no_whole_number_of_records_names_the_rest(tmp_path: Path) -> None:
    (tmp_path / "r.bin").write_bytes(bytes(10))
    with pytest.raises(hp.CorruptData, match=r"r\.bin.*2"):
        hp.from_records(tmp_path / "r.bin", "int32", 1)


def test_npy_files_bring_dtype_and_shape(tmp_path: Path) -> None:
    values = np.arange(12, dtype=">f8").reshape(4, 3)
    np.save(tmp_path / "a.npy", values)
    ds = hp.from_records(tmp_path / "a.npy")
    assert ds.fields == {"data": ("float64", (3,))}
    assert np.array_equal(ds[2]["data"], values[2])


@pytest.mark.parametrize("stride", [None, 3])
def test_token_windows_do_not_cross_files(tmp_path: Path, stride: int | None) -> None:
    first, second = np.arange(10, dtype="<u2"), np.arange(100, 107, dtype="<u2")
    first.tofile(tmp_path / "a.bin")
    second.tofile(tmp_path / "b.bin")
    ds = hp.from_tokens(str(tmp_path / "*.bin"), "uint16", window=4, stride=stride)
    expected = [
        part[start : start + 4]
        for part in (first, second)
        for start in range(0, len(part) - 3, stride or 4)
    ]
    assert len(ds) == len(expected)
    assert all(np.array_equal(ds[i]["tokens"], window) for i, window in enumerate(expected))
    widened = next(iter(ds.decode(tokens="int64").batch(len(ds)).loader()))["tokens"]
    assert widened.dtype == np.int64
    assert np.array_equal(widened, expected)


def test_no_window_at_all_is_an_error(tmp_path: Path) -> None:
    np.arange(3, dtype="<u2").tofile(tmp_path / "a.bin")
    with pytest.raises(hp.InvalidArgument):
        hp.from_tokens(tmp_path / "a.bin", "uint16", window=4)


def test_arrays_are_held_and_not_copied() -> None:
    x = np.zeros((4, 2), np.float32)
    ds = hp.from_arrays({"x": x, "y": [1, 2, 3, 4]})
    x[2] = 7
    assert np.array_equal(ds[2]["x"], [7, 7])
    assert ds[3]["y"] == 4


def test_arrays_of_unequal_length_name_both() -> None:
    with pytest.raises(hp.InvalidArgument, match=r"(?s)x.*y|y.*x"):
        hp.from_arrays({"x": np.zeros(3), "y": np.zeros(4)})


@pytest.mark.parametrize("bad", [[object()], ["text"], [1j], np.float32(3), np.zeros(2, "M8[s]")])
def test_arrays_without_numbers_are_refused(bad: object) -> None:
    with pytest.raises(hp.InvalidArgument):
        hp.from_arrays({"x": bad})  # type: ignore[dict-item]


def test_big_endian_arrays_and_views_are_converted() -> None:
    x = np.arange(10, dtype=">i4")
    batch = next(iter(hp.from_arrays({"x": x, "even": np.arange(20)[::2]}).batch(10).loader()))
    assert batch["x"].dtype == np.int32
    assert np.array_equal(batch["x"], range(10))
    assert np.array_equal(batch["even"], range(0, 20, 2))


@pytest.mark.parametrize("source", [3, [3], b"bytes", []])
def test_what_is_no_source_says_so(source: object) -> None:
    with pytest.raises(hp.InvalidArgument):
        hp.from_files(source)  # type: ignore[arg-type]


def test_fingerprint_follows_names_and_snapshot_follows_bytes(tree: Path) -> None:
    first = hp.from_files(tree)
    assert len(first.fingerprint) == len(first.snapshot) == 32
    (tree / "a/1.txt").write_text("other")
    second = hp.from_files(tree)
    assert second.fingerprint == first.fingerprint
    assert second.snapshot != first.snapshot
    (tree / "a/3.txt").write_text("new")
    assert hp.from_files(tree).fingerprint != first.fingerprint
    assert hp.from_files(tree, label=None).fingerprint != hp.from_files(tree).fingerprint


def test_a_dataset_pickles_as_its_description(tree: Path) -> None:
    ds = hp.from_files(tree)
    text = pickle.dumps(ds)
    assert len(text) < 1000
    copy = pickle.loads(text)
    assert copy.fingerprint == ds.fingerprint
    assert copy[1] == ds[1]
    (tree / "new.txt").mkdir()
    (tree / "new.txt" / "x").write_text("x")
    with pytest.raises(hp.ObjectChanged):
        len(pickle.loads(text))


def test_relative_paths_mean_the_same_after_chdir(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.parent)
    ds = hp.from_files("tree")
    monkeypatch.chdir("/")
    assert ds[0]["data"] == b"one"
    assert pickle.loads(pickle.dumps(ds))[0]["data"] == b"one"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_samples_are_read_in_other_processes(tree: Path, method: str) -> None:
    ds = hp.from_files(tree)
    _ = ds[0]
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(ds.__getitem__, (2,)) == ds[2]


def test_a_manifest_replaces_listing(tree: Path, tmp_path: Path) -> None:
    built = hp.Manifest.build(tree)
    assert list(built) == [("a/1.txt", 3), ("a/B.TXT", 3), ("b/2.txt", 3)]
    built.save(tmp_path / "tree.manifest")
    loaded = hp.Manifest.load(tmp_path / "tree.manifest")
    assert list(loaded) == list(built)
    for source in (loaded, tmp_path / "tree.manifest"):
        ds = hp.from_files(source)
        assert ds.fingerprint == hp.from_files(tree).fingerprint
        assert ds[2]["data"] == b"two"
        assert pickle.loads(pickle.dumps(ds))[2]["data"] == b"two"


def test_torchs_own_loader_takes_a_dataset(tree: Path, needs_torch: None) -> None:
    import torch

    loader = torch.utils.data.DataLoader(hp.from_files(tree), batch_size=3)  # type: ignore[arg-type]
    (batch,) = loader
    assert batch["label"].tolist() == [0, 0, 1]
    assert batch["data"] == [b"one", b"bee", b"two"]
