from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from services.records import AuditResult, CalibrationResult, Estimate
from tracking.words import calibration_words, fleet_words, interval, model_words, rank_correlation, series_words


def test_the_published_fleet_in_words(gf_audit: AuditResult) -> None:
    text = " ".join(fleet_words(gf_audit))
    assert "17 models audited on 10,000 samples: 1 pass, 14 fail, 2 undecided." in text
    assert "RDI grows with the scale of the scores" in text
    assert "Calibration lowers the rank correlation" in text and "0.662 before, 0.520 after" in text
    assert "Clean accuracy alone correlates as well or better (0.863)" in text and "edge of the grid" in text


def test_one_series_in_words(gf_audit: AuditResult) -> None:
    great = gf_audit.models[0].series[0]
    first = next(iter(series_words(great)))
    assert first.startswith(
        "GREAT score (sigmoid, T=1): the worst class is cat at 0.335, certified to be at least 0.322"
    )
    tied = replace(great, worst=("cat", "dog"))
    assert "cat, dog tie for the worst class" in next(iter(series_words(tied)))
    close = " ".join(series_words(replace(great, not_separated=("dog",))))
    assert "do not separate cat from dog" in close
    groups = tuple(replace(group, score=replace(group.score, vacuous=True)) for group in great.groups)
    assert "10 of 10 intervals" in " ".join(series_words(replace(great, groups=groups, missing=("frog",))))
    empty = replace(great, worst=(), wcr=Estimate(None, reason="no samples"))
    assert list(series_words(empty)) == ["GREAT score (sigmoid, T=1): no worst class, because no samples."]
    noted = replace(gf_audit.models[0], notes=("98 % of margins saturate.",))
    assert model_words(noted)[-1] == "98 % of margins saturate."


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.5, 0.4, 0.6), "0.500 (0.400 to 0.600)"),
        (Estimate(0.5, 0.4), "0.500 (at least 0.400)"),
        (Estimate(0.5, None, 0.6), "0.500 (at most 0.600)"),
        (Estimate(0.01234), "0.0123"),
        (Estimate(None, reason="all scores are 0"), "undefined (all scores are 0)"),
    ],
)
def test_intervals_in_words(estimate: Estimate, text: str) -> None:
    assert interval(estimate) == text


def test_an_undefined_temperature_has_its_reason() -> None:
    found = CalibrationResult("fleet-accuracy", None, reason="two models only")
    assert list(calibration_words(found)) == ["No temperature was chosen (fleet-accuracy): two models only."]


def test_rank_correlation_agrees_with_scipy() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        a, b = draw.integers(0, 5, 12).astype(float), draw.normal(size=12)
        assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert rank_correlation(np.ones(4), np.arange(4.0)) is None
