"""torch.utils.data.DataLoader, in the configurations its documentation recommends."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from job import Job, files_of
from pictures import DECODERS, Decode
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

# Its OpenMP threads spin between batches and take the cores of the workers; more than one is
# slower in every workload here.
torch.set_num_threads(1)


def loader(dataset: Dataset, job: Job, **options: Any) -> DataLoader:
    if job.workers:
        options.update(persistent_workers=True)
    return DataLoader(
        dataset,
        batch_size=job.batch,
        shuffle=job.shuffle,
        num_workers=job.workers,
        generator=torch.Generator().manual_seed(job.seed),
        **options,
    )


class Pictures(Dataset):
    def __init__(self, job: Job, decode: Decode) -> None:
        paths, labels = files_of(job.path)
        # NumPy arrays: lists of objects would be copied page by page into every worker.
        self.paths = np.array(paths)
        self.labels = np.array(labels)
        self.job = job
        self.decode = decode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with open(self.paths[index], "rb") as stream:
            picture = self.decode(stream.read(), self.job)
        return torch.from_numpy(np.array(picture, copy=None)), int(self.labels[index])


def single_threaded_cv2(_worker: int) -> None:
    import cv2

    cv2.setNumThreads(0)


def pictures(job: Job, decoder: str) -> Iterable[Any]:
    if decoder != "pil":
        single_threaded_cv2(0)
    return loader(
        Pictures(job, DECODERS[decoder]),
        job,
        worker_init_fn=None if decoder == "pil" else single_threaded_cv2,
    )


pictures_pil = partial(pictures, decoder="pil")
pictures_cv2 = partial(pictures, decoder="cv2")
pictures_simplejpeg = partial(pictures, decoder="simplejpeg")


class Files(Dataset):
    def __init__(self, job: Job) -> None:
        self.paths = np.array(files_of(job.path)[0])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> bytes:
        with open(self.paths[index], "rb", buffering=0) as stream:
            return stream.read()


def as_they_are(items: list[Any]) -> list[Any]:
    return items


def files(job: Job) -> Iterable[list[bytes]]:
    """Bytes only: a list of bytes is a batch."""
    return loader(Files(job), job, collate_fn=as_they_are)


class Batches(DataLoader):
    """A dataset that takes a whole batch of indices at once, as BatchSampler's users write it."""

    def __init__(self, dataset: Dataset, job: Job) -> None:
        n = len(dataset)  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(job.seed)
        order = RandomSampler(range(n), generator=generator) if job.shuffle else None
        sampler = BatchSampler(order or SequentialSampler(range(n)), job.batch, drop_last=False)
        options: dict[str, Any] = {}
        if job.workers:
            options.update(persistent_workers=True)
        super().__init__(
            dataset, sampler=sampler, batch_size=None, num_workers=job.workers, **options
        )


class Records(Dataset):
    """Rows of a memory-mapped file, one at a time."""

    def __init__(self, job: Job) -> None:
        self.data = np.memmap(job.path, np.uint8, "r").reshape(-1, *job.shape)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self.data[index]))


class RecordBatches(Records):
    def __getitem__(self, index: list[int]) -> torch.Tensor:  # type: ignore[override]
        return torch.from_numpy(self.data[index])


def records(job: Job) -> Iterable[torch.Tensor]:
    return loader(Records(job), job)


def record_batches(job: Job) -> Iterable[torch.Tensor]:
    return Batches(RecordBatches(job), job)


class Tokens(Dataset):
    """Windows of a memory-mapped token file, as int64."""

    def __init__(self, job: Job) -> None:
        self.data = np.memmap(job.path, np.uint16, "r")
        self.window = job.shape[0]
        self.stride = job.stride
        self.windows = np.lib.stride_tricks.sliding_window_view(self.data, self.window)
        self.windows = self.windows[:: self.stride]

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.windows[index].astype(np.int64))


class TokenBatches(Tokens):
    def __getitem__(self, index: list[int]) -> torch.Tensor:  # type: ignore[override]
        return torch.from_numpy(self.windows[index].astype(np.int64))


def tokens(job: Job) -> Iterable[torch.Tensor]:
    return loader(Tokens(job), job)


def token_batches(job: Job) -> Iterable[torch.Tensor]:
    return Batches(TokenBatches(job), job)


class TokenLoop:
    """What people write by hand: a permutation, slices, one tensor a batch; no loader."""

    def __init__(self, job: Job) -> None:
        self.dataset = TokenBatches(job)
        self.job = job
        self.epoch = 0

    def __iter__(self) -> Iterable[torch.Tensor]:
        random = np.random.default_rng((self.job.seed, self.epoch))
        self.epoch += 1
        order = random.permutation(len(self.dataset))
        for start in range(0, len(order), self.job.batch):
            yield self.dataset[order[start : start + self.job.batch]]


def token_loop(job: Job) -> Iterable[torch.Tensor]:
    return TokenLoop(job)


def memory(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.ones(job.rows, *job.shape, dtype=torch.float32)
    return x, torch.ones(job.rows, dtype=torch.int64)


class MemoryBatches(Dataset):
    def __init__(self, job: Job) -> None:
        self.x, self.y = memory(job)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.as_tensor(index)
        return self.x[chosen], self.y[chosen]


def memory_rows(job: Job) -> Iterable[Any]:
    return loader(torch.utils.data.TensorDataset(*memory(job)), job)


def memory_batches(job: Job) -> Iterable[Any]:
    return Batches(MemoryBatches(job), job)


class MemoryLoop:
    """randperm and an index: no loader at all."""

    def __init__(self, job: Job) -> None:
        self.x, self.y = memory(job)
        self.batch = job.batch
        self.generator = torch.Generator().manual_seed(job.seed)

    def __iter__(self) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(len(self.x), generator=self.generator)
        for chosen in order.split(self.batch):
            yield self.x[chosen], self.y[chosen]


def memory_loop(job: Job) -> Iterable[Any]:
    return MemoryLoop(job)
