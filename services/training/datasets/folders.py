"""Data sets of image files: CINIC-10, TinyImageNet, ImageNet-50. Every file is decoded once, before training starts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from services.errors import Problem, SourceError
from services.loading.samples.encoded import KEEP_BYTES, EncodedStore, file_bytes
from services.loading.samples.listing import class_folders, only_images
from services.training.datasets import Dataset, Part, Split

BLOCK = 256
IMAGENET_SIZE = 224
IMAGENET_SHORT = 256 / 224
"""Shorter side before the centre crop, in units of the crop."""


def read_cinic10(root: Path, split: Split, size: int | None = None) -> Part:
    """`train`, or `test`; the authors' `valid` is theirs to be merged or not, so it is left alone."""
    folder = _folder(root / split)
    names, _ = class_folders(folder)
    return _part(only_images([(name, folder / name) for name in names], str(folder)), names, folder)


def read_tinyimagenet(root: Path, split: Split, size: int | None = None) -> Part:
    """The labelled validation images serve as test: the authors' test images have no labels."""
    listing = root / "wnids.txt"
    if not listing.is_file():
        raise SourceError(Problem(str(listing), "the list of classes", "nothing there"))
    names = tuple(listing.read_text().split())
    pairs = _tiny_train(root, names) if split == "train" else _tiny_validation(root, names)
    return _part(pairs, names, root)


def read_imagenet50(root: Path, split: Split, size: int | None = None) -> Part:
    """Shorter side to 256/224 of `size`, then the centre; the classes of `train` and `val` must be the same."""
    train, val = _folder(root / "train"), _folder(root / "val")
    names, others = class_folders(train)[0], class_folders(val)[0]
    if odd := sorted(set(names) ^ set(others)):
        raise SourceError(Problem(str(root), "the same classes in train and val", f"only in one: {', '.join(odd[:5])}"))
    folder, edge = train if split == "train" else val, size or IMAGENET_SIZE
    pairs = only_images([(name, folder / name) for name in names], str(folder))
    return _part(pairs, names, folder, crop=edge)


def centre(image: Image.Image, edge: int) -> Image.Image:
    """The central (edge, edge) of the image resized to a shorter side of 256/224 of it."""
    scale = round(edge * IMAGENET_SHORT) / min(image.size)
    width, height = (max(edge, round(side * scale)) for side in image.size)
    resized = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - edge) // 2, (height - edge) // 2
    return resized.crop((left, top, left + edge, top + edge))


def _tiny_train(root: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    missing = [name for name in names if not (root / "train" / name / "images").is_dir()]
    if missing:
        actual = f"{len(missing)} missing, for example {missing[0]}"
        raise SourceError(Problem(str(root / "train"), "a folder for every class of wnids.txt", actual))
    return only_images([(name, root / "train" / name / "images") for name in names], str(root / "train"))


def _tiny_validation(root: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    folder, index = root / "val", {name: k for k, name in enumerate(names)}
    annotations = folder / "val_annotations.txt"
    if not annotations.is_file():
        raise SourceError(Problem(str(annotations), "the labels of the validation images", "nothing there"))
    rows = [line.split("\t")[:2] for line in annotations.read_text().splitlines() if line.strip()]
    faults = [row for row in rows if len(row) < 2 or row[1] not in index or not (folder / "images" / row[0]).is_file()]
    if faults:
        actual = f"{len(faults)} of {len(rows)} without, for example {' '.join(faults[0])}"
        raise SourceError(Problem(str(annotations), "an image and a class of wnids.txt in every line", actual))
    return [(folder / "images" / name, index[wnid]) for name, wnid in rows]


def _part(pairs: list[tuple[Path, int]], names: tuple[str, ...], root: Path, *, crop: int | None = None) -> Part:
    if not pairs:
        raise SourceError(Problem(str(root), "image files", "none"))
    paths = [path for path, _ in pairs]
    mode: Literal["RGB"] = "RGB"
    store = EncodedStore(
        lambda row: file_bytes(paths[row]),
        lambda row: str(paths[row].relative_to(root)),
        len(paths),
        str(root),
        mode,
        prepare=(lambda image: centre(image, crop)) if crop else None,
    )
    taken = store.take(np.arange(len(paths)), on_corrupt="error")
    images = _room((len(paths), *taken.shape))
    for start in range(0, len(paths), BLOCK):
        images[start : start + BLOCK] = np.rint(taken.read(start, start + BLOCK) * 255)
    return Part(images, np.array([k for _, k in pairs], dtype=np.int64), names)


def _room(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Memory, or beyond 2 GiB an unnamed temporary file that is gone with the array."""
    if int(np.prod(shape)) <= KEEP_BYTES:
        return np.empty(shape, np.uint8)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.uint8, "w+", shape=shape)


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise SourceError(Problem(str(path), "a folder", "nothing there"))
    return path


CINIC10 = Dataset(read_cinic10, (3, 32, 32), 10)
TINYIMAGENET = Dataset(read_tinyimagenet, (3, 64, 64), None)
IMAGENET50 = Dataset(read_imagenet50, None, 50)
