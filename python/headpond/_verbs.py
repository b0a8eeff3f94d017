"""The verbs that turn a dataset into a pipeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from headpond._columns import Image
from headpond.errors import InvalidArgument, choice

if TYPE_CHECKING:
    from headpond.engine import Engine
    from headpond.pipeline import Pipeline
    from headpond.report import Warmed


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

    def warm(self, *, engine: Engine | None = None) -> Warmed:
        """Fills the node's cache with the dataset before it is used, with a progress bar.

        What is there already is not fetched: an interrupted run goes on where it stopped, and any
        number of processes share the work. Shards that are not indexed yet are indexed first.

        Args:
            engine: Whose cache; default: that of :func:`configure`.

        Returns:
            What is in the cache now. It ends early where the cache has no more room.

        Raises:
            InvalidArgument: This dataset is not read through a cache (``cache=``, ``cache_size``).
            Error: Of the origin.
        """
        from headpond._progress import Progress
        from headpond.engine import default_engine
        from headpond.report import Warmed

        with Progress() as progress:
            core = self._pipeline().dataset._core
            return Warmed(*core.warm((engine or default_engine())._core, progress))

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
        image = Image(
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
