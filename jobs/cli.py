"""The command line: it parses, calls one job, and turns outcomes and errors into exit codes.

Exit codes: 0 pass, 1 fail, 2 error, 3 undecided, 130 stopped; 4 for a submitted audit that crashed. Heavy imports
happen inside the commands.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from jobs.api.cli import dashboard, serve
from jobs.audit import output
from jobs.comparison import cli as overtime
from jobs.leaderboard.cli import leaderboard
from jobs.repair.cli import repair
from jobs.schedules import cli as schedules
from jobs.submission import cli as service
from jobs.terminal import console, log_setting, own_modules
from jobs.upkeep.doctor_cli import doctor, sources
from jobs.upkeep.prune_cli import prune
from services.errors import Interrupted

app = typer.Typer(
    name="classwise",
    help="Audit fleets of image classifiers class by class. Exit codes: 0 pass, 1 fail, 2 error, 3 undecided.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

FleetFile = Annotated[
    Path, typer.Argument(metavar="FLEET_FILE", help="Fleet file (YAML); deploy/examples/ has one for each case.")
]
JobFile = Annotated[Path, typer.Argument(metavar="JOB_FILE", help="Fleet file or sweep file (YAML).")]
SweepFile = Annotated[Path, typer.Argument(metavar="SWEEP_FILE", help="Sweep file (YAML); deploy/examples/ has some.")]
Template = Annotated[
    Path | None, typer.Option("--audit", metavar="FILE", help="Audit the trained networks by this fleet file.")
]
Bundle = Annotated[
    str,
    typer.Argument(
        metavar="BUNDLE",
        help="Folder or URL of a bundle, STORAGE/audits/FLEET/AUDIT, or a sweep, STORAGE/training/SWEEP.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output, and no progress.")]
Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write the verdicts as JUnit XML.")]
Sarif = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Also write what did not pass, or got worse, as SARIF.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
ExportKind = Literal["parquet", "csv", "coco", "fiftyone"]
Storage = Annotated[str | None, typer.Option(help="Use this storage instead of the file's.")]
Runner = Annotated[str | None, typer.Option(help="ray or local, instead of resources.runner.")]
Decide = Annotated[str | None, typer.Option(help="full, or early: measure as many samples as the gates need.")]
Figures = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Draw charts as PNG files into the bundle and MLflow.")
]
Track = Annotated[bool, typer.Option("--track/--no-track", help="Log to MLflow now, or later with classwise sync.")]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"classwise {version('classwise')}")
        raise typer.Exit


@app.callback()
def started(
    log_format: log_setting.Format = None,
    log_level: log_setting.Level = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Audit fleets of image classifiers class by class. Exit codes: 0 pass, 1 fail, 2 error, 3 undecided."""
    with console.exits(json=False):
        log_setting.start_logging(log_format, log_level)


