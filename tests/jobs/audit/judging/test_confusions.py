"""Which class goes to which, from the score columns of clean accuracy and of an attack at two radii."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jobs.audit.judging.confusions import cells, confusion_results, matrices
from services.measures.clean import Clean
from services.measures.pgd import Pgd
from services.records import ModelSpec
from tracking.bundle.reasons.confusions import read_confusions, write_confusions
from tracking.bundle.scores import Scores, beside

CLASSES = ("cat", "dog", "eel")
ATTACK = Pgd(epsilons=(0.01, 0.02))
NEAR, FAR = (series.key for series in ATTACK.series())


def scores() -> Scores:
    """Ten cats: one a dog from the start, four go there within the small ball, two more within the large one; an eel
    answers nonsense."""
    labels = np.array([0] * 10 + [1] * 4 + [2] * 2)
    predicted, attacked = labels.copy(), labels.copy()
    predicted[0] = attacked[0] = 1
    attacked[1:7] = 1
    attacked[14] = -1
    near, far = (predicted == labels).astype(float), (attacked == labels).astype(float)
    near[1:5] = near[14] = 0
    return {
        "id": np.arange(16),
        "label": labels,
        "clean": (predicted == labels).astype(float),
        beside("clean", "predicted"): predicted,
        NEAR: near,
        FAR: far,
        beside(NEAR, "attacked"): attacked,
        beside(NEAR, "correct"): (predicted == labels).astype(float),
    }


def test_shares_of_the_weakest_class_by_radius_and_without_an_attack() -> None:
    clean, near, far = confusion_results(matrices((Clean(), ATTACK), scores(), 3, 0.05))
    assert (clean.series, near.series, far.series) == ("clean", NEAR, FAR)
    assert [(pair.label, pair.predicted, pair.count) for pair in far.pairs] == [(0, 1, 7), (2, -1, 1)]
    first = far.pairs[0]
    assert first.share.value == pytest.approx(0.7) and first.clean == pytest.approx(0.1)
    assert first.share.low < 0.35 and first.share.high > 0.9, "limits hold for all nine pairs"
    assert near.pairs[0].count == 5 and near.pairs[1].predicted == -1
    assert (clean.wrong, near.wrong, far.wrong) == (1, 6, 8)
    assert sorted(far.order) == [0, 1, 2]


def test_without_the_measure_clean_the_attack_knows_what_was_wrong_before() -> None:
    (_, far) = confusion_results(matrices((ATTACK,), scores(), 3, 0.05))
    assert far.pairs[0].clean == pytest.approx(0.1)


def test_nothing_is_confused_where_nothing_breaks() -> None:
    whole = scores()
    whole[beside("clean", "predicted")] = whole["label"]
    (clean,) = confusion_results(matrices((Clean(),), whole, 3, 0.05))
    assert clean.pairs == () and clean.wrong == 0


def test_the_bundle_keeps_every_cell(tmp_path: Path) -> None:
    spec, confused = ModelSpec("m/1", "logits:x"), matrices((Clean(), ATTACK), scores(), 3, 0.05)
    write_confusions(str(tmp_path), 2, spec, cells(confused, CLASSES))
    clean, _, far = read_confusions(str(tmp_path), 2, spec)
    assert far.classes == CLASSES and clean.clean is None
    rows = list(zip(far.labels, far.predicted, far.counts, far.totals, strict=True))
    assert rows == [(0, 0, 3, 10), (0, 1, 7, 10), (1, 1, 4, 4), (2, -1, 1, 2), (2, 2, 1, 2)]
    assert far.clean is not None and far.clean[1] == pytest.approx(0.1)
    assert read_confusions(str(tmp_path), 0, spec) == [], "a bundle of an older version"
