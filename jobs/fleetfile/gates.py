"""A gate of the fleet file: the condition on which a model ships."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from jobs.fleetfile.parts import Part
from services.measures.parts.threats import key_as_written
from services.metrics import METRICS
from services.records import Threshold


def _metric_name(value: Any) -> Any:
    """`falsified` is what 0.1.0 called `refuted`."""
    return "refuted" if value == "falsified" else value


def _series_key(value: Any) -> Any:
    return key_as_written(value) if isinstance(value, str) else value


if TYPE_CHECKING:
    MetricName = str
else:
    MetricName = Annotated[Literal[tuple(METRICS)], BeforeValidator(_metric_name)]


class GateConfig(Part):
    """A condition on which a model ships, judged on the bound and not on the estimate."""

    measure: Annotated[str, BeforeValidator(_series_key)] = Field(
        description="Key of a series: clean, great, pgd20/linf-8/255 ..."
    )
    metric: MetricName
    grouping: str = "class"
    at_least: float | None = None
    at_most: float | None = None
    not_worse_than: str | None = Field(
        None, description="'accepted', 'first' (the first that was accepted), 'last' or an audit id: on paired samples."
    )
    margin: float = Field(0.0, ge=0, description="How much worse still counts as not worse.")
    overrule: tuple[Literal["inadequate-attack", "refuted-claim", "bound-as-value"], ...] = Field(
        (), description="Objections to a pass that you overrule, by name; the verdict and MLflow say so."
    )

    @model_validator(mode="after")
    def _one_condition(self) -> GateConfig:
        conditions = [name for name in ("at_least", "at_most", "not_worse_than") if getattr(self, name) is not None]
        if len(conditions) != 1:
            raise ValueError(f"give exactly one of at_least, at_most, not_worse_than; found {conditions or 'none'}")
        if self.not_worse_than is not None and METRICS[self.metric].needs not in ("samples", "pairs"):
            raise ValueError("not_worse_than compares paired samples; set metric: aggregate, or classes for each")
        if self.metric == "classes" and (self.not_worse_than is None or self.grouping != "class"):
            raise ValueError("metric: classes goes with not_worse_than and grouping class: it compares every class")
        if self.margin and self.not_worse_than is None:
            raise ValueError("margin belongs to not_worse_than")
        return self


def threshold_of(gate: GateConfig) -> Threshold | None:
    """What a gate asks of a number; None for a comparison with another audit."""
    if gate.at_least is not None:
        return Threshold(gate.measure, gate.metric, gate.grouping, ">=", gate.at_least)
    if gate.at_most is not None:
        return Threshold(gate.measure, gate.metric, gate.grouping, "<=", gate.at_most)
    return None


def gate_text(gate: GateConfig) -> str:
    """The gate as a sentence: "great wcr >= 0.05"."""
    what = f"{gate.measure} {gate.metric}" + (f" by {gate.grouping}" if gate.grouping != "class" else "")
    if gate.at_least is not None:
        return f"{what} >= {gate.at_least:g}"
    if gate.at_most is not None:
        return f"{what} <= {gate.at_most:g}"
    return f"{what} not worse than {gate.not_worse_than} by more than {gate.margin:g}"
