"""Indexes that lie beside tar shards: ours, DALI's, lists of wids and Energon; one per machine."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headpond as hp
from headpond.cli import main
from headpond.cli._range_server import Request

COUNTS = (7, 3, 11, 1, 8, 0, 5)
TOTAL = sum(COUNTS)
SHARDS = [f"s-{shard}.tar" for shard in range(len(COUNTS))]
BRACES = f"s-{{0..{len(COUNTS) - 1}}}.tar"
ORDERS: tuple[dict[str, Any] | None, ...] = (
    {"mode": "full"},
    {"mode": "window", "window": 6},
    None,
)


def write_shard(path: Path, shard: int, samples: int) -> None:
    with tarfile.open(path, "w") as tar:
        for place in range(samples):
            for suffix, data in (("id", b"%d" % (1000 * shard + place)), ("bin", bytes(2000))):
                member = tarfile.TarInfo(f"{shard}/{place:03}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "shards"
    root.mkdir()
    for shard, samples in enumerate(COUNTS):
        write_shard(root / SHARDS[shard], shard, samples)
    return root


def put_ours(folder: Path) -> None:
    assert main(["index", f"{folder}/{BRACES}", "--beside"]) == 0


def put_dali(folder: Path) -> None:
    """As DALI's wds2idx: https://docs.nvidia.com/deeplearning/dali, "WebDataset integration"."""
    for name in SHARDS:
        lines: dict[str, list[str]] = {}
        with tarfile.open(folder / name) as tar:
            for member in tar:
                key, _, extension = member.name.partition(".")
                row = f"{extension} {member.offset_data} {member.size} {member.name}"
                lines.setdefault(key, []).append(row)
        text = "".join(" ".join(rows) + "\n" for rows in lines.values())
        (folder / name).with_suffix(".idx").write_text(f"v1.2 {len(lines)}\n{text}")


def put_wids(folder: Path, counts: tuple[int, ...] = COUNTS, file: str = "shardindex.json") -> None:
    shards = [
        {"url": name, "md5sum": "", "nsamples": count, "filesize": (folder / name).stat().st_size}
        for name, count in zip(SHARDS, counts, strict=True)
    ]
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}
    (folder / file).write_text(json.dumps(index, indent=2))


def put_energon(folder: Path) -> None:
    (folder / ".nv-meta").mkdir()
    rows = "".join(f"  {n}: {c}\n" for n, c in zip(SHARDS, COUNTS, strict=True))
    (folder / ".nv-meta" / ".info.yaml").write_text(f"shard_counts:\n{rows}")


EXACT = [put_ours, put_dali]
LISTS = [put_wids, put_energon]


def pipeline(dataset: hp.Dataset, order: dict[str, Any] | None) -> hp.Pipeline:
    shuffled = dataset if order is None else dataset.shuffle(seed=3, **order)
    return shuffled.decode(id="int64").select("id", "__key__").batch(4)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def shard_requests(asked: list[Request]) -> Counter[str]:
    """Bytes asked of each shard, those of one-byte questions for a version left out."""
    read: Counter[str] = Counter()
    for request in asked:
        if request.method == "GET" and request.target.endswith(".tar"):
            read[request.target] += max(0, request.stop - request.start - 1)
    return read


# --- what an index gives


@pytest.mark.parametrize("put", [*EXACT, *LISTS])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_batches_and_lengths_are_those_of_local_shards(serve, folder: Path, put, order) -> None:
    expected = pipeline(hp.from_webdataset(f"{folder}/{BRACES}"), order).loader()
    put(folder)
    remote = pipeline(hp.from_webdataset(f"{serve(folder).url}/{BRACES}"), order).loader()
    assert len(remote) == len(expected)
    assert len(remote.dataset) == TOTAL
    assert "34 samples" not in repr(remote.dataset)
    assert f"{TOTAL} samples" in repr(remote.dataset)
    for _ in range(2):
        assert ids(remote) == ids(expected)


