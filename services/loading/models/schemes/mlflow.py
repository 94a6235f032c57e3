"""`mlflow:models:/NAME@ALIAS`, `mlflow:models:/NAME/VERSION`, `mlflow:models:/m-ID`, `mlflow:runs:/RUN/PATH`.

The driver resolves an address once (`resolve_mlflow`): workers get a URI with a version, the identity of what was
logged, and a digest of the files that the address served then. An alias that moves during an audit changes nothing,
other files under the same address are an error, and the fingerprint is that of the content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter

from services import limits
from services.errors import Problem, SourceError, one_line
from services.loading.fingerprint import existing, sha256, tree_sha256
from services.loading.mlflow_artifacts import _message, _store, fetch
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.uris import SourceUri, parse_uri
from services.records import digest_of
from services.storage import plainyaml


def resolve_mlflow(text: str) -> str:
    """Turn an `mlflow:` URI into one with a fixed version, the identity of its source, and a digest of its files.

    The files are downloaded for that, once; a URI that has a digest stays.

    Raises:
        SourceError: no such model, alias or version, or the server cannot be reached.
    """
    uri = parse_uri(text)
    options = uri.options(source=str, content=str)
    if "content" in options:
        return text
    rest, source = _resolved(uri, options.get("source", ""))
    with TemporaryDirectory() as folder:
        content = _content(fetch(rest, text, Path(folder)), text)
    return f"mlflow:{rest}?{f'source={source}&' if source else ''}content={content}"


def _resolved(uri: SourceUri, source: str) -> tuple[str, str]:
    """The address with a version for an alias, and the id of the logged model behind it."""
    named = re.fullmatch(r"models:/([^/@]+)(?:@([^/@]+)|/(\d+|latest))", uri.rest)
    if source or not named:
        _check_form(uri)
        return uri.rest, source or _logged_model(uri.rest)
    name, alias, number = named.groups()
    version = _version(name, alias, number, uri.text)
    return f"models:/{name}/{version.version}", _identity(version)


def _logged_model(address: str) -> str:
    """Id of the logged model that MLflow serves under `models:/m-ID` or `runs:/RUN/NAME`; "" where there is none."""
    if match := re.fullmatch(r"models:/(m-[0-9a-f]{32})", address):
        return match[1]
    named = re.fullmatch(r"runs:/([^/]+)/([^/]+)", address)
    if named is None:
        return ""
    from mlflow import MlflowClient

    client, (run, name) = MlflowClient(_store()), named.groups()
    try:
        experiment, token = client.get_run(run).info.experiment_id, None
        while True:
            page = client.search_logged_models([experiment], filter_string=f"name = '{name}'", page_token=token)
            for model in page:
                if model.source_run_id == run:
                    return str(model.model_id)
            if not (token := page.token):
                return ""
    except Exception as error:
        raise SourceError(Problem(f"mlflow:{address}", f"an MLflow artifact {address}", _message(error))) from error


def _content(folder: Path, where: str) -> str:
    """Digest of a logged model's files and of how they are to be read; its description also holds ids and times."""
    flavors = json.dumps(_flavors(folder, where), sort_keys=True, default=str)
    files = tree_sha256(folder, (file for file in folder.rglob("*") if file.name != "MLmodel"))
    return digest_of(files, flavors)


