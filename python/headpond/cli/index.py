"""``headpond index SOURCE -o FILE``: a list of objects to be shipped beside the data."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headpond.cli.env import Commands


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    parser = commands.add_parser(
        "index",
        help="writes a manifest: names, sizes and versions of all objects",
        description="Lists a source once and writes a manifest. Whoever opens the manifest lists"
        " nothing: hp.from_files(FILE) and the others take it as their source.",
    )
    parser.add_argument(
        "source", nargs="+", metavar="SOURCE", help="a folder, a glob, braces, URLs"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="must end in .manifest"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Lists, writes, says what."""
    import headpond as hp

    if not arguments.output.endswith(".manifest"):
        print("headpond: the name of a manifest ends in .manifest", file=sys.stderr)
        return 2
    began = time.monotonic()
    many = len(arguments.source) > 1
    manifest = hp.Manifest.build(arguments.source if many else arguments.source[0])
    manifest.save(arguments.output)
    written = {
        "file": arguments.output,
        "root": manifest.root,
        "objects": len(manifest),
        "bytes": sum(size for _, size in manifest),
        "file_bytes": os.path.getsize(arguments.output),
        "seconds": round(time.monotonic() - began, 3),
    }
    if arguments.json:
        print(json.dumps(written, indent=2))
    else:
        print(
            f"{written['objects']:,} objects below {written['root']}, {written['bytes']:,} bytes:"
            f" {written['file']} ({written['file_bytes']:,} bytes)"
        )
    return 0
