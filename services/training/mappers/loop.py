"""Train a mapper: the loop that the beta-VAE and the conditional GAN share.

::

    mapper = vae(latents=10, size=28)
    report = train_mapper(mapper, images, recipe=MapperRecipe(epochs=20), storage="runs/vae")

With `storage` there are checkpoints, from which the same call goes on: on the CPU a run that was killed and started
again ends in the same weights, bit for bit. `model.safetensors` is what `?weights=` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services import storage as files
from services.errors import ConfigError, Problem, SourceError
from services.loading.mappers import LoadedMapper, Reconstruction
from services.numerics.disentanglement import Disentanglement, mutual_information_gap
from services.records import digest_of
from services.training.batches import Epoch, Images
from services.training.checkpoints import MODEL, PROGRESS, load_tensors, plain, save_weights
from services.training.data import Labelled, checked, identity_of
from services.training.keys import Purpose, generator, number
from services.training.mappers.adam import Adam
from services.training.mappers.blocks import MapperModule
from services.training.mappers.gan import ConditionalGan, GanObjective
from services.training.mappers.recipe import MapperRecipe
from services.training.mappers.vae import Vae, VaeObjective

LEAST_UNIT = 1e-6
COLLAPSED = 0.1
"""A latent whose encodings spread less than this share of the widest one carries next to nothing."""
ENCODED_AT_ONCE = 256


class Objective(Protocol):
    """What is minimised: one step on a batch, with its own optimisers."""

    modules: dict[str, nn.Module]
    optimizers: dict[str, Adam]

    def step(self, images: Tensor, conditions: Tensor | None, draw: torch.Generator) -> dict[str, float]:
        """Take one step and return the parts of the loss."""
        ...


@dataclass(frozen=True)
class MapperReport:
    """What training a mapper gave.

    Attributes:
        losses: one entry an epoch, the mean of each part of the loss.
        reconstruction: on the images held out.
        active: latents whose encodings spread at least a tenth as far as the widest one's; the others have collapsed.
        disentanglement: of the images held out, where their factors were given.
        resumed_at: epochs found in storage.
    """

    losses: tuple[dict[str, float], ...]
    reconstruction: Reconstruction
    active: int
    disentanglement: Disentanglement | None = None
    resumed_at: int = 0


@dataclass
class _State:
    losses: list[dict[str, float]] = field(default_factory=list)
    identity: str = ""


def train_mapper(
    mapper: MapperModule,
    images: NDArray[Any],
    *,
    conditions: NDArray[Any] | None = None,
    factors: Mapping[str, NDArray[Any]] | None = None,
    recipe: MapperRecipe | None = None,
    storage: str | None = None,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
) -> MapperReport:
    """Train in place, learn centre and unit of the latents, and judge the mapper on images held out.

    Args:
        images: (N, C, H, W) uint8, or float32 in [0, 1].
        conditions: (N, A) numbers for a conditional GAN; scale them to about unit spread.
        factors: known generating factors by name, (N,) each, for the disentanglement.
        storage: folder or URL for checkpoints; a run found there goes on, if it is the same run.
        on_epoch: told the losses of each epoch after its checkpoint is written.

    Raises:
        SourceError: images or conditions are malformed.
        ConfigError: conditions for a VAE or none for a GAN, a loss that is not finite, or another run in `storage`.
    """
    recipe = recipe or MapperRecipe()
    data = checked(images, np.zeros(len(images), dtype=np.int64), 1, "mapper data")
    wanted = _checked_conditions(mapper, conditions, len(images))
    order = generator(recipe.seed, Purpose.SPLIT).permutation(len(images))
    cut = min(max(1, round(recipe.holdout * len(images))), len(images) - 1)
    held, kept = np.sort(order[:cut]), np.sort(order[cut:])
    if len(kept) < 2:
        raise SourceError(Problem("mapper data", "at least 3 images", str(len(images))))
    run = _Training(mapper, data.take(kept), None if wanted is None else wanted[kept], recipe, storage)
    with torch.random.fork_rng(devices=[]):
        resumed_at = run.go(on_epoch)
    latents = run.learn_axes()
    if storage:
        save_weights(files.join(storage, MODEL), mapper.state_dict(), {"identity": run.state.identity})
    active = int((latents.std(axis=0) >= COLLAPSED * latents.std(axis=0).max()).sum())
    judged = data.take(held)
    loaded = LoadedMapper("mapper", mapper)
    pixels = Images(judged.images, judged.labels, run.device).rows(np.arange(len(held)))
    known = {name: np.asarray(values)[held] for name, values in (factors or {}).items()}
    found = mutual_information_gap(encodings(mapper, judged, run.device), known) if known else None
    return MapperReport(tuple(run.state.losses), loaded.reconstruction(pixels), active, found, resumed_at)


def encodings(mapper: MapperModule, data: Labelled, device: torch.device) -> NDArray[np.float64]:
    """(N, L) latents of images, a block at a time."""
    source = Images(data.images, data.labels, device)
    blocks = np.array_split(np.arange(len(source)), -(-len(source) // ENCODED_AT_ONCE))
    with torch.no_grad():
        return np.concatenate([mapper.encode(source.rows(rows)).double().cpu().numpy() for rows in blocks])


class _Training:
    """The epochs of one mapper."""

    def __init__(
        self,
        mapper: MapperModule,
        data: Labelled,
        conditions: NDArray[np.float32] | None,
        recipe: MapperRecipe,
        storage: str | None,
    ) -> None:
        self.mapper, self.data, self.recipe, self.storage = mapper, data, recipe, storage
        self.device = torch.device(recipe.device)
        mapper.to(self.device)
        self.images = Images(data.images, data.labels, self.device)
        self.conditions = None if conditions is None else torch.from_numpy(conditions).to(self.device)
        self.objective = _objective(mapper, recipe)
        told = digest_of([] if conditions is None else conditions.tobytes().hex()) if storage else ""
        identity = identity_of(f"{type(mapper).__name__} {told}", recipe.canonical(), mapper, data, None)
        self.state = _State(identity=identity)

    def go(self, on_epoch: Callable[[dict[str, float]], None] | None) -> int:
        """Train the epochs that are left; returns how many were there."""
        self._resume()
        first = len(self.state.losses)
        self.mapper.train()
        for epoch in range(first, self.recipe.epochs):
            losses = self._epoch(epoch)
            self.state.losses.append(losses)
            self._save()
            if on_epoch:
                on_epoch(losses)
        self.mapper.eval()
        return first

    def learn_axes(self) -> NDArray[np.float64]:
        """Put mean and standard deviation of the encoded training data into the mapper; returns the encodings."""
        latents = encodings(self.mapper, self.data, self.device)
        self.mapper.centre.copy_(torch.from_numpy(latents.mean(axis=0)))
        self.mapper.unit.copy_(torch.from_numpy(np.maximum(latents.std(axis=0), LEAST_UNIT)))
        return latents

    def _epoch(self, epoch: int) -> dict[str, float]:
        batches = Epoch(self.images, batch=self.recipe.batch, seed=self.recipe.seed, epoch=epoch, crop=0, flip=False)
        sums: dict[str, float] = {}
        for step, rows in enumerate(batches.slices()):
            draw = torch.Generator(self.device).manual_seed(number(self.recipe.seed, Purpose.NOISE, epoch, step))
            told = None if self.conditions is None else self.conditions[torch.from_numpy(rows).to(self.device)]
            parts = self.objective.step(self.images.rows(rows), told, draw)
            if not all(np.isfinite(value) for value in parts.values()):
                raise ConfigError(Problem("mapper", "finite losses", f"{parts} in epoch {epoch}", "lower the rate"))
            sums = {name: sums.get(name, 0.0) + value * len(rows) for name, value in parts.items()}
        return {name: value / len(self.data.images) for name, value in sums.items()}

    def _save(self) -> None:
        if not self.storage:
            return
        tensors = {
            f"module.{name}.{key}": plain(value)
            for name, module in self.objective.modules.items()
            for key, value in module.state_dict().items()
        }
        for name, optimizer in self.objective.optimizers.items():
            tensors |= {f"adam.{name}.{key}": value for key, value in optimizer.state().items()}
        facts = {"identity": self.state.identity, "losses": self.state.losses}
        save_weights(files.join(self.storage, PROGRESS), tensors, facts)

    def _resume(self) -> None:
        url = files.join(self.storage, PROGRESS) if self.storage else ""
        if not url or not files.exists(url):
            return
        tensors, facts = load_tensors(url)
        if facts.get("identity") != self.state.identity:
            remedy = "choose another storage folder, or repeat the call with what it was started with"
            raise ConfigError(Problem(url, "progress of this very run", "that of another mapper or data", remedy))
        for name, module in self.objective.modules.items():
            module.load_state_dict(_below(f"module.{name}.", tensors))
        for name, optimizer in self.objective.optimizers.items():
            optimizer.load(_below(f"adam.{name}.", tensors))
        self.state.losses = list(facts["losses"])


def _objective(mapper: MapperModule, recipe: MapperRecipe) -> Objective:
    if isinstance(mapper, Vae):
        return VaeObjective(mapper, recipe)
    if isinstance(mapper, ConditionalGan):
        return GanObjective(mapper, recipe)
    raise ConfigError(Problem("mapper", "a vae or a conditional_gan", type(mapper).__name__))


def _checked_conditions(
    mapper: MapperModule, conditions: NDArray[Any] | None, count: int
) -> NDArray[np.float32] | None:
    wanted = mapper.conditions if isinstance(mapper, ConditionalGan) else None
    if wanted is None:
        if conditions is not None:
            raise ConfigError(Problem("conditions", "none for a VAE", "an array", "use conditional_gan"))
        return None
    expected = f"finite numbers ({count}, {wanted}), one row an image"
    if conditions is None:
        raise ConfigError(Problem("conditions", expected, "none"))
    array = np.asarray(conditions, dtype=np.float32)
    if array.shape != (count, wanted) or not np.isfinite(array).all():
        raise SourceError(Problem("conditions", expected, f"shape {array.shape}"))
    return array


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
