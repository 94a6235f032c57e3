"""A small real fleet: networks trained on digits in seconds, and the fleet file that audits them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from services.loading.samples.source import open_samples
from services.records import SampleSpec
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import save_weights
from services.training.epochs.loop import train
from services.training.mapper_recipe import MapperRecipe
from services.training.mappers import vae
from services.training.mappers.train import train_mapper
from services.training.methods.erm import Erm

EPOCHS = {"good": 12, "weak": 2, "other": 12}


@pytest.fixture(scope="session")
def digit_weights(once: Callable[[str, Callable[[Path], None]], Path]) -> dict[str, str]:
    """Weights of three networks: well trained, briefly trained, and trained with another seed."""
    folder = once("digit-weights", _train_all)
    return {name: str(folder / f"{name}.safetensors") for name in EPOCHS}


def _train_all(folder: Path) -> None:
    samples = open_samples(SampleSpec("sklearn:digits?split=train"))
    images = samples.images(0, len(samples))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for seed, (name, epochs) in enumerate(EPOCHS.items()):
        torch.manual_seed(seed)
        network = small_cnn(width=8)
        train(network, images, samples.labels, method=Erm(), epochs=epochs, batch=32, seed=seed, lr=0.05)
        save_weights(str(folder / f"{name}.safetensors"), network.state_dict())
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def mapper_weights(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Weights of a small VAE of digits: six latents."""
    return once("mapper", _train_mapper) / "model.safetensors"


def _train_mapper(folder: Path) -> None:
    samples = open_samples(SampleSpec("sklearn:digits?split=train"))
    torch.manual_seed(0)
    recipe = MapperRecipe(epochs=20, batch=32, lr=4e-3, beta=0.3)
    train_mapper(vae(6, 1, 8, 8), samples.images(0, len(samples)), recipe=recipe, storage=str(folder))


@pytest.fixture
def digits_fleet(digit_weights: dict[str, str], tmp_path: Path) -> dict[str, Any]:
    """A fleet file as plain data, which draws no figures; tests change it."""
    return {
        "fleet": "digits",
        "samples": {"uri": "sklearn:digits?split=test"},
        "models": [
            {"name": name, "uri": f"factory:services.training.architectures:small_cnn?width=8&weights={path}"}
            for name, path in digit_weights.items()
        ],
        "measures": ["clean", {"name": "great", "activation": "softmax"}],
        "storage": str(tmp_path / "runs"),
        "tracking": {"enabled": False, "figures": False},
        "resources": {"runner": "local", "workers": 1, "shard": 300, "batch": 100},
    }


@pytest.fixture
def fleet_file(digits_fleet: dict[str, Any], tmp_path: Path) -> Path:
    """That fleet as a file."""
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(digits_fleet))
    return path
