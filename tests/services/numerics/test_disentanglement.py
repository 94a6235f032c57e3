"""The mutual information gap: known factors, mixed ones, and an independent library."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score

from services.errors import MeasureError
from services.fairness.synthetic import Bands
from services.numerics.disentanglement import mutual_information, mutual_information_gap


def test_the_mutual_information_gap_of_a_closed_form_mapper_is_near_one() -> None:
    factors = np.random.default_rng(0).uniform(-1, 1, (4000, 3))
    latents = Bands().encode(Bands().decode(torch.from_numpy(factors))).numpy()
    known = {name: factors[:, k] for k, name in enumerate("abc")}
    found = mutual_information_gap(latents, {**known, "still": np.zeros(4000)})
    assert found.mig.value > 0.9  # type: ignore[operator]
    assert found.latent == {"a": 0, "b": 1, "c": 2, "still": None}
    assert found.gaps["still"].reason == "the factor does not vary"
    mixed = mutual_information_gap(latents @ np.array([[1, 1, 0], [1, -1, 0], [0, 0, 1.0]]), known)
    assert mixed.gaps["a"].value < 0.2 < mixed.gaps["c"].value  # type: ignore[operator]


def test_mutual_information_is_the_one_of_scikit_learn() -> None:
    one, two = np.random.default_rng(1).integers(0, 5, (2, 300))
    assert mutual_information(one, two) == pytest.approx(mutual_info_score(one, two), abs=1e-12)
    assert mutual_information(one, one) == pytest.approx(mutual_info_score(one, one), abs=1e-12)


def test_malformed_latents_and_factors_are_refused() -> None:
    with pytest.raises(MeasureError, match="L >= 2"):
        mutual_information_gap(np.zeros((3, 1)), {})
    with pytest.raises(MeasureError, match=r"factors \(a\): expected shape \(3,\)"):
        mutual_information_gap(np.zeros((3, 2)), {"a": np.zeros(2)})
