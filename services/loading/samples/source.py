"""Samples by URI: the registry of sample schemes and what all of them share.

A scheme turns a URI into a `Source`: raw labels, class names, columns, and a store of images. Here labels are checked,
rows selected, groups picked, and the digest made, in the same way for every scheme. No torch.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from services.errors import Problem, SourceError, examples
from services.loading.confined import held
from services.loading.factories import DEFAULT_FACTORIES
from services.loading.samples.attributes import Groups, Requested, check_shape, requested_attributes
from services.loading.samples.duplicates import Distinct, distinct
from services.loading.samples.labels import MISSING, checked_labels, spelled_alike, too_long
from services.loading.samples.selection import part_of, select
from services.loading.samples.splits import rows_of_split
from services.loading.samples.stores import Read, Shape, Store, Taken, unread_problems
from services.loading.uris import SourceUri, parse_uri
from services.records import Intake, SampleSpec, digest_of
from services.records.intake import suffix_of
from services.registry import Registry, did_you_mean

KEY_COLUMNS = ("file_name", "filename", "file", "path", "key", "image_id")
"""Columns of tables and archives that name an image, the likeliest first."""

UNKNOWN = MISSING | {"null", "none"}
"""What is no name of a cluster: all samples under it would be one."""


@dataclass(frozen=True)
class Source:
    """What a scheme returns: the whole source, not yet selected.

    Attributes:
        store: its N images.
        labels: (N,) as stored: whole numbers or class names.
        classes: class names in label order; None when the source does not name them.
        columns: further columns (N,), candidates for groups.
        ids: (N,) identities; None means the row index.
        key: name of a row's image in its source, such as the file's path; None where images have no names.
        unread: by class and suffix, files of the source that are no rows, and should have been.
        left_out: by kind, files that are no samples.
        split: the split asked for, where a column is to say which row is of which.
        remarks: sentences on what else is in the source, for readers of the audit.
    """

    store: Store
    labels: NDArray[Any]
    classes: tuple[str, ...] | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    ids: NDArray[np.int64] | None = None
    key: Callable[[int], str] | None = None
    unread: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    split: str | None = None
    remarks: tuple[str, ...] = ()


class SampleScheme(Protocol):
    """Opens one kind of source. `allowed_factories` are module patterns that user code may be called from."""

    def __call__(self, uri: SourceUri, *, allowed_factories: tuple[str, ...]) -> Source: ...


SCHEMES: Registry[SampleScheme] = Registry(
    "sample scheme",
    "classwise.samples",
    {
        "celeba": "services.loading.samples.schemes.celeba:open_celeba",
        "generator": "services.loading.samples.schemes.generator:open_generator",
        "hf": "services.loading.samples.schemes.hub:open_hub",
        "imagefolder": "services.loading.samples.schemes.imagefolder:open_imagefolder",
        "mlflow": "services.loading.samples.schemes.mlflow:open_mlflow",
        "npz": "services.loading.samples.schemes.npz:open_npz",
        "parquet": "services.loading.samples.schemes.parquet:open_parquet",
        "robustbench": "services.loading.samples.schemes.robustbench:open_robustbench",
        "sklearn": "services.loading.samples.schemes.sklearn:open_sklearn",
        "torchvision": "services.loading.samples.schemes.torchvision:open_torchvision",
    },
)


@dataclass(frozen=True)
class SelectedSamples:
    """The `Samples` of protocols.py: labels, ids and groups in memory, images read by batch."""

    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    classes: tuple[str, ...]
    groups: Mapping[str, NDArray[Any]]
    digest: str
    skipped: Mapping[str, int]
    shape: Shape
    read: Read
    content: str = ""
    group_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    intake: Intake = field(default_factory=Intake)
    keys: NDArray[Any] | None = None
    clusters: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, start: int, stop: int) -> NDArray[np.float32]:
        """Images of rows [start, stop), (n, C, H, W) float32 in [0, 1], C-contiguous and writable."""
        return self.read(start, min(stop, len(self)))


def open_samples(spec: SampleSpec, *, allowed_factories: tuple[str, ...] = DEFAULT_FACTORIES) -> SelectedSamples:
    """Open the samples of an audit.

    Raises:
        SourceError: the source is missing or malformed, its labels are unusable, a grouping column is not there, or
            they are others than `spec.digest` says.
        ConfigError: the scheme is unknown.
    """
    with held():
        samples = _opened(spec, allowed_factories)
    if spec.digest not in ("", samples.digest):
        remedy = "run the audit again when nothing writes there; on a cluster, bring files on the nodes up to date"
        raise SourceError(Problem(spec.uri, "the samples that the audit began with", "others", remedy))
    return samples


def _opened(spec: SampleSpec, allowed_factories: tuple[str, ...]) -> SelectedSamples:
    uri, measured = requested_attributes(parse_uri(spec.uri))
    source = SCHEMES.get(uri.scheme, where=spec.uri)(uri, allowed_factories=allowed_factories)
    where = f"{spec.uri} (labels)"
    problems = unread_problems(source.unread, spec.uri, ", or set on_corrupt: skip")
    if problems and spec.on_corrupt == "error":
        raise SourceError(problems)
    labels, classes = checked_labels(source.labels, source.classes, count=len(source.store), where=where)
    groups = _groups(source, spec, measured)
    column = _cluster_column(source, spec)
    _check_limit(labels, spec)
    of_split = _rows_of_split(source, spec.uri, (*spec.groups, spec.cluster))
    clusters = None if column is None else column[of_split]
    pool = of_split[part_of(labels[of_split], clusters, share=spec.reserve, reserve=spec.part == "reserve")]
    pool, stale = _unseen(source.store, pool, of_split, spec)
    rows = pool[select(labels[pool], len(classes), per_class=spec.per_class, limit=spec.limit, seed=spec.seed)]
    taken = source.store.take(rows, on_corrupt=spec.on_corrupt)
    unread = _unread(source, [classes[k] for k in labels[rows[~taken.kept]]], taken.refused)
    before = rows[taken.kept]
    rows, taken, copies = _once(source.store, before, taken, labels, spec)
    check_shape(measured, taken.shape, spec.uri)
    wanted = tuple(attribute for attribute in measured if attribute.name in spec.groups)
    intake = Intake(
        available=tuple(np.bincount(labels[of_split], minlength=len(classes)).tolist()),
        unread=unread,
        left_out=dict(source.left_out),
        turned=taken.turned,
        colours=dict(taken.colours),
        copies=copies.copies,
        audited=stale,
        copies_kept=spec.duplicates == "all",
        conflicts=tuple(_conflicts(copies, source, before, classes)),
        trained_on=_trained_on(spec, taken, allowed_factories),
        remarks=(*source.remarks, *_without_value(groups, rows)),
    )
    names = _group_names(groups, of_split, spec.uri)
    selected = _selected(source, labels, classes, groups, names, wanted, rows, taken, spec, intake)
    return selected if column is None else _clustered(selected, column[rows], spec.cluster or "")


def _rows_of_split(source: Source, where: str, named: tuple[str | None, ...] = ()) -> NDArray[np.int64]:
    return rows_of_split(source.columns, source.split, named, len(source.store), where)


def _cluster_column(source: Source, spec: SampleSpec) -> NDArray[Any] | None:
    """The column of clusters, as text; None where samples are independent."""
    if spec.cluster is None:
        return None
    place, column = f"{spec.uri} (cluster)", source.columns.get(spec.cluster)
    if column is None or column.shape != (len(source.store),):
        remedy = did_you_mean(spec.cluster, [*source.columns]) if source.columns else f"add a column {spec.cluster!r}"
        raise SourceError(Problem(place, "a column of the source", repr(spec.cluster), remedy))
    names = np.array(["" if value is None or value != value else str(value).strip() for value in column.tolist()])
    if missing := sum(name.casefold() in UNKNOWN for name in names.tolist()):
        remedy = "fill it in, or leave these samples out: one whose cluster is not known may belong to any"
        actual = f"{missing} of {len(names)} rows without, or with a word for none such as NA"
        raise SourceError(Problem(place, "a value in every row", actual, remedy))
    return names


def _clustered(samples: SelectedSamples, column: NDArray[Any], name: str) -> SelectedSamples:
    _, clusters = np.unique(column, return_inverse=True)
    pairs = np.unique(np.stack([samples.labels, clusters]), axis=1)
    of_class = np.bincount(pairs[0], minlength=len(samples.classes))
    intake = replace(
        samples.intake, cluster=name, clusters=int(clusters.max()) + 1, clusters_of=tuple(of_class.tolist())
    )
    return replace(samples, clusters=clusters.astype(np.int64), intake=intake)


def _conflicts(
    copies: Distinct, source: Source, rows: NDArray[np.int64], classes: tuple[str, ...]
) -> Iterator[tuple[str, str, int, str]]:
    """Pairs of classes that one image stands under, how many, and the first of them."""
    ids = rows if source.ids is None else source.ids[rows]
    for (label, other), places in sorted(copies.conflicts.items()):
        yield classes[label], classes[other], len(places), " and ".join(str(ids[place]) for place in places[0])


def _unseen(
    store: Store, pool: NDArray[np.int64], of_split: NDArray[np.int64], spec: SampleSpec
) -> tuple[NDArray[np.int64], int]:
    """The rows of the reserve of which no audit saw a copy, and how many were left out; of another part all rows.

    All images are read together, so that the fingerprints of both parts are of one kind.

    Raises:
        SourceError: audits saw a copy of every image of the reserve.
    """
    if not spec.reserve or spec.part != "reserve":
        return pool, 0
    taken = store.take(of_split, on_corrupt="skip")
    if not taken.prints:
        return pool, 0
    read, prints = of_split[taken.kept], np.array([image.hex() for image in taken.prints])
    mine = np.isin(read, pool)
    stale = read[mine & np.isin(prints, prints[~mine])]
    fresh = pool[~np.isin(pool, stale)]
    if not len(fresh):
        remedy = "remove the copies from the source, or declare what belongs together: samples: {cluster: COLUMN}"
        actual = f"copies of audited images alone ({len(stale)})"
        raise SourceError(Problem(f"{spec.uri} (reserve)", "images that no audit has seen", actual, remedy))
    return fresh, len(stale)


def _once(
    store: Store, rows: NDArray[np.int64], taken: Taken, labels: NDArray[np.int64], spec: SampleSpec
) -> tuple[NDArray[np.int64], Taken, Distinct]:
    """The rows that count, ready to read, and what became of copies."""
    copies = distinct(taken.prints, labels[rows[: len(taken.prints)]])
    if not copies.copies or spec.duplicates == "all":
        return rows, taken, copies
    rows = rows[copies.rows]
    return rows, store.take(rows, on_corrupt=spec.on_corrupt), copies


def _trained_on(spec: SampleSpec, taken: Taken, allowed_factories: tuple[str, ...]) -> int | None:
    """How many of the images are among those that the models were trained on.

    Raises:
        SourceError: the two have nothing by which they could be compared.
    """
    if spec.training is None or not taken.prints:
        return None
    uri = parse_uri(spec.training)
    source = SCHEMES.get(uri.scheme, where=spec.training)(uri, allowed_factories=allowed_factories)
    shared = taken.shared(source.store.take(_rows_of_split(source, spec.training), on_corrupt="skip"))
    if shared is None:
        actual = "one of the two as arrays, and the other as files too large to decode all of them"
        remedy = "give both as files, or leave training out"
        raise SourceError(Problem(f"{spec.training} (training)", "images that can be compared", actual, remedy))
    return shared


def _check_limit(labels: NDArray[np.int64], spec: SampleSpec) -> None:
    """Fewer samples than classes would leave classes out of every metric."""
    classes = len(np.unique(labels))
    if spec.limit is not None and spec.limit < classes:
        expected = f"a limit of at least {classes}, one sample of each class"
        raise SourceError(Problem(f"{spec.uri} (limit)", expected, str(spec.limit), "raise limit, or use per_class: 1"))


def _groups(source: Source, spec: SampleSpec, measured: tuple[Requested, ...]) -> dict[str, NDArray[Any]]:
    """The source's own columns that are asked for."""
    attributes = [attribute.name for attribute in measured]
    known = [*source.columns, *attributes]
    problems = [
        Problem(f"{spec.uri} (groups)", "a column of the source", repr(name), did_you_mean(name, known))
        if known
        else Problem(f"{spec.uri} (groups)", "a source with grouping columns", "none", f"add a column {name!r}")
        for name in spec.groups
        if name not in known
    ]
    problems += [
        Problem(f"{spec.uri} (attributes)", "names that the source has no column of", repr(name), "rename the column")
        for name in attributes
        if name in source.columns
    ]
    problems += [
        Problem(f"{spec.uri} (groups)", f"a column of {len(source.store)} values", f"{name!r} of shape {column.shape}")
        for name, column in source.columns.items()
        if name in spec.groups and column.shape != (len(source.store),)
    ]
    if problems:
        raise SourceError(problems)
    return {name: source.columns[name] for name in spec.groups if name in source.columns}


