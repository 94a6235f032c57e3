"""Refuted shares in the audit: what counts as known, how it is gated, and one whole audit of real networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import run_audit
from jobs.audit.judging.assemble import Grouping
from jobs.audit.judging.claims import known_distances, refuted_results, with_untested
from jobs.audit.judging.fleet_checks import fleet_checks, fleet_notes
from jobs.audit.plan import Context, ModelPlan, plan_model
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError
from services.measures.autoattack import AutoAttackSurvival
from services.measures.clean import Clean
from services.measures.great import Great
from services.measures.measure import Measure
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.square import Square
from services.records import (
    AttackResult,
    CalibrationResult,
    Estimate,
    ModelResult,
    ModelSpec,
    Outcome,
    RefutedResult,
    SampleSpec,
    SeriesResult,
)
from tests.typed import series_of
from tracking.bundle.bundle import read_bundle
from tracking.bundle.scores import Scores, read_kept_scores

N, SHAPE = 60, (3, 8, 8)
L2, LINF = "autoattack/l2-0.50000", "pgd20/linf-0.03137"
LABELS = np.arange(N) % 3
CLASSES = Grouping("class", LABELS, ("a", "b", "c"))
MEASURES = (Great(), Minimal(), AutoAttackSurvival(epsilons=0.5, norm="L2"), Pgd(), Square())


def plan_of(*measures: Measure) -> ModelPlan:
    context = Context(SampleSpec("npz:x"), "digest", N, "/cache", 100, 10, 0)
    return plan_model(ModelSpec("m", "torchscript:m.pt"), "weights", measures, context)


def scores_of(**columns: Any) -> Scores:
    """Sixty samples: claims of 0.3, nothing found, nothing broken, all correct; then what the test changes."""
    ones = np.ones(N)
    table = {
        "great": 0.3 * ones,
        "great:correct": ones,
        "minimal/l2": 3.0 * ones,
        "minimal/l2:correct": ones,
        "minimal/l2:censored": ones,
        L2: ones,
        LINF: ones,
        "square500/linf-0.03137": ones,
    }
    return {**table, **columns}


def share(scores: Scores, *measures: Measure) -> RefutedResult:
    (result,) = refuted_results(plan_of(*(measures or MEASURES)), scores, [CLASSES], SHAPE, 0.05)
    return result


def test_counts_equal_the_naive_loop() -> None:
    source = np.random.default_rng(0)
    scores = scores_of(
        **{"great": source.random(N), "minimal/l2": source.random(N), "minimal/l2:censored": np.zeros(N)}
    )
    scores["great:correct"] = (source.random(N) < 0.8).astype(float)
    scores["minimal/l2:correct"] = (source.random(N) < 0.9).astype(float)
    scores[L2] = (source.random(N) < 0.5).astype(float)
    refuted, counted = [0, 0, 0], [0, 0, 0]
    for i in range(N):
        if scores["great:correct"][i] and scores["minimal/l2:correct"][i]:
            counted[LABELS[i]] += 1
            nearest = scores["minimal/l2"][i] if scores[L2][i] else min(scores["minimal/l2"][i], 0.5 * (1 + 1e-5))
            refuted[LABELS[i]] += nearest < scores["great"][i]
    estimate = share(scores)
    assert [group.n for group in estimate.groups] == counted and estimate.counted == sum(counted)
    assert [group.extras["refuted"] for group in estimate.groups] == refuted and estimate.refuted == sum(refuted)
    assert estimate.overall.value == pytest.approx(sum(refuted) / sum(counted))
    assert all(
        group.n_all == N // 3 and group.score.low <= group.score.value <= group.score.high for group in estimate.groups
    )


@pytest.mark.parametrize(
    ("key", "radius"),
    [(L2, 0.5), (LINF, 8 / 255 * np.sqrt(192)), ("square500/linf-0.03137", 8 / 255 * np.sqrt(192))],
)
def test_a_broken_sample_bounds_the_distance(key: str, radius: float) -> None:
    """What minimal did not find another attack did, and the claim just above that radius is refuted."""
    broken = scores_of(**{key: np.zeros(N)})
    known = known_distances(MEASURES, broken, 192)
    assert known is not None and np.allclose(known.nearest, radius, rtol=2e-5) and (known.nearest >= radius).all()
    assert share({**broken, "great": np.full(N, radius * 1.001)}).overall.value == 1.0
    assert share({**broken, "great": np.full(N, radius)}).overall.value == 0.0


def test_a_nearer_adversarial_of_minimal_stays() -> None:
    nearer = {"minimal/l2": np.full(N, 0.1), "minimal/l2:censored": np.zeros(N), L2: np.zeros(N)}
    known = known_distances(MEASURES, scores_of(**nearer), 192)
    assert known is not None and (known.nearest == 0.1).all()


def test_a_linf_distance_bounds_the_l2_distance() -> None:
    measures = (*MEASURES, Minimal(norm="Linf"))
    found = {"minimal/linf": np.full(N, 0.02), "minimal/linf:correct": np.ones(N), "minimal/linf:censored": np.zeros(N)}
    known = known_distances(measures, scores_of(**found), 192)
    assert known is not None and np.allclose(known.nearest, 0.02 * np.sqrt(192))
    censored = {**found, "minimal/linf:censored": np.ones(N)}
    known = known_distances(measures, scores_of(**censored), 192)
    assert known is not None and np.isinf(known.nearest).all()
    with pytest.raises(ConfigError, match=r"add minimal to measures: claims in L2"):
        validate_fleet(fleet_of(["great", {"name": "minimal", "norm": "Linf"}], GATE))


def test_what_was_not_found_within_the_limit_is_untested_where_the_claim_exceeds_it() -> None:
    scores = scores_of(**{"minimal/l2": np.full(N, 0.2)})
    estimate = share(scores, Great(), Minimal(search_limit=0.2))
    assert (estimate.refuted, estimate.untested, estimate.overall.value) == (0, N, 0.0)
    assert "60 claims exceed the search limit 0.2" in estimate.notes[-1]
    assert share(scores_of()).untested == 0


def test_notes_say_whether_the_claims_are_false_or_empty() -> None:
    near = {"minimal/l2": np.full(N, 0.1), "minimal/l2:censored": np.zeros(N)}
    (false,) = share(scores_of(**near)).notes
    assert false == (
        "great is false as a certificate: for 60 of 60 correctly classified samples (100.0%) an adversarial lies "
        "nearer than the score claims; the median claim is 0.3, the median adversarial distance found 0.1."
    )
    empty = share(scores_of(**near, great=np.full(N, 0.001))).notes
    assert "no attack refuted a claim" in empty[0] and "nearly empty" in empty[1]
    (sound,) = share(scores_of(**near, great=np.full(N, 0.09))).notes
    assert "no attack refuted a claim on 60" in sound


def test_nothing_is_computed_without_both() -> None:
    for measures in ((Great(), Pgd()), (Clean(), Minimal())):
        assert refuted_results(plan_of(*measures), scores_of(), [CLASSES], SHAPE, 0.05) == ()


def test_a_group_without_correct_samples_is_undefined() -> None:
    wrong = np.where(LABELS == 1, 0.0, 1.0)
    estimate = share(scores_of(**{"great:correct": wrong}))
    assert [group.score.value for group in estimate.groups] == [0.0, None, 0.0]
    assert estimate.groups[1].score.reason == "no correctly classified sample"
    assert estimate.groups[1].extras["median_claim"] is None


# --- the fleet file ---------------------------------------------------------------------------------------------


def fleet_of(measures: list[Any], gate: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "fleet": "digits",
        "models": [{"name": "m", "uri": "torchscript:m.pt"}],
        "samples": {"uri": "sklearn:digits"},
        "measures": measures,
        "gates": [gate],
        **more,
    }


GATE = {"measure": "great", "metric": "refuted", "at_most": 0.1}


def test_a_falsified_gate_needs_a_claim_and_distances() -> None:
    assert validate_fleet(fleet_of(["great", "minimal"], GATE)).config.gates[0].metric == "refuted"
    with pytest.raises(
        ConfigError, match=r"gates\[0\].metric: expected the measure minimal .* add minimal to measures"
    ):
        validate_fleet(fleet_of(["great", "pgd"], GATE))
    with pytest.raises(ConfigError) as caught:
        validate_fleet(fleet_of(["clean", "great"], {**GATE, "measure": "clean"}))
    messages = [str(problem) for problem in caught.value.problems]
    assert len(messages) == 2 and "expected a GREAT score (great) for metric refuted, found 'clean'" in messages[0]


# --- fleet-wide -------------------------------------------------------------------------------------------------


def model_of(name: str, great: float, clean: float, left: dict[str, float]) -> ModelResult:
    def result(key: str, value: float, **extras: float) -> SeriesResult:
        metrics = {"aggregate": Estimate(value), **dict.fromkeys(("rdi", "nrgc", "wcr", "fp"), Estimate(None))}
        return SeriesResult(series_of(key), "class", metrics, (), (), (), (), "betting", 0.05, dict(extras))

    series = (result("great-softmax", great, correct=clean), *(result(key, value) for key, value in left.items()))
    refuted = RefutedResult("great-softmax", "class", Estimate(great / 2), (), 1, 2, 0, 0.05)
    return ModelResult(ModelSpec(name, "x:y"), "", Outcome.PASS, series=series, refuted=(refuted,))


def test_the_ranking_is_held_against_attacks_and_clean_accuracy() -> None:
    rows = [(0.1, 0.7, 0.4, 0.30), (0.2, 0.9, 0.3, 0.31), (0.4, 0.8, 0.1, 0.30), (0.3, 0.6, 0.2, 0.32)]
    names = ("pgd20/linf-0.00784", "pgd20/linf-0.03137")
    models = [model_of(f"m{i}", g, c, dict(zip(names, left, strict=True))) for i, (g, c, *left) in enumerate(rows)]
    result = fleet_checks(models)["great_against_attacks"]["great-softmax"]
    assert result[names[0]] == {"score": pytest.approx(-1.0), "clean": pytest.approx(0.0)}
    notes = fleet_notes(models, CalibrationResult("fixed", 1.0))
    assert (
        "great-softmax ranks these 4 models against their survival of pgd20/linf-0.00784: Spearman -1.00; "
        "clean accuracy alone 0.00."
    ) in notes
    assert not any("0.03137" in note for note in notes), "only the radius that tells the models apart best"
    assert any("20.0% for m2, 15.0% for m3, 10.0% for m1, 5.0% for m0" in note for note in notes)


def test_two_models_have_no_rank_correlation_to_speak_of() -> None:
    models = [model_of(f"m{i}", 0.1 * i, 0.5, {LINF: 0.2 * i}) for i in range(2)]
    assert not any("ranks these" in note for note in fleet_notes(models, CalibrationResult("fixed", 1.0)))


# --- one whole audit --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary network for 8x8 digits, trained in a few seconds."""
    import torch

    from services.loading.samples.source import open_samples
    from services.training.architectures import small_cnn
    from services.training.epochs.checkpoints import save_weights
    from services.training.epochs.loop import train
    from services.training.methods.erm import Erm

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = small_cnn(width=8)
    samples = open_samples(SampleSpec("sklearn:digits?split=train"))
    images = samples.images(0, len(samples))
    train(network, images, samples.labels, method=Erm(), epochs=8, batch=32, seed=0, lr=0.05, weight_decay=1e-4)
    path = tmp_path_factory.mktemp("weights") / "ordinary.safetensors"
    save_weights(str(path), network.state_dict())
    return path


