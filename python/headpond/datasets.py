"""Datasets: what is stored, as random access."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from headpond import _core
from headpond._process_lock import ProcessLock
from headpond._progress import Progress
from headpond._verbs import Verbs
from headpond.engine import Engine, default_engine
from headpond.errors import InvalidArgument, ObjectChanged, choice
from headpond.objects import Manifest, Source, is_manifest, store_path
from headpond.pipeline import Pipeline

if TYPE_CHECKING:
    from headpond._columns import Field

__all__ = [
    "Dataset",
    "from_arrays",
    "from_files",
    "from_records",
    "from_tokens",
    "from_webdataset",
]

logger = logging.getLogger("headpond")

DTypeLike = npt.DTypeLike


class _StoredType(NamedTuple):
    name: str  # as the core spells it: "int64"
    swapped: bool  # big-endian


def _stored_type(dtype: Any) -> _StoredType:
    """The core's name of a dtype that is numbers or booleans of fixed size."""
    if str(dtype) == "bfloat16":
        return _StoredType("bfloat16", False)
    try:
        parsed = np.dtype(dtype)
    except TypeError as error:
        raise InvalidArgument(f"dtype={dtype!r} is no NumPy dtype") from error
    if parsed.kind not in "biuf" or parsed.itemsize > 8:
        raise InvalidArgument(f"dtype {parsed} is not supported: fields hold numbers or booleans")
    return _StoredType(parsed.newbyteorder("=").name, parsed.byteorder == ">")


@dataclass(frozen=True)
class _Description:
    """How a dataset is opened: which function of the core, with which arguments."""

    name: str
    source: Source | None
    arguments: dict[str, Any]
    cache: bool | None = None

    def open(self, engine: Engine) -> _core.Dataset:
        opener: Callable[..., _core.Dataset] = getattr(_core, f"open_{self.name}")
        if self.source is None:
            return opener(**self.arguments)
        paths, manifest = _resolve(self.source)
        with Progress() as progress:
            return opener(
                engine=engine._core,
                paths=paths,
                manifest=manifest,
                index_folder=os.fsencode(engine._cache_dir),
                cache=self.cache,
                progress=progress,
                **self.arguments,
            )


def _resolve(source: Source) -> tuple[list[bytes], _core.Manifest | None]:
    if isinstance(source, Manifest):
        return [], source._core
    if isinstance(source, (str, os.PathLike)):
        if is_manifest(source):
            return [], Manifest.load(source)._core
        return [store_path(source)], None
    paths = [store_path(path) for path in source]
    if not paths:
        raise InvalidArgument("an empty list of paths is no source")
    return paths, None


def _portable(source: Source) -> Source:
    """A source that can be pickled and means the same in another working directory."""
    if isinstance(source, Manifest):
        return source
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(store_path(source))
    try:
        return [os.fsdecode(store_path(path)) for path in source]
    except TypeError as error:
        raise InvalidArgument(
            f"a source is a path, a URI, a list of them or a Manifest, not {source!r}"
        ) from error


