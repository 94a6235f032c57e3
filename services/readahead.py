"""Threads that read images: several that decode one batch, and one that reads the next batch in the meantime.

Decoders and torch's kernels both let go of the interpreter, so a GPU does not wait for files. What is read, and in
which order, does not depend on the number of threads.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from services.loading.protocols import Samples


def cores() -> int:
    """Threads to decode with: as many as torch was told to use, or where it was not loaded, the machine's cores."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else os.cpu_count() or 1


@cache
def pool(threads: int, name: str) -> ThreadPoolExecutor:
    """The process' pool of that name and size."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


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
