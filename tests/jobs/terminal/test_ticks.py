"""What is done again and again beside a long call, and what comes of its errors."""

from __future__ import annotations

import threading

import pytest

from jobs.terminal.ticks import every


def test_it_is_done_until_the_block_ends() -> None:
    done, count = threading.Event(), []

    def act() -> None:
        count.append(1)
        if len(count) == 3:
            done.set()

    with every(0.001, act):
        assert done.wait(10)
    assert not [each for each in threading.enumerate() if each.name == "ticks"]


def test_its_error_is_the_callers() -> None:
    failed = threading.Event()

    def act() -> None:
        failed.set()
        raise BrokenPipeError("the terminal is gone")

    with pytest.raises(BrokenPipeError, match="is gone"), every(0.001, act):
        assert failed.wait(10)
