"""The command ``classwise leaderboard``: options to a request, boards to the terminal and to files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from jobs.terminal import console
from services.errors import ConfigError, Problem

_FILTER = "Only models of this value: dataset, architecture, method, seed, threat_model, model, or any tag."
_METRIC = "Rank by this instead of the preset: acc, ar, pr ..., a series such as great-softmax, or NAME=SERIES."
_WEIGHT = "Weight of a metric in the score; 1 for those of the preset, 0 for the others."
_SERIES = "Read a metric of the preset from this series: ar=autoattack/linf-0.03137."
_PRESET = "robust: accuracy, robustness, generalisation; prbench: training time too; classes: accuracy, worst class."

Uri = Annotated[str | None, typer.Option("--tracking-uri", help="MLflow store; default: MLFLOW_TRACKING_URI.")]
Experiments = Annotated[list[str] | None, typer.Option("--experiment", metavar="NAME", help="Only this experiment.")]
Filters = Annotated[list[str] | None, typer.Option("--filter", metavar="KEY=VALUE", help=_FILTER)]
Metrics = Annotated[list[str] | None, typer.Option("--metric", metavar="LENS", help=_METRIC)]
Weights = Annotated[list[str] | None, typer.Option("--weight", metavar="NAME=NUMBER", help=_WEIGHT)]
Series = Annotated[list[str] | None, typer.Option("--series", metavar="NAME=SERIES", help=_SERIES)]
Imports = Annotated[list[str] | None, typer.Option("--import", metavar="FILE", help="Published rows as JSON.")]
Target = Annotated[str | None, typer.Option(metavar="FILE", help="Also write the rows to this path or URL.")]
Page = Annotated[
    str | None, typer.Option("--html", metavar="FILE", help="Also write an HTML page with sliders for the weights.")
]
Storage = Annotated[
    str | None,
    typer.Option(help="Storage of the audits' bundles: rows are separated by pairs of samples."),
]
Since = Annotated[str | None, typer.Option(metavar="DATE", help="Only runs begun then or later: 2026-11-28, UTC.")]


def leaderboard(
    tracking_uri: Uri = None,
    experiment: Experiments = None,
    filter_: Filters = None,
    preset: Annotated[str, typer.Option(help=_PRESET)] = "robust",
    metric: Metrics = None,
    series: Series = None,
    weight: Weights = None,
    import_: Imports = None,
    by_seed: Annotated[bool, typer.Option("--by-seed", help="One row per model instead of a mean over seeds.")] = False,
    all_runs: Annotated[bool, typer.Option("--all-runs", help="Every audit of a model, not the newest.")] = False,
    together: Annotated[bool, typer.Option("--together", help="One ranking of all settings, with a note.")] = False,
    since: Since = None,
    storage: Storage = None,
    csv: Target = None,
    parquet: Target = None,
    html: Page = None,
    json: Annotated[bool, typer.Option("--json", help="Print the boards as JSON on standard output.")] = False,
) -> None:
    """Rank audited models from MLflow. Score, Pareto front, worst class, intervals."""
    with console.exits(json):
        from rich.console import Console

        from jobs.leaderboard.leaderboard import Request, make_leaderboard
        from jobs.leaderboard.output import as_json, look, parts, write_files
        from jobs.leaderboard.presets import Choice, numbers
        from jobs.terminal.options import pairs

        filters: dict[str, tuple[str, ...]] = {}
        for key, value in pairs(filter_ or [], "--filter", "KEY=VALUE"):
            filters[key] = (*filters.get(key, ()), value)
        choice = Choice(
            preset=preset,
            metrics=tuple(metric or ()),
            series=dict(pairs(series or [], "--series", "NAME=SERIES")),
            weights=numbers(pairs(weight or [], "--weight", "NAME=NUMBER")),
        )
        request = Request(
            tracking_uri=tracking_uri,
            experiments=tuple(experiment or ()),
            filters=filters,
            choice=choice,
            imports=tuple(import_ or ()),
            by_seed=by_seed,
            all_runs=all_runs,
            together=together,
            since=_milliseconds(since),
            storage=storage,
        )
        with console.apart():
            board = make_leaderboard(request)
            written = write_files(board, csv=csv, parquet=parquet, html=html)
        if json:
            console.print_json(as_json(board))
        else:
            console.show(parts(board, Console().width), [*look(board), *written])


def _milliseconds(date: str | None) -> int:
    """Milliseconds since 1970 at that time, UTC unless it says otherwise; 0 without a date."""
    try:
        moment = datetime.fromisoformat(date) if date else None
    except ValueError:
        raise ConfigError(Problem("--since", "a date or time such as 2026-11-28", repr(date))) from None
    if moment is None:
        return 0
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
