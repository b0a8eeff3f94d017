"""Measurements that are not a loop over batches: `special_child.py SPEC`, one line of JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
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


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    answer = {"start": start, "train": train, "import": imports}[asked["what"]](asked)
    print(json.dumps(answer), flush=True)
    # Prefetch threads and worker processes of a loader that is broken off need no farewell here.
    os._exit(0)
