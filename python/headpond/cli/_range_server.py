"""A small web server for one folder that answers ranges, for demonstrations and tests."""

from __future__ import annotations

import re
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["RangeServer"]

_PIECE = 1 << 20


class RangeServer:
    """Serves the files below ``folder`` on loopback until it is closed.

    Example:
        >>> import tempfile, headpond as hp
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("0123456789")
        >>> with RangeServer(folder) as server:
        ...     hp.read(f"{server.url}/a.txt", 2, 5)
        b'234'

    Attributes:
        url: Of the folder, without a slash at the end.
        requests: Answered so far.
    """

    def __init__(self, folder: Path) -> None:
        self.requests = 0
        handler = type("Handler", (_Handler,), {"folder": folder.resolve(), "owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="range-server", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> RangeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    folder: Path
    owner: RangeServer

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        self.owner.requests += 1
        path = (self.folder / unquote(urlsplit(self.path).path).lstrip("/")).resolve()
        if not path.is_relative_to(self.folder) or not path.is_file():
            self.send_response(HTTPStatus.NOT_FOUND)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status = path.stat()
        asked = self._range(status.st_size)
        start, stop = asked or (0, status.st_size)
        if asked and start >= stop:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{status.st_size}")
            start = stop = 0
        elif asked:
            self.send_response(HTTPStatus.PARTIAL_CONTENT)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{status.st_size}")
        else:
            self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{status.st_mtime_ns:x}-{status.st_size:x}"')
        self.end_headers()
        if body:
            self._send(path, start, stop)

    def _range(self, size: int) -> tuple[int, int] | None:
        """The bytes that are asked for; None: the whole, also where several ranges are."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not found or found.groups() == ("", ""):
            return None
        first, last = found.groups()
        if not first:
            return max(0, size - int(last)), size
        return int(first), min(size, int(last) + 1) if last else size

    def _send(self, path: Path, start: int, stop: int) -> None:
        try:
            with path.open("rb") as file:
                file.seek(start)
                while start < stop:
                    start += self.wfile.write(file.read(min(_PIECE, stop - start)))
        except (BrokenPipeError, ConnectionResetError):  # the reader has gone
            self.close_connection = True
