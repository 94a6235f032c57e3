"""Audits under common corruptions: accuracies by corruption, severity and class, mCE, what gates may say of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from jobs.audit.audit import Finished, run_audit, validate_sources
from jobs.audit.judging.fleet_checks import by_class
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ConfigError, MeasureError, SourceError
from services.loading.samples.source import open_samples
from services.measures.catalogue import measure_from
from services.measures.corrupting.corrupt import corrupted
from services.measures.corruptions import Corruptions
from services.measures.measure import RunContext
from services.numerics.corruption_error import corruption_errors
from services.records import Evidence, Outcome, SampleSpec
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import load_weights
from tracking.bundle.bundle import read_bundle

NAMES = ["gaussian_noise", "fog", "contrast"]
ASKED = {"name": "corruptions", "names": NAMES, "severities": [1, 5], "parameters": "imagenet", "reference": "good"}


def audit(data: dict[str, Any]) -> Finished:
    return run_audit(validate_fleet(data), Quiet())


@pytest.fixture
def fleet(digits_fleet: dict[str, Any]) -> dict[str, Any]:
    samples = {"uri": "sklearn:digits?split=test", "limit": 120}
    return {**digits_fleet, "samples": samples, "measures": ["clean", ASKED]}


def test_the_numbers_are_those_of_a_plain_loop(fleet: dict[str, Any], digit_weights: dict[str, str]) -> None:
    gates = [
        {"measure": "corruptions", "metric": "aggregate", "at_least": 0.01},
        {"measure": "corruptions/fog", "metric": "wcr", "at_least": 0.99},
    ]
    finished = audit({**fleet, "gates": gates})
    samples = open_samples(SampleSpec("sklearn:digits?split=test", limit=120))
    pixels = np.rint(samples.images(0, 120) * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    errors, clean = {}, {}
    for model in finished.result.models:
        network = small_cnn(width=8)
        network.load_state_dict(load_weights(digit_weights[model.spec.name]))
        right = {}
        for name in NAMES:
            for severity in (1, 5):
                made = [
                    corrupted(
                        name, pixels[i : i + 1], samples.ids[i : i + 1], severity=severity, table="imagenet", seed=0
                    )
                    for i in range(120)
                ]
                shown = torch.from_numpy(np.concatenate(made)).permute(0, 3, 1, 2).float() / 255
                with torch.inference_mode():
                    right[name, severity] = network.eval()(shown).argmax(1).numpy() == samples.labels
        for name in NAMES:
            result = by_class(model, f"corruptions/{name}")
            assert result is not None and result.series.evidence is Evidence.OUTCOME
            both = (right[name, 1].astype(float) + right[name, 5]) / 2
            expected = [both[samples.labels == k].mean() for k in range(10)]
            np.testing.assert_allclose([row.score.value for row in result.groups], expected, atol=1e-9)
        whole = by_class(model, "corruptions")
        assert whole is not None
        assert whole.aggregate.value == pytest.approx(np.mean([*right.values()]))
        assert whole.extras["fog/5"] == pytest.approx(right["fog", 5].mean())
        clean[model.spec.name] = 1 - whole.extras["correct"]
        errors[model.spec.name] = [1 - (right[name, 1].mean() + right[name, 5].mean()) / 2 for name in NAMES]
        assert model.gates[0].outcome is Outcome.PASS and "withstood" not in model.gates[0].reason
        assert model.gates[1].outcome is not Outcome.PASS
    checks = read_bundle(finished.folder).checks["mce"]
    assert checks["reference"] == "good" and checks["corruptions"] == NAMES
    for name, mine in errors.items():
        ratios = np.array(mine) / np.array(errors["good"])
        assert checks["models"][name]["mce"] == pytest.approx(ratios.mean())
        more = (np.array(mine) - clean[name]) / (np.array(errors["good"]) - clean["good"])
        assert checks["models"][name]["relative_mce"] == pytest.approx(more.mean())
    assert checks["models"]["good"] == {"mce": 1.0, "relative_mce": pytest.approx(1.0), "reasons": []}
    notes = " ".join(finished.result.notes)
    assert re.search(r"mCE \(relative mCE\) over 3 corruptions against good: good 1\.000 \(1\.000\), weak \d", notes)
    assert re.search(r"weak: over all corruptions class \d under (fog|contrast|gaussian noise) is the weakest", notes)


def test_the_reference_changes_no_cached_number(fleet: dict[str, Any]) -> None:
    audit(fleet)
    again = audit({**fleet, "measures": ["clean", {**ASKED, "reference": "weak"}]})
    assert [model.forwards for model in again.result.models] == [0, 0, 0]
    assert again.result.checks["mce"]["models"]["weak"]["mce"] == 1.0
    one, other = Corruptions(names=("fog",)), Corruptions(names=("fog",), reference="a")
    assert measure_from(other.canonical()) == one and one.definition() == other.definition()


def test_ratios_without_a_denominator_are_undefined_with_a_reason() -> None:
    found = corruption_errors([0.2, 0.4], 0.1, [0.0, 0.2], 0.1)
    assert (found.mce, found.relative) == (None, None)
    assert found.reasons == (
        "the reference makes no errors under 1 corruptions",
        "1 corruptions cost the reference no accuracy",
    )
    assert corruption_errors([0.2, 0.4], 0.1, [0.4, 0.2], 0.1).mce == pytest.approx((0.5 + 2) / 2)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"names": ["gaussian"]}, r"names"),
        ({"names": ["fog", "fog"]}, r"expected each once, found fog, fog"),
        ({"severities": [0, 6]}, r"severities"),
        ({"names": [], "severities": []}, r"names"),
        (
            {"reference": "goood"},
            r"a model of the fleet as corruptions.reference, found 'goood'; did you mean",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(fleet: dict[str, Any], asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        validate_fleet({**fleet, "measures": ["clean", {"name": "corruptions", **asked}]})


def test_frost_without_photographs_is_refused_by_validate(
    fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.measures.corrupting.frost_photos.PACKAGE", "no-such-package")
    with pytest.raises(SourceError, match=r"install classwise\[corruptions\], or list names without frost"):
        validate_sources(validate_fleet({**fleet, "measures": ["clean", "corruptions"]}))


def test_groups_of_names() -> None:
    common, whole = Corruptions.model_validate({"names": "common"}), Corruptions.model_validate({"names": "all"})
    assert (len(common.names), len(whole.names)) == (15, 19)
    assert common.most_passes == 76 and len(common.series()) == 16
    assert [series.binary for series in Corruptions(names=("fog",), severities=(3,)).series()] == [True, True]


# --- ready-made images --------------------------------------------------------------------------------------------


@pytest.fixture
def cifar_c(tmp_path: Path) -> Path:
    """Two corruptions of four images in RobustBench's layout: a pixel says what is what."""
    folder = tmp_path / "data" / "CIFAR-10-C"
    folder.mkdir(parents=True)
    labels = np.array([3, 1, 0, 3], dtype=np.uint8)
    np.save(folder / "labels.npy", np.tile(labels, 5))
    for k, name in enumerate(("fog", "snow")):
        pixels = np.zeros((20, 32, 32, 3), dtype=np.uint8)
        pixels[:, 0, 0, 0], pixels[:, 0, 0, 1], pixels[:, 0, 0, 2] = k, np.repeat(np.arange(5), 4), np.tile(range(4), 5)
        np.save(folder / f"{name}.npy", pixels)
    return tmp_path / "data"


