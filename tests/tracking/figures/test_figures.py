from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image

from services.records import AuditResult, CalibrationResult, Estimate, SeriesResult, ThreatModel
from services.storage import files
from tests.typed import series_of
from tracking.figures import from_records
from tracking.figures.brackets import bracket
from tracking.figures.charts import Chart, Dots, Heatmap, Lines
from tracking.figures.interactive import to_plotly
from tracking.figures.palette import style
from tracking.figures.png import png_bytes
from tracking.figures.save import fleet_charts, model_charts, write_figures


def all_charts(audit: AuditResult) -> dict[str, Chart]:
    calibration, trends = from_records.calibration(audit.calibration), from_records.trends([audit], audit, "great")
    assert calibration is not None and trends is not None
    own = model_charts(audit.models[0])
    return {**fleet_charts(audit, "great"), **own, "calibration": calibration, "trends": trends}


def edges_are_blank(png: bytes) -> bool:
    """Nothing is drawn on the outermost pixels: no label is clipped."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("L"))
    return all(bool((edge > 250).all()) for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]))


def drawn_by_plotly(chart: Chart) -> bool:
    """Plotly knows every property (it raises ValueError of one that it does not), and there is something to see."""
    figure = go.Figure(json.loads(json.dumps(to_plotly(chart), allow_nan=False)))
    return len(figure.data) > 0 and any(
        len(trace["z" if trace.type == "heatmap" else values_of(trace)]) for trace in figure.data
    )


def values_of(trace: Any) -> str:
    return "r" if trace.type.startswith("scatterpolar") else "y"


@pytest.mark.long
def test_every_figure_of_the_published_fleet_is_drawn_unclipped(gf_audit: AuditResult) -> None:
    charts = all_charts(gf_audit)
    assert len(charts) == 10
    for name, chart in charts.items():
        assert edges_are_blank(png_bytes(chart)), name
        assert drawn_by_plotly(chart), name


def test_a_thousand_classes_stay_readable(make_audit: Callable[..., AuditResult]) -> None:
    charts = all_charts(make_audit(60, 1_000))
    assert "radar" not in charts
    for name, chart in charts.items():
        text = json.dumps(to_plotly(chart), allow_nan=False)
        assert len(text) < 400_000, name
        assert drawn_by_plotly(chart), name
    heatmap = charts["heatmap"]
    assert isinstance(heatmap, Heatmap)
    assert (len(heatmap.rows), len(heatmap.columns)) == (40, 40) and "of 1,000 classes" in heatmap.note


def test_hostile_names_are_drawn_and_escaped(hostile_audit: AuditResult) -> None:
    for chart in (from_records.heatmap(hostile_audit, "great"), from_records.profile(hostile_audit.models[0], "class")):
        assert chart is not None
        assert png_bytes(chart).startswith(b"\x89PNG")
        text = json.dumps(to_plotly(chart))
        assert "<script" not in text and "<img" not in text and "&lt;script" in text


def test_the_heatmap_holds_the_scores_strongest_model_first(gf_audit: AuditResult) -> None:
    chart = from_records.heatmap(gf_audit, "great")
    assert chart is not None
    by_name = {model.spec.name: model.series[0] for model in gf_audit.models}
    aggregates = [by_name[name].aggregate.value or 0 for name in chart.rows]
    assert aggregates == sorted(aggregates, reverse=True)
    for name, values in zip(chart.rows, chart.values, strict=True):
        assert values == tuple(group.score.value for group in by_name[name].groups)


def test_vulnerability_counts_the_worst_classes(gf_audit: AuditResult) -> None:
    chart = from_records.vulnerability(gf_audit, "great")
    assert isinstance(chart, Dots)
    times = dict(zip(chart.categories, chart.panels[0].marks[0].values, strict=True))
    assert times["cat"] == 13 and times["dog"] == 4 and sum(value or 0 for value in times.values()) == 17
    ranks = np.argsort(np.argsort([[g.score.value for g in m.series[0].groups] for m in gf_audit.models])) + 1
    mean = dict(zip(chart.categories, chart.panels[1].marks[0].values, strict=True))
    assert mean["cat"] == pytest.approx(ranks[:, 3].mean())


@pytest.mark.long
def test_undefined_scores_stay_gaps(small_audit: AuditResult) -> None:
    models = []
    for model in small_audit.models:
        great = model.series[0]
        groups = (replace(great.groups[0], n=0, score=Estimate(None, reason="no samples")), *great.groups[1:])
        models.append(
            replace(model, series=(replace(great, groups=groups, metrics={**great.metrics, "nrgc": Estimate(None)}),))
        )
    audit = replace(small_audit, models=tuple(models))
    charts = fleet_charts(audit, "great")
    heatmap = charts["heatmap"]
    assert isinstance(heatmap, Heatmap) and all(row[0] is None for row in heatmap.values)
    for chart in charts.values():
        assert edges_are_blank(png_bytes(chart))
        assert "NaN" not in json.dumps(to_plotly(chart))


def test_reranking_by_hand(small_audit: AuditResult) -> None:
    chart = from_records.reranking(small_audit, "great")
    assert isinstance(chart, Lines)
    scores = {model.spec.name: model.series[0] for model in small_audit.models}
    for line in chart.lines:
        mine = scores[line.name]
        better = sum((other.aggregate.value or 0) > (mine.aggregate.value or 0) for other in scores.values())
        fairer = sum((other.metric("nrgc").value or 0) < (mine.metric("nrgc").value or 0) for other in scores.values())
        assert (line.y[0], line.y[3]) == (1 + better, 1 + fairer)


def test_models_of_different_threat_models_are_marked_in_the_reranking(small_audit: AuditResult) -> None:
    first, *others = small_audit.models

    def drawn(*threats: ThreatModel | None) -> Lines:
        inputs = zip(small_audit.models, [*threats, None, None, None], strict=False)
        models = tuple(replace(each, spec=replace(each.spec, threat_model=threat)) for each, threat in inputs)
        chart = from_records.reranking(replace(small_audit, models=models), "great")
        assert isinstance(chart, Lines)
        return chart

    same, mixed = drawn(ThreatModel("L2", 0.5)), drawn(ThreatModel("L2", 0.5), ThreatModel("Linf", 8 / 255))
    assert {line.name for line in same.lines} == {model.spec.name for model in small_audit.models}
    marks = {f"{first.spec.name} (L2 0.5)", f"{others[0].spec.name} (Linf 0.03137)"}
    assert marks <= {line.name for line in mixed.lines} and "different threat models" in mixed.note
    assert {line.place for line in mixed.lines} == {line.place for line in same.lines}


def test_a_model_has_one_colour_in_all_figures(gf_audit: AuditResult) -> None:
    audit = replace(gf_audit, models=gf_audit.models[:6])
    charts = {
        name: to_plotly(chart) for name, chart in all_charts(audit).items() if name in {"reranking", "radar", "trends"}
    }
    looks = {
        name: {trace["name"]: (trace["line"]["color"], trace["marker"]["symbol"]) for trace in chart["data"]}
        for name, chart in charts.items()
    }
    assert (
        len(looks) == 3 and looks["reranking"] == looks["trends"] and looks["radar"].items() <= looks["trends"].items()
    )
    assert len(set(looks["trends"].values())) == 6
    assert len({style(place) for place in range(64)}) == 64


def test_counts_and_ranks_have_whole_ticks(gf_audit: AuditResult) -> None:
    charts = all_charts(gf_audit)
    ranks, pay = to_plotly(charts["reranking"])["layout"]["yaxis"], to_plotly(charts["vulnerability"])["layout"]
    for axis, step in ((ranks, 2), (pay["xaxis"], 2), (pay["xaxis2"], 2)):
        assert (axis["tickformat"], axis["dtick"]) == ("d", step)
    assert ranks["tick0"] == 1


def test_headings_of_groups_say_the_attribute_once(small_audit: AuditResult) -> None:
    models = [
        replace(model, series=tuple(replace(each, grouping="brightness") for each in model.series))
        for model in small_audit.models
    ]
    chart = from_records.heatmap(replace(small_audit, models=tuple(models)), "great/by-brightness")
    own = from_records.profile(models[0], "brightness")
    assert chart is not None and chart.title.endswith(", by group of brightness")
    assert own is not None and own.title.endswith(", by group of brightness")


def test_calibration_marks_plateau_and_edge(gf_audit: AuditResult) -> None:
    chart = from_records.calibration(gf_audit.calibration)
    assert chart is not None and chart.vertical == (2.7, "T = 2.7 (at the grid's edge)")
    assert chart.band == (2.7, 3.0, "plateau: equally good") and chart.log
    assert from_records.calibration(CalibrationResult("fixed", 1.0)) is None


def test_the_bracket_takes_what_is_there(small_audit: AuditResult) -> None:
    model = small_audit.models[0]
    great = model.series[0]

    def also(key: str, unit: str = "L2 distance") -> SeriesResult:
        return replace(great, series=series_of(key, key, 2.0, unit=unit))

    assert bracket(model) is None
    linf = also("minimal/linf", "Linf distance")
    assert bracket(replace(model, series=(great, linf))) is None
    measured = (also("great-softmax"), great, also("minimal/l2"), also("radius/sigma-0.25"))
    chart = bracket(replace(model, series=measured))
    assert chart is not None
    radius, claim, broken = chart.panels[0].marks
    assert ("proved" in radius.name, "claimed" in claim.name, "broken" in broken.name) == (True, True, True)
    assert edges_are_blank(png_bytes(chart))
    assert drawn_by_plotly(chart)
    by_name = {group.name: group.score.value for group in great.groups}
    assert claim.values == tuple(by_name[name] for name in chart.categories)
    both = bracket(replace(model, series=(*measured, linf)), 100)
    assert both is not None and [panel.label for panel in both.panels] == ["L2 distance", "Linf distance"]
    proved, claimed, found = both.panels[1].marks
    assert proved.name == "certified radius (proved), L2 / sqrt(d)" and found.values == broken.values
    assert claimed.values == pytest.approx([by_name[name] / 10 for name in both.categories])
    alone = bracket(replace(model, series=(great, linf)), 100)
    assert alone is not None and [panel.label for panel in alone.panels] == ["Linf distance"]
    assert drawn_by_plotly(both) and edges_are_blank(png_bytes(both))


def test_a_profile_shows_all_series_in_one_order(small_audit: AuditResult) -> None:
    model = small_audit.models[0]
    by_sex = replace(model.series[0], grouping="sex")
    lacking = replace(model.series[1], groups=model.series[1].groups[1:])
    charts = model_charts(replace(model, series=(lacking, model.series[0], by_sex)))
    assert set(charts) == {"profile", "profile_by-sex"}
    chart = charts["profile"]
    assert isinstance(chart, Dots)
    assert [panel.label for panel in chart.panels] == ["GREAT score (sigmoid, T=1)", "clean accuracy"]
    great, clean = (panel.marks[0].values for panel in chart.panels)
    assert list(great) == sorted(group.score.value or 0 for group in model.series[0].groups)
    assert clean.count(None) == 1 and edges_are_blank(png_bytes(chart))


def test_every_figure_explains_itself(gf_audit: AuditResult) -> None:
    for name, chart in all_charts(gf_audit).items():
        assert chart.note.endswith("."), name
        axes = [axis for key, axis in to_plotly(chart)["layout"].items() if re.match(r"x?y?axis", key)]
        first = [axis for axis in axes if "anchor" in axis or "domain" in axis or len(axes) <= 2]
        assert all(axis["title"]["text"] for axis in first), name


@pytest.mark.long
def test_figures_go_into_a_folder_of_any_kind(make_audit: Callable[..., AuditResult]) -> None:
    where = f"memory://{uuid.uuid4().hex}"
    audit = make_audit(2, 3)
    paths = write_figures(audit, where)
    assert f"{where}/figures/great/heatmap.png" in paths and f"{where}/figures/calibration.png" in paths
    assert all(files.read_bytes(path).startswith(b"\x89PNG") for path in paths)


def test_only_certificates_are_called_certified(gf_audit: AuditResult) -> None:
    """The panel of a worst class was called that for a score, and for what an attack left."""
    said = {name: repr(chart).lower() for name, chart in all_charts(gf_audit).items()}
    assert [name for name, text in said.items() if "certified" in text] == []


def test_one_model_has_no_rankings(small_audit: AuditResult) -> None:
    alone = replace(small_audit, models=small_audit.models[:1])
    assert set(fleet_charts(alone, "great")) == {"heatmap", "disparity", "interval_widths", "radar"}
    assert fleet_charts(alone, "not measured") == {}
