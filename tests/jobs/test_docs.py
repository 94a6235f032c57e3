"""The documentation names every field, scheme, measure and extension point there is."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from jobs.fleetfile.reading import json_schema, load_fleet, validate_fleet
from jobs.fleetfile.yamlfile import has_key
from jobs.training.sweepfile import load_sweep, sweep_schema, validate_sweep
from jobs.training.train_audit import load_template
from services.errors import ConfigError
from services.loading.models.source import SCHEMES as MODEL_SCHEMES
from services.loading.samples.source import SCHEMES as SAMPLE_SCHEMES
from services.measures.catalogue import MEASURES
from services.training.datasets import DATASETS
from services.training.methods import METHODS
from services.training.networks import ARCHITECTURES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def _generator() -> ModuleType:
    spec = spec_from_file_location("file_tables", DOCS / "file_tables.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()


@pytest.mark.parametrize("document", GENERATOR.DOCUMENTS, ids=lambda document: document.path.name)
def test_the_tables_are_those_of_the_models(document: Any) -> None:
    text = text_of(document.path.name)
    assert GENERATOR.BEGIN in text and GENERATOR.END in text
    assert document.replaced(text) == text, "run: python docs/file_tables.py"


@pytest.mark.parametrize("document", GENERATOR.DOCUMENTS, ids=lambda document: document.path.name)
def test_every_part_has_a_heading_and_no_meaning_is_of_a_field_that_is_gone(document: Any) -> None:
    known = {f"{part}.{field}" for part, field, _, _ in document.fields()}
    assert set(document.meanings) <= known
    parts = {name for name, schema in document.model.model_json_schema()["$defs"].items() if "properties" in schema}
    averages = {"Ema", "FairEma", "StepEma", "Swa"}  # a table of training.md by hand
    assert parts - averages <= set(document.headings)


@pytest.mark.parametrize("scheme", [f"{n}:" for n in sorted({*MODEL_SCHEMES.names(), *SAMPLE_SCHEMES.names()})])
def test_every_scheme_is_documented(scheme: str) -> None:
    assert f"`{scheme}" in text_of("sources.md")


@pytest.mark.parametrize("name", MEASURES.names())
def test_every_measure_is_documented_with_each_parameter(name: str) -> None:
    section = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", text_of("measures.md"), re.MULTILINE | re.DOTALL)
    assert section is not None
    missing = [field for field in MEASURES.get(name).model_fields if field != "name" and f"`{field}`" not in section[1]]
    assert not missing


def test_the_readme_has_every_measure_in_its_table() -> None:
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(MEASURES.names())


def test_every_extension_point_is_documented() -> None:
    for registry in (MODEL_SCHEMES, SAMPLE_SCHEMES, MEASURES, METHODS, ARCHITECTURES, DATASETS):
        assert registry.group in text_of("sources.md")


def complaints(data: dict[str, Any]) -> list[str]:
    """What an editor that knows the JSON Schema would underline."""
    schema = sweep_schema() if "sweep" in data else json_schema()
    Draft202012Validator.check_schema(schema)
    return [f"{list(error.absolute_path)}: {error.message}" for error in Draft202012Validator(schema).iter_errors(data)]


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_every_whole_job_file_in_a_document_is_valid(path: Path) -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        data = yaml.safe_load(block)
        if isinstance(data, dict) and "fleet" in data:
            assert validate_fleet(data, source=path.name).measures
            assert complaints(data) == []
        if isinstance(data, dict) and "sweep" in data:
            assert validate_sweep(data, source=path.name).trials
            assert complaints(data) == []


@pytest.mark.parametrize(
    ("measure", "valid"),
    [
        ({"name": "pgd", "epsilons": 0.03}, True),
        ({"name": "pgd", "epsilons": "8/255"}, True),
        ({"name": "pr", "radii": ["8/255", 0.1]}, True),
        ({"name": "pgd", "epsilons": "eight"}, False),
        ({"name": "pgd", "epsilons": []}, False),
        ({"name": "pr", "radii": [0]}, False),
        ({"name": "pgd", "epsilon": 0.03}, False),
    ],
)
def test_the_schema_takes_the_measures_that_the_file_takes(measure: dict[str, Any], valid: bool) -> None:
    data = {"fleet": "f", "samples": {"uri": "npz:s.npz"}, "models": [{"name": "a", "uri": "timm:resnet18"}]}
    data["measures"] = [measure]
    try:
        accepted = bool(validate_fleet(data).measures)
    except ConfigError:
        accepted = False
    assert (accepted, complaints(data) == []) == (valid, valid)


def test_every_method_architecture_and_training_set_is_documented() -> None:
    text = text_of("training.md")
    for registry in (METHODS, ARCHITECTURES, DATASETS):
        assert [name for name in registry.names() if f"`{name}`" not in text] == []


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_every_anchor_is_a_heading(path: Path) -> None:
    links = re.findall(r"\]\(([^()\s#:]*)#([^()\s]+)\)", path.read_text(encoding="utf-8"))
    targets = [((path.parent / page if page else path), anchor) for page, anchor in links]
    assert [f"{page}#{anchor}" for page, anchor in targets if anchor not in anchors(page)] == []


@pytest.mark.parametrize("example", sorted((ROOT / "deploy" / "examples").glob("*.yaml"), key=lambda path: path.name))
def test_every_example_is_valid_and_listed(example: Path) -> None:
    if has_key(example, "sweep"):
        assert load_sweep(example).trials
        assert complaints(yaml.safe_load(example.read_text())) == []
    elif has_key(example, "models"):
        load_fleet(example)
        assert complaints(yaml.safe_load(example.read_text())) == []
    else:  # a template of `classwise train --audit`
        model = {"name": "trained", "uri": "factory:services.training.architectures:small_cnn"}
        validate_fleet({**load_template(example).data, "models": [model]}, source=example.name)
    assert f"`{example.name}`" in (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("fleet", sorted((ROOT / "benchmarks").glob("*.yaml")), ids=lambda path: path.name)
def test_every_fleet_of_the_benchmarks_is_valid(fleet: Path) -> None:
    gated = {gate.measure for gate in load_fleet(fleet).config.gates}
    assert gated and gated <= set(load_fleet(fleet).series())


def test_the_sweep_of_the_fair_methods_is_valid_and_has_the_methods_of_its_table() -> None:
    folder = ROOT / "benchmarks" / "fair"
    sweep = load_sweep(folder / "sweep.yaml")
    lines = re.findall(r"^\| `([\w-]+)`(?:, of \w+)? \| \.\d+ \|", text_of("training.md"), re.MULTILINE)
    assert sorted(lines) == sorted(entry.label for entry in sweep.methods)
    model = {"name": "m", "uri": "factory:services.training.architectures:small_cnn"}
    validate_fleet({**load_template(folder / "audit.yaml").data, "models": [model]}, source="audit.yaml")


def test_the_tests_that_hold_an_interpretation_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", text_of("interpretation.md")))
    written = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) > 40 and named <= written


def test_every_test_that_a_finding_is_held_by_exists() -> None:
    section = text_of("security.md").partition("## What a review found")[2].partition("\n## ")[0]
    rows = [
        line for line in section.splitlines() if line.startswith("| ") and not line.startswith(("| finding", "|---"))
    ]
    assert len(rows) >= 24
    for row in rows:
        file, named = "", re.findall(r"`([\w/]*(?:\.py)?)::(test_\w+)`", row)
        assert named, row
        for path, test in named:
            file = path or file
            assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{test}"
