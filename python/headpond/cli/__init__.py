"""The command ``headpond``: each subcommand is a module here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from headpond.cli import bench, check, demo, doctor, env, explain, index, inspect, warm
from headpond.errors import Error

__all__ = ["main"]

_COMMANDS = (demo, doctor, bench, inspect, check, index, warm, explain, env)


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="headpond", description="Feeds training: data to batches, in exact order."
    )
    parser.add_argument("--version", action="store_true", help="print the version and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for module in _COMMANDS:
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Without the program's name; None: those of the process.

    Returns:
        0: fine. 1: found something wrong. 2: wrong use.
    """
    parser = make_parser()
    parsed = parser.parse_args(arguments)
    if parsed.version:
        import headpond

        print(headpond.__version__)
        return 0
    if parsed.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        code: int = parsed.run(parsed)
    except Error as error:
        print(f"headpond: {error.code}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `headpond explain | head`
        sys.stderr.close()
        return 0
    return code
