"""A Ray that starts here alone listens on 127.0.0.1 alone: its ports run code for whoever reaches them.

Ray takes 127.0.0.1 for a mistake and puts the machine's address in its place, unless it was told that there are no
other nodes. Then all of it stays on the loopback: GCS, raylet, agents, metrics, workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray._private import ray_constants

VARIABLE = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
"""Says the same to ``ray start`` and to what joins its node: "0". Its name is of other systems, Linux reads it too."""


@contextmanager
def without_other_nodes() -> Iterator[None]:
    """What is started inside has no other nodes."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
