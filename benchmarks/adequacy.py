"""Attack adequacy: what a probe costs, and what it says of defences that are known to be broken.

Usage: python -m benchmarks.adequacy [--data DIR] [--images 1000] [--epsilon 0.15]

Defences: each of `benchmarks.defences` around a small network on digits, audited with PGD-20 and gates on it, beside an
adaptive attack. Target: no gate passes that the upper limit of what the adaptive attack left fails, and no sign on the
undefended network. Cost, with `--data`: passes and wall time of the probe as a share of its attack's, over networks
trained in several ways. Target: at most a tenth of the forward passes in all, and of all passes, a backward one
counting 2, on every network.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from benchmarks import defences, zoo
from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from services.loading.samples.source import open_samples
from services.numerics.intervals.means import clopper_pearson
from services.records import GateResult, ModelResult, Outcome, Receipt, SampleSpec, SignResult
from services.training.epochs.loop import train
from services.training.methods.erm import Erm

THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
METRICS = ("aggregate", "wcr")
SAMPLES = "sklearn:digits?split=test"
STANDING = ("cifar10_wide_std", "cifar10_cnn_a_adv4", "cifar10_wide_kw", "cifar10_resnet2b", "cifar10_wide_madry8")


@dataclass
class Costs:
    """A reporter that adds up what tasks cost, by kind."""

    passes: Counter[str] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    backward: int = 0

    def stage(self, name: str, shards: int, models: int) -> None:
        """Ignore."""

    def done(self, receipt: Receipt) -> None:
        """Add a receipt; probes and transfers count together."""
        kind = {"transfer": "probe"}.get(receipt.task.kind, receipt.task.kind)
        self.passes[kind] += receipt.forwards
        self.units[kind] += receipt.forwards + 2 * self.backward
        self.backward = 0
        self.seconds[kind] += receipt.seconds

    def remaining(self, share: float, seconds: float) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


@dataclass(frozen=True)
class Setting:
    """A network behind a defence: its URI, it and the undefended one, the samples, and the radius of the attack."""

    defence: str
    uri: str
    guarded: nn.Module
    plain: nn.Module
    samples: dict[str, Any]
    epsilon: float


COLOURED = (("cifar10_resnet20", 1 / 255), ("cifar10_cnn_a_adv", 4 / 255))
"""Networks with one useful colour channel of three, and the radius at which each is attacked."""

IN_TWO_CLASSES = (("cifar10_cnn_a_mix", 1 / 255),)
"""Networks whose gradient is wrong where a cat or a dog is predicted."""


def on_digits(defence: str, file: str, epsilon: float) -> Setting:
    """A defence around the small network."""
    uri = f"factory:benchmarks.defences:defended?file={file}&defence={defence}"
    return Setting(defence, uri, defences.defended(file, defence), defences.base(file), {"uri": SAMPLES}, epsilon)


def on_cifar10(data: Path, name: str, defence: str, epsilon: float, images: int) -> Setting:
    """A defence around one of the shared networks."""
    uri = f"factory:benchmarks.defences:defended_standing?data={data}&name={name}&defence={defence}"
    guarded = defences.defended_standing(str(data), name, defence)
    samples = {"uri": f"npz:{data}/cifar10/test.npz", "limit": images}
    return Setting(f"{defence}, {name}", uri, guarded, zoo.load(data, name), samples, epsilon)


def key_of(epsilon: float) -> str:
    return f"pgd20/linf-{epsilon:.5f}"


def audited(model: dict[str, Any], samples: dict[str, Any], epsilon: float, storage: str, costs: Costs) -> ModelResult:
    """One model under PGD-20, with gates at all thresholds."""
    key = key_of(epsilon)
    gates = [{"measure": key, "metric": metric, "at_least": least} for metric in METRICS for least in THRESHOLDS]
    fleet = {
        "fleet": "adequacy",
        "models": [model],
        "samples": samples,
        "measures": ["clean", {"name": "pgd", "epsilons": [epsilon]}],
        "gates": gates,
        "storage": storage,
        "tracking": {"enabled": False},
        "resources": {"runner": "local", "workers": 1, "batch": 250},
        "factories": ["benchmarks.*"],
    }
    return run_audit(validate_fleet(fleet), costs).result.models[0]


@dataclass(frozen=True)
class Row:
    """A defence: what the audit said, and what an adaptive attack left.

    Attributes:
        pgd, adaptive: shares left by metric, of all samples and in the worst class.
        upper: limits of the adaptive ones, at level .05 for each metric.
    """

    defence: str
    model: ModelResult
    pgd: dict[str, float]
    adaptive: dict[str, float]
    upper: dict[str, float]

    def passed(self, metric: str) -> float:
        """The largest threshold of a gate on that metric that passed; 0 when none did."""
        pairs = zip(THRESHOLDS, self._gates(metric), strict=True)
        return max((least for least, gate in pairs if gate.outcome is Outcome.PASS), default=0.0)

    @property
    def missed(self) -> bool:
        """A gate passed that the adaptive attack's upper limit fails."""
        return any(self.passed(metric) > self.upper[metric] for metric in METRICS)

    def _gates(self, metric: str) -> tuple[GateResult, ...]:
        first = METRICS.index(metric) * len(THRESHOLDS)
        return self.model.gates[first : first + len(THRESHOLDS)]

    def line(self) -> str:
        (attack,) = self.model.attacks
        verdicts = " | ".join("".join(gate.outcome.value[0] for gate in self._gates(metric)) for metric in METRICS)
        shown = ", ".join(dict.fromkeys(_named(sign) for sign in attack.signs if sign.shown)) or "-"
        numbers = " | ".join(f"{side[metric]:.3f}" for metric in METRICS for side in (self.pgd, self.adaptive))
        return f"| {self.defence} | {numbers} | {attack.adequacy} | {shown} | {verdicts} |"


