"""Groups measured from the images themselves: `?attributes=thickness,slant@10` on any sample source.

An attribute cuts the samples in two at a threshold: the one given after `@`, in the attribute's unit, or else the
median of the samples selected. The group names say where it was cut. An image that lacks the attribute (a digit
without light) is in a third group, `undefined`.

Nothing is computed until a group is looked at: workers that open the same samples do not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services import limits
from services.errors import Problem, SourceError, counted
from services.loading.samples.stores import Shape, Taken
from services.loading.uris import SourceUri, names
from services.numerics.attributes import colour, strokes
from services.registry import did_you_mean

OPTION = "attributes"
BLOCK = 512
UNDEFINED = "undefined"

Attribute = Callable[[NDArray[Any]], NDArray[np.float64]]
STROKES: dict[str, Attribute] = {
    "length": strokes.length,
    "slant": strokes.slant,
    "thickness": strokes.thickness,
    "width": strokes.width,
}
LIGHT: dict[str, Attribute] = {
    "brightness": colour.brightness,
    "colour": colour.colour,
    "contrast": colour.contrast,
}


@dataclass(frozen=True)
class Requested:
    """One attribute, and where to cut it; None at the median."""

    name: str
    threshold: float | None


def requested_attributes(uri: SourceUri) -> tuple[SourceUri, tuple[Requested, ...]]:
    """The source without the option, and the attributes that it asks for.

    Raises:
        SourceError: an unknown attribute, one twice, or a threshold that is no number.
    """
    text = uri.query.get(OPTION)
    if text is None:
        return uri, ()
    rest = replace(uri, query={key: value for key, value in uri.query.items() if key != OPTION})
    requested: dict[str, Requested] = {}
    problems = []
    for part in names(text):
        name, at, value = part.partition("@")
        place, known = f"{uri.text} ({OPTION})", [*STROKES, *LIGHT]
        if name not in known:
            problems.append(Problem(place, "a measured attribute", repr(name), did_you_mean(name, known)))
        elif name in requested:
            problems.append(Problem(place, "each attribute once", f"{name} twice"))
        elif at and not _is_number(value):
            problems.append(Problem(place, f"a threshold such as {name}@2.5", repr(part)))
        else:
            requested[name] = Requested(name, limits.number(value) if at else None)
    if problems:
        raise SourceError(problems)
    return rest, tuple(requested.values())


def check_shape(attributes: tuple[Requested, ...], shape: Shape, where: str) -> None:
    """Whether images of this shape have the attributes.

    Raises:
        SourceError: strokes of images in colour, colour of grey ones, or no images at all.
    """
    wanted = {each.name: 3 if each.name == "colour" else 1 for each in attributes if each.name in (*STROKES, "colour")}
    problems = [
        Problem(f"{where} ({OPTION})", f"images of {counted(channels, 'channel')} for {name}", f"{shape[0]}")
        for name, channels in wanted.items()
        if shape[0] != channels
    ]
    if not problems and attributes and not shape[0]:
        problems = [Problem(f"{where} ({OPTION})", "images to measure", "labels alone")]
    if problems:
        raise SourceError(problems)


class Groups(Mapping[str, NDArray[Any]]):
    """Grouping columns (N,) of text: those of the source, and measured ones that are computed when first looked at."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], measured: tuple[Requested, ...], taken: Taken) -> None:
        self._columns = dict(columns)
        self._measured = {attribute.name: attribute for attribute in measured}
        self._read, self._count = taken.read, int(taken.kept.sum())

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._columns and name in self._measured:
            values = attribute_values(name, self._read, self._count)
            self._columns[name] = thresholded(values, self._measured[name].threshold)
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._columns, *self._measured]))

    def __len__(self) -> int:
        return len({*self._columns, *self._measured})


def attribute_values(name: str, read: Callable[[int, int], NDArray[np.float32]], count: int) -> NDArray[np.float64]:
    """One attribute of rows [0, count), (count,); NaN where an image lacks it."""

    def block(start: int) -> NDArray[np.float64]:
        images = read(start, min(start + BLOCK, count))
        return STROKES[name](images[:, 0]) if name in STROKES else LIGHT[name](images)

    return np.concatenate([block(start) for start in range(0, count, BLOCK)]) if count else np.zeros(0)


def thresholded(values: NDArray[np.float64], threshold: float | None) -> NDArray[np.str_]:
    """Group names (N,) of values (N,): below the threshold, or at it and above; by default at the median."""
    known = np.isfinite(values)
    cut = threshold if threshold is not None else float(np.median(values[known])) if known.any() else 0.0
    below, above = f"below {cut:.4g}", f"from {cut:.4g}"
    return np.where(known, np.where(values < cut, below, above), UNDEFINED)


def _is_number(text: str) -> bool:
    try:
        limits.number(text)
    except ValueError:
        return False
    return True
