"""Mutate every function of `services.numerics` and see whether its tests notice.

mutmut makes the mutants. They are tried in one pytest session (`mutation.session`), a forked process each, instead of
by mutmut's own runner, which starts pytest for every mutant and takes five times as long.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from mutation import report

ROOT = Path(__file__).resolve().parents[2]
MUTMUT = "mutmut>=3.8,<3.9"
MARKS = "not slow and not gpu"
NUMERICS, TESTS = "services/numerics", "tests/services/numerics"


def main() -> int:
    """Exit code 1 below the share that is asked."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m mutation")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutation", help="where everything is put")
    parser.add_argument("--only", nargs="*", default=[], metavar="MODULE", help="names of modules, default all")
    parser.add_argument("--tests", nargs="*", default=[], metavar="FILE", help="names of test files, default all")
    parser.add_argument("--again", action="store_true", help="keep what was killed, where the function is as it was")
    parser.add_argument("--least", type=float, default=90.0, help="per cent of mutants that must be killed")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    install(folder / "site")
    mutate(folder, options.only)
    if not options.again:
        (folder / "results.jsonl").unlink(missing_ok=True)
    run(folder, options.tests)
    return 0 if report.write(folder) >= options.least else 1


def install(site: Path) -> None:
    """mutmut in a folder of its own: it brings its own pytest, which the tests must not get."""
    if not (site / "mutmut").is_dir():
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--target", site, "--python", sys.executable, MUTMUT], check=True
        )


def mutate(folder: Path, only: list[str]) -> None:
    """A copy of sources and tests in `tree`, all mutants of a function beside it; `mutants.json` names them."""
    sys.path.append(str(folder / "site"))
    from mutmut.mutation.file_mutation import mutate_file_contents

    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for part in ("services", TESTS):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / part, tree / part)
    with (tree / "pyproject.toml").open("a") as settings:
        settings.write('\n[tool.mutmut]\nsource_paths = ["services"]\n')
    os.chdir(tree)  # where mutmut looks for its settings
    by_name: dict[str, str] = {}
    for path in sorted(path for path in (tree / NUMERICS).glob("*.py") if not only or path.stem in only):
        made = folder / "made" / f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}.json"
        if not made.exists():
            mutated = mutate_file_contents(str(path), path.read_text())
            made.parent.mkdir(exist_ok=True)
            functions = {name: name.partition("__mutmut_")[0] for name in mutated.mutant_names}
            names = {name: mutated.hash_by_function_name[function] for name, function in functions.items()}
            made.write_text(json.dumps([mutated.code, names]))
        code, names = json.loads(made.read_text())
        path.write_text(code)
        by_name.update({f"{NUMERICS.replace('/', '.')}.{path.stem}.{name}": version for name, version in names.items()})
    (folder / "mutants.json").write_text(json.dumps(by_name))


def run(folder: Path, tests: list[str]) -> None:
    """One pytest session that tries the mutants and adds them to `results.jsonl`."""
    tree = folder / "tree"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tree), str(ROOT / "tests"), str(folder / "site"))),
        "OMP_NUM_THREADS": "1",
        "CLASSWISE_SHARED_DATA": os.environ.get("CLASSWISE_SHARED_DATA", str(ROOT.parent / "shared" / "data")),
        "MUTATION_FOLDER": str(folder),
    }
    plugins = ("-p", "mutation.session", "-p", "no:cacheprovider", "--hypothesis-profile=mutation")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "--tb=native", "--assert=plain", "-m", MARKS, *plugins]
    paths = [f"{TESTS}/{name}" for name in tests] or [TESTS]
    subprocess.run([*command, *paths], cwd=tree, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
