"""Reports of odd input: large grey images, markup for names, a class that nothing breaks, an attack in vain."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.storage.pictures import LARGEST
from tracking.bundle.reasons.gallery import read_gallery
from tracking.bundle.reasons.hardest import read_hardest
from tracking.report.report import write_report

NAMES = ("<img src=x onerror=alert(1)>", "dark & 'grey' </script>")
SIDE = 4096
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


class Brightness(torch.nn.Module):
    """Class 0 where the mean is above a threshold, by a steep line: margins far from it are large."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        over = 20 * (images.mean(dim=(1, 2, 3)) - 0.5)
        return torch.stack([over, -over], dim=1)


def fleet(folder: Path, levels: list[float], epsilon: float, side: int) -> dict[str, Any]:
    """Grey images of these mean levels; those above a half are of the first class."""
    draw = np.random.default_rng(0)
    noise = draw.integers(-9, 10, (len(levels), side, side))
    pixels = np.clip(np.array(levels)[:, None, None] * 255 + noise, 0, 255).astype(np.uint8)
    labels = np.array([int(level < 0.5) for level in levels])
    np.savez(folder / "s.npz", images=pixels[..., None], labels=labels, classes=np.array(NAMES))
    torch.jit.script(Brightness()).save(str(folder / "m.pt"))
    return {
        "fleet": "odd",
        "samples": {"uri": f"npz:{folder / 's.npz'}"},
        "models": [{"name": NAMES[1], "uri": f"torchscript:{folder / 'm.pt'}"}],
        "measures": ["clean", {"name": "pgd", "steps": 2, "epsilons": [epsilon]}],
        "gates": [{"measure": "clean", "metric": "wcr", "at_least": 0.5}],
        "slices": True,
        "storage": str(folder / "runs"),
        "tracking": {"enabled": False},
        "resources": {"runner": "local", "workers": 1, "batch": 4},
    }


def faultless(browser: Any, report: str) -> str:
    """The text of the page, which ran nothing that a name holds and has no fault in its console."""
    browser.get_log("browser")
    browser.get(Path(report).as_uri())
    assert browser.execute_script("return document.querySelectorAll('img[src=x]').length") == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    return str(browser.execute_script("return document.body.innerText"))


@pytest.mark.slow
def test_large_grey_images_of_classes_with_markup_for_names(browser: Any, tmp_path: Path) -> None:
    done = run_audit(validate_fleet(fleet(tmp_path, [0.51, 0.9, 0.49, 0.1], 0.05, SIDE)), Quiet())
    shown = read_gallery(done.folder, 0, done.result.models[0].spec)
    assert sorted(shown["id"].tolist()) == [0, 2]
    picture = Image.open(io.BytesIO(shown["original"][0]))
    assert max(picture.size) == LARGEST and picture.mode == "L"
    assert set(read_hardest(done.folder)["id"].tolist()) == {0, 2}
    report = write_report(done.result, done.folder)
    assert Path(report).stat().st_size < 8_000_000
    text = faultless(browser, report)
    assert NAMES[0] in text and "Samples before and after an attack" in text


def test_a_class_that_nothing_breaks_is_left_out_of_the_gallery_and_said(browser: Any, tmp_path: Path) -> None:
    data = {**fleet(tmp_path, [0.51, 0.52, 0.1, 0.2] * 3, 0.05, 16), "gates": []}
    done = run_audit(validate_fleet(data), Quiet())
    shown = read_gallery(done.folder, 0, done.result.models[0].spec)
    assert set(shown["label"].tolist()) == {0}
    text = faultless(browser, write_report(done.result, done.folder))
    assert "Samples before and after an attack" in text and "was inadequate" in text
    assert "This attack was inadequate on the model" in text
    kept = "return [...document.querySelectorAll('#gallery-filters select[name=label] option')].map(o => o.textContent)"
    assert browser.execute_script(kept) == ["all", NAMES[0]]


@pytest.mark.parametrize("side", [16])
def test_an_attack_that_breaks_nothing(browser: Any, tmp_path: Path, side: int) -> None:
    done = run_audit(validate_fleet(fleet(tmp_path, [0.9, 0.95, 0.1, 0.2] * 3, 0.01, side)), Quiet())
    assert read_gallery(done.folder, 0, done.result.models[0].spec) == {} and read_hardest(done.folder) == {}
    text = faultless(browser, write_report(done.result, done.folder))
    assert "no sample went to another class" in text and "No sample is shown: no attack broke one" in text
