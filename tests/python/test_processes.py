"""Fork, spawn, signals, exit, threads: never a hang, nothing left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headpond as hp


def loader(n: int = 1000, size: int = 10, **options: object) -> hp.Loader:
    pipe = hp.from_arrays({"x": np.arange(n)}).shuffle(seed=1).batch(size)
    return pipe.loader(**options)  # type: ignore[arg-type]


def values(batches: object) -> list[int]:
    return [int(x) for batch in batches for x in batch["x"]]  # type: ignore[attr-defined]


def in_child(work: Callable[[], object], timeout: float = 30) -> None:
    """Runs work in a forked child; what it raises fails the test."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    limit = time.monotonic() + timeout
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


def test_a_child_forked_before_the_epoch_iterates() -> None:
    shared = loader()
    expected = values(loader())
    in_child(lambda: check(values(shared) == expected))
    assert values(shared) == expected


def check(right: bool) -> None:
    assert right


def test_a_child_forked_in_mid_epoch_gets_a_fresh_engine_or_a_clear_error() -> None:
    shared = loader()
    expected = values(loader())
    iterator = iter(shared)
    seen = values([next(iterator), next(iterator)])
    held = next(iterator)
    seen += values([held])

    def work() -> None:
        try:
            next(iterator)
        except hp.Error as error:
            check(error.code == "HP0403")
        else:
            raise AssertionError("the parent's iterator works in the child")
        check(shared.state_dict()["cursor"] == 30)
        check(len(values(shared)) == 1000)
        check(values(loader()) == expected)
        check(len(held["x"]) == 10)
        shared.close()

    in_child(work)
    assert seen + values(iterator) == expected, "the parent is exact"


def test_a_child_drops_what_it_inherited_without_harm() -> None:
    def work() -> None:
        nonlocal shared, held
        del shared
        held.clear()
        gc.collect()

    shared: hp.Loader | None = loader()
    held = []
    for batch in shared:
        held.append(batch)
        if len(held) == 20:
            break
    in_child(work)
    assert len(held) == 20


def test_a_child_forked_after_the_epoch_iterates() -> None:
    shared = loader()
    first = values(shared)
    in_child(lambda: check(values(shared) != first))


def test_forks_during_an_epoch_leave_every_batch_right() -> None:
    expected = values(loader(4000))
    seen = []
    for step, batch in enumerate(loader(4000)):
        if step % 80 == 0:
            in_child(lambda: check(len(values(loader(100))) == 100))
        seen += batch["x"].tolist()
    assert seen == expected