def load(request: Request) -> Opened:
    """Fetch the logged model and open its PyTorch or ONNX flavour."""
    resolved = parse_uri(resolve_mlflow(request.spec.uri))
    folder, options = fetch(resolved.rest, request.spec.name), resolved.options(source=str, content=str)
    if _content(folder, request.spec.name) != options["content"]:
        expected = f"the files that {resolved.rest} served when the audit began"
        raise SourceError(Problem(request.spec.name, expected, "others", "audit again: the model was logged again"))
    opened = _open(folder, request)
    facts = {"mlflow": resolved.rest, **options, **opened.facts}
    return Opened(opened.network, opened.differentiable, facts)


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The files that the address serves; names and versions may serve others later, or the same."""
    yield "content", parse_uri(resolve_mlflow(uri.text)).query["content"]


def _check_form(uri: SourceUri) -> None:
    if not uri.rest.startswith(("models:/", "runs:/", "mlflow-artifacts:/")):
        expected = "mlflow:models:/NAME@ALIAS, mlflow:models:/NAME/VERSION or mlflow:runs:/RUN/PATH"
        raise SourceError(Problem(uri.text, expected, repr(uri.rest)))


def _version(name: str, alias: str | None, number: str | None, where: str) -> Any:
    try:
        from mlflow import MlflowClient

        client = MlflowClient(_store())
        if number == "latest":
            return max(client.search_model_versions(f"name = '{name}'"), key=lambda version: int(version.version))
        return client.get_model_version_by_alias(name, alias) if alias else client.get_model_version(name, number or "")
    except Exception as error:
        expected = f"a registered model {name!r} with {'alias ' + repr(alias) if alias else 'version ' + str(number)}"
        raise SourceError(Problem(where, expected, _message(error), "check the name and the tracking URI")) from error


def _identity(version: Any) -> str:
    """What the version points at: a logged model's id, else the run and path it was made from."""
    match = re.search(r"m-[0-9a-f]{32}", f"{getattr(version, 'model_id', '') or ''} {version.source}")
    return match.group(0) if match else f"{version.run_id or 'no-run'}-{version.creation_timestamp}"


def _open(folder: Path, request: Request) -> Opened:
    flavors, name = _flavors(folder, request.spec.name), request.spec.name
    if "pytorch" in flavors:
        return _open_pytorch(_part(folder, flavors["pytorch"].get("model_data", "data"), name), request)
    if "onnx" in flavors:
        from services.loading.models.schemes.onnx import open_onnx

        return open_onnx(_part(folder, flavors["onnx"].get("data", "model.onnx"), name), request)
    actual = f"flavours {', '.join(sorted(flavors))}"
    raise SourceError(Problem(request.spec.name, "a model logged with mlflow.pytorch or mlflow.onnx", actual))


def _part(folder: Path, name: object, where: str) -> Path:
    """What a description calls a part of its model, which lies in the model's folder, also where links lead."""
    path = folder / str(name)
    if not isinstance(name, str) or not path.resolve().is_relative_to(folder.resolve()):
        remedy = "log the model again with mlflow.pytorch or mlflow.onnx"
        raise SourceError(Problem(f"{where} (MLmodel)", "parts in the model's own folder", repr(name)[:200], remedy))
    return path


def _flavors(folder: Path, where: str) -> dict[str, dict[str, Any]]:
    description = folder / "MLmodel"
    if not description.is_file():
        raise SourceError(Problem(where, "a logged model with a file MLmodel", f"{folder.name} without one"))
    try:
        with existing(description, where).open("rb") as file:
            data = plainyaml.parsed(file.read(limits.NOTE).decode())
        flavors = TypeAdapter(dict[str, dict[str, Any]]).validate_python(data["flavors"])
    except (ValueError, KeyError, TypeError) as error:
        expected, remedy = "a description MLmodel with its flavours, as MLflow writes it", "log the model again"
        raise SourceError(Problem(f"{where} (MLmodel)", expected, one_line(error), remedy)) from error
    return flavors


def _open_pytorch(data: Path, request: Request) -> Opened:
    """A `.pt2` graph, or a pickled module where unpickling is allowed."""
    from services.loading.models.schemes.export import open_exported

    graph, pickled = data / "model.pt2", data / "model.pth"
    if graph.is_file():
        return open_exported(graph, request)
    if not request.spec.allow_unpickling:
        actual = "a pickled module (serialization_format='pickle'), which runs code when loaded"
        remedy = "log it with serialization_format='pt2', or set allow_unpickling: true if you trust its author"
        raise SourceError(Problem(request.spec.name, "a model logged as a graph", actual, remedy))
    return Opened(_unpickle(pickled, request), facts={"unpickled": True, "weights_sha256": sha256(pickled)})


def _unpickle(path: Path, request: Request) -> Any:
    import mlflow.pytorch

    try:
        return mlflow.pytorch.load_model(str(path.parent.parent), map_location=request.device)
    except Exception as error:
        raise SourceError(Problem(request.spec.name, f"a loadable module at {path.name}", _message(error))) from error


SCHEME = ModelScheme(load, ingredients)
