"""Ready-made corrupted images as RobustBench keeps them: `DIR/CIFAR-10-C/CORRUPTION.npy` beside `labels.npy`.

A file holds N images for each of the severities 1 to 5, one severity after the other, and `labels.npy` their labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.confined import scanned
from services.loading.fingerprint import existing, sha256
from services.loading.samples.source import Source
from services.loading.samples.stores import array_store
from services.loading.uris import SourceUri, local_path, whole
from services.loading.uris import names as listed
from services.records import digest_of
from services.registry import did_you_mean

FOLDERS = {"cifar10-c": "CIFAR-10-C", "cifar100-c": "CIFAR-100-C"}
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
LEVELS = 5


def open_corrupted(uri: SourceUri) -> Source:
    """Open corrupted images, with columns `corruption`, `severity` and `image`, the number of the image behind them.

    Versions of one image are not independent: `samples: {cluster: image}` says so.

    Raises:
        SourceError: a file is missing, is no array of images, or is of another number of them.
    """
    options: dict[str, Any] = uri.options(data_dir=local_path, n=whole, names=listed, severities=_severities)
    folder = existing(options.get("data_dir", Path("data")) / FOLDERS[uri.rest], uri.text, folder=True)
    with scanned(folder, uri.text) as entries:
        known = [entry.name[:-4] for entry in entries if entry.name.endswith(".npy") and entry.name != "labels.npy"]
    chosen, levels = tuple(dict.fromkeys(options.get("names", known))), options.get("severities", (LEVELS,))
    for name in chosen:
        if name not in known:
            remedy = did_you_mean(name, known) if known else ""
            raise SourceError(Problem(f"{uri.text} (names)", f"{name}.npy in {folder}", "no such file", remedy))
    labels = _array(folder / "labels.npy", uri.text)
    count = len(labels) // LEVELS
    taken = options.get("n", count)
    if labels.ndim != 1 or len(labels) % LEVELS or not 0 < taken <= count or not chosen:
        expected = f"labels of {LEVELS} severities, at least {max(1, taken)} images each, and a corruption"
        raise SourceError(Problem(uri.text, expected, f"labels {labels.shape} and {len(known)} corruptions"))
    images, content = [], [sha256(existing(folder / "labels.npy", uri.text))]
    rows = np.concatenate([np.arange(taken) + (level - 1) * count for level in levels])
    for name in chosen:
        array = _array(folder / f"{name}.npy", uri.text)
        if len(array) != len(labels):
            raise SourceError(Problem(f"{uri.text} ({name})", f"{len(labels)} images", f"{len(array)}"))
        images.append(array[rows])
        content.append(sha256(existing(folder / f"{name}.npy", uri.text)))
    store = array_store(np.concatenate(images), scale=None, content=digest_of(content), where=uri.text)
    versions = len(levels) * taken
    columns = {
        "corruption": np.repeat(np.array(chosen), versions),
        "severity": np.tile(np.repeat(np.array([str(level) for level in levels]), taken), len(chosen)),
        "image": np.tile(np.arange(taken).astype(str), len(chosen) * len(levels)),
    }
    classes = CIFAR10 if uri.rest == "cifar10-c" else None
    return Source(store, np.tile(labels[rows], len(chosen)).astype(np.int64), classes, columns)


def _array(path: Path, where: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(existing(path, where), mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise SourceError(Problem(where, f"an array of NumPy in {path.name}", str(error)[:200])) from error
    if not isinstance(array, np.ndarray):
        raise SourceError(Problem(where, f"an array of NumPy in {path.name}", "an archive of several"))
    return array


def _severities(text: str) -> tuple[int, ...]:
    levels = tuple(whole(part) for part in listed(text))
    if not levels or not all(1 <= level <= LEVELS for level in levels) or len(set(levels)) < len(levels):
        raise ValueError("different severities from 1 to 5, joined by commas")
    return levels
