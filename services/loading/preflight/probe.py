"""The samples that preflight looks at, and what it learns from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Facts = dict[str, Any]


@dataclass(frozen=True)
class Probe:
    """The samples looked at: images (n, C, H, W) float32 in [0, 1], labels (n,), ids (n,)."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    classes: tuple[str, ...]
