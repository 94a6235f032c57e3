"""The fleet file: all mistakes at once, each with its line, and nothing heavy imported to find them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.fleetfile.reading import json_schema, load_fleet, validate_fleet
from jobs.training.sweepfile import load_sweep
from jobs.training.train_audit import load_template
from services.errors import ConfigError
from services.records import ThreatModel

EXAMPLES = Path(__file__).resolve().parents[3] / "deploy" / "examples"
GOOD = """
fleet: digits
models:
  - {name: a, uri: "factory:services.training.architectures:small_cnn?weights=a.safetensors"}
samples: {uri: "sklearn:digits"}
measures: [clean, great]
gates:
  - {measure: great, metric: wcr, at_least: 0.05}
"""


def faults(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_fleet(path)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


def test_a_good_file_becomes_a_fleet(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(GOOD)
    fleet = load_fleet(path)
    assert [model.name for model in fleet.config.model_specs()] == ["a"]
    assert sorted(fleet.series()) == ["clean", "great"]
    assert fleet.config.gates[0].at_least == 0.05


def test_all_mistakes_are_told_at_once_with_line_value_and_remedy(tmp_path: Path) -> None:
    problems = faults(
        tmp_path,
        """
fleet: my fleet
modelz: 3
models:
  - {name: a, uri: "factory:x:y", input: {mean: [0.5]}, clean_accuracy: 91}
  - {name: b, urii: "b"}
  - {name: c, uri: "torchscirpt:c.pt"}
samples: {uri: "imagefolders:foo", per_class: 0}
generated: {uri: "drawn:foo"}
measures: [clean, graet, {name: great, temperature: -1}]
resources: {gpus: many}
""",
    )
    text = "\n".join(problems)
    assert "fleet.yaml:2 fleet: expected" in text
    assert "fleet.yaml:3 modelz: expected no such field, found 'modelz'; did you mean 'models'?" in text
    assert "fleet.yaml:5 models[0].clean_accuracy: expected less than or equal to 1, found 91" in text
    assert "give mean and std together" in text
    assert "fleet.yaml:6 models[1].urii: expected no such field, found 'urii'; did you mean 'uri'?" in text
    assert "fleet.yaml:6 models[1].uri: expected this field, found nothing; add it" in text
    known = "models[2].uri: expected a known model scheme, found 'torchscirpt'; did you mean 'torchscript'?"
    assert f"fleet.yaml:7 {known}" in text
    known = "samples.uri: expected a known sample scheme, found 'imagefolders'; did you mean 'imagefolder'?"
    assert f"fleet.yaml:8 {known}" in text
    assert "fleet.yaml:8 samples.per_class" in text
    assert "fleet.yaml:9 generated.uri: expected a known sample scheme, found 'drawn'; choose one of: celeba," in text
    assert "fleet.yaml:10 measures[1]: expected a known measure, found 'graet'; did you mean 'great'?" in text
    assert "fleet.yaml:10 measures[2].temperature" in text
    assert "fleet.yaml:11 resources.gpus" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("gates: [{measure: grate, metric: wcr, at_least: 1}]", "found 'grate'; did you mean 'great'?"),
        ("gates: [{measure: great, metric: wrc, at_least: 1}]", "found 'wrc'; did you mean 'wcr'?"),
        ("gates: [{measure: clean, metric: eod, at_most: 1}]", "or 'classes', found 'eod'; did you mean 'eodd'?"),
        ("gates: [{measure: clean, metric: qqqq, at_most: 1}]", "or 'classes', found 'qqqq'"),
        ("gates: [{measure: great, metric: wcr}]", "exactly one of at_least, at_most, not_worse_than"),
        ("gates: [{measure: great, metric: wcr, not_worse_than: last}]", "set metric: aggregate"),
        ("gates: [{measure: great, metric: wcr, at_least: 1, grouping: sex}]", "expected class or one of groups"),
        ("measures: [great, {name: great}]", "expected each series once, found great again"),
        ("measures: []", "measures"),
        ("measures: [7]", "a measure's name, or a mapping with name"),
        ("seed: -1", "greater than or equal to 0"),
        ("tracking: {uri: 'http://me:secret@host'}", "MLFLOW_TRACKING_USERNAME"),
        ("temperature: {low: 5, high: 1}", "low must be below high"),
        ("resources: {workers: 0}", "resources.workers: expected auto or 1..1024"),
    ],
)
def test_each_mistake_says_what_is_allowed(tmp_path: Path, change: str, message: str) -> None:
    kept = [line for line in GOOD.splitlines() if not line.startswith(change.split(":")[0])]
    body = "\n".join(kept).replace("  - {measure: great, metric: wcr, at_least: 0.05}", "")
    assert message in "\n".join(faults(tmp_path, f"{body}\n{change}\n"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("measures: [{name: pgd, epsilons: [2]}]", "an Linf epsilon in [0, 1] pixel units, found 2; meant 2/255?"),
        ("measures: [{name: pgd, epsilons: [x]}]", "a number or a fraction like '8/255', found 'x'"),
        ("measures: [{name: pgd, epsilons: [.1, .1]}]", "epsilons that differ in five decimals, found [0.1, 0.1]"),
        ("gates: [{measure: great, metric: wcr}]", "give exactly one of at_least, at_most, not_worse_than, found none"),
        ("groups: [a*b*c]", "a column, or two different ones crossed such as class*sex, found a*b*c"),
    ],
)
def test_what_was_found_is_said_once(tmp_path: Path, change: str, said: str) -> None:
    kept = [line for line in GOOD.splitlines() if not line.startswith(change.split(":")[0])]
    body = "\n".join(kept).replace("  - {measure: great, metric: wcr, at_least: 0.05}", "")
    problem = next(line for line in faults(tmp_path, f"{body}\n{change}\n") if said in line)
    assert problem.endswith(f": expected {said}") and problem.count(", found ") == 1


def test_a_gate_on_refuted_claims_says_that_linf_distances_are_not_enough(tmp_path: Path) -> None:
    body = GOOD.replace("metric: wcr, at_least: 0.05", "metric: refuted, at_most: 0.1")
    (problem,) = faults(tmp_path, body.replace("[clean, great]", "[great, {name: minimal, norm: Linf}]"))
    assert "expected the measure minimal in L2 for metric refuted, found it in Linf alone; add" in problem


def test_a_measure_that_cannot_be_read_hides_no_other_mistake(tmp_path: Path) -> None:
    problems = faults(
        tmp_path,
        """
