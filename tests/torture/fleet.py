"""The fleet under torture: four digit classifiers of two kinds, and the audit of them as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NETWORKS = {
    "conv8": "services.training.architectures:small_cnn?width=8",
    "conv4": "services.training.architectures:small_cnn?width=4",
    "dense32": "torture.networks:dense_bn?width=32",
    "dense16": "torture.networks:dense_bn?width=16",
}
MEASURES = (
    "clean",
    {"name": "great", "activation": "softmax"},
    {"name": "pgd", "steps": 2, "epsilons": [0.1]},
    {"name": "pr", "radii": [0.2], "draws": 8},
)
LOGITS_MEASURES = 2
"""How many of them, from the left, are functions of the logits."""


def train_weights(folder: Path) -> None:
    """Train the four for a few seconds and save them, each under its name."""
    import torch

    from services.loading.samples.source import open_samples
    from services.records import SampleSpec
    from services.training.architectures import small_cnn
    from services.training.epochs.checkpoints import save_weights
    from services.training.epochs.loop import train
    from services.training.methods.erm import Erm

    from .networks import dense_bn

    torch.set_num_threads(1)
    samples = open_samples(SampleSpec("sklearn:digits?split=train"))
    images = samples.images(0, len(samples))
    for seed, name in enumerate(NETWORKS):
        torch.manual_seed(seed)
        width = int(name.removeprefix("conv").removeprefix("dense"))
        network = small_cnn(width=width) if name.startswith("conv") else dense_bn(width)
        train(network, images, samples.labels, method=Erm(), epochs=4, batch=32, seed=seed, lr=0.05)
        save_weights(str(folder / f"{name}.safetensors"), network.state_dict())


def fleet_of(weights: Path, storage: Path, **resources: Any) -> dict[str, Any]:
    """A fleet file as plain data: 4 models, 200 samples in 4 shards, 4 measures, gates, and MLflow in the storage."""
    models = [
        {"name": name, "uri": f"factory:{uri}&weights={weights}/{name}.safetensors"} for name, uri in NETWORKS.items()
    ]
    return {
        "fleet": "torture",
        "samples": {"uri": "sklearn:digits?split=test", "per_class": 20},
        "models": models,
        "measures": list(MEASURES),
        "gates": [{"measure": "clean", "metric": "wcr", "at_least": 0.5}],
        "factories": ["torture.*", "services.training.*"],
        "storage": str(storage),
        "resources": {"runner": "local", "workers": 1, "shard": 60, "batch": 30, **resources},
    }
