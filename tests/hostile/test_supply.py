"""The image's lock and its licences: complete, hashed, within pyproject's ranges, nothing unknown in them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "deploy" / "requirements.lock").read_text()
LICENCES = (ROOT / "deploy" / "LICENCES.md").read_text()


@pytest.fixture(scope="module")
def supply() -> ModuleType:
    spec = importlib.util.spec_from_file_location("supply", ROOT / "deploy" / "supply.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pinned(text: str) -> list[Requirement]:
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [Requirement(line) for line in lines if line]


def test_every_distribution_has_hashes_and_no_index_is_named() -> None:
    blocks = re.split(r"\n(?=[a-z0-9])", LOCK.partition("\n")[2])
    assert len(blocks) > 100
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert not re.search(r"https?://|--index|--find-links|file:|^/", LOCK, re.M)


def test_what_pyproject_asks_for_is_locked_within_its_ranges(supply: ModuleType) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requested = [*project["dependencies"], *(line for name in supply.extras() for line in extras[name])]
    by_name = {supply.canonical(name): version for name, version in supply.locked(LOCK).items()}
    wrong = []
    for requirement in map(Requirement, requested):
        version = by_name.get(supply.canonical(requirement.name))
        if requirement.name != "classwise" and (version is None or Version(version) not in requirement.specifier):
            wrong.append(f"{requirement} is {version}")
    assert wrong == [], "run deploy/supply.sh lock"


def test_what_is_tested_is_what_is_locked(supply: ModuleType) -> None:
    by_name = {supply.canonical(name): version for name, version in supply.locked(LOCK).items()}
    tested = {supply.canonical(each.name): each for each in pinned((ROOT / "constraints.txt").read_text())}
    assert [
        name for name, each in tested.items() if name in by_name and Version(by_name[name]) not in each.specifier
    ] == []


def test_every_distribution_has_its_licence_told(supply: ModuleType) -> None:
    rows = re.findall(r"^\| (\S+) \| (.*) \|$", LICENCES, re.M)
    results = [row for row in rows if row[0] != "distribution"]
    assert {name for name, _ in results} == {supply.canonical(name) for name in supply.locked(LOCK)}
    assert supply.faults(results) == []


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({}, "expected a licence, found none"),
        ({"license": "GPLv3"}, "found GPLv3"),
        ({"license_expression": "AGPL-3.0-or-later"}, "found AGPL-3.0-or-later"),
        ({"classifier": ["License :: OSI Approved :: GNU General Public License v2 (GPLv2)"]}, "GNU General Public"),
        ({"license": "SSPL-1.0"}, "found SSPL-1.0"),
        ({"license": "MIT"}, ""),
        ({"license_expression": "LGPL-3.0-only"}, ""),
        ({"classifier": ["License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)"]}, ""),
    ],
)
def test_an_unknown_or_a_strong_licence_is_an_error(supply: ModuleType, said: dict[str, object], fault: str) -> None:
    report = {"install": [{"metadata": {"name": "No_Such.Thing", **said}}]}
    faults = supply.faults(supply.rows(report))
    assert (len(faults), fault in "".join(faults)) == (bool(fault), True)


def test_the_script_says_what_it_can_do() -> None:
    done = subprocess.run([ROOT / "deploy" / "supply.sh", "x"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "supply: expected lock, licences or audit, found x\n")
