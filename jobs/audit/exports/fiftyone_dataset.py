"""A bundle as a FiftyOne dataset: samples with their label, each model's predictions, scores and attacked classes.

FiftyOne comes with the extra `classwise[fiftyone]` and is imported here only. Its samples need image files, so pictures
are written.
"""

from __future__ import annotations

import re
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from jobs.fleetfile.reading import validate_fleet
from services.errors import ConfigError, Problem
from services.loading.samples.source import SelectedSamples, open_samples
from services.records import ATTACKED, NO_CLASS, AuditResult
from services.storage.pictures import png_of
from tracking.bundle.portable import Rows, model_rows
from tracking.bundle.scores import beside

OWN = {"ground_truth", "source_id"}
"""Fields beside those that every sample of FiftyOne has."""


def make_dataset(audit: AuditResult, folder: str, target: str) -> int:
    """Write images and a FiftyOne dataset into the local folder `target`; returns how many samples.

    Raises:
        ConfigError: FiftyOne is not installed.
        SourceError: the samples of the audit cannot be opened, or are others now.
    """
    try:
        import fiftyone
    except ImportError as error:
        remedy = "pip install 'classwise[fiftyone]', or export --to coco, which FiftyOne reads as well"
        raise ConfigError(Problem("--to fiftyone", "the package fiftyone", f"{error}", remedy)) from error
    rows = [model_rows(audit, index, folder) for index, model in enumerate(audit.models) if model.series]
    samples, home = _samples(audit), Path(target)
    paths = [home / "data" / f"{row:08d}.png" for row in range(len(samples))]
    dataset = fiftyone.Dataset()
    try:
        taken = {*dataset.get_field_schema(), *OWN}
        models = [_Columns(each, taken) for each in rows]
        dataset.add_samples([_sample(fiftyone, row, path, models) for row, path in enumerate(paths)])
        kind = fiftyone.types.FiftyOneDataset
        dataset.export(export_dir=target, dataset_type=kind, export_media=False, rel_dir=target)
    finally:
        dataset.delete()  # what FiftyOne's own database would keep
    _write_images(samples, paths)
    return len(paths)


def _samples(audit: AuditResult) -> SelectedSamples:
    config = validate_fleet(audit.config, source="bundle").config
    samples = open_samples(config.sample_spec(), allowed_factories=config.factories)
    if samples.digest != audit.samples.digest:
        raise ConfigError(
            Problem(audit.samples.uri, f"the samples of the audit ({audit.samples.digest[:12]})", "others")
        )
    return samples


def _write_images(samples: SelectedSamples, paths: list[Path]) -> None:
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(paths), 256):
        part = paths[start : start + 256]
        for path, image in zip(part, np.asarray(samples.images(start, start + len(part))), strict=True):
            path.write_bytes(png_of(image))


class _Columns:
    """A model's rows, and the names of their fields, which FiftyOne wants to be identifiers."""

    def __init__(self, rows: Rows, taken: set[str]) -> None:
        self.rows = rows
        model = str(rows["model"][0])
        self.predicted = _field(model, taken)
        attacked = beside("", f"{ATTACKED}_name")
        self.attacked = {key: _field(f"{model}_{key}", taken) for key in rows if key.endswith(attacked)}
        numbers = (key for key, values in rows.items() if values.dtype.kind == "f")
        self.scores = {key: _field(f"{model}_{key}", taken) for key in numbers}


def _field(text: str, taken: set[str]) -> str:
    """`text` as an identifier that is not among `taken`, to which it is added."""
    plain = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "model"
    plain = plain if plain[0].isalpha() else f"m_{plain}"
    numbered = (f"{plain}_{number}" for number in count(2))
    name = next(name for name in chain([plain], numbered) if name not in taken)
    taken.add(name)
    return name


def _sample(fiftyone: Any, row: int, path: Path, models: list[_Columns]) -> Any:
    first = models[0].rows
    sample = fiftyone.Sample(filepath=str(path), source_id=int(first["sample"][row]))
    sample["ground_truth"] = fiftyone.Classification(label=str(first["label_name"][row]))
    for model in models:
        if "predicted" in model.rows and model.rows["predicted"][row] != NO_CLASS:
            sample[model.predicted] = fiftyone.Classification(label=str(model.rows["predicted_name"][row]))
        for key, field in model.attacked.items():
            if ended := model.rows[key][row]:
                sample[field] = fiftyone.Classification(label=str(ended))
        for key, field in model.scores.items():
            if np.isfinite(score := model.rows[key][row]):
                sample[field] = float(score)
    return sample
