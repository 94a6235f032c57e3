"""The hardest samples of a fleet: those that all models fail, those that fall nearest, and whether the models agree.

They are candidates for a wrong label or an unusable image: a list to look at, never a correction.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from services.loading.protocols import Samples
from services.numerics.agreement import agreement, hardest_first
from services.numerics.arguments import Floats, Ints
from services.records import AuditResult, ModelResult
from services.storage.pictures import png_of
from tracking.bundle.portable import predictions
from tracking.bundle.reasons.hardest import MOST, write_hardest
from tracking.bundle.scores import Scores, beside, read_kept_scores

PICTURED = 30


def keep_hardest(result: AuditResult, samples: Samples, folder: str, *, pictures: bool) -> None:
    """Write the hardest samples of an audit, whose scores are kept in `folder`, into its bundle.

    Nothing is written where no model's predictions are known, nor where every model is right about every sample and
    no attack broke one.
    """
    votes: list[Ints] = []
    times, distance = np.zeros(len(samples), dtype=np.int64), np.full(len(samples), np.nan)
    for predicted, broken, nearest in _models(result, folder):
        votes.append(predicted.astype(np.int32))
        times, distance = times + broken, np.fmin(distance, nearest)
    if not votes:
        return
    voted = agreement(np.stack(votes), samples.labels)
    rows = hardest_first(voted, times, distance, samples.labels)[:MOST]
    rows = rows[(voted.wrong[rows] > 0) | (times[rows] > 0)]
    if not len(rows):
        return
    names = np.array([*samples.classes, ""], dtype=object)
    pictures = pictures and 0 not in samples.shape  # of labels alone there is no image
    shown = [sample_png(samples, int(row)) if pictures and place < PICTURED else b"" for place, row in enumerate(rows)]
    write_hardest(
        folder,
        {
            "id": samples.ids[rows],
            **({"key": samples.keys[rows]} if samples.keys is not None else {}),
            "label": samples.labels[rows],
            "label_name": names[samples.labels[rows]],
            "models": np.full(len(rows), len(votes)),
            "wrong": voted.wrong[rows],
            "consensus": voted.consensus[rows],
            "consensus_name": names[voted.consensus[rows]],
            "votes": voted.votes[rows],
            "broken": times[rows],
            "nearest": distance[rows],
            "picture": np.array(shown, dtype=object),
        },
    )


def sample_png(samples: Samples, row: int) -> bytes:
    """The image of one sample as a picture."""
    return png_of(np.asarray(samples.images(row, row + 1)[0], dtype=np.float64))


def _models(result: AuditResult, folder: str) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Of each model its predictions, whether an attack broke a sample that it got right, and the distance."""
    for index, model in enumerate(result.models):
        if model.series:
            scores = read_kept_scores(folder, index, model.spec)
            predicted = predictions(scores)
            if predicted is not None:
                yield predicted, *_attacked(model, scores, predicted == scores["label"])


def _attacked(model: ModelResult, scores: Scores, correct: Ints) -> tuple[Ints, Floats]:
    broken, nearest = np.zeros(len(correct), dtype=np.int64), np.full(len(correct), np.nan)
    for series in {each.series.key: each.series for each in model.series if each.series.attack}.values():
        values = scores[series.key].astype(np.float64)
        if series.binary:
            broken |= ((values == 0) & correct).astype(np.int64)
        elif (censored := scores.get(beside(series.key, "censored"))) is not None:
            fell = (censored == 0) & correct
            broken |= fell.astype(np.int64)
            nearest = np.fmin(nearest, np.where(fell, values, np.nan))
    return broken, nearest
