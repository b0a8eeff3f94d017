"""What a SOURCE on the command line is: its kind is guessed, and it is opened."""

from __future__ import annotations

import argparse
import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import headpond as hp
from headpond import _core

if TYPE_CHECKING:
    from headpond.objects import Source

KINDS = ("files", "webdataset", "records")
PICTURES = (".jpg", ".jpeg", ".jpe", ".jfif")


@dataclass(frozen=True)
class Place:
    """A source and how it is read."""

    source: Source
    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    header_bytes: int = 0

    def open(self, source: Source | None = None) -> hp.Dataset:
        """The dataset, or one of the same kind over ``source``."""
        source = self.source if source is None else source
        if self.kind == "webdataset":
            return counted(hp.from_webdataset(source))
        if self.kind == "files":
            return _files(source)
        if self.dtype is None:
            return hp.from_records(source)
        return hp.from_records(source, self.dtype, self.shape, header_bytes=self.header_bytes)

    def manifest(self) -> hp.Manifest:
        """The objects that the source names; a folder may hold others beside those of its kind."""
        if isinstance(self.source, hp.Manifest):
            return self.source
        return hp.Manifest.build(self.source)

    def is_part(self, name: str) -> bool:
        """Is this object of a folder one of the kind?"""
        if self.kind == "webdataset":
            return extension(name) == ".tar"
        return self.kind == "files" or self.dtype is not None or extension(name) == ".npy"


def counted(dataset: hp.Dataset) -> hp.Dataset:
    """The same; remote shards that have no index are counted now."""
    dataset._count()
    return dataset


def _files(source: Source) -> hp.Dataset:
    """With labels where there are class folders."""
    try:
        return hp.from_files(source)
    except hp.InvalidArgument:
        return hp.from_files(source, label=None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares SOURCE and what tells its kind."""
    parser.add_argument(
        "source",
        nargs="+",
        metavar="SOURCE",
        help="a folder, a glob, braces, a .manifest, a URL, or several files",
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        help="files: one is a sample; webdataset: tar shards; records: of one size."
        " Default: as the names say",
    )
    parser.add_argument("--dtype", help="of records that are not .npy, such as float32")
    parser.add_argument(
        "--shape", default="", help="of one record, such as 3,32,32; default: one number"
    )
    parser.add_argument(
        "--header-bytes", type=int, default=0, help="at the start of each file of records"
    )


def find(arguments: argparse.Namespace) -> Place:
    """The place that the arguments name.

    Raises:
        NotFound: There is nothing.
        InvalidArgument: A shape that is none, or a list that names two kinds.
    """
    source = _load(arguments.source)
    kind = arguments.kind or ("records" if arguments.dtype else guess(source))
    shape = arguments.shape.replace("x", ",").strip(",")
    try:
        extents = tuple(int(extent) for extent in shape.split(",")) if shape else ()
    except ValueError:
        raise hp.InvalidArgument(f"--shape {arguments.shape} is no shape: 3,32,32") from None
    return Place(source, kind, arguments.dtype, extents, arguments.header_bytes)


def _load(paths: Sequence[str]) -> Source:
    if len(paths) > 1:
        return list(paths)
    return hp.Manifest.load(paths[0]) if paths[0].endswith(".manifest") else paths[0]


def guess(source: Source) -> str:
    """``webdataset`` for tars, ``records`` for .npy, else ``files``."""
    if isinstance(source, hp.Manifest):
        return _kind_of(name for name, _ in source)
    names = [os.fspath(source)] if isinstance(source, (str, os.PathLike)) else source
    kind = _kind_of(os.fspath(name) for name in names)
    if kind != "files" or not any(os.path.isdir(name) or "*" in name for name in map(str, names)):
        return kind
    return _kind_of(name for name, _ in hp.Manifest.build(source))


def _kind_of(names: Iterable[str]) -> str:
    suffixes = Counter(extension(name) for name in names)
    if suffixes[".tar"]:
        return "webdataset"
    return "records" if suffixes[".npy"] and suffixes[".npy"] == suffixes.total() else "files"


def extension(name: str) -> str:
    """``.jpg`` of ``a/b.c.JPG?x=1``."""
    return posixpath.splitext(name.partition("?")[0])[1].lower()


def uri_of(manifest: hp.Manifest, name: str) -> str:
    """Where an object of a manifest lies."""
    return f"{manifest.root.rstrip('/')}/{name}"


def picture_decoder(size: int, crop: str) -> _core.Decoder:
    """JPEG to uint8 ``[size, size, 3]``, upright."""
    resize = size if crop == "center" else None
    share, ratio = (0.08, 1.0), (3 / 4, 4 / 3)  # of random crops only
    return _core.image_decoder(
        size, size, crop, resize, share, ratio, False, True, "nhwc", "uint8", (), ()
    )
