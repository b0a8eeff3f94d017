"""``headpond inspect``, ``check`` and ``index`` on sound and on damaged data."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import headpond as hp
from headpond.cli import main

BLOCK = 512


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Runs a command with --json: exit code and what it printed."""

    def run_command(*arguments: object) -> tuple[int, dict]:
        code = main([*map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run_command


def shard_of(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def header_offset(path: Path, name: str) -> int:
    with tarfile.open(path) as tar:
        return tar.getmember(name).offset


# -- inspect


def test_inspect_knows_folders_of_pictures(run, photos: Path) -> None:
    code, found = run("inspect", photos)
    assert code == 0
    assert (found["kind"], found["samples"], found["objects"]) == ("files", 120, 120)
    assert found["classes"] == ["coot", "heron", "teal"]
    sizes = found["fields"][0]["bytes"]
    assert 0 < sizes["least"] <= sizes["mean"] <= sizes["most"]
    assert [record["key"] for record in found["first"]] == [f"coot/{i:03}.jpg" for i in range(3)]
    assert found["first"][0]["fields"]["data"].startswith("JPEG")


def test_inspect_knows_shards_by_braces_and_by_folder(run, shards: str) -> None:
    for source in (shards, Path(shards).parent):
        code, found = run("inspect", source, "--first", 1)
        assert code == 0
        assert (found["kind"], found["samples"], found["objects"]) == ("webdataset", 120, 4)
        assert {field["name"] for field in found["fields"]} == {"jpg", "cls"}
        assert found["first"][0]["fields"]["cls"] == "0"


def test_inspect_and_check_read_from_a_web_server(run, shards: str, web: str) -> None:
    remote = f"{web}/shards/{Path(shards).name}"
    code, here = run("inspect", shards)
    assert code == 0
    code, there = run("inspect", remote)
    assert code == 0
    for same in ("kind", "samples", "objects", "bytes", "fields", "first"):
        assert there[same] == here[same]
    code, found = run("check", remote)
    assert (code, found["good"], found["decoded"]) == (0, True, 120)


def test_inspect_knows_records(run, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    code, found = run("inspect", tmp_path)
    assert (code, found["kind"], found["samples"]) == (0, "records", 4)
    assert found["fields"] == [{"name": "data", "dtype": "float32", "shape": [3], "bytes": None}]

    (tmp_path / "raw.bin").write_bytes(bytes(96))
    code, found = run("inspect", tmp_path / "raw.bin", "--dtype", "int32", "--shape", "2,3")
    assert (code, found["samples"], found["fields"][0]["shape"]) == (0, 4, [2, 3])


def test_inspect_writes_a_sheet_of_pictures(run, photos: Path, tmp_path: Path) -> None:
    from PIL import Image

    sheet = tmp_path / "sheet.png"
    code, found = run("inspect", photos, "--png", sheet, "--tiles", 3)
    assert (code, found["png"]["tiles"], found["png"]["broken"]) == (0, 3, [])
    with Image.open(sheet) as picture:
        assert picture.size == (3 * 132 + 4, 132 + 4)
        tiles = [np.asarray(picture)[4:132, 4 + 132 * i : 132 * (i + 1)] for i in range(3)]
    # One picture of each class: red, green, blue.
    assert [int(tile.mean((0, 1)).argmax()) for tile in tiles] == [0, 1, 2]


def test_a_broken_picture_is_a_red_tile(run, photos: Path, tmp_path: Path) -> None:
    from PIL import Image

    for number in range(2):
        shutil.copy(photos / "teal" / f"{number:03}.jpg", tmp_path / f"{number}.jpg")
    (tmp_path / "1.jpg").write_bytes((tmp_path / "1.jpg").read_bytes()[:700])
    code, found = run("inspect", tmp_path, "--png", tmp_path / "sheet.png")
    assert code == 0
    assert [line.partition(":")[0] for line in found["png"]["broken"]] == ["1.jpg"]
    with Image.open(tmp_path / "sheet.png") as picture:
        assert picture.getpixel((4 + 132 + 60, 60)) == (160, 0, 0)


def test_inspect_prints_for_people(capsys, photos: Path, shards: str) -> None:
    assert main(["inspect", str(photos)]) == 0
    printed = capsys.readouterr().out
    assert "120 samples in 120 files" in printed
    assert "3 classes: coot, heron, teal" in printed
    assert main(["inspect", shards]) == 0
    assert "120 samples in 4 shards" in capsys.readouterr().out


def test_inspect_of_nothing_or_without_pictures_says_so(capsys, tmp_path: Path) -> None:
    assert main(["inspect", str(tmp_path / "missing")]) == 1
    assert "HP0101" in capsys.readouterr().err
    (tmp_path / "a.txt").write_text("text")
    assert main(["inspect", str(tmp_path), "--png", str(tmp_path / "sheet.png")]) == 1
    assert "no JPEG" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path), "--tiles", "0"]) == 2
    assert main(["inspect", str(tmp_path), "--dtype", "int8", "--shape", "a"]) == 1


# -- check


def test_sound_data_pass(run, photos: Path, shards: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 3)))
    for source, samples, decoded in ((photos, 120, 120), (shards, 120, 120), (tmp_path, 4, 0)):
        code, found = run("check", source)
        assert (code, found["good"], found["findings"]) == (0, True, [])
        assert (found["samples"], found["decoded"]) == (samples, decoded)


