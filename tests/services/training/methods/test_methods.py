"""Every method's loss against an independent computation on a linear network, whose gradients are written by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from services.errors import ConfigError
from services.training.counts import ClassCounts, EpochRecord
from services.training.losses.boundary import boundary_pair
from services.training.losses.pairs import draw_losses, filtered_terms
from services.training.methods import METHODS, method_from
from services.training.methods.method import Method
from services.training.step import Batch, Budget

N, K, D = 12, 4, 9
BUDGET = {"epsilon": 0.2, "step": 0.07, "steps": 3}
Array = np.ndarray


class Case:
    """A batch of a linear softmax classifier in double precision, in torch and in NumPy."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.w, self.b = rng.normal(0, 2, (K, D)), rng.normal(0, 0.3, K)
        self.x, self.y = rng.random((N, D)), np.arange(N) % K
        linear = nn.Linear(D, K).double()
        linear.load_state_dict({"weight": torch.tensor(self.w), "bias": torch.tensor(self.b)})
        self.network = nn.Sequential(nn.Flatten(), linear).train()

    def batch(self, state: dict[str, tuple[float, ...]] | None = None) -> Batch:
        images = torch.tensor(self.x).view(N, 1, 3, 3)
        return Batch(images, torch.tensor(self.y), K, torch.Generator().manual_seed(9), state or {}, totals=RARE)

    def starts(self, count: int = 1) -> list[Array]:
        source = torch.Generator().manual_seed(9)
        return [torch.empty(N, D, dtype=torch.float64).uniform_(-1, 1, generator=source).numpy() for _ in range(count)]

    def p(self, x: Array) -> Array:
        z = x @ self.w.T + self.b
        return np.exp(z) / np.exp(z).sum(1, keepdims=True)

    def ce(self, x: Array) -> Array:
        return -np.log(self.p(x)[np.arange(N), self.y])

    def kl(self, x: Array) -> Array:
        p, q = self.p(self.x), self.p(x)
        return (p * np.log(p / q)).sum(1)

    def attacked(
        self, by: str, radius: Array | float = 0.2, start: Array | None = None, steps: int = 3, step: float = 0.07
    ) -> Array:
        radius = np.broadcast_to(np.asarray(radius, float), N)[:, None]
        low, high = np.maximum(self.x - radius, 0), np.minimum(self.x + radius, 1)
        at = np.clip(self.x + radius * (self.starts()[0] if start is None else start), low, high)
        target = np.eye(K)[self.y] if by == "ce" else self.p(self.x)
        for _ in range(steps):
            at = np.clip(at + step * np.sign((self.p(at) - target) @ self.w), low, high)
        return at

    def is_wrong(self, at: Array, i: int) -> bool:
        return bool((at @ self.w.T + self.b).argmax() != self.y[i])

    def way_back(self, image: Array, i: int, step: float = 0.07, limit: int = 70) -> float:
        at, own = image, np.eye(K)[self.y[i]]
        for _ in range(limit):
            if not self.is_wrong(at, i):
                break
            at = np.clip(at - step * np.sign((self.p(at[None])[0] - own) @ self.w), 0, 1)
        return float(np.abs(at - image).max())

    def boundary_pair(self, i: int, steps: int = 3) -> tuple[Array, Array, str]:
        """BAT's two points of a sample and what kind of way it had, point by point."""
        low, high = np.maximum(self.x[i] - 0.2, 0), np.minimum(self.x[i] + 0.2, 1)
        at, clean = np.clip(self.x[i] + 0.2 * self.starts()[0][i], low, high), self.p(self.x)[i]
        way = [at]
        for _ in range(steps):
            if sum(self.is_wrong(point, i) for point in way) == 2 and self.is_wrong(way[-1], i):
                break
            at = np.clip(at + 0.07 * np.sign((self.p(at[None])[0] - clean) @ self.w), low, high)
            way.append(at)
        wrong = [self.is_wrong(point, i) for point in way]
        first = wrong.index(True) if any(wrong) else len(way)
        kind = {0: "start", steps: "end", len(way): "never"}.get(first, "crossed")
        return way[max(first - 1, 0)], way[-1], kind


def trades(case: Case) -> float:
    return float(np.mean(case.ce(case.x) + 6 * case.kl(case.attacked("kl"))))


