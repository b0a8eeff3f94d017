"""``headpond doctor``: does this machine have what makes loading fast, and if not, what to do."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import re
import resource
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headpond.cli.env import Commands

_KERNEL = (5, 6)  # io_uring with reads that need no preparation
_LOCKED_BYTES = 8 << 20  # what kernels allow since 5.16
_CACHE_FREE_BYTES = 256 << 20


@dataclass(frozen=True)
class Check:
    """One line: what was found and, when it is not good, what to do."""

    name: str
    found: str
    fix: str = ""

    @property
    def good(self) -> bool:
        """Nothing to do."""
        return not self.fix


@dataclass(frozen=True)
class Machine:
    """Where to look: files below ``root``, variables, what the engine says of itself."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    info: Mapping[str, Any] = field(default_factory=dict)
    release: str = field(default_factory=lambda: os.uname().release)
    cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    def text(self, path: str) -> str:
        """A file's contents; "" when it is not there or not for us."""
        try:
            return (self.root / path).read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def exists(self, path: str) -> bool:
        """Is there such a file?"""
        return (self.root / path).exists()

    def cgroups(self) -> Iterator[str]:
        """Folders that limit this process, from its own up."""
        found = re.search(r"^0::(/.*)$", self.text("proc/self/cgroup"), re.MULTILINE)
        path = Path(found.group(1)) if found else Path("/")
        for folder in (path, *path.parents):
            yield f"sys/fs/cgroup{folder}".rstrip("/")


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    parser = commands.add_parser(
        "doctor",
        help="what this machine has, and fixes for what it lacks",
        description="One line for each thing that loading depends on: good, or with its fix."
        " headpond works without most of them, only slower. Exit code 1 when there is a fix.",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Checks and prints."""
    import headpond

    checks = examine(Machine(info=headpond.info()))
    good = all(check.good for check in checks)
    if arguments.json:
        lines = [{**asdict(check), "good": check.good} for check in checks]
        print(json.dumps({"good": good, "checks": lines}, indent=2))
    else:
        print("\n".join(_line(check, colour=_may_colour()) for check in checks))
    return 0 if good else 1


def examine(machine: Machine) -> list[Check]:
    """Every check, in the order in which they are printed."""
    checks = (kernel, io_uring, memlock, cpus, huge_pages, ca_bundle, torch, memory, index_folder)
    return [check(machine) for check in checks]


def _may_colour() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _line(check: Check, *, colour: bool) -> str:
    mark = "ok " if check.good else "FIX"
    if colour:
        mark = f"\033[{32 if check.good else 33}m{mark}\033[0m"
    line = f"{mark}  {check.name:13} {check.found}"
    return line if check.good else f"{line}\n     {'':13} -> {check.fix}"


def kernel(machine: Machine) -> Check:
    """Is it new enough for io_uring?"""
    found = re.match(r"(\d+)\.(\d+)", machine.release)
    version = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    fix = ""
    if version < _KERNEL:
        wanted = ".".join(map(str, _KERNEL))
        fix = f"Linux {wanted} or newer reads cold data by io_uring; until then threads do it"
    return Check("kernel", machine.release, fix)


def io_uring(machine: Machine) -> Check:
    """Does the kernel give us a ring, and if not, who forbids it?"""
    reason = str(machine.info.get("io_reason", ""))
    if machine.info.get("io") == "uring":
        return Check("io_uring", "in use")
    if not reason:
        return Check("io_uring", "not used: io=threads was asked for")
    disabled = machine.text("proc/sys/kernel/io_uring_disabled")
    if disabled in ("1", "2"):
        fix = "as root: sysctl -w kernel.io_uring_disabled=0"
    elif "seccomp" in reason:
        fix = (
            "the container's seccomp profile forbids it: allow io_uring_setup, io_uring_enter and"
            " io_uring_register in the profile (docker run --security-opt seccomp=FILE)"
        )
    elif "locked memory" in reason:
        fix = "raise the limit on locked memory: ulimit -l unlimited"
    else:
        fix = "use a kernel with io_uring; until then threads read cold data, at more CPU"
    return Check("io_uring", f"not in use: {reason}", fix)


def memlock(machine: Machine) -> Check:
    """May buffers be locked for the ring?"""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return Check("locked memory", "no limit")
    fix = ""
    if limit < _LOCKED_BYTES:
        fix = (
            "ulimit -l 8192 or more (docker run --ulimit memlock=-1; systemd: LimitMEMLOCK=),"
            " so that cold reads go into registered buffers"
        )
    return Check("locked memory", f"at most {_size(limit)}", fix)


def cpus(machine: Machine) -> Check:
    """Is there a quota that other libraries do not know of?"""
    quotas = [quota for folder in machine.cgroups() if (quota := _quota(machine, folder))]
    if not quotas or min(quotas) >= machine.cpus:
        return Check("CPUs", f"{machine.cpus}, no quota below that")
    quota = min(quotas)
    found = f"{machine.cpus}, with a quota of {quota:g}, which headpond keeps to"
    if "OMP_NUM_THREADS" in machine.environment:
        return Check("CPUs", found)
    return Check(
        "CPUs",
        found,
        f"export OMP_NUM_THREADS={math.ceil(quota)}, or torch starts {machine.cpus} threads and"
        " the quota stops all of them for part of the time",
    )


def _quota(machine: Machine, folder: str) -> float | None:
    parts = machine.text(f"{folder}/cpu.max").split()
    if not parts:  # cgroup v1
        parts = [
            machine.text(f"{folder}/cpu/cpu.cfs_quota_us"),
            machine.text(f"{folder}/cpu/cpu.cfs_period_us"),
        ]
    if len(parts) != 2 or not all(part.isdigit() and int(part) for part in parts):
        return None
    return int(parts[0]) / int(parts[1])


def huge_pages(machine: Machine) -> Check:
    """May the memory of batches be in huge pages?"""
    text = machine.text("sys/kernel/mm/transparent_hugepage/enabled")
    found = re.search(r"\[(\w+)\]", text)
    if not found:
        return Check("huge pages", "this kernel does not say")
    fix = ""
    if found.group(1) == "never":
        fix = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    return Check("huge pages", found.group(1), fix)


def ca_bundle(machine: Machine) -> Check:
    """What are web servers' certificates checked against?"""
    for variable in ("SSL_CERT_FILE", "CURL_CA_BUNDLE"):
        path = machine.environment.get(variable)
        if path and not os.access(path, os.R_OK):
            fix = f"unset {variable}, or let it name a file that can be read"
            return Check("CA bundle", f"{path} ({variable}) cannot be read", fix)
    http = machine.info.get("http", {})
    if http.get("ca_file"):
        return Check("CA bundle", f"{http['ca_file']} ({http['ca_source']})")
    return Check(
        "CA bundle",
        "none: https:// will not work",
        "apt-get install ca-certificates, or pip install certifi, or set SSL_CERT_FILE",
    )


def torch(machine: Machine) -> Check:
    """Which torch is there, and does it reach the GPU that there is?"""
    if importlib.util.find_spec("torch") is None:
        return Check("torch", 'not installed: batches are NumPy arrays (framework="numpy")')
    try:
        import torch as library
    except (ImportError, OSError) as error:
        return Check("torch", f"does not load: {error}", "install torch again")
    gpu = machine.exists("dev/nvidia0")
    if library.cuda.is_available():
        count, name = library.cuda.device_count(), library.cuda.get_device_name(0)
        return Check(
            "torch", f"{library.__version__}, CUDA {library.version.cuda}, {count} x {name}"
        )
    if not gpu:
        return Check("torch", f"{library.__version__}; no GPU here")
    if library.version.cuda is None:
        fix = "there is a GPU, but this is torch's CPU build: install the CUDA build"
    else:
        fix = f"CUDA {library.version.cuda} does not start: compare it with what nvidia-smi says"
    return Check("torch", str(library.__version__), fix)


def memory(machine: Machine) -> Check:
    """Is there room for what is read ahead?"""
    budget = int(machine.info.get("memory_bytes", 0))
    found = re.search(r"^MemAvailable:\s+(\d+) kB", machine.text("proc/meminfo"), re.MULTILINE)
    free = [int(found.group(1)) * 1024] if found else []
    for folder in machine.cgroups():
        limit, used = (machine.text(f"{folder}/memory.{name}") for name in ("max", "current"))
        if limit.isdigit() and used.isdigit():
            reclaimable = re.search(
                r"^inactive_file (\d+)", machine.text(f"{folder}/memory.stat"), re.MULTILINE
            )
            free.append(int(limit) - int(used) + (int(reclaimable.group(1)) if reclaimable else 0))
    if not free:
        return Check("memory", "this kernel does not say what is free")
    text = f"{_size(min(free))} free; {_size(budget)} of it may be read ahead"
    fix = ""
    if min(free) < 2 * budget:
        fix = f"end other programs, or lower the budget: HEADPOND_MEMORY={min(free) // 4 >> 20}MiB"
    return Check("memory", text, fix)


def index_folder(machine: Machine) -> Check:
    """Can indexes of tar shards be kept?"""
    folder = Path(str(machine.info.get("cache_dir", "")))
    there = next(path for path in (folder, *folder.parents) if path.exists())
    advice = "set HEADPOND_CACHE_DIR to a folder that can be written and has room"
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        return Check("index folder", f"{folder} cannot be written: shards are walked anew", advice)
    status = os.statvfs(there)
    free = status.f_bavail * status.f_frsize
    found = f"{folder}, {_size(free)} free"
    return Check("index folder", found, advice if free < _CACHE_FREE_BYTES else "")


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
