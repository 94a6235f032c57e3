"""The package `classwise`: light to import, told apart from a user's own packages of the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    places = os.pathsep.join(map(str, (*path, ROOT, ROOT / "deploy/python")))
    environment = {**os.environ, "PYTHONPATH": places}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, classwise; print([m for m in ('torch', 'mlflow', 'ray', 'pandas', 'jobs') if m in sys.modules])"
    assert run("-c", code).stdout == "[]\n"
    assert run("-c", "import classwise; print(classwise.audit.__module__)").stdout == "jobs.notebook.objects\n"
    assert "has no attribute 'adit'" in run("-c", "import classwise; classwise.adit").stderr


def test_a_package_of_the_same_name_is_told(tmp_path: Path) -> None:
    start = "from classwise.command import main; main()"
    assert "Audit fleets of image classifiers" in run("-c", start, "--help").stdout
    for name in ("jobs", "services", "tracking"):
        own = tmp_path / name / name
        own.mkdir(parents=True)
        (own / "__init__.py").touch()
        stopped = run("-c", start, "--help", path=(tmp_path / name,))
        assert stopped.returncode == 2
        assert f"found {name} at {own}; rename that package" in stopped.stderr
