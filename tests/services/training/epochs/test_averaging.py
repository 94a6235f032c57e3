"""Averages of weights: closed forms, batch norm, and who judges them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from services.errors import ConfigError
from services.training.data.batches import Epoch, Images
from services.training.epochs.evaluation import evaluate
from services.training.epochs.loop import TrainReport
from services.training.methods import method_from
from services.training.recipe import Recipe
from services.training.step import Budget
from tests.services.training.epochs.small_runs import HELD, network, run, same, samples, weights


def trajectory(**options: Any) -> tuple[TrainReport, list[dict[str, torch.Tensor]], nn.Module]:
    """A run, its own weights after each epoch, and the network with the weights that it returned."""
    net, observed = network(norm=True), []
    options = {"epochs": 5, "select": "last", **options}
    report = run(net, on_epoch=lambda _: observed.append(weights(net)), **options)
    return report, observed, net


def test_averaging_leaves_training_as_it_is_and_returns_the_closed_form() -> None:
    _, plain, _ = trajectory(**HELD)
    report, own, net = trajectory(averaging={"kind": "ema", "decay": 0.6, "start": 0.4}, **HELD)
    assert all(same(a, b) for a, b in zip(plain, own, strict=True))
    assert [record.averaged for record in report.records] == [False, False, True, True, True]
    assert report.averaged == 3
    for name, value in weights(net).items():
        want = 0.36 * own[2][name] + 0.24 * own[3][name] + 0.4 * own[4][name] if "num" not in name else own[4][name]
        assert torch.allclose(value, want, atol=1e-6)


def test_an_average_over_steps_has_its_closed_form() -> None:
    """Epochs of one step, so that the weights after each step can be observed, and one of two steps."""
    steps: dict[str, Any] = {"batch": 200, "epochs": 4, "method": method_from("erm")}
    _, own, _ = trajectory(**steps)
    _, _, net = trajectory(averaging={"kind": "step-ema", "decay": 0.7, "start": 0.25}, **steps)
    for name, value in weights(net).items():
        want = 0.49 * own[1][name] + 0.21 * own[2][name] + 0.3 * own[3][name] if "num" not in name else own[3][name]
        assert torch.allclose(value, want, atol=1e-6), name
    pair: dict[str, Any] = {"batch": 60, "epochs": 1, "method": method_from("erm"), "momentum": 0.0, "lr": 1e-3}
    _, after, net = trajectory(averaging={"kind": "step-ema", "decay": 0.5, "start": 0}, **pair)
    begun, ended, mean = (part["5.weight"] for part in (weights(network(norm=True)), after[0], weights(net)))
    # two small steps are nearly alike: the mean of the weights after each lies a quarter of the way back
    assert float((ended - mean).norm() / (ended - begun).norm()) == pytest.approx(0.25, abs=0.05)


def test_stochastic_weight_averaging_is_the_mean_with_batch_norm_of_the_training_images() -> None:
    options: dict[str, Any] = {"epochs": 4, "method": method_from("erm"), "batch": 30}
    _, own, _ = trajectory(**options)
    report, _, net = trajectory(averaging={"kind": "swa", "start": 0.25}, **options)
    assert report.averaged == 3
    mean = {name: (own[1][name] + own[2][name] + own[3][name]) / 3 for name in own[0] if "num" not in name}
    want = network(norm=True)
    want.load_state_dict({**own[3], **mean})
    batches = Epoch(Images(*samples(), torch.device("cpu")), batch=30, seed=0, epoch=3, crop=0, flip=False)
    torch.optim.swa_utils.update_bn([x for x, _ in batches], want)
    for name, value in weights(net).items():
        assert torch.allclose(value, want.state_dict()[name], atol=1e-5), name
    assert not torch.allclose(mean["1.running_mean"], weights(net)["1.running_mean"], atol=1e-4)


def test_the_held_out_split_judges_the_average() -> None:
    plain, _, _ = trajectory(**HELD)
    report, _, net = trajectory(averaging={"kind": "ema", "start": 0}, **HELD)
    held = Images(*HELD["validation"], torch.device("cpu"))
    want = evaluate(net, held, 4, attack=Budget(**HELD["attack"]), batch=16, seed=0)
    assert report.records[-1].validation == want != plain.records[-1].validation


def test_only_fair_epochs_are_taken_in() -> None:
    rough = {**HELD, "lr": 2.0}
    plain, own, _ = trajectory(**rough)
    worst = [record.validation.accuracy("worst-class") for record in plain.records if record.validation]
    taken = [score >= worst[0] for score in worst]
    report, _, net = trajectory(averaging={"kind": "fair-ema", "threshold": worst[0], "start": 0}, **rough)
    assert False in taken and taken[-1] and [record.averaged for record in report.records] == taken
    rows = [i for i, fair in enumerate(taken) if fair]
    average = own[rows[0]]["0.weight"]
    for i in rows[1:]:
        average = 0.85 * average + 0.15 * own[i]["0.weight"]
    assert torch.allclose(weights(net)["0.weight"], average, atol=1e-6)
    for i in range(1, 5):
        unchanged = report.records[i].validation == report.records[i - 1].validation
        assert taken[i] or unchanged


def test_without_a_fair_epoch_the_own_weights_are_returned() -> None:
    report, own, net = trajectory(averaging={"kind": "fair-ema", "threshold": 1.0, "start": 0}, **HELD)
    assert report.averaged == 0 and same(weights(net), own[-1])
    assert trajectory(averaging="none", **HELD)[0].averaged is None


def test_a_recipe_without_averaging_is_what_it_was() -> None:
    assert "averaging" not in Recipe().canonical() and Recipe(averaging="none") == Recipe()
    recipe = Recipe(averaging="fair-ema")
    assert Recipe.model_validate_json(recipe.canonical()) == recipe.changed(lr=0.01)
    for wrong in ("mean", {"kind": "ema", "threshold": 0.1}, {"kind": "ema", "decay": 1}):
        with pytest.raises(ConfigError, match=r"recipe\.averaging"):
            Recipe().changed(averaging=wrong)
