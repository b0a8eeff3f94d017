"""``headpond check SOURCE``: everything that would fail in training, found before it."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headpond._progress import Progress

if TYPE_CHECKING:
    import headpond as hp
    from headpond.cli._source import Place
    from headpond.cli.env import Commands

_Item = TypeVar("_Item")
_LOOKS_AT_ONCE = 16  # sizes asked for at the same time


@dataclass(frozen=True)
class Finding:
    """Something wrong: in which object, what, and where in it."""

    uri: str
    what: str
    key: str | None = None
    range: tuple[int, int] | None = None
    code: str | None = None

    def __str__(self) -> str:
        place = self.uri if self.range is None else f"{self.uri} [{self.range[0]}, {self.range[1]})"
        return f"{place}: {self.what}" if self.key is None else f"{place}: {self.key}: {self.what}"


def add_parser(commands: Commands) -> None:
    """Declares the subcommand."""
    from headpond.cli import _source

    parser = commands.add_parser(
        "check",
        help="finds every broken sample of a source",
        description="Walks every shard, decodes every JPEG as a whole, reads every .json and .npy,"
        " and compares sizes with a manifest's. One line for each finding; exit code 1 when there"
        " is one.",
    )
    _source.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Checks everything; prints findings as they come."""
    from headpond.cli import _source

    checker = Checker(_source.find(arguments))
    findings = []
    for finding in checker.findings():
        findings.append(finding)
        checker.progress.close()
        if not arguments.json:
            print(finding, flush=True)
    if arguments.json:
        lines = [asdict(finding) for finding in findings]
        print(json.dumps({"good": not findings, **checker.counts, "findings": lines}, indent=2))
    else:
        for note in checker.notes:
            print(f"note: {note}")
        print(checker.summary(len(findings)))
    return 1 if findings else 0