def test_an_audit_refutes_the_softmax_score_of_an_ordinary_network(weights: Path, tmp_path: Path) -> None:
    data = fleet_of(
        [
            "clean",
            {"name": "great", "activation": "softmax", "temperature": 1.0},
            {"name": "pgd", "steps": 10, "epsilons": [0.1, 0.2]},
            {"name": "minimal", "attacks": ["deepfool", "fmn"]},
        ],
        {"measure": "great-softmax", "metric": "refuted", "at_most": 0.1},
        models=[{"name": "m", "uri": f"factory:services.training.architectures:small_cnn?width=8&weights={weights}"}],
        samples={"uri": "sklearn:digits?split=test", "per_class": 12},
        storage=str(tmp_path / "runs"),
        resources={"runner": "local", "shard": 60, "batch": 60, "workers": 1},
    )
    finished = run_audit(validate_fleet(data), Quiet())
    model = finished.result.models[0]
    (result,) = model.refuted
    assert model.outcome is Outcome.FAIL and model.gates[0].estimate == result.overall
    assert "exceeds 0.1" in model.gates[0].reason
    _check_against_scores(finished.folder, model, result)

    series = next(r for r in model.series if r.series.key == "great-softmax")
    assert series.extras["refuted"] == result.overall.value
    assert [g.extras["refuted"] for g in series.groups] == [g.score.value for g in result.groups]
    assert set(result.notes) <= set(model.notes)
    assert read_bundle(finished.folder).models[0] == model, "the bundle keeps it"


