"""In which order samples come, and how many at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headpond import _core
from headpond.errors import InvalidArgument

_SEEDS = 2**64


@dataclass(frozen=True)
class Order:
    mode: str = "none"
    seed: int = 0
    window: int = 0

    def sampler(self, dataset: _core.Dataset) -> _core.Sampler:
        if not dataset.size_is_known:
            return _core.Sampler(self.mode, None, self.seed, self.window)
        counts = dataset.shard_counts if self.mode == "window" else []
        return _core.Sampler(self.mode, len(dataset), self.seed, self.window, counts)


@dataclass(frozen=True)
class Batch:
    size: int
    drop_last: bool
    pad: tuple[tuple[str, float], ...]


def check_seed(seed: int) -> int:
    """The seed as a plain int.

    Raises:
        InvalidArgument: Not a whole number from 0 to 2**64 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < _SEEDS:
        raise InvalidArgument(f"a seed is a whole number from 0 to 2**64 - 1, not {seed!r}")
    return int(seed)
