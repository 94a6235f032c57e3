"""What audits that are compared with each other need is where those are tested."""

from __future__ import annotations

from tests.jobs.comparison.conftest import swapped

__all__ = ["swapped"]
