"""`onnx:FILE`: a graph run by ONNX Runtime on CPU or CUDA. A black box to gradients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.errors import Problem, SourceError, examples, one_line
from services.loading.confined import is_confined
from services.loading.fingerprint import existing, file_kind, sha256
from services.loading.models.onnx_files import named_in
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.uris import SourceUri

if TYPE_CHECKING:
    from torch import Tensor

BESIDE = "session.model_external_initializers_file_folder_path"
"""Where ONNX Runtime looks for weights of a graph in memory that it was not given: else where the process runs."""
KIND = "session.load_model_format"
"""What ONNX Runtime takes the bytes for: else its own format as well, in which nothing is judged."""
TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}


def load(request: Request) -> Opened:
    """Open the graph; a fixed batch size is served by padding."""
    request.uri.options()
    return open_onnx(request.uri.path(), request)


def open_onnx(path: Path, request: Request) -> Opened:
    """Open an `.onnx` file.

    Raises:
        SourceError: ONNX Runtime is not installed, the file is no graph, has operators off the list without
            permission, or does not take one floating image batch.
    """
    from services.loading.models.fixed_batch import FixedBatch

    graph = existing(path, request.spec.name)
    session = _session(path, graph, request)
    entry = _image_input(session, request.spec.name)
    network: Any = OnnxNetwork(session, entry.name, TYPES[entry.type], request.device, request.spec.output)
    facts: dict[str, Any] = {"weights_sha256": sha256(graph), "provider": session.get_providers()[0]}
    if train_mode := _train_mode(graph):
        facts["train_mode"] = train_mode
    if isinstance(entry.shape[0], int):
        facts["fixed_batch"] = entry.shape[0]
        network = FixedBatch(network, entry.shape[0])
    return Opened(network, differentiable=False, facts=facts)


class OnnxNetwork:
    """A session as a function from a tensor to the tensor, or tuple or mapping of tensors, that it returns."""

    def __init__(self, session: Any, name: str, dtype: str, device: str, output: str | int | None) -> None:
        self.session, self.name, self.dtype, self.device, self.output = session, name, dtype, device, output
        self.outputs = [output.name for output in session.get_outputs()]

    def __call__(self, images: Tensor) -> Any:
        import torch

        batch = images.detach().cpu().numpy().astype(self.dtype)
        results = [torch.from_numpy(out).to(self.device) for out in self.session.run(None, {self.name: batch})]
        if isinstance(self.output, str):
            return dict(zip(self.outputs, results, strict=True))
        return results[0] if len(results) == 1 and self.output is None else tuple(results)


def _session(path: Path, graph: Path, request: Request) -> Any:
    name = request.spec.name
    file_kind(graph, name)
    try:
        import onnxruntime
    except ImportError as error:
        remedy = "install the extra classwise[onnx]"
        raise SourceError(Problem(name, "the package onnxruntime", "it is not installed", remedy)) from error
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    wanted = ["CUDAExecutionProvider"] if request.device.startswith("cuda") else []
    providers = [p for p in [*wanted, "CPUExecutionProvider"] if p in onnxruntime.get_available_providers()]
    options.add_session_config_entry(KIND, "ONNX")
    try:
        source: str | bytes = graph.read_bytes() if is_confined() else str(path)
        named = named_in(source if isinstance(source, bytes) else graph)
        if named.operators and not request.spec.allow_unpickling:
            raise SourceError(_strange(name, named.operators))
        if is_confined():  # the library is given what was judged, and opens nothing by its name
            beside = {each: existing(path.parent / each, name).read_bytes() for each in named.files}
            lengths = [len(data) for data in beside.values()]
            options.add_external_initializers_from_files_in_memory([*beside], [*beside.values()], lengths)
            options.add_session_config_entry(BESIDE, os.devnull)
        return onnxruntime.InferenceSession(source, options, providers=providers)
    except SourceError:
        raise
    except Exception as error:
        actual = one_line(error)
        raise SourceError(Problem(name, f"an ONNX graph at {path}", actual)) from error


def _strange(name: str, operators: tuple[str, ...]) -> Problem:
    remedy = "export it again from ONNX's own operators, or set allow_unpickling: true if you trust its author"
    return Problem(name, "an ONNX graph of granted operators (docs/security.md)", examples(operators), remedy)


def _image_input(session: Any, name: str) -> Any:
    inputs = session.get_inputs()
    actual = ", ".join(f"{entry.name} {entry.type} {entry.shape}" for entry in inputs)
    if len(inputs) != 1 or inputs[0].type not in TYPES or len(inputs[0].shape) != 4:
        raise SourceError(Problem(f"{name} (input)", "one floating input (n, C, H, W)", actual or "none"))
    return inputs[0]


def _train_mode(path: Path) -> list[str]:
    """Batch norms exported in training mode; looked for where the onnx package is there to read the graph."""
    try:
        import onnx
    except ImportError:
        return []
    nodes = onnx.load(str(path), load_external_data=False).graph.node
    norms = [node for node in nodes if node.op_type == "BatchNormalization"]
    baked = any(attribute.name == "training_mode" and attribute.i for node in norms for attribute in node.attribute)
    return ["BatchNormalization"] if baked else []


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The bytes of the graph and of the files beside it that it reads weights from."""
    path = uri.path()
    graph = existing(path, uri.text)
    file_kind(graph, uri.text)
    yield "file", sha256(graph)
    try:
        names = named_in(graph).files
    except ValueError:  # it does not open
        names = ()
    for name in names:
        if (beside := path.parent / name).is_file():
            yield name.removeprefix(path.name), sha256(existing(beside, uri.text))


SCHEME = ModelScheme(load, ingredients, gradients=False)
