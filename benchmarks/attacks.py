"""Attacks against their peers, in one run: PGD-20 over the CIFAR-10 networks, minimal L2 distances, and APGD.

Usage: python -m benchmarks.attacks --data DIR [--images 1000] [--distances 500] [--strongest 128] [--peers DIR]
       [--only NAME ...]

PGD: Linf 8/255, 20 steps of 2/255, random start, the same batches, against torchattacks and foolbox, each with the pass
that tells the survivors. Targets: at least 1.5 times faster than either in all, and not slower on any single network.
Linf distances: FMN against adv-lib's (Rony) of equal passes, those that ours takes to refine and verify included, with
its own step size and with ten times that. Target: medians at most 3 % above the better of the two, in no more time.
Distances: each attack alone, refined and verified as the measure does, against foolbox's of equal steps, on the
correctly classified of the same images. Target: medians at most 5 % above, in less time.
APGD: its defaults against PGD-20 of equally many passes and against AutoAttack, sample by sample. Targets: leaves no
more than that PGD, and at most half a point more than AutoAttack in a tenth of its time.

A peer that is not installed is left out with a message; `--peers` is a folder to look for it in (torchattacks pins an
old `requests`: install it there with `pip install --no-deps --target`).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import zoo
from services.measures.apgd import Apgd
from services.measures.attacks.carlini import CarliniWagner
from services.measures.attacks.deepfool import DeepFool
from services.measures.attacks.fmn import FastMinimumNorm
from services.measures.attacks.fmn_linf import FastMinimumLinf
from services.measures.attacks.nearest import HALVINGS, Seeker, nearest_adversarials
from services.measures.autoattack import AutoAttackSurvival
from services.measures.pgd import Pgd

EPSILON, STEP, STEPS, BATCH = 8 / 255, 2 / 255, 20, 250
Attack = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], float]


class Clock(NamedTuple):
    """Wall time, and the processor time of this process, which a busy machine disturbs less."""

    wall: float
    cpu: float

    @staticmethod
    def now() -> Clock:
        return Clock(time.perf_counter(), time.process_time())

    def __sub__(self, other: Clock) -> Clock:
        return Clock(self.wall - other.wall, self.cpu - other.cpu)

    def ratio(self, to: Clock) -> str:
        return f"x{self.wall / to.wall:.2f} (cpu x{self.cpu / to.cpu:.2f})"


def ours(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Survivors of `pgd`."""
    measure = Pgd(epsilons=(EPSILON,), steps=STEPS, step_size=STEP)
    columns = measure.from_model(network, images, labels, np.arange(len(images)), seed=0)
    return float(columns[measure.series()[0].key].sum())


