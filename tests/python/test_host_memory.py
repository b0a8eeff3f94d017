"""Memory that the host provides (pinning), with an allocator that delays and poisons."""

from __future__ import annotations

import gc
import weakref
from collections import deque

import numpy as np
import pytest

import headpond as hp
from headpond import _host_memory
from headpond import loader as loader_module


class Block(np.ndarray):
    """Weakly referenceable memory."""


class DelayedPool:
    """As torch's pinned allocator: memory comes back when its last view is dropped, serves again
    only after a copy in flight has ended (later), and is poisoned then."""

    def __init__(self, delay: int) -> None:
        self.delay = delay
        self.live = 0
        self.allocations = 0
        self.sizes: list[int] = []
        self.waiting: deque[tuple[int, np.ndarray]] = deque()
        self.clock = 0

    def allocate(self, size: int) -> np.ndarray:
        self.clock += 1
        while self.waiting and self.waiting[0][0] <= self.clock:
            _, memory = self.waiting.popleft()
            memory[:] = 0xDD
        raw = np.full(size + 64, 0xDD, np.uint8)
        shift = -raw.ctypes.data % 64
        block = raw[shift : shift + size].view(Block)
        self.live += 1
        self.allocations += 1
        self.sizes.append(size)
        weakref.finalize(block, self._free, raw)
        return block

    def _free(self, raw: np.ndarray) -> None:
        self.live -= 1
        self.waiting.append((self.clock + self.delay, raw))

    def pointer(self, memory: np.ndarray) -> int:
        return memory.ctypes.data

    def view(
        self, memory: np.ndarray, start: int, dtype: str, shape: tuple[int, ...]
    ) -> np.ndarray:
        kind = np.dtype("uint8" if dtype == "bytes" else dtype)
        size = int(np.prod(shape)) * kind.itemsize
        view = memory[start : start + size].view(kind).reshape(shape)
        assert view.base is not None
        return view


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> DelayedPool:
    made = DelayedPool(delay=3)
    monkeypatch.setattr(hp.Loader, "_find_host", lambda self: made)
    return made


def pipe(n: int = 800) -> hp.Pipeline:
    data = {"x": np.arange(n), "y": np.arange(3.0 * n).reshape(n, 3)}
    return hp.from_arrays(data).select("x", "y", "__valid__").batch(8)


def test_batches_are_the_hosts_own_memory(pool: DelayedPool) -> None:
    for step, batch in enumerate(pipe().loader()):
        assert isinstance(batch["x"], Block)
        assert batch["x"].tolist() == list(range(8 * step, 8 * step + 8))
        assert batch["y"][:, 0].tolist() == [3.0 * x for x in batch["x"]]
        assert batch["__valid__"].all()


def test_each_field_has_memory_of_its_own(pool: DelayedPool) -> None:
    next(iter(pipe().loader()))
    assert {64, 192} <= {-(-size // 64) * 64 for size in pool.sizes}


def test_kept_batches_are_never_overwritten(pool: DelayedPool) -> None:
    kept = list(pipe().loader())
    assert [int(x) for batch in kept for x in batch["x"]] == list(range(800))


def test_memory_is_handed_out_once_and_comes_back(pool: DelayedPool) -> None:
    loader = pipe(8000).loader()
    assert sum(1 for _ in loader) == 1000
    assert pool.allocations >= 1000 * 3, "never used again by us"
    loader.close()
    gc.collect()
    assert pool.live == 0


def test_what_is_cancelled_comes_back(pool: DelayedPool) -> None:
    loader = pipe(8000).loader()
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    loader.close()
    del loader, iterator
    gc.collect()
    hp.from_arrays({"x": np.arange(3)})  # what engine threads let go of is dropped at the next call
    assert pool.live == 0


def test_skipped_rows_and_the_last_batch_are_cut(pool: DelayedPool) -> None:
    data = {"x": np.arange(13)}
    sizes = [len(batch["x"]) for batch in hp.from_arrays(data).batch(5).loader()]
    assert sizes == [5, 5, 3]


def test_without_cuda_auto_does_not_pin_and_true_warns_once(needs_torch: None) -> None:
    import torch

    assert _host_memory.find_host_memory("auto") is None
    assert not torch.cuda.is_initialized()
    if torch.cuda.is_available():
        pytest.skip("this machine has an accelerator")
    with pytest.warns(UserWarning, match="no accelerator"):
        batch = next(iter(pipe().loader(framework="torch", pin=True)))
    assert not batch["x"].is_pinned()
    assert loader_module is not None
