"""Passes of the probe through a network: type and shape, repeatability, batch size, gradients of faults to messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from services.errors import ClasswiseError, Problem, one_line
from services.loading.models.contract import ContractedNetwork
from services.loading.models.outputs import REPEAT_TOLERANCE, declared_output_problems, rounding_facts
from services.loading.preflight import channels, diagnosis, judgement, suspicions
from services.loading.preflight.bounds import FILLED
from services.loading.preflight.passes import failure, run
from services.loading.protocols import LoadedModel

if TYPE_CHECKING:
    from services.loading.preflight.probe import Facts, Probe

BATCH_TOLERANCE = 1e-3
"""Largest accepted difference of logits, relative to the largest absolute logit (at least 1)."""


def network_problems(
    loaded: LoadedModel,
    probe: Probe,
    facts: Facts,
    *,
    device: str,
    chunk: int,
    single: int,
    batch: int,
    wider: Callable[[], Probe] | None = None,
) -> list[Problem]:
    """Run the probe and judge what comes back; a network that fails outright yields that one problem."""
    network = cast(Any, loaded.network)
    spec = loaded.spec
    problems = mode_problems(loaded)
    try:
        logits = run(network, probe.images, device, chunk)
    except ClasswiseError as error:
        return [*problems, *error.problems]
    except Exception as error:
        return [*problems, failure(spec.name, probe.images, error)]
    problems += judgement.logit_problems(spec, logits, probe.labels, probe.classes, facts)
    problems += output_problems(loaded, probe, facts, device, chunk)
    if logits.ndim == 2 and np.isfinite(logits).all():
        problems += repeat_problems(loaded, probe, logits, facts, device, chunk)
        problems += batch_problems(loaded, probe, logits, facts, device, chunk, single, batch)
        other = diagnosis.normalisation_problems(loaded, probe, logits, device, chunk)
        other = other or channels.channel_problems(loaded, probe, logits, device, chunk, wider)
        problems += judgement.uncertain(spec, "input", other, facts)
        if not problems:
            suspicions.note_suspicions(loaded, probe, logits, facts, device, chunk, wider)
    return problems


def mode_problems(loaded: LoadedModel) -> list[Problem]:
    """Training mode baked into a graph by its export: dropout and batch statistics cannot be switched off."""
    baked = loaded.facts.get("train_mode")
    if not baked:
        return []
    actual = f"training mode baked in ({', '.join(baked)})"
    remedy = "export it again after network.eval()"
    return [Problem(f"{loaded.spec.name} (mode)", "a graph exported in evaluation mode", actual, remedy)]


def output_problems(loaded: LoadedModel, probe: Probe, facts: Facts, device: str, chunk: int) -> list[Problem]:
    """Whether declared probabilities are that, and how coarse, before they became logits."""
    network = loaded.network
    if loaded.spec.outputs == "logits" or not isinstance(network, ContractedNetwork):
        return []
    declared = ContractedNetwork(network.network, loaded.spec.input, "logits", loaded.spec.output, loaded.spec.name)
    scores = run(declared.to(device), probe.images, device, chunk)
    rounded = rounding_facts(loaded.spec.outputs, scores)
    facts |= {**rounded, "notes": [*facts.get("notes", ()), *rounded["notes"]]} if rounded else {}
    return declared_output_problems(loaded.spec, scores)


def repeat_problems(
    loaded: LoadedModel, probe: Probe, logits: NDArray[np.float32], facts: Facts, device: str, chunk: int
) -> list[Problem]:
    """Two identical passes must agree, unless the model is a declared randomised defence."""
    again = run(loaded.network, probe.images[:chunk], device, chunk)
    difference = float(np.abs(again - logits[:chunk]).max())
    facts["repeat_difference"] = difference
    facts["stochastic"] = difference > REPEAT_TOLERANCE * scale(logits)
    if not facts["stochastic"] or loaded.spec.stochastic:
        return []
    actual = f"logits that differ by up to {difference:.3g}"
    remedy = "switch dropout and noise off, or declare stochastic: true for a randomised defence"
    return [Problem(f"{loaded.spec.name} (repeatability)", "two identical passes to agree", actual, remedy)]


def batch_problems(
    loaded: LoadedModel,
    probe: Probe,
    logits: NDArray[np.float32],
    facts: Facts,
    device: str,
    chunk: int,
    single: int,
    batch: int,
) -> list[Problem]:
    """A sample alone, in a pair, and at another place of a batch as large as the audit's must get the same logits."""
    if facts.get("stochastic"):
        return []
    count = min(single, len(probe.images))
    whole = _one_batch(probe.images, chunk if loaded.spec.remote else batch)
    try:
        alone = run(loaded.network, probe.images[:count], device, 1)
        pairs = run(loaded.network, probe.images[:count], device, 2)
        elsewhere = run(loaded.network, probe.images[whole], device, len(whole))
    except Exception as error:
        actual = f"{type(error).__name__}: {one_line(error)}"
        remedy = "export it with a dynamic batch dimension"
        return [Problem(f"{loaded.spec.name} (batch)", "any batch size to work", actual, remedy)]
    parts = ((alone, logits[:count]), (pairs, logits[:count]), (elsewhere, logits[whole]))
    difference = float(max(np.abs(part - expected).max() for part, expected in parts))
    facts["batch_difference"] = difference
    if difference <= BATCH_TOLERANCE * scale(logits):
        return []
    actual = f"logits that differ by up to {difference:.3g}"
    remedy = "the network mixes samples (batch norm in training mode?); export it in evaluation mode"
    return [Problem(f"{loaded.spec.name} (batch)", "the same logits alone and in a batch", actual, remedy)]


def _one_batch(images: NDArray[np.float32], batch: int) -> NDArray[np.int64]:
    """Rows of the probe from the last to the first, over again until they fill a batch."""
    return np.resize(np.arange(len(images), dtype=np.int64)[::-1], min(batch, FILLED))


def scale(logits: NDArray[np.float32]) -> float:
    """What differences are relative to: the largest absolute logit, at least 1."""
    return max(1.0, float(np.abs(logits).max()))
