"""Images of a source, read by row: arrays in memory here, encoded files in `encoded`.

A `Store` knows all rows of the source; `take` fixes the rows an audit wants and returns a `Taken`, whose `read` gives
float32 NCHW in [0, 1]. Values stay as stored (uint8) until a batch is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.samples.duplicates import CHUNK, fingerprints
from services.records.intake import unread_sentence

Shape = tuple[int, int, int]
Read = Callable[[int, int], NDArray[np.float32]]


@dataclass(frozen=True)
class Taken:
    """The rows an audit wants, ready to read.

    Attributes:
        read: rows [start, stop) of those kept, (n, C, H, W) float32 in [0, 1].
        kept: (len(rows),) bool, False where a corrupt image was skipped.
        shape: (C, H, W).
        content: hash of the images' content.
        refused: names of the rows that are not kept, in order.
        turned: images that were turned upright.
        prints: fingerprints of the kept images, equal for copies; () where there are no images. Of sets that are too
            large to keep decoded they are those of the files, so that an image encoded twice has two.
        files: fingerprints of their files; () where there are none.
        colours: numbers of images whose colours are not those of sRGB, by what they are (`colours.unapplied`).
    """

    read: Read
    kept: NDArray[np.bool_]
    shape: Shape
    content: str
    refused: tuple[str, ...] = ()
    turned: int = 0
    prints: tuple[bytes, ...] = ()
    files: tuple[bytes, ...] = ()
    colours: Mapping[str, int] = field(default_factory=dict)

    def shared(self, other: Taken) -> int | None:
        """How many images are among the other's, by pixels where both were decoded, else by files; None where one has
        no files and the other was too large to decode."""
        if self.prints != self.files and other.prints != other.files:
            pixels = {*other.prints}
            return sum(image in pixels for image in self.prints)
        files = {*other.files}
        return sum(file in files for file in self.files) if self.files and files else None


class Store(Protocol):
    """All images of a source."""

    def __len__(self) -> int: ...

    def take(self, rows: NDArray[np.int64], *, on_corrupt: Literal["error", "skip"]) -> Taken:
        """Fix the rows to read."""
        ...


@dataclass(frozen=True)
class ArrayStore:
    """Images in one array.

    Attributes:
        pixels: (N, H, W, C), (N, C, H, W) or (N, H, W); uint8, or floating in [0, divisor].
        layout: "NHWC", "NCHW" or "NHW".
        divisor: what maps the values to [0, 1].
        content: hash of the content.
    """

    pixels: NDArray[Any]
    layout: Literal["NHWC", "NCHW", "NHW"]
    divisor: float
    content: str

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> Shape:
        _, channels, height, width = self._channels_first(self.pixels[:1]).shape
        return channels, height, width

    def take(self, rows: NDArray[np.int64], *, on_corrupt: Literal["error", "skip"]) -> Taken:
        """Rows are copied only where they are not all of the source."""
        whole = len(rows) == len(self.pixels)
        pixels = self._channels_first(self.pixels if whole else self.pixels[rows])
        divisor = np.float32(self.divisor)

        def read(start: int, stop: int) -> NDArray[np.float32]:
            block = pixels[start:stop]
            out = np.empty(block.shape, np.float32)
            np.divide(block, divisor, out=out)
            return out

        last = pixels.transpose(0, 2, 3, 1)
        blocks = (last[start : start + CHUNK] for start in range(0, len(last), CHUNK))
        scaled = blocks if pixels.dtype == np.uint8 else (block / divisor for block in blocks)
        prints = tuple(chain.from_iterable(map(fingerprints, scaled)))
        return Taken(read, np.ones(len(rows), bool), self.shape, self.content, prints=prints)

    def _channels_first(self, pixels: NDArray[Any]) -> NDArray[Any]:
        if self.layout == "NHWC":
            return pixels.transpose(0, 3, 1, 2)
        return pixels[:, None] if self.layout == "NHW" else pixels


@dataclass(frozen=True)
class LabelsOnly:
    """No images: `count` labelled samples whose logits come from a table."""

    count: int
    content: str
    where: str

    def __len__(self) -> int:
        return self.count

    def take(self, rows: NDArray[np.int64], *, on_corrupt: Literal["error", "skip"]) -> Taken:
        """Rows without pixels: shape (0, 0, 0)."""

        def read(start: int, stop: int) -> NDArray[np.float32]:
            raise SourceError(Problem(self.where, "an array images", "labels alone", "add images"))

        return Taken(read, np.ones(len(rows), bool), (0, 0, 0), self.content)


def array_store(
    pixels: NDArray[Any], *, scale: float | None, content: str, where: str, layout: str | None = None
) -> ArrayStore:
    """Check an array of images and wrap it.

    uint8 is divided by 255. A floating array must declare its range as `scale`: a value of 1 or 255 is never guessed.

    Raises:
        SourceError: a shape that is not images, another dtype, an undeclared range, or values outside the declared one.
    """
    if pixels.dtype == np.uint8:
        if scale not in (None, 255):
            raise SourceError(Problem(where, "scale=255 for uint8 images", f"scale={scale:g}"))
        return ArrayStore(pixels, _layout(pixels, layout, where), 255.0, content)
    if pixels.dtype.kind != "f":
        raise SourceError(Problem(where, "images as uint8, or floating with a declared scale", str(pixels.dtype)))
    low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 0.0)
    span = f"{pixels.dtype} from {low:g} to {high:g}"
    if scale is None:
        raise SourceError(Problem(where, "a declared range for floating images", span, "add ?scale=1 or ?scale=255"))
    if not (low >= 0 and high <= scale):
        raise SourceError(Problem(where, f"finite values in [0, {scale:g}]", span, "store images before normalisation"))
    if scale == 255 and high <= 1:
        raise SourceError(Problem(where, "values in [0, 255] as declared", span, "use ?scale=1"))
    return ArrayStore(pixels.astype(np.float32, copy=False), _layout(pixels, layout, where), scale, content)


def unread_problems(unread: Mapping[str, Mapping[str, int]], where: str, otherwise: str = "") -> list[Problem]:
    """One problem that lists files that are not read by class and suffix; none when all are read."""
    actual = "; ".join(unread_sentence(name, unread[name]) for name in sorted(unread))
    remedy = f"convert them to PNG, or move them away{otherwise}"
    return [Problem(where, "files that are images", actual, remedy)] if unread else []


def _layout(pixels: NDArray[Any], declared: str | None, where: str) -> Literal["NHWC", "NCHW", "NHW"]:
    if pixels.ndim == 3:
        return "NHW"
    if pixels.ndim == 4:
        last = pixels.shape[3] in (1, 3) and declared != "NCHW"
        first = pixels.shape[1] in (1, 3) and declared != "NHWC"
        if last != first:
            return "NHWC" if last else "NCHW"
    expected = "images (N, H, W), (N, H, W, C) or (N, C, H, W) with C of 1 or 3"
    remedy = "store them as (N, H, W, C)" if pixels.ndim != 4 else "add ?layout=NHWC or ?layout=NCHW"
    raise SourceError(Problem(where, expected, f"shape {pixels.shape}", remedy))