fleet: digits
models: [{name: a, uri: "timm:resnet18"}]
samples: {uri: "sklearn:digits"}
measures: [clean, grate, {name: pgd, steps: -1}]
groups: [sex]
gates:
  - {measure: claen, metric: aggregate, at_least: 0.9}
  - {measure: clean, metric: aggregate, at_least: 0.9, grouping: sexx}
  - {measure: clean, metric: dp, at_most: 0.1}
  - {measure: clean, metric: eod, at_most: 0.1, grouping: sex}
  - {measure: great-softmax, metric: refuted, at_most: 0.1}
  - {measure: clean, metric: wcr, at_least: 95}
""",
    )
    assert [line.partition(":")[2].split(" ", 2)[1].rstrip(":") for line in problems] == [
        "gates[3].metric",
        "measures[1]",
        "measures[2].steps",
        "gates[0].measure",
        "gates[1].grouping",
        "gates[2].grouping",
        "gates[5].at_least",
    ]
    assert problems[3].endswith("expected a series of this audit, found 'claen'; did you mean 'clean'?")
    assert problems[4].endswith("expected class or one of groups, found 'sexx'; did you mean 'sex'?")


def test_a_sweep_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    problems = faults(tmp_path, (EXAMPLES / "train_digits.yaml").read_text())
    assert problems == [
        f"fleet.yaml: expected a fleet file, found a sweep file; run classwise train {tmp_path / 'fleet.yaml'}"
    ]
    with pytest.raises(ConfigError, match="expected a sweep file, found a fleet file; run classwise audit"):
        load_sweep(EXAMPLES / "digits.yaml")
    with pytest.raises(ConfigError, match="expected a fleet file, found a sweep file; run classwise train"):
        load_template(EXAMPLES / "train_digits.yaml")


def test_an_epsilon_of_8_is_asked_about(tmp_path: Path) -> None:
    problems = faults(tmp_path, GOOD.replace('safetensors"', 'safetensors", threat_model: {norm: Linf, epsilon: 8}'))
    assert "8 was meant as 8/255 = 0.03137?" in problems[0]


@pytest.mark.parametrize("tags", ["{Method: pgd}", "{method: ''}", "{method: [pgd]}", "tagged"])
def test_tags_are_short_texts_by_plain_keys(tmp_path: Path, tags: str) -> None:
    problems = faults(tmp_path, GOOD.replace('safetensors"', f'safetensors", tags: {tags}'))
    assert any("tags" in line for line in problems)


def test_two_models_of_one_name(tmp_path: Path) -> None:
    twice = GOOD.replace("samples:", '  - {name: a, uri: "timm:resnet18"}\nsamples:')
    assert "model names must be unique; twice: a" in faults(tmp_path, twice)[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        ("- 1\n- 2\n", "expected a mapping with fleet, models and samples, found list"),
        ("fleet: [a\n", "expected valid YAML"),
        ("fleet: a\nfleet: b\n", "expected each key once, found 'fleet' again (first on line 1)"),
        ("fleet: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        ("a: &a [*a]\n", "levels deep"),
        ("fleet: \x00\n", "expected valid YAML"),
    ],
)
def test_files_that_are_not_fleets(tmp_path: Path, text: str, message: str) -> None:
    assert message in "\n".join(faults(tmp_path, text))


@pytest.mark.parametrize(
    ("threat", "message"),
    [
        ("{norm: corruptions}", ""),
        ("{norm: corruptions, epsilon: 0.1}", "no epsilon beside corruptions"),
        ("{norm: L2}", "an epsilon above 0 beside L2"),
        ("{norm: L2, epsilon: 0}", "an epsilon above 0 beside L2"),
    ],
)
def test_a_radius_belongs_to_a_norm_and_corruptions_have_none(tmp_path: Path, threat: str, message: str) -> None:
    text = GOOD.replace('safetensors"', f'safetensors", threat_model: {threat}')
    if message:
        assert message in faults(tmp_path, text)[0]
    else:
        (tmp_path / "fleet.yaml").write_text(text)
        assert load_fleet(tmp_path / "fleet.yaml").config.model_specs()[0].threat_model == ThreatModel("corruptions")


def test_a_document_of_too_many_values_is_read_no_further(tmp_path: Path) -> None:
    """Its brackets are never closed, which a reader that went to the end would say instead."""
    assert "expected at most 50,000 values, found a document of more" in faults(tmp_path, "a: [" + "b," * 60_000)[0]
    assert "expected valid YAML" in faults(tmp_path, "a: [" + "b," * 40_000)[0]


def test_a_document_that_expands_is_refused_quickly(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "a document that expands to more" in faults(tmp_path, "\n".join(lines))[0]


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; see deploy/examples/"):
        load_fleet(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(ConfigError, match="expected a readable UTF-8 file"):
        load_fleet(tmp_path / "b.yaml")
    with pytest.raises(ConfigError, match="expected a readable UTF-8 file"):
        load_fleet(tmp_path)


def test_the_schema_knows_every_measure_and_field() -> None:
    schema = json_schema()
    names = [part["properties"]["name"]["const"] for part in schema["properties"]["measures"]["items"]["anyOf"][1:]]
    assert {"clean", "great"} <= set(names)
    assert {"fleet", "models", "samples", "gates", "resources"} <= set(schema["properties"])


def test_validation_imports_neither_torch_nor_ray_nor_mlflow(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(GOOD)
    code = (
        "import sys; from jobs.fleetfile.reading import load_fleet; load_fleet(sys.argv[1]);"
        "print([m for m in ('torch', 'ray', 'mlflow', 'matplotlib') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "f.yaml")], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(
    JSONISH, st.sampled_from(["models", "samples", "measures", "gates", "resources", "temperature", "input", "groups"])
)
def test_any_value_anywhere_ends_in_a_config_error_or_a_fleet(value: Any, field: str) -> None:
    data = {
        "fleet": "f",
        "models": [{"name": "a", "uri": "timm:resnet18"}],
        "samples": {"uri": "sklearn:digits"},
        field: value,
    }
    try:
        fleet = validate_fleet(data)
    except ConfigError as error:
        assert all(str(problem) for problem in error.problems)
    else:
        assert fleet.measures
