"""The same numbers whatever the batch, threads and cache; the long table is ``python -m torture.determinism``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from .determinism import FIRST, LOGIT_BOUND, SCORE_BOUND, compared, settings
from .test_faults import suite


@pytest.mark.slow
def test_another_batch_shard_and_number_of_threads_give_the_same_tables() -> None:
    done = suite("determinism", "--short")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("warm equal") == 3 and done.stdout.count("results equal") >= 1


def test_the_table_has_the_settings_that_are_promised() -> None:
    items = list(settings(ray=True))
    assert {setting.workers for setting in items if setting.runner == "ray"} == {1, 2, 4}
    for runner in ("local", "ray"):
        assert {setting.batch for setting in items if setting.runner == runner} == {7, 64}
        assert {setting.threads for setting in items if setting.runner == runner} == {1, 2}
    assert {setting.shard for setting in items} == {FIRST.shard, 200} and replace(FIRST, shard=200) in items


def test_a_bit_counts_for_attacks_and_a_bound_for_logits() -> None:
    great, pgd, logits = (np.array([0.5, 1.0]), np.array([1.0, 0.0]), np.ones(2))
    first = {"logits/a": {"logits": logits}, "scores/b": {"pgd": pgd}, "scores/c": {"great": great, "offset": great}}
    assert compared(first, first).identical == compared(first, first).columns == 4
    near = compared(first, {**first, "logits/a": {"logits": np.array([1.0, 1.0 + LOGIT_BOUND / 2])}})
    assert 0 < near.logits < LOGIT_BOUND and near.exact == ()
    flipped = compared(first, {**first, "scores/b": {"pgd": np.array([1.0, 1e-16])}})
    assert flipped.exact == ("scores/b pgd",) and flipped.scores == 0
    far = compared(first, {**first, "scores/c": {"great": great, "offset": great + 2 * SCORE_BOUND}})
    assert far.scores > SCORE_BOUND and far.exact == ()
    assert compared(first, {**first, "logits/a": {}}).exact == ("logits/a logits is missing",)
