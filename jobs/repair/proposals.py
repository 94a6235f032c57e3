"""What could raise a model's worst class, cheapest first, with what each costs and how it is tried. Nothing is run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.fleetfile.reading import Fleet
from jobs.repair.fitting import FACTORS
from jobs.repair.repair import target
from jobs.repair.tuning import ADJUSTED, EPOCHS, STEPS, WEIGHTED, Tuning, hindrances, sweep_data
from services.records import Series

FAIR = ("cfa", "dafa", "wat")
"""Class-wise methods that gained in the comparison of docs/training.md, by their cost."""
MORE_PASSES = {WEIGHTED: 1, ADJUSTED: 1, "dafa": 3, "wat": 3, "cfa": 1}
"""Of an epoch, beside the steps of the attack."""
TRAIN = "npz:TRAIN.npz"


@dataclass(frozen=True)
class Proposal:
    """A remedy.

    Attributes:
        name: "offsets", or the method of a fine-tuning.
        cost: in words.
        command: that tries it; "" where it cannot be tried.
        hindrance: why not.
    """

    name: str
    cost: str
    command: str
    hindrance: str = ""


@dataclass(frozen=True)
class Proposed:
    """The remedies of a model under a series, and a sweep file that tries class-wise methods side by side."""

    model: str
    series: str
    remedies: tuple[Proposal, ...]
    sweep: str


def proposed(fleet: Fleet, fleet_file: str, model: str, *, under: str, rounds: int, tuning: Tuning | None) -> Proposed:
    """List them.

    Raises:
        ConfigError: as `repair`.
    """
    own, _, series = target(fleet, model, under)
    begin = shlex.join(["classwise", "repair", fleet_file, "--model", model, "--under", series.key])
    asked = tuning or Tuning(TRAIN)
    why = "; ".join(str(problem) for problem in hindrances(own.config, series, asked))
    shown = f" --train {shlex.quote(asked.train)}"
    audits = f"at most {1 + len(FACTORS) * rounds} audits of {series.key} on the samples of the fit, no training"
    remedies = [Proposal("offsets", audits, begin)]
    for name in (WEIGHTED, ADJUSTED, *(FAIR if series.threat is not None else ())):
        method = "" if name == WEIGHTED else f" --method {name}"
        remedies.append(Proposal(name, _passes(name, series), "" if why else begin + shown + method, why))
    more = "more training samples of the weakest classes and of those that they are taken for"
    remedies.append(Proposal("samples", f"{more}, and a training with them", "", "collect them"))
    return Proposed(
        model, series.key, tuple(remedies), "" if why or series.threat is None else _sweep(own, asked, series)
    )


def proposal_words(proposed: Proposed, fleet_file: str) -> Iterator[str]:
    """The list, and the sweep file with the command that trains and audits it."""
    yield f"Remedies for {proposed.model} under {proposed.series}, cheapest first:"
    for number, each in enumerate(proposed.remedies, 1):
        yield f"{number} {each.name}: {each.cost}"
        yield f"  {each.command}" if each.command else f"  by hand: {each.hindrance}"
    if proposed.sweep:
        audit = shlex.quote(fleet_file)
        yield f"Class-wise methods side by side: save this as sweep.yaml; classwise train sweep.yaml --audit {audit}"
        yield proposed.sweep


def _passes(method: str, series: Series) -> str:
    steps = 1 if series.threat is None else STEPS + MORE_PASSES[method]
    return f"{EPOCHS * steps} passes forward and back of each training sample ({EPOCHS} epochs), and three audits"


def _sweep(own: Fleet, tuning: Tuning, series: Series) -> str:
    import yaml

    data = sweep_data(own.config, tuning, series, list(FAIR))
    data["datasets"][0]["label"] = "own"
    kept = ("sweep", "methods", "architectures", "datasets", "recipe", "storage", "factories")
    text: str = yaml.safe_dump({name: data[name] for name in kept}, sort_keys=False, default_flow_style=None, width=116)
    return text.rstrip()