def sum_of(pickled: hp.Loader) -> int:
    return sum(values(pickled))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_loader_works_in_other_processes(method: str) -> None:
    values(loader())
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(sum_of, (loader(),)) == sum(range(1000))


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    imports = "import os, sys, signal, time\nimport numpy as np\nimport headpond as hp\n"
    return subprocess.Popen(
        [sys.executable, "-c", imports + program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def running(then: str) -> str:
    """A program with an epoch under way."""
    return f"""
x = hp.from_arrays({{"x": np.arange(1000)}}).batch(10).loader()
iterator = iter(x)
next(iterator)
{then}
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand names of one large picture: a batch of all of them takes many seconds."""
    from PIL import Image

    root = tmp_path_factory.mktemp("slow")
    pixels = np.random.default_rng(0).integers(0, 256, (2000, 2000, 3), np.uint8)
    Image.fromarray(pixels).save(root / "picture.jpg")
    (root / "names").mkdir()
    for number in range(1000):
        (root / "names" / f"{number:04}.jpg").symlink_to(root / "picture.jpg")
    return root / "names"


SLOW = """
engine = hp.Engine(cpu_threads=1)
pipe = hp.from_files(sys.argv[1], label=None).image("data", size=8, crop="none").batch(1000)
"""


def test_ctrl_c_in_next_is_seen_at_once(slow: Path) -> None:
    process = start(
        SLOW
        + """
iterator = iter(pipe.loader(engine=engine))
print("waiting", flush=True)
try:
    next(iterator)
except KeyboardInterrupt:
    print("interrupted", flush=True)
""",
        slow,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.5)  # into next()
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - sent < 0.2 + 0.8, "200 ms, and what a loaded machine adds"
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 0, errors


def slow_pipe(slow: Path) -> hp.Pipeline:
    return hp.from_files(slow, label=None).image("data", size=8, crop="none").batch(1000)


def test_a_timeout_says_what_it_waits_for(slow: Path) -> None:
    engine = hp.Engine(cpu_threads=1)
    with slow_pipe(slow).loader(engine=engine, timeout=0.3) as waiting:
        iterator = iter(waiting)
        with pytest.raises(hp.Timeout, match=r"no batch within 0\.3 s: \w+") as caught:
            next(iterator)
        assert isinstance(caught.value, TimeoutError)
        assert waiting.state_dict()["cursor"] == 0, "it left no trace"
    engine.close()


def test_close_ends_a_next_that_waits_in_another_thread(slow: Path) -> None:
    engine = hp.Engine(cpu_threads=1)
    used = slow_pipe(slow).loader(engine=engine)
    iterator = iter(used)
    caught: list[hp.Error] = []
    inside = threading.Event()

    def work() -> None:
        inside.set()
        try:
            next(iterator)
        except hp.Error as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    began = time.monotonic()
    used.close()
    thread.join(10)
    assert not thread.is_alive()
    assert time.monotonic() - began < 2 + 1
    assert [error.code for error in caught] == ["HP0402"]
    engine.close()


@pytest.mark.parametrize(
    "end",
    [
        "",
        "del iterator, x",
        "x.close()",
        "sys.exit(0)",
        "kept = next(iterator)",
        "other = hp.Engine(); y = x._pipeline.loader(engine=other); next(iter(y))",
    ],
)
def test_the_interpreter_exits_in_time_whatever_is_open(end: str) -> None:
    process = start(running(end))
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert errors == ""


def test_an_exception_in_the_loop_exits_with_it() -> None:
    process = start(running("raise SystemError('boom')"))
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert errors.strip().endswith("boom")


def test_a_daemon_thread_that_iterates_does_not_disturb_the_exit(slow: Path) -> None:
    program = """
import threading
def work():
    try:
        for _ in pipe.loader(engine=engine): pass
    except hp.Error:
        pass
thread = threading.Thread(target=work, daemon=True)
thread.start()
time.sleep(0.5)
"""
    process = start(SLOW + program, slow)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert errors == ""


def test_after_ctrl_c_the_iterator_goes_on(slow: Path) -> None:
    engine = hp.Engine(cpu_threads=1)
    pipe = (
        hp.from_files(slow, label=None)
        .image("data", size=8, crop="none")
        .select("__index__", "data")
    )
    iterator = iter(pipe.batch(40).loader(engine=engine, prefetch=1))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # the batch takes far longer
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert next(iterator)["__index__"].tolist() == list(range(40))
    del iterator
    engine.close()


def test_a_timer_storm_changes_nothing() -> None:
    fired = []
    previous = signal.signal(signal.SIGALRM, lambda *_: fired.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        seen = values(loader(20000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert seen == values(loader(20000))


def test_no_file_of_ours_reaches_a_program_that_is_started(photos: Path) -> None:
    iterator = iter(hp.from_files(photos).shuffle(seed=1).batch(4).loader())
    next(iterator)
    names = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in range(3, 40) \
        if os.path.exists(f'/proc/self/fd/{n}')))"
    inherited = subprocess.run(
        [sys.executable, "-c", names], capture_output=True, text=True, close_fds=False, check=True
    ).stdout
    assert "photos" not in inherited
    assert "io_uring" not in inherited


def test_two_threads_may_share_an_iterator() -> None:
    for _ in range(5):
        iterator = iter(loader(2000))
        seen: list[int] = []
        threads = [threading.Thread(target=lambda: seen.extend(values(iterator))) for _ in range(4)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(seen) == list(range(2000))


def test_loaders_of_several_threads_do_not_disturb_each_other() -> None:
    expected = values(loader())
    results: dict[int, list[int]] = {}

    def work(number: int) -> None:
        results[number] = values(loader())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == dict.fromkeys(range(8), expected)


def counts() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def resident_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6


def test_a_thousand_loaders_broken_off_leave_nothing(photos: Path) -> None:
    pipe = hp.from_files(photos).shuffle(seed=1).batch(4)
    random = np.random.default_rng(0)

    def broken_off(stop: int) -> None:
        for step, _ in enumerate(pipe.loader()):
            if step == stop:
                break

    for _ in range(50):  # the pools that loaders share reach their size
        broken_off(int(random.integers(0, 30)))
    gc.collect()
    before, memory = counts(), resident_mb()
    for _ in range(1000):
        broken_off(int(random.integers(0, 30)))
    gc.collect()
    threads, files = counts()
    assert threads <= before[0]
    assert files <= before[1] + 2
    assert resident_mb() < memory + 100
