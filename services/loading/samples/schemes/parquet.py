"""`parquet:FILE|DIR?split=&image=&label=&classes=&shape=&scale=`, and as for `imagefolder:`: a table of images.

The image column holds encoded bytes, a struct with a field `bytes` (as Hugging Face writes), or fixed-size lists of
pixels: nested ones have their shape, flat ones need `?shape=HxWxC`. Class names come from `?classes=`, from Hugging
Face's schema metadata, or are the label texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError, one_line
from services.loading.confined import within_tree
from services.loading.fingerprint import existing, file_kind, sha256
from services.loading.samples.encoded import EncodedStore
from services.loading.samples.labels import in_order
from services.loading.samples.metadata import require_narrow, text_columns
from services.loading.samples.parquet_rows import read_parquet
from services.loading.samples.schemes.imagefolder import CONVERSIONS, conversions
from services.loading.samples.source import Source
from services.loading.samples.splits import files_of_split
from services.loading.samples.stores import Store, array_store
from services.loading.uris import Converter, SourceUri, extent, names, one_of
from services.registry import did_you_mean
from services.storage import plainjson

OPTIONS: dict[str, Converter] = {
    "split": str,
    "image": str,
    "label": str,
    "classes": names,
    **CONVERSIONS,
    "shape": extent,
    "scale": one_of("1", "255"),
}

LABELS = ("label", "labels", "fine_label")
"""Usual names of the column of labels."""


def open_parquet(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open a Parquet file, or those of one split below a folder in order of name; row ids count through the files."""
    options = uri.options(**OPTIONS)
    files, split = _files(uri, options.get("split"))
    import pyarrow as pa

    try:
        tables = [read_parquet(path, uri.text) for path in files]
        table = pa.concat_tables(tables, promote_options="default")
    except (pa.ArrowException, OSError, ValueError) as error:
        actual = one_line(error)
        raise SourceError(Problem(uri.text, "readable Parquet files of one schema", actual)) from error
    _check_class_lists(tables, options, uri.text)
    content = hashlib.sha256("".join(sha256(path) for path in files).encode()).hexdigest()
    return from_table(table, uri.text, options, content, split)


def from_table(table: Any, where: str, options: dict[str, Any], content: str, split: str | None = None) -> Source:
    """Turn an Arrow table into a source; `split` is one that a column is to tell."""
    image = _column(table, options.get("image"), ("image", "img", "images"), where)
    label = _column(table, options.get("label"), LABELS, where)
    store = _store(table.column(image), f"{where} ({image})", options, content)
    named = (name for name in table.column_names if _groups(table, name, image, label))
    columns = text_columns({name: _texts(table.column(name)) for name in named}, where)
    labels = _labels(table.column(label), f"{where} ({label})")
    labels, classes = in_order(labels, _listed_classes(table, label), options.get("classes"))
    return Source(store, labels, classes, columns, key=_paths(table.column(image)), split=split)


def _paths(column: Any) -> Callable[[int], str] | None:
    """The field `path` of the image column, as Hugging Face writes it; None where a row has none."""
    import pyarrow as pa

    if not pa.types.is_struct(column.type) or column.type.get_field_index("path") < 0:
        return None
    paths = [path for chunk in column.chunks for path in chunk.field("path").to_pylist()]
    return (lambda row: str(paths[row])) if all(paths) else None


def _files(uri: SourceUri, split: str | None) -> tuple[list[Path], str | None]:
    """The files to read, and the split to choose among their rows where names of files do not tell it."""
    path = uri.path()
    if path.is_dir():
        named, split = files_of_split(within_tree(path, uri.text), "*.parquet", split, uri.text)
    else:
        named = [path]
    files = [existing(file, uri.text) for file in named]
    for file, opened in zip(named, files, strict=True):
        if (kind := file_kind(opened, file.name)) != "parquet":
            raise SourceError(Problem(uri.text, f"a Parquet file {file.name}", f"a file of kind {kind}"))
    return files, split