def mart(case: Case) -> float:
    at = case.attacked("ce")
    p, own = case.p(at), np.eye(K, dtype=bool)[case.y]
    boosted = -np.log(p[own]) - np.log(1 - np.where(own, 0, p).max(1))
    return float(np.mean(boosted + 5 * case.kl(at) * (1 - case.p(case.x)[own])))


def pair(case: Case, *, clean: bool) -> float:
    at = case.attacked("ce")
    distance = ((case.p(case.x) - case.p(at)) ** 2).sum(1)
    return float(np.mean(case.ce(case.x if clean else at) + distance))


def logit_pair(case: Case) -> float:
    at = case.attacked("ce")
    distance = np.sqrt((((case.x - at) @ case.w.T) ** 2).sum(1))
    return float(np.mean(case.ce(at) + 0.01 * distance))


def at_pr(case: Case) -> float:
    source = torch.Generator().manual_seed(9)
    rows = torch.rand(4, 3, generator=source).tolist()
    budgets = [(0.2 - 0.02 * r, 0.07 + 0.003 * (2 * s - 1), max(1, 1 + int(8 * n))) for r, s, n in rows]
    candidates = []
    for radius, step, steps in [(0.2, 0.07, 3), *budgets]:
        start = torch.empty(N, D, dtype=torch.float64).uniform_(-1, 1, generator=source).numpy()
        candidates.append(case.attacked("ce", radius, start, steps, step))
    chosen = [int(np.argmax([case.way_back(x[i], i) for x in candidates])) for i in range(N)]
    assert len(set(chosen)) > 2
    return float(np.mean([case.ce(candidates[c])[i] for i, c in enumerate(chosen)]))


def bat(case: Case) -> float:
    pairs = [case.boundary_pair(i) for i in range(N)]
    assert {kind for _, _, kind in pairs} == {"never", "start", "crossed"}
    inside, beyond = (np.stack([pair[side] for pair in pairs]) for side in (0, 1))
    leaning = sum(np.sum(case.p(x) * np.log(K * case.p(x)), axis=1) for x in (inside, beyond))
    return float(np.mean(case.ce(inside) + 6 * case.kl(beyond) + leaning))


RARE = (5, 1, 8, 2)
"""Training samples of the classes, for methods that look at them."""


def adjusted(case: Case, x: Array, prior: Array) -> Array:
    z = x @ case.w.T + case.b + np.log(prior)
    return np.log(np.exp(z).sum(1)) - z[np.arange(N), case.y]


def raised(case: Case, share: float, gradient: Array) -> Case:
    """The case at w + v: the bias, of one dimension, stays."""
    moved = Case()
    moved.w = case.w + share * np.linalg.norm(case.w) * gradient / np.linalg.norm(gradient)
    return moved


def awp_pgd(case: Case) -> float:
    at = case.attacked("ce")
    gradient = (case.p(at) - np.eye(K)[case.y]).T @ at / N
    return float(raised(case, 0.01, gradient).ce(at).mean())


def awp_trades(case: Case) -> float:
    at, h = case.attacked("kl"), 1e-6

    def loss(of: Case) -> float:
        return float(np.mean(of.ce(of.x) + 6 * of.kl(at)))

    gradient = np.zeros((K, D))
    for place in np.ndindex(K, D):
        ends = []
        for sign in (1, -1):
            other = Case()
            other.w[place] += sign * h
            ends.append(loss(other))
        gradient[place] = (ends[0] - ends[1]) / (2 * h)
    return loss(raised(case, 0.02, gradient))


def drawn(case: Case) -> Array:
    source = torch.Generator().manual_seed(9)
    noise = torch.empty(N * 20, D, dtype=torch.float64).uniform_(-1, 1, generator=source).numpy().reshape(N, 20, D)
    x = np.clip(case.x[:, None] + 0.2 * noise, 0, 1)
    return np.stack([case.ce(x[:, j]) for j in range(20)], axis=1)


def cvar(case: Case) -> float:
    return float(np.mean([np.sort(row)[-2:].mean() for row in drawn(case)]))


def evar(case: Case) -> float:
    grid = np.exp(np.linspace(-4, 8, 40_001))[:, None]

    def one(row: Array) -> float:
        top = row.max()
        return float(np.min(top + (np.log(np.exp(grid * (row - top)).mean(1)) - np.log(0.1)) / grid[:, 0]))

    return float(np.mean([one(row) for row in drawn(case)]))


