"""The measure `projection`: its scores against the closed form, its choices, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracles.bands import BandClassifier, Bands, analytic_moves
from pydantic import ValidationError

from services.errors import ClasswiseError, MeasureError, SourceError
from services.measures.catalogue import measure_from
from services.measures.latent.columns import boundaries_of, dimensions_of
from services.measures.measure import Columns, RunContext
from services.measures.projection import Projection
from services.numerics.attributes.tolerance import projection_metrics

BANDS = "factory:oracles.bands:Bands"
WEIGHTS, BIAS = (1.0, -0.4, 0.2), 0.15
LATENTS = np.random.default_rng(0).uniform(-0.9, 0.9, (60, 3))
IMAGES = Bands().decode(torch.from_numpy(LATENTS)).float().contiguous()
LABELS = torch.from_numpy(((LATENTS @ WEIGHTS + BIAS) > 0).astype(np.int64))


def score(images: torch.Tensor = IMAGES, labels: torch.Tensor = LABELS, **options: Any) -> Columns:
    measure = Projection(mapper=options.pop("mapper", BANDS), **options)
    scorer = measure.scorer(RunContext("cpu", ("services.*", "oracles.*", "tests.*"), lambda: IMAGES))
    return scorer(BandClassifier(WEIGHTS, BIAS), images, labels, np.arange(len(images)), seed=0)


def test_scores_and_columns_are_those_of_the_analytic_boundary() -> None:
    expected, never = analytic_moves(LATENTS, WEIGHTS, BIAS)
    columns = score(halvings=8)
    np.testing.assert_allclose(columns["projection/tol"], expected.mean(axis=(1, 2)), rtol=0.01)
    np.testing.assert_allclose(columns["d001/up"], expected[:, 1, 1], atol=2e-4)
    np.testing.assert_array_equal(columns["d002/down_censored"], never[:, 2, 0])
    np.testing.assert_allclose(columns["censored"], never.mean(axis=(1, 2)))
    assert columns["correct"].all()
    assert columns["error"].max() < 1e-6
    assert {len(column) for column in columns.values()} == {60}
    metrics = projection_metrics(boundaries_of(columns, range(3)))
    assert metrics.tol.value == pytest.approx(2 * columns["projection/tol"].mean())
    assert metrics.dev.value == pytest.approx(columns["dev"].mean())


def test_a_move_may_have_to_keep_the_label_of_the_sample() -> None:
    """In closed form: w.z + b keeps its sign from the sample to the centre and on to the move."""
    columns, usual = score(halvings=8, keeps="sample"), score(halvings=8)
    rest = LATENTS @ WEIGHTS + BIAS
    stays = np.stack([np.sign(rest - LATENTS[:, d] * WEIGHTS[d]) == np.sign(rest) for d in range(3)], axis=1)
    assert 0.5 < stays.mean() < 1 and columns["agrees"] == pytest.approx(stays.mean(axis=1))
    for d in range(3):
        for side in ("down", "up"):
            want = np.where(stays[:, d], usual[f"d00{d}/{side}"], 0.0)
            np.testing.assert_array_equal(columns[f"d00{d}/{side}"], want)
    assert "keeps" not in Projection(mapper=BANDS).model_dump()
    assert Projection(mapper=BANDS, keeps="sample").definition() != Projection(mapper=BANDS).definition()


def test_chosen_dimensions_are_read_back_in_ascending_order() -> None:
    every, chosen = score(halvings=8), score(dimensions=(2, 0), halvings=8)
    assert dimensions_of(every, "all") == (0, 1, 2)
    assert dimensions_of(chosen, (2, 0)) == (0, 2)
    both = boundaries_of(every, (0, 2))
    np.testing.assert_array_equal(boundaries_of(chosen, (0, 2)).moves, both.moves)
    with pytest.raises(MeasureError, match=r"those of the measure projection, d000/up and so on, found clean"):
        boundaries_of({"clean": np.ones(3)}, dimensions_of({"clean": np.ones(3)}, "all"))


def test_a_sample_scores_the_same_alone() -> None:
    whole, alone = score(), score(IMAGES[5:6], LABELS[5:6])
    for name, column in whole.items():
        assert column[5] == pytest.approx(alone[name][0], abs=1e-12), name


def test_dimensions_axes_and_reach_are_choices() -> None:
    first = score(dimensions=(2,), halvings=8)
    assert "d002/up" in first and "d000/up" not in first
    half = score(axes="range", range=(-1.0, 1.0), halvings=8)
    np.testing.assert_array_equal(half["projection/tol"], score(halvings=8)["projection/tol"])
    wide = score(reach=2.0, halvings=8)
    moved = ~half["d000/up_censored"].astype(bool)
    np.testing.assert_allclose(wide["d000/up"][moved], half["d000/up"][moved] / 2, atol=1e-3)
    assert wide["censored"].mean() < half["censored"].mean()


def test_sampled_axes_are_mean_and_spread_of_latents_drawn_from_the_range() -> None:
    columns = score(axes="sampled", range=(-1.0, 2.0), draws=5000, halvings=8)
    for d in ("d000", "d001", "d002"):
        assert columns[f"{d}/centre"][0] == pytest.approx(0.5, abs=0.05)
        assert columns[f"{d}/unit"][0] == pytest.approx(3 / 12**0.5, abs=0.03)
    assert len({columns[f"d00{d}/centre"][0] for d in range(3)}) == 3, "each dimension has draws of its own"
    again = score(axes="sampled", range=(-1.0, 2.0), draws=5000, halvings=8)
    np.testing.assert_array_equal(again["projection/tol"], columns["projection/tol"])
    first = score(axes="sampled", range=(-1.0, 2.0), draws=5000, halvings=8, dimensions=(2,))
    np.testing.assert_array_equal(first["d002/up"], columns["d002/up"])
    other = score(axes="sampled", range=(-1.0, 2.0), draws=5000, draw_seed=1)
    assert other["d000/centre"][0] != columns["d000/centre"][0]
    wide = score(axes="sampled", range=(-1.0, 2.0), draws=5000, reach=2.0)
    assert wide["d000/unit"][0] == pytest.approx(2 * columns["d000/unit"][0])


def test_a_constant_classifier_is_tolerant_and_its_accuracy_stands_beside_it() -> None:
    measure = Projection(mapper=BANDS, least_explained=0)
    scorer = measure.scorer(RunContext("cpu", ("services.*", "oracles.*"), lambda: IMAGES))
    columns = scorer(lambda images: torch.tensor([[0.0, 1.0]]).repeat(len(images), 1), IMAGES, LABELS, None, seed=0)
    assert (columns["projection/tol"] == 1.0).all() and (columns["censored"] == 1.0).all()
    assert 0 < columns["correct"].mean() < 1


def test_a_mapper_that_does_not_reconstruct_cannot_judge() -> None:
    untrained = "factory:services.training.mappers:vae?latents=3&size=8&width=4"
    images = torch.rand(10, 1, 8, 8)
    measure = Projection(mapper=untrained)
    with pytest.raises(MeasureError, match=r"explains at least 50% of the samples' variance, found -?\d"):
        measure.scorer(RunContext("cpu", ("services.*", "oracles.*"), lambda: images))
    with pytest.raises(MeasureError, match="all images are the same"):
        Projection(mapper=BANDS).scorer(RunContext("cpu", ("services.*", "oracles.*"), lambda: IMAGES[:1]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimensions": (0, 7)}, "dimensions below 3, the mapper's, found 7"),
        ({"names": {0: "thickness", 7: "slant"}}, r"\(names\): expected dimensions below 3, the mapper's, found 7"),
        ({"mapper": "factory:tests.services.measures.test_projection:without_axes"}, "set axes: range or sampled"),
        ({"mapper": "factory:json:loads"}, "expected a module that matches"),
    ],
)
def test_what_the_mapper_cannot_give_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ClasswiseError, match=message):
        score(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "mapper"),
        ({"mapper": BANDS, "dimensions": ()}, "dimensions"),
        ({"mapper": BANDS, "dimensions": (1, 1)}, "each dimension once"),
        ({"mapper": BANDS, "range": (1, 1)}, "low < high"),
        ({"mapper": BANDS, "range": (0, float("inf"))}, "finite"),
        ({"mapper": BANDS, "steps": 0}, "steps"),
        ({"mapper": BANDS, "axes": "sampled", "draws": 1}, "draws"),
        ({"mapper": BANDS, "label": "A B"}, "label"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Projection(**options)


def test_the_cache_key_follows_the_mapper_and_a_changed_one_is_refused(tmp_path: Any) -> None:
    from services.training.epochs.checkpoints import save_weights

    path = tmp_path / "bands.safetensors"
    mapper = Bands(2)
    save_weights(str(path), mapper.state_dict())
    measure = Projection(mapper=f"{BANDS}?factors=2&weights={path}")
    canonical = measure.canonical()
    assert measure_from(canonical) == measure
    mapper.unit.fill_(3.0)
    save_weights(str(path), mapper.state_dict())
    assert measure.canonical() != canonical
    with pytest.raises(SourceError, match="the files that the audit began with"):
        measure_from(canonical)


class Bare(torch.nn.Module):
    """A pair that knows nothing of its data."""

    encode, decode = Bands.encode, Bands.decode
    height, width = 2, 4


def without_axes() -> Bare:
    return Bare()
