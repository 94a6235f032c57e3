"""Any bytes, and valid files with a few bytes changed: a ClasswiseError or a value, from every parser.

``make fuzz MINUTES=60`` does the same for as long as it is told to (`fuzz.py`); here are a few examples of each.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.errors import ClasswiseError

from .doors import DOORS
from .mutations import mutated

pytestmark = pytest.mark.filterwarnings("default")

SLOW = {"export", "torchscript", "onnx"}


def opens_or_tells(name: str, content: bytes) -> None:
    """The only two outcomes there are."""
    door = DOORS[name]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / door.file).write_bytes(content)
        try:
            door.open(Path(folder))
        except ClasswiseError as error:
            assert str(error)


@pytest.mark.parametrize("name", sorted(DOORS))
def test_the_seed_is_valid(name: str, tmp_path: Path) -> None:
    (tmp_path / DOORS[name].file).write_bytes(DOORS[name].seed())
    DOORS[name].open(tmp_path)


@pytest.mark.parametrize("name", sorted(DOORS))
def test_mutated_files(name: str) -> None:
    @settings(max_examples=8 if name in SLOW else 30, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        opens_or_tells(name, mutated(DOORS[name].seed(), seed))

    check()


@pytest.mark.parametrize("name", sorted(DOORS))
def test_any_bytes(name: str) -> None:
    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(content=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace")))
    def check(content: bytes) -> None:
        opens_or_tells(name, content)

    check()


CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*")), ids=lambda path: path.name)
def test_what_broke_once(path: Path) -> None:
    opens_or_tells(path.name.rpartition("-")[0].replace("_", " "), path.read_bytes())
