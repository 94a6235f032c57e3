"""`generator:MODULE:FUNC?n=1000&argument=value`: labelled samples of a generative model, what GREAT prescribes.

The function returns `(images, labels)` or `(images, labels, classes)`: uint8 images, or floating ones in [0, 1]. Every
worker calls it, so it must return the same samples for the same arguments.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from services.errors import Problem, SourceError
from services.loading import factories
from services.loading.samples.source import Source
from services.loading.samples.stores import array_store
from services.loading.uris import SourceUri


def open_generator(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Call the function and take what it returns; tensors are taken as arrays."""
    function = factories.factory(uri, allowed_factories)
    made = factories.call(uri, function, dict(uri.query))
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        actual = f"{type(made).__name__}{f' of {len(made)}' if isinstance(made, tuple) else ''}"
        raise SourceError(Problem(uri.text, "a function that returns (images, labels[, classes])", actual))
    images, labels = _array(made[0]), _array(made[1])
    classes = tuple(str(name) for name in made[2]) if len(made) == 3 else None
    scale = 1.0 if images.dtype.kind == "f" else None
    content = hashlib.sha256(np.ascontiguousarray(images).tobytes()).hexdigest()
    return Source(array_store(images, scale=scale, content=content, where=uri.text), labels, classes)


def _array(values: Any) -> Any:
    detached = values.detach().cpu() if hasattr(values, "detach") else values
    return np.asarray(detached)
