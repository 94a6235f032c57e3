"""Sources that ask for far more memory than they hold: one error, and nothing of that size is made."""

from __future__ import annotations

import io
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from services.errors import SourceError
from services.loading.samples.source import open_samples
from services.records import SampleSpec

TERABYTE = 1 << 40


def folders(root: Path) -> Path:
    """Two classes with an image each."""
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        Image.new("L", (8, 8), 40 * len(name)).save(root / name / "0.png")
    return root


def sparse(path: Path, begin: bytes = b"") -> None:
    """A file of a terabyte that takes no room on the disk."""
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(TERABYTE)


def size(root: Path) -> str:
    return f"imagefolder:{folders(root)}?mode=L&size=30000"


def huge_size(root: Path) -> str:
    return f"imagefolder:{folders(root)}?mode=L&size=999999999x999999999"


def huge_crop(root: Path) -> str:
    return f"imagefolder:{folders(root)}?mode=L&resize=99999999&crop=99999999"


def image(root: Path) -> str:
    sparse(folders(root) / "a" / "1.png", b"\x89PNG\r\n\x1a\n")
    return f"imagefolder:{root}?mode=L"


def metadata(root: Path) -> str:
    sparse(folders(root) / "metadata.csv", b"file_name\n")
    return f"imagefolder:{root}?mode=L"


def deep(root: Path) -> str:
    folder = folders(root) / "a"
    for _ in range(150):
        folder = folder / "d"
    folder.mkdir(parents=True)
    return f"imagefolder:{root}?mode=L"


def attributes(root: Path) -> str:
    (root / "img_align_celeba").mkdir(parents=True)
    sparse(root / "list_attr_celeba.txt")
    return f"celeba:{root}?target=Smiling"


def table(root: Path, **columns: Any) -> str:
    """A table of a few kilobytes with so many rows."""
    root.mkdir(parents=True)
    pq.write_table(pa.table({"image": [b"x"] * ROWS, "label": [0, 1] * (ROWS // 2), **columns}), root / "t.parquet")
    assert (root / "t.parquet").stat().st_size < 200_000
    return f"parquet:{root}/t.parquet"


ROWS, LONG = 6000, "x" * 100_000


def long_text(root: Path) -> str:
    return table(root, group=[LONG] + ["y"] * (ROWS - 1))


def long_label(root: Path) -> str:
    return table(root, label=[LONG] + ["y"] * (ROWS - 1))


def one_text_in_every_row(root: Path) -> str:
    return table(root, group=pa.DictionaryArray.from_arrays(pa.array([0] * ROWS), pa.array([LONG])))


def rows_of_nothing(root: Path) -> str:
    """Lists of no pixels and labels of no bytes: any number of them are 500 bytes."""
    root.mkdir(parents=True)
    rows, pixels = 40_000_000, pa.list_(pa.uint8(), 1)
    none = pa.Array.from_buffers(pixels, 0, [None], children=[pa.array([], pa.uint8())])
    images = pa.Array.from_buffers(pa.list_(pixels, 0), rows, [None], children=[none])
    labels = pa.Array.from_buffers(pa.binary(0), rows, [None, pa.py_buffer(b"")])
    batch = pa.record_batch([images, labels], names=["image", "label"])
    with pa.ipc.new_stream(root / "data.arrow", batch.schema) as stream:
        stream.write_batch(batch)
    (root / "state.json").write_text('{"_split": "test", "_data_files": [{"filename": "data.arrow"}]}')
    return f"hf:{root}"


def archive_of_nothing(root: Path) -> str:
    root.mkdir(parents=True)
    header = io.BytesIO()
    shape = {"descr": "<U0", "fortran_order": False, "shape": (50_000_000,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(root / "s.npz", "w") as archive:
        archive.writestr("labels.npy", header.getvalue())
    return f"npz:{root}/s.npz"


SOURCES = (size, huge_size, huge_crop, image, metadata, deep, attributes)
TABLES = (long_text, long_label, one_text_in_every_row, rows_of_nothing, archive_of_nothing)


@pytest.mark.parametrize("source", [*SOURCES, *TABLES])
def test_it_is_refused_and_costs_no_memory(source: Callable[[Path], str], tmp_path: Path) -> None:
    uri = source(tmp_path / "set")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SourceError, match=r"at most|more than|deeper|at least a byte"):
        open_samples(SampleSpec(uri))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_200_000, "kB"


def peak_of(call: Callable[[], object]) -> float:
    """MB that the process takes more than before, at most, while it runs."""
    memory = Path("/proc/self/status")

    def held(name: str) -> int:
        return int(next(line for line in memory.read_text().splitlines() if line.startswith(name)).split()[1])

    Path("/proc/self/clear_refs").write_text("5")
    before = held("VmRSS")
    call()
    return (held("VmHWM") - before) / 1000


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak anew")
def test_large_images_are_decoded_one_by_one_and_kept_only_while_they_are_of_one_size(tmp_path: Path) -> None:
    """The first is small, so all would fit in memory; ten of 17 million pixels follow, of 16 kB each."""
    root = folders(tmp_path / "set")
    Image.new("L", (4200, 4000)).save(tmp_path / "large.png")
    for k in range(10):
        (root / "b" / f"{k}.png").unlink(missing_ok=True)
        (root / "b" / f"{k}.png").hardlink_to(tmp_path / "large.png")
    (tmp_path / "large.png").unlink()

    def refused() -> None:
        with pytest.raises(SourceError, match=r"images of one size"):
            open_samples(SampleSpec(f"imagefolder:{root}"))

    open_samples(SampleSpec(f"imagefolder:{folders(tmp_path / 'small')}"))  # what is loaded at the first time
    assert peak_of(refused) < 150


def test_the_name_of_a_group_is_short(tmp_path: Path) -> None:
    """It stands in every table, report and answer."""
    images, labels = np.arange(256, dtype=np.uint8).reshape(4, 8, 8), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "s.npz", images=images, labels=labels, eye=np.array(["left", "left", "y" * 1001, "left"]))
    with pytest.raises(SourceError, match=r"groups, eye\): expected names of at most 1,000 characters"):
        open_samples(SampleSpec(f"npz:{tmp_path}/s.npz", groups=("eye",)))


def test_a_corruption_that_is_named_a_thousand_times_is_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.arange(50, dtype=np.uint8) % 10)
    np.save(folder / "fog.npy", np.random.default_rng(0).integers(0, 255, (50, 4, 4, 3), dtype=np.uint8))
    samples = open_samples(SampleSpec(f"robustbench:cifar10-c?data_dir={tmp_path}&names={','.join(['fog'] * 900)}"))
    assert len(samples) == 10
