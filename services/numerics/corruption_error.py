"""mCE and relative mCE: errors under corruption in units of a reference's (Hendrycks & Dietterich 2019, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CorruptionErrors:
    """A model against a reference.

    Attributes:
        mce: the mean over corruptions of ``CE_c = sum_s E_s,c / sum_s E_s,c of the reference``; 1 is as good as it.
        relative: the mean of ``sum_s (E_s,c - E_clean) / sum_s (E_s,c - E_clean) of the reference``.
        reasons: why one of them is None.
    """

    mce: float | None
    relative: float | None
    reasons: tuple[str, ...] = ()


def corruption_errors(
    errors: Sequence[float], clean: float, reference: Sequence[float], reference_clean: float
) -> CorruptionErrors:
    """From the mean error over severities of each corruption, and the errors without corruption, in [0, 1].

    A mean of ratios is undefined where a reference makes no errors, or no more of them than without corruption.
    """
    ratios = [e / r for e, r in zip(errors, reference, strict=True) if r > 0]
    more = [r - reference_clean for r in reference]
    relative = [(e - clean) / m for e, m in zip(errors, more, strict=True) if m > 0]
    reasons = []
    if len(ratios) < len(errors):
        reasons.append(f"the reference makes no errors under {len(errors) - len(ratios)} corruptions")
    if len(relative) < len(errors):
        without = len(errors) - len(relative)
        reasons.append(f"{without} corruptions cost the reference no accuracy")
    return CorruptionErrors(
        sum(ratios) / len(ratios) if len(ratios) == len(errors) else None,
        sum(relative) / len(relative) if len(relative) == len(errors) else None,
        tuple(reasons),
    )
