"""One look at a model and its samples before any long work: reports every problem together, with what to do about each.

A stratified probe of the samples goes through the network a few times. What comes back is judged by the pure functions
of `checks`; what could explain a low accuracy is tried by `diagnosis`.
"""

from __future__ import annotations

import math

import numpy as np

from services.errors import ClasswiseError, Problem
from services.loading.preflight import judgement
from services.loading.preflight.bounds import CHUNK, MOST_BYTES, PROBE, SINGLE, WIDER
from services.loading.preflight.probe import Facts, Probe
from services.loading.protocols import LoadedModel, Samples
from services.loading.samples.selection import select


def preflight(
    loaded: LoadedModel, samples: Samples, *, device: str, probe: int = PROBE, batch: int = CHUNK
) -> tuple[Facts, tuple[Problem, ...]]:
    """Return JSON-able facts and all problems; no problem means the audit may start.

    The network is given at most `batch` images at a time, and fewer where memory runs out; a remote one no more than
    `bounds.most_queries` in all, so it gets no second look.

    Facts: `probe` (samples looked at), `clean_accuracy` and `clean_correct` on them, `logits_low`, `logits_high`,
    `batch_difference` (largest absolute difference between one sample alone and in a batch), `repeat_difference`,
    `stochastic`, `notes` (sentences for the reader), `speed` (seconds an image, of a forward pass and of one with its
    gradient), and whatever the loader found.
    """
    facts: Facts = dict(loaded.facts)
    problems = [*judgement.class_list(loaded.spec, samples.classes), *judgement.empty_classes_note(samples, facts)]
    if loaded.network is None:
        problems += _table_problems(loaded, samples, facts)
    elif not all(samples.shape):
        remedy = "add the images, or audit tables of logits (logits:FILE) only"
        problems.append(Problem(loaded.spec.name, "samples with images, to run a network on", "labels alone", remedy))
    else:
        from services.loading.preflight import probing
        from services.loading.preflight.speed import measured_speed

        taken = _take(samples, probe)
        problems += judgement.image_problems(loaded.spec, taken.images)
        judgement.note_dark_images(taken.images, facts)
        chunk = min(CHUNK, batch)
        wider = None if loaded.spec.remote else lambda: _take(samples, WIDER)
        problems += probing.network_problems(
            loaded, taken, facts, device=device, chunk=chunk, single=SINGLE, batch=batch, wider=wider
        )
        if not problems:
            gradients = loaded.differentiable
            facts["speed"] = measured_speed(
                loaded.network, taken.images, device=device, batch=batch, gradients=gradients
            )
    return facts, tuple(dict.fromkeys(problems))


def _take(samples: Samples, count: int) -> Probe:
    """So many samples, and fewer of images that would fill the memory."""
    count = max(1, min(count, MOST_BYTES // (4 * math.prod(samples.shape))))
    rows = select(samples.labels, len(samples.classes), per_class=None, limit=count, seed=0, least=0)
    images = np.concatenate([samples.images(int(row), int(row) + 1) for row in rows])
    return Probe(images, samples.labels[rows], samples.ids[rows], samples.classes)


def _table_problems(loaded: LoadedModel, samples: Samples, facts: Facts) -> list[Problem]:
    """A table of logits is cheap to read whole, so coverage and labels are checked on every sample."""
    from services.loading.models.schemes.logits import LogitTable

    if loaded.logits is None:
        return [Problem(loaded.spec.name, "a network or a table of logits", "neither")]
    try:
        logits = loaded.logits(samples.ids)
    except ClasswiseError as error:
        return list(error.problems)
    table = loaded.logits
    problems: list[Problem] = []
    if isinstance(table, LogitTable):
        problems += table.length_problems(sum(samples.intake.available))
        problems += table.label_problems(samples.ids, samples.labels)
    return [*problems, *judgement.logit_problems(loaded.spec, logits, samples.labels, samples.classes, facts)]
