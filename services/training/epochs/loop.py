"""Train one network by one method: the loop that all methods share.

::

    report = train(network, images, labels, method=Pgd(), epochs=10, batch=64, seed=0, lr=0.05)

Arrays in, a trained network and counts out; with `storage` also checkpoints, from which the same call goes on. On the
CPU a run that was killed anywhere and started again ends in the same weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from services.errors import ConfigError, Problem
from services.training.counts import EpochRecord
from services.training.data.held_out import holdout
from services.training.data.images import Labelled, checked
from services.training.data.mixing import Extra
from services.training.epochs.listener import TrainReport
from services.training.epochs.peers import Peers
from services.training.epochs.run import Run
from services.training.epochs.stopping import never
from services.training.methods.method import Method
from services.training.recipe import Recipe

__all__ = ["TrainReport", "train"]


def train(
    network: nn.Module,
    images: NDArray[Any],
    labels: NDArray[Any],
    *,
    method: Method,
    recipe: Recipe | None = None,
    validation: tuple[NDArray[Any], NDArray[Any]] | None = None,
    classes: int | None = None,
    storage: str | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    **knobs: Any,
) -> TrainReport:
    """Train `network` in place and return what happened.

    Args:
        network: maps float32 (n, C, H, W) in [0, 1] to logits (n, K); it is moved to the recipe's device.
        images: (N, C, H, W) uint8, or float32 in [0, 1].
        labels: (N,) whole numbers in [0, K).
        method: what the loss is.
        recipe: optimiser, schedule, augmentation, averaging, selection; `knobs` replace its fields (`lr=0.1`). Where
            samples are held out and neither says `select`, the best robust epoch is kept, of plain training the best
            clean one.
        validation: held-out images and labels; None splits `recipe.holdout` of each class off, if that is above 0.
        classes: K; None takes the largest label.
        storage: folder or URL for checkpoints; a run found there goes on, if it is the same run.
        on_epoch: called with each epoch after its checkpoint is written.

    Raises:
        SourceError: images or labels are malformed, or a class has no sample.
        ConfigError: the recipe is invalid, selection, averaging or the method needs a held-out split and there is none,
            or `storage` holds another run.
    """
    chosen = "select" in knobs or (recipe is not None and "select" in recipe.model_fields_set)
    recipe = (recipe or Recipe()).changed(**knobs)
    data, held = _split(checked(images, labels, classes, "training data"), validation, recipe)
    if held is not None and not chosen:
        recipe = recipe.changed(select=method.selected_by())
    run = prepared(network, data, held, method=method, recipe=recipe, storage=storage)
    for record in epochs(run):
        if on_epoch:
            on_epoch(record)
    return run.report()


def prepared(
    network: nn.Module,
    data: Labelled,
    held: Labelled | None,
    *,
    method: Method,
    recipe: Recipe,
    storage: str | None,
    peers: Peers | None = None,
    stopping: Callable[[], bool] = never,
    extra: Extra | None = None,
) -> Run:
    """A run that is ready for its first or next epoch; `stopping` is asked after each step whether to stop.

    Raises:
        ConfigError: selection or the method needs a held-out split and there is none, or `storage` holds another run.
    """
    require_held_out(method, recipe, held is not None)
    run = Run(network, data, held, method, recipe, storage, peers, stopping, extra)
    run.resume()
    return run


def epochs(run: Run) -> Iterator[EpochRecord]:
    """The epochs of a run that are left, with the caller's random state kept apart."""
    with torch.random.fork_rng(devices=_forked(run.recipe.device)):
        yield from run.epochs()


def _split(
    data: Labelled, validation: tuple[NDArray[Any], NDArray[Any]] | None, recipe: Recipe
) -> tuple[Labelled, Labelled | None]:
    if validation is not None:
        return data, checked(*validation, data.classes, "validation data")
    if recipe.holdout == 0:
        return data, None
    kept, held = holdout(data.labels, share=recipe.holdout, seed=recipe.seed)
    return data.take(kept), data.take(held)


def require_held_out(method: Method, recipe: Recipe, held: bool) -> None:
    """Check that there is a held-out split where one is needed.

    Raises:
        ConfigError: naming everything that needs one.
    """
    needs = {
        f"method {method.name}": method.needs_validation,
        f"select={recipe.select}": recipe.select != "last",
        f"patience={recipe.patience}": recipe.patience is not None,
        "averaging=fair-ema": recipe.averaging is not None and recipe.averaging.kind == "fair-ema",
    }
    remedy = "give validation data or a recipe.holdout above 0; the test set is never used for selection"
    if not held and any(needs.values()):
        raise ConfigError(
            [Problem(what, "a held-out split to judge by", "none", remedy) for what, needed in needs.items() if needed]
        )


def _forked(device: str) -> list[torch.device]:
    return [torch.device(device)] if device.startswith("cuda") else []
