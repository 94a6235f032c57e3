import numpy as np
import pytest
import torch
from scipy.stats import norm

from services.measures.radius import Radius

SIGMA, ALPHA = 0.25, 0.001


def half_space(x):
    """Distance to the boundary of class 0 is 1/2 minus the first pixel."""
    z = x.flatten(1)[:, 0] - 0.5
    return torch.stack([-z, z], 1)


def samples(distance, label=0):
    images = torch.full((len(distance), 1, 2, 2), 0.5)
    images[:, 0, 0, 0] = 0.5 - torch.tensor(distance)
    return images, torch.full((len(distance),), label), np.arange(len(distance))


@pytest.mark.parametrize("method", ["published", "adaptive"])
def test_radius_is_below_the_true_one_and_near_it(method):
    distance = [0.1, 0.3, 0.6]
    measure = Radius(method=method, draws=8_000, width=None if method == "published" else 0.15)
    table = measure.from_model(half_space, *samples(distance), seed=1)
    radius = table["radius/sigma-0.25"]
    assert (radius <= distance).all() and (radius > 0.7 * np.array(distance)).all()
    assert table["radius/sigma-0.25/predicted"].tolist() == [0, 0, 0]
    assert table["correct"].all() and not table["radius/sigma-0.25/abstained"].any()
    assert table["radius/sigma-0.25/at-0.25"].tolist() == [0.0, 1.0, 1.0]
    assert radius.max() <= measure.series()[0].bound


def test_published_counts_agree_with_a_naive_certify():
    from services.measures.sampling.noise import unit_noise

    images, labels, ids = samples([0.2])
    table = Radius(draws=500).from_model(half_space, images, labels, ids, seed=4)
    noise = unit_noise("gaussian", seed=4, ids=np.zeros(500, int), draws=100 + np.arange(500), dimension=4)
    hits = sum(int(half_space(images + SIGMA * torch.from_numpy(row).view(1, 1, 2, 2)).argmax(1)) == 0 for row in noise)
    from statsmodels.stats.proportion import proportion_confint

    expected = SIGMA * norm.ppf(proportion_confint(hits, 500, alpha=2 * ALPHA, method="beta")[0])
    assert table["radius/sigma-0.25"][0] == pytest.approx(expected)


def test_wrong_class_and_coin_flips_have_no_radius():
    measure = Radius(draws=2000)
    images, labels, ids = samples([0.5, 0.001])
    labels[0] = 1
    table = measure.from_model(half_space, images, labels, ids, seed=1)
    assert table["radius/sigma-0.25"].tolist() == [0.0, 0.0]
    assert table["radius/sigma-0.25/predicted"].tolist() == [0, -1]
    assert table["radius/sigma-0.25/abstained"].tolist() == [False, True]
    assert not table["correct"].any()
    quick = Radius(draws=2000, method="adaptive").from_model(half_space, images, labels, ids, seed=1)
    assert quick["radius/sigma-0.25/draws"][0] == 100
    assert quick["radius/sigma-0.25"].tolist() == [0.0, 0.0]


def test_a_network_without_finite_logits_abstains():
    for method in ("published", "adaptive"):
        table = Radius(draws=100, method=method).from_model(
            lambda x: torch.full((len(x), 2), torch.nan), *samples([0.1]), seed=0
        )
        assert table["radius/sigma-0.25"][0] == 0.0 and table["radius/sigma-0.25/predicted"][0] == -1


def test_adaptive_decides_with_a_fraction_of_the_draws_and_the_same_answers():
    distance = [0.02, 0.1, 0.4, 0.5, 0.7] * 4
    fixed = Radius(at=(0.25,), draws=3000).from_model(half_space, *samples(distance), seed=2)
    quick = Radius(at=(0.25,), draws=3000, method="adaptive").from_model(half_space, *samples(distance), seed=2)
    key = "radius/sigma-0.25/at-0.25"
    assert fixed[key].tolist() == quick[key].tolist() == [0.0, 0.0, 1.0, 1.0, 1.0] * 4
    assert quick["radius/sigma-0.25/draws"].sum() < 0.3 * fixed["radius/sigma-0.25/draws"].sum()


def test_adaptive_certificates_are_valid_at_the_radius_itself():
    """At true radius r exactly, "radius >= r + 0" may be certified in at most alpha of the runs (one-sided)."""
    measure = Radius(at=(0.25,), draws=400, alpha=0.05, method="adaptive", select=20)
    table = measure.from_model(half_space, *samples([0.25 - 1e-6] * 1500), seed=3)
    assert table["radius/sigma-0.25/at-0.25"].mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)


@pytest.mark.parametrize("method", ["published", "adaptive"])
def test_results_do_not_depend_on_batch(method):
    measure = Radius(draws=700, method=method)
    images, labels, ids = samples([0.1, 0.25, 0.45, 0.3, 0.6])
    whole = measure.from_model(half_space, images, labels, ids, seed=6)
    for row in range(5):
        first = slice(row, row + 1)
        alone = measure.from_model(half_space, images[first], labels[first], ids[first], seed=6)
        assert all(np.array_equal(alone[key], whole[key][first]) for key in whole)
