"""The demo's web server: what a client of ours needs, and nothing outside its folder."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from headpond.cli._range_server import RangeServer, Request

DATA = bytes(range(256)) * 40


@pytest.fixture
def asked() -> list[Request]:
    return []


@pytest.fixture
def client(tmp_path: Path, asked: list[Request]) -> Iterator[http.client.HTTPConnection]:
    served = tmp_path / "served"
    (served / "sub").mkdir(parents=True)
    (served / "a b.bin").write_bytes(DATA)
    (served / "empty").write_bytes(b"")
    (served / "sub" / "é%.bin").write_bytes(b"deep")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "served-too").mkdir()
    (tmp_path / "served-too" / "secret").write_bytes(b"secret")
    (served / "link").symlink_to(tmp_path / "secret")
    with RangeServer(served, asked.append) as server:
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=20)
        yield connection
        connection.close()


def ask(
    client: http.client.HTTPConnection, method: str, target: str, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    client.request(method, target, headers=headers)
    answer = client.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


@pytest.mark.parametrize(
    ("asked_range", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        ("bytes=10239-", 10239, 10240),
        ("bytes=100-99999", 100, 10240),
        ("bytes=-3", 10237, 10240),
        ("bytes=-99999", 0, 10240),
    ],
)
def test_ranges(client, asked_range: str, start: int, stop: int) -> None:
    status, body, headers = ask(client, "GET", "/a%20b.bin", Range=asked_range)
    assert (status, body) == (206, DATA[start:stop])
    assert headers["Content-Range"] == f"bytes {start}-{stop - 1}/10240"
    assert headers["Content-Length"] == str(stop - start)


@pytest.mark.parametrize("asked_range", ["bytes=10240-", "bytes=9-5", "bytes=-0"])
def test_a_range_outside_is_refused(client, asked_range: str) -> None:
    status, body, headers = ask(client, "GET", "/a%20b.bin", Range=asked_range)
    assert (status, body, headers["Content-Range"]) == (416, b"", "bytes */10240")


def test_wholes_heads_and_versions_on_one_connection(client, asked: list[Request]) -> None:
    status, body, headers = ask(client, "GET", "/a%20b.bin?x=1")
    connection = client.sock
    assert (status, body) == (200, DATA)
    assert ask(client, "GET", "/a%20b.bin", Range="lines=1-2")[:2] == (200, DATA)
    assert ask(client, "GET", "/a%20b.bin", Range="bytes=1-2,5-6")[:2] == (200, DATA)
    assert ask(client, "HEAD", "/a%20b.bin")[2]["Content-Length"] == "10240"
    assert ask(client, "GET", "/empty")[:2] == (200, b"")
    assert ask(client, "GET", "/sub/%C3%A9%25.bin")[:2] == (200, b"deep")
    assert ask(client, "GET", "/a%20b.bin", **{"If-Match": headers["ETag"]})[0] == 200
    assert ask(client, "GET", "/a%20b.bin", **{"If-Match": '"other"'})[:2] == (412, b"")
    assert client.sock is connection, "kept alive"
    assert asked[0] == Request("GET", "/a%20b.bin?x=1", 200, 0, 10240)
    assert [request.status for request in asked] == [200, 200, 200, 200, 200, 200, 200, 412]


@pytest.mark.parametrize(
    "target",
    [
        "/nothing",
        "/",
        "/sub",
        "/../secret",
        "/sub/../../secret",
        "/%2e%2e/secret",
        "/..%2Fsecret",
        "/../served-too/secret",
        "/link",
        "//etc/passwd",
        "/%00",
        "/" + "x" * 5000,
    ],
)
def test_there_is_nothing_outside_of_the_folder(client, target: str) -> None:
    assert ask(client, "GET", target)[:2] == (404, b"")
    assert ask(client, "HEAD", target)[0] == 404


def test_a_closed_server_ends_its_connections(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    server = RangeServer(tmp_path)
    client = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=20)
    assert ask(client, "GET", "/a")[:2] == (200, b"a")
    server.close()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(client, "GET", "/a")
