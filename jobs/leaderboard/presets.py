"""Which numbers a leaderboard ranks by: the presets, what each name in them is read from, and the user's own choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from services import limits
from services.errors import ConfigError, Problem
from services.records import Series, ThreatModel
from services.registry import did_you_mean
from tracking.leaderboard.known_numbers import Catalogue
from tracking.leaderboard.numbers import AGGREGATE, SECONDS, Number, Part, natural
from tracking.leaderboard.rows import Entry, Metric, merged
from tracking.leaderboard.spelled import number as spelled
from tracking.mlflow.layout import threat_of

Wish = Callable[[Series], bool]


@dataclass(frozen=True)
class Role:
    """A name that stands for the first series of its kind that the runs have.

    Attributes:
        wishes: what the series is, the preferred first.
        metric: of the series.
        part: what the number is of.
        like: role whose series is taken instead of a search.
    """

    title: str
    wishes: tuple[Wish, ...] = ()
    metric: str = AGGREGATE
    part: Part = Part.TEST
    like: str = ""


def _labelled(*labels: str) -> Wish:
    return lambda series: series.label in labels


def _of(*families: str) -> Wish:
    return lambda series: series.family in families


def _noise(family: str, kind: str = "", epsilon: float | None = None) -> Wish:
    def wish(series: Series) -> bool:
        radius = series.threat.epsilon if series.threat else None
        return series.family == family and kind in ("", series.noise) and epsilon in (None, radius)

    return wish


def _usual(wish: Wish) -> Wish:
    """With the parameters that a label does not name."""
    return lambda series: wish(series) and series.label == series.family


_ATTACKS = (
    *(_labelled("pgd20"), _of("pgd"), _labelled("autoattack"), _of("cw"), _of("autoattack")),
    *(_of("apgd"), _of("square"), lambda series: series.attack and series.family != "minimal"),
)
ROLES = {
    "acc": Role("clean accuracy", (_of("clean"),)),
    "ar": Role("accuracy under attack", _ATTACKS),
    "pr": Role("probabilistic robustness", (_noise("pr", "uniform", 0.08), _noise("pr", "uniform"), _noise("pr"))),
    "probacc": Role(
        "share of samples certified robust to random noise",
        (_usual(_noise("probacc", "uniform")), _usual(_noise("probacc")), _noise("probacc")),
    ),
    "ge_ar": Role("generalisation error of ar: training minus test", part=Part.GAP, like="ar"),
    "ge_pr": Role("generalisation error of pr: training minus test", part=Part.GAP, like="pr"),
    "time": Role("training time, seconds an epoch", part=Part.TRAINING),
    "worst": Role("worst class under attack", metric="wcr", like="ar"),
    "nrgc": Role("inequality between classes under attack", metric="nrgc", like="ar"),
    "great": Role("GREAT score", (_of("great"),)),
    "minimal": Role("smallest adversarial perturbation found", (_of("minimal"),)),
}

PRESETS = {
    "robust": ("acc", "ar", "pr", "probacc", "ge_ar", "ge_pr"),
    "prbench": ("acc", "ar", "pr", "probacc", "ge_ar", "ge_pr", "time"),
    "classes": ("acc", "ar", "worst", "nrgc"),
}
"""``prbench``: the seven metrics of PRBench's composite, its Fig. 6. ``robust``: the same without the time, which tells
of the machine and can put the weaker model first. ``classes``: how good, and for whom."""

CRITERIA = {"robust": ("acc", "ar", "pr"), "prbench": ("acc", "ar", "pr"), "classes": PRESETS["classes"]}
"""What the Pareto front of a preset is drawn over; where metrics are chosen, these."""


@dataclass(frozen=True)
class Choice:
    """What the user asked to rank by.

    Attributes:
        preset: name of a preset; used where `metrics` is empty.
        metrics: ``NAME``, ``SERIES`` or ``NAME=SERIES``.
        series: what names are read from instead of the first fitting series.
        weights: by name; 1 where not given.
    """

    preset: str = "robust"
    metrics: tuple[str, ...] = ()
    series: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


def check_choice(choice: Choice, known: Catalogue) -> None:
    """Refuse what cannot be meant, all of it together.

    Args:
        known: all numbers that the rows have.

    Raises:
        ConfigError: an unknown preset, name or series, a name twice, or a weight that is none.
    """
    problems = []
    if choice.preset not in PRESETS:
        names = list(PRESETS)
        problems.append(Problem("--preset", "a preset", repr(choice.preset), did_you_mean(choice.preset, names)))
    wanted = [_split(text) for text in choice.metrics]
    problems += [_unknown("--metric", target, known) for _, target in wanted if not _is_known(target, known)]
    names = [name for name, _ in wanted]
    problems += [
        Problem("--metric", "each name once", f"{name!r} again", "call one of them otherwise: NAME=SERIES")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    for name, target in choice.series.items():
        if name not in ROLES:
            problems.append(Problem("--series", "a metric's name", repr(name), did_you_mean(name, list(ROLES))))
        elif _number(target, known) is None:
            problems.append(_unknown(f"--series {name}", target, known))
    problems += _weight_problems(choice, names or list(PRESETS.get(choice.preset, ())))
    if problems:
        raise ConfigError(problems)


def board_metrics(choice: Choice, entries: Sequence[Entry], threat_model: str) -> tuple[Metric, ...]:
    """The metrics of one board: those asked for, then the other names that its rows have, at weight 0.

    A name of the preset that no row has is left out; `left_out` says which.
    """
    weights, known = choice.weights, merged(entries)
    numbers_by_role = {role: known[key] for role, key in resolved(choice, entries, threat_model).items()}
    chosen: list[Metric] = []
    for name, target in [_split(text) for text in choice.metrics] or [(role, role) for role in PRESETS[choice.preset]]:
        number = numbers_by_role.get(target) or _number(target, known) or (None if target in ROLES else spelled(target))
        if number:
            title = ROLES[target].title if target in ROLES else number.short
            chosen.append(Metric(name, number, title, weights.get(name, 1.0)))
    taken = {metric.name for metric in chosen} | {metric.key for metric in chosen}
    others = [
        Metric(role, number, ROLES[role].title, weights.get(role, 0.0))
        for role, number in numbers_by_role.items()
        if role not in taken and number.key not in taken
    ]
    return (*chosen, *others)


def front_metrics(choice: Choice, metrics: Sequence[Metric]) -> list[Number]:
    """What the Pareto front is drawn over: the metrics chosen that count, else some of the preset's."""
    if choice.metrics:
        names = {name for name, _ in map(_split, choice.metrics)}
        return [metric.number for metric in metrics if metric.name in names and metric.weight > 0]
    by_name = {metric.name: metric.number for metric in metrics}
    return [by_name[role] for role in CRITERIA[choice.preset] if role in by_name]


