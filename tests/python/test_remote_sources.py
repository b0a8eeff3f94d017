"""Files, records and tokens from a web server: the same arrays as from local files."""

from __future__ import annotations

import json
import pickle
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headpond as hp
from headpond.cli import main
from headpond.cli._range_server import Request

SECRET = "d3adbeefd3adbeefd3adbeefd3adbeef"


def arrays(loader: hp.Loader) -> list[dict[str, Any]]:
    """Of an epoch; bytes as lists."""
    return [
        {
            name: values.tolist()
            if isinstance(values, np.ndarray)
            else [np.asarray(row).tobytes() for row in values]
            for name, values in batch.items()
        }
        for batch in loader
    ]


def below(root: Path, url: str, pattern: str = "*/*") -> list[str]:
    return [f"{url}/{path.relative_to(root)}" for path in sorted(root.glob(pattern))]


# --- files


def test_files_and_labels_are_those_of_the_folder(serve, photos: Path) -> None:
    url = serve(photos).url
    local = hp.from_files(photos)
    remote = hp.from_files(below(photos, url))
    assert remote.classes == local.classes
    assert remote.fingerprint == local.fingerprint
    assert remote.key(5) == local.key(5)
    assert remote.locate(5) == [
        (f"{url}/coot/005.jpg", 0, (photos / "coot/005.jpg").stat().st_size)
    ]
    for order in ({}, {"mode": "window", "window": 10}):
        ours, theirs = (ds.shuffle(seed=2, **order).batch(7).loader() for ds in (remote, local))
        for _ in range(2):
            assert arrays(ours) == arrays(theirs)
    pixels = [
        np.concatenate(
            [b["data"] for b in ds.shuffle(seed=1).image("data", size=32).batch(50).loader()]
        )
        for ds in (remote, local)
    ]
    assert np.array_equal(*pixels)
    state = local.shuffle(seed=2).batch(7).loader().state_dict()
    remote.shuffle(seed=2).batch(7).loader().load_state_dict(state)


def test_braces_name_urls(serve, photos: Path) -> None:
    url = serve(photos).url
    remote = hp.from_files(f"{url}/{{coot,teal}}/00{{0..4}}.jpg")
    assert len(remote) == 10
    assert remote.classes == ["coot", "teal"]
    assert remote[9] == {"data": (photos / "teal/004.jpg").read_bytes(), "label": 1}


NAMES = (
    "a b.bin",
    "é.bin",
    "100%.bin",
    "x+y&z=1.bin",
    "日本.bin",
    "plain.bin",
    "q#1.bin",
    "semi;colon,.bin",
)


def test_names_with_spaces_accents_and_escapes(serve, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode() * 10)
    asked: list[Request] = []
    url = serve(tmp_path, asked.append).url
    remote = hp.from_files([f"{url}/{name}" for name in NAMES], label=None)
    local = hp.from_files(tmp_path, label=None)
    assert [remote.key(i) for i in range(len(NAMES))] == [local.key(i) for i in range(len(NAMES))]
    assert arrays(remote.batch(3).loader()) == arrays(local.batch(3).loader())
    assert all(request.target.isascii() and " " not in request.target for request in asked)
    escaped = ("a%20b.bin", "%C3%A9.bin", "100%25.bin")
    assert [hp.read(f"{url}/{name}") for name in escaped] == [n.encode() * 10 for n in NAMES[:3]]
    assert any(request.target == "/a%20b.bin" for request in asked)
    ragged = hp.from_files([f"{url}/{name}" for name in escaped], label=None)
    assert [ragged[i]["data"] for i in range(3)] == [
        (tmp_path / name).read_bytes() for name in ("é.bin", "100%.bin", "a b.bin")
    ]


def test_a_query_is_sent_and_never_shown(serve, tmp_path: Path, caplog) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(bytes([number]) * 100)
    asked: list[Request] = []
    url = serve(tmp_path, asked.append).url
    signed = [f"{url}/{number}.jpg?X-Signature={SECRET}" for number in range(3)]
    dataset = hp.from_files(signed, label=None, pattern="*.jpg")
    assert [dataset[i]["data"][0] for i in range(3)] == [0, 1, 2]
    assert all(request.target.endswith(f"?X-Signature={SECRET}") for request in asked)
    shown = [repr(dataset), str(dataset.locate(1)), dataset.key(1)]
    (tmp_path / "1.jpg").unlink()
    for attempt in (
        lambda: dataset[1],
        lambda: hp.read(signed[1]),
        lambda: hp.stat(signed[1]),
        lambda: hp.from_files(signed, label=None),
        lambda: hp.from_records(signed, "uint8", 7),
        lambda: list(dataset.batch(3).loader()),
        lambda: hp.from_webdataset([f"{url}/1.jpg?X-Signature={SECRET}"]),
    ):
        with pytest.raises(hp.Error) as caught:
            attempt()
        shown += [str(caught.value), repr(caught.value.uri)]
    shown += [record.getMessage() for record in caplog.records]
    assert not [text for text in shown if SECRET in text]


