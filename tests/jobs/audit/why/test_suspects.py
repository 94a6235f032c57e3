"""Suspect labels: cleanlab over the fleet's probabilities, where it is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from jobs.audit.audit import Finished, run_audit
from jobs.audit.why.suspects import find_suspects
from jobs.cli import app
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError, StorageError
from services.loading.samples.source import open_samples
from services.records import SampleSpec

WRONG = (7, 40, 81)
needs_cleanlab = pytest.mark.skipif(
    find_spec("cleanlab") is None, reason="the extra suspects (cleanlab) is not installed"
)


@pytest.fixture
def done(digits_fleet: dict[str, Any], tmp_path: Path) -> Finished:
    """An audit of a set with three wrong labels."""
    source = open_samples(SampleSpec("sklearn:digits?split=test", per_class=30))
    labels = source.labels.copy()
    labels[list(WRONG)] = (labels[list(WRONG)] + 5) % 10
    images = (source.images(0, len(source)) * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    np.savez(tmp_path / "s.npz", images=images, labels=labels)
    models = [model for model in digits_fleet["models"] if model["name"] != "weak"]
    return run_audit(
        validate_fleet({**digits_fleet, "models": models, "samples": {"uri": f"npz:{tmp_path / 's.npz'}"}}), Quiet()
    )


@needs_cleanlab
def test_wrong_labels_head_the_list_and_both_accuracies_are_labelled(done: Finished) -> None:
    found = find_suspects(done.folder)
    assert set(WRONG) <= set(found.columns["id"][:6].tolist())
    assert (np.diff(found.columns["plausibility"]) >= 0).all()
    good = found.metrics[0]
    assert good.model == "good" and good.without > good.all_samples and good.worst_without >= good.worst_all
    shown = CliRunner().invoke(app, ["suspects", done.folder]).stdout
    assert "no interval holds" in shown and f"{good.all_samples:.4f} all, {good.without:.4f} without" in shown


@needs_cleanlab
def test_logits_that_are_gone_are_an_error_with_the_remedy(done: Finished, digits_fleet: dict[str, Any]) -> None:
    for shard in Path(digits_fleet["storage"]).glob("cache/logits/*/*/*.parquet"):
        shard.unlink()
    with pytest.raises(StorageError, match="run the audit again"):
        find_suspects(done.folder)


def test_without_cleanlab_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    monkeypatch.setitem(sys.modules, "cleanlab", None)
    with pytest.raises(ConfigError, match=r"expected the package cleanlab.*pip install .classwise\[suspects\]"):
        find_suspects("anything")
