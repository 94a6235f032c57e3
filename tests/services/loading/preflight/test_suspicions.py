"""Images on their side and wrong labels look like a weak network: they are noted, and never of sound samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from services.loading.models.source import load_model
from services.loading.preflight.look import preflight
from services.loading.preflight.probe import Facts, Probe
from services.loading.preflight.suspicions import Answers, note_suspicions
from services.loading.protocols import LoadedModel
from services.loading.samples.source import open_samples
from services.records import InputContract, ModelSpec, SampleSpec

Arrays = dict[str, Any]


def brightest_third(images: torch.Tensor) -> torch.Tensor:
    """The mean of each third of the rows: right of upright images only."""
    return torch.stack([part.mean((1, 2, 3)) for part in images.chunk(3, dim=2)], dim=1)


def upright(count: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images (n, 1, 9, 9) of a bright third, and which one it is; of a tenth it is the middle, faintly, and is not."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, count)
    images = draw.uniform(0, 0.3, (count, 1, 9, 9)).astype(np.float32)
    hard = draw.random(count) < 0.1
    for image, label, faint in zip(images, labels, hard, strict=True):
        start = 3 if faint else 3 * label
        image[0, start : start + 3] += 0.08 if faint else draw.uniform(0.2, 0.4)
    return images, labels


def probe_of(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Probe:
    return Probe(images, labels, np.arange(len(labels)), ("top", "middle", "bottom"))


def noted(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], wider: Callable[[], Probe] | None = None) -> str:
    probe, facts = probe_of(images, labels), Facts()
    loaded = LoadedModel(ModelSpec("m", "factory:a:b"), brightest_third, "d")
    logits = brightest_third(torch.from_numpy(images)).numpy()
    note_suspicions(loaded, probe, logits, facts, "cpu", 64, wider)
    return "\n".join(facts.get("notes", ()))


@pytest.mark.parametrize(("turn", "words"), [(2, "half a turn"), (1, "a quarter turn to the right")])
def test_some_images_that_are_turned_are_noted(turn: int, words: str) -> None:
    images, labels = upright(400)
    images[::2] = np.rot90(images[::2], turn, (2, 3))
    assert words in noted(images, labels) and "may lie on their side" in noted(images, labels)


def test_labels_that_the_network_surely_denies_are_noted() -> None:
    images, labels = upright(400)
    labels[::10] = (labels[::10] + 1) % 3
    assert "as sure as the median right one, on 400 samples: some labels may be wrong" in noted(images, labels)


def test_all_images_turned_are_noted() -> None:
    images, labels = upright(200)
    assert "after half a turn" in noted(np.ascontiguousarray(images[:, :, ::-1]), labels)


def test_upright_images_are_not() -> None:
    assert [noted(*upright(256, seed)) for seed in range(20)] == [""] * 20


def test_images_that_are_not_square_are_turned_upside_down_only() -> None:
    images, labels = upright(200)
    wide = np.repeat(images[:, :, ::-1], 2, axis=3)
    assert "after half a turn" in noted(np.ascontiguousarray(wide), labels)


def test_the_larger_probe_decides() -> None:
    images, labels = upright(240)
    images[::2] = np.rot90(images[::2], 2, (2, 3))
    assert "on 240 samples" in noted(images, labels)
    asked: list[int] = []

    def wider() -> Probe:
        asked.append(1)
        return probe_of(*upright(400))

    assert noted(images, labels, wider) == "" and asked == [1]
    assert noted(*upright(200, 3), wider) == "" and asked == [1], "an upright probe asks for no second one"


def test_the_tests_are_those_of_scipy() -> None:
    images, labels = upright(100)
    images[::4] = np.rot90(images[::4], 2, (2, 3))
    probe = probe_of(images, labels)
    answers = Answers(brightest_third, probe, brightest_third(torch.from_numpy(images)).numpy(), "cpu", 64)
    turn, there, p = answers.best_turn
    right = answers.right
    table = [[(there & ~right).sum(), (~there & ~right).sum()], [(there & right).sum(), (~there & right).sum()]]
    fisher = stats.fisher_exact(table, alternative="greater").pvalue
    gained, lost = int((there & ~right).sum()), int((right & ~there).sum())
    mcnemar = stats.binomtest(gained, gained + lost, 0.5, alternative="greater").pvalue
    assert turn == 2 and p == pytest.approx(6 * min(fisher, mcnemar), rel=1e-9)


def cifar(shared_data: Path, folder: Path, spoil: Callable[[Arrays, np.random.Generator], None]) -> str:
    """What is noted of ResNet-20 on 2,000 test images, spoiled."""
    draw = np.random.default_rng(3)
    with np.load(shared_data / "cifar10/test.npz") as file:
        rows = np.sort(draw.choice(10_000, 2_000, replace=False))
        arrays = {"images": file["images"][rows], "labels": file["labels"][rows], "classes": file["classes"]}
    spoil(arrays, draw)
    np.savez(folder / "samples.npz", **arrays)
    contract = InputContract(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    weights = shared_data / "networks/cifar10/cifar10_resnet20.pt"
    spec = ModelSpec("net", f"factory:services.training.architectures:cifar_resnet?n=3&weights={weights}", contract)
    facts, problems = preflight(load_model(spec), open_samples(SampleSpec(f"npz:{folder}/samples.npz")), device="cpu")
    assert not problems
    return "\n".join(facts.get("notes", ()))


def half_sideways(arrays: Arrays, draw: np.random.Generator) -> None:
    rows = draw.random(2_000) < 0.5
    arrays["images"][rows] = np.rot90(arrays["images"][rows], 1, (1, 2))


def a_tenth_mislabelled(arrays: Arrays, draw: np.random.Generator) -> None:
    rows = draw.random(2_000) < 0.1
    arrays["labels"][rows] = draw.integers(0, 10, int(rows.sum()))


@pytest.mark.slow
def test_real_images_on_their_side_and_wrong_labels_are_noted(shared_data: Path, tmp_path: Path) -> None:
    assert cifar(shared_data, tmp_path, lambda arrays, draw: None) == ""
    sideways = cifar(shared_data, tmp_path, half_sideways)
    assert "after a quarter turn to the right of the image, on 1024 samples" in sideways
    mislabelled = cifar(shared_data, tmp_path, a_tenth_mislabelled)
    assert "as sure as the median right one, on 1024 samples: some labels may be wrong" in mislabelled
