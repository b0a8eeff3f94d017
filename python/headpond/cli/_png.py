"""A PNG writer for pixels that are in memory."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

__all__ = ["write_png"]


def write_png(path: Path, pixels: Any) -> None:
    """Writes uint8 ``[height, width, 3]``."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # filter 0: as they are
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
