"""Mappers: trained in seconds on digits, resumed bit for bit, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from services.errors import ClasswiseError, ConfigError, SourceError
from services.loading.samples.source import open_samples
from services.records import SampleSpec
from services.training.architectures import small_cnn
from services.training.epochs.loop import train
from services.training.mapper_recipe import MapperRecipe
from services.training.mappers import conditional_gan, generated, vae
from services.training.mappers.adam import Adam
from services.training.mappers.train import train_mapper
from services.training.methods.erm import Erm

SHORT = MapperRecipe(epochs=2, batch=64, lr=2e-3)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    samples = open_samples(SampleSpec("sklearn:digits?split=train"))
    return samples.images(0, len(samples)), samples.labels


def fresh(kind: str = "vae") -> torch.nn.Module:
    torch.manual_seed(0)
    return vae(4, 1, 8, 4) if kind == "vae" else conditional_gan(4, 10, 1, 8, 4)


def test_adam_takes_the_steps_of_torchs_adam() -> None:
    torch.manual_seed(0)
    ours, theirs = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    mine = Adam({"net": ours}, lr=0.05, betas=(0.9, 0.99))
    other = torch.optim.Adam(theirs.parameters(), lr=0.05, betas=(0.9, 0.99))
    inputs = torch.randn(20, 3)
    for _ in range(15):
        mine.step(ours(inputs).square().mean())
        other.zero_grad()
        theirs(inputs).square().mean().backward()
        other.step()
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_a_vae_reconstructs_and_learns_its_axes(digits: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    torch.manual_seed(0)
    mapper, observed = vae(6, 1, 8, 8), []
    recipe = MapperRecipe(epochs=15, batch=32, lr=4e-3, beta=0.3)
    report = train_mapper(mapper, digits[0], recipe=recipe, storage=str(tmp_path), on_epoch=observed.append)
    assert report.losses == tuple(observed) and len(observed) == 15
    assert observed[-1]["reconstruction"] < 0.7 * observed[0]["reconstruction"]
    assert report.reconstruction.explained is not None and report.reconstruction.explained > 0.4
    assert report.reconstruction.images == 90
    assert 1 <= report.active <= 6
    with torch.no_grad():
        latents = mapper.encode(torch.from_numpy(digits[0]))
    torch.testing.assert_close(latents.mean(0), mapper.centre, atol=0.1, rtol=0)
    assert (mapper.unit > 0).all()


@pytest.mark.parametrize("kind", ["vae", "gan"])
def test_a_stopped_run_goes_on_to_the_same_weights(
    kind: str, digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    images, labels = digits
    conditions = None if kind == "vae" else np.eye(10)[labels]
    whole, parts = fresh(kind), fresh(kind)
    train_mapper(whole, images, conditions=conditions, recipe=SHORT)

    class Stop(Exception):
        pass

    def stop(_: dict[str, float]) -> None:
        raise Stop

    for _ in range(2):  # stopped after the first epoch, then again after the second
        with pytest.raises(Stop):
            train_mapper(fresh(kind), images, conditions=conditions, recipe=SHORT, storage=str(tmp_path), on_epoch=stop)
    report = train_mapper(parts, images, conditions=conditions, recipe=SHORT, storage=str(tmp_path))
    assert report.resumed_at == 2
    for name, value in whole.state_dict().items():
        assert torch.equal(value, parts.state_dict()[name]), name
    with pytest.raises(ConfigError, match="progress of this very run"):
        other = SHORT.model_copy(update={"seed": 1})
        train_mapper(fresh(kind), images, conditions=conditions, recipe=other, storage=str(tmp_path))


@pytest.mark.slow
def test_a_conditional_gan_draws_the_digits_it_is_asked_for(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    images, labels = digits
    torch.manual_seed(0)
    report = train_mapper(
        conditional_gan(6, 10, 1, 8, 8),
        images,
        conditions=np.eye(10)[labels],
        recipe=MapperRecipe(epochs=40, batch=32, lr=2e-3),
        storage=str(tmp_path),
    )
    assert report.reconstruction.explained is not None and report.reconstruction.explained > 0.5
    judge = small_cnn(width=8)
    train(judge, images, labels, method=Erm(), epochs=12, batch=32, seed=0, lr=0.05)
    uri = (
        "generator:services.training.mappers:generated?n=500&latents=6&size=8&width=8"
        f"&weights={tmp_path}/model.safetensors"
    )
    samples = open_samples(SampleSpec(uri))
    with torch.no_grad():
        predicted = judge(torch.from_numpy(samples.images(0, 500))).argmax(1).numpy()
    assert (predicted == samples.labels).mean() > 0.8


def test_generated_samples_are_a_source_that_gives_the_same_twice(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    images, labels = digits
    conditions = np.concatenate([np.eye(10)[labels], images.mean(axis=(1, 2, 3))[:, None]], axis=1)
    torch.manual_seed(0)
    train_mapper(conditional_gan(4, 11, 1, 8, 4), images, conditions=conditions, recipe=SHORT, storage=str(tmp_path))
    uri = (
        "generator:services.training.mappers:generated?n=50&classes=10&latents=4&conditions=11&size=8&width=4"
        f"&names=a%2Cb%2Cc%2Cd%2Ce%2Cf%2Cg%2Ch%2Ci%2Cj&weights={tmp_path}/model.safetensors"
    )
    samples, again = open_samples(SampleSpec(uri)), open_samples(SampleSpec(uri))
    assert samples.digest == again.digest
    assert samples.classes == tuple("abcdefghij")
    np.testing.assert_array_equal(np.bincount(samples.labels), [5] * 10)
    assert samples.shape == (1, 8, 8)
    assert open_samples(SampleSpec(uri + "&seed=1")).digest != samples.digest
    for wrong, message in {"&n=3": "each key once", "&channels=2": "shapes"}.items():
        with pytest.raises(SourceError, match=message):
            open_samples(SampleSpec(uri + wrong))
    with pytest.raises(SourceError, match="at least 2, at most 10 conditions, found 12"):
        generated(f"{tmp_path}/model.safetensors", classes=12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: vae(0), "mapper.latents: expected at least 1, found 0"),
        (lambda: vae(size=30), "mapper.size: expected a multiple of 4, found 30"),
        (lambda: conditional_gan(conditions=0), "mapper.conditions"),
        (lambda: train_mapper(fresh("gan"), np.zeros((9, 1, 8, 8), np.float32)), r"\(9, 10\), one row an image"),
        (
            lambda: train_mapper(fresh(), np.zeros((9, 1, 8, 8), np.float32), conditions=np.zeros((9, 1))),
            "none for a VAE",
        ),
        (
            lambda: train_mapper(fresh("gan"), np.zeros((9, 1, 8, 8), np.float32), conditions=np.full((9, 10), np.nan)),
            "conditions: expected finite numbers",
        ),
        (lambda: train_mapper(fresh(), np.full((9, 1, 8, 8), 3.0)), "floating images in"),
        (lambda: train_mapper(fresh(), np.zeros((2, 1, 8, 8), np.float32)), "at least 3 images"),
    ],
)
def test_what_is_malformed_is_refused(build: object, message: str) -> None:
    with pytest.raises(ClasswiseError, match=message):
        build()  # type: ignore[operator]
