"""Weak groups that nobody named, through a whole audit: a planted one is named with its pictures, and noise is not."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from jobs.audit.audit import Finished, run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.loading.samples.source import open_samples
from services.measures.latent.embedding import embeddings
from services.records import SampleSpec
from tracking.bundle.reasons.hardest import read_hardest
from tracking.bundle.reasons.slices import read_slices, slice_words
from tracking.report.report import write_report


def audit(fleet: dict[str, Any], folder: Path, **changes: Any) -> tuple[Finished, np.ndarray]:
    """Digits of which a seventh lies under a bright veil, whatever its class."""
    source = open_samples(SampleSpec("sklearn:digits?split=test"))
    images = source.images(0, len(source))
    veiled = np.random.default_rng(0).random(len(images)) < 0.15
    images[veiled] = 0.75 + 0.25 * images[veiled]
    pixels = np.rint(images * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    np.savez(folder / "s.npz", images=pixels, labels=source.labels)
    models = [model for model in fleet["models"] if model["name"] == "good"]
    data = {**fleet, "models": models, "samples": {"uri": f"npz:{folder / 's.npz'}"}, "measures": ["clean"]}
    return run_audit(validate_fleet({**data, "slices": True, **changes}), Quiet()), np.flatnonzero(veiled)


def test_a_planted_group_is_named_with_its_rate_and_its_pictures(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    done, veiled = audit(digits_fleet, tmp_path)
    (model,) = done.result.models
    brightest = next(each for each in model.slices if each.source == "brightness" and each.high is None)
    assert brightest.rate.high is not None and brightest.rate.high < brightest.expected
    assert slice_words(brightest).startswith("brightness at least")
    assert any(each.source == "embedding" and each.p < 1e-6 for each in model.slices)
    assert set(brightest.ids) <= set(veiled.tolist())
    kept = read_slices(done.folder, 0, model.spec)
    place = model.slices.index(brightest)
    first = kept["picture"][np.flatnonzero(kept["slice"] == place)[0]]
    assert np.asarray(Image.open(io.BytesIO(first))).min() >= 0.75 * 255 - 1
    page = Path(write_report(done.result, done.folder)).read_text()
    assert "Weak groups that nobody named" in page and slice_words(brightest) in page
    again, _ = audit(digits_fleet, tmp_path)
    assert again.result.models[0].slices == model.slices and again.result.models[0].forwards == 0


def test_nothing_is_looked_for_unless_asked_and_no_picture_is_kept_of_private_data(
    digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    done, _ = audit(digits_fleet, tmp_path, slices=False)
    assert done.result.models[0].slices == () and not list(tmp_path.rglob("embeddings"))
    assert "Weak groups that nobody named" not in Path(write_report(done.result, done.folder)).read_text()
    private, _ = audit(digits_fleet, tmp_path, gallery="none")
    assert private.result.models[0].slices and read_slices(private.folder, 0, private.result.models[0].spec) == {}


def test_a_table_of_logits_without_images_is_searched_by_its_logits(
    digits_fleet: dict[str, Any], tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    labels, weak = np.arange(400) % 4, draw.random(400) < 0.2
    logits = draw.normal(size=(400, 4)) + 4 * np.eye(4)[labels]
    logits[weak] = draw.normal(size=(weak.sum(), 4)) + 9
    np.savez(tmp_path / "s.npz", labels=labels)
    np.savez(tmp_path / "l.npz", logits=logits)
    models = [{"name": "m", "uri": f"logits:{tmp_path / 'l.npz'}"}]
    data = {**digits_fleet, "models": models, "samples": {"uri": f"npz:{tmp_path / 's.npz'}"}, "measures": ["clean"]}
    done = run_audit(validate_fleet({**data, "slices": True}), Quiet())
    assert any(each.source == "embedding" and each.rate.value < 0.5 for each in done.result.models[0].slices)
    assert not any(read_hardest(done.folder)["picture"])
    write_report(done.result, done.folder)


@pytest.mark.parametrize("count", [3, 20])
def test_the_embedding_is_what_goes_into_the_last_layer_or_the_logits(count: int) -> None:
    torch.manual_seed(0)
    images = torch.rand(count, 3, 6, 6)
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 7), torch.nn.ReLU())
    network = torch.nn.Sequential(body, torch.nn.Linear(7, 4))
    found = embeddings(network, network, images)
    np.testing.assert_allclose(found["embedding"], body(images).detach().numpy(), rtol=1e-5)
    blind = embeddings(network, None, images)
    np.testing.assert_allclose(blind["embedding"], network(images).detach().numpy(), rtol=1e-5)
    assert not network[1]._forward_hooks  # noqa: SLF001
    np.testing.assert_allclose(found["pixel:brightness"], images.mean(dim=(1, 2, 3)), rtol=1e-5)
    wide = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 400), torch.nn.Linear(400, 4))
    assert embeddings(wide, wide, images)["embedding"].shape == (count, 256)
