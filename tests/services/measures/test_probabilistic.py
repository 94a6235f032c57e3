import numpy as np
import pytest
import torch
from pydantic import ValidationError

from services.measures.binomial import Binomial
from services.measures.catalogue import MEASURES, measure_from
from services.measures.probabilistic import Pr, ProbAcc
from services.numerics.intervals.sequential import mixture_boundary

RADIUS = 0.1


def first_pixel(x):
    """Class 1 when the first pixel exceeds 1/2: its failure probability under uniform noise is known."""
    z = x.flatten(1)[:, 0] - 0.5
    return torch.stack([-z, z], 1)


def samples(failure):
    """Images of class 0 whose failure probability at RADIUS is `failure`: pixel = 1/2 - r (1 - 2 p)."""
    images = torch.full((len(failure), 1, 4, 4), 0.5)
    images[:, 0, 0, 0] = 0.5 - RADIUS * (1 - 2 * torch.tensor(failure))
    return images, torch.zeros(len(failure), dtype=torch.int64), np.arange(len(failure)) * 7 + 3


def test_pr_of_known_failure_probabilities():
    failure = [0.0, 0.02, 0.2, 0.45, 0.8]
    images, labels, ids = samples(failure)
    measure = Pr(radii=(RADIUS / 2, RADIUS), draws=3000)
    table = measure.from_model(first_pixel, images, labels, ids, seed=5)
    assert table["correct"].tolist() == [True, True, True, True, False]
    key = measure.series()[1].key
    assert key == "pr/uniform-0.1"
    assert table[key][:4] == pytest.approx([1.0, 0.98, 0.8, 0.55], abs=4 * 0.5 / np.sqrt(3000))
    assert table[key][4] == 0.0 and table[f"{key}/draws"].tolist() == [3000] * 4 + [0]
    assert (table[f"{key}/failures"][:4] == np.round((1 - table[key][:4]) * 3000)).all()
    half = table["pr/uniform-0.05"]
    assert (half[:4] >= table[key][:4]).all()
    assert measure.series()[0].conditional


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "laplace"])
def test_pr_equals_a_naive_loop(kind):
    from services.measures.sampling.perturbation import perturb, unit_draws

    generator = torch.Generator().manual_seed(1)
    images, weights = torch.rand(5, 1, 4, 4, generator=generator), torch.randn(16, 3, generator=generator)
    labels = (images.flatten(1) @ weights).argmax(1)
    ids = np.array([4, 9, 1, 30, 2])
    table = Pr(noise=kind, radii=(0.2,), draws=50).from_model(
        lambda x: x.flatten(1) @ weights, images, labels, ids, seed=8
    )
    for row in range(5):
        hits = 0
        for draw in range(50):
            unit = unit_draws(kind, seed=8, ids=ids[row : row + 1], draws=np.array([draw]), dimension=16)
            noisy = perturb(kind, images[row : row + 1], torch.from_numpy(unit), 0.2)
            hits += int((noisy.flatten(1) @ weights).argmax(1)[0] == labels[row])
        assert table[f"pr/{kind}-0.2"][row] == pytest.approx(hits / 50)


@pytest.mark.parametrize(
    "measure",
    [
        Pr(radii=(RADIUS,), draws=130),
        Pr(perturbation="rotation", draws=20),
        ProbAcc(radii=(RADIUS,), rho=0.1),
        Binomial(radii=(RADIUS,), kappa=0.2),
    ],
)
def test_results_do_not_depend_on_batch_or_order(measure):
    images, labels, ids = samples([0.0, 0.01, 0.3, 0.09, 0.15, 0.7])
    whole = measure.from_model(first_pixel, images, labels, ids, seed=1)
    order = np.array([4, 0, 5, 2, 1, 3])
    for size in (1, 4):
        parts = [
            measure.from_model(first_pixel, images[rows], labels[rows], ids[rows], seed=1)
            for rows in (order[i : i + size] for i in range(0, 6, size))
        ]
        for key, values in whole.items():
            assert np.array_equal(np.concatenate([part[key] for part in parts]), values[order]), key


def test_probacc_decides_what_is_clear_and_stops_early():
    failure = [0.0] * 20 + [0.01] * 20 + [0.3] * 20 + [0.95] * 20
    table = ProbAcc(radii=(RADIUS,)).from_model(first_pixel, *samples(failure), seed=2)
    stem = "probacc/uniform-0.1"
    assert table[f"{stem}/certified"].tolist() == [1.0] * 40 + [0.0] * 40
    assert table[f"{stem}/possible"].tolist() == [1.0] * 40 + [0.0] * 40
    assert table[f"{stem}/draws"][:20].tolist() == [mixture_boundary(0.05, 0.05, 2000).accept_at[0]] * 20
    assert table[f"{stem}/draws"][60:].max() < 10
    assert (table[f"{stem}/passes"] >= table[f"{stem}/draws"]).all()
    assert (table[f"{stem}/failures"] <= table[f"{stem}/draws"]).all()


