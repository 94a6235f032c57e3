"""How much preflight looks at."""

from __future__ import annotations

PROBE = 256
"""Samples of the probe, stratified in proportion to the classes."""
CHUNK = 64
WIDER = 1024
"""Samples of a second look where the first one suggests other colours, turned images or wrong labels."""
MOST_BYTES = 2 << 30
"""Of the images of a probe as float32: 1024 of 3x418x418 are as many."""
SINGLE = 4
"""Samples also passed one by one."""
FILLED = 1024
"""Images of the largest batch that is tried, where the audit's are larger."""
TRIED = 128
"""Samples that other contracts are tried on."""
TIMED, REPEATS = 64, 2
"""Images whose passes are timed, and how often; the fastest counts: what slows one down is no part of the network."""


def most_queries(count: int) -> int:
    """Images that preflight sends to a remote model at most, of `count` samples.

    The probe as it is, undeclared, in two other channel orders and turned three times; four other contracts; the same
    batch again, and in the other order, alone and in pairs; timed.
    """
    return 7 * min(PROBE, count) + 4 * min(TRIED, count) + 2 * CHUNK + 2 * SINGLE + REPEATS * TIMED