@pytest.mark.parametrize("put", EXACT)
def test_shard_indexes_are_read_in_place_of_shards(serve, folder: Path, put, caplog) -> None:
    put(folder)
    asked: list[Request] = []
    dataset = hp.from_webdataset(f"{serve(folder, asked.append).url}/{BRACES}")
    asked.clear()
    assert len(dataset) == TOTAL
    assert all(read <= 3 * 512 for read in shard_requests(asked).values())
    assert dataset[TOTAL - 1]["id"] == b"6004"
    assert dataset.key(7) == "1/000"
    assert not caplog.records


def test_opening_reads_no_index_that_nobody_asked_for(serve, folder: Path) -> None:
    put_ours(folder)
    asked: list[Request] = []
    dataset = hp.from_webdataset(f"{serve(folder, asked.append).url}/{BRACES}")
    assert "not counted" in repr(dataset)
    assert sum(request.target.endswith(".hpindex") for request in asked) == 1
    loader = pipeline(dataset, {"mode": "window", "window": 6}).loader()
    assert sum(map(len, ids(loader))) >= TOTAL
    assert sum(request.target.endswith(".hpindex") for request in asked) == 1


@pytest.mark.parametrize("put", LISTS)
def test_lists_give_the_length_at_once_and_samples_by_their_shard(serve, folder, put) -> None:
    put(folder)
    asked: list[Request] = []
    dataset = hp.from_webdataset(f"{serve(folder, asked.append).url}/{BRACES}")
    asked.clear()
    assert len(dataset) == TOTAL
    assert not asked
    assert dataset[-1]["id"] == b"6004"
    assert dataset.key(TOTAL - 2) == "6/003"
    assert dataset.locate(TOTAL - 2)[0][0].endswith("s-6.tar")
    assert set(shard_requests(asked)) == {"/s-6.tar"}
    with pytest.raises(IndexError):
        dataset[TOTAL]


def test_an_index_of_wids_is_a_source(serve, folder: Path) -> None:
    put_wids(folder, file="train.json")
    local = hp.from_webdataset(folder / "train.json")
    remote = hp.from_webdataset(f"{serve(folder).url}/train.json")
    assert len(local) == len(remote) == TOTAL
    assert local.fingerprint == remote.fingerprint
    assert local.fingerprint == hp.from_webdataset(f"{folder}/{BRACES}").fingerprint
    order = {"mode": "window", "window": 6}
    assert ids(pipeline(remote, order).loader()) == ids(pipeline(local, order).loader())


# --- what is wrong


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_a_list_that_is_wrong_is_an_error_with_both_counts(serve, folder: Path, order) -> None:
    put_wids(folder, (7, 3, 11, 1, 9, 0, 5))
    dataset = hp.from_webdataset(f"{serve(folder).url}/{BRACES}")
    assert len(dataset) == TOTAL + 1
    with pytest.raises(hp.CorruptData, match=r"s-4\.tar.*8 samples.*shardindex\.json says 9"):
        ids(pipeline(dataset, order).loader())


@pytest.mark.parametrize("put", EXACT)
def test_stale_shard_indexes_are_refused_with_one_warning(serve, folder, put, caplog) -> None:
    put(folder)
    write_shard(folder / "s-2.tar", 2, 12)
    write_shard(folder / "s-4.tar", 9, 8)  # the same size
    dataset = hp.from_webdataset(f"{serve(folder).url}/{BRACES}")
    assert len(dataset) == TOTAL + 1
    assert dataset.key(7 + 3 + 12 + 1) == "9/000"
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


# --- the command


