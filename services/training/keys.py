"""Every draw of training is a function of (seed, epoch, step, purpose), so that no generator state is ever saved."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """What a draw is for; draws of different purposes are independent."""

    SHUFFLE = 0
    AUGMENT = 1
    NOISE = 2
    LAYERS = 3
    VALIDATION = 4
    SPLIT = 5
    WEIGHTS = 6
    STEERING = 7
    EXTRA = 8


def generator(seed: int, purpose: Purpose, *parts: int) -> np.random.Generator:
    """A NumPy generator for one purpose."""
    return np.random.default_rng([seed, purpose, *parts])


def number(seed: int, purpose: Purpose, *parts: int) -> int:
    """A 63-bit number to seed a torch generator with."""
    return int(np.random.SeedSequence([seed, purpose, *parts]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_layers(device: torch.device, key: int) -> None:
    """Seed the global generator of the device, from which dropout draws.

    Not `torch.manual_seed`: its first call imports the compiler, which takes seconds in every fresh worker.
    """
    if device.type == "cuda":
        torch.cuda.manual_seed(key)
    else:
        torch.default_generator.manual_seed(key)
