"""The mutual information gap: known factors, mixed ones, and an independent library."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracles.bands import Bands
from sklearn.metrics import mutual_info_score

from services.errors import MeasureError
from services.numerics.attributes.disentanglement import (
    Disentanglement,
    coded,
    in_bins,
    mutual_information,
    mutual_information_gap,
)
from services.records import Estimate


def test_the_mutual_information_gap_of_a_closed_form_mapper_is_near_one() -> None:
    factors = np.random.default_rng(0).uniform(-1, 1, (4000, 3))
    latents = Bands().encode(Bands().decode(torch.from_numpy(factors))).numpy()
    known = {name: factors[:, k] for k, name in enumerate("abc")}
    disentangled = mutual_information_gap(latents, {**known, "still": np.zeros(4000)})
    assert disentangled.mig.value > 0.9  # type: ignore[operator]
    assert disentangled.latent == {"a": 0, "b": 1, "c": 2, "still": None}
    assert disentangled.gaps["still"].reason == "the factor does not vary"
    mixed = mutual_information_gap(latents @ np.array([[1, 1, 0], [1, -1, 0], [0, 0, 1.0]]), known)
    assert mixed.gaps["a"].value < 0.2 < mixed.gaps["c"].value  # type: ignore[operator]


def test_mutual_information_is_the_one_of_scikit_learn() -> None:
    first, two = np.random.default_rng(1).integers(0, 5, (2, 300))
    assert mutual_information(first, two) == pytest.approx(mutual_info_score(first, two), abs=1e-12)
    assert mutual_information(first, first) == pytest.approx(mutual_info_score(first, first), abs=1e-12)


def test_malformed_latents_and_factors_are_refused() -> None:
    with pytest.raises(MeasureError, match="L >= 2"):
        mutual_information_gap(np.zeros((3, 1)), {})
    with pytest.raises(MeasureError, match=r"factors \(a\): expected shape \(3,\)"):
        mutual_information_gap(np.zeros((3, 2)), {"a": np.zeros(2)})


def test_the_gap_by_hand() -> None:
    """Four latents of one factor of two equal values: it itself, half of it, a constant, and noise without a share."""
    factor = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    half = np.array([0, 0, 0, 1, 1, 1, 1, 1.0])
    noise = np.array([0, 1, 0, 1, 0, 1, 0, 1.0])
    latents = np.stack([noise, half, factor, np.full(8, 3.0)], axis=1)
    disentangled = mutual_information_gap(latents, {"a": factor})
    message = mutual_info_score(half, factor) / np.log(2)
    assert disentangled == Disentanglement(
        Estimate(pytest.approx(1 - message)), {"a": Estimate(pytest.approx(1 - message))}, {"a": 2}
    )
    turned = mutual_information_gap(latents[:, ::-1], {"a": factor, "b": factor})
    assert turned.latent == {"a": 1, "b": 1}
    assert turned.mig.value == pytest.approx(1 - message)


def test_the_whole_gap_is_the_mean_over_the_factors_that_vary() -> None:
    latents = np.array([[0, 0], [0, 1], [1, 0], [1, 1.0]])
    factors = {"one": latents[:, 0], "both": np.arange(4), "still": np.zeros(4)}
    disentangled = mutual_information_gap(latents, factors)
    still = Estimate(None, reason="the factor does not vary")
    assert disentangled.gaps == {"one": Estimate(1.0), "both": Estimate(0.0), "still": still}
    assert disentangled.mig == Estimate(0.5)
    none = mutual_information_gap(latents, {"still": np.zeros(4)})
    assert none == Disentanglement(Estimate(None, reason="no factor that varies"), {"still": still}, {"still": None})
    assert type(disentangled.latent["one"]) is int and type(disentangled.mig.value) is float


def test_numbers_are_cut_into_twenty_bins_and_up_to_twenty_values_are_kept() -> None:
    values = np.array([0.0, 0.05, 0.049, 0.5, 0.95, 0.999, 1.0])
    assert in_bins(values).tolist() == [0, 1, 0, 10, 19, 19, 19]
    assert in_bins(values).dtype == np.int64
    assert in_bins(np.array([-1.0, -0.5, 0.0, 3.0])).tolist() == [0, 2, 5, 19]
    assert in_bins(np.full(3, 2.5)).tolist() == [0, 0, 0]
    twenty = np.append(np.arange(19), 1000)
    assert coded(twenty).tolist() == list(range(20))
    assert coded(np.append(np.arange(20), 1000)).tolist() == [0] * 20 + [19]
    assert coded(np.array(["b", "a", "b"])).tolist() == [1, 0, 1]
    assert coded(twenty).dtype == coded(np.arange(30)).dtype == np.int64


def test_information_never_falls_below_nothing() -> None:
    first, two = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 0, 1, 0, 1])
    assert 0.0 <= mutual_information(first, two) < 1e-15
    assert mutual_information(np.array([0, 3]), np.array([1, 0])) == pytest.approx(np.log(2))


def test_rounding_does_not_lift_a_gap_above_one() -> None:
    """A latent that is the factor under other numbers: the sums are the same but for the order of their terms."""
    factor = np.array([3, 3, 0, 0, 2, 1, 2, 0, 3, 1, 3])
    latent = np.array([3, 2, 0, 1])[factor]
    assert mutual_information(latent, factor) > mutual_information(factor, factor)
    disentangled = mutual_information_gap(np.stack([latent, np.zeros(11)], axis=1), {"a": factor})
    assert disentangled.mig.value == 1.0
