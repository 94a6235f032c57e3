"""Images and labels of this process as a file of samples, so that an audit of arrays resumes like any other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.storage import files


def samples_file(
    images: Any,
    labels: Any,
    *,
    classes: Sequence[str] | None,
    groups: Mapping[str, Any] | None,
    storage: str,
) -> str:
    """Write the arrays below the storage once for each content, and return their URI.

    Args:
        images: (N, C, H, W) or (N, H, W, C): uint8, or floating numbers in [0, 1]. NumPy arrays, tensors, lists.
        labels: (N,) or (N, 1) integers.
        classes: K names in label order.
        groups: columns of N values, to group by.

    Raises:
        SourceError: arrays of other shapes or ranges.
    """
    pixels, targets = _array(images, "images"), _array(labels, "labels")
    if pixels.ndim != 4:
        raise SourceError(Problem("images", "shape (N, C, H, W) or (N, H, W, C)", f"shape {pixels.shape}"))
    if targets.shape == (len(pixels), 1):
        targets = targets[:, 0]
    if targets.shape != (len(pixels),):
        raise SourceError(Problem("labels", f"shape ({len(pixels)},), one an image", f"shape {targets.shape}"))
    scale = ""
    if np.issubdtype(pixels.dtype, np.floating):
        low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 1.0)
        if not (low >= 0 and high <= 1):
            remedy = "undo the normalisation and declare it: input={'mean': [...], 'std': [...]}"
            raise SourceError(Problem("images", "floating numbers in [0, 1]", f"{low:g} to {high:g}", remedy))
        pixels, scale = pixels.astype(np.float32), "?scale=1"
    arrays = {"images": pixels, "labels": targets}
    if classes is not None:
        arrays["classes"] = np.array([str(name) for name in classes])
    for name, values in (groups or {}).items():
        if name in arrays:
            raise SourceError(Problem(f"groups {name}", "a name other than images, labels and classes", name))
        arrays[name] = _array(values, f"groups {name}")
    if not files.is_local(storage):
        remedy = "audit a fleet whose samples are files"
        raise SourceError(Problem("storage", "a folder of this machine, for arrays in memory", storage, remedy))
    path = files.join(storage, "samples", f"{_digest(arrays)}.npz")
    if not files.exists(path):
        files.write(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    return f"npz:{path}{scale}"


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]


def _array(values: Any, where: str) -> NDArray[Any]:
    """As a NumPy array; a tensor leaves its device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise SourceError(Problem(where, "an array", str(error), "make all rows of one shape")) from error
    if array.dtype == object:
        raise SourceError(Problem(where, "an array of numbers or names", "one of Python objects"))
    return array
