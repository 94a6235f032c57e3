"""Signs of masked gradients: each is seen where it is, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from services.errors import MeasureError
from services.numerics.masking import Finding, Limits, Observations, Sign, find_masking

N = 1000
CORRECT = np.arange(N) < 800
STANDS = (np.arange(N) < 400).astype(float)


def sign_of(**columns: np.ndarray) -> list[tuple[str, int]]:
    observed = Observations(CORRECT, STANDS, **columns)
    return [(finding.sign, finding.samples) for finding in find_masking(observed)]


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
    observed = Observations(CORRECT, STANDS, black_box=black_box)
    assert len(find_masking(observed, Limits(weaker=0.0))) == 1


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


def test_findings_whole_and_in_order() -> None:
    """Four samples, three right, of which the attack breaks one: one sign each of 1 in 3, and 2 in 3 for zeros."""
    observed = Observations(
        correct=[1, 1, 1, 0],
        attack=[1, 1, 0, 1],
        zero_gradient=[0.5, 0.49, 1.0, 1.0],
        noise=[0.99, 1.0, 0.0, 0.0],
        black_box=[1, 0, 0, 0],
        shorter=[0, 1, 0, 0],
        unbounded=[0, 0, 1, 1],
    )
    third, words = 1 / 3, "For 1 of 3 correctly classified samples (33.3%) "
    assert find_masking(observed) == (
        Finding(
            Sign.ZERO_GRADIENT,
            2,
            2 / 3,
            "For 2 of 3 correctly classified samples (66.7%) at least half of the input gradients were exactly zero, "
            "so a gradient attack could not move.",
        ),
        Finding(
            Sign.NOISE, 1, third, f"{words}the gradient attack failed where random noise in the same ball succeeded."
        ),
        Finding(
            Sign.BLACK_BOX,
            1,
            third,
            f"{words}the gradient attack failed where a black-box attack in the same ball succeeded.",
        ),
        Finding(Sign.SHORTER, 1, third, f"{words}the attack failed where the same attack with fewer steps succeeded."),
        Finding(Sign.UNBOUNDED, 1, third, f"{words}the attack failed in a ball large enough to hold any image."),
    )


def test_a_share_at_the_limit_is_no_finding() -> None:
    observed = Observations([1, 1], [1, 1], zero_gradient=[1, 0], noise=[0, 1], unbounded=[1, 0])
    assert len(find_masking(observed, Limits(0.49, 0.49, 0.49))) == 3
    assert find_masking(observed, Limits(zero=0.5, weaker=0.5, unbounded=0.5)) == ()
    assert [type(f.samples) for f in find_masking(observed)] == [int] * 3
    assert [type(f.share) for f in find_masking(observed)] == [float] * 3
