"""Mappers by URI: an encoder and a decoder between images and latent factors, of this program or of third parties.

The schemes are those of models that can hold methods, `factory:` and `torchscript:`, with their allow-list, strict
loading and fingerprint. What they give must have two methods; two buffers are optional:

::

    encode(images (n, C, H, W) in [0, 1]) -> latents (n, L)
    decode(latents (n, L)) -> images (n, C, H, W) in [0, 1]
    centre, unit: (L,), the mean and the spread of the latents of the data it was trained on
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from services.errors import MeasureError, Problem, SourceError
from services.loading.models.source import SCHEMES, Request, fingerprint
from services.loading.uris import parse_uri
from services.records import ModelSpec

if TYPE_CHECKING:
    import torch

    Decode = Callable[[torch.Tensor], torch.Tensor]
    """Latents (n, L) to images (n, C, H, W) in [0, 1]."""

MAPPER_SCHEMES = ("factory", "torchscript")
NAME = "mapper"


@dataclass(frozen=True)
class Reconstruction:
    """How well images come back through a mapper.

    Attributes:
        mse: mean squared error a value, of images in [0, 1].
        psnr: ``-10 log10(mse)`` in dB; None for an exact mapper.
        explained: ``1 - mse / mse of the mean image``: 1 is perfect, 0 what the mean image alone would give; None when
            all images are the same.
        images: how many were looked at.
    """

    mse: float
    psnr: float | None
    explained: float | None
    images: int


@dataclass(frozen=True)
class LoadedMapper:
    """A mapper on its device; see the module for what its parts are."""

    uri: str
    module: Any

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        """Latents (n, L) of images.

        Raises:
            MeasureError: something else comes back, or latents that are not finite.
        """
        import torch

        with torch.no_grad():
            latents = self.module.encode(images)
        if not isinstance(latents, torch.Tensor) or latents.ndim != 2 or len(latents) != len(images):
            actual = f"shape {tuple(latents.shape)}" if isinstance(latents, torch.Tensor) else type(latents).__name__
            raise MeasureError(Problem(self.uri, f"latents ({len(images)}, L) from encode", actual))
        if not bool(latents.isfinite().all()):
            raise MeasureError(Problem(self.uri, "finite latents from encode", "NaN or infinity"))
        return latents

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Images of latents, as the mapper gives them."""
        images: torch.Tensor = self.module.decode(latents)
        return images

    def learned(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Centre and unit (L,) of the training data, where the mapper knows them."""
        import torch

        centre, unit = getattr(self.module, "centre", None), getattr(self.module, "unit", None)
        if isinstance(centre, torch.Tensor) and isinstance(unit, torch.Tensor):
            return centre, unit
        return None

    def reconstruction(self, images: torch.Tensor) -> Reconstruction:
        """How well these images come back."""

        latents = self.encode(images)
        import torch

        with torch.no_grad():
            back = decoded(self.decode, latents)
        if back.shape != images.shape:
            expected = f"images {tuple(images.shape[1:])} from decode, as the samples'"
            raise MeasureError(Problem(self.uri, expected, f"{tuple(back.shape[1:])}", "use a mapper of this data"))
        return reconstruction(images.cpu().numpy(), back.cpu().numpy())


def reconstruction(images: NDArray[np.floating[Any]], back: NDArray[np.floating[Any]]) -> Reconstruction:
    """Compare images (n, C, H, W) in [0, 1] with what came back."""
    original = images.astype(np.float64)
    mse = float(((back.astype(np.float64) - original) ** 2).mean())
    spread = float(((original - original.mean(axis=0)) ** 2).mean())
    psnr = -10.0 * float(np.log10(mse)) if mse > 0 else None
    return Reconstruction(mse, psnr, 1.0 - mse / spread if spread > 0 else None, len(images))


def mapper_fingerprint(uri: str) -> str:
    """Digest of everything that decides what a mapper does; reads files, builds nothing.

    Raises:
        SourceError: the scheme is not one for mappers, or a file it names is missing or is not what it should be.
    """
    _check_scheme(uri)
    return fingerprint(ModelSpec(NAME, uri))


def open_mapper(uri: str, *, device: str, allowed_factories: tuple[str, ...]) -> LoadedMapper:
    """Load a mapper, ready to run on `device`: evaluation mode, no gradients. The last two are kept.

    Raises:
        SourceError: it cannot be opened, is not allowed, does not match its weights, or has no `encode` or `decode`.
    """
    return _open(uri, device, allowed_factories, mapper_fingerprint(uri))


@lru_cache(maxsize=2)
def _open(uri: str, device: str, allowed_factories: tuple[str, ...], _digest: str) -> LoadedMapper:
    parsed = parse_uri(uri)
    opened = SCHEMES.get(parsed.scheme).load(Request(ModelSpec(NAME, uri), parsed, device, allowed_factories))
    module: Any = opened.network
    lacking = [name for name in ("encode", "decode") if not callable(getattr(module, name, None))]
    if lacking:
        remedy = "mark them @torch.jit.export when scripting" if parsed.scheme == "torchscript" else ""
        actual = f"a {type(module).__name__} without {' and '.join(lacking)}"
        raise SourceError(Problem(uri, "a mapper with methods encode and decode", actual, remedy))
    module = module.to(device).eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return LoadedMapper(uri, module)


def _check_scheme(uri: str) -> None:
    scheme = parse_uri(uri).scheme
    if scheme not in MAPPER_SCHEMES:
        expected = f"a mapper by {' or '.join(f'{name}:' for name in MAPPER_SCHEMES)}"
        raise SourceError(Problem(uri, expected, f"{scheme}:"))


SLACK = 1e-3
"""Decoded values this far outside [0, 1] are clipped as rounding; farther out is a fault of the mapper."""


def decoded(decode: Decode, latents: torch.Tensor) -> torch.Tensor:
    """Images of latents, checked and clipped to [0, 1].

    Raises:
        MeasureError: no (n, C, H, W), or values beyond [0, 1] or NaN.
    """
    import torch

    images = decode(latents)
    if not isinstance(images, torch.Tensor) or images.ndim != 4 or len(images) != len(latents):
        raise MeasureError(Problem("mapper", f"images ({len(latents)}, C, H, W) from decode", _kind(images)))
    low, high = (float(value) for value in images.aminmax())
    if not (low >= -SLACK and high <= 1.0 + SLACK):
        remedy = "end the decoder with a sigmoid, or rescale its output to [0, 1]"
        raise MeasureError(
            Problem("mapper", "decoded images in [0, 1]", f"values from {low:.4g} to {high:.4g}", remedy)
        )
    return images.clamp(0.0, 1.0)


def _kind(value: Any) -> str:
    import torch

    return f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
