"""Groups measured from images: thresholds, laziness, and what an image cannot have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.errors import SourceError
from services.loading.samples import attributes
from services.loading.samples.source import open_samples
from services.numerics.attributes.colour import brightness
from services.numerics.attributes.strokes import thickness
from services.records import SampleSpec

DIGITS = "sklearn:digits?split=test"


@pytest.fixture
def photographs(tmp_path: Path) -> str:
    """Twenty colour images of rising brightness, with a column of their own."""
    levels = np.linspace(20, 230, 20).astype(np.uint8)
    images = np.broadcast_to(levels[:, None, None, None], (20, 8, 8, 3)).copy()
    images[:10, :, :, 0] = 0
    path = tmp_path / "photographs.npz"
    np.savez(path, images=images, labels=np.arange(20) % 2, place=np.array(["north", "south"])[np.arange(20) // 10])
    return f"npz:{path}"


def test_an_attribute_cuts_the_selected_samples_at_their_median() -> None:
    samples = open_samples(SampleSpec(f"{DIGITS}&attributes=thickness", per_class=10, groups=("thickness",)))
    values = thickness(samples.images(0, len(samples))[:, 0])
    cut = float(np.median(values))
    groups = samples.groups["thickness"]
    np.testing.assert_array_equal(groups == f"from {cut:.4g}", values >= cut)
    assert 40 <= (groups == f"below {cut:.4g}").sum() <= 60
    assert samples.digest == open_samples(SampleSpec(DIGITS, per_class=10)).digest


def test_a_threshold_can_be_given_and_stands_beside_columns_of_the_source(photographs: str) -> None:
    spec = SampleSpec(f"{photographs}?attributes=brightness@0.5,colour", groups=("place", "brightness", "colour"))
    samples = open_samples(spec)
    bright = brightness(samples.images(0, 20)) >= 0.5
    np.testing.assert_array_equal(samples.groups["brightness"], np.where(bright, "from 0.5", "below 0.5"))
    np.testing.assert_array_equal(samples.groups["colour"] != samples.groups["colour"][0], np.arange(20) >= 10)
    assert list(samples.groups) == ["place", "brightness", "colour"] and len(samples.groups) == 3


def test_nothing_is_measured_until_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setitem(attributes.STROKES, "width", lambda images: calls.append(len(images)) or np.zeros(len(images)))
    samples = open_samples(SampleSpec(f"{DIGITS}&attributes=width", groups=("width",)))
    samples.images(0, 10)
    assert calls == []
    assert set(samples.groups["width"]) == set(samples.groups["width"]) == {"from 0"}
    assert sum(calls) == len(samples)


def test_an_image_without_the_attribute_is_in_a_group_of_its_own(tmp_path: Path) -> None:
    images = np.zeros((3, 8, 8), np.uint8)
    images[0, 1:7, 3] = images[1, 1:7, 2:6] = 255
    np.savez(tmp_path / "a.npz", images=images, labels=np.array([0, 1, 1]))
    samples = open_samples(SampleSpec(f"npz:{tmp_path}/a.npz?attributes=thickness@2", groups=("thickness",)))
    assert samples.groups["thickness"].tolist() == ["below 2", "from 2", "undefined"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("thicknes", "a measured attribute, found 'thicknes'; did you mean 'thickness'?"),
        ("slant@x", "a threshold such as slant@2.5, found 'slant@x'"),
        ("slant@nan", "a threshold such as slant@2.5"),
        ("slant,slant", "each attribute once, found slant twice"),
        ("colour", "images of 3 channels for colour, found 1"),
    ],
)
def test_attributes_that_cannot_be_measured_are_named(option: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        open_samples(SampleSpec(f"{DIGITS}&attributes={option}"))
    assert message in str(caught.value)


def test_strokes_of_photographs_and_a_name_that_is_taken_are_refused(photographs: str) -> None:
    with pytest.raises(SourceError, match="images of 1 channel for slant, found 3"):
        open_samples(SampleSpec(f"{photographs}?attributes=slant"))
    path = photographs.removeprefix("npz:")
    with np.load(path) as arrays:
        np.savez(path, **arrays, contrast=np.zeros(20))
    with pytest.raises(SourceError, match="names that the source has no column of, found 'contrast'"):
        open_samples(SampleSpec(f"{photographs}?attributes=contrast"))
    with pytest.raises(SourceError, match="a column of the source, found 'brightnes'; did you mean 'brightness'"):
        open_samples(SampleSpec(f"{photographs}?attributes=brightness", groups=("brightnes",)))


def test_real_photographs_are_cut_in_halves_that_differ(shared_data: Path) -> None:
    uri = f"npz:{shared_data}/cifar10/test.npz?attributes=brightness,contrast,colour"
    names = ("brightness", "contrast", "colour")
    samples = open_samples(SampleSpec(uri, per_class=20, groups=names))
    images = samples.images(0, len(samples))
    for name, plain in {"brightness": images.mean(axis=(1, 2, 3)), "contrast": images.std(axis=(1, 2, 3))}.items():
        above = np.char.startswith(samples.groups[name], "from")
        assert above.sum() == 100
        assert plain[above].mean() > 1.3 * plain[~above].mean()
    grey = (images.max(axis=1) - images.min(axis=1)).mean(axis=(1, 2))
    above = np.char.startswith(samples.groups["colour"], "from")
    assert grey[above].mean() > 2 * grey[~above].mean()
