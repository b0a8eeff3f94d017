"""``headpond demo``: the main job on made data, without a network, in less than a minute."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headpond.cli import _demo_training as training
from headpond.cli._range_server import RangeServer

if TYPE_CHECKING:
    from headpond.cli.env import Commands

_CLASSES = 10
_SHARDS = 8
_EPOCHS = 2


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    parser = commands.add_parser(
        "demo", help="makes pictures, trains on them, stops, resumes, compares"
    )
    parser.add_argument("--count", type=int, default=2000, help="pictures to make (%(default)s)")
    parser.add_argument("--dir", type=Path, help="where to make and keep them; default: for now")
    parser.add_argument("--json", action="store_true", help="the table for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Makes the data, trains, stops, resumes in a new process, prints the table."""
    if arguments.count < 10 * _CLASSES:
        print(f"headpond: --count must be at least {10 * _CLASSES}", file=sys.stderr)
        return 2
    folder = arguments.dir or Path(tempfile.mkdtemp(prefix="headpond-demo-"))
    try:
        return _Demo(folder, arguments.count, quiet=arguments.json).run()
    finally:
        if arguments.dir is None:
            shutil.rmtree(folder, ignore_errors=True)


class _Demo:
    def __init__(self, folder: Path, count: int, *, quiet: bool) -> None:
        self._folder = folder
        self._count = count
        self._quiet = quiet
        self._began = time.monotonic()

    def _say(self, text: str) -> None:
        out = sys.stderr if self._quiet else sys.stdout
        print(f"[{time.monotonic() - self._began:5.1f} s] {text}", file=out, flush=True)

    def run(self) -> int:
        """Every step; 1 when resuming did not give what it must."""
        self._make_pictures()
        kind = "torch" if training.has_torch() else "numpy"
        self._say(
            f"training with {'torch' if kind == 'torch' else 'NumPy (torch is not installed)'}"
        )
        rows = [self._train(kind)]
        row, exact = self._train_and_resume(kind)
        remote, whole = self._train_over_http(kind)
        rows += [row, remote, *self._compare(kind)]
        if self._quiet:
            result = {"resumed_exactly": exact, "http_exactly": whole, "rows": rows}
            print(json.dumps(result, indent=2))
        else:
            _print_table(rows)
        return 0 if exact and whole else 1

    def _make_pictures(self) -> None:
        from headpond import _core

        shown = [time.monotonic()]

        def progress(done: int, total: int) -> None:
            if time.monotonic() - shown[0] > 2:
                shown[0] = time.monotonic()
                self._say(f"  {done:,} of {total:,}")

        self._say(f"making {self._count:,} pictures of {_CLASSES} classes below {self._folder}")
        threads = len(os.sched_getaffinity(0))
        _core.write_demo_corpus(
            os.fsencode(self._folder), self._count, _CLASSES, _SHARDS, threads, progress
        )
        made = sum(path.stat().st_size for path in self._folder.glob("folder/*/*"))
        self._say(f"  {made / 1e6:.0f} MB, as a class folder and as {_SHARDS} tar shards")

    def _job(self, shards: str, kind: str) -> training.Job:
        return training.Job(str(self._folder), shards, kind, _CLASSES)

    def _train(self, kind: str) -> dict[str, Any]:
        run = training.Run(self._job("", kind))
        with run.loader:
            for epoch in range(_EPOCHS):
                passed = run.epoch(run.loader)
                self._say_losses("folder", epoch, passed)
        return passed.row("headpond, folder")

    def _say_losses(self, source: str, epoch: int, passed: training.Pass) -> None:
        self._say(f"{source}, epoch {epoch}: loss {passed.first_loss:.3f} -> {passed.loss:.3f}")

    def _train_and_resume(self, kind: str) -> tuple[dict[str, Any], bool]:
        """Stops in the middle of the last epoch; a new process does the rest."""
        checkpoint = self._folder / "checkpoint.pickle"
        run = training.Run(self._job(f"{self._folder}/shards/*.tar", kind))
        with run.loader:
            for epoch in range(_EPOCHS - 1):
                passed = run.epoch(run.loader)
                self._say_losses("shards", epoch, passed)
            before = run.epoch(run.loader, steps=len(run.loader) // 2)
            run.save(checkpoint)
        self._say(
            f"shards, epoch {_EPOCHS - 1}: stopped after {len(before.seen):,} pictures,"
            f" loss {before.loss:.3f}; resuming in a new process"
        )
        program = "from headpond.cli._demo_training import resume; resume()"
        command = [sys.executable, "-c", program, str(checkpoint)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        after = json.loads(done.stdout)
        exact = sorted(before.seen + after["seen"]) == list(range(self._count))
        self._say(
            f"resumed: the other {len(after['seen']):,} pictures, loss {after['loss']:.3f}; "
            + ("each was seen exactly once" if exact else "NOT each was seen exactly once")
        )
        return passed.row("headpond, shards"), exact

    def _train_over_http(self, kind: str) -> tuple[dict[str, Any], bool]:
        """The shards once more, from a web server in this process."""
        with RangeServer(self._folder) as server:
            shards = f"{server.url}/shards/demo-{{000000..{_SHARDS - 1:06}}}.tar"
            run = training.Run(self._job(shards, kind))
            with run.loader:
                passed = run.epoch(run.loader)
            self._say_losses(f"shards over HTTP ({server.requests} requests)", 0, passed)
        whole = len(passed.seen) == len(set(passed.seen)) == self._count
        if not whole:
            self._say("NOT each picture was seen exactly once")
        return passed.row("headpond, shards over HTTP"), whole

    def _compare(self, kind: str) -> list[dict[str, Any]]:
        missing = training.missing_for_comparison()
        if missing:
            are = "are" if ", " in missing else "is"
            self._say(f"no comparison with torch's DataLoader: {missing} {are} not installed")
            return []
        rows = []
        for workers in (0, len(os.sched_getaffinity(0))):
            self._say(f"the same with torch's DataLoader and PIL, {workers} workers")
            run = training.Run(self._job("", kind))
            loader = training.torch_loader(self._job("", kind), workers)
            rows.append(run.epoch(loader).row(f"torch DataLoader + PIL, {workers} workers"))
        return rows


def _print_table(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'':36}{'samples/s':>11}{'waited':>9}{'CPU ms/sample':>15}")
    for row in rows:
        print(
            f"{row['loader']:36}{row['samples_per_s']:>11,.0f}"
            f"{row['waited_share']:>9.1%}{row['cpu_ms_per_sample']:>15.2f}"
        )
