"""``headpond explain HP0101``: what an error means and what to do."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from headpond.errors import nearest

if TYPE_CHECKING:
    from headpond.cli.env import Commands


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    parser = commands.add_parser("explain", help="what an error code means and what to do")
    parser.add_argument("code", nargs="?", help="such as HP0101; left out: all of them")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints one kind of error, or all."""
    from headpond import _core

    kinds = [
        {"code": number, "class": f"headpond.{python_class}", "summary": summary, "advice": advice}
        for number, python_class, summary, advice in _core.error_kinds()
    ]
    if arguments.code is not None:
        wanted = arguments.code.upper()
        known = [kind["code"] for kind in kinds]
        if wanted not in known:
            print(f"headpond: no error {wanted}{nearest(wanted, known)}", file=sys.stderr)
            return 2
        kinds = [kind for kind in kinds if kind["code"] == wanted]
    if arguments.json:
        print(json.dumps(kinds if arguments.code is None else kinds[0], indent=2))
        return 0
    for kind in kinds:
        print(f"{kind['code']}  {kind['summary']}  ({kind['class']})")
        if arguments.code is not None:
            print(f"\n{kind['advice']}")
    return 0