def torchattacks(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Survivors of torchattacks' PGD."""
    from torchattacks import PGD

    adversarial = PGD(network, eps=EPSILON, alpha=STEP, steps=STEPS, random_start=True)(images, labels)
    with torch.no_grad():
        return float((network(adversarial).argmax(1) == labels).sum())


def foolbox(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Survivors of foolbox' LinfPGD; its call tells success by itself."""
    from foolbox import PyTorchModel
    from foolbox.attacks import LinfPGD

    attack = LinfPGD(abs_stepsize=STEP, steps=STEPS, random_start=True)
    _, _, success = attack(PyTorchModel(network, (0, 1), device=images.device), images, labels, epsilons=EPSILON)
    return float((~success).sum())


def timed(attack: Attack, network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[Clock, float]:
    """Time over all batches, after a warm-up on eight images, and the share of survivors."""
    attack(network, images[:8], labels[:8])
    start = Clock.now()
    batches = zip(images.split(BATCH), labels.split(BATCH), strict=True)
    left = sum(attack(network, *batch) for batch in batches)
    return Clock.now() - start, left / len(images)


def compare_pgd(data: Path, count: int, only: list[str], peers: dict[str, Attack], device: str = "cpu") -> None:
    """Print one line a network and the ratio of the sums.

    Each attack ends by counting its survivors on the host, so a GPU's queue is empty when the clock is read.
    """
    images, labels, _ = zoo.images(data, "cifar10/test.npz", slice(0, count))
    images, labels = images.to(device), labels.to(device)
    known = [entry["id"] for entry in zoo.entries(data, "cifar10")]
    if unknown := sorted(set(only) - set(known)):
        sys.exit(f"no network {', '.join(unknown)}; there are {', '.join(known)}")
    totals = dict.fromkeys(["classwise", *peers], Clock(0.0, 0.0))
    print(
        f"\nPGD-{STEPS}, Linf 8/255, {count} images: wall seconds (robust accuracy), ratio of the peer's time to ours"
    )
    for name in only or known:
        network, line = zoo.load(data, name).to(device), f"{name:<24}"
        base, accuracy = timed(ours, network, images, labels)
        line += f"  classwise {base.wall:7.2f} ({accuracy:.3f})"
        totals["classwise"] = _sum(totals["classwise"], base)
        for peer, attack in peers.items():
            taken, accuracy = timed(attack, network, images, labels)
            totals[peer] = _sum(totals[peer], taken)
            line += f"  {peer} {taken.wall:7.2f} ({accuracy:.3f}) {taken.ratio(base)}"
        print(line, flush=True)
    ratios = ", ".join(f"{name} {totals[name].ratio(totals['classwise'])}" for name in peers)
    print(f"{'in all':<24}  classwise {totals['classwise'].wall:.2f} s; {ratios}", flush=True)


def _sum(one: Clock, other: Clock) -> Clock:
    return Clock(one.wall + other.wall, one.cpu + other.cpu)


def pairs() -> dict[str, tuple[Seeker, Any]]:
    """Our attacks and foolbox' with the same steps. Its FMN does not converge, so DDN stands beside ours as well."""
    from foolbox import attacks

    return {
        "DeepFool": (DeepFool(steps=50), attacks.L2DeepFoolAttack(steps=50)),
        "FMN": (FastMinimumNorm(limit=3.0, steps=60), attacks.L2FMNAttack(steps=60)),
        "FMN vs DDN": (FastMinimumNorm(limit=3.0, steps=60), attacks.DDNAttack(steps=60)),
        "CW": (CarliniWagner(5, 60), attacks.L2CarliniWagnerAttack(5, 60, initial_const=1.0)),
    }


def compare_distances(data: Path, count: int, names: list[str]) -> None:
    """Print median distances and times of each pair, and of the smallest of all."""
    from foolbox import PyTorchModel

    print(f"\nMinimal L2 on the correctly classified of {count} images: median and seconds")
    for name in names:
        network = zoo.load(data, name)
        images, labels, _ = zoo.images(data, "cifar10/test.npz", slice(0, count))
        with torch.no_grad():
            right = network(images).argmax(1) == labels
        images, labels = images[right], labels[right]
        for title, (seeker, peer) in pairs().items():
            start = Clock.now()
            own = nearest_adversarials(network, images, labels, [seeker]).distances.median().item()
            middle = Clock.now()
            _, result, success = peer(PyTorchModel(network, (0, 1), device="cpu"), images, labels, epsilons=None)
            mine, theirs = middle - start, Clock.now() - middle
            lengths = torch.where(success, (result.double() - images.double()).flatten(1).norm(dim=1), torch.inf)
            other = lengths.median().item()
            print(
                f"{name:<20} {title:<11} ours {own:.4f} {mine.wall:6.1f} s  foolbox {other:.4f} {theirs.wall:6.1f} s"
                f"  median x{own / other:.3f}  time {theirs.ratio(mine)}",
                flush=True,
            )


def adv_lib_fmn() -> Any:
    """adv-lib's FMN; torchvision and visdom, which it imports for other things, need not be there."""
    for module, name in (("distances.lpips", "LPIPS"), ("utils.visdom_logger", "VisdomLogger")):
        stand_in = ModuleType(f"adv_lib.{module}")
        setattr(stand_in, name, object)
        sys.modules.setdefault(stand_in.__name__, stand_in)
    return importlib.import_module("adv_lib.attacks").fmn


def compare_linf(data: Path, count: int, names: list[str]) -> None:
    """Print medians, means, misses and processor seconds of ours and adv-lib's."""
    fmn = adv_lib_fmn()
    print(f"\nMinimal Linf on the correctly classified of {count} images: median, not found, processor seconds")
    for name in names:
        network = zoo.load(data, name)
        images, labels, _ = zoo.images(data, f"{_DATA[name.partition('_')[0]]}", slice(0, count))
        with torch.no_grad():
            right = network(images).argmax(1) == labels
        images, labels = images[right], labels[right]
        start = Clock.now()
        found = nearest_adversarials(network, images, labels, [FastMinimumLinf(limit=1.0)], norm="Linf").distances
        mine, line, best = Clock.now() - start, "", np.inf
        for size in (1.0, 10.0):
            start = Clock.now()
            points = fmn(network, images, labels, norm=np.inf, steps=60 + HALVINGS + 2, α_init=size)
            taken = Clock.now() - start
            with torch.no_grad():
                fell = network(points).argmax(1) != labels
            lengths = torch.where(fell, (points - images).abs().flatten(1).amax(1), torch.inf)
            best = min(best, lengths.median().item())
            line += f"  adv-lib {size:g}: {lengths.median():.5f} {(~fell).float().mean():.1%} {taken.cpu:.1f}"
        own = found.median().item()
        missed = found.isinf().double().mean()
        print(f"{name:<22} ours {own:.5f} {missed:.1%} {mine.cpu:.1f}{line}  median x{own / best:.3f}", flush=True)


_DATA = {"cifar10": "cifar10/test.npz", "mnist": "mnist/t10k.npz"}
LINF = [
    "cifar10_resnet20",
    "cifar10_wide_madry8",
    "cifar10_resnet2b",
    "cifar10_conv_small_pgd",
    "cifar10_wide_kw",
    "mnist_lenet5_std",
    "mnist_lenet5_adv",
    "mnist_kw_01",
    "mnist_cnn_a_adv",
    "mnist_madry_tiny",
]
"""Trained without a defence, against attacks, and certified."""
STANDING = {
    "cifar10_cnn_a_adv4": "8/255",
    "cifar10_wide_madry8": "8/255",
    "cifar10_wide_kw": "8/255",
    "cifar10_resnet2b": "4/255",
    "cifar10_base_kw": "8/255",
    "cifar10_cnn_a_adv": "8/255",
    "cifar10_cnn_a_mix": "8/255",
    "cifar10_cnn_a_mix4": "8/255",
    "cifar10_conv_small_pgd": "8/255",
    "cifar10_wide_std": "1/255",
    "cifar10_resnet20": "1/255",
    "cifar10_resnet32": "1/255",
    "cifar10_resnet44": "1/255",
    "cifar10_resnet56": "1/255",
}
"""All networks for CIFAR-10, and radii at which something stands: trained against attacks, certified, undefended."""


def compare_strongest(data: Path, count: int, names: list[str]) -> None:
    """Print what each attack leaves, its processor time, and on how many samples APGD does worse and better."""
    print(f"\nAPGD against PGD of equal passes and AutoAttack, {count} images: left, worse and better, processor s")
    for name in names:
        network, (images, labels, ids) = zoo.load(data, name), zoo.images(data, "cifar10/test.npz", slice(0, count))
        radius: Any = STANDING[name]
        own = Apgd(epsilons=radius)
        starts = (own.steps + 1) * (1 + own.targets) // (STEPS + 1)
        measures: list[Any] = [own, Pgd(epsilons=radius, restarts=starts), AutoAttackSurvival(epsilons=radius)]
        first, line = np.zeros(count), f"{name:<20} {radius}"
        for measure in measures:
            start, series = Clock.now(), measure.series()[0]
            left = measure.from_model(network, images, labels, ids, seed=0)[series.key]
            first = left if measure is own else first
            worse, better = int((first > left).sum()), int((first < left).sum())
            line += f"  {series.label} {int(left.sum())} ({worse}, {better}) {(Clock.now() - start).cpu:.1f} s"
        print(line, flush=True)


def installed_peers(folder: str = "") -> dict[str, Attack]:
    """The peers that can be imported, also from `folder`; a missing one is left out with a message."""
    if folder:
        sys.path.append(folder)
    peers: dict[str, Attack] = {"torchattacks": torchattacks, "foolbox": foolbox}
    for name in [name for name in peers if importlib.util.find_spec(name) is None]:
        print(f"{name} is not installed: left out")
        del peers[name]
    return peers


def main() -> None:
    """Read the options and run the comparisons."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared real data")
    parser.add_argument("--images", type=int, default=1000, help="images for PGD; 0 leaves it out")
    parser.add_argument("--distances", type=int, default=500, help="images for minimal distances; 0 leaves them out")
    parser.add_argument("--linf", type=int, default=200, help="images for Linf distances; 0 leaves them out")
    parser.add_argument("--strongest", type=int, default=128, help="images for APGD; 0 leaves it out")
    parser.add_argument("--peers", default="", help="folder in which torchattacks is installed")
    parser.add_argument("--only", nargs="*", default=[], help="networks for PGD and APGD; all by default")
    options = parser.parse_args()
    peers = installed_peers(options.peers)
    if options.images:
        compare_pgd(options.data, options.images, options.only, peers)
    if options.strongest:
        compare_strongest(
            options.data, options.strongest, [name for name in STANDING if name in options.only or not options.only]
        )
    if options.linf and importlib.util.find_spec("adv_lib") is not None:
        compare_linf(options.data, options.linf, [name for name in LINF if name in options.only or not options.only])
    if options.distances and "foolbox" in peers:
        compare_distances(options.data, options.distances, ["cifar10_wide_std", "cifar10_base_kw", "cifar10_resnet2b"])


if __name__ == "__main__":
    main()
