"""The image is what image-steps.sh makes: the Dockerfile installs with that script alone, and so does this test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
STEPS = ROOT / "deploy" / "image-steps.sh"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
BUILD, RUN = DOCKERFILE.partition("FROM ${PYTHON_IMAGE} AS run")[::2]


def instructions(text: str) -> list[tuple[str, str]]:
    """Instruction and arguments, continued lines put together."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines() if line.strip()]


def test_the_dockerfile_installs_with_the_script_alone() -> None:
    runs = [words for name, words in instructions(BUILD) if name == "RUN"]
    assert runs == [f"deploy/image-steps.sh {step} /opt/classwise ${{VARIANT}}" for step in ("install", "check")]
    copied = {words.split()[-2] for name, words in instructions(BUILD) if name == "COPY"}
    copied |= {word for name, words in instructions(BUILD) if name == "COPY" for word in words.split()[:-1]}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks"}
    files = {"pyproject.toml", "constraints.txt", "README.md", "deploy/image-steps.sh", "deploy/requirements.lock"}
    assert packages | files == copied
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().split()
    assert ignored[0] == "*" and {line[1:] for line in ignored if line.startswith("!")} == copied


def test_what_runs_is_nobody_special_on_a_pinned_base() -> None:
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)
    run = instructions(RUN)
    names = [name for name, _ in run]
    assert names.index("USER") < names.index("ENTRYPOINT") and dict(run)["USER"] == "10001:10001"
    assert "/health" in dict(run)["HEALTHCHECK"] and dict(run)["ENTRYPOINT"] == '["classwise"]'
    assert not re.search(r"(?i)(token|password|secret)\w*=", DOCKERFILE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "install or check"),
        (("install", "/x", "gpu"), "expected cpu or cuda"),
        (("make", "/x", "cpu"), "found make"),
    ],
)
def test_wrong_words_are_told(words: tuple[str, ...], said: str) -> None:
    process = subprocess.run([STEPS, *words], capture_output=True, text=True, check=False)
    assert process.returncode != 0 and said in process.stderr


@pytest.mark.slow
def test_the_steps_make_an_environment_that_can_do_everything(tmp_path: Path) -> None:
    variant = "cpu" if torch.version.cuda is None else "cuda"
    other = {"cpu": "cuda", "cuda": "cpu"}[variant]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    kept["PYTHON"] = str(Path(sys.base_prefix) / "bin" / "python3.11")
    kept["PATH"] = os.environ["PATH"]
    subprocess.run([STEPS, "install", tmp_path / "venv", variant], check=True, env=kept, timeout=500)
    process = subprocess.run([STEPS, "check", tmp_path / "venv", variant], capture_output=True, text=True, env=kept)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "as it should be" in process.stdout
    strange = [
        tmp_path / "venv" / "bin" / "uv",
        "pip",
        "install",
        "--quiet",
        "--python",
        tmp_path / "venv" / "bin" / "python",
    ]
    subprocess.run([*strange, "--no-deps", "colorama==0.4.6"], check=True, env=kept)
    more = subprocess.run([STEPS, "check", tmp_path / "venv", variant], capture_output=True, text=True, env=kept)
    assert more.returncode == 1 and more.stdout.splitlines()[-1] == "colorama: expected nothing, found 0.4.6"
    wrong = subprocess.run([STEPS, "check", tmp_path / "venv", other], capture_output=True, text=True, env=kept)
    assert wrong.returncode == 1 and f"torch: expected a build for {other}" in wrong.stdout
