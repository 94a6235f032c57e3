"""Sets of the datasets library in a folder, written here as it writes them: a description, and streams of Arrow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from services.errors import SourceError
from services.loading.confined import confined_to
from services.loading.samples.source import open_samples
from services.records import SampleSpec

FEATURES = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}


def save(folder: Path, value: int = 7, split: str = "test", **state: Any) -> Path:
    """Four images of one value; `state` replaces what the description says."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = pa.FixedSizeListArray.from_arrays(pa.array([value] * 4 * 64, pa.uint8()), 64)
    table = pa.table({"image": pixels, "label": [0, 1, 1, 0]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(FEATURES)})
    name = str(folder / "data-00000-of-00001.arrow")
    with pa.OSFile(name, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    files = [{"filename": "data-00000-of-00001.arrow"}]
    body = {"_data_files": files, "_fingerprint": "0123", "_split": split, **state}
    (folder / "state.json").write_text(json.dumps(body))
    return folder


def opened(folder: Path, query: str = "") -> Any:
    return open_samples(SampleSpec(f"hf:{folder}?shape=8x8{query}", duplicates="all"))


def test_a_saved_set_is_read_with_its_classes(tmp_path: Path) -> None:
    samples = opened(save(tmp_path / "one"))
    assert (samples.classes, samples.labels.tolist()) == (("cat", "dog"), [0, 1, 1, 0])
    assert (samples.images(0, 4) * 255).round().max() == 7
    with pytest.raises(SourceError, match=r"samples of test, found train; add \?split=train"):
        opened(save(tmp_path / "two", split="train"))


def test_a_split_of_several_is_read(tmp_path: Path) -> None:
    save(tmp_path / "train", 1, "train")
    save(tmp_path / "test", 2)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert (opened(tmp_path, "&split=train").images(0, 1) * 255).round().max() == 1
    with pytest.raises(SourceError, match="one of train, test, found 'val'"):
        opened(tmp_path, "&split=val")


def test_its_identity_is_its_content_and_not_what_its_description_says(tmp_path: Path) -> None:
    """The cache is everybody's: who copies the fingerprint of others' samples would fill in their results."""
    assert opened(save(tmp_path / "a", 1)).digest != opened(save(tmp_path / "b", 2)).digest


@pytest.mark.parametrize("name", ["../../private/data-00000-of-00001.arrow", "ABSOLUTE", "..", "", 3, None])
def test_a_description_names_no_file_elsewhere(tmp_path: Path, name: Any) -> None:
    private = save(tmp_path / "private")
    named = str(private / "data-00000-of-00001.arrow") if name == "ABSOLUTE" else name
    mine = save(tmp_path / "granted" / "mine", _data_files=[{"filename": named}])
    with confined_to([str(tmp_path / "granted")]), pytest.raises(SourceError, match="beside the description"):
        opened(mine)
    (mine / "dataset_dict.json").write_text(json.dumps({"splits": ["../../private"]}))
    with confined_to([str(tmp_path / "granted")]), pytest.raises(SourceError, match="beside the description"):
        opened(mine, "&split=../../private")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"_data_files": 3}', "[" * 100_000, '{"_data_files": [{}]}'])
def test_a_description_that_is_none_is_one_error(tmp_path: Path, text: str) -> None:
    (save(tmp_path / "set") / "state.json").write_text(text)
    with pytest.raises(SourceError, match="a dataset as save_to_disk writes it"):
        opened(tmp_path / "set")


def test_what_is_no_folder_is_no_name_of_the_hub(tmp_path: Path) -> None:
    """The library would look for a script or files of that name."""
    (tmp_path / "set.py").write_text("raise SystemExit")
    with pytest.raises(SourceError, match=r"a folder at .*set\.py"):
        opened(tmp_path / "set.py")


def test_a_file_shows_nothing_of_the_memory_beside_it(tmp_path: Path) -> None:
    """Arrow believes offsets: the value of a group was what lay behind the column, for as long as a file liked."""
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 4, 6, 8, 10))
    texts = pa.Array.from_buffers(pa.binary(), 4, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcdefghij")])
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(range(256), pa.uint8()), 64)
    batch = pa.record_batch({"image": pixels, "label": pa.array([0, 1, 1, 0]), "group": texts})
    save(tmp_path)
    file = tmp_path / "data-00000-of-00001.arrow"
    with pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    assert len(opened(tmp_path)) == 4
    honest = file.read_bytes()
    assert honest.count(offsets) == 1
    file.write_bytes(honest.replace(offsets, offsets[:4] + (40_000).to_bytes(4, "little") * 4))
    with pytest.raises(SourceError, match=r"out of bounds: 40000 > 10"):
        opened(tmp_path)
