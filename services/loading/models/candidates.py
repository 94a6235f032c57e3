"""Which weights of a checkpoint: each state dict in it that fits the network is a candidate, and two are a question.

So is a state dict beside further tensors of the network's shapes under names that are not its own: averages are also
kept as lists, by number, and under prefixes that nobody here knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from services.errors import Problem, SourceError

PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.", "student.", "teacher.")
"""What training code puts before every key; taken off where more keys match without."""
AVERAGES = ("ema.", "ema_model.", "model_ema.", "swa_model.", "averaged_model.")
DEPTH = 4
SHOWN = 5
MOST = 20
"""Different weights of a checkpoint that are compared with each other, and further names of one container."""
OF_GRADIENTS = frozenset(
    (
        *("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "grad_avg"),
        *("acc_delta", "sum", "prev", "step_size", "exp_avg_diff", "neg_pre_grad", "exp_avg_slow", "exp_avg_fast"),
        *("hessian", "exp_hessian_diag_sq", "momentum", "previous_grad", "p0", "s"),
    )
)
"""What optimizers of torch, timm and their like keep of a parameter that is no weight to evaluate."""
LEVELS = 12
"""Containers inside of each other in which further tensors are looked for."""
FITS = 0.5
"""Share of the network's weights that a state dict must hold, by key and shape, to be a candidate."""
State = dict[str, Tensor]


@dataclass(frozen=True)
class Candidate:
    """A state dict of a checkpoint.

    Attributes:
        keys: where it lies, outermost first; empty for the whole file.
        stripped: prefix taken off its keys.
        state: keys as the network has them.
        matches: of the network's weights, how many it holds with their shapes.
    """

    keys: tuple[str, ...]
    stripped: str
    state: State
    matches: int

    @property
    def name(self) -> str:
        return ".".join(self.keys) or "the whole file"


def choose(raw: Any, wanted: Mapping[str, Tensor], *, where: str, key: str | None = None) -> Candidate:
    """The state dict to load into a network with the state dict `wanted`.

    Of equal candidates the first counts; `key` chooses among different ones, by their whole name or its beginning.

    Raises:
        SourceError: there is none, several differ and no key chooses, or the key chooses none.
    """
    candidates = [_stripped(keys, state, wanted) for keys, state in _states(raw, (), {}, Counter())]
    if not candidates:
        held = f"keys {', '.join(map(repr, list(raw)[:SHOWN]))}" if isinstance(raw, Mapping) else type(raw).__name__
        raise SourceError(Problem(where, "a state dict, or one under keys of the checkpoint", held))
    of_whole = [(whole.keys, part) for whole in candidates for part in (_parts(whole, wanted) or [whole])]
    parts = [part for _, part in of_whole]
    fitting = _distinct([part for part in parts if part.matches >= FITS * len(wanted)])
    if key is not None:
        chosen = [part for part in parts if part.name == key] or [p for p in fitting if p.name.startswith(f"{key}.")]
        if len(chosen) != 1:
            remedy = f"give one of {_named(fitting or parts)}"
            raise SourceError(Problem(f"{where} (key)", "the name of one state dict", repr(key), remedy))
        return chosen[0]
    known = {keys for keys, part in of_whole if part.matches >= FITS * len(wanted)}
    looking = [p for p in _lookalikes(raw, wanted, fitting[0].state) if p not in known] if fitting else []
    others = [".".join(places) or "the whole file" for places in looking]
    if len(fitting) + len(others) > 1:
        found = ", ".join([_named(fitting), *(f"{name} (not by the network's names)" for name in others)])
        remedy = f"choose with &key=, for example &key={fitting[-1].name}"
        remedy += ", or save the one you mean alone, under the network's names" if others else ""
        raise SourceError(Problem(where, "one set of weights", f"{len(fitting) + len(others)}: {found}", remedy))
    return fitting[0] if fitting else max(parts, key=lambda part: part.matches)


def without(state: State, prefix: str, where: str) -> State:
    """The state dict without the keys that begin with a prefix: a head that evaluation does not use.

    Raises:
        SourceError: no key begins so.
    """
    kept = {name: value for name, value in state.items() if not name.startswith(prefix)}
    if len(kept) == len(state):
        actual = f"keys {', '.join(list(state)[:SHOWN])}"
        raise SourceError(Problem(f"{where} (drop_keys)", f"keys that begin with {prefix!r}", actual))
    return kept


def _states(
    raw: Any, keys: tuple[str, ...], looked: dict[int, int], named: Counter[int]
) -> Iterator[tuple[tuple[str, ...], State]]:
    """All state dicts of an object, outermost first. A file of a few bytes can hold one under a million names.

    Args:
        looked: containers, and how far out each was looked into.
        named: under how many names each was given.
    """
    container = id(raw)
    if isinstance(raw, nn.Module):
        raw = raw.state_dict()
    if not isinstance(raw, Mapping) or len(keys) > DEPTH or named[container] > MOST:
        return
    named[container] += 1
    own = {name: value for name, value in raw.items() if isinstance(name, str) and isinstance(value, Tensor)}
    own.pop("n_averaged", None)
    if own and len(own) * 2 > len(raw):
        yield keys, own
    if looked.get(container, DEPTH + 1) <= len(keys):
        return
    looked[container] = len(keys)
    for name, value in raw.items():
        if isinstance(name, str) and isinstance(value, Mapping | nn.Module):
            yield from _states(value, (*keys, name), looked, named)


