"""Training throughput of each method against a plain loop of the same method, in one run.

    python benchmarks/training.py [--steps 8] [--methods pgd trades ...] [--device cpu] [--precision float32]

The plain loops are written the way the methods' public code is: `torch.optim.SGD`, a `DataLoader` over tensors, an
attack that clamps to the ball and then to [0, 1], all draws of CVaR differentiated. Both sides run the same network,
batch and number of attack steps, in turns, and the best of the rounds is compared. A ratio above 1 means that this
loop is the faster one. Exit code 1 when a method's ratio is below `--floor`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from services.training.architectures.build import build
from services.training.epochs.loop import train
from services.training.methods import method_from

EPSILON, STEP, STEPS, DRAWS = 8 / 255, 2 / 255, 10, 20
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def pgd_attack(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    reference: Tensor | None = None,
    *,
    epsilon: float = EPSILON,
    step: float = STEP,
    steps: int = STEPS,
) -> Tensor:
    """The attack of public adversarial training code: by cross-entropy, or by divergence from `reference`."""
    net.eval()
    at = (
        x + 0.001 * torch.randn_like(x)
        if reference is not None
        else x + torch.empty_like(x).uniform_(-epsilon, epsilon)
    )
    at = at.clamp(0, 1).detach()
    for _ in range(steps):
        at.requires_grad_()
        with torch.enable_grad():
            z = net(at)
            if reference is None:
                loss = F.cross_entropy(z, y)
            else:
                loss = F.kl_div(F.log_softmax(z, dim=1), F.softmax(reference, dim=1), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, [at])
        at = at.detach() + step * torch.sign(gradient.detach())
        at = torch.min(torch.max(at, x - epsilon), x + epsilon)
        at = torch.clamp(at, 0.0, 1.0)
    net.train()
    return at.detach()


def divergence(robust: Tensor, clean: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(robust, dim=1), F.softmax(clean, dim=1), reduction="none").sum(1)


def erm(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(x), y)


def pgd(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(pgd_attack(net, x, y)), y)


def trades(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    net.eval()
    reference = net(x).detach()
    at = pgd_attack(net, x, y, reference)
    clean = net(x)
    return F.cross_entropy(clean, y) + 6.0 * divergence(net(at), clean).mean()


def kl_pgd(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    net.eval()
    return F.cross_entropy(net(pgd_attack(net, x, y, net(x).detach())), y)


def mart(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    at = pgd_attack(net, x, y)
    clean, robust = net(x), net(at)
    p, q = F.softmax(robust, dim=1), F.softmax(clean, dim=1)
    top = torch.argsort(p, dim=1)[:, -2:]
    other = torch.where(top[:, -1] == y, top[:, -2], top[:, -1])
    bce = F.cross_entropy(robust, y) + F.nll_loss(torch.log(1.0001 - p + 1e-12), other)
    own = torch.gather(q, 1, y.unsqueeze(1)).squeeze()
    return bce + 5.0 * (F.kl_div(torch.log(p + 1e-12), q, reduction="none").sum(1) * (1.0000001 - own)).mean()


def alp(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    at = pgd_attack(net, x, y)
    clean, robust = net(x), net(at)
    distance = (F.softmax(clean, dim=1) - F.softmax(robust, dim=1)).pow(2).sum(1)
    return F.cross_entropy(robust, y) + distance.mean()


def clp(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    at = pgd_attack(net, x, y)
    clean, robust = net(x), net(at)
    distance = (F.softmax(clean, dim=1) - F.softmax(robust, dim=1)).pow(2).sum(1)
    return F.cross_entropy(clean, y) + distance.mean()


def at_pr(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Five candidates; the way back is walked by all that are wrong until nine in ten samples are right."""
    rng = np.random.default_rng(0)
    best, longest = x, torch.zeros(len(y), device=x.device)
    for candidate in range(5):
        moved = rng.random(3) * (candidate > 0)
        step = STEP + 0.003 * (2 * moved[1] - 1) * (candidate > 0)
        steps = STEPS + (int(8 * moved[2]) - 2) * (candidate > 0)
        at = pgd_attack(net, x, y, epsilon=EPSILON - 0.02 * moved[0], step=step, steps=steps)
        way = (walked_back(net, at, y) - at).abs().flatten(1).amax(1)
        deeper = way > longest if candidate else torch.ones_like(y, dtype=torch.bool)
        best, longest = torch.where(deeper.view(-1, 1, 1, 1), at, best), torch.where(deeper, way, longest)
    return F.cross_entropy(net(best), y)


