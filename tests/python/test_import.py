"""Importing costs next to nothing and starts nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("used", ["", "; headpond.from_files; headpond.Loader; headpond.Engine"])
def test_import_loads_no_torch_and_starts_no_thread(used: str) -> None:
    program = f"""
import os, sys
import headpond{used}
print("torch" in sys.modules, len(os.listdir("/proc/self/task")))
"""
    before = int(run("import numpy, os; print(len(os.listdir('/proc/self/task')))"))
    torch, threads = run(program).split()
    assert torch == "False"
    # NumPy's BLAS may have threads of its own; ours are none.
    assert int(threads) <= before


def test_import_adds_few_modules() -> None:
    count = "before = set(sys.modules); import headpond; print(len(set(sys.modules) - before))"
    assert int(run(f"import sys, numpy; {count}")) <= 5


def test_a_loader_starts_no_thread_before_its_first_batch() -> None:
    program = """
import os
import numpy as np, headpond as hp
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
loader = hp.from_arrays({"x": np.arange(100)}).shuffle().batch(10).loader()
iterator = iter(loader)
state = loader.state_dict()
assert threads() == before, "made"
next(iterator)
assert threads() > before, "running"
loader.close()
"""
    run(program)


def test_every_public_name_exists_and_has_a_docstring() -> None:
    import headpond

    for name in headpond.__all__:
        assert getattr(headpond, name).__doc__, name
    assert headpond.__version__.count(".") == 2
    with pytest.raises(AttributeError):
        _ = headpond.no_such_name
