"""One self-contained HTML file: the verdict first, then what it means, pictures, and every class.

The page needs no network. Plotly's script (4.8 MB) is embedded once and the figures are drawn as they scroll into
view; the report of a single model (a child run) embeds PNG pictures instead, for two hundred copies of the script would
be a gigabyte. All text is escaped: names come from users.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from services.records import AuditResult
from services.storage import files
from tracking.bundle.comparison import Comparison, read_comparison
from tracking.bundle.reasons.next_steps import next_steps
from tracking.bundle.reasons.why import why_words
from tracking.bundle.summary import find, lenses, worst_first
from tracking.bundle.words import advice_words, fleet_words, verdict_words
from tracking.figures import from_records
from tracking.figures.attributes import attribute_charts, title_of, traversal_charts
from tracking.figures.charts import Chart, Strips
from tracking.figures.interactive import to_plotly
from tracking.figures.kept import ANEW, Pictures
from tracking.figures.save import fleet_charts, model_charts
from tracking.names import shorten
from tracking.report.comparison_words import comparison_words, rows
from tracking.report.data import class_table, gate_tallies, headline, model_cards
from tracking.report.fairness_tables import attribute_tables
from tracking.report.markup import embedded, environment, source
from tracking.report.why import Why, hardest_rows, slice_rows, why_of

REPORT = "report.html"
MOST_CHANGES = 500
"""Rows of the table of what changed; the bundle's comparison.json has all."""
MOST_LENSES = 24
MOST_MODELS = 60
"""Models whose own figures are in the page, those that do not pass first; child runs have all of them."""


def write_report(
    result: AuditResult, folder: str, history: Sequence[AuditResult] = (), pictures: Pictures | None = ANEW
) -> str:
    """Write ``report.html`` into `folder` (a path or any fsspec URL), whole or not at all; returns its path.

    Raises:
        StorageError: the storage is full, read-only or unreachable.
    """
    path = files.join(folder, REPORT)
    places = {model.spec.name: index for index, model in enumerate(result.models)}
    listed = [(places[model.spec.name], model) for model in worst_first(result.models)]
    why = replace(
        why_of(listed, result.samples.classes, folder), hardest=hardest_rows(folder), slices=slice_rows(listed, folder)
    )
    page = render(
        result,
        history,
        traversals=traversals_of(result, folder),
        comparison=read_comparison(folder),
        why=why,
        pictures=pictures,
    )
    files.write_bytes(path, page.encode("utf-8", "replace"))
    return path


def traversals_of(result: AuditResult, folder: str) -> dict[str, dict[str, Chart]]:
    """The traversals of the models whose own figures are in the page, by the model's name."""
    places = {model.spec.name: index for index, model in enumerate(result.models)}
    classes = result.samples.classes
    return {
        model.spec.name: traversal_charts(folder, places[model.spec.name], model, classes)
        for model in worst_first(result.models)[:MOST_MODELS]
    }


def render(
    result: AuditResult,
    history: Sequence[AuditResult] = (),
    *,
    interactive: bool = True,
    traversals: Mapping[str, Mapping[str, Chart]] | None = None,
    comparison: Comparison | None = None,
    why: Why | None = None,
    pictures: Pictures | None = ANEW,
) -> str:
    """The page as text; with `interactive` False charts are embedded PNG from `pictures`, if any, and no plotly."""
    why = why or Why()
    sections = _sections(result, history, interactive)
    template = environment().get_template("report.html")
    return template.render(
        audit=result,
        heading=shorten(result.models[0].spec.name if len(result.models) == 1 else result.fleet, 120),
        verdict=verdict_words(result),
        advice=advice_words(result),
        why_words=why_words(result),
        why=why,
        confusion_data=embedded(why.confusions),
        gallery_data=embedded(why.gallery),
        gates=gate_tallies(result),
        headline=headline(result),
        steps=next_steps(result),
        words=fleet_words(result),
        changes=_changes(comparison),
        cards=model_cards(result),
        lenses=[{"name": name, "title": _title(result, name)} for name, charts in sections.items() if charts],
        attributes=attribute_tables(result),
        figures=_figures(sections, interactive, pictures),
        models=_model_figures(result, interactive, traversals or {}, pictures),
        calibration=_calibration(result) if interactive else None,
        table=embedded(class_table(result)),
        plotly=Markup(_plotly_script()) if interactive else None,
        config=json.dumps(result.config, indent=2, sort_keys=True, default=str, ensure_ascii=False),
        style=source("report.css"),
        script=source("common.js", "report.js", "why.js"),
    )