def test_a_new_signature_is_the_same_dataset(serve, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(bytes([number]) * 100)
    url = serve(tmp_path).url
    first, second, plain = (
        hp.from_files([f"{url}/{number}.bin{query}" for number in range(3)], label=None)
        for query in ("?sig=" + "a" * 32, "?sig=" + "b" * 32, "")
    )
    assert first.fingerprint == second.fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    "open_it",
    [
        hp.from_files,
        hp.from_webdataset,
        hp.from_records,
        lambda url: hp.from_tokens(url, "uint16", window=4),
        hp.Manifest.build,
    ],
)
@pytest.mark.parametrize("what", ["", "/", "/*.tar", "/a[0-3].tar"])
def test_a_web_server_cannot_list_and_the_error_says_what_can(
    serve, photos: Path, open_it, what: str
) -> None:
    with pytest.raises(hp.Error) as caught:
        open_it(serve(photos).url + what)
    message = str(caught.value)
    assert "cannot list" in message
    assert "give a list of URLs, braces" in message
    assert "manifest" in message
    assert caught.value.code == "HP0002"


def test_many_are_asked_for_at_once(serve, tmp_path: Path) -> None:
    for number in range(16):
        (tmp_path / f"{number:02}.bin").write_bytes(b"x")
    together = threading.Barrier(8)
    asked: list[Request] = []

    def wait(request: Request) -> None:
        if request.method == "HEAD":
            asked.append(request)
            together.wait(60)  # fails unless 8 are there at once

    dataset = hp.from_files(f"{serve(tmp_path, wait).url}/{{00..15}}.bin", label=None)
    assert len(dataset) == 16
    assert not together.broken
    assert Counter(request.target for request in asked) == {f"/{n:02}.bin": 1 for n in range(16)}


def test_one_that_is_missing_is_named(serve, photos: Path) -> None:
    url = serve(photos).url
    with pytest.raises(hp.NotFound) as caught:
        hp.from_files(f"{url}/coot/{{000..040}}.jpg", label=None)
    assert "/coot/040.jpg" in str(caught.value)


def test_urls_that_make_no_dataset(serve, photos: Path) -> None:
    url = serve(photos).url
    with pytest.raises(hp.InvalidArgument, match="named twice"):
        hp.from_files([f"{url}/coot/000.jpg"] * 2, label=None)
    with pytest.raises(hp.InvalidArgument, match="one store"):
        hp.from_files([f"{url}/coot/000.jpg", "http://127.0.0.1:9/001.jpg"], label=None)
    with pytest.raises(hp.InvalidArgument, match="label=None"):
        hp.from_files(f"{url}/coot/{{000..003}}.jpg")
    with pytest.raises(hp.NotFound, match=r"\.png"):
        hp.from_files(f"{url}/coot/{{000..003}}.jpg", pattern="*.png", label=None)
    with pytest.raises(hp.Error, match="gopher"):
        hp.from_files("gopher://127.0.0.1/a", label=None)


def test_a_dataset_of_urls_pickles(serve, photos: Path) -> None:
    remote = hp.from_files(f"{serve(photos).url}/coot/00{{0..4}}.jpg", label=None)
    again = pickle.loads(pickle.dumps(remote))
    assert again[3] == remote[3]
    assert again.fingerprint == remote.fingerprint


# --- records and tokens


