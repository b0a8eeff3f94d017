"""headpond with its defaults; nothing here is tuned to a workload."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: F401  (not part of the first batch)
from job import Job

import headpond as hp

# headpond imports its parts when they are first named: that is import time too.
hp.Engine, hp.from_files, hp.Loader, hp.Pipeline, hp.Ragged  # noqa: B018


def load(pipeline: Any, job: Job) -> Iterable[Any]:
    return pipeline.batch(job.batch).loader(framework="torch")


def shuffled(dataset: Any, job: Job) -> Any:
    if not job.shuffle:
        return dataset
    if job.window:
        return dataset.shuffle(seed=job.seed, mode="window", window=job.window)
    return dataset.shuffle(seed=job.seed)


def crop(pipeline: Any, field: str, job: Job) -> Any:
    if job.augment:
        return pipeline.image(field, size=job.size, crop="random_resized", flip=True)
    return pipeline.image(field, size=job.size, crop="center", resize=job.resize)


def pictures(job: Job) -> Iterable[Any]:
    return load(crop(shuffled(hp.from_files(job.path), job), "data", job), job)


def files(job: Job) -> Iterable[Any]:
    return load(shuffled(hp.from_files(job.path), job), job)


def shards(job: Job) -> Any:
    return hp.from_webdataset(sorted(str(p) for p in Path(job.path).glob("*.tar")))


def tar_files(job: Job) -> Iterable[Any]:
    return load(shuffled(shards(job), job).select("jpg", "cls"), job)


def tar_pictures(job: Job) -> Iterable[Any]:
    pipeline = crop(shuffled(shards(job), job).decode(cls="int64"), "jpg", job)
    return load(pipeline.select("jpg", "cls"), job)


def records(job: Job) -> Iterable[Any]:
    return load(shuffled(hp.from_records(job.path, "uint8", job.shape), job), job)


def tokens(job: Job) -> Iterable[Any]:
    dataset = hp.from_tokens(job.path, "uint16", window=job.shape[0], stride=job.stride)
    return load(shuffled(dataset, job).decode(tokens="int64"), job)


def memory(job: Job) -> Iterable[Any]:
    x = np.ones((job.rows, *job.shape), np.float32)
    return load(shuffled(hp.from_arrays({"x": x, "y": np.ones(job.rows, np.int64)}), job), job)


def sparse(job: Job) -> Iterable[Any]:
    """For the start: NumPy, so that importing torch is not part of it."""
    dataset = hp.from_records(job.path, "uint8", job.shape)
    return dataset.shuffle(seed=job.seed).batch(job.batch).loader()


def resume_in_the_middle(loader: Any, job: Job) -> None:
    """Loads the state that half an epoch would have left."""
    state = loader.state_dict()
    rows = Path(job.path).stat().st_size // int(np.prod(job.shape))
    state["cursor"] = rows // 2 // job.batch * job.batch
    loader.load_state_dict(state)
