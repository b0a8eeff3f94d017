"""The workloads that are not a loop over batches: start, accelerator, import."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import prepare
from job import Job
from runner import HERE, Options
from special_child import spinning

Row = dict[str, Any]


def child(spec: Row) -> Row:
    command = [sys.executable, str(HERE / "special_child.py"), json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"error": (done.stderr or done.stdout).strip().splitlines()[-1:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def bar(text: str, value: float, met: bool) -> Row:
    return {"bar": text, "against": "", "median": value, "met": met}


def milliseconds(values: list[float]) -> str:
    return (
        f"{statistics.median(values) * 1e3:.2f} ({min(values) * 1e3:.2f}-{max(values) * 1e3:.2f})"
    )


# --- start: loader() to the first batch, and resuming in the middle ------------------------------

ROWS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
TORCH_ROWS = 10_000_000  # at 1e8 it takes 4 GB and 8 s: the growth is clear before


def start(options: Options) -> Row:
    options.work.mkdir(parents=True, exist_ok=True)
    contestants = [
        ("headpond", "headpond_loaders", "sparse", False),
        ("headpond, resumed in the middle", "headpond_loaders", "sparse", True),
        ("torch memmap w0", "torch_loaders", "records", False),
    ]
    runs: list[Row] = []
    began = time.monotonic()
    for round_ in range(options.rounds):
        for n in ROWS:
            path = prepare.sparse(options.work, n)
            job = Job(path=str(path), batch=256, shape=(prepare.SPARSE_ROW_BYTES,))
            for title, module, function, resume in contestants:
                if module == "torch_loaders" and n > TORCH_ROWS:
                    continue
                spec = {"what": "start", "module": module, "function": function,
                        "resume": resume, "job": asdict(job)}  # fmt: skip
                runs.append({"title": title, "n": n, "round": round_, **child(spec)})
        spent = time.monotonic() - began
        if spent + spent / (round_ + 1) > options.budget_s:
            break

    def values(title: str, n: int, what: str) -> list[float]:
        return [r[what] for r in runs if r["title"] == title and r["n"] == n and what in r]

    lines = [
        "| contestant | N | first batch ms | CPU ms | anonymous memory KiB |",
        "|---|---|---|---|---|",
    ]
    for title, *_ in contestants:
        for n in ROWS:
            if firsts := values(title, n, "first_s"):
                cpu = statistics.median(values(title, n, "cpu_s")) * 1e3
                memory = statistics.median(values(title, n, "resident_bytes")) / 1024
                lines.append(
                    f"| {title} | {n:.0e} | {milliseconds(firsts)} | {cpu:.2f} | {memory:,.0f} |"
                )
    bars = []
    for title, *_ in contestants[:2]:
        small, large = values(title, ROWS[0], "first_s"), values(title, ROWS[-1], "first_s")
        if not small or not large:
            errors = {" ".join(r["error"]) for r in runs if r["title"] == title and "error" in r}
            lines.append(f"\n{title}: failed: {'; '.join(errors)}")
            continue
        growth = statistics.median(large) / statistics.median(small)
        slowest = max(statistics.median(values(title, n, "first_s")) for n in ROWS) * 1e3
        memory = [
            statistics.median(values(title, n, "resident_bytes")) for n in (ROWS[0], ROWS[-1])
        ]
        per_sample = (memory[1] - memory[0]) / (ROWS[-1] - ROWS[0])
        bars += [
            bar(f"{title}: time at 1e8 / at 1e4 <= 1.3", growth, growth <= 1.3),
            bar(f"{title}: slowest <= 20 ms", slowest, slowest <= 20),
            bar(f"{title}: bytes a sample = 0", per_sample, per_sample < 0.01),
        ]
    title = "loader() to first batch, N = 1e4 ... 1e8 records (sparse file)"
    return {
        "workload": "start",
        "title": title,
        "runs": runs,
        "table": "\n".join(lines),
        "bars": bars,
    }


# --- accelerator: emulated by a sleep or a spin --------------------------------------------------

STEP_S = 0.02
ROWS_PER_ACCELERATOR = 4  # a step: 200 records/s for one accelerator
RECORD = (224, 224, 3)


def train_spec(options: Options, module: str, function: str, accelerators: int, **more: Any) -> Row:
    job = Job(
        path=str(prepare.records(options.work, options.work)),
        batch=accelerators * ROWS_PER_ACCELERATOR,
        workers=more.pop("workers", 0),
        shape=RECORD,
    )
    return {"what": "train", "module": module, "function": function, "job": asdict(job),
            "step_s": STEP_S, "turns": 0, "steps": 60, "warm_up": 6, **more}  # fmt: skip


def utilisation(run: Row) -> float:
    return run["computed_s"] / run["wall_s"] if "wall_s" in run else 0.0


def most_accelerators(options: Options, workers: int) -> int:
    """The most accelerators that torch keeps at 90 %, by doubling and halving."""

    def feeds(count: int) -> bool:
        spec = train_spec(options, "torch_loaders", "records", count, workers=workers)
        return utilisation(child(spec)) >= 0.9

    low = 0
    high = 1
    while high <= 512 and feeds(high):
        low, high = high, high * 2
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (middle, high) if feeds(middle) else (low, middle)
    return low


def turns_of_a_step() -> int:
    """So many turns of the spinning trainer take about a step; by CPU time, as others may run."""
    turns = 1_000_000
    spin = spinning(turns)
    begin = time.process_time()
    spin()
    return int(STEP_S / (time.process_time() - begin) * turns)


def accelerator(options: Options) -> Row:
    options.work.mkdir(parents=True, exist_ok=True)
    prepare.read_through(prepare.records(options.work, options.work))
    fed = {workers: most_accelerators(options, workers) for workers in (0, 1, 2)}
    double = max(1, 2 * max(fed.values()))
    turns = turns_of_a_step()
    runs: list[Row] = []
    for round_ in range(options.rounds):
        for variant, spin in (("sleep", 0), ("spin", turns)):
            for title, module in (("ready in memory", ""), ("headpond", "headpond_loaders")):
                spec = train_spec(options, module, "records", double, turns=spin)
                runs.append({"title": title, "variant": variant, "round": round_, **child(spec)})

    def values(title: str, variant: str, what: str) -> list[float]:
        return [
            r[what] for r in runs if (r["title"], r["variant"]) == (title, variant) and what in r
        ]

    lines = [
        "Most accelerators (200 records/s each) that torch keeps at 90 %: "
        + ", ".join(f"{workers} workers {count}" for workers, count in fed.items())
        + f". Below: {double} of them, batches of {double * ROWS_PER_ACCELERATOR} records.",
        "",
        "| accelerator | batches from | step ms | waited, share | CPU s a step | faults a step |",
        "|---|---|---|---|---|---|",
    ]
    for variant in ("sleep", "spin"):
        for title in ("ready in memory", "headpond"):
            found = [r for r in runs if (r["title"], r["variant"]) == (title, variant)]
            good = [r for r in found if "error" not in r]
            if not good:
                lines.append(
                    f"| {variant} | {title} | failed: {' '.join(found[0]['error'])} | | | |"
                )
                continue
            waited = statistics.median(r["waited_s"] / r["wall_s"] for r in good)
            cpu = statistics.median(r["cpu_s"] / r["steps"] for r in good)
            faults = statistics.median(r["minor_faults"] / r["steps"] for r in good)
            step = milliseconds([r["step_s"] for r in good])
            lines.append(
                f"| {variant} | {title} | {step} | {waited:.4f} | {cpu:.4f} | {faults:.1f} |"
            )
    bars = []
    memory, ours = (
        values("ready in memory", "sleep", "wall_s"),
        values("headpond", "sleep", "wall_s"),
    )
    if memory and ours:
        share = statistics.median(m / o for m, o in zip(memory, ours, strict=True))
        bars.append(bar("utilisation >= 0.99 of ready in memory (sleep)", share, share >= 0.99))
    memory = values("ready in memory", "spin", "computed_s")
    ours = values("headpond", "spin", "computed_s")
    if memory and ours:
        slower = statistics.median(o / m for m, o in zip(memory, ours, strict=True))
        bars.append(bar("spinning trainer's step <= 1.05x", slower, slower <= 1.05))
    return {
        "workload": "accelerator",
        "title": "emulated accelerator on 150,528-byte records",
        "accelerators": fed,
        "runs": runs,
        "table": "\n".join(lines),
        "bars": bars,
    }


# --- import --------------------------------------------------------------------------------------


def imports(options: Options) -> Row:
    """What `import headpond` adds to `import numpy`; the files are in the page cache."""
    runs = [child({"what": "import"}) for _ in range(max(3, options.rounds) + 1)][1:]
    good = [r for r in runs if "error" not in r]
    title = "import headpond after import numpy"
    if not good:
        table = f"failed: {' '.join(runs[0]['error'])}"
        return {"workload": "import", "title": title, "runs": runs, "table": table, "bars": []}
    # The parts that are imported when they are first named count as well.
    added = [r["import_s"] + r["first_name_s"] for r in good]
    threads = max(r["threads"] for r in good)
    torch = any(r["torch"] for r in good)
    middle = statistics.median(added) * 1e3
    cpu = milliseconds([r["cpu_s"] for r in good])
    table = f"{milliseconds(added)} ms, CPU {cpu} ms; "
    table += f"torch imported: {torch}; threads started: {threads}"
    bars = [
        bar("adds < 50 ms", middle, middle < 50),
        bar("imports no torch", float(torch), not torch),
        bar("starts no thread", float(threads), threads == 0),
    ]
    return {"workload": "import", "title": title, "runs": runs, "table": table, "bars": bars}


SPECIAL: dict[str, Callable[[Options], Row]] = {
    "start": start,
    "accelerator": accelerator,
    "import": imports,
}
