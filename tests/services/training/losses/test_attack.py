"""Attack steps against their constraint set and against a linear network whose gradient is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from services.training.losses.attack import by_cross_entropy, by_divergence, craft
from services.training.losses.perturbations import draws, perturbed
from services.training.step import Budget


def network() -> nn.Sequential:
    torch.default_generator.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, 4)
    )


@settings(max_examples=25, deadline=None)
@given(
    epsilon=st.floats(0, 0.6), step=st.floats(0.001, 1), steps=st.integers(1, 4), start=st.booleans(), kl=st.booleans()
)
def test_perturbed_images_stay_in_the_ball_and_in_range(
    epsilon: float, step: float, steps: int, start: bool, kl: bool
) -> None:
    net, x = network(), torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    objective = by_divergence(net.eval()(x)) if kl else by_cross_entropy(torch.arange(6) % 4)
    budget = Budget(epsilon=epsilon, step=step, steps=steps, random_start=start)
    out = craft(net, x, objective, budget, torch.Generator().manual_seed(2))
    assert (out - x).abs().max() <= epsilon + 1e-6
    assert out.min() >= 0 and out.max() <= 1
    assert not out.requires_grad


def test_class_wise_radii_hold_for_each_sample() -> None:
    x, radii = torch.rand(4, 1, 4, 4), torch.tensor([0.0, 0.05, 0.1, 0.3])
    objective = by_cross_entropy(torch.tensor([0, 1, 2, 3]))
    out = craft(network(), x, objective, Budget(step=0.2), torch.Generator(), epsilon=radii)
    reached = (out - x).abs().amax(dim=(1, 2, 3))
    assert (reached <= radii + 1e-6).all()
    assert reached[0] == 0 and (reached[1:] > 0.9 * radii[1:]).all()


def test_a_step_follows_the_sign_of_the_known_gradient() -> None:
    linear = nn.Linear(4, 3, bias=False).double()
    x, y = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64), torch.tensor([1])
    z = linear(x.flatten(1)).detach().numpy()[0]
    p = np.exp(z) / np.exp(z).sum()
    gradient = linear.weight.detach().numpy().T @ (p - np.array([0, 1, 0]))
    budget = Budget(epsilon=0.2, step=0.03, steps=1, random_start=False)
    out = craft(nn.Sequential(nn.Flatten(), linear), x, by_cross_entropy(y), budget, torch.Generator())
    assert out.flatten().numpy() == pytest.approx(0.5 + 0.03 * np.sign(gradient))


def test_more_steps_raise_the_loss() -> None:
    net, x, y = network().eval(), torch.rand(32, 1, 4, 4), torch.arange(32) % 4
    budgets = [Budget(epsilon=0, random_start=False), Budget(epsilon=0.1, steps=1), Budget(epsilon=0.1, steps=20)]
    objective = by_cross_entropy(y)
    made = [craft(net, x, objective, budget, torch.Generator().manual_seed(0)) for budget in budgets]
    values = [float(objective(net(perturbed_images)).detach()) for perturbed_images in made]
    assert values[0] < values[1] < values[2]


def test_crafting_moves_neither_batch_norm_nor_mode_nor_gradients() -> None:
    net = network().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    craft(net, torch.rand(4, 1, 4, 4), by_cross_entropy(torch.arange(4)), Budget(), torch.Generator())
    assert net.training and all(module.training for module in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_the_start_is_a_function_of_the_generator() -> None:
    net, x, y = network(), torch.rand(4, 1, 4, 4), torch.arange(4)
    runs = [craft(net, x, by_cross_entropy(y), Budget(), torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "laplace"])
def test_noise_has_its_distribution_within_the_ball(kind: str) -> None:
    x, radius = torch.full((1, 1, 400, 400), 0.5), 0.1
    d = ((perturbed(x, kind, radius, torch.Generator().manual_seed(0)) - x) / radius).flatten().double().numpy()  # type: ignore[arg-type]
    assert np.abs(d).max() <= 1 + 1e-6
    edge = {"uniform": 0.0, "gaussian": 2 * 0.158655, "laplace": np.exp(-1)}[kind]
    inner = {"uniform": 0.5, "gaussian": 0.382925, "laplace": 1 - np.exp(-0.5)}[kind]
    assert np.mean(np.abs(d) >= 1 - 1e-6) == pytest.approx(edge, abs=0.005)
    assert np.mean(np.abs(d) <= 0.5) == pytest.approx(inner, abs=0.005)
    assert d.mean() == pytest.approx(0, abs=0.005)


@pytest.mark.parametrize(("kind", "spread", "rms"), [("gaussian", None, 0.719), ("gaussian", 1.0, 0.99)])
def test_the_spread_of_noise_is_a_choice(kind: str, spread: float | None, rms: float) -> None:
    x, radius = torch.full((1, 1, 400, 400), 0.5), 8 / 255
    d = perturbed(x, kind, radius, torch.Generator().manual_seed(0), spread=spread) - x  # type: ignore[arg-type]
    assert float(d.abs().max()) <= radius + 1e-6
    share = np.clip(np.random.default_rng(1).normal(0, spread or radius, 10**6), -radius, radius) / radius
    assert float(np.sqrt((share**2).mean())) == pytest.approx(rms, abs=0.005)
    assert float(d.square().mean().sqrt() / radius) == pytest.approx(rms, abs=0.005)


def test_draws_of_an_image_follow_one_another_and_stay_in_range() -> None:
    x = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 1, 3, 3)
    out = draws(x, "uniform", 0.2, 5, torch.Generator().manual_seed(0))
    assert out.shape == (10, 1, 3, 3)
    assert out[:5].max() <= 0.2 and out[5:].min() >= 0.8 and out.min() >= 0 and out.max() <= 1
