"""What a loader did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headpond import _core

__all__ = ["Report", "SampleError", "Warmed"]


@dataclass(frozen=True)
class SampleError:
    """A sample that was skipped or replaced."""

    sample_index: int | None  # None: of shards that are not counted yet
    key: str
    uri: str
    range: tuple[int, int]
    reason: str


@dataclass(frozen=True)
class Report:
    """What a loader did since it was made. ``str()`` of it is for people.

    Attributes:
        batches: Handed out.
        samples: Rows handed out, padding and replacements left out.
        elapsed_s: From the first request to the last batch.
        waited_s: Seconds of that in which no batch was ready, the first batch apart.
        first_batch_s: Until the first batch: start-up.
        waited_for: Seconds by cause: ``reading`` (bytes on their way from storage), ``cpu``
            (copying and decoding), ``memory`` (the budget was used up).
        utilisation: 1 - waited / elapsed after the first batch: the share of time for the model.
        padded: Rows filled from the epoch's start (``uneven="pad"``).
        skipped: Samples left out.
        replaced: Samples that another row stands in for.
        errors: Those samples, of this epoch.
        counters: Bytes by source, CPU seconds of workers, slabs, page faults; and what the
            loader's engine asked of web servers and of the node's cache meanwhile, for all its
            loaders: ``http_requests``, ``http_bytes``, ``http_retries``, ``cache_hits``,
            ``cache_hit_bytes``, ``cache_joined_bytes`` (came with a fetch under way),
            ``cache_missed_bytes`` (had to be fetched), ``cache_past_bytes`` (fetched and not kept),
            ``cache_fetched_bytes`` (of whole blocks, from the origin) and so on.
    """

    batches: int = 0
    samples: int = 0
    elapsed_s: float = 0.0
    waited_s: float = 0.0
    first_batch_s: float = 0.0
    waited_for: dict[str, float] = field(default_factory=dict)
    padded: int = 0
    skipped: int = 0
    replaced: int = 0
    errors: list[SampleError] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)

    @property
    def utilisation(self) -> float:
        """Share of the time after the first batch in which a batch was ready."""
        running = self.elapsed_s - self.first_batch_s
        return 1.0 - min(1.0, self.waited_s / running) if running > 0 else 1.0

    @property
    def samples_per_s(self) -> float:
        """Samples per second, start-up included."""
        return self.samples / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @classmethod
    def of(cls, statistics: dict[str, Any] | None, remote: dict[str, int] | None = None) -> Report:
        """From the counters of the core; None: nothing has run."""
        if statistics is None:
            return cls()
        counters = {**statistics, **(remote or {})}
        causes = {
            cause: counters.pop(f"waited_{cause}_s") for cause in ("reading", "cpu", "memory")
        }
        errors = [
            SampleError(sample, key, uri, (start, stop), reason)
            for sample, key, uri, start, stop, reason in counters.pop("errors")
        ]
        named = (
            "batches",
            "samples",
            "elapsed_s",
            "first_batch_s",
            "padded",
            "skipped",
            "replaced",
        )
        values = {name: counters.pop(name) for name in named}
        return cls(
            waited_s=sum(causes.values()),
            waited_for=causes,
            errors=errors,
            counters=counters,
            **values,
        )

    def __str__(self) -> str:
        lines = [
            f"{self.batches:,} batches, {self.samples:,} samples in {self.elapsed_s:.2f} s"
            f" ({self.samples_per_s:,.0f} samples/s)",
            f"a batch was ready {self.utilisation:.1%} of the time;"
            f" waited {self.waited_s:.2f} s ({_causes(self.waited_for)}),"
            f" first batch after {self.first_batch_s * 1e3:.0f} ms",
        ]
        count = self.counters.get
        if self.batches:
            lines.append(
                f"bytes: {byte_text(count('bytes_memory', 0))} from memory,"
                f" {byte_text(count('bytes_storage', 0))} from storage,"
                f" {byte_text(count('bytes_batch', 0))} in batches;"
                f" workers {count('read_cpu_s', 0):.2f} s reading,"
                f" {count('decode_cpu_s', 0):.2f} s decoding"
            )
            if dropped := count("bytes_dropped", 0):
                lines.append(
                    f"read again: {byte_text(dropped)} of shards that memory had no room for;"
                    " a smaller window, or more memory, reads them once"
                )
            if count("http_requests", 0):
                lines.append(
                    f"web servers: {count('http_requests', 0):,.0f} requests,"
                    f" {byte_text(count('http_bytes', 0))},"
                    f" {count('http_connections', 0):.0f} connections,"
                    f" {count('http_retries', 0):.0f} retries"
                )
            kept, joined = count("cache_hit_bytes", 0), count("cache_joined_bytes", 0)
            missed, past = count("cache_missed_bytes", 0), count("cache_past_bytes", 0)
            if asked := kept + joined + missed + past:
                lines.append(
                    f"cache: {kept / asked:.1%} of {byte_text(asked)} were there,"
                    f" {joined / asked:.1%} came with a fetch under way,"
                    f" {missed / asked:.1%} were fetched, {past / asked:.1%} fetched and not kept;"
                    f" {byte_text(count('cache_fetched_bytes', 0))} of blocks came from the origin"
                )
            lines.append(
                f"slabs: {count('slabs_allocated', 0):.0f} made,"
                f" {count('slabs_reused', 0):.0f} reused;"
                f" page faults of the process: {count('minor_faults', 0):.0f} minor,"
                f" {count('major_faults', 0):.0f} major"
            )
        if self.padded or self.skipped or self.replaced:
            lines.append(
                f"{self.padded} rows padded, {self.skipped} samples skipped,"
                f" {self.replaced} replaced"
            )
        lines += [f"  {error.uri}: {error.reason}" for error in self.errors[:10]]
        if len(self.errors) > 10:
            lines.append(f"  and {len(self.errors) - 10} more in report().errors")
        return "\n".join(lines)


@dataclass(frozen=True)
class Warmed:
    """What filling the node's cache came to.

    Attributes:
        blocks: Of the dataset.
        kept: Of them, in the cache now. Fewer than ``blocks``: there was no room for more.
        bytes: Of those.
    """

    blocks: int
    kept: int
    bytes: int


class RemoteCounters:
    """What an engine asked of web servers and of the node's cache since this was made."""

    def __init__(self, engine: _core.Engine) -> None:
        self._engine = engine
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        web = {f"http_{name}": count for name, count in self._engine.http_counters().items()}
        cache = {f"cache_{name}": count for name, count in self._engine.cache_counters().items()}
        return web | cache

    def since_start(self) -> dict[str, int]:
        return {name: count - self._before[name] for name, count in self._now().items()}


def _causes(waited_for: dict[str, float]) -> str:
    parts = [f"{cause} {seconds:.2f} s" for cause, seconds in waited_for.items() if seconds > 0]
    return ", ".join(parts) or "nothing"


def byte_text(count: float) -> str:
    """``1.5 MB`` and such."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
