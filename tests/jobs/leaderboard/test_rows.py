"""Which models share a row, what the row then says, and how rows are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.leaderboard.comparable import measure_notes
from jobs.leaderboard.rows import rows, settings
from services.records.estimates import Estimate
from tracking.leaderboard.rows import AuditedModel
from tracking.leaderboard.spelled import number

Make = Callable[..., AuditedModel]


@pytest.fixture
def model() -> Make:
    """A function to an audited model; its tags name method, architecture, data set and seed unless told otherwise."""

    def make(name: str, value: float | None = 0.5, **changes: Any) -> AuditedModel:
        tags = {"method": "PGD", "architecture": "cnn4", "dataset": "mnist", "seed": "0", **changes.pop("tags", {})}
        number = (
            Estimate(None, reason="all scores are 0") if value is None else Estimate(value, value - 0.1, value + 0.1)
        )
        fields = {
            "run_id": f"run-{name}",
            "experiment": "sweep",
            "audit_id": f"audit-{name}",
            "started": 1,
            "threat_model": "Linf 0.3",
            "samples": "npz:x",
            "digest": "d",
            "count": 100,
            "temperature": "1.0",
            "outcome": "pass",
            "numbers": {"clean/aggregate": number},
            "worst": {"clean": "cat"},
        }
        return AuditedModel(name=name, tags={key: v for key, v in tags.items() if v}, **{**fields, **changes})

    return make


def seeds(model: Make, *values: float | None, **tags: str) -> list[AuditedModel]:
    return [
        model(f"m{seed}", value, tags={"seed": str(seed), "trial": f"m{seed}", **tags})
        for seed, value in enumerate(values)
    ]


def test_seeds_share_a_row_with_mean_spread_and_n(model: Make) -> None:
    (entry,), notes = rows(seeds(model, 0.4, 0.5, 0.6), by_seed=False)
    assert (entry.name, entry.count, entry.seeds) == ("PGD cnn4", 3, ("0", "1", "2")) and notes == []
    assert entry.numbers["clean/aggregate"].value == pytest.approx(0.5)
    assert entry.spreads == {"clean/aggregate": pytest.approx(0.1)}
    assert entry.models == ("m0", "m1", "m2") and entry.run_ids == ("run-m0", "run-m1", "run-m2")


def test_seeds_are_in_the_order_of_numbers(model: Make) -> None:
    result, _ = rows([model(s, tags={"seed": s}) for s in ("10", "9", "2")], by_seed=False)
    assert result[0].seeds == ("2", "9", "10")


def test_by_seed_each_is_a_row_under_its_own_name(model: Make) -> None:
    result, _ = rows(seeds(model, 0.4, 0.5), by_seed=True)
    assert [(entry.name, entry.count, entry.spreads) for entry in result] == [("m0", 1, {}), ("m1", 1, {})]


@pytest.mark.parametrize("other", [{"method": "TRADES"}, {"dataset": "svhn"}, {"sweep": "b"}, {"width": "2"}])
def test_what_differs_in_more_than_the_seed_is_not_averaged(model: Make, other: dict[str, str]) -> None:
    result, _ = rows([*seeds(model, 0.4), model("x", tags={"seed": "1", **other})], by_seed=False)
    assert [entry.count for entry in result] == [1, 1] and len({entry.name for entry in result}) == 2


def test_models_that_lack_a_tag_stand_alone(model: Make) -> None:
    result, _ = rows([model("a", tags={"method": ""}), model("b", tags={"method": "", "seed": "1"})], by_seed=False)
    assert [entry.name for entry in result] == ["a", "b"]


def test_two_of_the_same_seed_are_not_averaged_and_a_note_says_why(model: Make) -> None:
    twice = [*seeds(model, 0.4, 0.5), model("again", tags={"seed": "1"})]
    result, (note,) = rows(twice, by_seed=False)
    assert [entry.name for entry in result] == ["m0", "m1", "again"]
    assert note.startswith("PGD cnn4: 3 models, two or more of seed 1")


def test_a_number_that_one_network_lacks_has_no_mean(model: Make) -> None:
    with_more = seeds(model, 0.4, 0.6)
    with_more[0].numbers["ge/clean"] = Estimate(0.1)
    (entry,), _ = rows([*with_more, *seeds(model, None)[:0]], by_seed=False)
    assert entry.numbers["ge/clean"] == Estimate(None, reason="undefined for 1 of 2 networks: not measured")
    (entry,), _ = rows(seeds(model, 0.4, None), by_seed=False)
    assert entry.numbers["clean/aggregate"].reason == "undefined for 1 of 2 networks: all scores are 0"


def test_limits_of_shares_stay_shares(model: Make) -> None:
    (entry,), _ = rows(seeds(model, 0.95, 0.2), by_seed=False)
    assert (entry.numbers["clean/aggregate"].low, entry.numbers["clean/aggregate"].high) == (0.0, 1.0)


def test_the_weakest_classes_of_all_networks_are_named(model: Make) -> None:
    group = [model("a"), model("b", tags={"seed": "1"}, worst={"clean": "dog"}), model("c", tags={"seed": "2"})]
    assert rows(group, by_seed=False)[0][0].worst == {"clean": "cat / dog"}


def test_where_there_is_one_architecture_the_method_is_name_enough(model: Make) -> None:
    result, _ = rows([model("a"), model("b", tags={"method": "ERM"})], by_seed=False, one_architecture=True)
    assert [entry.name for entry in result] == ["PGD", "ERM"]


def test_equal_names_get_what_tells_them_apart(model: Make) -> None:
    plain = {"method": "", "architecture": ""}
    same = [model("v7", tags=plain, experiment=e, run_id=e) for e in ("one", "two")]
    assert [entry.name for entry in rows(same, by_seed=True)[0]] == ["v7 (one)", "v7 (two)"]
    runs = [model("v7", tags=plain, audit_id=a, run_id=a) for a in ("a1", "a2")]
    assert [entry.name for entry in rows(runs, by_seed=True)[0]] == ["v7 (a1)", "v7 (a2)"]


def test_settings_keep_data_sets_threat_models_and_samples_apart(model: Make) -> None:
    models = [
        model("a"),
        model("b", threat_model="L2 0.5"),
        model("c", digest="e"),
        model("d", tags={"dataset": "svhn"}),
        model("e"),
        model("f", digest="", samples="npz:y"),
    ]
    assert [[each.name for each in group] for group in settings(models).values()] == [
        ["b"],
        ["a", "e"],
        ["c"],
        ["f"],
        ["d"],
    ]


def test_great_scores_at_several_temperatures_are_noted(model: Make) -> None:
    models = [model("a"), model("b", temperature="2.7"), model("c", temperature="")]
    (note,) = measure_notes([number("great-softmax"), number("clean")], models, {})
    assert note.startswith("great-softmax was measured at different temperatures (1.0, 2.7)")
    assert measure_notes([number("great-softmax/wcr")], models[:1] * 2, {}) == []


def test_a_generalisation_error_is_measured_as_its_series(model: Make) -> None:
    measures = {"audit-a": [{"name": "pr", "draws": 50}], "audit-b": ["pr"], "audit-c": [3, {"name": 3}, {"no": 1}]}
    models = [model("a"), model("b"), model("c")]
    message = "pr/uniform-0.08 was measured in different ways: draws 50 or 100"
    assert measure_notes([number("ge/pr/uniform-0.08"), number("pr/uniform-0.08")], models, measures) == [message]
    certified = {"audit-a": [{"name": "probacc", "alpha": 0.01}], "audit-b": ["probacc"]}
    (note,) = measure_notes([number("probacc/uniform-0.08/certified")], models, certified)
    assert note.endswith("alpha 0.01 or 0.05")
