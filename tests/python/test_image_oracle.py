"""The image decoder's pixels against Pillow's, over the pictures that a test run has at hand.

``DECODE_TOOL`` names the program ``decode_tool`` (built with the C++ tests), else the
one in ``build`` is taken; ``DECODE_IMAGES`` names a folder of JPEGs, else Pillow makes some.
"""

import os
import pathlib
import subprocess

import pytest

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")

BUILT = pathlib.Path(__file__).parents[2] / "build/release/tests/cpp/decode/decode_tool"
TOOL = os.environ.get("DECODE_TOOL") or (BUILT if BUILT.exists() else None)
pytestmark = pytest.mark.skipif(not TOOL, reason="decode_tool is not built")

SIZES = [(1, 1), (1, 40), (40, 1), (17, 31), (224, 224), (333, 500), (500, 375), (1024, 700)]
KINDS = {
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
    "420": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restart": {"restart_marker_rows": 1},
    "grey": {"mode": "L"},
    "cmyk": {"mode": "CMYK"},
}


def picture(width, height, mode):
    """Gradients with edges and texture, the same in every run."""
    rng = np.random.default_rng(width * 1000 + height)
    y, x = np.mgrid[0:height, 0:width]
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    planes = [(x * (c + 1) + y * (3 - c)) * 255 / (4 * max(width, height)) for c in range(channels)]
    pixels = np.stack(planes, axis=-1) + rng.integers(0, 12, (height, width, channels))
    pixels += 60 * ((x // 19 + y // 23) % 2)[..., None]
    pixels = pixels.clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode=mode)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    given = os.environ.get("DECODE_IMAGES")
    if given:
        paths = [p for p in pathlib.Path(given).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg")]
        return sorted(paths)
    folder = tmp_path_factory.mktemp("images")
    paths = []
    for width, height in SIZES:
        for name, options in KINDS.items():
            options = dict(options)
            made = picture(width, height, options.pop("mode", "RGB"))
            paths.append(folder / f"{width}x{height}_{name}.jpg")
            made.save(paths[-1], quality=92, **options)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        paths.append(folder / f"exif_{orientation}.jpg")
        picture(200, 120, "RGB").save(paths[-1], quality=92, exif=exif)
    return paths


def decode(paths, tmp_path, mode, size, *extra):
    out = tmp_path / "pixels"
    run = subprocess.run(
        [TOOL, out, mode, str(size), "7", *extra],
        input="\n".join(map(str, paths)),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == len(paths)
    assert not [line for line in lines if line.startswith("error")]
    views = [tuple(map(int, line.split())) for line in lines]
    return views, np.fromfile(out, np.uint8).reshape(len(paths), size, size, 3)


def pillow(path, view, size, exif):
    left, top, width, height, to_width, to_height, cut_left, cut_top, mirrored = view
    with Image.open(path) as image:
        if exif:
            image = ImageOps.exif_transpose(image)
        image = image.convert("RGB").crop((left, top, left + width, top + height))
    image = image.resize((to_width, to_height), Image.Resampling.BILINEAR)
    image = image.crop((cut_left, cut_top, cut_left + size, cut_top + size))
    return ImageOps.mirror(image) if mirrored else image


@pytest.mark.parametrize("extra", [(), ("exif",)], ids=["stored", "exif"])
@pytest.mark.parametrize("size", [224, 40])
@pytest.mark.parametrize("mode", ["train", "center", "none"])
def test_pixels_are_pillows(images, tmp_path, mode, size, extra):
    views, pixels = decode(images, tmp_path, mode, size, *extra)
    counts = np.zeros(256, np.int64)
    worst = (0.0, "")
    for path, view, made in zip(images, views, pixels, strict=True):
        expected = np.asarray(pillow(path, view, size, bool(extra)), np.int16)
        apart = np.abs(expected - made)
        counts += np.bincount(apart.ravel(), minlength=256)
        worst = max(worst, (float(apart.mean()), path.name))
    mean = (counts * np.arange(256)).sum() / counts.sum()
    p999 = int(np.searchsorted(counts.cumsum(), counts.sum() * 0.999))
    print(f"{mode} {size} {extra}: mean {mean:.3f}, 99.9 % {p999}, worst picture {worst}")
    assert mean <= 1.0
    assert p999 <= 6


@pytest.mark.parametrize("crop", ["center", "none"])
def test_batches_hold_pillows_pixels(images, tmp_path, crop):
    import headpond as hp

    folder = tmp_path / "flat"
    folder.mkdir()
    for path in images:
        (folder / path.name).symlink_to(path)
    pipe = hp.from_files(folder, label=None).image("data", size=64, crop=crop).batch(16)
    with pipe.loader() as loader:
        pixels = np.concatenate([batch["data"] for batch in loader])
    assert pixels.shape == (len(images), 64, 64, 3)
    for path, made in zip(sorted(images, key=lambda p: os.fsencode(p.name)), pixels, strict=True):
        with Image.open(path) as image:
            width, height = image.size
            view = (0, 0, width, height, 64, 64, 0, 0, 0)
            if crop == "center":
                short = 64 * 256 // 224
                long = int(short * max(width, height) / min(width, height))
                to_width, to_height = (short, long) if width <= height else (long, short)
                left, top = round((to_width - 64) / 2), round((to_height - 64) / 2)
                view = (0, 0, width, height, to_width, to_height, left, top, 0)
        expected = np.asarray(pillow(path, view, 64, exif=False), np.int16)
        apart = np.abs(expected - made)
        assert apart.mean() <= 1.0, path.name
        assert np.quantile(apart, 0.999) <= 6, path.name
