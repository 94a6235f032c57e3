"""The documentation names every field, scheme, measure and extension point there is."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from jobs.fleetfile import load_fleet, validate_fleet
from services.loading.models import SCHEMES as MODEL_SCHEMES
from services.loading.samples import SCHEMES as SAMPLE_SCHEMES
from services.measures.registry import MEASURES
from services.training.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = spec_from_file_location("fleet_file_table", DOCS / "fleet_file_table.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_fleet_file_are_those_of_the_models(generator: ModuleType) -> None:
    text = text_of("fleet-file.md")
    assert generator.BEGIN in text and generator.END in text
    assert generator.replaced(text) == text, "run: python docs/fleet_file_table.py"


def test_no_meaning_is_written_for_a_field_that_is_gone(generator: ModuleType) -> None:
    known = {f"{part}.{field}" for part, field, _, _ in generator.fields()}
    assert set(generator.MEANINGS) <= known


@pytest.mark.parametrize("scheme", [f"{n}:" for n in sorted({*MODEL_SCHEMES.names(), *SAMPLE_SCHEMES.names()})])
def test_every_scheme_is_documented(scheme: str) -> None:
    assert f"`{scheme}" in text_of("sources.md")


@pytest.mark.parametrize("name", MEASURES.names())
def test_every_measure_is_documented_with_each_parameter(name: str) -> None:
    section = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", text_of("measures.md"), re.MULTILINE | re.DOTALL)
    assert section is not None
    missing = [field for field in MEASURES.get(name).model_fields if field != "name" and f"`{field}`" not in section[1]]
    assert not missing


def test_every_extension_point_is_documented() -> None:
    for registry in (MODEL_SCHEMES, SAMPLE_SCHEMES, MEASURES, METHODS):
        assert registry._group in text_of("sources.md")


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_every_whole_fleet_file_in_a_document_is_valid(path: Path) -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        data = yaml.safe_load(block)
        if isinstance(data, dict) and "fleet" in data:
            assert validate_fleet(data, source=path.name).measures


@pytest.mark.parametrize("example", sorted((ROOT / "deploy" / "examples").glob("*.yaml"), key=lambda path: path.name))
def test_every_example_is_valid_and_listed(example: Path) -> None:
    load_fleet(example)
    assert f"`{example.name}`" in (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
