"""Checkpoints as people save them, and the ones that must be refused."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from services.errors import SourceError
from services.loading.models.checkpoints import load_weights

SOURCE = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
STATE = SOURCE.state_dict()


def fresh() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in STATE.items()}


@pytest.mark.parametrize(
    ("saved", "facts"),
    [
        (STATE, {}),
        ({"state_dict": STATE, "epoch": 3}, {"checkpoint_keys": ["state_dict"]}),
        ({"net": prefixed("module."), "acc": 0.9}, {"checkpoint_keys": ["net"], "stripped_prefix": "module."}),
        ({"ema": {"model": STATE, "decay": 0.9}}, {"checkpoint_keys": ["ema", "model"]}),
        (prefixed("_orig_mod.module.model."), {"stripped_prefix": "_orig_mod.module.model."}),
    ],
)
def test_wrappings_are_taken_off_and_told(tmp_path: Path, saved: Any, facts: dict[str, Any]) -> None:
    path, network = tmp_path / "w.pt", fresh()
    torch.save(saved, path)
    assert load_weights(network, path, where="m") == facts
    assert all(torch.equal(value, STATE[key]) for key, value in network.state_dict().items())


def test_safetensors_and_absent_counters(tmp_path: Path) -> None:
    path, network = tmp_path / "w.safetensors", fresh()
    save_file({key: value for key, value in STATE.items() if "num_batches" not in key}, path)
    load_weights(network, path, where="m")
    assert torch.equal(network[2].weight, SOURCE[2].weight)


def test_missing_unexpected_and_shapes_at_once(tmp_path: Path) -> None:
    saved = {key: value for key, value in STATE.items() if key != "0.bias"}
    saved |= {"2.weight": torch.zeros(5, 4), "extra.weight": torch.zeros(1), "2.bias": torch.full((2,), torch.nan)}
    torch.save(saved, tmp_path / "w.pt")
    with pytest.raises(SourceError) as caught:
        load_weights(fresh(), tmp_path / "w.pt", where="m")
    text = str(caught.value)
    assert "1 missing: 0.bias" in text
    assert "1 unexpected: extra.weight" in text
    assert "2.weight (5, 4) for (2, 4)" in text
    assert "1 NaN or infinity in: 2.bias" in text


def test_nothing_matches(tmp_path: Path) -> None:
    torch.save(prefixed("encoder."), tmp_path / "w.pt")
    with pytest.raises(SourceError, match=r"none of 9 .it has encoder.0.weight.* and 4 more; the network has 0.weight"):
        load_weights(fresh(), tmp_path / "w.pt", where="m")


def test_unpickling_is_refused_by_name_and_allowed_by_choice(tmp_path: Path) -> None:
    torch.save({"state_dict": STATE, "args": argparse.Namespace(lr=0.1)}, tmp_path / "w.pt")
    with pytest.raises(SourceError, match=r"needs argparse.Namespace, which runs code when loaded; .*allow_unpickling"):
        load_weights(fresh(), tmp_path / "w.pt", where="m")
    facts = load_weights(fresh(), tmp_path / "w.pt", where="m", allow_unpickling=True)
    assert facts["unpickled"] is True


def test_a_whole_pickled_network_is_refused(tmp_path: Path) -> None:
    torch.save(SOURCE, tmp_path / "w.pt")
    with pytest.raises(SourceError, match=r"needs torch\.nn\.modules"):
        load_weights(fresh(), tmp_path / "w.pt", where="m")
    load_weights(fresh(), tmp_path / "w.pt", where="m", allow_unpickling=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02}q\x00", "a readable PyTorch checkpoint"),
        (b"\x89HDF\r\n\x1a\n", "found a file of kind hdf5"),
        (b"<html>", "an HTML page"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        load_weights(fresh(), tmp_path / "w.pt", where="m")


def test_a_checkpoint_without_a_state_dict(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "loss": 0.5}, tmp_path / "w.pt")
    with pytest.raises(SourceError, match="found keys 'epoch', 'loss'"):
        load_weights(fresh(), tmp_path / "w.pt", where="m")
