"""Checkpoints as people save them, and the ones that must be refused."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from services.errors import SourceError
from services.loading.models.weights import load_weights

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


AVERAGED = {key: value * 0.5 if value.is_floating_point() else value for key, value in STATE.items()}
TWO: dict[str, Any] = {
    "timm": ({"state_dict": STATE, "state_dict_ema": AVERAGED}, "state_dict, state_dict_ema"),
    "ema": ({"model": STATE, "ema": {"decay": 0.9, "shadow": AVERAGED}}, "model, ema.shadow"),
    "module": ({"net": STATE, "averaged": {f"module.{k}": v for k, v in AVERAGED.items()}}, "net, averaged"),
    "distilled": ({**prefixed("student."), **{f"teacher.{k}": v for k, v in AVERAGED.items()}}, "student, teacher"),
    "lightning": (
        {"state_dict": {**prefixed("model."), **{f"ema_model.module.{k}": v for k, v in AVERAGED.items()}}},
        "state_dict.model, state_dict.ema_model",
    ),
}


@pytest.mark.parametrize("kind", TWO)
def test_two_sets_of_weights_are_a_question(tmp_path: Path, kind: str) -> None:
    """0.1.0 took the raw ones without a word: .33 where the author's figure is .77."""
    saved, names = TWO[kind]
    torch.save({**saved, "epoch": 3} if kind != "distilled" else saved, tmp_path / "w.pt")
    with pytest.raises(SourceError, match=f"one set of weights, found 2: {names}; choose with &key="):
        load_weights(fresh(), tmp_path / "w.pt", where="m")
    for key, expected in zip(names.split(", "), (STATE, AVERAGED), strict=True):
        network = fresh()
        facts = load_weights(network, tmp_path / "w.pt", where="m", key=key)
        assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())
        assert ".".join(facts["checkpoint_keys"]) == key


LEARNT = [name for name, _ in SOURCE.named_parameters()]


def after_a_step(kind: type[torch.optim.Optimizer] = torch.optim.Adam, **options: Any) -> tuple[Any, Any]:
    """Weights of the network and the state of an optimizer after a step."""
    network = fresh()
    optimizer = kind(network.parameters(), **options)
    network(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    return network.state_dict(), optimizer.state_dict()


ADAM = after_a_step()[1]


def beside_moments(slot: str) -> dict[str, Any]:
    """An optimizer that keeps an average of each weight, too."""
    kept = {place: {**own, slot: AVERAGED[LEARNT[place]]} for place, own in ADAM["state"].items()}
    return {**ADAM, "state": kept}


NAMELESS: dict[str, tuple[Any, str]] = {
    "torch_ema": ({"ema": {"decay": 0.9, "shadow_params": list(AVERAGED.values())}}, "ema.shadow_params"),
    "by number": ({"ema": dict(enumerate(AVERAGED.values()))}, "ema"),
    "a list of networks": ({"ensemble": [AVERAGED]}, "ensemble.0"),
    "a pair": ({"model_ema": (0.999, AVERAGED)}, "model_ema.1"),
    "another prefix": ({"ema": {f"shadow.{k}": v for k, v in AVERAGED.items()}}, "ema"),
    "one vector": ({"ema_flat": nn.utils.parameters_to_vector(SOURCE.parameters()).detach() / 2}, "ema_flat"),
    "an optimizer's list": ({"optimizer_states": [{**ADAM, "ema": list(AVERAGED.values())}]}, "optimizer_states.0.ema"),
    "torchcontrib": ({"optimizer": beside_moments("swa_buffer")}, "optimizer.state.swa_buffer"),
    "schedule-free": ({"optimizer": beside_moments("z")}, "optimizer.state.z"),
    "lookahead": ({"optimizer": beside_moments("slow_buffer")}, "optimizer.state.slow_buffer"),
    "deep": ({"a": {"b": {"c": {"d": {"e": AVERAGED}}}}}, "a.b.c.d.e"),
}


@pytest.mark.parametrize("kind", NAMELESS)
def test_weights_that_go_by_other_names_are_a_question(tmp_path: Path, kind: str) -> None:
    """The raw ones were taken without a word."""
    beside, name = NAMELESS[kind]
    torch.save({"model": STATE, **beside}, tmp_path / "w.pt")
    with pytest.raises(SourceError, match=rf"found 2: model, {name} \(not by the network's names\); choose with &key="):
        load_weights(fresh(), tmp_path / "w.pt", where="m")
    network = fresh()
    assert load_weights(network, tmp_path / "w.pt", where="m", key="model") == {"checkpoint_keys": ["model"]}
    assert torch.equal(network[2].weight, STATE["2.weight"])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {"amsgrad": True}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.RMSprop, {"centered": True, "momentum": 0.9}),
        (torch.optim.Adadelta, {}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Rprop, {}),
        (torch.optim.Adamax, {}),
        (torch.optim.NAdam, {}),
        (torch.optim.ASGD, {}),
    ],
)
def test_averages_of_gradients_and_copies_are_no_question(tmp_path: Path, kind: Any, options: dict[str, Any]) -> None:
    """ASGD keeps an average of the weights, which is the weights themselves until it begins."""
    state, optimizer = after_a_step(kind, **options)
    masters = [value.double() for value in state.values() if value.is_floating_point()]
    torch.save({"model": state, "optimizer": optimizer, "masters": masters}, tmp_path / "w.pt")
    assert load_weights(fresh(), tmp_path / "w.pt", where="m") == {"checkpoint_keys": ["model"]}


