"""What scripts/check_wheel.py lets pass and what it does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "scripts" / "check_wheel.py"
LIBRARIES = ("liburing", "fmt", "nlohmann/json", "xxHash", "tl::expected", "pybind11")

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "nm", "readelf"))), reason="needs gcc and binutils"
)


@pytest.fixture
def check(tmp_path: Path):
    """Packs a module and licences into a wheel and checks it: exit code and what was said."""

    def pack(
        source: str = "int PyInit__core(void) { return 0; }",
        *,
        libraries: tuple[str, ...] = LIBRARIES,
        options: tuple[str, ...] = (),
        tag: str = "manylinux_2_34_x86_64",
    ) -> tuple[int, str]:
        code, module = tmp_path / "core.c", tmp_path / "_core.so"
        code.write_text(source)
        subprocess.run(["gcc", "-shared", "-fPIC", code, "-o", module, *options], check=True)
        wheel = tmp_path / f"headpond-0.1.0-cp311-cp311-{tag}.whl"
        licences = "Apache License\n" + "".join(f"{name} (a library)\n" for name in libraries)
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(module, "headpond/_core.cpython-311-x86_64-linux-gnu.so")
            archive.writestr("headpond/py.typed", "")
            archive.writestr("headpond-0.1.0.dist-info/licenses/LICENSE", licences)
        done = subprocess.run(
            [sys.executable, CHECK, wheel, "--prefix", "/home/builder"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return pack


def test_a_sound_wheel_passes(check) -> None:
    code, said = check()
    assert code == 0, said
    assert "sound" in said


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"source": "int PyInit__core; int jpeg_read_header;"}, "jpeg_read_header"),
        ({"options": ("-Wl,--no-as-needed", "-lcrypt")}, "libcrypt.so"),
        ({"libraries": LIBRARIES[1:]}, "no licence of liburing"),
        ({"source": 'const char PyInit__core[] = "libcurl/7.88";'}, "no licence of curl"),
        ({"source": 'const char PyInit__core[] = "/home/builder/a.cpp";'}, "/home/builder"),
        ({"tag": "linux_x86_64"}, "manylinux"),
        ({"source": "char PyInit__core[16000000] = {1};", "options": ("-O0",)}, "more than"),
    ],
)
def test_what_is_wrong_is_said(check, changed, words) -> None:
    code, said = check(**changed)
    assert code == 1, said
    assert words in said


def test_the_licence_file_names_every_library() -> None:
    text = (ROOT / "LICENSE-third-party").read_text()
    for name in (*LIBRARIES, "curl", "OpenSSL", "libjpeg-turbo", "nghttp2", "zlib", "zstd"):
        assert f"\n{name} (" in text
