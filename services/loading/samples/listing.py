"""The files below an image folder, each accounted for: an image, a file that is not read, or one that is no sample.

An image is what Pillow reads: by its suffix, or where that says nothing by its first bytes. Hidden files, those that
systems leave behind, thumbnails and descriptions are no samples. All the rest is not read, and said to be.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from services.errors import Problem, SourceError
from services.loading.confined import DEPTH, files_below, open_granted, scanned
from services.loading.samples.encoded import sniffed_formats, suffixes
from services.loading.samples.stores import unread_problems
from services.loading.samples.unusable import DAMAGE
from services.records.intake import suffix_of

SYSTEM = frozenset({"__macosx", "@eadir", "$recycle.bin", "lost+found", "system volume information", "icon\r"})
SYSTEM_FILES = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini"})
THUMBNAILS = frozenset({"thumb", "thumbs", "thumbnail", "thumbnails"})
"""Folders below a class that hold small copies of its images."""
DESCRIPTIONS = frozenset({".txt", ".json", ".jsonl", ".csv", ".tsv", ".xml", ".yaml", ".yml", ".md"})
"""Suffixes of what is written about images, and lies beside them."""


@dataclass(frozen=True)
class Listing:
    """The files below a folder.

    Attributes:
        images: those to read, sorted.
        unread: numbers of files that are not read, by suffix.
        left_out: numbers of files that are no samples, by kind.
    """

    images: tuple[Path, ...]
    unread: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)


def listing(folder: Path, *, nested: bool = True) -> Listing:
    """List a folder with what is nested in it, or only the files that lie directly in it.

    Raises:
        SourceError: a folder cannot be read.
    """
    images: list[Path] = []
    unread: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    for path, entry in _entries(folder, nested, left_out):
        kind = left_out_kind(entry.name)
        if kind or Path(entry.name).suffix.lower() in DESCRIPTIONS:
            left_out[kind or "descriptions"] += 1
        elif odd := _irregular(entry):
            unread[odd] += 1
        elif is_image(path):
            images.append(path)
        else:
            unread[suffix_of(entry.name)] += 1
    return Listing(tuple(sorted(images)), unread, left_out)


def class_folders(root: Path) -> tuple[tuple[str, ...], Counter[str]]:
    """The folders that may be classes, sorted, and numbers of files in the others, by kind."""
    left_out: Counter[str] = Counter()
    names = []
    with scanned(root, str(root)) as entries:
        for entry in entries:
            if not entry.is_dir():
                continue
            if kind := left_out_kind(entry.name):
                left_out[kind] += _files_below(root / entry.name)
            else:
                names.append(entry.name)
    return tuple(names), left_out


def only_images(folders: Iterable[tuple[str, Path]], where: str) -> list[tuple[Path, int]]:
    """The images of class folders (name, path), each with its class; for sources where every file must be read.

    Raises:
        SourceError: files are not read.
    """
    listings = [(name, listing(path)) for name, path in folders]
    if problems := unread_problems({name: folder.unread for name, folder in listings if folder.unread}, where):
        raise SourceError(problems)
    return [(path, k) for k, (_, folder) in enumerate(listings) for path in folder.images]


def left_out_kind(name: str) -> str | None:
    """Why a file or folder of that name is no sample; None when it may be."""
    if name.casefold() in SYSTEM | SYSTEM_FILES:
        return "system"
    return "hidden" if name.startswith(".") else None


def is_image(path: Path) -> bool:
    """Whether Pillow reads such files: by the suffix, else by the first bytes."""
    if path.suffix.lower() in suffixes():
        return True
    try:
        with open_granted(path, str(path)) as file, Image.open(file, formats=sniffed_formats()):
            return True
    except Image.DecompressionBombError:
        return True  # an image, which decoding refuses by name
    except (*DAMAGE, UserWarning):
        return False


def _entries(
    folder: Path, nested: bool, left_out: Counter[str], depth: int = 0
) -> Iterator[tuple[Path, os.DirEntry[str]]]:
    """All but folders, each while its folder is open; files in folders that hold no samples are counted."""
    if depth > DEPTH:
        raise SourceError(Problem(str(folder)[:200], f"folders at most {DEPTH} deep in each other", "deeper ones"))
    with scanned(folder, str(folder)) as entries:
        for entry in entries:
            path = folder / entry.name
            if not entry.is_dir(follow_symlinks=False):
                if nested or not entry.is_dir():
                    yield path, entry
            elif nested:
                kind = left_out_kind(entry.name) or ("thumbnails" if entry.name.casefold() in THUMBNAILS else None)
                if kind:
                    left_out[kind] += _files_below(path)
                else:
                    yield from _entries(path, nested, left_out, depth + 1)


def _irregular(entry: os.DirEntry[str]) -> str | None:
    if entry.is_file():
        return None
    if entry.is_symlink():
        return "linked folder" if entry.is_dir() else "broken link"
    return "no regular file"


def _files_below(folder: Path) -> int:
    """How many files are left out with a folder; one for a folder that cannot be read, as `lost+found`."""
    try:
        return sum(1 for _ in files_below(folder, str(folder)))
    except SourceError:
        return 1
