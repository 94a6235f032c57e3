"""Tables and colours that could be read in two ways: each second way is refused, or chosen."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from services.errors import SourceError
from services.loading.samples.colours import is_deep
from services.loading.samples.source import SelectedSamples, open_samples
from services.records import SampleSpec
from services.records.intake import intake_notes

COLOURS = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


def folder_of(tmp_path: Path, images: list[Image.Image]) -> Path:
    for index, image in enumerate(images):
        (tmp_path / "ab"[index % 2]).mkdir(exist_ok=True)
        image.save(tmp_path / "ab"[index % 2] / f"{index}.png")
    return tmp_path


def opened(folder: Path, options: str = "", **fields: object) -> SelectedSamples:
    return open_samples(SampleSpec(f"imagefolder:{folder}{options}", **fields))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path, [Image.fromarray(pixels) for pixels in COLOURS])


ROWS = [f"{'ab'[index % 2]}/{index}.png,site{index % 2}" for index in range(6)]


@pytest.mark.parametrize(
    ("head", "rows", "message"),
    [
        ("file_name,sex", [*ROWS, "a/0.png,other"], r"one row a file, found 1 in several: a/0.png in lines 2, 8"),
        ("file_name,sex", [*ROWS, "./a/0.png,site0"], r"found 1 in several: a/0.png in lines 2, 8"),
        ("file_name,sex,sex", [f"{row},x" for row in ROWS], r"\(line 1\): expected columns of .* found twice: 'sex'"),
        ("file_name,sex,", [f"{row},x" for row in ROWS], r"\(line 1\): expected a name for every column"),
        ("file_name,sex", [*ROWS[:5], "b/5.png"], r"2 cells in every row.* found 1 with .* line 7 has 1"),
        ("file_name,sex", [*ROWS[:5], "b/5.png,x,y"], r"line 7 has 3; quote cells that hold commas"),
        ("name,sex", ROWS, r"a column file_name, found columns name, sex"),
    ],
)
def test_doubtful_tables_are_refused_with_their_lines(folder: Path, head: str, rows: list[str], message: str) -> None:
    """0.1.0 took the last of two rows: groups of .880 and .930 became .905 each."""
    (folder / "metadata.csv").write_text("\n".join([head, *rows]) + "\n")
    with pytest.raises(SourceError, match=message):
        opened(folder, groups=("sex",))


def test_a_clear_table_gives_groups(folder: Path) -> None:
    text = "file_name,sex\n" + "\n\n".join(ROWS) + '\n"c/absent.png","x, y"\n'
    (folder / "metadata.csv").write_text(text)
    assert opened(folder, groups=("sex",)).groups["sex"].tolist() == ["site0"] * 3 + ["site1"] * 3


def deep_png(path: Path, kind: int) -> None:
    """A PNG of 16 bits a channel; kind 2 is RGB, 4 grey with alpha, 6 RGBA."""
    channels = {2: 3, 4: 2, 6: 4}[kind]
    lines = b"".join(b"\0" + b"\x12\x34" * 8 * channels for _ in range(8))

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, kind, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def deep_ppm(path: Path) -> None:
    path.write_bytes(b"P6 8 8 65535\n" + b"\x12\x34" * 192)


@pytest.mark.parametrize("kind", [2, 4, 6, "ppm"])
def test_sixteen_bits_are_not_cut_to_eight(folder: Path, kind: int | str) -> None:
    (folder / "a" / "0.png").unlink()
    deep_ppm(folder / "a" / "0.ppm") if isinstance(kind, str) else deep_png(folder / "a" / "0.png", kind)
    with pytest.raises(SourceError, match=r"1 corrupt: a/0.* more than 8 bits a channel"):
        opened(folder, "?mode=RGB")
    assert opened(folder, "?mode=RGB", on_corrupt="skip").skipped == {"a": 1}


def half_clear(pixels: np.ndarray) -> Image.Image:
    alpha = np.full((8, 8, 1), 255, np.uint8)
    alpha[:4] = 128
    return Image.fromarray(np.concatenate([pixels, alpha], axis=2), "RGBA")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_lies_behind_transparency_is_a_choice(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [half_clear(pixels) for pixels in COLOURS])
    with pytest.raises(SourceError, match=r"a background, found 6 with transparency: .* \?background=white"):
        opened(folder, "?mode=RGB", on_corrupt="skip")
    digests = set()
    for name, value in (("white", 255), ("black", 0), ("%23808080", 128)):
        samples = opened(folder, f"?mode=RGB&background={name}")
        share = np.where(np.arange(8) < 4, 128 / 255, 1.0)[:, None, None]
        expected = COLOURS[samples.ids[0] * 2] * share + value * (1 - share)
        np.testing.assert_allclose(samples.images(0, 1)[0].transpose(1, 2, 0) * 255, expected, atol=1.0)
        digests.add(samples.digest)
    assert len(digests) == 3
    with pytest.raises(SourceError, match="a colour such as white"):
        opened(folder, "?mode=RGB&background=whiteish")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_alpha_that_hides_nothing_needs_no_background(tmp_path: Path, folder: Path) -> None:
    plain = opened(folder, "?mode=RGB").images(0, 6)
    opaque = folder_of(tmp_path / "..", []) / "opaque"
    opaque.mkdir(exist_ok=True)
    folder_of(opaque, [Image.fromarray(pixels).convert("RGBA") for pixels in COLOURS])
    np.testing.assert_array_equal(opened(opaque, "?mode=RGB").images(0, 6), plain)


def deep_sgi(path: Path) -> None:
    Image.fromarray(COLOURS[0]).save(path, bpc=2)


def deep_jpeg2000(path: Path) -> None:
    """A codestream whose SIZ marker says 12 bits for what are 8: what is refused is what the header says."""
    Image.fromarray(COLOURS[0]).save(path)
    data = bytearray(path.read_bytes())
    place = data.find(b"\xff\x4f\xff\x51") + 42
    data[place : place + 9 : 3] = bytes([11] * 3)
    path.write_bytes(data)


def test_ten_bits_of_an_avif_are_seen_in_its_header(tmp_path: Path) -> None:
    """The box av1C says so; Pillow writes none of 10 bits, and reads such a file as 8."""
    Image.fromarray(COLOURS[0]).save(tmp_path / "a.avif")
    data = (tmp_path / "a.avif").read_bytes()
    place = data.find(b"av1C") + 6
    with Image.open(tmp_path / "a.avif") as image:
        assert not is_deep(image, data)
        assert is_deep(image, data[:place] + bytes([data[place] | 0x40]) + data[place + 1 :])


@pytest.mark.parametrize(("write", "suffix"), [(deep_sgi, "sgi"), (deep_jpeg2000, "jp2")])
def test_no_format_is_cut_to_eight_bits(folder: Path, write: Callable[[Path], None], suffix: str) -> None:
    """16-bit SGI was read as 8 bits, and JPEG 2000 of more bits is by Pillow."""
    shallow = folder / "a" / f"shallow.{suffix}"
    Image.fromarray(COLOURS[0]).save(shallow)
    assert len(opened(folder)) >= 6
    write(folder / "b" / f"deep.{suffix}")
    with pytest.raises(SourceError, match=r"1 corrupt: b/deep.* more than 8 bits a channel"):
        opened(folder)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif", "avif"])
def test_of_several_frames_none_is_taken(folder: Path, suffix: str) -> None:
    """The first frame of an animation, or the first page, was audited as the image."""
    first, *others = [Image.fromarray(pixels) for pixels in COLOURS[:3]]
    first.save(folder / "a" / f"film.{suffix}", save_all=True, append_images=others)
    with pytest.raises(
        SourceError, match=rf"1 corrupt: a/film.{suffix} \(3 frames or pages, of which one would be taken"
    ):
        opened(folder, "?mode=RGB")
    assert opened(folder, "?mode=RGB", on_corrupt="skip").skipped == {"a": 1}


def test_smaller_copies_and_views_are_of_the_same_picture(folder: Path) -> None:
    whole = Image.fromarray(255 - COLOURS[0])
    small = whole.resize((4, 4))
    small.encoderinfo = {"tiffinfo": {254: 1}}
    whole.save(folder / "a" / "pyramid.tif", save_all=True, append_images=[small])
    whole.rotate(90).save(folder / "b" / "stereo.mpo", save_all=True, append_images=[small])
    samples = opened(folder)
    assert {"a/pyramid.tif", "b/stereo.mpo"} <= set(samples.keys.tolist() if samples.keys is not None else ())


def encoded() -> list[bytes]:
    def png(pixels: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        return file.getvalue()

    return [png(pixels) for pixels in COLOURS]


def with_classes(names: list[str], rows: slice = slice(None)) -> pa.Table:
    """A table as Hugging Face writes it: numbers, and what they are called in the schema."""
    table = pa.table({"image": encoded()[rows], "label": [0, 1, 2, 0, 1, 2][rows]})
    feature = {"label": {"names": names, "_type": "ClassLabel"}}
    return table.replace_schema_metadata({b"huggingface": json.dumps({"info": {"features": feature}}).encode()})


@pytest.mark.parametrize(("column", "other"), [("label", "labels"), ("image", "img")])
def test_two_columns_that_may_be_the_one_are_a_question(tmp_path: Path, column: str, other: str) -> None:
    """The first was taken without a word."""
    table = pa.table({"image": encoded(), "label": [0, 1, 0, 1, 0, 1]})
    second = encoded()[::-1] if column == "image" else [1, 0, 1, 0, 1, 0]
    pq.write_table(table.append_column(other, pa.array(second)), tmp_path / "t.parquet")
    with pytest.raises(
        SourceError, match=rf"one column {column} or .*, found {column} and {other}; .* \?{column}={column}"
    ):
        open_samples(SampleSpec(f"parquet:{tmp_path / 't.parquet'}"))
    chosen = open_samples(SampleSpec(f"parquet:{tmp_path / 't.parquet'}?{column}={other}"))
    assert chosen.labels.tolist() == ([1, 0] * 3 if column == "label" else [0, 1] * 3)


def test_files_with_other_class_lists_are_refused(tmp_path: Path) -> None:
    """The list of the first file was taken for all."""
    for name, names in (("a", ["cat", "dog", "fox"]), ("b", ["cat", "fox", "dog"])):
        pq.write_table(with_classes(names), tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match=r"same list of classes in all files, found class 1 is 'dog' and 'fox'"):
        open_samples(SampleSpec(f"parquet:{tmp_path}"))


def test_another_order_of_the_classes_moves_the_labels(tmp_path: Path) -> None:
    """`?classes=` is what preflight advises for another order; numbers kept their place and changed their name."""
    pq.write_table(with_classes(["cat", "dog", "fox"]), tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", images=COLOURS, labels=[0, 1, 2, 0, 1, 2], classes=["cat", "dog", "fox"])
    for uri in (f"parquet:{tmp_path / 't.parquet'}", f"npz:{tmp_path / 't.npz'}"):
        moved = open_samples(SampleSpec(f"{uri}?classes=fox,cat,dog"))
        assert [moved.classes[label] for label in moved.labels] == ["cat", "dog", "fox"] * 2
        assert moved.classes == ("fox", "cat", "dog")
        renamed = open_samples(SampleSpec(f"{uri}?classes=Katze,Hund,Fuchs"))
        assert renamed.labels.tolist() == [0, 1, 2] * 2


def test_two_spellings_of_a_class_are_one_class(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A folder copied from another system: two classes that look the same on the screen."""
    for name in ("\u00e9toile", "e\u0301toile"):
        (folder / name).mkdir()
        Image.fromarray(255 - COLOURS[len(name) - 6]).save(folder / name / "1.png")
    with pytest.raises(SourceError, match=r"distinct class names, found \['\u00e9toile'\] more than once"):
        opened(folder)
    archive = tmp_path_factory.mktemp("text") / "t.npz"
    np.savez(archive, images=COLOURS, labels=["\u00e9", "e\u0301", "a"] * 2)
    with pytest.raises(SourceError, match=r"distinct class names, found \['\u00e9'\] more than once"):
        open_samples(SampleSpec(f"npz:{archive}"))