def _lookalikes(raw: Any, wanted: Mapping[str, Tensor], chosen: State) -> Iterator[tuple[str, ...]]:
    """Where other weights of the network's shapes lie: mappings and lists, slots of an optimizer, one long vector.

    Copies of the chosen weights are none, nor are an optimizer's averages of gradients, which have these shapes as
    well.
    """
    shapes = Counter(value.shape for value in wanted.values() if value.ndim > 1)
    own = {name: chosen[name] for name, value in wanted.items() if name in chosen and chosen[name].shape == value.shape}
    vectors = {len(vector): vector for vector in _vectors(own)}
    known: dict[Any, list[Tensor]] = {}
    for value in own.values():
        known.setdefault(value.shape, []).append(value)
    seen: set[int] = set()  # a file of a few bytes can hold a container in itself a million times

    def fits(held: list[Any]) -> bool:
        tensors = [value for value in held if isinstance(value, Tensor)]
        if shapes - Counter(value.shape for value in tensors):
            return False
        kernels = [value for value in tensors if value.ndim > 1]
        return not all(any(_same(value, each) for each in known.get(value.shape, ())) for value in kernels)

    def look(held: Any, places: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if id(held) in seen:
            return
        seen.add(id(held))
        named = held.items() if isinstance(held, Mapping) else enumerate(held)
        inner = [(str(name), value) for name, value in named]
        if isinstance(held, Mapping) and "param_groups" in held:
            yield from ((*places, "state", slot) for slot, values in _slots(held.get("state")) if fits(values))
            inner = [(name, value) for name, value in inner if name not in ("state", "param_groups")]
        elif fits([value for _, value in inner]):
            yield places
        for name, value in inner:
            if isinstance(value, Tensor) and value.ndim == 1 and len(value) in vectors:
                yield from () if _same(value, vectors[len(value)]) else [(*places, name)]
            elif isinstance(value, Mapping | list | tuple) and len(places) < LEVELS:
                yield from look(value, (*places, name))

    if shapes.total() > 1 and isinstance(raw, Mapping | list | tuple):
        yield from look(raw, ())


def _vectors(weights: State) -> Iterator[Tensor]:
    """All weights as one vector, with and without the statistics of batch norm."""
    floating = {name: value.flatten() for name, value in weights.items() if value.is_floating_point()}
    learnt = [value for name, value in floating.items() if not name.endswith(("running_mean", "running_var"))]
    yield from (torch.cat(parts) for parts in ([*floating.values()], learnt) if parts)


def _slots(state: Any) -> Iterator[tuple[str, list[Any]]]:
    """What an optimizer keeps of each parameter under one name, where that is no average of gradients."""
    by_slot: dict[str, list[Any]] = {}
    for kept in state.values() if isinstance(state, Mapping) else ():
        for slot, value in kept.items() if isinstance(kept, Mapping) else ():
            if str(slot) not in OF_GRADIENTS:
                by_slot.setdefault(str(slot), []).append(value)
    yield from by_slot.items()


def _same(value: Tensor, own: Tensor) -> bool:
    """Whether a tensor is a copy, in another precision perhaps: the one that mixed precision trains."""
    return torch.equal(value, own) or (value.dtype != own.dtype and torch.equal(value.to(own.dtype), own))


def _stripped(keys: tuple[str, ...], state: State, wanted: Mapping[str, Tensor]) -> Candidate:
    """A state dict without the prefixes that all its keys share, as long as that makes more keys match."""
    best, taken = Candidate(keys, "", state, _matches(state, wanted)), ""
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in state)), None):
        state, taken = {name.removeprefix(prefix): value for name, value in state.items()}, taken + prefix
        if (matches := _matches(state, wanted)) > best.matches:
            best = Candidate(keys, taken, state, matches)
    return best


def _parts(whole: Candidate, wanted: Mapping[str, Tensor]) -> list[Candidate]:
    """Student and teacher, or a network and its average, side by side in one state dict that matches as neither.

    What belongs to no part stays with the only one, where it is refused or dropped by name.
    """
    matching = []
    for prefix in (*PREFIXES, *AVERAGES):
        own = {name.removeprefix(prefix): v for name, v in whole.state.items() if name.startswith(prefix)}
        if own and len(own) < len(whole.state):
            part = _stripped((*whole.keys, prefix.removesuffix(".")), own, wanted)
            matching += [part] if part.matches >= FITS * len(wanted) and part.matches > whole.matches else []
    if len(matching) == 1:
        prefix = f"{matching[0].keys[-1]}."
        rest = {name: value for name, value in whole.state.items() if not name.startswith(prefix)}
        only = matching[0]
        return [Candidate(whole.keys, prefix + only.stripped, {**only.state, **rest}, only.matches)]
    return matching


def _matches(state: State, wanted: Mapping[str, Tensor]) -> int:
    return sum(name in state and state[name].shape == value.shape for name, value in wanted.items())


def _distinct(candidates: list[Candidate]) -> list[Candidate]:
    kept: list[Candidate] = []
    for each in candidates:
        if not any(_equal(each.state, other.state) for other in kept):
            kept.append(each)
        if len(kept) > MOST:
            break
    return kept


def _equal(state: State, other: State) -> bool:
    return state.keys() == other.keys() and all(
        value.shape == other[name].shape and torch.equal(value, other[name]) for name, value in state.items()
    )


def _named(candidates: list[Candidate]) -> str:
    return ", ".join(candidate.name for candidate in candidates)
