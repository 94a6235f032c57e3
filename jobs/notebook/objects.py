"""Audits of objects in memory, of fleets given as data, and of fleet files, in the calling process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from jobs.fleetfile.yamlfile import Locator
from jobs.notebook.arrays import samples_file
from jobs.notebook.found import Found
from jobs.terminal.progress import Quiet, Reporter
from services.devices import threads_given_back
from services.errors import ConfigError, Problem

STORAGE = "classwise-runs"


def audit(
    model: Any,
    images: Any,
    labels: Any,
    *,
    classes: Sequence[str] | None = None,
    groups: Mapping[str, Any] | None = None,
    measures: Sequence[Any] = ("clean",),
    gates: Sequence[Mapping[str, Any]] = (),
    input: Mapping[str, Any] | None = None,
    outputs: str = "logits",
    name: str = "model",
    progress: bool = True,
    **fleet: Any,
) -> Found:
    """Audit a network in memory on arrays in memory.

    The network sees float32 images (n, C, H, W) in [0, 1], mapped as `input` says; a copy of it is audited in
    evaluation mode. Images and results lie below `storage`; the same call again measures nothing that is there.

    Args:
        model: a `torch.nn.Module` that returns logits (n, K), or a mapping of names to several.
        images: (N, C, H, W) or (N, H, W, C): uint8, or floating numbers in [0, 1].
        labels: (N,) integers in [0, K).
        classes: K names in label order.
        groups: columns of N values to group by besides the class.
        measures, gates: as in a fleet file.
        input: what the network expects: `mean`, `std`, `range` ..., as in a fleet file.
        outputs: "logits", "probabilities", "percentages" or "sigmoid".
        name: what the model is called, where there is one.
        progress: show a bar.
        fleet: further keys of a fleet file: `storage`, `seed`, `decide`, `tracking`, `resources` ...

    Raises:
        ClasswiseError: what an audit refuses, before any long work.
        Interrupted: the cell was interrupted; the same call goes on from what was done.
    """
    models = dict(model) if isinstance(model, Mapping) else {name: model}
    storage = str(fleet.setdefault("storage", STORAGE))
    uri = samples_file(images, labels, classes=classes, groups=groups, storage=storage)
    described = {"outputs": outputs} | ({"input": dict(input)} if input else {})
    data = {
        "fleet": name,
        "tracking": {"enabled": False},
        **fleet,
        "samples": {"uri": uri},
        "models": [{"name": each, **described} for each in models],
        "measures": list(measures),
        "gates": [dict(gate) for gate in gates],
        **({"groups": list(groups)} if groups else {}),
    }
    return run(data, models=models, progress=progress)


def run(
    fleet: Mapping[str, Any] | str | Path, *, models: Mapping[str, Any] | None = None, progress: bool = True
) -> Found:
    """Audit a fleet: the path of a fleet file, its YAML as text of several lines, or the same as a mapping.

    Args:
        models: networks in memory by name; each stands for the fleet's model of that name, whose `uri` is left out.

    Raises:
        ClasswiseError: what an audit refuses, before any long work.
        Interrupted: a stop was asked for; the same call goes on from what was done.
    """
    from jobs.audit.publish import audit_and_publish
    from jobs.fleetfile.reading import validate_fleet

    data, where = _data(fleet)
    with ExitStack() as stack:
        if models:
            data = stack.enter_context(_with_objects(data, models))
        opened = validate_fleet(data, where=where)
        stack.enter_context(threads_given_back())
        reporter = stack.enter_context(_reporter()) if progress else Quiet()
        published = audit_and_publish(opened, reporter)
    return Found(published.result, published.folder)


def _data(fleet: Mapping[str, Any] | str | Path) -> tuple[Any, Locator]:
    """A fleet as plain data, and where its parts stand."""
    from jobs.fleetfile.reading import KIND
    from jobs.fleetfile.yamlfile import parse_yaml, read_yaml

    if isinstance(fleet, Mapping):
        return dict(fleet), Locator("fleet", KIND)
    if isinstance(fleet, str) and "\n" in fleet:
        return parse_yaml(fleet, Locator("fleet", KIND))
    return read_yaml(fleet, KIND)


@contextmanager
def _with_objects(data: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The fleet with the URIs of networks that are held in memory, audited in this process."""
    from services.loading.models.schemes.memory import held

    resources = dict(data.get("resources") or {})
    if resources.setdefault("runner", "local") != "local":
        remedy = "leave runner out, or save the networks and name their files"
        raise ConfigError(Problem("resources.runner", "local, for networks in memory", resources["runner"], remedy))
    listed = data.get("models")
    entries = [dict(item) for item in listed] if isinstance(listed, Sequence) else [{"name": name} for name in models]
    if unknown := sorted(set(models) - {str(entry.get("name")) for entry in entries}):
        raise ConfigError(Problem("models", "names of models in the fleet", ", ".join(unknown)))
    with ExitStack() as stack:
        for entry in entries:
            if entry.get("name") in models:
                entry["uri"] = stack.enter_context(held(models[entry["name"]], str(entry["name"])))
        yield {**data, "models": entries, "resources": resources}


@contextmanager
def _reporter() -> Iterator[Reporter]:
    """A line that is written over in a notebook; elsewhere the terminal's bar, on standard error."""
    from jobs.notebook.cell import Cell, in_notebook

    if in_notebook():
        with Cell() as cell:
            yield cell
        return
    from rich.console import Console

    from jobs.terminal.progress import Terminal

    with Terminal(Console(stderr=True)) as terminal:
        yield terminal
