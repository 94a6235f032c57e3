"""Progress in a notebook: one output below the cell, written over."""

from __future__ import annotations

import html
import sys
import time
from types import TracebackType
from typing import Any, Self

from jobs.terminal.progress import clock
from services.records import Receipt

SECONDS = 0.5
"""The output is written over at most so often."""


def in_notebook() -> bool:
    """Whether this is a kernel with outputs that can be written over; a shell of IPython is a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class Cell:
    """A bar, the shards and the time left; empty when the audit has ended."""

    def __init__(self) -> None:
        from IPython.display import DisplayHandle

        self._handle: Any = DisplayHandle()
        self._name, self._shards, self._models, self._done = "", 0, 0, 0
        self._share, self._left, self._shown = 0.0, "-:--", 0.0
        self._notes: list[str] = []

    def __enter__(self) -> Self:
        self._handle.display(self._html(""))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.update(self._html(""))

    def stage(self, name: str, shards: int, models: int) -> None:
        """Start the bar anew."""
        self._name, self._shards, self._models = name, shards, models
        self._done, self._share, self._left, self._shown = 0, 0.0, "-:--", 0.0
        if shards:
            self._draw()

    def done(self, receipt: Receipt) -> None:
        """Count the shard."""
        self._done += 1
        self._draw()

    def remaining(self, share: float, seconds: float) -> None:
        """Move the bar."""
        self._share, self._left = share, clock(seconds)
        self._draw()

    def note(self, text: str) -> None:
        """Keep a line above the bar."""
        self._notes.append(text)
        self._shown = 0.0
        self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now - self._shown < SECONDS:
            return
        self._shown = now
        bar = f'<progress max="1" value="{self._share:.3f}" aria-label="{html.escape(self._name)}"></progress>'
        counts = f"{self._done}/{self._shards} shards of {self._models} models, left {self._left}"
        self._handle.update(self._html(f"<div>{html.escape(self._name)} {bar} {counts}</div>"))

    def _html(self, bar: str) -> Any:
        from IPython.display import HTML

        return HTML("".join(f"<div>{html.escape(note)}</div>" for note in self._notes) + bar)
