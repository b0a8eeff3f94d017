"""Objects on web servers: nginx as it is, TLS, and an environment that must not matter."""

from __future__ import annotations

import json
import logging
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from http_servers import Nginx, free_port, make_certificates, nginx, plain_server

import headpond as hp

DATA = np.arange(50_000, dtype=np.uint32).tobytes()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with nginx(tmp_path_factory.mktemp("web")) as server:
        server.put("data.bin", DATA)
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    (folder / "data.bin").write_bytes(DATA)
    return folder


def run(program: str, **environment: str) -> dict:
    """What a program prints as JSON, run in an environment of its own."""
    done = subprocess.run(
        [sys.executable, "-c", "import json, headpond as hp\n" + program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def attempt(url: str, **environment: str) -> dict:
    """Reads a URL in a fresh process: its size or the error, and how many requests it took."""
    program = f"""
found = {{}}
try:
    found["size"] = len(hp.read({url!r}))
except hp.Error as error:
    found["error"] = str(error)
    found["kind"] = [kind.__name__ for kind in type(error).__mro__]
found["requests"] = hp.info()["http"]["requests"]
print(json.dumps(found))
"""
    return run(program, **environment)


def test_read_stat_and_ranges(web: Nginx) -> None:
    url = f"{web.url}/data.bin"
    assert hp.read(url) == DATA
    assert hp.read(url, 10, 20) == DATA[10:20]
    assert hp.read(url, 199_990) == DATA[-10:]
    info = hp.stat(url)
    assert info.size == len(DATA)
    assert info.etag
    assert info.mtime_ns
    ranges = [(url, i * 1000, i * 1000 + 700) for i in range(150)]
    assert hp.read_many(ranges) == [DATA[start:stop] for _, start, stop in ranges]
    out = np.zeros(100, np.uint32)
    assert hp.read_into(url, 400, out) == 400
    np.testing.assert_array_equal(out, np.arange(100, 200))


@pytest.mark.parametrize("kind", ["no-range", "no-etag", "one-request", "redirect"])
def test_servers_of_every_kind(web: Nginx, kind: str) -> None:
    url = f"{web.url}/{kind}/data.bin"
    assert hp.read(url) == DATA
    assert hp.read(url, 5, 99) == DATA[5:99]
    assert hp.stat(url).size == len(DATA)
    assert hp.read_many([(url, i, i + 50) for i in range(60)]) == [
        DATA[i : i + 50] for i in range(60)
    ]


def test_a_server_that_would_compress_is_asked_not_to(web: Nginx) -> None:
    assert hp.read(f"{web.url}/gzip/data.bin") == DATA


def test_errors_are_of_their_kind(web: Nginx) -> None:
    with pytest.raises(hp.NotFound, match="missing"):
        hp.read(f"{web.url}/missing")
    with pytest.raises(hp.AccessDenied):
        hp.read(f"{web.url}/forbidden/x", 0, 10)
    with pytest.raises(hp.Error, match=r"cannot list.*0000\.\.0146.*manifest"):
        hp.list(f"{web.url}/")
    with pytest.raises(hp.InvalidArgument, match="ends past"):
        hp.read(f"{web.url}/data.bin", 0, len(DATA) + 1)


def test_names_with_spaces_and_accents(web: Nginx) -> None:
    for name in ("a b.bin", "caf\u00e9.bin", "100%.bin", "x+y&z=1.bin"):
        web.put(name, name.encode())
        assert hp.read(f"{web.url}/{name}") == name.encode()


def test_an_object_replaced_between_two_reads_is_noticed(web: Nginx) -> None:
    url = web.put("changing.bin", b"a" * 1000)
    ds = hp.from_records([url], "uint8", (100,))
    assert ds[9]["data"].tobytes() == b"a" * 100
    web.put("changing.bin", b"b" * 900)
    with pytest.raises(hp.ObjectChanged):
        ds[8]


def test_records_over_http_equal_local_ones(web: Nginx, tmp_path: Path) -> None:
    paths, urls = [], []
    for part in range(3):
        data = np.random.default_rng(part).integers(0, 255, 64 * 40, np.uint8).tobytes()
        (tmp_path / f"part-{part}.bin").write_bytes(data)
        paths.append(tmp_path / f"part-{part}.bin")
        urls.append(web.put(f"records/part-{part}.bin", data))

    def epoch(source: list) -> np.ndarray:
        pipe = hp.from_records(source, "uint8", (64,)).shuffle(seed=3).batch(16)
        return np.concatenate([batch["data"] for batch in pipe.loader()])

    np.testing.assert_array_equal(epoch(urls), epoch(paths))


def test_https_with_a_ca_of_ones_own(web: Nginx, tmp_path: Path) -> None:
    ca = str(web.www.parents[1] / "tls" / "ca.pem")
    url = f"{web.secure_url}/data.bin"
    clean = {"SSL_CERT_FILE": "", "CURL_CA_BUNDLE": "", "SSL_CERT_DIR": ""}
    for variable in ("HEADPOND_CA_FILE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"):
        assert attempt(url, **{**clean, variable: ca})["size"] == len(DATA)
    refused = attempt(url, **clean)
    assert "Unavailable" in refused["kind"]
    assert refused["requests"] == 1


def test_small_ranges_share_an_http2_connection(web: Nginx) -> None:
    ca = str(web.www.parents[1] / "tls" / "ca.pem")
    web.put("h2.bin", DATA)
    program = f"""
url = {f"{web.secure_url}/h2.bin"!r}
parts = hp.read_many([(url, i * 100, i * 100 + 100) for i in range(200)])
http = hp.info()["http"]
print(json.dumps({{"bytes": len(b"".join(parts)), "connections": http["connections"]}}))
"""
    found = run(program, HEADPOND_CA_FILE=ca)
    assert found["bytes"] == 20_000
    protocols = {line.split()[3] for line in web.requests() if " /h2.bin " in line}
    if protocols == {"HTTP/2.0"}:
        assert found["connections"] <= 2
    else:
        assert protocols == {"HTTP/1.1"}  # a libcurl without HTTP/2


def test_connections_that_nginx_ends_every_thousand_requests_cost_nothing(web: Nginx) -> None:
    ca = str(web.www.parents[1] / "tls" / "ca.pem")
    program = f"""
right = True
for url in ({web.secure_url!r} + "/data.bin", {web.url!r} + "/data.bin"):
    parts = hp.read_many([(url, i * 40, i * 40 + 40) for i in range(4000)])
    right = right and b"".join(parts) == hp.read(url, 0, 160_000)
http = hp.info()["http"]
print(json.dumps([right, http["retries"], http["no_answers"], http["failures"]]))
"""
    assert run(program, HEADPOND_CA_FILE=ca) == [True, 0, 0, 0]


class Said(logging.Handler):
    """Sets its event when the log says these words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._words in record.getMessage():
            self.event.set()


def test_an_epoch_outlives_a_restart_of_the_server(web: Nginx, tmp_path: Path) -> None:
    data = np.random.default_rng(5).integers(0, 255, (1 << 14, 1024), np.uint8)
    url = web.put("restart.bin", data.tobytes())
    local = tmp_path / "restart.bin"
    local.write_bytes(data.tobytes())
    engine = hp.Engine(memory="8MB")

    def batches(source: str, engine: hp.Engine) -> Iterator[np.ndarray]:
        pipe = hp.from_records([source], "uint8", (1024,)).shuffle(seed=1).batch(256)
        for batch in pipe.loader(engine=engine):
            yield batch["data"].copy()

    remote = batches(url, engine)
    got = [next(remote)]
    web.stop()

    noticed = Said("does not answer")

    def restart_once_noticed() -> None:
        noticed.event.wait(100)
        web.start()

    helper = threading.Thread(target=restart_once_noticed, daemon=True)
    helper.start()
    logging.getLogger("headpond").addHandler(noticed)
    got += list(remote)
    logging.getLogger("headpond").removeHandler(noticed)
    helper.join()
    assert noticed.event.is_set()
    np.testing.assert_array_equal(np.concatenate(got), np.concatenate([*batches(local, engine)]))
    assert engine.info()["http"]["failures"] == 0
    engine.close()


@pytest.mark.parametrize("certificate", ["expired", "other-name", "stranger"])
def test_a_certificate_that_is_not_good_is_final(certificates: Path, certificate: str) -> None:
    with plain_server(certificates, certificates / f"{certificate}.pem") as (url, seen):
        refused = attempt(f"{url}/data.bin", HEADPOND_CA_FILE=str(certificates / "ca.pem"))
    assert "certificate" in refused["error"].lower() or "SSL" in refused["error"]
    assert "Unavailable" in refused["kind"]
    assert refused["requests"] == 1
    assert not seen


def test_an_old_tls_is_refused(certificates: Path) -> None:
    try:
        server = plain_server(certificates, certificates / "good.pem", ssl.TLSVersion.TLSv1_1)
        with server as (url, seen):
            refused = attempt(f"{url}/data.bin", HEADPOND_CA_FILE=str(certificates / "ca.pem"))
    except (ssl.SSLError, ValueError) as error:
        pytest.skip(f"this OpenSSL serves no TLS 1.1: {error}")
    assert refused["requests"] == 1
    assert not seen


def test_the_environment_of_curl_does_not_matter(certificates: Path, tmp_path: Path) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    (tmp_path / ".netrc").write_text("machine localhost login canary password canary\n")
    (tmp_path / ".netrc").chmod(0o600)
    (tmp_path / ".curlrc").write_text(f'proxy = "{nobody}"\nuser = "canary:canary"\n')
    proxies = dict.fromkeys(
        ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"), nobody
    )
    with plain_server(certificates) as (url, seen):
        found = attempt(
            f"{url}/data.bin",
            HOME=str(tmp_path),
            CURL_HOME=str(tmp_path),
            NETRC=str(tmp_path / ".netrc"),
            **proxies,
        )
    assert found["size"] == len(DATA)
    assert seen
    assert "canary" not in json.dumps(seen)
    assert not any("authorization" in map(str.lower, headers) for headers in seen)


def test_options_reach_the_core(web: Nginx) -> None:
    url = f"http://127.0.0.1:{free_port()}/x"
    found = attempt(url, HEADPOND_OUTAGE="0", HEADPOND_RETRIES="0")
    assert "Unavailable" in found["kind"]
    assert found["requests"] == 1
    assert attempt(url, HEADPOND_OUTAGE="0")["requests"] == 3


@pytest.mark.parametrize(
    "options",
    [{"connections": 0}, {"retries": -1}, {"outage": -1}, {"outage": "x"}, {"ca_file": "/nowhere"}],
)
def test_wrong_options_name_themselves(options: dict) -> None:
    with pytest.raises(hp.InvalidArgument, match=next(iter(options))):
        hp.Engine(**options)


def test_the_report_counts_what_was_asked_of_web_servers(web: Nginx, tmp_path: Path) -> None:
    loader = hp.from_records([f"{web.url}/data.bin"], "uint32", (100,)).batch(50).loader()
    assert sum(len(batch["data"]) for batch in loader) == 500
    report = loader.report()
    assert report.counters["http_requests"] >= 1
    assert report.counters["http_bytes"] >= len(DATA)
    assert report.counters["http_failures"] == 0
    assert "web servers:" in str(report)
    (tmp_path / "data.bin").write_bytes(DATA)
    local = hp.from_records([tmp_path / "data.bin"], "uint32", (100,)).batch(50).loader()
    next(iter(local))
    assert local.report().counters["http_requests"] == 0
    assert "web servers:" not in str(local.report())


def test_a_whole_object_takes_one_request(web: Nginx) -> None:
    url = f"{web.url}/data.bin"
    web.put("empty.bin", b"")
    before = hp.info()["http"]["requests"]
    assert hp.read(url) == DATA
    assert hp.info()["http"]["requests"] == before + 1
    wanted = [(url, None, None), (f"{web.url}/empty.bin", None, None), (url, 5, 9), (url, 0, None)]
    assert hp.read_many(wanted) == [DATA, b"", DATA[5:9], DATA]
    assert hp.info()["http"]["requests"] == before + 5


def test_info_counts_what_was_sent(web: Nginx) -> None:
    before = hp.info()["http"]
    hp.read(f"{web.url}/data.bin", 0, 1000)
    after = hp.info()["http"]
    assert after["requests"] == before["requests"] + 1
    assert after["bytes"] == before["bytes"] + 1000
    assert after["library"].startswith("libcurl/")
