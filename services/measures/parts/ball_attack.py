"""What attacks within balls have in common: one binary series a radius, and what each sample went to."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from services.measures.measure import Columns, Measure
from services.measures.parts.threats import Norm, radius_key, radius_title
from services.records import ATTACKED, Column, Evidence, Series, ThreatModel

if TYPE_CHECKING:
    import torch

    from services.measures.attacks.survival import Survival
    from services.measures.measure import Network


class BallAttack(Measure):
    """An attack at rising radii: subclass it and implement `series`, `columns` and `survival`.

    Extra columns: `correct`; `broken_by`; `attacked`, the class that a broken sample went to (`survive`); and those of
    the tally without the ones in `unknown`.
    """

    layout: ClassVar[int] = 2
    shows: ClassVar[bool] = True
    needs: ClassVar[Literal["logits", "model"]] = "model"
    unknown: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def survival(
        self,
        network: Network,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: NDArray[np.int64],
        *,
        seed: int,
        keep: bool = False,
    ) -> Survival:
        """Attack one batch; with `keep` the points that broke samples are kept."""

    def from_model(
        self,
        network: Network,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: NDArray[np.int64],
        *,
        seed: int,
    ) -> Columns:
        """Attack one batch; the score of a sample is a function of the network, the sample, its id and the seed."""
        columns = survival_columns(self.series(), self.survival(network, images, labels, ids, seed=seed))
        return {name: values for name, values in columns.items() if name not in self.unknown}

    def adversarials(
        self,
        network: Network,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: NDArray[np.int64],
        known: Columns,
        *,
        seed: int,
    ) -> torch.Tensor:
        points = self.survival(network, images, labels, ids, seed=seed, keep=True).tally.points
        return images if points is None else points


def survival_series(
    measure: Measure, label: str, title: str, norm: Norm, epsilons: tuple[float, ...]
) -> tuple[Series, ...]:
    """One binary series a radius, as every attack within a ball has."""
    return tuple(
        measure.one_series(
            f"{label}/{radius_key(norm, epsilon)}",
            f"{title} accuracy ({radius_title(norm, epsilon)})",
            binary=True,
            evidence=Evidence.ATTACK,
            label=label,
            threat=ThreatModel(norm, epsilon),
        )
        for epsilon in epsilons
    )


def survival_extras(steps: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns beside the series of an attack within balls; `steps` are what can break a sample, in order."""
    broken_by = Column("broken_by", "code", ("unbroken", "misclassified", *steps), first=-1)
    return broken_by, Column("queries", "count"), Column(ATTACKED, "code")


def survival_columns(series: tuple[Series, ...], curve: Survival) -> Columns:
    """The score table of an attack within balls: one column a radius, and the extras."""
    scores = {each.key: row.astype(np.float64) for each, row in zip(series, curve.survived, strict=True)}
    extras = {"correct": curve.correct.astype(np.float64), "broken_by": curve.broken_by, ATTACKED: curve.attacked}
    return {**scores, **extras, **curve.tally.columns()}
