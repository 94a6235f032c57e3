"""Audits from Python: of objects in memory and of fleets as data; the numbers are those of any other audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import classwise
import numpy as np
import pytest
import torch
import yaml
from sklearn.datasets import load_digits
from torch import nn

from services.errors import ConfigError, SourceError

NAMES = [f"digit {k}" for k in range(10)]
IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = (IMAGES / 16).reshape(-1, 1, 8, 8).astype(np.float32)[:400]
LABELS = LABELS[:400].astype(np.int64)
PGD = {"name": "pgd", "steps": 2, "epsilons": [0.05]}


def trained(epochs: int = 60) -> nn.Module:
    """A linear network that has learned the images it is asked about."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    optimiser = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(epochs):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(torch.from_numpy(IMAGES)), torch.from_numpy(LABELS)).backward()
        optimiser.step()
    return network


def audit(network: Any, place: Path, **more: Any) -> classwise.Found:
    return classwise.audit(network, IMAGES, LABELS, classes=NAMES, storage=str(place), progress=False, **more)


def test_a_network_and_arrays_in_memory_are_audited(tmp_path: Path) -> None:
    network = trained()
    gates = [{"measure": "clean", "metric": "aggregate", "at_least": 0.8}]
    found = audit(network, tmp_path, measures=["clean", PGD], gates=gates)
    with torch.no_grad():
        right = (network(torch.from_numpy(IMAGES)).argmax(1).numpy() == LABELS).astype(float)
    frame = found.df()
    clean = frame[frame.series == "clean"].set_index("group").score
    expected = {f"digit {k}": right[k == LABELS].mean() for k in range(10)}
    assert clean.to_dict() == pytest.approx(expected, abs=1e-12)
    assert found.verdict == "pass" and found.verdicts == {"model": "pass"}
    assert found.gates().outcome.tolist() == ["pass"]
    metrics = found.metrics().query("series == 'clean' and grouping == 'class'").set_index("metric").value
    assert metrics["wcr"] == pytest.approx(min(expected.values()))
    assert metrics["rdi"] == pytest.approx(max(expected.values()) - min(expected.values()))
    assert metrics["aggregate"] == pytest.approx(right.mean()) and "nrgc" in metrics
    samples = found.samples()
    assert len(samples) == 400 and samples["clean"].mean() == pytest.approx(right.mean())
    assert Path(found.report).is_file() and "model" in str(found) and "<pre>" in found._repr_html_()
    assert network.training and all(parameter.requires_grad for parameter in network.parameters()), "left as it was"


def test_figures_are_drawn_when_they_are_taken(tmp_path: Path) -> None:
    found = audit({"one": trained(20), "two": trained()}, tmp_path)
    assert "heatmap clean" in found.figures and len(list(found.figures)) == len(found.figures)
    figure = found.figures["heatmap clean"]
    assert figure.layout.title.text.startswith("clean accuracy")
    assert sorted(map(len, (figure.data[0].z, figure.data[0].z[0]))) == [2, 10]
    with pytest.raises(KeyError, match="expected one of heatmap clean"):
        found.figures["heatmop"]


def test_the_same_call_again_measures_nothing(tmp_path: Path) -> None:
    network, threads = trained(), torch.get_num_threads()
    first, again = audit(network, tmp_path), audit(trained(), tmp_path)
    assert torch.get_num_threads() == threads
    assert [model.forwards for model in first.result.models] != [0] == [model.forwards for model in again.result.models]


class Scaled(nn.Module):
    """Logits times a number that no state dict holds."""

    def __init__(self, network: nn.Module, by: float) -> None:
        super().__init__()
        self.network, self.by = network, by

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.by * self.network(images)


def test_another_attribute_is_another_network(tmp_path: Path) -> None:
    """Its weights are the same, its answers are not: the first one's must not be taken for them."""
    network = trained()
    plain, turned = (audit(Scaled(network, by), tmp_path) for by in (1.0, -1.0))
    assert plain.samples()["clean"].mean() > 0.9 > 0.5 > turned.samples()["clean"].mean()


def test_what_cannot_be_read_is_measured_anew(tmp_path: Path) -> None:
    network = trained()
    network.register_forward_hook(lambda module, args, output: -output)
    plain, hooked = audit(trained(), tmp_path), audit(network, tmp_path)
    assert plain.samples()["clean"].mean() > 0.9 > 0.5 > hooked.samples()["clean"].mean()
    assert [model.forwards for model in audit(network, tmp_path).result.models] != [0]


def test_a_fleet_is_a_mapping_text_or_a_file(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    text = yaml.safe_dump(digits_fleet)
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    first = classwise.run(digits_fleet, progress=False)
    for other in (text, path, str(path)):
        assert classwise.run(other, progress=False).verdicts == first.verdicts
    assert classwise.read(first.folder).result == first.result


def test_a_network_stands_for_a_model_of_a_fleet(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"].append({"name": "mine"})
    found = classwise.run(digits_fleet, models={"mine": trained()}, progress=False)
    assert [model.spec.name for model in found.result.models][-1] == "mine"
    with pytest.raises(ConfigError, match="names of models in the fleet, found unknown"):
        classwise.run(digits_fleet, models={"unknown": trained()}, progress=False)
    digits_fleet["resources"] = {"runner": "ray"}
    with pytest.raises(ConfigError, match="local, for networks in memory, found ray"):
        classwise.run(digits_fleet, models={"mine": trained()}, progress=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": lambda images: images}, "a torch.nn.Module, found function"),
        ({"images": IMAGES[:, 0]}, r"shape \(N, C, H, W\) or \(N, H, W, C\), found shape"),
        ({"labels": LABELS[:7]}, r"shape \(400,\), one an image, found shape \(7,\)"),
        ({"images": IMAGES * 16}, r"floating numbers in \[0, 1\], found 0 to 16; undo the normalisation"),
        ({"images": [[1], [1, 2]]}, "make all rows of one shape"),
        ({"images": np.array([[[["a"]]]], dtype=object)}, "an array of numbers or names"),
        ({"groups": {"labels": LABELS}}, "a name other than images, labels and classes"),
        ({"storage": "memory://place"}, "a folder of this machine"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    given = {"model": trained(1), "images": IMAGES, "labels": LABELS, "storage": str(tmp_path), "progress": False}
    with pytest.raises((SourceError, ConfigError), match=words):
        classwise.audit(**{**given, **change})


def test_tensors_and_groups(tmp_path: Path) -> None:
    half = np.where(np.arange(400) < 200, "first", "second")
    images, labels = torch.from_numpy(IMAGES), torch.from_numpy(LABELS)
    found = classwise.audit(trained(), images, labels, groups={"half": half}, storage=str(tmp_path), progress=False)
    assert set(found.df().query("grouping == 'half'").group) == {"first", "second"}
    with pytest.raises(ConfigError, match="did you mean 'model'"):
        found.samples("modle")


def test_the_audit_of_another_process_does_not_know_the_network(tmp_path: Path) -> None:
    fleet = {"fleet": "f", "models": [{"name": "m", "uri": "memory:0123"}], "samples": {"uri": "sklearn:digits"}}
    with pytest.raises(SourceError, match="a network that this process holds, found none"):
        classwise.run({**fleet, "storage": str(tmp_path), "resources": {"runner": "local"}}, progress=False)