def _named(sign: SignResult) -> str:
    """A sign; of a part of the input or a class with its name."""
    part, mark, _ = sign.sentence.partition(", for ")
    return f"{sign.sign} {part.lower()}" if mark and part.startswith("In ") else sign.sign


def row(setting: Setting, storage: str) -> Row:
    """Audit a defended network and attack it adaptively."""
    epsilon, defence = setting.epsilon, setting.defence
    model: dict[str, Any] = {"name": "defended", "uri": setting.uri, "stochastic": defence == "noisy"}
    model["overrule"] = ["outputs"] if defence == "saturated" else []  # shares of 3: preflight refuses them
    result = audited(model, setting.samples, epsilon, storage, Costs())
    samples = open_samples(SampleSpec(setting.samples["uri"], limit=setting.samples.get("limit")))
    images, labels = torch.from_numpy(samples.images(0, len(samples))), torch.from_numpy(samples.labels)
    guarded, plain = setting.guarded.eval(), setting.plain
    parts = zip(images.split(250), labels.split(250), strict=True)
    left = np.concatenate([defences.adaptive(guarded, plain, *part, epsilon) for part in parts])
    counted, stands = np.bincount(samples.labels), np.bincount(samples.labels, weights=left)
    joint = clopper_pearson(stands, counted, 0.05 / len(counted))[1]
    whole = clopper_pearson(np.array(left.sum()), np.array(len(left)), 0.05)[1]
    pgd = next(each for each in result.series if each.series.key == key_of(epsilon))
    return Row(
        defence,
        result,
        {metric: pgd.metric(metric).value or 0.0 for metric in METRICS},
        {"aggregate": float(left.mean()), "wcr": float((stands / counted).min())},
        {"aggregate": float(whole), "wcr": float(joint.min())},
    )


def trained(file: Path, smoothing: float = 0.0) -> str:
    """Weights of the small network on digits; with smoothed labels its outputs are nearly alike."""
    from safetensors.torch import save_file

    samples = open_samples(SampleSpec("sklearn:digits?split=train"))
    images, labels = samples.images(0, len(samples)), samples.labels
    torch.manual_seed(0)
    network = defences.small_cnn(width=8)
    if smoothing:
        _smoothed(network, torch.from_numpy(images), torch.from_numpy(labels), smoothing)
    else:
        train(network, images, labels, method=Erm(), epochs=12, batch=32, seed=0, lr=0.05)
    save_file(network.state_dict(), str(file))
    return str(file)


