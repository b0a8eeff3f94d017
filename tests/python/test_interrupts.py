"""Ctrl-C while something waits for a web server that has stopped answering."""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import add_member

from headpond.cli._range_server import RangeServer, Request

PROGRAM = """
import sys, headpond as hp
url = sys.argv[1]
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

WHOLE_COUNT = (
    "next(iter(hp.from_webdataset(url + '/s-{0..3}.tar').shuffle(seed=1).select('txt')"
    ".batch(2).loader()))"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only."""
    root = tmp_path_factory.mktemp("stalled")
    np.save(root / "tokens.npy", np.arange(1000, dtype=np.uint16))
    (root / "data.bin").write_bytes(bytes(1000))
    for shard in range(4):
        with tarfile.open(root / f"s-{shard}.tar", "w") as tar:
            for place in range(3):
                add_member(tar, f"{shard}-{place}.txt", b"text")
    return root


class Stalling:
    """Answers so many requests, and then none until it ends."""

    def __init__(self, folder: Path, answered: int) -> None:
        self._left = answered
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.stalls = threading.Event()
        self.server = RangeServer(folder, self._asked)

    def _asked(self, request: Request) -> None:
        with self._lock:
            self._left -= 1
            stall = self._left < 0
        if stall:
            self.stalls.set()
            self._ended.wait(100)

    def close(self) -> None:
        self._ended.set()
        self.server.close()


@pytest.fixture
def stalling(folder: Path) -> Iterator[Callable[[int], Stalling]]:
    servers: list[Stalling] = []

    def start(answered: int) -> Stalling:
        servers.append(Stalling(folder, answered))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("call", "answered"),
    [
        ("hp.stat(url + '/data.bin')", 0),
        ("hp.read(url + '/data.bin')", 0),
        ("hp.read(url + '/data.bin', 5)", 0),
        ("hp.read(url + '/data.bin', 5)", 1),
        ("hp.from_files([url + '/data.bin'], label=None)", 0),
        ("hp.from_records([url + '/data.bin'], 'uint8', (10,))", 0),
        ("hp.from_records([url + '/data.bin'], 'uint8', (10,))[3]", 1),
        ("hp.from_records([url + '/tokens.npy'])", 1),
        ("hp.from_tokens([url + '/tokens.npy'], 'uint16', window=10)", 1),
        ("hp.from_webdataset(url + '/s-{0..3}.tar')", 0),
        ("hp.from_webdataset(url + '/s-{0..3}.tar')", 1),
        (WHOLE_COUNT, 2),
        (WHOLE_COUNT, 7),
    ],
)
def test_ctrl_c_ends_what_waits_for_a_web_server(
    stalling: Callable[[int], Stalling], call: str, answered: int
) -> None:
    web = stalling(answered)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(call=call), web.server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert web.stalls.wait(60)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    told = process.stdout.readline()
    took = time.monotonic() - sent
    _, errors = process.communicate(timeout=60)
    assert (told, process.returncode) == ("interrupted\n", 0), errors
    assert took < 10 * 0.2, "200 ms are promised"
    assert time.monotonic() - sent < 10, "and the process ends"
