"""A lock that a forked child finds free."""

from __future__ import annotations

import os
import threading

__all__ = ["ProcessLock"]


class ProcessLock:
    """A re-entrant lock, one per process.

    A lock that another thread held when the process was forked is never released in the child:
    that thread is not there.
    """

    def __init__(self) -> None:
        self._locks: dict[int, threading.RLock] = {}  # by process id

    def _own(self) -> threading.RLock:
        process = os.getpid()
        # setdefault is atomic: threads that come first together get one lock.
        return self._locks.get(process) or self._locks.setdefault(process, threading.RLock())

    def __enter__(self) -> None:
        self._own().acquire()

    def __exit__(self, *_: object) -> None:
        self._own().release()
