"""What a probe's numbers say about a model: pure functions from arrays to problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem
from services.loading.models.outputs import Logits, undeclared_output
from services.loading.protocols import Samples
from services.numerics.class_order import Certainty, ClassOrder, class_order
from services.numerics.tails import at_least, at_most
from services.records import ModelSpec, Overrulable

LEVEL = 1e-3
"""Level of every test here: a sound model is refused at most once in a thousand audits a test."""
ACCURACY_TOLERANCE = 0.02
"""A declared accuracy may be off by this much before the test is asked (other images, another resize)."""
GUESSING = 1e-2
"""Level of the test against guessing, and the risk that a network twice as good as guessing is refused."""
SHOWN = 5
HALF = 0.5
"""A probe whose every pixel is darker than this is noted."""
COMPARE_ORDERS = "compare the model's class order with the samples'"

Labels = NDArray[np.integer[Any]]


def class_list(spec: ModelSpec, classes: tuple[str, ...]) -> list[Problem]:
    """Compare the model's class names with the samples', name by name."""
    if spec.classes is None or spec.classes == classes:
        return []
    where = f"{spec.name} (classes)"
    if sorted(spec.classes) == sorted(classes):
        k = next(k for k in range(len(classes)) if spec.classes[k] != classes[k])
        actual = f"another order: class {k} is {spec.classes[k]!r} to the model and {classes[k]!r} to the samples"
        return [Problem(where, "the samples' class order", actual, "give the samples the model's order with ?classes=")]
    return [Problem(where, "the same classes in model and samples", *_other_names(spec.classes, classes))]


def _other_names(model: tuple[str, ...], samples: tuple[str, ...]) -> tuple[str, str]:
    """What differs, and what to do: a folder that is no class of the model is the usual one."""
    sides = (
        ("of the samples that the model does not have", samples, model),
        ("of the model without samples", model, samples),
    )
    parts = []
    for what, names, others in sides:
        if extra := [name for name in names if name not in others]:
            parts.append(f"{len(extra)} {what}: {', '.join(map(repr, extra[:SHOWN]))}")
    return "; ".join(parts), "remove a folder (or label) that is no class of the model, or correct the lists of classes"


def empty_classes_note(samples: Samples, facts: dict[str, Any]) -> list[Problem]:
    """Classes without samples are a fact, not a fault, unless all but one are empty."""
    counts = np.bincount(samples.labels, minlength=len(samples.classes))
    empty = [name for name, count in zip(samples.classes, counts, strict=True) if not count]
    if empty:
        facts["classes_without_samples"] = empty
    if np.count_nonzero(counts) < 2:
        actual = f"{np.count_nonzero(counts)} of {len(counts)}"
        return [Problem("samples", "at least two classes with samples", actual)]
    return []


def image_problems(spec: ModelSpec, images: NDArray[Any]) -> list[Problem]:
    """Images must be float32 in [0, 1] and have the channels that the contract's normalisation speaks of."""
    problems = []
    low, high = float(np.min(images)), float(np.max(images))
    if images.dtype != np.float32 or not (low >= 0 and high <= 1):
        actual = f"{images.dtype} from {low:g} to {high:g}"
        problems.append(Problem("samples", "float32 images in [0, 1]", actual, "declare the range with ?scale="))
    if low == high:
        problems.append(Problem("samples", "images that differ", f"every pixel {low:g}"))
    channels = spec.input.channels or images.shape[1]
    for name, values in (("mean", spec.input.mean), ("std", spec.input.std)):
        if values is not None and len(values) not in (1, channels):
            actual = f"{len(values)} for {channels} channels"
            problems.append(Problem(f"{spec.name} (input.{name})", "one value a channel", actual))
    return problems


def note_dark_images(images: NDArray[Any], facts: dict[str, Any]) -> None:
    """Values in [0, 63] or {0, 1} are stored as uint8 too, and divided by 255 like all others."""
    highest = float(np.max(images))
    if 0 < highest < HALF:
        found = f"the largest pixel of {len(images)} samples is {highest:.3g}, where 1 is white"
        note(facts, f"{found}: dark images, or values of another range than declared (uint8 is divided by 255)")


