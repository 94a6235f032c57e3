"""Which split samples belong to, by the names of files and by columns: what holds several is not one set of samples."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError
from services.loading.confined import files_below
from services.loading.samples.listing import left_out_kind
from services.registry import did_you_mean

SPLITS = {
    **dict.fromkeys(("train", "training", "trainset"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "valset"), "validation"),
    **dict.fromkeys(("test", "testing", "testset", "eval", "evaluation"), "test"),
}
"""Names of splits, and what they are called here."""
COLUMNS = frozenset({"split", "set", "subset", "partition", "phase", "data_split", "dataset_split"})
"""What columns are called that say it; others are taken for one when all their values are names of splits."""
UNNAMED = "files without a split in their name"
_SHARD = re.compile(r"(?P<split>.+?)[-_.]\d{3,}[-_.]of[-_.]\d{3,}$")
"""``train-00000-of-00002``, as Hugging Face, TensorFlow and WebDataset name shards."""


def split_of(path: PurePath) -> str:
    """The split that a relative path names: in its shard's name, a word of it, or a folder; `UNNAMED` for none."""
    for part in (path.stem, *reversed(path.parts[:-1])):
        words = [SPLITS[word] for word in re.split(r"[-_. =]", part.casefold()) if word in SPLITS]
        if words:
            return words[-1]
    shard = _SHARD.match(path.stem)
    return shard["split"] if shard else UNNAMED


def files_of_split(folder: Path, pattern: str, split: str | None, where: str) -> tuple[list[Path], str | None]:
    """The files below a folder that match, of one split, in order of their relative names; hidden ones are left out.

    The split comes back when no name of a file tells one: rows may.

    Raises:
        SourceError: there are none, or of several splits and none is asked for, or not of the one asked for.
    """
    relative = sorted(
        path.relative_to(folder) for path in files_below(folder, where, leave=left_out_kind) if path.match(pattern)
    )
    visible = [path for path in relative if not any(left_out_kind(part) for part in path.parts)]
    if not visible:
        raise SourceError(Problem(where, f"files {pattern} in the folder", "none"))
    if split is not None and {split_of(path) for path in visible} == {UNNAMED}:
        return [folder / path for path in visible], split
    return [folder / path for path in _chosen(visible, split, where)], None


def _chosen(paths: Sequence[PurePath], split: str | None, where: str) -> list[PurePath]:
    by_split: dict[str, list[PurePath]] = {}
    for path in paths:
        by_split.setdefault(split_of(path), []).append(path)
    if split is None and len(by_split) == 1:
        return list(paths)
    wanted = SPLITS.get(split.casefold(), split) if split else ""
    if wanted in by_split:
        return by_split[wanted]
    listed = ", ".join(f"{len(files)} {'of ' * (name != UNNAMED)}{name}" for name, files in by_split.items())
    named = [name for name in by_split if name != UNNAMED]
    if split is None:
        remedy = f"add ?split={'test' if 'test' in named else named[0]}, or name the files of one split"
        raise SourceError(Problem(where, "files of one split", listed, remedy))
    remedy = did_you_mean(split, named) if named else "leave split out"
    raise SourceError(Problem(f"{where} (split)", f"files of the split {split}", listed, remedy))


def rows_of_split(
    columns: Mapping[str, NDArray[Any]], split: str | None, named: Collection[str | None], count: int, where: str
) -> NDArray[np.int64]:
    """The rows of one split, where a column of text says which split each of `count` rows is of; else all rows.

    Args:
        split: the one asked for; None for no choice.
        named: columns that the audit uses; who names the column as groups knows what it holds.

    Raises:
        SourceError: rows are of several splits and none is asked for, or not of the one asked for.
    """
    candidates = {
        name: values for name, column in columns.items() if (values := _splits_in(name, column, count)) is not None
    }
    if split is None and (not candidates or set(candidates) & set(named)):
        return np.arange(count, dtype=np.int64)
    if not candidates:
        remedy = "leave split out"
        raise SourceError(Problem(f"{where} (split)", "a column that says which split a row is of", "none", remedy))
    name, values = next(iter(candidates.items()))
    wanted = SPLITS.get((split or "").casefold(), split)
    known, rows = np.unique(values, return_counts=True)
    if wanted in known:
        return np.flatnonzero(values == wanted)
    listed = ", ".join(f"{number} of {each or 'none'}" for each, number in zip(known, rows, strict=True))
    if split is None:
        choice = "test" if "test" in known else next(each for each in known if each in SPLITS.values())
        remedy = f"add {'&' if '?' in where else '?'}split={choice}"
        raise SourceError(Problem(f"{where} ({name})", "rows of one split", listed, remedy))
    raise SourceError(Problem(f"{where} (split)", f"rows of {split}", listed, did_you_mean(split, known.tolist())))


def _splits_in(name: str, column: NDArray[Any], count: int) -> NDArray[np.str_] | None:
    """The split of each row, under its usual name; None when the column does not tell several apart."""
    if column.shape != (count,) or column.dtype.kind not in "US":
        return None
    values = np.char.lower(np.char.strip(column.astype(np.str_)))
    distinct, codes = np.unique(values, return_inverse=True)
    called = [SPLITS.get(value, value) for value in distinct.tolist()]
    splits = [value in SPLITS for value in distinct.tolist()]
    several = len(set(called)) > 1 and any(splits) and (all(splits) or name.casefold() in COLUMNS)
    return np.array(called, dtype=np.str_)[codes] if several else None
