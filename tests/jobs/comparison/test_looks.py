"""Many audits after an acceptance: levels of a stream, other samples, the first accepted audit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import Finished
from jobs.comparison.accepted import accept, read_accepted
from jobs.comparison.looks import Look, Looks, read_looks
from jobs.fleetfile.reading import validate_fleet
from jobs.upkeep.prune import Rules, plan_prune
from services.loading.samples.source import open_samples
from services.numerics.evidence.streams import lond_level
from services.records import Outcome, SampleSpec
from tracking.bundle.comparison import Comparison, read_comparison
from tracking.names import file_name
from tracking.report.comparison_words import comparison_words, summary

from .conftest import audit, measured


@pytest.fixture
def part(tmp_path: Path) -> Callable[..., str]:
    """A source of some of the digits, with noise for hard ones."""
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    images, rng = samples.images(0, len(samples)), np.random.default_rng(0)

    def make(start: int, stop: int, noise: float = 0.0) -> str:
        path = tmp_path / f"{start}-{noise}.npz"
        noisy = np.clip(images[start:stop] + noise * rng.standard_normal(images[start:stop].shape), 0, 1)
        names = np.array([str(k) for k in range(10)])
        np.savez(path, images=noisy.astype(np.float32), labels=samples.labels[start:stop], classes=names)
        return f"npz:{path}?layout=NCHW&scale=1"

    return make


def night(fleet: dict[str, Any], uri: str = "sklearn:digits?split=test", **changed: Any) -> Finished:
    return audit({**measured(fleet, "good"), "measures": ["clean"], "samples": {"uri": uri}, **changed})


def found(finished: Finished) -> Comparison:
    comparison = read_comparison(finished.folder)
    assert comparison is not None
    return comparison


def home(finished: Finished) -> str:
    return finished.folder.rpartition("/")[0]


def test_levels_fall_and_an_audit_keeps_its_place() -> None:
    looks = Looks("a", (Look("1", 0.01), Look("2", 0.004, worse=True), Look("3", 0.003)))
    assert looks.next_level(0.05) == lond_level(0.05, [False, True, False])
    assert looks.before("2").looks == looks.looks[:1] and looks.before("9") == looks
    assert looks.bound == pytest.approx(0.017)


def test_nights_of_an_unchanged_fleet_cost_nothing(digits_fleet: dict[str, Any]) -> None:
    first = night(digits_fleet)
    accept(first.folder, by="me")
    later = [night(digits_fleet) for _ in range(2)]
    assert [found(each).looks for each in later] == [0, 0] and found(later[-1]).bound is None
    assert read_looks(home(first), first.result.audit_id).looks == ()


def test_new_versions_are_a_stream_and_the_bound_is_printed(
    digits_fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]]
) -> None:
    first = night(digits_fleet)
    accept(first.folder, by="me")
    levels = []
    for weights in ("other", "weak", "other"):
        comparison = found(night(swapped(digits_fleet, "good", weights)))
        levels.append(comparison.alpha)
    looks = read_looks(home(first), first.result.audit_id)
    assert [look.worse for look in looks.looks] == [False, True, False]
    assert levels == [lond_level(0.05, list(before)) for before in ([], [False], [False, True])]
    assert comparison.looks == 3 and comparison.bound == pytest.approx(sum(levels))
    assert "in all 3 audits since the acceptance at most" in comparison_words(comparison)[0]
    assert 'false "worse" in 3 audits since the acceptance: at most' in summary(comparison)
    accept(night(swapped(digits_fleet, "good", "other")).folder, by="me", even_though_failed=True)
    again = found(night(digits_fleet))
    assert again.looks == 1 and again.alpha == levels[0]


def test_the_same_version_on_fresh_samples_is_compared_and_evidence_adds_up(
    digits_fleet: dict[str, Any], part: Callable[..., str]
) -> None:
    accept(night(digits_fleet, part(0, 400)).folder, by="me")
    comparisons = [found(night(digits_fleet, part(start, start + 60, noise=0.35))) for start in range(400, 820, 60)]
    assert [each.comparisons for each in comparisons] == [11] * 7
    assert comparisons[0].models[0].series[0].tests == ("Fisher's exact test",)
    overall = [each.models[0].series[0].overall for each in comparisons]
    assert [each.n for each in overall if each] == [60 * night for night in range(1, 8)]
    assert [each.pooled for each in comparisons] == list(range(7))
    assert comparisons[-1].worse >= 1
    assert overall[-1] and overall[-1].difference.low < overall[-1].difference.value < overall[-1].difference.high < 0


def test_fresh_samples_of_the_same_kind_are_not_worse(digits_fleet: dict[str, Any], part: Callable[..., str]) -> None:
    accept(night(digits_fleet, part(0, 400)).folder, by="me")
    comparison = found(night(digits_fleet, part(400, 800)))
    assert (comparison.comparisons, comparison.worse, comparison.not_comparable) == (11, 0, 0)


def test_a_gate_against_the_first_accepted_audit(
    digits_fleet: dict[str, Any], swapped: Callable[..., dict[str, Any]]
) -> None:
    """Against the last one the weak network passes, for it is the same; against the first it has lost."""
    gates = [
        {"measure": "clean", "metric": "aggregate", "not_worse_than": name, "margin": 0.01}
        for name in ("accepted", "first")
    ]
    first = night(digits_fleet, gates=gates)
    assert [gate.outcome for gate in first.result.models[0].gates] == [Outcome.UNDECIDED] * 2
    accept(first.folder, by="me", even_though_failed=True)
    weak = swapped(digits_fleet, "good", "weak")
    accept(night(weak, gates=gates).folder, by="me", even_though_failed=True)
    last, origin = night(weak, gates=gates).result.models[0].gates
    assert (last.outcome, origin.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert "not worse than first" in origin.text
    known = read_accepted(home(first))
    assert known is not None and len(known.history) == 2
    rules, later = Rules(keep_last=1, even_unsynced=True), 2e10
    kept = plan_prune(validate_fleet(weak).config.storage, rules, later)
    assert not any(item.path.endswith(file_name(first.result.audit_id)) for item in kept.remove)
