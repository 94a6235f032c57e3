"""Mappers by URI: third-party pairs, both schemes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from services.errors import ClasswiseError
from services.loading.mappers import mapper_fingerprint, open_mapper
from services.training.epochs.checkpoints import save_weights
from services.training.mappers import vae

BANDS = "factory:oracles.bands:Bands?factors=2"
ALLOWED = ("services.*", "oracles.*")


class Pair(nn.Module):
    """Somebody else's pair: the four corners of a 2x2 image are its latents."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.0))

    @torch.jit.export
    def encode(self, images: Tensor) -> Tensor:
        return images.flatten(1) * self.scale

    @torch.jit.export
    def decode(self, latents: Tensor) -> Tensor:
        return latents.view(-1, 1, 2, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.decode(self.encode(images))


def opened(uri: str) -> object:
    return open_mapper(uri, device="cpu", allowed_factories=ALLOWED)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_pair_is_a_mapper_without_axes(tmp_path: Path) -> None:
    path = tmp_path / "pair.ts"
    torch.jit.save(torch.jit.script(Pair()), str(path))
    mapper = open_mapper(f"torchscript:{path}", device="cpu", allowed_factories=())
    images = torch.rand(5, 1, 2, 2)
    torch.testing.assert_close(mapper.decode(mapper.encode(images)), images)
    assert mapper.learned() is None
    result = mapper.reconstruction(images)
    assert (result.mse, result.psnr, result.explained) == (0.0, None, 1.0)


def test_a_factory_mapper_has_its_weights_and_learned_axes(tmp_path: Path) -> None:
    network = vae(3, 1, 8, 4)
    network.unit.fill_(2.0)
    save_weights(str(tmp_path / "a.safetensors"), network.state_dict())
    uri = f"factory:services.training.mappers:vae?latents=3&size=8&width=4&weights={tmp_path}/a.safetensors"
    mapper, images = open_mapper(uri, device="cpu", allowed_factories=ALLOWED), torch.rand(9, 1, 8, 8)
    torch.testing.assert_close(mapper.encode(images), network.encode(images))
    assert mapper.learned()[1].tolist() == [2.0, 2.0, 2.0]  # type: ignore[index]
    assert mapper.encode(images).requires_grad is False


def test_the_fingerprint_follows_the_weights(tmp_path: Path) -> None:
    uri = f"factory:services.training.mappers:vae?latents=3&size=8&width=4&weights={tmp_path}/a.safetensors"
    distinct = set()
    for fill in (1.0, 2.0):
        network = vae(3, 1, 8, 4)
        nn.init.constant_(network.posterior.bias, fill)
        save_weights(str(tmp_path / "a.safetensors"), network.state_dict())
        distinct.add(mapper_fingerprint(uri))
        assert float(opened(uri).module.posterior.bias[0]) == fill  # type: ignore[attr-defined]
    assert len(distinct) == 2


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("onnx:a.onnx", "expected a mapper by factory: or torchscript:, found onnx:"),
        ("factory:services.training.architectures:small_cnn", "found a Sequential without encode and decode"),
        ("factory:json:loads", "expected a module that matches services"),
        ("torchscript:absent.ts", "expected a file at absent.ts"),
        ("bands", "a source written scheme:rest"),
    ],
)
def test_what_is_no_mapper_is_refused(uri: str, message: str) -> None:
    with pytest.raises(ClasswiseError, match=message):
        opened(uri)


def test_a_mapper_of_other_images_and_latents_that_are_no_numbers_are_refused() -> None:
    mapper = open_mapper(BANDS, device="cpu", allowed_factories=ALLOWED)
    with pytest.raises(ClasswiseError, match=r"images \(1, 4, 7\) from decode, as the samples'"):
        mapper.reconstruction(torch.rand(3, 1, 4, 7))
    with pytest.raises(ClasswiseError, match="finite latents"):
        mapper.encode(torch.full((2, 1, 4, 4), torch.nan))
