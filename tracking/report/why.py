"""What the page shows of why a class is weak, as compact values: confusion matrices and the gallery."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from services.records import ModelResult
from tracking.bundle.headline import inadequate
from tracking.bundle.reasons.confusions import Cells, read_confusions
from tracking.bundle.reasons.gallery import PICTURES, Gallery, read_gallery
from tracking.bundle.reasons.hardest import read_hardest
from tracking.bundle.reasons.slices import read_slices, slice_words
from tracking.names import shorten

MOST_CELLS = 60_000
"""Cells of confusion matrices in a page; above that each matrix keeps its largest, and the page says so."""
MOST_BYTES = 2_200_000
"""Of the pictures in a page, as they stand there; the bundle has all of them."""
MOST_HARDEST = 30
"""Samples in the page; the bundle has more."""
MOST_SLICES = 40
"""In the page."""
AS_IS = 64
"""Pixels of the longer side up to which a page has pictures as they are; larger ones are reduced to twice that."""

NUMBERS = ("margin_before", "margin_after", "l2", "linf", "gain")


@dataclass(frozen=True)
class Why:
    """The parts, each empty where the bundle has nothing of it."""

    confusions: dict[str, Any] = field(default_factory=dict)
    gallery: dict[str, Any] = field(default_factory=dict)
    hardest: list[dict[str, Any]] = field(default_factory=list)
    slices: list[dict[str, Any]] = field(default_factory=list)


def why_of(
    models: Sequence[tuple[int, ModelResult]], classes: Sequence[str], folder: str, most_bytes: int = MOST_BYTES
) -> Why:
    """Read confusions and gallery of the bundle in `folder`.

    Args:
        models: with the place of each in the audit, in reading order.

    Raises:
        StorageError: a file is damaged.
    """
    names = [model.spec.name for _, model in models]
    kept = [(model, read_confusions(folder, index, model.spec)) for index, model in models]
    galleries = [read_gallery(folder, index, model.spec) for index, model in models]
    parts = _matrices(kept)
    entries, total = _entries(galleries, most_bytes)
    shared = {"models": names, "classes": list(classes)}
    return Why(
        {**shared, "parts": parts, "cut": any(part["cut"] for part in parts)} if parts else {},
        {**shared, "entries": entries, "total": total} if entries else {},
    )


def hardest_rows(folder: str) -> list[dict[str, Any]]:
    """The hardest samples of the bundle in `folder` as the report's table shows them.

    Raises:
        StorageError: the file is damaged.
    """
    table = read_hardest(folder)
    count = min(MOST_HARDEST, len(table["id"])) if table else 0
    texts = ("key", "label_name", "consensus_name")
    numbers = ("id", "models", "wrong", "consensus", "votes", "broken", "label")
    return [
        {
            **{name: str(table[name][row]) for name in texts if name in table},
            **{name: int(table[name][row]) for name in numbers},
            "nearest": None if np.isnan(table["nearest"][row]) else float(f"{table['nearest'][row]:.3g}"),
            "picture": _source(table["picture"][row]) if table["picture"][row] else "",
        }
        for row in range(count)
    ]


def slice_rows(models: Sequence[tuple[int, ModelResult]], folder: str) -> list[dict[str, Any]]:
    """The weak groups that nobody named, with their pictures; the surest first.

    Raises:
        StorageError: a file is damaged.
    """
    rows: list[dict[str, Any]] = []
    for index, model in models:
        pictures = read_slices(folder, index, model.spec) if model.slices else {}
        for number, each in enumerate(model.slices):
            own = (
                [_source(png) for png, of in zip(pictures["picture"], pictures["slice"], strict=True) if of == number]
                if pictures
                else []
            )
            rows.append(
                {"model": shorten(model.spec.name, 48), "slice": each, "words": slice_words(each), "pictures": own}
            )
    return sorted(rows, key=lambda row: row["slice"].p)[:MOST_SLICES]


def _matrices(kept: Sequence[tuple[ModelResult, Sequence[Cells]]]) -> list[dict[str, Any]]:
    """Each matrix as cells ``[class, taken for, count, samples of the class, low, high]``, the largest shares first."""
    share = MOST_CELLS // max(1, sum(len(cells) for _, cells in kept))
    parts = []
    for place, (model, matrices) in enumerate(kept):
        known = {confusion.series: confusion for confusion in model.confusions}
        for matrix in matrices:
            record = known.get(matrix.series)
            if record is None:
                continue
            wrong = matrix.labels != matrix.predicted
            order = np.lexsort((-matrix.counts / matrix.totals, ~wrong))[:share]
            columns = (matrix.labels, matrix.predicted, matrix.counts, matrix.totals)
            rows = np.stack(columns, axis=1)[order].tolist()
            limits = np.stack([matrix.low, matrix.high], axis=1)[order].round(3).tolist()
            cells = [row + sides for row, sides in zip(rows, limits, strict=True)]
            parts.append(
                {
                    "model": place,
                    "title": matrix.title,
                    "under": record.under,
                    "attack": record.attack,
                    "order": list(record.order),
                    "cells": cells,
                    "cut": len(matrix.labels) > share,
                    "unsound": inadequate(model, matrix.series),
                }
            )
    return parts


def _entries(galleries: Sequence[Gallery], most: int) -> tuple[list[dict[str, Any]], int]:
    """The first of each model, then the second of each, as long as they fit; and how many there are in all."""
    lengths = [len(gallery["id"]) if gallery else 0 for gallery in galleries]
    entries: list[dict[str, Any]] = []
    size = 0
    for row in range(max(lengths, default=0)):
        for place, gallery in enumerate(galleries):
            if row < lengths[place]:
                entry = _entry(place, gallery, row)
                size += sum(len(picture) for picture in entry["pictures"])
                if size > most:
                    return sorted(entries, key=lambda entry: entry["model"]), sum(lengths)
                entries.append(entry)
    return sorted(entries, key=lambda entry: entry["model"]), sum(lengths)


def _entry(place: int, gallery: Gallery, row: int) -> dict[str, Any]:
    pictures = [gallery[name][row] for name in PICTURES]
    numbers = {name: float(f"{gallery[name][row]:.3g}") for name in NUMBERS}
    codes = {name: int(gallery[name][row]) for name in ("id", "label", "before", "after", "rank", "of")}
    texts: dict[str, Any] = {name: str(gallery[name][row]) for name in ("attack", "key") if name in gallery}
    shown = [_source(picture) for picture in pictures]
    return {"model": place, **numbers, **codes, **texts, "rounded": bool(gallery["rounded"][row]), "pictures": shown}


def _source(png: bytes) -> str:
    """A picture as a data URL: small ones as they are, larger ones reduced, for a page is not an archive."""
    picture = Image.open(io.BytesIO(png))
    if max(picture.size) <= AS_IS:
        return "data:image/png;base64," + base64.b64encode(png).decode()
    picture.thumbnail((2 * AS_IS, 2 * AS_IS))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
