"""A thread that reads the next batch of images while the caller works on this one, so that no GPU waits for files."""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from services.threads import pool

if TYPE_CHECKING:
    from services.loading.protocols import Samples


class ReadAhead:
    """Images by batch; the next batch is read while the caller works on this one. Holds two batches at most."""

    def __init__(self) -> None:
        self._next: tuple[tuple[Samples, int, int], Future[NDArray[np.float32]]] | None = None

    def images(self, samples: Samples, start: int, stop: int, end: int) -> NDArray[np.float32]:
        """Rows [start, stop) as (n, C, H, W) float32, and begin to read as many from `stop` on, up to `end`.

        Raises:
            SourceError: as the samples do, of the rows asked for now.
        """
        begun, self._next = self._next, None
        if begun is not None and begun[0][0] is samples and begun[0][1:] == (start, stop):
            images = begun[1].result()
        else:
            if begun is not None and not begun[1].cancel():
                wait([begun[1]])  # a third batch would come at the worst of times: when memory ran out
            images = samples.images(start, stop)
        if stop < end:
            batch = (samples, stop, min(2 * stop - start, end))
            self._next = (batch, pool(1, "readahead").submit(samples.images, *batch[1:]))
        return images
