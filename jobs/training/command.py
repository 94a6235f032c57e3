"""What `classwise train` does and prints: preflight, training, audit, a table of trials, the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jobs.audit import output
from jobs.terminal import console
from services.errors import counted
from services.records.trials import FactorGap, MapperFacts, SweepResult, TrialResult
from services.telemetry import logs
from tracking.names import shorten

if TYPE_CHECKING:
    from jobs.training.progress import TrainReporter
    from jobs.training.sweep_plan import TrainPlan
    from jobs.training.sweep_run import Trained
    from jobs.training.sweepfile import Sweep
    from jobs.training.train_audit import TrainedAndAudited

NAME = 21
"""Characters of a name in a table of 80 columns."""

MIXED = 5
"""Columns of numbers when networks and mappers share a table; names get less room then."""

SEVERITY = (2, 1, 3, 0)
"""Exit codes, the one that counts first: error, fail, undecided, pass."""


def train(
    sweep_file: Path,
    audit: Path | None,
    *,
    storage: str | None,
    runner: str | None,
    track: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Train a sweep, audit its networks where a template is given, print both, exit with the worse code."""
    from jobs.training.sweepfile import load_sweep, overridden

    options = {"storage": storage, "runner": runner, "track": track}
    sweep = overridden(load_sweep(sweep_file), **options)  # type: ignore[arg-type]
    if audit is None:
        from jobs.training.sweep_run import run_sweep

        with reporter(quiet or json) as training:
            trained = run_sweep(sweep, training)
        _finish(trained, None, json)
        return
    from jobs.training.sweep_run import run_sweep
    from jobs.training.train_audit import audit_trained, check_template, load_template

    template = load_template(audit)
    with reporter(quiet or json) as training:
        trained = run_sweep(sweep, training, check=lambda plan: check_template(template, sweep, plan, **options))
    with console.reporter(quiet or json) as auditing:
        audited = audit_trained(template, sweep, trained, auditing, **options)
    _finish(audited.trained if audited else trained, audited, json)


def check(sweep_file: Path, audit: Path | None, json: bool) -> None:
    """Do all that comes before training, and say what the sweep is."""
    from jobs.training.sweep_plan import plan_training
    from jobs.training.sweepfile import load_sweep
    from jobs.training.train_audit import check_template, load_template

    sweep = load_sweep(sweep_file)
    with console.apart():
        plan = plan_training(sweep)
        if audit is not None:
            check_template(load_template(audit), sweep, plan)
    _say_valid(sweep, plan, json)


@contextmanager
def reporter(quiet: bool) -> Iterator[TrainReporter]:
    """Progress on standard error: a live table on a terminal, lines on a pipe, or nothing."""
    from rich.console import Console

    from jobs.training.log import LoggedTraining
    from jobs.training.progress import QuietTraining, TrainTerminal

    with console.apart():
        if logs.is_json():
            yield LoggedTraining()
            return
        if quiet:
            yield QuietTraining()
            return
        with TrainTerminal(Console(stderr=True)) as terminal:
            yield terminal


def show(folder: str, json: bool) -> None:
    """Print the trials of a finished sweep."""
    from tracking.bundle.training_bundle import read_sweep

    result = read_sweep(folder)
    if json:
        console.print_json(_sweep_json(result, folder, ()))
    else:
        _print(result)
    raise typer.Exit(result.exit_code)


def _say_valid(sweep: Sweep, plan: TrainPlan, json: bool) -> None:
    names = [item.task.name for item in plan.trials]
    counts = {label: sum(data.facts.train) for label, data in plan.sets.items()}
    if json:
        console.print_json({"valid": True, "trials": names, "samples": counts, "notes": list(plan.notes)})
        return
    sets = ", ".join(f"{label} ({counted(count, 'sample')})" for label, count in counts.items())
    console.say(f"valid: sweep {sweep.config.sweep}, {counted(len(names), 'trial')} on {sets}: {', '.join(names[:20])}")
    for note in plan.notes:
        console.say(note)


