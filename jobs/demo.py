"""The demo: three small networks trained on scikit-learn's digits, audited together. No download and no server.

An ordinary, a noise-trained and an adversarially trained network, so that the table has something to show: the same
accuracy within a few points, and very different answers to "how robust, and for which class?".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml

from jobs.audit.publish import Published, audit_and_publish
from jobs.fleetfile.reading import Fleet, overridden, validate_fleet
from jobs.terminal.progress import Reporter
from services.devices import threads_given_back
from services.records import SampleSpec, digest_of
from services.storage import files

if TYPE_CHECKING:
    from services.training.methods import Method

FLEET = "digits"
EPSILON = 0.1
EPOCHS = 30
WIDTH = 16
NETWORK = "services.training.architectures:small_cnn"
TRAINING = "sklearn:digits?split=train"
AUDITED = "sklearn:digits?split=test"


def run_demo(base: str, reporter: Reporter) -> Published:
    """Train what is not trained yet, write the fleet file beside it, and audit."""
    weights = {name: _trained(name, method, base, reporter) for name, method in _methods().items()}
    fleet = demo_fleet(base, weights)
    text = yaml.safe_dump(fleet.config.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    file = files.join(base, "demo", "digits.yaml")
    files.write_bytes(file, text.encode())
    published = audit_and_publish(fleet, reporter)
    shown = f"all      classwise dashboard --storage {base}"
    return replace(published, where_to_look=(*published.where_to_look, f"fleet    {file}", shown))


def demo_fleet(base: str, weights: dict[str, str], *, runner: str | None = None) -> Fleet:
    """The demo's fleet file as an object."""
    data: dict[str, Any] = {
        "fleet": FLEET,
        "samples": {"uri": AUDITED},
        "models": [
            {"name": name, "uri": f"factory:{NETWORK}?width={WIDTH}&weights={path}"} for name, path in weights.items()
        ],
        "measures": [
            "clean",
            {"name": "great", "activation": "softmax", "temperature": 1.0},
            {"name": "pgd", "steps": 20, "epsilons": [EPSILON]},
            {"name": "minimal", "attacks": ["deepfool", "fmn"]},
        ],
        "gates": [
            {"measure": "clean", "metric": "wcr", "at_least": 0.8},
            {"measure": f"pgd20/linf-{EPSILON:.5f}", "metric": "wcr", "at_least": 0.3},
        ],
        "storage": base,
        "resources": {"shard": 300, "batch": 128},
    }
    return overridden(validate_fleet(data, source="demo"), runner=runner)


def _methods() -> dict[str, Method]:
    from services.training.methods.corruption import Corruption
    from services.training.methods.erm import Erm
    from services.training.methods.pgd import Pgd
    from services.training.step import Budget

    budget = Budget(epsilon=EPSILON, step=EPSILON / 4, steps=7)
    return {"ordinary": Erm(), "noise": Corruption(), "adversarial": Pgd(budget=budget)}


def _trained(name: str, method: Method, base: str, reporter: Reporter) -> str:
    """Path of the weights, trained unless weights of the same method and recipe are there."""
    key = digest_of(method.model_dump(mode="json"), EPOCHS, WIDTH, TRAINING)[:8]
    path = files.join(base, "demo", f"{name}-{key}.safetensors")
    if files.exists(path):
        return path
    reporter.note(f"training {name} on 898 digits ({method.name}, {EPOCHS} epochs)")
    import torch

    from services.loading.samples.source import open_samples
    from services.training.architectures import small_cnn
    from services.training.epochs.checkpoints import save_weights
    from services.training.epochs.loop import train

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = small_cnn(width=WIDTH)
    samples = open_samples(SampleSpec(TRAINING))
    images = samples.images(0, len(samples))
    with _one_thread():
        train(
            network, images, samples.labels, method=method, epochs=EPOCHS, batch=32, seed=0, lr=0.05, weight_decay=1e-4
        )
    save_weights(path, network.state_dict())
    return path


@contextmanager
def _one_thread() -> Iterator[None]:
    """Batches of 32 digits are too small to share between threads: on a busy machine they wait for each other."""
    import torch

    with threads_given_back():
        torch.set_num_threads(1)
        yield