def test_index_writes_shard_indexes(capsys, serve, folder: Path, tmp_path: Path) -> None:
    source = f"{serve(folder).url}/{BRACES}"
    assert main(["index", source, "--into", str(tmp_path / "new"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["shards"], written["samples"]) == (len(COUNTS), TOTAL)
    put_ours(folder)
    assert "beside them" in capsys.readouterr().out
    for name in SHARDS:
        made = (tmp_path / "new" / f"{name}.hpindex").read_bytes()
        assert made == (folder / f"{name}.hpindex").read_bytes()
    assert not list(folder.glob("*.tmp"))


def test_wrong_use_of_shard_indexes(capsys, serve, folder: Path) -> None:
    for wrong in ([], ["--beside", "--into", "x"]):
        with pytest.raises(SystemExit) as exit:
            main(["index", str(folder), *wrong])
        assert exit.value.code == 2
    assert main(["index", f"{serve(folder).url}/{BRACES}", "--beside"]) == 1
    assert "web server" in capsys.readouterr().err


# --- processes of one machine

COUNTING = """
import json, os, sys
os.environ["HEADPOND_CACHE_DIR"], place = sys.argv[1:]
import headpond as hp
dataset = hp.from_webdataset(place)
sys.stdout.write("open\\n"); sys.stdout.flush(); sys.stdin.readline()
loader = dataset.shuffle(seed=3).decode(id="int64").select("id").batch(4).loader()
print(json.dumps([batch["id"].tolist() for batch in loader]))
"""
STREAMING = COUNTING.replace("seed=3", 'seed=3, mode="window", window=6')


class Processes:
    """Python programs that open the shards and go on together."""

    def __init__(self, program: str, cache: Path, place: str, count: int) -> None:
        self.all = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(cache), place],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        for process in self.all:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"

    def go(self) -> None:
        for process in self.all:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def results(self) -> list[Any]:
        printed = [process.communicate(timeout=120)[0] for process in self.all]
        return [json.loads(text) for text in printed if text]


def files_below(folder: Path) -> Counter[str]:
    return Counter(path.suffix for path in folder.rglob("*") if path.is_file())


def test_processes_that_count_the_same_shards_read_each_once(serve, folder, tmp_path) -> None:
    expected = ids(pipeline(hp.from_webdataset(f"{folder}/{BRACES}"), {"mode": "full"}).loader())
    asked: list[Request] = []
    place = f"{serve(folder, asked.append).url}/{BRACES}"
    processes = Processes(COUNTING, tmp_path / "cache", place, 4)
    asked.clear()
    processes.go()
    assert processes.results() == [expected] * 4
    whole = Counter(
        request.target
        for request in asked
        if request.method == "GET"
        and request.target.endswith(".tar")
        and request.stop - request.start == (folder / request.target[1:]).stat().st_size
    )
    assert whole == {f"/{name}": 1 for name in SHARDS}
    assert files_below(tmp_path / "cache") == {".tarindex": len(SHARDS)}


def test_processes_that_stream_the_same_shards_leave_one_index_each(serve, folder, tmp_path):
    order = {"mode": "window", "window": 6}
    expected = ids(pipeline(hp.from_webdataset(f"{folder}/{BRACES}"), order).loader())
    processes = Processes(STREAMING, tmp_path / "cache", f"{serve(folder).url}/{BRACES}", 4)
    processes.go()
    assert processes.results() == [expected] * 4
    assert files_below(tmp_path / "cache") == {".tarindex": len(SHARDS)}


def test_who_waits_for_a_process_that_is_killed_goes_on(serve, folder: Path, tmp_path: Path):
    expected = ids(pipeline(hp.from_webdataset(f"{folder}/{BRACES}"), {"mode": "full"}).loader())
    stalls, stalled, goes_on = threading.Event(), threading.Event(), threading.Event()

    def asked(request: Request) -> None:
        # The first who reads this shard waits; it holds the lock.
        if stalls.is_set() and request.target == "/s-4.tar" and request.method == "GET":
            stalls.clear()
            stalled.set()
            goes_on.wait(60)

    processes = Processes(COUNTING, tmp_path / "cache", f"{serve(folder, asked).url}/{BRACES}", 2)
    stalls.set()
    first, second = processes.all
    assert first.stdin is not None
    assert second.stdin is not None
    first.stdin.write("go\n")
    first.stdin.flush()
    try:
        assert stalled.wait(60)
        second.stdin.write("go\n")
        second.stdin.flush()
        os.kill(first.pid, signal.SIGKILL)
        assert processes.results() == [expected]
    finally:
        goes_on.set()
        for process in processes.all:
            process.kill()
            process.wait()
    left = files_below(tmp_path / "cache")
    assert left.pop(".lock", 0) < len(SHARDS)  # of what was made when it was killed
    assert left == {".tarindex": len(SHARDS)}