def logit_problems(
    spec: ModelSpec, logits: Logits, labels: Labels, classes: tuple[str, ...], facts: dict[str, Any]
) -> list[Problem]:
    """Everything that logits (n, K) with labels (n,) reveal; facts are filled in."""
    if logits.ndim != 2 or logits.shape[1] != len(classes):
        return [_width_problem(spec, logits, labels, classes)]
    if problems := finite_problems(spec, logits):
        return problems
    predicted = logits.argmax(axis=1)
    correct = int(np.sum(predicted == labels))
    facts["probe"], facts["clean_correct"] = len(labels), correct
    facts["clean_accuracy"] = correct / len(labels)
    if ties := int(np.sum((logits == logits.max(axis=1, keepdims=True)).sum(axis=1) > 1)):
        note(facts, f"several classes share the largest logit in {ties} of {len(labels)} samples: these count as wrong")
    facts["logits_low"], facts["logits_high"] = float(logits.min()), float(logits.max())
    undeclared = undeclared_output(spec, _before_offsets(spec, logits), guesses=guesses(correct, *logits.shape))
    return [
        *uncertain(spec, "outputs", undeclared, facts),
        *prediction_problems(spec, predicted, labels, classes, facts),
        *uncertain(spec, "clean-accuracy", declared_problems(spec, correct, len(labels)), facts),
    ]


def _before_offsets(spec: ModelSpec, logits: Logits) -> Logits:
    """What the network itself returned: offsets would hide that it is probabilities."""
    return logits - np.asarray(spec.offsets, dtype=np.float32) if spec.offsets else logits


def uncertain(spec: ModelSpec, kind: Overrulable, problems: list[Problem], facts: dict[str, Any]) -> list[Problem]:
    """What statistics suggest and a user may know better: overruled in the fleet file, it is a note."""
    if kind not in spec.overrule:
        return [replace(each, remedy=f"{each.remedy}; if it is right, overrule: [{kind}]") for each in problems]
    for problem in problems:
        note(facts, f"overruled in the fleet file ({kind}): {problem.expected} was expected, found {problem.found}")
    return []


def note(facts: dict[str, Any], sentence: str) -> None:
    """Add a sentence that the reader of the audit must know."""
    facts["notes"] = [*facts.get("notes", ()), sentence]


def _width_problem(spec: ModelSpec, logits: Logits, labels: Labels, classes: tuple[str, ...]) -> Problem:
    """Another number of outputs than classes; of too many classes the smallest are named, for a stray folder is one."""
    actual, remedy = f"shape {logits.shape}", "check the class list, or num_classes"
    surplus = len(classes) - logits.shape[1] if logits.ndim == 2 else 0
    if surplus > 0:
        counts = np.bincount(labels, minlength=len(classes))
        smallest = [classes[k] for k in np.argsort(counts, kind="stable")[: min(surplus, SHOWN)]]
        actual += f"; of the {len(classes)} classes the smallest is {', '.join(smallest)}"
        remedy = "remove a folder (or label) that is no class of the model; else check num_classes"
    return Problem(
        f"{spec.name} (output)", f"logits (n, {len(classes)}), one column a class of the samples", actual, remedy
    )


def finite_problems(spec: ModelSpec, logits: Logits) -> list[Problem]:
    """NaN or infinity in any row: it would win or poison every maximum."""
    rows = int(np.sum(~np.isfinite(logits).all(axis=1)))
    if not rows:
        return []
    actual = f"NaN or infinity for {rows} of {len(logits)} samples"
    return [Problem(f"{spec.name} (output)", "finite logits", actual, "check the weights and the input range")]


def prediction_problems(
    spec: ModelSpec, predicted: Labels, labels: Labels, classes: tuple[str, ...], facts: dict[str, Any]
) -> list[Problem]:
    """One constant class, another class order, or an accuracy no better than guessing."""
    where = f"{spec.name} (predictions)"
    if len(np.unique(labels)) > 1 and len(set(predicted.tolist())) == 1:
        actual = f"{classes[int(predicted[0])]!r} for all {len(labels)}"
        return [Problem(where, "predictions of several classes", actual, "check weights and normalisation")]
    order = class_order(labels, predicted, len(classes))
    if problem := _order_problem(spec, order, len(labels), classes, facts):
        return uncertain(spec, "class-order", [problem], facts)
    correct = int(np.sum(predicted == labels))
    return uncertain(spec, "chance", chance_problems(spec, correct, len(labels), len(classes), facts), facts)


