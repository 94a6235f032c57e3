"""What a loaded model and an opened set of samples are to the rest of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from services.records import Intake, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


class Samples(Protocol):
    """Labelled images, opened but not all read. Opening imports no torch.

    Attributes:
        labels: (N,) int64 in [0, K).
        ids: (N,) int64, a stable identity of each sample in its source: noise is keyed by it.
        classes: K names in label order.
        groups: by column name, (N,) strings.
        digest: of the content and the selection; grouping columns are not in it, for no logit depends on them.
        content: of the content alone, whatever is selected: what shows whether two audits used the same samples.
        group_names: by column name, all values that the source has in it, sorted; those of no selected sample too.
        skipped: items that could not be read, left out, per class name.
        intake: what became of everything that the source holds.
        shape: (C, H, W) of one image.
        keys: (N,) names of the images in their source, such as paths of files; None where they have none. No digest has
            them: a folder that was moved holds the same samples.
        clusters: (N,) int64, a number for each cluster of samples that belong together; None where all are independent.
    """

    @property
    def labels(self) -> NDArray[np.int64]: ...

    @property
    def ids(self) -> NDArray[np.int64]: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def groups(self) -> Mapping[str, NDArray[Any]]: ...

    @property
    def digest(self) -> str: ...

    @property
    def content(self) -> str: ...

    @property
    def skipped(self) -> Mapping[str, int]: ...

    @property
    def group_names(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def intake(self) -> Intake: ...

    @property
    def shape(self) -> tuple[int, int, int]: ...

    @property
    def keys(self) -> NDArray[Any] | None: ...

    @property
    def clusters(self) -> NDArray[np.int64] | None: ...

    def __len__(self) -> int: ...

    def images(self, start: int, stop: int) -> NDArray[np.float32]:
        """Images of rows [start, stop) as (n, C, H, W) float32 in [0, 1], C-contiguous and writable."""
        ...


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run.

    Attributes:
        spec: what was asked.
        network: maps float32 NCHW images in [0, 1] on `device` to float32 logits (n, K); None for `logits:` sources.
        digest: the model's fingerprint (weights and code).
        differentiable: gradients flow from logits to images.
        logits: for `logits:` sources, the function from sample ids (n,) to logits (n, K).
        facts: parameter count, dtype, notes of the loader.
    """

    spec: ModelSpec
    network: Callable[[torch.Tensor], torch.Tensor] | None
    digest: str
    differentiable: bool = True
    logits: Callable[[NDArray[np.int64]], NDArray[np.float32]] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