def _check_against_scores(folder: str, model: ModelResult, found: RefutedResult) -> None:
    kept = read_kept_scores(folder, 0, model.spec)
    correct = (kept["great-softmax:correct"] > 0) & (kept["minimal/l2:correct"] > 0)
    distance = np.where(kept["minimal/l2:censored"] > 0, np.inf, kept["minimal/l2"])
    for radius in (0.1, 0.2):
        broken = kept[f"pgd10/linf-{radius:.5f}"] == 0
        distance = np.where(broken, np.minimum(distance, radius * 8 * (1 + 1e-5)), distance)
    beaten = correct & (distance < kept["great-softmax"])
    assert (found.refuted, found.counted) == (int(beaten.sum()), int(correct.sum()))
    assert found.refuted > 0.5 * found.counted > 30


def test_that_inadequate_attacks_refuted_nothing_is_not_told_as_a_claim_that_stands() -> None:
    (result,) = refuted_results(plan_of(*MEASURES), scores_of(), [CLASSES], SHAPE, 0.05)
    assert result.notes and result.notes[0].startswith("great: no attack refuted a claim on 60")
    attack = AttackResult("minimal", ("minimal/l2",), "inadequate")
    (masked,) = with_untested([result], [attack])
    assert masked.notes == (
        "great: no attack that could have refuted a claim was adequate on this model, so that none is refuted says "
        "nothing.",
    )
    assert with_untested([result], [replace(attack, adequacy="adequate")]) == (result,)
    (some,) = with_untested([replace(result, refuted=2)], [attack])
    assert some.notes[:-1] == result.notes and "so that few are refuted says nothing" in some.notes[-1]


def test_the_fleet_says_on_which_models_no_claim_was_tested() -> None:
    share = RefutedResult("great", "class", Estimate(0.0, 0.0, 0.1), (), refuted=0, counted=10, untested=0, delta=0.05)
    attack = AttackResult("minimal", ("minimal/l2",), "adequate")
    sound = ModelResult(ModelSpec("a", "x:y"), "d", Outcome.PASS, refuted=(share,), attacks=(attack,))
    masked = replace(sound, spec=ModelSpec("b", "x:y"), attacks=(replace(attack, adequacy="inadequate"),))
    notes = fleet_notes([sound, masked], CalibrationResult("fixed", 1.0))
    assert "Attacks refuted great on this share of the correctly classified samples: 0.0% for a." in notes
    assert "No attack that could have refuted great was adequate on b: that none did says nothing there." in notes
