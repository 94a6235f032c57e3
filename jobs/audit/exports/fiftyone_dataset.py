"""A bundle as a FiftyOne dataset: samples with their label, each model's predictions, scores and attacked classes.

FiftyOne comes with the extra `classwise[fiftyone]` and is imported here only. Its samples need image files, so pictures
are written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jobs.fleetfile.reading import validate_fleet
from services.errors import ConfigError, Problem
from services.loading.samples.source import open_samples
from services.records import NO_CLASS, AuditResult
from services.storage.pictures import png_of
from tracking.bundle.portable import model_rows
from tracking.bundle.scores import beside
from tracking.names import unique_name


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
    paths = _images(audit, target)
    dataset = fiftyone.Dataset()
    dataset.add_samples([_sample(fiftyone, row, path, rows) for row, path in enumerate(paths)])
    dataset.export(export_dir=target, dataset_type=fiftyone.types.FiftyOneDataset, export_media=False)
    return len(paths)


def _images(audit: AuditResult, target: str) -> list[str]:
    """Write the samples as PNG below `target`."""
    config = validate_fleet(audit.config, source="bundle").config
    samples = open_samples(config.sample_spec(), allowed_factories=config.factories)
    if samples.digest != audit.samples.digest:
        raise ConfigError(
            Problem(audit.samples.uri, f"the samples of the audit ({audit.samples.digest[:12]})", "others")
        )
    home = Path(target) / "images"
    home.mkdir(parents=True, exist_ok=True)
    paths = []
    for start in range(0, len(samples), 256):
        stop = min(start + 256, len(samples))
        for row, image in zip(range(start, stop), np.asarray(samples.images(start, stop)), strict=True):
            paths.append(str(home / f"{row:08d}.png"))
            Path(paths[-1]).write_bytes(png_of(image))
    return paths


def _sample(fiftyone: Any, row: int, path: str, models: list[dict[str, Any]]) -> Any:
    first = models[0]
    sample = fiftyone.Sample(filepath=path, source_id=int(first["sample"][row]))
    sample["ground_truth"] = fiftyone.Classification(label=str(first["label_name"][row]))
    for rows in models:
        name = unique_name(str(rows["model"][row]), ascii_only=True).replace(".", "_").replace("-", "_")
        if "predicted" in rows and rows["predicted"][row] != NO_CLASS:
            sample[name] = fiftyone.Classification(label=str(rows["predicted_name"][row]))
        for key, values in rows.items():
            field = f"{name}_{unique_name(key, ascii_only=True)}".replace(".", "_").replace("-", "_")
            if key.endswith(beside("", "attacked_name")) and values[row]:
                sample[field] = fiftyone.Classification(label=str(values[row]))
            elif values.dtype.kind == "f" and np.isfinite(values[row]):
                sample[field] = float(values[row])
    return sample