@pytest.mark.parametrize("pair", [("male", " male"), ("Male", "male"), ("1", "1.0"), ("", "NA"), ("\u00e9", "e\u0301")])
def test_two_spellings_of_a_group_are_one_group(folder: Path, pair: tuple[str, str]) -> None:
    rows = [f"{'ab'[index % 2]}/{index}.png,{pair[index % 2]}" for index in range(6)]
    (folder / "metadata.csv").write_text("\n".join(["file_name,sex", *rows]) + "\n")
    with pytest.raises(SourceError, match=r"\(groups, sex\): expected one spelling of each group, found 1 in several"):
        opened(folder, groups=("sex",))
    assert opened(folder).groups == {}


def test_samples_without_a_value_are_counted(folder: Path) -> None:
    rows = [f"{'ab'[index % 2]}/{index}.png,{['x', 'NA'][index == 3]}" for index in range(6)]
    (folder / "metadata.csv").write_text("\n".join(["file_name,sex", *rows]) + "\n")
    samples = opened(folder, groups=("sex",))
    assert samples.intake.remarks == ("1 of 6 samples have no value of sex ('NA'): a group of its own.",)
    assert opened(folder).intake.remarks == ()


def test_rows_of_no_image_are_counted(folder: Path) -> None:
    (folder / "metadata.csv").write_text("\n".join(["file_name,sex", *ROWS, "a/gone.png,x", "b/gone.png,x"]) + "\n")
    remark = "2 rows of metadata.csv name no image that was read, for example a/gone.png."
    assert opened(folder).intake.remarks == (remark,)
    assert remark in [*intake_notes(opened(folder).intake, ("a", "b"), (3, 3))]


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ("ababab", None),
        ("ababaa", "b/5.png: a"),
        ("010101", None),
        ("101010", None),
        ("010100", "b/5.png: 0"),
        ("x" * 6, None),
    ],
)
def test_a_column_of_other_classes_than_the_folders_is_refused(folder: Path, values: str, refused: str | None) -> None:
    rows = [f"{'ab'[index % 2]}/{index}.png,{value}" for index, value in enumerate(values)]
    (folder / "metadata.csv").write_text("\n".join(["file_name,label", *rows]) + "\n")
    if refused is None:
        assert len(opened(folder)) == 6
        return
    with pytest.raises(
        SourceError, match=r"metadata.csv \(label\): expected the class of the file's folder, found 1 of 6"
    ):
        opened(folder)