ORACLES: dict[str, tuple[dict[str, Any], Callable[[Case], float]]] = {
    "erm": ({}, lambda case: float(case.ce(case.x).mean())),
    "pgd": ({"budget": BUDGET}, lambda case: float(case.ce(case.attacked("ce")).mean())),
    "kl-pgd": ({"budget": BUDGET}, lambda case: float(case.ce(case.attacked("kl")).mean())),
    "trades": ({"budget": BUDGET}, trades),
    "mart": ({"budget": BUDGET}, mart),
    "alp": ({"budget": BUDGET}, lambda case: pair(case, clean=False)),
    "clp": ({"budget": BUDGET}, lambda case: pair(case, clean=True)),
    "at-pr": ({"budget": BUDGET}, at_pr),
    "awp": ({"budget": BUDGET, "gamma": 0.02}, awp_trades),
    "bat": ({"budget": BUDGET}, bat),
    "cvar": ({"radius": 0.2}, cvar),
    "evar": ({"radius": 0.2}, evar),
    "corruption": ({"radius": 0.2}, lambda case: float(case.ce(np.clip(case.x + 0.2 * case.starts()[0], 0, 1)).mean())),
    "filtered-trades": ({"base": {"budget": BUDGET}, "by": "lead", "margin": 1.0}, trades),
}


@pytest.mark.parametrize("name", ORACLES)
def test_the_loss_is_that_of_an_independent_computation(name: str) -> None:
    fields, oracle = ORACLES[name]
    case = Case()
    loss = method_from({"name": name, **fields}).step(case.network, case.batch()).loss
    assert float(loss.detach()) == pytest.approx(oracle(case), rel=1e-6)


def test_pairing_of_logits_is_that_of_the_public_code() -> None:
    case = Case()
    method = method_from({"name": "alp", "budget": BUDGET, "pairing": "logits", "weight": 0.01})
    assert float(method.step(case.network, case.batch()).loss.detach()) == pytest.approx(logit_pair(case), rel=1e-6)


def test_fields_that_came_later_leave_no_trace_at_their_defaults() -> None:
    """Trials that were trained before there were any keep their keys."""
    assert "pairing" not in method_from("alp").canonical() and "spread" not in method_from("corruption").canonical()
    chosen = method_from({"name": "clp", "pairing": "logits"})
    assert method_from(chosen.canonical()) == chosen


def test_uniform_noise_has_no_spread() -> None:
    with pytest.raises(ConfigError, match=r"no spread for uniform noise, which fills the radius"):
        method_from({"name": "corruption", "spread": 1.0})


@pytest.mark.parametrize("base", ["erm", "pgd", "trades"])
@pytest.mark.parametrize("rates", [(), (0.2, 0.2, 0.4, 0.1)])
def test_logits_are_adjusted_by_the_shares_of_the_classes(base: str, rates: tuple[float, ...]) -> None:
    case, prior = Case(), np.array(rates or RARE) ** 0.5  # tau is 0.5; a common factor cancels
    want = {
        "erm": lambda: adjusted(case, case.x, prior),
        "pgd": lambda: adjusted(case, case.attacked("ce"), prior),
        "trades": lambda: adjusted(case, case.x, prior) + 6 * case.kl(case.attacked("kl")),
    }[base]()
    method = method_from({"name": "logit-adjusted", "base": base, "budget": BUDGET, "tau": 0.5, "rates": list(rates)})
    assert float(method.step(case.network, case.batch()).loss.detach()) == pytest.approx(want.mean(), rel=1e-6)


def test_rates_of_another_number_of_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(rates\): expected 4 positive numbers, one a class, found 3"):
        method_from({"name": "logit-adjusted", "rates": [1, 1, 1]}).step(Case().network, Case().batch())


def test_awp_around_pgd_has_the_gradient_at_the_raised_weights() -> None:
    case, method = Case(), method_from({"name": "awp", "base": "pgd", "budget": BUDGET})
    loss = method.step(case.network, case.batch()).loss
    loss.backward()  # type: ignore[no-untyped-call]
    at = case.attacked("ce")
    moved = raised(case, 0.01, (case.p(at) - np.eye(K)[case.y]).T @ at / N)
    assert float(loss.detach()) == pytest.approx(awp_pgd(case), rel=1e-6)
    weight = case.network[1].weight
    assert isinstance(weight, torch.Tensor) and weight.grad is not None
    assert weight.detach().numpy() == pytest.approx(case.w)
    assert weight.grad.numpy() == pytest.approx((moved.p(at) - np.eye(K)[case.y]).T @ at / N, rel=1e-6, abs=1e-9)


