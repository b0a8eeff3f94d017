"""Writes the seeds of corpus/tar and corpus/npy with Python's own tarfile and its
.npy header text: what an independent writer makes must be read."""

import io
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


if __name__ == "__main__":
    for folder, seeds in (("tar", tars()), ("npy", npys())):
        for name, data in seeds.items():
            (HERE / folder / name).write_bytes(data)