def walked_back(net: nn.Module, images: Tensor, y: Tensor) -> Tensor:
    at = images.clone()
    for _ in range(70):
        at = at.detach().requires_grad_()
        logits = net(at)
        wrong = logits.argmax(1) != y
        if wrong.sum() <= 0.1 * len(y):
            break
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, y), [at])
        at = torch.where(wrong.view(-1, 1, 1, 1), (at - STEP * gradient.sign()).clamp(0, 1), at)
    return at.detach()


def corruption(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net((x + torch.empty_like(x).uniform_(-EPSILON, EPSILON)).clamp(0, 1)), y)


def draw_losses(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    rows = []
    for _ in range(DRAWS):
        noisy = (x + torch.empty_like(x).uniform_(-EPSILON, EPSILON)).clamp(0, 1)
        rows.append(F.cross_entropy(net(noisy), y, reduction="none"))
    return torch.stack(rows)


def cvar(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Five steps on the threshold, with the draws' graph kept for the last (the public code redraws for each)."""
    losses = draw_losses(net, x, y)
    a = torch.zeros(len(y), device=x.device)
    for _ in range(5):
        a = a - 1.0 * (1 - (losses.detach() > a).float().mean(0) / 0.1)
    return (a + F.relu(losses - a).mean(0) / 0.1).mean()


def evar(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    losses = draw_losses(net, x, y)
    t = torch.ones(len(y), device=x.device, requires_grad=True)
    for _ in range(10):
        bound = (torch.logsumexp(t * losses.detach(), 0) - np.log(DRAWS * 0.1)) / t
        t = (t - 0.1 * torch.autograd.grad(bound.sum(), t)[0]).clamp(min=1e-2).detach().requires_grad_()
    return ((torch.logsumexp(t.detach() * losses, 0) - np.log(DRAWS * 0.1)) / t.detach()).mean()


PLAIN: dict[str, Loss] = {
    "erm": erm,
    "pgd": pgd,
    "trades": trades,
    "kl-pgd": kl_pgd,
    "mart": mart,
    "alp": alp,
    "clp": clp,
    "at-pr": at_pr,
    "corruption": corruption,
    "cvar": cvar,
    "evar": evar,
}


class Autocast(nn.Module):
    """A network in bfloat16 where autocast says so, its logits as float32: how public code mixes precisions."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            logits: Tensor = self.network(x)
        return logits.float()


def plain_loop(net: nn.Module, x: Tensor, y: Tensor, loss: Loss, batch: int, device: str) -> float:
    """Seconds of one epoch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=3.5e-3)
    loader = DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True)
    net.train()
    began = clock(device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        value = loss(net, images, labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    value.item()
    return clock(device) - began


def clock(device: str) -> float:
    """Processor time on the CPU, so that a neighbour's load does not count; wall time behind the queue on a GPU."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def our_loop(net: nn.Module, x: np.ndarray, y: np.ndarray, name: str, batch: int, knobs: dict[str, Any]) -> float:
    """Seconds of one epoch, with all that the loop does around it."""
    began = clock(knobs["device"])
    train(net, x, y, method=method_from(name), epochs=1, batch=batch, schedule="constant", **knobs)
    return clock(knobs["device"]) - began


def compare(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both loops on fresh networks, in turns; the best round of each."""
    rng = np.random.default_rng(0)
    count = arguments.steps * arguments.batch
    x, y = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), np.arange(count) % 10
    floats, labels = torch.from_numpy(x.astype(np.float32) / 255), torch.from_numpy(y)
    knobs = {"device": arguments.device, "precision": arguments.precision, "channels_last": arguments.channels_last}
    plain, ours = [], []
    for round_number in range(arguments.rounds + 1):
        options = {"width": arguments.width, "channels": 3, **({"size": 32} if arguments.arch == "cnn4" else {})}
        nets = [build(arguments.arch, seed=0, **options).to(arguments.device) for _ in range(2)]
        net = nets[0] if arguments.precision == "float32" else Autocast(nets[0])
        seconds = plain_loop(net, floats, labels, PLAIN[name], arguments.batch, arguments.device)
        mine = our_loop(nets[1], x, y, name, arguments.batch, knobs)
        if round_number:
            plain.append(seconds)
            ours.append(mine)
    best = min(plain), min(ours)
    return {
        "method": name,
        "plain_images_per_s": round(count / best[0], 1),
        "images_per_s": round(count / best[1], 1),
        "ratio": round(best[0] / best[1], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="batches an epoch")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds; one more warms up")
    parser.add_argument("--arch", default="cnn4")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--floor", type=float, default=0.0, help="fail below this ratio")
    parser.add_argument("--methods", nargs="*", default=list(PLAIN), choices=list(PLAIN))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for name in arguments.methods:
        rows.append(compare(name, arguments))
        print(json.dumps(rows[-1]), flush=True)
    return int(any(row["ratio"] < arguments.floor for row in rows))


if __name__ == "__main__":
    sys.exit(main())