@app.command()
def audit(
    fleet_file: FleetFile,
    storage: Storage = None,
    runner: Runner = None,
    track: Track = True,
    junit: Junit = None,
    sarif: Sarif = None,
    decide: Decide = None,
    figures: Figures = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Audit a fleet of models. Ends in a verdict, a bundle, a report and MLflow runs."""
    with console.exits(json), output.junit_kept(junit), output.sarif_kept(sarif, fleet_file):
        own_modules.find_here()
        from jobs.fleetfile.reading import load_fleet, overridden

        fleet = overridden(
            load_fleet(fleet_file), storage=storage, runner=runner, track=track, decide=decide, figures=figures
        )
        from jobs.audit.publish import audit_and_publish, sarif_target

        target = sarif_target(sarif, fleet_file) if sarif is not None else None
        with console.reporter(quiet or json) as reporter:
            published = audit_and_publish(fleet, reporter, junit=junit, sarif=target)
        output.finish(published, json)


@app.command()
def plan(
    fleet_file: FleetFile,
    storage: Storage = None,
    runner: Runner = None,
    decide: Decide = None,
    price: Annotated[
        float | None, typer.Option(help="Of an hour of a GPU (of a worker without one), instead of resources.price.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what an audit would cost and what its samples can decide."""
    with console.exits(json):
        own_modules.find_here()
        from jobs.fleetfile.reading import load_fleet, overridden

        fleet = overridden(load_fleet(fleet_file), storage=storage, runner=runner, decide=decide, price=price)
        from jobs.audit.audit import forecast_audit

        with console.reporter(quiet or json) as reporter:
            found, facts = forecast_audit(fleet, reporter)
        output.planned(fleet, found, facts, json)


@app.command()
def demo(
    storage: Annotated[str, typer.Option(help="Where to put the demo's models and results.")] = "classwise-runs",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train three small networks and audit them. No download, no server."""
    with console.exits(json):
        from jobs.demo import run_demo

        with console.reporter(quiet or json) as reporter:
            published = run_demo(storage, reporter)
        output.finish(published, json)


@app.command()
def train(
    sweep_file: SweepFile,
    audit: Template = None,
    storage: Storage = None,
    runner: Runner = None,
    track: Track = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a sweep, and audit what comes out. Method x architecture x data set x seed."""
    with console.exits(json):
        own_modules.find_here()
        from jobs.training import command

        command.train(sweep_file, audit, storage=storage, runner=runner, track=track, json=json, quiet=quiet)


@app.command()
def validate(
    job_file: JobFile,
    audit: Template = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Also look at every model, and say what the audit would cost.")
    ] = False,
    json: Json = False,
) -> None:
    """Check a fleet or sweep file. Its sources are read, but no model runs; of a sweep, all before the first epoch."""
    with console.exits(json):
        own_modules.find_here()
        from jobs.fleetfile.yamlfile import has_key

        if has_key(job_file, "sweep"):
            from jobs.training import command

            command.check(job_file, audit, json)
            return
        from jobs.audit.other_samples.generated import validate_sources
        from jobs.fleetfile.reading import load_fleet

        output.valid(load_fleet(job_file), validate_sources, json, cost=cost)


@app.command()
def schema(
    sweep: Annotated[bool, typer.Option("--sweep", help="The schema of sweep files instead.")] = False,
    result: Annotated[bool, typer.Option("--result", help="The schema of what --json prints of an audit.")] = False,
) -> None:
    """Print the JSON Schema of the files. For editors."""
    with console.exits(json=False):
        from jobs.fleetfile.reading import json_schema
        from jobs.training.sweepfile import sweep_schema

        if result:
            from jobs.audit.publish import result_schema

            console.print_json(result_schema())
            return
        console.print_json(sweep_schema() if sweep else json_schema())


@app.command()
def show(
    bundle: Bundle,
    json: Json = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown: for the summary of a CI run or a pull request.")
    ] = False,
) -> None:
    """Print a finished audit or sweep."""
    with console.exits(json):
        from tracking.bundle.training_bundle import is_sweep

        if is_sweep(bundle):
            from jobs.training import command

            command.show(bundle, json)
        from jobs.audit.publish import read_published

        output.finish(read_published(bundle), json, markdown)


@app.command()
def export(
    bundle: Bundle,
    to: Annotated[ExportKind, typer.Option(help="The format.")] = "parquet",
    out: Annotated[str, typer.Option(help="File, for fiftyone a folder; default: the bundle's folder export.")] = "",
    json: Json = False,
) -> None:
    """Write an audit's samples and scores for other tools."""
    with console.exits(json):
        from jobs.audit.exports.formats import export as write

        where, count = write(bundle, to, out)
        if json:
            console.print_json({"written": where, "count": count})
        else:
            console.say(f"wrote {count:,} {'rows' if to in ('parquet', 'csv') else 'samples'} to {where}")


@app.command()
def suspects(bundle: Bundle, json: Json = False) -> None:
    """List labels that look wrong (cleanlab)."""
    with console.exits(json):
        from jobs.audit.why.suspects import find_suspects

        output.suspects(find_suspects(bundle), json)


@app.command()
def sync(
    bundle: Bundle,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow server; default: that of the audit or sweep.")
    ] = None,
) -> None:
    """Upload to MLflow what could not be. A bundle or a sweep."""
    with console.exits(json=False):
        from jobs.upkeep.sync import sync_bundle

        console.say(sync_bundle(bundle, tracking_uri))


app.command()(leaderboard)
app.command()(repair)
app.command()(prune)
app.command()(doctor)
app.command()(sources)
app.command()(dashboard)
app.command()(serve)
service.add_to(app)
overtime.add_to(app)
app.add_typer(schedules.app)


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except SystemExit as end:
        if end.code == Interrupted.exit_code:
            _leave(Interrupted.exit_code)
        raise


def _leave(code: int) -> NoReturn:
    """Exit with this code, whatever CPython remembers.

    A `KeyboardInterrupt` that passed through `exec` (dataclasses use it while modules are imported) makes CPython die
    of SIGINT at its very end, though it was handled: a scheduler would see a crash.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
