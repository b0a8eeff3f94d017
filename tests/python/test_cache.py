"""The node's cache: remote bytes once, whoever reads them, and the right ones."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headpond as hp
from headpond.cli._range_server import RangeServer, Request

RECORD = 1000
RECORDS = 9000  # 9 MB: three blocks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only."""
    root = tmp_path_factory.mktemp("origin")
    (root / "records.bin").write_bytes(np.random.default_rng(1).bytes(RECORD * RECORDS))
    return root


@pytest.fixture
def asked() -> list[Request]:
    return []


@pytest.fixture
def url(folder: Path, asked: list[Request], serve: Callable[..., RangeServer]) -> str:
    return f"{serve(folder, asked.append).url}/records.bin"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[..., hp.Engine]]:
    """Makes engines whose cache lies in one folder."""
    made: list[hp.Engine] = []

    def make(**options: Any) -> hp.Engine:
        made.append(hp.Engine(**{"cache_dir": tmp_path / "cache", "cache_size": "64MB", **options}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def loader(url: str, engine: hp.Engine, **source: Any) -> Any:
    dataset = hp.from_records(url, "uint8", RECORD, **source)
    return dataset.shuffle(seed=5).select("data", "__index__").batch(100).loader(engine=engine)


def check_epoch(loader: Any, folder: Path) -> None:
    stored = np.fromfile(folder / "records.bin", np.uint8).reshape(RECORDS, RECORD)
    seen = 0
    for batch in loader:
        assert (batch["data"] == stored[batch["__index__"]]).all()
        seen += len(batch["data"])
    assert seen == RECORDS


def body_bytes(asked: list[Request]) -> int:
    return sum(request.stop - request.start for request in asked if request.method == "GET")


def test_the_second_epoch_asks_the_origin_for_nothing(
    url: str, folder: Path, asked: list[Request], engine: Callable[..., hp.Engine]
) -> None:
    with loader(url, engine()) as batches:
        check_epoch(batches, folder)
        first = body_bytes(asked)
        assert RECORD * RECORDS <= first <= 1.001 * RECORD * RECORDS
        requests = len(asked)
        check_epoch(batches, folder)
        assert len(asked) == requests
        counters = batches.report().counters
        assert counters["cache_hit_bytes"] >= RECORD * RECORDS
        assert counters["cache_fetched_bytes"] == RECORD * RECORDS
        assert "cache:" in str(batches.report())


READER = """
import sys, headpond as hp
data = hp.from_records(sys.argv[1], "uint8", int(sys.argv[2])).shuffle(seed=int(sys.argv[3]))
with data.batch(100).loader() as loader:
    print(sum(int(batch["data"].sum()) for batch in loader))
    counters = loader.report().counters
    print(int(counters["cache_hit_bytes"]), int(counters["cache_joined_bytes"]))
"""


def read_in_process(url: str, cache: Path, seed: int = 1) -> subprocess.Popen[str]:
    """A program that reads the records through the cache, and prints their sum."""
    environment = {**os.environ, "HEADPOND_CACHE_DIR": str(cache), "HEADPOND_CACHE_SIZE": "64MB"}
    return subprocess.Popen(
        [sys.executable, "-c", READER, url, str(RECORD), str(seed)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str], folder: Path) -> tuple[int, int]:
    """Bytes that were there, and that came with another's fetch; the sum is checked."""
    printed, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    total, hit, joined = (int(word) for word in printed.split())
    assert total == int(np.fromfile(folder / "records.bin", np.uint8).sum(dtype=np.int64))
    return hit, joined


def test_another_process_finds_what_the_first_one_read(
    url: str, folder: Path, asked: list[Request], engine: Callable[..., hp.Engine], tmp_path: Path
) -> None:
    with loader(url, engine()) as batches:
        check_epoch(batches, folder)
    before = body_bytes(asked)
    hit, _ = answer(read_in_process(url, tmp_path / "cache"), folder)
    assert hit >= RECORD * RECORDS  # more: the next epoch is begun
    assert body_bytes(asked) - before < 10_000  # the object's version


def test_processes_that_start_together_fetch_each_byte_once(
    url: str, folder: Path, asked: list[Request], tmp_path: Path
) -> None:
    processes = [read_in_process(url, tmp_path / "cache", seed) for seed in range(4)]
    for process in processes:
        answer(process, folder)
    assert RECORD * RECORDS <= body_bytes(asked) <= 1.02 * RECORD * RECORDS


def test_a_process_that_is_killed_while_it_fetches_holds_nobody_up(
    folder: Path, serve: Callable[..., RangeServer], tmp_path: Path
) -> None:
    asked: list[Request] = []
    holding, go_on = threading.Event(), threading.Event()

    def ask(request: Request) -> None:
        asked.append(request)
        if request.method == "GET" and request.stop - request.start > RECORD and not go_on.is_set():
            holding.set()
            go_on.wait(60)

    url = f"{serve(folder, ask).url}/records.bin"
    victim = read_in_process(url, tmp_path / "cache")
    assert holding.wait(60)
    other = read_in_process(url, tmp_path / "cache")
    victim.kill()
    victim.communicate()
    go_on.set()
    answer(other, folder)


@pytest.mark.parametrize("off", [{"cache": False}, {"cache_size": 0}])
def test_without_a_cache_every_epoch_reads_the_origin(
    url: str,
    folder: Path,
    asked: list[Request],
    engine: Callable[..., hp.Engine],
    off: dict[str, Any],
    tmp_path: Path,
) -> None:
    source = {name: value for name, value in off.items() if name == "cache"}
    options = {name: value for name, value in off.items() if name != "cache"}
    with loader(url, engine(**options), **source) as batches:
        check_epoch(batches, folder)
        check_epoch(batches, folder)
    assert body_bytes(asked) >= 2 * RECORD * RECORDS
    assert not (tmp_path / "cache" / "blocks").exists()


def test_local_files_are_cached_only_when_asked_to(
    folder: Path, engine: Callable[..., hp.Engine], tmp_path: Path
) -> None:
    path = str(folder / "records.bin")
    with loader(path, engine()) as batches:
        check_epoch(batches, folder)
    assert not (tmp_path / "cache" / "blocks").exists()
    with loader(path, engine(), cache=True) as batches:
        check_epoch(batches, folder)
        assert batches.report().counters["cache_fetched_bytes"] == RECORD * RECORDS


def test_an_object_that_changed_is_not_served_from_its_old_blocks(
    tmp_path: Path, engine: Callable[..., hp.Engine], serve: Callable[..., RangeServer]
) -> None:
    root = tmp_path / "origin"
    root.mkdir()
    for content in (b"a", b"b"):
        path = root / "records.bin"
        path.write_bytes(content * RECORD * 10)
        os.utime(path, (1_700_000_000 + content[0],) * 2)  # HTTP dates have seconds
        dataset = hp.from_records(f"{serve(root).url}/records.bin", "uint8", RECORD)
        with dataset.batch(10).loader(engine=engine()) as batches:
            (batch,) = list(batches)
        assert (batch["data"] == content[0]).all()


def test_a_folder_that_is_not_ours_is_left_alone_and_training_goes_on(
    url: str,
    folder: Path,
    engine: Callable[..., hp.Engine],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocks = tmp_path / "cache" / "blocks"
    blocks.mkdir(parents=True)
    (blocks / "thesis.txt").write_text("years of work")
    with caplog.at_level(logging.WARNING, "headpond"), loader(url, engine()) as batches:
        check_epoch(batches, folder)
    assert [p.name for p in blocks.iterdir()] == ["thesis.txt"]
    (warning,) = [r.message for r in caplog.records if "no cache" in r.message]
    assert str(blocks) in warning


def test_damaged_blocks_are_fetched_again_and_never_served(
    url: str, folder: Path, asked: list[Request], engine: Callable[..., hp.Engine], tmp_path: Path
) -> None:
    with loader(url, engine()) as batches:
        check_epoch(batches, folder)
    published = tmp_path / "cache" / "blocks" / "v1" / "blocks"
    files = [path for path in published.rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    before = body_bytes(asked)
    with loader(url, engine()) as batches:
        check_epoch(batches, folder)
        assert batches.report().counters["cache_damaged"] == 3
    assert body_bytes(asked) - before >= RECORD * RECORDS


def test_warm_fills_the_cache_and_training_asks_the_origin_for_nothing(
    url: str, folder: Path, asked: list[Request], engine: Callable[..., hp.Engine]
) -> None:
    own = engine()
    dataset = hp.from_records(url, "uint8", RECORD)
    assert dataset.warm(engine=own) == hp.Warmed(3, 3, RECORD * RECORDS)
    assert body_bytes(asked) <= RECORD * RECORDS + 10
    assert dataset.warm(engine=own).kept == 3
    before = body_bytes(asked)
    with loader(url, own) as batches:
        check_epoch(batches, folder)
    assert body_bytes(asked) - before < 10


def test_warm_ends_where_the_cache_is_full(
    url: str, asked: list[Request], engine: Callable[..., hp.Engine]
) -> None:
    dataset = hp.from_records(url, "uint8", RECORD)
    warmed = dataset.warm(engine=engine(cache_size="5MB"))
    assert (warmed.blocks, warmed.kept) == (3, 2)  # two of 4 MiB do not fit


def test_warm_without_a_cache_says_so(url: str, engine: Callable[..., hp.Engine]) -> None:
    dataset = hp.from_records(url, "uint8", RECORD)
    with pytest.raises(hp.InvalidArgument, match="cache_size"):
        dataset.warm(engine=engine(cache_size=0))


@pytest.mark.parametrize("share", [0.4, 0.7])
def test_a_small_cache_keeps_what_is_used_next(
    tmp_path: Path,
    serve: Callable[..., RangeServer],
    engine: Callable[..., hp.Engine],
    share: float,
) -> None:
    """Shards that are read once an epoch: the best that a cache can do is its share of them."""
    root = tmp_path / "origin"
    root.mkdir()
    shards, block = 20, 1 << 20
    for shard in range(shards):
        (root / f"r-{shard:02}.bin").write_bytes(np.random.default_rng(shard).bytes(block))
    asked: list[Request] = []
    urls = f"{serve(root, asked.append).url}/r-{{00..{shards - 1}}}.bin"
    dataset = hp.from_records(urls, "uint8", block)
    own = engine(cache_size=int(share * shards * (block + 8192)) + 8192)
    with dataset.shuffle(seed=3).batch(1).loader(engine=own, prefetch="4MB") as batches:
        misses = []
        for _ in range(6):
            before = body_bytes(asked)
            seen = sum(len(batch["data"]) for batch in batches)
            assert seen == shards
            misses.append((body_bytes(asked) - before) / block)
    best = shards - int(share * shards)
    assert sum(misses[2:]) / len(misses[2:]) <= best + 2, misses
