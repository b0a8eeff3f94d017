"""Runs contestants and limit programs in interleaved rounds, each in a fresh process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from job import Job
from prepare import evict, read_through
from workloads import Contestant, Limit, Workload

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Options:
    work: Path
    data: Path | None
    programs: Path  # the folder of the limit programs
    rounds: int
    budget_s: float
    seconds: float | None
    wanted: str | None  # a regular expression over titles
    everything: bool
    min_cores: float


def run_child(spec: dict[str, Any], timeout_s: float = 300) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "child.py"), json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        return {"error": (done.stderr or done.stdout).strip().splitlines()[-1:] or ["?"]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_program(options: Options, name: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    program = options.programs / name
    if not program.exists():
        return {"error": [f"{name} is not built"]}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300)
    if done.returncode:
        return {"error": (done.stderr or done.stdout).strip().splitlines()[-1:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def cores(options: Options) -> float:
    """How many cores two spinning threads get right now."""
    return float(run_program(options, "limit_cores", ()).get("cores", 0))


def chosen(workload: Workload, options: Options) -> list[Contestant | Limit]:
    everyone = [*workload.limits, *workload.contestants]
    return [
        c
        for c in everyone
        if (c.default or options.everything)
        and (not options.wanted or re.search(options.wanted, c.title))
    ]


def spec_of(workload: Workload, contestant: Contestant, path: Path, options: Options) -> Any:
    module, function = contestant.function.split(".")
    job = Job(path=str(path), **{**workload.job, "workers": contestant.workers})
    return {
        "module": module,
        "function": function,
        "job": asdict(job),
        "seconds": options.seconds or workload.seconds,
        "longest": workload.longest,
        "touch": workload.touch,
        "cold": str(path) if workload.cold else None,
    }


def run_one(
    workload: Workload, contestant: Contestant | Limit, path: Path, options: Options
) -> dict[str, Any]:
    if isinstance(contestant, Contestant):
        result = run_child(spec_of(workload, contestant, path, options))
    else:
        if workload.cold:
            evict(path)
        arguments = tuple(a.format(path=path) for a in contestant.arguments)
        result = run_program(options, contestant.program, arguments)
        if "error" not in result:
            result["samples"] = result["items"]
    return {"title": contestant.title, "group": contestant.group, **result}


def one_round(
    workload: Workload,
    contestants: list[Contestant | Limit],
    number: int,
    path: Path,
    options: Options,
) -> dict[str, Any]:
    """Everybody once; who comes first moves on from round to round."""
    before = cores(options)
    first = number % len(contestants)
    order = contestants[first:] + contestants[:first]
    runs = [run_one(workload, contestant, path, options) for contestant in order]
    after = cores(options)
    print(
        f"{workload.name}: round {number + 1}, {before:.2f} cores before, {after:.2f} after",
        file=sys.stderr,
    )
    return {"cores": [before, after], "runs": runs, "at": time.time()}


def run_workload(workload: Workload, options: Options) -> dict[str, Any]:
    """All rounds of a workload.

    A round in which two spinning threads did not get `min_cores` cores, before or after, does not
    count for wall figures and is repeated while the budget lasts; all are kept.
    """
    if workload.needs_pictures and options.data is None:
        raise SystemExit(f"{workload.name} needs --data, a folder of JPEGs")
    options.work.mkdir(parents=True, exist_ok=True)
    path = workload.data(options.work, options.data or Path())
    if not workload.cold and path != options.work:
        read_through(path)
    contestants = chosen(workload, options)
    rounds: list[dict[str, Any]] = []
    started = time.monotonic()
    longest = 0.0
    while True:
        begin = time.monotonic()
        rounds.append(one_round(workload, contestants, len(rounds), path, options))
        longest = max(longest, time.monotonic() - begin)
        good = sum(min(r["cores"]) >= options.min_cores for r in rounds)
        if good >= options.rounds or time.monotonic() - started + longest > options.budget_s:
            break
    if workload.stream_limit:
        name_samples(rounds, workload.stream_limit, path)
    return {
        "workload": workload.name,
        "title": workload.title,
        "unit": workload.unit,
        "per": workload.per,
        "min_cores": options.min_cores,
        "rounds": rounds,
    }


def name_samples(rounds: list[dict[str, Any]], title: str, path: Path) -> None:
    """A limit that streams the shards' bytes counts blocks: give it the samples they hold."""
    samples = 0
    for shard in path.glob("*.tar"):
        with tarfile.open(shard) as tar:
            samples += sum(name.endswith(".jpg") for name in tar.getnames())
    for r in rounds:
        for run in r["runs"]:
            if run["title"] == title:
                run["samples"] = samples


def verify_workload(workload: Workload, options: Options) -> dict[str, Any]:
    """Every contestant's epoch holds the same samples."""
    path = workload.data(options.work, options.data or Path())
    found = {}
    for contestant in chosen(workload, options):
        if isinstance(contestant, Contestant):
            spec = spec_of(workload, contestant, path, options) | {"verify": True, "cold": None}
            found[contestant.title] = run_child(spec)
    return found


def stamp() -> dict[str, Any]:
    """What the figures were measured on and with."""
    cpu = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = int(Path("/proc/meminfo").read_text().split()[1])
    git = ["git", "-C", str(HERE)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    return {
        "cpu": cpu[0] if cpu else os.uname().machine,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / (1 << 20), 1),
        "kernel": os.uname().release,
        "python": sys.version.split()[0],
        "versions": versions(),
        "commit": commit.stdout.strip() + ("+" if changed.stdout.strip() else ""),
        "command": " ".join(["run.py", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "load": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    from importlib import metadata

    names = ("headpond", "torch", "numpy", "pillow", "opencv-python-headless", "simplejpeg", "spdl")
    found = {}
    for name in (*names, "webdataset"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
