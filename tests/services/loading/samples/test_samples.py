"""Samples by URI: arrays, digits, generators, torchvision, artifacts; and what all schemes share."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest

from services.errors import ConfigError, SourceError
from services.loading.confined import confined_to
from services.loading.samples.source import open_samples
from services.records import SampleSpec

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 5, 4, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3


def npz(folder: Path, **arrays: Any) -> str:
    """Write an archive and return its URI."""
    np.savez(folder / "s.npz", **{"images": IMAGES, "labels": LABELS, **arrays})
    return f"npz:{folder / 's.npz'}"


def test_uint8_is_divided_by_255(tmp_path: Path) -> None:
    samples = open_samples(SampleSpec(npz(tmp_path, classes=np.array(["a", "b", "c"]))))
    images = samples.images(2, 7)
    assert np.array_equal(images, IMAGES[2:7].transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255))
    assert images.flags.c_contiguous and images.flags.writeable and images.dtype == np.float32
    assert (samples.shape, len(samples), samples.classes) == ((3, 5, 4), 12, ("a", "b", "c"))
    assert samples.images(10, 99).shape == (2, 3, 5, 4)


@pytest.mark.parametrize("change", [lambda x: x.transpose(0, 3, 1, 2), lambda x: x[:, :, :, 0]])
def test_layouts(tmp_path: Path, change: Any) -> None:
    samples = open_samples(SampleSpec(npz(tmp_path, images=change(IMAGES))))
    assert np.array_equal(samples.images(0, 1)[0, 0], IMAGES[0, :, :, 0] / np.float32(255))


def test_an_ambiguous_layout_is_asked_for(tmp_path: Path) -> None:
    uri = npz(tmp_path, images=RNG.integers(0, 256, (12, 3, 3, 3), dtype=np.uint8))
    with pytest.raises(SourceError, match=r"shape \(12, 3, 3, 3\); add \?layout=NHWC or \?layout=NCHW"):
        open_samples(SampleSpec(uri))
    assert open_samples(SampleSpec(f"{uri}?layout=NHWC")).shape == (3, 3, 3)


def test_floats_need_a_declared_range(tmp_path: Path) -> None:
    uri = npz(tmp_path, images=(IMAGES / 255).astype(np.float64))
    with pytest.raises(SourceError, match=r"found float64 from 0(\.\d+)? to 1; add \?scale=1 or \?scale=255"):
        open_samples(SampleSpec(uri))
    with pytest.raises(SourceError, match=r"values in \[0, 255\] as declared"):
        open_samples(SampleSpec(f"{uri}?scale=255"))
    assert open_samples(SampleSpec(f"{uri}?scale=1")).images(0, 12).max() == 1.0
    normalised = npz(tmp_path, images=IMAGES / 255.0 - 0.5)
    with pytest.raises(SourceError, match="store images before normalisation"):
        open_samples(SampleSpec(f"{normalised}?scale=1"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES.astype(np.int32)}, "floating with a declared scale, found int32"),
        ({"images": IMAGES[:, :, 0, 0]}, r"shape \(12, 5\)"),
        ({"labels": np.array([{}] * 12)}, "found Python objects; store numbers or fixed-width text"),
        ({"labels": LABELS[:5]}, r"labels \(12,\), one an image, found shape \(5,\)"),
        ({"labels": LABELS, "classes": np.array(["a", "b"])}, "labels below K = 2"),
    ],
)
def test_malformed_archives(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        open_samples(SampleSpec(npz(tmp_path, **arrays)))


def test_missing_arrays_and_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=LABELS)
    with pytest.raises(SourceError, match="found only x; add labels"):
        open_samples(SampleSpec(f"npz:{tmp_path / 'x.npz'}"))
    with pytest.raises(SourceError, match="nothing there"):
        open_samples(SampleSpec(f"npz:{tmp_path / 'y.npz'}"))
    with pytest.raises(ConfigError, match="did you mean 'npz'"):
        open_samples(SampleSpec("npy:x"))


def test_selection_ids_groups_and_digest(tmp_path: Path) -> None:
    uri = npz(tmp_path, site=np.array(["n", "s"] * 6), year=np.arange(12))
    spec = SampleSpec(uri, per_class=2, groups=("site", "year"))
    samples = open_samples(spec)
    assert np.array_equal(samples.labels, LABELS[samples.ids])
    assert samples.groups["year"].tolist() == [str(k) for k in samples.ids]
    assert np.array_equal(samples.images(0, 6), open_samples(SampleSpec(uri)).images(0, 12)[samples.ids])
    assert samples.digest == open_samples(spec).digest
    assert samples.digest != open_samples(SampleSpec(uri, per_class=2, seed=1, groups=spec.groups)).digest
    with pytest.raises(SourceError, match="a column of the source, found 'sites'; did you mean 'site'"):
        open_samples(SampleSpec(uri, groups=("sites",)))


def test_digest_ignores_the_folder_and_follows_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, two = (open_samples(SampleSpec(npz(tmp_path / name))).digest for name in "ab")
    assert first == two
    assert first != open_samples(SampleSpec(npz(tmp_path, images=255 - IMAGES))).digest


def test_opening_imports_no_torch(tmp_path: Path) -> None:
    uris = [npz(tmp_path), "sklearn:digits"]
    code = (
        "import sys; from services.loading.samples.source import open_samples\n"
        "from services.records import SampleSpec\n"
        f"for uri in {uris!r}: open_samples(SampleSpec(uri)).images(0, 2)\n"
        "sys.exit('torch' in sys.modules)"
    )
    root = Path(__file__).parents[4]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


@pytest.mark.slow
def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    theirs, samples = load_digits(), open_samples(SampleSpec("sklearn:digits?split=all"))
    assert np.array_equal(samples.images(0, 1797)[:, 0] * 16, theirs.images)
    assert np.array_equal(samples.labels, theirs.target)


def test_digits_train_and_test_do_not_overlap() -> None:
    parts = {part: open_samples(SampleSpec(f"sklearn:digits?split={part}")) for part in ("train", "test", "all")}
    assert set(parts["train"].ids) | set(parts["test"].ids) == set(parts["all"].ids) == set(range(1797))
    assert not set(parts["train"].ids) & set(parts["test"].ids)
    assert open_samples(SampleSpec("sklearn:digits")).digest == parts["test"].digest
    images = parts["test"].images(0, 5)
    assert images.shape == (5, 1, 8, 8)
    assert np.array_equal(images * 16, np.round(images * 16))


def test_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "synth.py").write_text(
        "import numpy as np\ndef draw(n, kind='pair'):\n"
        "    images = np.linspace(0, 1, n * 4, dtype=np.float32).reshape(n, 1, 2, 2)\n"
        "    return images if kind == 'alone' else (images, np.arange(n) % 2, ['a', 'b'])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    allowed = ("synth",)
    samples = open_samples(SampleSpec("generator:synth:draw?n=6"), allowed_factories=allowed)
    assert (len(samples), samples.classes, samples.shape) == (6, ("a", "b"), (1, 2, 2))
    with pytest.raises(SourceError, match="add 'synth' to the fleet's factories"):
        open_samples(SampleSpec("generator:synth:draw?n=6"))
    with pytest.raises(SourceError, match=r"returns \(images, labels\[, classes\]\), found ndarray"):
        open_samples(SampleSpec("generator:synth:draw?n=6&kind=alone"), allowed_factories=allowed)
    with pytest.raises(SourceError, match="unexpected keyword argument 'm'"):
        open_samples(SampleSpec("generator:synth:draw?n=6&m=1"), allowed_factories=allowed)


def cifar_folder(root: Path) -> None:
    """The folder torchvision expects, with 20 images a batch and its integrity list matched by patching."""
    base = root / "cifar-10-batches-py"
    base.mkdir(parents=True)
    pixels = RNG.integers(0, 256, (20, 3072), dtype=np.uint8)
    for name in ("test_batch", *(f"data_batch_{k}" for k in range(1, 6))):
        (base / name).write_bytes(pickle.dumps({"data": pixels, "labels": [k % 10 for k in range(20)]}))
    (base / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"c{k}" for k in range(10)]}))


def test_torchvision_and_robustbench_sets(
    tmp_path: Path, torchvision_operators: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import CIFAR10

    with pytest.raises(SourceError, match="download it once with torchvision"):
        open_samples(SampleSpec(f"torchvision:CIFAR10?root={tmp_path}"))
    cifar_folder(tmp_path)
    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *a: True)
    samples = open_samples(SampleSpec(f"torchvision:CIFAR10?root={tmp_path}"))
    assert (len(samples), samples.shape, samples.classes[3]) == (20, (3, 32, 32), "c3")
    first = open_samples(SampleSpec(f"robustbench:cifar10?data_dir={tmp_path}&n=7"))
    assert np.array_equal(first.images(0, 7), samples.images(0, 7))
    from services.loading.models.robustbench_bridge import robustbench_module

    theirs, labels = robustbench_module("robustbench.data").load_cifar10(7, str(tmp_path))
    assert np.array_equal(theirs.numpy(), first.images(0, 7))
    assert np.array_equal(labels.numpy(), first.labels)


@pytest.mark.parametrize("scheme", ["torchvision:CIFAR10?root=", "robustbench:cifar10?data_dir="])
def test_a_batch_that_is_given_to_another_file_after_the_look_is_not_read(
    scheme: str, tmp_path: Path, torchvision_operators: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the worst moment: when its checksum was compared, and before torchvision opens it by its name."""
    for name in ("mine", "others"):
        cifar_folder(tmp_path / name)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *a: True)
    monkeypatch.setattr("torchvision.datasets.cifar.CIFAR10._check_integrity", lambda self: True)
    mine = open_samples(SampleSpec(f"{scheme}{tmp_path}/mine")).images(0, 20)
    batch = tmp_path / "mine" / "cifar-10-batches-py" / "test_batch"

    def swap(self: Any) -> bool:
        batch.unlink()
        batch.symlink_to(tmp_path / "others" / "cifar-10-batches-py" / "test_batch")
        return True

    monkeypatch.setattr("torchvision.datasets.cifar.CIFAR10._check_integrity", swap)
    with confined_to([str(tmp_path / "mine")]):
        samples = open_samples(SampleSpec(f"{scheme}{tmp_path}/mine"))
        assert np.array_equal(samples.images(0, 20), mine)
        with pytest.raises(SourceError, match=r"test_batch, which leads out of them"):
            open_samples(SampleSpec(f"{scheme}{tmp_path}/mine"))
        (tmp_path / "mine" / "link").symlink_to(tmp_path / "others")
        with pytest.raises(SourceError, match=r"mine/link, which leads out of them"):
            open_samples(SampleSpec(f"{scheme}{tmp_path}/mine/link"))


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["test_batch", "batches.meta"])
def test_no_batch_of_cifar_runs_code(
    name: str, tmp_path: Path, torchvision_operators: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum is compared of what the name leads to before it is unpickled: who swaps the file then runs code."""
    cifar_folder(tmp_path)
    (tmp_path / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(Hostile(tmp_path / "ran")))
    monkeypatch.setattr("torchvision.datasets.cifar.CIFAR10._check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *a: True)
    for uri in (f"torchvision:CIFAR10?root={tmp_path}", f"robustbench:cifar10?data_dir={tmp_path}"):
        with pytest.raises(SourceError, match=r"it refers to "):
            open_samples(SampleSpec(uri))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["LSUN", "LSUNClass", "PhotoTour", "ImageNet", "VisionDataset", "DatasetFolder"])
def test_sets_of_torchvision_that_read_what_they_like_are_not_made(name: str, torchvision_operators: None) -> None:
    """LSUN unpickles a file that lies in its folder."""
    with pytest.raises(SourceError, match="a dataset of torchvision that keeps its images in one array"):
        open_samples(SampleSpec(f"torchvision:{name}?root=/tmp"))


def test_unknown_sets(torchvision_operators: None) -> None:
    with pytest.raises(SourceError, match="did you mean 'CIFAR10'"):
        open_samples(SampleSpec("torchvision:CIFAR1O"))
    with pytest.raises(SourceError, match="train or test, found 'val'"):
        open_samples(SampleSpec("torchvision:CIFAR10?split=val"))
    with pytest.raises(SourceError, match="for ImageNet point imagefolder:"):
        open_samples(SampleSpec("robustbench:imagenet"))


def test_hub_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SourceError, match="the package datasets, found it is not installed"):
        open_samples(SampleSpec("hf:cifar10"))


def test_mlflow_artifact(tmp_path: Path) -> None:
    npz(tmp_path)
    samples = open_samples(SampleSpec(f"mlflow:{(tmp_path / 's.npz').as_uri()}"))
    assert len(samples) == 12
    with pytest.raises(SourceError, match="expected an MLflow artifact"):
        open_samples(SampleSpec(f"mlflow:{(tmp_path / 'absent.npz').as_uri()}"))
    assert mlflow.active_run() is None


def test_real_cifar10(shared_data: Path) -> None:
    samples = open_samples(SampleSpec(f"npz:{shared_data / 'cifar10/test.npz'}", per_class=3))
    assert np.bincount(samples.labels).tolist() == [3] * 10
    assert samples.classes[:2] == ("airplane", "automobile")


def test_labels_alone_serve_tables_of_logits_and_nothing_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "l.npz", labels=np.arange(6) % 3, side=np.array(list("ababab")))
    samples = open_samples(SampleSpec(f"npz:{tmp_path / 'l.npz'}", groups=("side",)))
    assert (len(samples), samples.shape, len(samples.classes)) == (6, (0, 0, 0), 3)
    assert samples.groups["side"].tolist() == list("ababab")
    with pytest.raises(SourceError, match="expected an array images, found labels alone"):
        samples.images(0, 2)
