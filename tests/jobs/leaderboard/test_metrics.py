"""What the names of a preset are read from, the user's choice over it, and every way to ask for what cannot be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jobs.leaderboard.presets import Choice, board_metrics, check_choice, left_out, numbers, resolved
from jobs.terminal.options import pairs
from services.errors import ConfigError
from services.records.estimates import Estimate
from tracking.leaderboard.rows import Entry, merged

WHOLE = (
    "clean/aggregate",
    "clean/wcr",
    "pgd10/linf-0.03137/aggregate",
    "pgd20/linf-0.03137/aggregate",
    "pgd20/linf-0.03137/wcr",
    "pgd20/linf-0.03137/nrgc",
    "pgd20/linf-0.03137/by-sex/aggregate",
    "pgd20/linf-0.06275/aggregate",
    "autoattack/linf-0.03137/aggregate",
    "pr/uniform-0.03137/aggregate",
    "pr/uniform-0.08/aggregate",
    "probacc/uniform-0.03137/aggregate",
    "probacc/uniform-0.03137/certified/aggregate",
    "great-softmax/aggregate",
    "ge/pgd20/linf-0.03137",
    "ge/pr/uniform-0.08",
    "train/seconds_per_epoch",
)
PRBENCH = {
    "acc": "clean/aggregate",
    "ar": "pgd20/linf-0.03137/aggregate",
    "pr": "pr/uniform-0.08/aggregate",
    "probacc": "probacc/uniform-0.03137/aggregate",
    "ge_ar": "ge/pgd20/linf-0.03137",
    "ge_pr": "ge/pr/uniform-0.08",
    "time": "train/seconds_per_epoch",
}


def entries(*rows: Sequence[str], source: str = "") -> list[Entry]:
    numbers = [dict.fromkeys(row, Estimate(0.5)) for row in rows]
    return [Entry(f"m{place}", "", "", "", "", row, source=source) for place, row in enumerate(numbers)]


def weighted(choice: Choice, rows: list[Entry], threat: str = "not declared") -> dict[str, tuple[str, float]]:
    return {metric.name: (metric.key, metric.weight) for metric in board_metrics(choice, rows, threat)}


def test_time_weighs_nothing_unless_it_is_asked_for() -> None:
    """With it a network that trains fast went before one that is more accurate and more robust."""
    composite = weighted(Choice(), entries(WHOLE))
    counted = {name: key for name, (key, weight) in composite.items() if weight}
    assert counted == {name: key for name, key in PRBENCH.items() if name != "time"}
    assert composite["time"] == (PRBENCH["time"], 0.0)


def test_the_preset_of_prbench_has_its_seven_metrics_with_equal_weights() -> None:
    composite = weighted(Choice("prbench"), entries(WHOLE))
    counted = {name: key for name, (key, weight) in composite.items() if weight}
    assert counted == PRBENCH and {weight for _, weight in composite.values()} == {0.0, 1.0}
    assert {name for name, (_, weight) in composite.items() if not weight} == {"worst", "nrgc", "great"}
    chosen = board_metrics(Choice("prbench"), entries(WHOLE), "")
    assert [metric.name for metric in chosen if metric.lower_is_better] == [
        "ge_ar",
        "ge_pr",
        "time",
        "nrgc",
    ]


def test_probacc_at_another_rate_serves_where_the_usual_one_is_missing() -> None:
    other = ["probacc-0.1/uniform-0.1/certified/aggregate", "probacc-0.1/uniform-0.1/aggregate"]
    assert resolved(Choice(), entries(["clean/aggregate", *other]), "")["probacc"] == other[1]
    assert resolved(Choice(), entries([*WHOLE, *other]), "")["probacc"] == PRBENCH["probacc"]


def test_the_series_that_most_rows_have_comes_before_the_preferred_one() -> None:
    few = [key for key in WHOLE if not key.startswith("pgd20")]
    assert resolved(Choice(), entries(WHOLE, few, few), "")["ar"] == "pgd10/linf-0.03137/aggregate"


def test_an_attack_of_a_third_party_serves_where_no_other_is() -> None:
    mine = ["clean/aggregate", "mine/linf-0.03137/aggregate"]
    assert resolved(Choice(), entries(mine), "")["ar"] == mine[1]
    assert (
        resolved(Choice(), entries([*mine, "square500/linf-0.1/aggregate"]), "")["ar"] == "square500/linf-0.1/aggregate"
    )


def test_the_radius_of_the_threat_model_comes_first_else_the_smallest() -> None:
    curve = ["pgd20/linf-0.06275/aggregate", "pgd20/linf-0.03137/aggregate", "pgd20/linf-0.10000/aggregate"]
    assert resolved(Choice(), entries(curve), "Linf 0.1")["ar"] == "pgd20/linf-0.10000/aggregate"
    assert resolved(Choice(), entries(curve), "Linf 0.3")["ar"] == "pgd20/linf-0.03137/aggregate"
    assert resolved(Choice(), entries(curve), "not declared")["ar"] == "pgd20/linf-0.03137/aggregate"


def test_generalisation_errors_are_those_of_the_same_series() -> None:
    other = ["pgd20/linf-0.03137/aggregate", "ge/pgd20/linf-0.06275"]
    assert "ge_ar" not in resolved(Choice(), entries(other), "")
    moved = Choice(series={"ar": "pgd20/linf-0.06275"})
    assert resolved(moved, entries([*other, "pgd20/linf-0.06275/aggregate"]), "")["ge_ar"] == "ge/pgd20/linf-0.06275"


def test_published_rows_do_not_choose_the_series() -> None:
    own, others = entries(["cw20/linf-0.1/aggregate"]), entries(*[["pgd20/linf-0.1/aggregate"]] * 3, source="paper")
    assert resolved(Choice(), [*own, *others], "")["ar"] == "cw20/linf-0.1/aggregate"
    assert resolved(Choice(), others, "")["ar"] == "pgd20/linf-0.1/aggregate"


def test_a_number_that_is_undefined_everywhere_is_nobodys_metric() -> None:
    row = Entry("m", "", "", "", "", {"clean/aggregate": Estimate(None, reason="empty")})
    assert resolved(Choice(), [row], "") == {}


def test_what_no_row_has_is_left_out_and_named() -> None:
    rows = entries(["clean/aggregate", "pgd20/linf-0.1/aggregate"])
    metrics = board_metrics(Choice(weights={"great": 2.0}), rows, "")
    assert [metric.name for metric in metrics] == ["acc", "ar"]
    assert left_out(Choice(weights={"great": 2.0}), metrics) == ["pr", "probacc", "ge_ar", "ge_pr", "great"]


def test_metrics_of_the_users_own() -> None:
    choice = Choice(metrics=("ar", "great-softmax", "clean/wcr", "mine=autoattack/linf-0.03137"), weights={"mine": 3.0})
    composite = weighted(choice, entries(WHOLE))
    assert {name: message for name, message in composite.items() if message[1]} == {
        "ar": ("pgd20/linf-0.03137/aggregate", 1.0),
        "great-softmax": ("great-softmax/aggregate", 1.0),
        "clean/wcr": ("clean/wcr", 1.0),
        "mine": ("autoattack/linf-0.03137/aggregate", 3.0),
    }
    assert "great" not in composite, "a series that has a column does not get another"


def test_a_series_that_another_board_has_is_asked_of_this_one_too() -> None:
    composite = weighted(Choice(metrics=("great-softmax", "ge/clean", "clean/nrgc")), entries(["clean/aggregate"]))
    assert {key for key, weight in composite.values() if weight} == {
        "great-softmax/aggregate",
        "ge/clean",
        "clean/nrgc",
    }


def test_weights_bring_in_other_names_and_take_out_those_of_the_preset() -> None:
    composite = weighted(Choice(weights={"nrgc": 2.0, "time": 0.0}), entries(WHOLE))
    assert (composite["nrgc"][1], composite["time"][1], composite["acc"][1]) == (2.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("choice", "messages"),
    [
        (Choice(preset="prbensh"), ["--preset.*'prbensh'; did you mean 'prbench'"]),
        (Choice(metrics=("great-sofmax",)), ["--metric.*'great-sofmax'; did you mean 'great-softmax'"]),
        (Choice(metrics=("zzz",)), ["choose one of: acc, ar, pr.*clean"]),
        (Choice(metrics=("acc", "x=acc", "acc")), ["each name once, found 'acc' again"]),
        (Choice(series={"arr": "clean"}), ["--series.*'arr'; did you mean 'ar'"]),
        (Choice(series={"ar": "pgd20/linf-0.3137"}), ["--series ar.*did you mean 'pgd20/linf-0.03137'"]),
        (
            Choice(weights={"acc": -1.0, "ar": float("nan"), "pr": float("inf"), "tim": 1.0}),
            ["'tim'; did you mean 'time'", "acc: expected a number of at least 0, found -1", "found nan", "found inf"],
        ),
        (Choice(metrics=("acc",), weights={"acc": 0.0}), ["at least one metric, found 0 for all"]),
    ],
)
def test_what_cannot_be_meant_is_refused(choice: Choice, messages: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        check_choice(choice, merged(entries(WHOLE)))
    assert len(caught.value.problems) == len(messages)
    for pattern in messages:
        assert caught.match(pattern)


def test_a_choice_that_can_be_meant_passes() -> None:
    weights = {"mine": 0.5, "nrgc": 1.0, "clean/wcr": 0.0}
    check_choice(Choice(metrics=("mine=pr/uniform-0.08", "clean/wcr"), weights=weights), merged(entries(WHOLE)))


def test_pairs_and_numbers_of_the_command_line() -> None:
    assert pairs(["a=b=c", " d = e "], "--filter", "KEY=VALUE") == [("a", "b=c"), ("d", "e")]
    with pytest.raises(ConfigError) as caught:
        pairs(["a", "=b", "c=", "d=e"], "--filter", "KEY=VALUE")
    assert [problem.found for problem in caught.value.problems] == ["'a'", "'=b'", "'c='"]
    assert numbers([("acc", "2"), ("ar", "1e-1")]) == {"acc": 2.0, "ar": 0.1}
    with pytest.raises(ConfigError, match=r"'two'(.|\n)*found several"):
        numbers([("acc", "two"), ("acc", "1"), ("acc", "2")])
