"""SPDL: one pipeline of threads; a batch is a task (an image a task costs more in its loop)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import spdl.io
import spdl.pipeline
from job import Job, crop_box, files_of, indices
from pictures import DECODERS


class Pipelines:
    """A pipeline an epoch, as SPDL's examples build it."""

    def __init__(self, job: Job, task: Any) -> None:
        self.paths, self.labels = files_of(job.path)
        self.job = job
        self.task = task
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        order = indices(len(self.paths), self.job, self.epoch)
        self.epoch += 1
        chunks = np.array_split(order, range(self.job.batch, len(order), self.job.batch))
        pipeline = (
            spdl.pipeline.PipelineBuilder()
            .add_source(chunks)
            .pipe(self.task, concurrency=self.job.workers)
            .add_sink(4)
            .build(num_threads=self.job.workers)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)


def read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as stream:
        return stream.read()


def pictures_ffmpeg(job: Job) -> Iterable[Any]:
    """SPDL's own decoder; the crop is FFmpeg's filter."""

    def decode(path: str) -> Any:
        packets = spdl.io.demux_image(path)
        size = f"scale={job.size}:{job.size}:flags=bilinear,format=pix_fmts=rgb24"
        if job.augment:
            width, height = packets.codec.width, packets.codec.height
            left, top, w, h = crop_box(width, height, job)
            flip = ",hflip" if np.random.random() < 0.5 else ""
            description = f"crop={w}:{h}:{left}:{top}{flip},{size}"
        else:
            shorter = rf"scale={job.resize}:{job.resize}:force_original_aspect_ratio=increase"
            description = f"{shorter},crop={job.size}:{job.size},format=pix_fmts=rgb24"
        return spdl.io.decode_packets(packets, filter_desc=description)

    def task(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        frames = [decode(pipelines.paths[i]) for i in chosen]
        pixels = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        return pixels, np.array([pipelines.labels[i] for i in chosen])

    pipelines = Pipelines(job, task)
    return pipelines


def pictures(job: Job, decoder: str) -> Iterable[Any]:
    """SPDL's threads around another decoder."""
    import cv2

    cv2.setNumThreads(0)
    decode = DECODERS[decoder]

    def task(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        out = np.empty((len(chosen), job.size, job.size, 3), np.uint8)
        for row, i in enumerate(chosen):
            out[row] = decode(read(pipelines.paths[i]), job)
        return out, np.array([pipelines.labels[i] for i in chosen])

    pipelines = Pipelines(job, task)
    return pipelines


pictures_simplejpeg = partial(pictures, decoder="simplejpeg")


def files(job: Job) -> Iterable[list[bytes]]:
    def task(chosen: np.ndarray) -> list[bytes]:
        return [read(pipelines.paths[i]) for i in chosen]

    pipelines = Pipelines(job, task)
    return pipelines
