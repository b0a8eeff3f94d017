"""Fields of varying size."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import headpond as hp

TEXTS = ["a", "", "größer", "x" * 300]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for number, text in enumerate(TEXTS):
            array = io.BytesIO()
            np.save(array, np.arange(number, dtype=np.int32))
            members = {
                "txt": text.encode(),
                "json": json.dumps({"n": number}).encode(),
                "npy": array.getvalue(),
            }
            for extension, data in members.items():
                info = tarfile.TarInfo(f"{number}.{extension}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return tmp_path / "s.tar"


def test_items_turn_into_what_was_asked_for(shard: Path) -> None:
    pipe = hp.from_webdataset(shard).decode(txt="utf8", json="json", npy="npy")
    (batch,) = pipe.batch(4).loader()
    assert batch["txt"].to_list() == TEXTS
    assert batch["json"].to_list() == [{"n": n} for n in range(4)]
    assert [row.tolist() for row in batch["npy"]] == [[], [0], [0, 1], [0, 1, 2]]
    assert batch["npy"].values.dtype == np.int32


def test_bytes_stay_bytes(shard: Path) -> None:
    (batch,) = hp.from_webdataset(shard).batch(4).loader()
    texts = batch["txt"]
    assert isinstance(texts, hp.Ragged)
    assert len(texts) == 4
    assert texts[2] == "größer".encode()
    assert texts[-1] == b"x" * 300
    assert texts.lengths.tolist() == [len(text.encode()) for text in TEXTS]
    assert texts.offsets.tolist() == np.cumsum([0, *texts.lengths]).tolist()
    for row in (4, -5):
        with pytest.raises(IndexError):
            texts[row]


def test_pad_fills_short_rows(shard: Path) -> None:
    pipe = hp.from_webdataset(shard).decode(npy="npy").select("npy")
    (batch,) = pipe.batch(4).loader()
    expected = [[-1, -1, -1], [0, -1, -1], [0, 1, -1], [0, 1, 2]]
    assert batch["npy"].pad(-1).tolist() == expected
    (padded,) = pipe.batch(4, pad={"npy": -1}).loader()
    assert padded["npy"].tolist() == expected
    assert padded["npy"].dtype == np.int32
    assert padded["npy_lengths"].tolist() == [0, 1, 2, 3]


def test_texts_are_no_numbers_to_pad(shard: Path) -> None:
    pipe = hp.from_webdataset(shard).decode(txt="utf8")
    with pytest.raises(hp.InvalidArgument, match="utf8"):
        pipe.batch(2, pad={"txt": 0})
    (batch,) = pipe.batch(4).loader()
    with pytest.raises(hp.InvalidArgument, match="utf8"):
        batch["txt"].pad(0)


def test_rows_are_views_that_keep_their_batch(shard: Path) -> None:
    loader = hp.from_webdataset(shard).decode(npy="npy").select("npy").batch(1).loader()
    rows = [next(iter(batch["npy"])) for batch in loader]
    assert [row.tolist() for row in rows] == [[], [0], [0, 1], [0, 1, 2]]


def test_torch_rows_are_tensors(shard: Path, needs_torch: None) -> None:
    import torch

    pipe = hp.from_webdataset(shard).decode(npy="npy", txt="utf8").select("npy", "txt")
    (batch,) = pipe.batch(4).loader(framework="torch")
    assert isinstance(batch["npy"].values, torch.Tensor)
    assert batch["npy"].pad(9).tolist() == [[9, 9, 9], [0, 9, 9], [0, 1, 9], [0, 1, 2]]
    assert batch["txt"].to_list() == TEXTS
