"""Bundles for other tools: what is written is what the audit measured."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from jobs.audit.audit import Finished, run_audit
from jobs.audit.exports.formats import export
from jobs.cli import app
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError
from services.loading.samples.source import open_samples
from services.records import SampleSpec
from tracking.bundle.portable import write_table
from tracking.bundle.scores import read_kept_scores

PGD = "pgd3/linf-0.10000"


@pytest.fixture
def done(digits_fleet: dict[str, Any]) -> Iterator[Finished]:
    measures = ["clean", {"name": "pgd", "steps": 3, "epsilons": [0.1]}]
    samples = {"uri": "sklearn:digits?split=test", "per_class": 4}
    models = [*digits_fleet["models"][:2], {"name": "gone", "uri": "torchscript:/nowhere.pt"}]
    data = {**digits_fleet, "models": models, "samples": samples, "measures": measures, "on_model_fault": "skip"}
    yield run_audit(validate_fleet(data), Quiet())


def test_the_table_holds_every_sample_of_every_model_that_ran(done: Finished, tmp_path: Path) -> None:
    where, count = export(done.folder, "parquet")
    table = pq.read_table(where).to_pydict()
    assert count == len(table["sample"]) == 80 and set(table["model"]) == {"good", "weak"}
    scores = read_kept_scores(done.folder, 1, done.result.models[1].spec)
    rows = np.flatnonzero(np.array(table["model"]) == "weak")
    for name in ("predicted", PGD, f"{PGD}:attacked"):
        kept = scores["clean:predicted"] if name == "predicted" else scores[name]
        np.testing.assert_array_equal(np.array(table[name])[rows], kept)
    assert [table["predicted_name"][row] for row in rows] == [str(k) for k in scores["clean:predicted"].tolist()]
    assert [table["correct"][row] for row in rows] == (scores["clean"] > 0).tolist()
    target = tmp_path / "s.csv"
    export(done.folder, "csv", str(target))
    with target.open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line[PGD]) for line in lines] == table[PGD] and lines[0]["label_name"] == str(table["label"][0])


def test_no_cell_of_a_table_is_a_formula(done: Finished, tmp_path: Path) -> None:
    """Names of classes are a caller's; a spreadsheet computes what begins so, and offers to run a command."""
    classes = ("=cmd|' /C calc'!A1", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "-1", "+2.5e3", "plain", "a=b", "")
    audit = replace(done.result, samples=replace(done.result.samples, classes=classes))
    write_table(audit, done.folder, str(tmp_path / "s.csv"), "csv")
    with (tmp_path / "s.csv").open(newline="") as file:
        shown = [line["label_name"] for line in csv.DictReader(file)]
    write_table(audit, done.folder, str(tmp_path / "s.parquet"), "parquet")
    names = pq.read_table(tmp_path / "s.parquet")["label_name"].to_pylist()
    assert set(names) == set(classes) and shown == [f"'{name}" if name in classes[:5] else name for name in names]


def test_coco_names_images_labels_predictions_and_where_attacks_ended(done: Finished) -> None:
    result = CliRunner().invoke(app, ["export", done.folder, "--to", "coco", "--json"])
    body = json.loads(Path(json.loads(result.stdout)["written"]).read_text())
    names = {each["id"]: each["name"] for each in body["categories"]}
    scores = read_kept_scores(done.folder, 0, done.result.models[0].spec)
    labels = {each["image_id"]: each["category_id"] for each in body["annotations"]}
    assert [names[labels[image["id"]]] for image in body["images"]] == [str(k) for k in scores["label"]]
    assert [image["sample"] for image in body["images"]] == scores["id"].tolist()
    mine = [each for each in body["predictions"] if each["model"] == "good"]
    assert [each["category_id"] - 1 for each in mine] == scores["clean:predicted"].tolist()
    assert [each["attacked"][PGD] - 1 for each in mine] == scores[f"{PGD}:attacked"].tolist()
    assert len({each["id"] for each in body["predictions"]}) == 80


def test_without_fiftyone_the_error_says_what_to_install(done: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    with pytest.raises(ConfigError, match=r"expected the package fiftyone.*pip install .classwise\[fiftyone\]"):
        export(done.folder, "fiftyone")


def test_fiftyone_reads_its_dataset_back_from_another_place(done: Finished, tmp_path: Path) -> None:
    """With FiftyOne and its database, `FIFTYONE_DATABASE_URI`."""
    if "FIFTYONE_DATABASE_URI" not in os.environ:
        pytest.skip("FIFTYONE_DATABASE_URI names no database")
    fiftyone = pytest.importorskip("fiftyone")
    where, count = export(done.folder, "fiftyone", str(tmp_path / "made"))
    shutil.move(where, tmp_path / "moved")
    kept = fiftyone.list_datasets()
    dataset = fiftyone.Dataset.from_dir(
        dataset_dir=str(tmp_path / "moved"), dataset_type=fiftyone.types.FiftyOneDataset, progress=False
    )
    try:
        assert len(dataset) == count == 40 and dataset.name not in kept
        scores = read_kept_scores(done.folder, 0, done.result.models[0].spec)
        source = open_samples(SampleSpec("sklearn:digits?split=test", per_class=4))
        for row, sample in enumerate(dataset):
            pixels = np.asarray(Image.open(sample.filepath), dtype=float) / 255
            np.testing.assert_allclose(pixels, np.asarray(source.images(row, row + 1))[0, 0], atol=0.5 / 255)
            assert (sample.source_id, sample.ground_truth.label) == (scores["id"][row], str(scores["label"][row]))
            assert sample.good.label == str(scores["clean:predicted"][row])
            assert sample.good_pgd3_linf_0_10000 == scores[PGD][row]
            assert sample.good_pgd3_linf_0_10000_attacked_name.label == str(scores[f"{PGD}:attacked"][row])
    finally:
        dataset.delete()
