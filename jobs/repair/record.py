"""What a repair came to, as it stands in the bundle of the repaired network's audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from services.records import Estimate
from tracking.bundle.record_file import RecordFile

REPAIRED, WORSE, OPEN = "repaired", "worse", "not shown"


@dataclass(frozen=True)
class Repair:
    """``repair.json`` in the bundle of the repaired network's audit.

    Attributes:
        model, series: what was repaired, and under which series.
        offsets: (K,) to be added to the logits.
        before, after: audits of the network as it is and of the repaired one, on `samples` samples that took no part.
        fitted: how many samples the offsets were fitted on.
        tried: worst class and mean on those, of the candidates between which no other is better in both.
        worst: change of the worst class's mean, worst after less worst before; each limit at `level`.
        mean: change of the mean of all samples; each limit at `level`.
        use: which use of the samples kept apart it is since the last acceptance, from 1 on. The level falls with each,
            so that all together keep delta: by halves where the fleet file reserves no samples, else as
            `confirmation` says.
        remedy: "offsets" or "tuning".
        uri: source of the fine-tuned network; "" for the model's own.
        training: method, recipe and samples of the fine-tuning, as its sweep has them.
        mean_before: mean of all samples before.
        content: digest of the samples that show it: repairs shown on the same ones can be held side by side.
    """

    model: str
    series: str
    offsets: tuple[float, ...]
    before: str
    after: str
    fitted: int
    samples: int
    tried: tuple[tuple[float, float], ...]
    worst_before: float
    worst_after: float
    worst: Estimate
    mean: Estimate
    use: int
    level: float
    remedy: str = "offsets"
    uri: str = ""
    training: dict[str, Any] = field(default_factory=dict)
    mean_before: float = float("nan")
    content: str = ""
    schema_version: int = 1

    @property
    def verdict(self) -> str:
        """What the fresh samples show of the worst class."""
        if self.worst.low is not None and self.worst.low > 0:
            return REPAIRED
        return WORSE if self.worst.high is not None and self.worst.high < 0 else OPEN


REPAIR_FILE = RecordFile("repair.json", TypeAdapter(Repair), "a record of a repair", "repair again", 1)