def test_verdict_is_the_first_crossing_of_the_sample_s_own_path():
    images, labels, ids = samples([0.03, 0.06, 0.12])
    measure = ProbAcc(radii=(RADIUS,), max_draws=300)
    table = measure.from_model(first_pixel, images, labels, ids, seed=2)
    flags = []

    def recording(x):
        flags.append((x.flatten(1)[:, 0] >= 0.5).numpy())
        return first_pixel(x)

    for row in range(3):
        flags.clear()
        part = slice(row, row + 1)
        Pr(radii=(RADIUS,), draws=300).from_model(recording, images[part], labels[part], ids[part], seed=2)
        path = np.cumsum(np.concatenate(flags[1:]))
        verdict = measure.boundary().decide(np.arange(1, 301), path)
        stop = int((verdict != 0).argmax()) if (verdict != 0).any() else 299
        assert table["probacc/uniform-0.1/verdict"][row] == verdict[stop]
        assert table["probacc/uniform-0.1/draws"][row] == stop + 1
        assert table["probacc/uniform-0.1/failures"][row] == path[stop]


def test_at_the_threshold_both_errors_stay_below_alpha():
    count = 1500
    table = ProbAcc(radii=(RADIUS,), max_draws=400).from_model(first_pixel, *samples([0.05] * count), seed=3)
    slack = 3 * np.sqrt(0.05 * 0.95 / count)
    verdict = table["probacc/uniform-0.1/verdict"]
    assert (verdict > 0).mean() <= 0.05 + slack
    assert (verdict < 0).mean() <= 0.05 + slack
    assert (verdict == 0).mean() > 0.8


def test_nan_and_ties_are_failures():
    images, labels, ids = samples([0.0, 0.0])
    for network in (lambda x: torch.full((len(x), 2), torch.nan), lambda x: torch.zeros(len(x), 2)):
        table = ProbAcc(radii=(RADIUS,)).from_model(network, images, labels, ids, seed=0)
        assert table["probacc/uniform-0.1/verdict"].tolist() == [-1, -1]
        assert not Pr(radii=(RADIUS,)).from_model(network, images, labels, ids, seed=0)["correct"].any()


def test_a_pass_never_holds_more_than_the_batch_or_the_smallest_pass():
    observed = []

    def network(x):
        observed.append(len(x))
        return first_pixel(x)

    Pr(radii=(RADIUS,), draws=400).from_model(network, *samples([0.1] * 90), seed=0)
    ProbAcc(radii=(RADIUS,)).from_model(network, *samples([0.05] * 10), seed=0)
    assert max(observed) <= 90


def test_binomial_names_kappa_and_band():
    measure = Binomial(radii=("8/255",), kappa=1e-3)
    certified, possible = measure.series()
    assert certified.key == "binomial/uniform-0.03137/kappa-0.001/certified"
    assert possible.key.endswith("/possible") and "SIL 3" in certified.title and certified.binary
    assert measure.boundary().horizon == 100_000


def test_parameters_are_checked_and_round_trip():
    assert Pr().radii == (8 / 255, 0.08, 0.1, 0.12)
    assert Pr(radii=["8/255"]).radii == (8 / 255,)
    assert Pr(perturbation="blur").series()[0].key == "pr/blur-0.5"
    for wrong in (
        {"radii": []},
        {"radii": [0.2, 0.1]},
        {"radii": ["x/0"]},
        {"noise": "gaussian", "perturbation": "blur"},
    ):
        with pytest.raises(ValidationError):
            Pr(**wrong)
    for name in ("pr", "probacc", "binomial", "rare", "radius"):
        measure = MEASURES.get(name)(name=name)
        assert measure_from(measure.canonical()) == measure


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "pr", "radii": [8]},
        {"name": "probacc", "radii": [0.1, 8]},
        {"name": "binomial", "radii": ["8/1"], "noise": "gaussian"},
        {"name": "rare", "radii": [8]},
        {"name": "pr", "perturbation": "brightness", "radii": [8]},
        {"name": "radius", "sigma": 8},
    ],
)
def test_strengths_in_pixels_are_no_whole_numbers(wrong):
    with pytest.raises(ValidationError, match=r"in \[0, 1\] pixel units, found 8; meant 8/255\?"):
        MEASURES.get(wrong["name"])(**wrong)
    assert Pr(perturbation="rotation", radii=[8]).radii == (8.0,)


def test_real_networks_under_noise(shared_data):
    from benchmarks import zoo

    images, labels, _ = zoo.images(shared_data, "cifar10/test.npz", slice(0, 40))
    network = zoo.Counted(zoo.load(shared_data, "cifar10_base_kw"))
    measure = ProbAcc(radii=("8/255",))
    table = measure.from_model(network, images, labels, np.arange(40), seed=0)
    correct = (network(images).argmax(1) == labels).numpy()
    verdict = table["probacc/uniform-0.03137/verdict"]
    assert (verdict[correct] > 0).mean() > 0.8
    assert (verdict[~correct] < 0).mean() > 0.8
    assert network.count < 40 * 200


def test_two_rates_in_one_fleet_have_two_names() -> None:
    keys = [series.key for rho in (0.05, 0.1, 0.01) for series in ProbAcc(rho=rho).series()]
    assert len(set(keys)) == len(keys) and keys[0].startswith("probacc/")
    assert any(key.startswith("probacc-0.1/") for key in keys)
