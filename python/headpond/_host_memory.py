"""Page-locked memory for batches, from torch's own allocator."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["HostMemory", "TorchPinned", "find_host_memory"]


class HostMemory(Protocol):
    """Memory that batches are written into and that is handed out itself."""

    def allocate(self, size: int, /) -> Any:
        """An object over ``size`` bytes, 64-byte aligned."""

    def pointer(self, memory: Any, /) -> int:
        """The address of its first byte."""

    def view(self, memory: Any, start: int, dtype: str, shape: Sequence[int], /) -> Any:
        """An array over part of it, which keeps it alive."""


class TorchPinned:
    """Tensors of ``torch.empty(pin_memory=True)``, never used again by headpond.

    Torch's allocator alone knows when asynchronous copies from a pinned tensor have ended; it
    guards them when the last view is dropped.
    """

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def allocate(self, size: int, /) -> Any:
        """A pinned uint8 tensor."""
        return self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)

    def pointer(self, memory: Any, /) -> int:
        """The address of its first byte."""
        return int(memory.data_ptr())

    def view(self, memory: Any, start: int, dtype: str, shape: Sequence[int], /) -> Any:
        """A tensor over the same storage."""
        kind = getattr(self._torch, "uint8" if dtype == "bytes" else dtype)
        size = kind.itemsize
        for extent in shape:
            size *= extent
        return memory[start : start + size].view(kind).view(tuple(shape))


def find_host_memory(pin: bool | str) -> HostMemory | None:
    """What ``pin=`` means here and now; None: ordinary memory."""
    torch = sys.modules.get("torch")
    if pin is False or torch is None:
        return None
    if torch.cuda.is_initialized():
        return TorchPinned()
    if pin == "auto":
        return None  # a CUDA context is never made unasked
    if not torch.cuda.is_available():
        warnings.warn("pin=True: there is no accelerator; batches are not pinned", stacklevel=4)
        return None
    torch.cuda.init()
    return TorchPinned()
