"""``headpond bench``: how fast one's own data become batches, beside torch's loader."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headpond.cli._bench_run import Job

if TYPE_CHECKING:
    from headpond.cli.env import Commands

# Not -m: the module is a part of this one's imports already.
_PROGRAM = "import sys; from headpond.cli import _bench_run; sys.exit(_bench_run.main())"


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    parser = commands.add_parser(
        "bench",
        help="measures your own data",
        description="Reads --source for some seconds and prints samples/s and CPU per sample. Each"
        " measurement is a process of its own; with --loader torch the two take turns.",
    )
    parser.add_argument(
        "--source", required=True, help="a folder of files or of tar shards, a glob, braces"
    )
    parser.add_argument(
        "--loader",
        choices=("headpond", "torch"),
        default="headpond",
        help="torch: torch's DataLoader (with PIL) beside headpond",
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2], help="of torch's loader")
    parser.add_argument("--batch", type=int, default=64, help="samples a batch (%(default)s)")
    parser.add_argument(
        "--size", type=int, default=224, help="pictures become random crops of it (%(default)s)"
    )
    parser.add_argument("--bytes", action="store_true", help="decode nothing")
    parser.add_argument("--seconds", type=float, default=3.0, help="a measurement (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="everybody so often (%(default)s)")
    parser.add_argument("--json", action="store_true", help="every measurement, for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures in rounds and prints the table."""
    for name in ("batch", "size", "seconds", "rounds"):
        if getattr(arguments, name) <= 0:
            print(f"headpond: --{name} must be above 0", file=sys.stderr)
            return 2
    runs = []
    for _ in range(arguments.rounds):
        for job in _jobs(arguments):
            measured = _measure(job)
            if measured is None:
                return 1
            runs.append({"loader": job.title, **measured})
    print(json.dumps(runs, indent=2) if arguments.json else _table(runs))
    return 0


def _jobs(arguments: argparse.Namespace) -> list[Job]:
    size = 0 if arguments.bytes else arguments.size
    common = (arguments.source, arguments.batch, size, arguments.seconds)
    jobs = [Job("headpond", 0, *common)]
    if arguments.loader == "torch":
        jobs += [Job("torch", workers, *common) for workers in arguments.workers]
    return jobs


def _measure(job: Job) -> dict[str, Any] | None:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(asdict(job))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return None  # the process has said why
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _table(runs: list[dict[str, Any]]) -> str:
    """One line a loader: median (least to most) over the rounds; ratios within each round."""
    loaders = list(dict.fromkeys(run["loader"] for run in runs))
    lines = [
        f"{'':32}{'samples/s':>28}{'CPU ms/sample':>16}{'first batch ms':>16}{'x headpond':>12}"
    ]
    ours = [run for run in runs if run["loader"] == loaders[0]]
    for loader in loaders:
        mine = [run for run in runs if run["loader"] == loader]
        rates = [run["samples_per_s"] for run in mine]
        ratio = statistics.median(
            a["samples_per_s"] / b["samples_per_s"] for a, b in zip(mine, ours, strict=True)
        )
        spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
        cpu = statistics.median(run["cpu_ms_per_sample"] for run in mine)
        first = statistics.median(run["first_batch_ms"] for run in mine)
        lines.append(f"{loader:32}{spread:>28}{cpu:>16.3f}{first:>16.0f}{ratio:>12.2f}")
    what = runs[0]
    kind = f'"{what["field"]}" decoded' if what["decoded"] else f'"{what["field"]}" as bytes'
    lines.append(f"{what['samples']:,} samples, {kind}, {what['mean_bytes']:,.0f} bytes on average")
    return "\n".join(lines)
