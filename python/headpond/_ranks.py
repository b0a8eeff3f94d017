"""Which rank of how many this process is."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from headpond.errors import InvalidArgument

__all__ = ["Rank", "check_rank", "find_rank"]


class Rank(NamedTuple):
    """One process of a job."""

    rank: int
    world_size: int


def check_rank(rank: int | None, world_size: int | None) -> Rank | None:
    """The rank that arguments give, or None when they leave it open.

    Raises:
        InvalidArgument: One without the other, or a rank outside of its world.
    """
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        missing = "rank" if rank is None else "world_size"
        raise InvalidArgument(f"rank and world_size go together: {missing} is missing")
    if world_size < 1 or not 0 <= rank < world_size:
        raise InvalidArgument(f"rank={rank} does not lie in world_size={world_size}")
    return Rank(int(rank), int(world_size))


def find_rank() -> Rank:
    """From torch.distributed where it is initialised, else the environment, else 0 of 1.

    Raises:
        InvalidArgument: WORLD_SIZE without RANK, RANK without WORLD_SIZE, or no numbers.
    """
    # Looked at only where the program imported it: headpond imports no torch by itself.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size())
    texts = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if texts == (None, None):
        return Rank(0, 1)
    rank, world_size = texts
    if world_size == "1" and rank is None:
        return Rank(0, 1)
    if rank is None or world_size is None:
        there, missing = ("WORLD_SIZE", "RANK") if rank is None else ("RANK", "WORLD_SIZE")
        raise InvalidArgument(f"the environment has {there} but no {missing}: set both, or neither")
    try:
        found = check_rank(int(rank), int(world_size))
    except ValueError as error:
        raise InvalidArgument(f"RANK={rank}, WORLD_SIZE={world_size}: {error}") from error
    assert found is not None
    return found
