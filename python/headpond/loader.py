"""Loaders: what the training loop holds."""

from __future__ import annotations

import itertools
import json
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headpond import _core
from headpond._host_memory import HostMemory, find_host_memory
from headpond._order import Order, check_seed
from headpond._passes import Pass, Position
from headpond._process_lock import ProcessLock
from headpond._ranks import Rank, check_rank, compare_orders, find_rank
from headpond.engine import Engine, default_engine, parse_size
from headpond.errors import Error, InvalidArgument, choice
from headpond.pipeline import Pipeline
from headpond.ragged import Ragged
from headpond.report import RemoteCounters, Report

if TYPE_CHECKING:
    from headpond.datasets import Dataset

__all__ = ["Loader"]

_ENDLESS = 2**40  # epochs
_loaders_begun = itertools.count()  # ranks begin the same loaders in the same order


class Loader:
    """Iterate over a pipeline's batches, one epoch per ``for``.

    Made by :meth:`Pipeline.loader`; see there for the arguments.

    Yields:
        A dict of one array per field, shape ``(rows, *field.shape)``, in the field's dtype,
        C-contiguous, writable and 64-byte aligned; a :class:`Ragged` where the size varies.
        ``rows`` is the batch size, less only in an epoch's last batch or where a sample was
        skipped.

    Raises:
        NotFound: An object does not exist.
        CorruptData: A sample is damaged, with ``on_error="raise"``.
        Timeout: No batch within ``timeout``; says what it waits for.
        Error: Any other failure; ``.sample_index``, ``.uri`` and ``.range`` say where.

    The order is the sampler's, whatever the number of threads. A batch's memory is reused when its
    last array is dropped, never earlier.

    Each ``for`` moves to the next epoch, also when it is left early. An iterator that returned
    nothing leaves no trace; the first batch of a newer one replaces an older one, which then
    raises.

    Example:
        >>> import headpond as hp, numpy as np
        >>> loader = hp.from_arrays({"x": np.arange(6)}).batch(4).loader()
        >>> [batch["x"].tolist() for batch in loader]
        [[0, 1, 2, 3], [4, 5]]
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        framework: str = "numpy",
        pin: str | bool = "auto",
        prefetch: int | str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int | None = None,
        uneven: str = "pad",
        on_error: str = "raise",
        max_errors: int = 100,
        steps_per_epoch: int | None = None,
        timeout: float | None = None,
        engine: Engine | None = None,
    ) -> None:
        if pipeline._batch is None:
            raise InvalidArgument("a loader makes batches: call batch(size) before loader()")
        choice("framework", framework, ("numpy", "torch"))
        if pin not in ("auto", True, False):
            raise InvalidArgument(f'pin={pin!r} is none of "auto", True, False')
        if steps_per_epoch is not None and steps_per_epoch <= 0:
            raise InvalidArgument(f"steps_per_epoch={steps_per_epoch} must be above 0")
        if timeout is not None and timeout <= 0:
            raise InvalidArgument(f"timeout={timeout} must be above 0 seconds, or None")
        if max_errors < 0:
            raise InvalidArgument(f"max_errors={max_errors} must not be negative")
        self._pipeline = pipeline
        self._batch = pipeline._batch
        self._framework = framework
        self._pin = pin
        self._prefetch = 0 if prefetch is None else parse_size(prefetch, "prefetch")
        self._given_rank = check_rank(rank, world_size)
        self._rank: Rank | None = None
        order = pipeline._order or Order()
        self._seed = order.seed if seed is None else check_seed(seed)
        self._uneven = choice("uneven", uneven, ("pad", "drop", "allow"))
        self._on_error = choice("on_error", on_error, ("raise", "skip", "replace"))
        self._max_errors = max_errors
        self._pass_steps = steps_per_epoch or 0
        self._timeout = None if timeout is None else float(timeout)
        self._engine = engine
        if order.mode == "full" or any(c.kind == "index" for c in pipeline._columns):
            pipeline.dataset._count()
        self._sampler = order.sampler(pipeline.dataset._core)

        self._position = Position()
        self._next: Position | None = Position()  # where the next pass starts; None: by _position
        self._batches: _core.Batches | None = None
        self._web: RemoteCounters | None = None
        self._closer: weakref.finalize[Any, Any] | None = None
        self._current: weakref.ref[Pass] | None = None
        self._beginning = ProcessLock()  # threads may share an iterator
        self._flows = False  # the core stands where the next pass starts, and reads ahead for it
        self._closed = False

    # -- iteration

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return Pass(self, 1)

    def epochs(self, count: int) -> Iterator[dict[str, Any]]:
        """The batches of ``count`` passes, read ahead across their borders.

        The rest of an epoch that a loaded state is in the middle of counts as one.
        """
        if count <= 0:
            raise InvalidArgument(f"epochs({count}): at least 1")
        return Pass(self, count)

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch, or ``steps_per_epoch``.

        Raises:
            TypeError: The samples of the shards are not counted yet.
        """
        if self._pass_steps:
            return self._pass_steps
        size = self._sampler.size if self._sampler.size_is_known else len(self.dataset)
        return self._steps(self._find_rank(), size).count_from(0)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``for``.

        After :meth:`load_state_dict`, its own epoch keeps the place in it; another starts anew.
        """
        if epoch < 0:
            raise InvalidArgument(f"epoch {epoch} must not be negative")
        start = self._next
        if start is None or start.ended or start.epoch != epoch:
            self._next = Position(epoch)
            self._flows = False

    @property
    def sampler(self) -> Loader:
        """Itself: trainers call ``loader.sampler.set_epoch(n)``."""
        return self

    @property
    def dataset(self) -> Dataset:
        """The dataset that it reads."""
        return self._pipeline.dataset

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: JSON-able, less than 1 KiB, the same on every rank.

        Counts batches handed out, never those read ahead. Taken after the last batch it resumes to
        an empty pass; after the end of the loop, to the next epoch.
        """
        place = self._where()
        text = _core.state_json(
            self._order(),
            self._sampler,
            place.epoch,
            place.cursor,
            place.pass_step,
            place.ended,
            place.group,
        )
        state: dict[str, Any] = json.loads(text)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next ``for`` goes on from ``state``, once. ``{}`` changes nothing.

        World size, batch size, prefetch and threads may differ from those of the loader that made
        it; an iterator in use is replaced.

        Raises:
            InvalidArgument: The state is damaged, newer, or of another dataset, seed or shuffle.
        """
        if not state:
            return
        try:
            text = json.dumps(state)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"this is no loader state: {error}", code="HP0301") from error
        loaded = _core.LoaderState.parse(text, self._order())
        self._detach()
        self._flows = False
        self._next = Position(
            loaded.epoch, loaded.cursor, loaded.pass_step, loaded.ended, loaded.group
        )

    def _order(self) -> _core.OrderIdentity:
        dataset = self._pipeline.dataset._core
        return _core.OrderIdentity(
            dataset.fingerprint, dataset.size_digest, self._sampler, self._seed
        )

    def _where(self) -> Position:
        running = self._running()
        if running is not None and running.handed_out():
            return running.position()
        return self._position if self._next is None else self._next

    def _running(self) -> Pass | None:
        return None if self._current is None else self._current()

    # -- passes

    def _begin(self, beginning: Pass) -> _core.Batches:
        """Moves the core to where ``beginning`` starts; it is the current pass from now on."""
        if self._closed:
            raise Error("this loader is closed", code="HP0402")
        self._detach()
        rank = self._rank = self._find_rank()
        steps = self._steps(rank)
        start = self._start(steps)
        batches = self._core_batches(steps)
        beginning.start = start
        pass_steps = beginning.passes * self._pass_steps
        if self._flows:
            batches.go_on(beginning.passes, pass_steps)
        else:
            epochs = _ENDLESS if pass_steps else beginning.passes
            batches.seek(
                start.epoch, start.cursor, epochs, start.pass_step, pass_steps, start.group
            )
        self._flows = False
        self._current = weakref.ref(beginning)
        return batches

    def _start(self, steps: _core.Steps) -> Position:
        start = self._next
        if start is None:
            # Left early, an epoch counts as done; a pass of steps_per_epoch goes on where it ended.
            start = self._position
            if not self._pass_steps:
                start = Position(start.epoch + 1)
            elif not start.ended:
                start = Position(start.epoch, start.cursor, group=start.group)
        if start.ended:
            start = Position(start.epoch + 1)
        if not self._pass_steps:
            return Position(start.epoch, start.cursor, group=start.group)
        if steps.count_from(0) == 0:
            raise InvalidArgument(
                "steps_per_epoch: the data make no batch, so no pass can be filled"
            )
        if start.pass_step < self._pass_steps and steps.count_from(start.cursor) == 0:
            start = Position(start.epoch + 1, 0, start.pass_step)
        return start

    def _handed_out(self) -> None:
        """The current pass has returned a batch: from here on it counts."""
        self._next = None

    def _ended(self, ending: Pass) -> None:
        self._position = ending.end_position()
        if not ending.handed_out():
            self._next = None  # else it is None, or was set by set_epoch() during the pass
        self._current = None
        # What is in flight belongs to the next pass.
        self._flows = self._next is None

    def _left(self, leaving: Pass) -> None:
        """The current pass is broken off: what is in flight for it is cancelled."""
        if leaving.handed_out():
            self._position = leaving.position()
        self._current = None
        if self._batches is not None:
            self._batches.cancel()

    def _detach(self) -> None:
        running = self._running()
        if running is not None:
            running.replace()

    def _core_batches(self, steps: _core.Steps) -> _core.Batches:
        if self._batches is not None and self._batches.is_ours():
            return self._batches
        self._flows = False
        self._compare_orders()
        engine = self._engine or default_engine()
        self._web = RemoteCounters(engine._core)
        convert = None
        if self._framework == "torch":
            import torch

            convert = torch.from_dlpack
        items = {column.name: column.item for column in self._pipeline._columns}
        batches = _core.Batches(
            engine._core,
            self._pipeline.dataset._core,
            self._sampler,
            self._pipeline._field_plans(),
            steps,
            self._seed,
            self._on_error,
            self._max_errors,
            self._prefetch,
            self._framework,
            convert,
            lambda name, values, offsets: Ragged(values, offsets, items[name]),
            self._find_host(),
        )
        self._batches = batches
        # Also at exit, before the engine's threads: nothing is in flight when Python ends.
        self._closer = weakref.finalize(self, batches.stop)
        return batches

    def _compare_orders(self) -> None:
        """Ranks that take their place from the job must agree; given ranks are the caller's."""
        if self._given_rank is not None:
            return
        order = json.loads(_core.state_json(self._order(), self._sampler, 0, 0, 0, False, (0, 0)))
        if not order["size_digest"]:
            del order["n"]  # shards are counted as they come: ranks may know more or less
        order["batch"], order["drop_last"] = self._batch.size, self._batch.drop_last
        compare_orders(order, next(_loaders_begun), self._find_rank())

    def _find_host(self) -> HostMemory | None:
        return find_host_memory(self._pin) if self._framework == "torch" else None

    def _find_rank(self) -> Rank:
        return self._rank or self._given_rank or find_rank()

    def _steps(self, rank: Rank, size: int | None = None) -> _core.Steps:
        return _core.Steps(
            self._sampler.size if size is None else size,
            self._batch.size,
            rank.world_size,
            rank.rank,
            self._batch.drop_last,
            self._uneven,
        )

    # -- the rest

    def report(self) -> Report:
        """What the loader did: batches, samples/s, the share of time waited and for what."""
        if self._batches is None or not self._batches.is_ours():
            return Report()
        web = self._web.since_start() if self._web is not None else {}
        return Report.of(self._batches.statistics(), web)

    def close(self) -> None:
        """Cancels what is in flight and waits for it, 2 s at most. Idempotent."""
        with self._beginning:  # not between another thread's look at _closed and its start
            self._closed = True
        if self._closer is not None:
            self._closer()  # first, so that a next() that waits in another thread says "closed"
        self._detach()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._running() is not None:
            raise TypeError("a loader that is iterating cannot be pickled")
        if self._engine is not None:
            raise TypeError("a loader with an engine of its own cannot be pickled")
        rank = self._given_rank or (None, None)
        arguments = {
            "framework": self._framework,
            "pin": self._pin,
            "prefetch": self._prefetch or None,
            "rank": rank[0],
            "world_size": rank[1],
            "seed": self._seed,
            "uneven": self._uneven,
            "on_error": self._on_error,
            "max_errors": self._max_errors,
            "steps_per_epoch": self._pass_steps or None,
            "timeout": self._timeout,
        }
        return _restore, (self._pipeline, arguments, self._next, self._position)

    def __repr__(self) -> str:
        place = self._where()
        return f"Loader({self._pipeline!r}, epoch {place.epoch}, cursor {place.cursor})"


def _restore(
    pipeline: Pipeline, arguments: dict[str, Any], start: Position | None, position: Position
) -> Loader:
    loader = Loader(pipeline, **arguments)
    loader._next = start
    loader._position = position
    return loader
