"""Attributes in tables, metrics and pictures: what is shown, what is undefined, and names of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from services.errors import StorageError
from services.records import (
    AuditResult,
    Estimate,
    FairnessResult,
    GapResult,
    GateResult,
    LatentDimension,
    ModelResult,
    Outcome,
    ProjectedGroup,
    ProjectionResult,
    TaskGaps,
    Threshold,
)
from services.records.fairness import METRICS
from services.storage.traversals import Traversal
from tracking.bundle.fairness import attribute_metrics, fill_attributes
from tracking.bundle.words import gate_words
from tracking.figures import attributes as pictures
from tracking.figures.charts import Dots, Heatmap, Strips
from tracking.figures.png import png_bytes
from tracking.mlflow.layout import child_content
from tracking.report.fairness_tables import attribute_tables
from tracking.report.report import render

HOSTILE = "<img src=x onerror=alert(1)>"
UNDEFINED = Estimate(None, reason="no samples that it needs in b")


def gaps(grouping: str, values: Sequence[float | None], name: str = "cat") -> FairnessResult:
    tasks = tuple(
        TaskGaps(
            k, f"{name}{k}", 50, dict.fromkeys(METRICS, UNDEFINED if v is None else Estimate(v, 0.0, min(1, 2 * v)))
        )
        for k, v in enumerate(values)
    )
    known = [(v, k) for k, v in enumerate(values) if v is not None]
    worst = Estimate(max(known)[0], 0.0, 1.0) if known else UNDEFINED
    task = f"{name}{max(known)[1]}" if known else ""
    return FairnessResult(
        grouping,
        ("a", "b"),
        (30, 20),
        dict.fromkeys(METRICS, worst),
        dict.fromkeys(METRICS, task),
        tasks,
        len(tasks),
        0.05,
    )


def projected(names: Sequence[str] = ("size", "d001", "d002")) -> ProjectionResult:
    dimensions = tuple(
        LatentDimension(d, name, Estimate(1.5 - 0.1 * d, 1.2, 1.8), Estimate(0.1, 0.0, 0.2), 0.01, 0.5, (1, 2), (3, 0))
        for d, name in enumerate(names)
    )
    overall = ProjectedGroup("all", 10, Estimate(1.4, 1.3, 1.5), Estimate(0.1, 0.0, 0.2), UNDEFINED, 0.5)
    return ProjectionResult(
        "projection/tol", "projection", overall, dimensions, {"class": (overall,), "sex": (overall, overall)}, 0.05
    )


def traversal(dimensions: int = 3) -> Traversal:
    images = np.arange(dimensions * 5 * 4 * 4, dtype=np.int64).reshape(dimensions, 5, 4, 4, 1).astype(np.uint8)
    labels = np.tile([1, 0, 0, 0, -1], (dimensions, 1))
    moves, censored = np.tile([0.9, 1.0], (dimensions, 1)), np.tile([False, True], (dimensions, 1))
    return Traversal(np.arange(dimensions), np.linspace(-1, 1, 5), images, labels, moves, censored)


@pytest.fixture
def audit(gf_audit: AuditResult) -> AuditResult:
    """The published models, the first two with attributes."""
    first, two = (
        replace(
            model,
            fairness=(gaps("sex", (0.1, 0.4, None)), gaps("age", (None, None))),
            projection=(projected(),),
            generated=(GapResult("great", Estimate(0.1, 0.0, 0.2), Estimate(0.5), Estimate(0.4), 10, 20, 0.05),),
        )
        for model in gf_audit.models[:2]
    )
    return replace(gf_audit, models=(first, two, *gf_audit.models[2:4]))


def test_metrics_carry_the_worst_decision_and_what_is_undefined_is_told(audit: AuditResult) -> None:
    result = attribute_metrics(audit.models[0])
    assert result["fairness/by-sex/eodd"] == 0.4 and result["fairness/by-sex/eodd_high"] == 1.0
    assert not any(key.startswith("fairness/by-age") for key in result)
    assert result["projection/tol/d002"] == pytest.approx(1.3) and result["projection/dev_high"] == 0.2
    assert "projection/cou" not in result
    content = child_content(audit, 0)
    assert content.metrics["generated_minus_test/great"] == 0.1 and content.metrics["generated/great"] == 0.5
    assert "fairness/by-age/dp: no samples that it needs in b" in content.tags["classwise.undefined"]


def test_every_number_is_in_the_file(audit: AuditResult, tmp_path: Path) -> None:
    path = tmp_path / "attributes.parquet"
    with path.open("wb") as file:
        fill_attributes(audit.models[0], file)
    rows = pq.read_table(path).to_pylist()
    assert sum(row["kind"] == "gap" for row in rows) == 4 * (3 + 2)
    assert sum(row["kind"] == "dimension" for row in rows) == 2 * 3
    assert sum(row["kind"] == "group" for row in rows) == 3 * (1 + 2)
    (missing,) = [row for row in rows if (row["of"], row["what"], row["metric"]) == ("sex", "cat2", "dp")]
    assert missing["value"] is None and missing["reason"] == UNDEFINED.reason


@pytest.mark.long
def test_the_report_shows_gaps_tolerance_and_generated_samples(audit: AuditResult) -> None:
    page = render(audit, interactive=False)
    for text in (
        "Gaps between groups of sex",
        "a (30), b (20)",
        "class cat1",
        "Tolerance to attributes",
        "never flips",
    ):
        assert text in page
    assert "great on generated samples" in page
    assert "Attributes</h2>" not in render(replace(audit, models=audit.models[2:]), interactive=False)


def test_names_are_escaped(audit: AuditResult) -> None:
    model = replace(
        audit.models[0], fairness=(gaps(HOSTILE, (0.1, 0.2), HOSTILE),), projection=(projected([HOSTILE] * 3),)
    )
    strips = pictures.strips(model, model.projection[0], traversal(), (HOSTILE, "b"))
    assert strips is not None
    for interactive in (True, False):
        page = render(
            replace(audit, models=(model,)), interactive=interactive, traversals={model.spec.name: {"t": strips}}
        )
        assert "<img src=x" not in page


def test_pictures_of_attributes_are_drawn(audit: AuditResult) -> None:
    result = pictures.attribute_charts(audit)
    assert set(result) == {"fairness/by-sex", "projection"}  # of age nothing is defined
    assert set(result["projection"]) == {"attribute_radar", "tolerance"}
    dots = result["fairness/by-sex"]["gaps"]
    assert isinstance(dots, Dots) and len(dots.panels) == 4 and len(dots.categories) == 2
    own = pictures.model_attribute_charts(audit.models[0])
    heat, flips = own["task_by_attribute"], own["boundaries_projection"]
    assert isinstance(heat, Heatmap) and heat.rows == ("cat1", "cat0", "cat2")
    assert heat.columns[2:6] == ("EOdd sex", "AOdd sex", "DP age", "EOpp age")
    assert heat.values[2][0] is None
    assert isinstance(flips, Heatmap) and flips.columns == ("-1.0", "-0.5", "+0.5", "+1.0")
    assert flips.rows[0] == "d002" and flips.values[0] == (20.0, 10.0, 30.0, 0.0)
    for chart in (*result["projection"].values(), dots, *own.values()):
        assert png_bytes(chart).startswith(b"\x89PNG")


def test_a_gap_is_called_the_same_in_tables_pictures_and_gates(audit: AuditResult) -> None:
    (table, *_), dots = attribute_tables(audit), pictures.group_gaps(audit, "sex")
    assert dots is not None
    for metric, (short, meaning), panel in zip(METRICS, table["heads"][1:], dots.panels, strict=True):
        gate = GateResult(
            f"clean {metric} by sex <= 0.1",
            Outcome.PASS,
            Estimate(0.05),
            "",
            Threshold("clean", metric, "sex", "<=", 0.1),
        )
        of = meaning.removeprefix("gap in ")
        assert panel.label == f"{short}: {of}"
        assert gate_words(audit, gate) == f"clean accuracy, largest gap between groups of sex in {of}: at most 0.1"


def test_strips_mark_other_labels_and_the_flip_point(audit: AuditResult) -> None:
    model = audit.models[0]
    chart = pictures.strips(model, model.projection[0], traversal(), ("x", "y"))
    assert isinstance(chart, Strips)
    assert [strip.name for strip in chart.strips] == ["d002", "d001", "size"]  # the least tolerant first
    assert chart.strips[0].labels == ("y", "x", "x", "x", "not finite")
    assert (chart.strips[0].down, chart.strips[0].up) == (-0.9, None)
    assert png_bytes(chart).startswith(b"\x89PNG")
    many = replace(model.projection[0], dimensions=projected([f"d{d}" for d in range(20)]).dimensions)
    cut = pictures.strips(model, many, traversal(20), ("x", "y"))
    assert cut is not None and len(cut.strips) == pictures.STRIPS and "12 least tolerant of 20" in cut.note


def test_a_traversal_comes_back_from_its_file_and_a_damaged_one_is_named() -> None:
    inputs = traversal()
    back = Traversal.from_bytes(inputs.to_bytes(), "t.npz")
    for name in ("dimensions", "positions", "images", "labels", "moves", "censored"):
        np.testing.assert_array_equal(getattr(back, name), getattr(inputs, name))
    for data in (b"", b"PK\x03\x04 broken", inputs.to_bytes()[:-40]):
        with pytest.raises(StorageError, match=r"t\.npz: expected a traversal"):
            Traversal.from_bytes(data, "t.npz")


def test_a_model_without_attributes_says_nothing_of_them(audit: AuditResult) -> None:
    plain: ModelResult = audit.models[3]
    assert attribute_metrics(plain) == {} and pictures.model_attribute_charts(plain) == {}