def test_awp_counts_one_pass_in_batch_norm() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).train()
    batch = Batch(torch.rand(6, 1, 3, 3), torch.tensor([0, 1] * 3), 2, torch.Generator().manual_seed(0))
    method_from({"name": "awp", "base": "pgd"}).step(network, batch).loss.backward()  # type: ignore[no-untyped-call]
    assert network[1].num_batches_tracked == 1


@pytest.mark.parametrize("base", ["pgd", "trades"])
def test_dafa_weighs_loss_radius_and_step_by_class(base: str) -> None:
    case, weights = Case(), (0.7, 1.6, 1.0, 1.2)
    w = np.array(weights)[case.y]
    method = method_from({"name": "dafa", "base": base, "budget": BUDGET})
    at = case.attacked("ce" if base == "pgd" else "kl", 0.2 * w, step=0.07 * w[:, None])
    want = w * case.ce(at) if base == "pgd" else w * case.ce(case.x) + 6 * case.kl(at)
    loss = method.step(case.network, case.batch({"weights": weights})).loss
    assert float(loss.detach()) == pytest.approx(want.mean(), rel=1e-5)


def test_dafa_moves_weight_between_classes_that_resemble_each_other() -> None:
    """Weights by a loop over pairs, from probabilities of a training set."""
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(K), (30, 10, 20, 40))
    p = rng.dirichlet(np.ones(K), len(labels)) * 0.5
    p[np.arange(len(labels)), labels] += 0.5
    mean = np.stack([p[labels == k].mean(0) for k in range(K)])
    want = np.ones(K)
    for i in range(K):
        for j in range(K):
            if i != j:
                want[i] += (1.5 if mean[i, i] < mean[j, j] else -1.5) * mean[i, j] * mean[j, j]
    assert want.min() < 0.9 and want.max() > 1.1
    sums = tuple(np.stack([p[labels == k].sum(0) for k in range(K)]).flatten().tolist())
    counts = ClassCounts((30, 10, 20, 40), confidence=sums)
    method = method_from({"name": "dafa", "scale": 1.5, "warmup": 0.5})
    assert [method.steers_by_confidence(epoch, 7) for epoch in range(7)] == [epoch == 3 for epoch in range(7)]
    state = method.next_state(method.initial_state(K), record(train=counts))
    assert state == {"weights": pytest.approx(tuple(want))}
    assert method.next_state(state, record()) == state


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_gives_a_gradient_and_the_same_loss_twice(name: str) -> None:
    method, case = method_from(name), Case()
    losses = []
    for _ in range(2):
        case.network.zero_grad()
        result = method.step(case.network, case.batch(method.initial_state(K)))
        result.loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(result.loss.detach()))
    gradients = [p.grad for p in case.network.parameters()]
    assert losses[0] == losses[1]
    assert all(g is not None and torch.isfinite(g).all() and g.abs().sum() > 0 for g in gradients)


@pytest.mark.parametrize("by", ["loss", "lead"])
def test_filtered_trades_leaves_out_safe_samples_and_only_those(by: str) -> None:
    case = Case()
    at = case.attacked("kl", steps=1)
    probed, own = case.p(at), np.eye(K, dtype=bool)[case.y]
    ahead = probed[own] - np.where(own, 0, probed).max(1) >= 0.5
    open_rows = ~ahead if by == "lead" else case.ce(at) >= case.ce(case.x)
    assert 0 < open_rows.sum() < N
    want = np.mean(case.ce(case.x) + 6 * open_rows * case.kl(case.attacked("kl")))
    method = method_from({"name": "filtered-trades", "base": {"budget": BUDGET}, "by": by, "probe": 1})
    assert float(method.step(case.network, case.batch()).loss.detach()) == pytest.approx(want, rel=1e-6)


def test_the_points_at_the_boundary_are_those_of_a_walk_sample_by_sample() -> None:
    kinds = set()
    for steps in (1, 2, 4):
        case = Case()
        budget = Budget(epsilon=0.2, step=0.07, steps=steps)
        points = [part.flatten(1).numpy() for part in boundary_pair(case.network, case.batch(), budget)]
        for i in range(N):
            *want, kind = case.boundary_pair(i, steps)
            kinds.add(kind)
            assert np.stack([part[i] for part in points]) == pytest.approx(np.stack(want))
    assert kinds == {"start", "crossed", "end", "never"}


