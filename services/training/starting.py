"""The weights that a fine-tuning starts from: of a file, or of any model source that has the network in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.errors import Problem, SourceError
from services.loading.fingerprint import existing, sha256
from services.loading.models.source import SCHEMES, load_model
from services.records import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor, nn

COUNTER = "num_batches_tracked"
"""Of batch norm: a graph need not have it."""


def load_start(
    network: nn.Module, init: str, *, key: str | None = None, factories: tuple[str, ...] = (), where: str
) -> str:
    """Load weights into a network, strictly; returns a digest of what they were read from.

    Args:
        init: a file, or a model source: `mlflow:models:/NAME/1`, `export:FILE.pt2`, `factory:...?weights=FILE`.
        key: which weights of a file that holds several sets.
        factories: modules that a `factory:` source may import.

    Raises:
        SourceError: there is no such file or model, or it has no weights for every one of the network's and no other.
    """
    if not is_source(init):
        from services.loading.models.weights import load_weights

        path = existing(Path(init).expanduser().absolute(), where)
        load_weights(network, path, where=where, key=key)
        return sha256(path)
    from services.loading.models.weights import mismatches

    loaded = load_model(ModelSpec(where, init), allowed_factories=factories)
    module: Any = getattr(loaded.network, "network", None)
    if not hasattr(module, "state_dict"):
        expected = "a model whose weights can be read, such as mlflow:, export: or factory:"
        raise SourceError(Problem(where, expected, init, "name a file of its weights"))
    wanted = network.state_dict()
    held = _part(module.state_dict(), {name for name, _ in module.named_parameters()}, wanted)
    if problems := mismatches(held, wanted, where):
        raise SourceError(problems)
    network.load_state_dict(held, strict=False)
    return loaded.digest


def is_source(init: str) -> bool:
    """Whether a start is a model source, and no file."""
    return init.partition(":")[0] in SCHEMES.names()


def _part(held: Mapping[str, Tensor], learnt: set[str], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights below the only module that has all of the network's, under the network's names.

    What stands beside that module and was not learnt, a normalisation, is left out; other weights are kept by their
    names, and so refused. Without such a module, or with two, all are.
    """
    names = [name for name in wanted if not name.endswith(COUNTER)]
    ends = [name.removesuffix(names[0]) for name in held if name == names[0] or name.endswith(f".{names[0]}")]
    places = [place for place in ends if all(f"{place}{name}" in held for name in names)]
    if len(places) != 1:
        return dict(held)
    (place,) = places
    rest = {name: held[name] for name in learnt if not name.startswith(place)}
    return {name.removeprefix(place): value for name, value in held.items() if name.startswith(place)} | rest
