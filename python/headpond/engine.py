"""The engine: threads, I/O and memory that loaders share, and how they are configured."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

from headpond import _core
from headpond.errors import Error, InvalidArgument, choice, nearest

__all__ = ["Engine", "configure", "info"]

logger = logging.getLogger("headpond")

_OPTIONS = (
    "io",
    "io_depth",
    "cpu_threads",
    "memory",
    "connections",
    "retries",
    "outage",
    "ca_file",
    "cache_dir",
    "cache_size",
    "log",
)
_PREFIX = "HEADPOND_"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_UNITS = {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_LEVELS = ("debug", "info", "warning", "error")


def parse_size(value: int | str, argument: str, whole: int | None = None) -> int:
    """Bytes of ``64MB``, ``64MiB``, ``4096`` or, of ``whole``, ``10%``.

    Raises:
        InvalidArgument: Not a size; names the argument.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)(B?|%)\s*", str(value).upper())
        if not found:
            raise InvalidArgument(
                f'{argument}={value!r} is no size: write "64MB", "64MiB" or "10%"'
            )
        number, unit, end = found.groups()
        if end == "%":
            if unit or whole is None or float(number) > 100:
                raise InvalidArgument(f"{argument}={value!r} is no share of the memory")
            size = int(float(number) * whole / 100)
        else:
            scale = _UNITS.get(unit) or _BINARY_UNITS.get(unit)
            if scale is None:
                raise InvalidArgument(f"{argument}={value!r} has an unknown unit")
            size = int(float(number) * scale)
    if size <= 0:
        raise InvalidArgument(f"{argument}={value!r} must be more than 0 bytes")
    return size


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _parse_count(value: int | str, argument: str) -> int:
    try:
        count = int(value)
    except ValueError:
        count = 0
    if count <= 0 or count != (value if isinstance(value, int) else count):
        raise InvalidArgument(f"{argument}={value!r} must be a whole number above 0")
    return count