class Dataset(Verbs):
    """Samples of known number, each a dict of bytes, NumPy arrays or scalars.

    Made by :func:`from_files` and its siblings. ``ds[i]`` reads sample i on the calling thread, so
    that it also serves as a map-style dataset of torch's own loader. The verbs (``shuffle``,
    ``image``, ``batch`` and so on) begin a :class:`Pipeline`.

    A dataset pickles as its description, without handles and secrets, and opens again when the
    copy is first used.
    """

    def __init__(self, description: _Description) -> None:
        self._description = description
        self._lock = ProcessLock()
        self._count_when_opened = False  # as it was where it was pickled
        self._opened: _core.Dataset | None = description.open(default_engine())
        self._expected = self._opened.fingerprint
        for note in self._opened.notes:
            logger.info("%s", note)

    @property
    def _core(self) -> _core.Dataset:
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    opened = self._description.open(default_engine())
                    if opened.fingerprint != self._expected:
                        raise ObjectChanged(
                            "the objects of this dataset are not those it was pickled with",
                            code="HP0104",
                        )
                    if self._count_when_opened:
                        _count(opened)
                    self._opened = opened
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        counted = self._opened is not None and self._opened.size_is_known
        return {
            "description": self._description,
            "expected": self._expected,
            "counted": counted or self._count_when_opened,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._description = state["description"]
        self._expected = state["expected"]
        self._count_when_opened = state["counted"]
        self._lock = ProcessLock()
        self._opened = None

    def _pipeline(self) -> Pipeline:
        return Pipeline._of(self)

    def __len__(self) -> int:
        core = self._core
        if not core.size_is_known and core.indexes_lie_beside:
            self._count()
        return len(core)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        """Many samples at once, as torch's loader asks for them."""
        wanted = self._reach([self._position(index) for index in indices])
        return self._core.read(default_engine()._core, wanted)

    def _reach(self, positions: list[int]) -> list[int]:
        """The numbers by which the core knows these samples; it indexes their shards if need be."""
        if self._core.size_is_known:
            return positions
        with Progress() as progress:
            return self._core.reach(default_engine()._core, positions, progress)

    def _count(self) -> None:
        """Counts the samples of shards that were opened without an index."""
        _count(self._core)

    def _position(self, index: SupportsIndex) -> int:
        number, size = index.__index__(), len(self)
        if number < -size or number >= size:
            raise IndexError(f"no sample {number} among {size}")
        return number % size

    @property
    def fields(self) -> dict[str, Field]:
        """Name to dtype and shape of what a sample holds."""
        return self._pipeline().fields

    @property
    def classes(self) -> list[str]:
        """Names of the classes that ``label`` counts, sorted; empty without folder labels."""
        return self._core.classes

    @property
    def fingerprint(self) -> str:
        """32 hex digits over relative names and the arguments that define the samples."""
        return self._core.fingerprint

    @property
    def snapshot(self) -> str:
        """32 hex digits over names, arguments, sizes, counts and versions."""
        return self._core.snapshot

    def locate(self, index: SupportsIndex) -> list[tuple[str, int, int]]:
        """Where a sample lies: ``(uri, start, stop)`` for each of its fields."""
        return self._core.locate(self._reach([self._position(index)])[0])

    def key(self, index: SupportsIndex) -> str:
        """A sample's name in its store."""
        return self._core.key(self._reach([self._position(index)])[0])

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}: {field.dtype}" + ("" if field.shape is None else str(list(field.shape)))
            for name, field in self.fields.items()
        )
        core = self._core
        samples = f"{len(core):,} samples" if core.size_is_promised else "samples not counted yet"
        return f"Dataset({self._description.name}, {samples}, {fields})"


def _count(dataset: _core.Dataset) -> None:
    if dataset.size_is_known:
        return
    shards = len(dataset.manifest)
    what = "the indexes beside them" if dataset.indexes_lie_beside else "their headers"
    logger.info("counting the samples of %d shards: %s are read first", shards, what)
    with Progress() as progress:
        dataset.index_shards(default_engine()._core, progress)


def _open(
    name: str, source: Source | None, *, cache: bool | None = None, **arguments: Any
) -> Dataset:
    if source is not None:
        source = _portable(source)
    return Dataset(_Description(name, source, arguments, cache))


def from_files(
    source: Source,
    *,
    pattern: str = "**/*",
    label: Literal["folder"] | None = "folder",
    cache: bool | None = None,
) -> Dataset:
    """Files where one file is one sample: fields ``data`` (bytes) and ``label`` (int64).

    Args:
        source: A folder, a glob, a list of paths or URLs, braces, or a :class:`Manifest`.
        pattern: Which files below a folder; ``**`` is any depth, case is ignored. Parts that
            begin with "." are left out.
        label: ``"folder"``: the first folder below the root, classes sorted, as torchvision's
            ImageFolder. None: no label.
        cache: Whether reads go through the node's cache on local disk. None: those of remote
            objects do, local files do not; True is for network file systems.

    Returns:
        Samples in the order of their path's bytes, the same on every machine.

    Raises:
        NotFound: The folder does not exist, or nothing matches; or, with ``label="folder"``,
            nothing in one of the class folders, as in ImageFolder: left out, it would shift the
            labels behind it.
        InvalidArgument: A flat folder with ``label="folder"``.
    """
    if label is not None:
        choice("label", label, ("folder",))
    return _open("files", source, cache=cache, pattern=pattern, folder_labels=label is not None)


def from_webdataset(shards: Source, *, cache: bool | None = None) -> Dataset:
    """Tar shards: members of one key make a sample, one field per extension.

    Args:
        shards: Shards: a path or URL, a glob, braces ``{0000..0146}``, a list, a
            :class:`Manifest`, or an index of wids (a path or URL that ends in ``.json``).
        cache: Whether reads go through the node's cache on local disk. None: those of remote
            objects do, local files do not; True is for network file systems.

    Returns:
        Samples shard by shard; fields are those of the first sample. How many there are is known
        at once of local shards, of remote ones when each was read, or when ``len()`` is asked
        where an index lies beside them: shard indexes of ``headpond index`` or of DALI,
        ``shardindex.json`` of wids, ``.nv-meta`` of Energon.

    Raises:
        NotFound: A shard does not exist.
        CorruptData: A shard is damaged, or a sample has a field twice; names shard and member. Or
            a shard has not as many samples as the list beside it says; names both counts.
    """
    return _open("webdataset", shards, cache=cache)


