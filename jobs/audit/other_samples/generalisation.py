"""Generalisation error: the very same measures on a training sample, minus those on the test samples.

The sample is drawn stratified from what was trained on, never from what was held out, and written once as npz. Its
audit is one of its own, under the temperature that the test audit chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jobs.audit.audit import Finished
from jobs.audit.judging.assemble import aggregate_of, extras_of
from jobs.fleetfile.followups import NOTHING_FOLLOWS
from jobs.fleetfile.reading import Fleet, validate_fleet
from jobs.fleetfile.tree import GeneralisationConfig
from services.loading.samples.selection import select
from services.numerics.gap import gap
from services.records import GapResult, ModelResult, digest_of
from services.storage import files
from tracking.bundle.scores import CLUSTER, read_kept_scores
from tracking.bundle.summary import lens
from tracking.names import file_name

if TYPE_CHECKING:
    from services.training.data.sets import TrainingSet


@dataclass(frozen=True)
class TrainingSample:
    """Samples that were trained on: their `npz:` source and their number."""

    source: str
    count: int


def write_sample(data: TrainingSet, config: GeneralisationConfig, folder: str) -> TrainingSample:
    """Draw the sample, and write it unless it is there."""
    facts = data.facts
    key = digest_of("sample", facts.digest, config.model_dump())[:8]
    path = files.join(folder, "generalisation", f"{file_name(facts.label)}-{key}.npz")
    labels, count = data.train.labels, len(facts.classes)
    rows = select(labels, count, per_class=config.per_class, limit=config.limit, seed=config.seed)
    if not files.exists(path):
        part, names = data.train.take(rows), np.array(facts.classes)
        files.write(path, lambda file: np.savez(file, images=part.images, labels=part.labels, classes=names))
    scale = "" if data.train.images.dtype == np.uint8 else "&scale=1"
    return TrainingSample(f"npz:{path}?layout=NCHW{scale}", len(rows))


def training_fleet(
    fleet: Fleet, names: Sequence[str], sample: TrainingSample, label: str, temperature: float | None
) -> Fleet:
    """The fleet that audits some of the models on a training sample.

    It has no gates, for it judges nothing and nothing follows from it, and no groups, for the sample has no columns.
    Its `limit` takes all of the sample, and says to the intervals that the numbers of samples a class were fixed. The
    tag `split` keeps its runs apart from those on test samples.
    """
    data: dict[str, Any] = fleet.config.model_dump(mode="json")
    data["fleet"] = f"{fleet.config.fleet}-train{f'-{label}' if label else ''}"[:100]
    chosen = [model for model in data["models"] if model["name"] in names]
    data["models"] = [{**model, "tags": {**model["tags"], "split": "train"}, "promote": None} for model in chosen]
    data["samples"] = {"uri": sample.source, "limit": sample.count}
    data |= {"gates": [], "groups": [], "measures": fleet.config.measures}
    data |= NOTHING_FOLLOWS
    if temperature is not None:
        data["temperature"] = {"policy": "fixed", "value": temperature}
    return validate_fleet(data, source=data["fleet"])


def gaps(fleet: Fleet, test: Finished, trained: Fleet, train: Finished) -> dict[str, tuple[GapResult, ...]]:
    """Mean in `train` minus mean in `test` of every series of each model that both measured, by the model's name."""
    places = {model.spec.name: index for index, model in enumerate(train.result.models)}
    by_model = {}
    for index, model in enumerate(test.result.models):
        other = places.get(model.spec.name)
        if other is not None and model.series and train.result.models[other].series:
            by_model[model.spec.name] = tuple(_gaps(fleet, test, index, trained, train, other))
    return by_model


def with_gaps(model: ModelResult, gaps_by_model: dict[str, tuple[GapResult, ...]]) -> ModelResult:
    """The model with its generalisation errors, where it has any."""
    return replace(model, generalisation=gaps_by_model.get(model.spec.name, ()))


def _gaps(fleet: Fleet, test: Finished, index: int, trained: Fleet, train: Finished, other: int) -> Iterator[GapResult]:
    delta = fleet.config.intervals.delta
    audits = ((trained, train, other), (fleet, test, index))
    kept = [read_kept_scores(done.folder, at, done.result.models[at].spec) for _, done, at in audits]
    keys = {
        result.series.key: lens(result) for result in test.result.models[index].series if result.grouping == "class"
    }
    for measure in trained.measures:
        extras = [extras_of(scores, measure) for scores in kept]
        for series in measure.series():
            if series.key not in keys:
                continue
            (mine, mine_n), (test_mean, test_n) = (
                aggregate_of(
                    series,
                    scores[series.key],
                    extra,
                    audited.config,
                    delta=delta / 2,
                    clusters=scores.get(CLUSTER),
                )
                for scores, extra, (audited, _, _) in zip(kept, extras, audits, strict=True)
            )
            difference = gap(mine, test_mean, bound=series.bound)
            yield GapResult(keys[series.key], difference, mine, test_mean, mine_n, test_n, delta)
