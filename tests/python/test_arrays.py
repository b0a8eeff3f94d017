"""Memory of batches: views, alignment, lifetime, DLPack."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import headpond as hp
from headpond import _core

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES += ["float16", "float32", "float64"]


def make(dtype: str, values: np.ndarray) -> _core.Array:
    return _core.make_array(dtype, values.shape, values.tobytes())


def example(dtype: str, shape: tuple[int, ...] = (3, 4)) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4), (0, 2), (5,), ()])
def test_every_dtype_goes_to_numpy_by_every_way(dtype: str, shape: tuple[int, ...]) -> None:
    values = example(dtype, shape)
    for convert in (np.from_dlpack, np.asarray, lambda array: np.asarray(memoryview(array))):
        got = convert(make(dtype, values))
        assert got.dtype == values.dtype
        assert got.shape == values.shape
        assert np.array_equal(got, values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_to_torch(dtype: str, needs_torch: None) -> None:
    import torch

    values = example(dtype)
    tensor = torch.from_dlpack(make(dtype, values))
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert np.array_equal(tensor.numpy(), values)
    legacy = torch.from_dlpack(make(dtype, values).__dlpack__())
    assert np.array_equal(legacy.numpy(), values)


def test_bfloat16_goes_to_torch_and_numpy_gets_a_hint(needs_torch: None) -> None:
    import torch

    values = torch.arange(6, dtype=torch.bfloat16)
    bits = values.view(torch.uint16).numpy()
    array = _core.make_array("bfloat16", (6,), bits.tobytes())
    assert torch.equal(torch.from_dlpack(array), values)
    with pytest.raises(BufferError):
        memoryview(array)


def test_numpy_without_ml_dtypes_says_what_to_install(tmp_path, monkeypatch) -> None:
    import sys

    (tmp_path / "b.bin").write_bytes(bytes(8))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    loader = hp.from_records(tmp_path / "b.bin", "bfloat16", 2).batch(2).loader()
    with pytest.raises(hp.Error, match="ml_dtypes"):
        next(iter(loader))


def test_dlpack_says_where_and_which_version() -> None:
    array = make("int32", example("int32"))
    assert array.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(1, 0)))
    assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(2, 5)))
    for version in (None, (0, 8)):
        capsule = array.__dlpack__(max_version=version)
        assert '"dltensor"' in repr(capsule)
    assert array.__dlpack__(stream=-1)
    assert array.__dlpack__(dl_device=(1, 0), copy=False)


def test_dlpack_refuses_what_it_cannot_do() -> None:
    array = make("int32", example("int32"))
    for stream in (0, 1, 2, "x"):
        with pytest.raises(ValueError):
            array.__dlpack__(stream=stream)
    for device in ((2, 0), (1, 1)):
        with pytest.raises(BufferError):
            array.__dlpack__(dl_device=device)


def test_a_copy_is_a_copy_and_a_view_is_a_view() -> None:
    array = make("int32", example("int32"))
    view, copy = np.asarray(array), np.from_dlpack(array, copy=True)
    view[0, 0] = 77
    assert np.from_dlpack(array)[0, 0] == 77
    assert copy[0, 0] == 0


def test_a_capsule_is_consumed_once(needs_torch: None) -> None:
    import torch

    capsule = make("int32", example("int32")).__dlpack__()
    tensor = torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError):
        torch.from_dlpack(capsule)
    assert tensor.sum() == 6


def test_capsules_never_consumed_leak_nothing() -> None:
    array = make("uint8", np.zeros(1 << 20, np.uint8))
    for version in (None, (1, 0)):
        for _ in range(1000):
            array.__dlpack__(max_version=version, copy=True)  # 2 GB if they leaked
    assert resident_mb() < 1000


def resident_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6


def test_an_array_outlives_its_exporter() -> None:
    values = example("float64", (1000, 10))
    array = make("float64", values)
    views = [np.from_dlpack(array), np.asarray(array)]
    del array
    gc.collect()
    for view in views:
        assert np.array_equal(view, values)


def batches(framework: str = "numpy", n: int = 400):
    pipe = hp.from_arrays({"x": np.arange(n), "y": np.arange(2.0 * n).reshape(n, 2)}).batch(8)
    return pipe.loader(framework=framework)  # type: ignore[arg-type]


def test_arrays_are_writable_contiguous_and_aligned() -> None:
    for batch in batches():
        for array in batch.values():
            assert array.flags.writeable
            assert array.flags.c_contiguous
            assert not array.flags.owndata
            assert array.ctypes.data % 64 == 0


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_kept_batch_is_never_overwritten(framework: str, request: pytest.FixtureRequest) -> None:
    if framework == "torch":
        request.getfixturevalue("needs_torch")
    kept = [batch["x"][2:4] for batch in batches(framework)]
    values = [[int(x) for x in part] for part in kept]
    assert values == [[8 * i + 2, 8 * i + 3] for i in range(50)]


def test_memory_is_reused_when_batches_are_dropped() -> None:
    pipe = hp.from_arrays({"x": np.arange(4000)}).batch(8)
    loader = pipe.loader(prefetch="1KB")  # two batches
    addresses = set()
    for batch in loader:
        addresses.add(batch["x"].ctypes.data)
    counters = loader.report().counters
    assert counters["slabs_reused"] > 0
    assert len(addresses) < 20


def test_one_array_keeps_its_batch() -> None:
    loader = batches()
    iterator = iter(loader)
    first = next(iterator)
    x = first["x"]
    dropped = weakref.ref(first["y"])
    del first
    gc.collect()
    assert dropped() is None
    for _ in iterator:
        pass
    assert x.tolist() == list(range(8))


def test_an_array_outlives_loader_and_engine() -> None:
    engine = hp.Engine(cpu_threads=1)
    loader = hp.from_arrays({"x": np.arange(100)}).batch(10).loader(engine=engine)
    x = next(iter(loader))["x"]
    loader.close()
    engine.close()
    del loader, engine
    gc.collect()
    assert x.tolist() == list(range(10))


def test_torch_batches_are_tensors_over_the_same_memory(needs_torch: None) -> None:
    import torch

    for batch in batches("torch"):
        for tensor in batch.values():
            assert isinstance(tensor, torch.Tensor)
            assert tensor.is_contiguous()
            assert tensor.data_ptr() % 64 == 0
        batch["x"] += 1  # writable
