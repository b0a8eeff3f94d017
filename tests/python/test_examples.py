"""The programs in examples/ run on small data and do what they say."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Run = Callable[..., str]


def losses(printed: str) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"step (\d+) loss (\S+)", printed)}


@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize("source", ["photos", "shards"])
def test_training_on_pictures_lowers_the_loss(run_python: Run, source: str, request) -> None:
    data = request.getfixturevalue(source)
    printed = run_python(EXAMPLES / "train_images.py", "--data", data, "--epochs", 8, "--lr", 0.05)
    by_step = [float(loss) for loss in losses(printed).values()]
    assert len(by_step) == 8 * 3, "120 pictures make 3 batches of 32"
    assert sum(by_step[-3:]) < 0.9 * sum(by_step[:3])


@pytest.mark.usefixtures("needs_torch")
def test_a_stopped_training_goes_on_with_the_same_losses(run_python: Run, photos: Path) -> None:
    command = [EXAMPLES / "train_images.py", "--data", photos, "--batch", 16, "--epochs", 2]
    whole = losses(run_python(*command))
    first = losses(run_python(*command, "--checkpoint", "run.pt", "--steps", 10))
    rest = losses(run_python(*command, "--checkpoint", "run.pt"))
    assert list(first) == list(range(1, 11))
    assert first | rest == whole


@pytest.mark.usefixtures("needs_torch")
def test_training_on_a_flat_folder_takes_classes_from_names(
    run_python: Run, photos: Path, tmp_path: Path
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in photos.glob("*/*.jpg"):
        shutil.copy(path, flat / f"{path.parent.name}_{path.name.upper()}")
    assert len(losses(run_python(EXAMPLES / "train_images.py", "--data", flat, "--epochs", 1))) == 3


def test_training_on_records_becomes_accurate(run_python: Run) -> None:
    printed = run_python(EXAMPLES / "train_numpy.py", "--count", 5000)
    accuracy = [float(text) for text in re.findall(r"accuracy (\S+)", printed)]
    assert len(accuracy) == 3
    assert accuracy[-1] > 0.95


def test_resume_sees_every_record_once(run_python: Run) -> None:
    printed = run_python(EXAMPLES / "resume.py")
    assert "2 ranks stopped after 2560 of 10007 records" in printed
    assert "3 ranks read the other 7447" in printed
    assert "every record was seen exactly once" in printed
