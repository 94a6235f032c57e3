"""Fleet-wide findings: how metrics rank the models, and which rankings agree with which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from services.errors import examples
from services.metrics import CHOSEN_BY, METRICS, OF_SERIES
from services.numerics.ranking.place_sets import place_sets
from services.numerics.ranking.ranks import reranking, spearman
from services.records import (
    CalibrationResult,
    Estimate,
    Evidence,
    ModelResult,
    ModelSpec,
    Outcome,
    Series,
    SeriesResult,
)
from tracking.bundle.headline import tested_claims
from tracking.bundle.summary import is_sound

LIKE = 0.5
"""Spearman correlation from which two rankings are called alike."""
MOST_REFUTED = 5
MOST_FIRST = 3


def fleet_checks(models: Sequence[ModelResult]) -> dict[str, Any]:
    """Rank correlations between metrics over the models, and the re-ranking of the models, for each series."""
    return {
        "rank_correlations": {key: _correlations(key, models) for key in _keys(models)},
        "reranking": {key: _ranks(key, models) for key in _keys(models)},
        "reference": _against_reference(models),
        "places": {key: _places(key, models) for key in _keys(models)},
        "great_against_attacks": _against_attacks(models),
    }


def fleet_notes(models: Sequence[ModelResult], calibration: CalibrationResult) -> tuple[str, ...]:
    """Sentences about the fleet as a whole."""
    return (
        *calibration.notes,
        *_place_notes(models),
        *_scale_notes(models),
        *_threat_notes(models),
        *_norm_notes(models),
        *(_reference_notes(models) if calibration.reference is None else ()),
        *_attack_notes(models),
        *_refuted_notes(models),
        *_undeclared_notes(models),
    )


def by_class(model: ModelResult, key: str) -> SeriesResult | None:
    """The series of a model profiled by class."""
    return next((r for r in model.series if r.series.key == key and r.grouping == "class"), None)


def _all_series(models: Sequence[ModelResult]) -> dict[str, Series]:
    """The series of the fleet by key."""
    return {r.series.key: r.series for model in reversed(models) for r in model.series if r.grouping == "class"}


def _keys(models: Sequence[ModelResult]) -> list[str]:
    return list(dict.fromkeys(r.series.key for model in models for r in model.series if r.grouping == "class"))


def _claims(models: Sequence[ModelResult]) -> list[str]:
    series = _all_series(models)
    return [key for key in _keys(models) if series[key].evidence is Evidence.CLAIM]


def _metrics(key: str, models: Sequence[ModelResult]) -> dict[str, list[float | None]]:
    results = [by_class(model, key) for model in models]
    names = [metric.name for metric in OF_SERIES]
    return {name: [None if r is None else r.metric(name).value for r in results] for name in names}


def _correlations(key: str, models: Sequence[ModelResult]) -> dict[str, float | None]:
    metrics = _metrics(key, models)
    pairs = (("aggregate", "rdi"), ("aggregate", "nrgc"), ("aggregate", "wcr"))
    return {f"{a} with {b}": rank_correlation(metrics[a], metrics[b]) for a, b in pairs}


def _ranks(key: str, models: Sequence[ModelResult]) -> dict[str, list[float | None]]:
    lower = [name for name, metric in METRICS.items() if metric.better == "lower"]
    return {name: list(ranks) for name, ranks in reranking(_metrics(key, models), lower_is_better=lower).items()}


def _places(key: str, models: Sequence[ModelResult]) -> dict[str, dict[str, list[int]]]:
    """By metric, the places that each model may have: limits of all models hold together."""
    by_metric: dict[str, dict[str, list[int]]] = {}
    for metric in CHOSEN_BY:
        joint = [_joint(model, key, metric) for model in models]
        if sum(each.low is not None for each in joint) < 2:
            continue
        sets = place_sets([each.low for each in joint], [each.high for each in joint])
        by_metric[metric] = {
            m.spec.name: [*places] for m, places in zip(models, sets, strict=True) if places is not None
        }
    return by_metric


def _joint(model: ModelResult, key: str, metric: str) -> Estimate:
    result = by_class(model, key)
    return Estimate(None) if result is None else result.joint.get(metric, Estimate(None))


def _place_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """Which models may be first; and the limit that holds for the one with the best number although it was chosen.

    Not by claims that attacks refuted, nor by attacks that were inadequate, on any of the models.
    """
    series = _all_series(models)
    for key in _keys(models):
        places = _places(key, models).get("aggregate", {})
        results = ((model, by_class(model, key)) for model in models)
        if len(places) < 2 or not all(is_sound(model, result) for model, result in results if result is not None):
            continue
        values = {m.spec.name: (_joint(m, key, "aggregate").value or 0.0, m) for m in models if m.spec.name in places}
        best = max(values, key=lambda name: values[name][0])
        low = _joint(values[best][1], key, "aggregate").low
        others = [name for name, (first, _) in places.items() if first == 1 and name != best]
        more = [f"{len(others) - MOST_FIRST} more"] if len(others) > MOST_FIRST else []
        *first, last = [*others[:MOST_FIRST], *more] or ["no other model"]
        shared = " and ".join([", ".join(first), last] if first else [last]) + " may truly be better"
        limit = f"its mean is at least {low:.4g}" if low else "nothing is known of how good its mean is"
        yield (
            f"By {series[key].title} {best} has the best mean, and {shared}; chosen of {len(models)} models, "
            f"{limit} (limits for all models together)."
        )


def _against_reference(models: Sequence[ModelResult]) -> dict[str, float | None]:
    """Spearman of each series' aggregate with the published robust accuracies of one threat model."""
    truth = references([model.spec for model in models])
    if sum(value is not None for value in truth) < 3:
        return {}
    return {key: rank_correlation(_metrics(key, models)["aggregate"], truth) for key in _keys(models)}


