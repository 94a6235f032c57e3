"""Which numbers a leaderboard ranks by: the presets, what each name in them is read from, and the user's own choice."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services import limits
from services.errors import ConfigError, Problem
from services.registry import did_you_mean
from tracking.leaderboard.records import SECONDS, Entry, Metric, natural, short_key

_ATTACKS = (r"pgd20/", r"pgd\d", r"autoattack/", r"cw\d", r"autoattack", r"apgd\d", r"square\d")


@dataclass(frozen=True)
class Role:
    """A name that stands for the first series of its kind that the runs have.

    Attributes:
        series: patterns of series, the preferred first.
        number: of the series, "" where the key is the series itself.
        prefix: before the series: ``ge/``.
        like: role whose series is taken when there is one, instead of a search.
    """

    title: str
    series: tuple[str, ...] = ()
    number: str = "aggregate"
    prefix: str = ""
    like: str = ""


ROLES = {
    "acc": Role("clean accuracy", (r"clean$",)),
    "ar": Role("accuracy under attack", _ATTACKS),
    "pr": Role("probabilistic robustness", (r"pr/uniform-0\.08$", r"pr/uniform-", r"pr/")),
    "probacc": Role(
        "share of samples certified robust to random noise",
        (r"probacc/uniform-[^/]+$", r"probacc/[^/]+$", r"probacc-[^/]+/[^/]+$"),
    ),
    "ge_ar": Role("generalisation error of ar: training minus test", prefix="ge/", number="", like="ar"),
    "ge_pr": Role("generalisation error of pr: training minus test", prefix="ge/", number="", like="pr"),
    "time": Role("training time, seconds an epoch", (re.escape(SECONDS),), number=""),
    "worst": Role("worst class under attack", number="wcr", like="ar"),
    "nrgc": Role("inequality between classes under attack", number="nrgc", like="ar"),
    "great": Role("GREAT score", (r"great",)),
    "minimal": Role("smallest adversarial perturbation found", (r"minimal/",)),
}

PRESETS = {
    "prbench": ("acc", "ar", "pr", "probacc", "ge_ar", "ge_pr", "time"),
    "classes": ("acc", "ar", "worst", "nrgc"),
}
"""``prbench``: the seven metrics of PRBench's composite, its Fig. 6. ``classes``: how good, and for whom."""

CRITERIA = ("acc", "ar", "pr")
"""What the Pareto front is drawn over."""


@dataclass(frozen=True)
class Choice:
    """What the user asked to rank by.

    Attributes:
        preset: name of a preset; used where `metrics` is empty.
        metrics: ``NAME``, ``SERIES`` or ``NAME=SERIES``.
        series: what names are read from instead of the first fitting series.
        weights: by name; 1 where not given.
    """

    preset: str = "prbench"
    metrics: tuple[str, ...] = ()
    series: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