def test_cvar_has_the_gradient_of_all_draws() -> None:
    case, method = Case(), method_from({"name": "cvar", "radius": 0.2})
    method.step(case.network, case.batch()).loss.backward()  # type: ignore[no-untyped-call]
    weight = case.network[1].weight
    assert isinstance(weight, torch.Tensor) and weight.grad is not None
    h = 1e-6
    for k, d in ((0, 0), (2, 5)):
        values = []
        for sign in (1, -1):
            case.w[k, d] += sign * h
            values.append(cvar(case))
            case.w[k, d] -= sign * h
        assert (values[0] - values[1]) / (2 * h) == pytest.approx(float(weight.grad[k, d]), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("layer", [torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Identity()], ids=repr)
def test_cvar_is_that_of_all_draws_in_training_mode(layer: torch.nn.Module) -> None:
    """Ranked in evaluation mode, other draws were the worst ones and the gradient was another (cosine .30 to .93)."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), layer, nn.ReLU(), nn.Linear(8, 3))
    network.train()
    images, labels = torch.rand(6, 3, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    method = method_from({"name": "cvar", "radius": 0.3, "draws": 10, "tail": 0.2})

    def batch() -> Batch:
        return Batch(images, labels, 3, torch.Generator().manual_seed(5))

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        network.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])

    torch.manual_seed(1)
    ours = gradient(method.step(network, batch()).loss)
    torch.manual_seed(1)
    every = draw_losses(network, batch(), "uniform", 0.3, 10)
    worst = gradient(every.topk(2, dim=1).values.mean())
    torch.testing.assert_close(ours, worst, rtol=1e-4, atol=1e-6)


def test_filtered_trades_goes_on_with_a_single_sample_before_maps_of_one_pixel() -> None:
    """0.1.0: "Expected more than 1 value per channel when training"."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4, 2)
    )
    images = torch.rand(4, 1, 2, 2)
    budget = Budget(epsilon=0.1, step=0.05, steps=3)
    batch = Batch(images, torch.tensor([0, 1, 0, 1]), 2, torch.Generator().manual_seed(0))

    def only_the_third(clean: torch.Tensor, probed: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.tensor([False, False, True, False])

    loss, clean = filtered_terms(network, batch, budget, 6.0, 1, only_the_third)
    plain = torch.nn.functional.cross_entropy(clean, batch.labels, reduction="none")
    assert (loss == plain).tolist() == [True, True, False, True] and loss[2] > plain[2]


@pytest.mark.parametrize("base", ["pgd", "trades"])
def test_cfa_sets_radius_and_beta_by_class(base: str) -> None:
    case, robust = Case(), (0.0, 0.25, 0.5, 1.0)
    method = method_from({"name": "cfa", "base": base, "budget": BUDGET})
    share = np.array(robust)[case.y]
    radius, beta = ((0.3 if base == "trades" else 0.5) + share) * 0.2, (0.5 + share) * 6
    if base == "pgd":
        want = case.ce(case.attacked("ce", radius)).mean()
    else:
        want = np.mean((case.ce(case.x) + beta * case.kl(case.attacked("kl", radius))) / (1 + beta))
    loss = method.step(case.network, case.batch({"robust": robust})).loss
    assert float(loss.detach()) == pytest.approx(want, rel=1e-5)


def test_a_radius_base_that_is_given_is_kept() -> None:
    method = method_from({"name": "cfa", "base": "trades", "radius_base": 0.5})
    assert method_from(method.canonical()) == method
    assert '"radius_base": 0.5' in method.canonical()


def test_cfa_without_history_is_its_base() -> None:
    case = Case()
    losses = [
        float(method_from({"name": name, "budget": BUDGET}).step(case.network, case.batch()).loss.detach())
        for name in ("cfa", "pgd")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def record(**changes: Any) -> EpochRecord:
    counts = ClassCounts((10, 10, 0, 10), (9, 9, 0, 9), (5, 1, 0, 10), (8.0, 40.0, 0.0, 1.0))
    fields = {"epoch": 0, "rate": 0.1, "samples": 30, "loss_sum": 1.0, "train": counts, "validation": counts}
    return EpochRecord(**{**fields, "seconds": 1.0, **changes})


def test_cfa_learns_the_classes_robust_accuracies() -> None:
    method = method_from("cfa")
    assert method.next_state({}, record()) == {"robust": (0.5, 0.1, 0.5, 1.0)}
    assert method_from({"name": "cfa", "warmup": 2}).next_state({}, record()) == {}


@pytest.mark.parametrize(
    ("tau", "by", "base"),
    [
        (0.5, "loss", "pgd"),
        (0.5, "margin", "pgd"),
        (0.0, "loss", "pgd"),
        (3.0, "loss", "pgd"),
        (0.5, "margin", "trades"),
    ],
)
def test_faal_weighs_the_worst_classes(tau: float, by: str, base: str) -> None:
    from scipy.optimize import minimize

    case = Case()
    case.y = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3])
    at = case.attacked("ce" if base == "pgd" else "kl")
    p, own = case.p(at), np.eye(K, dtype=bool)[case.y]
    losses = case.ce(at) if base == "pgd" else case.ce(case.x) + 6 * case.kl(at)
    scores = losses if by == "loss" else np.where(own, 0, p).max(1) - p[own]
    means, judged = (np.array([v[case.y == k].mean() for k in range(K)]) for v in (losses, scores))
    q = minimize(
        lambda q: -q @ judged,
        np.full(K, 1 / K),
        bounds=[(1e-9, 1)] * K,
        constraints=[
            {"type": "eq", "fun": lambda q: q.sum() - 1},
            {"type": "ineq", "fun": lambda q: tau + np.mean(np.log(q * K))},
        ],
        options={"ftol": 1e-13, "maxiter": 500},
    ).x
    method = method_from({"name": "faal", "base": base, "budget": BUDGET, "tau": tau, "by": by})
    loss = float(method.step(case.network, case.batch()).loss.detach())
    assert loss == pytest.approx(float(q @ means), rel=1e-3)


