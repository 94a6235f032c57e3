"""What became of everything a source of samples holds: what was not read, left out, turned, or not drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

SHOWN = 5
NO_SUFFIX = "no suffix"
NO_CLASS = "no class"
"""Where files are counted that lie beside the class folders."""


@dataclass(frozen=True, slots=True)
class Intake:
    """The account of a source; with the samples it makes up all that is there.

    Attributes:
        available: samples of each class in the whole source, before the draw; empty where a record has none.
        unread: by class, then by suffix: files or rows that are not read and should have been.
        left_out: by kind ("hidden", "system", "thumbnails", "descriptions"): files that are no samples.
        turned: images turned upright by their EXIF orientation.
        colours: images whose stored colours are not those of sRGB, by what they are; taken as stored.
        copies: samples that are copies of others with the same label; left out unless `copies_kept`.
        audited: samples of a reserve that are copies of images that audits see, under whatever label; left out.
        conflicts: pairs of classes that one image stands under, the number of such images, and ids of the first.
        alike: samples that look like another one; None where that was not looked for.
        trained_on: samples that are among the declared training images; None where none are declared.
        cluster: column that says which samples belong together; "" where all are independent.
        clusters: clusters in all; 0 where samples have none.
        clusters_of: clusters with samples of each class; empty where samples have none.
        remarks: sentences on what else is in the source.
    """

    available: tuple[int, ...] = ()
    unread: dict[str, dict[str, int]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    turned: int = 0
    colours: dict[str, int] = field(default_factory=dict)
    copies: int = 0
    copies_kept: bool = False
    audited: int = 0
    conflicts: tuple[tuple[str, str, int, str], ...] = ()
    alike: int | None = None
    trained_on: int | None = None
    cluster: str = ""
    clusters: int = 0
    clusters_of: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()


def suffix_of(name: str) -> str:
    """Lower-case suffix of a file's name, or words for none."""
    return PurePath(name).suffix.lower() or NO_SUFFIX


def unread_sentence(name: str, suffixes: Mapping[str, int]) -> str:
    """`36 files of cat not read: .avif`."""
    count = sum(suffixes.values())
    return f"{count} file{'s' * (count != 1)} of {name} not read: {', '.join(sorted(suffixes))}"


def intake_notes(intake: Intake, classes: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    """Plain sentences for readers of an audit with `counts` samples of each class."""
    yield from (f"{unread_sentence(name, intake.unread[name])}." for name in sorted(intake.unread))
    if intake.left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(intake.left_out.items()))
        yield f"Files that are no samples were left out: {kinds}."
    if intake.turned:
        share = f"{intake.turned} of {sum(counts)} images were turned upright by their EXIF orientation"
        yield f"{share}; ?orientation=stored leaves the pixels as stored."
    for kind, number in sorted(intake.colours.items()):
        yield f"{number} of {sum(counts)} images {kind}: as in usual training code, while viewers show other colours."
    yield from intake.remarks
    if intake.clusters:
        yield (
            f"{sum(counts)} samples come in {intake.clusters} clusters by {intake.cluster}: the cluster is the unit of "
            "all numbers and intervals, and counts once, however many samples it has."
        )
    yield from _copy_notes(intake, sum(counts))
    yield from _draw_notes(intake.available, classes, counts)


def _copy_notes(intake: Intake, count: int) -> Iterator[str]:
    if intake.copies:
        what = f"{intake.copies} samples are copies of others under the same label"
        kept = "count as samples of their own (duplicates: all), so intervals are too narrow and gates err more often"
        yield f"{what} and {kept if intake.copies_kept else 'were left out: each image counts once'}."
    if intake.audited:
        yield f"{intake.audited} samples of the reserve are copies of images that audits see and were left out."
    if intake.conflicts:
        listed = [f"{n} as {single} and {other} (samples {ids})" for single, other, n, ids in intake.conflicts]
        more = f" and {len(listed) - SHOWN} more pairs" if len(listed) > SHOWN else ""
        yield f"The same image stands under two labels, one of which is wrong: {', '.join(listed[:SHOWN])}{more}."
    if intake.alike:
        yield f"{intake.alike} samples look like another one, encoded or scaled again; they count as further samples."
    if intake.trained_on:
        yield (
            f"{intake.trained_on} of {count} samples are among the declared training images: the models were fitted to "
            "them, and scores on them say little of new images."
        )


def _draw_notes(available: Sequence[int], classes: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    """Classes that the draw holds more of than their share, for the least number: the aggregate weighs them so."""
    if not available or sum(counts) >= sum(available):
        return
    ratio = sum(counts) / sum(available)
    raised = [k for k, (n, of) in enumerate(zip(counts, available, strict=True)) if n == 1 and of * ratio < 0.5]
    if raised:
        named = ", ".join(f"{classes[k]} (1 of {available[k]})" for k in raised[:SHOWN])
        more = f" and {len(raised) - SHOWN} more" if len(raised) > SHOWN else ""
        yield (
            f"The draw holds one sample of classes that have less than half a sample in proportion: {named}{more}; "
            "the aggregate weighs every class by its samples in the draw."
        )
