"""Training sets from a local root, in the layout of torchvision or of the data set's authors. Nothing is downloaded.

| name | layout below the root |
|---|---|
| digits | none: 8x8 digits that ship with scikit-learn, the half that `sklearn:digits?split=train` has |
| mnist | `MNIST/raw/` or the root itself: `train-images-idx3-ubyte[.gz]`, `train-labels-idx1-ubyte[.gz]`, `t10k-` |
| svhn | `train_32x32.mat`, `test_32x32.mat` |
| cifar10 | `cifar-10-batches-py/` `data_batch_1` .. `5`, `test_batch`, or `cifar-10-batches-bin/` with `.bin` |
| cifar100 | `cifar-100-python/` `train`, `test`, `meta`, or `cifar-100-binary/` `train.bin`, `test.bin` |
| cinic10 | `train/CLASS/*.png`, `valid/`, `test/` |
| tinyimagenet | `wnids.txt`, `train/WNID/images/*.JPEG`, `val/images/*.JPEG` with `val/val_annotations.txt` |
| samples | none: the root is the URI of a sample source, `npz:train.npz` or `imagefolder:train` |
| imagenet50 | `train/WNID/*.JPEG`, `val/WNID/*.JPEG`, 50 classes |

torchvision's own readers are not used: they insist on the published checksums, so that a subset cannot be opened, and
they unpickle whatever a file holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.registry import Registry

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Part:
    """One split, read whole.

    Attributes:
        images: (N, C, H, W) uint8, or float32 in [0, 1].
        labels: (N,) int64.
        classes: K names in label order.
    """

    images: NDArray[Any]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]


Reader = Callable[[Any, Split, int | None], Part]
"""Reads a split of the data set below a root, a path or the URI of samples; the size asks for (size, size) pixels where
images may be resized."""


@dataclass(frozen=True)
class Dataset:
    """How a data set is read and what it must look like.

    Attributes:
        read: its reader.
        shape: (C, H, W); None where the size is the reader's argument.
        classes: K; None where the data set itself lists its classes.
        rooted: whether it lies in a folder that the user names.
        by_uri: its root is no folder but the URI of a sample source, whose shape and classes it has.
    """

    read: Reader
    shape: tuple[int, int, int] | None
    classes: int | None
    rooted: bool = True
    by_uri: bool = False


DATASETS: Registry[Dataset] = Registry(
    "training set",
    "classwise.training_sets",
    {
        "cifar10": "services.training.datasets.cifar:CIFAR10",
        "cifar100": "services.training.datasets.cifar:CIFAR100",
        "cinic10": "services.training.datasets.folders:CINIC10",
        "digits": "services.training.datasets.digits:DIGITS",
        "imagenet50": "services.training.datasets.folders:IMAGENET50",
        "samples": "services.training.datasets.samples:SAMPLES",
        "mnist": "services.training.datasets.mnist:MNIST",
        "svhn": "services.training.datasets.svhn:SVHN",
        "tinyimagenet": "services.training.datasets.folders:TINYIMAGENET",
    },
)


def open_dataset(name: str, root: str | Path | None, *, split: Split = "train", size: int | None = None) -> Part:
    """Read and check one split, before any training starts.

    Raises:
        ConfigError: the name is unknown.
        SourceError: the root, a file or a class is missing, a file is broken, or images have the wrong size.
    """
    where, dataset = f"{name} ({split})", DATASETS.get(name)
    if problems := _odd_arguments(dataset, root, size, where):
        raise SourceError(problems)
    part = dataset.read(_folder(root, dataset, where), split, size)
    problems = [*_shape_problems(part, dataset, where), *_class_problems(part, dataset, where)]
    if problems:
        raise SourceError(problems)
    return part


def _odd_arguments(dataset: Dataset, root: str | Path | None, size: int | None, where: str) -> list[Problem]:
    """What is given and would be passed over in silence."""
    problems = []
    if root is not None and not dataset.rooted:
        problems.append(Problem(where, "no root: it comes with scikit-learn", str(root), "leave root out"))
    if size is not None and dataset.by_uri:
        problems.append(Problem(where, "no size: the source has one", str(size), "say ?size= in the URI"))
    elif size is not None and dataset.shape is not None:
        expected = f"no size: its images have {dataset.shape[1]} pixels a side"
        problems.append(Problem(where, expected, str(size), "leave size out"))
    return problems


def _folder(root: str | Path | None, dataset: Dataset, where: str) -> Path | str:
    if not dataset.rooted:
        return Path()
    if dataset.by_uri:
        if root is None or ":" not in str(root):
            remedy = "set root to it, such as npz:train.npz or imagefolder:train"
            raise SourceError(Problem(where, "the URI of a sample source", repr(root), remedy))
        return str(root)
    if root is None:
        raise SourceError(Problem(where, "the root of the data", "none", "set root to the folder that holds it"))
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise SourceError(Problem(where, f"a folder at {folder}", "nothing there", "set the root of the data"))
    return folder


def _shape_problems(part: Part, dataset: Dataset, where: str) -> list[Problem]:
    if not len(part.images):
        return [Problem(where, "at least one image", "none")]
    shape: tuple[Any, ...] = part.images.shape[1:]
    if dataset.shape is None or shape == dataset.shape:
        return []
    return [Problem(where, f"images of shape {dataset.shape} (C, H, W)", f"{shape}", "use the published files")]


def _class_problems(part: Part, dataset: Dataset, where: str) -> list[Problem]:
    count = len(part.classes)
    if dataset.classes is not None and count != dataset.classes:
        return [Problem(where, f"{dataset.classes} classes", f"{count}")]
    outside = int(np.sum((part.labels < 0) | (part.labels >= count)))
    if outside:
        return [Problem(where, f"labels in [0, {count})", f"{outside} of {len(part.labels)} outside")]
    empty = [part.classes[k] for k in np.flatnonzero(np.bincount(part.labels, minlength=count) == 0)]
    return [Problem(where, "a sample of every class", f"none of {', '.join(empty[:5])}")] if empty else []
