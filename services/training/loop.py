"""Train one network by one method: the loop that all methods share.

::

    report = train(network, images, labels, method=Pgd(), epochs=10, batch=64, seed=0, lr=0.05)

Arrays in, a trained network and counts out; with `storage` also checkpoints, from which the same call goes on. On the
CPU a run that was killed anywhere and started again ends in the same weights, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services import storage as files
from services.errors import ConfigError, Problem
from services.training.batches import Epoch, Images
from services.training.checkpoints import (
    MODEL,
    Progress,
    load_progress,
    load_weights,
    plain,
    save_progress,
    save_weights,
)
from services.training.data import Labelled, checked, identity_of
from services.training.evaluation import EpochRecord, Tally, evaluate
from services.training.keys import Purpose, number, seed_layers
from services.training.methods.base import Batch, Method, State, StepResult
from services.training.recipe import Recipe
from services.training.selection import best_epoch, is_out_of_patience
from services.training.sgd import Sgd
from services.training.splits import holdout

CHECK_EVERY = 50
"""Steps between looks at the loss: each look waits for the device."""


class Diverged(Exception):
    """The loss or a weight is no longer finite; caught by `train`, which keeps the last good epoch."""


@dataclass(frozen=True)
class TrainReport:
    """What a training run did. The network it was given now holds the selected weights, in evaluation mode.

    Attributes:
        records: one an epoch that ended well.
        selected: the epoch whose weights were kept; None when no epoch ended well.
        stopped: "finished", "early-stop" or "diverged".
        reason: why it stopped before its last epoch, a sentence; "" when finished.
        resumed_at: epochs that were found done; 0 for a fresh run.
        method, recipe: canonical JSON.
    """

    records: tuple[EpochRecord, ...]
    selected: int | None
    stopped: str
    reason: str
    resumed_at: int
    method: str
    recipe: str


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
        recipe: optimiser, schedule, augmentation, selection; `knobs` replace its fields (`epochs=3, lr=0.1`).
        validation: held-out images and labels; None splits `recipe.holdout` of each class off, if that is above 0.
        classes: K; None takes the largest label.
        storage: folder or URL for checkpoints; a run found there goes on, if it is the same run.
        on_epoch: told of each epoch after its checkpoint is written.

    Raises:
        SourceError: images or labels are malformed, or a class has no sample.
        ConfigError: the recipe is invalid, selection or the method needs a held-out split and there is none, or
            `storage` holds another run.
    """
    recipe = (recipe or Recipe()).changed(**knobs)
    data, held = _split(checked(images, labels, classes, "training data"), validation, recipe)
    _require_held_out(method, recipe, held)
    with torch.random.fork_rng(devices=_forked(recipe.device)):
        return _Run(network, data, held, method, recipe, storage).go(on_epoch)


def _split(
    data: Labelled, validation: tuple[NDArray[Any], NDArray[Any]] | None, recipe: Recipe
) -> tuple[Labelled, Labelled | None]:
    if validation is not None:
        return data, checked(*validation, data.classes, "validation data")
    if recipe.holdout == 0:
        return data, None
    kept, held = holdout(data.labels, share=recipe.holdout, seed=recipe.seed)
    return data.take(kept), data.take(held)


def _require_held_out(method: Method, recipe: Recipe, held: Labelled | None) -> None:
    asked = {
        f"method {method.name}": method.needs_validation,
        f"select={recipe.select}": recipe.select != "last",
        f"patience={recipe.patience}": recipe.patience is not None,
    }
    remedy = "give validation data or a recipe.holdout above 0; the test set is never used for selection"
    if held is None and any(asked.values()):
        raise ConfigError(
            [Problem(what, "a held-out split to judge by", "none", remedy) for what, needs in asked.items() if needs]
        )


def _forked(device: str) -> list[torch.device]:
    return [torch.device(device)] if device.startswith("cuda") else []


class _Precise(nn.Module):
    """The network behind normalisation, under autocast, its logits as float32, in the memory format asked for."""

    def __init__(self, network: nn.Module, recipe: Recipe) -> None:
        super().__init__()
        self.network = network
        self._device = torch.device(recipe.device).type
        self._low = recipe.precision == "bfloat16"
        self._normal = None if recipe.mean is None or recipe.std is None else _vectors(recipe)
        self._format = torch.channels_last if recipe.channels_last else torch.contiguous_format

    def forward(self, images: Tensor) -> Tensor:
        if self._normal is not None:
            images = (images - self._normal[0]) / self._normal[1]
        with torch.autocast(self._device, torch.bfloat16, enabled=self._low):
            logits: Tensor = self.network(images.contiguous(memory_format=self._format))
        return logits.float()


def _vectors(recipe: Recipe) -> tuple[Tensor, Tensor]:
    mean, std = (torch.tensor(values, device=recipe.device).view(1, -1, 1, 1) for values in (recipe.mean, recipe.std))
    return mean, std


