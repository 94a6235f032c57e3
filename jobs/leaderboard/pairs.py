"""Rows separated by pairs: the samples that all their audits share are drawn again, the same for every model.

MLflow has no scores of samples; the bundles of the audits have, in a storage that the user names. What the draws say is
about the networks of the rows on other samples, and nothing about other seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from services.errors import ClasswiseError, one_line
from services.numerics.disparity import nrgc
from services.numerics.ranking.paired_ranks import DRAWS, ahead, places_by, resampled_sums
from services.records import AuditResult
from services.storage import files
from tracking.bundle.bundle import BUNDLE, read_bundle
from tracking.bundle.scores import CLUSTER, Scores, beside, read_kept_scores
from tracking.leaderboard.numbers import AGGREGATE, Number, Part
from tracking.leaderboard.rows import AuditedModel, Entry, Metric, Standing
from tracking.names import file_name

LEVEL = 0.05
FEWEST = 5
"""Samples of a class at least."""
AGREE = 1e-6
"""By how much a bundle's number may differ from the run's: MLflow keeps doubles."""
Array = NDArray[np.float64]


class NoPairs(Exception):
    """Why rows cannot be separated by pairs: a sentence."""


class Bundles:
    """The bundles of a storage, by audit id; each is read once.

    Args:
        models: all models that the store has, to find the one measured on training samples.
    """

    def __init__(self, storage: str, models: Sequence[AuditedModel]) -> None:
        self._storage, self._models = storage, models
        self._read: dict[str, tuple[AuditResult, str]] = {}

    def of(self, audit_id: str) -> tuple[AuditResult, str]:
        """An audit and its folder.

        Raises:
            NoPairs: it is not in the storage.
        """
        if audit_id not in self._read:
            home = files.join(self._storage, "audits")
            folders = (files.join(home, fleet, file_name(audit_id)) for fleet in files.listing(home))
            folder = next((each for each in folders if audit_id and files.exists(files.join(each, BUNDLE))), None)
            if folder is None:
                raise NoPairs(f"audit {audit_id or '(unknown)'} is not in {self._storage}")
            try:
                self._read[audit_id] = read_bundle(folder), folder
            except ClasswiseError as error:
                raise NoPairs(f"audit {audit_id} cannot be read ({one_line(error)})") from error
        return self._read[audit_id]

    def on_training_samples(self, model: AuditedModel) -> AuditedModel:
        """The same model as the audit on training samples found it.

        Raises:
            NoPairs: there is none.
        """
        own = {key: value for key, value in model.tags.items() if key != "split"}
        for other in self._models:
            split = {key: value for key, value in other.tags.items() if key != "split"}
            if other.tags.get("split") == "train" and other.name == model.name and split == own:
                return other
        raise NoPairs(f"no audit of {model.name} on training samples")


def by_pairs(
    entries: Sequence[Entry],
    standings: Sequence[Standing],
    metrics: Sequence[Metric],
    models: Sequence[AuditedModel],
    bundles: Bundles,
) -> tuple[list[Standing], str]:
    """The standings with places and separation by pairs, and a sentence on them; unchanged where there are no pairs."""
    rows = [index for index, standing in enumerate(standings) if standing.place is not None]
    counted = [metric for metric in metrics if metric.weight > 0]
    if len(rows) < 2:
        return list(standings), ""
    try:
        by_run = {model.run_id: model for model in models}
        values = _values([entries[index] for index in rows], counted, by_run, bundles)
    except NoPairs as error:
        return list(standings), f"rows are not separated by pairs: {error}"
    separated = ahead(_composites(values, counted), level=LEVEL)
    leader = next(place for place, index in enumerate(rows) if standings[index].place == 1)
    renewed = list(standings)
    for place, (index, between) in enumerate(zip(rows, places_by(separated), strict=True)):
        renewed[index] = replace(renewed[index], between=between, with_leader=not bool(separated[leader, place]))
    pairs, apart = len(rows) * (len(rows) - 1) // 2, int(separated.sum())
    how = f"{DRAWS:,} resamples, all differences together at {LEVEL:.0%}, approximate"
    return renewed, (
        f"places and = are by pairs of the shared samples ({how}): {apart} of {pairs} pairs of rows are separated, "
        "of these networks and not of other seeds"
    )


def _composites(values: Array, metrics: Sequence[Metric]) -> Array:
    """Scores (1 + B, R) of values (1 + B, R, M), on the scale of the samples as they are."""
    worst, best = values[0].min(axis=0), values[0].max(axis=0)
    lower = np.array([metric.lower_is_better for metric in metrics])
    counts = best - worst > 1e-12 * np.maximum(np.abs(best), np.abs(worst))
    weights = np.array([metric.weight for metric in metrics]) * counts
    if not weights.any():
        raise NoPairs("the rows are alike in every metric that counts")
    scaled = (values - worst) / np.where(counts, best - worst, 1.0)
    composites: Array = np.where(lower, 1 - scaled, scaled) @ weights / weights.sum()
    return composites


def _values(
    entries: Sequence[Entry], metrics: Sequence[Metric], models: Mapping[str, AuditedModel], bundles: Bundles
) -> Array:
    """Each metric of each row on the samples and on every resample, (1 + B, R, M)."""
    if any(entry.source for entry in entries):
        raise NoPairs("published rows have no samples here")
    values, shared = np.empty((1 + DRAWS, len(entries), len(metrics))), _Shared()
    for row, entry in enumerate(entries):
        parts = [_of_model(models[run_id], metrics, bundles, shared) for run_id in entry.run_ids]
        values[:, row] = np.mean(parts, axis=0)
        for column, metric in enumerate(metrics):
            known = entry.numbers[metric.key].value
            if known is None or abs(values[0, row, column] - known) > AGREE * max(1.0, abs(known)):
                raise NoPairs(f"{entry.name}: {metric.name} of the bundle is not that of the run")
    return values


class _Shared:
    """The samples of the first model, test and training ones, that all others must have."""

    def __init__(self) -> None:
        self._known: dict[bool, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def require(self, scores: Scores, name: str, *, training: bool) -> NDArray[np.int64]:
        """Order of the rows by id, the same samples for all."""
        order = np.argsort(scores["id"], kind="stable")
        own = scores["id"][order], scores["label"][order]
        first = self._known.setdefault(training, own)
        if not all(np.array_equal(*pair) for pair in zip(first, own, strict=True)):
            raise NoPairs(f"{name} was measured on other samples")
        if CLUSTER in scores:
            raise NoPairs("samples that belong together (cluster) are not resampled")
        return order


def _of_model(model: AuditedModel, metrics: Sequence[Metric], bundles: Bundles, shared: _Shared) -> Array:
    """The metrics of one model, (1 + B, M)."""
    numbers = [metric.number for metric in metrics]
    test = [number for number in numbers if number.part is not Part.TRAINING]
    values = _of_audit(model, test, bundles, shared, training=False)
    gaps = [number for number in numbers if number.part is Part.GAP]
    trained: dict[str, Array] = {}
    if gaps:
        trained = _of_audit(bundles.on_training_samples(model), gaps, bundles, shared, training=True)
    columns = []
    for number in numbers:
        if number.part is Part.TRAINING:
            columns.append(np.full(1 + DRAWS, model.numbers[number.key].value))
        else:
            own = values[number.key]
            columns.append(trained[number.key] - own if number.part is Part.GAP else own)
    return np.stack(columns, axis=1)


def _of_audit(
    model: AuditedModel, numbers: Sequence[Number], bundles: Bundles, shared: _Shared, *, training: bool
) -> dict[str, Array]:
    """Numbers of one model of one audit, (1 + B,) by key."""
    result, folder = bundles.of(model.audit_id)
    place = next((index for index, each in enumerate(result.models) if each.spec.name == model.name), None)
    if place is None:
        raise NoPairs(f"audit {model.audit_id} has no model {model.name}")
    try:
        scores = read_kept_scores(folder, place, result.models[place].spec)
    except ClasswiseError as error:
        raise NoPairs(f"the scores of {result.models[place].spec.name} cannot be read ({one_line(error)})") from error
    order = shared.require(scores, model.name, training=training)
    columns = {number.key: _columns(number, scores, model.name) for number in numbers}
    labels = scores["label"][order]
    labels = np.unique(labels, return_inverse=True)[1]  # classes without a sample take no part
    table = np.concatenate(list(columns.values()), axis=1)[order]
    if (few := int(np.bincount(labels).min())) < FEWEST:
        raise NoPairs(f"a class has {few} samples, and fewer than {FEWEST} say nothing of other draws")
    sums = resampled_sums(table, labels, draws=DRAWS, seed=int(training))
    if (sums[:, :, 1::2] < 1).any():
        raise NoPairs(f"in some resamples no sample of a class counts for {model.name}")
    return {
        number.key: _METRICS[number.metric or AGGREGATE](sums[:, :, 2 * i], sums[:, :, 2 * i + 1])
        for i, number in enumerate(numbers)
    }


def _columns(number: Number, scores: Scores, name: str) -> Array:
    """Scores that count, and whether they do, (N, 2)."""
    series = number.series
    if series is None or number.grouping != "class" or (number.metric or AGGREGATE) not in _METRICS:
        raise NoPairs(f"{number.key} is no number of samples")
    if series.key not in scores:
        raise NoPairs(f"the bundle of {name} has no scores of {series.key}")
    values = np.asarray(scores[series.key], dtype=np.float64)
    counted = np.ones(len(values), dtype=bool)
    if series.conditional:  # on what is classified correctly, which stands beside the measure's first series
        right = next((scores[column] for column in scores if column.endswith(beside("", "correct"))), None)
        if right is None:
            raise NoPairs(f"the bundle of {name} does not say which samples are classified correctly")
        counted = np.asarray(right).astype(bool)
    if np.isnan(values[counted]).any():
        raise NoPairs(f"{series.key} of {name} was measured on part of the samples")
    return np.stack([np.where(counted, values, 0.0), counted], axis=1)


def _aggregate(sums: Array, counted: Array) -> Array:
    mean: Array = sums.sum(axis=1) / counted.sum(axis=1)
    return mean


def _worst(sums: Array, counted: Array) -> Array:
    worst: Array = _means(sums, counted).min(axis=1)
    return worst


def _nrgc(sums: Array, counted: Array) -> Array:
    values = [nrgc(row) for row in _means(sums, counted)]
    if None in values:
        raise NoPairs("NRGC is undefined in some resamples: all classes have a mean of 0")
    return np.array(values, dtype=np.float64)


def _means(sums: Array, counted: Array) -> Array:
    means: Array = sums / counted
    return means


_METRICS: dict[str, Callable[[Array, Array], Array]] = {
    AGGREGATE: _aggregate,
    "wcr": _worst,
    "nrgc": _nrgc,
}