def test_faal_ignores_classes_that_a_batch_lacks() -> None:
    case = Case()
    case.y = np.zeros(N, int)
    loss = method_from({"name": "faal", "budget": BUDGET}).step(case.network, case.batch()).loss
    assert float(loss.detach()) == pytest.approx(case.ce(case.attacked("ce")).mean(), rel=1e-6)


def test_wat_plays_hedge_on_held_out_losses_of_the_classes_and_their_mean() -> None:
    method = method_from({"name": "wat", "budget": BUDGET, "eta": 0.5})
    state = method.next_state(method.initial_state(K), record(held_losses=(8.0, 40.0, 0.0, 1.0)))
    state = method.next_state(state, record(held_losses=(2.0, 0.0, 0.0, 4.0)))
    assert state == {"costs": pytest.approx((1.0, 4.0, 0.0, 0.5, 49 / 30 + 6 / 30))}
    case = Case()
    weights = np.exp(0.5 * np.array(state["costs"]))
    weights = K * weights / weights.sum()
    per_sample = case.ce(case.x) + 6 * case.kl(case.attacked("kl"))
    loss = method.step(case.network, case.batch(state)).loss
    want = np.mean((weights[case.y] + weights[K]) * per_sample)
    assert float(loss.detach()) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("base", ["pgd", "trades"])
def test_wat_costs_the_loss_of_its_base(base: str) -> None:
    case, method = Case(), method_from({"name": "wat", "base": base, "budget": BUDGET})
    want = case.ce(case.attacked("ce")) if base == "pgd" else case.ce(case.x) + 6 * case.kl(case.attacked("kl"))
    losses = method.held_losses(case.network.eval(), case.batch())
    assert losses is not None and losses.detach().numpy() == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("change", [{"validation": None, "held_losses": (1.0,) * K}, {"held_losses": None}])
def test_wat_demands_held_out_losses(change: dict[str, Any]) -> None:
    method = method_from("wat")
    with pytest.raises(ConfigError, match="held-out"):
        method.next_state(method.initial_state(K), record(**change))


