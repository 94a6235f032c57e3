"""What a sweep is refused for, and is told of before any training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.training.progress import QuietTraining
from jobs.training.sweep_run import run_sweep
from jobs.training.sweepfile import overridden
from services.errors import ClasswiseError, PreflightError, StorageError

from .helpers import sweep

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


def test_all_faults_of_all_trials_are_told_before_training(tmp_path: Path) -> None:
    broken = sweep(
        tmp_path,
        methods=["erm", "wat", {"name": "erm", "label": "two-means", "recipe": {"mean": [0.1, 0.2]}}],
        architectures=[
            {"name": "small_cnn", "widht": 4},
            {"name": "small_cnn", "label": "five", "classes": 5},
            {"name": "cifar_resnet", "n": 1},
            {"name": "small_cnn", "label": "good", "width": 2},
        ],
        datasets=["digits"],
        recipe={"select": "robust", "std": [0.5]},
    )
    with pytest.raises(PreflightError) as error:
        run_sweep(broken, QuietTraining())
    text = str(error.value)
    for part in (
        "small_cnn on digits, small_cnn.widht: expected an option of it, found no such; did you mean 'width'?",
        "five on digits: expected logits (4, 10), one a class, found (4, 5)",
        "cifar_resnet on digits: expected a network that takes images (1, 8, 8)",
        "wat on digits, method wat: expected a held-out split to judge by, found none; give the data set a holdout",
        "erm on digits, select=robust: expected a held-out split",
        "two-means on digits, recipe.mean: expected 1 values, one a channel, found 2",
        "erm on digits, recipe: expected mean and std together, or neither",
    ):
        assert part in text, part
    assert not (tmp_path / "training").exists()


def test_a_crop_larger_than_the_images_is_told_before_training(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"recipe.crop: expected at most 8, the side of the images, found 9"):
        run_sweep(sweep(tmp_path, recipe={"epochs": 1, "crop": 9}), QuietTraining())


def test_a_trial_that_no_memory_holds_is_told_before_training(tmp_path: Path) -> None:
    enormous = sweep(tmp_path, recipe={"epochs": 1, "batch": 10**9})
    with pytest.raises(PreflightError, match=r"about [\d.]+ GiB of memory, found .* in this machine"):
        run_sweep(enormous, QuietTraining())


def _mnist(root: Path, labels: np.ndarray, shape: tuple[int, ...] = (28, 28)) -> Path:
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (len(labels), *shape), dtype=np.uint8)
    for name, array in (("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels.astype(np.uint8))):
        header = bytes([0, 0, 8, array.ndim]) + b"".join(int(side).to_bytes(4, "big") for side in array.shape)
        (raw / name).write_bytes(header + array.tobytes())
    return root


@pytest.mark.parametrize(
    ("hurt", "message"),
    [
        (lambda root: _mnist(root, np.arange(40) % 9), "expected a sample of every class, found none of 9"),
        (lambda root: _mnist(root, np.arange(40) % 10, (28, 27)), "expected images of shape (1, 28, 28)"),
        (lambda root: _torn(_mnist(root, np.arange(40) % 10)), "bytes after the header, as its shape"),
        (lambda root: root / "nowhere", "expected a folder at"),
    ],
)
def test_data_that_cannot_be_trained_on_are_named(tmp_path: Path, hurt: Any, message: str) -> None:
    root = hurt(tmp_path / "data")
    data = [{"name": "mnist", "root": str(root)}, {"name": "cifar10"}]
    with pytest.raises(ClasswiseError) as error:
        run_sweep(sweep(tmp_path / "runs", datasets=data), QuietTraining())
    assert message in str(error.value)
    assert "cifar10 (train): expected the root of the data, found none" in str(error.value)


def _torn(root: Path) -> Path:
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-100])
    return root


def test_a_subset_that_loses_a_class_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClasswiseError, match="expected a sample of every class, found none of class"):
        run_sweep(sweep(tmp_path, datasets=[{"name": "digits", "limit": 5}]), QuietTraining())


def test_storage_that_cannot_be_written_is_named_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="storage: expected a folder that can be written"):
        run_sweep(overridden(sweep(tmp_path), storage=str(tmp_path / "file" / "runs")), QuietTraining())
