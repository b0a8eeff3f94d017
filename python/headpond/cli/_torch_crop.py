"""What torch's users do with a picture, for the comparisons of ``demo`` and ``bench``."""

from __future__ import annotations

from typing import Any


def random_crop(picture: Any, size: int) -> Any:
    """RandomResizedCrop and flip of a PIL picture: a uint8 tensor ``[size, size, 3]``."""
    import numpy as np
    import torch
    from PIL import Image

    width, height = picture.size
    area = width * height * float(torch.empty(1).uniform_(0.08, 1.0))
    ratio = float(torch.exp(torch.empty(1).uniform_(-0.2877, 0.2877)))
    crop_width = min(width, max(1, round((area * ratio) ** 0.5)))
    crop_height = min(height, max(1, round((area / ratio) ** 0.5)))
    left = int(torch.randint(0, width - crop_width + 1, (1,)))
    top = int(torch.randint(0, height - crop_height + 1, (1,)))
    box = (left, top, left + crop_width, top + crop_height)
    cut = picture.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if torch.rand(1) < 0.5:
        cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(cut))
