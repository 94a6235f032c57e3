"""One mapper's training: prepared, gone through epoch by epoch, judged on images held out.

With `storage` there are checkpoints, from which the same run goes on: on the CPU one that was killed and started again
ends in the same weights, bit for bit. `model.safetensors` is what `?weights=` reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.errors import ConfigError, Problem, SourceError
from services.loading.mappers import Reconstruction, reconstruction
from services.numerics.attributes.disentanglement import Disentanglement, mutual_information_gap
from services.records import digest_of
from services.storage import files as files
from services.training.data.batches import Epoch, Images
from services.training.data.images import Labelled, checked, identity_of
from services.training.epochs.checkpoints import MODEL, PROGRESS, load_tensors, plain, save_weights
from services.training.keys import Purpose, generator, number
from services.training.mapper_recipe import MapperRecipe
from services.training.mappers.adam import Adam
from services.training.mappers.blocks import MapperModule
from services.training.mappers.gan import ConditionalGan, GanObjective
from services.training.mappers.vae import Vae, VaeObjective

LEAST_UNIT = 1e-6
COLLAPSED = 0.1
"""A latent whose encodings spread less than this share of the widest one carries next to nothing."""
AT_ONCE = 256
"""Images that are encoded or decoded together."""
FORMAT = 2
"""Of what progress holds; raised when that of an older one cannot be gone on from."""


class Objective(Protocol):
    """What is minimised: one step on a batch, with its own optimisers."""

    modules: dict[str, nn.Module]
    optimizers: dict[str, Adam]

    def step(self, images: Tensor, conditions: Tensor | None, draw: torch.Generator) -> dict[str, float]:
        """Take one step and return the loss and its parts."""
        ...


@dataclass(frozen=True)
class MapperEpoch:
    """One epoch that ended well.

    Attributes:
        epoch: 0, 1, ...
        losses: means over the training images: `loss`, what is minimised, and its parts.
        explained: of the variance of the images held out, as in `Reconstruction`.
        seconds: wall time.
    """

    epoch: int
    losses: dict[str, float]
    explained: float | None
    seconds: float


@dataclass(frozen=True)
class MapperReport:
    """What training a mapper gave.

    Attributes:
        records: one an epoch, those found in storage included.
        reconstruction: on the images held out.
        active: latents whose encodings spread at least a tenth as far as the widest one's; the others have collapsed.
        disentanglement: of the images held out, where their factors were given.
        resumed_at: epochs found in storage.
    """

    records: tuple[MapperEpoch, ...]
    reconstruction: Reconstruction
    active: int
    disentanglement: Disentanglement | None = None
    resumed_at: int = 0

    @property
    def losses(self) -> tuple[dict[str, float], ...]:
        """The losses of each epoch."""
        return tuple(record.losses for record in self.records)


class MapperRun:
    """A mapper in training. Its arguments are those of `train_mapper`.

    Attributes:
        records: one an epoch done.
        resumed_at: how many of them were found in storage.
        diverged: why there is no further epoch, though some were left; "" otherwise.
    """

    def __init__(
        self,
        mapper: MapperModule,
        images: NDArray[Any],
        *,
        conditions: NDArray[Any] | None = None,
        factors: Mapping[str, NDArray[Any]] | None = None,
        recipe: MapperRecipe,
        storage: str | None = None,
    ) -> None:
        data = checked(images, np.zeros(len(images), dtype=np.int64), 1, "mapper data")
        wanted = _checked_conditions(mapper, conditions, len(images))
        kept, held = _split(len(images), recipe)
        self.mapper, self.recipe, self.storage = mapper, recipe, storage
        self.device = torch.device(recipe.device)
        mapper.to(self.device)
        self._data, self._held = data.take(kept), data.take(held)
        self._images = Images(self._data.images, self._data.labels, self.device)
        self._conditions = None if wanted is None else torch.from_numpy(wanted[kept]).to(self.device)
        self._factors = {name: np.asarray(values)[held] for name, values in (factors or {}).items()}
        self._objective = objective_of(mapper, recipe)
        conditions_digest = digest_of([] if wanted is None else wanted[kept].tobytes().hex()) if storage else ""
        kind = f"{FORMAT} {type(mapper).__name__} {conditions_digest}"
        self._identity = identity_of(kind, recipe.canonical(), mapper, self._data, None)
        self.records: list[MapperEpoch] = []
        self.diverged = ""
        self._resume()
        self.resumed_at = len(self.records)

    def epochs(self) -> Iterator[MapperEpoch]:
        """Train the epochs that are left; each is reported after its checkpoint is written."""
        for epoch in range(self.resumed_at, self.recipe.epochs):
            began = time.perf_counter()
            self.mapper.train()
            with torch.random.fork_rng(devices=[]):
                losses = self._epoch(epoch)
            self.mapper.eval()
            if losses is None or not self._sound():
                self.diverged = f"losses or weights are not finite in epoch {epoch}"
                return
            record = MapperEpoch(epoch, losses, self._rebuilt().explained, time.perf_counter() - began)
            self.records.append(record)
            self._save()
            yield record

    def report(self) -> MapperReport:
        """Learn centre and unit of the latents, keep the mapper in storage, and judge it.

        Raises:
            ConfigError: the training diverged.
        """
        if self.diverged:
            raise ConfigError(Problem("mapper", "finite losses and weights", self.diverged, "lower the rate"))
        self.mapper.eval()
        latents = self._learn_axes()
        if self.storage:
            save_weights(files.join(self.storage, MODEL), self.mapper.state_dict(), {"identity": self._identity})
        spread = latents.std(axis=0)
        active = int((spread >= COLLAPSED * spread.max()).sum())
        held = encodings(self.mapper, self._held, self.device) if self._factors else None
        gap = None if held is None else mutual_information_gap(held, self._factors)
        return MapperReport(tuple(self.records), self._rebuilt(), active, gap, self.resumed_at)

    def _learn_axes(self) -> NDArray[np.float64]:
        """Put mean and standard deviation of the encoded training data into the mapper; returns the encodings."""
        latents = encodings(self.mapper, self._data, self.device)
        self.mapper.centre.copy_(torch.from_numpy(latents.mean(axis=0)))
        self.mapper.unit.copy_(torch.from_numpy(np.maximum(latents.std(axis=0), LEAST_UNIT)))
        return latents

    def _rebuilt(self) -> Reconstruction:
        """How well the images held out come back."""
        source = Images(self._held.images, self._held.labels, self.device)
        originals, back = [], []
        with torch.no_grad():
            for rows in _blocks(len(source)):
                images = source.rows(rows)
                originals.append(images.cpu().numpy())
                back.append(self.mapper(images).cpu().numpy())
        return reconstruction(np.concatenate(originals), np.concatenate(back))

    def _epoch(self, epoch: int) -> dict[str, float] | None:
        """Means of the losses over the training images; None when one of them is not finite."""
        batches = Epoch(self._images, batch=self.recipe.batch, seed=self.recipe.seed, epoch=epoch, crop=0, flip=False)
        sums: dict[str, float] = {}
        for step, rows in enumerate(batches.slices()):
            draw = torch.Generator(self.device).manual_seed(number(self.recipe.seed, Purpose.NOISE, epoch, step))
            conditions = None if self._conditions is None else self._conditions[torch.from_numpy(rows).to(self.device)]
            parts = self._objective.step(self._images.rows(rows), conditions, draw)
            if not all(np.isfinite(value) for value in parts.values()):
                return None
            sums = {name: sums.get(name, 0.0) + value * len(rows) for name, value in parts.items()}
        return {name: value / len(self._data.images) for name, value in sums.items()}

    def _sound(self) -> bool:
        return all(bool(p.isfinite().all()) for module in self._objective.modules.values() for p in module.parameters())

    def _save(self) -> None:
        if not self.storage:
            return
        tensors = {
            f"module.{name}.{key}": plain(value)
            for name, module in self._objective.modules.items()
            for key, value in module.state_dict().items()
        }
        for name, optimizer in self._objective.optimizers.items():
            tensors |= {f"adam.{name}.{key}": value for key, value in optimizer.state().items()}
        facts = {"identity": self._identity, "records": [asdict(record) for record in self.records]}
        save_weights(files.join(self.storage, PROGRESS), tensors, facts)

    def _resume(self) -> None:
        url = files.join(self.storage, PROGRESS) if self.storage else ""
        if not url or not files.exists(url):
            return
        tensors, facts = load_tensors(url)
        if facts.get("identity") != self._identity:
            remedy = "choose another storage folder, or repeat the call with what it was started with"
            raise ConfigError(Problem(url, "progress of this very run", "that of another mapper or data", remedy))
        for name, module in self._objective.modules.items():
            module.load_state_dict(_below(f"module.{name}.", tensors))
        for name, optimizer in self._objective.optimizers.items():
            optimizer.load(_below(f"adam.{name}.", tensors))
        self.records = [MapperEpoch(**record) for record in facts["records"]]


def encodings(mapper: MapperModule, data: Labelled, device: torch.device) -> NDArray[np.float64]:
    """(N, L) latents of images, a block at a time."""
    source = Images(data.images, data.labels, device)
    with torch.no_grad():
        parts = [mapper.encode(source.rows(rows)).double().cpu().numpy() for rows in _blocks(len(source))]
    return np.concatenate(parts)


def objective_of(mapper: MapperModule, recipe: MapperRecipe) -> Objective:
    """What the mapper is trained by.

    Raises:
        ConfigError: it is none of the kinds that are trained here.
    """
    if isinstance(mapper, Vae):
        return VaeObjective(mapper, recipe)
    if isinstance(mapper, ConditionalGan):
        return GanObjective(mapper, recipe)
    raise ConfigError(Problem("mapper", "a vae or a conditional_gan", type(mapper).__name__))


def _split(count: int, recipe: MapperRecipe) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on and rows held out."""
    order = generator(recipe.seed, Purpose.SPLIT).permutation(count)
    cut = min(max(1, round(recipe.holdout * count)), count - 1)
    if count - cut < 2:
        raise SourceError(Problem("mapper data", "at least 3 images", str(count)))
    return np.sort(order[cut:]), np.sort(order[:cut])


def _blocks(count: int) -> list[NDArray[np.int64]]:
    return np.array_split(np.arange(count), -(-count // AT_ONCE))


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
