"""Progress of long openings: a line on a terminal after 2 s, quiet elsewhere."""

from __future__ import annotations

import sys
import time

__all__ = ["Progress"]

_QUIET_S = 2.0
_STEP_S = 0.2


class Progress:
    """One line on stderr that is rewritten; as a callback of the core's opening functions.

    Leaving its ``with`` clears the line.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown = 0.0
        self._width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Shows ``what`` with what is done and, if known, what there is."""
        now = time.monotonic()
        if now - self._began < _QUIET_S or now - self._shown < _STEP_S or not sys.stderr.isatty():
            return
        self._shown = now
        share = f"{done:,} of {total:,} ({done / total:.0%})" if total else f"{done:,}"
        self._write(f"headpond: {what} {share}")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Clears the line."""
        if self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)