@pytest.mark.parametrize("variant", [{}, {"reweight": False}, {"remargin": False}])
def test_frl_moves_weights_and_radii_of_classes_that_break_their_constraint(variant: dict[str, bool]) -> None:
    """Two updates by hand: the second one's multipliers are cut at 0 and scaled to the limit."""
    method = method_from({"name": "frl", "budget": BUDGET, "rate": 2.0, "limit": 0.5, "beta": 3.0, **variant})
    state = method.next_state(method.initial_state(K), record())
    n, clean, robust = np.array([10, 10, 0, 10]), np.array([9, 9, 0, 9]), np.array([5, 1, 0, 10])
    state = method.next_state(state, record(epoch=38))
    margin = {"clean": np.zeros(K), "boundary": np.zeros(K), "margin": np.zeros(K)}
    for rate in (2.0, 1.0):
        for kind, errors, speed in (("clean", n - clean, rate), ("boundary", clean - robust, 2 * rate)):
            gaps = np.where(n > 0, errors / np.maximum(n, 1) - errors.sum() / n.sum() - 0.1, 0)
            moved = np.maximum(margin[kind] + speed * gaps, 0)
            margin[kind] = moved * min(1, 0.5 / moved.sum()) if moved.sum() else moved
        margin["margin"] = margin["margin"] + 0.1 * gaps
    assert {name: pytest.approx(tuple(values)) for name, values in margin.items()} == state
    assert sum(state["boundary"]) == pytest.approx(0.5) and min(state["boundary"]) == 0
    case, own = Case(), np.ones(K) / K
    u, v = (own + margin[kind] - margin[kind].mean() for kind in ("clean", "boundary"))
    u, v = (own, own) if variant.get("reweight") is False else (u, v)
    factor = np.clip(np.exp(2 * margin["margin"]), 0.98, 3)
    factor = np.ones(K) if variant.get("remargin") is False else factor
    at = case.attacked("kl", radius=0.2 * factor[case.y])
    want = (u[case.y] * case.ce(case.x) + 3 * v[case.y] * case.kl(at)).sum() / (u[case.y] + v[case.y]).sum()
    assert float(method.step(case.network, case.batch(state)).loss.detach()) == pytest.approx(want, rel=1e-5)


def test_frl_demands_clean_and_attacked_images_of_a_held_out_split() -> None:
    method = method_from("frl")
    for held in (None, ClassCounts((1,) * K, clean=(1,) * K)):
        with pytest.raises(ConfigError, match="method frl: expected clean and attacked images of a held-out split"):
            method.next_state(method.initial_state(K), record(validation=held))


@pytest.mark.parametrize("base", ["erm", "pgd", "trades"])
def test_given_weights_of_the_classes_multiply_the_loss_of_the_base(base: str) -> None:
    case, weights = Case(), (0.5, 2.0, 0.0, 1.5)
    method = method_from({"name": "weighted", "base": base, "budget": BUDGET, "weights": list(weights)})
    of_base = {
        "erm": lambda: case.ce(case.x),
        "pgd": lambda: case.ce(case.attacked("ce")),
        "trades": lambda: case.ce(case.x) + 6 * case.kl(case.attacked("kl")),
    }
    loss = float(method.step(case.network, case.batch()).loss.detach())
    assert loss == pytest.approx(np.mean(np.array(weights)[case.y] * of_base[base]()), rel=1e-6)
    plain = method_from({"name": "weighted", "base": base, "budget": BUDGET})
    assert float(plain.step(case.network, case.batch()).loss.detach()) == pytest.approx(np.mean(of_base[base]()))


def test_weights_of_another_number_of_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(weights\): expected 4 weights, one a class, found 3"):
        method_from({"name": "weighted", "weights": [1, 1, 1]}).step(Case().network, Case().batch())


def test_canonical_json_gives_the_method_back() -> None:
    for name in METHODS.names():
        method = method_from(name)
        assert method_from(method.canonical()) == method
        assert isinstance(method, Method)


def test_mistakes_are_listed_together_with_their_paths() -> None:
    with pytest.raises(ConfigError) as error:
        method_from({"name": "trades", "beta": -1, "budget": {"steps": 0}, "alpha": 1}, where="sweep.methods[0]")
    wheres = {problem.where for problem in error.value.problems}
    assert wheres == {"sweep.methods[0].beta", "sweep.methods[0].budget.steps", "sweep.methods[0].alpha"}
    with pytest.raises(ConfigError, match="did you mean 'trades'"):
        method_from("trade")
    with pytest.raises(ConfigError, match="random_start"):
        method_from({"name": "trades", "budget": {"random_start": False}})
    with pytest.raises(ConfigError, match="a mapping with a `name`"):
        method_from({"beta": 1})


def test_validating_a_sweep_imports_no_torch() -> None:
    code = (
        "import sys\nfrom services.training.methods import METHODS, method_from\n"
        "from services.training.recipe import Recipe\n"
        "[method_from(name) for name in METHODS.names()]; Recipe()\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
