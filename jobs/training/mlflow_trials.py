"""Logs trials to MLflow as they end. A server that fails is a note, not a failure: `classwise sync` logs them later."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from jobs.training.sweep_tree import SweepConfig
from jobs.training.trial_result import contract_of
from services.errors import ClasswiseError, StorageError, TrackingError
from services.records.trials import SweepResult, TrialResult
from tracking.bundle.training_bundle import read_curves

if TYPE_CHECKING:
    from torch import nn

    from jobs.training.progress import TrainReporter
    from tracking.mlflow.training import TrainingLog


class TrialLog:
    """Writes to a log as long as it accepts records. `log` None: there is none, for the reason in `fault`."""

    def __init__(
        self, log: TrainingLog | None, shown: str, reporter: TrainReporter, fault: TrackingError | None = None
    ) -> None:
        self._log, self._shown, self._reporter = log, shown, reporter
        self._failed = False
        if fault is not None:
            self._gave_up(fault)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log is None:
            return
        try:
            self._log.__exit__(kind, error, trace)
        except TrackingError as fault:
            self._gave_up(fault)

    def trial(self, result: TrialResult, folder: str) -> None:
        """Log a finished trial."""
        if self._log is None or self._failed:
            return
        try:
            self._log.trial(result, read_curves(folder), folder)
        except (StorageError, TrackingError) as fault:
            self._gave_up(fault)

    def finish(self, result: SweepResult, folder: str) -> list[str]:
        """Log the result of the sweep; returns where to look."""
        if self._log is not None and not self._failed:
            try:
                return [f"MLflow   {self._log.finish(result, folder) or self._shown}"]
            except TrackingError as fault:
                self._gave_up(fault)
        return [f"later    classwise sync {folder}"] if self._failed else []

    def _gave_up(self, fault: ClasswiseError) -> None:
        if not self._failed:
            self._reporter.note(f"Upload to MLflow failed: {fault}")
        self._failed = True


def trial_log(config: SweepConfig, reporter: TrainReporter) -> TrialLog:
    """The log of the server that the sweep file names."""
    from jobs.fleetfile.mlflow_uri import tracking_uri
    from tracking.bundle.marker import without_secret
    from tracking.mlflow.runs import close_stale_runs

    if not config.tracking.enabled:
        return TrialLog(None, "", reporter)
    try:
        uri = tracking_uri(config.storage, config.tracking.uri)
        close_stale_runs(uri, config.tracking.experiment or config.sweep)
    except TrackingError as fault:
        return TrialLog(None, "", reporter, fault)
    shown = f"mlflow ui --backend-store-uri {uri}" if uri.startswith("sqlite") else without_secret(uri)
    return TrialLog(training_log(config.model_dump(by_alias=True), uri), shown, reporter)


def training_log(config: dict[str, Any], uri: str) -> TrainingLog:
    """The log of a sweep whose file, as resolved, is given."""
    from tracking.mlflow.training import TrainingLog

    tracking, template = config["tracking"], config.get("register")
    return TrainingLog(
        uri,
        tracking.get("experiment") or config["sweep"],
        config["sweep"],
        network=network_of if tracking["log_models"] else None,
        register=(lambda result: template.format(**result.tags)) if template else None,
    )


def network_of(result: TrialResult) -> nn.Module:
    """The trained network as audits see it, images in [0, 1] to logits, on the CPU, to be traced with any batch."""
    from services.loading.models.contract import ContractedNetwork, Graphable
    from services.training.architectures.build import build
    from services.training.epochs.checkpoints import load_weights

    network = build(result.architecture, seed=result.seed, **result.options)
    network.load_state_dict(load_weights(result.weights))
    return Graphable(ContractedNetwork(network, contract_of(result), where=result.name)).eval()
