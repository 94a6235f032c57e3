"""`npz:FILE?scale=1|255&layout=NHWC|NCHW&classes=a,b`: arrays `images`, `labels`, optional `classes`, group columns.

Archives of several splits, as MedMNIST (`test_images`) and Keras (`x_test`) write them, take `&split=test`. An auditor
who was given logits has no images: without `images` the file serves `logits:` models alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError, one_line
from services.loading.fingerprint import existing, file_kind, sha256
from services.loading.nearby import nearby
from services.loading.samples.labels import in_order
from services.loading.samples.source import Source
from services.loading.samples.splits import SPLITS
from services.loading.samples.stores import LabelsOnly, Store, array_store
from services.loading.uris import SourceUri, names, one_of
from services.registry import did_you_mean
from services.storage.archives import NPZ_DAMAGE


def open_npz(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open a NumPy archive; uint8 images stay uint8 in memory. Object arrays are refused: nothing is unpickled."""
    options = uri.options(scale=one_of("1", "255"), layout=one_of("NHWC", "NCHW"), classes=names, split=str)
    uri.path()
    path = existing(nearby(uri.rest, uri.text), uri.text)
    arrays, split = _of_split(read_npz(path, uri.text), options.get("split"), uri.text)
    _require(arrays, ("labels",), uri.text)
    labels, listed, images = arrays.pop("labels"), arrays.pop("classes", None), arrays.pop("images", None)
    store: Store = LabelsOnly(len(labels), sha256(path), uri.text)
    if images is not None:
        store = array_store(
            images,
            scale=float(options["scale"]) if "scale" in options else None,
            content=sha256(path),
            where=f"{uri.text} (images)",
            layout=options.get("layout"),
        )
    named = None if listed is None else tuple(str(name) for name in listed.tolist())
    labels, classes = in_order(labels, named, options.get("classes"))
    return Source(store, labels, classes, arrays, split=split)


PARTS = {"images": "images", "x": "images", "labels": "labels", "y": "labels"}
"""What MedMNIST and Keras call images and labels before or after the name of a split."""


def _of_split(
    arrays: dict[str, NDArray[Any]], split: str | None, where: str
) -> tuple[dict[str, NDArray[Any]], str | None]:
    """The arrays of one split under their plain names; an archive without splits as it is, and what rows may tell.

    Raises:
        SourceError: several splits and none is asked for, or not the one asked for.
    """
    by_split: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        head, _, tail = name.casefold().partition("_")
        for of, part in ((head, tail), (tail, head)):
            if of in SPLITS and part in PARTS:
                by_split.setdefault(SPLITS[of], {})[PARTS[part]] = array
    by_split = {name: part for name, part in by_split.items() if "labels" not in arrays or "images" in part}
    if not by_split:
        return arrays, split
    if "labels" in arrays:
        by_split["no split"] = arrays
    only = next(iter(by_split))
    wanted = SPLITS.get(split.casefold(), split) if split else only if len(by_split) == 1 else ""
    if wanted in by_split:
        return by_split[wanted], None
    listed = ", ".join(f"{len(part.get('labels', ()))} of {name}" for name, part in by_split.items())
    if split is None:
        remedy = f"add {'&' if '?' in where else '?'}split={'test' if 'test' in by_split else only}"
        raise SourceError(Problem(where, "samples of one split", listed, remedy))
    raise SourceError(Problem(f"{where} (split)", f"samples of {split}", listed, did_you_mean(split, list(by_split))))


def read_npz(path: Path, where: str) -> dict[str, NDArray[Any]]:
    """All arrays of an archive.

    Raises:
        SourceError: it is no NumPy archive, is damaged, or holds Python objects.
    """
    if file_kind(path, where) != "zip":
        raise SourceError(Problem(where, "a NumPy archive written by numpy.savez", "another kind of file"))
    try:
        archive = np.load(path, allow_pickle=False)
    except NPZ_DAMAGE as error:
        raise SourceError(Problem(where, "a NumPy archive written by numpy.savez", "a damaged one")) from error
    with archive:
        return {name: _array(archive, name, where) for name in archive.files}


def _array(archive: Any, name: str, where: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = archive[name]
    except MemoryError as error:
        actual = one_line(error)
        raise SourceError(Problem(f"{where} ({name})", "an array that fits in memory", actual)) from error
    except NPZ_DAMAGE as error:
        if "allow_pickle" in str(error):
            remedy = "store numbers or fixed-width text (array.astype(str)); pickled objects are never loaded"
            raise SourceError(
                Problem(f"{where} ({name})", "plain numbers or text", "Python objects", remedy)
            ) from error
        raise SourceError(Problem(f"{where} ({name})", "a readable array", str(error), "write it again")) from error
    if not isinstance(array, np.ndarray):  # NumPy hands over the bytes of a member that is no array
        raise SourceError(Problem(f"{where} ({name})", "an array", "other bytes", "write it again"))
    if array.size and not array.itemsize:  # any number of them take no room in a file
        raise SourceError(Problem(f"{where} ({name})", "values of at least a byte", f"{array.dtype}"))
    return array


def _require(arrays: dict[str, NDArray[Any]], needed: tuple[str, ...], where: str) -> None:
    missing = [name for name in needed if name not in arrays]
    if missing:
        actual = f"only {', '.join(sorted(arrays)) or 'nothing'}"
        raise SourceError(Problem(where, f"arrays {' and '.join(needed)}", actual, f"add {' and '.join(missing)}"))