def _column(table: Any, name: str | None, usual: tuple[str, ...], where: str) -> str:
    present = [candidate for candidate in ((name,) if name else usual) if candidate in table.column_names]
    if len(present) > 1:
        remedy = f"say which with {usual[0]}=, for example {'&' if '?' in where else '?'}{usual[0]}={present[0]}"
        raise SourceError(Problem(where, f"one column {' or '.join(usual)}", " and ".join(present), remedy))
    if not present:
        expected = f"a column {name or ' or '.join(usual)}"
        remedy = did_you_mean(name or usual[0], table.column_names)
        raise SourceError(Problem(where, expected, f"columns {', '.join(table.column_names)}", remedy))
    return str(present[0])


def _check_class_lists(tables: list[Any], options: dict[str, Any], where: str) -> None:
    """Files may list classes each in its own order: a number would be another class in each."""
    label = _column(tables[0], options.get("label"), LABELS, where)
    listed = [classes for table in tables if (classes := _listed_classes(table, label)) is not None]
    if other := next((classes for classes in listed if classes != listed[0]), None):
        k = next((k for k, pair in enumerate(zip(listed[0], other, strict=False)) if pair[0] != pair[1]), None)
        found = (
            f"class {k} is {listed[0][k]!r} and {other[k]!r}" if k is not None else f"{len(listed[0])} and {len(other)}"
        )
        remedy = "write the files with one list"
        raise SourceError(Problem(f"{where} (classes)", "the same list of classes in all files", found, remedy))


def _labels(column: Any, where: str) -> NDArray[Any]:
    if column.null_count:
        raise SourceError(Problem(where, "a label for every row", f"{column.null_count} of {len(column)} missing"))
    try:
        values = column.to_pylist()
        require_narrow({"labels": [value for value in values if isinstance(value, str | bytes)]}, where)
        array: NDArray[Any] = np.array(values)
    except ValueError as error:
        raise SourceError(Problem(where, "one label a row", f"a column of {column.type}")) from error
    return array


def _listed_classes(table: Any, label: str) -> tuple[str, ...] | None:
    """Class names that Hugging Face's datasets library stores in the schema's metadata."""
    metadata = (table.schema.metadata or {}).get(b"huggingface")
    try:
        listed = plainjson.parsed(metadata)["info"]["features"][label]["names"] if metadata else None
    except (ValueError, LookupError, TypeError):  # another library's metadata, or none of this column
        return None
    return tuple(str(name) for name in listed) if isinstance(listed, list) and listed else None


def _store(column: Any, where: str, options: dict[str, Any], content: str) -> Store:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        column = pa.chunked_array([chunk.field("bytes") for chunk in column.chunks])
        kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _encoded(column, where, options)
    if pa.types.is_fixed_size_list(kind):
        scale = float(options["scale"]) if "scale" in options else None
        return array_store(_pixels(column, where, options.get("shape")), scale=scale, content=content, where=where)
    found, remedy = str(kind), "store encoded images (PNG) as binary"
    if (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and len(column):
        found = f"{kind}, {one_line(column[0], 60)!r}"
        remedy = "paths are not followed: store the bytes of the files instead, or use imagefolder:"
    raise SourceError(Problem(where, "binary, a struct with bytes, or fixed-size lists", found, remedy))


def _encoded(column: Any, where: str, options: dict[str, Any]) -> EncodedStore:
    def fetch(row: int) -> bytes:
        return column[row].as_py() or b""

    return EncodedStore(fetch, lambda row: f"row {row}", len(column), where, **conversions(options))


def _pixels(column: Any, where: str, declared: tuple[int, ...] | None) -> NDArray[Any]:
    import pyarrow as pa

    shape, kind, values = [], column.type, column.combine_chunks()
    if column.null_count:
        raise SourceError(Problem(where, "pixels in every row", f"{column.null_count} of {len(column)} missing"))
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind, values = kind.value_type, values.flatten()
    if declared is None and len(shape) == 1:
        raise SourceError(Problem(where, "the images' shape", f"flat lists of {shape[0]}", "add ?shape=HxWxC"))
    wanted = declared or tuple(shape)
    if int(np.prod(wanted)) != int(np.prod(shape)):
        raise SourceError(Problem(where, f"lists of {int(np.prod(wanted))} pixels", f"{int(np.prod(shape))}"))
    flat: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), *wanted)


def _groups(table: Any, name: str, image: str, label: str) -> bool:
    import pyarrow as pa

    return name not in (image, label) and not pa.types.is_nested(table.schema.field(name).type)


def _texts(column: Any) -> list[str]:
    return ["" if value is None else str(value) for value in column.to_pylist()]
