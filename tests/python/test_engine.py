"""Options, sizes, the environment, what is active."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import headpond as hp
from headpond.engine import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("64MB", 64_000_000),
        ("64MiB", 64 << 20),
        ("1.5 GiB", 3 << 29),
        ("2kb", 2000),
        ("10%", 100),
        ("100%", 1000),
    ],
)
def test_sizes(text: int | str, size: int) -> None:
    assert parse_size(text, "memory", 1000) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", 0, "0MB", "1 XB", "101%", "1e9", True, "10%%", "5K%"]
)
def test_what_is_no_size_names_its_argument(text: int | str) -> None:
    with pytest.raises(hp.InvalidArgument, match="memory"):
        parse_size(text, "memory", 1000)


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(hp.InvalidArgument, match='did you mean "cpu_threads"'):
        hp.configure(cpu_thread=3)
    with pytest.raises(hp.InvalidArgument, match='did you mean "memory"'):
        hp.Engine(memmory="1GB")


@pytest.mark.parametrize(
    "options", [{"io": "ring"}, {"io_depth": 0}, {"cpu_threads": "x"}, {"memory": "lots"}]
)
def test_wrong_values_are_errors(options: dict) -> None:
    with pytest.raises(hp.InvalidArgument, match=next(iter(options))):
        hp.Engine(**options)


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-c", "import json, headpond as hp, numpy as np\n" + program],
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("HEADPOND_")},
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_argument_goes_before_configure_before_environment() -> None:
    program = """
hp.configure(cpu_threads=2)
print(json.dumps([hp.info()["cpu_threads"], hp.Engine(cpu_threads=3).info()["cpu_threads"],
                  hp.Engine().info()["cpu_threads"], hp.info()["memory_bytes"]]))
"""
    done = run(program, HEADPOND_CPU_THREADS="5", HEADPOND_MEMORY="64MiB")
    assert json.loads(done.stdout) == [2, 3, 5, 64 << 20], done.stderr


def test_an_unknown_variable_warns_with_the_nearest() -> None:
    done = run("hp.info()", HEADPOND_MEMMORY="1GB")
    assert "HEADPOND_MEMMORY" in done.stderr
    assert "HEADPOND_MEMORY" in done.stderr.replace("HEADPOND_MEMMORY", "")


def test_configure_comes_before_the_first_batch() -> None:
    program = """
x = hp.from_arrays({"x": np.arange(9)}).batch(2).loader()
hp.configure(cpu_threads=1)
next(iter(x))
try:
    hp.configure(cpu_threads=2)
except hp.Error as error:
    print("refused", error)
"""
    assert run(program).stdout.startswith("refused")


@pytest.mark.parametrize("backend", ["uring", "threads"])
def test_info_says_what_is_active_and_why(backend: str) -> None:
    program = """
next(iter(hp.from_arrays({"x": np.arange(9)}).batch(2).loader()))
print(json.dumps(hp.info()))
"""
    info = json.loads(run(program, HEADPOND_IO=backend).stdout)
    assert info["started"]
    assert info["io"] == backend or info["io_reason"]
    assert info["memory_used"] <= info["memory_bytes"]


def test_ranks_of_a_node_share_its_memory() -> None:
    whole, half = (
        int(run("print(hp.info()['memory_bytes'])", LOCAL_WORLD_SIZE=ranks).stdout)
        for ranks in "12"
    )
    assert half == whole // 2


def test_close_is_idempotent() -> None:
    engine = hp.Engine()
    loader = hp.from_arrays({"x": np.arange(9)}).batch(2).loader(engine=engine)
    next(iter(loader))
    engine.close()
    engine.close()
    loader.close()