class _Run:
    """One training run, from its first or a later epoch to its end."""

    def __init__(
        self,
        network: nn.Module,
        data: Labelled,
        held: Labelled | None,
        method: Method,
        recipe: Recipe,
        storage: str | None,
    ) -> None:
        self.method, self.recipe, self.storage, self.classes = method, recipe, storage, data.classes
        self.device = torch.device(recipe.device)
        layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.network = network.to(self.device).to(memory_format=layout)  # type: ignore[call-overload]
        self.forward = _Precise(self.network, recipe)
        self.data = Images(data.images, data.labels, self.device)
        self.held = None if held is None else Images(held.images, held.labels, self.device)
        self.optimizer = Sgd(
            network, momentum=recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov
        )
        self.identity = identity_of(method.canonical(), recipe.canonical(), network, data, held) if storage else ""
        self.progress = Progress(self.identity, self._weights(), {}, method.initial_state(data.classes), ())
        self.kept = self.progress.model

    def go(self, on_epoch: Callable[[EpochRecord], None] | None) -> TrainReport:
        """Run the epochs that are left and put the selected weights into the network."""
        self._resume()
        resumed_at = len(self.progress.records)
        while not self.progress.stopped:
            if self._advance() and on_epoch:
                on_epoch(self.progress.records[-1])
        self.network.load_state_dict(self.kept)
        self.network.eval()
        done, selected = self.progress, best_epoch(self.progress.records, self.recipe.select)
        return TrainReport(
            done.records,
            selected,
            done.stopped,
            done.reason,
            resumed_at,
            self.method.canonical(),
            self.recipe.canonical(),
        )

    def _resume(self) -> None:
        found = load_progress(self.storage) if self.storage else None
        if found is None:
            return
        if found.identity != self.identity:
            remedy = "choose another storage folder, or repeat the call with what it was started with"
            where = str(self.storage)
            raise ConfigError(Problem(where, "progress of this very run", "that of another method or data", remedy))
        self.progress, self.kept = found, found.model
        self._restore(found)
        if found.records:
            self.kept = load_weights(files.join(str(self.storage), MODEL))

    def _restore(self, progress: Progress) -> None:
        self.network.load_state_dict(progress.model)
        self.optimizer.load(progress.momentum)

    def _advance(self) -> bool:
        """Do one epoch and save it; False when it diverged, and the last good epoch stays what is saved."""
        before = self.progress
        try:
            record = self._epoch(len(before.records), before)
        except Diverged as error:
            self._save(
                Progress(
                    before.identity, before.model, before.momentum, before.state, before.records, "diverged", str(error)
                )
            )
            return False
        records = (*before.records, record)
        stopped, reason = self._stop(records)
        state = self.method.next_state(before.state, record)
        weights = self._weights()
        if best_epoch(records, self.recipe.select) == record.epoch:
            self._keep(weights, record.epoch)
        self._save(Progress(before.identity, weights, self._momentum(), state, records, stopped, reason))
        return True

    def _stop(self, records: tuple[EpochRecord, ...]) -> tuple[str, str]:
        if len(records) >= self.recipe.epochs:
            return "finished", ""
        if is_out_of_patience(records, self.recipe.select, self.recipe.patience):
            return "early-stop", f"no better held-out {self.recipe.select} accuracy in {self.recipe.patience} epochs"
        return "", ""

    def _keep(self, weights: dict[str, Tensor], epoch: int) -> None:
        self.kept = weights
        if self.storage:
            facts = {"epoch": epoch, "method": self.method.canonical(), "recipe": self.recipe.canonical()}
            save_weights(files.join(self.storage, MODEL), weights, facts)

    def _save(self, progress: Progress) -> None:
        self.progress = progress
        if self.storage:
            save_progress(self.storage, progress)

    def _epoch(self, epoch: int, progress: Progress) -> EpochRecord:
        began, rate = time.perf_counter(), self.recipe.rate(epoch)
        tally, total = Tally(self.classes, self.device), torch.zeros((), dtype=torch.float64, device=self.device)
        self.network.train()
        r = self.recipe
        batches = Epoch(self.data, batch=r.batch, seed=r.seed, epoch=epoch, crop=r.crop, flip=r.flip)
        for step, (images, labels) in enumerate(batches):
            result = self._step(epoch, step, images, labels, progress.state)
            total += result.loss.detach() * len(labels)
            tally.step(labels, result.clean, result.robust)
            if step % CHECK_EVERY == 0:
                self._require_finite(total, epoch, step)
        self._require_finite(total + sum(p.detach().sum() for p in self.network.parameters()), epoch, step)
        held = self._validate()
        seconds = time.perf_counter() - began
        return EpochRecord(epoch, rate, len(self.data), float(total), tally.counts(), held, seconds)

    def _step(self, epoch: int, step: int, images: Tensor, labels: Tensor, state: State) -> StepResult:
        seed, rate = self.recipe.seed, self.recipe.rate(epoch)
        seed_layers(self.device, number(seed, Purpose.LAYERS, epoch, step))
        source = torch.Generator(self.device).manual_seed(number(seed, Purpose.NOISE, epoch, step))
        result = self.method.step(self.forward, Batch(images, labels, self.classes, source, state))
        self.optimizer.clear()
        result.loss.backward()  # type: ignore[no-untyped-call]
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimizer.step(rate)
        return result

    def _validate(self) -> Any:
        if self.held is None:
            return None
        return evaluate(
            self.forward,
            self.held,
            self.classes,
            attack=self.recipe.attack or self.method.attack(),
            batch=self.recipe.batch,
            seed=self.recipe.seed,
        )

    @staticmethod
    def _require_finite(value: Tensor, epoch: int, step: int) -> None:
        if not bool(torch.isfinite(value)):
            raise Diverged(f"loss or weights are not finite in epoch {epoch} (seen at step {step}); lower the rate")

    def _weights(self) -> dict[str, Tensor]:
        return {name: plain(value) for name, value in self.network.state_dict().items()}

    def _momentum(self) -> dict[str, Tensor]:
        return {name: plain(value) for name, value in self.optimizer.state().items()}
