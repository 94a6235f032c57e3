"""Rank correlations against scipy and the published ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from services.errors import MeasureError
from services.numerics.ranking.ranks import ranks, reranking, spearman, spearman_rows
from services.records import Estimate

PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=20)


@given(PAIRS.filter(lambda p: len({a for a, _ in p}) > 1 and len({b for _, b in p}) > 1))
def test_equals_scipy_with_ties(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs, dtype=float).T
    assert spearman(a, b).value == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


@pytest.mark.parametrize("width", [9, 40])
def test_rows_are_taken_one_by_one(width: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (6, width)) / 3.0, rng.random((6, width))
    np.testing.assert_allclose(spearman_rows(a, b), [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)])
    np.testing.assert_allclose(spearman_rows(a, b[:1]), [spearmanr(x, b[0]).statistic for x in a])
    assert np.isnan(spearman_rows(np.ones((1, 4)), rng.random((1, 4)))).all()
    a[2, 0] = np.nan
    assert np.flatnonzero(np.isnan(spearman_rows(a, b))).tolist() == [2]


def test_undefined_says_why() -> None:
    assert "at least 3" in spearman(np.array([1.0, 2]), np.array([1.0, 2])).reason
    assert "alike" in spearman(np.ones(5), np.arange(5.0)).reason
    with pytest.raises(MeasureError, match="finite"):
        spearman(np.array([1.0, np.nan, 2]), np.arange(3.0))
    with pytest.raises(MeasureError, match="one length"):
        spearman(np.arange(3.0), np.arange(4.0))


def test_published_correlations(shared_data: Path) -> None:
    oracle = json.loads((shared_data / "oracles" / "gf_cifar10.json").read_text())
    models = list(oracle["models"].values())
    robust = np.array([m["robustbench_accuracy"] for m in models])
    clean = np.array([np.mean(m["clean_accuracy"]) for m in models])
    score = {t: np.array([m[t]["aggregate"] for m in models]) for t in ("T1", "T2.7")}
    assert spearman(score["T1"], robust).value == pytest.approx(0.6618, abs=5e-5)
    assert spearman(score["T2.7"], robust).value == pytest.approx(0.5196, abs=5e-5)
    assert spearman(clean, robust).value == pytest.approx(0.8627, abs=5e-5)
    within = [spearman(np.array(m["T2.7"]["mean"]), np.array(m["clean_accuracy"])).value for m in models]
    assert np.mean(within) == pytest.approx(0.8706, abs=5e-5)
    rdi = np.array([m["T1"]["rdi"] for m in models])
    gini = np.array([m["T1"]["nrgc"] for m in models])
    assert spearman(score["T1"], rdi).value == pytest.approx(0.90, abs=5e-3)
    assert spearman(score["T1"], gini).value == pytest.approx(-0.81, abs=5e-3)


def test_reranking() -> None:
    table = reranking(
        {"score": [0.5, 0.7, None, 0.7], "rdi": [0.1, 0.3, 0.2, None], "fp": [0.4, 0.5, 0.1, 0.2]},
        lower_is_better=("rdi",),
    )
    assert table["score"] == (3.0, 1.5, None, 1.5)
    assert table["rdi"] == (1.0, 3.0, 2.0, None)
    assert table["fp"] == (2.0, 1.0, 4.0, 3.0)
    assert ranks([], descending=True) == ()
    with pytest.raises(MeasureError, match="one value a model"):
        reranking({"score": [1.0], "rdi": [1.0, 2.0]}, lower_is_better=())


def test_correlations_whole() -> None:
    assert spearman(np.array([1, 2, 3]), np.array([1, 3, 2])) == Estimate(0.5)
    assert spearman(np.array([1, 2]), np.array([1, 2])) == Estimate(
        None, reason="a rank correlation needs at least 3 values, there are 2"
    )
    assert spearman(np.ones(3), np.arange(3)) == Estimate(None, reason="all values are alike")
    assert spearman(np.arange(3), np.ones(3)) == Estimate(None, reason="all values are alike")
    assert type(spearman(np.array([1, 2, 3]), np.array([1, 3, 2])).value) is float


def test_rows_are_never_beyond_one() -> None:
    rows = np.random.default_rng(1).random((200, 7))
    assert np.abs(spearman_rows(rows, np.concatenate([rows[:100], -rows[100:]]))).max() == 1.0
    assert spearman_rows(np.arange(3), np.arange(3)[::-1]).tolist() == [-1.0]
    assert spearman_rows([[1, 2], [2, 1]], [3, 9]).tolist() == [1.0, -1.0]  # type: ignore[arg-type]


def test_ranks_of_undefined_and_tied_values() -> None:
    assert ranks([2.0, None, 1.0, 2.0], descending=False) == (2.5, None, 1.0, 2.5)
    assert ranks([2.0, None, 1.0, 2.0], descending=True) == (1.5, None, 3.0, 1.5)
    assert ranks([None, None], descending=True) == (None, None)
    assert type(ranks([1.0], descending=True)[0]) is float
    assert ranks([1, 3, 2], descending=True) == (3.0, 1.0, 2.0)
    assert reranking({}, lower_is_better=()) == {}
    assert reranking({"nrgc": [1.0, 2.0], "wcr": [1.0, 2.0]}, lower_is_better={"nrgc"}) == {
        "nrgc": (1.0, 2.0),
        "wcr": (2.0, 1.0),
    }
