"""The repaired network as a version of MLflow's registry, with the run of the audit that showed it; no alias moves."""

from __future__ import annotations

from jobs.fleetfile.mlflow_uri import mlflow_sources, tracking_uri
from jobs.fleetfile.reading import Fleet
from jobs.repair.record import REPAIRED
from jobs.repair.repair import Repaired
from services.errors import ConfigError, Problem, TrackingError
from tracking.bundle.marker import uploaded_to


def require_tracking(fleet: Fleet, name: str) -> None:
    """Refuse a name for the registry where nothing is logged, before any work.

    Raises:
        ConfigError: it is.
    """
    if name and not fleet.config.tracking.enabled:
        remedy = "leave --no-track out, or set tracking.enabled"
        raise ConfigError(Problem("--register", "an audit that is logged to MLflow", "no tracking", remedy))


def register(fleet: Fleet, done: Repaired, name: str) -> str:
    """Register the network where fresh samples showed the repair; returns a line for people."""
    if done.repair.verdict != REPAIRED:
        return f"not registered as {name}: {done.repair.verdict}"
    uri = tracking_uri(fleet.config.storage, fleet.config.tracking.uri)
    logged = uploaded_to(done.published.folder, uri)
    if logged is None:
        return f"not registered as {name}: its audit is not in MLflow; sync it and repair again"
    from services.loading.models.contract import ContractedNetwork, Graphable
    from services.loading.models.source import load_model
    from tracking.mlflow.graphs import Graph, register_audited

    result, model = done.published.result, done.published.result.models[0]

    def build() -> Graphable:
        with mlflow_sources(fleet.config):
            loaded = load_model(model.spec, allowed_factories=fleet.config.factories)
        network = loaded.network
        if not isinstance(network, ContractedNetwork):
            raise ConfigError(Problem(f"{model.spec.name} (uri)", "a network", "none"))
        return Graphable(network).eval()

    graph = Graph(model.spec.uri, tuple(result.samples.shape), len(result.samples.classes), build)
    shown = {key: str(getattr(done.repair, key)) for key in ("remedy", "series", "worst_before", "worst_after")}
    tags = {"audit_id": result.audit_id, "outcome": model.outcome.value, **shown}
    try:
        version = register_audited(uri, str(logged["child_run_ids"][0]), graph, name, tags)
    except TrackingError as error:
        return f"not registered as {name}: {error}"
    return f"registered mlflow:models:/{name}/{version}"
