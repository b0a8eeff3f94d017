"""The data of the workloads, made deterministically under one folder (about 1.9 GB in all).

From a folder of JPEGs come a class folder with several copies of each file and tar shards of
the same files; records, tokens and the sparse files of the start-up workload are generated.
Copies are real copies: a hard link would share its page cache and make cold runs warm.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np

TRAIN_COPIES = 2
FILE_COPIES = 4
SHARDS = 4
SMALL_SHARDS = 16
SMALL_SHARD_SAMPLES = 40
RECORD_BYTES = 150_528
RECORDS = 2_048
TOKENS = 500_000_000
SPARSE_ROW_BYTES = 64


def sources(data: Path) -> list[Path]:
    """The JPEGs of a folder, by name; what they are called decides their class."""
    found = sorted(p for p in data.rglob("*") if p.suffix.lower() in (".jpeg", ".jpg"))
    if not found:
        raise SystemExit(f"{data}: no .jpg or .jpeg below it")
    return found


def class_name(path: Path) -> str:
    return path.stem.split("_")[0]


def marker(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.complete")


def complete(folder: Path) -> bool:
    return marker(folder).exists()


def finish(folder: Path) -> Path:
    marker(folder).touch()
    return folder


def fresh(folder: Path) -> Path:
    marker(folder).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def jpeg_tree(work: Path, data: Path) -> Path:
    """Class folders with TRAIN_COPIES copies of every picture; they are also files_tree's."""
    folder = work / "jpeg"
    if not complete(folder):
        fresh(folder)
        for source in sources(data):
            target = folder / class_name(source)
            target.mkdir(exist_ok=True)
            for copy in range(TRAIN_COPIES):
                shutil.copyfile(source, target / f"{source.stem}-{copy}.jpg")
        finish(folder)
    return folder


def files_tree(work: Path, data: Path) -> Path:
    """FILE_COPIES copies; the first ones are the files of jpeg_tree under a second name."""
    folder = work / "files"
    if not complete(folder):
        tree = jpeg_tree(work, data)
        fresh(folder)
        for source in sources(data):
            target = folder / class_name(source)
            target.mkdir(exist_ok=True)
            for copy in range(FILE_COPIES):
                name = f"{source.stem}-{copy}.jpg"
                if copy < TRAIN_COPIES:
                    os.link(tree / class_name(source) / name, target / name)
                else:
                    shutil.copyfile(source, target / name)
        finish(folder)
    return folder


def shards(work: Path, data: Path) -> Path:
    """WebDataset shards (ustar; key.jpg and key.cls) of jpeg_tree's pictures in a mixed order."""
    folder = work / "shards"
    if not complete(folder):
        tree = jpeg_tree(work, data)
        fresh(folder)
        paths = sorted(tree.rglob("*.jpg"))
        classes = {name: i for i, name in enumerate(sorted({p.parent.name for p in paths}))}
        order = np.random.default_rng(7).permutation(len(paths))
        for shard, part in enumerate(np.array_split(order, SHARDS)):
            with tarfile.open(folder / f"train-{shard:04d}.tar", "w", tarfile.USTAR_FORMAT) as tar:
                for i in part:
                    add_member(tar, f"{i:06d}.jpg", paths[i].read_bytes())
                    add_member(tar, f"{i:06d}.cls", str(classes[paths[i].parent.name]).encode())
        finish(folder)
    return folder


def small_shards(work: Path, data: Path) -> Path:
    """SMALL_SHARDS shards of a few pictures each, padded to whole 64 KiB records."""
    folder = work / "small-shards"
    if not complete(folder):
        fresh(folder)
        paths = sources(data)
        for shard in range(SMALL_SHARDS):
            path = folder / f"part-{shard:03d}.tar"
            with tarfile.open(path, "w", tarfile.USTAR_FORMAT) as tar:
                for i in range(SMALL_SHARD_SAMPLES):
                    number = shard * SMALL_SHARD_SAMPLES + i
                    content = paths[number % len(paths)].read_bytes()
                    add_member(tar, f"{number:06d}.jpg", content)
            os.truncate(path, -(-path.stat().st_size // (1 << 16)) << 16)
        finish(folder)
    return folder


def add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def records(work: Path, data: Path) -> Path:
    """One file of RECORDS uint8 records of 224 x 224 x 3."""
    path = work / "records.bin"
    if not path.exists() or path.stat().st_size != RECORDS * RECORD_BYTES:
        random = np.random.default_rng(7)
        with path.open("wb") as out:
            for _ in range(RECORDS):
                out.write(random.bytes(RECORD_BYTES))
    return path


def tokens(work: Path, data: Path) -> Path:
    """One file of TOKENS uint16 tokens."""
    path = work / "tokens.bin"
    if not path.exists() or path.stat().st_size != TOKENS * 2:
        random = np.random.default_rng(7)
        with path.open("wb") as out:
            for start in range(0, TOKENS, 1 << 22):
                count = min(1 << 22, TOKENS - start)
                out.write(random.integers(0, 50_257, count, dtype=np.uint16).tobytes())
    return path


def sparse(work: Path, rows: int) -> Path:
    """A file of `rows` records of SPARSE_ROW_BYTES that takes no space."""
    path = work / f"sparse-{rows}.bin"
    with path.open("ab") as out:
        out.truncate(rows * SPARSE_ROW_BYTES)
    return path


def nothing(work: Path, data: Path) -> Path:
    return work


def read_through(path: Path) -> None:
    """Brings a file or a tree into the page cache."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while stream.read(1 << 22):
                pass


def evict(path: Path) -> str:
    """Drops a file or a tree from the page cache; says how thoroughly.

    "all": page cache, directory entries and inodes (needs root); "data": the files' pages only.
    The machine below may still hold the data: such runs are guest-cold.
    """
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    os.sync()
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    try:
        # 2, not 3: the pages of other programs are none of ours.
        Path("/proc/sys/vm/drop_caches").write_text("2\n")
    except OSError:
        return "data"
    return "all"


def web_objects(work: Path) -> Path:
    """What `limit_http` asks for: 4 objects of 64 MiB, 10,000 of 100 KiB; random bytes."""
    folder = work / "web"
    if complete(folder):
        return folder
    fresh(folder)
    random = np.random.default_rng(5)
    for i in range(4):
        (folder / f"t{i:05d}").write_bytes(random.bytes(64 << 20))
    for i in range(10_000):
        (folder / f"o{i:05d}").write_bytes(random.bytes(100 << 10))
    return finish(folder)
