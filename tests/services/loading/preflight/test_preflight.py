"""Every fault of a model and its data, made on purpose, and the sentence a user reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from services.loading.models.contract import ContractedNetwork
from services.loading.models.source import load_model
from services.loading.preflight import judgement
from services.loading.preflight.look import preflight
from services.loading.protocols import LoadedModel
from services.loading.samples.source import open_samples
from services.records import InputContract, ModelSpec, SampleSpec
from tests.services.loading.preflight.colours import CLASSES, Colours, colour_samples, loaded, text


def test_a_sound_model_passes_with_its_facts() -> None:
    facts, problems = preflight(loaded(Colours(), classes=CLASSES, clean_accuracy=1.0), colour_samples(), device="cpu")
    assert problems == ()
    assert facts["clean_correct"] == facts["probe"] == 90
    assert facts["clean_accuracy"] == 1.0
    assert facts["stochastic"] is False
    assert facts["batch_difference"] < 1e-5
    assert facts["logits_low"] < facts["logits_high"]


def test_a_real_network_passes_and_its_faults_are_found(shared_data: Path) -> None:
    weights = shared_data / "networks/cifar10/cifar10_resnet20.pt"
    contract = InputContract(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    uri = f"factory:services.training.architectures:cifar_resnet?n=3&weights={weights}"
    spec = ModelSpec("resnet20", uri, contract, clean_accuracy=0.9173)
    samples = open_samples(SampleSpec(f"npz:{shared_data / 'cifar10/test.npz'}"))
    assert preflight(load_model(spec), samples, device="cpu", probe=40)[1] == ()
    nowhere = replace(spec, input=InputContract(), clean_accuracy=None)
    _, problems = preflight(load_model(nowhere), samples, device="cpu", probe=40)
    assert "normalised nowhere? with" in str(problems[0])
    twice = replace(spec, clean_accuracy=None)
    inside = ContractedNetwork(load_model(spec).network, contract, where="resnet20")
    _, problems = preflight(LoadedModel(twice, inside, "d"), samples, device="cpu", probe=40)
    assert "it seems to normalise inside as well: leave input.mean and input.std out" in str(problems[-1])


def test_class_lists_are_compared() -> None:
    assert "another order: class 0 is 'green' to the model and 'red' to the samples" in text(
        Colours(), classes=("green", "red", "blue")
    )
    assert "1 of the samples that the model does not have: 'blue'" in text(Colours(), classes=("red", "green"))
    assert "1 of the model without samples: 'teal'" in text(Colours(), classes=("red", "green", "teal"))


def test_a_permuted_class_order_is_no_low_robustness() -> None:
    message = text(lambda x: Colours()(x)[:, [1, 2, 0]])
    assert "3 classes predicted consistently as another: red as blue, green as red, blue as green" in message
    assert "trained with another class order" in message


def test_what_is_not_certain_can_be_overruled() -> None:
    """Each finding becomes a note, and no more than that finding."""
    turned, guesses = (lambda x: Colours()(x)[:, [1, 2, 0]]), (lambda x: (x[:, :, 0, 0] * 1e4).remainder(1.0) - 0.5)
    for network, kind, spec in (
        (turned, "class-order", {}),
        (guesses, "chance", {}),
        (Colours(), "clean-accuracy", {"clean_accuracy": 0.6}),
        (lambda x: Colours()(x).sigmoid(), "outputs", {}),
    ):
        assert f"if it is right, overrule: [{kind}]" in text(network, **spec)
        facts, problems = preflight(loaded(network, overrule=(kind,), **spec), colour_samples(), device="cpu")
        assert problems == () and [f"overruled in the fleet file ({kind})" in note for note in facts["notes"]] == [True]
    assert "trained with another class order" in text(turned, overrule=("chance", "input"))


def test_number_of_classes_and_output_type() -> None:
    assert "expected logits (n, 3), one column a class of the samples, found shape (90, 2)" in text(
        lambda x: Colours()(x)[:, :2]
    )
    assert "found a tuple of 2; set `output`" in text(lambda x: (Colours()(x), x))
    assert text(lambda x: (x, Colours()(x)), output=1) == ""


def test_soft_max_twice() -> None:
    message = text(lambda x: Colours()(x).softmax(dim=1))
    assert "rows in [0, 1] that sum to 1; declare outputs: probabilities" in message
    assert text(lambda x: Colours()(x).softmax(dim=1), outputs="probabilities") == ""
    assert text(lambda x: Colours()(x).log_softmax(dim=1), outputs="log-probabilities") == ""


def test_values_of_a_smaller_range_are_noted() -> None:
    samples = colour_samples()
    dark = replace(samples, read=lambda start, stop: samples.images(start, stop) / 4)
    note = "the largest pixel of 90 samples is 0.225, where 1 is white: dark images, or values of another range"
    assert note in preflight(loaded(Colours()), dark, device="cpu")[0]["notes"][0]
    assert "notes" not in preflight(loaded(Colours()), samples, device="cpu")[0]


def test_rounded_outputs_are_a_fact_of_the_model() -> None:
    def rounded(x: torch.Tensor) -> torch.Tensor:
        return Colours()(x).softmax(dim=1).mul(1000).round() / 1000

    assert "rounded to 3 decimals, that sum to 1 but for the rounding; declare outputs: probabilities" in text(rounded)
    facts, problems = preflight(loaded(rounded, outputs="probabilities"), colour_samples(), device="cpu")
    assert problems == () and facts["output_rounding"] == "3 decimals"
    assert "outputs are rounded to 3 decimals: margins below 0.001 are lost" in facts["notes"][0]
    exact, _ = preflight(loaded(lambda x: Colours()(x).sigmoid(), outputs="sigmoid"), colour_samples(), device="cpu")
    assert "output_rounding" not in exact and "notes" not in exact


@pytest.mark.parametrize("outputs", ["probabilities", "log-probabilities"])
def test_declared_probabilities_that_are_none(outputs: Any) -> None:
    assert f"expected {outputs} as declared, found values from" in text(Colours(), outputs=outputs)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite(bad: float) -> None:
    def network(x: torch.Tensor) -> torch.Tensor:
        logits = Colours()(x).clone()
        logits[x[:, 0].mean(dim=(1, 2)) > 0.5, 1] = bad
        return logits

    assert "NaN or infinity for 30 of 90 samples" in text(network)


def test_noise_is_found_unless_declared() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return Colours()(x) + torch.rand(len(x), 3)

    assert "two identical passes to agree, found logits that differ by up to" in text(noisy)
    facts, problems = preflight(loaded(noisy, stochastic=True), colour_samples(), device="cpu")
    assert problems == ()
    assert facts["stochastic"] is True


def test_samples_that_influence_each_other() -> None:
    assert "the same logits alone and in a batch" in text(lambda x: Colours()(x) - Colours()(x).mean(dim=0))


@pytest.mark.parametrize("batch", [100, 128, 5000])
def test_a_batch_as_large_as_the_audits_is_tried(batch: int) -> None:
    """Only 64 images at a time were: what went wrong from 100 on went through the audit without a word."""

    def shifted(x: torch.Tensor) -> torch.Tensor:
        return Colours()(x) if len(x) < 100 else Colours()(x).roll(1, dims=0)

    facts, problems = preflight(loaded(shifted), colour_samples(), device="cpu", batch=batch)
    assert "the same logits alone and in a batch" in str(problems[0]) and facts["batch_difference"] > 1
    assert preflight(loaded(shifted), colour_samples(), device="cpu", batch=99)[1] == ()


def test_a_place_in_the_batch_is_tried() -> None:
    def other_from_the_fifth(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([Colours()(x[:4]), Colours()(x[4:]) * 1.1])

    assert "the same logits alone and in a batch" in text(other_from_the_fifth)


def test_a_batch_size_that_fails() -> None:
    def network(x: torch.Tensor) -> torch.Tensor:
        if len(x) == 1:
            raise RuntimeError("shape '[2, 48]' is invalid for input of size 48")
        return Colours()(x)

    assert "any batch size to work, found RuntimeError: shape '[2, 48]'" in text(network)


class Greedy(Colours):
    """Asks the allocator for more than there can be, for more than `most` images at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.passed = most, set[int]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.most:
            torch.empty(1 << 50)
        self.passed.add(len(x))
        return super().forward(x)


