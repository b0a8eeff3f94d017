"""Pipelines: what the model sees."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from headpond import _core
from headpond.engine import Engine, default_engine
from headpond.errors import InvalidArgument, choice, nearest

if TYPE_CHECKING:
    from headpond.datasets import Dataset
    from headpond.loader import Loader

__all__ = ["Field", "Pipeline"]

_RESERVED = {"__index__": "index", "__key__": "key", "__valid__": "valid"}
_BYTES_KEPT = ("raw", "utf8", "json")
_SEEDS = 2**64
_WINDOW = 16384


class Field(NamedTuple):
    """What one field of a sample is.

    Attributes:
        dtype: NumPy's name, such as ``"int64"``; ``"bytes"`` for what is not decoded; ``"str"``
            for ``__key__``.
        shape: Of one sample; None when it varies from sample to sample.
    """

    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class _Decode:
    name: str

    def build(self, dataset: Dataset, field: str) -> _core.Decoder | None:
        if self.name in _BYTES_KEPT:
            return None
        first = b""
        stored = {name: dtype for name, dtype, _ in dataset._core.fields}
        if self.name == "npy" and stored[field] == "bytes":  # the first says dtype and shape
            first = dataset._core.first_value(default_engine()._core, field)
        return _core.named_decoder(self.name, dataset._core, field, first)


@dataclass(frozen=True)
class _Image:
    height: int
    width: int
    crop: str
    resize: int | None
    scale: tuple[float, float]
    ratio: tuple[float, float]
    flip: bool
    exif: bool
    layout: str
    dtype: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def build(self, dataset: Dataset, field: str) -> _core.Decoder | None:
        return _core.image_decoder(**dataclasses.asdict(self))


@dataclass(frozen=True)
class _Column:
    """One field of a batch: its name, where it comes from, what it shows."""

    name: str
    kind: str  # "stored", or of a reserved field
    source: str
    field: Field
    decode: _Decode | _Image | None = None
    item: str = "array"  # of Ragged rows

    def build(self, dataset: Dataset) -> _core.Decoder | None:
        return None if self.decode is None else self.decode.build(dataset, self.source)


@dataclass(frozen=True)
class _Order:
    mode: str = "none"
    seed: int = 0
    window: int = 0

    def sampler(self, dataset: _core.Dataset) -> _core.Sampler:
        if not dataset.size_is_known:
            return _core.Sampler(self.mode, None, self.seed, self.window)
        counts = dataset.shard_counts if self.mode == "window" else []
        return _core.Sampler(self.mode, len(dataset), self.seed, self.window, counts)


@dataclass(frozen=True)
class _Batch:
    size: int
    drop_last: bool
    pad: tuple[tuple[str, float], ...]


class Verbs(ABC):
    """The verbs that datasets and pipelines share; each returns a new :class:`Pipeline`."""

    @abstractmethod
    def _pipeline(self) -> Pipeline: ...

    def shuffle(
        self, seed: int = 0, *, mode: Literal["full", "window"] = "full", window: int | None = None
    ) -> Pipeline:
        """Draws every sample once per epoch in an order that is a function of seed and epoch.

        Args:
            seed: Of the order and, unless the loader has its own, of the augmentation.
            mode: ``"full"``: a permutation of all samples, in constant memory. ``"window"``: shards
                are permuted, and samples within groups of shards, so that reads stay local.
            window: Samples that a group holds at least; default 16,384. Only with
                ``mode="window"``.

        Raises:
            InvalidArgument: ``window`` without ``mode="window"``; a window or seed out of range.
        """
        return self._pipeline()._shuffle(seed, mode, window)

    def decode(self, **fields: str) -> Pipeline:
        """Turns fields into numbers or objects.

        Args:
            **fields: Field to what it becomes. A NumPy dtype such as ``"int64"``: numbers are
                converted, text such as ``b"7"`` is parsed. ``"npy"``: the array of an .npy record.
                ``"raw"``, ``"utf8"``, ``"json"``: bytes in a :class:`Ragged` whose items turn into
                bytes, str or objects on access.

        Raises:
            InvalidArgument: No such field, or no such dtype; names what there is.
        """
        return self._pipeline()._decode(fields)

    def image(
        self,
        field: str,
        *,
        size: int | tuple[int, int],
        crop: Literal["random_resized", "center", "none"] = "random_resized",
        resize: int | None = None,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: bool = False,
        exif: bool = False,
        layout: Literal["nhwc", "nchw"] = "nhwc",
        dtype: Literal["uint8", "float32", "float16"] = "uint8",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> Pipeline:
        """Turns encoded pictures into pixels of one size: ``[rows, height, width, 3]``.

        Only what a crop needs is decoded. Resizing is antialiased bilinear, as PIL's; grey, CMYK
        and YCCK become RGB as in PIL.

        Args:
            field: Whose bytes are pictures; the pixels take its place.
            size: Of the result: one number, or ``(height, width)``.
            crop: ``"random_resized"``: torchvision's distribution. ``"center"``: the shorter side
                is resized, then the middle is cut. ``"none"``: the whole picture is resized.
            resize: The shorter side with ``"center"``; default ``size * 256 // 224``.
            scale: Range of the crop's share of the area.
            ratio: Range of the crop's width / height.
            flip: Mirrors half of the pictures.
            exif: Turns pictures by their EXIF orientation, which PIL ignores.
            layout: ``"nhwc"`` or ``"nchw"``.
            dtype: ``"uint8"``, or floats with ``mean`` and ``std`` applied in the same pass.
            mean: Of the channels, in 0..255.
            std: Of the channels, in 0..255.

        Crops and flips are a function of seed, epoch and sample alone: threads, ranks and
        prefetch never change a pixel.

        Raises:
            InvalidArgument: No such field, a field that holds no bytes, or a size, range or
                option that makes no sense.
        """
        height, width = (size, size) if isinstance(size, int) else size
        choice("crop", crop, ("random_resized", "center", "none"))
        choice("layout", layout, ("nhwc", "nchw"))
        choice("dtype", dtype, ("uint8", "float32", "float16"))
        for name, value in (("size", height), ("size", width), ("resize", resize or 1)):
            if not isinstance(value, int) or not 0 < value <= 65535:
                raise InvalidArgument(f"{name} must be from 1 to 65,535, not {value!r}")
        if resize is not None and crop != "center":
            raise InvalidArgument('resize= belongs to crop="center"')
        image = _Image(
            height,
            width,
            crop,
            resize,
            (float(scale[0]), float(scale[1])),
            (float(ratio[0]), float(ratio[1])),
            bool(flip),
            bool(exif),
            layout,
            dtype,
            tuple(float(value) for value in mean or ()),
            tuple(float(value) for value in std or ()),
        )
        return self._pipeline()._image(field, image)

    def select(self, *fields: str) -> Pipeline:
        """Keeps these fields, in this order.

        ``__index__`` (int64), ``__key__`` (list of str) and ``__valid__`` (bool, False on rows that
        fill up a step) appear only when they are selected.
        """
        return self._pipeline()._select(fields)

    def rename(self, **fields: str) -> Pipeline:
        """Gives fields new names: ``rename(old="new")``."""
        return self._pipeline()._rename(fields)

    def batch(
        self, size: int, *, drop_last: bool = False, pad: Mapping[str, float] | None = None
    ) -> Pipeline:
        """Makes batches; the last verb.

        Fields of one shape are stacked. Fields of varying size become :class:`Ragged`.

        Args:
            size: Rows of a batch, on each rank.
            drop_last: Leaves out what is left when it does not fill a step of all ranks.
            pad: Varying field to the value that fills it up: an array ``[rows, longest]``, and
                beside it ``<field>_lengths``, int64 ``[rows]``.
        """
        return self._pipeline()._batch_by(size, drop_last, dict(pad or {}))


@dataclass(frozen=True)
class Pipeline(Verbs):
    """What the model sees: an immutable value made by the verbs of a dataset.

    Mistakes fail when a verb is called, not in the loop. Ends with :meth:`batch`, and
    :meth:`loader` makes batches of it.

    Example:
        >>> import headpond as hp
        >>> numbers = hp.from_arrays({"x": range(6)}).shuffle(seed=1)
        >>> pipe = numbers.decode(x="float32").select("x", "__index__").batch(4)
        >>> [(batch["x"].dtype.name, len(batch["__index__"])) for batch in pipe.loader()]
        [('float32', 4), ('float32', 2)]
    """

    dataset: Dataset
    _columns: tuple[_Column, ...] = ()
    _order: _Order | None = None
    _batch: _Batch | None = None

    @classmethod
    def _of(cls, dataset: Dataset) -> Pipeline:
        columns = []
        for name, dtype, shape in dataset._core.fields:
            field = Field(dtype, None if shape is None else tuple(shape))
            columns.append(
                _Column(name, "stored", name, field, item="raw" if dtype == "bytes" else "array")
            )
        return cls(dataset, tuple(columns))

    def _pipeline(self) -> Pipeline:
        return self

    @property
    def fields(self) -> dict[str, Field]:
        """Name to dtype and shape of what a row of a batch holds."""
        return {column.name: column.field for column in self._columns}

    def _before_batch(self, verb: str) -> None:
        if self._batch is not None:
            raise InvalidArgument(f"{verb}() comes before batch()")

    def _find(self, name: str) -> _Column:
        for column in self._columns:
            if column.name == name:
                return column
        names = [column.name for column in self._columns]
        raise InvalidArgument(
            f'no field "{name}"{nearest(name, names)}; fields are {", ".join(names)}'
        )

    def _put(self, old: _Column, new: _Column) -> Pipeline:
        columns = tuple(new if column is old else column for column in self._columns)
        return dataclasses.replace(self, _columns=columns)

    def _shuffle(self, seed: int, mode: str, window: int | None) -> Pipeline:
        self._before_batch("shuffle")
        choice("mode", mode, ("full", "window"))
        if self._order is not None:
            raise InvalidArgument("shuffle() was given already")
        if window is not None and mode != "window":
            raise InvalidArgument('window= belongs to mode="window"')
        if window is not None and window <= 0:
            raise InvalidArgument(f"window={window} must be above 0")
        size = (window or _WINDOW) if mode == "window" else 0
        return dataclasses.replace(self, _order=_Order(mode, check_seed(seed), size))

    def _decode(self, fields: Mapping[str, str]) -> Pipeline:
        self._before_batch("decode")
        pipeline = self
        for name, dtype in fields.items():
            column = pipeline._find(name)
            pipeline._check_decodable(column, "decode")
            known = str(dtype) if str(dtype) in (*_BYTES_KEPT, "npy", "bfloat16") else _dtype(dtype)
            decode = _Decode(known)
            if known in _BYTES_KEPT and column.field.dtype != "bytes":
                raise InvalidArgument(f'"{name}" holds {column.field.dtype}, no {known} bytes')
            decoder = decode.build(self.dataset, column.source)
            pipeline = pipeline._put(
                column,
                dataclasses.replace(
                    column,
                    decode=decode,
                    field=column.field if decoder is None else _output(decoder),
                    item=known if known in _BYTES_KEPT else "array",
                ),
            )
        return pipeline

    def _image(self, name: str, image: _Image) -> Pipeline:
        self._before_batch("image")
        column = self._find(name)
        self._check_decodable(column, "image")
        if column.field.dtype != "bytes":
            raise InvalidArgument(f'"{name}" holds {column.field.dtype}, no encoded pictures')
        decoder = image.build(self.dataset, column.source)
        assert decoder is not None
        made = dataclasses.replace(column, decode=image, field=_output(decoder), item="array")
        return self._put(column, made)

    @staticmethod
    def _check_decodable(column: _Column, verb: str) -> None:
        if column.kind != "stored":
            raise InvalidArgument(
                f'"{column.name}" is made by headpond: {verb}() is for stored fields'
            )
        if column.decode is not None:
            raise InvalidArgument(f'"{column.name}" is decoded already')

    def _select(self, names: Sequence[str]) -> Pipeline:
        self._before_batch("select")
        if not names:
            raise InvalidArgument("select() needs at least one field")
        columns: list[_Column] = []
        for name in names:
            if name in (column.name for column in columns):
                raise InvalidArgument(f'"{name}" is selected twice')
            there = name in (column.name for column in self._columns)
            columns.append(_reserved(name) if name in _RESERVED and not there else self._find(name))
        return dataclasses.replace(self, _columns=tuple(columns))

    def _rename(self, names: Mapping[str, str]) -> Pipeline:
        self._before_batch("rename")
        for old in names:
            self._find(old)
        columns = tuple(
            dataclasses.replace(column, name=names.get(column.name, column.name))
            for column in self._columns
        )
        made = [column.name for column in columns]
        for name in made:
            if made.count(name) > 1:
                raise InvalidArgument(f'two fields would be called "{name}"')
        return dataclasses.replace(self, _columns=columns)

    def _batch_by(self, size: int, drop_last: bool, pad: dict[str, float]) -> Pipeline:
        self._before_batch("batch")
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size <= 0:
            raise InvalidArgument(f"batch size must be a whole number above 0, not {size!r}")
        for name in pad:
            column = self._find(name)
            if column.field.shape is not None or column.kind != "stored":
                raise InvalidArgument(f'"{name}" has one shape: nothing to pad')
            if column.item in ("utf8", "json"):
                raise InvalidArgument(f'"{name}" holds {column.item}, no numbers to pad')
            if f"{name}_lengths" in self.fields:
                raise InvalidArgument(
                    f'"{name}_lengths" is taken: rename it before padding "{name}"'
                )
        batch = _Batch(int(size), bool(drop_last), tuple(pad.items()))
        return dataclasses.replace(self, _batch=batch)

    def _field_plans(self) -> list[_core.FieldPlan]:
        pad = dict(self._batch.pad) if self._batch else {}
        return [
            _core.FieldPlan(
                self.dataset._core,
                column.kind,
                column.name,
                column.source,
                column.build(self.dataset),
                pad.get(column.name),
            )
            for column in self._columns
        ]

    def loader(
        self,
        *,
        framework: Literal["numpy", "torch"] = "numpy",
        pin: Literal["auto"] | bool = "auto",
        prefetch: int | str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int | None = None,
        uneven: Literal["pad", "drop", "allow"] = "pad",
        on_error: Literal["raise", "skip", "replace"] = "raise",
        max_errors: int = 100,
        steps_per_epoch: int | None = None,
        timeout: float | None = None,
        engine: Engine | None = None,
    ) -> Loader:
        """Makes what the training loop holds. Reads nothing yet and starts no thread.

        Args:
            framework: ``"numpy"`` or ``"torch"``: what the arrays of a batch are.
            pin: Page-locked memory for torch. ``"auto"``: when CUDA is initialised at the first
                ``next()``. True: initialises the current device; without an accelerator it warns
                once and goes on without. False: never.
            prefetch: Bytes that may be read ahead, such as ``"256MB"``; None: a share of the
                engine's budget. At least two batches.
            rank: This process among ``world_size``. None for both: of torch.distributed if that is
                initialised, else ``RANK`` and ``WORLD_SIZE``, else 0 of 1; read at the first
                ``next()``, then fixed.
            world_size: Processes that share an epoch.
            seed: Of the augmentation; None: the shuffle's.
            uneven: Of an epoch's last step. ``"pad"``: rows from the epoch's start fill it up, so
                that all ranks take equal rows; ``__valid__`` is False on them. ``"drop"``: what
                does not fill a row on every rank is left out. ``"allow"``: every sample exactly
                once; ranks may differ.
            on_error: ``"raise"``: a sample that fails raises in its batch's ``next()``, and the
                following one goes on. ``"skip"``: its row is left out. ``"replace"``: a good row of
                the batch stands in and ``__valid__`` is False.
            max_errors: Samples that may be skipped or replaced per rank and epoch.
            steps_per_epoch: Batches of one ``for``; the next goes on where it ended. None: a
                ``for`` is an epoch of the data.
            timeout: Seconds that one ``next()`` may wait before :class:`Timeout` says for what;
                None: no limit.
            engine: Threads and memory of its own; None: those of the process.

        Raises:
            InvalidArgument: No ``batch()`` yet, or an argument that makes no sense.
        """
        from headpond.loader import Loader

        return Loader(
            self,
            framework=framework,
            pin=pin,
            prefetch=prefetch,
            rank=rank,
            world_size=world_size,
            seed=seed,
            uneven=uneven,
            on_error=on_error,
            max_errors=max_errors,
            steps_per_epoch=steps_per_epoch,
            timeout=timeout,
            engine=engine,
        )

    def __repr__(self) -> str:
        order = self._order or _Order()
        parts = [repr(self.dataset), f"order {order.mode}"]
        parts += [f"{name}: {field.dtype}" for name, field in self.fields.items()]
        if self._batch:
            parts.append(f"batches of {self._batch.size}")
        return f"Pipeline({', '.join(parts)})"


def check_seed(seed: int) -> int:
    """The seed as a plain int.

    Raises:
        InvalidArgument: Not a whole number from 0 to 2**64 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < _SEEDS:
        raise InvalidArgument(f"a seed is a whole number from 0 to 2**64 - 1, not {seed!r}")
    return int(seed)


def _reserved(name: str) -> _Column:
    fields = {
        "__index__": Field("int64", ()),
        "__key__": Field("str", ()),
        "__valid__": Field("bool", ()),
    }
    return _Column(name, _RESERVED[name], "", fields[name])


def _dtype(dtype: Any) -> str:
    try:
        parsed = np.dtype(dtype)
    except TypeError as error:
        names = ", ".join(("a NumPy dtype", "npy", *_BYTES_KEPT))
        raise InvalidArgument(f"decoding to {dtype!r} is unknown: there are {names}") from error
    if parsed.kind not in "biuf" or parsed.itemsize > 8:
        raise InvalidArgument(f"decoding to {parsed} is not supported: fields hold numbers")
    return str(parsed.newbyteorder("=").name)


def _output(decoder: _core.Decoder) -> Field:
    shape = decoder.shape
    return Field(decoder.dtype, None if shape is None else tuple(shape))
