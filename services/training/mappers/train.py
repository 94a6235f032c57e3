"""Train a mapper from Python: the beta-VAE or the conditional GAN.

::

    mapper = vae(latents=10, size=28)
    report = train_mapper(mapper, images, recipe=MapperRecipe(epochs=20), storage="runs/vae")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from services.training.mapper_recipe import MapperRecipe
from services.training.mappers.blocks import MapperModule
from services.training.mappers.run import MapperReport, MapperRun

__all__ = ["MapperReport", "train_mapper"]


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
        on_epoch: called with the losses of each epoch after its checkpoint is written.

    Raises:
        SourceError: images or conditions are malformed.
        ConfigError: conditions for a VAE or none for a GAN, a loss that is not finite, or another run in `storage`.
    """
    run = MapperRun(
        mapper, images, conditions=conditions, factors=factors, recipe=recipe or MapperRecipe(), storage=storage
    )
    for record in run.epochs():
        if on_epoch:
            on_epoch(record.losses)
    return run.report()
