"""One measurement in a process of its own: `child.py SPEC`, one line of JSON as the answer."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from job import Job, arrays, rows, touch
from meter import Usage, usage
from prepare import evict


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    module = importlib.import_module(spec["module"])
    import_s = time.perf_counter() - start

    job = Job(**{k: tuple(v) if isinstance(v, list) else v for k, v in spec["job"].items()})
    built = time.perf_counter()
    loader = getattr(module, spec["function"])(job)
    if spec.get("verify"):
        return verify(loader)
    result: dict[str, Any] = {"import_s": import_s, "build_s": time.perf_counter() - built}
    cold = spec.get("cold")
    if cold:
        result["evicted"] = evict(Path(cold))
    warm_up = consume(loader, spec, epochs=1)
    result["first_batch_s"] = warm_up["first_s"] + result["build_s"]
    if cold:
        evict(Path(cold))
    return result | consume(loader, spec, epochs=1 if cold else None)


def consume(
    loader: Iterable[Any], spec: dict[str, Any], epochs: int | None = None
) -> dict[str, Any]:
    """Runs whole epochs for at least `seconds`; at `longest` seconds it breaks off.

    Whole epochs, because the batches that are being made at the end would otherwise count as work
    without yielding anything.
    """
    look = touch if spec.get("touch") else None
    samples = batches = done = 0
    first_s = 0.0
    stop_at = spec["longest"]
    usage()  # what it allocates is not the loader's
    start = usage()
    begin = start.wall_s
    while True:
        for batch in loader:
            if not batches:
                first_s = time.perf_counter() - begin
            if look is not None:
                look(batch)
            batches += 1
            samples += rows(batch)
            if time.perf_counter() - begin > stop_at:
                break
        else:
            done += 1
        spent = time.perf_counter() - begin
        if spent > stop_at or (done >= epochs if epochs else spent >= spec["seconds"]):
            break
    return report(usage().since(start), samples, batches, done, first_s)


def report(spent: Usage, samples: int, batches: int, epochs: int, first_s: float) -> dict[str, Any]:
    return {
        "samples": samples,
        "batches": batches,
        "epochs": epochs,
        "first_s": first_s,
        "wall_s": spent.wall_s,
        "cpu_s": spent.cpu_s,
        "minor_faults": spent.minor_faults,
        "switches": spent.switches,
        "threads": threading.active_count(),
    }


def verify(loader: Iterable[Any]) -> dict[str, Any]:
    """One epoch's samples and a digest of their first field that no order changes."""
    samples = digest = 0
    for batch in loader:
        field = arrays(batch)[0]
        for i in range(len(field)):
            item = field[i]
            if hasattr(item, "numpy"):
                item = item.numpy()
            digest += zlib.crc32(item if isinstance(item, bytes) else memoryview(item).cast("B"))
            samples += 1
    return {"samples": samples, "digest": digest % (1 << 64)}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))), flush=True)
