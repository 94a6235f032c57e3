"""Weak groups that nobody named, where `slices: true` asks: the embedding of each image on workers, then the search."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jobs.audit.plan import Context, ModelPlan
from jobs.audit.why.hardest import sample_png
from services.loading.protocols import Samples
from services.numerics.attributes.slices import Slice, SliceSearch, find_slices
from services.records import SCHEMA_VERSION, Estimate, ModelSpec, Series, ShardTask, SliceResult, digest_of
from services.storage import files
from services.storage.shards import finished_ranges, missing_ranges, read_table, shard_name
from tracking.bundle.reasons.slices import write_slices
from tracking.bundle.scores import Scores

EMBEDDING_VERSION = 1
"""Raised when the same network would give other embeddings, or images other attributes."""
MOST_SERIES = 2
"""In which slices are looked for: the first whose scores are 0 or 1."""
PICTURED = 6
"""Samples of a slice whose pictures are kept."""


def embedding_folder(item: ModelPlan, context: Context) -> str:
    """Where the cache keeps the embeddings of a model."""
    key = digest_of("embedding", EMBEDDING_VERSION, SCHEMA_VERSION, item.digest, context.samples_digest)
    return files.join(context.cache, "embeddings", key[:2], key)


def embedding_tasks(item: ModelPlan, context: Context) -> list[ShardTask]:
    """Embeddings that are not in the cache; none where no slices are asked for."""
    if not context.slices:
        return []
    folder = embedding_folder(item, context)
    return [
        ShardTask(
            "embedding",
            item.spec,
            context.samples,
            start,
            stop,
            context.seed,
            context.batch,
            target=files.join(folder, shard_name(start, stop)),
            digest=item.digest,
        )
        for start, stop in missing_ranges(context.count, context.shard, finished_ranges(folder))
    ]


def slice_results(
    item: ModelPlan, scores: Scores, samples: Samples, context: Context, delta: float
) -> tuple[SliceResult, ...]:
    """The slices of one model, under each of at most two series, with level `delta` in all: the model's share.

    Of samples that belong together (clusters) there are none: the test takes samples for independent.

    Raises:
        StorageError: the embeddings were deleted meanwhile.
    """
    if not context.slices or samples.clusters is not None:
        return ()
    tables = [table for table in item.tables if table.measure is not None and table.key not in context.taken]
    series = [each for table in tables if table.measure for each in table.measure.series() if each.binary]
    shown = sorted(series, key=lambda each: (each.family != "clean", not each.attack))[:MOST_SERIES]
    if not shown:
        return ()
    known = read_table(embedding_folder(item, context), context.count)
    attributes = {name.removeprefix("pixel:"): known[name] for name in known if name.startswith("pixel:")}
    results: list[SliceResult] = []
    for each in shown:
        right, level = scores[each.key] > 0, delta / len(shown)
        search = find_slices(right, samples.labels, attributes, known["embedding"], delta=level, seed=context.seed)
        results += [_result(each, one, search, samples) for one in search.slices]
    return tuple(results)


def keep_slices(
    slices: tuple[SliceResult, ...], index: int, spec: ModelSpec, samples: Samples, context: Context, folder: str
) -> None:
    """Write pictures of the slices' samples into the bundle; none with `gallery: none`."""
    if not slices or not context.gallery or 0 in samples.shape:
        return
    place = {int(identity): row for row, identity in enumerate(samples.ids.tolist())}
    listed = [(number, identity) for number, each in enumerate(slices) for identity in each.ids]
    rows = np.array([place[identity] for _, identity in listed], dtype=np.int64)
    shown = [sample_png(samples, row) for row in rows.tolist()]
    columns: dict[str, NDArray[np.generic]] = {
        "slice": np.array([number for number, _ in listed]),
        "id": samples.ids[rows],
        "label": samples.labels[rows],
        "picture": np.array(shown, dtype=object),
    }
    write_slices(folder, index, spec, columns)


def _result(series: Series, tested: Slice, search: SliceSearch, samples: Samples) -> SliceResult:
    return SliceResult(
        series.key,
        series.title,
        tested.source,
        tested.low,
        tested.high,
        tested.n,
        tested.wrong,
        Estimate(tested.rate, tested.rate_low, tested.rate_high),
        tested.expected,
        tested.p,
        search.tested,
        search.candidates,
        tuple(samples.ids[tested.rows[:PICTURED]].tolist()),
    )
