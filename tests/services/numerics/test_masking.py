"""Signs of masked gradients: each is seen where it is, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics.masking import Limits, Observations, Sign, find_masking

N = 1000
CORRECT = np.arange(N) < 800
STANDS = (np.arange(N) < 400).astype(float)


def sign_of(**columns: np.ndarray) -> list[tuple[str, int]]:
    seen = Observations(CORRECT, STANDS, **columns)
    return [(finding.sign, finding.samples) for finding in find_masking(seen)]


def test_a_healthy_table_has_no_finding() -> None:
    everything = np.ones(N)
    assert sign_of(zero_gradient=0 * everything, noise=everything, black_box=everything, shorter=STANDS) == []
    assert sign_of(unbounded=0 * everything) == []
    assert sign_of() == []


@pytest.mark.parametrize("name", ["noise", "black_box", "shorter"])
def test_a_weaker_attack_that_breaks_more(name: str) -> None:
    weaker = np.ones(N)
    weaker[390:410] = 0
    sign = {"noise": Sign.NOISE, "black_box": Sign.BLACK_BOX, "shorter": Sign.SHORTER}[name]
    assert sign_of(**{name: weaker}) == [(sign, 10)]


def test_one_failed_draw_of_noise_counts() -> None:
    noise = np.ones(N)
    noise[:5] = 0.99
    assert sign_of(noise=noise) == [(Sign.NOISE, 5)]


def test_small_shares_are_left_to_chance() -> None:
    black_box = np.ones(N)
    black_box[0] = 0
    assert sign_of(black_box=black_box) == []
    seen = Observations(CORRECT, STANDS, black_box=black_box)
    assert len(find_masking(seen, Limits(weaker=0.0))) == 1


def test_zero_gradients_and_unbounded_survival() -> None:
    zero = np.where(np.arange(N) < 80, 0.5, 0.4)
    assert sign_of(zero_gradient=zero) == [(Sign.ZERO_GRADIENT, 80)]
    unbounded = (np.arange(N) >= 799).astype(float)
    assert sign_of(unbounded=unbounded) == [(Sign.UNBOUNDED, 1)]


def test_sentence_and_share_speak_of_the_correctly_classified() -> None:
    (finding,) = find_masking(Observations(CORRECT, STANDS, zero_gradient=np.ones(N)))
    assert finding.share == 1.0 and finding.sentence.startswith("For 800 of 800 correctly classified samples (100.0%)")
    assert find_masking(Observations(np.zeros(N), STANDS, zero_gradient=np.ones(N))) == ()


def test_columns_of_other_length() -> None:
    with pytest.raises(MeasureError, match="columns of 1000 samples"):
        sign_of(noise=np.ones(3))
