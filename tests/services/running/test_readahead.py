"""Reading ahead changes when images are read, and nothing else."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pytest

from services.running.readahead import ReadAhead

MAIN = "MainThread"


@dataclass
class Numbered:
    """Images that are their row's number; knows who read what."""

    broken: int = -1
    reads: list[tuple[int, int, bool]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def images(self, start: int, stop: int) -> np.ndarray:
        here = threading.current_thread().name == MAIN
        self.reads.append((start, stop, here))
        if not here:
            self.ended.set()
        if start <= self.broken < stop:
            raise ValueError("broken")
        return np.arange(start, stop, dtype=np.float32).reshape(-1, 1, 1, 1)


def test_the_next_batch_is_read_by_another_thread_before_it_is_asked_for() -> None:
    samples, reading = Numbered(), ReadAhead()
    assert reading.images(samples, 0, 4, 10).ravel().tolist() == [0, 1, 2, 3]
    assert samples.ended.wait(10)
    assert samples.reads == [(0, 4, True), (4, 8, False)]
    assert reading.images(samples, 4, 8, 10).ravel().tolist() == [4, 5, 6, 7]
    assert reading.images(samples, 8, 10, 10).ravel().tolist() == [8, 9]
    assert samples.reads == [(0, 4, True), (4, 8, False), (8, 10, False)]


def test_another_batch_than_the_expected_one_is_read_afresh() -> None:
    """A batch is halved when memory runs out, and another model begins at the first row."""
    samples, reading = Numbered(), ReadAhead()
    reading.images(samples, 0, 4, 10)
    assert reading.images(samples, 4, 6, 10).ravel().tolist() == [4, 5]
    assert reading.images(samples, 0, 4, 4).ravel().tolist() == [0, 1, 2, 3]
    other = Numbered()
    reading.images(samples, 0, 4, 10)
    assert reading.images(other, 4, 8, 8).ravel().tolist() == [4, 5, 6, 7]
    assert other.reads == [(4, 8, True)]


def test_a_fault_ahead_is_told_when_its_batch_is_asked_for() -> None:
    samples, reading = Numbered(broken=5), ReadAhead()
    reading.images(samples, 0, 4, 8)
    with pytest.raises(ValueError, match="broken"):
        reading.images(samples, 4, 8, 8)
