"""A bundle's samples, predictions and scores for other tools: one flat table, and COCO-like JSON.

A row is one sample under one model: `model`, `sample` (the id in its source) and `key` where images have names; `label`
and `label_name`; `predicted`, `predicted_name` and `correct` without an attack, where they were measured; for each
series its score under the series' key; for each attack `KEY:attacked` and `KEY:attacked_name`, where it ended.
Predictions are -1 and "" where logits were not finite.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from services.records import ATTACKED, NO_CLASS, PREDICTED, SCHEMA_VERSION, AuditResult, ModelResult
from services.storage import files
from tracking.bundle.scores import Scores, beside, read_kept_scores
from tracking.names import FORMULA, NUMBER, cell

Rows = dict[str, NDArray[Any]]


def model_rows(audit: AuditResult, index: int, folder: str) -> Rows:
    """The rows of one model, in the order of the samples.

    Raises:
        StorageError: its scores are not in the bundle.
    """
    model = audit.models[index]
    scores = read_kept_scores(folder, index, model.spec)
    names = np.array([*audit.samples.classes, ""], dtype=object)
    rows: Rows = {"model": np.full(len(scores["id"]), model.spec.name, dtype=object), "sample": scores["id"]}
    if "key" in scores:
        rows["key"] = scores["key"]
    rows |= {"label": scores["label"], "label_name": names[scores["label"]]}
    if (predicted := predictions(scores)) is not None:
        rows |= {"predicted": predicted, "predicted_name": names[predicted], "correct": predicted == scores["label"]}
    for key in _keys(model):
        if key in scores:
            rows[key] = scores[key]
        if (attacked := scores.get(beside(key, ATTACKED))) is not None:
            ended = np.nan_to_num(attacked, nan=NO_CLASS).astype(np.int64)
            rows |= {beside(key, ATTACKED): ended, beside(key, f"{ATTACKED}_name"): names[ended]}
    return rows


def predictions(scores: Scores) -> NDArray[np.int64] | None:
    """(N,) the clean predictions that a measure kept; None where none did."""
    known = (values for name, values in scores.items() if name.endswith(beside("", PREDICTED)))
    predicted = next(known, None)
    return None if predicted is None else np.nan_to_num(predicted, nan=NO_CLASS).astype(np.int64)


def write_table(audit: AuditResult, folder: str, target: str, kind: str) -> int:
    """Write all models' rows as ``parquet`` or ``csv``, one model at a time; returns how many.

    Columns that a model lacks are null.
    """
    tables = [_table(model_rows(audit, index, folder)) for index in _measured(audit)]
    whole = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
    whole = whole.replace_schema_metadata({"schema_version": str(SCHEMA_VERSION), "audit_id": audit.audit_id})
    fill = partial(_parquet if kind == "parquet" else _csv, whole)
    files.write(target, fill)
    return int(whole.num_rows)


def write_coco(audit: AuditResult, folder: str, target: str) -> int:
    """Write COCO-like JSON: `images`, `categories`, the labels as `annotations` and the models' `predictions`.

    An image's `id` is its place in the samples from 1, `sample` its id in the source and `file_name` its key. An
    annotation or prediction is of a whole image, so it has no box; a prediction's `scores` and `attacked`, the category
    that an attack ended in, are by series. Categories are numbered from 1.
    """
    first: Rows = {}
    listed: list[dict[str, Any]] = []
    for index in _measured(audit):
        rows = model_rows(audit, index, folder)
        first = first or rows
        listed += _predictions(audit.models[index], rows, len(listed))
    count = len(first.get("sample", ()))
    images = [
        {
            "id": row + 1,
            "sample": int(first["sample"][row]),
            "file_name": str(first["key"][row]) if "key" in first else "",
        }
        for row in range(count)
    ]
    labels = [{"id": row + 1, "image_id": row + 1, "category_id": int(first["label"][row]) + 1} for row in range(count)]
    body = {
        "info": {"audit_id": audit.audit_id, "fleet": audit.fleet, "samples": audit.samples.uri, "schema_version": 1},
        "categories": [{"id": place + 1, "name": name} for place, name in enumerate(audit.samples.classes)],
        "images": images,
        "annotations": labels,
        "predictions": listed,
    }
    files.write_bytes(target, json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace"))
    return count


def _predictions(model: ModelResult, rows: Rows, start: int) -> list[dict[str, Any]]:
    keys = [key for key in _keys(model) if key in rows]
    ends = [key for key in keys if beside(key, ATTACKED) in rows]
    return [
        {
            "id": start + row + 1,
            "image_id": row + 1,
            "model": model.spec.name,
            "category_id": _category(rows["predicted"][row]) if "predicted" in rows else None,
            "scores": {key: _number(rows[key][row]) for key in keys},
            "attacked": {key: _category(rows[beside(key, ATTACKED)][row]) for key in ends},
        }
        for row in range(len(rows["sample"]))
    ]


def _category(label: Any) -> int | None:
    return None if label == NO_CLASS else int(label) + 1


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _keys(model: ModelResult) -> Iterator[str]:
    return iter(dict.fromkeys(result.series.key for result in model.series))


def _measured(audit: AuditResult) -> list[int]:
    return [index for index, model in enumerate(audit.models) if model.series]


def _table(rows: Rows) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in rows.items()})


def _parquet(table: pa.Table, file: IO[bytes]) -> None:
    pq.write_table(table, file, compression="zstd")


def _csv(table: pa.Table, file: IO[bytes]) -> None:
    columns = [_cells(column) if pa.types.is_string(column.type) else column for column in table.columns]
    pyarrow.csv.write_csv(pa.table(columns, names=[cell(name) for name in table.column_names]), file)


def _cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """As `cell`, of a column."""
    formula = compute.and_not(
        compute.match_substring_regex(column, FORMULA), compute.match_substring_regex(column, NUMBER)
    )
    return compute.if_else(formula, compute.binary_join_element_wise("'", column, ""), column)
