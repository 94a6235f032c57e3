"""Images as encoded files (PNG, JPEG, ...): decoded with explicit conversions, checked before any long work.

Small sets are decoded once and kept as uint8; a larger set is decoded by batch. Sizes and colour modes must agree
unless a size or a mode is asked for, corrupt files are an error or are skipped and counted, and a header that claims an
absurd number of pixels is never decoded.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from services.errors import Problem, SourceError, examples
from services.loading.confined import open_granted
from services.loading.samples.colours import GREY_OR_RGB, is_deep, is_transparent, over, pictures, unapplied
from services.loading.samples.duplicates import fingerprint
from services.loading.samples.orientation import Looked, orientation_of, oriented
from services.loading.samples.resizing import PIXEL_LIMIT, middle, with_shorter_side
from services.loading.samples.stores import Shape, Taken
from services.loading.samples.unusable import DAMAGE, CorruptImage, SmallImage, TransparentImage, Unusable
from services.threads import cores, pool

KEEP_BYTES = 2 << 30
"""Sets whose decoded pixels fit in this are decoded once and kept."""
FILE_LIMIT = 1 << 28
"""Bytes of an image's file: one of a terabyte may take no room on the disk."""
AT_A_TIME = 64
"""Images that are decoded side by side."""
LARGE, LARGE_RESULT = 1 << 24, 1 << 22
"""Bytes of a file or pixels of an image, and pixels that it has in the end, beyond which one is decoded alone: many of
them side by side fill the memory of a machine."""

Pixels = NDArray[np.uint8]


NOT_DECODED = frozenset({"BUFR", "EPS", "GRIB", "HDF5", "IPTC", "MPEG", "WMF"})
"""Formats that Pillow names but does not decode itself: they hold no pixels, or need another program."""

Look = Callable[[bytes, Image.Image], Looked]
"""What is made of the bytes of an image, and of the image as it was opened."""
Decoded = tuple[bytes, Looked] | Unusable