def _group_names(groups: Mapping[str, NDArray[Any]], rows: NDArray[np.int64], where: str) -> dict[str, tuple[str, ...]]:
    """The groups of each column, sorted.

    Raises:
        SourceError: two spellings of one group, which would be two groups.
    """
    names = {name: tuple(np.unique(column[rows].astype(str)).tolist()) for name, column in groups.items()}
    problems = [
        Problem(
            f"{where} (groups, {column})",
            "one spelling of each group",
            f"{len(alike)} in several: {examples(map(repr, alike), mark='; ')}",
            "write each in one way",
        )
        for column, values in names.items()
        if (alike := spelled_alike(values))
    ]
    for column, values in names.items():
        problems += too_long(values, f"{where} (groups, {column})")
    if problems:
        raise SourceError(problems)
    return names


def _without_value(groups: Mapping[str, NDArray[Any]], rows: NDArray[np.int64]) -> Iterator[str]:
    for name, column in groups.items():
        words = [value for value in column[rows].astype(str).tolist() if value.strip().casefold() in MISSING]
        if words:
            yield f"{len(words)} of {len(rows)} samples have no value of {name} ({words[0]!r}): a group of its own."


def _selected(
    source: Source,
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    groups: Mapping[str, NDArray[Any]],
    group_names: Mapping[str, tuple[str, ...]],
    measured: tuple[Requested, ...],
    rows: NDArray[np.int64],
    taken: Taken,
    spec: SampleSpec,
    intake: Intake,
) -> SelectedSamples:
    if not len(rows):
        raise SourceError(
            Problem(spec.uri, "at least one sample", f"none of {len(source.store)} selected and readable")
        )
    ids = rows if source.ids is None else source.ids[rows]
    picked = {name: column[rows].astype(str) for name, column in groups.items()}
    hashes = [_hash(array) for array in (ids, labels[rows])]
    return SelectedSamples(
        labels=labels[rows],
        ids=ids,
        classes=classes,
        groups=Groups(picked, measured, taken) if measured else picked,
        digest=digest_of(taken.content, taken.shape, classes, hashes),
        skipped={name: sum(intake.unread[name].values()) for name in classes if name in intake.unread},
        group_names=group_names,
        intake=intake,
        shape=taken.shape,
        read=taken.read,
        content=taken.content,
        keys=_keys(source, rows),
    )


def _keys(source: Source, rows: NDArray[np.int64]) -> NDArray[Any] | None:
    """What leads from each row to its image: the source's own names, else its first column that is called like one."""
    if source.key is not None:
        return np.array([source.key(row) for row in rows.tolist()], dtype=np.str_)
    column = next((source.columns[name] for name in KEY_COLUMNS if name in source.columns), None)
    usable = column is not None and column.shape == (len(source.store),)
    return column[rows].astype(np.str_) if column is not None and usable else None


def _unread(source: Source, names: list[str], refused: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """By class and suffix: files that are no rows, and rows of the selection that could not be read."""
    counts = {name: Counter(suffixes) for name, suffixes in source.unread.items()}
    for name, file in zip(names, refused, strict=True):
        counts.setdefault(name, Counter())[suffix_of(file)] += 1
    return {name: dict(suffixes) for name, suffixes in counts.items()}


def _hash(array: NDArray[Any]) -> str:
    data = "\0".join(array.tolist()).encode() if array.dtype.kind == "U" else np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(data).hexdigest()