def check_choice(choice: Choice, known: Sequence[str]) -> None:
    """Refuse what cannot be meant, every problem together.

    Args:
        known: keys of all numbers that the rows have.

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
        elif _key(target, known) is None:
            problems.append(_unknown(f"--series {name}", target, known))
    problems += _weight_problems(choice, names or list(PRESETS.get(choice.preset, ())))
    if problems:
        raise ConfigError(problems)


def board_metrics(choice: Choice, entries: Sequence[Entry], threat_model: str) -> tuple[Metric, ...]:
    """The metrics of one board: those asked for, then the other names that its rows have, at weight 0.

    A name of the preset that no row has is left out; `left_out` says which.
    """
    weights, keys = choice.weights, resolved(choice, entries, threat_model)
    known = keys_of(entries)
    chosen: list[Metric] = []
    for name, target in [_split(text) for text in choice.metrics] or [(role, role) for role in PRESETS[choice.preset]]:
        key = keys.get(target) or _key(target, known) or ("" if target in ROLES else _spelled(target))
        if key:
            title = ROLES[target].title if target in ROLES else short_key(key)
            chosen.append(Metric(name, key, title, weights.get(name, 1.0)))
    taken = {metric.name for metric in chosen} | {metric.key for metric in chosen}
    others = [
        Metric(role, key, ROLES[role].title, weights.get(role, 0.0))
        for role, key in keys.items()
        if role not in taken and key not in taken
    ]
    return (*chosen, *others)


def left_out(choice: Choice, metrics: Sequence[Metric]) -> list[str]:
    """Names that were asked for and that no row of the board has."""
    wanted = [name for name, _ in map(_split, choice.metrics)] or list(PRESETS[choice.preset])
    wanted += [name for name, weight in choice.weights.items() if weight > 0]
    have = {metric.name for metric in metrics}
    return [name for name in dict.fromkeys(wanted) if name not in have]


def resolved(choice: Choice, entries: Sequence[Entry], threat_model: str) -> dict[str, str]:
    """The key that each name stands for on this board, for the names that any row has a number for."""
    counted = _counted([entry for entry in entries if not entry.source] or entries)
    radius = _radius(threat_model)
    keys: dict[str, str] = {}
    for name, role in ROLES.items():
        wished = choice.series.get(name)
        key = _key(wished, list(counted)) if wished else _first(role, keys, counted, radius)
        if key:
            keys[name] = key
    return keys


def keys_of(entries: Sequence[Entry]) -> list[str]:
    """Keys of all numbers that a row has, defined or not."""
    return sorted({key for entry in entries for key in entry.numbers})


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


def _counted(entries: Sequence[Entry]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in entries:
        for key, estimate in entry.numbers.items():
            counts[key] = counts.get(key, 0) + (estimate.value is not None)
    return counts


def _first(role: Role, keys: Mapping[str, str], counted: Mapping[str, int], radius: str) -> str:
    """The key that most rows have, then the preferred kind, then the threat model's radius, then the smallest."""
    if role.like:
        lens = short_key(keys.get(role.like, ""))
        key = _joined(role, lens) if lens else ""
        return key if key in counted else ""
    ranked = []
    for key, count in counted.items():
        lens = _lens(role, key)
        fits = [place for place, pattern in enumerate(role.series) if lens and re.match(pattern, lens)]
        if fits and count:
            ranked.append((-count, fits[0], not (radius and lens.endswith(radius)), natural(lens), key))
    return min(ranked)[-1] if ranked else ""


def _lens(role: Role, key: str) -> str:
    """The series of a key that has the role's prefix and number, "" for another key or a grouping by a column."""
    if not role.number:
        return key
    lens, _, number = key.rpartition("/")
    return lens if number == role.number and "/by-" not in lens and not key.startswith("ge/") else ""


def _joined(role: Role, lens: str) -> str:
    return f"{role.prefix}{lens}" + (f"/{role.number}" if role.number else "")


def _radius(threat_model: str) -> str:
    """``linf-0.03137``: how the threat model's radius ends a series."""
    norm, _, epsilon = threat_model.partition(" ")
    try:
        return f"{norm.lower()}-{limits.number(epsilon):.5f}"
    except ValueError:
        return ""


def _split(text: str) -> tuple[str, str]:
    """Name and what it is read from; a series alone is its own name."""
    name, mark, target = text.partition("=")
    return (name.strip(), target.strip()) if mark and name.strip() and target.strip() else (text, text)


def _key(target: str, known: Sequence[str]) -> str | None:
    """The key that a user's spelling of a series means, None when no row has it."""
    return next((key for key in (target, f"{target}/aggregate") if key in known), None)


def _spelled(target: str) -> str:
    """A key for a series that other boards have, so that this one says what it lacks."""
    return (
        target
        if target.startswith(("ge/", "train/")) or target.rpartition("/")[2] in _NUMBERS
        else f"{target}/aggregate"
    )


_NUMBERS = ("aggregate", "wcr", "nrgc", "rdi", "fp", "refuted")


def _is_known(target: str, known: Sequence[str]) -> bool:
    return target in ROLES or _key(target, known) is not None


def _unknown(where: str, target: str, known: Sequence[str]) -> Problem:
    names = [*ROLES, *(short_key(key) for key in known)]
    near = did_you_mean(target, names)
    if near.startswith("choose"):
        series = [short_key(key) for key in known if key.endswith("/aggregate")]
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
