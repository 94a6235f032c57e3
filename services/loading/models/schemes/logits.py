"""`logits:FILE`: the scores of an auditor's black box, as npz or Parquet; no network, no gradients.

npz: `logits` (N, K), optional `ids` (N,), optional `labels` (N,). Parquet: a list column `logits`, or columns
`logits_0`, `logits_1`, ..., with the same optional columns. Without `ids` row i belongs to the sample with id i.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.errors import Problem, SourceError, one_line
from services.loading.fingerprint import existing, file_kind, sha256
from services.loading.models.contract import as_logits
from services.loading.models.outputs import declared_output_problems, other_width, rounding_facts
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.samples.parquet_rows import matrix, read_parquet
from services.loading.uris import SourceUri

LAYOUT = "a column `logits` of lists of K numbers, or columns `logits_0`, `logits_1`, ... of numbers"


@dataclass(frozen=True)
class LogitTable:
    """Logits by sample id.

    Attributes:
        where: the model's name, for messages.
        ids: (N,) int64, ascending.
        logits: (N, K) float32, in the order of `ids`.
        labels: (N,) in the order of `ids`, where the file has them.
        numbered: the file has no ids: a row's number is the sample's.
    """

    where: str
    ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64] | None
    numbered: bool = False

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits (n, K) of the samples `ids`.

        Raises:
            SourceError: some are not in the table; with the count.
        """
        rows = self._rows(ids)
        missing = int(np.sum(rows < 0))
        if missing:
            example = int(np.asarray(ids)[rows < 0][0])
            actual = f"{missing} of {len(ids)} missing, for example id {example}"
            raise SourceError(Problem(f"{self.where} (ids)", "logits for every sample", actual, "score them all"))
        return self.logits[rows]

    def length_problems(self, available: int) -> list[Problem]:
        """Rows without ids belong to the samples of the whole source, so there are as many; of another number of rows
        nobody knows which are whose."""
        if not self.numbered or not available or len(self.ids) == available:
            return []
        expected = f"a row for each of the {available} samples of the source, or ids"
        actual = f"{len(self.ids)} rows without ids"
        return [Problem(f"{self.where} (logits)", expected, actual, "store the samples' ids in a column ids")]

    def label_problems(self, ids: NDArray[np.int64], labels: NDArray[np.int64]) -> list[Problem]:
        """Labels in the file that contradict the samples': the rows belong to other samples."""
        rows = self._rows(ids)
        if self.labels is None or np.any(rows < 0):
            return []
        wrong = int(np.sum(self.labels[rows] != labels))
        if not wrong:
            return []
        actual = f"{wrong} of {len(ids)} that differ"
        return [
            Problem(f"{self.where} (labels)", "the samples' labels", actual, "check the order of rows, or store ids")
        ]

    def _rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[rows] == ids, rows, -1)


def load(request: Request) -> Opened:
    """Read the table and turn declared probabilities into logits."""
    request.uri.options()
    path, name = existing(request.uri.path(), request.spec.name), request.spec.name
    table = _table(read_columns(path, name), name)
    if problems := declared_output_problems(request.spec, table.logits):
        raise SourceError(problems)
    facts = {"rows": len(table.ids), **rounding_facts(request.spec.outputs, table.logits)}
    logits = as_logits(torch.from_numpy(table.logits), request.spec.outputs).numpy()
    if offsets := request.spec.offsets:
        if logits.shape[1] != len(offsets):
            raise SourceError(other_width(name, logits.shape[1], len(offsets)))
        logits = logits + np.array(offsets, dtype=np.float32)
    return Opened(None, differentiable=False, facts=facts, logits=replace(table, logits=logits))


def read_columns(path: Path, where: str) -> dict[str, NDArray[Any]]:
    """The arrays `logits`, `ids` and `labels` of an npz or Parquet file."""
    if file_kind(path, where) == "parquet":
        return _from_parquet(path, where)
    from services.loading.samples.schemes.npz import read_npz

    return read_npz(path, where)


def _from_parquet(path: Path, where: str) -> dict[str, NDArray[Any]]:
    import pyarrow as pa

    try:
        return _columns(read_parquet(path, where))
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        actual = one_line(error)
        raise SourceError(Problem(f"{where} (logits)", LAYOUT, actual, "write the file again")) from error


def _columns(table: Any) -> dict[str, NDArray[Any]]:
    columns = {name: table.column(name).to_numpy() for name in ("ids", "labels") if name in table.column_names}
    numbered = [name for name in table.column_names if name.startswith("logits_")]
    if "logits" in table.column_names:
        columns["logits"] = matrix(table.column("logits"))
    elif numbered:
        numbered.sort(key=lambda name: int(name.removeprefix("logits_")))
        columns["logits"] = np.stack([table.column(name).to_numpy() for name in numbered], axis=1)
    return columns


def _table(columns: dict[str, NDArray[Any]], where: str) -> LogitTable:
    logits = columns.get("logits")
    if logits is None or logits.ndim != 2 or logits.dtype.kind != "f" or not len(logits):
        actual = "none" if logits is None else f"{logits.dtype} {logits.shape}"
        raise SourceError(Problem(f"{where} (logits)", "floating logits (N, K)", actual))
    ids, labels = columns.get("ids", np.arange(len(logits))), columns.get("labels")
    problems = [
        Problem(f"{where} ({name})", f"{len(logits)} whole numbers", f"{array.dtype} {array.shape}")
        for name, array in (("ids", ids), ("labels", labels))
        if array is not None and (array.shape != (len(logits),) or array.dtype.kind not in "iu")
    ]
    if not problems and (repeated := len(ids) - len(np.unique(ids))):
        problems.append(Problem(f"{where} (ids)", "each id once", f"{repeated} repeated"))
    if problems:
        raise SourceError(problems)
    order = np.argsort(ids)
    kept = None if labels is None else labels[order].astype(np.int64)
    ordered = ids[order].astype(np.int64), logits[order].astype(np.float32)
    return LogitTable(where, *ordered, kept, numbered="ids" not in columns)


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The file's bytes."""
    path = existing(uri.path(), uri.text)
    file_kind(path, uri.text)
    yield "file", sha256(path)


SCHEME = ModelScheme(load, ingredients, runs=False, gradients=False)
