"""A traversal: what a mapper's images look like along each latent dimension, and what a network calls them.

All other latents stand at their centre, so the images show no person's data. The file is an npz without pickles.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, StorageError
from services.storage.archives import NPZ_DAMAGE


@dataclass(frozen=True)
class Traversal:
    """D dimensions at S positions.

    Attributes:
        dimensions: (D,) columns of the latents.
        positions: (S,) in [-1, 1], units from the centre.
        images: (D, S, H, W, C) uint8.
        labels: (D, S) what the network says; -1 where its logits are not finite.
        moves: (D, 2) distances down and up, in units, at which the label first differs from that at the centre.
        censored: (D, 2), it never does.
    """

    dimensions: NDArray[np.int64]
    positions: NDArray[np.float64]
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    moves: NDArray[np.float64]
    censored: NDArray[np.bool_]

    def to_bytes(self) -> bytes:
        """As an npz file."""
        file = io.BytesIO()
        columns: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        np.savez_compressed(file, **columns)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Traversal:
        """Read an npz file.

        Raises:
            StorageError: it is damaged or holds something else.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as kept:
                return cls(**{field.name: kept[field.name] for field in fields(cls)})
        except (MemoryError, *NPZ_DAMAGE) as error:
            raise StorageError(Problem(where, "a traversal", f"{error}", "delete it and audit again")) from error
