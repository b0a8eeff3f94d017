"""What can go wrong, as exceptions that also derive from Python's own kinds."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AccessDenied",
    "CorruptData",
    "Error",
    "InvalidArgument",
    "NotFound",
    "ObjectChanged",
    "Timeout",
    "Unavailable",
]


class Error(Exception):
    """Base of all errors of headpond.

    Attributes:
        code: ``HP####``, stable for ever; ``headpond explain CODE`` says more.
        uri: The object that it happened to, without credentials; or None.
        range: Its bytes ``(start, stop)``; or None.
        sample_index: The sample's number in its dataset; or None.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "HP0001",
        uri: str | None = None,
        range: tuple[int, int] | None = None,
        sample_index: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.uri = uri
        self.range = range
        self.sample_index = sample_index

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotFound(Error, FileNotFoundError):
    """An object does not exist."""


class AccessDenied(Error, PermissionError):
    """An object exists and may not be read."""


class Timeout(Error, TimeoutError):
    """A deadline passed; the message names what was waited for."""


class Unavailable(Error, ConnectionError):
    """A store does not answer; trying again later may help."""


class ObjectChanged(Error):
    """An object is no longer the version that the dataset was opened with."""


class CorruptData(Error, ValueError):
    """Bytes are not what their format says."""


class InvalidArgument(Error, ValueError):
    """A call is wrong; nothing was tried."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`` (did you mean "x"?)`` for a mistyped name, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f' (did you mean "{close[0]}"?)' if close else ""


def choice(argument: str, value: str, known: Iterable[str]) -> str:
    """The value, if it is one of the known ones.

    Raises:
        InvalidArgument: It is not; names those there are.
    """
    known = list(known)
    if value not in known:
        names = ", ".join(repr(name) for name in known)
        raise InvalidArgument(f"{argument}={value!r} is none of {names}")
    return value
