"""Attack adequacy: what a probe costs, and what it says of defences that are known to be broken.

Usage: python -m benchmarks.adequacy [--data DIR] [--images 1000] [--epsilon 0.15]

Defences: each of `benchmarks.defences` around a small network on digits, audited with PGD-20 and gates on it, beside an
adaptive attack. Target: no gate passes that the upper limit of what the adaptive attack left fails, and no sign on the
undefended network. Cost, with `--data`: forward passes and wall time of the probe as a share of its attack's,
over networks trained in several ways. Target: at most a tenth of the passes in all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks import defences
from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from services.loading.samples.source import open_samples
from services.numerics.intervals.means import clopper_pearson
from services.records import ModelResult, Outcome, Receipt, SampleSpec
from services.training.epochs.loop import train
from services.training.methods.erm import Erm

THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
SAMPLES = "sklearn:digits?split=test"
STANDING = ("cifar10_wide_std", "cifar10_cnn_a_adv4", "cifar10_wide_kw", "cifar10_resnet2b", "cifar10_wide_madry8")


@dataclass
class Costs:
    """A reporter that adds up what tasks cost, by kind."""

    passes: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)

    def stage(self, name: str, shards: int, models: int) -> None:
        """Ignore."""

    def done(self, receipt: Receipt) -> None:
        """Add a receipt; probes and transfers count together."""
        kind = {"transfer": "probe"}.get(receipt.task.kind, receipt.task.kind)
        self.passes[kind] += receipt.forwards
        self.seconds[kind] += receipt.seconds

    def remaining(self, share: float, seconds: float) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


def key_of(epsilon: float) -> str:
    return f"pgd20/linf-{epsilon:.5f}"


def audited(model: dict[str, Any], samples: dict[str, Any], epsilon: float, storage: str, costs: Costs) -> ModelResult:
    """One model under PGD-20, with gates at all thresholds."""
    gates = [{"measure": key_of(epsilon), "metric": "aggregate", "at_least": least} for least in THRESHOLDS]
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
    """A defence: what the audit said, and the share that an adaptive attack left with its upper limit."""

    defence: str
    model: ModelResult
    pgd: float
    adaptive: float
    upper: float

    @property
    def passed(self) -> float:
        """The largest threshold of a gate that passed; 0 when none did."""
        pairs = zip(THRESHOLDS, self.model.gates, strict=True)
        return max((least for least, gate in pairs if gate.outcome is Outcome.PASS), default=0.0)

    def line(self) -> str:
        (attack,) = self.model.attacks
        verdict = "".join(gate.outcome.value[0] for gate in self.model.gates)
        shown = ", ".join(dict.fromkeys(sign.sign for sign in attack.signs if sign.shown)) or "-"
        return f"| {self.defence} | {self.pgd:.3f} | {self.adaptive:.3f} | {attack.adequacy} | {shown} | {verdict} |"


def row(defence: str, file: str, epsilon: float, storage: str) -> Row:
    """Audit a defended network and attack it adaptively."""
    uri = f"factory:benchmarks.defences:defended?file={file}&defence={defence}"
    model: dict[str, Any] = {"name": defence, "uri": uri, "stochastic": defence == "noisy"}
    result = audited(model, {"uri": SAMPLES}, epsilon, storage, Costs())
    samples = open_samples(SampleSpec(SAMPLES))
    images, labels = torch.from_numpy(samples.images(0, len(samples))), torch.from_numpy(samples.labels)
    left = defences.adaptive(defences.defended(file, defence).eval(), defences.base(file), images, labels, epsilon)
    upper = float(clopper_pearson(left.sum(), torch.tensor(len(left)).numpy(), 0.05)[1])
    pgd = next(each for each in result.series if each.series.key == key_of(epsilon)).aggregate.value
    return Row(defence, result, pgd or 0.0, float(left.mean()), upper)


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


def bench(epsilon: float) -> bool:
    """Print the table; whether a target was missed."""
    print(f"\n| defence, Linf {epsilon:g} | PGD-20 | adaptive | adequacy | signs | gates at {THRESHOLDS} |")
    print("|---|---|---|---|---|---|")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        plain = trained(Path(folder) / "plain.safetensors")
        smooth = trained(Path(folder) / "smooth.safetensors", 0.9)
        for defence in defences.NAMES:
            found = row(defence, smooth if defence == "smoothed" else plain, epsilon, folder)
            print(found.line(), flush=True)
            alarm = defence == "plain" and found.model.attacks[0].adequacy == "inadequate"
            missed |= found.passed > found.upper or alarm
    return missed


def cost(data: Path, images: int) -> bool:
    """Print the probe's share of passes and wall time; whether the target was missed."""
    total = Costs()
    print(f"\nProbe of PGD-20, Linf 8/255, {images} images: share of the attack's passes and wall time, and adequacy")
    for name in STANDING:
        costs = Costs()
        samples = {"uri": f"npz:{data}/cifar10/test.npz", "limit": images}
        model = {"name": name, "uri": f"factory:benchmarks.zoo:audited?data={data}&name={name}"}
        with tempfile.TemporaryDirectory() as folder:
            result = audited(model, samples, 8 / 255, folder, costs)
        print(f"{name:<22} {_share(costs)}  {result.attacks[0].adequacy}", flush=True)
        total.passes.update(costs.passes)
        total.seconds.update(costs.seconds)
    print(f"{'in all':<22} {_share(total)}")
    return total.passes["probe"] > 0.1 * total.passes["measure"]


def _share(costs: Costs) -> str:
    passes, seconds = costs.passes, costs.seconds
    forwards = (
        f"forward passes {passes['probe']:,} of {passes['measure']:,} = {passes['probe'] / passes['measure']:.1%}"
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
    missed = bench(options.epsilon) if options.epsilon else False
    if options.data is not None:
        missed |= cost(options.data, options.images)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
