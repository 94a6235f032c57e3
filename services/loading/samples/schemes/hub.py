"""`hf:NAME|DIR?split=test&config=&image=&label=&mode=&resize=&crop=&size=`: a data set of Hugging Face's."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from services.errors import Problem, SourceError, one_line
from services.loading.confined import within_tree
from services.loading.samples.schemes.parquet import OPTIONS, from_table
from services.loading.samples.source import Source
from services.loading.uris import SourceUri, local_path


def open_hub(uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source:
    """Open a dataset saved by `save_to_disk`, or one of the hub that is cached or reachable.

    Raises:
        SourceError: the library is not installed, or the dataset cannot be had.
    """
    options = uri.options(**OPTIONS, config=str)
    try:
        datasets = import_module("datasets")
    except ImportError as error:
        remedy = "install datasets, or save the set as Parquet and use parquet:"
        raise SourceError(Problem(uri.text, "the package datasets", "it is not installed", remedy)) from error
    try:
        dataset = _dataset(datasets, uri, options)
        undecoded = _undecoded(datasets, dataset)
    except SourceError:
        raise
    except Exception as error:
        actual = f"{type(error).__name__}: {one_line(error)}"
        raise SourceError(Problem(uri.text, "a dataset that opens", actual)) from error
    table = undecoded.with_format("arrow")[:]
    return from_table(table, uri.text, {**_classes(dataset, options), **options}, str(dataset._fingerprint))


def _dataset(datasets: Any, uri: SourceUri, options: dict[str, Any]) -> Any:
    path: Path = local_path(uri.rest)
    split = options.get("split", "test")
    if not path.is_dir():
        return datasets.load_dataset(uri.rest, options.get("config"), split=split)
    loaded = datasets.load_from_disk(str(within_tree(path, uri.text)))
    if isinstance(loaded, dict):
        if split not in loaded:
            raise SourceError(Problem(f"{uri.text} (split)", f"one of {', '.join(loaded)}", repr(split)))
        return loaded[split]
    saved = str(loaded.split or split)
    if saved.partition("[")[0] != split:
        raise SourceError(
            Problem(f"{uri.text} (split)", f"samples of {split}", saved, f"add ?split={saved} to use them")
        )
    return loaded


def _undecoded(datasets: Any, dataset: Any) -> Any:
    for name, feature in dataset.features.items():
        if isinstance(feature, datasets.Image):
            dataset = dataset.cast_column(name, datasets.Image(decode=False))
    return dataset


def _classes(dataset: Any, options: dict[str, Any]) -> dict[str, Any]:
    listed = getattr(dataset.features.get(options.get("label", "label")), "names", None)
    return {"classes": tuple(listed)} if listed else {}
