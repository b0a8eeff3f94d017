"""``headpond index SOURCE``: what is written once and shipped beside the data."""

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
        help="writes a manifest, or the indexes of tar shards",
        description="Writes what is shipped beside the data. A manifest (-o FILE) holds names,"
        " sizes and versions of all objects: whoever opens it lists nothing; hp.from_files(FILE)"
        " and the others take it as their source. Shard indexes (--beside, or --into DIR for shards"
        " on a web server) tell where the samples of tar shards lie: SHARD.hpindex is found beside"
        " its SHARD by hp.from_webdataset, which then need not read shards to count them.",
    )
    parser.add_argument(
        "source", nargs="+", metavar="SOURCE", help="a folder, a glob, braces, URLs"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-o", "--output", metavar="FILE", help="a manifest; ends in .manifest")
    what.add_argument(
        "--beside", action="store_true", help="the index of every tar shard, beside it"
    )
    what.add_argument(
        "--into", metavar="DIR", help="the same into a folder, to be put beside the shards"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Lists, writes, says what."""
    if arguments.output is not None:
        return _write_manifest(arguments)
    return _write_shard_indexes(arguments)


def _write_manifest(arguments: argparse.Namespace) -> int:
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
    text = (
        f"{written['objects']:,} objects below {written['root']}, {written['bytes']:,} bytes:"
        f" {written['file']} ({written['file_bytes']:,} bytes)"
    )
    print(json.dumps(written, indent=2) if arguments.json else text)
    return 0


def _write_shard_indexes(arguments: argparse.Namespace) -> int:
    from headpond import _core
    from headpond._progress import Progress
    from headpond.engine import default_engine
    from headpond.objects import store_path

    began = time.monotonic()
    engine = default_engine()
    with Progress() as progress:
        shards, samples, size = _core.write_shard_indexes(
            engine._core,
            [store_path(path) for path in arguments.source],
            b"" if arguments.into is None else store_path(arguments.into),
            os.fsencode(engine._cache_dir),
            progress,
        )
    written = {
        "folder": arguments.into,
        "shards": shards,
        "samples": samples,
        "index_bytes": size,
        "seconds": round(time.monotonic() - began, 3),
    }
    where = "beside them" if arguments.into is None else f"in {arguments.into}, to be put there"
    text = f"{shards:,} shards with {samples:,} samples: their indexes ({size:,} bytes) are {where}"
    print(json.dumps(written, indent=2) if arguments.json else text)
    return 0
