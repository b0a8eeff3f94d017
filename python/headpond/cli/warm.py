"""``headpond warm SOURCE``: fills the node's cache before training."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headpond.cli.env import Commands


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    from headpond.cli import _source

    parser = commands.add_parser(
        "warm",
        help="fills the node's cache with a dataset",
        description="Fetches what is not in the cache yet, with a progress bar. It may be stopped"
        " and run again, and several processes share the work.",
    )
    _source.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fetches, says what is there; 1 when the cache has no room for all of it."""
    from headpond.cli import _source

    began = time.monotonic()
    warmed = _source.find(arguments).open().warm()
    seconds = time.monotonic() - began
    if arguments.json:
        print(json.dumps({**dataclasses.asdict(warmed), "seconds": round(seconds, 3)}, indent=2))
    else:
        print(
            f"{warmed.kept:,} of {warmed.blocks:,} blocks are in the cache,"
            f" {warmed.bytes:,} bytes; {seconds:.1f} s"
        )
        if warmed.kept < warmed.blocks:
            print("there is no room for the rest: cache_size (HEADPOND_CACHE_SIZE) is the limit")
    return 0 if warmed.kept == warmed.blocks else 1
