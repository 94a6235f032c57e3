"""`robustbench:NAME?dataset=cifar10&threat_model=Linf&model_dir=DIR`: a model of RobustBench's zoo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.errors import Problem, SourceError
from services.loading.confined import is_confined, linked
from services.loading.fingerprint import existing, file_kind, sha256
from services.loading.models.references import robustbench_reference
from services.loading.models.robustbench_bridge import DATASETS, THREAT_MODELS, load_robustbench, weight_files
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.packages import package_version
from services.loading.uris import SourceUri, local_path, one_of


def load(request: Request) -> Opened:
    """Load through robustbench; facts carry the leaderboard's accuracies."""
    uri, spec = request.uri, request.spec
    options = _options(uri)
    if spec.allow_unpickling:
        remedy = "convert the checkpoint to a state dict; robustbench loads with weights only"
        raise SourceError(Problem(spec.name, "allow_unpickling: false for robustbench models", "true", remedy))
    for path in _present(uri, options):
        file_kind(existing(path, spec.name), spec.name)
    with _judged(uri, options, spec.name) as folder:
        network = load_robustbench(uri.rest, **{**options, "model_dir": folder}, where=spec.name)
    files = _present(uri, options)
    facts: dict[str, Any] = {"weights_sha256": [sha256(existing(path, spec.name)) for path in files]}
    if reference := robustbench_reference(uri.rest, options["dataset"], options["threat_model"]):
        facts["leaderboard"] = reference._asdict()
    return Opened(network, facts=facts)


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """Name, versions and the weights files in robustbench's layout; "absent" while they are yet to be downloaded."""
    options = _options(uri)
    yield "model", f"{options['dataset']}/{options['threat_model']}/{uri.rest}"
    yield from package_version("robustbench")
    yield from package_version("timm")
    files = _present(uri, options)
    for path in files:
        file = existing(path, uri.text)
        file_kind(file, uri.text)
        yield "weights", sha256(file)
    if not files:
        yield "weights", "absent"


@contextmanager
def _judged(uri: SourceUri, options: dict[str, Any], where: str) -> Iterator[Path]:
    """The folder that robustbench is given: where files are judged one of links to the open files, for it loads, and
    downloads, by names.

    Raises:
        SourceError: the weights are not there; nothing is downloaded into a granted folder.
    """
    if not is_confined():
        yield options["model_dir"]
        return
    files = _present(uri, options)
    if not files:
        expected, remedy = "weights in the granted folder", "fetch them where there is a network and put them there"
        raise SourceError(Problem(where, expected, "none", remedy))
    place = Path(options["dataset"], options["threat_model"])
    with linked({place / path.name: existing(path, where) for path in files}) as folder:
        yield folder


def _options(uri: SourceUri) -> dict[str, Any]:
    options = uri.options(dataset=one_of(*DATASETS), threat_model=one_of(*THREAT_MODELS), model_dir=local_path)
    return {"dataset": "cifar10", "threat_model": "Linf", "model_dir": Path("models"), **options}


def _present(uri: SourceUri, options: dict[str, Any]) -> list[Path]:
    files = weight_files(options["model_dir"], options["dataset"], options["threat_model"], uri.rest)
    return [path for path in files if path.is_file()]


SCHEME = ModelScheme(load, ingredients)
