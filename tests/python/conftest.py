"""What tests share: small data made on the spot, and programs run as a user runs them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from headpond.cli._range_server import RangeServer, Request

ROOT = Path(__file__).resolve().parents[2]
# Tests count what is asked of servers; those of the cache make engines of their own.
os.environ["HEADPOND_CACHE_SIZE"] = "0"
# A shell ignores SIGINT for what it runs in the background, and children inherit that: the tests of
# Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
CLASSES = ("coot", "heron", "teal")


@pytest.fixture(scope="session")
def jpeg() -> Callable[..., bytes]:
    """Makes one JPEG of a class: a colour that tells the class, and texture."""
    from PIL import Image

    def make(kind: int, number: int, width: int = 120, height: int = 90) -> bytes:
        random = np.random.default_rng([kind, number])
        base = np.full((height, width, 3), 60, np.int16)
        base[..., kind % 3] += 120
        pixels = np.clip(base + random.integers(-40, 40, base.shape), 0, 255).astype(np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "JPEG", quality=85)
        return out.getvalue()

    return make


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory, jpeg: Callable[..., bytes]) -> Path:
    """A folder of 3 classes with 40 pictures each: coot/000.jpg and so on. Read only."""
    root = tmp_path_factory.mktemp("data") / "photos"
    for kind, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for number in range(40):
            (root / name / f"{number:03}.jpg").write_bytes(jpeg(kind, number))
    return root


@pytest.fixture(scope="session")
def shards(photos: Path) -> str:
    """The same pictures in 4 tar shards, fields jpg and cls; the braces that name them."""
    root = photos.parent / "shards"
    root.mkdir()
    pictures = sorted(photos.glob("*/*.jpg"))
    for shard in range(4):
        with tarfile.open(root / f"train-{shard:04}.tar", "w") as tar:
            for path in pictures[shard::4]:
                key = f"{path.parent.name}_{path.stem}"
                add_member(tar, f"{key}.jpg", path.read_bytes())
                add_member(tar, f"{key}.cls", str(CLASSES.index(path.parent.name)).encode())
    return str(root / "train-{0000..0003}.tar")


@pytest.fixture(scope="session")
def web(photos: Path, shards: str) -> Iterator[str]:
    """The URL of a web server that has photos/ and shards/."""
    with RangeServer(photos.parent) as server:
        yield server.url


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


@pytest.fixture
def serve() -> Iterator[Callable[..., RangeServer]]:
    """Starts web servers; each has a port of its own, so that no tar index of another is found."""
    servers: list[RangeServer] = []

    def start(folder: Path, asked: Callable[[Request], None] | None = None) -> RangeServer:
        servers.append(RangeServer(folder, asked))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., str]:
    """Runs a Python program in an empty folder and returns what it printed; failure is an error."""

    def run(*arguments: object, timeout: float = 200) -> str:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def needs_torch() -> None:
    """Skips without torch; does not import it into the tests' own process."""
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        pytest.skip("torch is not installed")