def _parse_number(value: int | float | str, argument: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e9:
        raise InvalidArgument(f"{argument}={value!r} must be a number of seconds, at least 0")
    return number


def _parse_retries(value: int | str) -> int:
    if str(value) == "0":
        return 0
    try:
        return _parse_count(value, "retries")
    except InvalidArgument as error:
        raise InvalidArgument(f"retries={value!r} must be a whole number, at least 0") from error


def _parse_file(value: str | os.PathLike[str], argument: str) -> bytes:
    if not Path(value).is_file():
        raise InvalidArgument(f"{argument}={os.fspath(value)!r} is no file")
    return os.fsencode(Path(value).absolute())


def _certifi() -> bytes:
    """The certificates of the package certifi, if it is installed; it is not imported."""
    try:
        found = importlib.util.find_spec("certifi")
    except (ImportError, ValueError):
        return b""
    if found is None or not found.origin:
        return b""
    return os.fsencode(Path(found.origin).with_name("cacert.pem"))


def _from_environment() -> dict[str, str]:
    """Options of ``HEADPOND_<NAME>``; a name that is none of ours warns, for it does nothing."""
    options = {}
    for variable, value in os.environ.items():
        if not variable.startswith(_PREFIX):
            continue
        name = variable[len(_PREFIX) :].lower()
        if name in _OPTIONS:
            options[name] = value
        else:
            hint = nearest(variable, [_PREFIX + option.upper() for option in _OPTIONS])
            warnings.warn(f"{variable} is no option of headpond{hint}", stacklevel=4)
    return options


def _check_names(options: dict[str, Any]) -> None:
    for name in options:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise InvalidArgument(
                f'no option "{name}"{nearest(name, _OPTIONS)}; options are {known}'
            )


def _ranks_on_node() -> int:
    text = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return int(text) if text.isdigit() and int(text) > 0 else 1


class Engine:
    """Threads, I/O and a memory budget of its own, for ``loader(engine=...)``.

    Most programs need none: loaders share one engine per process, which
    :func:`configure` sets up. Nothing runs before the first batch is asked for.

    Args:
        io: ``"auto"``, ``"uring"`` or ``"threads"``: how cold files are read. "auto" takes
            io_uring where the kernel allows it.
        io_depth: Reads in flight on the ring.
        cpu_threads: Workers that copy and decode. Default: the CPUs this process may use, divided
            by ``LOCAL_WORLD_SIZE``.
        memory: Budget of what is read ahead and not yet handed out: bytes, ``"2GB"``, ``"2GiB"`` or
            ``"10%"`` of the machine. Default: a quarter of the memory, at most 2 GiB, divided by
            ``LOCAL_WORLD_SIZE``.
        connections: Open to one web server at a time. Default: 32.
        retries: How often a read is tried again that a live web server refused (429, 500, 503) or
            cut. Default: 5. A server that does not answer at all is waited for, see ``outage``.
        outage: Seconds that reads wait for a web server that is down before they fail. Default:
            300.
        ca_file: Certificates (PEM) that https servers are checked against. Default:
            ``SSL_CERT_FILE``, ``CURL_CA_BUNDLE``, the system's, those of the package certifi.
        cache_dir: Folder for the blocks of remote objects and the indexes of tar shards, shared by
            all processes of the user on this node. Default: ``headpond`` in the user's cache
            folder.
        cache_size: Most that the blocks in ``cache_dir`` take, all processes together: bytes,
            ``"500GB"`` or ``"30%"`` of the disk; 0: no cache. Default: 10 % of the disk. A
            twentieth of the disk always stays free.
        log: ``"debug"``, ``"info"``, ``"warning"`` or ``"error"``: level of the logger
            ``headpond``. Default: what logging is set to.

    Each is also ``HEADPOND_<NAME>`` in the environment.

    Raises:
        InvalidArgument: An unknown option (names the nearest) or a wrong value.
    """

    def __init__(self, **options: int | float | str | os.PathLike[str]) -> None:
        _check_names(options)
        merged: dict[str, Any] = {**_from_environment(), **options}
        io = choice("io", str(merged.get("io", "auto")), ("auto", "uring", "threads"))
        io_depth = _parse_count(merged["io_depth"], "io_depth") if "io_depth" in merged else 0
        threads = (
            _parse_count(merged["cpu_threads"], "cpu_threads") if "cpu_threads" in merged else 0
        )
        memory = (
            parse_size(merged["memory"], "memory", _machine_memory()) if "memory" in merged else 0
        )
        if "log" in merged:
            logger.setLevel(choice("log", str(merged["log"]).lower(), _LEVELS).upper())
            if not logger.handlers and not logging.getLogger().handlers:
                logger.addHandler(logging.StreamHandler())
        self._cache_dir = str(merged["cache_dir"]) if merged.get("cache_dir") else _user_cache()
        connections = (
            _parse_count(merged["connections"], "connections") if "connections" in merged else 0
        )
        retries = _parse_retries(merged["retries"]) if "retries" in merged else None
        outage = _parse_number(merged["outage"], "outage") if "outage" in merged else None
        ca_file = _parse_file(merged["ca_file"], "ca_file") if merged.get("ca_file") else b""
        self._core = _core.Engine(
            io,
            io_depth,
            threads,
            memory,
            _ranks_on_node(),
            connections,
            retries,
            outage,
            ca_file,
            _certifi(),
            os.fsencode(Path(self._cache_dir) / "blocks"),
            *_cache_space(self._cache_dir, merged.get("cache_size", "10%")),
        )
        weakref.finalize(self, _core.Engine.close, self._core)

    def close(self) -> None:
        """Stops the loaders and threads of this engine: 2 s at most. Idempotent."""
        self._core.close()

    def info(self) -> dict[str, Any]:
        """As :func:`info`, of this engine."""
        return {**self._core.status(), "cache_dir": self._cache_dir}


def _cache_space(folder: str, size: int | str) -> tuple[int, int]:
    """The limit of the cache (0: none), and the bytes of its disk that stay free."""
    if str(size).strip() == "0":
        return 0, 0
    place = Path(folder).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    disk = os.statvfs(place)
    whole = disk.f_blocks * disk.f_frsize
    return parse_size(size, "cache_size", whole), whole // 20


def _user_cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(base) / "headpond")


class _Default:
    """The process's engine: made when first needed, made anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: dict[str, Any] = {}
        self._engine: Engine | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._engine = None  # the parent's: letting go of it here touches nothing of it

    def get(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = Engine(**self._options)
            return self._engine

    def configure(self, options: dict[str, Any]) -> None:
        _check_names(options)
        with self._lock:
            if self._engine is not None and self._engine.info()["started"]:
                raise Error(
                    "configure() comes before the first batch: the engine is running. "
                    "Another one for a loader: loader(engine=hp.Engine(...))"
                )
            made = Engine(**{**self._options, **options})
            self._options.update(options)
            previous, self._engine = self._engine, made
        if previous is not None:
            previous.close()


_default = _Default()


def default_engine() -> Engine:
    """The engine of loaders that name none."""
    return _default.get()


def configure(**options: int | float | str | os.PathLike[str]) -> None:
    """Sets options of the process's engine. Call before the first batch.

    Args:
        **options: As for :class:`Engine`; an argument goes before ``HEADPOND_<NAME>``.

    Raises:
        InvalidArgument: An unknown option (names the nearest) or a wrong value.
        Error: The engine is already running.
    """
    _default.configure(options)


def info() -> dict[str, Any]:
    """What is active, and why.

    Returns:
        ``io`` (backend), ``io_reason`` (of a fall-back, else empty), ``fixed_buffers``,
        ``cpu_threads``, ``started``, ``memory_bytes`` (budget), ``memory_used``, ``memory_peak``,
        ``http`` (the library, where its certificates are, and counts of requests, bytes,
        retries and so on), ``cache`` (its folder, or the reason why there is none, and counts),
        ``cache_dir`` and ``version``.
    """
    import headpond

    return {**default_engine().info(), "version": headpond.__version__}


def _close_default() -> None:
    engine = _default._engine
    if engine is not None:
        engine.close()


atexit.register(_close_default)
