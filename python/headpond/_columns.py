"""Columns: the fields of a batch, and what is made of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headpond import _core
from headpond.engine import default_engine
from headpond.errors import InvalidArgument

if TYPE_CHECKING:
    from headpond.datasets import Dataset

RESERVED = {"__index__": "index", "__key__": "key", "__valid__": "valid"}
BYTES_KEPT = ("raw", "utf8", "json")


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
class Decode:
    name: str

    def build(self, dataset: Dataset, field: str) -> _core.Decoder | None:
        if self.name in BYTES_KEPT:
            return None
        first = b""
        stored = {name: dtype for name, dtype, _ in dataset._core.fields}
        if self.name == "npy" and stored[field] == "bytes":  # the first says dtype and shape
            first = dataset._core.first_value(default_engine()._core, field)
        return _core.named_decoder(self.name, dataset._core, field, first)


@dataclass(frozen=True)
class Image:
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
class Column:
    """One field of a batch: its name, where it comes from, what it shows."""

    name: str
    kind: str  # "stored", or of a reserved field
    source: str
    field: Field
    decode: Decode | Image | None = None
    item: str = "array"  # of Ragged rows

    def build(self, dataset: Dataset) -> _core.Decoder | None:
        return None if self.decode is None else self.decode.build(dataset, self.source)


def reserved_column(name: str) -> Column:
    fields = {
        "__index__": Field("int64", ()),
        "__key__": Field("str", ()),
        "__valid__": Field("bool", ()),
    }
    return Column(name, RESERVED[name], "", fields[name])


def dtype_name(dtype: Any) -> str:
    try:
        parsed = np.dtype(dtype)
    except TypeError as error:
        names = ", ".join(("a NumPy dtype", "npy", *BYTES_KEPT))
        raise InvalidArgument(f"decoding to {dtype!r} is unknown: there are {names}") from error
    if parsed.kind not in "biuf" or parsed.itemsize > 8:
        raise InvalidArgument(f"decoding to {parsed} is not supported: fields hold numbers")
    return str(parsed.newbyteorder("=").name)


def output_field(decoder: _core.Decoder) -> Field:
    shape = decoder.shape
    return Field(decoder.dtype, None if shape is None else tuple(shape))
