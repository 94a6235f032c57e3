"""Vision transformers from timm: ViT-S/B/L and DeiT-T/S, without pretrained weights.

`width` scales the number of heads and with it the embedding (64 numbers a head), `depth` cuts blocks. Small images take
a small patch: `size=32, patch=4`.
"""

from __future__ import annotations

from typing import Any

from torch import nn

HEADS = {"vit_small": 6, "vit_base": 12, "vit_large": 16, "deit_tiny": 3, "deit_small": 6}
HEAD = 64


def vit_s(classes: int = 10, width: float = 1.0, size: int = 224, patch: int = 16, depth: int = 12) -> nn.Module:
    """ViT-S: 384 numbers a token, 6 heads, 12 blocks."""
    return _timm("vit_small", classes, width, size, patch, depth)


def vit_b(classes: int = 10, width: float = 1.0, size: int = 224, patch: int = 16, depth: int = 12) -> nn.Module:
    """ViT-B: 768 numbers a token, 12 heads, 12 blocks."""
    return _timm("vit_base", classes, width, size, patch, depth)


def vit_l(classes: int = 10, width: float = 1.0, size: int = 224, patch: int = 16, depth: int = 24) -> nn.Module:
    """ViT-L: 1024 numbers a token, 16 heads, 24 blocks."""
    return _timm("vit_large", classes, width, size, patch, depth)


def deit_t(classes: int = 10, width: float = 1.0, size: int = 224, patch: int = 16, depth: int = 12) -> nn.Module:
    """DeiT-T: 192 numbers a token, 3 heads, 12 blocks."""
    return _timm("deit_tiny", classes, width, size, patch, depth)


def deit_s(classes: int = 10, width: float = 1.0, size: int = 224, patch: int = 16, depth: int = 12) -> nn.Module:
    """DeiT-S: 384 numbers a token, 6 heads, 12 blocks."""
    return _timm("deit_small", classes, width, size, patch, depth)


def _timm(name: str, classes: int, width: float, size: int, patch: int, depth: int) -> nn.Module:
    import timm

    heads = max(1, round(width * HEADS[name]))
    options: dict[str, Any] = {"num_classes": classes, "img_size": size, "patch_size": patch, "depth": depth}
    network: nn.Module = timm.create_model(
        f"{name}_patch16_224", pretrained=False, embed_dim=HEAD * heads, num_heads=heads, **options
    )
    return network
