"""Objects in stores, read whole or by range, and lists of them."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headpond import _core
from headpond.engine import default_engine
from headpond.errors import InvalidArgument

__all__ = ["Manifest", "ObjectInfo", "Source", "list", "read", "read_into", "read_many", "stat"]

Path: TypeAlias = "str | os.PathLike[str]"


@dataclass(frozen=True)
class ObjectInfo:
    """An object of a store."""

    uri: str
    size: int
    mtime_ns: int | None
    etag: str | None


def store_path(path: Path) -> bytes:
    """A URI as it is, or an absolute path, in bytes."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidArgument(f"a path is a str or os.PathLike, not {type(path).__name__}")
    if "://" not in text and not text.startswith("/"):
        text = os.path.join(os.getcwd(), text)
    return os.fsencode(text)


def read(uri: Path, start: int | None = None, stop: int | None = None) -> bytes:
    """The bytes ``[start, stop)`` of an object.

    Args:
        uri: A path or URI.
        start: First byte; None: 0.
        stop: One past the last byte; None: the object's end.

    Raises:
        NotFound: It does not exist.
        InvalidArgument: The range ends past the object's end.
    """
    return read_many([(uri, start, stop)])[0]


def read_many(ranges: Iterable[tuple[Path, int | None, int | None]]) -> builtins.list[bytes]:
    """The bytes of many ranges, all in flight at once.

    Args:
        ranges: ``(uri, start, stop)`` as for :func:`read`.

    Returns:
        One ``bytes`` per range, in their order.

    Raises:
        Error: The first range that failed, with ``.uri`` and ``.range``.
    """
    asked = [(store_path(uri), start, stop) for uri, start, stop in ranges]
    return _core.read_many(default_engine()._core, asked)


def read_into(uri: Path, start: int, out: Any) -> int:
    """Fills ``out`` with the bytes of an object from ``start`` on.

    Args:
        uri: A path or URI.
        start: First byte.
        out: A writable C-contiguous buffer: ``bytearray``, NumPy array.

    Returns:
        The bytes read: all of ``out``.

    Raises:
        InvalidArgument: The object ends before ``out`` is full.
    """
    return _core.read_into(default_engine()._core, store_path(uri), start, out)


def stat(uri: Path) -> ObjectInfo:
    """Size and version of an object, without reading it."""
    return ObjectInfo(**_core.stat_object(default_engine()._core, store_path(uri)))


def list(uri: Path) -> builtins.list[ObjectInfo]:
    """The objects below a directory-like URI, at any depth, in the order of their name's bytes."""
    return [
        ObjectInfo(**info) for info in _core.list_objects(default_engine()._core, store_path(uri))
    ]


class Manifest:
    """An immutable list of objects with size and version, in the order of their name's bytes.

    Built once, so that later openings list nothing: give it, or the path of a saved one, to
    ``from_files`` and the others as their source.
    """

    def __init__(self, core: _core.Manifest) -> None:
        self._core = core

    @classmethod
    def build(cls, source: Source, *, pattern: str = "**/*") -> Manifest:
        """Lists ``source`` (as for :func:`headpond.from_files`).

        Args:
            source: A folder, a glob, a list of paths.
            pattern: Which objects below a folder; ``**`` is any depth, case is ignored.
        """
        from headpond.datasets import from_files

        return cls(from_files(source, pattern=pattern, label=None)._core.manifest)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Opens a saved one; it is memory-mapped, so its size does not matter.

        Raises:
            NotFound: There is no such file.
            CorruptData: It is damaged or none.
        """
        return cls(_core.Manifest.load(os.fsencode(path)))

    def save(self, path: Path) -> None:
        """Writes it whole under a temporary name and renames it to ``path``."""
        self._core.save(os.fsencode(path))

    @property
    def root(self) -> str:
        """The URI that names are relative to."""
        return self._core.root

    def __len__(self) -> int:
        return len(self._core)

    def __getitem__(self, index: int) -> tuple[str, int]:
        """Name and size of object ``index``."""
        size = len(self)
        if index < -size or index >= size:
            raise IndexError(f"no object {index} among {size}")
        index %= size
        return self._core.name(index), self._core.object_size(index)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"Manifest({len(self)} objects below {self.root})"


Source: TypeAlias = "Path | Sequence[Path] | Manifest"
