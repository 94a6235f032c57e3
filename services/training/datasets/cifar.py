"""CIFAR-10 and CIFAR-100, the Python and the binary version of the authors' archives."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.storage import pickles
from services.training.datasets import Dataset, Part, Split

PIXELS = 3 * 32 * 32
NAMES10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def read(root: Path, split: Split, size: int | None = None, *, hundred: bool = False) -> Part:
    """Read a split of CIFAR-10, or of CIFAR-100 by its fine labels."""
    folders = ("cifar-100-python", "cifar-100-binary") if hundred else ("cifar-10-batches-py", "cifar-10-batches-bin")
    pickled, binary = root / folders[0], root / folders[1]
    if pickled.is_dir():
        files, names, rows = _files(pickled, split, hundred, ""), _names(pickled, hundred), _unpickled
    elif binary.is_dir():
        files, names, rows = _files(binary, split, hundred, ".bin"), _listed(binary, hundred), _binary
    else:
        raise SourceError(Problem(str(root), f"a folder {folders[0]} or {folders[1]}", "neither"))
    parts = [rows(path, hundred) for path in files]
    images = np.concatenate([pixels for pixels, _ in parts]).reshape(-1, 3, 32, 32)
    return Part(images, np.concatenate([labels for _, labels in parts]), names)


def _files(folder: Path, split: Split, hundred: bool, suffix: str) -> list[Path]:
    batches = [f"data_batch_{k}" for k in range(1, 6)] if split == "train" else ["test_batch"]
    files = [folder / f"{name}{suffix}" for name in ([split] if hundred else batches)]
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise SourceError(Problem(str(folder), f"files {', '.join(path.name for path in files)}", f"no {missing[0]}"))
    return files


def _unpickled(path: Path, hundred: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    fields = _load(path)
    labels = np.asarray(fields.get("fine_labels" if hundred else "labels", ()), dtype=np.int64)
    pixels = fields.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (len(labels), PIXELS):
        actual = f"data {getattr(pixels, 'shape', None)} and {len(labels)} labels"
        raise SourceError(Problem(str(path), f"data (N, {PIXELS}) uint8 and N labels", actual, "fetch it again"))
    return pixels, labels


def _load(path: Path) -> dict[str, Any]:
    try:
        fields = pickles.load(io.BytesIO(path.read_bytes()))
    except pickles.DAMAGE as error:
        actual = f"a damaged or foreign file ({error})"
        raise SourceError(Problem(str(path), "a batch of the authors' archive", actual, "fetch it again")) from error
    if not isinstance(fields, dict):
        raise SourceError(Problem(str(path), "a batch of the authors' archive", type(fields).__name__))
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in fields.items()}


def _binary(path: Path, hundred: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    record = PIXELS + (2 if hundred else 1)
    data = np.frombuffer(path.read_bytes(), np.uint8)
    if data.size == 0 or data.size % record:
        raise SourceError(
            Problem(str(path), f"whole records of {record} bytes", f"{data.size} bytes", "fetch it again")
        )
    rows = data.reshape(-1, record)
    return rows[:, -PIXELS:], rows[:, record - PIXELS - 1].astype(np.int64)


def _names(folder: Path, hundred: bool) -> tuple[str, ...]:
    path, key = (folder / "meta", "fine_label_names") if hundred else (folder / "batches.meta", "label_names")
    return tuple(str(name) for name in _load(path).get(key, ())) if path.is_file() else _fallback(hundred)


def _listed(folder: Path, hundred: bool) -> tuple[str, ...]:
    path = folder / ("fine_label_names.txt" if hundred else "batches.meta.txt")
    lines = path.read_text().split() if path.is_file() else []
    return tuple(lines) or _fallback(hundred)


def _fallback(hundred: bool) -> tuple[str, ...]:
    return tuple(str(k) for k in range(100)) if hundred else NAMES10


CIFAR10 = Dataset(read, (3, 32, 32), 10)
CIFAR100 = Dataset(partial(read, hundred=True), (3, 32, 32), 100)