def test_an_average_beside_raw_weights_at_the_top_is_a_question(tmp_path: Path) -> None:
    """Where most entries of the file are no tensors, its own weights were overlooked and the average taken."""
    notes = {f"note{index}": index for index in range(len(STATE) + 1)}
    torch.save({**STATE, **notes, "ema": AVERAGED}, tmp_path / "w.pt")
    with pytest.raises(SourceError, match="one set of weights, found 2: ema, the whole file"):
        load_weights(fresh(), tmp_path / "w.pt", where="m")


def test_a_key_that_chooses_nothing_is_an_error(tmp_path: Path) -> None:
    torch.save(TWO["timm"][0], tmp_path / "w.pt")
    with pytest.raises(SourceError, match=r"\(key\): expected the name .* found 'best'; give one of state_dict, state"):
        load_weights(fresh(), tmp_path / "w.pt", where="m", key="best")


def test_the_same_weights_twice_are_no_question(tmp_path: Path) -> None:
    torch.save({"state_dict": STATE, "best": {"model": dict(STATE)}}, tmp_path / "w.pt")
    assert load_weights(fresh(), tmp_path / "w.pt", where="m") == {"checkpoint_keys": ["state_dict"]}


@pytest.mark.long
def test_optimizers_and_other_networks_are_no_candidates(tmp_path: Path) -> None:
    network = fresh()
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    other = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 1)).state_dict()
    saved = {"model": STATE, "optimizer": optimizer.state_dict(), "discriminator": other, "epoch": 1}
    torch.save(saved, tmp_path / "w.pt")
    assert load_weights(network, tmp_path / "w.pt", where="m") == {"checkpoint_keys": ["model"]}


@pytest.mark.parametrize("prefix", ["net.", "model.net.", "student.", "network.module."])
def test_wrappers_of_lightning_and_distillation_load(tmp_path: Path, prefix: str) -> None:
    torch.save({"state_dict": prefixed(prefix), "pytorch-lightning_version": "2.4"}, tmp_path / "w.pt")
    facts = load_weights(fresh(), tmp_path / "w.pt", where="m")
    assert facts == {"checkpoint_keys": ["state_dict"], "stripped_prefix": prefix}


def test_an_auxiliary_head_is_refused_and_dropped_by_name(tmp_path: Path) -> None:
    head = {"aux.weight": torch.zeros(2, 4), "aux.bias": torch.zeros(2)}
    for saved in ({**STATE, **head}, {"state_dict": {**prefixed("model."), **head}}):
        torch.save(saved, tmp_path / "w.pt")
        with pytest.raises(SourceError, match=r"2 unexpected: aux.weight, aux.bias; leave out .* &drop_keys=PREFIX"):
            load_weights(fresh(), tmp_path / "w.pt", where="m")
        assert load_weights(fresh(), tmp_path / "w.pt", where="m", drop_keys="aux.")["dropped_keys"] == 2
    with pytest.raises(SourceError, match=r"\(drop_keys\): expected keys that begin with 'head.'"):
        load_weights(fresh(), tmp_path / "w.pt", where="m", drop_keys="head.")
    with pytest.raises(SourceError, match=r"2 missing: 2.weight, 2.bias"):
        load_weights(fresh(), tmp_path / "w.pt", where="m", drop_keys="2.")


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


@pytest.mark.parametrize(("levels", "names"), [(4, 300), (11, 300), (1, 20_000)])
def test_a_small_file_that_holds_its_weights_under_millions_of_names_costs_no_time(
    tmp_path: Path, levels: int, names: int
) -> None:
    """Each level holds the next one `names` times, which a pickle writes once: 20 kB were eight billion state dicts."""
    held: Any = STATE
    for _ in range(levels):
        held = {f"k{number}": held for number in range(names)}
    torch.save(held, tmp_path / "w.pt")
    network, began = fresh(), time.monotonic()
    if levels > 4:
        with pytest.raises(SourceError, match=r"a state dict, or one under keys"):
            load_weights(network, tmp_path / "w.pt", where="m")
    else:
        assert load_weights(network, tmp_path / "w.pt", where="m") == {"checkpoint_keys": ["k0"] * levels}
    assert time.monotonic() - began < 10


def test_no_more_than_a_few_different_weights_are_compared(tmp_path: Path) -> None:
    each = [{name: value + number for name, value in STATE.items()} for number in range(200)]
    torch.save({f"k{number}": state for number, state in enumerate(each)}, tmp_path / "w.pt")
    with pytest.raises(SourceError, match=r"one set of weights, found 21: k0, k1"):
        load_weights(fresh(), tmp_path / "w.pt", where="m")


def test_a_tensor_that_is_large_by_its_strides_alone_is_refused_by_its_name(tmp_path: Path) -> None:
    torch.save({**STATE, "more": torch.zeros(1).expand(10**7, 10**7)}, tmp_path / "w.pt")
    with pytest.raises(SourceError, match=r"no other weights, found 1 unexpected: more"):
        load_weights(fresh(), tmp_path / "w.pt", where="m")
