"""Fleet-wide findings: how metrics rank the models, and which rankings agree with which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from services.numerics.ranks import reranking, spearman
from services.records import CalibrationResult, ModelResult, SeriesResult


def fleet_checks(models: Sequence[ModelResult]) -> dict[str, Any]:
    """Rank correlations between metrics over the models, and the re-ranking of the models, for each series."""
    return {
        "rank_correlations": {key: _correlations(key, models) for key in _keys(models)},
        "reranking": {key: _ranks(key, models) for key in _keys(models)},
        "reference": _against_reference(models),
    }


def fleet_notes(models: Sequence[ModelResult], calibration: CalibrationResult) -> tuple[str, ...]:
    """Sentences about the fleet as a whole."""
    return (*calibration.notes, *_scale_notes(models), *_threat_notes(models))


def by_class(model: ModelResult, key: str) -> SeriesResult | None:
    """The series of a model profiled by class."""
    return next((r for r in model.series if r.series.key == key and r.grouping == "class"), None)


def _keys(models: Sequence[ModelResult]) -> list[str]:
    return list(dict.fromkeys(r.series.key for model in models for r in model.series if r.grouping == "class"))


def _metrics(key: str, models: Sequence[ModelResult]) -> dict[str, list[float | None]]:
    found = [by_class(model, key) for model in models]
    names = ("aggregate", "rdi", "nrgc", "wcr", "fp")
    return {name: [None if r is None else getattr(r, name).value for r in found] for name in names}


def _correlations(key: str, models: Sequence[ModelResult]) -> dict[str, float | None]:
    metrics = _metrics(key, models)
    pairs = (("aggregate", "rdi"), ("aggregate", "nrgc"), ("aggregate", "wcr"))
    return {f"{a} with {b}": rank_correlation(metrics[a], metrics[b]) for a, b in pairs}


def _ranks(key: str, models: Sequence[ModelResult]) -> dict[str, list[float | None]]:
    return {name: list(ranks) for name, ranks in reranking(_metrics(key, models)).items()}


def _against_reference(models: Sequence[ModelResult]) -> dict[str, float | None]:
    """Spearman of each series' aggregate with the declared robust accuracies, over the models that declare one."""
    truth = [model.spec.robust_accuracy for model in models]
    if sum(value is not None for value in truth) < 3:
        return {}
    return {key: rank_correlation(_metrics(key, models)["aggregate"], truth) for key in _keys(models)}


def rank_correlation(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Spearman over the positions where both are defined; None when there are fewer than three, or no variation."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if len(pairs) < 3:
        return None
    table = np.array(pairs, dtype=np.float64)
    return spearman(table[:, 0], table[:, 1]).value


def _scale_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    for key in _keys(models):
        found = _correlations(key, models)
        with_rdi, with_nrgc = found["aggregate with rdi"], found["aggregate with nrgc"]
        if with_rdi is not None and with_nrgc is not None and with_rdi > 0.5 and with_nrgc < 0.0:
            yield (
                f"{key}: higher scores go with higher RDI (Spearman {with_rdi:+.2f}) but with lower NRGC "
                f"({with_nrgc:+.2f}); RDI grows with the scale of the scores, so read the two together."
            )


def _threat_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """Models made for different threat models must not be ranked against each other in silence."""
    norms = {(m.spec.threat_model.norm, m.spec.threat_model.epsilon) for m in models if m.spec.threat_model}
    if len(norms) > 1:
        listed = ", ".join(f"{norm} {epsilon:.4g}" for norm, epsilon in sorted(norms))
        yield f"The models declare different threat models ({listed}): rankings across them compare unlike things."
