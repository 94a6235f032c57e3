"""How scoring servers are spoken to: a batch of images to the JSON of a request, the JSON of an answer to scores.

* `kserve`: the Open Inference Protocol (KServe v2), which Triton, TorchServe, KServe and MLServer speak:
  `POST .../v2/models/NAME[/versions/VERSION]/infer` with FP32 tensors as flat lists.
* `mlflow`: `POST .../invocations` of MLflow's scoring server, with `{"inputs": nested lists}`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from services.errors import PreflightError, Problem, SourceError, one_line
from services.storage import plainjson

Images = NDArray[np.float32]
Scores = NDArray[np.float32]
Name = Literal["kserve", "mlflow"]

LABELS_ONLY = "return the logits or the probabilities of each class: labels alone give no margins and no intervals"
VERSIONED = re.compile(r"/versions/([^/]+)/infer$")


class ScoringProtocol(Protocol):
    """A protocol."""

    def request(self, images: Images) -> bytes:
        """The body that asks for the scores of images (n, ...)."""
        ...

    def scores(self, body: bytes, count: int) -> dict[str, Scores]:
        """Scores (n, K) by the name of the output, "" where it has none, from the body of an answer.

        Raises:
            SourceError: it is not what the protocol says.
            PreflightError: it has labels alone, or is of another number of images.
        """
        ...


def protocol_of(url: str) -> Name | None:
    """The protocol that an address is of, by its end."""
    if url.endswith("/infer"):
        return "kserve"
    return "mlflow" if url.endswith("/invocations") else None


@dataclass(frozen=True)
class KServe:
    """The Open Inference Protocol; `tensor` is the name of the model's input."""

    where: str
    tensor: str

    def request(self, images: Images) -> bytes:
        data = {"name": self.tensor, "shape": list(images.shape), "datatype": "FP32", "data": images.ravel().tolist()}
        return json.dumps({"inputs": [data]}).encode()

    def scores(self, body: bytes, count: int) -> dict[str, Scores]:
        outputs = _parsed(body, self.where, "outputs")
        if not isinstance(outputs, list) or not outputs:
            raise SourceError(_malformed(self.where, "a list `outputs` of tensors", outputs))
        arrays = {}
        for output in outputs:
            try:
                name, shape = str(output["name"]), [int(side) for side in output["shape"]]
                arrays[name] = _array(output["data"], count, self.where, shape)
            except (TypeError, KeyError, ValueError) as error:
                expected = "outputs with name, shape and data"
                raise SourceError(_malformed(self.where, expected, one_line(error))) from error
        scores = {name: array for name, array in arrays.items() if array is not None}
        if not scores:
            raise PreflightError(_labels_only(self.where))
        return scores


@dataclass(frozen=True)
class MLflowScoring:
    """MLflow's scoring server."""

    where: str

    def request(self, images: Images) -> bytes:
        return json.dumps({"inputs": images.tolist()}).encode()

    def scores(self, body: bytes, count: int) -> dict[str, Scores]:
        predictions = _parsed(body, self.where, "predictions")
        if isinstance(predictions, list) and predictions and isinstance(predictions[0], dict):
            predictions = _rows_of_names(predictions, self.where)
        named = predictions if isinstance(predictions, dict) else {"": predictions}
        try:
            arrays = {str(name): _array(value, count, self.where) for name, value in named.items()}
        except (TypeError, ValueError) as error:
            raise SourceError(_malformed(self.where, "predictions (n, K)", one_line(error))) from error
        if scores := {name: array for name, array in arrays.items() if array is not None}:
            return scores
        raise PreflightError(_labels_only(self.where))


def input_of(metadata: bytes, where: str) -> tuple[str, tuple[int, ...]]:
    """Name and shape of the one input of a KServe model, from its metadata; -1 stands for any length.

    Raises:
        SourceError: it has none or several, or one that is no FP32.
    """
    inputs = _parsed(metadata, where, "inputs")
    try:
        known = [(str(each["name"]), str(each["datatype"]), tuple(int(n) for n in each["shape"])) for each in inputs]
    except (TypeError, KeyError, ValueError) as error:
        raise SourceError(_malformed(where, "inputs with name, datatype and shape", one_line(error))) from error
    if len(known) != 1 or known[0][1] != "FP32":
        actual = ", ".join(f"{name} {datatype}" for name, datatype, _ in known) or "none"
        raise SourceError(Problem(f"{where} (inputs)", "one FP32 input: a batch of images", actual, "wrap the model"))
    return known[0][0], known[0][2]


def _parsed(body: bytes, where: str, key: str) -> Any:
    try:
        return plainjson.parsed(body)[key]
    except (ValueError, TypeError, KeyError) as error:
        found = one_line(body[:100].decode("utf-8", "replace")) or "nothing"
        raise SourceError(_malformed(where, f"JSON with `{key}`", found)) from error


def _array(data: Any, count: int, where: str, shape: list[int] | None = None) -> Scores | None:
    """(n, K) float32; None for what are labels: text, whole numbers, or one number an image."""
    array = np.asarray(data)
    if shape is not None:
        array = array.reshape(shape)
    if not len(array) or array.ndim == 0 or len(array) != count:
        actual = f"shape {array.shape} for {count} images"
        raise PreflightError(Problem(f"{where} (output)", "scores (n, K)", actual, "serve one row an image"))
    labels = array.dtype.kind not in "fiu" or array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    return None if labels else array.astype(np.float32)


def _rows_of_names(rows: list[Any], where: str) -> list[list[Any]]:
    """Records, one an image, as a data frame is served: columns of the frame as classes, in their order."""
    try:
        return [[row[name] for name in rows[0]] for row in rows]
    except (TypeError, KeyError) as error:
        raise SourceError(_malformed(where, "rows with the same columns", one_line(error))) from error


def _labels_only(where: str) -> Problem:
    return Problem(f"{where} (output)", "a score of every class (n, K)", "labels only", LABELS_ONLY)


def _malformed(where: str, expected: str, found: object) -> Problem:
    return Problem(f"{where} (answer)", expected, one_line(repr(found) if not isinstance(found, str) else found))