def test_every_broken_picture_of_a_folder_is_found(run, photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    whole = (root / "coot" / "000.jpg").read_bytes()
    (root / "coot" / "000.jpg").write_bytes(whole[:-200])  # only the last rows are gone
    (root / "coot" / "007.jpg").write_bytes(b"")
    (root / "teal" / "039.JPEG").write_bytes(b"<html>404</html>")
    (root / "teal" / "labels.json").write_text("{")
    (root / "teal" / "notes.txt").write_text("not read")
    code, found = run("check", root)
    assert code == 1
    assert sorted(Path(finding["uri"]).name for finding in found["findings"]) == [
        "000.jpg",
        "007.jpg",
        "039.JPEG",
        "labels.json",
    ]


def test_every_broken_member_of_sound_shards_is_found(run, tmp_path: Path, jpeg) -> None:
    good, cut = jpeg(0, 0), jpeg(1, 1)[:900]
    for number in range(2):
        shard_of(
            tmp_path / f"{number}.tar",
            [("a.jpg", good), ("a.json", b"{}"), ("b.jpg", cut), ("b.json", b"{]")],
        )
    code, found = run("check", tmp_path)
    assert code == 1
    assert len(found["findings"]) == 4
    first = next(f for f in found["findings"] if f["uri"].endswith("0.tar") and "jpg" in f["key"])
    assert first["key"] == "b.jpg"
    start, stop = first["range"]
    assert (tmp_path / "0.tar").read_bytes()[start:stop] == cut


def test_behind_a_broken_header_the_rest_is_still_checked(run, tmp_path: Path, jpeg) -> None:
    good, cut = jpeg(0, 0), jpeg(1, 1)[:900]
    members = [("a.jpg", good), ("b.jpg", good), ("c.jpg", cut), ("d.jpg", good)]
    shard = shard_of(tmp_path / "0.tar", members)
    damaged = bytearray(shard.read_bytes())
    at = header_offset(shard, "b.jpg")
    damaged[at : at + 4] = b"\xff\xff\xff\xff"
    shard.write_bytes(damaged)
    code, found = run("check", shard)
    assert code == 1
    places = {finding["key"]: finding["range"] for finding in found["findings"]}
    assert set(places) == {None, "c.jpg"}
    assert places[None][0] == at
    assert places[None][1] == header_offset(shard_of(tmp_path / "whole", members), "c.jpg")


def test_all_members_that_break_the_rules_are_named(run, tmp_path: Path) -> None:
    shard = shard_of(
        tmp_path / "0.tar",
        [("a.txt", b"1"), ("a.TXT", b"2"), ("b.txt", b"3"), ("a.cls", b"4"), ("c.txt", b"5")],
    )
    with tarfile.open(shard, "a") as tar:
        link = tarfile.TarInfo("d.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "c.txt"
        tar.addfile(link)
    code, found = run("check", shard)
    assert code == 1
    assert [finding["key"] for finding in found["findings"]] == ["a.TXT", "a.cls", "d.txt"]


def test_a_cut_shard_says_where(run, tmp_path: Path, jpeg) -> None:
    shard = shard_of(tmp_path / "0.tar", [("a.jpg", jpeg(0, 0)), ("b.jpg", jpeg(0, 1))])
    at = header_offset(shard, "b.jpg") + BLOCK
    shard.write_bytes(shard.read_bytes()[: at + 100])
    (tmp_path / "1.tar").write_bytes(b"<html>" + bytes(2000))
    code, found = run("check", tmp_path)
    assert code == 1
    by_shard = {Path(finding["uri"]).name: finding for finding in found["findings"]}
    assert set(by_shard) == {"0.tar", "1.tar"}
    assert "cut" in by_shard["0.tar"]["what"]


def test_sizes_that_differ_from_the_manifest_are_found(run, photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "photos"
    shutil.copytree(photos, root)
    listed = tmp_path / "photos.manifest"
    assert run("index", root, "-o", listed)[1]["objects"] == 120
    (root / "coot" / "001.jpg").write_bytes((root / "coot" / "002.jpg").read_bytes() + b"more")
    (root / "teal" / "001.jpg").unlink()
    code, found = run("check", listed)
    assert code == 1
    assert {Path(finding["uri"]).parent.name for finding in found["findings"]} == {"coot", "teal"}
    assert any("the manifest says" in finding["what"] for finding in found["findings"])
    assert found["decoded"] == 118


def test_records_with_a_remainder_are_found(run, tmp_path: Path) -> None:
    for name, size in (("a.bin", 24), ("b.bin", 25)):
        (tmp_path / name).write_bytes(bytes(size))
    np.save(tmp_path / "c.npy", np.zeros(3))
    (tmp_path / "c.npy").write_bytes((tmp_path / "c.npy").read_bytes()[:-1])
    code, found = run("check", tmp_path / "*.bin", "--dtype", "int32", "--shape", 3)
    assert (code, found["samples"]) == (1, 2)
    assert [Path(finding["uri"]).name for finding in found["findings"]] == ["b.bin"]
    code, found = run("check", tmp_path / "c.npy")
    assert code == 1
    assert [Path(finding["uri"]).name for finding in found["findings"]] == ["c.npy"]


def test_findings_are_lines_and_the_last_line_counts_them(capsys, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    (tmp_path / "b.jpg").write_bytes(b"")
    assert main(["check", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("2 findings")


# -- index


def test_an_index_opens_as_its_source(run, photos: Path, tmp_path: Path) -> None:
    code, written = run("index", photos, "-o", tmp_path / "photos.manifest")
    assert (code, written["objects"]) == (0, 120)
    assert written["bytes"] == sum(path.stat().st_size for path in photos.glob("*/*"))
    listed = hp.from_files(tmp_path / "photos.manifest")
    assert listed.fingerprint == hp.from_files(photos).fingerprint


def test_wrong_use_of_index(capsys, photos: Path, tmp_path: Path) -> None:
    assert main(["index", str(photos), "-o", str(tmp_path / "photos.txt")]) == 2
    assert ".manifest" in capsys.readouterr().err
    assert main(["index", str(tmp_path / "none"), "-o", str(tmp_path / "x.manifest")]) == 1
    assert not (tmp_path / "x.manifest").exists()
