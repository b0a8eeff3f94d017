"""Fields whose size varies from sample to sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from headpond.errors import InvalidArgument

__all__ = ["Ragged"]


def _as_bytes(values: Any) -> Any:
    return np.asarray(values).tobytes()


def _as_text(values: Any) -> Any:
    return str(_as_bytes(values), "utf-8")


def _as_json(values: Any) -> Any:
    return json.loads(_as_bytes(values))


def _as_array(values: Any) -> Any:
    return values


_ITEMS: dict[str, Callable[[Any], Any]] = {
    "raw": _as_bytes,
    "utf8": _as_text,
    "json": _as_json,
    "array": _as_array,
}


class Ragged:
    """One field of a batch, rows of varying length one after another.

    ``ragged[i]`` is row i: an array over the batch's memory; bytes, or the object that
    ``.decode(field="utf8")`` or ``"json"`` promised, made when it is asked for, in the caller's
    thread.

    Example:
        >>> import numpy as np
        >>> ragged = Ragged(np.array([1, 2, 3]), np.array([0, 2, 2, 3]))
        >>> [row.tolist() for row in ragged], ragged.pad(0).tolist()
        ([[1, 2], [], [3]], [[1, 2], [0, 0], [3, 0]])

    Attributes:
        values: Elements of all rows, ``[elements]``. Bytes are uint8.
        offsets: int64 ``[rows + 1]``: row i is ``values[offsets[i]:offsets[i + 1]]``.
    """

    def __init__(self, values: Any, offsets: Any, item: str = "array") -> None:
        self.values = values
        self.offsets = offsets
        self._item = item

    @property
    def lengths(self) -> Any:
        """Elements of each row, int64 ``[rows]``."""
        return self.offsets[1:] - self.offsets[:-1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        rows = len(self)
        if row < -rows or row >= rows:
            raise IndexError(f"no row {row} among {rows}")
        row %= rows
        part = self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]
        return _ITEMS[self._item](part)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def to_list(self) -> list[Any]:
        """The rows as a list of what ``ragged[i]`` gives."""
        return list(self)

    def pad(self, value: float) -> Any:
        """A fresh array ``[rows, longest]`` of the same dtype, short rows filled with ``value``."""
        if self._item in ("utf8", "json"):
            raise InvalidArgument(
                f"rows of {self._item} are no numbers: pad() needs numbers or bytes"
            )
        lengths = [int(length) for length in self.lengths]
        shape = (len(self), max(lengths, default=0))
        if isinstance(self.values, np.ndarray):
            padded: Any = np.full(shape, value, self.values.dtype)
        else:
            padded = self.values.new_full(shape, value)
        start = 0
        for row, length in enumerate(lengths):
            padded[row, :length] = self.values[start : start + length]
            start += length
        return padded

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {len(self.values)} elements)"
