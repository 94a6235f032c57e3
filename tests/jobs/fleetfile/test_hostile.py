"""The careless and the hostile user: one message, the right exit code, JSON that stays JSON, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from typer.testing import CliRunner, Result

from jobs.audit.audit import run_audit, validate_sources
from jobs.cli import app
from jobs.fleetfile.reading import load_fleet, validate_fleet
from jobs.terminal import console
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError, ConfigError, SourceError, StorageError
from services.records import Outcome
from services.training.architectures import small_cnn


class Talker(nn.Module):
    """Prints on every pass."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        sys.stdout.write("a network that talks\n")
        logits: torch.Tensor = self.network(images)
        return logits


class Quitter(nn.Module):
    """Ends the process with the exit code of a passed audit."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        sys.exit(0)


def talker(width: int = 8) -> nn.Module:
    return Talker(small_cnn(width=width))


def quitter() -> nn.Module:
    return Quitter()


def run(data: dict[str, Any], tmp_path: Path, *options: str) -> Result:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(data))
    return CliRunner().invoke(app, ["audit", str(path), "--json", *options])


def with_factory(fleet: dict[str, Any], uri: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return {**fleet, "models": [{"name": "m", "uri": uri}], "factories": ["test_hostile"]}


def test_a_network_that_prints_leaves_standard_output_to_the_result(
    digits_fleet: dict[str, Any], digit_weights: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = torch.load(_talking_weights(digit_weights["good"], tmp_path), weights_only=True)
    assert state
    data = with_factory(digits_fleet, f"factory:test_hostile:talker?weights={tmp_path / 'talker.pt'}", monkeypatch)
    process = run(data, tmp_path)
    assert process.exit_code == 0
    assert json.loads(process.stdout)["outcome"] == "pass"
    assert "a network that talks" in process.stderr


def _talking_weights(path: str, folder: Path) -> Path:
    from services.training.epochs.checkpoints import load_weights

    torch.save({f"network.{key}": value for key, value in load_weights(path).items()}, folder / "talker.pt")
    return folder / "talker.pt"


def test_a_network_that_exits_with_0_does_not_pass(
    digits_fleet: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = run(with_factory(digits_fleet, "factory:test_hostile:quitter", monkeypatch), tmp_path)
    assert process.exit_code == 2
    problem = json.loads(process.stdout)["problems"][0]
    assert problem["found"].startswith("SystemExit: 0 (test_hostile.py:")


def test_an_unforeseen_error_is_no_failed_gate(capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    with pytest.raises(typer.Exit) as caught, console.exits(json=True):
        raise ZeroDivisionError("by nothing")
    assert caught.value.exit_code == Outcome.ERROR.exit_code
    out, err = capsys.readouterr()
    assert json.loads(out)["problems"][0]["found"] == "ZeroDivisionError: by nothing"
    assert "Traceback" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_is_an_error_and_no_failed_gate() -> None:
    command = [sys.executable, "-m", "jobs.cli", "schema"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "standard output: expected a stream that can be written" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("storage", ["{tmp}/file", "{tmp}/file/below", "nonsense://bucket"])
def test_storage_that_cannot_be_written_is_named_before_any_work(
    digits_fleet: dict[str, Any], tmp_path: Path, storage: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    fleet = validate_fleet({**digits_fleet, "storage": storage.format(tmp=tmp_path)})

    def never() -> Any:
        raise AssertionError("a runner was started")

    with pytest.raises(StorageError) as caught:
        run_audit(fleet, Quiet(), runner=never)
    assert [problem.where for problem in caught.value.problems] == ["storage"]


def test_validate_knows_a_storage_no_library_opens(digits_fleet: dict[str, Any]) -> None:
    with pytest.raises(StorageError, match="nonsense"):
        validate_sources(validate_fleet({**digits_fleet, "storage": "nonsense://bucket"}))


def test_samples_and_models_at_fault_are_told_together(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"][0]["uri"] += ".none"
    digits_fleet["models"][1]["uri"] = "facktory:m:f"
    with pytest.raises(ConfigError, match="did you mean 'factory'"):
        validate_fleet(digits_fleet)
    digits_fleet["models"][1]["uri"] = "torchscript:gone.pt"
    digits_fleet["samples"] = {"uri": "npz:none.npz"}
    for job in (run_audit, lambda fleet, reporter: validate_sources(fleet)):
        with pytest.raises(SourceError) as caught:
            job(validate_fleet(digits_fleet), Quiet())
        messages = [str(problem) for problem in caught.value.problems]
        assert len(messages) == 3
        assert "npz:none.npz: expected a file" in messages[0]
        assert ".none" in messages[1] and "found nothing there" in messages[1]
        assert "gone.pt" in messages[2] and "found nothing there" in messages[2]


def test_a_gpu_asked_for_in_process_and_not_there_is_told(digits_fleet: dict[str, Any]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    digits_fleet["resources"] |= {"runner": "local", "gpus": 1}
    with pytest.raises(ClasswiseError, match=r"resources.gpus: expected a visible GPU, found none; set gpus: 0 or"):
        run_audit(validate_fleet(digits_fleet), Quiet())


def test_torn_preflight_facts_are_found_anew(digits_fleet: dict[str, Any]) -> None:
    fleet = validate_fleet(digits_fleet)
    run_audit(fleet, Quiet())
    for path in (Path(digits_fleet["storage"]) / "cache" / "preflight").rglob("*.json"):
        path.write_bytes(path.read_bytes()[:20])
    again = run_audit(fleet, Quiet()).result
    assert again.outcome is Outcome.PASS
    assert all(model.facts["probe"] == 256 for model in again.models)


def test_json_says_how_to_tell_mlflow_later(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    digits_fleet["models"] = digits_fleet["models"][:1]
    process = run({**digits_fleet, "tracking": {"uri": "nonsense://server"}}, tmp_path)
    assert process.exit_code == 0
    body = json.loads(process.stdout)
    assert f"later    classwise sync {body['folder']}" in body["look"]


# --- the fleet file ----------------------------------------------------------------------------------------------


def faults(data: dict[str, Any], **changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        validate_fleet({**data, **changes})
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "changes",
    [
        {"fp_lambda": float("inf")},
        {"input": {"range": [0.0, float("nan")]}},
        {"input": {"mean": [float("nan")], "std": [1.0]}},
        {"gates": [{"measure": "clean", "metric": "wcr", "at_least": float("nan")}]},
        {"resources": {"wait_seconds": float("inf")}},
        {"intervals": {"delta": float("nan")}},
    ],
)
def test_nan_and_infinity_are_no_numbers(digits_fleet: dict[str, Any], changes: dict[str, Any]) -> None:
    assert "a finite number" in " ".join(faults(digits_fleet, **changes))


@pytest.mark.parametrize("name", ["a\nb", "abc\u202egnp.exe", "good\u200b", "  ", "good "])
def test_names_are_what_they_look_like(digits_fleet: dict[str, Any], name: str) -> None:
    digits_fleet["models"][0]["name"] = name
    text = faults(digits_fleet)
    assert len(text) == 1
    assert "models[0].name" in text[0]


@pytest.mark.parametrize("name", ["模型 🐱", "👩\u200d💻", "<b>&amp;</b>", "../../etc/passwd", "a,b'c(d)"])
def test_any_other_name_will_do(digits_fleet: dict[str, Any], name: str) -> None:
    digits_fleet["models"][0]["name"] = name
    assert validate_fleet(digits_fleet).config.models[0].name == name


def test_two_spellings_of_one_name_are_one_name(digits_fleet: dict[str, Any]) -> None:
    digits_fleet["models"][0]["name"], digits_fleet["models"][1]["name"] = "\u00e9", "e\u0301"
    assert "must be unique" in faults(digits_fleet)[0]


@pytest.mark.parametrize("changes", [{"seed": True}, {"resources": {"workers": True}}, {"resources": {"gpus": True}}])
def test_yes_is_no_number(digits_fleet: dict[str, Any], changes: dict[str, Any]) -> None:
    assert "true or false" in faults(digits_fleet, **changes)[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resources": {"gpus": 1.5}}, "a share up to 1, or a whole number"),
        ({"groups": ["ink", "ink"]}, "each column once"),
        ({"groups": ["class"]}, "by class is always profiled"),
        ({"input": {"size": [0, -4]}}, "greater than or equal to 1"),
        ({"gates": [{"measure": "clean", "metric": "wcr", "at_least": 95}]}, "a threshold in [0, 1]"),
        ({"gates": [{"measure": "clean", "metric": "rdi", "at_most": -1}]}, "a threshold in [0, 1]"),
        ({"groups": "ink"}, "a list"),
        ({"samples": []}, "a mapping of fields to values"),
    ],
)
def test_impossible_values(digits_fleet: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    assert words in " ".join(faults(digits_fleet, **changes))


@pytest.mark.parametrize("value", ["2001-99-99", "9" * 5000])
def test_yaml_values_that_python_cannot_hold(tmp_path: Path, value: str) -> None:
    (tmp_path / "fleet.yaml").write_text(f"fleet: d\nseed: {value}\n")
    with pytest.raises(ConfigError, match="values that YAML can read"):
        load_fleet(tmp_path / "fleet.yaml")


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(
        "fleet: d\nsamples: {uri: 'sklearn:digits'}\nmodels:\n"
        "  - &first {name: a, uri: 'factory:m:f', input: &input {range: [0, 2]}}\n"
        "  - {<<: *first, name: b}\n  - {<<: [*first], name: c, input: *input}\n"
    )
    models = load_fleet(tmp_path / "fleet.yaml").config.models
    assert [(model.name, model.input and model.input.range) for model in models] == [(n, (0.0, 2.0)) for n in "abc"]


def test_a_group_column_of_another_length_is_told(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    images = np.zeros((20, 8, 8), np.uint8)
    np.savez(tmp_path / "d.npz", images=images, labels=np.arange(20) % 10, ink=np.zeros(4))
    data = {**digits_fleet, "samples": {"uri": f"npz:{tmp_path / 'd.npz'}"}, "groups": ["ink"]}
    with pytest.raises(ClasswiseError, match="a column of 20 values, found 'ink' of shape"):
        run_audit(validate_fleet(data), Quiet())
