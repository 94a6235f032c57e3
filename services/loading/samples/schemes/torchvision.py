"""`torchvision:CIFAR10?root=DIR&split=test|train`: a dataset of torchvision that is on disk; nothing is downloaded.

torchvision opens files by name, and unpickles CIFAR's batches after it has compared the checksum of what the name led
to then. So where only some folders are granted it is given a copy, and arrays alone are unpickled. Other datasets of
torchvision unpickle whatever lies in their folder, and are not opened.
"""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError, one_line
from services.loading.confined import copied
from services.loading.packages import package
from services.loading.samples.source import Source
from services.loading.samples.stores import array_store
from services.loading.uris import SourceUri, local_path
from services.registry import did_you_mean
from services.storage import pickles

DATASETS = (
    "CIFAR10",
    "CIFAR100",
    "EMNIST",
    "FashionMNIST",
    "KMNIST",
    "MNIST",
    "QMNIST",
    "SEMEION",
    "STL10",
    "SVHN",
    "USPS",
)
"""Those that keep their images in one array."""


def open_torchvision(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open a dataset that keeps its images in one array (CIFAR, MNIST and kin, SVHN, STL10)."""
    options = uri.options(root=local_path, split=str)
    return open_dataset(uri.rest, options.get("root", Path("data")), options.get("split", "test"), uri.text)


def open_dataset(name: str, root: Path, split: str, where: str) -> Source:
    """Open `torchvision.datasets.NAME` and take its arrays."""
    datasets = package("torchvision.datasets", where)
    if name not in DATASETS:
        remedy = did_you_mean(name, list(DATASETS)) + "; of others use imagefolder: or parquet:"
        raise SourceError(
            Problem(where, "a dataset of torchvision that keeps its images in one array", repr(name), remedy)
        )
    datasets.cifar.pickle = pickles
    maker = getattr(datasets, name)
    if root.exists():
        with copied(root, where) as folder:
            dataset = _made(maker, folder, split, where)
    else:
        dataset = _made(maker, root, split, where)
    pixels, labels = getattr(dataset, "data", None), getattr(dataset, "targets", getattr(dataset, "labels", None))
    if pixels is None or labels is None:
        remedy = "use imagefolder: or parquet:"
        raise SourceError(Problem(where, "a dataset that holds its images in one array", name, remedy))
    images = np.asarray(pixels)
    content = hashlib.sha256(np.ascontiguousarray(images).tobytes()).hexdigest()
    classes = getattr(dataset, "classes", None)
    names = tuple(str(label) for label in classes) if classes else None
    return Source(array_store(images, scale=None, content=content, where=where), _whole(labels), names)


def _made(maker: Any, root: Path, split: str, where: str) -> Any:
    parameters = inspect.signature(maker).parameters
    if "train" in parameters and split not in {"train", "test"}:
        raise SourceError(Problem(f"{where} (split)", "train or test", repr(split)))
    part = {"train": split == "train"} if "train" in parameters else {"split": split} if "split" in parameters else {}
    quiet = {"download": False} if "download" in parameters else {}
    try:
        return maker(root=str(root), **part, **quiet)
    except (RuntimeError, *pickles.DAMAGE, OSError) as error:
        actual = one_line(error)
        remedy = "download it once with torchvision (download=True) and set ?root="
        raise SourceError(Problem(where, f"the dataset in {root}", actual, remedy)) from error


def _whole(labels: Any) -> NDArray[Any]:
    return np.asarray(labels)
