"""Epochs, order, ranks and state, exhaustively over small sizes."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import headpond as hp


def numbers(n: int, **shuffle: object) -> hp.Pipeline:
    pipe = hp.from_arrays({"x": np.arange(n)})
    return pipe.shuffle(**shuffle) if shuffle else pipe.select("x")  # type: ignore[arg-type]


def values(batches: Iterator[dict] | hp.Loader) -> list[int]:
    return [int(x) for batch in batches for x in batch["x"]]


def take(loader: hp.Loader, count: int) -> list[int]:
    return values(itertools.islice(iter(loader), count))


def test_a_for_is_an_epoch_and_the_next_moves_on() -> None:
    loader = numbers(10, seed=4).batch(3).loader()
    epochs = [values(loader) for _ in range(3)]
    assert [sorted(set(epoch)) for epoch in epochs] == [list(range(10))] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    again = numbers(10, seed=4).batch(3).loader()
    again.set_epoch(2)
    assert values(again) == epochs[2]


def test_without_shuffle_the_order_is_the_datasets() -> None:
    assert values(numbers(10).batch(4).loader()) == list(range(10))


@pytest.mark.parametrize("uneven", ["pad", "drop", "allow"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_an_epoch(uneven: str, drop_last: bool) -> None:
    for n, world, size in itertools.product((1, 5, 12, 13), (1, 2, 3), (1, 4)):
        pipe = (
            hp.from_arrays({"x": np.arange(n)})
            .shuffle(9)
            .select("x", "__valid__")
            .batch(size, drop_last=drop_last)
        )
        per_rank: list[list[int]] = []
        steps = []
        for rank in range(world):
            loader = pipe.loader(rank=rank, world_size=world, uneven=uneven)  # type: ignore[arg-type]
            batches = list(loader)
            steps.append([len(batch["x"]) for batch in batches])
            assert len(batches) == len(loader)
            per_rank.append([int(x) for b in batches for x in b["x"][b["__valid__"]]])
        seen = [x for rank in per_rank for x in rank]
        assert len(seen) == len(set(seen)), "no sample twice"
        whole_steps = n // (world * size) * world * size
        if drop_last:
            assert len(seen) == whole_steps
        elif uneven == "drop":
            assert len(seen) == n // world * world
        else:
            assert sorted(seen) == list(range(n))
        if uneven != "allow" or drop_last:
            assert all(rank == steps[0] for rank in steps), "equal steps"


def test_no_rows_of_an_empty_epoch() -> None:
    loader = numbers(3).batch(4, drop_last=True).loader()
    assert len(loader) == 0
    assert values(loader) == []
    assert loader.state_dict()["ended"]


def test_an_iterator_that_returned_nothing_leaves_no_trace() -> None:
    loader = numbers(6, seed=1).batch(2).loader()
    expected = values(numbers(6, seed=1).batch(2).loader())
    for _ in range(3):
        iter(loader)
    before = loader.state_dict()
    iter(loader)
    assert loader.state_dict() == before
    assert values(loader) == expected


def test_an_epoch_left_early_counts() -> None:
    epochs = [values(e) for e in [numbers(12, seed=1).batch(2).loader()] for _ in range(2)]
    loader = numbers(12, seed=1).batch(2).loader()
    assert take(loader, 2) == epochs[0][:4]
    assert values(loader) == epochs[1]


def test_a_newer_iterator_replaces_the_older() -> None:
    loader = numbers(12, seed=1).batch(2).loader()
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(first)  # the second has returned nothing yet
    next(second)
    with pytest.raises(hp.Error, match="replaced") as caught:
        next(first)
    assert caught.value.code == "HP0402"
    assert len(list(second)) == 5


def test_a_finished_iterator_stays_finished() -> None:
    iterator = iter(numbers(4).batch(2).loader())
    assert len(list(iterator)) == 2
    assert list(iterator) == []


def test_epochs_run_through() -> None:
    separate = numbers(7, seed=3).batch(2).loader()
    expected = values(separate) + values(separate) + values(separate)
    loader = numbers(7, seed=3).batch(2).loader()
    assert values(loader.epochs(3)) == expected
    assert loader.state_dict()["epoch"] == 2
    assert loader.state_dict()["ended"]
    assert values(loader) == values(separate)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_passes_of_steps_go_on_where_the_last_ended(steps: int) -> None:
    stream = numbers(7, seed=3).batch(2).loader()
    expected = [batch["x"].tolist() for batch in stream.epochs(9)]
    loader = numbers(7, seed=3).batch(2).loader(steps_per_epoch=steps)
    assert len(loader) == steps
    got = [batch["x"].tolist() for _ in range(4) for batch in loader]
    assert got == expected[: 4 * steps]


def test_a_pass_left_early_goes_on_there() -> None:
    loader = numbers(20).batch(2).loader(steps_per_epoch=5)
    assert take(loader, 2) == [0, 1, 2, 3]
    assert values(loader) == list(range(4, 14))


def test_set_epoch_sets_the_next_for() -> None:
    loader = numbers(8, seed=2).batch(4).loader()
    expected = [values(loader) for _ in range(4)]
    loader.set_epoch(1)
    assert values(loader) == expected[1]
    assert values(loader) == expected[2]
    loader.sampler.set_epoch(0)
    assert values(loader) == expected[0]
    with pytest.raises(hp.InvalidArgument):
        loader.set_epoch(-1)


def test_every_stop_resumes_exactly() -> None:
    for n, size, world in itertools.product((1, 7, 12), (1, 3), (1, 2)):
        pipe = numbers(n, seed=5).batch(size)

        def ranks(pipe: hp.Pipeline = pipe, world: int = world) -> list[hp.Loader]:
            return [pipe.loader(rank=r, world_size=world, uneven="allow") for r in range(world)]

        whole = [values(loader) for loader in ranks()]
        for stop in range(len(ranks()[0]) + 1):
            seen = []
            states = []
            for loader in ranks():
                iterator = iter(loader)
                seen += values(itertools.islice(iterator, stop))
                states.append(loader.state_dict())
            state = states[0]
            assert len(json.dumps(state)) < 1024
            if stop < len(ranks()[-1]):
                assert states == [state] * world, "the same on every rank"
            for new_size, new_world in ((size, world), (2, 1), (1, 3), (4, 2)):
                rest = []
                for rank in range(new_world):
                    loader = (
                        numbers(n, seed=5)
                        .batch(new_size)
                        .loader(rank=rank, world_size=new_world, uneven="allow")
                    )
                    loader.load_state_dict(json.loads(json.dumps(state)))
                    assert loader.state_dict() == state
                    rest += values(loader)
                    if rank == 0:
                        following = values(loader)
                        loader.set_epoch(1)
                        assert following == values(loader), "then the next epoch"
                assert sorted(seen + rest) == list(range(n)), (n, size, world, stop, new_size)
        assert sorted(x for rank in whole for x in rank) == list(range(n))


def test_state_after_the_last_batch_is_an_empty_pass_and_after_the_loop_the_next() -> None:
    loader = numbers(6, seed=1).batch(2).loader()
    epochs = [values(loader) for _ in range(2)]
    loader = numbers(6, seed=1).batch(2).loader()
    states = []
    for _ in loader:
        states.append(loader.state_dict())
    after = loader.state_dict()

    resumed = numbers(6, seed=1).batch(2).loader()
    resumed.load_state_dict(states[-1])
    assert values(resumed) == []
    assert values(resumed) == epochs[1]
    resumed.load_state_dict(after)
    assert values(resumed) == epochs[1]


def test_set_epoch_after_loading_keeps_the_place_in_its_own_epoch() -> None:
    loader = numbers(12, seed=1).batch(2).loader()
    epochs = [values(loader) for _ in range(3)]
    loader.set_epoch(1)
    iterator = iter(loader)
    values(itertools.islice(iterator, 2))
    state = loader.state_dict()
    for epoch, expected in ((1, epochs[1][4:]), (2, epochs[2])):
        resumed = numbers(12, seed=1).batch(2).loader()
        resumed.load_state_dict(state)
        iter(resumed)
        resumed.set_epoch(epoch)
        assert values(resumed) == expected


def test_a_state_is_loaded_once_and_by_the_first_iterator_that_advances() -> None:
    loader = numbers(12, seed=1).batch(2).loader()
    epochs = [values(loader) for _ in range(2)]
    loader.set_epoch(0)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    next(iterator)
    loader.load_state_dict(state)
    with pytest.raises(hp.Error, match="replaced"):
        next(iterator)
    iter(loader)
    assert values(loader) == epochs[0][2:]
    assert values(loader) == epochs[1]
    loader.load_state_dict({})
    assert loader.state_dict()["epoch"] == 1


@pytest.mark.parametrize("steps", [2, 3])
def test_a_pass_of_steps_resumes_exactly(steps: int) -> None:
    stream = [b["x"].tolist() for b in numbers(7, seed=3).batch(2).loader().epochs(12)]
    for stop in range(4 * steps):
        loader = numbers(7, seed=3).batch(2).loader(steps_per_epoch=steps)
        passes: list[list[list[int]]] = []
        done = 0
        state = loader.state_dict()
        while done < stop:
            for batch in loader:
                assert batch["x"].tolist() == stream[done]
                done += 1
                state = loader.state_dict()
                if done == stop:
                    break
        resumed = numbers(7, seed=3).batch(2).loader(steps_per_epoch=steps)
        resumed.load_state_dict(state)
        passes = [[batch["x"].tolist() for batch in resumed] for _ in range(3)]
        inside = (stop - 1) % steps + 1 if stop else 0
        assert len(passes[0]) == steps - inside
        assert list(itertools.chain(*passes)) == stream[stop : stop + 3 * steps - inside]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: numbers(12, seed=2).batch(2), "seed"),
        (lambda: numbers(12).batch(2), "mode|shuffle"),
        (lambda: numbers(13, seed=1).batch(2), "fingerprint|dataset|n"),
    ],
)
def test_a_state_of_another_order_is_refused(other, message: str) -> None:
    state = numbers(12, seed=1).batch(2).loader().state_dict()
    with pytest.raises(hp.InvalidArgument, match=message) as caught:
        other().loader().load_state_dict(state)
    assert caught.value.code == "HP0301"


def test_a_damaged_state_says_what_is_wrong() -> None:
    loader = numbers(12, seed=1).batch(2).loader()
    good = loader.state_dict()
    for key in good:
        bad = {name: value for name, value in good.items() if name != key}
        with pytest.raises(hp.InvalidArgument) as caught:
            loader.load_state_dict(bad)
        assert caught.value.code == "HP0301"
    for change in (
        {"version": 99},
        {"cursor": 13},
        {"cursor": -1},
        {"epoch": "one"},
        {"x": object()},
    ):
        with pytest.raises(hp.InvalidArgument):
            loader.load_state_dict({**good, **change})
    assert loader.state_dict() == good


def test_ranks_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loader = numbers(9).batch(1).loader()
    assert values(loader) == [1, 4, 7]
    monkeypatch.setenv("RANK", "2")  # fixed at the first next()
    assert values(loader) == [1, 4, 7]
    monkeypatch.delenv("RANK")
    with pytest.raises(hp.InvalidArgument, match="RANK"):
        next(iter(numbers(9).batch(1).loader()))
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(hp.InvalidArgument, match="WORLD_SIZE=3"):
        next(iter(numbers(9).batch(1).loader()))


def test_close_ends_everything_and_keeps_the_state() -> None:
    loader = numbers(12).batch(2).loader()
    iterator = iter(loader)
    next(iterator)
    loader.close()
    loader.close()
    assert loader.state_dict()["cursor"] == 2
    assert loader.report().batches == 1
    for used in (iterator, iter(loader)):
        with pytest.raises(hp.Error) as caught:
            next(used)
        assert caught.value.code == "HP0402"
    with numbers(4).batch(2).loader() as other:
        assert values(other) == [0, 1, 2, 3]
    with pytest.raises(hp.Error):
        next(iter(other))


def test_a_consumers_exception_leaves_the_loader_usable() -> None:
    loader = numbers(12).batch(2).loader()

    def train() -> None:
        for batch in loader:
            raise KeyError(len(batch))

    with pytest.raises(KeyError):
        train()
    assert values(loader) == list(range(12))


def test_a_loader_pickles_with_its_place_unless_it_iterates() -> None:
    loader = numbers(12, seed=1).batch(2).loader()
    values(loader)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    assert values(copy) == values(loader)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(TypeError):
        pickle.dumps(loader)


def test_the_report_counts_and_reads_well() -> None:
    loader = numbers(12).batch(5).loader()
    assert loader.report().batches == 0
    values(loader)
    report = loader.report()
    assert (report.batches, report.samples, report.skipped) == (3, 12, 0)
    assert report.elapsed_s > 0
    assert 0 <= report.utilisation <= 1
    assert "3 batches, 12 samples" in str(report)


def test_prefetch_and_engines_change_nothing_but_speed() -> None:
    expected = values(numbers(100, seed=1).batch(7).loader())
    with_engine = hp.Engine(cpu_threads=3, memory="16MB", io="threads")
    assert values(numbers(100, seed=1).batch(7).loader(engine=with_engine)) == expected
    assert values(numbers(100, seed=1).batch(7).loader(prefetch=1)) == expected
    with_engine.close()
    with pytest.raises(hp.Error):
        next(iter(numbers(100).batch(7).loader(engine=with_engine)))


def test_stateful_protocol_of_torchdata() -> None:
    loader = numbers(4).batch(2).loader()
    assert callable(loader.state_dict)
    assert callable(loader.load_state_dict)
    assert not hasattr(loader, "_iterator"), "trainers reset an attribute of that name"
