"""Measures headpond, its peers and the machine's limits on the same data.

    python benchmarks/end_to_end/run.py --workload jpeg-train --data FOLDER --rounds 3

Prints tables; --json keeps every run, --svg draws them. See benchmarks/README.md for the method.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import remote
import report
import runner
import special
from workloads import WORKLOADS, by_name

SINGLE = special.SPECIAL | remote.REMOTE
ROOT = Path(__file__).resolve().parents[2]


def parse() -> argparse.Namespace:
    names = [w.name for w in WORKLOADS] + list(SINGLE)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workload", action="append", choices=names, help="default: all")
    parser.add_argument("--data", type=Path, help="a folder of JPEGs")
    work = Path(tempfile.gettempdir()) / "headpond-bench"
    parser.add_argument("--work", type=Path, default=work, help="for generated data, about 1.9 GB")
    programs = ROOT / "build" / "release" / "benchmarks"
    parser.add_argument(
        "--programs", type=Path, default=programs, help="where the limits are built"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=300, help="seconds a workload, all rounds")
    parser.add_argument("--seconds", type=float, help="at least this long a measurement")
    parser.add_argument("--only", help="contestants whose title matches this expression")
    parser.add_argument("--all", action="store_true", help="the rarely useful contestants too")
    parser.add_argument("--min-cores", type=float, default=1.8, help="0: every round counts")
    parser.add_argument(
        "--verify", action="store_true", help="compare the samples, measure nothing"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    # What one round fetched is not to help the next; the workload of the cache asks for one.
    os.environ["HEADPOND_CACHE_SIZE"] = "0"
    options = runner.Options(
        work=arguments.work,
        data=arguments.data,
        programs=arguments.programs,
        rounds=arguments.rounds,
        budget_s=arguments.budget,
        seconds=arguments.seconds,
        wanted=arguments.only,
        everything=arguments.all,
        min_cores=arguments.min_cores,
    )
    wanted = arguments.workload or [w.name for w in WORKLOADS] + list(SINGLE)
    if arguments.verify:
        return verify([n for n in wanted if n not in SINGLE], options)
    stamp = runner.stamp()
    print(f"{stamp['cpus']} x {stamp['cpu']}, {stamp['memory_gib']} GiB, Linux {stamp['kernel']}, "
          f"Python {stamp['python']}, commit {stamp['commit']}, {stamp['date']}")  # fmt: skip
    results: list[dict[str, Any]] = []
    for name in wanted:
        if name in SINGLE:
            result = SINGLE[name](options)
            print(f"\n## {result['title']}\n\n{result['table']}")
            bars = result["bars"]
        else:
            workload = by_name(name)
            result = runner.run_workload(workload, options)
            bars = report.bar_rows(workload, result)
            print(
                f"\n## {result['title']}\n\n{report.table(result)}\n\n{report.rounds_line(result)}"
            )
        print(f"\n{report.bars_table(bars)}", flush=True)
        results.append(result | {"bars": bars})
        if arguments.json:
            arguments.json.write_text(json.dumps({"stamp": stamp, "results": results}, indent=1))
    if arguments.svg:
        arguments.svg.write_text(report.chart([r for r in results if "rounds" in r]))
    return 0


def verify(names: list[str], options: runner.Options) -> int:
    different = 0
    for name in names:
        found = runner.verify_workload(by_name(name), options)
        agree = len({json.dumps(f, sort_keys=True) for f in found.values()}) <= 1
        different += not agree
        print(f"{name}: {'the same samples' if agree else 'DIFFERENT'}")
        for title, value in found.items():
            print(f"  {title}: {value}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
