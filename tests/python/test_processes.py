"""Fork, spawn, signals, exit, threads: never a hang, nothing left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import headpond as hp


def loader(n: int = 1000, size: int = 10, **options: object) -> hp.Loader:
    pipe = hp.from_arrays({"x": np.arange(n)}).shuffle(seed=1).batch(size)
    return pipe.loader(**options)  # type: ignore[arg-type]


def values(batches: object) -> list[int]:
    return [int(x) for batch in batches for x in batch["x"]]  # type: ignore[attr-defined]


def in_child(work: Callable[[], object], limit: float = 60) -> None:
    """Runs work in a forked child; what it raises fails the test."""
    ended, ends = os.pipe()  # the child's end closes with the child
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
    os.close(ends)
    in_time = bool(select.select([ended], [], [], limit)[0])
    os.close(ended)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert in_time, "the child hangs"
    assert status == 0


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


def test_a_child_iterates_what_another_thread_was_about_to_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = loader()
    expected = values(loader())
    inside, go_on = threading.Event(), threading.Event()
    find_rank = shared._find_rank

    def held() -> object:
        if threading.current_thread() is thread:
            inside.set()
            go_on.wait()
        return find_rank()

    monkeypatch.setattr(shared, "_find_rank", held)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(values(shared)))
    thread.start()
    inside.wait()  # with the loader's lock
    try:
        in_child(lambda: check(values(shared) == expected))
    finally:
        go_on.set()
        thread.join()
    assert seen == expected


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


# Prints a line once the main thread waits in next(): a timer's handler runs inside of it, and a
# second time only after next() has looked for signals there.
TELL_WHEN_WAITING = """
import itertools
times = itertools.count()
def tell(number, frame):
    if frame.f_code.co_name == "__next__" and next(times) == 1:
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("waiting", flush=True)
signal.signal(signal.SIGALRM, tell)
signal.setitimer(signal.ITIMER_REAL, 0.15, 0.15)
"""


def test_ctrl_c_in_next_is_seen_at_once(slow: Path) -> None:
    process = start(
        SLOW
        + TELL_WHEN_WAITING
        + """
iterator = iter(pipe.loader(engine=engine))
try:
    next(iterator)
except KeyboardInterrupt:
    print("interrupted", flush=True)
""",
        slow,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - sent < 10 * 0.2, "200 ms are promised"
    _, errors = process.communicate(timeout=60)
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
    thread.join(60)
    assert not thread.is_alive()
    assert time.monotonic() - began < 10 * 2, "2 s are promised"
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
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert errors == ""


def test_a_process_that_was_stopped_goes_on(photos: Path) -> None:
    process = start(
        """
files = hp.from_files(sys.argv[1]).shuffle(seed=1).select("__index__", "data").batch(4)
seen = []
for batch in files.loader(timeout=60):
    seen += batch["__index__"].tolist()
    if len(seen) == 40: os.kill(os.getpid(), signal.SIGSTOP)
print(sorted(seen) == list(range(120)), flush=True)
""",
        photos,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    printed, errors = process.communicate(timeout=60)
    assert printed == "True\n", errors
    assert process.returncode == 0


def test_signals_are_the_programs_own() -> None:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    values(loader())
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
    process = start(running("print('begun', flush=True)\nsignal.pause()"))
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


def test_an_exception_in_the_loop_exits_with_it() -> None:
    process = start(running("raise SystemError('boom')"))
    _, errors = process.communicate(timeout=60)
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
while not engine.info()["memory_used"]:  # only what is inside next() takes of the budget
    thread.join(0.01)
"""
    process = start(SLOW + program, slow)
    _, errors = process.communicate(timeout=60)
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

    def interrupt(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_name == "__next__":
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # the batch takes far longer
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert next(iterator)["__index__"].tolist() == list(range(40))
    del iterator
    engine.close()


INTERRUPTED = """
import http.server, random, threading

class Silent(http.server.BaseHTTPRequestHandler):  # tells sizes, and then nothing any more
    protocol_version = "HTTP/1.1"
    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.send_header("ETag", '"1"')
        self.end_headers()
    def do_GET(self):
        threading.Event().wait()
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
silent = [f"http://127.0.0.1:{server.server_port}/{i}" for i in range(20)]
pipes = [
    hp.from_files(sys.argv[1], label=None).image("data", size=8, crop="none").batch(4),
    hp.from_files(silent, label=None).batch(4),
    hp.from_arrays({"x": np.arange(1_000_000)}).shuffle(seed=1).batch(5),
]
chance = random.Random(5)
caught = 0
for round in range(100):
    timer = threading.Timer(
        chance.uniform(0.001, 0.06),
        lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT),
    )
    try:
        try:
            timer.start()
            with pipes[round % 3].loader() as loader:
                for batch in loader:
                    pass
        finally:
            timer.join()
    except KeyboardInterrupt:
        caught += 1
assert caught == 100, caught
whole = hp.from_arrays({"x": np.arange(1000)}).shuffle(seed=1).batch(5).loader()
print(sum(int(batch["x"].sum()) for batch in whole), flush=True)
"""


def test_ctrl_c_at_any_moment_is_an_exception_and_nothing_worse(slow: Path) -> None:
    process = start(INTERRUPTED, slow)
    text, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert int(text) == sum(range(1000))


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
