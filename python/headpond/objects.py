"""Objects in stores, read whole or by range, and lists of them."""

from __future__ import annotations

import builtins
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headpond import _core
from headpond._progress import Progress
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


def is_manifest(path: Path) -> bool:
    """Does its name say so?"""
    text = os.fspath(path)
    return (text.partition("?")[0] if "://" in text else text).endswith(".manifest")


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
    def build(cls, source: Path | Sequence[Path]) -> Manifest:
        """Lists every object that ``source`` names; parts that begin with "." are left out.

        Args:
            source: A folder, a glob, or a list of paths.

        Raises:
            NotFound: Something of it does not exist.
        """
        many = [source] if isinstance(source, (str, os.PathLike)) else source
        with Progress() as progress:
            paths = [store_path(path) for path in many]
            return cls(_core.list_source(default_engine()._core, paths, progress))

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Opens a saved one; it is memory-mapped, so its size does not matter.

        Args:
            path: A path, or a URL, which is read whole first.

        Raises:
            NotFound: There is no such file.
            CorruptData: It is damaged or none.
        """
        if "://" in os.fspath(path):
            return _unpickle(read(path))
        return cls(_core.Manifest.load(os.fsencode(path)))

    def save(self, path: Path) -> None:
        """Writes it whole under a temporary name and renames it to ``path``."""
        self._core.save(os.fsencode(path))

    @property
    def root(self) -> str:
        """The URI that names are relative to."""
        return self._core.root

    def __reduce__(self) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pickled.manifest")
            self.save(path)
            with open(path, "rb") as saved:
                return _unpickle, (saved.read(),)

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


def _unpickle(saved: bytes) -> Manifest:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pickled.manifest")
        with open(path, "wb") as out:
            out.write(saved)
        return Manifest.load(path)  # stays mapped after the file is gone


Source: TypeAlias = "Path | Sequence[Path] | Manifest"
