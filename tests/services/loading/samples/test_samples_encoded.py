"""Encoded images: folders and Parquet, conversions, corrupt files, sizes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from services.errors import SourceError
from services.loading.samples import encoded
from services.loading.samples.source import open_samples
from services.records import SampleSpec

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


def png(array: np.ndarray, mode: str | None = None) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of three images, and a class without any."""
    for k, name in enumerate(["cat", "ant", "cat", "ant", "cat", "ant"]):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / f"{k}.png").write_bytes(png(PIXELS[k]))
    (tmp_path / "bee").mkdir()
    return tmp_path


def test_folder_of_folders(folder: Path) -> None:
    samples = open_samples(SampleSpec(f"imagefolder:{folder}"))
    assert samples.classes == ("ant", "bee", "cat")
    assert samples.labels.tolist() == [0, 0, 0, 2, 2, 2]
    order = [1, 3, 5, 0, 2, 4]
    expected = PIXELS[order].transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    assert np.array_equal(samples.images(0, 6), expected)
    assert samples.images(0, 6).flags.c_contiguous


def test_declared_class_order(folder: Path) -> None:
    assert open_samples(SampleSpec(f"imagefolder:{folder}?classes=cat,ant,bee")).labels.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(SourceError) as caught:
        open_samples(SampleSpec(f"imagefolder:{folder}?classes=cat,ant,dog"))
    assert "a folder for every class, found dog" in str(caught.value)
    assert "every folder among the classes, found bee" in str(caught.value)


def test_groups_from_metadata(folder: Path) -> None:
    names = ["ant/1.png", "ant/3.png", "ant/5.png", "cat/0.png", "cat/2.png", "cat/4.png"]
    rows = "\n".join(f"{name},{k}" for k, name in enumerate(names))
    (folder / "metadata.csv").write_text(f"file_name,site\n{rows}\n")
    samples = open_samples(SampleSpec(f"imagefolder:{folder}", groups=("site",)))
    assert samples.groups["site"].tolist() == list("012345")
    (folder / "metadata.csv").write_text(f"file_name,site\n{rows[:-12]}\n")
    with pytest.raises(SourceError, match="1 of 6 without"):
        open_samples(SampleSpec(f"imagefolder:{folder}"))


