import math

import numpy as np
import pytest
import torch

from services.measures.rare import Rare

RADIUS = 0.1


def first_pixel(x):
    z = x.flatten(1)[:, 0].double() - 0.5
    return torch.stack([-z, z], 1)


def samples(failure):
    images = torch.full((len(failure), 1, 4, 4), 0.5)
    images[:, 0, 0, 0] = 0.5 - RADIUS * (1 - 2 * torch.tensor(failure))
    return images, torch.zeros(len(failure), dtype=torch.int64), np.arange(len(failure)) + 11


def test_known_probabilities_with_thousands_of_passes():
    failure = [1e-4, 1e-3, 1e-2, 0.6]
    table = Rare(radii=(RADIUS,)).from_model(first_pixel, *samples(failure), seed=3)
    key = "rare/uniform-0.1"
    assert (table[f"{key}/low"] <= failure).all() and (table[f"{key}/high"] >= failure).all()
    assert table[key] == pytest.approx([-math.log10(p) for p in failure], abs=0.3)
    assert table[f"{key}/passes"].max() < 20_000
    assert table[f"{key}/below"].tolist() == [0.0] * 4


def test_an_unreachable_failure_is_censored_and_scores_the_bound():
    images, labels, ids = samples([0.0])
    images[0, 0, 0, 0] = 0.2
    table = Rare(radii=(RADIUS,), kappa=1e-3).from_model(first_pixel, images, labels, ids, seed=0)
    key = "rare/uniform-0.1"
    assert table[f"{key}/censored"].tolist() == [True] and table[f"{key}/below"].tolist() == [1.0]
    assert table[key].tolist() == [pytest.approx(3.0)] and table[f"{key}/probability"].tolist() == [1e-4]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_agrees_with_plain_sampling(noise):
    from services.measures.probabilistic import Pr

    images, labels, ids = samples([0.08] * 3)
    plain = Pr(noise=noise, radii=(RADIUS,), draws=4000).from_model(first_pixel, images, labels, ids, seed=1)
    rare = Rare(noise=noise, radii=(RADIUS,), delta=0.01).from_model(first_pixel, images, labels, ids, seed=1)
    p = 1 - plain[f"pr/{noise}-0.1"].mean()
    assert (rare[f"rare/{noise}-0.1/low"] <= p * 1.1).all() and (rare[f"rare/{noise}-0.1/high"] >= p * 0.9).all()


def test_results_do_not_depend_on_batch():
    images, labels, ids = samples([1e-3, 1e-2, 0.3])
    measure = Rare(radii=(RADIUS,), kappa=1e-4)
    whole = measure.from_model(first_pixel, images, labels, ids, seed=6)
    alone = measure.from_model(first_pixel, images[1:2], labels[1:2], ids[1:2], seed=6)
    assert all(np.array_equal(alone[key], whole[key][1:2]) for key in whole)
