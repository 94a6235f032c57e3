"""Before training: is the network one for these images, does the method accept it, would it fit into memory?

One batch of a few images on the CPU for each pair of network and training set, and one step of each method.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.errors import ClasswiseError, ConfigError, PreflightError, Problem, raised_at
from services.records.trials import DataFacts
from services.training.architectures.build import ARCHITECTURES, build
from services.training.data.batches import Images
from services.training.data.sets import TrainingSet
from services.training.epochs.forward import Forward
from services.training.epochs.loop import require_held_out
from services.training.methods.method import Method
from services.training.recipe import Recipe
from services.training.step import Batch

M = TypeVar("M")
PROBE = 4
KNOWN_ROWS = 128
"""Training samples on which the network that a fine-tuning starts from is tried."""
SLOW_SECONDS = 0.5
"""A network whose probe takes longer is not asked for a step of every method: that would take minutes on a CPU."""

COPIES = 8
"""Weights, gradients, momentum, the copies that a checkpoint is written from, and its bytes."""


@dataclass(frozen=True)
class Probed:
    """What a network's probe showed.

    Attributes:
        parameters: of the network.
        sample_bytes: kept for the backward pass, a sample.
        seconds: of the probe.
    """

    parameters: int
    sample_bytes: int
    seconds: float

    def needs(self, batch: int) -> int:
        """Bytes that training takes at least, without the data."""
        return self.parameters * 4 * COPIES + self.sample_bytes * batch


def fitted(name: str, options: Mapping[str, Any], facts: DataFacts) -> dict[str, Any]:
    """The options, with classes, channels and size taken from the data where the network takes them and none is given.

    Raises:
        ConfigError: the architecture is unknown.
    """
    channels, height, width = facts.shape
    known = {"classes": len(facts.classes), "channels": channels, **({"size": height} if height == width else {})}
    takes = inspect.signature(ARCHITECTURES.get(name)).parameters
    return {**{key: value for key, value in known.items() if key in takes}, **options}


def probe_network(name: str, options: Mapping[str, Any], data: TrainingSet, recipe: Recipe, where: str) -> Probed:
    """Build a network and run one batch through it, forward and backward.

    Raises:
        ConfigError: it does not build.
        PreflightError: it does not take the images, or does not give finite logits, one a class.
    """
    network = _built(name, options, where)
    began = time.perf_counter()
    batch, recipe = _probe(data), _on_cpu(recipe)
    saved = SavedBytes(network)
    try:
        with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda kept: kept):
            logits = Forward(network.train(), recipe)(batch.images)
    except Exception as error:
        wanted = f"a network that takes images {tuple(batch.images.shape[1:])}"
        remedy = "choose another, or set its channels, size or patch"
        raise PreflightError(Problem(where, wanted, raised_at(error), remedy)) from error
    _require_logits(logits, len(batch.labels), batch.classes, where)
    seconds = time.perf_counter() - began
    return Probed(sum(p.numel() for p in network.parameters()), saved.bytes // len(batch.labels), seconds)


@dataclass(frozen=True)
class StartWeights:
    """What a fine-tuning starts from: the network's state dict, and a digest of where it was read."""

    state: Mapping[str, Tensor]
    digest: str


def read_start(
    name: str,
    options: Mapping[str, Any],
    load: Callable[[nn.Module], str],
    data: TrainingSet,
    recipe: Recipe,
    where: str,
) -> tuple[StartWeights, str]:
    """The weights that a fine-tuning starts from, and whether a network with them knows the images.

    Args:
        load: puts them into the network, and returns a digest of where they were read (`load_start`).

    Returns:
        the weights, and a sentence where the network knows the images plainly better under another normalisation than
        the recipe's; else "".

    Raises:
        ClasswiseError: as `load`.
    """
    network = _built(name, options, where)
    digest = load(network)
    return StartWeights(network.state_dict(), digest), _other_normalisation(network.eval(), data, recipe, where)


def _other_normalisation(network: nn.Module, data: TrainingSet, recipe: Recipe, where: str) -> str:
    from services.loading.preflight.diagnosis import KNOWN, plainly_better

    rows = np.random.default_rng(0).permutation(len(data.train.labels))[:KNOWN_ROWS]
    part = data.train.take(np.sort(rows))
    images = Images(part.images, part.labels, torch.device("cpu"))
    channels = data.facts.shape[0]
    others = {"none": (None, None), **{each: pair for each, pair in KNOWN.items() if len(pair[0]) == channels}}

    @torch.no_grad()
    def right(mean: Any, std: Any) -> NDArray[np.bool_]:
        forward = Forward(network, _on_cpu(recipe).changed(mean=mean, std=std)).eval()
        logits = forward(images.rows(np.arange(len(part.labels))))
        known: NDArray[np.bool_] = logits.argmax(1).numpy() == part.labels
        return known

    own = right(recipe.mean, recipe.std)
    known = {each: right(*pair) for each, pair in others.items()}
    best = max(known, key=lambda each: float(known[each].mean()))
    if not plainly_better(known[best], own):
        return ""
    given = "none" if recipe.mean is None else "the recipe's mean and std"
    called = "none" if best == "none" else f"that of {best}"
    return (
        f"{where}: the network that it starts from knows {own.mean():.0%} of {len(own)} training samples under the "
        f"normalisation given ({given}) and {known[best].mean():.0%} under another ({called}): set mean and std as in "
        "its audit, or it forgets first and learns again"
    )