def _changes(comparison: Comparison | None) -> dict[str, Any] | None:
    """What changed since the accepted audit: sentences, and the table."""
    if comparison is None:
        return None
    shown = rows(comparison, MOST_CHANGES)
    return {"words": comparison_words(comparison, flags=False), "rows": shown, "cut": len(shown) == MOST_CHANGES}


def _sections(result: AuditResult, history: Sequence[AuditResult], interactive: bool) -> dict[str, dict[str, Chart]]:
    """The fleet's charts of each series, by series and name; of a single model what its own charts do not show."""
    by_lens = {}
    for name in lenses(result)[:MOST_LENSES]:
        charts = fleet_charts(result, name) if len(result.models) > 1 or interactive else {}
        if len(result.models) == 1:
            charts = {key: chart for key, chart in charts.items() if key in {"disparity", "radar"}}
        trend = from_records.trends(history, result, name)
        by_lens[name] = {**charts, "trends": trend} if trend else charts
    return by_lens | attribute_charts(result)


def _model_figures(
    result: AuditResult,
    interactive: bool,
    traversals: Mapping[str, Mapping[str, Chart]],
    pictures: Pictures | None,
) -> list[dict[str, Any]]:
    """Each model with its own figures, the worst outcome first: its profile, and what is proved, claimed and broken."""
    models, pixels = worst_first(result.models)[:MOST_MODELS], math.prod(result.samples.shape)
    return [
        {
            "name": shorten(model.spec.name, 60),
            "figures": [
                {"id": f"figure-model-{place}-{name}", **_figure(chart, interactive, pictures)}
                for name, chart in {**model_charts(model, pixels), **traversals.get(model.spec.name, {})}.items()
                if _drawable(chart, interactive, pictures)
            ],
        }
        for place, model in enumerate(models)
    ]


def _figures(
    sections: Mapping[str, Mapping[str, Chart]], interactive: bool, pictures: Pictures | None
) -> list[dict[str, Any]]:
    return [
        {"lens": lens, "id": f"figure-{place}-{name}", **_figure(chart, interactive, pictures)}
        for place, (lens, charts) in enumerate(sections.items())
        for name, chart in charts.items()
        if _drawable(chart, interactive, pictures)
    ]


def _drawable(chart: Chart, interactive: bool, pictures: Pictures | None) -> bool:
    return pictures is not None or (interactive and not isinstance(chart, Strips))


def _figure(chart: Chart, interactive: bool, pictures: Pictures | None) -> dict[str, Any]:
    drawn = not interactive or isinstance(chart, Strips)
    body = None if drawn else embedded(to_plotly(chart))
    picture = _source(pictures.png(chart)) if drawn and pictures else None
    return {"title": chart.title, "note": chart.note, "json": body, "picture": picture}


def _calibration(result: AuditResult) -> dict[str, Any] | None:
    chart = from_records.calibration(result.calibration)
    return {"id": "figure-calibration", **_figure(chart, True, None)} if chart else None


def _title(result: AuditResult, lens: str) -> str:
    shown = next((shown for model in result.models if (shown := find(model, lens))), None)
    if shown is None:
        return title_of(result, lens)
    return shown.series.title if shown.grouping == "class" else f"{shown.series.title}, by {shown.grouping}"


def _source(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


@lru_cache(maxsize=1)
def _plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script
