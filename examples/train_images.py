"""Train a small CNN on pictures, on the CPU, with checkpoints and exact resume.

    python examples/train_images.py --data photos
    python examples/train_images.py --data 'shards/train-{0000..0003}.tar'
    python examples/train_images.py --data photos --checkpoint run.pt --steps 100

The last line, run again with more steps, goes on where it stopped and prints the losses that a
run without a stop prints. Folders are photos/<class>/<name>.jpg; in a flat folder the class is the
part of the file name before the first "_".
"""

import argparse
import os
from pathlib import Path

import torch
from torch import nn

import headpond as hp


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(args.seed)
    dataset, labels, classes = open_data(args)
    pipe = (
        dataset.shuffle(seed=args.seed)
        .image(args.image, size=args.size, crop="random_resized", flip=True)
        .select(args.image, *([args.label] if args.label else ["__key__"]))
        .batch(args.batch, drop_last=True)
    )
    model = small_cnn(classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    step = 0

    with pipe.loader(framework="torch") as loader:
        if args.checkpoint and args.checkpoint.exists():
            saved = torch.load(args.checkpoint)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])
            step = saved["step"]
            print(f"resumed at step {step}")

        def save() -> None:
            if args.checkpoint:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "step": step,
                }
                new = args.checkpoint.with_suffix(".new")
                torch.save(state, new)
                os.replace(new, args.checkpoint)  # a crash leaves the old one or the new one

        while next_epoch(loader) < args.epochs:
            for batch in loader:
                pictures = batch[args.image].permute(0, 3, 1, 2).float() / 255
                loss = nn.functional.cross_entropy(model(pictures), labels(batch))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step % args.print_every == 0:
                    print(f"step {step} loss {loss.item():.6f}", flush=True)
                if step == args.steps:
                    save()
                    print(f"stopped after {step} steps")
                    return
            save()
        print(loader.report())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of pictures, or tar shards")
    parser.add_argument("--image", help='field with the picture; default "data", in shards "jpg"')
    parser.add_argument("--label", help='field with the class; default "label", in shards "cls"')
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="stop after that many steps in all")
    parser.add_argument("--checkpoint", type=Path, help="written at a stop and after each epoch")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--print-every", type=int, default=1)
    return parser.parse_args()


def open_data(args):
    """The dataset, a function from a batch to its classes, and their number."""
    if not Path(args.data).is_dir():
        args.image, args.label = args.image or "jpg", args.label or "cls"
        dataset = hp.from_webdataset(args.data).decode(**{args.label: "int64"})
        with dataset.select(args.label).batch(4096).loader() as loader:
            classes = 1 + max(int(batch[args.label].max()) for batch in loader)
        return dataset, lambda batch: batch[args.label], classes

    args.image = args.image or "data"
    if any(entry.is_dir() for entry in os.scandir(args.data)):
        args.label = args.label or "label"
        dataset = hp.from_files(args.data)
        return dataset, lambda batch: batch[args.label], len(dataset.classes)

    dataset = hp.from_files(args.data, pattern="*.jp*g", label=None)
    names = sorted({name_class(dataset.key(i)) for i in range(len(dataset))})
    number = {name: i for i, name in enumerate(names)}
    return (
        dataset,
        lambda batch: torch.tensor([number[name_class(key)] for key in batch["__key__"]]),
        len(names),
    )


def name_class(key: str) -> str:
    return Path(key).name.split("_")[0]


def next_epoch(loader: hp.Loader) -> int:
    """The epoch that the next `for` reads from."""
    state = loader.state_dict()
    return state["epoch"] + state["ended"]


def small_cnn(classes: int) -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.ReLU()]

    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)]
    return nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), *head)


if __name__ == "__main__":
    main()
