"""What a measure is: a frozen set of parameters that maps samples to bounded scores.

A measure's parameters are a frozen pydantic model, so that the fleet file is validated by the very class that runs, and
its canonical JSON is part of the cache key. Modules of measures import no torch at module level: a fleet file is
validated in the driver before any heavy import.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from services.errors import MeasureError, Problem
from services.fields import StableFields
from services.records import Ascent, Column, Series, digest_of

if TYPE_CHECKING:
    import torch

    Network = Callable[[torch.Tensor], torch.Tensor]
    """Maps float32 NCHW images in [0, 1] to logits (N, K); differentiable where the source allows it."""

BACKWARD = 3.0
"""Forward passes that one and the backward pass through it are worth."""
SORTS, SORTS_FAB = 0.5, 4.0
"""What a step of an attack, and one of FAB, costs beside the network, in sorts of an image's values, on a CPU."""

Columns = dict[str, NDArray[Any]]
"""Columns of a score table, each of length n: one a series key, in [0, bound], and extras under other names."""


@dataclass(frozen=True)
class RunContext:
    """Where a measure runs, for those that open files of their own.

    Attributes:
        device: as torch spells it.
        allowed_factories: patterns of modules that `factory:` may import.
        probe: a few images (p, C, H, W) of the samples on the device, the same whatever the shard and batch.
    """

    device: str
    allowed_factories: tuple[str, ...]
    probe: Callable[[], torch.Tensor]


Scorer = Callable[..., Columns]
"""Has the arguments of `Measure.from_model`."""


class Measure(StableFields):
    """A measure and its parameters. Subclass, set the class variables, and implement one of the two methods.

    Attributes:
        version: raise it whenever the numbers change for the same parameters; it is part of the cache key.
        needs: "logits" for a function of logits and labels, "model" when the network itself must run.
        gradients: the measure differentiates through the network; a black box cannot serve it.
        layout: raise it when the score table gets another column and no number changes: tables in the cache are made
            again, and audits before and after are still compared, which a new `version` would rule out.
        pictures: it has something to show besides scores, `picture`.
        shows: it can show what it did to single samples, `adversarials`.
        batch_dependent: a sample's score may depend on the batch it is in, against the rule of `from_model`; then the
            sizes of shard and batch are part of the cache key.
        pass_cost: units of a forward pass and what goes with it: 1, and 2 for each backward pass.
        listing: parameters that say which series there are (a curve's radii) and leave each one's numbers alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    version: ClassVar[int] = 1
    layout: ClassVar[int] = 1
    needs: ClassVar[Literal["logits", "model"]]
    gradients: ClassVar[bool] = False
    pictures: ClassVar[bool] = False
    shows: ClassVar[bool] = False
    batch_dependent: ClassVar[bool] = False
    pass_cost: ClassVar[float] = 3.0
    listing: ClassVar[tuple[str, ...]] = ("epsilons", "radii", "at")
    name: str

    def series(self) -> tuple[Series, ...]:
        """The bounded scores this measure gives, in column order."""
        raise MeasureError(Problem(self.name, "a measure that lists its series", type(self).__name__))

    @property
    def ascents(self) -> tuple[Ascent, ...]:
        """Of an attack, the losses whose gradients it follows; none for one that follows none."""
        return ()

    @property
    def most_passes(self) -> float:
        """Forward passes for a sample that no attack breaks, before anything was run: cheap measures come first by it.

        A sample that breaks earlier costs less, so what an audit takes lies below it. 1 for a measure of logits.
        """
        return 1.0 if self.needs == "logits" else 100 * BACKWARD

    @property
    def most_sorts(self) -> float:
        """What a sample that no attack breaks costs besides the network, in sorts of its values."""
        steps = self.most_passes / (BACKWARD if self.gradients else 1.0)
        return SORTS * steps if self.needs == "model" else 0.0

    def own_seconds(self, values: int) -> float:
        """Seconds of a CPU that a sample of so many values takes beside the network and sorts; 0 but where it shows."""
        return 0.0

    def one_series(self, key: str, title: str, bound: float = 1.0, **attributes: Any) -> Series:
        """A series of this measure: its family and version are the measure's."""
        known = {"family": self.name, "label": self.name, "version": self.version, "definition": self.definition()}
        return Series(key, title, bound, **{**known, **attributes})

    def definition(self) -> str:
        """Digest of the parameters that decide a series' numbers: all but those that list which series there are."""
        return digest_of(self.model_dump(mode="json", exclude=set(self.listing)))[:16]

    def columns(self) -> tuple[Column, ...]:
        """What else stands in its score table; a column that is not listed is a number with a mean."""
        return ()

    def column(self, name: str) -> Column:
        """The column of that name."""
        return next((column for column in self.columns() if column.name == name), Column(name))

    def from_logits(self, logits: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]]) -> Columns:
        """Score a shard of logits (n, K) with labels (n,)."""
        raise MeasureError(Problem(self.name, "a measure of logits", f"one that needs the {self.needs}"))

    def from_model(
        self,
        network: Network,
        images: torch.Tensor,
        labels: torch.Tensor,
        ids: NDArray[np.int64],
        *,
        seed: int,
    ) -> Columns:
        """Score one batch: images (n, C, H, W) in [0, 1], labels (n,), on one device; noise keyed by (seed, id, draw).

        The result for a sample must not depend on which other samples share its batch.
        """
        raise MeasureError(Problem(self.name, "a measure that runs the network", f"one that needs {self.needs}"))

    def scorer(self, context: RunContext) -> Scorer:
        """What scores the batches of a task: `from_model`, unless a measure has to open and check files first."""
        return self.from_model

    def picture(self, network: Network, context: RunContext) -> bytes:
        """A file for people that goes into the bundle, one a model."""
        raise MeasureError(Problem(self.name, "a measure with pictures", "one without"))

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
        """Where the attack ends for a few samples (n, C, H, W): the image itself where nothing breaks it.

        `known` are their rows of the score table, which may spare a search what is known to fail.
        """
        raise MeasureError(Problem(self.name, "a measure that shows adversarials", "one without"))

    def sources(self) -> dict[str, str]:
        """URIs that parameters name, by parameter: a server grants them to its callers or not."""
        return {}

    def content(self) -> str:
        """Digest of the files that the parameters name, "" where there are none: part of the cache key.

        It reads files and builds nothing.
        """
        return ""

    def canonical(self) -> str:
        """Canonical JSON of the parameters, with version, layout and content: what the cache key is made of."""
        fields = {"version": self.version, **self.model_dump(mode="json")}
        if self.layout > 1:
            fields["layout"] = self.layout
        content = self.content()
        return json.dumps({**fields, "content": content} if content else fields, sort_keys=True)
