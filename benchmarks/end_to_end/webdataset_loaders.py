"""WebDataset over local shards, as its documentation sets it up for one node."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import webdataset as wds
from job import Job
from pictures import pil


def shards(job: Job) -> list[str]:
    return sorted(str(p) for p in Path(job.path).glob("*.tar"))


def as_lists(samples: list[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(list(column) for column in zip(*samples, strict=True))


def as_arrays(samples: list[tuple[Any, ...]]) -> tuple[np.ndarray, ...]:
    return tuple(np.stack(column) for column in zip(*samples, strict=True))


def load(dataset: wds.WebDataset, job: Job) -> Iterable[Any]:
    options: dict[str, Any] = {}
    if job.workers:
        options.update(persistent_workers=True)
    return wds.WebLoader(dataset, batch_size=None, num_workers=job.workers, **options)


def source(job: Job) -> wds.WebDataset:
    shuffled = 100 if job.shuffle else False
    dataset = wds.WebDataset(shards(job), shardshuffle=shuffled, seed=job.seed)
    return dataset.shuffle(1000) if job.shuffle else dataset


def files(job: Job) -> Iterable[Any]:
    """Bytes only; its shuffle is a buffer of 1,000 samples."""
    dataset = source(job).to_tuple("jpg", "cls").batched(job.batch, collation_fn=as_lists)
    return load(dataset, job)


def pictures(job: Job) -> Iterable[Any]:
    def picture(sample: tuple[bytes, bytes]) -> tuple[np.ndarray, int]:
        return pil(sample[0], job), int(sample[1])

    dataset = source(job).to_tuple("jpg", "cls").map(picture)
    return load(dataset.batched(job.batch, collation_fn=as_arrays), job)