def _finish(trained: Trained, audited: TrainedAndAudited | None, json: bool) -> None:
    codes = {trained.result.exit_code, *((audited.audit.result.outcome.exit_code,) if audited else ())}
    code = next(code for code in SEVERITY if code in codes)
    if json:
        from jobs.audit.publish import as_json

        body = _sweep_json(trained.result, trained.folder, trained.where_to_look)
        if audited:
            on_training = [as_json(published) for published in audited.on_training]
            body |= {"audit": as_json(audited.audit), "audits_on_training": on_training}
        console.print_json(body)
    else:
        if audited:
            output.print_result(audited.audit)
        _print(trained.result, trained.where_to_look)
    raise typer.Exit(code)


def _sweep_json(result: SweepResult, folder: str, look: Sequence[str]) -> dict[str, Any]:
    from pydantic import TypeAdapter

    body: dict[str, Any] = TypeAdapter(SweepResult).dump_python(result, mode="json")
    return {"folder": folder, "look": list(look), "outcome": result.outcome, **body}


def _print(result: SweepResult, lines: Sequence[str] = ()) -> None:
    """The trials, what went wrong with them, how well they generalise, and where their networks are."""
    tables = [_trials_table(result.trials, f"{result.sweep}: {result.outcome}")]
    tables += [_gaps_table(result.trials)] if any(trial.generalisation for trial in result.trials) else []
    faults = [_fault(trial) for trial in result.trials if not trial.usable or (trial.mapper and trial.reason)]
    console.show(tables, [*faults, *(line for trial in result.trials for line in _sources(trial)), *lines])


def _sources(trial: TrialResult) -> Iterator[str]:
    """Where a trained network or mapper is, and what the columns of a conditional mapper stand for."""
    if trial.uri:
        yield f"{trial.name}  {trial.uri}"
    if trial.mapper is not None:
        yield from (f"{trial.name}  {line}" for line in _of_mapper(trial.mapper))


def _of_mapper(mapper: MapperFacts) -> Iterator[str]:
    if mapper.generator:
        yield mapper.generator
    if mapper.names:
        yield f"names: {{{', '.join(f'{column}: {dumps(name)}' for column, name in mapper.names.items())}}}"
    psnr = "" if mapper.psnr is None else f", PSNR {mapper.psnr:.1f} dB"
    gaps = [f"{name} {_gap(factor)}" for name, factor in mapper.factors.items()]
    information = f"; mutual information gap: {', '.join(gaps)}" if gaps else ""
    yield f"{mapper.active} of {mapper.latents} latents in use{psnr}{information}"


def _gap(factor: FactorGap) -> str:
    return factor.gap.reason if factor.gap.value is None else f"{factor.gap.value:.2f} (column {factor.latent})"


def _fault(trial: TrialResult) -> str:
    kept = f"; last good weights: {trial.weights}" if trial.weights and not trial.usable else ""
    return f"{trial.name} {trial.state}: {trial.reason}{kept}"


def _trials_table(trials: Sequence[TrialResult], title: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from jobs.training.progress import STYLES, cells, columns_of, duration

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 0), pad_edge=False)
    table.add_column("trial", no_wrap=True)
    table.add_column("state", no_wrap=True)
    names = columns_of({trial.kind for trial in trials})
    room = NAME if len(names) < MIXED else NAME - 5
    for name in ("epochs", "kept", *names, "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for trial in trials:
        kept = "-" if trial.selected is None else str(trial.selected + 1)
        state = Text(trial.state, STYLES[trial.state])
        time = duration(trial.seconds)
        called, numbers = Text(shorten(trial.name, room)), cells(trial.chosen, names)
        table.add_row(called, state, str(trial.epochs), kept, *numbers, time)
    return table


def _gaps_table(trials: Sequence[TrialResult]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = "generalisation error: train minus test"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 0), pad_edge=False)
    for name in ("trial", "measure"):
        table.add_column(name, no_wrap=True)
    for name in ("train", "test", "GE", "low", "high"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    for trial in trials:
        for index, gap in enumerate(trial.generalisation):
            head = "" if index else shorten(trial.name, NAME)
            values = (gap.train.value, gap.test.value, gap.gap.value, gap.gap.low, gap.gap.high)
            table.add_row(Text(head), shorten(gap.lens, NAME), *("-" if v is None else f"{v:.3f}" for v in values))
    return table
