"""What a training method is: frozen parameters that turn a batch into a loss.

Parameters are a frozen pydantic model, so that a sweep file is validated by the very class that trains, and its
canonical JSON identifies a checkpoint. Modules of methods import torch inside functions or through
`services.training.losses.terms`, never here: a sweep file is validated in the driver before any heavy import.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import ConfigDict

from services.fields import Fields
from services.training.step import Batch, Budget, State, StepResult

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from services.training.counts import EpochRecord


class Method(Fields):
    """A training method and its parameters. Subclass, and implement `step`.

    Attributes:
        version: raise it whenever the same parameters train differently; it is part of the checkpoint's identity.
        needs_validation: the method steers by a held-out split, so one must be given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: ClassVar[int] = 1
    needs_validation: ClassVar[bool] = False
    name: str

    def step(self, network: torch.nn.Module, batch: Batch) -> StepResult:
        """The loss of one batch; `network` is in training mode and maps images in [0, 1] to float32 logits."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a step is made")

    def held_losses(self, network: torch.nn.Module, batch: Batch) -> Tensor | None:
        """Losses (n,) of held-out samples by which the method steers; `network` is in evaluation mode.

        Asked of methods that need validation, of the epoch's own weights; their sums by class reach `next_state` as
        `record.held_losses`. None when the counts of `record.validation` are enough.
        """
        return None

    def attack(self) -> Budget:
        """The attack by which the held-out split is judged when the recipe names none."""
        return getattr(self, "budget", Budget())

    def selected_by(self) -> Literal["clean", "robust"]:
        """By which held-out accuracy a sweep chooses the epoch when its recipe does not say."""
        return "robust"

    def steers_by_confidence(self, epoch: int, epochs: int) -> bool:
        """Whether `next_state` after epoch 0, 1, ..., epochs - 1 needs `record.train.confidence`."""
        return False

    def initial_state(self, classes: int) -> State:
        """State before the first epoch."""
        return {}

    def next_state(self, state: Mapping[str, tuple[float, ...]], record: EpochRecord) -> State:
        """State for the next epoch, from what this epoch showed. Pure, so a resumed run goes on alike."""
        return dict(state)

    def canonical(self) -> str:
        """Canonical JSON of the parameters, with the version."""
        fields: dict[str, Any] = {"version": self.version, **self.model_dump(mode="json")}
        return json.dumps(fields, sort_keys=True)
