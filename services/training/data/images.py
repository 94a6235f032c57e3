"""Labelled images in memory, checked before training starts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.errors import Problem, SourceError
from services.records import digest_of


@dataclass(frozen=True)
class Labelled:
    """Images (N, C, H, W), uint8 or float32 in [0, 1], with labels (N,) int64 in [0, classes)."""

    images: NDArray[Any]
    labels: NDArray[np.int64]
    classes: int

    def take(self, rows: NDArray[np.int64]) -> Labelled:
        """Some of the rows."""
        return Labelled(self.images[rows], self.labels[rows], self.classes)

    def digest(self) -> str:
        """Hash of pixels, labels and shapes."""
        state = hashlib.sha256()
        for start in range(0, len(self.images), 1024):
            state.update(np.ascontiguousarray(self.images[start : start + 1024]).tobytes())
        state.update(np.ascontiguousarray(self.labels).tobytes())
        return digest_of(state.hexdigest(), list(self.images.shape), str(self.images.dtype), self.classes)


def checked(images: NDArray[Any], labels: NDArray[Any], classes: int | None, where: str) -> Labelled:
    """Check arrays for training.

    Raises:
        SourceError: not (N, C, H, W) with 1 or 3 channels, another type than uint8 or floats in [0, 1], labels that are
            not whole numbers in [0, classes), or a class without a sample; every fault is listed.
    """
    problems = [*_image_problems(images, where), *_label_problems(labels, len(images), classes, where)]
    if problems:
        raise SourceError(problems)
    pixels = images if images.dtype == np.uint8 else images.astype(np.float32, copy=False)
    return Labelled(pixels, labels.astype(np.int64, copy=False), classes or int(labels.max()) + 1)


def identity_of(method: str, recipe: str, network: nn.Module, data: Labelled, held: Labelled | None) -> str:
    """What makes two training runs the same one: method, recipe, data, and the network's tensors by name and shape."""
    tensors = [(name, list(value.shape)) for name, value in network.state_dict().items()]
    return digest_of(method, recipe, tensors, data.digest(), held.digest() if held else "")


def _image_problems(images: NDArray[Any], where: str) -> list[Problem]:
    problems = []
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not len(images):
        wanted = "images (N, C, H, W) with N >= 1 and 1 or 3 channels"
        problems.append(Problem(where, wanted, f"shape {images.shape}", "put the channels second"))
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        problems.append(Problem(where, "images as uint8, or floats in [0, 1]", str(images.dtype)))
    elif images.dtype.kind == "f" and images.size and not (images.min() >= 0 and images.max() <= 1):
        actual = f"values from {images.min():g} to {images.max():g}"
        problems.append(Problem(where, "floating images in [0, 1]", actual, "divide by 255; normalise in the network"))
    return problems


def _label_problems(labels: NDArray[Any], count: int, classes: int | None, where: str) -> list[Problem]:
    where = f"{where} (labels)"
    if labels.shape != (count,):
        return [Problem(where, f"shape ({count},), one label an image", f"{labels.shape}")]
    if labels.dtype.kind not in "iu":
        return [Problem(where, "whole numbers", str(labels.dtype), "store them as int64")]
    high = int(labels.max()) + 1 if classes is None and count else classes or 0
    if wrong := int(np.sum((labels < 0) | (labels >= high))):
        return [Problem(where, f"labels in [0, {high})", f"{wrong} of {count} outside")]
    empty = np.flatnonzero(np.bincount(labels, minlength=high) == 0).tolist()
    return [Problem(where, "a sample of every class", f"none of class {empty}")] if empty else []


def unit(images: Tensor) -> Tensor:
    """Images as float32 in [0, 1]; uint8 is divided by 255."""
    return images.to(torch.float32).div_(255) if images.dtype == torch.uint8 else images.to(torch.float32)
