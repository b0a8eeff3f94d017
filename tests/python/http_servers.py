"""Web servers for tests: nginx, and certificates of a CA made on the spot."""

from __future__ import annotations

import functools
import http.client
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_CONFIGURATION = """
daemon off;
{user}
worker_processes 1;
pid {root}/nginx.pid;
error_log {root}/error.log;
events {{ worker_connections 512; }}
http {{
  log_format lines '$request_method $uri $http_range $server_protocol $connection';
  access_log {root}/access.log lines;
  client_body_temp_path {root}/tmp-body;
  proxy_temp_path {root}/tmp-proxy;
  fastcgi_temp_path {root}/tmp-fastcgi;
  uwsgi_temp_path {root}/tmp-uwsgi;
  scgi_temp_path {root}/tmp-scgi;
  default_type application/octet-stream;
  server {{
    listen 127.0.0.1:{http};
    listen 127.0.0.1:{https} ssl http2;
    server_name localhost;
    ssl_certificate {tls}/good.pem;
    ssl_certificate_key {tls}/good.key;
    root {www};
    location /no-range/ {{ alias {www}/; max_ranges 0; }}
    location /no-etag/ {{ alias {www}/; etag off; }}
    location /one-request/ {{ alias {www}/; keepalive_requests 1; }}
    location /gzip/ {{ alias {www}/; gzip on; gzip_types *; gzip_min_length 1; }}
    location /forbidden/ {{ return 403; }}
    location ~ ^/redirect/(.*)$ {{ return 302 /$1; }}
  }}
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int = 0) -> socket.socket:
    """A socket that a server is started with: who connects before it runs just waits."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(512)
    return made


def make_certificates(folder: Path) -> None:
    """ca.pem, and good, expired, other-name and stranger, each with .pem and .key."""

    def openssl(*arguments: object) -> str:
        command = ["openssl", *map(str, arguments)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout + done.stderr

    # OpenSSL 3.0 takes a negative number of days; newer ones do not, and take dates.
    takes_dates = "-not_after" in openssl("x509", "-help")
    expired = ["-not_before", "20200101000000Z", "-not_after", "20200102000000Z"]

    def key_arguments(name: str) -> list[object]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                folder / f"{name}.key"]  # fmt: skip

    def make_ca(name: str) -> None:
        openssl("req", "-x509", *key_arguments(name), "-days", 30, "-subj", f"/CN={name}", "-out",
                folder / f"{name}.pem")  # fmt: skip

    make_ca("ca")
    make_ca("unknown-ca")
    for name, ca, names, valid in (
        ("good", "ca", "DNS:localhost,IP:127.0.0.1", ["-days", 30]),
        ("expired", "ca", "DNS:localhost,IP:127.0.0.1", expired if takes_dates else ["-days", -1]),
        ("other-name", "ca", "DNS:elsewhere.example", ["-days", 30]),
        ("stranger", "unknown-ca", "DNS:localhost,IP:127.0.0.1", ["-days", 30]),
    ):
        openssl("req", *key_arguments(name), "-subj", f"/CN={name}", "-out", folder / "request.pem")
        (folder / "names").write_text(f"subjectAltName={names}")
        openssl("x509", "-req", "-in", folder / "request.pem", "-CA", folder / f"{ca}.pem",
                "-CAkey", folder / f"{ca}.key", "-CAcreateserial", *valid, "-extfile",
                folder / "names", "-out", folder / f"{name}.pem")  # fmt: skip


class Nginx:
    """A running nginx that serves ``www`` over http, https and HTTP/2."""

    def __init__(self, root: Path, tls: Path) -> None:
        self.www = root / "www"
        self.www.mkdir(parents=True)
        self._log = root / "access.log"
        sockets = [listening(), listening()]
        self._ports = [made.getsockname()[1] for made in sockets]
        plain, secure = self._ports
        self.url = f"http://127.0.0.1:{plain}"
        self.secure_url = f"https://localhost:{secure}"
        configuration = root / "nginx.conf"
        # As root the workers would take another user, who may not read the folder.
        user = "user root;" if os.getuid() == 0 else ""
        configuration.write_text(
            _CONFIGURATION.format(
                root=root, www=self.www, tls=tls, http=plain, https=secure, user=user
            )
        )
        self._root = root
        self._start(sockets)

    def start(self) -> None:
        """After `stop`, at the same ports."""
        self._start([listening(port) for port in self._ports])

    def _start(self, sockets: list[socket.socket]) -> None:
        root = self._root
        numbers = [made.fileno() for made in sockets]
        self._process = subprocess.Popen(
            [
                "nginx",
                "-p",
                str(root),
                "-c",
                str(root / "nginx.conf"),
                "-e",
                str(root / "error.log"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=numbers,
            env={**os.environ, "NGINX": "".join(f"{number};" for number in numbers)},
        )
        for made in sockets:
            made.close()  # where nginx ends, so does the port
        try:
            asking = http.client.HTTPConnection("127.0.0.1", self._ports[0], timeout=30)
            asking.request("HEAD", "/")
            asking.getresponse()
            asking.close()
        except OSError as error:
            log = (root / "error.log").read_text()
            raise RuntimeError(f"nginx did not start: {log}") from error

    def put(self, name: str, data: bytes) -> str:
        """Writes a file; its URL."""
        path = self.www / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f"{self.url}/{name}"

    def requests(self) -> list[str]:
        """Lines of method, path, range, protocol and connection."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def stop(self) -> None:
        """Ends every connection at once."""
        self._process.terminate()
        self._process.wait(30)


@contextmanager
def nginx(root: Path) -> Iterator[Nginx]:
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    tls = root / "tls"
    tls.mkdir(parents=True)
    make_certificates(tls)
    server = Nginx(root / "nginx", tls)
    try:
        yield server
    finally:
        server.stop()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.seen.append(dict(self.headers))
        super().do_GET()

    def log_message(self, *arguments: object) -> None:
        pass


def _tls_context(certificate: Path, highest: ssl.TLSVersion | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    if highest is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that it is old is the point
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.maximum_version = highest
        context.set_ciphers("ALL:@SECLEVEL=0")
    return context


@contextmanager
def plain_server(
    folder: Path, certificate: Path | None = None, tls: ssl.TLSVersion | None = None
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Python's own server, with TLS if there is a certificate; its URL and the headers it saw."""
    seen: list[dict[str, str]] = []
    handler = type("Handler", (_Quiet,), {"seen": seen})
    context = None if certificate is None else _tls_context(certificate, tls)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    scheme = "http" if context is None else "https"
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    server.handle_error = lambda *arguments: None  # type: ignore[method-assign]
    thread.start()
    try:
        yield f"{scheme}://localhost:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
