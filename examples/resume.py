"""Stop in the middle of an epoch, go on in new processes with another number of ranks.

    python examples/resume.py

Two ranks read a few batches each and stop; three new ones load the state and read the rest. The
program checks that every record was seen exactly once and that both ranks wrote the same state.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import headpond as hp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_007, help="records in the file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # makes this process a rank
    args = parser.parse_args()
    if args.worker:
        read(json.loads(args.worker))
        return

    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records.bin"
        np.arange(args.count, dtype=np.int64).tofile(records)  # a record holds its own number

        before = run_ranks(records, world_size=2, batch=64, batches=20)
        states = [rank["state"] for rank in before]
        assert states[0] == states[1], "the state is the same on every rank"
        print(f"2 ranks stopped after {count(before)} of {args.count} records")

        after = run_ranks(records, world_size=3, batch=50, state=states[0])
        print(f"3 ranks read the other {count(after)}")

        seen = sorted(number for rank in before + after for number in rank["seen"])
        assert seen == list(range(args.count)), "every record once"
        print("every record was seen exactly once")


def count(ranks: list[dict]) -> int:
    return sum(len(rank["seen"]) for rank in ranks)


def run_ranks(records: Path, world_size: int, **job) -> list[dict]:
    """One process per rank, all at once; what each saw and its last state."""
    processes = []
    for rank in range(world_size):
        work = json.dumps({"records": str(records), "rank": rank, "world_size": world_size, **job})
        command = [sys.executable, __file__, "--worker", work]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("a rank failed")
    return [json.loads(output) for output in outputs]


def read(job: dict) -> None:
    """A rank: reads its batches and prints the records it saw and where it stands, as JSON."""
    pipe = hp.from_records(job["records"], "int64", ()).shuffle(seed=3).batch(job["batch"])
    seen: list[int] = []
    with pipe.loader(rank=job["rank"], world_size=job["world_size"], uneven="allow") as loader:
        if "state" in job:
            loader.load_state_dict(job["state"])
        state = loader.state_dict()
        for step, batch in enumerate(loader, start=1):
            seen += batch["data"].tolist()
            state = loader.state_dict()
            if step == job.get("batches"):
                break
    print(json.dumps({"seen": seen, "state": state}))


if __name__ == "__main__":
    main()
