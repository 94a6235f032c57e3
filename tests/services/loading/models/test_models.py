"""Models by URI: factories, fingerprints, tables of logits, leaderboard references."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from services.errors import ConfigError, SourceError
from services.loading.factories import find_source
from services.loading.models.references import parse_tables, robustbench_reference
from services.loading.models.source import SCHEMES, fingerprint, load_model
from services.loading.samples.parquet_rows import matrix
from services.records import InputContract, ModelSpec
from services.training.architectures import small_cnn

FACTORY = "factory:services.training.architectures:small_cnn?channels=1&width=2&size=4&classes=3"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    torch.save(small_cnn(1, 3, 2, 4).state_dict(), tmp_path / "w.pt")
    return tmp_path / "w.pt"


def test_factory_with_weights(weights: Path) -> None:
    loaded = load_model(ModelSpec("a", f"{FACTORY}&weights={weights}"), device="cpu")
    network = small_cnn(1, 3, 2, 4)
    network.load_state_dict(torch.load(weights, weights_only=True))
    images = torch.rand(5, 1, 4, 4)
    assert loaded.network is not None
    assert torch.allclose(loaded.network(images), network(images))
    assert loaded.differentiable
    assert loaded.facts["parameters"] == sum(parameter.numel() for parameter in network.parameters())


def test_a_factory_without_weights_is_the_same_everywhere_and_leaves_the_random_state() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, two = (load_model(ModelSpec("a", FACTORY)).network for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    images = torch.rand(2, 1, 4, 4)
    assert first is not None and two is not None
    assert torch.equal(first(images), two(images))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("factory:os.path:join", r"matches services.training.\*, found 'os.path'; add 'os.path' to the fleet"),
        ("factory:services.training.architectures:small_cn", "did you mean 'small_cnn'"),
        ("factory:services.training.nowhere:f", "an importable module"),
        ("factory:services.training.architectures", "factory:MODULE:FUNCTION"),
        (FACTORY.replace("width", "depth"), "unexpected keyword argument 'depth'"),
        (FACTORY.replace("width=2", "width=two"), r"small_cnn\(.*\) to succeed, found TypeError"),
        (FACTORY + "&weights=absent.pt", "nothing there"),
        ("factory:services.training.architectures:sequential?layers=[]", "JSON list"),
    ],
)
def test_factories_that_do_not_work(uri: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        load_model(ModelSpec("a", uri))


def test_unknown_scheme() -> None:
    with pytest.raises(ConfigError, match="did you mean 'torchscript'"):
        load_model(ModelSpec("a", "torchscrip:x"))
    assert len(SCHEMES.names()) >= 9


def test_the_fingerprint_follows_what_decides_the_logits(weights: Path, tmp_path: Path) -> None:
    spec = ModelSpec("a", f"{FACTORY}&weights={weights}")
    first = fingerprint(spec)
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "v.pt"
    moved.write_bytes(weights.read_bytes())
    same = [replace(spec, name="b"), replace(spec, uri=f"{FACTORY}&weights={moved}"), replace(spec, clean_accuracy=0.5)]
    assert {fingerprint(each) for each in same} == {first}
    assert load_model(spec).digest == first
    other = [
        replace(spec, input=InputContract(mean=(0.5,))),
        replace(spec, outputs="probabilities"),
        replace(spec, output=1),
        replace(spec, uri=spec.uri.replace("width=2", "width=3")),
    ]
    assert first not in {fingerprint(each) for each in other}
    weights.write_bytes(weights.read_bytes() + b" ")
    with pytest.raises(SourceError):
        fingerprint(replace(spec, uri=f"{FACTORY}&weights={tmp_path / 'absent.pt'}"))


def test_changed_weights_or_code_change_the_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "nets_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "inner.py").write_text("def make(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    spec = ModelSpec("a", f"factory:nets_of_mine.inner:make?weights={tmp_path / 'w.pt'}")
    torch.save({"w": torch.zeros(2)}, tmp_path / "w.pt")
    observed = [fingerprint(spec)]
    (package / "inner.py").write_text("def make(): return 1\n")
    observed.append(fingerprint(spec))
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    observed.append(fingerprint(spec))
    assert len(set(observed)) == 3
    assert "nets_of_mine" not in sys.modules
    assert find_source("nets_of_mine.absent") is None


def test_a_fingerprint_imports_no_torch(weights: Path) -> None:
    code = (
        "import sys; from services.loading.models.source import fingerprint; from services.records import ModelSpec\n"
        f"fingerprint(ModelSpec('a', {f'{FACTORY}&weights={weights}'!r}))\n"
        "from services.loading.models.references import robustbench_reference as r\n"
        "assert r('Standard', 'cifar10', 'Linf')\n"
        "sys.exit(bool({'torch', 'services.training', 'robustbench'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[4]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


LOGITS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def table(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "z.npz", **{"logits": LOGITS, **arrays})
    return f"logits:{folder / 'z.npz'}"


def test_a_table_of_logits_by_row_and_by_id(tmp_path: Path) -> None:
    loaded = load_model(ModelSpec("a", table(tmp_path)))
    assert loaded.network is None and not loaded.differentiable and loaded.logits is not None
    assert np.array_equal(loaded.logits(np.array([4, 0])), LOGITS[[4, 0]])
    keyed = load_model(ModelSpec("a", table(tmp_path, ids=np.array([9, 3, 5, 1, 0, 7])))).logits
    assert keyed is not None
    assert np.array_equal(keyed(np.array([9, 7])), LOGITS[[0, 5]])
    with pytest.raises(SourceError, match="found 2 of 3 missing, for example id 2"):
        keyed(np.array([9, 2, 11]))


@pytest.mark.parametrize("columns", [{"logits": LOGITS.tolist()}, {f"logits_{k}": LOGITS[:, k] for k in range(3)}])
def test_a_table_in_parquet(tmp_path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table({**columns, "ids": np.arange(6)[::-1]}), tmp_path / "z.parquet")
    logits = load_model(ModelSpec("a", f"logits:{tmp_path / 'z.parquet'}")).logits
    assert logits is not None
    assert np.array_equal(logits(np.array([5, 0])), LOGITS[[0, 5]])


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([[1.0, 2.0], [3.0, None]]), "1 numbers missing"),
        (pa.array([[1.0, 2.0], None]), "1 of 2 lists missing"),
        (pa.array([[1.0, 2.0], [3.0]]), "lists of 2 lengths"),
        (pa.array(["1.0", "2.0"]), "a column of string"),
        (pa.array([["1.0"], ["2.0"]]), "a column of list<"),
    ],
)
def test_malformed_lists_in_parquet(tmp_path: Path, column: pa.Array, found: str) -> None:
    pq.write_table(pa.table({"logits": column}), tmp_path / "z.parquet")
    with pytest.raises(SourceError, match=f"lists of K numbers.*{found}"):
        load_model(ModelSpec("a", f"logits:{tmp_path / 'z.parquet'}"))


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)])
def test_lists_of_any_kind_in_several_pieces(kind: pa.DataType) -> None:
    pieces = [pa.array(LOGITS[:4].tolist(), kind), pa.array(LOGITS[4:].tolist(), kind)]
    assert np.array_equal(matrix(pa.chunked_array(pieces).slice(1)), LOGITS[1:])


def test_a_table_of_probabilities(tmp_path: Path) -> None:
    probabilities = np.array([[1.0, 0.0], [0.3, 0.7]])
    spec = ModelSpec("a", table(tmp_path, logits=probabilities), outputs="probabilities")
    logits = load_model(spec).logits
    assert logits is not None
    assert np.allclose(np.exp(logits(np.array([0, 1]))), probabilities)
    with pytest.raises(SourceError, match="probabilities as declared, found values from"):
        load_model(replace(spec, uri=table(tmp_path)))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"logits": LOGITS[0]}, r"floating logits \(N, K\), found float32 \(3,\)"),
        ({"ids": np.array([0, 1, 1, 2, 2, 3])}, "each id once, found 2 repeated"),
        ({"ids": np.arange(4)}, r"6 whole numbers, found int64 \(4,\)"),
        ({"labels": np.zeros(6)}, "6 whole numbers, found float64"),
    ],
)
def test_malformed_tables(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        load_model(ModelSpec("a", table(tmp_path, **arrays)))


def test_leaderboard_references() -> None:
    assert robustbench_reference("Engstrom2019Robustness", "cifar10", "L2") == (0.9083, 0.6924)
    assert robustbench_reference("Engstrom2019Robustness", "imagenet", "Linf") == (0.6256, 0.2922)
    assert robustbench_reference("Standard", "cifar10", "corruptions") == (0.9478, 0.7346)
    assert robustbench_reference("Nobody", "cifar10", "L2") is None


def test_every_reference_is_a_share() -> None:
    row = "| <sub>**1**</sub> | <sub><sup>**A_b**</sup></sub> | x | <sub>90.1%</sub> | <sub>**50%**</sub> |"
    text = f"### CIFAR-10\n#### L2, eps=0.5\n{row}\n"
    assert dict(parse_tables(text)) == {("cifar10", "L2", "A_b"): (0.901, 0.5)}
    assert dict(parse_tables(text.replace("### CIFAR-10", "### Elsewhere"))) == {}


def test_references_agree_with_the_published_study(shared_data: Path) -> None:
    oracle = json.loads((shared_data / "oracles/gf_cifar10.json").read_text())
    listed = json.dumps(oracle)
    known = [name for name in ("Rebuffi2021Fixing_70_16_cutmix_extra", "Rice2020Overfitting") if name in listed]
    assert known
    assert all(robustbench_reference(name, "cifar10", "L2") for name in known)
