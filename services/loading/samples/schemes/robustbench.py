"""`robustbench:cifar10|cifar100?data_dir=DIR&n=N`: the first n test images, as RobustBench evaluates them.

`robustbench:cifar10-c|cifar100-c?names=fog,snow&severities=1,5`: ready-made corrupted ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.samples.schemes.corrupted import FOLDERS, open_corrupted
from services.loading.samples.schemes.torchvision import open_dataset
from services.loading.samples.source import Source
from services.loading.samples.stores import ArrayStore
from services.loading.uris import SourceUri, local_path, whole

NAMES = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}


def open_robustbench(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open RobustBench's clean images from `data_dir` (`./data`), which its own loader fills; nothing is downloaded.

    They are torchvision's test images divided by 255, in order, so they are read by the same code.
    """
    if uri.rest in FOLDERS:
        return open_corrupted(uri)
    options: dict[str, Any] = uri.options(data_dir=local_path, n=whole)
    if uri.rest not in NAMES:
        remedy = "for ImageNet point imagefolder: at the validation images and set ?size="
        raise SourceError(Problem(uri.text, f"one of {', '.join((*NAMES, *FOLDERS))}", repr(uri.rest), remedy))
    source = open_dataset(NAMES[uri.rest], options.get("data_dir", Path("data")), "test", uri.text)
    count = options.get("n", len(source.labels))
    if count > len(source.labels):
        raise SourceError(Problem(f"{uri.text} (n)", f"at most {len(source.labels)}", str(count)))
    return _first(source, count)


def _first(source: Source, count: int) -> Source:
    store = source.store
    if not isinstance(store, ArrayStore):
        return source
    labels: NDArray[Any] = np.asarray(source.labels)[:count]
    return Source(ArrayStore(store.pixels[:count], store.layout, store.divisor, store.content), labels, source.classes)
