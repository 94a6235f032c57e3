"""`samples.cluster`: the cluster is the unit of every number, interval, gate and comparison of an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import Finished, run_audit, validate_sources
from jobs.comparison.compare import Kept, compare
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError, SourceError
from services.loading.samples.source import open_samples
from services.records import Outcome, SampleSpec
from tracking.bundle.bundle import read_bundle
from tracking.bundle.scores import read_kept_scores

COPIES = 6
GATES = [
    {"measure": "clean", "metric": "wcr", "at_least": 0.6},
    {"measure": "clean", "metric": "aggregate", "not_worse_than": "accepted", "margin": 0.05},
    {"measure": "great-softmax", "metric": "refuted", "at_most": 0.9},
    {"measure": "clean", "metric": "eopp", "grouping": "site", "at_most": 0.9},
]
MEASURES = [
    "clean",
    {"name": "great", "activation": "softmax"},
    {"name": "pr", "radii": [0.05], "draws": 10},
    {"name": "pgd", "steps": 3, "epsilons": [0.05]},
    {"name": "minimal", "attacks": ["deepfool"], "search_limit": 2.0},
]


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve images of each digit, each six times with a little noise: a patient is an image."""
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    images, rng = samples.images(0, len(samples)), np.random.default_rng(0)
    rows = np.concatenate([np.flatnonzero(samples.labels == k)[:12] for k in range(10)])
    many = np.repeat(images[rows], COPIES, axis=0)
    many = np.clip(many + rng.uniform(-0.01, 0.01, many.shape), 0, 1).astype(np.float32)
    path = tmp_path_factory.mktemp("patients") / "d.npz"
    names = np.array([f"p{row}" for row in np.repeat(rows, COPIES)])
    site = np.where(np.arange(len(names)) // COPIES % 2, "north", "south")
    labels = np.repeat(samples.labels[rows], COPIES)
    gaps = np.where(np.arange(len(names)) == 3, "", names)
    words = np.where(np.arange(len(names)) < 7, "NA", names)
    np.savez(path, images=many, labels=labels, patient=names, site=site, gaps=gaps, words=words, scale=1)
    return f"npz:{path}?layout=NCHW&scale=1"


def fleet(digits_fleet: dict[str, Any], uri: str, **samples: Any) -> dict[str, Any]:
    chosen = {"uri": uri, **samples}
    return {**digits_fleet, "models": digits_fleet["models"][:1], "samples": chosen, "measures": MEASURES}


def audit(data: dict[str, Any], **changed: Any) -> Finished:
    return run_audit(validate_fleet({**data, "groups": ["site"], **changed}), Quiet())


@pytest.fixture
def clustered(digits_fleet: dict[str, Any], patients: str) -> Finished:
    return audit(fleet(digits_fleet, patients, cluster="patient"), gates=GATES)


def test_the_patient_is_the_unit(clustered: Finished, digits_fleet: dict[str, Any], patients: str) -> None:
    loose = audit({**fleet(digits_fleet, patients), "storage": f"{digits_fleet['storage']}-2"})
    assert loose.result.samples.count == clustered.result.samples.count == 120 * COPIES
    assert clustered.result.samples.intake.clusters == 120
    assert clustered.result.samples.intake.clusters_of == (12,) * 10
    for mine, other in zip(clustered.result.models[0].series, loose.result.models[0].series, strict=True):
        assert mine.method == "betting"
        assert mine.aggregate.value == pytest.approx(other.aggregate.value, abs=0.05)
        for group, narrow in zip(mine.groups, other.groups, strict=True):
            assert (group.n_all, group.n <= group.n_all // COPIES) == (narrow.n_all, mine.grouping == "class" or True)
            if mine.grouping == "class" and group.n:
                assert group.n <= 12 and narrow.n > 12
                assert group.score.high - group.score.low > narrow.score.high - narrow.score.low
    assert any("120 clusters by patient" in note for note in clustered.result.notes)
    assert read_bundle(clustered.folder) == clustered.result


def test_exact_tests_count_one_sample_of_each_patient(clustered: Finished) -> None:
    (model,) = clustered.result.models
    assert max(pair.n for each in model.confusions for pair in each.pairs) <= 12
    assert all(result.counted <= 120 for result in model.refuted)
    assert sum(model.fairness[0].sizes) == 120
    signs = [sign for attack in model.attacks for sign in attack.signs]
    assert signs and max(sign.counted for sign in signs) <= 120


def test_gates_are_judged_on_patients(clustered: Finished, digits_fleet: dict[str, Any], patients: str) -> None:
    """The worst class clears .6 on 72 samples of each class, and not on the twelve patients that these are."""
    loose = audit({**fleet(digits_fleet, patients), "storage": f"{digits_fleet['storage']}-2"}, gates=GATES[:1])
    assert loose.result.models[0].gates[0].outcome is Outcome.PASS
    assert clustered.result.models[0].gates[0].outcome is Outcome.UNDECIDED


def test_comparisons_are_of_patients(clustered: Finished, digits_fleet: dict[str, Any], patients: str) -> None:
    again = audit(fleet(digits_fleet, patients, cluster="patient"))
    comparison = compare(Kept(clustered.result, clustered.folder), Kept(again.result, again.folder))
    counts = {group.n for model in comparison.models for series in model.series for group in series.groups}
    assert counts == {12} and comparison.worse == 0
    assert {test for model in comparison.models for series in model.series for test in series.tests} == {"betting"}
    kept = read_kept_scores(again.folder, 0, again.result.models[0].spec)
    assert len(np.unique(kept["cluster"])) == 120


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samples": {"limit": 100}}, "without per_class and limit"),
        ({"samples": {"per_class": 5}}, "without per_class and limit"),
        ({"decide": "early"}, "decide: full"),
        ({"generated": {"uri": "generator:m:f", "cluster": "patient"}}, "generated samples are independent"),
    ],
)
def test_what_clusters_do_not_go_with_is_refused(
    digits_fleet: dict[str, Any], patients: str, change: dict[str, Any], words: str
) -> None:
    data = fleet(digits_fleet, patients, cluster="patient")
    data |= {**change, "samples": {**data["samples"], **change.get("samples", {})}}
    with pytest.raises(ConfigError, match=words):
        validate_fleet(data)


@pytest.mark.parametrize(
    ("column", "words"), [("pateint", "patient"), ("gaps", "1 of 720 rows without"), ("words", "7 of 720 rows")]
)
def test_a_column_that_is_missing_or_has_holes_is_an_error(
    digits_fleet: dict[str, Any], patients: str, column: str, words: str
) -> None:
    with pytest.raises(SourceError, match=words):
        validate_sources(validate_fleet(fleet(digits_fleet, patients, cluster=column)))


def test_too_few_patients_are_said_before_the_audit(digits_fleet: dict[str, Any], patients: str) -> None:
    gates = [{"measure": "clean", "metric": "wcr", "at_least": 0.9}]
    finished = audit(fleet(digits_fleet, patients, cluster="patient"), gates=gates)
    assert any("too few clusters" in note for note in finished.result.notes)
    assert Path(finished.folder).exists()
