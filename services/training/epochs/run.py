"""One training run: its epochs, what it saves after each, and how it goes on from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from services.errors import ConfigError, Problem, StorageError
from services.storage import files as files
from services.training.averaging import FairEma, StepEma, Swa, averaged
from services.training.counts import ClassCounts, EpochRecord
from services.training.data.batches import Epoch, Images
from services.training.data.images import Labelled, identity_of
from services.training.data.mixing import Extra
from services.training.epochs.adamw import AdamW
from services.training.epochs.best_epoch import best_epoch, is_out_of_patience
from services.training.epochs.checkpoints import (
    MODEL,
    PROGRESS,
    Progress,
    load_progress,
    load_weights,
    plain,
    save_progress,
    save_weights,
)
from services.training.epochs.evaluation import Tally, evaluate, held_losses
from services.training.epochs.forward import Forward
from services.training.epochs.halfway import Halfway, Underway, drop_halfway, load_halfway, save_halfway
from services.training.epochs.listener import TrainReport
from services.training.epochs.peers import Alone, Peers, added
from services.training.epochs.sgd import Sgd
from services.training.epochs.smoothing import StepAverage, recompute_batch_norm
from services.training.epochs.stopping import Stopping, never
from services.training.keys import Purpose, number, seed_layers
from services.training.methods.method import Method
from services.training.recipe import Recipe
from services.training.step import Batch, StepResult

CHECK_EVERY = 50
"""Steps between looks at the loss: each look waits for the device."""


class Diverged(Exception):
    """The loss or a weight is no longer finite; caught by `train`, which keeps the last good epoch."""


class Run:
    """One training run, from its first or a later epoch to its end."""

    def __init__(
        self,
        network: nn.Module,
        data: Labelled,
        held: Labelled | None,
        method: Method,
        recipe: Recipe,
        storage: str | None,
        peers: Peers | None = None,
        stopping: Callable[[], bool] = never,
        extra: Extra | None = None,
    ) -> None:
        self.method, self.recipe, self.storage, self.classes = method, recipe, storage, data.classes
        self.peers = peers or Alone()
        self.device = torch.device(recipe.device)
        layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.network = network.to(self.device).to(memory_format=layout)  # type: ignore[call-overload]
        self.forward = Forward(self.network, recipe)
        self.extra, self.own = extra, len(data.labels)
        whole = data if extra is None else extra.after(data)
        self.data = Images(whole.images, whole.labels, self.device)
        self.held = None if held is None else Images(held.images, held.labels, self.device)
        counts = tuple(np.bincount(data.labels, minlength=data.classes).tolist())
        self.totals = counts if extra is None else extra.totals(data)
        self.optimizer = _optimizer(network, recipe)
        how = recipe.canonical() if extra is None else f"{recipe.canonical()} {extra.share}"
        self.identity = identity_of(method.canonical(), how, network, whole, held) if storage else ""
        self.progress = Progress(self.identity, self._weights(), {}, method.initial_state(data.classes), ())
        self.kept = self.progress.model
        self.shadow: StepAverage | None = None
        self.halfway: Halfway | None = None
        self.underway: Underway | None = None
        self.took_up = False
        self.stopping = Stopping(stopping)
        self.resumed_at = 0

    def epochs(self) -> Iterator[EpochRecord]:
        """Run the epochs that are left; a record is yielded after its checkpoint is written."""
        while not self.progress.stopped:
            with self.stopping if self.keeps_steps else nullcontext():
                done = self._advance()
            if done:
                yield self.progress.records[-1]

    @property
    def keeps_steps(self) -> bool:
        """Whether a stop within an epoch keeps its steps; other workers would wait for one that stops."""
        return bool(self.storage) and self.peers.size == 1

    def report(self) -> TrainReport:
        """Put the selected weights into the network and say what happened."""
        self.network.load_state_dict(self.kept)
        self.network.eval()
        done, selected = self.progress, best_epoch(self.progress.records, self.recipe.select)
        return TrainReport(
            done.records,
            selected,
            done.stopped,
            done.reason,
            self.resumed_at,
            self.method.canonical(),
            self.recipe.canonical(),
        )

    def resume(self) -> None:
        """Take over the progress that storage holds, if it is this run's."""
        progress = load_progress(self.storage) if self.storage else None
        done = 0 if progress is None else len(progress.records)
        self._require_same(done)
        if self.keeps_steps:
            self.halfway = load_halfway(str(self.storage), self.identity, done)
        if progress is None:
            return
        if progress.identity != self.identity:
            remedy = "choose another storage folder, or repeat the call with what it was started with"
            where = str(self.storage)
            raise ConfigError(Problem(where, "progress of this very run", "that of another method or data", remedy))
        self.progress, self.kept, self.resumed_at = progress, progress.model, len(progress.records)
        self._restore(progress)
        if progress.records:
            self.kept = self._selected()

    def _selected(self) -> dict[str, Tensor]:
        """Weights of the selected epoch, which no later one may make again."""
        url = files.join(str(self.storage), MODEL)
        try:
            return load_weights(url)
        except StorageError as error:
            if files.is_outage(error):
                raise
            actual, remedy = error.problems[0].found, f"remove {PROGRESS} beside it and train again"
            raise StorageError(Problem(url, "the selected weights of the epochs so far", actual, remedy)) from error

    def _require_same(self, epochs: int) -> None:
        """All workers of a run must go on from the same epoch."""
        first = self.peers.agree(epochs)
        if not all(self.peers.gather(first == epochs)):
            remedy = "use storage that all nodes reach under this name"
            actual = f"{epochs} epochs where the first worker sees {first}"
            raise StorageError(Problem(str(self.storage), "the same progress for all workers", actual, remedy))

    def _restore(self, progress: Progress) -> None:
        self.network.load_state_dict(progress.model)
        self.optimizer.load(progress.momentum)

    def _advance(self) -> bool:
        """Do one epoch and save it; False when it diverged, and the last good epoch stays what is saved."""
        before = self.progress
        try:
            record = self._epoch(len(before.records), before)
        except Diverged as error:
            self._save(replace(before, stopped="diverged", reason=str(error)))
            return False
        weights, average = self._weights(), dict[str, Tensor]()
        if self.peers.rank == 0:
            record, average = self._judged_or_kept(record, weights, before)
        record = self.peers.agree(record)
        state = self.method.next_state(before.state, record)
        record = replace(record, train=replace(record.train, confidence=None))
        records = (*before.records, record)
        stopped, reason = self._stop(records)
        if best_epoch(records, self.recipe.select) == record.epoch:
            self._keep(average or weights, record.epoch)
        self._save(Progress(before.identity, weights, self._momentum(), state, records, stopped, reason, average))
        return True

    def _judged_or_kept(
        self, record: EpochRecord, weights: dict[str, Tensor], before: Progress
    ) -> tuple[EpochRecord, dict[str, Tensor]]:
        """As `_judged`; a signal meanwhile keeps the steps of the epoch, all of which are done."""
        try:
            self.stopping.at_once(self.keeps_steps)
            return self._judged(record, weights, before)
        except BaseException:
            if not self.stopping.heard:
                raise
            self.stopping.at_once(False)
            self._keep_steps(weights)
            self.network.load_state_dict(weights)  # whoever handles the signal goes on
            return self._judged(record, weights, before)
        finally:
            self.stopping.at_once(False)

    def _judged(
        self, record: EpochRecord, weights: dict[str, Tensor], before: Progress
    ) -> tuple[EpochRecord, dict[str, Tensor]]:
        """The record with what the held-out split says of it, and the average after the epoch."""
        began, losses = time.perf_counter(), self._held_losses()
        average, held, taken = self._averaged(record.epoch, weights, before)
        mark = taken if self.recipe.averaging else None
        judging = time.perf_counter() - began
        record = replace(record, validation=held, held_losses=losses, averaged=mark, judging=judging)
        return replace(record, seconds=record.seconds + judging), average

    def _averaged(
        self, epoch: int, weights: dict[str, Tensor], before: Progress
    ) -> tuple[dict[str, Tensor], ClassCounts | None, bool]:
        """The average after an epoch, how the weights that would be returned do, and whether the epoch was taken in."""
        rule = self.recipe.averaging
        if rule is None or not rule.is_due(epoch, self.recipe.epochs):
            return {}, self._validate(), False
        if isinstance(rule, FairEma):
            own = self._validate()
            if own is None or not rule.is_fair(own):
                return before.average, before.records[-1].validation if before.average else own, False
        if self.shadow is not None:
            average = {name: plain(value) for name, value in self.shadow.state().items()}
        else:
            taken = sum(bool(record.averaged) for record in before.records)
            average = averaged(before.average, weights, rule.past(taken))
        self.network.load_state_dict(average)
        if isinstance(rule, Swa):
            recompute_batch_norm(self.network, self.forward, self._batches(epoch, (0, 1)))
            average = self._weights()
        held = self._validate()
        self.network.load_state_dict(weights)
        return average, held, True

    def _stop(self, records: tuple[EpochRecord, ...]) -> tuple[str, str]:
        if len(records) >= self.recipe.epochs:
            return "finished", ""
        if is_out_of_patience(records, self.recipe.select, self.recipe.patience):
            return "early-stop", f"no better held-out {self.recipe.select} accuracy in {self.recipe.patience} epochs"
        return "", ""

    def _keep(self, weights: dict[str, Tensor], epoch: int) -> None:
        self.kept = weights
        if self.storage and self.peers.rank == 0:
            facts = {"epoch": epoch, "method": self.method.canonical(), "recipe": self.recipe.canonical()}
            save_weights(files.join(self.storage, MODEL), weights, facts)

    def _save(self, progress: Progress) -> None:
        self.progress = progress
        if self.storage and self.peers.rank == 0:
            save_progress(self.storage, progress)
            if self.took_up:
                drop_halfway(self.storage)
                self.took_up = False

    def _epoch(self, epoch: int, progress: Progress) -> EpochRecord:
        rate, confidence = self.recipe.rate(epoch), self.method.steers_by_confidence(epoch, self.recipe.epochs)
        tally, total = Tally(self.classes, confidence=confidence), torch.zeros((), dtype=torch.float64)
        under = self.underway = Underway(epoch, tally, total.to(self.device), time.perf_counter())
        self.network.train()
        self.shadow = self._shadow(epoch, self._taken_up(under) or progress.average)
        batches = self._batches(epoch, (self.peers.rank, self.peers.size))
        sizes = [len(rows) for rows in batches.slices()]
        for step, (images, labels) in enumerate(batches.after(under.steps), under.steps):
            strength = self.recipe.strength(epoch, step, len(sizes))
            source = torch.Generator(self.device).manual_seed(self._key(Purpose.NOISE, epoch, step))
            seed_layers(self.device, self._key(Purpose.LAYERS, epoch, step))
            batch = Batch(images, labels, self.classes, source, progress.state, strength, self.totals)
            result = self._step(batch, rate, len(labels) / sizes[step])
            if self.shadow is not None:
                self.shadow.step()
            under.total += result.loss.detach() * len(labels)
            tally.step(labels, result.clean, result.robust)
            under.steps = step + 1
            if step % CHECK_EVERY == 0:
                self._require_finite(under.total, epoch, step)
            if self.keeps_steps and self.stopping.asked:
                self._keep_steps(self.network.state_dict())
        ended = under.total + sum(p.detach().sum() for p in self.network.parameters())
        self._require_finite(ended, epoch, under.steps - 1)
        self._level_buffers()
        loss, train = float(sum(self.peers.gather(float(under.total)))), added(self.peers.gather(tally.counts()))
        return EpochRecord(
            epoch, rate, sum(map(len, batches.slices())), loss, train, None, time.perf_counter() - under.began
        )

    def _taken_up(self, under: Underway) -> Mapping[str, Tensor]:
        """Go on from the steps of the epoch that are kept, if any are; returns the average over them."""
        kept, self.halfway = self.halfway, None
        if kept is None:
            return {}
        self.took_up = True
        self.network.load_state_dict(kept.model)
        self.optimizer.load(kept.momentum)
        under.tally.load({name: value.to(self.device) for name, value in kept.tally.items()})
        under.total, under.steps, under.began = kept.total.to(self.device), kept.steps, under.began - kept.seconds
        return kept.shadow

    def _keep_steps(self, weights: Mapping[str, Tensor]) -> None:
        """Keep what is done of the epoch, then stop."""
        under, shadow = self.underway, self.shadow
        if under is not None:
            seconds, average = time.perf_counter() - under.began, {} if shadow is None else shadow.state()
            done = (under.epoch, under.steps, seconds, under.total)
            halfway = Halfway(self.identity, *done, weights, self.optimizer.state(), average, under.tally.state())
            save_halfway(str(self.storage), halfway)
        self.stopping.stop()

    def _batches(self, epoch: int, part: tuple[int, int]) -> Epoch:
        r = self.recipe
        order = None if self.extra is None else self.extra.order(self.own, r.seed, epoch)
        return Epoch(
            self.data, batch=r.batch, seed=r.seed, epoch=epoch, crop=r.crop, flip=r.flip, part=part, order=order
        )

    def _shadow(self, epoch: int, average: Mapping[str, Tensor]) -> StepAverage | None:
        """The average that each step of the epoch goes into."""
        rule = self.recipe.averaging
        if not isinstance(rule, StepEma) or not rule.is_due(epoch, self.recipe.epochs):
            return None
        return StepAverage(self.network, rule.decay, average)

    def _key(self, purpose: Purpose, epoch: int, step: int) -> int:
        """The first worker draws as a worker alone would, the others otherwise."""
        other = (self.peers.rank,) if self.peers.rank else ()
        return number(self.recipe.seed, purpose, epoch, step, *other)

    def _level_buffers(self) -> None:
        """Statistics of batch norm become the means of the workers'."""
        self.peers.average((b for b in self.network.buffers() if b.is_floating_point()), 1 / self.peers.size)

    def _step(self, batch: Batch, rate: float, share: float) -> StepResult:
        result = self.method.step(self.forward, batch)
        self.optimizer.clear()
        result.loss.backward()  # type: ignore[no-untyped-call]
        self.peers.average((p.grad for p in self.network.parameters() if p.grad is not None), share)
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimizer.step(rate)
        return result

    def _validate(self) -> ClassCounts | None:
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

    def _held_losses(self) -> tuple[float, ...] | None:
        if self.held is None or not self.method.needs_validation:
            return None
        return held_losses(
            self.forward, self.method, self.held, self.classes, batch=self.recipe.batch, seed=self.recipe.seed
        )

    def _require_finite(self, value: Tensor, epoch: int, step: int) -> None:
        if not all(self.peers.gather(bool(torch.isfinite(value)))):
            raise Diverged(f"loss or weights are not finite in epoch {epoch} (seen at step {step}); lower the rate")

    def _weights(self) -> dict[str, Tensor]:
        return {name: plain(value) for name, value in self.network.state_dict().items()}

    def _momentum(self) -> dict[str, Tensor]:
        return {name: plain(value) for name, value in self.optimizer.state().items()}


def _optimizer(network: nn.Module, recipe: Recipe) -> Sgd | AdamW:
    if recipe.optimizer == "adamw":
        return AdamW(network, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    return Sgd(network, momentum=recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov)