@dataclass(frozen=True)
class EncodedStore:
    """Encoded images by row.

    Attributes:
        fetch: the bytes of a row.
        name: what to call a row in messages.
        count: number of rows.
        where: the source, for messages.
        mode: convert to "L" or "RGB"; None demands that all are one of the two already.
        background: colour behind what is transparent; without one images that are not opaque are an error.
        size: (height, width) to resize to, without keeping proportions (bilinear, antialiased); None demands one size.
        resize: shorter side to resize to first, keeping proportions; `crop`: then the central (height, width).
        orientation: "stored" leaves the pixels as the file has them; otherwise images are turned upright by their EXIF
            orientation, before anything else.
        prepare: applied before all of these but mode.
    """

    fetch: Callable[[int], bytes]
    name: Callable[[int], str]
    count: int
    where: str
    mode: Literal["L", "RGB"] | None = None
    size: tuple[int, int] | None = None
    resize: int | None = None
    crop: tuple[int, int] | None = None
    prepare: Callable[[Image.Image], Image.Image] | None = None
    orientation: Literal["upright", "stored"] | None = None
    background: str | None = None

    def __len__(self) -> int:
        return self.count

    def take(self, rows: NDArray[np.int64], *, on_corrupt: Literal["error", "skip"]) -> Taken:
        """Check every selected image, keep the pixels where they fit in memory.

        Raises:
            SourceError: corrupt images under "error", images smaller than the crop, sizes or modes that differ; all
                kinds together, with counts.
        """
        keep = self._fits(rows)
        taken = _Intake(hashlib.sha256(self._conversions().encode()))
        pixels: list[Pixels] = []
        prints, files = list[bytes](), list[bytes]()
        look = self._decoded if keep or on_corrupt == "skip" else self._inspected
        for row, decoded in self._each(rows, look):
            if isinstance(decoded, Unusable):
                taken.refuse(self.name(row), decoded)
                continue
            taken.add(*decoded)
            if keep and not taken.is_uniform():  # which is an error in the end; until then nobody knows how large
                keep, pixels = False, []
            pixels += [as_array(decoded[1].image)] if keep else []
            files.append(hashlib.blake2b(decoded[0], digest_size=16).digest())
            prints.append(fingerprint(pixels[-1]) if keep else files[-1])
        self._raise(taken, on_corrupt)
        kept = np.array(taken.kept)
        shape = taken.shape()
        read = reader(np.stack(pixels), shape) if keep else self._lazy(rows[kept], shape)
        known = shape, taken.digest.hexdigest(), tuple(taken.refused), taken.turned
        return Taken(read, kept, *known, tuple(prints), tuple(files), dict(taken.colours))

    def _each(self, rows: NDArray[np.int64], look: Look) -> Iterator[tuple[int, Decoded]]:
        """What is found of each row, in order, by several threads; few images at a time, whatever the set."""

        def find(row: int, *, alone: bool = False) -> Decoded | None:
            """None for one that is to be decoded alone."""
            try:
                data = self.fetch(row)
                image = opened(data)
                if not alone and max(len(data), image.width * image.height) > LARGE:
                    return None
                looked = look(data, image)
            except Unusable as error:
                return error
            return None if not alone and looked.image.width * looked.image.height > LARGE_RESULT else (data, looked)

        formats()  # Pillow registers its formats at the first need, which threads must not do side by side
        threads = pool(cores(), "decode")
        for start in range(0, len(rows), AT_A_TIME):
            block = rows[start : start + AT_A_TIME].tolist()
            for row, decoded in zip(block, threads.map(find, block), strict=True):
                if (decoded := decoded or find(row, alone=True)) is not None:
                    yield row, decoded

    def _conversions(self) -> str:
        """What is done to the pixels, as the content's hash has it."""
        fit = f"{self.resize} {self.crop}" if self.resize or self.crop else self.prepare is not None
        return f"{self.mode} {self.size} {fit}" + (f" over {self.background}" if self.background else "")

    def _fits(self, rows: NDArray[np.int64]) -> bool:
        for row in rows.tolist():
            try:
                data = self.fetch(row)
                width, height = self._inspected(data, opened(data)).image.size
            except Unusable:
                continue
            return 3 * width * height * len(rows) <= KEEP_BYTES
        return True

    def _lazy(self, rows: NDArray[np.int64], shape: Shape) -> Callable[[int, int], NDArray[np.float32]]:
        def read(start: int, stop: int) -> NDArray[np.float32]:
            block = []
            for row, decoded in self._each(rows[start:stop], self._decoded):
                if isinstance(decoded, SmallImage):
                    raise SourceError(self._too_small([f"{self.name(row)} ({decoded})"])) from decoded
                if isinstance(decoded, Unusable):
                    remedy = "set on_corrupt: skip, or repair the file"
                    raise SourceError(
                        Problem(self.where, "readable images", f"{self.name(row)} ({decoded})", remedy)
                    ) from decoded
                block.append(as_array(decoded[1].image))
            return reader(np.stack(block), shape)(0, len(block)) if block else np.empty((0, *shape), np.float32)

        return read

    def _inspected(self, data: bytes, image: Image.Image) -> Looked:
        """The image as it will be, opened but with its pixels unread where nothing has to be converted."""
        conversions = (self.prepare, self.mode, self.size, self.resize, self.crop)
        as_it_is = all(step is None for step in conversions) and not self._shows_through(image)
        if as_it_is and orientation_of(image, data) == 1:
            return Looked(image, colours=unapplied(image))
        return self._decoded(data, image)

    def _decoded(self, data: bytes, image: Image.Image) -> Looked:
        colours = unapplied(image)
        looked = oriented(image, data, stored=self.orientation == "stored")
        image = looked.image
        image = self._opaque(image) if self.mode or self._shows_through(image) else image
        image = image.convert(self.mode) if self.mode and image.mode != self.mode else image
        image = self.prepare(image) if self.prepare else image
        image = with_shorter_side(image, self.resize) if self.resize else image
        image = middle(image, self.crop) if self.crop else image
        if self.size and image.size != (self.size[1], self.size[0]):
            image = image.resize((self.size[1], self.size[0]), Image.Resampling.BILINEAR)
        return looked._replace(image=image, colours=colours)

    @staticmethod
    def _shows_through(image: Image.Image) -> bool:
        """Whether an image that is taken as it is has a colour that stands for nothing (`tRNS` of a PNG)."""
        return image.mode in GREY_OR_RGB and image.has_transparency_data

    def _opaque(self, image: Image.Image) -> Image.Image:
        """The image without transparency.

        Raises:
            TransparentImage: a pixel is not opaque and no background was chosen.
        """
        if self.background is None and is_transparent(image):
            raise TransparentImage("not opaque")
        if self.background is None:
            return image
        below = over(image, self.background)
        return below.convert(image.mode) if image.mode in GREY_OR_RGB else below

    def _raise(self, taken: _Intake, on_corrupt: str) -> None:
        problems = taken.problems(self.where)
        if taken.corrupt and on_corrupt == "error":
            actual = f"{len(taken.corrupt)} corrupt: {examples(taken.corrupt)}"
            problems.insert(0, Problem(self.where, "readable images", actual, "repair them or set on_corrupt: skip"))
        if taken.transparent:
            found = f"{len(taken.transparent)} with transparency: {examples(taken.transparent)}"
            remedy = "say what lies behind: ?background=white, black or #rrggbb"
            problems.append(Problem(self.where, "opaque images, or a background", found, remedy))
        if taken.small:
            problems.append(self._too_small(taken.small))
        if not any(taken.kept) and not problems:
            problems.append(Problem(self.where, "at least one readable image", f"none of {len(taken.kept)}"))
        if problems:
            raise SourceError(problems)

    def _too_small(self, images: list[str]) -> Problem:
        height, width = self.crop or (0, 0)
        actual = f"{len(images)} smaller: {examples(images)}"
        remedy = "raise resize or lower crop" if self.resize else "lower crop, or add resize=N where the scheme has it"
        return Problem(self.where, f"images of at least {height}x{width} (height x width)", actual, remedy)


