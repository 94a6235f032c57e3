"""The numbers that rows have, by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.records import Evidence
from services.records.estimates import Estimate
from tracking.leaderboard.numbers import AGGREGATE, Number, Part
from tracking.leaderboard.spelled import is_number, number
from tracking.names import metric_key


class Catalogue(dict[str, Number]):
    """Numbers by key; a key that no run explains is read from its text."""

    def __init__(self, numbers: Iterable[Number] = ()) -> None:
        super().__init__((each.key, each) for each in numbers)

    def __missing__(self, key: str) -> Number:
        self[key] = number(key)
        return self[key]

    def sorted(self, keys: Iterable[str]) -> list[str]:
        """The keys in reading order."""
        return sorted(set(keys), key=lambda key: self[key].order)


def of_keys(keys: Iterable[str]) -> Catalogue:
    """The numbers of a run of 0.1.0: its metrics that are not the limits of others."""
    known = set(keys)
    limits = {f"{key}{side}" for key in known for side in ("_low", "_high")}
    return Catalogue(number(key) for key in known if is_number(key) and key not in limits)


def bracketed(catalogue: Mapping[str, Number], numbers: Mapping[str, Estimate]) -> dict[str, tuple[Number, Estimate]]:
    """Shares that are known between two series as one number: what is certified, between the limits of both."""
    ends: dict[str, dict[Evidence, Number]] = {}
    for key in numbers:
        number = catalogue[key]
        whole = (number.part, number.metric, number.grouping) == (Part.TEST, AGGREGATE, "class")
        if whole and number.series and number.series.brackets:
            ends.setdefault(number.series.brackets, {})[number.series.evidence] = number
    made = {}
    for lens, pair in ends.items():
        if {Evidence.CERTIFICATE, Evidence.ATTACK} <= set(pair):
            certified, possible = pair[Evidence.CERTIFICATE], numbers[pair[Evidence.ATTACK].key]
            low, high = numbers[certified.key], possible.high if possible.high is not None else possible.value
            number = Number(metric_key(lens, AGGREGATE), Part.TEST, AGGREGATE, lens, certified.series)
            made[number.key] = number, Estimate(low.value, low.low, high, low.reason)
    return made
