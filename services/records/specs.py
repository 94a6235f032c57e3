"""Specifications of models and samples, as a fleet file asks for them. `services.records` passes these names on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outputs = Literal["logits", "probabilities", "percentages", "log-probabilities", "sigmoid"]
"""What the numbers that a network returns are."""

Overrulable = Literal["class-order", "chance", "clean-accuracy", "input", "outputs"]
"""Findings of preflight that rest on statistics: a user who knows better may overrule them by these names."""


@dataclass(frozen=True, slots=True)
class InputContract:
    """What a network expects of its input. Samples always arrive as float32 NCHW in [0, 1].

    Attributes:
        low, high: value range of the network's input before normalisation; [0, 1] is rescaled to it.
        mean, std: per-channel normalisation that classwise applies, in units of that range; None when the network
            normalises inside. Saying both here and inside is the commonest fault of all, and preflight looks for it.
        size: (height, width) to which samples are resized (bilinear, antialiased); None means as they come.
        channels: 1 or 3 to convert the samples to; None means as they come.
        channel_order: of colours in the network's input; `mean` and `std` are in this order too.
    """

    low: float = 0.0
    high: float = 1.0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: tuple[int, int] | None = None
    channels: int | None = None
    channel_order: Literal["RGB", "BGR"] = "RGB"


@dataclass(frozen=True, slots=True)
class ThreatModel:
    """The perturbations a model was trained or is judged against: a norm and a radius in [0, 1] pixel units.

    Common corruptions have no radius; theirs is 0.
    """

    norm: Literal["Linf", "L2", "L1", "corruptions"]
    epsilon: float = 0.0

    @property
    def words(self) -> str:
        """`Linf 0.03137`, or `corruptions`."""
        return self.norm if self.norm == "corruptions" else f"{self.norm} {self.epsilon:.4g}"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model of a fleet, as a worker needs it.

    Attributes:
        name: unique in the fleet.
        uri: source, `scheme:rest?query`.
        input: the input contract.
        outputs: what the network returns, turned into logits: "probabilities" and "percentages" by a logarithm,
            "sigmoid" (one probability a class) by its inverse, "log-probabilities" as they are. The choice is declared,
            never guessed from the values.
        output: for networks that return a tuple or a mapping: the index or key of the logits.
        classes: the model's class names in output order; None means the samples' order.
        clean_accuracy: declared accuracy on these samples in [0, 1]; preflight compares.
        robust_accuracy: published robust accuracy in [0, 1], the reference ranking of calibration.
        threat_model: declared, recorded, and never mixed in a ranking with another.
        stochastic: True for a declared randomised defence; else two passes that differ are an error.
        allow_unpickling: load checkpoints that need pickle; recorded as a tag.
        overrule: findings of preflight that the user has checked; they become notes.
        offsets: (K,) added to the logits, part of the model for every measure and attack; () for none.
        tags: what is known about the model (how it was trained, on what), as pairs; recorded, no part of any cache key.
    """

    name: str
    uri: str
    input: InputContract = InputContract()
    outputs: Outputs = "logits"
    output: str | int | None = None
    classes: tuple[str, ...] | None = None
    clean_accuracy: float | None = None
    robust_accuracy: float | None = None
    threat_model: ThreatModel | None = None
    stochastic: bool = False
    allow_unpickling: bool = False
    overrule: tuple[Overrulable, ...] = ()
    offsets: tuple[float, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def remote(self) -> bool:
        """Whether a server answers: it takes no memory here, and counts the requests of all workers together."""
        return self.uri.startswith("http:")


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """The samples of an audit.

    Attributes:
        uri: source, `scheme:rest?query`.
        per_class: at most this many samples of each class, drawn stratified with `seed`; None means all.
        limit: at most this many samples in all, stratified in proportion, at least one of each class; None means all.
        seed: of the draw.
        groups: names of columns of the source that give groupings besides the class.
        on_corrupt: "error" or "skip" (counted per class).
        duplicates: "once": an image counts once under each label; "all": each copy is a sample.
        training: source of the images that the models were trained on; None where none is declared.
        reserve: share of the samples that no audit sees until something is to be confirmed.
        part: "audit" for the others, "reserve" for these.
        cluster: name of the column that says which samples belong together; None where all are independent.
        digest: of the samples when the audit began; others under that name are refused: their numbers would enter the
            cache as those of these. "" is not compared.
    """

    uri: str
    per_class: int | None = None
    limit: int | None = None
    seed: int = 0
    groups: tuple[str, ...] = ()
    on_corrupt: Literal["error", "skip"] = "error"
    duplicates: Literal["once", "all"] = "once"
    training: str | None = None
    cluster: str | None = None
    reserve: float = 0.0
    part: Literal["audit", "reserve"] = "audit"
    digest: str = ""
