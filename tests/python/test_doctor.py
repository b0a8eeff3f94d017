"""``headpond doctor`` on made-up machines: each lack gets its fix, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headpond.cli import doctor, main

GIB = 2**30
SOUND = {
    "proc/self/cgroup": "0::/job\n",
    "proc/meminfo": "MemTotal:  67108864 kB\nMemAvailable:  33554432 kB\n",
    "sys/fs/cgroup/cpu.max": "max 100000\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
}


@pytest.fixture
def machine(tmp_path: Path):
    """Makes a sound machine, changed by what is given."""

    def make(files: dict[str, str | None] | None = None, **changed: Any) -> doctor.Machine:
        for name, text in (SOUND | (files or {})).items():
            if text is None:
                continue
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        info: dict[str, Any] = {
            "io": "uring",
            "io_reason": "",
            "memory_bytes": GIB,
            "cache_dir": str(tmp_path),
        }
        info["http"] = {"ca_file": "/etc/ssl/cert.pem", "ca_source": "the system"}
        settings: dict[str, Any] = {"environment": {}, "release": "6.1.0-18-amd64", "cpus": 16}
        return doctor.Machine(tmp_path, info=info | changed.pop("info", {}), **settings | changed)

    return make


def test_a_sound_machine_needs_nothing(machine) -> None:
    checks = [check for check in doctor.examine(machine()) if check.name != "locked memory"]
    assert [check for check in checks if not check.good] == []
    assert len(checks) == 8


@pytest.mark.parametrize(
    ("check", "files", "changed", "words"),
    [
        (doctor.kernel, {}, {"release": "4.18.0"}, "5.6"),
        (
            doctor.io_uring,
            {"proc/sys/kernel/io_uring_disabled": "2"},
            {"info": {"io": "threads", "io_reason": "io_uring_setup: EPERM (seccomp, or ...)"}},
            "sysctl",
        ),
        (
            doctor.io_uring,
            {},
            {"info": {"io": "threads", "io_reason": "io_uring_setup: EPERM (seccomp, or ...)"}},
            "seccomp=",
        ),
        (
            doctor.io_uring,
            {},
            {"info": {"io": "threads", "io_reason": "ENOMEM (locked memory, ulimit -l: 64 KiB)"}},
            "ulimit -l",
        ),
        (
            doctor.io_uring,
            {},
            {"info": {"io": "threads", "io_reason": "Function not implemented"}},
            "kernel",
        ),
        (doctor.cpus, {"sys/fs/cgroup/job/cpu.max": "350000 100000"}, {}, "OMP_NUM_THREADS=4"),
        (
            doctor.cpus,
            {
                "sys/fs/cgroup/cpu.max": None,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            {},
            "OMP_NUM_THREADS=2",
        ),
        (
            doctor.huge_pages,
            {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"},
            {},
            "madvise",
        ),
        (
            doctor.ca_bundle,
            {},
            {"environment": {"SSL_CERT_FILE": "/no/such/file"}},
            "SSL_CERT_FILE",
        ),
        (
            doctor.memory,
            {"proc/meminfo": "MemAvailable:  1048576 kB"},
            {},
            "HEADPOND_MEMORY=256MiB",
        ),
        (
            doctor.memory,
            {
                "sys/fs/cgroup/job/memory.max": str(2 * GIB),
                "sys/fs/cgroup/job/memory.current": str(2 * GIB),
                "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            },
            {},
            "HEADPOND_MEMORY=256MiB",
        ),
        (
            doctor.index_folder,
            {"proc/not-a-folder": ""},
            {"info": {"cache_dir": "/proc/self/headpond"}},
            "HEADPOND_CACHE_DIR",
        ),
    ],
)
def test_what_is_missing_gets_its_fix(machine, check, files, changed, words) -> None:
    found = check(machine(files, **changed))
    assert not found.good
    assert words in found.fix


def test_without_any_ca_bundle_it_says_what_to_install(machine) -> None:
    bare = machine(info={"http": {"ca_file": "", "ca_source": ""}})
    assert "ca-certificates" in doctor.ca_bundle(bare).fix


def test_a_quota_that_others_know_of_is_good(machine) -> None:
    quota = {"sys/fs/cgroup/cpu.max": "200000 100000"}
    told = machine(quota, environment={"OMP_NUM_THREADS": "2"})
    assert doctor.cpus(told).good
    assert doctor.cpus(machine(quota, cpus=2)).good


def test_threads_on_request_are_no_fault(machine) -> None:
    assert doctor.io_uring(machine(info={"io": "threads", "io_reason": ""})).good


def test_the_exit_code_says_whether_there_is_a_fix(capsys, monkeypatch) -> None:
    code = main(["doctor", "--json"])
    printed = json.loads(capsys.readouterr().out)
    names = [check["name"] for check in printed["checks"]]
    assert {"kernel", "io_uring", "CPUs", "torch", "memory"} <= set(names)
    assert code == (0 if printed["good"] else 1)

    monkeypatch.setattr(doctor, "examine", lambda machine: [doctor.Check("kernel", "old", "new")])
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.split() == ["FIX", "kernel", "old", "->", "new"]
    monkeypatch.setattr(doctor, "examine", lambda machine: [doctor.Check("kernel", "new")])
    assert main(["doctor"]) == 0