def _smoothed(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, smoothing: float) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=0.003)
    for _ in range(30):
        for rows in torch.randperm(len(images)).split(64):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(images[rows]), labels[rows], label_smoothing=smoothing)
            loss.backward()
            optimiser.step()


def bench(epsilon: float, data: Path | None, images: int) -> bool:
    """Print the table; whether a target was missed."""
    heads = "PGD-20 | adaptive | its worst class | adaptive | adequacy | signs"
    print(f"\n| defence, Linf {epsilon:g} | {heads} | gates at {THRESHOLDS} | the same on the worst class |")
    print("|---|---|---|---|---|---|---|---|---|")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        plain = trained(Path(folder) / "plain.safetensors")
        smooth = trained(Path(folder) / "smooth.safetensors", 0.9)
        settings = [on_digits(name, smooth if name == "smoothed" else plain, epsilon) for name in defences.NAMES]
        if data is not None:
            settings += [on_cifar10(data, name, "two-channels", radius, images) for name, radius in COLOURED]
            settings += [on_cifar10(data, name, "two-classes", radius, images) for name, radius in IN_TWO_CLASSES]
        for setting in settings:
            found = row(setting, folder)
            print(found.line(), flush=True)
            alarm = setting.defence == "plain" and found.model.attacks[0].adequacy == "inadequate"
            missed |= found.missed or alarm
    return missed


def cost(data: Path, images: int) -> bool:
    """Print the probe's share of passes and wall time; whether the target was missed."""
    total, dear = Costs(), False
    print(f"\nProbe of PGD-20, Linf 8/255, {images} images: share of the attack's passes and wall time, and adequacy")
    for name in STANDING:
        costs = Costs()
        samples = {"uri": f"npz:{data}/cifar10/test.npz", "limit": images}
        model = {"name": name, "uri": f"factory:benchmarks.zoo:audited?data={data}&name={name}"}
        with tempfile.TemporaryDirectory() as folder, _counted(costs):
            result = audited(model, samples, 8 / 255, folder, costs)
        print(f"{name:<22} {_share(costs)}  {result.attacks[0].adequacy}", flush=True)
        dear |= costs.units["probe"] > 0.1 * costs.units["measure"]
        for kept, more in ((total.passes, costs.passes), (total.units, costs.units), (total.seconds, costs.seconds)):
            kept.update(more)
    print(f"{'in all':<22} {_share(total)}")
    return dear or total.passes["probe"] > 0.1 * total.passes["measure"]


@contextmanager
def _counted(costs: Costs) -> Iterator[None]:
    """Count images whose gradient is taken in this process, where tasks run one after the other."""
    plain = torch.autograd.grad

    def counting(outputs: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        costs.backward += len(inputs) if torch.is_tensor(inputs) and inputs.ndim == 4 else 0
        return plain(outputs, inputs, *args, **options)

    with mock.patch.object(torch.autograd, "grad", counting):
        yield


def _share(costs: Costs) -> str:
    passes, units, seconds = costs.passes, costs.units, costs.seconds
    forwards = (
        f"forward passes {passes['probe']:,} of {passes['measure']:,} = {passes['probe'] / passes['measure']:.1%}, "
        f"with backward ones {units['probe']:,} of {units['measure']:,} = {units['probe'] / units['measure']:.1%}"
    )
    wall = f"{seconds['probe']:.2f} of {seconds['measure']:.2f} s = {seconds['probe'] / seconds['measure']:.1%}"
    return f"{forwards}, wall time {wall}"


def main() -> int:
    """Read the options and run both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of the shared real data; left out, no costs")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=0.15, help="radius on digits; 0 leaves the defences out")
    options = parser.parse_args()
    missed = bench(options.epsilon, options.data, options.images) if options.epsilon else False
    if options.data is not None:
        missed |= cost(options.data, options.images)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
