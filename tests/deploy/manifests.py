"""Reads manifests and checks them against published schemas: Kubernetes' own, and those of KubeRay and others here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

VERSION = "1.34"
FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
OTHERS = {"ray.io/v1": "kuberay", "gateway.networking.k8s.io/v1": "crds", "monitoring.coreos.com/v1": "crds"}
"""Files with the schemas of other kinds than Kubernetes' own."""
CORE = {
    "podtemplatespec": "PodTemplateSpec",
    "resourcerequirements": "ResourceRequirements",
    "securitycontext": "SecurityContext",
}
"""Definitions of Kubernetes that kuberay.json refers to."""


def documents(path: Path) -> list[dict[str, Any]]:
    """The objects in a manifest."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def all_manifests() -> list[tuple[str, dict[str, Any]]]:
    """File name and object of everything but kustomization.yaml, whose kind the API server never sees."""
    results = [path for path in sorted(FOLDER.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [(path.name, each) for path in results for each in documents(path)]


def check(manifest: dict[str, Any]) -> None:
    """Raise when a manifest has a field that its kind has not, lacks one, or has one of another type."""
    source = OTHERS.get(manifest["apiVersion"])
    if source is None:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
        return
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
    schema = {"$ref": f"{source}#/$defs/{manifest['kind']}"}
    jsonschema.Draft202012Validator(schema, registry=_registry()).validate(manifest["spec"])


@cache
def _registry() -> Registry[Any]:
    own = {name: json.loads((Path(__file__).parent / f"{name}.json").read_text()) for name in set(OTHERS.values())}
    home = resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{VERSION}.0-local-strict"
    kubernetes = json.loads((home / "_definitions.json").read_text())
    held: list[tuple[str, Resource[Any]]] = [
        (name, DRAFT202012.create_resource(schema)) for name, schema in own.items()
    ]
    for name, definition in CORE.items():
        part = {"$ref": f"{kubernetes['$id']}#/$defs/io.k8s.api.core.v1.{definition}"}
        held.append((f"kubernetes:{name}", DRAFT202012.create_resource(part)))
    return Registry().with_resources([*held, (kubernetes["$id"], DRAFT202012.create_resource(kubernetes))])


def pods(value: Any) -> Iterator[dict[str, Any]]:
    """Every pod's spec in an object, wherever it is."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for inner in value.values():
            yield from pods(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pods(inner)
