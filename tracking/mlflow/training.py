"""Writes sweeps to MLflow: a parent run a sweep, a child run a trial with its curves and its network.

As `tracking.mlflow.audits` does for audits: the driver is the only writer, everything is on disk before the first
upload, and what is logged already is found by its key and not logged twice. A trial is logged when it ends, so a long
sweep shows what it has; the parent is closed whatever happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from services.records.trials import EpochPoint, SweepResult, TrialResult
from services.storage import files
from tracking.bundle import marker, training_bundle
from tracking.mlflow.connection import connect
from tracking.mlflow.graphs import Graph, log_network, register_network
from tracking.mlflow.layout import RunContent
from tracking.mlflow.reach import CALL_SECONDS, bounded_calls, is_foreign, run_url, translated
from tracking.mlflow.runs import COMPLETE, RunWriter, experiment_of
from tracking.mlflow.series_tag import MAX_TAG
from tracking.mlflow.training_layout import (
    CONTENT,
    SWEEP_NAME,
    TRIAL_KEY,
    curves,
    parent_content,
    sweep_content,
    sweep_rows,
    trial_content,
)

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run
    from torch import nn

IDENTITY = (SWEEP_NAME, "classwise.role", TRIAL_KEY)
NO_MODEL = "classwise.no_model"
"""Why a trial's network was not logged."""

REMEDY = "the training is complete on disk; run `classwise sync` on its folder once the server answers"


class TrainingLog:
    """One sweep in one experiment. A context manager: leaving it closes the parent run.

    Args:
        network: builds the trained network of a trial, images in [0, 1] to logits; None logs no networks.
        register: the registered name of a trial's network; None registers none.

    Raises:
        TrackingError: from every method, when the server is unreachable or refuses; files are untouched.
    """

    def __init__(
        self,
        tracking_uri: str,
        experiment: str,
        sweep: str,
        *,
        network: Callable[[TrialResult], nn.Module] | None = None,
        register: Callable[[TrialResult], str] | None = None,
    ) -> None:
        self._uri, self._experiment, self._sweep = tracking_uri, experiment, sweep
        self._network, self._register = network, register
        self._stack = ExitStack()
        self._runs: RunWriter | None = None
        self._known: dict[str, Run] = {}
        self._parent = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._reached():
            self._stack.__exit__(kind, error, trace)

    def trial(self, result: TrialResult, points: Sequence[EpochPoint], folder: str) -> None:
        """Log a trial that ended, unless it is there."""
        with self._reached():
            runs = self._open()
            known = self._known.get(result.key)
            if known is not None and known.data.tags.get(COMPLETE):
                return
            content, parent = trial_content(result), self._opened_parent(runs)
            started = int((time.time() - result.seconds) * 1000)
            ending = "FINISHED" if result.usable else "FAILED"
            lasting = result.state not in ("failed", "dropped")
            with runs.run(content, known, parent=parent, started=started, ending=ending, lasting=lasting) as (
                run_id,
                _,
            ):
                self._fill(runs, run_id, result, content, points, folder)

    def finish(self, result: SweepResult, folder: str) -> str:
        """Log what the whole sweep came to, unless it is there; returns a link to the parent run, or ""."""
        with self._reached():
            runs, content = self._open(), sweep_content(result)
            known = self._known.get("")
            if self._parent or known is None or known.data.tags.get(CONTENT) != content.tags[CONTENT]:
                parent = self._opened_parent(runs)
                runs.batch(parent, content)
                path = training_bundle.SWEEP
                runs.client.log_text(parent, files.read_bytes(files.join(folder, path)).decode(), path)
                runs.table(parent, sweep_rows(result), "trials.json")
            link = run_url(self._uri, runs.experiment, self._parent or (known.info.run_id if known else ""))
        marker.record(folder, self._uri, {"experiment": self._experiment, "sweep": self._sweep, "url": link})
        return link

    @contextmanager
    def _reached(self) -> Iterator[None]:
        with translated(self._uri, "an MLflow store that accepts the training", REMEDY), bounded_calls(CALL_SECONDS):
            yield

    def _open(self) -> RunWriter:
        if self._runs is None:
            client = connect(self._uri)
            experiment = experiment_of(client, self._uri, self._experiment)
            self._runs = RunWriter(client, experiment, source="classwise train", identity=IDENTITY)
            self._known = self._runs.known(SWEEP_NAME, self._sweep, TRIAL_KEY)
        return self._runs

    def _opened_parent(self, runs: RunWriter) -> str:
        if not self._parent:
            entered = runs.run(parent_content(self._sweep), self._known.get(""), again=True)
            self._parent, _ = self._stack.enter_context(entered)
        return self._parent

    def _fill(
        self,
        runs: RunWriter,
        run_id: str,
        result: TrialResult,
        content: RunContent,
        points: Sequence[EpochPoint],
        folder: str,
    ) -> None:
        began = int(runs.client.get_run(run_id).info.start_time)
        runs.batch(run_id, content, list(_metrics(result, points, began)))
        data = result.data
        profile: dict[str, Any] = {"num_rows": sum(data.train), "held_out": sum(data.held), "shape": list(data.shape)}
        runs.dataset(run_id, f"{data.name} ({data.label})", data.digest, profile, "training")
        with TemporaryDirectory() as local:
            for name in (training_bundle.TRIAL, training_bundle.CURVES):
                (Path(local) / name).write_bytes(files.read_bytes(files.join(folder, name)))
            for path, text in content.texts.items():
                (Path(local) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(local) / path).write_text(text, encoding="utf-8")
            runs.client.log_artifacts(run_id, local)
        if self._network is not None and result.kind == "network" and result.usable and result.uri:
            self._fill_network(runs, run_id, result, self._network)

    def _fill_network(
        self, runs: RunWriter, run_id: str, result: TrialResult, network: Callable[[TrialResult], nn.Module]
    ) -> None:
        """Log and register the network. One that cannot be traced is a tag: everything else is worth having."""
        try:
            data, step = result.data, result.selected or 0
            graph = Graph(result.uri, data.shape, len(data.classes), lambda: network(result), step)
            model = log_network(runs.client, runs.experiment, run_id, graph)
        except Exception as error:
            if is_foreign(error):
                raise
            runs.client.set_tag(run_id, NO_MODEL, f"{type(error).__name__}: {error}"[:MAX_TAG])
            return
        if self._register is not None:
            register_network(runs.client, run_id, model, self._register(result), result.tags)


def sync_training(folder: str, log: TrainingLog, tracking_uri: str) -> bool:
    """Upload the finished sweep in `folder`; False when this server has it.

    Raises:
        TrackingError: the server is unreachable or refuses.
        StorageError: no sweep is there, or one that cannot be read.
    """
    if marker.uploaded_to(folder, tracking_uri):
        return False
    result = training_bundle.read_sweep(folder)
    with log:
        for trial in result.trials:
            place = training_bundle.folder_of_trial(folder, trial)
            log.trial(trial, training_bundle.read_curves(place), place)
        log.finish(result, folder)
    return True


def _metrics(result: TrialResult, points: Sequence[EpochPoint], began: int) -> Iterator[Metric]:
    """Curves as MLflow takes them; each value's time is that of its epoch, so that logging it again changes nothing."""
    from mlflow.entities import Metric

    ends, clock = {}, float(began)
    for point in points:
        clock += point.seconds * 1000
        ends[point.epoch] = int(clock)
    for key, value, step in curves(result, points):
        yield Metric(key, value, ends[step], step)
