"""`torchvision:CIFAR10?root=DIR&split=test|train`: a dataset of torchvision that is on disk; nothing is downloaded.

torchvision opens files by name, and unpickles CIFAR's batches after it has compared the checksum of what the name led
to then. So where only some folders are granted it is given links to open files, and arrays alone are unpickled. Other
datasets of torchvision unpickle whatever lies in their folder, and are not opened.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError, one_line
from services.loading.confined import files_below, is_confined, linked, pinned_files, scanned
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
MOST_FILES = 200
"""Of a data set; all are open at once."""


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
    with _judged(root, getattr(maker, "base_folder", name), where) as folder:
        dataset = _made(maker, folder, split, where)
    pixels, labels = getattr(dataset, "data", None), getattr(dataset, "targets", getattr(dataset, "labels", None))
    if pixels is None or labels is None:
        remedy = "use imagefolder: or parquet:"
        raise SourceError(Problem(where, "a dataset that holds its images in one array", name, remedy))
    images = np.asarray(pixels)
    content = hashlib.sha256(np.ascontiguousarray(images).tobytes()).hexdigest()
    classes = getattr(dataset, "classes", None)
    names = tuple(str(label) for label in classes) if classes else None
    return Source(array_store(images, scale=None, content=content, where=where), _whole(labels), names)


@contextmanager
def _judged(root: Path, name: str, where: str) -> Iterator[Path]:
    """The folder that torchvision is given: where files are judged, one of links to the open files of the data set.

    They lie in the folder itself or in that of the set.

    Raises:
        SourceError: one leads out of the granted folders, or there are more than `MOST_FILES`.
    """
    if not is_confined() or not root.is_dir():
        yield root
        return
    with scanned(root, where) as entries:
        beside = [root / entry.name for entry in entries if entry.is_file()]
        is_folder = any(entry.name == name and entry.is_dir() for entry in entries)
    below = files_below(root / name, where, follow=True) if is_folder else ()
    files = list(islice(chain(beside, below), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        remedy = "give the data set a folder of its own"
        raise SourceError(Problem(where, f"at most {MOST_FILES} files", f"more in {root}", remedy))
    try:
        with pinned_files(files, where) as targets:
            places = [path.relative_to(root) for path in files]
            with linked(dict(zip(places, targets, strict=True))) as folder:
                yield folder
    except OSError as error:
        raise SourceError(Problem(where, f"the dataset in {root}", one_line(error))) from error


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
