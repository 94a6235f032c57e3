"""`metadata.csv` beside class folders: a row an image, further columns as groups; a doubt is an error with its line."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError, examples
from services.loading.confined import open_granted

METADATA = "metadata.csv"
KEY = "file_name"
SHOWN = 5
FILE_LIMIT = 1 << 28
MOST_CELLS = 50_000_000
"""Of a table; a row counts as ten more, for that is what it takes."""
TEXT_BYTES = 1 << 31
"""Of all columns of a table together, where each cell is as wide as the widest of its column."""
LABELS = frozenset({"label", "labels", "class", "class_name", "classes", "target"})
"""What columns are called that say an image's class, as its folder does."""


def read_metadata(path: Path) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Rows by file name (relative, with forward slashes), and the columns that give groups.

    Raises:
        SourceError: no UTF-8 table, no column `file_name`, two columns of one name or one without, rows with more or
            fewer cells than the head, a file in two rows; all together, with line numbers.
    """
    where = path.name
    try:
        with io.TextIOWrapper(open_granted(path, where), encoding="utf-8-sig", newline="") as file:
            if os.fstat(file.fileno()).st_size > FILE_LIMIT:
                raise SourceError(Problem(where, f"a table of at most {FILE_LIMIT >> 20} MiB", "more"))
            reader = csv.reader(file)
            head = next(reader, [])
            lines, count = [], 0
            for cells in reader:
                lines += [(reader.line_num, cells)] if cells else []
                if (count := count + len(cells) + 10) > MOST_CELLS:
                    raise SourceError(Problem(where, f"a table of at most {MOST_CELLS:,} cells", "more"))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise SourceError(Problem(where, "a table of comma-separated values in UTF-8", str(error))) from error
    if problems := [*_of_head(head, where), *_of_lines(head, lines, where)]:
        raise SourceError(problems)
    place = head.index(KEY)
    rows = {_name(cells[place]): dict(zip(head, cells, strict=True)) for _, cells in lines}
    return rows, [name for name in head if name != KEY]


def text_columns(columns: Mapping[str, Sequence[str]], where: str) -> dict[str, NDArray[Any]]:
    """Columns of text as arrays, in which every cell takes as much as the longest.

    Raises:
        SourceError: that is more than `TEXT_BYTES`.
    """
    require_narrow(columns, where)
    return {name: np.array(values, dtype=np.str_) for name, values in columns.items()}


def require_narrow(columns: Mapping[str, Sequence[Any]], where: str) -> None:
    """Refuse columns of text or bytes that would be far larger as arrays; raises as `text_columns`."""
    widths = {name: max(map(len, values), default=0) for name, values in columns.items()}
    if sum(4 * width * len(columns[name]) for name, width in widths.items()) <= TEXT_BYTES:
        return
    name = max(widths, key=widths.__getitem__)
    expected = f"columns of at most {TEXT_BYTES >> 20} MiB, where every cell is as wide as the longest"
    actual = f"one of {widths[name]:,} characters among {len(columns[name]):,}"
    raise SourceError(Problem(f"{where} ({name})", expected, actual, "leave the column out, or shorten it"))


def other_classes(columns: Mapping[str, NDArray[Any]], folders: Sequence[str], files: Sequence[str]) -> list[Problem]:
    """Columns that say another class than the folder of the file, by its name or by one number a class.

    Coarser classes, and names of another list, are columns like others.
    """
    problems = []
    for name, column in columns.items():
        values = column.tolist()
        if name.casefold() not in LABELS:
            continue
        if set(values) <= set(folders):
            said = dict(zip(values, values, strict=True))
        elif len(set(values)) == len(set(folders)):
            said = dict(zip(reversed(values), reversed(folders), strict=True))
        else:
            continue
        differ = [k for k, value in enumerate(values) if said[value] != folders[k]]
        if differ:
            actual = f"{len(differ)} of {len(values)} others, for example {files[differ[0]]}: {values[differ[0]]}"
            remedy = "move the files, or give the column another name if it is no class"
            problems.append(Problem(f"{METADATA} ({name})", "the class of the file's folder", actual, remedy))
    return problems


def _of_head(head: list[str], where: str) -> Iterator[Problem]:
    if KEY not in head:
        yield Problem(where, f"a column {KEY}", f"columns {', '.join(head[:SHOWN]) or 'none'}")
    if twice := [name for name, times in Counter(head).items() if times > 1]:
        yield Problem(f"{where} (line 1)", "columns of different names", f"twice: {', '.join(map(repr, twice))}")
    elif "" in head:
        yield Problem(f"{where} (line 1)", "a name for every column", f"none for column {head.index('') + 1}")


def _of_lines(head: list[str], lines: list[tuple[int, list[str]]], where: str) -> Iterator[Problem]:
    uneven = [f"line {line} has {len(cells)}" for line, cells in lines if len(cells) != len(head)]
    if uneven:
        found = f"{len(uneven)} with another number: {examples(uneven, mark='; ')}"
        yield Problem(where, f"{len(head)} cells in every row, as in the head", found, "quote cells that hold commas")
    if KEY not in head:
        return
    place = head.index(KEY)
    by_name: dict[str, list[int]] = {}
    for line, cells in lines:
        if place < len(cells):
            by_name.setdefault(_name(cells[place]), []).append(line)
    twice = [f"{name} in lines {', '.join(map(str, at))}" for name, at in by_name.items() if len(at) > 1]
    if twice:
        actual = f"{len(twice)} in several: {examples(twice, mark='; ')}"
        yield Problem(where, "one row a file", actual, "keep one row of each")


def _name(cell: str) -> str:
    return Path(cell).as_posix()
