"""`classwise suspects`: labels to look at, by confident learning over the fleet's probabilities.

The probabilities are the mean soft-max of all models of an audit, read from the logits that its cache holds: they are
out of sample as far as the models were not trained on these images. Labels are found suspect by cleanlab (Northcutt,
Jiang & Chuang 2021, arXiv 1911.00068), which comes with the extra `classwise[suspects]` and is imported here only. A
suspect is a label to look at, never a corrected one, and no number of the audit leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from jobs.audit import plan
from services.errors import ConfigError, Problem, StorageError
from services.records import AuditResult, ModelResult
from services.storage import files
from services.storage.shards import chain, finished_ranges, read_shard, shard_name, write_shard
from tracking.bundle.bundle import read_bundle
from tracking.bundle.scores import read_kept_scores

SUSPECTS = "suspects.parquet"


@dataclass(frozen=True)
class WithAndWithout:
    """Clean accuracy of a model over all samples and over those that are not suspect, and of the weakest class."""

    model: str
    all_samples: float
    without: float
    worst_all: float
    worst_without: float


@dataclass(frozen=True)
class Suspects:
    """Samples whose labels are suspect, the least plausible first.

    Attributes:
        where: the table that was written: `id`, `key`, `label`, `label_name`, `looks_like` and `looks_like_name`, and
            `plausibility`, the mean probability of the label.
        columns: of that table.
        metrics: of each model whose clean predictions the audit kept, over all samples and without the suspects; the
            second was chosen by looking at the models, so no interval holds for it.
    """

    where: str
    columns: dict[str, NDArray[Any]]
    metrics: tuple[WithAndWithout, ...]


def find_suspects(bundle: str) -> Suspects:
    """Find suspect labels in an audit and write ``suspects.parquet`` into its bundle.

    Raises:
        ConfigError: cleanlab is not installed, or the audit has no model.
        StorageError: the logits are not in the cache any more.
    """
    try:
        from cleanlab.filter import find_label_issues
    except ImportError as error:
        remedy = "pip install 'classwise[suspects]'"
        raise ConfigError(Problem("suspects", "the package cleanlab", f"{error}", remedy)) from error
    audit, folder = read_bundle(bundle), bundle.rstrip("/")
    models = [(place, model) for place, model in enumerate(audit.models) if model.series]
    if not models:
        raise ConfigError(Problem(bundle, "an audit that measured a model", "none"))
    scores = read_kept_scores(folder, models[0][0], models[0][1].spec)
    labels = scores["label"].astype(np.int64)
    mean = _mean_probabilities(audit, [model for _, model in models])
    known = np.unique(labels)  # cleanlab wants every class to have samples
    places = np.searchsorted(known, labels)
    inside = mean[:, known] / np.maximum(mean[:, known].sum(axis=1, keepdims=True), 1e-12)
    rows = np.asarray(
        find_label_issues(
            places, inside, filter_by="confident_learning", return_indices_ranked_by="self_confidence", n_jobs=1
        ),
        dtype=np.int64,
    )
    names = np.array(audit.samples.classes, dtype=object)
    likely = mean[rows].argmax(axis=1)
    columns = {
        "id": scores["id"][rows],
        **({"key": scores["key"][rows]} if "key" in scores else {}),
        "label": labels[rows],
        "label_name": names[labels[rows]],
        "looks_like": likely,
        "looks_like_name": names[likely],
        "plausibility": mean[rows, labels[rows]].astype(np.float64),
    }
    where = files.join(folder, SUSPECTS)
    write_shard(where, columns)
    return Suspects(where, columns, tuple(_metrics(place, model, folder, rows) for place, model in models))


def _metrics(place: int, model: ModelResult, folder: str, suspects: NDArray[np.int64]) -> WithAndWithout:
    scores = read_kept_scores(folder, place, model.spec, ["label", "clean"]) if _clean(model) else {}
    if not scores:
        return WithAndWithout(model.spec.name, *[float("nan")] * 4)
    labels, right = scores["label"], scores["clean"] > 0
    kept = np.ones(len(labels), dtype=bool)
    kept[suspects] = False
    sides = [(right, labels), (right[kept], labels[kept])]
    means = [float(side.mean()) if len(side) else float("nan") for side, _ in sides]
    worst = [min((float(side[own == k].mean()) for k in np.unique(own)), default=float("nan")) for side, own in sides]
    return WithAndWithout(model.spec.name, *means, *worst)


def _clean(model: ModelResult) -> bool:
    return any(result.series.key == "clean" and result.measured is None for result in model.series)


def _mean_probabilities(audit: AuditResult, models: list[ModelResult]) -> NDArray[np.float32]:
    """(N, K) the mean soft-max of the models' logits, shard by shard."""
    count, cache = audit.samples.count, files.join(str(audit.config["storage"]), "cache")
    mean = np.zeros((count, len(audit.samples.classes)), dtype=np.float32)
    for model in models:
        folder = plan.logits_folder(model.digest, audit.samples.digest, cache)
        ranges = chain(count, finished_ranges(folder))
        if sum(stop - start for start, stop in ranges) != count:
            remedy = "run the audit again, which makes them anew"
            raise StorageError(Problem(folder, f"the logits of {model.spec.name}", "not all of them", remedy))
        for start, stop in ranges:
            logits = np.nan_to_num(read_shard(files.join(folder, shard_name(start, stop)))["logits"])
            mean[start:stop] += softmax(logits, axis=1) / len(models)
    return mean
