"""Every fault of a tar shard that cannot be opened, where opening stops at the first."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import headpond as hp

_BLOCK = 512


@dataclass(frozen=True)
class Member:
    """A member's data, or what is wrong with it."""

    name: str
    start: int
    stop: int
    fault: str = ""

    @property
    def field(self) -> str:
        """What follows the first dot of the last part, lower case."""
        return self.name.rpartition("/")[2].partition(".")[2].lower()


class _Object(io.RawIOBase):
    """An object of a store as a file."""

    def __init__(self, uri: str, size: int) -> None:
        super().__init__()
        self._uri, self._size, self._at = uri, size, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, out: Any) -> int:
        view = memoryview(out).cast("B")[: max(0, self._size - self._at)]
        if view:
            hp.read_into(self._uri, self._at, view)
            self._at += len(view)
        return len(view)


def walk(uri: str, size: int) -> Iterator[Member]:
    """The members of a shard, and where there is none; goes on behind a broken header."""
    rules = _Rules()
    end = 0  # of the last member
    with io.BufferedReader(_Object(uri, size), 16 * _BLOCK) as file:
        try:
            # ignore_zeros: behind a block that is no header it looks for the next that is one.
            with tarfile.open(fileobj=file, mode="r:", ignore_zeros=True) as tar:
                for info in tar:
                    if info.offset > end and _is_damage(file, end):
                        yield Member("", end, info.offset, "no tar header can be read here")
                    end = tar.offset
                    member = rules.judge(info)
                    if member.stop > size:
                        there = max(0, size - member.start)
                        fault = f"the shard is cut: {there:,} of its {info.size:,} bytes are there"
                        yield replace(member, stop=size, fault=fault)
                        return
                    yield member
        except tarfile.ReadError as error:
            start = min(end, size)
            yield Member("", start, size, f"the archive is cut or damaged from here on: {error}")
            return
        if end < size and _is_damage(file, end):
            yield Member("", end, size, "no tar header can be read here")


def _is_damage(file: BinaryIO, offset: int) -> bool:
    """Not the zeros that end an archive."""
    file.seek(offset)
    return any(file.read(_BLOCK))


class _Rules:
    """What a shard of samples may hold."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._fields: set[str] = set()
        self._ended: set[str] = set()

    def judge(self, info: tarfile.TarInfo) -> Member:
        fault = self._fault(info)
        start = info.offset_data
        return Member(info.name, start, start + (info.size if info.isreg() else 0), fault)

    def _fault(self, info: tarfile.TarInfo) -> str:
        folder, _, last = info.name.rpartition("/")
        if info.isdir() or last.startswith(".") or info.name.startswith("__"):
            return ""
        if info.issparse():
            return "is sparse"
        if not info.isreg():
            return "is a link" if info.issym() or info.islnk() else "is a device"
        stem, _, field = last.partition(".")
        key, field = f"{folder}/{stem}", field.lower()
        if key != self._key:
            if self._key is not None:
                self._ended.add(self._key)
            self._key, self._fields = key, set()
        if key in self._ended:
            return f'comes after its sample "{key.lstrip("/")}" ended'
        if field in self._fields:
            return f'has the field "{field}" a second time in its sample'
        self._fields.add(field)
        return ""
