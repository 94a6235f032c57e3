"""From audited models to rows: one a model, or one for all seeds of a method, architecture and data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from services.numerics.ranking.seeds import over_seeds
from services.records.estimates import Estimate
from tracking.leaderboard.known_numbers import Catalogue
from tracking.leaderboard.rows import NOT_MEASURED, AuditedModel, Entry

POOLED_BY = ("method", "architecture", "dataset")
"""Tags that a model must have, besides a seed, to share a row with others."""
APART = frozenset({"seed", "trial"})
"""Tags in which the models of a row may differ. All others must agree."""


def rows(
    models: Sequence[AuditedModel], *, by_seed: bool, one_architecture: bool = False
) -> tuple[list[Entry], list[str]]:
    """The rows of one board, and sentences on what could not be averaged.

    Models are averaged when they share all tags but seed and trial and have different seeds. Two of the same seed
    differ in something that the tags do not say, so none of their group are averaged. A row is called by its method
    and architecture where that names it alone, else by its model.

    Args:
        by_seed: a row a model.
        one_architecture: the board has one, so the method is name enough.
    """
    notes: list[str] = []
    groups: dict[tuple[object, ...], list[AuditedModel]] = {}
    for model in models:
        groups.setdefault((model.run_id,) if by_seed else _group(model), []).append(model)
    entries: list[Entry] = []
    for group in groups.values():
        again = [seed for seed, times in Counter(model.tags.get("seed") for model in group).items() if times > 1]
        if len(group) > 1 and again:
            notes.append(
                f"{_called(group[0])}: {len(group)} models, two or more of seed {again[0]}; they differ in something "
                "that their tags do not say, so they are not averaged"
            )
        entries += [_alone(model) for model in group] if again or len(group) == 1 else [_pooled(group)]
    return _distinct([_shortened(entry) if one_architecture else entry for entry in entries]), notes


def settings(models: Iterable[AuditedModel]) -> dict[tuple[str, str, str], list[AuditedModel]]:
    """The models by what may be ranked together: data set, threat model and samples; in that order."""
    by_setting: dict[tuple[str, str, str], list[AuditedModel]] = {}
    for model in models:
        by_setting.setdefault(model.setting, []).append(model)
    return dict(sorted(by_setting.items()))


def _group(model: AuditedModel) -> tuple[object, ...]:
    if not all(model.tags.get(key) for key in (*POOLED_BY, "seed")):
        return (model.run_id,)
    return model.setting, *sorted((key, value) for key, value in model.tags.items() if key not in APART)


def _called(model: AuditedModel) -> str:
    """Method and architecture, the model's name where its tags do not say them."""
    known = [model.tags[key] for key in ("method", "architecture") if model.tags.get(key)]
    return " ".join(known) if len(known) == 2 else model.name


def _alone(model: AuditedModel) -> Entry:
    return _entry([model], model.numbers, {})


def _pooled(group: list[AuditedModel]) -> Entry:
    group = sorted(group, key=lambda model: (len(model.tags["seed"]), model.tags["seed"]))
    numbers = Catalogue(model.catalogue[key] for model in group for key in model.numbers)
    means = {}
    for key, number in numbers.items():
        least, most = number.range
        means[key] = over_seeds([m.numbers.get(key, NOT_MEASURED) for m in group], least=least, most=most)
    spreads = {key: mean.spread for key, mean in means.items() if mean.spread is not None}
    return _entry(group, {key: mean.mean for key, mean in means.items()}, spreads)


def _entry(group: Sequence[AuditedModel], numbers: dict[str, Estimate], spreads: dict[str, float]) -> Entry:
    first = group[0]
    lenses = dict.fromkeys(lens for model in group for lens in model.worst)
    worst = {lens: " / ".join(dict.fromkeys(m.worst[lens] for m in group if lens in m.worst)) for lens in lenses}
    return Entry(
        name=_called(first),
        dataset=first.tags.get("dataset", ""),
        architecture=first.tags.get("architecture", ""),
        method=first.tags.get("method", ""),
        threat_model=first.threat_model,
        numbers=numbers,
        samples=first.samples,
        seeds=tuple(model.tags["seed"] for model in group if model.tags.get("seed")),
        models=tuple(model.name for model in group),
        spreads=spreads,
        worst=worst,
        experiments=tuple(dict.fromkeys(model.experiment for model in group)),
        run_ids=tuple(model.run_id for model in group),
        audits=tuple(dict.fromkeys(model.audit_id for model in group)),
        catalogue=Catalogue(model.catalogue[key] for model in group for key in model.numbers),
    )


def _shortened(entry: Entry) -> Entry:
    return replace(entry, name=entry.method) if entry.method and entry.architecture else entry


def _distinct(entries: list[Entry]) -> list[Entry]:
    """Rows of one name get what distinguishes them: the model's name, else the experiment, the audit or the run."""
    named: dict[str, list[Entry]] = {}
    for entry in entries:
        named.setdefault(entry.name, []).append(entry)
    names: dict[int, str] = {}
    for name, alike in named.items():
        ways = [[_first(getattr(entry, field)) for entry in alike] for field in ("models", *_ORIGINS)]
        place = next((place for place, way in enumerate(ways) if len(set(way)) == len(alike)), len(ways) - 1)
        if len(alike) > 1:
            texts = ways[place] if place == 0 else [f"{name} ({text})" for text in ways[place]]
            names |= {id(entry): text for entry, text in zip(alike, texts, strict=True)}
    return [replace(entry, name=names.get(id(entry), entry.name)) for entry in entries]


_ORIGINS = ("experiments", "audits", "run_ids")


def _first(texts: Sequence[str]) -> str:
    return texts[0] if texts else ""
