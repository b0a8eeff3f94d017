"""The web server of demonstrations and tests answers as real ones do."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

from headpond.cli._range_server import RangeServer

CONTENT = bytes(range(100))


@pytest.fixture
def connection(tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"not served")
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "a b.bin").write_bytes(CONTENT)
    (folder / "empty").write_bytes(b"")
    with RangeServer(folder) as server:
        host = server.url.removeprefix("http://")
        opened = http.client.HTTPConnection(host, timeout=20)
        yield opened
        opened.close()


def ask(connection, path: str, wanted: str | None = None, method: str = "GET"):
    connection.request(method, path, headers={} if wanted is None else {"Range": wanted})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


@pytest.mark.parametrize(
    ("wanted", "status", "start", "stop"),
    [
        (None, 200, 0, 100),
        ("bytes=0-9", 206, 0, 10),
        ("bytes=90-", 206, 90, 100),
        ("bytes=90-500", 206, 90, 100),
        ("bytes=-5", 206, 95, 100),
        ("bytes=0-99", 206, 0, 100),
        ("bytes=1-2,5-6", 200, 0, 100),
    ],
)
def test_ranges(connection, wanted, status, start, stop) -> None:
    got, body, headers = ask(connection, "/a%20b.bin", wanted)
    assert (got, body) == (status, CONTENT[start:stop])
    if status == 206:
        assert headers["Content-Range"] == f"bytes {start}-{stop - 1}/100"


def test_what_it_does_not_serve(connection) -> None:
    assert ask(connection, "/a%20b.bin", "bytes=100-")[0] == 416
    assert ask(connection, "/missing")[0] == 404
    assert ask(connection, "/../secret")[0] == 404
    assert ask(connection, "/")[0] == 404
    assert ask(connection, "/empty")[:2] == (200, b"")


def test_a_head_has_size_and_version_but_no_body(connection) -> None:
    status, body, headers = ask(connection, "/a%20b.bin", method="HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "100")
    assert headers["ETag"] == ask(connection, "/a%20b.bin")[2]["ETag"]
