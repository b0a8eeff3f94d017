"""Loaders of a torch.distributed job."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
import torch.distributed as dist
import headpond as hp

rank, seed, port = map(int, sys.argv[1:])
dist.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
)
pipe = hp.from_arrays({"x": np.arange(20)}).shuffle(seed=seed).batch(3)
try:
    seen = [int(x) for batch in pipe.loader(uneven="allow") for x in batch["x"]]
except hp.InvalidArgument as error:
    print("refused:", error)
else:
    print(*seen)
dist.barrier()
dist.destroy_process_group()
"""


def run_job(seeds: tuple[int, int]) -> list[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(seed), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, seed in enumerate(seeds)
    ]
    outputs = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    return [out.strip() for out, _ in outputs]


@pytest.mark.usefixtures("needs_torch")
def test_ranks_of_the_process_group_share_an_epoch() -> None:
    first, second = (out.split() for out in run_job((1, 1)))
    assert sorted(map(int, first + second)) == list(range(20))


@pytest.mark.usefixtures("needs_torch")
def test_ranks_with_different_orders_all_raise() -> None:
    for out in run_job((1, 2)):
        assert out.startswith("refused:")
        assert "seed" in out
