"""Published figures are filled in where they hold, and never over what the fleet file declares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.audit.identity import with_published
from jobs.audit.judging.fleet_checks import references
from services.records import ModelSpec, ThreatModel
from tracking.mlflow.layout import threat_of, threat_text

URI = "robustbench:Engstrom2019Robustness?dataset=cifar10&threat_model=L2"


def test_robustbench_figures_on_robustbench_samples() -> None:
    spec = with_published(ModelSpec("m", URI), "robustbench:cifar10")
    assert spec.clean_accuracy == pytest.approx(0.9083, abs=1e-4)
    assert spec.robust_accuracy == pytest.approx(0.6924, abs=1e-4)
    assert spec.threat_model == ThreatModel("L2", 0.5)


def test_on_other_samples_only_the_ranking_is_filled_in() -> None:
    spec = with_published(ModelSpec("m", URI), "npz:mine.npz")
    assert spec.clean_accuracy is None
    assert spec.robust_accuracy == pytest.approx(0.6924, abs=1e-4)


def test_what_is_declared_stays() -> None:
    declared = ModelSpec("m", URI, clean_accuracy=0.5, robust_accuracy=0.25, threat_model=ThreatModel("L2", 1.0))
    assert with_published(declared, "robustbench:cifar10") == declared


def test_other_models_and_unknown_names_are_left_alone() -> None:
    for uri in ("timm:resnet18", "robustbench:NoSuchModel?dataset=cifar100&threat_model=Linf"):
        spec = ModelSpec("m", uri)
        assert with_published(spec, "robustbench:cifar10") == spec


def test_a_model_of_robustbenchs_corruption_board_has_that_threat_model() -> None:
    spec = ModelSpec("m", "robustbench:Hendrycks2020AugMix_ResNeXt?dataset=cifar10&threat_model=corruptions")
    known = with_published(spec, "robustbench:cifar10")
    assert known.threat_model == ThreatModel("corruptions") and known.robust_accuracy is not None
    assert threat_text(known.threat_model) == known.threat_model.words == "corruptions"
    assert threat_of("corruptions") == known.threat_model
    assert threat_of("Linf") is None
    linf = replace(spec, name="l", threat_model=ThreatModel("Linf", 8 / 255), robust_accuracy=0.5)
    assert references([known, known, linf]) == [known.robust_accuracy, known.robust_accuracy, None]