class Checker:
    """Looks at one place."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.progress = Progress()
        self.counts = {"objects": 0, "bytes": 0, "samples": 0, "decoded": 0}
        self.notes: list[str] = []

    def summary(self, findings: int) -> str:
        """The closing line."""
        counts = self.counts
        found = f"{findings:,} findings" if findings != 1 else "1 finding"
        return (
            f"{counts['samples']:,} samples in {counts['objects']:,} objects"
            f" ({counts['bytes']:,} bytes), {counts['decoded']:,} records decoded:"
            f" {found if findings else 'nothing wrong'}"
        )

    def findings(self) -> Iterator[Finding]:
        """Everything wrong, as it is found."""
        import headpond as hp
        from headpond.cli import _source

        manifest = self._place.manifest()
        objects = [
            (_source.uri_of(manifest, name), size)
            for name, size in manifest
            if self._place.is_part(name)
        ]
        if isinstance(self._place.source, hp.Manifest):
            drifted = []
            for finding in self._drift(objects):
                drifted.append(finding.uri)
                yield finding
            objects = [(uri, size) for uri, size in objects if uri not in set(drifted)]
        self.counts["objects"] = len(objects)
        self.counts["bytes"] = sum(size for _, size in objects)
        look = {
            "webdataset": self._shards,
            "files": self._files,
            "records": self._records,
        }[self._place.kind]
        yield from look(objects)

    def _drift(self, objects: list[tuple[str, int]]) -> Iterator[Finding]:
        """Objects that are no longer what the manifest says."""
        with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            looked = pool.map(_differs, objects)
            yield from filter(None, self._shown("sizes", looked, len(objects)))

    def _shown(self, what: str, items: Iterable[_Item], count: int) -> Iterator[_Item]:
        """The items, with progress on a terminal."""
        for done, item in enumerate(items):
            self.progress(f"checking {what}", done, count)
            yield item
        self.progress.close()

    def _shards(self, shards: list[tuple[str, int]]) -> Iterator[Finding]:
        import headpond as hp

        good = []
        for uri, size in self._shown("shards", shards, len(shards)):
            try:
                dataset = self._place.open([uri])
            except hp.Error as error:
                yield from self._broken_shard(uri, size, error)
                continue
            self.counts["samples"] += len(dataset)
            self.notes += dataset._core.notes
            good.append(uri)
        if not good:
            return
        dataset = self._place.open(good)
        for field in dataset.fields:
            yield from self._field(dataset, field, f".{field.rpartition('.')[2]}")

    def _broken_shard(self, uri: str, size: int, error: hp.Error) -> Iterator[Finding]:
        """Every fault of a shard, and of the members that can still be read."""
        import headpond as hp
        from headpond.cli._tar_damage import walk

        found = False
        for member in walk(uri, size):
            place = (member.start, member.stop)
            fault, code = member.fault, error.code if member.fault else None
            reader = _READERS.get(_kind(f".{member.field.rpartition('.')[2]}"))
            if not fault and reader is not None:
                self.counts["decoded"] += 1
                try:
                    reader(hp.read(uri, *place))
                except (hp.Error, ValueError) as wrong:
                    fault, code = str(wrong), getattr(wrong, "code", None)
            if fault:
                found = True
                yield Finding(uri, fault, member.name or None, place, code)
        if not found:
            yield Finding(uri, str(error), None, error.range, error.code)

    def _files(self, files: list[tuple[str, int]]) -> Iterator[Finding]:
        import headpond as hp
        from headpond.cli._source import extension

        self.counts["samples"] = len(files)
        by_kind: dict[str, list[str]] = {}
        for uri, _ in files:
            by_kind.setdefault(_kind(extension(uri)), []).append(uri)
        for kind, uris in by_kind.items():
            if kind in _READERS:
                yield from self._field(hp.from_files(uris, label=None), "data", kind)
        unread = len(by_kind.get("", []))
        if unread:
            self.notes.append(f"{unread:,} files are no JPEG, JSON or .npy: only listed")

    def _records(self, files: list[tuple[str, int]]) -> Iterator[Finding]:
        import headpond as hp

        for uri, _ in self._shown("files", files, len(files)):
            try:
                self.counts["samples"] += len(self._place.open([uri]))
            except hp.Error as error:
                yield Finding(uri, str(error), None, error.range, error.code)

    def _field(self, dataset: hp.Dataset, field: str, suffix: str) -> Iterator[Finding]:
        """Reads one field of all samples, each in a batch of its own, so that each can fail."""
        import headpond as hp

        kind = _kind(suffix)
        if kind == ".jpg":
            pipe = dataset.image(field, size=16, crop="none").select(field)
        elif kind:
            pipe = dataset.select(field)
        else:
            return
        with pipe.batch(1).loader() as loader:
            batches = iter(loader)
            for index in self._shown(f'"{field}"', range(len(dataset)), len(dataset)):
                try:
                    batch = next(batches)
                    if kind != ".jpg":
                        _READERS[kind](batch[field][0])
                except (hp.Error, ValueError) as error:
                    yield self._of_sample(dataset, index, field, error)
                self.counts["decoded"] += 1

    def _of_sample(self, dataset: hp.Dataset, index: int, field: str, error: Exception) -> Finding:
        places = dataset.locate(index)
        fields = [name for name, spec in dataset.fields.items() if spec.dtype == "bytes"]
        uri, start, stop = places[fields.index(field)] if len(places) == len(fields) else places[0]
        key = None if self._place.kind == "files" else f"{dataset.key(index)}.{field}"
        code = getattr(error, "code", None)
        return Finding(uri, str(error), key, (start, stop), code)


def _differs(known: tuple[str, int]) -> Finding | None:
    import headpond as hp

    uri, size = known
    try:
        now = hp.stat(uri).size
    except hp.Error as error:
        return Finding(uri, str(error), None, None, error.code)
    if now == size:
        return None
    return Finding(uri, f"has {now:,} bytes; the manifest says {size:,}", code="HP0104")


def _kind(suffix: str) -> str:
    from headpond.cli._source import PICTURES

    return ".jpg" if suffix in PICTURES else suffix if suffix in _READERS else ""


def _read_jpeg(record: bytes) -> None:
    from headpond.cli._source import picture_decoder

    picture_decoder(16, "none").decode(record, 0, 0, 0)


def _read_npy(record: bytes) -> None:
    import numpy as np

    np.load(io.BytesIO(record), allow_pickle=False)


_READERS: dict[str, Callable[[bytes], Any]] = {
    ".jpg": _read_jpeg,
    ".json": json.loads,
    ".npy": _read_npy,
}
