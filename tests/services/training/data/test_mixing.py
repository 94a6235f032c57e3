"""Extra samples have their share of every batch, and the data set's own samples are seen once an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from services.errors import SourceError
from services.records.trials import DataSpec
from services.training.data.batches import Epoch, Images
from services.training.data.images import Labelled
from services.training.data.mixing import Extra, copies
from services.training.data.sets import read_set
from services.training.epochs.loop import epochs, prepared
from services.training.methods import method_from
from services.training.recipe import Recipe
from tests.services.training.epochs.small_runs import network, same, samples, weights


def extra(count: int, share: float) -> Extra:
    images, labels = samples(count, seed=5)
    return Extra(Labelled(images, labels, 4), share)


@pytest.mark.parametrize(("have", "share"), [(300, 0.3), (40, 0.7), (500, 0.5), (3, 0.99)])
def test_each_batch_has_the_share_and_each_own_sample_stands_once(have: int, share: float) -> None:
    own, more = 120, extra(have, share)
    rows = more.order(own, 7, 2)
    count = more.count(own)
    assert len(rows) == own + count and count == pytest.approx(own * share / (1 - share), abs=0.5)
    assert np.array_equal(np.sort(rows[rows < own]), np.arange(own))
    taken = np.bincount(rows[rows >= own] - own, minlength=have)
    assert taken.sum() == count and taken.max() - taken.min() <= 1, "none twice before all were seen"
    for size in (16, 50):
        for start in range(0, len(rows) - size, 13):
            inside = int((rows[start : start + size] >= own).sum())
            assert abs(inside - size * count / len(rows)) < 1 + 1e-9
    assert np.array_equal(rows, more.order(own, 7, 2)) and not np.array_equal(rows, more.order(own, 7, 3))


def test_a_mixed_epoch_is_the_loop_over_these_rows() -> None:
    x, y = samples()
    own, more = Labelled(x, y, 4), extra(60, 0.25)
    whole = more.after(own)
    assert more.totals(own) == (40,) * 4, "30 own ones of each class, and 10 of 40 extra ones"
    order = more.order(120, seed=0, epoch=0)
    batches = list(
        Epoch(
            Images(whole.images, whole.labels, torch.device("cpu")),
            batch=32,
            seed=0,
            epoch=0,
            crop=0,
            flip=False,
            order=order,
        )
    )
    assert torch.equal(torch.cat([labels for _, labels in batches]), torch.from_numpy(whole.labels[order]))
    assert torch.equal(torch.cat([images for images, _ in batches]), torch.from_numpy(whole.images[order]))


def trained(folder: Path | None, more: Extra | None) -> tuple[Any, dict[str, torch.Tensor]]:
    x, y = samples()
    recipe, net = Recipe(batch=16, epochs=2, lr=0.1, weight_decay=0.0), network(norm=True)
    run = prepared(
        net,
        Labelled(x, y, 4),
        None,
        method=method_from("pgd"),
        recipe=recipe,
        storage=None if folder is None else str(folder),
        extra=more,
    )
    records = list(epochs(run))
    run.report()
    return records, weights(net)


def test_training_sees_what_is_mixed_in_and_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    records, mixed = trained(None, extra(60, 0.25))
    assert [record.samples for record in records] == [160, 160] and sum(records[0].train.total) == 160
    assert not same(mixed, trained(None, None)[1])
    first = trained(tmp_path, extra(60, 0.25))[1]
    assert same(first, mixed) and same(trained(tmp_path, extra(60, 0.25))[1], mixed)
    with pytest.raises(Exception, match=r"expected progress of this very run"):
        trained(tmp_path, extra(60, 0.3))


def npz(file: Path, rows: slice, classes: str = "0123456789", split: str = "train") -> str:
    from services.loading.samples.source import open_samples
    from services.records import SampleSpec

    all_of = open_samples(SampleSpec(f"sklearn:digits?split={split}"))
    images = all_of.images(0, len(all_of))[rows]
    np.savez(file, images=images, labels=all_of.labels[rows], classes=np.array(list(classes)))
    return f"npz:{file}?layout=NCHW&scale=1"


def test_a_set_with_extra_samples_is_another_and_says_of_what(tmp_path: Path) -> None:
    uri = npz(tmp_path / "e.npz", slice(0, 200), split="test")
    plain = read_set(DataSpec("d", "digits", holdout=0.2))
    mixed = read_set(DataSpec("d", "digits", holdout=0.2, extra=uri, share=0.5))
    again = read_set(DataSpec("d", "digits", holdout=0.2, extra=uri, share=0.6))
    assert len({each.facts.digest for each in (plain, mixed, again)}) == 3
    assert sum(mixed.facts.extra) == 200 and mixed.facts.share == 0.5 and mixed.facts.train == plain.facts.train


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"rows": slice(0, None), "split": "train"},
            r"d \(extra\): expected no sample that is held out, found \d+ of 8\d\d",
        ),
        ({"classes": "abcdefghij"}, r"d \(extra\): expected the data set's classes 0, 1, 2, .*, found a, b, c, d, e"),
    ],
)
def test_extra_samples_of_another_kind_or_held_out_are_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    uri = npz(tmp_path / "e.npz", **{"rows": slice(0, 200), "split": "test", **change})
    with pytest.raises(SourceError, match=message):
        read_set(DataSpec("d", "digits", holdout=0.2, extra=uri, share=0.5))


def test_copies_are_found_across_types() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(3, 1, 4, 4)
    floats = pixels[[1, 1]].astype(np.float32) / np.float32(255)
    assert copies(floats, pixels) == 2 and copies(pixels, floats) == 1
    assert copies(pixels + 100, pixels) == 0
