"""Probes of an audit: which samples, cached and resumed, the same however they are run, and transfer in a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import run_audit
from jobs.audit.probes import (
    TRANSFER_SHARE,
    Survival,
    affordable,
    probe_rows,
    radius_of,
    survival_of,
    transfer_counts,
)
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.probes.budget import SAMPLES
from services.numerics.evidence.adequacy import Sign, SignCount
from services.records import AttackResult, ModelResult

MEASURES = [{"name": "pgd", "epsilons": [0.05, 0.1]}, {"name": "minimal", "attacks": ["deepfool"]}]


def results(fleet: dict[str, Any], **resources: Any) -> tuple[ModelResult, ...]:
    samples = {"uri": "sklearn:digits?split=test", "limit": 300}
    data = {**fleet, "measures": MEASURES, "samples": samples, "resources": {**fleet["resources"], **resources}}
    return run_audit(validate_fleet(data), Quiet()).result.models


def masked(fleet: dict[str, Any], defence: str) -> dict[str, Any]:
    """Two of the networks, and a defended copy of the first."""
    file = fleet["models"][0]["uri"].partition("weights=")[2]
    uri = f"factory:benchmarks.defences:defended?file={file}&defence={defence}"
    models = [fleet["models"][2], {"name": defence, "uri": uri}]
    return {**fleet, "models": models, "factories": ["benchmarks.*", "services.training.*"]}


def files_of(folder: Path) -> dict[str, bytes]:
    found = (file for kind in ("probe", "transfer") for file in folder.rglob(f"{kind}-*.parquet"))
    return {file.name: file.read_bytes() for file in found}


def test_probes_are_cached_and_made_again_with_the_same_bytes(digits_fleet: dict[str, Any]) -> None:
    first, storage = results(digits_fleet), Path(digits_fleet["storage"])
    kept = files_of(storage)
    assert {name.partition("-")[0] for name in kept} == {"probe", "transfer"}
    assert all(attack.adequacy == "adequate" for model in first for attack in model.attacks)
    assert sum(model.forwards for model in results(digits_fleet)) == 0
    for file in storage.rglob("probe-*.parquet"):
        file.unlink()
    again = results(digits_fleet)
    assert files_of(storage) == kept
    assert [model.attacks for model in again] == [model.attacks for model in first]
    assert 0 < sum(model.forwards for model in again) < 0.3 * sum(model.forwards for model in first)


@pytest.mark.slow
def test_results_do_not_depend_on_batches(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    first = results(digits_fleet)
    other = results({**digits_fleet, "storage": str(tmp_path / "other")}, batch=23, shard=120)
    assert [model.attacks for model in other] == [model.attacks for model in first]


def test_a_masked_model_is_weaker_than_transfer_from_the_fleet(digits_fleet: dict[str, Any]) -> None:
    """Among sound models one whose gradient is hidden: those stay adequate, and their adversarials break it."""
    *sound, hidden = results(masked(digits_fleet, "detached"))
    assert all(attack.adequacy == "adequate" for model in sound for attack in model.attacks)
    pgd: AttackResult = hidden.attacks[0]
    shown = {sign.sign: sign for sign in pgd.signs if sign.shown}
    assert {"zero-gradient", "unpredictive-gradient", "weaker-than-transfer"} <= set(shown)
    assert shown["weaker-than-transfer"].probe and shown["weaker-than-transfer"].against > 10


# --- which samples ------------------------------------------------------------------------------------------------


def test_samples_of_a_probe_are_correct_evenly_drawn_and_fixed() -> None:
    rng = np.random.default_rng(0)
    labels, ids, correct = rng.integers(0, 7, 900), rng.permutation(5000)[:900], rng.random(900) < 0.7
    rows = probe_rows(labels, ids, correct, seed=3)
    counts = np.bincount(labels[rows], minlength=7)
    assert len(rows) == SAMPLES and correct[rows].all() and counts.max() - counts.min() <= 1
    order = rng.permutation(900)
    again = probe_rows(labels[order], ids[order], correct[order], seed=3)
    assert set(ids[order][again]) == set(ids[rows]), "the place of a sample does not matter"
    assert set(ids[probe_rows(labels, ids, correct, seed=4)]) != set(ids[rows])
    assert len(probe_rows(labels, ids, np.arange(900) < 5, seed=0)) == 5


def test_a_probe_looks_in_the_largest_ball_in_which_enough_stand() -> None:
    measure, n = Pgd(epsilons=(0.01, 0.02, 0.03)), np.arange(100)
    keys = [series.key for series in measure.series()]
    columns = {"id": n, "correct": np.ones(100), keys[0]: n < 90, keys[1]: n < 20, keys[2]: n < 5}
    survival = survival_of(measure.series(), columns, n)
    assert radius_of(survival, n) == 0.02
    assert [int(survival.stands(radius).sum()) for radius in (0.005, 0.01, 0.02, 0.03)] == [100, 90, 20, 5]
    none = survival_of(measure.series(), {**columns, **dict.fromkeys(keys, np.zeros(100))}, n)
    assert radius_of(none, n) == 0.01 and not none.stands(0.01).any()


def test_a_search_for_the_nearest_is_probed_where_half_of_its_distances_lie() -> None:
    distances, n = np.linspace(0.1, 1.0, 10), np.arange(10)
    columns = {"id": n, "correct": np.ones(10), "minimal/l2": distances, "censored": n == 9}
    survival = survival_of(Minimal().series(), columns, n)
    assert survival.stands(radius_of(survival, n)).sum() == 6
    assert survival.stands(2.9).sum() == 1 and survival.reach == 3.0


@pytest.mark.parametrize(("cost", "donors"), [(0.0, 1), (3_200.0, 1), (6_400.0, 2), (12_000.0, 3), (1e9, 4)])
def test_transfer_costs_no_more_than_its_share(cost: float, donors: int) -> None:
    assert affordable(cost, 96) == donors
    assert donors == 1 or donors * 96 <= TRANSFER_SHARE * cost


def test_transfer_pairs_samples_by_id_and_radius() -> None:
    """Two donors gave adversarials of sample 7: it stands in the larger ball and one breaks it."""
    survival = Survival(
        ids=np.array([5, 7, 9, 11]),
        correct=np.array([True, True, True, False]),
        fell=np.array([0.05, np.inf, np.inf, 0.0]),
        radii=(0.05, 0.1),
        reach=0.1,
    )
    columns = {
        "id": np.array([7, 7, 5, 9, 11]),
        "radius": np.array([0.05, 0.1, 0.1, 0.05, 0.1]),
        "broken": np.array([0, 1, 0, 0, 1]),
    }
    assert transfer_counts(survival, columns) == [SignCount(Sign.TRANSFER, 1, 3, 1, probe=True)]


def test_samples_that_another_model_alone_has_say_nothing_of_this_one() -> None:
    """An audit that decides early takes more samples of one model than of another."""
    survival = Survival(
        np.array([7, -1, 9]), np.array([True, False, True]), np.array([np.inf, 0.0, np.inf]), (0.1,), 0.1
    )
    columns = {"id": np.array([7, 20, 3, 9]), "radius": np.full(4, 0.1), "broken": np.array([1, 1, 1, 0])}
    assert transfer_counts(survival, columns) == [SignCount(Sign.TRANSFER, 1, 2, 0, probe=True)]


@pytest.mark.parametrize("measure", ["square", "autoattack"])
def test_other_attacks_are_probed_too(digits_fleet: dict[str, Any], measure: str) -> None:
    options = {"square": {"queries": 40}, "autoattack": {"attacks": ["apgd-ce"]}}[measure]
    fleet = {**digits_fleet, "models": digits_fleet["models"][:1]}
    fleet["samples"] = {"uri": "sklearn:digits?split=test", "limit": 100}
    fleet["measures"] = [{"name": measure, "epsilons": [0.05], **options}]
    (model,) = run_audit(validate_fleet(fleet), Quiet()).result.models
    (attack,) = model.attacks
    assert attack.adequacy == "adequate" and attack.probed > 60
