"""``headpond inspect SOURCE``: what is in there."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headpond.report import byte_text

if TYPE_CHECKING:
    import headpond as hp
    from headpond.cli._source import Place
    from headpond.cli.env import Commands

_UNKNOWN = 2**63
_SIZED = 1000  # samples whose sizes are looked at
_TILE = 128  # pixels of a picture on the sheet
_GAP = 4
_PICTURE = b"\xff\xd8\xff"
_SHOWN = 60  # characters of a value


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    from headpond.cli import _source

    parser = commands.add_parser(
        "inspect",
        help="samples, fields, sizes and the first records of a source",
        description="Says what a source holds: how many samples, which fields, how large, and the"
        " first records. --png writes pictures from all over it on one sheet.",
    )
    _source.add_arguments(parser)
    parser.add_argument("--first", type=int, default=3, help="records to show (%(default)s)")
    parser.add_argument("--png", type=Path, metavar="FILE", help="write a sheet of pictures")
    parser.add_argument("--tiles", type=int, default=48, help="pictures on it (%(default)s)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Looks and prints."""
    from headpond.cli import _source

    if arguments.first < 0 or arguments.tiles <= 0:
        print("headpond: --first and --tiles are counts", file=sys.stderr)
        return 2
    place = _source.find(arguments)
    dataset = place.open()
    found = describe(dataset, place, arguments.first)
    if arguments.png:
        found["png"] = _write_sheet(dataset, arguments.png, arguments.tiles)
    print(json.dumps(found, indent=2) if arguments.json else _text(found))
    return 0


def describe(dataset: hp.Dataset, place: Place, first: int) -> dict[str, Any]:
    """What ``--json`` prints."""
    sizes = _sizes(dataset)
    return {
        "kind": place.kind,
        "samples": len(dataset),
        "objects": len(dataset._core.manifest),
        "bytes": _size(dataset, place),
        "fields": [
            {"name": name, "dtype": spec.dtype, "shape": spec.shape, "bytes": sizes.get(name)}
            for name, spec in dataset.fields.items()
        ],
        "classes": dataset.classes,
        "notes": dataset._core.notes,
        "fingerprint": dataset.fingerprint,
        "first": [_record(dataset, index) for index in range(min(first, len(dataset)))],
    }


def _size(dataset: hp.Dataset, place: Place) -> int:
    """Bytes of all objects."""
    manifest = dataset._core.manifest
    sizes = [manifest.object_size(index) for index in range(len(manifest))]
    if any(size >= _UNKNOWN for size in sizes):  # of remote shards, until they are asked
        sizes = [size for _, size in place.manifest()]
    return sum(sizes)


def _spread(count: int, wanted: int) -> list[int]:
    """At most ``wanted`` of the numbers below ``count``, evenly."""
    wanted = min(count, wanted)
    return [index * count // wanted for index in range(wanted)]


def _sizes(dataset: hp.Dataset) -> dict[str, dict[str, float]]:
    """Bytes of the fields whose size varies: least, mean and most of some samples."""
    varying = [name for name, spec in dataset.fields.items() if spec.shape is None]
    seen: dict[str, list[int]] = {name: [] for name in varying}
    for index in _spread(len(dataset), _SIZED):
        ranges = dataset.locate(index)
        for name, (_, start, stop) in zip(varying, ranges, strict=False):
            seen[name].append(stop - start)
    return {
        name: {"least": min(sizes), "mean": sum(sizes) / len(sizes), "most": max(sizes)}
        for name, sizes in seen.items()
        if sizes
    }


def _record(dataset: hp.Dataset, index: int) -> dict[str, Any]:
    import headpond as hp

    found: dict[str, Any] = {"index": index, "key": dataset.key(index)}
    try:
        sample = dataset[index]
    except hp.Error as error:
        return {**found, "error": str(error)}
    return {**found, "fields": {name: _value(value) for name, value in sample.items()}}


def _value(value: Any) -> str:
    if not isinstance(value, bytes):
        text = str(value.tolist() if hasattr(value, "tolist") else value)
        return text if len(text) <= _SHOWN else text[:_SHOWN] + " ..."
    size = f"{len(value):,} bytes"
    if value.startswith(_PICTURE):
        return f"JPEG, {size}"
    text = value[:_SHOWN].decode("utf-8", "replace").strip()
    return text if text.isprintable() and len(value) <= _SHOWN else f"{size}: {value[:16].hex(' ')}"


def _write_sheet(dataset: hp.Dataset, path: Path, tiles: int) -> dict[str, Any]:
    """Pictures from all over the dataset; one that cannot be decoded is a red tile."""
    import numpy as np

    import headpond as hp
    from headpond.cli._png import write_png
    from headpond.cli._source import picture_decoder

    field = _picture_field(dataset)
    indices = _spread(len(dataset), tiles)
    columns = math.ceil(math.sqrt(1.5 * len(indices)))
    step = _TILE + _GAP
    rows = math.ceil(len(indices) / columns)
    sheet = np.full((rows * step + _GAP, columns * step + _GAP, 3), 32, np.uint8)
    decoder = picture_decoder(_TILE, "center")
    broken = []
    for place, index in enumerate(indices):
        row, column = divmod(place, columns)
        tile = sheet[_GAP + row * step :, _GAP + column * step :][:_TILE, :_TILE]
        try:
            pixels = decoder.decode(dataset[index][field], 0, 0, index)
            tile[:] = np.frombuffer(pixels, np.uint8).reshape(_TILE, _TILE, 3)
        except hp.Error as error:
            tile[:] = (160, 0, 0)
            broken.append(f"{dataset.key(index)}: {error}")
    write_png(path, sheet)
    return {"file": str(path), "field": field, "tiles": len(indices), "broken": broken}


def _picture_field(dataset: hp.Dataset) -> str:
    import headpond as hp

    for index in _spread(len(dataset), 8):
        for name, value in dataset[index].items():
            if isinstance(value, bytes) and value.startswith(_PICTURE):
                return name
    raise hp.InvalidArgument("--png: there are no JPEG pictures in this source")


def _text(found: dict[str, Any]) -> str:
    objects = {"webdataset": "shards"}.get(found["kind"], "files")
    lines = [
        f"{found['samples']:,} samples in {found['objects']:,} {objects},"
        f" {byte_text(found['bytes'])} ({found['kind']})"
    ]
    for spec in found["fields"]:
        shape = "" if spec["shape"] is None else f" {list(spec['shape'])}"
        line = f"  {spec['name']:12} {spec['dtype']}{shape}"
        if spec["bytes"]:
            sizes = spec["bytes"]
            line += (
                f"  {byte_text(sizes['least'])} to {byte_text(sizes['most'])},"
                f" {byte_text(sizes['mean'])} on average"
            )
        lines.append(line)
    if found["classes"]:
        some = ", ".join(found["classes"][:8]) + (", ..." if len(found["classes"]) > 8 else "")
        lines.append(f"{len(found['classes'])} classes: {some}")
    lines += [f"note: {note}" for note in found["notes"]]
    for record in found["first"]:
        lines.append(f"sample {record['index']}  {record['key']}")
        if "error" in record:
            lines.append(f"  {record['error']}")
        lines += [f"  {name:12} {value}" for name, value in record.get("fields", {}).items()]
    if "png" in found:
        sheet = found["png"]
        lines.append(f'{sheet["tiles"]} pictures of "{sheet["field"]}" on {sheet["file"]}')
        lines += [f"  broken: {line}" for line in sheet["broken"]]
    return "\n".join(lines)
