"""Measurements that are not a loop over batches: `special_child.py SPEC`, one line of JSON."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from job import Job
from meter import resident_bytes, usage


def start(spec: dict[str, Any]) -> dict[str, Any]:
    """loader() to first batch, and the same when resuming in the middle."""
    contestant = importlib.import_module(spec["module"])
    job = Job(**{**spec["job"], "shape": tuple(spec["job"]["shape"])})
    if job.path:
        os.stat(job.path)
    memory = resident_bytes()
    begin = usage()
    loader = getattr(contestant, spec["function"])(job)
    if spec.get("resume"):
        resume = importlib.import_module(spec["module"])
        resume.resume_in_the_middle(loader, job)
    next(iter(loader))
    spent = usage().since(begin)
    return {
        "first_s": spent.wall_s,
        "cpu_s": spent.cpu_s,
        "resident_bytes": resident_bytes() - memory,
    }


def sleeping(step_s: float) -> Callable[[], None]:
    return lambda: time.sleep(step_s)


def spinning(turns: int) -> Callable[[], None]:
    """A fixed amount of work that holds the GIL, as a trainer's Python does."""

    def spin() -> None:
        x = 0
        for i in range(turns):
            x ^= i

    return spin


def ready(rows: int, record: int) -> Iterator[Any]:
    return cycle([np.ones((rows, record), np.uint8) for _ in range(2)])


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def train(spec: dict[str, Any]) -> dict[str, Any]:
    """A trainer whose accelerator is a sleep or a spin; the first step is left out."""
    job = Job(**{**spec["job"], "shape": tuple(spec["job"]["shape"])})
    if spec["module"]:
        adapter = getattr(importlib.import_module(spec["module"]), spec["function"])
        batches = endless(adapter(job))
    else:
        batches = ready(job.batch, int(np.prod(job.shape)))
    compute = spinning(spec["turns"]) if spec["turns"] else sleeping(spec["step_s"])
    for _ in range(spec["warm_up"]):
        next(batches)
        compute()
    computed = waited = 0.0
    steps: list[float] = []
    begin = usage()
    for _ in range(spec["steps"]):
        asked = time.perf_counter()
        next(batches)
        got = time.perf_counter()
        compute()
        end = time.perf_counter()
        waited += got - asked
        computed += end - got
        steps.append(end - got)
    spent = usage().since(begin)
    sys.stdout.flush()
    return {
        "wall_s": spent.wall_s,
        "cpu_s": spent.cpu_s,
        "minor_faults": spent.minor_faults,
        "waited_s": waited,
        "computed_s": computed,
        "step_s": sorted(steps)[len(steps) // 2],
        "steps": spec["steps"],
    }


def imports(spec: dict[str, Any]) -> dict[str, Any]:
    threads = set(os.listdir("/proc/self/task"))
    cpu = time.process_time()
    begin = time.perf_counter()
    importlib.import_module("headpond")
    import_s = time.perf_counter() - begin
    headpond = sys.modules["headpond"]
    first_name = time.perf_counter()
    _ = headpond.from_files, headpond.Loader
    return {
        "import_s": import_s,
        "first_name_s": time.perf_counter() - first_name,
        "cpu_s": time.process_time() - cpu,
        "torch": "torch" in sys.modules,
        "threads": len(set(os.listdir("/proc/self/task")) - threads),
    }


def peak_resident() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def late(spec: dict[str, Any]) -> dict[str, Any]:
    """The first epoch over shards that nobody has indexed."""
    import headpond as hp

    with tempfile.TemporaryDirectory() as folder:
        hp.configure(memory=spec["memory"], cache_dir=folder)
        hp.info()
        before = resident_bytes()
        begin = time.perf_counter()
        dataset = hp.from_webdataset(spec["urls"])
        pipe = dataset.shuffle(seed=1, mode="window", window=spec["window"]).batch(16)
        samples, first_s = 0, 0.0
        with pipe.loader() as loader:
            for batch in loader:
                first_s = first_s or time.perf_counter() - begin
                samples += len(next(iter(batch.values())))
        return {"first_s": first_s, "samples": samples, "peak_bytes": peak_resident() - before}


def stream(spec: dict[str, Any]) -> dict[str, Any]:
    """The time that these objects take by ranges, 16 in flight."""
    import headpond as hp

    begin = time.perf_counter()
    ranges = []
    for url in spec["urls"]:
        size = hp.stat(url).size
        step = 4 << 20
        ranges += [(url, at, min(at + step, size)) for at in range(0, size, step)]
    hp.read_many(ranges)
    return {"stream_s": time.perf_counter() - begin}


def latency(spec: dict[str, Any]) -> dict[str, Any]:
    import headpond as hp

    hp.configure(connections=spec["connections"])
    pipe = hp.from_files(spec["urls"], label=None).shuffle(seed=1).batch(32)
    with pipe.loader() as loader:
        batches = iter(loader)
        next(batches)
        begin, samples = time.perf_counter(), 0
        for batch in batches:
            samples += len(batch["data"])
        return {"rate": samples / (time.perf_counter() - begin)}


def closing(spec: dict[str, Any]) -> dict[str, Any]:
    """Loaders that are closed while their records do not come."""
    import headpond as hp

    def counts() -> list[int]:
        return [len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))]

    def take(batches: Iterator[Any]) -> None:
        with contextlib.suppress(hp.Error):
            next(batches)

    pipe = hp.from_records(spec["urls"], "uint8", (1 << 16,)).shuffle(seed=1).batch(64)
    close_s: list[float] = []
    before, memory = counts(), 0
    for turn in range(spec["times"]):
        engine = hp.Engine()
        loader = pipe.loader(engine=engine)
        taker = threading.Thread(target=take, args=(iter(loader),))
        taker.start()
        while not engine.info()["http"]["requests"]:
            time.sleep(0.001)
        begin = time.perf_counter()
        loader.close()
        engine.close()
        close_s.append(time.perf_counter() - begin)
        taker.join()
        del loader, engine, taker
        if turn == 9:
            gc.collect()
            before, memory = counts(), resident_bytes()
    gc.collect()
    return {"close_s": close_s, "before": before, "after": counts(),
            "growth_bytes": resident_bytes() - memory}  # fmt: skip