def test_a_network_that_needs_a_small_batch_is_given_one() -> None:
    greedy, small = Greedy(7), Greedy(16)
    assert preflight(loaded(greedy), colour_samples(), device="cpu")[1] == ()
    assert max(greedy.passed) == 4
    assert preflight(loaded(small), colour_samples(), device="cpu", batch=16)[1] == ()
    assert max(small.passed) == 16
    message = text(Greedy(0))
    assert "m (memory): expected memory for one image, found out of memory: " in message
    assert "use a larger device, or more of it a worker (resources.gpus)" in message


def test_one_constant_class() -> None:
    assert "predictions of several classes, found 'green' for all 90" in text(
        lambda x: torch.tensor([0.0, 5.0, 1.0]) + 0 * Colours()(x)
    )


def test_no_better_than_chance() -> None:
    message = text(lambda x: (x[:, :, 0, 0] * 1e4).remainder(1.0))
    assert "an accuracy above chance (33.3%)" in message
    assert "normalisation (twice or nowhere), value range, class order and weights" in message
    assert "values in [0, 1] of a network that guesses" in message


def test_the_declared_accuracy_is_tested_both_ways() -> None:
    assert "expected about 60.0% as declared, found 90 of 90 correct (100.0%); check that the declared figure" in text(
        Colours(), clean_accuracy=0.6
    )
    half = {"clean_accuracy": 0.99}
    message = text(lambda x: torch.where(x[:, :1, 0, 0] > 0.3, Colours()(x), Colours()(x).roll(1, 1)), **half)
    assert "as declared, found" in message and "check the input contract and the weights" in message


