"""What a sweep logs where standard error is for machines: a line a trial and, at level debug, a line an epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from services.records.trials import EpochPoint, TrialResult
from services.telemetry import logs

_log = logging.getLogger("classwise.training")


class LoggedTraining:
    """Hears what a sweep does and logs it."""

    def sweep(self, names: Sequence[str], epochs: Sequence[int]) -> None:
        """The sweep begins."""
        logs.event(_log, logging.INFO, "sweep begins", trials=len(names), epochs=sum(epochs))

    def begun(self, name: str, done: int) -> None:
        """A trial begins, or goes on."""
        logs.event(_log, logging.INFO, "trial begins", trial=name, done=done)

    def epoch(self, name: str, point: EpochPoint) -> None:
        """An epoch ended."""
        details = {"epoch": point.epoch, "loss": point.loss, "seconds": round(point.seconds, 3)}
        logs.event(_log, logging.DEBUG, "epoch done", trial=name, **details)

    def ended(self, result: TrialResult) -> None:
        """A trial ended."""
        details = {"state": str(result.state), "reason": result.reason, "seconds": round(result.seconds, 3)}
        logs.event(_log, logging.INFO, "trial ended", trial=result.name, **details)

    def note(self, text: str) -> None:
        """A warning."""
        _log.warning("%s", text)
