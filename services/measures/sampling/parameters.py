"""Parameters that the sampling measures share, and the names made of them. No torch: fleet files are validated here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from services import limits
from services.measures.measure import Measure
from services.measures.parts.threats import MOST_RADII, Written, check_pixel_units
from services.measures.sampling.noise import Noise
from services.measures.sampling.perturbation import Functional, Kind
from services.records import ThreatModel

DEFAULT_STRENGTHS: dict[str, tuple[float, ...]] = {
    "rotation": (5.0, 15.0, 30.0),
    "translation": (1.0, 2.0, 4.0),
    "brightness": (0.05, 0.1, 0.2),
    "blur": (0.5, 1.0, 2.0),
}
NOISE_RADII = (8 / 255, 0.08, 0.1, 0.12)
UNITS = {"rotation": "degrees", "translation": "pixels", "brightness": "of [0, 1]", "blur": "pixels"}


def number(value: Any) -> Any:
    """A number, or a fraction as people write radii: "8/255". Anything else is left to pydantic's message."""
    if isinstance(value, str) and value.count("/") == 1:
        try:
            return limits.fraction(value)
        except ValueError:
            return value
    return value


_NUMBER = BeforeValidator(number, json_schema_input_type=Written)
Strength = Annotated[float, _NUMBER, Field(gt=0.0, allow_inf_nan=False)]
Rate = Annotated[float, _NUMBER, Field(ge=1e-12, lt=1.0)]
"""A probability that draws are counted against; a smaller one would ask for more draws than any machine makes."""
Draws = Annotated[int, Field(gt=0, le=10_000_000)]
"""Random draws, passes through the network each, that one sample is given."""


class PerturbationMeasure(Measure):
    """A measure under random perturbations of one kind at one or several strengths.

    Attributes:
        noise: distribution of additive noise; only with perturbation "noise".
        perturbation: "noise", or a functional perturbation.
        radii: strengths, increasing: radius of the Linf ball in [0, 1] pixel units (also sigma or b of the clipped
            Gaussian or Laplace), degrees, pixels, brightness or blur as `services.measures.sampling.perturbation` says.
            "8/255" is understood. Left out: 8/255, 0.08, 0.1 and 0.12 for noise.
    """

    noise: Noise = "uniform"
    perturbation: Functional | Literal["noise"] = "noise"
    radii: Annotated[tuple[Strength, ...], Field(min_length=1, max_length=MOST_RADII)] = NOISE_RADII

    @model_validator(mode="before")
    @classmethod
    def _strengths_of_the_kind(cls, fields: Any) -> Any:
        kind = fields.get("perturbation", "noise") if isinstance(fields, dict) else "noise"
        if isinstance(kind, str) and kind in DEFAULT_STRENGTHS and "radii" not in fields:
            return {**fields, "radii": DEFAULT_STRENGTHS[kind]}
        return fields

    @model_validator(mode="after")
    def _consistent(self) -> PerturbationMeasure:
        if list(self.radii) != sorted(set(self.radii)):
            raise ValueError(f"expected increasing radii, found {self.radii}; sort them and drop repeats")
        if self.perturbation in ("noise", "brightness"):
            check_pixel_units("radii", self.radii)
        if self.perturbation != "noise" and self.noise != "uniform":
            raise ValueError(f"expected no noise beside perturbation {self.perturbation!r}, found {self.noise!r}")
        return self

    @property
    def kind(self) -> Kind:
        """What is applied."""
        return self.noise if self.perturbation == "noise" else self.perturbation

    def label(self, strength: float) -> str:
        """ "uniform-0.03137": the part of a series key that names kind and strength."""
        return f"{self.kind}-{strength:.4g}"

    def spoken(self, strength: float) -> str:
        """ "uniform noise, radius 0.03137": the same for people."""
        if self.perturbation == "noise":
            return f"{self.noise} noise, radius {strength:.4g}"
        return f"{self.perturbation}, up to {strength:.4g} {UNITS[self.perturbation]}"

    def threat(self, strength: float) -> dict[str, Any]:
        """The ball and the noise of a series; perturbations that are no noise have neither."""
        if self.perturbation != "noise":
            return {}
        return {"threat": ThreatModel("Linf", strength), "noise": self.noise}
