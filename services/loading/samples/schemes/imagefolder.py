"""`imagefolder:DIR?mode=RGB|L&resize=N&crop=HxW&size=HxW&orientation=stored&background=white&split=test`.

One folder is a class. `resize` is of the shorter side, `crop` of the centre: `?resize=256&crop=224` is the usual
preparation of ImageNet. Classes are the folder names, sorted, unless listed; a folder without images stays a class.
Every file is accounted for: read, an error or counted where it is not, or left out as none of the samples (`listing`).
`metadata.csv` has a column `file_name` (relative to DIR) and further columns that give groups.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.fingerprint import existing
from services.loading.samples.colours import colour
from services.loading.samples.encoded import EncodedStore, file_bytes
from services.loading.samples.listing import class_folders, listing
from services.loading.samples.metadata import METADATA, other_classes, read_metadata, text_columns
from services.loading.samples.resizing import PIXEL_LIMIT
from services.loading.samples.source import Source
from services.loading.samples.splits import SPLITS, UNNAMED
from services.loading.uris import Converter, SourceUri, extent, names, one_of
from services.records.intake import NO_CLASS, suffix_of


def open_imagefolder(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open a folder of class folders; row i is the i-th file in order of class folder and path."""
    options = uri.options(**CONVERSIONS, classes=names, split=str)
    root = existing(uri.path(), uri.text, folder=True)
    folders, left_out = class_folders(root)
    classes = options.get("classes") or folders
    _check_classes(classes, folders, uri.text)
    listings = {name: listing(root / name) for name in classes}
    beside = listing(root, nested=False)
    unread = {name: dict(folder.unread) for name, folder in listings.items() if folder.unread}
    if stray := Counter(suffix_of(path.name) for path in beside.images) + Counter(beside.unread):
        unread[NO_CLASS] = dict(stray)
    for folder in (beside, *listings.values()):
        left_out.update(folder.left_out)
    left_out["descriptions"] -= (root / METADATA).is_file()
    files = [(path, k) for k, name in enumerate(classes) for path in listings[name].images]
    described, remarks = _described(root, files, classes)
    return Source(
        file_store([path for path, _ in files], uri.text, options, root),
        np.array([k for _, k in files], dtype=np.int64),
        classes,
        _nested_splits([path.relative_to(root) for path, _ in files]) | described,
        key=lambda row: files[row][0].relative_to(root).as_posix(),
        unread=unread,
        left_out=dict(+left_out),
        split=options.get("split"),
        remarks=remarks,
    )


def file_store(paths: list[Path], where: str, options: dict[str, Any], root: Path | None = None) -> EncodedStore:
    """A store of image files."""

    def name(row: int) -> str:
        return str(paths[row].relative_to(root)) if root else paths[row].name

    return EncodedStore(lambda row: file_bytes(paths[row]), name, len(paths), where, **conversions(options))


def conversions(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that say what is done to pixels, as `EncodedStore` takes them."""
    return {name: options.get(name) for name in CONVERSIONS}


def one_side(text: str) -> int:
    """`256` pixels."""
    parts = extent(text)
    if len(parts) != 1:
        raise ValueError("a number of pixels such as 256")
    return parts[0]


def height_width(text: str) -> tuple[int, int]:
    """`32` or `32x48` as (height, width)."""
    parts = extent(text)
    if len(parts) > 2:
        raise ValueError("a size such as 32 or 32x48")
    if parts[0] * parts[-1] > PIXEL_LIMIT:
        raise ValueError(f"a size of at most {PIXEL_LIMIT:,} pixels")
    return parts[0], parts[-1]


CONVERSIONS: dict[str, Converter] = {
    "mode": one_of("RGB", "L"),
    "resize": one_side,
    "crop": height_width,
    "size": height_width,
    "orientation": one_of("upright", "stored"),
    "background": colour,
}
"""Options of every source of encoded images."""


def _check_classes(classes: tuple[str, ...], folders: tuple[str, ...], where: str) -> None:
    if not folders:
        raise SourceError(Problem(where, "one folder a class", "no folders"))
    if classes == folders and SPLITS.keys() >= {name.casefold() for name in folders}:
        remedy = f"give the folder of one of them, or ?classes={','.join(folders)} if they are classes"
        raise SourceError(Problem(where, "one folder a class", f"folders of splits: {', '.join(folders)}", remedy))
    absent = [name for name in classes if name not in folders]
    surplus = [name for name in folders if name not in classes]
    problems = [
        Problem(f"{where} (classes)", expected, ", ".join(names[:5]))
        for expected, names in (("a folder for every class", absent), ("every folder among the classes", surplus))
        if names
    ]
    if problems:
        raise SourceError(problems)


def _nested_splits(paths: list[Path]) -> dict[str, NDArray[Any]]:
    """A column of splits, where folders inside of the class folders are called like them (`cat/train/1.png`)."""
    inside = [[part.casefold() for part in path.parts[1:-1]] for path in paths]
    splits = [next((part for part in parts if part in SPLITS), UNNAMED) for parts in inside]
    return {"split": np.array(splits, dtype=np.str_)} if set(splits) - {UNNAMED} else {}


def _described(
    root: Path, files: list[tuple[Path, int]], classes: tuple[str, ...]
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """The columns of `metadata.csv`, and a sentence on rows of it that are of no image."""
    description = root / METADATA
    if not description.is_file():
        return {}, ()
    where = description.name
    rows, columns = read_metadata(description)
    wanted = [path.relative_to(root).as_posix() for path, _ in files]
    missing = [name for name in wanted if name not in rows]
    if missing:
        actual = f"{len(missing)} of {len(wanted)} without, for example {missing[0]}"
        raise SourceError(Problem(where, "a column file_name and a row for every image", actual))
    texts = text_columns({column: [rows[name][column] for name in wanted] for column in columns}, where)
    if problems := other_classes(texts, [classes[k] for _, k in files], wanted):
        raise SourceError(problems)
    surplus = sorted(rows.keys() - set(wanted))
    example = f", for example {surplus[0]}" if surplus else ""
    return texts, (f"{len(surplus)} rows of {where} name no image that was read{example}.",) if surplus else ()
