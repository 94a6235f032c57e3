"""Networks that fail as a user's may, for tests of workers; models name them as factories."""

from __future__ import annotations

import torch
from torch import nn

from services.training.architectures import small_cnn

PASSED: list[int] = []
"""Batches that `limited` networks of this process have answered."""


class Limited(nn.Module):
    """Runs out of memory beyond `most` images."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.network, self.most = small_cnn(width=8), most

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if len(images) > self.most:
            torch.empty(1 << 50)  # the allocator's own error
        PASSED.append(len(images))
        result: torch.Tensor = self.network(images)
        return result


class Broken(nn.Module):
    """Has an error of its own."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such layer")


class Ended(nn.Module):
    """Is under way when its process gets a SIGTERM: raises what Ray's handler does, an exit with its message."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        gone = SystemExit(1)
        vars(gone)["ray_terminate_msg"] = "The process receives a SIGTERM."
        raise gone


def limited(most: int) -> nn.Module:
    return Limited(most)


def broken() -> nn.Module:
    return Broken()


def ended() -> nn.Module:
    return Ended()
