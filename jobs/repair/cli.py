"""The command ``classwise repair``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.terminal import console, own_modules
from jobs.terminal.options import FleetStorage, Json

if TYPE_CHECKING:
    from jobs.fleetfile.reading import Fleet
    from jobs.repair.repair import Repaired

_UNDER = "Series whose worst class is to rise: pgd20/linf-8/255. Default: of the first gate that has one, or an attack."
_TRAIN = "Source of training samples: fine-tunes the network, where offsets are fitted without it."
_METHOD = "Training method, by name or as YAML: {name: trades, beta: 4}. Its radius is that of the series."
_RECIPE = "What differs from the recipe of the fine-tuning, as YAML: {epochs: 3, lr: 0.01, flip: true}."
_ARCHITECTURE = "Architecture to train, where the model's source is no factory: of one: {name: resnet18, width: 0.25}."
_PROPOSE = "List the remedies, cheapest first, with their costs and commands, and run none."
_REGISTER = "Register the network in MLflow under this name, where the fresh samples show the repair. No alias moves."
_LOSS = "How much of the mean may be given up for the worst class, in the series' unit."


def repair(
    fleet_file: Annotated[Path, typer.Argument(metavar="FLEET_FILE", help="The fleet file of the model.")],
    model: Annotated[str, typer.Option(help="The model to repair, by its name in the fleet file.")],
    under: Annotated[str, typer.Option(metavar="SERIES", help=_UNDER)] = "",
    rounds: Annotated[int, typer.Option(min=1, max=50, help="Rounds of the fit, three candidates each.")] = 6,
    most_loss: Annotated[float, typer.Option(min=0, help=_LOSS)] = 0.05,
    train: Annotated[str, typer.Option(metavar="SAMPLES", help=_TRAIN)] = "",
    method: Annotated[str, typer.Option(help=_METHOD)] = "weighted",
    recipe: Annotated[str, typer.Option(help=_RECIPE)] = "{}",
    architecture: Annotated[str, typer.Option(help=_ARCHITECTURE)] = "",
    propose: Annotated[bool, typer.Option("--propose", help=_PROPOSE)] = False,
    register: Annotated[str, typer.Option(metavar="NAME", help=_REGISTER)] = "",
    storage: FleetStorage = None,
    runner: Annotated[str | None, typer.Option(help="ray or local, instead of the fleet file's.")] = None,
    track: Annotated[bool, typer.Option("--track/--no-track", help="Whether to log to MLflow.")] = True,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Raise a model's worst class by class offsets or a fine-tuning. Shown on samples that took no part.

    Exit codes: 0 repaired, 1 the worst class is worse, 3 not shown, 2 error.
    """
    with console.exits(json):
        own_modules.find_here()
        from jobs.fleetfile.reading import load_fleet, overridden
        from jobs.repair.record import OPEN, WORSE
        from jobs.repair.registering import register as registered
        from jobs.repair.registering import require_tracking
        from jobs.repair.repair import repair as run
        from jobs.repair.tuning import asked_for
        from services.measures.parts.threats import key_as_written

        tuning = asked_for(train, method, recipe, architecture)
        fleet = overridden(load_fleet(fleet_file), storage=storage, runner=runner, track=track)
        if propose:
            _propose(fleet, fleet_file, model, json, under=key_as_written(under), rounds=rounds, tuning=tuning)
            return
        require_tracking(fleet, register)
        with console.reporter(quiet or json) as reporter:
            under = key_as_written(under)
            done = run(fleet, model, reporter, under=under, rounds=rounds, most_loss=most_loss, tuning=tuning)
        if done is None:
            what = "no offsets" if tuning is None else "no fine-tuning"
            console.say(f"{model}: {what} did better on the samples of the fit; nothing else was audited")
            raise typer.Exit(3)
        _finish(done, json, [registered(fleet, done, register)] if register else [])
        raise typer.Exit({WORSE: 1, OPEN: 3}.get(done.repair.verdict, 0))


def _propose(fleet: Fleet, fleet_file: Path, model: str, json: bool, **options: Any) -> None:
    from dataclasses import asdict

    from jobs.repair.proposals import proposal_words, proposed

    remedies = proposed(fleet, str(fleet_file), model, **options)
    if json:
        console.print_json(asdict(remedies))
        return
    for line in proposal_words(remedies, str(fleet_file)):
        console.say(line)


def _finish(done: Repaired, json: bool, registered: list[str]) -> None:
    from dataclasses import asdict

    from jobs.repair.words import repair_words

    if json:
        others = [{**asdict(each), "verdict": each.verdict} for each in done.remedies]
        console.print_json(
            {**asdict(done.repair), "verdict": done.repair.verdict, "remedies": others, "notes": registered}
        )
        return
    for line in [
        *repair_words(done.repair, done.comparison, done.remedies),
        *registered,
        *done.published.where_to_look,
    ]:
        console.say(line)