@pytest.mark.parametrize(("correct", "fits"), [(256, False), (240, True), (236, True), (205, False)])
def test_declared_accuracy_against_an_exact_test(correct: int, fits: bool) -> None:
    spec = ModelSpec("m", "x:y", clean_accuracy=0.92)
    assert (judgement.declared_problems(spec, correct, 256) == []) == fits


@pytest.mark.parametrize(
    ("contract", "gain", "advice"),
    [
        (InputContract(), 255.0, "it seems to expect [0, 255]"),
        (InputContract(high=255.0), 1.0, "it seems to expect [0, 1]"),
    ],
)
def test_a_wrong_range_is_diagnosed(contract: InputContract, gain: float, advice: str) -> None:
    class Band(nn.Module):
        """Right only inside its own value range."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inside = (x.amax(dim=(1, 2, 3), keepdim=True) > 0.5 * gain) & (
                x.amax(dim=(1, 2, 3), keepdim=True) < 2 * gain
            )
            means = x.mean(dim=(2, 3)) / gain
            return torch.where(inside.flatten(1), means, means.roll(1, 1) * x[:, :1, 0, 0] - means)

    assert advice in text(Band(), input=contract)


def test_channels() -> None:
    network = nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten())
    message = text(network)
    assert "(input): expected 1 channels, found images of 3 (3, 4, 4); set input.channels: 1" in message
    assert "one value a channel, found 2 for 3 channels" in text(Colours(), input=InputContract(mean=(0.1, 0.2)))


def test_a_size_the_network_does_not_take() -> None:
    message = text(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
    assert "a network that takes images (3, 4, 4), found RuntimeError: mat1 and mat2" in message


def test_images_out_of_range() -> None:
    samples = colour_samples()
    bright = replace(samples, read=lambda start, stop: samples.read(start, stop) * 255)
    assert "float32 images in [0, 1], found float32 from" in text(Colours(), bright)
    flat = replace(samples, read=lambda start, stop: np.zeros((stop - start, 3, 4, 4), np.float32))
    assert "images that differ, found every pixel 0" in text(Colours(), flat)


def test_a_class_without_samples_is_a_fact() -> None:
    samples = colour_samples(classes=(*CLASSES, "violet"))
    four = nn.Sequential(Colours(), nn.ConstantPad1d((0, 1), -1.0))
    facts, problems = preflight(loaded(four), samples, device="cpu")
    assert problems == ()
    assert facts["classes_without_samples"] == ["violet"]


def test_several_faults_come_together() -> None:
    message = text(
        lambda x: (Colours()(x) + torch.rand(len(x), 3) * 0.01).softmax(dim=1),
        classes=("red", "green", "teal"),
        clean_accuracy=0.2,
    )
    assert all(part in message for part in ("teal", "sum to 1", "two identical passes", "about 20.0% as declared"))
