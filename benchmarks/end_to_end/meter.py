"""Wall, CPU, faults and context switches of this process and of everything it started."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    wall_s: float
    cpu_s: float
    minor_faults: int
    switches: int

    def since(self, start: Usage) -> Usage:
        return Usage(
            self.wall_s - start.wall_s,
            self.cpu_s - start.cpu_s,
            self.minor_faults - start.minor_faults,
            self.switches - start.switches,
        )


def usage() -> Usage:
    """Running totals: RUSAGE_SELF, RUSAGE_CHILDREN, and the children that still live.

    A child leaves the last sum when it enters the second, so differences are right while
    workers come and go. Living children count in ticks of 10 ms.
    """
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    faults = own.ru_minflt + ended.ru_minflt
    switches = own.ru_nvcsw + own.ru_nivcsw + ended.ru_nvcsw + ended.ru_nivcsw
    for pid in descendants(os.getpid()):
        more = living(pid)
        cpu += more[0]
        faults += more[1]
        switches += more[2]
    return Usage(time.perf_counter(), cpu, faults, switches)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = [int(child) for child in (task / "children").read_text().split()]
        except OSError:  # the thread has just ended
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def living(pid: int) -> tuple[float, int, int]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        switches = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if "ctxt_switches" in line:
                    switches += int(line.split()[1])
    except OSError:  # it has just ended: RUSAGE_CHILDREN has it
        return 0.0, 0, 0
    ticks = sum(int(stat[i]) for i in (11, 12, 13, 14))
    return ticks * TICK_S, int(stat[7]) + int(stat[8]), switches


def resident_bytes() -> int:
    """Memory of this process that nobody shares, files left out."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
