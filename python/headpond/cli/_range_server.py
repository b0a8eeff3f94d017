"""A small web server for one folder that answers ranges, for demonstrations and tests."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True)
class Request:
    """What was asked for, and the bytes that the answer is going to hold."""

    method: str
    target: str  # as it was sent: escapes and query included
    status: int
    start: int = 0
    stop: int = 0


class RangeServer:
    """Serves the files below ``folder`` by GET and HEAD, whole or by range, until it is closed.

    Connections are kept alive and answered by a thread each. A path that leads out of the folder,
    by ".." or a symlink, is not found.

    Args:
        folder: What ``url`` stands for.
        asked: Called with each request before it is answered, on the thread that answers it.

    Example:
        >>> import tempfile, headpond as hp
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("0123456789")
        >>> with RangeServer(folder) as server:
        ...     hp.read(f"{server.url}/a.txt", 2, 5)
        b'234'
    """

    def __init__(
        self, folder: str | os.PathLike[str], asked: Callable[[Request], None] | None = None
    ) -> None:
        self._server = _Server(Path(folder).resolve(), asked)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.daemon = True
        self._thread.start()

    @property
    def url(self) -> str:
        """Of the folder, without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> int:
        """Asked so far."""
        return self._server.requests

    def close(self) -> None:
        """No further request is answered; connections end."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> RangeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path, asked: Callable[[Request], None] | None) -> None:
        self.folder = folder
        self.asked = asked
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closed = False
        self.requests = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def tell(self, request: Request) -> None:
        with self._lock:
            self.requests += 1
        if self.asked is not None:
            self.asked(request)

    def server_bind(self) -> None:
        # Without HTTPServer's own, which asks the resolver for the host's name.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if not self._closed:
                self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            self._closed = True
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that went away is no error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        path = self._path()
        if path is None:
            self._refuse(404)
            return
        with path.open("rb") as file:
            self._send(file)

    def _path(self) -> Path | None:
        """The file that is asked for; None: there is none below the folder."""
        name = os.fsdecode(unquote_to_bytes(self.path.partition("?")[0])).lstrip("/")
        try:
            path = (self.server.folder / name).resolve()
            served = path.is_relative_to(self.server.folder) and path.is_file()
        except (OSError, ValueError):  # too long, a NUL
            return None
        return path if served else None

    def _send(self, file: Any) -> None:
        found = os.fstat(file.fileno())
        etag = f'"{found.st_mtime_ns:x}-{found.st_size:x}"'
        if self.headers.get("If-Match", etag) not in (etag, "*"):
            self._refuse(412)
            return
        start, stop, status = 0, found.st_size, 200
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked and asked.group() != "bytes=-":
            status = 206
            start, stop = _range(asked[1], asked[2], found.st_size)
            if start >= stop:
                self._refuse(416, f"bytes */{found.st_size}")
                return
        self._tell(Request(self.command, self.path, status, start, stop))
        self.send_response(status)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.send_header("Last-Modified", self.date_time_string(int(found.st_mtime)))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(stop - start))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{found.st_size}")
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = self.connection.sendfile(file, start, stop - start or None)
        if sent != stop - start:
            self.close_connection = True  # the file became shorter: the client sees a cut body

    def _refuse(self, status: int, content_range: str | None = None) -> None:
        self._tell(Request(self.command, self.path, status))
        self.send_response(status)
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _tell(self, request: Request) -> None:
        self.server.tell(request)


def _range(first: str, last: str, size: int) -> tuple[int, int]:
    """Start and stop of ``first-last``; empty when it lies outside."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1 if last else size)
