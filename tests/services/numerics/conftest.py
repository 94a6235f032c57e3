"""What the tests of the numerics share."""

from __future__ import annotations

import pytest

from services.numerics.intervals.sequential import mixture_boundary


@pytest.fixture(autouse=True)
def no_boundary_of_an_earlier_test() -> None:
    """A boundary from the cache would hide that it is not computed rightly any more."""
    mixture_boundary.cache_clear()
