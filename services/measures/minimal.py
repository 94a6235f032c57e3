"""Minimal perturbation: the distance to the nearest adversarial found, in L2 or Linf."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from services.measures.measure import BACKWARD, SORTS, SORTS_FAB, Columns, Measure
from services.measures.parts.threats import Norm, Radius, check_pixel_units
from services.records import (
    ATTACKED,
    L2_DISTANCE,
    LINF_DISTANCE,
    Ascent,
    Column,
    Evidence,
    Series,
    ThreatModel,
    digest_of,
)

if TYPE_CHECKING:
    import torch

    from services.measures.attacks.nearest import Nearest, Seeker
    from services.measures.measure import Network

SeekerName = Literal["deepfool", "fmn", "cw", "fab"]
LIMITS: dict[Norm, float] = {"L2": 3.0, "Linf": 0.5}


class Minimal(Measure):
    """The smallest perturbation, in [0, 1] pixel units, that several attacks find for each sample.

    ``score = min(d, search_limit)`` with d the distance of the nearest verified adversarial: an upper bound on the
    distance to the decision boundary. A misclassified sample has 0. A sample for which nothing within the limit was
    found is *censored*: its score is the limit and its distance is larger or unknown.

    Attributes:
        attacks: run one after the other on all correctly classified samples: "deepfool", "fmn" (fast minimum norm),
            "cw" (Carlini-Wagner L2). "fab" (fast adaptive boundary, from AutoAttack's package) at the end runs only on
            the samples that the others disagree about by half or did not find, which are many where gradients are
            masked and few elsewhere; at the start it runs on all, at several times the cost.
        norm: of the distance, "L2" or "Linf". In Linf "cw" does not run, and the default attacks are the other three.
        search_limit: bound of the score; 3 in L2 and 0.5 in Linf, where every image reaches uniform grey.
        deepfool_steps: linearisations at most.
        fmn_steps: passes of FMN.
        cw_searches, cw_steps: constants tried and Adam steps for each.
        fab_targets, fab_steps: other classes tried, the likeliest first, and steps towards each.

    Extra columns: `correct`; `censored`; `attack`, the place in `attacks` of the one that found it, -1 for none;
    `queries`, forward passes; `zero_gradient`, the share of exactly zero input gradients; `margin`; `non_finite`;
    `attacked`, the class that the nearest adversarial is taken for.
    """

    version: ClassVar[int] = 3
    layout: ClassVar[int] = 2
    shows: ClassVar[bool] = True
    gradients: ClassVar[bool] = True
    needs: ClassVar[Literal["logits", "model"]] = "model"

    name: Literal["minimal"] = "minimal"
    attacks: tuple[SeekerName, ...] = Field(default=("deepfool", "fmn", "cw", "fab"), min_length=1)
    norm: Norm = "L2"
    search_limit: Radius = LIMITS["L2"]
    deepfool_steps: int = Field(default=50, ge=1, le=1_000)
    fmn_steps: int = Field(default=60, ge=2, le=10_000)
    cw_searches: int = Field(default=4, ge=1, le=20)
    cw_steps: int = Field(default=60, ge=10, le=10_000)
    fab_targets: int = Field(default=5, ge=1, le=1_000)
    fab_steps: int = Field(default=50, ge=2, le=10_000)

    @field_validator("attacks")
    @classmethod
    def _in_order(cls, attacks: tuple[SeekerName, ...]) -> tuple[SeekerName, ...]:
        if len(set(attacks)) < len(attacks):
            raise ValueError(f"expected each attack once, found {list(attacks)}")
        if "fab" in attacks[1:-1]:
            raise ValueError(f"expected fab first, to run on all samples, or last, found {list(attacks)}")
        return attacks

    @model_validator(mode="after")
    def _of_the_norm(self) -> Self:
        if self.norm == "L2":
            return self
        if "attacks" not in self.model_fields_set:
            object.__setattr__(self, "attacks", ("deepfool", "fmn", "fab"))
        if "search_limit" not in self.model_fields_set:
            object.__setattr__(self, "search_limit", LIMITS[self.norm])
        if "cw" in self.attacks:
            raise ValueError(f"expected attacks in Linf (deepfool, fmn, fab), found {list(self.attacks)}")
        check_pixel_units("an Linf search_limit", (self.search_limit,))
        return self

    @property
    def key(self) -> str:
        """Of the series."""
        return f"{self.name}/{self.norm.lower()}"

    def definition(self) -> str:
        """As it was before there was a choice of the norm, where that is L2: audits before and after are compared."""
        return digest_of(self._parameters())[:16]

    def canonical(self) -> str:
        """Without the norm where it is L2, as before there was a choice."""
        return json.dumps({"version": self.version, "layout": self.layout, **self._parameters()}, sort_keys=True)

    def _parameters(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"norm"} if self.norm == "L2" else set())

    @property
    def ascents(self) -> tuple[Ascent, ...]:
        return ("margin",)

    @property
    def most_passes(self) -> float:
        steps = {
            "deepfool": self.deepfool_steps,
            "fmn": self.fmn_steps,
            "cw": self.cw_searches * self.cw_steps,
            "fab": self.fab_targets * self.fab_steps,
        }
        return float(BACKWARD * sum(steps[name] for name in self.attacks))

    @property
    def most_sorts(self) -> float:
        return super().most_sorts + (
            (SORTS_FAB - SORTS) * self.fab_targets * self.fab_steps if "fab" in self.attacks else 0.0
        )

    def series(self) -> tuple[Series, ...]:
        title = f"smallest adversarial perturbation found ({self.norm})"
        threat = ThreatModel(self.norm, self.search_limit)
        unit, label = (L2_DISTANCE, self.name) if self.norm == "L2" else (LINF_DISTANCE, f"{self.name}-linf")
        evidence = Evidence.ATTACK
        return (
            self.one_series(
                self.key, title, self.search_limit, unit=unit, evidence=evidence, threat=threat, label=label
            ),
        )

    def columns(self) -> tuple[Column, ...]:
        return (
            Column("attack", "code", ("none", *self.attacks), first=-1),
            Column("queries", "count"),
            Column(ATTACKED, "code"),
        )

    def from_model(
        self,
        network: Network,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: NDArray[np.int64],
        *,
        seed: int,
    ) -> Columns:
        """Attack one batch. None of the attacks draws a random number: neither `ids` nor `seed` matters."""
        from services.measures.attacks.nearest import nearest_adversarials

        seekers = self.seekers_of()
        split = len(seekers) - 1 if self.attacks[-1] == "fab" and len(seekers) > 1 else len(seekers)
        nearest = nearest_adversarials(network, images, labels, seekers[:split], seekers[split:], norm=self.norm)
        return self._columns(nearest, labels.cpu().numpy())

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
        """Run on each sample the one attack that came nearest."""
        import torch

        from services.measures.attacks.nearest import nearest_adversarials

        points, seekers = images.clone(), self.seekers_of()
        for place in np.unique(known["attack"][known["attack"] >= 0]).tolist():
            rows = torch.from_numpy(np.flatnonzero(known["attack"] == place)).to(images.device)
            points[rows] = nearest_adversarials(
                network, images[rows], labels[rows], seekers[place : place + 1], norm=self.norm
            ).points
        return points

    def seekers_of(self) -> list[Seeker]:
        from services.measures.attacks.carlini import CarliniWagner
        from services.measures.attacks.deepfool import DeepFool
        from services.measures.attacks.fab import FastAdaptiveBoundary
        from services.measures.attacks.fmn import FastMinimumNorm
        from services.measures.attacks.fmn_linf import FastMinimumLinf

        fast = FastMinimumNorm if self.norm == "L2" else FastMinimumLinf
        known: dict[str, Seeker] = {
            "deepfool": DeepFool(steps=self.deepfool_steps, norm=self.norm),
            "fmn": fast(limit=self.search_limit, steps=self.fmn_steps),
            "cw": CarliniWagner(searches=self.cw_searches, steps=self.cw_steps),
            "fab": FastAdaptiveBoundary(steps=self.fab_steps, targets=self.fab_targets, norm=self.norm),
        }
        return [known[name] for name in self.attacks]

    def _columns(self, nearest: Nearest, labels: NDArray[np.int64]) -> Columns:
        distances = nearest.distances.cpu().numpy()
        censored = distances > self.search_limit
        attack = np.where(censored, -1, nearest.attack.cpu().numpy())
        return {
            self.key: np.minimum(distances, self.search_limit),
            "correct": nearest.correct.cpu().numpy().astype(np.float64),
            "censored": censored.astype(np.float64),
            "attack": attack,
            ATTACKED: np.where(censored, labels, nearest.attacked.cpu().numpy()),
            **nearest.tally.columns(),
        }
