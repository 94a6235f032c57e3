"""Outputs that are not logits: refused undeclared, accepted declared, however they were rounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit, softmax

from services.errors import SourceError
from services.loading.models.contract import as_logits
from services.loading.models.outputs import declared_output_problems, rounding_facts, undeclared_output
from services.loading.models.source import load_model
from services.numerics.rounding import explains_sums, rounding
from services.records import ModelSpec, Outputs

Rounded = Callable[[np.ndarray], np.ndarray]
FORMS: dict[str, Rounded] = {
    "2 decimals": lambda p: np.round(p, 2),
    "3 decimals": lambda p: np.round(p, 3),
    "float16": lambda p: p.astype(np.float16),
    "bfloat16": lambda p: torch.from_numpy(p.astype(np.float32)).bfloat16().float().numpy(),
    "255 steps (8 bits)": lambda p: np.round(p * 255) / 255,
    "127 steps (8 bits)": lambda p: np.round(p * 127) / 127,
}


def raw(count: int = 200, classes: int = 10, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, classes)) * 3


def spec(outputs: Outputs = "logits") -> ModelSpec:
    return ModelSpec("m", "x:y", outputs=outputs)


def refused(values: np.ndarray) -> str:
    return "\n".join(map(str, undeclared_output(spec(), values.astype(np.float32))))


@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("form", FORMS)
def test_rounded_probabilities_are_refused_and_declared_are_accepted(form: str, classes: int) -> None:
    values = FORMS[form](softmax(raw(classes=classes), axis=1)).astype(np.float32)
    assert "declare outputs: probabilities" in refused(values)
    assert declared_output_problems(spec("probabilities"), values) == []
    facts = rounding_facts("probabilities", values)
    assert facts["output_rounding"] == form
    assert ("attacks by gradient have nothing to follow" in facts["notes"][0]) == ("float" not in form)


def test_full_precision_is_no_rounding() -> None:
    values = softmax(raw(), axis=1).astype(np.float32)
    assert "rows in [0, 1] that sum to 1; declare outputs: probabilities" in refused(values)
    assert rounding(values) is None and rounding_facts("probabilities", values) == {}
    assert rounding_facts("logits", np.round(values, 2)) == {}


@pytest.mark.parametrize("decimals", [None, 2, 0])
def test_percentages(decimals: int | None) -> None:
    values = softmax(raw(), axis=1) * 100
    values = (values if decimals is None else np.round(values, decimals)).astype(np.float32)
    assert "declare outputs: percentages" in refused(values)
    if decimals is not None:
        steps = {2: "steps of 0.01", 0: "steps of 1"}[decimals]
        assert (f"rows in [0, 100], rounded to {steps}, that sum to 100" in refused(values)) is (decimals == 0)
        assert rounding_facts("percentages", values)["output_rounding"] == steps
    assert declared_output_problems(spec("percentages"), values) == []
    assert "declare outputs: percentages" in str(declared_output_problems(spec("probabilities"), values)[0])
    logits = as_logits(torch.from_numpy(values), "percentages")
    assert torch.allclose(logits, as_logits(torch.from_numpy(values / 100), "probabilities"), atol=1e-5)


@pytest.mark.parametrize("form", [None, *FORMS])
def test_sigmoids_are_refused_as_logits_and_as_probabilities(form: str | None) -> None:
    values = expit(raw())
    values = (values if form is None else FORMS[form](values)).astype(np.float32)
    assert "values in [0, 1]; declare outputs: sigmoid" in refused(values)
    assert "declare outputs: sigmoid" in str(declared_output_problems(spec("probabilities"), values)[0])
    assert declared_output_problems(spec("sigmoid"), values) == []
    assert "return logits" in refused(values * 100)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.round(softmax(raw(), axis=1) * 255), "rounded to 255 steps (8 bits), that sum to 255 but for the rounding"),
        (softmax(raw(), axis=1) * 0.9, "rows in [0, 0.9] that sum to 0.9"),
        (np.random.default_rng(0).multinomial(500, softmax(raw(), axis=1)), "rows in [0, 500] that sum to 500"),
    ],
)
def test_codes_votes_and_other_shares_of_a_whole_are_no_logits(values: np.ndarray, said: str) -> None:
    """8-bit codes of a quantised soft-max were taken for logits: every attack by gradient stood still, unseen."""
    message = refused(values)
    assert said in message and "declare outputs: probabilities" in message and "divide by" in message
    whole = float(values.sum(axis=1).mean())
    share = values / (255 if 200 < whole < 300 else whole)
    assert declared_output_problems(spec("probabilities"), share.astype(np.float32)) == []
    assert refused(np.abs(raw(4)) + 1) == "" and refused(np.array([[3.0, 4.0, 5.0]])) == "", "one row has one sum"


def test_small_numbers_of_a_network_that_guesses_are_not_taken_for_sigmoids() -> None:
    """Untrained networks were told to declare sigmoids; whether they end in one cannot be seen."""
    small = np.random.default_rng(1).random((200, 10)).astype(np.float32) * 0.1
    (problem,) = undeclared_output(spec(), small, guesses=True)
    assert "of a network that guesses; check weights and normalisation" in str(problem)
    assert str(problem).endswith("If it is trained, declare outputs: sigmoid, or return the logits")
    assert "rows in [0, 1] that sum to 1; declare" in str(
        undeclared_output(spec(), softmax(raw(), axis=1), guesses=True)[0]
    ), "a soft-max is one, trained or not"
    for constant in (np.zeros((20, 10)), np.full((20, 10), 0.5)):
        assert undeclared_output(spec(), constant.astype(np.float32), guesses=True) == [], "one class for all is said"


def test_probabilities_are_no_sigmoids() -> None:
    values = softmax(raw(), axis=1).astype(np.float32)
    assert "declare outputs: probabilities" in str(declared_output_problems(spec("sigmoid"), values)[0])
    assert "declare outputs: logits" in str(declared_output_problems(spec("sigmoid"), raw())[0])


def test_logits_are_left_alone() -> None:
    for values in (raw(), raw() * 100, raw() * 0.1, np.abs(raw()) + 0.5, np.abs(raw()) * 100):
        assert refused(values) == ""
    assert declared_output_problems(spec("logits"), softmax(raw(), axis=1)) == []


@given(st.integers(0, 10**6), st.floats(0.01, 3))
def test_logits_that_were_made_probabilities_come_back(seed: int, gain: float) -> None:
    """softmax inverts up to a constant, the sigmoid exactly; scipy is the oracle."""
    logits = raw(20, seed=seed) * gain
    mine = as_logits(torch.from_numpy(softmax(logits, axis=1)), "probabilities").numpy()
    np.testing.assert_allclose(
        mine - mine.max(axis=1, keepdims=True), logits - logits.max(axis=1, keepdims=True), atol=1e-6
    )
    values = expit(np.clip(logits, -15, 15))
    np.testing.assert_allclose(as_logits(torch.from_numpy(values), "sigmoid").numpy(), logit(values), atol=1e-6)


def test_saturated_sigmoids_are_finite_logits() -> None:
    logits = as_logits(torch.tensor([[0.0, 1.0, 0.5]]), "sigmoid")
    assert torch.isfinite(logits).all() and logits[0, 2] == 0.0
    assert logits[0, 1] == pytest.approx(16.6, abs=0.1) and logits[0, 0] == pytest.approx(-69, abs=0.1)


@given(st.integers(0, 10**6), st.integers(2, 300), st.sampled_from([2, 3]))
def test_rounding_always_explains_its_own_sums(seed: int, classes: int, decimals: int) -> None:
    values = np.round(softmax(raw(20, classes, seed), axis=1), decimals)
    assert explains_sums(values, rounding(values), 1e-6)


def test_rounding_does_not_explain_what_is_beyond_it() -> None:
    values = np.round(softmax(raw(), axis=1), 3)
    values[7, :5] += 0.002
    assert not explains_sums(values, rounding(values), 1e-3)


def table(tmp_path: Path, values: np.ndarray, outputs: Outputs) -> Any:
    np.savez(tmp_path / "z.npz", logits=values.astype(np.float32))
    return load_model(ModelSpec("m", f"logits:{tmp_path / 'z.npz'}", outputs=outputs))


@pytest.mark.parametrize("outputs", ["probabilities", "percentages", "sigmoid"])
def test_tables_of_scores_are_turned_into_logits_alike(tmp_path: Path, outputs: Outputs) -> None:
    values = expit(raw()) if outputs == "sigmoid" else softmax(raw(), axis=1)
    values = np.round(values * (100 if outputs == "percentages" else 1), 3)
    loaded = table(tmp_path, values, outputs)
    expected = as_logits(torch.from_numpy(values.astype(np.float32)), outputs).numpy()
    np.testing.assert_array_equal(loaded.logits(np.arange(len(values))), expected)
    assert loaded.facts["output_rounding"] == ("steps of 0.001" if outputs == "percentages" else "3 decimals")
    with pytest.raises(SourceError, match="declare outputs: logits"):
        table(tmp_path, raw(), outputs)
