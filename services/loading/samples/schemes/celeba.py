"""`celeba:ROOT?target=Smiling&split=test&crop=178&size=64`: CelebA in its published layout, one attribute the label.

::

    ROOT/img_align_celeba/000001.jpg ...
    ROOT/list_attr_celeba.txt         a count, 40 names, then a file and 40 values of 1 and -1 a line
    ROOT/list_eval_partition.txt      a file and 0 (train), 1 (valid) or 2 (test) a line

The classes are `not Smiling` and `Smiling`; the other attributes are columns for `groups`, with values `yes` and `no`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.fingerprint import existing
from services.loading.samples.encoded import EncodedStore, file_bytes
from services.loading.samples.metadata import FILE_LIMIT
from services.loading.samples.schemes.imagefolder import height_width
from services.loading.samples.source import Source
from services.loading.uris import SourceUri, one_of
from services.registry import did_you_mean

IMAGES, ATTRIBUTES, PARTITION = "img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"
SPLITS = {"train": 0, "valid": 1, "test": 2}


@dataclass(frozen=True)
class Faces:
    """The table of a split.

    Attributes:
        files: N file names.
        names: A attributes.
        values: (N, A) of 0 and 1, as `numerics.attributes.groupfair.matrix_counts` takes them.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    values: NDArray[np.int64]


def open_celeba(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open one split; `crop` (a side, or HxW) cuts out the centre before `size`, and is not larger than the images."""
    options = uri.options(target=str, split=one_of(*SPLITS), crop=height_width, size=height_width)
    root = existing(uri.path(), uri.text, folder=True)
    faces = read_faces(root, options.get("split", "test"))
    target = options.get("target")
    if target not in faces.names:
        remedy = did_you_mean(target or "", list(faces.names))
        raise SourceError(Problem(f"{uri.text} (target)", "an attribute of the data", repr(target), remedy))
    column = faces.names.index(target)
    folder = existing(root / IMAGES, uri.text, folder=True)
    store = EncodedStore(
        lambda row: file_bytes(folder / faces.files[row]),
        lambda row: faces.files[row],
        len(faces.files),
        uri.text,
        "RGB",
        options.get("size"),
        crop=options.get("crop"),
    )
    groups = {name: np.where(faces.values[:, k] == 1, "yes", "no") for k, name in enumerate(faces.names) if k != column}
    ids = np.array([int(Path(name).stem) if Path(name).stem.isdigit() else row for row, name in enumerate(faces.files)])
    return Source(
        store, faces.values[:, column], (f"not {target}", target), groups, ids.astype(np.int64), faces.files.__getitem__
    )


def read_faces(root: Path, split: str) -> Faces:
    """Names and attributes of a split, in the files' order.

    Raises:
        SourceError: a file is missing or malformed, or the two lists name other images.
    """
    lines = _lines(root / ATTRIBUTES)
    names = tuple(lines[1].split()) if len(lines) > 1 else ()
    rows = [line.split() for line in lines[2:] if line.strip()]
    where = str(root / ATTRIBUTES)
    if not lines or lines[0].strip().lstrip("0") != (str(len(rows)) if rows else ""):
        expected = f"{lines[0].strip() if lines else 'a count'} lines, as its first line says"
        raise SourceError(Problem(where, expected, f"{len(rows)}", "use the published file"))
    if odd := [row[0] for row in rows if len(row) != len(names) + 1 or not {*row[1:]} <= {"1", "-1"}]:
        expected = f"a file and {len(names)} values of 1 or -1 a line"
        raise SourceError(Problem(where, expected, f"{len(odd)} other lines, first {odd[0]}"))
    parts = dict(pair for line in _lines(root / PARTITION) if len(pair := line.split()) == 2)
    if missing := [row[0] for row in rows if parts.get(row[0]) not in {"0", "1", "2"}]:
        expected = "0, 1 or 2 for every image"
        raise SourceError(Problem(str(root / PARTITION), expected, f"{len(missing)} without, first {missing[0]}"))
    kept = [row for row in rows if parts[row[0]] == str(SPLITS[split])]
    if not kept:
        raise SourceError(Problem(str(root / PARTITION), f"images of the split {split}", "none"))
    values = (np.array([row[1:] for row in kept], dtype=np.int64) + 1) // 2
    return Faces(tuple(row[0] for row in kept), names, values)


def _lines(path: Path) -> list[str]:
    file = existing(path, str(path))
    if (size := file.stat().st_size) > FILE_LIMIT:
        raise SourceError(Problem(str(path), f"a table of at most {FILE_LIMIT >> 20} MiB", f"{size:,} bytes"))
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SourceError(Problem(str(path), "UTF-8", str(error), "use the published file")) from error
