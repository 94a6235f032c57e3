"""The measure `projection` through an audit: mapper trained here, lens, gates, cache, a changed mapper."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from jobs.audit.audit import run_audit
from jobs.audit.publish import audit_and_publish
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError
from services.records import Outcome
from services.storage.traversals import Traversal
from services.training.epochs.checkpoints import load_weights, save_weights
from tracking.figures.attributes import traversal_path


@pytest.fixture
def fleet(digits_fleet: dict[str, Any], mapper_weights: Path, tmp_path: Path) -> dict[str, Any]:
    """Two models, the measure on a copy of the mapper that a test may change."""
    data = deepcopy(digits_fleet)
    copy = tmp_path / "mapper.safetensors"
    save_weights(str(copy), load_weights(str(mapper_weights)))
    uri = f"factory:services.training.mappers:vae?latents=6&size=8&width=8&weights={copy}"
    data["models"] = data["models"][:2]
    data["samples"]["per_class"] = 12
    data["measures"] = ["clean", {"name": "projection", "mapper": uri, "dimensions": [0, 3], "reach": 2}]
    data["gates"] = [
        {"measure": "projection/tol", "metric": "aggregate", "at_least": 0.05},
        {"measure": "projection/tol", "metric": "wcr", "at_least": 0.999},
    ]
    data["resources"] |= {"shard": 50, "batch": 16}
    return data


def audit(data: dict[str, Any]) -> Any:
    return run_audit(validate_fleet(data), Quiet()).result


@pytest.mark.slow
def test_tolerance_goes_through_the_lens_the_gates_and_the_cache(fleet: dict[str, Any]) -> None:
    first = audit(fleet)
    for model in first.models:
        result = next(s for s in model.series if s.series.key == "projection/tol")
        assert result.grouping == "class" and len(result.groups) == 10
        assert all(0.0 < row.score.value <= 1.0 for row in result.groups)
        assert result.aggregate.value < 1.0
        assert result.aggregate.low <= result.aggregate.value <= result.aggregate.high
        (output,) = model.projection
        assert [d.index for d in output.dimensions] == [0, 3]
        assert result.aggregate.value == pytest.approx(output.overall.tol.value / 2)
        assert output.overall.tol.value == pytest.approx(np.mean([d.tol.value for d in output.dimensions]))
        assert output.overall.dev.value == pytest.approx(result.extras["dev"])
        assert [group.n for group in output.groups["class"]] == [row.n for row in result.groups]
        for d in output.dimensions:
            assert d.tol.low <= d.tol.value <= d.tol.high
            flips = sum(d.down) + sum(d.up)
            assert flips == pytest.approx((1 - d.censored) * 2 * output.overall.n)
        assert not any(name.startswith("d00") for name in result.extras)
        assert {"censored", "dev", "agrees", "correct"} <= set(result.groups[0].extras)
        assert [gate.outcome for gate in model.gates] == [Outcome.PASS, Outcome.FAIL]
    again = audit(fleet)
    assert [model.forwards for model in again.models] == [0, 0]
    assert [model.series for model in again.models] == [model.series for model in first.models]


def test_shard_and_batch_change_nothing(fleet: dict[str, Any], tmp_path: Path) -> None:
    other = deepcopy(fleet) | {"storage": str(tmp_path / "other")}
    other["resources"] |= {"shard": 300, "batch": 120}
    assert [model.series for model in audit(other).models] == [model.series for model in audit(fleet).models]


def test_a_changed_mapper_is_measured_anew(fleet: dict[str, Any], tmp_path: Path) -> None:
    first = audit(fleet)
    weights = load_weights(str(tmp_path / "mapper.safetensors"))
    save_weights(str(tmp_path / "mapper.safetensors"), {**weights, "unit": weights["unit"] * 3})
    again = audit(fleet)
    assert all(model.forwards > 0 for model in again.models)
    assert again.models[0].series[1].aggregate.value < first.models[0].series[1].aggregate.value


def test_a_mapper_that_does_not_reconstruct_stops_the_measure_with_a_reason(fleet: dict[str, Any]) -> None:
    fleet["measures"][1]["mapper"] = "factory:services.training.mappers:vae?latents=6&size=8&width=8"
    with pytest.raises(ClasswiseError, match="a mapper that explains at least 50% of the samples' variance"):
        audit(fleet)


def test_a_missing_mapper_is_named_before_the_measure_runs(fleet: dict[str, Any]) -> None:
    fleet["measures"][1]["mapper"] += ".absent"
    with pytest.raises(ClasswiseError, match="expected a file at"):
        audit(fleet)


def test_a_lost_shard_alone_is_done_again(fleet: dict[str, Any], tmp_path: Path) -> None:
    fleet["models"] = fleet["models"][:1]
    first = audit(fleet).models[0]
    shards = sorted((tmp_path / "runs").rglob("*.parquet"))
    scores = [path for path in shards if "scores" in path.parts and "projection" in str(_columns(path))]
    lost = next(path for path in scores if "cache" in str(path))
    lost.unlink()
    again = audit(fleet).models[0]
    assert 0 < again.forwards < first.forwards
    assert again.series == first.series
    assert lost.exists()


def _columns(path: Path) -> list[str]:
    return list(pq.read_schema(path).names)


def test_every_model_has_its_traversal_in_bundle_and_report_drawn_once(fleet: dict[str, Any]) -> None:
    fleet["measures"][1]["names"], fleet["tracking"]["figures"] = {3: "tilt"}, True
    first = audit_and_publish(validate_fleet(fleet), Quiet())
    page = (Path(first.folder) / "report.html").read_text()
    assert "Tolerance to attributes (projection/tol)" in page and "tilt" in page
    assert page.count("traversal</h3>") == 2
    for index, model in enumerate(first.result.models):
        path = traversal_path(first.folder, index, model, model.projection[0])
        result = Traversal.from_bytes(Path(path).read_bytes(), path)
        assert result.images.shape == (2, 11, 8, 8, 1) and result.dimensions.tolist() == [0, 3]
        centre = result.labels[:, 5]
        assert len(set(centre.tolist())) == 1  # every dimension starts from the same image
        np.testing.assert_array_equal(result.images[0, 5], result.images[1, 5])
        for d in range(2):
            for side, ends in enumerate((result.labels[d, :5], result.labels[d, 6:])):
                if result.censored[d, side]:
                    assert (ends == centre[d]).all()
        (output,) = model.projection
        assert [each.name for each in output.dimensions] == ["d000", "tilt"]
    again = audit(fleet)
    assert [model.forwards for model in again.models] == [0, 0]