def probe_method(
    method: Method, name: str, options: Mapping[str, Any], data: TrainingSet, recipe: Recipe, where: str
) -> None:
    """One step of a method.

    Raises:
        PreflightError: it raises, or its loss is not finite.
    """
    network, batch = Forward(_built(name, options, where).train(), _on_cpu(recipe)), _probe(data)
    batch = Batch(batch.images, batch.labels, batch.classes, batch.generator, method.initial_state(batch.classes))
    try:
        loss = method.step(network, batch).loss
        loss.backward()  # type: ignore[no-untyped-call]
    except Exception as error:
        raise PreflightError(Problem(where, "a step of the method", raised_at(error))) from error
    if not bool(torch.isfinite(loss)):
        raise PreflightError(
            Problem(where, "a finite loss", str(float(loss.detach())), "check mean, std and the method")
        )


def check_recipe(method: Method, recipe: Recipe, data: TrainingSet, workers: int, where: str) -> list[Problem]:
    """What method and recipe ask of the data and do not find."""
    problems = []
    try:
        require_held_out(method, recipe, data.held is not None)
    except ConfigError as error:
        remedy = "give the data set a holdout above 0; the test set is never used for selection"
        problems += [Problem(f"{where}, {p.where}", p.expected, p.found, remedy) for p in error.problems]
    channels = data.facts.shape[0]
    for field in ("mean", "std"):
        values = getattr(recipe, field)
        if values is not None and len(values) not in (1, channels):
            problems.append(Problem(f"{where}, recipe.{field}", f"{channels} values, one a channel", f"{len(values)}"))
    side = min(data.facts.shape[1:])
    if recipe.crop > side:
        actual = f"{recipe.crop}"
        problems.append(Problem(f"{where}, recipe.crop", f"at most {side}, the side of the images", actual))
    if (recipe.mean is None) != (recipe.std is None):
        problems.append(Problem(f"{where}, recipe", "mean and std together, or neither", "one of them"))
    if workers > 1 and recipe.batch < 2 * workers:
        actual = f"recipe.batch {recipe.batch}"
        problems.append(Problem(where, f"a batch of at least 2 samples for each of {workers} workers", actual))
    return problems


class SavedBytes:
    """Adds up what autograd keeps for the backward pass, each storage once and weights never."""

    def __init__(self, *networks: nn.Module) -> None:
        self._seen = {p.untyped_storage().data_ptr() for network in networks for p in network.parameters()}
        self.bytes = 0

    def keep(self, tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in self._seen:
            self._seen.add(place)
            self.bytes += tensor.untyped_storage().nbytes()
        return tensor


def built(make: Callable[[], M], where: str) -> M:
    """What `make` builds.

    Raises:
        ConfigError: it does not, for whatever reason; memory is one.
    """
    try:
        return make()
    except ClasswiseError as error:
        raise ConfigError(
            [Problem(f"{where}, {p.where}", p.expected, p.found, p.remedy) for p in error.problems]
        ) from error
    except Exception as error:
        raise ConfigError(Problem(where, "arguments from which it builds", raised_at(error))) from error


def _built(name: str, options: Mapping[str, Any], where: str) -> nn.Module:
    return built(lambda: build(name, seed=0, **options), where)


def _on_cpu(recipe: Recipe) -> Recipe:
    return recipe.changed(device="cpu", precision="float32")


def probe_rows(data: TrainingSet) -> NDArray[np.int64]:
    """Rows of a few images of different classes."""
    rows = np.unique(data.train.labels, return_index=True)[1][:PROBE]
    return np.resize(rows, PROBE).astype(np.int64)


def _probe(data: TrainingSet) -> Batch:
    """A few images of different classes."""
    part = data.train.take(probe_rows(data))
    images = Images(part.images, part.labels, torch.device("cpu"))
    source = torch.Generator().manual_seed(0)
    return Batch(images.rows(np.arange(PROBE)), images.labels, data.train.classes, source)


def _require_logits(logits: Any, count: int, classes: int, where: str) -> None:
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if shape != (count, classes):
        remedy = "leave `classes` out, so that it is taken from the data"
        raise PreflightError(Problem(where, f"logits {(count, classes)}, one a class", str(shape), remedy))
    if not bool(torch.isfinite(logits).all()):
        raise PreflightError(
            Problem(where, "finite logits of a fresh network", "NaN or infinity", "check mean and std")
        )