def test_corrupt_files_strict_and_skipped(folder: Path) -> None:
    whole = (folder / "cat/0.png").read_bytes()
    (folder / "cat/0.png").write_bytes(whole[: len(whole) // 2])
    (folder / "cat/2.png").write_bytes(b"<html>")
    (folder / "ant/1.png").write_bytes(b"")
    with pytest.raises(SourceError) as caught:
        open_samples(SampleSpec(f"imagefolder:{folder}"))
    assert "found 3 corrupt: ant/1.png (empty), cat/0.png (" in str(caught.value)
    assert "set on_corrupt: skip" in str(caught.value)
    samples = open_samples(SampleSpec(f"imagefolder:{folder}", on_corrupt="skip"))
    assert samples.skipped == {"ant": 1, "cat": 2}
    assert samples.labels.tolist() == [0, 0, 2]
    assert np.array_equal(samples.images(2, 3)[0, 0] * 255, PIXELS[4, :, :, 0])


def test_sizes_and_modes_must_agree(folder: Path) -> None:
    (folder / "bee/a.png").write_bytes(png(RNG.integers(0, 256, (4, 6, 4), dtype=np.uint8)))
    with pytest.raises(SourceError) as caught:
        open_samples(SampleSpec(f"imagefolder:{folder}"))
    assert "images of one size, found 2: 8x8 (6), 6x4 (1); add ?size=HxW" in str(caught.value)
    assert "all grey (L) or all RGB, found RGB (6), RGBA (1); add ?mode=RGB or ?mode=L" in str(caught.value)
    assert open_samples(SampleSpec(f"imagefolder:{folder}?size=4x6&mode=RGB&background=black")).shape == (3, 4, 6)
    assert open_samples(SampleSpec(f"imagefolder:{folder}?size=8&mode=L&background=black")).shape == (1, 8, 8)


@pytest.mark.usefixtures("torchvision_operators")
def test_shorter_side_and_centre_are_torchvision_s(tmp_path: Path) -> None:
    from torchvision.transforms import CenterCrop, Compose, Resize

    (tmp_path / "cat").mkdir()
    shapes = [(40, 61), (61, 40), (47, 47), (23, 90), (33, 34), (35, 33)]
    for k, (height, width) in enumerate(shapes):
        array = RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)
        (tmp_path / "cat" / f"{k}.png").write_bytes(png(array, "P" if k == 2 else "L" if k == 3 else None))
    samples = open_samples(SampleSpec(f"imagefolder:{tmp_path}?mode=RGB&resize=33&crop=29x28"))
    prepared = Compose([Resize(33), CenterCrop((29, 28))])
    for k in range(len(shapes)):
        with Image.open(tmp_path / "cat" / f"{k}.png") as image:
            expected = np.asarray(prepared(image.convert("RGB"))).transpose(2, 0, 1)
        assert np.array_equal(np.rint(samples.images(k, k + 1)[0] * 255), expected), shapes[k]


def test_another_crop_is_another_content_and_a_narrow_image_is_named(folder: Path) -> None:
    crops = ("crop=4&size=6", "crop=5&size=6", "size=6", "resize=6", "resize=7&crop=6", "resize=9&crop=6")
    results = [open_samples(SampleSpec(f"imagefolder:{folder}?{crop}")) for crop in crops]
    assert {samples.shape for samples in results} == {(3, 6, 6)}
    assert len({samples.content for samples in results}) == len(crops)
    (folder / "cat" / "0.png").write_bytes(png(np.zeros((1, 3000, 3), np.uint8)))
    with pytest.raises(SourceError, match="3000x1 pixels would become 256 times 768000"):
        open_samples(SampleSpec(f"imagefolder:{folder}?resize=256&crop=8"))
    with pytest.raises(SourceError, match="a number of pixels such as 256"):
        open_samples(SampleSpec(f"imagefolder:{folder}?resize=8x9"))


@pytest.mark.parametrize("on_corrupt", ["error", "skip"])
def test_images_smaller_than_the_crop_are_not_corrupt_and_never_skipped(
    folder: Path, on_corrupt: Literal["error", "skip"]
) -> None:
    (folder / "cat" / "0.png").write_bytes(png(np.zeros((9, 12, 3), np.uint8)))
    (folder / "cat" / "2.png").write_bytes(b"<html>")
    with pytest.raises(SourceError) as caught:
        open_samples(SampleSpec(f"imagefolder:{folder}?crop=9x10", on_corrupt=on_corrupt))
    small = r"expected images of at least 9x10 \(height x width\), found 4 smaller: ant/1.png \(8x8\), .*; lower crop"
    assert re.search(small, str(caught.value)) and ("1 corrupt" in str(caught.value)) == (on_corrupt == "error")
    with pytest.raises(SourceError, match=r"found 4 smaller: ant/1.png \(7x7\), .*; raise resize or lower crop"):
        open_samples(SampleSpec(f"imagefolder:{folder}?resize=7&crop=7x8", on_corrupt="skip"))


def test_an_image_that_became_smaller_than_the_crop_since_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.loading.samples.encoded.KEEP_BYTES", 0)
    samples = open_samples(SampleSpec(f"imagefolder:{folder}?crop=8", on_corrupt="skip"))
    (folder / "cat" / "0.png").write_bytes(png(np.zeros((7, 8, 3), np.uint8)))
    with pytest.raises(SourceError, match=r"at least 8x8 .*, found 1 smaller: cat/0.png \(7x8\)"):
        samples.images(0, len(samples))


def test_palette_is_named(folder: Path) -> None:
    for path in folder.rglob("*.png"):
        path.write_bytes(png(PIXELS[0], "P"))
    with pytest.raises(SourceError, match=r"found P \(6\)"):
        open_samples(SampleSpec(f"imagefolder:{folder}"))


def test_a_decompression_bomb_is_never_decoded(folder: Path) -> None:
    header = bytearray((folder / "cat/0.png").read_bytes())
    header[16:24] = (60_000).to_bytes(4, "big") * 2
    import zlib

    header[29:33] = zlib.crc32(bytes(header[12:29])).to_bytes(4, "big")
    (folder / "cat/0.png").write_bytes(header)
    with pytest.raises(SourceError, match="claims too many pixels"):
        open_samples(SampleSpec(f"imagefolder:{folder}"))


def test_sixteen_bits_are_refused(folder: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(folder / "cat/0.png")
    with pytest.raises(SourceError, match="more than 8 bits a channel"):
        open_samples(SampleSpec(f"imagefolder:{folder}?mode=L"))


def test_a_large_set_is_decoded_by_batch_with_the_same_numbers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = open_samples(SampleSpec(f"imagefolder:{folder}"))
    monkeypatch.setattr(encoded, "KEEP_BYTES", 10)
    lazy = open_samples(SampleSpec(f"imagefolder:{folder}"))
    assert lazy.digest == kept.digest
    assert np.array_equal(lazy.images(1, 5), kept.images(1, 5))
    assert lazy.images(3, 3).shape == (0, 3, 8, 8)
    whole = (folder / "cat/0.png").read_bytes()
    (folder / "cat/0.png").write_bytes(whole[:-40])
    late = open_samples(SampleSpec(f"imagefolder:{folder}"))
    with pytest.raises(SourceError, match=r"cat/0.png \("):
        late.images(0, 6)


def test_threads_change_neither_order_nor_digest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cat/1.png").write_bytes(b"")
    results = []
    for threads in (1, 4):
        monkeypatch.setattr(encoded, "cores", lambda threads=threads: threads)
        monkeypatch.setattr(encoded, "AT_A_TIME", 2)
        samples = open_samples(SampleSpec(f"imagefolder:{folder}", on_corrupt="skip"))
        results.append((samples.digest, samples.labels.tolist(), samples.images(0, 5).tobytes(), samples.skipped))
    assert results[0] == results[1]


def table(**columns: Any) -> pa.Table:
    return pa.table({"image": [png(array) for array in PIXELS], "label": [0, 1, 0, 1, 0, 1], **columns})


def opened(folder: Path, content: pa.Table, query: str = "", **spec: Any) -> Any:
    pq.write_table(content, folder / "s.parquet")
    return open_samples(SampleSpec(f"parquet:{folder / 's.parquet'}{query}", **spec))


def test_parquet_of_bytes_and_groups(tmp_path: Path) -> None:
    samples = opened(tmp_path, table(site=["n", None, "n", "s", "s", "s"]), groups=("site",))
    assert np.array_equal(samples.images(0, 6), PIXELS.transpose(0, 3, 1, 2) / np.float32(255))
    assert samples.groups["site"].tolist() == ["n", "", "n", "s", "s", "s"]


def test_parquet_as_hugging_face_writes_it(tmp_path: Path) -> None:
    content = table(image=[{"bytes": png(array), "path": None} for array in PIXELS])
    features = {"info": {"features": {"label": {"names": ["ant", "bee"], "_type": "ClassLabel"}}}}
    content = content.replace_schema_metadata({"huggingface": json.dumps(features)})
    assert opened(tmp_path, content).classes == ("ant", "bee")


@pytest.mark.parametrize("nested", [True, False])
def test_parquet_of_fixed_size_lists(tmp_path: Path, nested: bool) -> None:
    array: pa.Array = pa.array(PIXELS.reshape(-1))
    for size in (3, 8, 8) if nested else (192,):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    content = pa.table({"image": array, "label": ["a", "b"] * 3})
    if not nested:
        with pytest.raises(SourceError, match=r"flat lists of 192; add \?shape=HxWxC"):
            opened(tmp_path, content)
    samples = opened(tmp_path, content, "" if nested else "?shape=8x8x3")
    assert np.array_equal(samples.images(0, 6), PIXELS.transpose(0, 3, 1, 2) / np.float32(255))
    assert samples.classes == ("a", "b")


def test_a_folder_of_parts_is_one_source(tmp_path: Path) -> None:
    pq.write_table(table()[:4], tmp_path / "a.parquet")
    pq.write_table(table()[4:], tmp_path / "b.parquet")
    samples = open_samples(SampleSpec(f"parquet:{tmp_path}"))
    assert samples.ids.tolist() == list(range(6))
    assert np.array_equal(samples.images(0, 6), PIXELS.transpose(0, 3, 1, 2) / np.float32(255))


def test_malformed_tables(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="a label for every row, found 1 of 6 missing"):
        opened(tmp_path, table(label=[0, 1, None, 1, 0, 1]))
    with pytest.raises(SourceError, match="a column target, found columns image, label"):
        opened(tmp_path, table(), "?label=target")
    with pytest.raises(SourceError, match=r"1 corrupt: row 2 \(empty\)"):
        opened(tmp_path, table(image=[None if k == 2 else png(array) for k, array in enumerate(PIXELS)]))
    with pytest.raises(SourceError, match=r"fixed-size lists, found string, .a/1.png.; paths are not followed"):
        opened(tmp_path, table(image=["a/1.png"] * 6))
    (tmp_path / "s.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match="readable Parquet files"):
        open_samples(SampleSpec(f"parquet:{tmp_path / 's.parquet'}"))


def test_every_sample_leads_to_its_image(folder: Path, tmp_path: Path) -> None:
    """Paths of an image folder, `path` of Hugging Face's image column, else a column that is called like a name."""
    samples = open_samples(SampleSpec(f"imagefolder:{folder}", per_class=2))
    assert samples.keys is not None
    assert all((folder / key).is_file() for key in samples.keys)
    assert [key.split("/")[0] for key in samples.keys] == [samples.classes[k] for k in samples.labels]
    images, names = [png(array) for array in PIXELS], [f"photo-{k}.png" for k in range(6)]
    labels = [0, 0, 0, 1, 1, 1]
    struct = [{"bytes": image, "path": name} for image, name in zip(images, names, strict=True)]
    tables = {
        "struct": pa.table({"image": struct, "label": labels}),
        "column": pa.table({"image": images, "label": labels, "file_name": names}),
        "none": pa.table({"image": images, "label": labels}),
    }
    keys = {}
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        keys[name] = open_samples(SampleSpec(f"parquet:{tmp_path / name}.parquet")).keys
    assert keys["struct"].tolist() == keys["column"].tolist() == names
    assert keys["none"] is None


def test_names_of_images_are_in_no_digest(folder: Path, tmp_path: Path) -> None:
    digests = []
    for prefix in ("a", "b"):
        table = pa.table(
            {"image": [png(array) for array in PIXELS], "label": [0] * 6, "key": [f"{prefix}{k}" for k in range(6)]}
        )
        pq.write_table(table, tmp_path / f"{prefix}.parquet")
        digests.append(open_samples(SampleSpec(f"parquet:{tmp_path / prefix}.parquet")).digest)
    assert digests[0] == digests[1]
