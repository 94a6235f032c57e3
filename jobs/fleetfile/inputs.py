"""What a fleet file says of models and samples, and the kinds of text that its parts share."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from jobs.fleetfile.followups import PromoteConfig
from jobs.fleetfile.parts import Part
from services.records import Outputs, Overrulable

JOINERS = "\u200c\u200d"
"""Invisible, and part of how Persian and emoji are written."""


def _legible(name: str) -> str:
    """A name is what it looks like: nothing invisible, nothing that turns the direction of what follows."""
    hidden = [char for char in name if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    if hidden := [char for char in hidden if char not in JOINERS]:
        raise ValueError(f"a name without control or invisible characters (it has U+{ord(hidden[0]):04X})")
    if name != name.strip():
        raise ValueError("a name without blanks at its ends")
    return unicodedata.normalize("NFC", name)


def crossed(grouping: str) -> tuple[str, ...]:
    """The columns that a grouping is made of: `class*sex` crosses the class with the column sex."""
    return tuple(side.strip() for side in grouping.split("*"))


Share = Annotated[float, Field(ge=0, le=1)]
Offset = Annotated[float, Field(ge=-1e6, le=1e6)]
Side = Annotated[int, Field(ge=1, le=8192)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_legible)]
JobName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
TagKey = Annotated[str, Field(max_length=40, pattern=r"^[a-z][a-z0-9_.-]*$")]
TagValue = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_legible)]
Uri = Annotated[str, Field(min_length=3, max_length=4000, pattern=r"^[A-Za-z][A-Za-z0-9+.-]*:.+")]


class InputConfig(Part):
    """What the network expects; samples are always given as [0, 1] and turned into this."""

    range: tuple[float, float] = Field((0.0, 1.0), description="Value range of the input before normalisation.")
    mean: tuple[float, ...] | None = Field(None, description="Per-channel mean; omit when the network normalises.")
    std: tuple[float, ...] | None = Field(None, description="Per-channel standard deviation; goes with mean.")
    size: tuple[Side, Side] | None = Field(None, description="(height, width) to resize to.")
    channels: Literal[1, 3] | None = Field(None, description="Convert samples to so many channels.")
    channel_order: Literal["RGB", "BGR"] = Field("RGB", description="Order of colours, of mean and std too.")

    @model_validator(mode="after")
    def _pairs(self) -> InputConfig:
        if (self.mean is None) != (self.std is None):
            raise ValueError("give mean and std together, or neither when the network normalises inside")
        if self.mean is not None and self.std is not None:
            if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3):
                raise ValueError("mean and std need one value a channel: 1 or 3 of each")
            if min(self.std) <= 0:
                raise ValueError("std must be positive")
        if self.range[0] >= self.range[1]:
            raise ValueError("range must be [low, high] with low < high")
        return self


class ThreatConfig(Part):
    """The perturbations a model was made to withstand."""

    norm: Literal["Linf", "L2", "L1", "corruptions"]
    epsilon: float = Field(
        default=0.0, ge=0, description="Radius in [0,1] pixel units: 8/255 is 0.03137. Common corruptions have none."
    )

    @model_validator(mode="after")
    def _units(self) -> ThreatConfig:
        if (self.norm == "corruptions") != (self.epsilon == 0):
            wanted = "no epsilon beside corruptions" if self.epsilon else f"an epsilon above 0 beside {self.norm}"
            raise ValueError(f"{wanted}; a radius belongs to a norm")
        if self.norm == "Linf" and self.epsilon > 1:
            raise ValueError(
                f"an Linf epsilon is in [0,1] pixel units; {self.epsilon:g} was meant as "
                f"{self.epsilon:g}/255 = {self.epsilon / 255:.5f}?"
            )
        return self


class ModelConfig(Part):
    """One model of the fleet."""

    name: Name = Field(description="Unique in the fleet; appears in tables, MLflow and gates.")
    uri: Uri = Field(
        description="factory:, torchscript:, export:, onnx:, timm:, torchvision:, robustbench:, mlflow:, http:, logits:"
    )
    input: InputConfig | None = None
    outputs: Outputs = "logits"
    output: str | int | None = Field(None, description="Index or key of the logits when the network returns several.")
    classes: tuple[str, ...] | None = Field(
        None, min_length=2, max_length=100_000, description="Class names in output order, checked against the data."
    )
    clean_accuracy: Share | None = Field(None, description="Declared accuracy on these samples; preflight compares.")
    robust_accuracy: Share | None = Field(None, description="Published robust accuracy; reference of calibration.")
    threat_model: ThreatConfig | None = None
    stochastic: bool = False
    allow_unpickling: bool = False
    offsets: tuple[Offset, ...] = Field(
        (),
        max_length=100_000,
        description="Added to the logits, one number a class: `classwise repair` fits them. Attacks see the sum.",
    )
    overrule: tuple[Overrulable, ...] = Field(
        (),
        description="Findings of preflight that you have checked and found right; each becomes a note.",
    )
    tags: dict[TagKey, TagValue] = Field(
        {},
        max_length=20,
        description="What is known of the model, such as method and dataset; leaderboards filter by it.",
    )
    promote: PromoteConfig | None = Field(None, description="For this `mlflow:models:` model, in place of the file's.")


class SamplesConfig(Part):
    """The labelled images to audit on."""

    uri: Uri = Field(
        description="npz:, parquet:, imagefolder:, torchvision:, robustbench:, hf:, mlflow:, sklearn:digits, generator:"
    )
    per_class: int | None = Field(None, ge=1)
    limit: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    on_corrupt: Literal["error", "skip"] = "error"
    duplicates: Literal["once", "all"] = Field(
        "once", description="once: copies of an image with the same label are left out; all: each is a sample."
    )
    cluster: Name | None = Field(
        None,
        description="Column of what samples belong to (patient, video, camera): the unit of all intervals.",
    )
    reserve: float | None = Field(
        None, gt=0, lt=1, description="Share that no audit sees, to confirm what is accepted, promoted or called worse."
    )
    part: Literal["audit", "reserve"] = Field("audit", description="Which of them; reserve needs `reserve`.")
    training: Uri | None = Field(
        None, description="What the models were trained on; samples that are among it are counted in the notes."
    )

    @model_validator(mode="after")
    def _reserved(self) -> SamplesConfig:
        if self.part == "reserve" and self.reserve is None:
            raise ValueError("part: reserve needs reserve, the share that is kept apart")
        return self

    @model_validator(mode="after")
    def _whole_clusters(self) -> SamplesConfig:
        if self.cluster is not None and (self.per_class is not None or self.limit is not None):
            raise ValueError(
                "cluster goes without per_class and limit, which draw samples and would favour large clusters; "
                "name a source of the clusters that you want"
            )
        return self
