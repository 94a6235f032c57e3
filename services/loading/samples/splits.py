"""Which split a file of a data set belongs to, by its name: a folder that holds several is not one set of samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

from services.errors import Problem, SourceError
from services.loading.samples.listing import left_out_kind
from services.registry import did_you_mean

SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval"), "test"),
}
"""Names of splits, and what they are called here."""
UNNAMED = "files without a split in their name"
_SHARD = re.compile(r"(?P<split>.+?)[-_.]\d{3,}[-_.]of[-_.]\d{3,}$")
"""``train-00000-of-00002``, as Hugging Face, TensorFlow and WebDataset name shards."""


def split_of(path: PurePath) -> str:
    """The split that a relative path names: in its shard's name, a word of it, or a folder; `UNNAMED` for none."""
    for part in (path.stem, *reversed(path.parts[:-1])):
        words = [SPLITS[word] for word in re.split(r"[-_. ]", part.casefold()) if word in SPLITS]
        if words:
            return words[-1]
    shard = _SHARD.match(path.stem)
    return shard["split"] if shard else UNNAMED


def files_of_split(folder: Path, pattern: str, split: str | None, where: str) -> list[Path]:
    """The files below a folder that match, of one split, in order of their relative names; hidden ones are left out.

    Raises:
        SourceError: there are none, or of several splits and none is asked for, or not of the one asked for.
    """
    relative = sorted(path.relative_to(folder) for path in folder.rglob(pattern) if path.is_file())
    visible = [path for path in relative if not any(left_out_kind(part) for part in path.parts)]
    if not visible:
        raise SourceError(Problem(where, f"files {pattern} in the folder", "none"))
    return [folder / path for path in _chosen(visible, split, where)]


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
