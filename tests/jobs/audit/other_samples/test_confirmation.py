"""The reserve: drawn once, in no audit, asked before something is accepted, promoted or called worse."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.other_samples.confirmation import reserve_fleet
from jobs.audit.publish import Published, audit_and_publish
from jobs.comparison.accepted import accept, read_accepted
from jobs.comparison.promote import promote
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError, SourceError
from services.loading.samples.selection import part_of
from services.loading.samples.source import open_samples
from services.numerics.evidence.streams import lond_level
from services.records import Outcome, SampleSpec
from services.records.intake import intake_notes
from tracking.bundle.confirmation import read_confirmation
from tracking.bundle.scores import read_kept_scores

URI = "sklearn:digits?split=test"
GATE = {"measure": "clean", "metric": "wcr", "at_least": 0.5}


def fleet(digits_fleet: dict[str, Any], **changed: Any) -> dict[str, Any]:
    data = {**deepcopy(digits_fleet), "models": deepcopy(digits_fleet["models"][:1]), "measures": ["clean"]}
    return {**data, "samples": {"uri": URI, "reserve": 0.3}, "gates": [GATE], "accept": "passed", **changed}


def audited(data: dict[str, Any]) -> Published:
    return audit_and_publish(validate_fleet(data), Quiet())


def home(done: Published) -> str:
    return done.folder.rpartition("/")[0]


def test_the_reserve_is_drawn_once_and_by_class() -> None:
    whole = open_samples(SampleSpec(URI))
    kept = open_samples(SampleSpec(URI, reserve=0.3, part="reserve"))
    rest = open_samples(SampleSpec(URI, reserve=0.3))
    again = open_samples(SampleSpec(URI, reserve=0.3, seed=7, limit=200))
    assert sorted([*kept.ids.tolist(), *rest.ids.tolist()]) == whole.ids.tolist()
    assert set(again.ids.tolist()) <= set(rest.ids.tolist())
    shares = np.bincount(kept.labels) / np.bincount(whole.labels)
    assert (abs(shares - 0.3) < 0.02).all()


def copied(file: Path, copies: int) -> SampleSpec:
    """60 images of two classes; the first 30 stand there again under the other label, `copies` times."""
    images = np.random.default_rng(0).integers(0, 256, (60, 4, 4, 1), dtype=np.uint8)
    labels = np.arange(60) % 2
    again = np.concatenate([images, *[images[:30]] * copies])
    np.savez(file, images=again, labels=np.concatenate([labels, *[1 - labels[:30]] * copies]))
    return SampleSpec(f"npz:{file}", reserve=0.4, duplicates="all")


def test_no_image_of_the_reserve_is_a_copy_of_an_audited_one(tmp_path: Path) -> None:
    spec = copied(tmp_path / "copied.npz", 2)
    kept, rest = open_samples(replace(spec, part="reserve")), open_samples(spec)
    seen = {image.tobytes() for image in rest.images(0, len(rest))}
    assert not any(image.tobytes() in seen for image in kept.images(0, len(kept)))
    drawn = part_of(open_samples(replace(spec, reserve=0.0)).labels, None, share=0.4, reserve=True)
    assert 0 < kept.intake.audited == len(drawn) - len(kept) and rest.intake.audited == 0
    (note,) = (note for note in intake_notes(kept.intake, kept.classes, np.bincount(kept.labels)) if "reserve" in note)
    assert note.startswith(f"{kept.intake.audited} samples of the reserve are copies")
    few = open_samples(replace(spec, part="reserve", limit=10))
    assert len(few) == 10 and not any(image.tobytes() in seen for image in few.images(0, 10))


def test_a_reserve_of_copies_alone_is_an_error(tmp_path: Path) -> None:
    images = np.zeros((40, 4, 4, 1), dtype=np.uint8)
    np.savez(tmp_path / "alike.npz", images=images, labels=np.arange(40) % 2)
    with pytest.raises(SourceError, match="images that no audit has seen"):
        open_samples(SampleSpec(f"npz:{tmp_path / 'alike.npz'}", reserve=0.4, part="reserve"))


def test_clusters_stay_together() -> None:
    clusters = np.repeat(np.array([f"p{k}" for k in range(40)]), 5)
    labels = np.arange(200) % 4
    kept, rest = (part_of(labels, clusters, share=0.25, reserve=side) for side in (True, False))
    assert len(kept) == 50 and not set(clusters[kept]) & set(clusters[rest]) and len(kept) + len(rest) == 200


def test_a_pass_is_accepted_when_the_reserve_agrees(digits_fleet: dict[str, Any]) -> None:
    done = audited(fleet(digits_fleet))
    said = read_confirmation(done.folder)
    assert said is not None and (said.use, said.level) == (1, lond_level(0.05, []))
    assert said.outcomes == {"good": Outcome.PASS} and said.worse is None
    assert any(line.startswith("reserve  good pass") for line in done.where_to_look)
    known = read_accepted(home(done))
    assert known is not None and known.audit_id == done.result.audit_id
    scores = read_kept_scores(done.folder, 0, done.result.models[0].spec)
    own = reserve_fleet(validate_fleet(fleet(digits_fleet)), 0.01).config.sample_spec()
    assert not set(open_samples(own).ids.tolist()) & set(scores["id"].tolist())


def test_a_pass_that_the_reserve_does_not_confirm_is_neither_accepted_nor_promoted(
    digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    """The threes of the reserve are sixes: a winner by luck."""
    samples = open_samples(SampleSpec(URI))
    images, labels = samples.images(0, len(samples)), samples.labels.copy()
    kept = part_of(labels, None, share=0.3, reserve=True)
    kept = kept[labels[kept] == 3]
    images[kept] = images[np.flatnonzero(labels == 6)[0]]
    images[kept] += np.random.default_rng(0).uniform(0, 0.01, images[kept].shape).astype(np.float32)
    np.savez(tmp_path / "d.npz", images=np.clip(images, 0, 1), labels=labels)
    data = fleet(digits_fleet, samples={"uri": f"npz:{tmp_path / 'd.npz'}?layout=NCHW&scale=1", "reserve": 0.3})
    done = audited(data)
    assert done.result.outcome is Outcome.PASS
    said = read_confirmation(done.folder)
    assert said is not None and said.of("good") is Outcome.FAIL
    assert read_accepted(home(done)) is None
    with pytest.raises(ConfigError, match="on the reserved samples it is fail"):
        accept(done.folder, by="me")
    assert accept(done.folder, by="me", even_though_failed=True).by == "me"


def test_each_further_version_has_a_smaller_level_and_the_same_one_costs_nothing(
    digits_fleet: dict[str, Any], swap_weights: Callable[[dict[str, Any], str], dict[str, Any]]
) -> None:
    """At this level the reserve passes no version, so that none is accepted and the uses add up."""
    data = fleet(digits_fleet, gates=[{"measure": "clean", "metric": "aggregate", "at_least": 0.93}])
    uses = []
    for weights in ("good", "good", "other"):
        done = audited(swap_weights(data, weights))
        said = read_confirmation(done.folder)
        assert done.result.outcome is Outcome.PASS and said is not None and said.of("good") is Outcome.UNDECIDED
        uses.append((said.use, said.level))
    levels = [lond_level(0.05, [False] * place) for place in range(2)]
    assert uses == [(1, levels[0]), (1, levels[0]), (2, levels[1])]


def test_an_audit_that_was_not_confirmed_is_accepted_by_name_only(digits_fleet: dict[str, Any]) -> None:
    done = audited(fleet(digits_fleet, accept="by-hand"))
    assert read_confirmation(done.folder) is None
    with pytest.raises(ConfigError, match="not confirmed on the reserved samples"):
        accept(done.folder, by="me")


def test_what_is_worse_is_held_against_the_reserve(
    digits_fleet: dict[str, Any], swap_weights: Callable[[dict[str, Any], str], dict[str, Any]]
) -> None:
    audited(fleet(digits_fleet))
    done = audited(swap_weights(fleet(digits_fleet, gates=[]), "weak"))
    assert done.comparison is not None and done.comparison.worse
    said = read_confirmation(done.folder)
    assert said is not None and said.worse and ("good", "clean", "overall") in said.worse
    assert any("worse there as well: " in line and "good clean overall" in line for line in done.where_to_look)


@pytest.fixture
def swap_weights(digit_weights: dict[str, str]) -> Callable[[dict[str, Any], str], dict[str, Any]]:
    def swap(data: dict[str, Any], name: str) -> dict[str, Any]:
        made = deepcopy(data)
        made["models"][0]["uri"] = made["models"][0]["uri"].rpartition("weights=")[0] + f"weights={digit_weights[name]}"
        return made

    return swap


def test_without_a_reserve_nothing_changes(digits_fleet: dict[str, Any]) -> None:
    done = audited(fleet(digits_fleet, samples={"uri": URI}))
    assert read_confirmation(done.folder) is None
    assert read_accepted(home(done)) is not None
    config = validate_fleet(fleet(digits_fleet)).config
    assert promote(config, done.result, done.folder, "sqlite://") == ()


def test_part_reserve_needs_a_reserve(digits_fleet: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="needs reserve"):
        validate_fleet(fleet(digits_fleet, samples={"uri": URI, "part": "reserve"}))
