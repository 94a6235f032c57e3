"""Fleet-wide findings: how metrics rank the models, and which rankings agree with which."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from services.numerics.ranks import reranking, spearman
from services.records import CalibrationResult, ModelResult, SeriesResult

SURVIVAL = re.compile(r"^(?P<attack>[^/]+)/(?:linf|l2)-\d+\.\d+$")
"""Key of the survival of an attack in a ball."""
DISTANCE = "minimal/l2"
LIKE = 0.5
"""Spearman correlation from which two rankings are called alike."""
MOST_REFUTED = 5


def fleet_checks(models: Sequence[ModelResult]) -> dict[str, Any]:
    """Rank correlations between metrics over the models, and the re-ranking of the models, for each series."""
    return {
        "rank_correlations": {key: _correlations(key, models) for key in _keys(models)},
        "reranking": {key: _ranks(key, models) for key in _keys(models)},
        "reference": _against_reference(models),
        "great_against_attacks": _against_attacks(models),
    }


def fleet_notes(models: Sequence[ModelResult], calibration: CalibrationResult) -> tuple[str, ...]:
    """Sentences about the fleet as a whole."""
    return (
        *calibration.notes,
        *_scale_notes(models),
        *_threat_notes(models),
        *_attack_notes(models),
        *_refuted_notes(models),
    )


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
    """One sentence for all series in which the stronger model looks less equal by RDI and more equal by NRGC."""
    found = {key: _correlations(key, models) for key in _keys(models)}
    pairs = {key: (one["aggregate with rdi"], one["aggregate with nrgc"]) for key, one in found.items()}
    told = [
        f"{key} (Spearman {rdi:+.2f} and {nrgc:+.2f})"
        for key, (rdi, nrgc) in pairs.items()
        if rdi is not None and nrgc is not None and rdi > 0.5 and nrgc < 0.0
    ]
    if told:
        yield (
            f"Higher scores go with higher RDI but with lower NRGC in {', '.join(told)}: "
            "RDI grows with the scale of the scores, so read the two together."
        )


def _threat_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """Models made for different threat models must not be ranked against each other in silence."""
    norms = {(m.spec.threat_model.norm, m.spec.threat_model.epsilon) for m in models if m.spec.threat_model}
    if len(norms) > 1:
        listed = ", ".join(f"{norm} {epsilon:.4g}" for norm, epsilon in sorted(norms))
        yield f"The models declare different threat models ({listed}): rankings across them compare unlike things."


def _against_attacks(models: Sequence[ModelResult]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Spearman, over the models, of each GREAT score and of its clean accuracy with what each attack left."""
    keys = _keys(models)
    truths = [key for key in keys if SURVIVAL.match(key) or key == DISTANCE]
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for great in (key for key in keys if key.startswith("great")) if truths else ():
        clean = [None if r is None else r.extras.get("correct") for r in (by_class(m, great) for m in models)]
        score = _metrics(great, models)["aggregate"]
        left = {key: _metrics(key, models)["aggregate"] for key in truths}
        found[great] = {
            key: {"score": rank_correlation(score, values), "clean": rank_correlation(clean, values)}
            for key, values in left.items()
        }
    return found


def _attack_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """Whether GREAT ranks the models as each attack does, at the radius that tells them apart best."""
    for great, against in _against_attacks(models).items():
        for key in _telling(list(against), models):
            score, clean = against[key]["score"], against[key]["clean"]
            if score is None:
                continue
            alike = "like" if score >= LIKE else "unlike" if score > -LIKE else "against"
            what = "their distances to the nearest adversarials" if key == DISTANCE else f"their survival of {key}"
            beside = "" if clean is None else f"; clean accuracy alone {clean:.2f}"
            yield f"{great} ranks these {len(models)} models {alike} {what}: Spearman {score:.2f}{beside}."


def _telling(keys: Sequence[str], models: Sequence[ModelResult]) -> list[str]:
    """Of each attack the key whose aggregates differ most between the models."""
    widest: dict[str, tuple[float, str]] = {}
    for key in keys:
        known = [value for value in _metrics(key, models)["aggregate"] if value is not None]
        spread = max(known) - min(known) if known else 0.0
        attack = key.partition("/")[0]
        if spread > widest.get(attack, (0.0, ""))[0]:
            widest[attack] = (spread, key)
    return [key for _, key in widest.values()]


def _refuted_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """For how many samples of each model attacks refuted the GREAT score, most refuted first."""
    shares: dict[str, list[tuple[float, str]]] = {}
    for model in models:
        for found in model.falsified:
            if found.grouping == "class" and found.overall.value is not None:
                shares.setdefault(found.series, []).append((found.overall.value, model.spec.name))
    for great, listed in shares.items():
        listed.sort(key=lambda pair: -pair[0])
        told = ", ".join(f"{share:.1%} for {name}" for share, name in listed[:MOST_REFUTED])
        more = f" and no more for {len(listed) - MOST_REFUTED} others" if len(listed) > MOST_REFUTED else ""
        yield f"Attacks refuted {great} on this share of the correctly classified samples: {told}{more}."
