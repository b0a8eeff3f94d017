"""Tar shards from a web server that nobody indexed: the same batches as from files."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import pickle
import shutil
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headpond as hp
from headpond.cli._range_server import Request

COUNTS = (7, 3, 11, 1, 8, 0, 5)
TOTAL = sum(COUNTS)
BRACES = f"s-{{0..{len(COUNTS) - 1}}}.tar"
MODES = ({"mode": "window", "window": 6}, {"mode": "window", "window": 20}, None)


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def write_shard(path: Path, shard: int, samples: int, size: int = 3000) -> None:
    """Samples that say where they are from, in ``id``, beside bytes of any length, in ``bin``."""
    random = np.random.default_rng(shard)
    with tarfile.open(path, "w") as tar:
        for place in range(samples):
            for suffix, data in (
                ("id", str(1000 * shard + place).encode()),
                ("bin", random.bytes(int(random.integers(0, size)))),
            ):
                add_member(tar, f"{shard}/{place:03}.{suffix}", data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only."""
    root = tmp_path_factory.mktemp("shards")
    for shard, samples in enumerate(COUNTS):
        write_shard(root / f"s-{shard}.tar", shard, samples)
    return root


def pipeline(place: object, order: dict[str, Any] | None, batch: int = 4, **more: Any) -> Any:
    dataset = hp.from_webdataset(f"{place}/{BRACES}")
    shuffled = dataset if order is None else dataset.shuffle(seed=3, **order)
    return (
        shuffled.decode(id="int64", bin="raw").select("id", "bin", "__key__").batch(batch, **more)
    )


def contents(batches: Any) -> list[list[tuple[str, int, bytes]]]:
    return [
        list(zip(batch["__key__"], batch["id"].tolist(), batch["bin"], strict=True))
        for batch in batches
    ]


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


# --- the same batches


@pytest.mark.parametrize("order", MODES, ids=str)
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_those_of_local_shards(serve, folder: Path, order, drop_last: bool) -> None:
    local = pipeline(folder, order, drop_last=drop_last).loader()
    remote = pipeline(serve(folder).url, order, drop_last=drop_last).loader()
    for _ in range(3):
        assert contents(remote) == contents(local)


@pytest.mark.parametrize("order", MODES, ids=str)
@pytest.mark.parametrize("uneven", ["pad", "drop", "allow"])
def test_two_ranks_read_what_two_ranks_read_locally(serve, folder: Path, order, uneven) -> None:
    def ranks(place: object) -> list[hp.Loader]:
        # A dataset each, as processes have.
        return [
            pipeline(place, order).loader(rank=rank, world_size=2, uneven=uneven)
            for rank in range(2)
        ]

    local, remote = ranks(folder), ranks(serve(folder).url)
    for _ in range(2):
        assert [contents(loader) for loader in remote] == [contents(loader) for loader in local]


def test_pixels_are_those_of_local_shards(serve, shards: str) -> None:
    def pictures(place: str) -> hp.Loader:
        dataset = hp.from_webdataset(place).decode(cls="int64")
        return (
            dataset.shuffle(seed=1, mode="window", window=40)
            .image("jpg", size=32, flip=True)
            .batch(16)
            .loader()
        )

    url = f"{serve(Path(shards).parent).url}/{Path(shards).name}"
    local, remote = pictures(shards), pictures(url)
    for _ in range(2):
        for ours, theirs in zip(remote, local, strict=True):
            assert np.array_equal(ours["jpg"], theirs["jpg"])
            assert np.array_equal(ours["cls"], theirs["cls"])


# --- counts that come late


