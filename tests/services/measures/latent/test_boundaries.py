"""The projection against a naive loop and against boundaries in closed form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from fairlearn.metrics import demographic_parity_difference
from oracles.bands import BandClassifier, Bands, analytic_moves
from oracles.fairlearn_metrics import group_fairness
from torch import nn

from services.errors import MeasureError
from services.measures.latent.boundaries import Axes, Projected, project
from services.numerics.attributes.tolerance import Boundaries, projection_metrics

AXES = Axes(torch.tensor([0, 1, 2]), torch.zeros(3), torch.ones(3))
WEIGHTS, BIAS = (1.0, -0.4, 0.0), 0.15


def naive(
    network: nn.Module,
    decode: Callable[..., torch.Tensor],
    latents: torch.Tensor,
    axes: Axes,
    steps: int,
    given: torch.Tensor | None = None,
) -> np.ndarray:
    """One sample, one dimension, one direction and one step at a time, as Algorithm 1 is printed."""
    moves = np.ones((len(latents), len(axes.dimensions), 2))
    for s in range(len(latents)):
        for d, column in enumerate(axes.dimensions.tolist()):
            for direction, sign in enumerate((-1, 1)):
                for m in range(steps + 1):
                    moved = latents[s : s + 1].clone()
                    moved[0, column] = axes.centre[d] + sign * axes.unit[d] * m / steps
                    label = int(network(decode(moved)).argmax())
                    if given is not None:
                        own = int(given[s])
                    own = label if m == 0 and given is None else own
                    if label != own:
                        moves[s, d, direction] = m / steps
                        break
    return moves


def small_pair(seed: int = 0) -> tuple[nn.Module, nn.Module]:
    """A decoder of 5 latents to 1x4x4 images and a classifier of 3 classes that changes its mind often."""
    torch.manual_seed(seed)
    decode = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 16), nn.Sigmoid(), nn.Unflatten(1, (1, 4, 4)))
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    return network.eval(), decode.eval()


def as_boundaries(found: Projected) -> Boundaries:
    return Boundaries.of(found.moves * np.array([-1.0, 1.0]), found.censored, np.zeros(3), np.ones(3))


def test_the_batched_search_equals_the_naive_loop() -> None:
    network, decode = small_pair()
    latents = 2 * torch.randn(40, 5)
    axes = Axes(torch.tensor([4, 0, 2]), torch.tensor([0.5, 0.0, -1.0]), torch.tensor([4.0, 2.0, 1.0]))
    with torch.no_grad():
        expected = naive(network, decode, latents, axes, 10)
    projected = project(network, decode, latents, axes, steps=10)
    np.testing.assert_allclose(projected.moves, expected, atol=1e-12)
    assert 0.1 < projected.censored.mean() < 0.95
    assert (projected.moves[projected.censored] == 1.0).all()


def test_the_label_to_keep_may_be_given() -> None:
    network, decode = small_pair()
    latents = 2 * torch.randn(40, 5)
    axes = Axes(torch.tensor([4, 0]), torch.tensor([1.5, 0.0]), torch.tensor([4.0, 2.0]))
    with torch.no_grad():
        own = network(decode(latents)).argmax(1)
        expected = naive(network, decode, latents, axes, 10, own)
    projected = project(network, decode, latents, axes, steps=10, own=own)
    np.testing.assert_allclose(projected.moves, expected, atol=1e-12)
    lost = projected.start != own.numpy()[:, None]
    assert 0 < lost.mean() < 1 and (projected.moves[lost] == 0).all() and not projected.censored[lost].any()


def test_the_result_depends_on_neither_chunk_nor_company() -> None:
    network, decode = small_pair(1)
    latents = 2 * torch.randn(30, 5)
    whole = project(network, decode, latents, AXES, halvings=4)
    again = project(network, decode, latents, AXES, halvings=4, chunk=9)
    np.testing.assert_array_equal(whole.moves, again.moves)
    alone = project(network, decode, latents[7:9], AXES, halvings=4)
    np.testing.assert_array_equal(whole.moves[7:9], alone.moves)
    np.testing.assert_array_equal(whole.queries[7:9], alone.queries)


def test_no_more_images_are_passed_than_positions_looked_at() -> None:
    network, decode = small_pair(2)
    latents, observed = 2 * torch.randn(25, 5), []

    def counted(images: torch.Tensor) -> torch.Tensor:
        observed.append(len(images))
        return network(images)

    projected = project(counted, decode, latents, AXES, steps=10)
    looked = np.where(projected.censored, 10, np.rint(projected.moves * 10)).sum(axis=(1, 2)) + 3
    np.testing.assert_array_equal(projected.queries, looked)
    assert sum(observed) <= looked.sum() + 8 * 11


def test_measured_boundaries_are_the_analytic_ones_to_one_percent() -> None:
    mapper, network = Bands(), BandClassifier(WEIGHTS, BIAS)
    latents = np.random.default_rng(0).uniform(-0.9, 0.9, (200, 3))
    expected, never = analytic_moves(latents, WEIGHTS, BIAS)
    projected = project(network, mapper.decode, torch.from_numpy(latents), AXES, halvings=8)
    np.testing.assert_array_equal(projected.censored, never)
    np.testing.assert_allclose(projected.moves, expected, atol=1.01 / (20 * 2**8))
    measured, analytic = (
        projection_metrics(as_boundaries(projected)),
        projection_metrics(Boundaries.of(expected * np.array([-1.0, 1.0]), never, np.zeros(3), np.ones(3))),
    )
    for name in ("tol", "dev", "cou"):
        assert getattr(measured, name).value == pytest.approx(getattr(analytic, name).value, rel=0.01), name
    assert measured.tol_by_dimension[2].value == 2.0
    coarse = projection_metrics(as_boundaries(project(network, mapper.decode, torch.from_numpy(latents), AXES)))
    assert coarse.tol.value > measured.tol.value  # type: ignore[operator]


def test_parity_can_mislead_where_tolerance_does_not() -> None:
    """Two classifiers with equal, perfect parity: one never looks at factor 0, the other decides by it alone.

    Their decisions split both groups in half, because the sensitive group is by |z_0| (large against small) while the
    second classifier looks at the sign of z_0: parity sees no difference, moving the factor does.
    """
    latents = np.array([[a, b, 0.0] for a in (-0.8, -0.2, 0.2, 0.8) for b in (-0.5, 0.5)] * 10)
    sensitive = np.abs(latents[:, 0]) > 0.5
    mapper, result = Bands(), {}
    for name, weights in {"blind": (0.0, 1.0, 0.0), "biased": (1.0, 0.0, 0.0)}.items():
        network = BandClassifier(weights, bias=1e-3)
        decisions = network(mapper.decode(torch.from_numpy(latents))).argmax(1).numpy()
        parity = group_fairness(decisions, decisions, sensitive).metrics["dp"].value
        assert parity == demographic_parity_difference(decisions, decisions, sensitive_features=sensitive) == 0.0
        moved = project(network, mapper.decode, torch.from_numpy(latents), AXES, halvings=4)
        result[name] = projection_metrics(as_boundaries(moved)).tol_by_dimension[0]
    assert result["blind"].value == 2.0
    assert result["biased"].high < 1.5 < result["blind"].low  # type: ignore[operator]


def test_logits_that_are_not_finite_count_as_flipped_and_are_said() -> None:
    def network(images: torch.Tensor) -> torch.Tensor:
        score = images.flatten(1).mean(dim=1)
        logits = torch.stack([score, score - 9], dim=1)
        return torch.where((score > 0.55)[:, None], torch.nan, logits)

    latents = torch.zeros(2, 1, dtype=torch.float64)
    first = Axes(torch.tensor([0]), torch.zeros(1), torch.ones(1))
    projected = project(network, Bands(1).decode, latents, first)
    assert projected.censored[0, 0].tolist() == [True, False]
    assert projected.moves[0, 0, 1] == pytest.approx(np.ceil(np.arctanh(0.1) * 20) / 20)
    assert projected.non_finite.tolist() == [True, True]
    at_start = project(
        lambda images: torch.full((len(images), 2), torch.inf), Bands(1).decode, latents, first, halvings=3
    )
    assert (at_start.start == -1).all() and (at_start.moves == 0).all() and not at_start.censored.any()


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        (lambda z: z[:, :, None, None] + 2, "decoded images in \\[0, 1\\], found values from"),
        (lambda z: z[:, :, None, None] * torch.nan, "found values from nan to nan"),
        (lambda z: z, r"images \(8, C, H, W\) from decode, found shape \(8, 3\)"),
        (lambda z: None, "found NoneType"),
    ],
)
def test_a_decoder_that_gives_no_images_is_refused(decode: Callable[..., torch.Tensor], message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        project(lambda images: images.flatten(1), decode, torch.zeros(1, 3), AXES)