def test_ready_made_images_keep_their_place(cifar_c: Path) -> None:
    uri = f"robustbench:cifar10-c?data_dir={cifar_c}&severities=2,5&n=3"
    samples = open_samples(SampleSpec(uri, groups=("corruption", "severity"), cluster="image"))
    assert len(samples) == 12 and samples.classes[3] == "cat"
    marks = np.rint(samples.images(0, 12)[:, :, 0, 0] * 255).astype(int)
    for row, (k, level, image) in enumerate(marks.tolist()):
        assert samples.groups["corruption"][row] == ("fog", "snow")[k]
        assert samples.groups["severity"][row] == str(level + 1)
        assert samples.labels[row] == [3, 1, 0, 3][image]
    assert samples.clusters is not None and len(set(samples.clusters.tolist())) == 3
    one = open_samples(SampleSpec(f"robustbench:cifar10-c?data_dir={cifar_c}&names=snow"))
    assert len(one) == 4 and one.digest != samples.digest


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("names=frog", r"expected frog.npy in .*CIFAR-10-C, found no such file; did you mean 'fog'"),
        ("severities=6", r"different severities from 1 to 5"),
        ("n=5", r"labels of 5 severities, at least 5 images each"),
        ("n=0", r"labels of 5 severities"),
    ],
)
def test_wrong_options_are_refused(cifar_c: Path, options: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        open_samples(SampleSpec(f"robustbench:cifar10-c?data_dir={cifar_c}&{options}"))


def test_wrong_files_are_refused(cifar_c: Path) -> None:
    uri = f"robustbench:cifar10-c?data_dir={cifar_c}"
    np.save(cifar_c / "CIFAR-10-C" / "fog.npy", np.zeros((7, 32, 32, 3), dtype=np.uint8))
    with pytest.raises(SourceError, match=r"\(fog\): expected 20 images, found 7"):
        open_samples(SampleSpec(uri))
    (cifar_c / "CIFAR-10-C" / "fog.npy").write_bytes(b"<html>")
    with pytest.raises(SourceError, match=r"an array of NumPy in fog.npy"):
        open_samples(SampleSpec(uri))
    with pytest.raises(SourceError, match=r"a folder at .*CIFAR-100-C"):
        open_samples(SampleSpec(f"robustbench:cifar100-c?data_dir={cifar_c}"))


def test_the_example_of_the_docs(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[4] / "docs" / "measures.md").read_text()
    section = text.split("\n## corruptions\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```yaml\n(.*?)^```", section, re.M | re.S)
    data = {**digits_fleet, **yaml.safe_load(block), "samples": {"uri": "sklearn:digits?split=test", "limit": 40}}
    finished = audit(data)
    assert {model.outcome for model in finished.result.models} <= {Outcome.PASS, Outcome.FAIL, Outcome.UNDECIDED}
    assert json.loads((Path(finished.folder) / "bundle.json").read_text())["checks"]["mce"]["reference"] == "good"


def test_images_too_small_are_refused() -> None:
    context = RunContext("cpu", (), lambda: torch.zeros(2, 1, 4, 4))
    with pytest.raises(MeasureError, match=r"grey or RGB images of at least 8 x 8, found 1 x 4 x 4"):
        Corruptions(names=("fog",)).scorer(context)
