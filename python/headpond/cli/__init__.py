"""The command ``headpond``: each subcommand is a module here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from headpond.cli import bench, demo, env, explain
from headpond.errors import Error

__all__ = ["main"]

_COMMANDS = (demo, bench, env, explain)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Without the program's name; None: those of the process.

    Returns:
        0: fine. 1: found something wrong. 2: wrong use.
    """
    parser = argparse.ArgumentParser(
        prog="headpond", description="Feeds training: data to batches, in exact order."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in _COMMANDS:
        module.add_parser(commands)
    parsed = parser.parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except Error as error:
        print(f"headpond: {error.code}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `headpond explain | head`
        sys.stderr.close()
        return 0
    return code
