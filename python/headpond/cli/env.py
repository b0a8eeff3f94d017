"""``headpond env``: what a bug report needs."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from typing import Any, TypeAlias

# argparse's own type of add_subparsers(), which it does not export.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_PACKAGES = ("numpy", "torch", "ml_dtypes", "Pillow", "rich")


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    parser = commands.add_parser("env", help="versions and settings, to paste into a bug report")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the environment."""
    found = collect()
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        width = max(len(name) for name in found)
        for name, value in found.items():
            print(f"{name.ljust(width)}  {value}")
    return 0


def collect() -> dict[str, Any]:
    """Versions, machine, what is active and which of our variables are set."""
    import headpond

    found: dict[str, Any] = {
        "headpond": headpond.__version__,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
    }
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    found.update(headpond.info())
    found.update(
        {name: value for name, value in sorted(os.environ.items()) if name.startswith("HEADPOND_")}
    )
    return found
