"""Pictures of single samples before and after an attack: which are chosen, and that they are what they say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jobs.audit.audit import Finished, run_audit
from jobs.audit.why import gallery
from jobs.audit.why.gallery import chosen
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.loading.samples.source import open_samples
from services.measures.minimal import Minimal
from services.measures.pgd import Pgd
from services.records import SampleSpec
from services.storage.pictures import LARGEST, png_of
from tracking.bundle.reasons.gallery import gallery_file, read_gallery
from tracking.bundle.scores import beside, read_kept_scores

EPSILON = 0.1
PGD = f"pgd3/linf-{EPSILON:.5f}"


def audit(data: dict[str, Any], **changes: Any) -> Finished:
    measures = [{"name": "pgd", "steps": 3, "epsilons": [EPSILON]}]
    samples = {"uri": "sklearn:digits?split=test", "per_class": 6}
    return run_audit(
        validate_fleet({**data, "models": data["models"][:1], "samples": samples, "measures": measures, **changes}),
        Quiet(),
    )


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data))).astype(float) / 255


def test_a_picture_is_of_the_sample_that_it_names_and_of_the_adversarial_that_broke_it(
    digits_fleet: dict[str, Any],
) -> None:
    done = audit(digits_fleet)
    spec = done.result.models[0].spec
    shown, scores = read_gallery(done.folder, 0, spec), read_kept_scores(done.folder, 0, spec)
    samples = open_samples(SampleSpec("sklearn:digits?split=test", per_class=6))
    assert 5 < len(shown["id"]) <= 64
    place = {identity: row for row, identity in enumerate(samples.ids.tolist())}
    for at, identity in enumerate(shown["id"].tolist()):
        row = place[identity]
        assert shown["label"][at] == shown["before"][at] == samples.labels[row]
        assert shown["after"][at] == scores[beside(PGD, "attacked")][row] != samples.labels[row]
        original, adversarial = pixels(shown["original"][at]), pixels(shown["adversarial"][at])
        assert np.abs(original - samples.images(row, row + 1)[0, 0]).max() < 0.51 / 255
        assert 0 < np.abs(adversarial - original).max() <= EPSILON + 1.01 / 255
        assert shown["linf"][at] <= EPSILON and shown["margin_after"][at] <= 0 < shown["margin_before"][at]
        change = (pixels(shown["perturbation"][at]) - 0.5) / shown["gain"][at]
        assert np.abs(change - (adversarial - original)).max() < 1.01 / 255 + 0.51 / 255 / shown["gain"][at]
    assert (shown["rank"] <= shown["of"]).all()


def test_pictures_are_the_same_bytes_when_made_again_in_other_batches(digits_fleet: dict[str, Any]) -> None:
    done = audit(digits_fleet)
    first = Path(gallery_file(done.folder, 0, done.result.models[0].spec)).read_bytes()
    for kept in Path(digits_fleet["storage"]).glob("cache/scores/*/*/gallery-*.parquet"):
        kept.unlink()
    again = audit(digits_fleet, resources={**digits_fleet.get("resources", {}), "batch": 7, "shard": 11})
    assert again.folder != done.folder
    assert Path(gallery_file(again.folder, 0, again.result.models[0].spec)).read_bytes() == first


def test_a_gallery_in_the_cache_is_found_without_reading_the_attacks_table(
    digits_fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, reads = audit(digits_fleet), []
    monkeypatch.setattr(gallery, "read_table", lambda *arguments: reads.append(arguments))
    again = audit(digits_fleet)
    spec = again.result.models[0].spec
    one, other = (Path(gallery_file(done.folder, 0, spec)) for done in (first, again))
    assert one.read_bytes() == other.read_bytes()
    assert not reads and not again.result.models[0].forwards


def test_no_picture_leaves_the_storage_of_private_data(digits_fleet: dict[str, Any]) -> None:
    done = audit(digits_fleet, gallery="none")
    assert not list(Path(digits_fleet["storage"]).rglob("gallery*"))
    assert done.result.config["gallery"] == "none"


def table(distances: list[float], labels: list[int], **columns: Any) -> dict[str, np.ndarray]:
    n = len(labels)
    known = {"correct": np.ones(n), "censored": np.zeros(n), "queries": np.zeros(n), **columns}
    known = {name: np.asarray(values) for name, values in known.items()}
    return {"id": np.arange(n), "label": np.array(labels), "minimal/l2": np.array(distances), **known}


def test_the_weakest_class_comes_first_with_its_nearest_and_its_middle_samples() -> None:
    distances = [*np.linspace(0.5, 1.0, 11), *np.linspace(0.1, 0.2, 11)]
    rows, ranks = chosen(table(distances, [0] * 11 + [1] * 11), Minimal().series(), 8)
    assert rows.tolist() == [11, 12, 15, 16, 0, 1, 4, 5]
    assert ranks.tolist()[:4] == [[1, 11], [2, 11], [5, 11], [6, 11]]
    rows, _ = chosen(table(distances, [0] * 11 + [1] * 11), Minimal().series(), 3)
    assert rows.tolist() == [11, 16], "at least two of a class, so of one class"


def test_nothing_is_chosen_of_classes_that_nothing_breaks() -> None:
    columns = table([3.0] * 4 + [0.4, 0.0], [0] * 4 + [1, 1], censored=[1, 1, 1, 1, 0, 0], correct=[1, 1, 1, 1, 1, 0])
    rows, ranks = chosen(columns, Minimal().series(), 64)
    assert rows.tolist() == [4] and ranks.tolist() == [[1, 1]]


def test_of_balls_the_smallest_that_broke_a_sample_counts_and_then_the_queries() -> None:
    attack = Pgd(epsilons=(0.01, 0.02))
    near, far = (series.key for series in attack.series())
    columns = table([0] * 5, [0] * 5, **{near: [1, 0, 0, 1, 1], far: [1, 0, 0, 0, 0], "queries": [9, 5, 2, 8, 3]})
    assert chosen(columns, attack.series(), 64)[0].tolist() == [2, 1, 4, 3]


@pytest.mark.parametrize("shape", [(3, 4096, 2048), (1, 1, 1), (1, 300, 300)])
def test_large_images_are_reduced(shape: tuple[int, int, int]) -> None:
    picture = Image.open(io.BytesIO(png_of(np.full(shape, 0.5))))
    assert max(picture.size) == min(LARGEST, max(shape[1:]))
    assert picture.mode == ("L" if shape[0] == 1 else "RGB")
    assert np.asarray(picture).min() == np.asarray(picture).max() == 128
