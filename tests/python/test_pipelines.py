"""Pipelines: values, and mistakes that fail where they are written."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headpond as hp


@pytest.fixture
def ds() -> hp.Dataset:
    return hp.from_arrays({"x": np.arange(20, dtype=np.float32).reshape(10, 2), "y": np.arange(10)})


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda ds: ds.select("z"), "x, y"),
        (lambda ds: ds.rename(yy="z"), 'did you mean "y"'),
        (lambda ds: ds.decode(y="int63"), "int63"),
        (lambda ds: ds.decode(y="json"), "json"),
        (lambda ds: ds.decode(y="int32").decode(y="int64"), "already"),
        (lambda ds: ds.image("x", size=8), "no encoded pictures"),
        (lambda ds: ds.batch(0), "batch size"),
        (lambda ds: ds.batch(2.5), "batch size"),
        (lambda ds: ds.batch(True), "batch size"),
        (lambda ds: ds.batch(2, pad={"x": 0}), "nothing to pad"),
        (lambda ds: ds.batch(2).select("x"), "before batch"),
        (lambda ds: ds.shuffle(-1), "seed"),
        (lambda ds: ds.shuffle(2**64), "seed"),
        (lambda ds: ds.shuffle(window=5), "window"),
        (lambda ds: ds.shuffle(mode="window", window=0), "window"),
        (lambda ds: ds.shuffle().shuffle(), "already"),
        (lambda ds: ds.shuffle(mode="ful"), "full"),
        (lambda ds: ds.select(), "at least one"),
        (lambda ds: ds.select("x", "x"), "twice"),
        (lambda ds: ds.rename(x="y"), 'two fields would be called "y"'),
        (lambda ds: ds.select("__index__").decode(__index__="int32"), "made by headpond"),
        (lambda ds: ds.shuffle().loader(), "batch"),
        (lambda ds: ds.batch(2).loader(framework="jaxx"), "framework"),
        (lambda ds: ds.batch(2).loader(uneven="padd"), "uneven"),
        (lambda ds: ds.batch(2).loader(on_error="ignore"), "on_error"),
        (lambda ds: ds.batch(2).loader(pin="yes"), "pin"),
        (lambda ds: ds.batch(2).loader(prefetch="many"), "prefetch"),
        (lambda ds: ds.batch(2).loader(world_size=2), "rank is missing"),
        (lambda ds: ds.batch(2).loader(rank=1), "world_size is missing"),
        (lambda ds: ds.batch(2).loader(rank=2, world_size=2), "rank=2"),
        (lambda ds: ds.batch(2).loader(timeout=0), "timeout"),
        (lambda ds: ds.batch(2).loader(steps_per_epoch=0), "steps_per_epoch"),
        (lambda ds: ds.batch(2).loader(max_errors=-1), "max_errors"),
    ],
)
def test_mistakes_fail_when_they_are_written(
    ds: hp.Dataset, mistake: Callable[[hp.Dataset], object], message: str
) -> None:
    with pytest.raises(hp.InvalidArgument, match=message):
        mistake(ds)


def test_a_verb_leaves_its_pipeline_as_it_is(ds: hp.Dataset) -> None:
    base = ds.shuffle(seed=1)
    narrow = base.select("x")
    assert list(base.fields) == ["x", "y"]
    assert list(narrow.fields) == ["x"]
    assert base.batch(2) == base.batch(2)
    assert base.batch(2) != base.batch(3)


def test_reserved_fields_appear_only_when_selected(ds: hp.Dataset) -> None:
    batch = next(iter(ds.select("__index__", "y", "__key__", "__valid__").batch(4).loader()))
    assert list(batch) == ["__index__", "y", "__key__", "__valid__"]
    assert batch["__index__"].tolist() == [0, 1, 2, 3]
    assert batch["__valid__"].tolist() == [True] * 4
    assert batch["__key__"] == [ds.key(i) for i in range(4)]
    assert list(next(iter(ds.batch(4).loader()))) == ["x", "y"]


def test_rename_swaps_names(ds: hp.Dataset) -> None:
    batch = next(iter(ds.rename(x="y", y="x").batch(3).loader()))
    assert batch["x"].tolist() == [0, 1, 2]
    assert batch["y"].shape == (3, 2)


@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8", "float16"])
def test_decode_converts_numbers(ds: hp.Dataset, dtype: str) -> None:
    pipe = ds.decode(x=dtype)
    assert pipe.fields["x"] == (dtype, (2,))
    batch = next(iter(pipe.batch(10).loader()))
    assert batch["x"].dtype == dtype
    assert np.array_equal(batch["x"], np.arange(20).reshape(10, 2).astype(dtype))


def test_pictures_become_pixels(photos: Path) -> None:
    pipe = hp.from_files(photos).shuffle(seed=3).image("data", size=(24, 32), flip=True)
    assert pipe.fields == {"data": ("uint8", (24, 32, 3)), "label": ("int64", ())}
    batch = next(iter(pipe.batch(16).loader()))
    assert batch["data"].shape == (16, 24, 32, 3)
    # Pictures of class k are brightest in channel k.
    assert np.array_equal(batch["data"].mean(axis=(1, 2)).argmax(axis=1), batch["label"])


def test_layout_and_scale_are_applied_in_the_same_pass(photos: Path) -> None:
    ds = hp.from_files(photos)
    plain = next(iter(ds.image("data", size=16, crop="center").batch(8).loader()))["data"]
    pipe = ds.image(
        "data",
        size=16,
        crop="center",
        layout="nchw",
        dtype="float32",
        mean=[10, 20, 30],
        std=[2, 4, 8],
    )
    made = next(iter(pipe.batch(8).loader()))["data"]
    expected = (plain.astype(np.float32) - [10, 20, 30]) / [2, 4, 8]
    assert made.dtype == np.float32
    assert np.allclose(made, expected.transpose(0, 3, 1, 2), atol=1e-3)


def test_augmentation_follows_seed_epoch_and_sample_alone(photos: Path) -> None:
    def pixels(epoch: int, **options: object) -> np.ndarray:
        pipe = hp.from_files(photos, label=None).image("data", size=16, flip=True)
        loader = pipe.batch(int(str(options.pop("batch", 8)))).loader(**options)  # type: ignore[arg-type]
        loader.set_epoch(epoch)
        return np.concatenate([batch["data"] for batch in loader])[:40]

    first = pixels(0, seed=5)
    assert np.array_equal(first, pixels(0, seed=5, batch=3))
    assert not np.array_equal(first, pixels(1, seed=5))
    assert not np.array_equal(first, pixels(0, seed=6))


def test_a_pipeline_pickles(photos: Path) -> None:
    pipe = hp.from_files(photos).shuffle(seed=2).image("data", size=8).batch(5)
    copy = pickle.loads(pickle.dumps(pipe))
    first, second = next(iter(pipe.loader())), next(iter(copy.loader()))
    assert np.array_equal(first["data"], second["data"])


def test_shuffle_draws_every_sample_once_and_seeds_differ(ds: hp.Dataset) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        loader = ds.shuffle(seed=seed).batch(3).loader()
        loader.set_epoch(epoch)
        return [int(y) for batch in loader for y in batch["y"]][:10]

    assert sorted(order(1, 0)) == list(range(10))
    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_window_shuffle_draws_every_sample_once(shards: str) -> None:
    pipe = hp.from_webdataset(shards).shuffle(seed=1, mode="window", window=40)
    loader = pipe.select("__index__").batch(7).loader(uneven="allow")
    seen = [int(i) for batch in loader for i in batch["__index__"]]
    assert sorted(seen) == list(range(120))
    assert seen != sorted(seen)
