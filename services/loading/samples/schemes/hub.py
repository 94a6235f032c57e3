"""`hf:NAME|DIR?split=test&config=&image=&label=&mode=&resize=&crop=&size=`: a data set of Hugging Face's.

A folder that `save_to_disk` wrote is read as the Arrow files that it holds. The library would follow what its
descriptions name, also out of the folder, and takes the set's identity from them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from services.errors import Problem, SourceError, one_line
from services.loading.fingerprint import existing, sha256
from services.loading.samples.parquet_rows import read_arrow
from services.loading.samples.schemes.parquet import OPTIONS, from_table
from services.loading.samples.source import Source
from services.loading.uris import SourceUri, local_path
from services.records import digest_of
from services.storage import plainjson

MOST_BYTES = 16 << 20
"""Of a description."""


def open_hub(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open a dataset saved by `save_to_disk`, or one of the hub that is cached or reachable.

    Raises:
        SourceError: the folder holds no such set, the library is not installed, or the dataset cannot be had.
    """
    options = uri.options(**OPTIONS, config=str)
    path = local_path(uri.rest)
    if path.is_dir() or path.is_absolute():
        return _saved(existing(path, uri.text, folder=True), uri, options)
    try:
        datasets = import_module("datasets")
    except ImportError as error:
        remedy = "install datasets, or save the set as Parquet and use parquet:"
        raise SourceError(Problem(uri.text, "the package datasets", "it is not installed", remedy)) from error
    try:
        dataset = datasets.load_dataset(uri.rest, options.get("config"), split=options.get("split", "test"))
        undecoded = _undecoded(datasets, dataset)
    except Exception as error:
        actual = f"{type(error).__name__}: {one_line(error)}"
        raise SourceError(Problem(uri.text, "a dataset that opens", actual)) from error
    table = undecoded.with_format("arrow")[:]
    return from_table(table, uri.text, {**_classes(dataset, options), **options}, str(dataset._fingerprint))


def _saved(folder: Path, uri: SourceUri, options: dict[str, Any]) -> Source:
    """One split of what `save_to_disk` wrote; classes stand in the Arrow files themselves."""
    import pyarrow as pa

    split, where = options.get("split", "test"), uri.text
    try:
        if (folder / "dataset_dict.json").is_file():
            splits = [_plain(name) for name in _description(folder / "dataset_dict.json", where)["splits"]]
            if split not in splits:
                raise SourceError(Problem(f"{where} (split)", f"one of {', '.join(splits)}", repr(split)))
            folder = folder / split
        state = _description(folder / "state.json", where)
        saved = str(state.get("_split") or split)
        if saved.partition("[")[0] != split:
            remedy = f"add ?split={saved} to use them"
            raise SourceError(Problem(f"{where} (split)", f"samples of {split}", saved, remedy))
        files = [existing(folder / _plain(entry["filename"]), where) for entry in state["_data_files"]]
        table = pa.concat_tables([read_arrow(file, where) for file in files], promote_options="default")
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        actual = f"{type(error).__name__}: {one_line(error)}"
        raise SourceError(Problem(where, "a dataset as save_to_disk writes it", actual, "save it again")) from error
    return from_table(table, where, options, digest_of([sha256(file) for file in files]))


def _description(path: Path, where: str) -> Any:
    with existing(path, where).open("rb") as file:
        return plainjson.parsed(file.read(MOST_BYTES))


def _plain(name: Any) -> str:
    """A name in the folder itself.

    Raises:
        ValueError: it is a path.
    """
    if not isinstance(name, str) or name != Path(name).name or name in ("", "..") or "\0" in name:
        raise ValueError(f"the name of a file or folder beside the description, not {str(name)[:120]!r}")
    return name


def _undecoded(datasets: Any, dataset: Any) -> Any:
    for name, feature in dataset.features.items():
        if isinstance(feature, datasets.Image):
            dataset = dataset.cast_column(name, datasets.Image(decode=False))
    return dataset


def _classes(dataset: Any, options: dict[str, Any]) -> dict[str, Any]:
    listed = getattr(dataset.features.get(options.get("label", "label")), "names", None)
    return {"classes": tuple(listed)} if listed else {}
