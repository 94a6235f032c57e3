"""Profiles by measured attribute and by class times attribute, through an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.audit import run_audit
from jobs.audit.judging.assemble import Grouping, crossing
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError
from services.loading.samples.source import open_samples
from services.measures.catalogue import MEASURES
from services.records import Outcome
from tracking.bundle.scores import read_kept_scores


def test_a_crossing_is_every_pair_and_keeps_empty_cells() -> None:
    first = Grouping("class", np.array([0, 1, 1, 2]), ("a", "b", "c"))
    two = Grouping("size", np.array([1, 0, 1, 1]), ("small", "large"))
    crossed = crossing("class*size", first, two)
    assert crossed.names == ("a / small", "a / large", "b / small", "b / large", "c / small", "c / large")
    assert [crossed.names[code] for code in crossed.codes] == ["a / large", "b / small", "b / large", "c / large"]


def test_an_audit_profiles_by_attribute_and_by_the_crossing_with_small_cells_visible(
    digits_fleet: dict[str, Any],
) -> None:
    digits_fleet["samples"] = {"uri": "sklearn:digits?split=test&attributes=thickness,width@5.5", "per_class": 9}
    digits_fleet["groups"] = ["thickness", "class*width", "thickness*width"]
    digits_fleet["models"] = digits_fleet["models"][1:2]
    digits_fleet["gates"] = [
        {"measure": "clean", "metric": "wcr", "grouping": "class*width", "at_least": 0.9},
    ]
    model = run_audit(validate_fleet(digits_fleet), Quiet()).result.models[0]
    by_name = {s.grouping: s for s in model.series if s.series.key == "clean"}
    assert list(by_name) == ["class", "thickness", "class*width", "thickness*width"]
    cells = by_name["class*width"]
    assert len(cells.groups) == 20
    assert sum(row.n for row in cells.groups) == 90
    for digit in range(10):
        assert sum(row.n for row in cells.groups if row.name.startswith(f"{digit} / ")) == 9
    empty = {row.name for row in cells.groups if row.n == 0}
    assert empty and empty == set(cells.missing)
    assert all(row.score.value is None and row.score.reason == "no samples" for row in cells.groups if row.n == 0)
    small = [row for row in cells.groups if 0 < row.n <= 2]
    assert small and all(row.score.high - row.score.low > 0.7 for row in small)  # type: ignore[operator]
    worst = next(row for row in cells.groups if row.name == cells.worst[0])
    overlap = {row.name for row in cells.groups if row.n and row.score.low <= worst.score.high}  # type: ignore[operator]
    assert overlap - set(cells.worst) <= set(cells.not_separated)
    assert model.gates[0].outcome in (Outcome.UNDECIDED, Outcome.FAIL)


@pytest.mark.parametrize("name", ["class*class", "a*b*c", "class*", "*a"])
def test_a_crossing_of_anything_but_two_columns_is_refused(name: str, digits_fleet: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="two different ones crossed"):
        validate_fleet({**digits_fleet, "groups": [name]})


def test_an_unknown_side_of_a_crossing_is_named(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["samples"]["uri"] += "&attributes=slant"
    with pytest.raises(Exception, match="did you mean 'slant'"):
        run_audit(validate_fleet({**digits_fleet, "groups": ["class*slan"]}), Quiet())


@pytest.mark.slow
def test_every_measure_is_profiled_by_class_attribute_and_crossing(
    digits_fleet: dict[str, Any], mapper_weights: Path
) -> None:
    """Each cell's score is the mean of its samples' scores, whatever the measure; none is left out of the list."""
    mapper = f"factory:services.training.mappers:vae?latents=6&size=8&width=8&weights={mapper_weights}"
    options: dict[str, dict[str, Any]] = {
        "autoattack": {"epsilons": [0.05], "attacks": ["apgd-ce"]},
        "cw": {"epsilons": [0.05], "steps": 3},
        "minimal": {"attacks": ["deepfool"]},
        "pgd": {"epsilons": [0.05], "steps": 3},
        "apgd": {"epsilons": [0.05], "steps": 3, "targets": 1},
        "pr": {"draws": 20},
        "probacc": {"rho": 0.2},
        "binomial": {"kappa": 0.2},
        "rare": {"particles": 20},
        "radius": {"select": 20, "draws": 50},
        "corruptions": {"names": ["fog", "contrast"], "severities": [3]},
        "square": {"epsilons": [0.05], "queries": 10},
        "projection": {"mapper": mapper, "steps": 4, "least_explained": 0.0},
    }
    digits_fleet |= {
        "samples": {"uri": "sklearn:digits?split=test&attributes=brightness", "per_class": 4},
        "groups": ["brightness", "class*brightness"],
        "models": digits_fleet["models"][1:2],
        "measures": [{"name": name, **options.get(name, {})} for name in MEASURES.names()],
    }
    done = run_audit(validate_fleet(digits_fleet), Quiet())
    (model,) = done.result.models
    scores = read_kept_scores(done.folder, 0, model.spec)
    samples = open_samples(validate_fleet(digits_fleet).config.sample_spec())
    names = {
        "class": np.array(samples.classes)[samples.labels],
        "brightness": samples.groups["brightness"].astype(str),
    }
    names["class*brightness"] = np.char.add(np.char.add(names["class"], " / "), names["brightness"])
    for each in model.series:
        values = scores[each.series.key]
        for row in each.groups:
            member = names[each.grouping] == row.name
            assert row.n_all == member.sum()
            if not each.series.conditional and row.n:
                assert row.score.value == pytest.approx(values[member].mean()), (each.series.key, row.name)
    keys = {each.series.key for each in model.series}
    assert keys == set(validate_fleet(digits_fleet).series())
    assert len(model.series) == 3 * len(keys)
