"""Keys of series with their radii as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.measures.parts.threats import key_as_written, radius_key


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("pgd20/linf-8/255", "pgd20/linf-0.03137"),
        ("pgd20/linf-8/255", f"pgd20/{radius_key('Linf', 8 / 255)}"),
        ("pgd20/linf-0.03137", "pgd20/linf-0.03137"),
        ("cw/l2-0.5", "cw/l2-0.50000"),
        ("apgd30-t3x5/linf-1/255", "apgd30-t3x5/linf-0.00392"),
        ("clean", "clean"),
        ("great", "great"),
        ("minimal/l2", "minimal/l2"),
        ("pgd20/linf-8/0", "pgd20/linf-8/0"),
        ("pgd20/linf-8/255/more", "pgd20/linf-8/255/more"),
    ],
)
def test_a_radius_as_people_write_it(written: str, key: str) -> None:
    assert key_as_written(written) == key == key_as_written(key)


@given(st.integers(1, 255))
def test_every_255th_is_the_key_of_its_series(steps: int) -> None:
    assert key_as_written(f"pgd20/linf-{steps}/255") == f"pgd20/{radius_key('Linf', steps / 255)}"


@given(st.text(max_size=300))
def test_any_text_is_read_or_left(text: str) -> None:
    assert isinstance(key_as_written(text), str)