def test_the_length_is_known_once_every_shard_was_read(serve, folder: Path) -> None:
    loader = pipeline(serve(folder).url, MODES[0]).loader()
    with pytest.raises(TypeError, match="not counted yet"):
        len(loader)
    with pytest.raises(TypeError, match="not counted yet"):
        len(loader.dataset)
    with pytest.raises(TypeError, match="not counted yet"):
        loader.dataset[0]
    assert "not counted" in repr(loader.dataset)
    assert len(ids(loader)) == len(loader) == -(-TOTAL // 4)
    assert len(loader.dataset) == TOTAL
    assert loader.dataset[TOTAL - 1]["id"] == b"6004"


@pytest.mark.parametrize("order", [{"mode": "full"}, {"mode": "window", "window": 6}])
def test_what_needs_counts_counts_first(serve, folder: Path, order: dict, caplog) -> None:
    def numbered(place: object) -> hp.Pipeline:
        dataset = hp.from_webdataset(f"{place}/{BRACES}").decode(id="int64")
        return dataset.shuffle(seed=3, **order).select("id", "__index__").batch(4)

    local, remote = numbered(folder).loader(), numbered(serve(folder).url).loader()
    assert len(remote) == len(local)
    for _ in range(2):
        ours, theirs = list(remote), list(local)
        assert ids(ours) == ids(theirs)
        assert [b["__index__"].tolist() for b in ours] == [b["__index__"].tolist() for b in theirs]


# --- resuming


def resumed(place: object, order: Any, state: dict[str, Any], batch: int = 4) -> list[Any]:
    """The rest of the epoch, and the next."""
    loader = pipeline(place, order, batch).loader()
    loader.load_state_dict(json.loads(json.dumps(state)))
    with loader:
        return [contents(loader), contents(loader)]


@pytest.mark.parametrize("order", MODES, ids=str)
def test_every_stop_resumes_exactly_without_an_index(serve, folder: Path, order) -> None:
    local = pipeline(folder, order).loader()
    epochs = [contents(local), contents(local)]
    for stop in range(len(epochs[0]) + 1):
        loader = pipeline(serve(folder).url, order).loader()
        with loader:
            assert contents(itertools.islice(loader, stop)) == epochs[0][:stop]
            state = loader.state_dict()
            assert len(json.dumps(state)) < 1024
        assert resumed(serve(folder).url, order, state) == [epochs[0][stop:], epochs[1]], stop


@pytest.mark.parametrize("order", [*MODES, {"mode": "full"}], ids=str)
def test_states_go_from_remote_to_local_shards_and_back(serve, folder: Path, order) -> None:
    local = pipeline(folder, order).loader()
    epochs = [contents(local), contents(local)]
    url = serve(folder).url
    for stop in (2, 6):
        for first, second in ((url, folder), (folder, url)):
            with pipeline(first, order).loader() as loader:
                contents(itertools.islice(loader, stop))
                state = loader.state_dict()
            assert resumed(second, order, state) == [epochs[0][stop:], epochs[1]]


RESUMING = """
import json, os, sys
folder, place, states = json.loads(sys.argv[1])
os.environ["HEADPOND_CACHE_DIR"] = folder
import headpond as hp
for state in states:
    dataset = hp.from_webdataset(place).decode(id="int64")
    loader = dataset.shuffle(seed=3, mode="window", window=6).batch(4).loader()
    loader.load_state_dict(state)
    with loader:
        print(json.dumps([batch["id"].tolist() for batch in loader]))
"""


def test_a_new_process_resumes_with_and_without_the_kept_index(
    serve, folder: Path, tmp_path: Path, run_python
) -> None:
    asked: list[Request] = []
    url = f"{serve(folder, asked.append).url}/{BRACES}"
    local = pipeline(folder, MODES[0]).loader()
    states, expected = [], ids(local)
    for stop in (1, 3, 6, 8):
        loader = pipeline(folder, MODES[0]).loader()
        ids(itertools.islice(loader, stop))
        states.append(loader.state_dict())
    fresh = {**states[0], "cursor": 0, "group": {"first_shard": 0, "cursor": 0}}
    program = tmp_path / "resume.py"
    program.write_text(RESUMING)

    def rest(kept: str, given: list[dict]) -> list[list[list[int]]]:
        printed = run_python(program, json.dumps([str(tmp_path / kept), url, given]))
        return [json.loads(line) for line in printed.splitlines()]

    assert rest("empty", [states[1]]) == [expected[3:]]
    assert rest("kept", [fresh]) == [expected]
    assert len(list((tmp_path / "kept").rglob("*"))) > len(COUNTS), "an index per shard is kept"
    asked.clear()
    assert rest("kept", states) == [expected[stop:] for stop in (1, 3, 6, 8)]


# --- passes


@pytest.mark.parametrize("steps", [1, 4, 13])
def test_passes_of_steps_and_their_states(serve, folder: Path, steps: int) -> None:
    local = pipeline(folder, MODES[0]).loader(steps_per_epoch=steps)
    expected = [ids(local) for _ in range(5)]
    remote = pipeline(serve(folder).url, MODES[0]).loader(steps_per_epoch=steps)
    assert len(remote) == steps
    states = []
    for passed in range(5):
        assert ids(remote) == expected[passed]
        states.append(remote.state_dict())
    for passed in (0, 2):
        loader = pipeline(serve(folder).url, MODES[0]).loader(steps_per_epoch=steps)
        loader.load_state_dict(states[passed])
        # A state after the end of a pass is that of the next one's start.
        assert [ids(loader), ids(loader)] == expected[passed + 1 : passed + 3]


def test_a_pass_of_steps_resumes_in_its_middle(serve, folder: Path) -> None:
    expected = pipeline(folder, MODES[0]).loader(steps_per_epoch=6)
    whole = [ids(expected) for _ in range(3)]
    for stop in (1, 5):
        loader = pipeline(serve(folder).url, MODES[0]).loader(steps_per_epoch=6)
        ids(loader)
        ids(itertools.islice(loader, stop))
        state = loader.state_dict()
        again = pipeline(serve(folder).url, MODES[0]).loader(steps_per_epoch=6)
        again.load_state_dict(state)
        assert [ids(again), ids(again)] == [whole[1][stop:], whole[2]]


def test_epochs_and_set_epoch(serve, folder: Path) -> None:
    local = pipeline(folder, MODES[0]).loader()
    remote = pipeline(serve(folder).url, MODES[0]).loader()
    assert ids(remote.epochs(3)) == ids(local.epochs(3))
    for epoch in (7, 2, 3):
        local.set_epoch(epoch)
        remote.set_epoch(epoch)
        assert ids(remote) == ids(local)
    fresh = pipeline(serve(folder).url, MODES[0]).loader()
    fresh.set_epoch(7)
    local.set_epoch(7)
    assert ids(fresh) == ids(local)


def test_an_epoch_left_early_counts(serve, folder: Path) -> None:
    local = pipeline(folder, MODES[0]).loader()
    remote = pipeline(serve(folder).url, MODES[0]).loader()
    for loader in (local, remote):
        ids(itertools.islice(loader, 2))
    assert ids(remote) == ids(local)


def test_two_loaders_of_one_dataset_do_not_disturb_each_other(serve, folder: Path) -> None:
    local, other = pipeline(folder, MODES[0]), pipeline(folder, MODES[1], batch=3)
    dataset = hp.from_webdataset(f"{serve(folder).url}/{BRACES}")

    def over(order: dict[str, Any], batch: int) -> hp.Loader:
        decoded = dataset.shuffle(seed=3, **order).decode(id="int64")
        return decoded.select("id", "__key__").batch(batch).loader()

    first, second = over(MODES[0], 4), over(MODES[1], 3)
    pairs = list(itertools.zip_longest(first, second))
    assert ids(a for a, _ in pairs if a) == ids(local.loader())
    assert ids(b for _, b in pairs if b) == ids(other.loader())
    with first, second:
        assert ids(first) == ids(itertools.islice(local.loader().epochs(2), len(first), None))


def test_a_dataset_and_a_loader_pickle_before_and_after_the_counts(serve, folder: Path) -> None:
    epochs = [ids(loader) for loader in [pipeline(folder, MODES[0]).loader()] for _ in range(2)]
    loader = pipeline(serve(folder).url, MODES[0]).loader()
    fresh = pickle.loads(pickle.dumps(loader))
    with pytest.raises(TypeError):
        len(fresh.dataset)
    assert ids(fresh) == epochs[0]
    assert len(fresh.dataset) == TOTAL
    again = pickle.loads(pickle.dumps(fresh))
    assert ids(again) == epochs[1]


# --- requests


def shards_asked(asked: list[Request]) -> set[str]:
    """Without the questions for what may lie beside them."""
    return {request.target for request in asked if request.target.endswith(".tar")}


def test_an_epoch_reads_each_byte_once(serve, folder: Path) -> None:
    asked: list[Request] = []
    loader = pipeline(serve(folder, asked.append).url, MODES[0]).loader()
    asked.clear()  # opening looked at the first sample
    ids(loader)
    left = {
        f"/s-{shard}.tar": set(range((folder / f"s-{shard}.tar").stat().st_size))
        for shard in range(len(COUNTS))
    }
    for request in asked:
        # The version of a shard is asked for by a read of its first byte.
        if request.method == "GET" and request.stop - request.start > 1 and any(left.values()):
            read = set(range(request.start, request.stop))
            assert read <= left[request.target], "nothing is read twice"
            left[request.target] -= read
    # What came later is the start of the next epoch, which may begin while this one ends.
    assert not any(left.values())


def test_opening_asks_for_the_first_sample_only(serve, folder: Path) -> None:
    asked: list[Request] = []
    pipeline(serve(folder, asked.append).url, MODES[0]).loader()
    assert shards_asked(asked) == {"/s-0.tar"}


def test_the_report_counts_what_was_streamed_and_what_is_read_again(serve, tmp_path: Path) -> None:
    for shard in range(6):
        write_shard(tmp_path / f"s-{shard}.tar", shard, 10, size=600_000)
    total = sum(path.stat().st_size for path in tmp_path.glob("*.tar"))
    url = f"{serve(tmp_path).url}/s-{{0..5}}.tar"

    def loader(**given: Any) -> hp.Loader:
        dataset = hp.from_webdataset(url).decode(id="int64", bin="raw")
        return dataset.shuffle(seed=1, mode="window", window=1000).batch(10).loader(**given)

    with loader() as fits:
        expected = [(batch["id"].tolist(), batch["bin"].to_list()) for batch in fits]
        report = fits.report()
    assert report.counters["bytes_storage"] == total  # and not once more when it is copied
    assert report.counters["bytes_dropped"] == 0
    assert "read again" not in str(report)
    engine = hp.Engine(memory="8MB")
    with loader(engine=engine) as tight:
        assert [(batch["id"].tolist(), batch["bin"].to_list()) for batch in tight] == expected
        report = tight.report()
    engine.close()
    assert report.counters["bytes_storage"] > total
    assert report.counters["bytes_dropped"] > 0
    assert "read again" in str(report)


def test_decoding_npy_reads_one_value_and_counts_nothing(serve, tmp_path: Path) -> None:
    for shard in range(3):
        with tarfile.open(tmp_path / f"s-{shard}.tar", "w") as tar:
            for place in range(4):
                data = io.BytesIO()
                np.save(data, np.full((2, 3), 10 * shard + place, ">i2"))
                add_member(tar, f"{shard}/{place}.x.npy", data.getvalue())
    asked: list[Request] = []
    url = serve(tmp_path, asked.append).url
    decoded = hp.from_webdataset(f"{url}/s-{{0..2}}.tar").decode(**{"x.npy": "npy"})
    assert decoded.fields["x.npy"].shape == (2, 3)
    assert shards_asked(asked) == {"/s-0.tar"}
    loader = decoded.shuffle(mode="window", window=4).batch(4).loader()
    with pytest.raises(TypeError):
        len(loader)
    local = hp.from_webdataset(f"{tmp_path}/s-{{0..2}}.tar").decode(**{"x.npy": "npy"})
    theirs = local.shuffle(mode="window", window=4).batch(4).loader()
    for ours, expected in zip(loader, theirs, strict=True):
        assert np.array_equal(ours["x.npy"], expected["x.npy"])


# --- faults


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the shards that a test may damage."""
    shutil.copytree(folder, tmp_path / "own")
    return tmp_path / "own"


def first_error(loader: hp.Loader) -> hp.Error:
    with pytest.raises(hp.Error) as caught:
        ids(loader)
    return caught.value


def test_a_shard_that_is_not_there_is_named(serve, own: Path) -> None:
    loader = pipeline(serve(own).url, MODES[0]).loader()
    (own / "s-4.tar").unlink()
    error = first_error(loader)
    assert isinstance(error, hp.NotFound)
    assert "/s-4.tar" in str(error)
    assert error.uri is not None
    assert error.uri.endswith("/s-4.tar")


def test_a_shard_that_is_damaged_in_its_middle_is_named(serve, own: Path) -> None:
    damaged = own / "s-2.tar"
    content = bytearray(damaged.read_bytes())
    header = len(content) // 2 // 512 * 512
    while content[header + 257 : header + 262] != b"ustar":
        header += 512
    content[header + 148 : header + 156] = b"0000000\0"  # its checksum
    damaged.write_bytes(content)
    error = first_error(pipeline(serve(own).url, MODES[0]).loader())
    assert isinstance(error, hp.CorruptData)
    assert "/s-2.tar" in str(error)
    assert str(header) in str(error)


@pytest.mark.parametrize("what", ["cut", "a page"])
def test_what_is_no_whole_tar_is_named(serve, own: Path, what: str) -> None:
    content = (own / "s-2.tar").read_bytes()
    (own / "s-2.tar").write_bytes(
        content[: len(content) // 2] if what == "cut" else b"<html>" * 999
    )
    error = first_error(pipeline(serve(own).url, MODES[0]).loader())
    assert isinstance(error, hp.CorruptData)
    assert "/s-2.tar" in str(error)


def test_the_samples_before_a_fault_are_handed_out(serve, own: Path) -> None:
    expected = ids(pipeline(own, None).loader())
    (own / "s-6.tar").unlink()  # the last, in the order without a shuffle
    loader = pipeline(serve(own).url, None).loader()
    seen: list[list[int]] = []
    with pytest.raises(hp.NotFound):
        seen.extend(batch["id"].tolist() for batch in loader)
    assert seen == expected[: len(seen)]
    assert len(seen) >= (TOTAL - COUNTS[6]) // 4 - 1


@pytest.mark.parametrize("size", ["same", "other"])
def test_a_shard_that_changed_between_two_epochs_is_named(serve, own: Path, size: str) -> None:
    loader = pipeline(serve(own).url, MODES[0]).loader()
    ids(loader)
    loader.set_epoch(5)  # nothing of it was read ahead
    content = (own / "s-4.tar").read_bytes()
    (own / "s-4.tar").write_bytes(content + (bytes(10240) if size == "other" else b""))
    os.utime(own / "s-4.tar", ns=(1, 1))
    error = first_error(loader)
    assert isinstance(error, hp.ObjectChanged)
    assert "/s-4.tar" in str(error)


def test_close_does_not_wait_for_a_server_that_stalls(serve, folder: Path) -> None:
    stalls = threading.Event()
    stalled = threading.Event()
    goes_on = threading.Event()

    def asked(_: Request) -> None:
        if stalls.is_set():
            stalled.set()
            goes_on.wait(60)

    loader = pipeline(serve(folder, asked).url, MODES[0]).loader()
    stalls.set()
    errors: list[hp.Error] = []

    def consume() -> None:
        try:
            ids(loader)
        except hp.Error as error:
            errors.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        assert stalled.wait(60)
        began = time.monotonic()
        loader.close()
        assert time.monotonic() - began < 2.5  # 2 s is promised
        consumer.join(60)
        assert [error.code for error in errors] == ["HP0402"]
    finally:
        goes_on.set()


def test_a_timeout_names_the_shard_and_the_epoch_goes_on(serve, folder: Path) -> None:
    expected = ids(pipeline(folder, MODES[0]).loader())
    stalls = threading.Event()
    goes_on = threading.Event()

    def asked(request: Request) -> None:
        if stalls.is_set() and request.method == "GET":
            goes_on.wait(60)

    with pipeline(serve(folder, asked).url, MODES[0]).loader(timeout=0.2) as loader:
        stalls.set()
        batches = iter(loader)
        try:
            with pytest.raises(hp.Timeout, match=r"/s-\d\.tar"):
                next(batches)
        finally:
            goes_on.set()
        seen = []
        while len(seen) < len(expected):
            with contextlib.suppress(hp.Timeout):
                seen.append(next(batches)["id"].tolist())
        assert seen == expected
