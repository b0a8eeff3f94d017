"""Which rank of how many this process is."""

from __future__ import annotations

import datetime
import json
import logging
import os
import sys
from typing import Any, NamedTuple

from headpond.errors import InvalidArgument

__all__ = ["Rank", "check_rank", "compare_orders", "find_rank"]

logger = logging.getLogger("headpond")

_COMPARE_S = 30


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
    distributed = _distributed()
    if distributed is not None:
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


def _distributed() -> Any:
    """torch.distributed, where the program imported and initialised it; we import no torch."""
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return module


def compare_orders(order: dict[str, Any], loader: int, rank: Rank) -> None:
    """Raises on every rank of a torch.distributed job when they would read in different orders.

    Args:
        order: What must be the same: fingerprint, seed, shuffle, world size.
        loader: Number of the loader in this process, the same on every rank.
        rank: Of this process.

    Raises:
        InvalidArgument: The ranks differ; names what differs from the first rank's.
    """
    distributed = _distributed()
    if distributed is None or rank.world_size == 1:
        return
    store = distributed.distributed_c10d._get_default_store()
    key = f"headpond/order/{loader}"
    mine = json.dumps(order, sort_keys=True)
    first = store.compare_set(f"{key}/first", "", mine).decode()
    if first != mine:
        theirs = json.loads(first)
        names = [name for name in order if order[name] != theirs.get(name)]
        lines = [
            f"{name}: {order[name]} on rank {rank.rank}, elsewhere {theirs.get(name)}"
            for name in names
        ]
        store.set(f"{key}/differs", "; ".join(lines))
    if store.add(f"{key}/count", 1) == rank.world_size:
        store.set(f"{key}/all", "1")
    try:
        store.wait([f"{key}/all"], datetime.timedelta(seconds=_COMPARE_S))
    except RuntimeError:  # not every rank reads this loader
        logger.warning(
            "not all ranks began loader %d within %d s; orders not compared", loader, _COMPARE_S
        )
        return
    if store.check([f"{key}/differs"]):
        differs = store.get(f"{key}/differs").decode()
        raise InvalidArgument(f"the ranks of this job would read in different orders: {differs}")