class _Intake:
    """What went by in a pass over the images."""

    def __init__(self, digest: Any) -> None:
        self.digest = digest
        self.sizes: Counter[tuple[int, int]] = Counter()
        self.modes: Counter[str] = Counter()
        self.corrupt: list[str] = []
        self.small: list[str] = []
        self.transparent: list[str] = []
        self.kept: list[bool] = []
        self.refused: list[str] = []
        self.turned = 0
        self.colours: Counter[str] = Counter()

    def add(self, data: bytes, looked: Looked) -> None:
        """Pixels that differ from those the bytes alone gave to earlier versions are another content."""
        self.digest.update(hashlib.sha256(data).digest())
        if looked.orientation != 1:
            self.digest.update(f"{looked.orientation} {looked.turned}".encode())
        self.sizes[looked.image.size] += 1
        self.modes[looked.image.mode] += 1
        self.turned += looked.turned
        self.colours.update([looked.colours] if looked.colours else [])
        self.kept.append(True)

    def refuse(self, name: str, why: Unusable) -> None:
        self.refused.append(name)
        lists = {SmallImage: self.small, TransparentImage: self.transparent}
        lists.get(type(why), self.corrupt).append(f"{name} ({why})")
        self.kept.append(False)

    def is_uniform(self) -> bool:
        """Whether all images so far have one size and one mode."""
        return len(self.sizes) <= 1 and len(self.modes) <= 1

    def shape(self) -> Shape:
        (width, height), mode = next(iter(self.sizes)), next(iter(self.modes))
        return (1 if mode == "L" else 3, height, width)

    def problems(self, where: str) -> list[Problem]:
        problems = []
        if len(self.sizes) > 1:
            common = [f"{width}x{height} ({count})" for (width, height), count in self.sizes.most_common()]
            remedy = "add ?size=HxW, or ?resize=N&crop=HxW"
            problems.append(Problem(where, "images of one size", f"{len(common)}: {examples(common)}", remedy))
        if self.modes and set(self.modes) not in ({"L"}, {"RGB"}):
            modes = [f"{mode} ({count})" for mode, count in self.modes.most_common()]
            remedy = "add ?mode=RGB or ?mode=L to convert"
            problems.append(Problem(where, "images that are all grey (L) or all RGB", examples(modes), remedy))
        return problems


def opened(data: bytes) -> Image.Image:
    """Open an image's header.

    Raises:
        CorruptImage: it is no image, or claims more than `PIXEL_LIMIT` pixels.
    """
    try:
        image = Image.open(io.BytesIO(data), formats=formats())
        count = pictures(image)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise CorruptImage("claims too many pixels") from error
    except DAMAGE as error:
        raise CorruptImage("empty" if not data else "not an image") from error
    if image.width * image.height > PIXEL_LIMIT:
        raise CorruptImage(f"claims {image.width}x{image.height} pixels")
    if is_deep(image, data):
        raise CorruptImage(f"mode {image.mode}: more than 8 bits a channel")
    if count > 1:
        raise CorruptImage(f"{count} frames or pages, of which one would be taken")
    return image


@cache
def formats() -> tuple[str, ...]:
    """Formats that Pillow decodes, in the order in which they are tried."""
    Image.init()
    return tuple(name for name in Image.ID if name not in NOT_DECODED)


@cache
def sniffed_formats() -> tuple[str, ...]:
    """Those of `formats` that are known by their first bytes."""
    return tuple(name for name in formats() if Image.OPEN[name][1] is not None)


@cache
def suffixes() -> frozenset[str]:
    """Suffixes of the formats that Pillow decodes, in lower case."""
    return frozenset(suffix for suffix, name in Image.registered_extensions().items() if name in formats())


def file_bytes(path: Path) -> bytes:
    """The bytes of an image file.

    Raises:
        CorruptImage: it cannot be read from the disk, or has more than `FILE_LIMIT` bytes.
    """
    try:
        with open_granted(path, str(path)) as file:
            data = file.read(FILE_LIMIT + 1)
        if len(data) > FILE_LIMIT:
            raise CorruptImage(f"more than {FILE_LIMIT >> 20} MiB")
        return data
    except OSError as error:
        raise CorruptImage(error.strerror or str(error)) from error


def as_array(image: Image.Image) -> Pixels:
    """(H, W, C) uint8."""
    array = np.asarray(image, dtype=np.uint8)
    return array[:, :, None] if array.ndim == 2 else array


def reader(pixels: Pixels, shape: Shape) -> Callable[[int, int], NDArray[np.float32]]:
    """Read rows of (N, H, W, C) uint8 as (n, C, H, W) float32 in [0, 1]."""

    def read(start: int, stop: int) -> NDArray[np.float32]:
        block = pixels[start:stop].transpose(0, 3, 1, 2)
        out = np.empty((len(block), *shape), np.float32)
        np.divide(block, np.float32(255), out=out)
        return out

    return read