def _order_problem(
    spec: ModelSpec, order: ClassOrder, count: int, classes: tuple[str, ...], facts: dict[str, Any]
) -> Problem | None:
    """Another class order, where it is certain; where it is possible, or the declared accuracy denies it, a note."""
    if order.certainty is Certainty.NONE:
        return None
    actual = moved_classes(order, classes)
    if order.certainty is Certainty.CERTAIN and not _declared_denies(spec, order, count):
        remedy = "the model was trained with another class order: give the samples its order with ?classes="
        return Problem(f"{spec.name} (predictions)", "the samples' class order", actual, remedy)
    note(facts, f"{actual}; {COMPARE_ORDERS}")
    return None


def moved_classes(order: ClassOrder, classes: tuple[str, ...]) -> str:
    """Which classes another order moves, in words."""
    shown = zip(order.moved[:SHOWN], order.to[:SHOWN], strict=True)
    pairs = ", ".join(f"{classes[k]} as {classes[j]}" for k, j in shown)
    return f"{len(order.moved)} classes predicted consistently as another: {pairs}"


def order_notes(labels: Labels, predicted: Labels, classes: tuple[str, ...]) -> list[str]:
    """What all samples say of the class order, where the few of preflight could not tell; -1 predicts nothing."""
    known = predicted >= 0
    order = class_order(labels[known], predicted[known], len(classes))
    return [] if order.certainty is Certainty.NONE else [f"{moved_classes(order, classes)}; {COMPARE_ORDERS}"]


def _declared_denies(spec: ModelSpec, order: ClassOrder, count: int) -> bool:
    """Whether the accuracy is the declared one as it stands, and would not be in the other order."""
    if spec.clean_accuracy is None:
        return False
    stands = declared_problems(spec, round(order.accuracy * count), count)
    return not stands and bool(declared_problems(spec, round(order.explained * count), count))


def guesses(correct: int, count: int, classes: int) -> bool:
    """Whether so many correct samples do not speak against guessing at 1/K."""
    return bool(at_least(correct, count, 1 / classes) > GUESSING)


def chance_problems(spec: ModelSpec, correct: int, count: int, classes: int, facts: dict[str, Any]) -> list[Problem]:
    """An exact binomial test against guessing at 1/K; where the samples could not tell a better network, a note.

    A better network is one of twice the accuracy of guessing, or half way to 1 where that is less. An accuracy that is
    the declared one is no fault.
    """
    if not guesses(correct, count, classes):
        return []
    chance = 1 / classes
    actual = f"{correct} of {count} correct ({correct / count:.1%})"
    needed = int(np.flatnonzero(at_least(np.arange(1, count + 2), count, chance) <= GUESSING)[0])
    separable = at_least(needed + 1, count, min(2 * chance, (1 + chance) / 2)) >= 1 - GUESSING
    declared = spec.clean_accuracy is not None and not declared_problems(spec, correct, count)
    if declared or not separable:
        note(facts, f"{actual}, which does not differ from guessing ({chance:.1%})")
        return []
    remedy = "check normalisation (twice or nowhere), value range, class order and weights"
    return [Problem(f"{spec.name} (predictions)", f"an accuracy above chance ({chance:.1%})", actual, remedy)]


def declared_problems(spec: ModelSpec, correct: int, count: int) -> list[Problem]:
    """An exact binomial test against the declared accuracy, widened by `ACCURACY_TOLERANCE` on both sides."""
    declared = spec.clean_accuracy
    if declared is None:
        return []
    low, high = max(declared - ACCURACY_TOLERANCE, 0.0), min(declared + ACCURACY_TOLERANCE, 1.0)
    too_low = at_most(correct, count, low) < LEVEL / 2
    too_high = at_least(correct, count, high) < LEVEL / 2
    if not (too_low or too_high):
        return []
    actual = f"{correct} of {count} correct ({correct / count:.1%})"
    remedy = "check the input contract and the weights" if too_low else "check that the declared figure is this model's"
    return [Problem(f"{spec.name} (clean_accuracy)", f"about {declared:.1%} as declared", actual, remedy)]
