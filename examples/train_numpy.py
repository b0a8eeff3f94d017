"""Softmax regression on fixed-size records, with NumPy alone.

    python examples/train_numpy.py --records made.bin

A record is 1 + FEATURES numbers of float32: the class, then the features. The file is made when
it does not exist.
"""

import argparse
from pathlib import Path

import numpy as np

import headpond as hp

FEATURES = 32
CLASSES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=Path("records.bin"))
    parser.add_argument("--count", type=int, default=50_000, help="records to make")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    if not args.records.exists():
        make_records(args.records, args.count)

    pipe = (
        hp.from_records(str(args.records), "float32", (1 + FEATURES,))
        .shuffle(seed=1)
        .batch(args.batch, drop_last=True)
    )
    weights = np.zeros((FEATURES, CLASSES), np.float32)
    with pipe.loader() as loader:
        for epoch in range(args.epochs):
            right = seen = 0
            for batch in loader:
                labels, features = batch["data"][:, 0].astype(np.int64), batch["data"][:, 1:]
                scores = features @ weights
                right += int((scores.argmax(axis=1) == labels).sum())
                seen += len(labels)
                slope = softmax(scores) - np.eye(CLASSES, dtype=np.float32)[labels]
                weights -= 0.1 * features.T @ slope / len(labels)
            print(f"epoch {epoch}: {seen} records, accuracy {right / seen:.3f}")
        print(loader.report())


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def make_records(path: Path, count: int) -> None:
    """Classes are blobs around random centres."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(CLASSES, FEATURES))
    labels = random.integers(CLASSES, size=count)
    features = centres[labels] + random.normal(size=(count, FEATURES))
    np.column_stack([labels, features]).astype(np.float32).tofile(path)


if __name__ == "__main__":
    main()
