"""What the command line prints of an audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from jobs.terminal import console
from services.errors import Problem, StorageError, counted
from services.records import SampleFacts

if TYPE_CHECKING:
    from jobs.audit.forecast.costs import Forecast
    from jobs.audit.publish import Published
    from jobs.audit.why.suspects import Suspects
    from jobs.fleetfile.reading import Fleet


@contextmanager
def junit_kept(path: Path | None) -> Iterator[None]:
    """Let the JUnit file say error from the start, so that an audit that fails or is killed leaves none that passed.

    Raises:
        StorageError: it cannot be written, before any work.
    """
    if path is None:
        yield
        return
    from tracking.report.junit import write_unfinished

    with _says_error(lambda problems: write_unfinished(str(path), problems)):
        yield


@contextmanager
def sarif_kept(path: Path | None, fleet_file: Path) -> Iterator[None]:
    """The same of the SARIF file.

    Raises:
        StorageError: it cannot be written, before any work.
    """
    if path is None:
        yield
        return
    from tracking.report.sarif import SarifTarget, write_unfinished

    target = SarifTarget(str(path), str(fleet_file))
    with _says_error(lambda problems: write_unfinished(target, problems)):
        yield


@contextmanager
def _says_error(write: Callable[[tuple[Problem, ...]], None]) -> Iterator[None]:
    """Write a file of an audit without a verdict, now and with what went wrong when something does."""
    write(())
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        with suppress(StorageError):
            write(console.as_user_error(error).problems)
        raise


def finish(published: Published, json: bool, markdown: bool = False) -> None:
    """Print the verdict and exit with the outcome's code."""
    result = published.result
    if markdown:
        from tracking.report.markdown import markdown as summary

        console.say(summary(result))
    elif json:
        from jobs.audit.publish import as_json

        console.print_json(as_json(published))
    else:
        print_result(published)
    raise typer.Exit(result.outcome.exit_code)


def planned(fleet: Fleet, costs: Forecast, facts: SampleFacts, json: bool) -> None:
    """Print what an audit would cost, and what its samples can decide."""
    from jobs.audit.forecast.cost_words import as_json, autoattack_words, cost_words, model_words
    from jobs.audit.judging.decidable import smallest_gaps, too_few
    from jobs.comparison.non_inferiority import smallest_margins

    decides = [*smallest_gaps(fleet, facts), *smallest_margins(fleet, facts), *too_few(fleet, facts)]
    if json:
        console.print_json({**as_json(costs), "decides": decides})
        return
    console.say("\n".join([*model_words(costs), *cost_words(costs), *autoattack_words(costs), *decides]))


def valid(fleet: Fleet, check: Callable[[Fleet], SampleFacts], json: bool, *, cost: bool = False) -> None:
    """Check the sources and say what the fleet is, and what change of a model its samples can decide.

    Args:
        cost: look at the models, too, and say what the audit would cost.
    """
    with console.apart():
        facts = check(fleet)
        costs = _costs(fleet) if cost else {}
        from jobs.audit.judging.decidable import too_few
        from jobs.comparison.non_inferiority import smallest_margins
        from services.records.intake import intake_notes
    series, margins = sorted(fleet.series()), list(smallest_margins(fleet, facts))
    notes = [*intake_notes(facts.intake, facts.classes, facts.counts), *too_few(fleet, facts)]
    if json:
        shape = list(facts.shape)
        models = [model.name for model in fleet.config.models]
        known = {"valid": True, "models": models, "samples": facts.count, "shape": shape, "series": series}
        unread, left_out = facts.intake.unread, facts.intake.left_out
        console.print_json(
            {**known, "margins": margins, "unread": unread, "left_out": left_out, "notes": notes, **costs}
        )
        return
    samples = f"{counted(facts.count, 'sample')} of {counted(len(facts.classes), 'class', 'classes')}"
    contents = f"{counted(len(fleet.config.models), 'model')}, {samples}, series {', '.join(series)}"
    lines = [f"valid: fleet {fleet.config.fleet}, {contents}", *margins, *notes]
    console.say("\n".join([*lines, *costs.get("cost", ())]))


def _costs(fleet: Fleet) -> dict[str, list[str]]:
    from jobs.audit.audit import forecast_audit
    from jobs.audit.forecast.cost_words import autoattack_words, cost_words
    from jobs.terminal.progress import Quiet

    costs, _ = forecast_audit(fleet, Quiet())
    return {"cost": [*cost_words(costs), *autoattack_words(costs)]}


SHOWN = 20


def suspects(suspicious: Suspects, json: bool) -> None:
    """Print the labels to look at, and accuracies with and without them."""
    from dataclasses import asdict

    from tracking.names import shorten

    table = {name: column.tolist() for name, column in suspicious.columns.items()}
    if json:
        console.print_json(
            {"written": suspicious.where, "suspects": table, "metrics": [asdict(m) for m in suspicious.metrics]}
        )
        return
    count = len(table["id"])
    lines = [f"{count:,} labels to look at, the least plausible first; the whole list is {suspicious.where}"]
    for row in range(min(count, SHOWN)):
        name = table["key"][row] if "key" in table else f"sample {table['id'][row]}"
        label, other = shorten(table["label_name"][row], 30), shorten(table["looks_like_name"][row], 30)
        lines.append(f"  {shorten(str(name), 60)}: labelled {label}, looks like {other}")
    lines.append("Clean accuracy over all samples, and without the suspects (chosen by looking: no interval holds):")
    for each in suspicious.metrics:
        whole = f"{each.all_samples:.4f} all, {each.without:.4f} without"
        worst = f"worst class {each.worst_all:.4f} all, {each.worst_without:.4f} without"
        lines.append(f"  {shorten(each.model, 40)}: {whole}; {worst}")
    console.say("\n".join(lines))


def print_result(published: Published) -> None:
    from rich.console import Console

    from tracking.report.comparison_words import comparison_words
    from tracking.report.terminal import verdict_text

    changed = comparison_words(published.comparison) if published.comparison is not None else []
    console.show([verdict_text(published.result, Console().width)], [*changed, *published.where_to_look])