@overload
def from_records(source: Source, *, cache: bool | None = None) -> Dataset: ...
@overload
def from_records(
    source: Source,
    dtype: DTypeLike,
    shape: int | Sequence[int],
    *,
    header_bytes: int = 0,
    cache: bool | None = None,
) -> Dataset: ...
def from_records(
    source: Source,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    *,
    header_bytes: int = 0,
    cache: bool | None = None,
) -> Dataset:
    """Records of one size in one or many files: field ``data``.

    Args:
        source: Files: a path or URL, a glob, braces, a list, or a :class:`Manifest`.
        dtype: Of the stored numbers; big-endian ones are converted. Left out with ``.npy`` files,
            which say it.
        shape: Of one record; ``()`` is one number. Left out with ``.npy`` files: a row is a record.
        header_bytes: Bytes at the start of each file that are no records.
        cache: Whether reads go through the node's cache on local disk. None: those of remote
            objects do, local files do not; True is for network file systems.

    Raises:
        CorruptData: A file's size is not a multiple of the record; names file and remainder.
        InvalidArgument: A dtype of objects or texts.
    """
    if dtype is None:
        if shape is not None or header_bytes:
            raise InvalidArgument(
                "shape and header_bytes need a dtype; .npy files need none of them"
            )
        return _open(
            "records", source, cache=cache, dtype=None, swapped=False, shape=[], header_bytes=0
        )
    if shape is None:
        raise InvalidArgument("shape is missing: of one record; () is one number")
    stored = _stored_type(dtype)
    extents = [shape] if isinstance(shape, int) else [int(extent) for extent in shape]
    if any(extent <= 0 for extent in extents):
        raise InvalidArgument(f"shape={shape!r} must hold numbers above 0")
    if header_bytes < 0:
        raise InvalidArgument(f"header_bytes={header_bytes} must not be negative")
    return _open(
        "records",
        source,
        cache=cache,
        dtype=stored.name,
        swapped=stored.swapped,
        shape=extents,
        header_bytes=header_bytes,
    )


def from_tokens(
    source: Source,
    dtype: DTypeLike,
    *,
    window: int,
    stride: int | None = None,
    cache: bool | None = None,
) -> Dataset:
    """Windows over files of tokens: field ``tokens``, ``[window]``.

    Args:
        source: Files: a path or URL, a glob, braces, a list, or a :class:`Manifest`.
        dtype: Of the stored tokens, such as ``"uint16"``.
        window: Tokens of a sample.
        stride: Tokens from the start of one window to the next; None: ``window``.
        cache: Whether reads go through the node's cache on local disk. None: those of remote
            objects do, local files do not; True is for network file systems.

    Returns:
        Windows file by file; none crosses files, a shorter tail is left out and counted.

    Raises:
        InvalidArgument: No file holds a window.
    """
    stored = _stored_type(dtype)
    for name, value in (("window", window), ("stride", window if stride is None else stride)):
        if value <= 0:
            raise InvalidArgument(f"{name}={value} must be above 0")
    return _open(
        "tokens",
        source,
        cache=cache,
        dtype=stored.name,
        swapped=stored.swapped,
        window=window,
        stride=stride or window,
    )


def from_arrays(arrays: Mapping[str, npt.ArrayLike]) -> Dataset:
    """Arrays in memory, one field each; row i of all of them is sample i.

    Args:
        arrays: Name to array, all of one length. They are held, not copied, so later changes show;
            only an array that is not C-contiguous is copied once.

    Raises:
        InvalidArgument: Lengths differ (names both), or an array of objects or texts.

    Example:
        >>> import headpond as hp
        >>> ds = hp.from_arrays({"x": [[1, 2], [3, 4]], "y": [0, 1]})
        >>> ds[1]["x"].tolist(), ds[1]["y"].item()
        ([3, 4], 1)
    """
    if not arrays:
        raise InvalidArgument("from_arrays() needs at least one array")
    columns = []
    for name, values in arrays.items():
        try:
            array = np.asarray(values)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f'"{name}" is no array: {error}') from error
        if array.ndim == 0:
            raise InvalidArgument(f'"{name}" is a single number: an array has one row per sample')
        stored = _stored_type(array.dtype)
        columns.append((name, stored.name, stored.swapped, np.ascontiguousarray(array)))
    return _open("arrays", None, columns=columns)
