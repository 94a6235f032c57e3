"""A gate never passes on a group that has no number, nor on an attack that could not move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jobs.audit.audit import run_audit
from jobs.audit.judging.assemble import Grouping, series_results
from jobs.audit.judging.claims import refuted_results
from jobs.audit.judging.observations import observed_attacks
from jobs.audit.judging.verdict import Case, gate_result
from jobs.audit.plan import Context, plan_model
from jobs.audit.probes import ProbeSeen
from jobs.fleetfile.gates import GateConfig
from jobs.fleetfile.reading import validate_fleet
from jobs.fleetfile.tree import FleetConfig
from jobs.terminal.progress import Quiet
from services.loading.samples.source import open_samples
from services.measures.clean import Clean
from services.measures.great import Great
from services.measures.measure import Measure
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.measures.radius import Radius
from services.measures.square import Square
from services.numerics.evidence.adequacy import Sign, SignCount
from services.records import GateResult, ModelSpec, Outcome, SampleSpec
from tracking.bundle.scores import Scores


def gate(measure: str, metric: str, *, grouping: str = "class", **condition: float) -> dict[str, Any]:
    return {"measure": measure, "metric": metric, "grouping": grouping, **condition}


def judged(fleet: dict[str, Any], *gates: dict[str, Any]) -> tuple[GateResult, ...]:
    """The gates of the well trained network."""
    data = {**fleet, "models": fleet["models"][:1], "gates": list(gates)}
    return run_audit(validate_fleet(data), Quiet()).result.models[0].gates


def changed(fleet: dict[str, Any], folder: Path, change: Any) -> dict[str, Any]:
    """The digits as an npz, after a change to images, labels and the column ink."""
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    images = (samples.images(0, len(samples)) * 16).round().astype(np.uint8)[:, 0] * 15
    ink = np.where(np.arange(len(samples)) % 2, "bold", "thin")
    images, labels, ink = change(images, samples.labels, ink)
    names = np.array([str(k) for k in range(10)])
    np.savez(folder / "d.npz", images=images, labels=labels, ink=ink, classes=names)
    return {**fleet, "samples": {"uri": f"npz:{folder / 'd.npz'}"}, "measures": ["clean"]}


def never_right(k: int) -> Any:
    """Class k holds images of six other classes, which the network names rightly."""

    def change(images: Any, labels: Any, ink: Any) -> tuple[Any, ...]:
        rows = np.flatnonzero(labels == k)
        others = [np.flatnonzero(labels == other) for other in (0, 1, 2, 4, 6, 7)]
        images[rows] = [images[others[place % len(others)][-1 - place // len(others)]] for place in range(rows.size)]
        return images, labels, ink

    return change


def without_3(images: Any, labels: Any, ink: Any) -> tuple[Any, ...]:
    return images[labels != 3], labels[labels != 3], ink[labels != 3]


def test_a_class_without_samples_bars_every_pass_over_classes(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    passing = [gate("clean", "wcr", at_least=0.1), gate("clean", "rdi", at_most=0.9)]
    passing += [gate("clean", "nrgc", at_most=0.5), gate("clean", "fp", at_least=0.1)]
    fleet = changed(digits_fleet, tmp_path, without_3)
    *over_classes, whole = judged(fleet, *passing, gate("clean", "aggregate", at_least=0.1))
    assert [found.outcome for found in over_classes] == [Outcome.UNDECIDED] * 4
    assert all("class 3" in found.reason for found in over_classes)
    assert whole.outcome is Outcome.PASS, "a mean over all samples needs no class"


def test_what_the_other_classes_prove_still_fails(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    fleet = changed(digits_fleet, tmp_path, lambda *data: without_3(*never_right(5)(*data)))
    found = judged(fleet, gate("clean", "wcr", at_least=0.5), gate("clean", "rdi", at_most=0.5))
    assert [one.outcome for one in found] == [Outcome.FAIL] * 2


def test_a_class_that_is_never_right_counts_in_gates_on_a_conditional_series(
    digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    """Class 5 holds images of other classes: pr, over the correctly classified, has nothing to say of it."""
    fleet = changed(digits_fleet, tmp_path, never_right(5))
    fleet["measures"] = ["clean", {"name": "pr", "radii": [0.02], "draws": 4}]
    key = validate_fleet(fleet).measures[1].series()[0].key
    gates = gate(key, "wcr", at_least=0.5), gate(key, "rdi", at_most=0.5), gate(key, "nrgc", at_most=0.05)
    found = judged(fleet, *gates)
    assert [one.outcome for one in found] == [Outcome.FAIL] * 3
    assert found[0].estimate.value == 0.0


def test_an_empty_cell_of_a_crossing_is_named_and_no_pass(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    fleet = changed(
        digits_fleet, tmp_path, lambda images, labels, ink: (images, labels, np.where(labels == 3, "bold", ink))
    )
    fleet["groups"] = ["ink", "class*ink"]
    crossing, by_ink, parity, chance, odds = judged(
        fleet,
        gate("clean", "wcr", grouping="class*ink", at_least=0.01),
        gate("clean", "wcr", grouping="ink", at_least=0.01),
        *(gate("clean", metric, grouping="ink", at_most=0.999) for metric in ("dp", "eopp", "eodd")),
    )
    assert crossing.outcome is Outcome.UNDECIDED and "3 / thin" in crossing.reason
    assert by_ink.outcome is parity.outcome is Outcome.PASS
    for found in (chance, odds):
        assert found.outcome is Outcome.UNDECIDED and "thin (class 3)" in found.reason


def test_a_class_of_which_no_file_could_be_read_bars_the_mean_too(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    images = (samples.images(0, len(samples))[:, 0] * 255).round().astype(np.uint8)
    for k in range(10):
        (tmp_path / "d" / str(k)).mkdir(parents=True)
        for place in np.flatnonzero(samples.labels == k)[:30]:
            file = tmp_path / "d" / str(k) / f"{place}.png"
            file.write_bytes(b"no image") if k == 3 else Image.fromarray(images[place]).save(file)
    source = {"uri": f"imagefolder:{tmp_path / 'd'}?mode=L", "on_corrupt": "skip"}
    fleet = {**digits_fleet, "samples": source, "measures": ["clean"]}
    (found,) = judged(fleet, gate("clean", "aggregate", at_least=0.1))
    assert found.outcome is Outcome.UNDECIDED and "class 3" in found.reason


# --- attacks ------------------------------------------------------------------------------------------------------

N = 300
ONES = np.ones(N)
LABELS = np.arange(N) % 3
CLASSES = Grouping("class", LABELS, ("a", "b", "c"))
QUIET = ProbeSeen(64, (SignCount(Sign.NOISE, 0, 64, 64, probe=True),))
PGD, GREAT = "pgd20/linf-0.03137", "great"


def under_attack(
    measures: tuple[Measure, ...],
    wanted: dict[str, Any],
    *,
    zero_gradient: bool = True,
    probes: dict[str, ProbeSeen] | None = None,
    **columns: Any,
) -> GateResult:
    """One gate on a model that no attack broke, with the columns that the test changes."""
    scores: Scores = {"id": np.arange(N), "label": LABELS}
    for measure in measures:
        keys = [series.key for series in measure.series()]
        scores |= {**dict.fromkeys(keys, ONES), f"{keys[0]}:correct": ONES}
        if isinstance(measure, Pgd | Minimal) and zero_gradient:
            scores[f"{keys[0]}:zero_gradient"] = 0 * ONES
    scores |= {GREAT: 0.3 * ONES, "minimal/l2": 2.9 * ONES, "minimal/l2:censored": 0 * ONES, **columns}
    item = plan_model(ModelSpec("m", "x:y"), "w", measures, Context(SampleSpec("npz:x"), "d", N, "/c", 100, 10, 0))
    config = FleetConfig.model_validate(
        {"fleet": "f", "models": [{"name": "m", "uri": "logits:m.npz"}], "samples": {"uri": "npz:x.npz"}}
    )
    series = tuple(series_results(item, scores, [CLASSES], config))
    refuted = refuted_results(item, scores, [CLASSES], (3, 8, 8), 0.05)
    seen = observed_attacks(item, scores, {table.key: QUIET for table in item.tables} if probes is None else probes)
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    case = Case(item, scores, series, refuted, (), seen, (CLASSES,), samples, {})
    return gate_result(GateConfig.model_validate(wanted), case, config)


ZEROS = {f"{PGD}:zero_gradient": ONES}
SURVIVES, CLAIM = gate(PGD, "wcr", at_least=0.5), gate(GREAT, "refuted", at_most=0.1)
CLAIMED = (Great(), Minimal(), Pgd(), Square())
NEAR = {"minimal/l2": 0.1 * ONES}


@pytest.mark.parametrize(
    ("measures", "wanted", "columns", "outcome", "word"),
    [
        ((Pgd(),), SURVIVES, {}, Outcome.PASS, ""),
        ((Pgd(),), SURVIVES, ZEROS, Outcome.UNDECIDED, "autoattack"),
        ((Pgd(),), SURVIVES, {**ZEROS, PGD: 0 * ONES}, Outcome.FAIL, ""),
        ((Clean(), Pgd()), gate("clean", "wcr", at_least=0.5), ZEROS, Outcome.PASS, ""),
        ((Pgd(), Square()), gate("square500/linf-0.03137", "wcr", at_least=0.5), ZEROS, Outcome.PASS, ""),
        (CLAIMED, CLAIM, {}, Outcome.PASS, ""),
        (CLAIMED, CLAIM, NEAR, Outcome.FAIL, ""),
        (CLAIMED, CLAIM, ZEROS, Outcome.UNDECIDED, "exactly zero"),
        (CLAIMED, CLAIM, {**ZEROS, **NEAR}, Outcome.FAIL, ""),
        (CLAIMED, CLAIM, {"minimal/l2:correct": 0 * ONES}, Outcome.ERROR, "no correctly classified"),
        (
            (Great(), Minimal(search_limit=0.2)),
            CLAIM,
            {"minimal/l2": 0.2 * ONES, "minimal/l2:censored": ONES},
            Outcome.UNDECIDED,
            "interval",
        ),
    ],
)
def test_no_pass_on_an_attack_that_could_not_move(
    measures: tuple[Measure, ...], wanted: dict[str, Any], columns: dict[str, Any], outcome: Outcome, word: str
) -> None:
    found = under_attack(measures, wanted, **columns)
    assert found.outcome is outcome, found.reason
    assert word in found.reason


# --- evidence -----------------------------------------------------------------------------------------------------

OVERRULED = {"overrule": ["inadequate-attack"]}
HALF_SHARE = {GREAT: np.where(np.arange(N) % 2, 0.3, 0.01), "minimal/l2": 0.1 * ONES}


def test_a_pass_says_what_it_rests_on() -> None:
    assert under_attack((Pgd(),), SURVIVES).reason.startswith(f"withstood {PGD}: lower bound")
    alone = under_attack((Great(),), gate(GREAT, "wcr", at_least=0.1))
    assert alone.outcome is Outcome.PASS and alone.reason.startswith("claimed by great: lower bound")
    assert alone.reason.endswith("; no attack of this audit tests the claim; the measure minimal does")
    held = under_attack((Great(), Minimal(), Pgd()), gate(GREAT, "wcr", at_least=0.1))
    assert held.outcome is Outcome.PASS and "no attack" not in held.reason
    assert under_attack((Clean(),), gate("clean", "wcr", at_least=0.5)).reason.startswith("lower bound")


def test_a_pass_under_a_weak_attack_says_what_another_one_left_in_the_same_ball() -> None:
    wanted = gate("square500/linf-0.03137", "wcr", at_least=0.3)
    left = np.where(np.arange(N) % 10 < 2, 1.0, 0.0)
    found = under_attack((Pgd(), Square()), wanted, **{PGD: left})
    assert found.outcome is Outcome.PASS
    assert found.reason.startswith("withstood square500/linf-0.03137: lower bound")
    assert f" clears 0.3; in the same ball {PGD} leaves 0.2" in found.reason
    assert "same ball" not in under_attack((Pgd(), Square()), wanted).reason, "nothing is below the threshold"
    far = under_attack((Pgd(epsilons=(16 / 255,)), Square()), wanted, **{"pgd20/linf-0.06275": left})
    assert "same ball" not in far.reason


def test_nothing_passes_on_an_attack_of_which_nothing_is_known() -> None:
    found = under_attack((Pgd(),), SURVIVES, **{f"{PGD}:correct": ONES}, probes={}, zero_gradient=False)
    assert found.outcome is Outcome.UNDECIDED and "nothing was checked of pgd20" in found.reason


@pytest.mark.parametrize(
    ("wanted", "left", "outcome"),
    [
        (gate(PGD, "aggregate", at_most=0.5), 0 * ONES, Outcome.PASS),
        (gate(PGD, "aggregate", at_most=0.5), ONES, Outcome.UNDECIDED),
        (gate(PGD, "rdi", at_most=0.5), ONES, Outcome.UNDECIDED),
        (gate(PGD, "rdi", at_most=0.5), (LABELS > 0).astype(float), Outcome.UNDECIDED),
        (gate(PGD, "wcr", at_least=0.5), 0 * ONES, Outcome.FAIL),
    ],
)
def test_an_inadequate_attack_shows_what_it_broke_and_no_more(
    wanted: dict[str, Any], left: Any, outcome: Outcome
) -> None:
    """That scores are low is shown by what was broken; that they are high, or equal, is not."""
    assert under_attack((Pgd(),), wanted, **{**ZEROS, PGD: left}).outcome is outcome
    plain = under_attack((Pgd(),), wanted, **{PGD: left})
    assert plain.outcome is not Outcome.UNDECIDED, "an adequate attack decides it"


def test_an_objection_is_overruled_by_name_and_the_verdict_says_so() -> None:
    found = under_attack((Pgd(),), {**SURVIVES, **OVERRULED}, **ZEROS)
    assert found.outcome is Outcome.PASS and found.overruled == ("inadequate-attack",)
    assert "overruled in the fleet file: inadequate-attack" in found.reason and "exactly zero" in found.reason
    assert under_attack((Pgd(),), {**SURVIVES, **OVERRULED}).overruled == (), "there was nothing to overrule"
    assert found.reason.startswith(f"withstood {PGD}: ")
    other = under_attack((Pgd(),), {**SURVIVES, "overrule": ["refuted-claim"]}, **ZEROS)
    assert other.outcome is Outcome.UNDECIDED and "withstood" not in other.reason, "nothing was"


def test_a_claim_that_attacks_refuted_passes_nothing() -> None:
    claims = gate(GREAT, "aggregate", at_least=0.05)
    found = under_attack((Great(), Minimal(), Pgd()), claims, **HALF_SHARE)
    assert found.outcome is Outcome.UNDECIDED and "150 of 300 claims" in found.reason
    assert under_attack((Great(), Minimal(), Pgd()), claims).outcome is Outcome.PASS
    few = {GREAT: np.where(np.arange(N) < 15, 0.3, 0.09), "minimal/l2": 0.1 * ONES}
    assert under_attack((Great(), Minimal(), Pgd()), claims, **few).outcome is Outcome.PASS, "5 % may be chance"
    found = under_attack((Great(), Minimal(), Pgd()), {**claims, "overrule": ["refuted-claim"]}, **HALF_SHARE)
    assert found.outcome is Outcome.PASS and found.overruled == ("refuted-claim",)


def test_a_claim_that_only_inadequate_attacks_left_passes_nothing() -> None:
    """They refuted none, for none could move."""
    claims = gate(GREAT, "aggregate", at_least=0.05)
    masked = {**ZEROS, "minimal/l2:zero_gradient": ONES}
    found = under_attack((Great(), Minimal(), Pgd()), claims, **masked)
    assert found.outcome is Outcome.UNDECIDED and "no attack that could have refuted great was adequate" in found.reason
    assert found.reason.count("exactly zero") == 2
    beside = under_attack((Great(), Minimal(), Pgd(), Square()), claims, **masked)
    assert beside.outcome is Outcome.UNDECIDED, "a random search shows no sign, and refutes nothing either"
    assert under_attack((Great(), Minimal(), Pgd()), claims, **ZEROS).outcome is Outcome.PASS, "minimal was adequate"
    assert under_attack((Great(),), claims, **masked).outcome is Outcome.PASS, "a claim, held against nothing"
    forced = under_attack((Great(), Minimal(), Pgd()), {**claims, **OVERRULED}, **masked)
    assert forced.outcome is Outcome.PASS and forced.overruled == ("inadequate-attack",)


def test_a_certificate_passes_and_never_fails() -> None:
    radius = Radius(sigma=0.25)
    key = radius.series()[0].key
    certified = {key: 0.4 * ONES}
    assert under_attack((radius,), gate(key, "wcr", at_least=0.3), **certified).outcome is Outcome.PASS
    short = under_attack((radius,), gate(key, "wcr", at_least=0.6), **certified)
    assert short.outcome is Outcome.UNDECIDED and "at least, and not at most" in short.reason
    assert under_attack((radius,), gate(key, "wcr", at_most=0.6), **certified).outcome is Outcome.UNDECIDED
    assert under_attack((radius,), gate(key, "wcr", at_most=0.2), **certified).outcome is Outcome.FAIL


@pytest.mark.parametrize("metric", ["rdi", "nrgc", "fp"])
def test_differences_of_lower_bounds_are_no_bounds_of_differences(metric: str) -> None:
    """Only that the metric is one of what is certified may be said, by whoever overrules."""
    radius = Radius(sigma=0.25)
    key = radius.series()[0].key
    for condition in ({"at_most": 0.5}, {"at_least": -0.5}) if metric == "fp" else ({"at_most": 0.5},):
        barred = under_attack((radius,), gate(key, metric, **condition), **{key: 0.4 * ONES})
        assert barred.outcome is Outcome.UNDECIDED and f"the {metric} of lower bounds" in barred.reason
        asked = {**gate(key, metric, **condition), "overrule": ["bound-as-value"]}
        judged = under_attack((radius,), asked, **{key: 0.4 * ONES})
        assert judged.outcome is Outcome.PASS and judged.overruled == ("bound-as-value",)
