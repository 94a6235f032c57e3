"""An epoch of which some steps are done: what a run that was stopped within it goes on from, to the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from services.errors import Problem, StorageError
from services.storage import files
from services.training.epochs.checkpoints import below, load_tensors, save_weights
from services.training.epochs.evaluation import Tally

HALFWAY = "halfway.safetensors"


@dataclass(frozen=True)
class Halfway:
    """Where an epoch stood after some of its steps.

    Attributes:
        identity: of the run, as that of its `Progress`.
        epoch, steps: the epoch, and how many of its steps are done; all of them where judging was interrupted.
        seconds: spent in the epoch.
        model, momentum: as in `Progress`.
        total: sum of the losses.
        shadow: average over the steps; empty without one.
        tally: what was taken down of the training stream.
    """

    identity: str
    epoch: int
    steps: int
    seconds: float
    total: Tensor
    model: Mapping[str, Tensor]
    momentum: Mapping[str, Tensor]
    shadow: Mapping[str, Tensor]
    tally: Mapping[str, Tensor]


@dataclass
class Underway:
    """An epoch in whose steps a run is.

    Attributes:
        began: on the clock of `time.perf_counter`, less what the steps before a stop took.
        total: sum of the losses.
    """

    epoch: int
    tally: Tally
    total: Tensor
    began: float
    steps: int = 0


PARTS = ("model", "momentum", "shadow", "tally")


def save_halfway(folder: str, halfway: Halfway) -> None:
    """Write it beside the progress of the run."""
    tensors = {f"{part}.{name}": value for part in PARTS for name, value in getattr(halfway, part).items()}
    tensors["total"] = halfway.total
    facts = {name: getattr(halfway, name) for name in ("identity", "epoch", "steps", "seconds")}
    save_weights(files.join(folder, HALFWAY), tensors, facts)


def drop_halfway(folder: str) -> None:
    """Remove it: the epoch is over."""
    files.remove(files.join(folder, HALFWAY))


def load_halfway(folder: str, identity: str, epoch: int) -> Halfway | None:
    """What is kept of an epoch of a run; None where there is nothing, or what is kept is of another.

    Raises:
        StorageError: the file is damaged.
    """
    url = files.join(folder, HALFWAY)
    if not files.exists(url):
        return None
    tensors, facts = load_tensors(url)
    try:
        done = (facts["identity"], facts["epoch"], facts["steps"], facts["seconds"], tensors["total"])
        own = Halfway(*done, *(below(f"{part}.", tensors) for part in PARTS))
    except KeyError as error:
        actual, remedy = f"a file without {error}", "remove it and train again"
        raise StorageError(Problem(url, "the steps of an epoch", actual, remedy)) from error
    return own if (own.identity, own.epoch) == (identity, epoch) else None
