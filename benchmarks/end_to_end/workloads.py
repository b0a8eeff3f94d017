"""The workloads: data, contestants, limit programs, and the bars that headpond is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prepare


@dataclass(frozen=True)
class Contestant:
    name: str
    function: str  # module.function: an adapter
    workers: int = 0
    group: str = "torch"  # torch, peer, headpond
    default: bool = True  # False: only with --all

    @property
    def title(self) -> str:
        return self.name if self.group == "headpond" else f"{self.name} w{self.workers}"


@dataclass(frozen=True)
class Limit:
    """A program that does only the physical work; `arguments` may hold {path}."""

    name: str
    program: str
    arguments: tuple[str, ...]
    default: bool = True

    group = "limit"

    @property
    def title(self) -> str:
        return self.name


@dataclass(frozen=True)
class Bar:
    """headpond's figure over another's: of `limit NAME`, of the best or cheapest of a group.

    rate: samples/s, to be at least `value` times; cpu: CPU a sample, at most `value` times.
    """

    metric: str
    value: float
    limits: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = " or ".join(self.limits) or "best of " + ", ".join(self.groups)
        return f"{self.metric} {'>=' if self.metric == 'rate' else '<='} {self.value}x {what}"


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    unit: str
    per: int  # CPU is given in seconds for so many samples
    data: Callable[[Path, Path], Path]
    job: dict[str, Any]
    contestants: tuple[Contestant, ...]
    limits: tuple[Limit, ...]
    bars: tuple[Bar, ...]
    needs_pictures: bool = True
    cold: bool = False
    touch: bool = True
    seconds: float = 1.0  # of whole epochs, at least
    longest: float = 4.0  # then an epoch is broken off; long where much is made ahead
    stream_limit: str = ""  # a limit that reads the samples' bytes without knowing samples
    fault_bar: float | None = None  # minor faults a batch that headpond may have


def each(name: str, function: str, workers: tuple[int, ...], **options: Any) -> list[Contestant]:
    return [Contestant(name, function, w, **options) for w in workers]


def picture_contestants() -> tuple[Contestant, ...]:
    return (
        *each("torch PIL", "torch_loaders.pictures_pil", (0, 1), default=False),
        *each("torch PIL", "torch_loaders.pictures_pil", (2,)),
        *each("torch cv2", "torch_loaders.pictures_cv2", (0, 1), default=False),
        *each("torch cv2", "torch_loaders.pictures_cv2", (2,)),
        *each("torch simplejpeg", "torch_loaders.pictures_simplejpeg", (0, 2)),
        *each("torch simplejpeg", "torch_loaders.pictures_simplejpeg", (1,), default=False),
        *each("SPDL", "spdl_loaders.pictures_ffmpeg", (2,), group="peer"),
        *each("SPDL simplejpeg", "spdl_loaders.pictures_simplejpeg", (2,), group="peer"),
        Contestant("headpond", "headpond_loaders.pictures", group="headpond"),
    )


def files_limit(name: str, *arguments: str, default: bool = True) -> Limit:
    return Limit(name, "limit_files", ("--folder", "{path}", *arguments), default)


def jpeg_limits(view: str) -> tuple[Limit, ...]:
    common = ("--folder", "{path}", "--mode", "partial", "--view", view)
    return (
        Limit("limit, 1 thread", "limit_jpeg", (*common, "--threads", "1")),
        Limit("limit, 2 threads", "limit_jpeg", (*common, "--threads", "2")),
    )


FILES = (
    *each("torch", "torch_loaders.files", (0, 1, 2)),
    *each("SPDL", "spdl_loaders.files", (2,), group="peer"),
    Contestant("headpond", "headpond_loaders.files", group="headpond"),
)
TAR = (
    *each("WebDataset", "webdataset_loaders.files", (0, 2), group="peer"),
    Contestant("headpond", "headpond_loaders.tar_files", group="headpond"),
)
FIO = ("--path", "{path}", "--block", "1048576", "--depth", "8")
COLD_LIMITS = tuple(
    files_limit(f"limit, {threads} threads", "--threads", str(threads), "--warm", "0")
    for threads in (2, 16, 32)
) + tuple(
    files_limit(f"limit, ring {depth}", "--how", "ring", "--depth", str(depth), "--warm", "0")
    for depth in (64, 128)
)

WORKLOADS = (
    Workload(
        name="jpeg-train",
        title="JPEG files, decode + RandomResizedCrop 224 + flip, batch 64, warm",
        unit="images",
        per=1_000,
        data=prepare.jpeg_tree,
        job={"batch": 64},
        contestants=picture_contestants(),
        limits=jpeg_limits("train"),
        bars=(
            Bar("cpu", 1.15, limits=("limit, 1 thread",)),
            Bar("cpu", 0.65, groups=("torch",)),
            Bar("rate", 1.3, groups=("torch",)),
            Bar("rate", 1.0, groups=("peer",)),
        ),
        seconds=2.0,
        longest=30.0,
    ),
    Workload(
        name="jpeg-eval",
        title="JPEG files, decode + Resize 256 + CenterCrop 224, batch 64, warm",
        unit="images",
        per=1_000,
        data=prepare.jpeg_tree,
        job={"batch": 64, "augment": False, "shuffle": False},
        contestants=picture_contestants(),
        limits=jpeg_limits("eval"),
        bars=(Bar("cpu", 1.15, limits=("limit, 1 thread",)),),
        seconds=2.0,
        longest=30.0,
    ),
    Workload(
        name="jpeg-tar",
        title="JPEGs in local tar shards, decode + RandomResizedCrop 224 + flip, batch 64, warm",
        unit="images",
        per=1_000,
        data=prepare.shards,
        job={"batch": 64},
        contestants=(
            *each("WebDataset PIL", "webdataset_loaders.pictures", (2,), group="peer"),
            Contestant("headpond", "headpond_loaders.tar_pictures", group="headpond"),
        ),
        limits=(),
        bars=(Bar("rate", 1.0, groups=("peer",)),),
        seconds=2.0,
        longest=30.0,
    ),
    Workload(
        name="files-warm",
        title="110 KB files, bytes only, batch 64, shuffled, warm",
        unit="files",
        per=1_000,
        data=prepare.files_tree,
        job={"batch": 64},
        contestants=FILES,
        limits=(
            files_limit("limit, 1 thread", "--epochs", "8"),
            files_limit("limit, 2 threads", "--threads", "2", "--epochs", "16"),
            files_limit(
                "limit, 2 threads, into a slab", "--threads", "2", "--epochs", "16", "--slots", "64"
            ),
        ),
        bars=(
            Bar("rate", 0.6, limits=("limit, 2 threads",)),
            Bar("rate", 1.5, groups=("torch",)),
            Bar("cpu", 1.6, limits=("limit, 2 threads",)),
        ),
    ),
    Workload(
        name="files-cold",
        title="110 KB files, bytes only, batch 64, shuffled, guest-cold",
        unit="files",
        per=1_000,
        data=prepare.files_tree,
        job={"batch": 64},
        contestants=(*FILES, *each("torch", "torch_loaders.files", (4,))),
        limits=COLD_LIMITS,
        bars=(
            Bar("rate", 0.85, limits=tuple(limit.name for limit in COLD_LIMITS)),
            Bar("rate", 2.0, groups=("torch",)),
        ),
        cold=True,
    ),
    Workload(
        name="rows-in-memory",
        title="1 M rows of 64 float32 + label in memory, batch 4,096, shuffled",
        unit="rows",
        per=1_000_000,
        data=prepare.nothing,
        job={"batch": 4096, "rows": 1_000_000, "shape": (64,)},
        contestants=(
            *each("torch TensorDataset", "torch_loaders.memory_rows", (0,)),
            *each("torch TensorDataset", "torch_loaders.memory_rows", (2,), default=False),
            *each("torch BatchSampler", "torch_loaders.memory_batches", (0, 2)),
            *each("torch randperm loop, no loader", "torch_loaders.memory_loop", (0,)),
            Contestant("headpond", "headpond_loaders.memory", group="headpond"),
        ),
        limits=(Limit("limit, gather", "limit_gather", ("--epochs", "8")),),
        bars=(Bar("rate", 0.7, limits=("limit, gather",)),),
        needs_pictures=False,
        touch=False,
        fault_bar=0,
    ),
    Workload(
        name="records",
        title="150,528-byte records of a warm file, batch 64, shuffled",
        unit="records",
        per=1_000,
        data=prepare.records,
        job={"batch": 64, "shape": (224, 224, 3)},
        contestants=(
            *each("torch memmap", "torch_loaders.records", (0, 1, 2)),
            *each("torch memmap, whole batches", "torch_loaders.record_batches", (0,)),
            Contestant("headpond", "headpond_loaders.records", group="headpond"),
        ),
        limits=(
            Limit("limit, 1 thread", "limit_records", ("--file", "{path}", "--epochs", "8")),
            Limit(
                "limit, 2 threads",
                "limit_records",
                ("--file", "{path}", "--threads", "2", "--epochs", "16"),
            ),
        ),
        bars=(
            Bar("rate", 0.7, limits=("limit, 2 threads",)),
            Bar("rate", 4.0, groups=("torch",)),
        ),
        needs_pictures=False,
        fault_bar=0,
    ),
    Workload(
        name="tokens",
        title="500 M uint16 tokens on disk, 8 windows of 2,049 as int64, shuffled, warm",
        unit="windows",
        per=1_000_000,
        data=prepare.tokens,
        job={"batch": 8, "shape": (2049,), "stride": 2048},
        contestants=(
            *each("torch memmap", "torch_loaders.tokens", (0,)),
            *each("torch memmap", "torch_loaders.tokens", (2,), default=False),
            *each("torch memmap, whole batches", "torch_loaders.token_batches", (0,)),
            *each("torch memmap, loop without loader", "torch_loaders.token_loop", (0,)),
            Contestant("headpond", "headpond_loaders.tokens", group="headpond"),
        ),
        limits=(Limit("limit, gather", "limit_tokens", ("--file", "{path}", "--epochs", "2")),),
        bars=(
            Bar("rate", 0.7, limits=("limit, gather",)),
            Bar("rate", 1.3, groups=("torch",)),
        ),
        needs_pictures=False,
        touch=False,
    ),
    Workload(
        name="tar-warm",
        title="local tar shards, bytes only, batch 64, shuffled, warm",
        unit="samples",
        per=1_000,
        data=prepare.shards,
        job={"batch": 64},
        contestants=TAR,
        limits=(),
        bars=(Bar("rate", 3.0, groups=("peer",)),),
    ),
    Workload(
        name="tar-cold",
        title="local tar shards, bytes only, batch 64, window shuffle, guest-cold",
        unit="samples",
        per=1_000,
        data=prepare.shards,
        job={"batch": 64, "window": 500},
        contestants=TAR,
        limits=(Limit("limit, 1 MiB O_DIRECT, depth 8", "limit_ring", FIO),),
        bars=(Bar("rate", 0.85, limits=("limit, 1 MiB O_DIRECT, depth 8",)),),
        cold=True,
        stream_limit="limit, 1 MiB O_DIRECT, depth 8",
    ),
)


def by_name(name: str) -> Workload:
    return next(w for w in WORKLOADS if w.name == name)
