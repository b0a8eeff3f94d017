"""Web servers for the benchmarks: nginx on a folder, and an origin that is slow on purpose."""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_CONFIG = """
daemon off; pid {home}/pid; error_log {home}/error; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; keepalive_requests 10000000;
  client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
  uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
  server {{ listen 127.0.0.1:{port}{tls}; root {root}; }}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def certificate(home: Path) -> Path:
    """A certificate for 127.0.0.1 that is its own CA; its key lies beside it."""
    path = home / "cert.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=b"
    )
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(home / "key.pem"), "-out", str(path)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return path


@contextlib.contextmanager
def nginx(root: Path, *, tls: bool = False) -> Iterator[tuple[str, str]]:
    """The URL of `root` while it runs, and the CA file to trust (empty without TLS 1.3)."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    with tempfile.TemporaryDirectory() as folder:
        home, port = Path(folder), free_port()
        ca = certificate(home) if tls else None
        secure = (
            f" ssl; ssl_certificate {ca}; ssl_certificate_key {home}/key.pem; ssl_protocols TLSv1.3"
        )
        config = home / "nginx.conf"
        config.write_text(
            _CONFIG.format(home=home, port=port, root=root.resolve(), tls=secure if tls else "")
        )
        server = subprocess.Popen([program, "-p", folder, "-c", str(config)])
        try:
            for _ in range(1000):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.01)
            yield f"http{'s' if tls else ''}://127.0.0.1:{port}", str(ca or "")
        finally:
            server.terminate()
            server.wait()


class SlowOrigin(http.server.ThreadingHTTPServer):
    """Serves a folder by ranges: a wait before the first byte, and a rate per connection.

    Threads sleep, so that hundreds of requests wait at once; counts requests and bytes.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, root: Path, *, first_byte_s: float, mib_s: float, stall: bool = False):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.first_byte_s, self.mib_s, self.stall = root, first_byte_s, mib_s, stall
        self.lock = threading.Lock()
        self.requests = self.bytes = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> SlowOrigin:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SlowOrigin
    wbufsize = 0
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        origin = self.server
        time.sleep(origin.first_byte_s)
        path = origin.root / self.path.lstrip("/")
        status = path.stat()
        start, stop = 0, status.st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked:
            start, stop = int(asked[1]), min(int(asked[2]) + 1, status.st_size)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{status.st_mtime_ns:x}-{status.st_size:x}"')
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{status.st_size}")
        self.end_headers()
        if not body:
            return
        with origin.lock:
            origin.requests += 1
            origin.bytes += stop - start
        with open(path, "rb") as file, contextlib.suppress(OSError):
            step = 256 << 10
            for at in range(start, stop, step):
                size = min(step, stop - at)
                time.sleep(origin.mib_s * size / (1 << 20))
                if origin.stall:
                    time.sleep(3600)
                self.connection.sendall(os.pread(file.fileno(), size, at))
