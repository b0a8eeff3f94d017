"""The training of ``headpond demo``."""

from __future__ import annotations

import importlib.util
import json
import pickle
import resource
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

import headpond as hp
from headpond.cli._torch_crop import random_crop

SIZE = 64  # of the pictures, after the crop
_CELL = 8  # pixels averaged into one feature
_FEATURES = 3 * (SIZE // _CELL) ** 2
_HIDDEN = 64
_BATCH = 50
_SEED = 7
_WINDOW = 500

Array: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Job:
    """What is trained on what."""

    folder: str
    shards: str  # glob or braces; empty: the class folder
    kind: str  # "numpy" or "torch"
    classes: int


@dataclass
class Pass:
    """What one pass over a loader took."""

    seen: list[Any] = field(default_factory=list)  # indices, or keys
    samples: int = 0
    elapsed_s: float = 0.0
    waited_s: float = 0.0
    cpu_s: float = 0.0
    first_loss: float = 0.0
    loss: float = 0.0

    def row(self, loader: str) -> dict[str, Any]:
        """Of the table."""
        return {
            "loader": loader,
            "samples_per_s": self.samples / self.elapsed_s,
            "waited_share": self.waited_s / self.elapsed_s,
            "cpu_ms_per_sample": 1e3 * self.cpu_s / self.samples,
        }


class Model(Protocol):
    """A small model of average colours: enough that its loss falls."""

    def step(self, pictures: Any, labels: Any) -> float:
        """One step of SGD; the batch's loss."""

    def state(self) -> Any:
        """What load() takes."""

    def load(self, state: Any) -> None:
        """Goes on from there."""


class NumpyModel:
    """One hidden layer over the mean colours of cells."""

    def __init__(self, classes: int) -> None:
        random = np.random.default_rng(0)
        self._weights = [
            (random.normal(size=(_FEATURES, _HIDDEN)) / _FEATURES**0.5).astype(np.float32),
            np.zeros((_HIDDEN, classes), np.float32),
        ]

    def step(self, pictures: Any, labels: Any) -> float:
        """One step of SGD; the batch's loss."""
        cells = pictures.reshape(len(pictures), SIZE // _CELL, _CELL, SIZE // _CELL, _CELL, 3)
        means: Array = cells.mean(axis=(2, 4), dtype=np.float32).reshape(len(pictures), -1)
        features = ((means - 128) / 64).astype(np.float32)
        first, second = self._weights
        hidden = np.maximum(features @ first, 0)
        scores = hidden @ second
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances = powers / powers.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -float(np.log(chances[rows, labels] + 1e-9).mean())
        chances[rows, labels] -= 1
        chances /= len(labels)
        back = (chances @ second.T) * (hidden > 0)
        second -= 0.1 * hidden.T @ chances
        first -= 0.1 * features.T @ back
        return loss

    def state(self) -> Any:
        """What load() takes."""
        return self._weights

    def load(self, state: Any) -> None:
        """Goes on from there."""
        self._weights = state


class TorchModel:
    """The same in torch."""

    def __init__(self, classes: int) -> None:
        import torch

        torch.manual_seed(0)
        torch.set_num_threads(
            1
        )  # the model is small: threads of its own only take the loaders' time
        self._torch = torch
        self._net = torch.nn.Sequential(
            torch.nn.AvgPool2d(_CELL),
            torch.nn.Flatten(),
            torch.nn.Linear(_FEATURES, _HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(_HIDDEN, classes),
        )
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=0.1)

    def step(self, pictures: Any, labels: Any) -> float:
        """One step of SGD; the batch's loss."""
        inputs = (pictures.permute(0, 3, 1, 2).float() - 128) / 64
        loss = self._torch.nn.functional.cross_entropy(self._net(inputs), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def state(self) -> Any:
        """What load() takes."""
        return self._net.state_dict()

    def load(self, state: Any) -> None:
        """Goes on from there."""
        self._net.load_state_dict(state)


class Run:
    """A model and a loader."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.model: Model = (
            TorchModel(job.classes) if job.kind == "torch" else NumpyModel(job.classes)
        )
        self.loader = _pipeline(job).loader(
            framework="torch" if job.kind == "torch" else "numpy", uneven="allow"
        )

    def epoch(self, batches: Iterable[dict[str, Any]], steps: int | None = None) -> Pass:
        """Trains until the batches end, or for so many steps."""
        done = Pass()
        losses: list[float] = []
        began, cpu = time.perf_counter(), _cpu_s()
        iterator = iter(batches)
        while steps is None or len(losses) < steps:
            asked = time.perf_counter()
            batch = next(iterator, None)
            done.waited_s += time.perf_counter() - asked
            if batch is None:
                break
            losses.append(self.model.step(batch["picture"], batch["label"]))
            done.samples += len(batch["label"])
            if "__index__" in batch:
                done.seen += [int(index) for index in batch["__index__"]]
            elif "__key__" in batch:
                done.seen += batch["__key__"]
        del iterator  # torch's workers end here, so that their time counts
        done.elapsed_s = time.perf_counter() - began
        done.cpu_s = _cpu_s() - cpu
        tenth = max(1, len(losses) // 10)
        done.first_loss = float(np.mean(losses[:tenth])) if losses else 0.0
        done.loss = float(np.mean(losses[-tenth:])) if losses else 0.0
        return done

    def save(self, path: Path) -> None:
        """Everything that another process needs to go on."""
        state = (self._job, self.model.state(), self.loader.state_dict())
        path.write_bytes(pickle.dumps(state))


def _pipeline(job: Job) -> hp.Pipeline:
    seen = "__index__"
    if not job.shards:
        ordered = hp.from_files(f"{job.folder}/folder").rename(data="picture").shuffle(seed=_SEED)
    else:
        shards = hp.from_webdataset(job.shards).decode(cls="int64")
        named = shards.rename(jpg="picture", cls="label")
        if "://" in job.shards:
            # Streamed in groups: the first batch does not wait for all of them. Indices would.
            ordered = named.shuffle(seed=_SEED, mode="window", window=_WINDOW)
            seen = "__key__"
        else:
            ordered = named.shuffle(seed=_SEED)
    return (
        ordered.image("picture", size=SIZE, crop="random_resized", flip=True)
        .select("picture", "label", seen)
        .batch(_BATCH)
    )


def _cpu_s() -> float:
    """Of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def has_torch() -> bool:
    """Is it installed?"""
    return importlib.util.find_spec("torch") is not None


def missing_for_comparison() -> str:
    """Which package the comparison lacks; empty: none."""
    needed = {"torch": "torch", "PIL": "Pillow"}
    return ", ".join(
        name for module, name in needed.items() if importlib.util.find_spec(module) is None
    )


class TorchPictures:
    """The class folder as people read it with torch and PIL: the same crop, size and flip."""

    def __init__(self, job: Job) -> None:
        dataset = hp.from_files(f"{job.folder}/folder")
        root = Path(job.folder) / "folder"
        self._paths = [str(root / dataset.key(index)) for index in range(len(dataset))]
        self._labels = [dataset.classes.index(Path(path).parent.name) for path in self._paths]

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        from PIL import Image

        with Image.open(self._paths[index]) as opened:
            picture = opened.convert("RGB")
        return {"picture": random_crop(picture, SIZE), "label": self._labels[index]}


def torch_loader(job: Job, workers: int) -> Iterable[dict[str, Any]]:
    """Torch's own loader over the same pictures."""
    import torch

    pictures: Any = TorchPictures(job)
    loader: Iterable[dict[str, Any]] = torch.utils.data.DataLoader(
        pictures, batch_size=_BATCH, shuffle=True, num_workers=workers
    )
    return loader


def resume() -> None:
    """Resumes the checkpoint that is named and prints what it saw, as JSON."""
    job, model, state = pickle.loads(Path(sys.argv[1]).read_bytes())
    run = Run(job)
    run.model.load(model)
    run.loader.load_state_dict(state)
    with run.loader:
        done = run.epoch(run.loader)
    print(json.dumps({"seen": done.seen, "loss": done.loss}))
