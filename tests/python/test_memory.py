"""Memory over many epochs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Resident bytes, after some epochs: without the large file, then with it.
ONE_GIANT = """
import gc, os, sys
import headpond as hp

def epochs(pattern, count):
    files = hp.from_files(sys.argv[1], pattern=pattern, label=None)
    loader = files.shuffle(seed=3).batch(32).loader()
    seen = 0
    for _ in range(count):
        for batch in loader:
            seen += len(batch["data"])
    del batch
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[1])
    return seen // count, pages * os.sysconf("SC_PAGESIZE"), loader

small, base, before = epochs("small-*", 3)
with_giant, after, loader = epochs("*", 30)
print(small, with_giant, after - base)
"""


def test_a_rare_giant_record_keeps_no_more_than_is_in_flight_at_once(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"small-{number:04}").write_bytes(bytes([number % 251]) * 10240)
    giant = tmp_path / "giant"
    giant.touch()
    os.truncate(giant, 64 << 20)
    ran = subprocess.run(
        [sys.executable, "-c", ONE_GIANT, tmp_path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    small, with_giant, growth = map(int, ran.stdout.split())
    assert (small, with_giant) == (1000, 1001)
    # Of this epoch and of the next one, an eighth of each for rounding.
    assert growth < 3 * (64 << 20), "memory of two such batches at most"
