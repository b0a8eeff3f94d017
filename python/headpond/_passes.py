"""Passes: where a loader stands, and one run over its batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headpond import _core
from headpond.errors import Error

if TYPE_CHECKING:
    from headpond.loader import Loader


@dataclass(frozen=True)
class Position:
    """Where a loader stands, counting batches handed out."""

    epoch: int = 0
    cursor: int = 0
    pass_step: int = 0
    ended: bool = False
    group: tuple[int, int] = (0, 0)  # that holds the cursor, where counts of shards are to come


def _replaced() -> Error:
    return Error("this iterator was replaced, or its loader closed", code="HP0402")


class Pass(Iterator[dict[str, Any]]):
    """One run over a loader's batches. Does nothing before its first ``next()``."""

    def __init__(self, loader: Loader, passes: int) -> None:
        self._loader = loader
        self.passes = passes
        self.start = Position()
        self._batches: _core.Batches | None = None
        self._timeout = loader._timeout
        self._counts = False  # has returned a batch
        self._done = False
        self._replaced = False

    def __next__(self) -> dict[str, Any]:
        batches = self._batches
        if batches is None:
            batches = self._first()
        batch = batches.next(self._timeout)
        if batch is None:
            if self._done:  # another thread came first
                raise StopIteration
            if self._replaced:
                raise _replaced()
            self._finish()
            raise StopIteration
        if not self._counts:
            self._counts = True
            self._loader._handed_out()
        return batch

    def _first(self) -> _core.Batches:
        with self._loader._beginning:
            if self._done:
                raise StopIteration
            if self._replaced:
                raise _replaced()
            if self._batches is None:  # else another thread came first
                self._batches = self._loader._begin(self)
            return self._batches

    def _finish(self) -> None:
        self._loader._ended(self)
        self._done = True
        self._batches = None

    def handed_out(self) -> bool:
        """Has it returned a batch, so that it counts?"""
        return self._counts

    def position(self) -> Position:
        """After the last batch that it returned."""
        assert self._batches is not None
        core = self._batches
        step = core.pass_step
        if self.passes > 1 and step:
            step = (step - 1) % max(self._loader._pass_steps, 1) + 1
        if not self._loader._pass_steps:
            step = 0
        return Position(core.epoch, core.cursor, step, group=core.group)

    def end_position(self) -> Position:
        """After its loop has ended."""
        assert self._batches is not None
        loader = self._loader
        core = self._batches
        if loader._pass_steps:
            return Position(core.epoch, core.cursor, group=core.group)
        sampler = loader._sampler
        cursor = sampler.size if sampler.size_is_known else core.cursor
        return Position(self.start.epoch + self.passes - 1, cursor, 0, True, core.group)

    def replace(self) -> None:
        """A newer pass, another state or close() takes over."""
        self._replaced = True  # first: a thread that waits in next() is woken by what follows
        self._loader._left(self)
        self._batches = None

    def __del__(self) -> None:
        if self._batches is not None and not self._done and not self._replaced:
            self._loader._left(self)
