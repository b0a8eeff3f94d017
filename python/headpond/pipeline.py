"""Pipelines: what the model sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from headpond import _core
from headpond._columns import (
    BYTES_KEPT,
    RESERVED,
    Column,
    Decode,
    Field,
    Image,
    dtype_name,
    output_field,
    reserved_column,
)
from headpond._order import Batch, Order, check_seed
from headpond._verbs import Verbs
from headpond.engine import Engine
from headpond.errors import InvalidArgument, choice, nearest

if TYPE_CHECKING:
    from headpond.datasets import Dataset
    from headpond.loader import Loader

__all__ = ["Field", "Pipeline"]

_WINDOW = 16384


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
    _columns: tuple[Column, ...] = ()
    _order: Order | None = None
    _batch: Batch | None = None

    @classmethod
    def _of(cls, dataset: Dataset) -> Pipeline:
        columns = []
        for name, dtype, shape in dataset._core.fields:
            field = Field(dtype, None if shape is None else tuple(shape))
            columns.append(
                Column(name, "stored", name, field, item="raw" if dtype == "bytes" else "array")
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

    def _find(self, name: str) -> Column:
        for column in self._columns:
            if column.name == name:
                return column
        names = [column.name for column in self._columns]
        raise InvalidArgument(
            f'no field "{name}"{nearest(name, names)}; fields are {", ".join(names)}'
        )

    def _put(self, old: Column, new: Column) -> Pipeline:
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
        return dataclasses.replace(self, _order=Order(mode, check_seed(seed), size))

    def _decode(self, fields: Mapping[str, str]) -> Pipeline:
        self._before_batch("decode")
        pipeline = self
        for name, dtype in fields.items():
            column = pipeline._find(name)
            pipeline._check_decodable(column, "decode")
            known = (
                str(dtype) if str(dtype) in (*BYTES_KEPT, "npy", "bfloat16") else dtype_name(dtype)
            )
            decode = Decode(known)
            if known in BYTES_KEPT and column.field.dtype != "bytes":
                raise InvalidArgument(f'"{name}" holds {column.field.dtype}, no {known} bytes')
            decoder = decode.build(self.dataset, column.source)
            pipeline = pipeline._put(
                column,
                dataclasses.replace(
                    column,
                    decode=decode,
                    field=column.field if decoder is None else output_field(decoder),
                    item=known if known in BYTES_KEPT else "array",
                ),
            )
        return pipeline

    def _image(self, name: str, image: Image) -> Pipeline:
        self._before_batch("image")
        column = self._find(name)
        self._check_decodable(column, "image")
        if column.field.dtype != "bytes":
            raise InvalidArgument(f'"{name}" holds {column.field.dtype}, no encoded pictures')
        decoder = image.build(self.dataset, column.source)
        assert decoder is not None
        made = dataclasses.replace(column, decode=image, field=output_field(decoder), item="array")
        return self._put(column, made)

    @staticmethod
    def _check_decodable(column: Column, verb: str) -> None:
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
        columns: list[Column] = []
        for name in names:
            if name in (column.name for column in columns):
                raise InvalidArgument(f'"{name}" is selected twice')
            there = name in (column.name for column in self._columns)
            columns.append(
                reserved_column(name) if name in RESERVED and not there else self._find(name)
            )
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
        batch = Batch(int(size), bool(drop_last), tuple(pad.items()))
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
        order = self._order or Order()
        parts = [repr(self.dataset), f"order {order.mode}"]
        parts += [f"{name}: {field.dtype}" for name, field in self.fields.items()]
        if self._batch:
            parts.append(f"batches of {self._batch.size}")
        return f"Pipeline({', '.join(parts)})"
