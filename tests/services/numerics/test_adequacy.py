"""Whether attacks were adequate, from what was observed of them."""

from __future__ import annotations

import pytest

from services.numerics.adequacy import Adequacy, AttackObservations, adequacy
from services.numerics.masking import Finding, Sign

SIGN = Finding(Sign.NOISE, 3, 0.03, "For 3 of 100 samples noise did better.")
SOUND = AttackObservations("pgd", ("pgd20/linf-0.1",), gradients=True)
BLIND = AttackObservations("square", ("square/linf-0.1",), gradients=False)
MASKED = AttackObservations("cw", ("cw20/linf-0.1",), gradients=True, findings=(SIGN,))


@pytest.mark.parametrize(
    ("seen", "expected", "word"),
    [
        ((SOUND,), Adequacy.ADEQUATE, ""),
        ((SOUND, BLIND), Adequacy.ADEQUATE, ""),
        ((BLIND,), Adequacy.UNKNOWN, "gradients"),
        ((), Adequacy.UNKNOWN, "no attack"),
        ((MASKED,), Adequacy.INADEQUATE, SIGN.sentence),
        ((SOUND, MASKED), Adequacy.INADEQUATE, "cw"),
        ((BLIND, MASKED), Adequacy.INADEQUATE, "autoattack"),
    ],
)
def test_any_sign_speaks_against_and_silence_for_nobody(
    seen: tuple[AttackObservations, ...], expected: Adequacy, word: str
) -> None:
    result = adequacy(seen)
    assert result.adequacy is expected
    assert word in " ".join(result.reasons) and bool(result.reasons) is (expected is not Adequacy.ADEQUATE)
