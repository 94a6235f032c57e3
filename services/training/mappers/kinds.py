"""The kinds of mappers that are trained here, and what conditions them for each image: classes, measured attributes.

Conditions become latent columns behind the noise. The class comes first, one-hot, wherever it is listed, as
`generated` asks; attributes are scaled to mean 0 and spread 1 over the training images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import ClasswiseError, Problem
from services.loading.samples.attributes import Requested, attribute_values, check_shape
from services.records.trials import CLASS, DataFacts
from services.training.architectures.build import seeded
from services.training.data.sets import TrainingSet
from services.training.mappers.blocks import MapperModule
from services.training.mappers.gan import conditional_gan
from services.training.mappers.vae import vae

_KINDS: dict[str, Callable[..., MapperModule]] = {"vae": vae, "conditional_gan": conditional_gan}
LEAST_SPREAD = 1e-9


@dataclass(frozen=True)
class Conditions:
    """What conditions a mapper.

    Attributes:
        values: (N, A) float32, one row an image.
        names: of the A columns.
        scales: mean and spread of each attribute over the images, in its own unit.
    """

    values: NDArray[np.float32]
    names: tuple[str, ...]
    scales: dict[str, tuple[float, float]]


def build(kind: str, *, seed: int, **options: Any) -> MapperModule:
    """A freshly initialised mapper, the same for the same seed.

    Raises:
        ConfigError: it does not exist for such images.
    """
    return seeded(_KINDS[kind], seed, **options)


def fitted(latents: int, width: int, conditions: Sequence[str], facts: DataFacts) -> dict[str, Any]:
    """The arguments of a mapper, with channels, size and the number of conditions taken from the data."""
    channels, height, _ = facts.shape
    columns = sum(len(facts.classes) if name == CLASS else 1 for name in conditions)
    return {"latents": latents, "channels": channels, "size": height, "width": width} | (
        {"conditions": columns} if conditions else {}
    )


def measure(data: TrainingSet, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Attributes (N,) of the images to train on; those that the images cannot have are left out."""
    images = data.train.images

    def read(start: int, stop: int) -> NDArray[np.float32]:
        block = images[start:stop]
        return block.astype(np.float32) / np.float32(255) if block.dtype == np.uint8 else block

    return {name: attribute_values(name, read, len(images)) for name in names if not _shape_problems(data, name)}


def attribute_problems(
    data: TrainingSet, measured: Mapping[str, NDArray[np.float64]], names: Sequence[str]
) -> Iterator[Problem]:
    """Attributes that some images lack, or in which they do not differ."""
    for name in names:
        yield from _shape_problems(data, name)
        values, place = measured.get(name), f"{data.facts.label} ({name})"
        if values is None:
            continue
        if lacking := int((~np.isfinite(values)).sum()):
            remedy = "leave the attribute or these images out; one without light has no strokes"
            yield Problem(place, "an attribute of every image", f"{lacking} of {len(values)} without", remedy)
        elif values.std() < LEAST_SPREAD:
            yield Problem(place, "an attribute that varies", f"{values[0]:.4g} of every image", "leave it out")


def conditions_of(data: TrainingSet, names: Sequence[str]) -> Conditions | None:
    """What the conditions are of each image; None when there are none."""
    if not names:
        return None
    columns: list[NDArray[Any]] = []
    titles: list[str] = []
    scales: dict[str, tuple[float, float]] = {}
    if CLASS in names:
        columns.append(np.eye(data.train.classes)[data.train.labels])
        titles += [f"{CLASS} {name}" for name in data.facts.classes]
    for name in names:
        if name != CLASS:
            values = data.attributes[name]
            scales[name] = float(values.mean()), float(values.std())
            columns.append(((values - values.mean()) / values.std())[:, None])
            titles.append(name)
    return Conditions(np.concatenate(columns, axis=1).astype(np.float32), tuple(titles), scales)


def _shape_problems(data: TrainingSet, name: str) -> tuple[Problem, ...]:
    channels, height, width = data.facts.shape
    try:
        check_shape((Requested(name, None),), (channels, height, width), data.facts.label)
    except ClasswiseError as error:
        return tuple(
            Problem(f"{data.facts.label} ({name})", problem.expected, problem.found) for problem in error.problems
        )
    return ()