def left_out(choice: Choice, metrics: Sequence[Metric]) -> list[str]:
    """Names that were asked for and that no row of the board has."""
    wanted = [name for name, _ in map(_split, choice.metrics)] or list(PRESETS[choice.preset])
    wanted += [name for name, weight in choice.weights.items() if weight > 0]
    have = {metric.name for metric in metrics}
    return [name for name in dict.fromkeys(wanted) if name not in have]


def resolved(choice: Choice, entries: Sequence[Entry], threat_model: str) -> dict[str, str]:
    """The key that each name stands for on this board, for the names that any row has a number for."""
    counts = _counted([entry for entry in entries if not entry.source] or entries)
    threat = threat_of(threat_model)
    known, numbers = Catalogue(counts), dict[str, Number]()
    for name, role in ROLES.items():
        wished = choice.series.get(name)
        number = _number(wished, known) if wished else _first(role, numbers, counts, threat)
        if number:
            numbers[name] = number
    return {name: number.key for name, number in numbers.items()}


def numbers(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """The weights as numbers.

    Raises:
        ConfigError: text that is no number, or a weight given twice.
    """
    values: dict[str, float] = {}
    problems = []
    for name, text in pairs:
        if name in values:
            problems.append(Problem(f"--weight {name}", "one weight a metric", "several", "give it once"))
        try:
            values[name] = limits.number(text)
        except ValueError:
            problems.append(Problem(f"--weight {name}", "a number of at least 0", repr(text)))
    if problems:
        raise ConfigError(problems)
    return values


def _counted(entries: Sequence[Entry]) -> dict[Number, int]:
    """How many rows have a value of each number that any row has."""
    counts: dict[Number, int] = {}
    for entry in entries:
        for key, estimate in entry.numbers.items():
            number = entry.catalogue[key]
            counts[number] = counts.get(number, 0) + (estimate.value is not None)
    return counts


def _first(
    role: Role, chosen: Mapping[str, Number], counts: Mapping[Number, int], threat: ThreatModel | None
) -> Number | None:
    """The number that most rows have, then the preferred kind, then the threat model's radius, then the smallest."""
    fitting = [number for number in counts if number.part is role.part and number.grouping == "class"]
    if role.part is Part.TRAINING:
        return next((number for number in fitting if number.key == SECONDS.key), None)
    if role.part is Part.TEST:
        fitting = [number for number in fitting if number.metric == role.metric]
    if role.like:
        lens = chosen[role.like].lens if role.like in chosen else ""
        return next((number for number in fitting if number.lens == lens), None)
    ranked = []
    for number in fitting:
        places = [place for place, wish in enumerate(role.wishes) if number.series and wish(number.series)]
        if places and counts[number]:
            other = not _within(number, threat)
            ranked.append((-counts[number], places[0], other, natural(number.lens), number.key, number))
    return min(ranked, key=lambda rank: rank[:-1])[-1] if ranked else None


def _within(number: Number, threat: ThreatModel | None) -> bool:
    """Whether an attack had the radius of the threat model, which records have in six digits."""
    series = number.series
    if series is None or threat is None or not series.attack or series.threat is None:
        return False
    return series.threat.norm == threat.norm and abs(series.threat.epsilon - threat.epsilon) < 1e-5


def _split(text: str) -> tuple[str, str]:
    """Name and what it is read from; a series alone is its own name."""
    name, mark, target = text.partition("=")
    return (name.strip(), target.strip()) if mark and name.strip() and target.strip() else (text, text)


def _number(target: str, known: Catalogue) -> Number | None:
    """The number that a user's spelling of a series means, None when no row has it."""
    return next((number for number in known.values() if target in (number.key, number.short)), None)


def _is_known(target: str, known: Catalogue) -> bool:
    return target in ROLES or _number(target, known) is not None


def _unknown(where: str, target: str, known: Catalogue) -> Problem:
    names = [*ROLES, *(number.short for number in known.values())]
    near = did_you_mean(target, names)
    if near.startswith("choose"):
        series = [known[key].lens for key in known.sorted(known) if known[key].short == known[key].lens]
        near = f"choose one of: {', '.join([*ROLES, *series[:30]])}" + (" ..." if len(series) > 30 else "")
    return Problem(where, "a metric's name, or a series that these runs have", repr(target), near)


def _weight_problems(choice: Choice, names: Sequence[str]) -> list[Problem]:
    weights = choice.weights
    allowed = list(dict.fromkeys((*names, *ROLES)))
    problems = [
        Problem("--weight", "the name of a metric", repr(name), did_you_mean(name, allowed))
        for name in weights
        if name not in allowed
    ]
    problems += [
        Problem(f"--weight {name}", "a number of at least 0", f"{weight:g}")
        for name, weight in weights.items()
        if not (math.isfinite(weight) and weight >= 0)
    ]
    if names and not problems and not any(weights.get(name, 1.0) > 0 for name in (*names, *weights)):
        problems.append(Problem("--weight", "a weight above 0 for at least one metric", "0 for all of them"))
    return problems
