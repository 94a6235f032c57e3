"""Tables and colours that could be read in two ways: each second way is refused, or chosen."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from services.errors import SourceError
from services.loading.samples.source import SelectedSamples, open_samples
from services.records import SampleSpec

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
