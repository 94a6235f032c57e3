"""Accuracy under common corruptions: noise, blur, weather and what cameras do, at five severities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, field_validator

from services.errors import MeasureError, Problem
from services.measures.corrupting.strengths import COMMON, NAMES, SEVERITIES, Name, Parameters
from services.measures.measure import Columns, Measure, RunContext, Scorer
from services.records import Column, Series

if TYPE_CHECKING:
    import torch

    from services.measures.measure import Network

LEAST_SIDE = 8
LARGE_VALUES = 3 * 100 * 100
NANOSECONDS: dict[Name, tuple[int, int]] = {
    "gaussian_noise": (39, 34),
    "shot_noise": (96, 89),
    "impulse_noise": (32, 34),
    "defocus_blur": (26, 157),
    "glass_blur": (89, 1275),
    "motion_blur": (128, 233),
    "zoom_blur": (243, 182),
    "snow": (93, 76),
    "frost": (93, 76),
    "fog": (153, 31),
    "brightness": (46, 43),
    "contrast": (29, 15),
    "elastic_transform": (169, 269),
    "pixelate": (16, 4),
    "jpeg_compression": (61, 4),
    "speckle_noise": (37, 24),
    "gaussian_blur": (16, 28),
    "spatter": (148, 56),
    "saturate": (83, 74),
}
"""What a value of an image takes a core, measured on RGB of 32 and of 224 pixels; frost as snow."""
GROUPS = {"common": COMMON, "all": NAMES}


def _listed(value: object) -> object:
    return GROUPS.get(value, value) if isinstance(value, str) else value


class Corruptions(Measure):
    """The share of a sample's corrupted versions that are classified correctly, as ImageNet-C and CIFAR-10-C.

    ``score = mean over names and severities of [f(corrupt(x)) = y]``, in [0, 1], and one series a corruption: the mean
    over its severities. An outcome: it says how accurate the network is on these images, and nothing of others. Each
    version of a sample depends on (seed, sample id, corruption, severity) alone. Source: Hendrycks & Dietterich 2019,
    arXiv 1903.12261; how the images are made, and what differs from the authors' programs: `corrupting.corrupt`.

    Attributes:
        names: the corruptions; "common" for the fifteen, "all" for those and the four extra.
        severities: of 1 to 5.
        parameters: "cifar" as CIFAR-10-C, "imagenet" as ImageNet-C, "auto" by the size of the images.
        reference: the model of the fleet whose errors are 1 in mCE and relative mCE; no number of a sample needs it.

    Extra columns: `correct` without corruption, and for each severity `NAME/SEVERITY`, 0 or 1.
    """

    needs: ClassVar[Literal["logits", "model"]] = "model"
    listing: ClassVar[tuple[str, ...]] = ("reference",)

    name: Literal["corruptions"] = "corruptions"
    names: Annotated[tuple[Name, ...], BeforeValidator(_listed), Field(min_length=1)] = COMMON
    severities: Annotated[tuple[Annotated[int, Field(ge=1, le=5)], ...], Field(min_length=1)] = SEVERITIES
    parameters: Literal["auto"] | Parameters = "auto"
    reference: str | None = None

    @field_validator("names", "severities")
    @classmethod
    def _each_once(cls, value: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"expected each once, found {', '.join(map(str, value))}")
        return value

    @property
    def most_passes(self) -> float:
        return 1.0 + len(self.names) * len(self.severities)

    def own_seconds(self, values: int) -> float:
        each = sum(NANOSECONDS[name][values > LARGE_VALUES] for name in self.names)
        return 1e-9 * values * each * len(self.severities)

    def series(self) -> tuple[Series, ...]:
        levels = f"severity {self.severities[0]}" if len(self.severities) == 1 else f"{len(self.severities)} severities"
        single = len(self.severities) == 1
        first = self.one_series(
            self.name,
            f"accuracy under {len(self.names)} corruptions ({levels})",
            binary=single and len(self.names) == 1,
            unit="share of corrupted images",
        )
        each = (
            self.one_series(
                f"{self.name}/{name}",
                f"accuracy under {name.replace('_', ' ')} ({levels})",
                binary=single,
                unit="share of corrupted images",
            )
            for name in self.names
        )
        return first, *each

    def columns(self) -> tuple[Column, ...]:
        return Column("correct"), *(Column(f"{name}/{level}") for name in self.names for level in self.severities)

    def canonical(self) -> str:
        """Without `reference`, which no number of a sample depends on."""
        return super().canonical() if not self.reference else self.model_copy(update={"reference": None}).canonical()

    def content(self) -> str:
        """Digest of the photographs of frost, where they are used.

        Raises:
            MeasureError: they are not installed.
        """
        if "frost" not in self.names:
            return ""
        from services.loading.fingerprint import sha256
        from services.measures.corrupting.frost_photos import photo_files
        from services.records import digest_of

        return digest_of([sha256(file) for file in photo_files()])

    def scorer(self, context: RunContext) -> Scorer:
        """Look at the images' shape before the first batch.

        Raises:
            MeasureError: they are too small, or neither grey nor of three colours.
        """
        _, channels, height, width = context.probe().shape
        if channels not in (1, 3) or min(height, width) < LEAST_SIDE:
            expected = f"grey or RGB images of at least {LEAST_SIDE} x {LEAST_SIDE}"
            raise MeasureError(Problem(self.name, expected, f"{channels} x {height} x {width}"))
        return self.from_model

    def from_model(
        self, network: Network, images: torch.Tensor, labels: torch.Tensor, ids: NDArray[np.int64], *, seed: int
    ) -> Columns:
        import torch

        from services.measures.corrupting.corrupt import corrupted, table_for
        from services.measures.sampling.passes import Passes

        passes = Passes(network, images, labels, ids, seed)
        pixels = (images.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        table = table_for(*images.shape[2:]) if self.parameters == "auto" else self.parameters
        rows = np.arange(len(ids))
        columns: Columns = {"correct": passes.correct()}
        for name in self.names:
            for level in self.severities:
                made = corrupted(name, pixels, ids, severity=level, table=table, seed=seed)
                shown = torch.from_numpy(made).to(images.device).permute(0, 3, 1, 2).float() / 255
                right = passes.margins(shown.contiguous(), rows) > 0
                columns[f"{name}/{level}"] = right.cpu().numpy().astype(np.float64)
            levels = [columns[f"{name}/{level}"] for level in self.severities]
            columns[f"{self.name}/{name}"] = np.mean(levels, axis=0)
        columns[self.name] = np.mean([columns[f"{self.name}/{name}"] for name in self.names], axis=0)
        return columns
