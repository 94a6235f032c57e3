"""What is known of a model before it is loaded: a fixed registry version, and published figures."""

from __future__ import annotations

import uuid
from dataclasses import replace

from services.loading.models.references import robustbench_reference
from services.loading.models.schemes.http import for_one_audit
from services.loading.uris import parse_uri
from services.records import ModelSpec, ThreatModel

ROBUSTBENCH_EPSILON = {("cifar10", "L2"): 0.5, ("cifar10", "Linf"): 8 / 255, ("imagenet", "Linf"): 4 / 255}
"""Radii of RobustBench's leaderboards, in [0, 1] pixel units."""


def fixed_version(spec: ModelSpec) -> ModelSpec:
    """Resolve an `mlflow:` alias to the version it points to now, once, so that every worker loads the same one.

    An `http:` model without a declared version gets the mark of this audit: what it answers later may differ.

    Raises:
        SourceError: no such model, alias or version, or the registry cannot be reached.
    """
    scheme = parse_uri(spec.uri).scheme
    if scheme == "http":
        return replace(spec, uri=for_one_audit(spec.uri, uuid.uuid4().hex))
    if scheme != "mlflow":
        return spec
    from services.loading.models.schemes.mlflow import resolve_mlflow

    return replace(spec, uri=resolve_mlflow(spec.uri))


def with_published(spec: ModelSpec, samples_uri: str) -> ModelSpec:
    """Fill in what RobustBench publishes of its models: clean and robust accuracy, and the threat model.

    What the fleet file declares stays. The robust accuracy serves as reference ranking. The clean accuracy is declared,
    for preflight to compare, when the samples are RobustBench's too: on other samples it need not hold.
    """
    uri = parse_uri(spec.uri)
    if uri.scheme != "robustbench":
        return spec
    options = uri.options(dataset=str, threat_model=str, model_dir=str)
    dataset, norm = options.get("dataset", "cifar10"), options.get("threat_model", "Linf")
    reference = robustbench_reference(uri.rest, dataset, norm)
    epsilon = ROBUSTBENCH_EPSILON.get((dataset, norm))
    threat = ThreatModel("L2" if norm == "L2" else "Linf", epsilon) if epsilon else None
    threat = ThreatModel("corruptions") if norm == "corruptions" else threat
    declares = spec.clean_accuracy is None and reference is not None and parse_uri(samples_uri).scheme == "robustbench"
    return replace(
        spec,
        clean_accuracy=reference.clean_accuracy if declares and reference else spec.clean_accuracy,
        robust_accuracy=spec.robust_accuracy if spec.robust_accuracy is not None or not reference else reference[1],
        threat_model=spec.threat_model or threat,
    )
