"""Spoil an input at random and see whether the verdict moves, and whether anything says why.

    python -m benchmarks.mutations --data ../shared/data --count 60

Each mutation is drawn with its own seed: a network, and what is done to its samples or weights. `refused` is an error
of preflight, `noted` a verdict that moved beside a note that the unspoiled audit has not, `silent` one that moved
without. The gates are ones that the unspoiled audit passes with room to spare.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from jobs.audit.audit import run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError
from services.records import Outcome

NETWORKS = ("cifar10_resnet20", "cifar10_wide_std", "cifar10_cnn_a_adv", "cifar10_resnet2b")
SAMPLES = 1_000
Arrays = dict[str, np.ndarray[Any, Any]]
Mutation = Callable[[Arrays, np.random.Generator], Arrays]


def channels_swapped(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    return {**arrays, "images": arrays["images"][..., ::-1]}


def labels_shifted(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    """Every label by some classes: a class list in another order."""
    return {**arrays, "labels": (arrays["labels"] + draw.integers(1, 10)) % 10}


def two_classes_swapped(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    first, second = draw.choice(10, 2, replace=False)
    order = np.arange(10)
    order[[first, second]] = order[[second, first]]
    return {**arrays, "labels": order[arrays["labels"]]}


def some_labels_wrong(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    """A tenth of the labels drawn anew."""
    wrong = draw.random(len(arrays["labels"])) < 0.1
    return {**arrays, "labels": np.where(wrong, draw.integers(0, 10, len(wrong)), arrays["labels"])}


def one_class_darkened(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    """The pixels of one class at half their value."""
    mine = arrays["labels"] == draw.integers(10)
    return {**arrays, "images": np.where(mine[:, None, None, None], arrays["images"] // 2, arrays["images"])}


def half_a_shard_dropped(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    """A run of a quarter of the samples is gone."""
    start = draw.integers(len(arrays["labels"]))
    kept = (np.arange(len(arrays["labels"])) - start) % len(arrays["labels"]) >= len(arrays["labels"]) // 4
    return {**arrays, "images": arrays["images"][kept], "labels": arrays["labels"][kept]}


def one_class_dropped(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    kept = arrays["labels"] != draw.integers(10)
    return {**arrays, "images": arrays["images"][kept], "labels": arrays["labels"][kept]}


def copied_tenfold(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    """A tenth of the images, each ten times."""
    rows = np.repeat(draw.choice(len(arrays["labels"]), len(arrays["labels"]) // 10, replace=False), 10)
    return {**arrays, "images": arrays["images"][rows], "labels": arrays["labels"][rows]}


def turned_sideways(arrays: Arrays, draw: np.random.Generator) -> Arrays:
    half = draw.random(len(arrays["labels"])) < 0.5
    sideways = arrays["images"].transpose(0, 2, 1, 3)
    return {**arrays, "images": np.where(half[:, None, None, None], sideways, arrays["images"])}


SPOILED: dict[str, Mutation] = {
    mutation.__name__.replace("_", " "): mutation
    for mutation in (
        channels_swapped,
        labels_shifted,
        two_classes_swapped,
        some_labels_wrong,
        one_class_darkened,
        half_a_shard_dropped,
        one_class_dropped,
        copied_tenfold,
        turned_sideways,
    )
}


def weights_swapped(data: Path, name: str, draw: np.random.Generator) -> torch.nn.Module:
    """Two weights of one shape changed places."""
    from benchmarks.zoo import load

    network = load(data, name)
    state = network.state_dict()
    alike: dict[Any, list[str]] = {}
    for key, value in state.items():
        if value.ndim:
            alike.setdefault(tuple(value.shape), []).append(key)
    pairs = [keys for keys in alike.values() if len(keys) > 1]
    first, second = draw.choice(pairs[draw.integers(len(pairs))], 2, replace=False)
    state[first], state[second] = state[second].clone(), state[first].clone()
    network.load_state_dict(state)
    return network


def spoiled_network(data: str, name: str, seed: int) -> torch.nn.Module:
    """`weights_swapped` as a `factory:` source calls it."""
    return weights_swapped(Path(data), name, np.random.default_rng(int(seed)))


def outcome(
    folder: Path, data: Path, network: str, arrays: Arrays, seed: int | None, declared: float | None
) -> tuple[str, set[str]]:
    """How an audit of the network ends, and all it says besides its gates."""
    path = folder / "samples.npz"
    np.savez(path, **arrays)
    call = "audited" if seed is None else "spoiled_network"
    query = f"data={data}&name={network}" + ("" if seed is None else f"&seed={seed}")
    module = "zoo" if seed is None else "mutations"
    model: dict[str, Any] = {"name": "m", "uri": f"factory:benchmarks.{module}:{call}?{query}"}
    if declared is not None:
        model["clean_accuracy"] = declared
    gates = [
        {"measure": "clean", "metric": "aggregate", "at_least": GATES[network][0]},
        {"measure": "clean", "metric": "wcr", "at_least": GATES[network][1]},
    ]
    fleet = {
        "fleet": "mutations",
        "models": [model],
        "samples": {"uri": f"npz:{path}"},
        "measures": ["clean"],
        "gates": gates,
        "storage": str(folder / "storage"),
        "tracking": {"enabled": False},
        "resources": {"runner": "local", "workers": 1},
        "factories": ["benchmarks.*"],
    }
    try:
        result = run_audit(validate_fleet(fleet), Quiet()).result
    except ClasswiseError as error:
        return "refused", {str(error)}
    (audited,) = result.models
    if audited.outcome is Outcome.ERROR:
        return "refused", set(audited.reasons)
    return audited.outcome.value, {*result.notes, *audited.notes}


GATES = {
    "cifar10_resnet20": (0.87, 0.65),
    "cifar10_wide_std": (0.68, 0.35),
    "cifar10_cnn_a_adv": (0.58, 0.17),
    "cifar10_resnet2b": (0.62, 0.2),
}


def trials(data: Path, count: int, declare: bool) -> Iterator[tuple[str, str]]:
    """The mutation and what came of it, once a trial."""
    with np.load(data / "cifar10" / "test.npz") as file:
        whole = {name: file[name] for name in ("images", "labels", "classes")}
    names = [*SPOILED, "two weights swapped"]
    for trial in range(count):
        draw = np.random.default_rng([7, trial])
        name, network = names[trial % len(names)], NETWORKS[(trial // len(names)) % len(NETWORKS)]
        rows = np.sort(draw.choice(10_000, SAMPLES, replace=False))
        arrays = {**whole, "images": whole["images"][rows], "labels": whole["labels"][rows]}
        figure = PUBLISHED[network] if declare else None
        with tempfile.TemporaryDirectory() as place:
            plain, said = outcome(Path(place), data, network, arrays, None, figure)
        with tempfile.TemporaryDirectory() as place:
            seed = int(draw.integers(1 << 30)) if name not in SPOILED else None
            made = SPOILED[name](arrays, draw) if name in SPOILED else arrays
            moved, notes = outcome(Path(place), data, network, made, seed, figure)
        fresh = {_wordless(note) for note in notes} - {_wordless(note) for note in said}
        if moved == "refused":
            yield name, "refused"
        elif moved == plain:
            yield name, "noted, verdict unmoved" if fresh else "verdict unmoved"
        else:
            yield name, f"{plain} to {moved}, {'noted' if fresh else 'SILENT'}"


def _wordless(note: str) -> str:
    """A note without its numbers."""
    return "".join(char for char in note if not char.isdigit())


PUBLISHED = {
    "cifar10_resnet20": 0.9173,
    "cifar10_wide_std": 0.761,
    "cifar10_cnn_a_adv": 0.6565,
    "cifar10_resnet2b": 0.6925,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--count", type=int, default=60)
    options = parser.parse_args()
    for declare in (False, True):
        table = Counter(trials(Path(options.data).resolve(), options.count, declare))
        print(f"clean accuracy {'declared' if declare else 'not declared'}")
        for (name, result), count in sorted(table.items()):
            print(f"  {name:24} {result:34} {count}")


if __name__ == "__main__":
    main()
