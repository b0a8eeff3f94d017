"""One JPEG to one training picture, by the decoders that people use today.

Each function takes a file's bytes and gives uint8 [size, size, 3], RGB.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import numpy as np
from job import Job, centre_box, crop_box

Decode = Callable[[bytes, Job], np.ndarray]


def pil(data: bytes, job: Job) -> np.ndarray:
    """Pillow as torchvision uses it; crop and resize in one call."""
    from PIL import Image

    picture = Image.open(io.BytesIO(data)).convert("RGB")
    box = (crop_box if job.augment else centre_box)(*picture.size, job)
    left, top, width, height = box
    picture = picture.resize(
        (job.size, job.size), Image.Resampling.BILINEAR, box=(left, top, left + width, top + height)
    )
    if job.augment and random.random() < 0.5:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(picture)


def cv2(data: bytes, job: Job) -> np.ndarray:
    """OpenCV: full decode, then resize of the crop."""
    import cv2

    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    picture = resize_cv2(picture, 1.0, 1.0, picture.shape[1], picture.shape[0], job)
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)


def simplejpeg(data: bytes, job: Job) -> np.ndarray:
    """libjpeg-turbo decoding at the smallest DCT scale that keeps the crop large enough."""
    import simplejpeg

    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    box = (crop_box if job.augment else centre_box)(width, height, job)
    picture = simplejpeg.decode_jpeg(
        data,
        colorspace="RGB",
        min_height=math_ceil(height * job.size / box[3]),
        min_width=math_ceil(width * job.size / box[2]),
        strict=False,
    )
    return cut_cv2(picture, picture.shape[1] / width, picture.shape[0] / height, box, job)


def math_ceil(value: float) -> int:
    return int(-(-value // 1))


def resize_cv2(
    picture: np.ndarray, sx: float, sy: float, width: int, height: int, job: Job
) -> np.ndarray:
    box = (crop_box if job.augment else centre_box)(width, height, job)
    return cut_cv2(picture, sx, sy, box, job)


def cut_cv2(
    picture: np.ndarray, sx: float, sy: float, box: tuple[float, ...], job: Job
) -> np.ndarray:
    import cv2

    left, top = round(box[0] * sx), round(box[1] * sy)
    width, height = max(1, round(box[2] * sx)), max(1, round(box[3] * sy))
    cut = picture[top : top + height, left : left + width]
    how = cv2.INTER_AREA if width > job.size and height > job.size else cv2.INTER_LINEAR
    out = cv2.resize(cut, (job.size, job.size), interpolation=how)
    if job.augment and random.random() < 0.5:
        out = cv2.flip(out, 1)
    return out


DECODERS: dict[str, Decode] = {"pil": pil, "cv2": cv2, "simplejpeg": simplejpeg}
