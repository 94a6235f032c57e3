"""Preflight of tables of logits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.orders import honest
from services.errors import SourceError
from services.loading.models.contract import ContractedNetwork
from services.loading.models.source import load_model
from services.loading.preflight import judgement
from services.loading.preflight.look import preflight
from services.loading.protocols import LoadedModel
from services.loading.samples.source import SelectedSamples
from services.records import Intake, ModelSpec
from tests.services.loading.preflight.colours import Colours, colour_samples, loaded


def table_facts(tmp_path: Path, labels: Any, predicted: Any, size: int, **spec: Any) -> tuple[Any, Any]:
    """Preflight of a table of one-hot logits."""
    logits = np.eye(size, dtype=np.float32)[predicted] * 9 - 1
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    names = tuple(f"c{k}" for k in range(size))
    samples = SelectedSamples(labels, np.arange(len(labels)), names, {}, "d", {}, (3, 4, 4), lambda a, b: np.zeros(0))
    return preflight(load_model(ModelSpec("m", f"logits:{tmp_path / 'z.npz'}", **spec)), samples, device="cpu")


@pytest.mark.parametrize("accuracy", [0.76, 0.8, 0.3])
def test_a_thousand_classes_with_five_samples_each_are_no_fault(tmp_path: Path, accuracy: float) -> None:
    """0.1.0: "46 classes predicted consistently as another"."""
    labels, predicted = honest(np.random.default_rng(0), 1000, 5, accuracy, "pairs")
    facts, problems = table_facts(tmp_path, labels, predicted, 1000)
    assert problems == () and "notes" not in facts


def test_the_declared_accuracy_denies_another_order(tmp_path: Path) -> None:
    """Two classes are honestly hopeless; the accuracy is exactly the declared one."""
    labels = np.repeat(np.arange(10), 50)
    predicted = np.where((labels < 2) & (np.arange(500) % 10 > 0), labels ^ 1, labels)
    assert "another class order" in str(table_facts(tmp_path, labels, predicted, 10)[1])
    facts, problems = table_facts(tmp_path, labels, predicted, 10, clean_accuracy=0.82)
    assert problems == ()
    assert "2 classes predicted consistently as another: c0 as c1, c1 as c0; compare" in facts["notes"][0]


@pytest.mark.parametrize(("count", "refused"), [(20, False), (500, True)])
def test_guessing_is_refused_where_the_samples_can_tell(tmp_path: Path, count: int, refused: bool) -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(count) % 10
    facts, problems = table_facts(tmp_path, labels, rng.integers(0, 10, count), 10)
    assert [problem.expected for problem in problems] == ["an accuracy above chance (10.0%)"] * refused
    assert any("does not differ from guessing" in note for note in facts.get("notes", ())) != refused
    if refused:
        declared = float(facts["clean_accuracy"])
        assert table_facts(tmp_path, labels, rng.integers(0, 10, count), 10, clean_accuracy=declared)[1] == ()


def test_networks_twice_as_good_as_guessing_pass(tmp_path: Path) -> None:
    for seed in range(20):
        labels, predicted = honest(np.random.default_rng(seed), 10, 26, 0.2, "even")
        assert table_facts(tmp_path, labels, predicted, 10)[1] == ()


def test_a_table_of_logits(tmp_path: Path) -> None:
    samples = colour_samples()
    scores = Colours()(torch.from_numpy(samples.images(0, 90))).detach().numpy()
    np.savez(tmp_path / "z.npz", logits=scores, labels=samples.labels)
    spec = ModelSpec("m", f"logits:{tmp_path / 'z.npz'}")
    facts, problems = preflight(load_model(spec), samples, device="cpu")
    assert problems == () and facts["clean_accuracy"] == 1.0
    np.savez(tmp_path / "z.npz", logits=scores[:80], labels=samples.labels[:80])
    assert "10 of 90 missing" in str(preflight(load_model(spec), samples, device="cpu")[1][0])
    np.savez(tmp_path / "z.npz", logits=scores, labels=np.roll(samples.labels, 1))
    assert "the samples' labels, found 90 of 90 that differ" in str(
        preflight(load_model(spec), samples, device="cpu")[1][0]
    )


def test_a_table_without_ids_has_as_many_rows_as_the_source(tmp_path: Path) -> None:
    """More rows were taken by their number, whichever samples they were of."""
    whole = colour_samples()
    samples = replace(whole, intake=Intake(available=(30, 30, 30)))
    scores = Colours()(torch.from_numpy(samples.images(0, 90))).detach().numpy()
    spec = ModelSpec("m", f"logits:{tmp_path / 'z.npz'}")
    for extra, ids in ((0, None), (10, None), (10, np.arange(100))):
        rows = {"logits": np.concatenate([scores, scores[:extra]]), **({} if ids is None else {"ids": ids})}
        np.savez(tmp_path / "z.npz", **rows)
        problems = preflight(load_model(spec), samples, device="cpu")[1]
        refused = "100 rows without ids" in str(problems)
        assert refused == (extra > 0 and ids is None) and bool(problems) == refused


def test_offsets_are_added_to_a_table_and_its_labels_still_count(tmp_path: Path) -> None:
    samples = colour_samples()
    scores = Colours()(torch.from_numpy(samples.images(0, 90))).detach().numpy()
    np.savez(tmp_path / "z.npz", logits=scores, labels=np.roll(samples.labels, 1))
    spec = ModelSpec("m", f"logits:{tmp_path / 'z.npz'}", offsets=(1.0, 0.0, -1.0))
    loaded = load_model(spec)
    assert loaded.logits is not None
    np.testing.assert_allclose(loaded.logits(samples.ids), scores + np.array([1.0, 0.0, -1.0]), rtol=1e-6)
    assert "90 of 90 that differ" in str(preflight(loaded, samples, device="cpu")[1])
    with pytest.raises(SourceError, match=r"m \(offsets\): expected 3 numbers, one a class, found 2"):
        load_model(replace(spec, offsets=(1.0, 0.0)))


def test_classes_that_share_the_largest_logit_are_counted() -> None:
    samples = colour_samples()
    flat = int((samples.images(0, 90)[:, 0, 0, 0] < 0.1).sum())

    def tied(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x[:, 0, 0, :1] < 0.1, 0.0, Colours()(x))

    facts, problems = preflight(loaded(tied), samples, device="cpu")
    (note,) = [note for note in facts["notes"] if "share the largest logit" in note]
    assert problems == () and f"in {flat} of 90 samples: these count as wrong" in note


def test_offsets_hide_no_probabilities() -> None:
    offsets = (3.0, 0.0, -3.0)
    spec = ModelSpec("m", "factory:none:none", offsets=offsets)
    network = ContractedNetwork(lambda x: Colours()(x).softmax(dim=1), spec.input, where="m", offsets=offsets)
    problems = preflight(LoadedModel(spec, network, "d"), colour_samples(), device="cpu")[1]
    assert "logits as declared" in str(problems) and "declare outputs: probabilities" in str(problems)


def test_all_samples_tell_of_a_swap_that_a_few_do_not() -> None:
    """Of a weak network with two classes swapped: 25 samples a class leave preflight silent, 100 a class do not."""
    draw = np.random.default_rng(4)
    names = tuple("abcdefghij")
    swapped = np.array([1, 0, *range(2, 10)])

    def answers(each: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        labels = np.repeat(np.arange(10), each)
        seen = np.where(draw.random(len(labels)) < 0.6, labels, draw.integers(0, 10, len(labels)))
        return labels, swapped[seen]

    labels, predicted = answers(100)
    (note,) = judgement.order_notes(labels, predicted, names)
    assert note.startswith(
        "2 classes predicted consistently as another: a as b, b as a; compare the model's class order"
    )
    unknown = np.where(np.arange(1000) % 7 == 0, -1, predicted)
    assert judgement.order_notes(labels, unknown, names) == [note], "what was not measured says nothing"
    assert judgement.order_notes(labels, swapped[predicted], names) == []
