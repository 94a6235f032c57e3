"""Projection perturbation against the loop that Algorithm 1 is printed as: the same positions, 20 times faster.

Usage: python -m benchmarks.projection [--samples 12] [--rounds 3] [--device cpu]

A decoder of 10 latents and a small convolutional network, M = 20. The loop decodes and classifies one image at a time;
the batched search works on 500 samples, of which the first ones are the loop's. On one thread of a CPU (by processor
time) the limit is for 8x8 images, where a pass is mostly overhead; at 28x28 arithmetic takes over and the ratio is
printed without one. On a GPU (by wall time) the limit is for both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from services.measures.latent.boundaries import Axes, cached_chunk, project
from services.training.architectures import small_cnn

LATENTS, STEPS, LEAST, MANY = 10, 20, 20.0, 500


def networks(edge: int) -> tuple[nn.Module, nn.Module]:
    """A classifier and a decoder with weights large enough that labels flip on the way."""
    torch.manual_seed(0)
    hidden, pixels = nn.Linear(LATENTS, 128), nn.Linear(128, edge * edge)
    with torch.no_grad():
        hidden.weight.mul_(8.0)
        pixels.weight.mul_(8.0)
    network = small_cnn(size=edge, width=8).eval()
    with torch.no_grad():
        network[-1].bias.zero_()
    return network, nn.Sequential(hidden, nn.ReLU(), pixels, nn.Sigmoid(), nn.Unflatten(1, (1, edge, edge)))


@torch.no_grad()
def loop(network: nn.Module, decode: nn.Module, latents: torch.Tensor, axes: Axes) -> np.ndarray:
    """One sample, dimension, direction and step at a time."""
    moves = np.ones((len(latents), len(axes.dimensions), 2))
    centre, unit = axes.centre.tolist(), axes.unit.tolist()
    for s, latent in enumerate(latents):
        for d, column in enumerate(axes.dimensions.tolist()):
            for direction, sign in enumerate((-1, 1)):
                moved = latent.clone()[None]
                moved[0, column] = centre[d]
                own = int(network(decode(moved)).argmax())
                for m in range(1, STEPS + 1):
                    moved[0, column] = centre[d] + sign * unit[d] * m / STEPS
                    if int(network(decode(moved)).argmax()) != own:
                        moves[s, d, direction] = m / STEPS
                        break
    return moves


def compare(edge: int, samples: int, rounds: int, device: str) -> bool:
    """Print one line; whether results agree and the limit is kept."""
    network, decode = (part.to(device) for part in networks(edge))
    latents = torch.randn(MANY, LATENTS, device=device)
    axes = Axes(torch.arange(LATENTS), torch.zeros(LATENTS), torch.full((LATENTS,), 3.0))
    chunk, clock = (8192, time.perf_counter) if device == "cuda" else (cached_chunk(edge * edge), time.process_time)
    project(network, decode, latents[:8], axes, chunk=chunk)
    ratios, same = [], True
    for _ in range(rounds):
        slow, expected = timed(clock, lambda: loop(network, decode, latents[:samples], axes))
        fast, moves = timed(clock, lambda: project(network, decode, latents, axes, steps=STEPS, chunk=chunk).moves)
        same &= bool(np.array_equal(moves[:samples], expected))
        ratios.append(slow / samples / (fast / MANY))
    ratio, limited = float(np.median(ratios)), edge == 8 or device == "cuda"
    print(
        f"{edge}x{edge}, {device}: loop {slow / samples * 1e3:.1f} ms a sample, batched {fast / MANY * 1e3:.2f} ms, "
        f"x{ratio:.1f} (rounds {', '.join(f'{r:.1f}' for r in ratios)}; limit {LEAST if limited else 'none'}), "
        f"{(moves < 1).mean():.0%} flipped, {'the same' if same else 'DIFFERENT'} positions",
        flush=True,
    )
    return same and (ratio >= LEAST or not limited)


def timed(clock: Callable[[], float], work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """How long it took, and what came out."""
    began = clock()
    result = work()
    return clock() - began, result


def main() -> int:
    """1 when results differ or a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = [compare(edge, options.samples, options.rounds, options.device) for edge in (8, 28)]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
