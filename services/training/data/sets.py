"""Training sets as trials use them: read once, cut to the part that is asked for, split into training and held-out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.samples.selection import select
from services.records import digest_of
from services.records.trials import DataFacts, DataSpec
from services.training.data.held_out import holdout
from services.training.data.images import Labelled, checked
from services.training.data.mixing import Extra, copies
from services.training.datasets import open_dataset

MORE = "take more of the data: raise or leave out per_class and limit"


@dataclass(frozen=True)
class TrainingSet:
    """Samples to train on, samples held out (None without), and what is known of them.

    `attributes` are those that mappers ask for, measured from the images to train on, (N,) each. `extra` samples are
    mixed in where classifiers are trained.
    """

    train: Labelled
    held: Labelled | None
    facts: DataFacts
    attributes: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    extra: Extra | None = None


def read_set(spec: DataSpec) -> TrainingSet:
    """Read a training set.

    Raises:
        ConfigError: the name is unknown.
        SourceError: the root, a file or a class is missing, a file is broken, images have the wrong size, the part
            that is asked for lacks a class, or extra samples are of another kind or among those held out.
    """
    part = open_dataset(spec.name, spec.root, split="train", size=spec.size)
    count = len(part.classes)
    rows = select(part.labels, count, per_class=spec.per_class, limit=spec.limit, seed=spec.seed)
    taken = len(rows) < len(part.labels)
    images, labels = (part.images[rows], part.labels[rows]) if taken else (part.images, part.labels)
    data, held = checked(images, labels, count, f"{spec.label} (training data)"), None
    if spec.holdout:
        kept, out = holdout(data.labels, share=spec.holdout, seed=spec.seed)
        if not len(out):
            actual = "one sample of each class, all of them needed for training"
            raise SourceError(Problem(f"{spec.label} (holdout)", "a class of two samples or more", actual, MORE))
        data, held = data.take(kept), data.take(out)
    facts = _facts(spec, data, held, part.classes)
    if spec.extra is None:
        return TrainingSet(data, held, facts)
    extra = Extra(_extra(spec.extra, f"{spec.label} (extra)", facts, held), spec.share)
    digest = digest_of(facts.digest, extra.data.digest(), extra.share)
    facts = replace(facts, digest=digest, extra=_counts(extra.data), share=extra.share)
    return TrainingSet(data, held, facts, extra=extra)


def _extra(uri: str, where: str, facts: DataFacts, held: Labelled | None) -> Labelled:
    part = open_dataset("samples", uri)
    shape, problems = tuple(part.images.shape[1:]), []
    if shape != facts.shape:
        problems.append(Problem(where, f"images {facts.shape} as in the data set", f"{shape}"))
    if part.classes != facts.classes:
        wanted, actual = (", ".join(names[:5]) for names in (facts.classes, part.classes))
        problems.append(Problem(where, f"the data set's classes {wanted}", actual, "set ?classes= in their order"))
    if not problems and held is not None and (among := copies(part.images, held.images)):
        remedy = "leave these out: what is held out is never trained on"
        problems.append(Problem(where, "no sample that is held out", f"{among} of {len(part.labels)}", remedy))
    if problems:
        raise SourceError(problems)
    return checked(part.images, part.labels, len(part.classes), where)


def _facts(spec: DataSpec, data: Labelled, held: Labelled | None, classes: tuple[str, ...]) -> DataFacts:
    return DataFacts(
        label=spec.label,
        name=spec.name,
        digest=digest_of(data.digest(), held.digest() if held else ""),
        train=_counts(data),
        held=_counts(held) if held else (0,) * len(classes),
        shape=tuple(int(side) for side in data.images.shape[1:]),
        classes=classes,
    )


def _counts(data: Labelled) -> tuple[int, ...]:
    return tuple(int(count) for count in np.bincount(data.labels, minlength=data.classes))