def jpeg(spec: dict[str, Any]) -> dict[str, Any]:
    import headpond as hp

    pipe = (
        hp.from_webdataset(spec["source"])
        .shuffle(seed=1, mode="window", window=500)
        .image("jpg", size=224, crop="random_resized", flip=True)
        .batch(64)
    )
    with pipe.loader() as loader:
        for _ in loader:
            pass
        begin, images = usage(), 0
        for _ in range(2):
            for batch in loader:
                images += len(batch["jpg"])
        spent = usage().since(begin)
    return {"rate": images / spent.wall_s, "cpu_ms": spent.cpu_s / images * 1e3}


def cached(spec: dict[str, Any]) -> dict[str, Any]:
    """Epochs one by one: seconds, CPU, and what the origin was asked for."""
    import headpond as hp

    engine = hp.Engine(cache_dir=spec["folder"], cache_size=spec["size"])
    pipe = hp.from_webdataset(spec["source"]).shuffle(seed=1, mode="window", window=500).batch(64)
    epochs = []
    with pipe.loader(engine=engine) as loader:
        for _ in range(spec["epochs"]):
            before, begin, samples = engine.info()["http"], usage(), 0
            for batch in loader:
                samples += len(batch["jpg"])
            spent, now = usage().since(begin), engine.info()["http"]
            epochs.append(
                {
                    "wall_s": spent.wall_s,
                    "cpu_s": spent.cpu_s,
                    "samples": samples,
                    "requests": now["requests"] - before["requests"],
                    "origin_bytes": now["bytes"] - before["bytes"],
                }
            )
    engine.close()
    return {"epochs": epochs}


MEASUREMENTS = {
    "start": start,
    "train": train,
    "import": imports,
    "late": late,
    "stream": stream,
    "latency": latency,
    "closing": closing,
    "jpeg": jpeg,
    "cached": cached,
}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    answer = MEASUREMENTS[asked["what"]](asked)
    print(json.dumps(answer), flush=True)
    # Prefetch threads and worker processes of a loader that is broken off need no farewell here.
    os._exit(0)
