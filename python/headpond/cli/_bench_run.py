"""One measurement of ``headpond bench``, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headpond as hp
from headpond.cli._source import Place, guess
from headpond.cli._torch_crop import random_crop

_WARM_UP = 0.25  # of the seconds, before what counts
_SIGNATURES = (b"\xff\xd8\xff",)


@dataclass(frozen=True)
class Job:
    """Which loader reads what, for how long."""

    loader: str  # headpond or torch
    workers: int
    source: str
    batch: int
    size: int  # of the crops; 0: bytes only
    seconds: float

    @property
    def title(self) -> str:
        """Its row of the table."""
        return self.loader if self.loader == "headpond" else f"torch, {self.workers} workers"


@dataclass(frozen=True)
class Data:
    """What a source holds."""

    dataset: hp.Dataset
    field: str  # the picture, or else the first field of bytes
    picture: bool
    mean_bytes: float


def open_source(source: str) -> Data:
    """Opens a source as what it looks like: tar shards, or files one a sample."""
    dataset = Place(source, guess(source)).open()
    step = max(1, len(dataset) // 32)
    some = [dataset[index] for index in range(0, len(dataset), step)]
    fields = [name for name, value in some[0].items() if isinstance(value, bytes)]
    field = next((f for f in fields if some[0][f].startswith(_SIGNATURES)), fields[0])
    return Data(
        dataset=dataset,
        field=field,
        picture=some[0][field].startswith(_SIGNATURES),
        mean_bytes=sum(len(sample[field]) for sample in some) / len(some),
    )


def headpond_batches(data: Data, job: Job) -> Iterable[Any]:
    """The pipeline of the documentation, with the defaults."""
    pipeline = data.dataset.shuffle(seed=1)
    if data.picture and job.size:
        pipeline = pipeline.image(data.field, size=job.size, crop="random_resized", flip=True)
    batches = pipeline.select(data.field).batch(job.batch)
    if importlib.util.find_spec("torch"):
        return batches.loader(framework="torch")
    return batches.loader()


class TorchSamples:
    """A map-style dataset as people write it; records of shards come from ``dataset[i]``."""

    def __init__(self, data: Data, job: Job) -> None:
        self._dataset = data.dataset
        self._field = data.field
        self._size = job.size if data.picture else 0
        self._files = isinstance(data.dataset[0].get("data"), bytes)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        if not self._files:
            content = self._dataset[index][self._field]
        else:
            uri = self._dataset.locate(index)[0][0]
            content = Path(uri.removeprefix("file://")).read_bytes()
        return _crop(content, self._size) if self._size else content


def _crop(content: bytes, size: int) -> Any:
    import io

    from PIL import Image

    return random_crop(Image.open(io.BytesIO(content)).convert("RGB"), size)


def _as_list(samples: list[Any]) -> list[Any]:
    return samples


def torch_batches(data: Data, job: Job) -> Iterable[Any]:
    """Torch's own loader over the same samples."""
    import torch

    torch.set_num_threads(1)
    samples: Any = TorchSamples(data, job)
    decoded = data.picture and job.size
    loader: Iterable[Any] = torch.utils.data.DataLoader(
        samples,
        batch_size=job.batch,
        shuffle=True,
        num_workers=job.workers,
        persistent_workers=job.workers > 0,
        collate_fn=None if decoded else _as_list,
    )
    return loader


def _endless(batches: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def _rows(batch: Any) -> int:
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch)


def _cpu_s() -> float:
    """User and system time of this process and of its children, living and ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == os.getpid():
            ticks += sum(int(value) for value in fields[11:15])
    return sum(u.ru_utime + u.ru_stime for u in used) + ticks / os.sysconf("SC_CLK_TCK")


def measure(job: Job) -> dict[str, Any]:
    """First batch, a while to warm up, then what counts."""
    data = open_source(job.source)
    if importlib.util.find_spec("torch"):
        importlib.import_module("torch")  # not part of the first batch
    began = time.perf_counter()
    make = headpond_batches if job.loader == "headpond" else torch_batches
    batches = _endless(make(data, job))
    next(batches)
    first_s = time.perf_counter() - began
    warm = time.perf_counter() + _WARM_UP * job.seconds
    while time.perf_counter() < warm:
        next(batches)
    samples, cpu, start = 0, _cpu_s(), time.perf_counter()
    while time.perf_counter() - start < job.seconds:
        samples += _rows(next(batches))
    elapsed = time.perf_counter() - start
    return {
        "samples_per_s": samples / elapsed,
        "cpu_ms_per_sample": 1e3 * (_cpu_s() - cpu) / samples,
        "first_batch_ms": 1e3 * first_s,
        "samples": len(data.dataset),
        "field": data.field,
        "decoded": bool(data.picture and job.size),
        "mean_bytes": data.mean_bytes,
    }


def main() -> int:
    """Measures the job that is given as JSON; prints JSON."""
    job = Job(**json.loads(sys.argv[1]))
    try:
        measured = measure(job)
    except (hp.Error, ImportError) as error:
        print(f"headpond: {error}", file=sys.stderr)
        return 1
    print(json.dumps(measured), flush=True)
    return 0