def test_records_by_ranges_are_those_of_local_files(serve, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number, rows in enumerate((50, 1, 33)):
        data = random.integers(0, 1000, (rows, 6)).astype(">u2")
        (tmp_path / f"part-{number}.rec").write_bytes(b"HEAD" + data.tobytes())
    asked: list[Request] = []
    url = serve(tmp_path, asked.append).url
    given: dict[str, Any] = {"dtype": ">u2", "shape": 6, "header_bytes": 4}
    local = hp.from_records(f"{tmp_path}/part-{{0..2}}.rec", **given)
    remote = hp.from_records(f"{url}/part-{{0..2}}.rec", **given)
    assert len(remote) == 84
    assert remote.fingerprint == local.fingerprint
    assert not [request for request in asked if request.method == "GET"], "sizes tell it all"
    for order in ({}, {"mode": "window", "window": 20}):
        ours, theirs = (ds.shuffle(seed=5, **order).batch(9).loader() for ds in (remote, local))
        for _ in range(2):
            assert arrays(ours) == arrays(theirs)
    assert {request.status for request in asked if request.method == "GET"} == {206}
    with pytest.raises(hp.CorruptData, match=r"part-0\.rec"):
        hp.from_records(f"{url}/part-{{0..2}}.rec", ">u2", 7, header_bytes=4)


def test_npy_files_say_their_dtype_over_http(serve, tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.arange(40, dtype="f4").reshape(10, 4) + number)
    url = serve(tmp_path).url
    local = hp.from_records(f"{tmp_path}/{{0..2}}.npy")
    remote = hp.from_records(f"{url}/{{0..2}}.npy")
    assert remote.fields == local.fields
    assert arrays(remote.shuffle().batch(8).loader()) == arrays(local.shuffle().batch(8).loader())


def test_token_windows_over_http(serve, tmp_path: Path) -> None:
    for number in range(2):
        (np.arange(1000, dtype="u2") + number).tofile(tmp_path / f"{number}.tokens")
    url = serve(tmp_path).url
    local, remote = (
        hp.from_tokens(f"{place}/{{0..1}}.tokens", "uint16", window=64, stride=32)
        for place in (tmp_path, url)
    )
    assert len(remote) == len(local)
    assert arrays(remote.shuffle(seed=1).batch(8).loader()) == arrays(
        local.shuffle(seed=1).batch(8).loader()
    )


# --- manifests


def test_a_manifest_of_urls_needs_no_request_to_open(
    serve, photos: Path, tmp_path: Path, capsys
) -> None:
    asked: list[Request] = []
    url = serve(photos, asked.append).url
    saved = tmp_path / "photos.manifest"
    urls = f"{url}/{{coot,heron,teal}}/{{000..039}}.jpg"
    assert main(["index", urls, "-o", str(saved), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["root"], written["objects"]) == (f"{url}/", 120)
    assert written["bytes"] == sum(path.stat().st_size for path in photos.glob("*/*"))
    assert {request.method for request in asked} == {"HEAD"}
    asked.clear()
    for source in (saved, str(saved), hp.Manifest.load(saved)):
        dataset = hp.from_files(source)
        loader = dataset.shuffle(seed=1).batch(10).loader()
        assert (len(loader), dataset.classes) == (12, ["coot", "heron", "teal"])
        assert not asked, "sizes and versions are in the manifest"
    theirs = hp.from_files(photos).shuffle(seed=1).batch(10).loader()
    assert arrays(loader) == arrays(theirs)
    assert {request.method for request in asked} == {"GET"}


def test_a_manifest_of_records_needs_no_request_before_the_first_batch(
    serve, tmp_path: Path
) -> None:
    for number in range(3):
        np.arange(20, dtype="u2").tofile(tmp_path / f"{number}.rec")
    asked: list[Request] = []
    manifest = hp.Manifest.build(f"{serve(tmp_path, asked.append).url}/{{0..2}}.rec")
    asked.clear()
    records = hp.from_records(manifest, "uint16", 5).shuffle().batch(4).loader()
    tokens = hp.from_tokens(manifest, "uint16", window=5).shuffle().batch(4).loader()
    assert (len(records), len(tokens)) == (3, 3)
    assert not asked
    assert sum(len(batch["data"]) for batch in records) == 12
    assert sum(len(batch["tokens"]) for batch in tokens) == 12


def test_an_object_that_is_not_as_the_manifest_says_has_changed(serve, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.bin").write_bytes(bytes(100))
    url = serve(folder).url
    manifest = hp.Manifest.build(f"{url}/{{0..3}}.bin")
    (folder / "2.bin").write_bytes(bytes([1]) * 100)
    with pytest.raises(hp.ObjectChanged) as caught:
        list(hp.from_files(manifest, label=None).batch(4).loader())
    assert "/2.bin" in str(caught.value)


def test_a_manifest_of_shards_brings_their_versions(
    serve, shards: str, tmp_path: Path, capsys
) -> None:
    asked: list[Request] = []
    folder = Path(shards).parent
    url = serve(folder, asked.append).url
    saved = tmp_path / "shards.manifest"
    assert main(["index", f"{url}/{Path(shards).name}", "-o", str(saved)]) == 0
    assert "4 objects" in capsys.readouterr().out
    assert len(asked) == 4
    order = {"seed": 1, "mode": "window", "window": 40}
    remote = hp.from_webdataset(saved).shuffle(**order).batch(16).loader()
    local = hp.from_webdataset(shards).shuffle(**order).batch(16).loader()
    assert arrays(remote) == arrays(local)


def test_a_manifest_may_lie_beside_the_data(serve, photos: Path, tmp_path: Path) -> None:
    url = serve(photos).url
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    hp.Manifest.build(f"{url}/coot/{{000..039}}.jpg").save(shipped / "coot.manifest")
    remote = hp.from_files(f"{serve(shipped).url}/coot.manifest", label=None)
    assert len(remote) == 40
    assert remote[3]["data"] == (photos / "coot/003.jpg").read_bytes()
    assert len(hp.Manifest.load(f"{serve(shipped).url}/coot.manifest")) == 40
