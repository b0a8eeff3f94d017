"""Writes the seeds of corpus/tar, npy, shard_lists and shipped_index with Python's own tarfile and
json, its .npy header text and the texts of other programs: what an independent writer makes must be
read."""

import io
import json
import struct
import tarfile
from pathlib import Path

HERE = Path(__file__).parent / "corpus"
LONG = "d" * 120 + "/" + "f" * 130


def add(tar: tarfile.TarFile, name: str, data: bytes = b"", **fields: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


def archive(kind: int, names: list[str], **fields: object) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind, encoding="utf-8") as tar:
        for name in names:
            add(tar, name, name.encode()[-40:], **fields)
    return out.getvalue()


def tars() -> dict[str, bytes]:
    plain = ["a/0001.jpg", "a/0001.cls", "a/0002.jpg", "a/0002.cls"]
    long = [LONG + ".jpg", LONG + ".cls", "caf\u00e9.txt"]
    # The 200 bytes of a ustar name: prefix and base name.
    split = ["p" * 150 + "/" + "n" * 90 + ".jpg"]
    seeds = {
        "ustar.tar": archive(tarfile.USTAR_FORMAT, plain + split),
        "gnu.tar": archive(tarfile.GNU_FORMAT, plain + long),
        "pax.tar": archive(tarfile.PAX_FORMAT, plain + long),
        # As WebDataset's writer: every member has a pax header for its time.
        "pax_times.tar": archive(tarfile.PAX_FORMAT, plain, mtime=1234567890.25),
        "empty.tar": archive(tarfile.USTAR_FORMAT, []),
    }
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "global"}
    ) as tar:
        add(tar, "x.dir", type=tarfile.DIRTYPE)
        add(tar, "__meta__/info.json", b"{}")
        add(tar, "._x.jpg", b"mac")
        add(tar, "x.jpg", b"1" * 600)
        add(tar, "README", b"no field")
    seeds["skipped.tar"] = out.getvalue()
    for name, kind in (
        ("link", tarfile.SYMTYPE),
        ("hardlink", tarfile.LNKTYPE),
        ("fifo", tarfile.FIFOTYPE),
    ):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            add(tar, "x.jpg", type=kind, linkname="y")
        seeds[name + ".tar"] = out.getvalue()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo("big.bin")
        info.size = 8 * 2**30 + 1
        tar.addfile(info)
    seeds["base256_cut.tar"] = out.getvalue()[:1024]
    seeds["duplicate.tar"] = archive(tarfile.USTAR_FORMAT, ["a.x", "a.X"])
    seeds["returns.tar"] = archive(tarfile.USTAR_FORMAT, ["0.a", "1.a", "0.b"])
    seeds["cut.tar"] = seeds["pax.tar"][:2800]
    seeds["joined.tar"] = seeds["duplicate.tar"][:1024] + bytes(512) + seeds["ustar.tar"]
    return {name: data if "cut" in name else trimmed(data) for name, data in seeds.items()}


def trimmed(data: bytes) -> bytes:
    """tarfile pads to 10,240 bytes; two blocks are an end as well."""
    blocks = -(-len(data.rstrip(b"\0")) // 512)
    return data[: blocks * 512].ljust(blocks * 512, b"\0") + bytes(1024)


def npys() -> dict[str, bytes]:
    def file(text: str, major: int = 1) -> bytes:
        size = struct.pack("<H" if major == 1 else "<I", len(text))
        return b"\x93NUMPY" + bytes([major, 0]) + size + text.encode()

    dtype = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n"
    return {
        "v1.npy": file(dtype % ("<f4", False, "(3, 4)")),
        "v2.npy": file(dtype % (">i2", False, "(5,)"), 2),
        "v3.npy": file(dtype % ("|b1", False, "()"), 3),
        "fortran.npy": file(dtype % ("<f8", True, "(2, 2)")),
        "object.npy": file(dtype % ("|O", False, "(1,)")),
        "structured.npy": file("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}"),
        "overflow.npy": file(dtype % ("<i8", False, "(4294967296, 4294967296, 0)")),
        "negative.npy": file(dtype % ("<i8", False, "(-1,)")),
        "nested.npy": file("(" * 500),
        "cut.npy": file(dtype % ("<f4", False, "(3, 4)"))[:40],
        "huge.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    }


def shard_lists() -> dict[str, bytes]:
    """As wids-index 0.2.86 and Energon's prepare write them, and wrong ones."""
    shards = [
        {"url": f"s-{i}.tar", "md5sum": "0" * 32, "nsamples": 10 * i, "filesize": 10240}
        for i in range(3)
    ]
    wids = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}
    counts = {shard["url"]: shard["nsamples"] for shard in shards}
    yaml = "energon_version: 7.1.0\nshard_counts:\n"
    yaml += "".join(f"  {name}: {count}\n" for name, count in counts.items())
    return {
        "wids.json": json.dumps(wids, indent=2).encode(),
        "wids_base.json": json.dumps({**wids, "base": "https://host/d", "name": "s"}).encode(),
        "wids_datasets.json": json.dumps({**wids, "datasets": [{"name": "a"}]}).encode(),
        "wids_cut.json": json.dumps(wids).encode()[:-9],
        "negative.json": json.dumps(wids).replace("10,", "-10,", 1).encode(),
        "huge.json": json.dumps(wids).replace("10,", "1e30,", 1).encode(),
        "deep.json": b"[" * 500,
        "energon.json": json.dumps({"energon_version": "7.4.1", "shard_counts": counts}).encode(),
        "energon.yaml": yaml.encode(),
        "energon_quoted.yaml": b"shard_counts:\n  'it''s: a.tar': 7\n",
        "energon_flow.yaml": b"shard_counts: {a.tar: 7}\n",
    }


def shipped_indexes() -> dict[str, bytes]:
    """DALI's text for the shard of shipped_index_fuzz.cpp, and wrong ones."""
    lines, at = [], 512
    for i in range(5):
        size = 300 * i
        cls = at + -(-size // 512) * 512 + 512
        lines.append(f"jpg {at} {size} d/{i}.jpg cls {cls} 1 d/{i}.cls\n")
        at = cls + 1024
    text = "v1.2 5\n" + "".join(lines)
    return {
        "dali.idx": text.encode(),
        "v1.1.idx": b"v1.1 1\njpg 512 0 cls 1024 1\n",
        "cut.idx": text.encode()[:-20],
        "count.idx": text.replace("v1.2 5", "v1.2 99999999999999999999").encode(),
        "offset.idx": text.replace("jpg 512 ", "jpg 18446744073709551104 ").encode(),
        "size.idx": text.replace(" 0 d/0.jpg", " 18446744073709551615 d/0.jpg").encode(),
        "twice.idx": text.replace("d/1.cls", "d/0.cls").encode(),
        "empty.idx": b"v1.2 0\n",
    }


if __name__ == "__main__":
    for folder, seeds in (
        ("tar", tars()),
        ("npy", npys()),
        ("shard_lists", shard_lists()),
        ("shipped_index", shipped_indexes()),
    ):
        (HERE / folder).mkdir(exist_ok=True)
        for name, data in seeds.items():
            (HERE / folder / name).write_bytes(data)
