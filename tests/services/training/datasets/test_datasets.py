"""Readers of training sets on miniature folders of the published layouts, whole and broken."""

from __future__ import annotations

import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from services.errors import ConfigError, SourceError
from services.records.trials import DataSpec
from services.training.data.sets import read_set
from services.training.datasets import open_dataset

RNG = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def mnist(root: Path, *, side: int = 28, packed: bool = False) -> tuple[np.ndarray, np.ndarray]:
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    images, labels = pixels(20, side, side), np.arange(20) % 10
    for stem, array in (("images-idx3", images), ("labels-idx1", labels)):
        name, data = f"train-{stem}-ubyte", idx(array)
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(data) if packed else data)
    return images[:, None], labels


def svhn(root: Path) -> tuple[np.ndarray, np.ndarray]:
    images, digits = pixels(20, 3, 32, 32), np.arange(20) % 10 + 1
    savemat(root / "train_32x32.mat", {"X": images.transpose(2, 3, 1, 0), "y": digits[:, None].astype(np.uint8)})
    return images, digits % 10


def cifar10(root: Path) -> tuple[np.ndarray, np.ndarray]:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    images, labels = pixels(50, 3, 32, 32), np.arange(50) % 10
    for k in range(5):
        rows = slice(10 * k, 10 * k + 10)
        batch = {b"data": images[rows].reshape(10, -1), b"labels": labels[rows].tolist()}
        (folder / f"data_batch_{k + 1}").write_bytes(pickle.dumps(batch, protocol=2))
    names = {"label_names": [f"name{k}" for k in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
    return images, labels


def cifar100(root: Path) -> tuple[np.ndarray, np.ndarray]:
    folder = root / "cifar-100-binary"
    folder.mkdir()
    images, labels = pixels(100, 3, 32, 32), np.arange(100)
    rows = np.concatenate([labels[:, None] // 5, labels[:, None], images.reshape(100, -1)], axis=1)
    (folder / "train.bin").write_bytes(rows.astype(np.uint8).tobytes())
    return images, labels


def save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array.transpose(1, 2, 0)).save(path, "PNG")


def cinic10(root: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = pixels(20, 3, 32, 32), np.arange(20) // 2
    for i, k in enumerate(labels):
        save(root / "train" / f"class{k}" / f"{i:03}.png", images[i])
    return images, labels


def tinyimagenet(root: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = pixels(6, 3, 64, 64), np.array([0, 0, 1, 1, 2, 2])
    (root / "wnids.txt").write_text("n03\nn01\nn02\n")
    for i, wnid in enumerate(["n03", "n03", "n01", "n01", "n02", "n02"]):
        save(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", images[i])
        save(root / "val" / "images" / f"val_{i}.JPEG", images[i])
    lines = [f"val_{i}.JPEG\tn0{'331122'[i]}\t0\t0\t9\t9" for i in range(6)]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines))
    return images, labels


MAKERS: dict[str, Callable[[Path], tuple[np.ndarray, np.ndarray]]] = {
    "mnist": mnist,
    "svhn": svhn,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "cinic10": cinic10,
    "tinyimagenet": tinyimagenet,
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_miniature_is_read_exactly(name: str, tmp_path: Path) -> None:
    images, labels = MAKERS[name](tmp_path)
    part = open_dataset(name, tmp_path)
    assert part.images.dtype == np.uint8 and np.array_equal(part.images, images)
    assert np.array_equal(part.labels, labels)


def test_published_names_and_the_test_split(tmp_path: Path) -> None:
    (tmp_path / "cifar").mkdir()
    cifar10(tmp_path / "cifar")
    assert open_dataset("cifar10", tmp_path / "cifar").classes[3] == "name3"
    images, labels = tinyimagenet(tmp_path)
    part = open_dataset("tinyimagenet", tmp_path, split="test")
    assert part.classes == ("n03", "n01", "n02") and np.array_equal(part.labels, labels)
    assert np.array_equal(part.images, images)


def test_packed_mnist(tmp_path: Path) -> None:
    images, _ = mnist(tmp_path, packed=True)
    assert np.array_equal(open_dataset("mnist", tmp_path).images, images)


def imagenet50(root: Path, classes: int = 50) -> None:
    for split in ("train", "val"):
        for k in range(classes):
            save(root / split / f"n{k:02}" / "a.JPEG", np.full((3, 20, 30), k, np.uint8))


def test_imagenet50_is_resized_and_cropped(tmp_path: Path) -> None:
    imagenet50(tmp_path)
    part = open_dataset("imagenet50", tmp_path, size=16)
    assert part.images.shape == (50, 3, 16, 16) and part.labels.tolist() == list(range(50))
    assert np.array_equal(part.images[:, 0, 0, 0], np.arange(50))


def remove(root: Path, pattern: str) -> None:
    for path in sorted(root.rglob(pattern), reverse=True):
        for child in sorted(path.rglob("*"), reverse=True) if path.is_dir() else []:
            child.rmdir() if child.is_dir() else child.unlink()
        path.rmdir() if path.is_dir() else path.unlink()


def break_file(root: Path, pattern: str, data: bytes = b"") -> None:
    path = min(root.rglob(pattern))
    path.write_bytes(data or path.read_bytes()[: path.stat().st_size // 2])


class Evil:
    def __reduce__(self) -> Any:
        return os.getpid, ()


EVIL = pickle.dumps({"data": Evil()})
FAULTS: list[tuple[str, Callable[[Path], None], str]] = [
    ("mnist", lambda root: break_file(root, "train-images*"), "bytes after the header"),
    ("mnist", lambda root: break_file(root, "train-images*", b"<html>"), "IDX file"),
    ("mnist", lambda root: remove(root, "train-labels*"), "nothing there"),
    ("svhn", lambda root: break_file(root, "*.mat"), "readable MATLAB file"),
    ("cifar10", lambda root: remove(root, "data_batch_3"), "no data_batch_3"),
    ("cifar10", lambda root: break_file(root, "data_batch_1"), "damaged or foreign"),
    (
        "cifar10",
        lambda root: break_file(root, "data_batch_1", EVIL),
        "refers to posix.getpid",
    ),
    ("cifar10", lambda root: remove(root, "cifar-10-batches-py"), "neither"),
    ("cifar100", lambda root: break_file(root, "train.bin", bytes(3075)), "whole records"),
    ("cinic10", lambda root: remove(root, "class4"), "10 classes, found 9"),
    ("cinic10", lambda root: remove(root / "train" / "class4", "*.png"), "none of class4"),
    ("cinic10", lambda root: break_file(root, "000.png"), "corrupt: class0/000.png"),
    ("cinic10", lambda root: save(root / "train" / "class0" / "000.png", pixels(3, 16, 16)), "images of one size"),
    ("cinic10", lambda root: remove(root, "train"), "a folder"),
    ("tinyimagenet", lambda root: remove(root / "train", "n01"), "missing, for example n01"),
    ("tinyimagenet", lambda root: remove(root, "wnids.txt"), "list of classes"),
]


@pytest.mark.parametrize(("name", "damage", "match"), FAULTS)
def test_faults_are_named_before_training(
    name: str, damage: Callable[[Path], None], match: str, tmp_path: Path
) -> None:
    MAKERS[name](tmp_path)
    damage(tmp_path)
    with pytest.raises(SourceError, match=match):
        open_dataset(name, tmp_path)


def test_a_wrong_image_size_is_named(tmp_path: Path) -> None:
    mnist(tmp_path, side=27)
    with pytest.raises(SourceError, match=r"\(1, 28, 28\).*\(1, 27, 27\)"):
        open_dataset("mnist", tmp_path)


def test_other_faults_of_a_root(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="set the root"):
        open_dataset("mnist", tmp_path / "absent")
    with pytest.raises(ConfigError, match="did you mean 'cifar10'"):
        open_dataset("cifar-10", tmp_path)
    imagenet50(tmp_path, 49)
    with pytest.raises(SourceError, match="50 classes"):
        open_dataset("imagenet50", tmp_path, size=16)
    remove(tmp_path / "val", "n07")
    with pytest.raises(SourceError, match="same classes in train and val"):
        open_dataset("imagenet50", tmp_path, size=16)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn09\n")
    (tmp_path / "wnids.txt").write_text("n00")
    with pytest.raises(SourceError, match="an image and a class"):
        open_dataset("tinyimagenet", tmp_path, split="test")


def test_what_a_data_set_does_not_take_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="leave root out"):
        open_dataset("digits", tmp_path)
    with pytest.raises(SourceError, match="leave size out"):
        open_dataset("digits", None, size=16)


def test_a_header_whose_size_no_integer_holds(tmp_path: Path) -> None:
    mnist(tmp_path)
    shape = b"".join(side.to_bytes(4, "big") for side in (2**31, 2**31, 4))
    break_file(tmp_path, "train-images-idx3-ubyte*", bytes([0, 0, 8, 3]) + shape)
    with pytest.raises(SourceError, match="18446744073709551616 bytes"):
        open_dataset("mnist", tmp_path)


def test_a_holdout_of_nothing_is_told() -> None:
    with pytest.raises(SourceError, match="a class of two samples or more"):
        read_set(DataSpec("digits", "digits", per_class=1, holdout=0.5))
