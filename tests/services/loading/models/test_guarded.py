"""Calls that read or write memory beside their tensors are refused; all others give what the operator gives."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from services.loading.models.guarded import UnsafeCall, guarded
from services.loading.models.source import load_model
from services.records import ModelSpec

IMAGES, ONE, FOUR = torch.rand(2, 4, 8, 8), torch.ones(1), torch.ones(4)
HEADS = torch.rand(1, 2, 4, 8)


def aten(name: str, overload: str = "default") -> Any:
    return getattr(getattr(torch.ops.aten, name), overload)


NO_STATS = aten("_native_batch_norm_legit", "no_stats")
NO_TRAINING = aten("_native_batch_norm_legit_no_training")
FUNCTIONAL = aten("_native_batch_norm_legit_functional")
FLASH = aten("_scaled_dot_product_flash_attention_for_cpu")
ATTENTION = aten("scaled_dot_product_attention")
LSTM, STEPS, STATE = aten("lstm", "input"), torch.rand(2, 5, 3), torch.zeros(1, 2, 4)
CELL = [torch.rand(16, 3), torch.rand(16, 4), torch.rand(16), torch.rand(16)]

UNSAFE: dict[str, tuple[Any, ...]] = {
    "a mean of fewer channels": (NO_TRAINING, IMAGES, None, None, ONE, FOUR, 0.1, 1e-5),
    "a variance of fewer channels": (NO_TRAINING, IMAGES, None, None, FOUR, ONE, 0.1, 1e-5),
    "a weight of fewer channels": (NO_TRAINING, IMAGES, ONE, None, FOUR, FOUR, 0.1, 1e-5),
    "a mean that is written": (FUNCTIONAL, IMAGES, None, None, torch.ones(0), torch.ones(0), True, 0.1, 1e-5),
    "no mean": (NO_STATS, IMAGES, None, None, False, 0.1, 1e-5),
    "no channels": (NO_TRAINING, FOUR, None, None, FOUR, FOUR, 0.1, 1e-5),
    "the old one": (aten("native_batch_norm"), IMAGES, None, ONE, FOUR, FOUR, False, 0.1, 1e-5),
    "values that end before the keys": (ATTENTION, HEADS, HEADS.repeat(1, 1, 900, 1), HEADS),
    "keys that end before the values": (ATTENTION, HEADS, HEADS[:, :, :1], HEADS.repeat(1, 1, 900, 1)),
    "no keys": (ATTENTION, HEADS, HEADS[:, :, :0], HEADS[:, :, :0]),
    "no queries, by the kernel itself": (FLASH, HEADS[:, :, :0], HEADS, HEADS),
    "no heads, by the kernel itself": (FLASH, HEADS[:, :0], HEADS[:, :0], HEADS[:, :0]),
    "no heads": (ATTENTION, HEADS[:, :0], HEADS[:, :0], HEADS[:, :0]),
    "keys of another width": (ATTENTION, HEADS, HEADS[..., :1], HEADS),
    "fewer keys than values": (FLASH, HEADS, HEADS[:, :, :1], HEADS),
    "fewer heads": (FLASH, HEADS, HEADS[:, :1], HEADS[:, :1]),
    "fewer samples": (FLASH, HEADS.repeat(8, 1, 1, 1), HEADS, HEADS),
    "no weights of a cell": (LSTM, STEPS, [STATE, STATE], [], False, 1, 0.0, False, False, True),
    "fewer weights than cells": (LSTM, STEPS, [STATE, STATE], CELL, True, 2, 0.0, False, False, True),
    "a factor that is not of the sizes": (aten("_upsample_bilinear2d_aa"), IMAGES, [16, 16], False, 1e-19, 1e-19),
    "a factor of nothing to one pixel": (aten("_upsample_nearest_exact2d"), IMAGES, [1, 1], 1e-20, 1e-20),
    "one of two factors": (aten("_upsample_bicubic2d_aa"), IMAGES, [16, 16], False, 2.0, 1e-3),
    "a dtype that is a number": (aten("_to_copy"), IMAGES, {"dtype": -1_000_000}),
    "a dtype where there are no tensors": (aten("arange", "start"), 8, 1.0, {"dtype": -1_000_000}),
    "a layout that is a number": (aten("zeros_like"), IMAGES, {"layout": 1_000}),
    "an order that is a number": (aten("contiguous"), IMAGES, {"memory_format": 4}),
    "another way to interpolate": (aten("grid_sampler_2d"), IMAGES, torch.rand(2, 3, 3, 2), 7, 0, False),
    "another way to pad": (aten("grid_sampler_2d"), IMAGES, torch.rand(2, 3, 3, 2), 0, 9, False),
}


def called(operator: Any, call: tuple[Any, ...]) -> Any:
    named = call[-1] if isinstance(call[-1], dict) else {}
    return operator(*call[1 : len(call) - bool(named)], **named)


@pytest.mark.parametrize("what", UNSAFE)
def test_a_call_that_leaves_its_tensors_is_refused(what: str) -> None:
    with pytest.raises(UnsafeCall) as refused:
        called(guarded(UNSAFE[what][0], "net"), UNSAFE[what])
    (problem,) = refused.value.problems
    assert problem.where == f"net ({UNSAFE[what][0]})" and "export it again" in problem.remedy
    assert problem.expected and problem.found and problem.expected != problem.found


def test_the_error_says_what_was_expected_and_what_was_found() -> None:
    with pytest.raises(UnsafeCall) as refused:
        guarded(FLASH, "net")(HEADS, HEADS[:, :1], HEADS[:, :1])
    expected = (
        "net (aten._scaled_dot_product_flash_attention_for_cpu.default): expected query of the same batch, heads "
    )
    assert str(refused.value).startswith(
        expected + "and width as key (1, 1, 4, 8), found (1, 2, 4, 8); export it again"
    )
    with pytest.raises(UnsafeCall, match=r"expected dtype as a torch.dtype, found -5; export it again"):
        guarded(aten("_to_copy"), "net")(IMAGES, dtype=-5)
    with pytest.raises(UnsafeCall, match=r"expected interpolation_mode as a number from 0 to 2, found 7"):
        guarded(aten("grid_sampler_2d"), "net")(IMAGES, torch.rand(2, 3, 3, 2), 7, 0, False)


SAFE: tuple[tuple[Any, ...], ...] = (
    (NO_TRAINING, IMAGES, FOUR, None, FOUR, FOUR, 0.1, 1e-5),
    (NO_STATS, IMAGES, None, None, True, 0.1, 1e-5),
    (FUNCTIONAL, IMAGES, FOUR, FOUR, FOUR, FOUR, True, 0.1, 1e-5),
    (LSTM, STEPS, [STATE, STATE], CELL, True, 1, 0.0, False, False, True),
    (FLASH, HEADS, HEADS, HEADS, {"attn_mask": torch.zeros(4, 4)}),
    (ATTENTION, HEADS, HEADS[:, :, :3], HEADS[:, :, :3, :5], torch.zeros(1, 1, 1, 3)),
    (ATTENTION, HEADS[0], HEADS[0, :1, :3], HEADS[0, :, :3], torch.zeros(4, 3)),
    (ATTENTION, HEADS, HEADS[:, :1], HEADS[:, :1], {"enable_gqa": True}),
    (FLASH, HEADS, HEADS[:, :, :3], HEADS[:, :, :3], 0.0, True),
    (aten("_upsample_bilinear2d_aa"), IMAGES, [12, 4], False, 1.5, 0.5),
    (aten("upsample_nearest2d", "vec"), IMAGES, None, [2.0, 2.0]),
    (aten("upsample_bicubic2d"), IMAGES, [5, 5], True),
    (aten("contiguous"), IMAGES.transpose(2, 3)),
    (aten("_to_copy"), IMAGES, {"dtype": torch.float64, "memory_format": torch.channels_last}),
    (aten("grid_sampler_2d"), IMAGES, torch.rand(2, 3, 3, 2), 2, 2, True),
)


@pytest.mark.parametrize("call", SAFE, ids=lambda call: str(call[0]))
def test_other_calls_give_what_the_operator_gives(call: tuple[Any, ...]) -> None:
    first, second = called(guarded(call[0], "net"), call), called(call[0], call)
    pairs = zip(first, second, strict=True) if isinstance(first, tuple) else [(first, second)]
    assert all(torch.equal(one, other) for one, other in pairs if isinstance(one, Tensor))


class Reads(nn.Module):
    """Gives back what lies behind a buffer of one number, in the graph itself or in one that it calls."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside = inside
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("var", torch.ones(64))

    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad() if self.inside else nullcontext():
            channels = images.reshape(2, 64, 1) * 0
            shown: Tensor = NO_TRAINING(channels, None, None, self.mean, self.var, 0.1, 0.0)[0]
        return shown.reshape(2, 64)[:, :10]


@pytest.mark.parametrize("inside", [False, True])
def test_a_graph_shows_nothing_of_the_memory_beside_its_tensors(inside: bool, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Reads(inside), (torch.rand(2, 1, 8, 8),)), tmp_path / "m.pt2")
    loaded = load_model(ModelSpec("m", f"export:{tmp_path}/m.pt2"))
    assert loaded.network is not None
    with pytest.raises(
        UnsafeCall, match=r"m \(aten\._native_batch_norm_legit_no_training\.default\): expected running_mean"
    ):
        loaded.network(torch.rand(2, 1, 8, 8))
    assert torch.is_grad_enabled(), "or no attack on the next model had a gradient"
