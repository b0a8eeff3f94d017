"""Checks a wheel: size, tag, what the module exports and needs, licences, no paths of the builder.

check_wheel.py WHEEL [--prefix FOLDER]: FOLDER must not be named in the module.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

BYTES_MAX = 15_000_000
# What every Linux that manylinux means has; the rest must be inside.
SYSTEM = ("libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux")
SYSTEM += ("libgcc_s.so", "libstdc++.so")
# Libraries that are linked in: a text that tells in the module, and its name in the licences.
LINKED = {
    b"libcurl/": "curl",
    b"OpenSSL 3": "OpenSSL",
    b"libjpeg-turbo version": "libjpeg-turbo",
    b"nghttp2/": "nghttp2",
    b" inflate 1.": "zlib",
    b"libzstd": "zstd",
}
ALWAYS_LINKED = ("liburing", "fmt", "nlohmann/json", "xxHash", "tl::expected", "pybind11")


def output(*command: object) -> list[str]:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def exported(module: Path) -> list[str]:
    """Names that a module gives to others."""
    return [
        line.split()[-1].partition("@")[0] for line in output("nm", "-D", "--defined-only", module)
    ]


def needed(module: Path) -> list[str]:
    """Shared libraries that it asks for."""
    return [
        line.split("[")[1].rstrip("]")
        for line in output("readelf", "-d", module)
        if "(NEEDED)" in line
    ]


def faults(wheel: Path, prefix: str) -> list[str]:
    found = []
    if wheel.stat().st_size > BYTES_MAX:
        found.append(f"{wheel.stat().st_size:,} bytes are more than {BYTES_MAX:,}")
    if "manylinux" not in wheel.name:
        found.append("the tag is not manylinux's")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        root = Path(folder)
        modules = list(root.glob("headpond/_core*.so"))
        if len(modules) != 1:
            return [*found, f"{len(modules)} modules _core"]
        module = modules[0]
        bundled = {path.name for path in root.glob("headpond.libs/*")}
        content = module.read_bytes()

        foreign = [name for name in exported(module) if name != "PyInit__core"]
        if foreign:
            found.append(f"{len(foreign)} exported symbols, such as {', '.join(foreign[:5])}")
        missing = [n for n in needed(module) if n not in bundled and not n.startswith(SYSTEM)]
        if missing:
            found.append(f"needs {', '.join(missing)}, which are not inside")
        if prefix and prefix.encode() in content:
            found.append(f"names {prefix}, a folder of the builder")
        licences = list(root.glob("*.dist-info/licenses/**/*"))
        text = "\n".join(path.read_text() for path in licences if path.is_file())
        linked = [name for mark, name in LINKED.items() if mark in content]
        unnamed = [name for name in (*ALWAYS_LINKED, *linked) if f"\n{name} " not in text]
        if "Apache License" not in text:
            unnamed.insert(0, "headpond")
        if unnamed:
            found.append(f"no licence of {', '.join(unnamed)}")
        if not (root / "headpond" / "py.typed").exists():
            found.append("no py.typed")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--prefix", default="")
    arguments = parser.parse_args()
    found = faults(arguments.wheel, arguments.prefix)
    for fault in found:
        print(f"{arguments.wheel.name}: {fault}", file=sys.stderr)
    if not found:
        print(f"{arguments.wheel.name}: {arguments.wheel.stat().st_size:,} bytes, sound")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