def _reference_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """How each GREAT score ranks beside the published robust accuracies, where no calibration says so already."""
    scores = _against_reference(models)
    for key in _claims(models):
        score = scores.get(key)
        if score is None:
            continue
        accuracy = rank_correlation(_clean(key, models), references([model.spec for model in models]))
        beside = "" if accuracy is None else f"; clean accuracy alone {accuracy:.3f}"
        yield f"Spearman of {key} with the declared robust accuracies: {score:.3f}{beside}."


def references(specs: Sequence[ModelSpec]) -> list[float | None]:
    """The robust accuracy that each model declares, None where it is one under another threat model than most are.

    Accuracies under L2 and under Linf, or at two radii, are not two points of one ranking.
    """
    kinds = Counter(spec.threat_model for spec in specs if spec.robust_accuracy is not None)
    most = kinds.most_common(1)[0][0] if kinds else None
    return [spec.robust_accuracy if spec.threat_model == most else None for spec in specs]


def rank_correlation(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """Spearman over the positions where both are defined; None when there are fewer than three, or no variation."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if len(pairs) < 3:
        return None
    table = np.array(pairs, dtype=np.float64)
    return spearman(table[:, 0], table[:, 1]).value


def _scale_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """One sentence for all series in which the stronger model looks less equal by RDI and more equal by NRGC."""
    correlations = {key: _correlations(key, models) for key in _keys(models)}
    pairs = {key: (values["aggregate with rdi"], values["aggregate with nrgc"]) for key, values in correlations.items()}
    named = [
        f"{key} (Spearman {rdi:+.2f} and {nrgc:+.2f})"
        for key, (rdi, nrgc) in pairs.items()
        if rdi is not None and nrgc is not None and rdi > 0.5 and nrgc < 0.0
    ]
    if named:
        yield (
            f"Higher scores go with higher RDI but with lower NRGC in {', '.join(named)}: "
            "RDI grows with the scale of the scores, so read the two together."
        )


def _threat_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """Models made for different threat models must not be ranked against each other in silence."""
    threats = {(each.norm, each.epsilon): each for m in models if (each := m.spec.threat_model)}
    if len(threats) > 1:
        listed = ", ".join(threats[key].words for key in sorted(threats))
        yield f"The models declare different threat models ({listed}): rankings across them compare unlike things."
    specs = [model.spec for model in models]
    declared, kept = [spec.robust_accuracy for spec in specs], references(specs)
    if dropped := sum(a is not None and b is None for a, b in zip(declared, kept, strict=True)):
        yield f"{dropped} declared robust accuracies are of other threat models than most, and in no reference ranking."


def _norm_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """Models that were made for one norm and attacked in another only."""
    named = []
    for model in models:
        threat = model.spec.threat_model
        balls = [each.series.threat for each in model.series if each.series.attack and each.series.binary]
        attacked = {ball.norm for ball in balls if ball is not None}
        if threat and attacked and threat.norm not in attacked:
            named.append(f"{model.spec.name} ({threat.words})")
    if named:
        yield (
            f"Attacked in another norm only than they were made for: {', '.join(named)}. "
            "What does not survive there says nothing of the defence that they declare."
        )


def _against_attacks(models: Sequence[ModelResult]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Spearman, over the models, of each GREAT score and of its clean accuracy with what each attack left."""
    series = _all_series(models)
    truths = [key for key in _keys(models) if series[key].attack]
    by_claim: dict[str, dict[str, dict[str, float | None]]] = {}
    for great in _claims(models) if truths else ():
        clean = _clean(great, models)
        score = _metrics(great, models)["aggregate"]
        left = {key: _metrics(key, models)["aggregate"] for key in truths}
        by_claim[great] = {
            key: {"score": rank_correlation(score, values), "clean": rank_correlation(clean, values)}
            for key, values in left.items()
        }
    return by_claim


def _clean(great: str, models: Sequence[ModelResult]) -> list[float | None]:
    """The clean accuracy that stands beside a GREAT score, of each model."""
    return [None if r is None else r.extras.get("correct") for r in (by_class(m, great) for m in models)]


def _attack_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """Whether GREAT ranks the models as each attack does, at the radius that separates them best."""
    series = _all_series(models)
    for great, against in _against_attacks(models).items():
        for key in _most_separating(list(against), models):
            score, clean = against[key]["score"], against[key]["clean"]
            if score is None:
                continue
            alike = "like" if score >= LIKE else "unlike" if score > -LIKE else "against"
            survival = series[key].binary
            what = f"their survival of {key}" if survival else "their distances to the nearest adversarials"
            beside = "" if clean is None else f"; clean accuracy alone {clean:.2f}"
            yield f"{great} ranks these {len(models)} models {alike} {what}: Spearman {score:.2f}{beside}."


def _most_separating(keys: Sequence[str], models: Sequence[ModelResult]) -> list[str]:
    """Of each attack the key whose aggregates differ most between the models."""
    series = _all_series(models)
    widest: dict[str, tuple[float, str]] = {}
    for key in keys:
        known = [value for value in _metrics(key, models)["aggregate"] if value is not None]
        spread = max(known) - min(known) if known else 0.0
        attack = series[key].label
        if spread > widest.get(attack, (0.0, ""))[0]:
            widest[attack] = (spread, key)
    return [key for _, key in widest.values()]


def _refuted_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """For how many samples of each model attacks refuted the GREAT score, most refuted first; and where none could."""
    shares: dict[str, list[tuple[float, str]]] = {}
    unheld: dict[str, list[str]] = {}
    for model in models:
        tested = [claim.series for claim in tested_claims(model.refuted, model.attacks)]
        for claim in model.refuted:
            if claim.grouping != "class" or claim.overall.value is None:
                continue
            if claim.series in tested:
                shares.setdefault(claim.series, []).append((claim.overall.value, model.spec.name))
            else:
                unheld.setdefault(claim.series, []).append(model.spec.name)
    for great, listed in shares.items():
        listed.sort(key=lambda pair: -pair[0])
        named = ", ".join(f"{share:.1%} for {name}" for share, name in listed[:MOST_REFUTED])
        more = f" and no more for {len(listed) - MOST_REFUTED} others" if len(listed) > MOST_REFUTED else ""
        yield f"Attacks refuted {great} on this share of the correctly classified samples: {named}{more}."
    for great, names in unheld.items():
        named = examples(names, MOST_REFUTED)
        yield f"No attack that could have refuted {great} was adequate on {named}: that none did says nothing there."


def _undeclared_notes(models: Sequence[ModelResult]) -> Iterator[str]:
    """Which models did not pass and were compared with no figure of their authors: spoiled inputs look the same."""
    doubted = [
        model.spec.name
        for model in models
        if model.outcome in (Outcome.FAIL, Outcome.UNDECIDED) and model.spec.clean_accuracy is None
    ]
    if doubted:
        named = ", ".join(doubted[:MOST_FIRST])
        more = f" and {len(doubted) - MOST_FIRST} more" if len(doubted) > MOST_FIRST else ""
        yield (
            f"Not compared with an accuracy that their authors give: {named}{more}. Wrong labels, spoiled images or "
            "other weights would look like a weak model; clean_accuracy in the fleet file tells them apart."
        )
