"""`http:URL`: a black box, a model behind a scoring server that takes batches of images and answers with scores.

`http:https://HOST/v2/models/NAME/infer` speaks the Open Inference Protocol, `http:http://HOST/invocations` MLflow's.
What the server runs cannot be seen, so its identity is its address, the version that is declared, and how it ranks the
classes of a few fixed images. Results are kept for later audits only where a version is declared.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from services.errors import PreflightError, Problem, SourceError
from services.limits import number
from services.loading.models.outputs import REPEAT_TOLERANCE
from services.loading.models.scoring_client import Manners, ScoringClient
from services.loading.models.scoring_protocols import (
    VERSIONED,
    Images,
    KServe,
    MLflowScoring,
    Scores,
    ScoringProtocol,
    input_of,
    protocol_of,
)
from services.loading.models.source import ModelScheme, Opened, Request
from services.loading.uris import SourceUri, one_of, parse_uri, whole
from services.records import ModelSpec

if TYPE_CHECKING:
    import torch

FIXED_IMAGES = 8
"""Images by which a server is known again."""
IDENTITY_QUERIES = 2 * FIXED_IMAGES
"""Images that looking at a server costs: each is sent twice."""
VARIES = "varies"
"""The answers of a server that does not repeat itself."""


def options_of(uri: SourceUri) -> dict[str, Any]:
    """The options of an `http:` source, checked.

    Raises:
        SourceError: an option is unknown or wrong; every problem together.
    """
    return uri.options(
        protocol=one_of("kserve", "mlflow"),
        input=str,
        version=_word,
        audit=str,
        token_env=_variable,
        batch=_positive,
        concurrency=_few,
        timeout=_amount,
        retries=whole,
        rate=_amount,
        budget=_positive,
    )


def budget_of(uri: str) -> int | None:
    """How many images an audit may send to this model; None for other schemes, and where no budget is set."""
    parsed = parse_uri(uri)
    budget: int | None = options_of(parsed).get("budget") if parsed.scheme == "http" else None
    return budget


def token_variable(uri: str) -> str | None:
    """The variable that holds the token of an `http:` model."""
    parsed = parse_uri(uri)
    return parsed.query.get("token_env") if parsed.scheme == "http" else None


def version_of(uri: SourceUri) -> str | None:
    """The version that a source declares: an option, or in the address of the Open Inference Protocol."""
    named = VERSIONED.search(uri.rest)
    return uri.query.get("version") or (named[1] if named else None)


def for_one_audit(text: str, audit: str) -> str:
    """The source with the mark of one audit where no version is declared: nothing of it is found again later."""
    uri = parse_uri(text)
    if version_of(uri) is not None or "audit" in uri.query:
        return text
    return f"{text}{'&' if uri.query else '?'}audit={audit}"


@dataclass
class BlackBox:
    """A callable of a prepared batch (n, C, H, W) on any device to scores: requests of `batch` images side by side.

    Attributes:
        output: which of several outputs is wanted; None where there is one.
        shape: (C, H, W) that the server says it takes, -1 for any length; None where it does not say.
    """

    url: str
    client: ScoringClient
    protocol: ScoringProtocol
    batch: int
    concurrency: int
    output: str | int | None = None
    shape: tuple[int, ...] | None = None
    _threads: ThreadPoolExecutor | None = field(default=None, repr=False)

    def __call__(self, images: torch.Tensor) -> torch.Tensor | dict[str, torch.Tensor]:
        import torch

        scores = self.ask(images.detach().cpu().numpy())
        tensors = {name: torch.from_numpy(array).to(images.device) for name, array in scores.items()}
        return next(iter(tensors.values())) if len(tensors) == 1 and self.output is None else tensors

    def ask(self, images: Images) -> dict[str, Scores]:
        """Scores (n, K) of prepared images, by the name of the output."""
        parts = [images[at : at + self.batch] for at in range(0, len(images), self.batch)]
        if len(parts) == 1:
            return self._one(parts[0])
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.concurrency, thread_name_prefix="classwise-scoring")
        answers = list(self._threads.map(self._one, parts))
        return {name: np.concatenate([part[name] for part in answers]) for name in answers[0]}

    def _one(self, images: Images) -> dict[str, Scores]:
        body = self.client.ask(self.url, self.protocol.request(images), images=len(images))
        return self.protocol.scores(body, len(images))


def connect(uri: SourceUri, spec: ModelSpec) -> BlackBox:
    """The server of a source; a KServe server is asked for the name of its input unless `input=` says it.

    Raises:
        SourceError: the address or an option is wrong, the token's variable is not set, or the server does not answer.
    """
    options, where, url = options_of(uri), spec.name, _address(uri)
    protocol = options.get("protocol") or protocol_of(url)
    if protocol is None:
        expected = "an address that ends in /v2/models/NAME/infer (KServe v2) or /invocations (MLflow)"
        raise SourceError(
            Problem(uri.text, expected, url, "or say which it is with protocol=kserve or protocol=mlflow")
        )
    manners = Manners(**{name: options[name] for name in ("timeout", "retries", "rate", "budget") if name in options})
    client = ScoringClient(where, manners, _token(options.get("token_env"), where))
    tensor, shape = options.get("input", ""), None
    if protocol == "kserve" and not tensor:
        tensor, sides = input_of(client.ask(url.removesuffix("/infer")), where)
        shape = sides[1:]
    speaks = KServe(where, tensor) if protocol == "kserve" else MLflowScoring(where)
    batch, concurrency = options.get("batch", 32), options.get("concurrency", 4)
    return BlackBox(url, client, speaks, batch, concurrency, spec.output, shape)


def load(request: Request) -> Opened:
    """A callable that asks the server; it gives no gradients."""
    box = connect(request.uri, request.spec)
    facts = {"endpoint": box.url, "declared_version": version_of(request.uri) or "none"}
    return Opened(box, differentiable=False, facts=facts)


def ingredients(uri: SourceUri) -> Iterator[tuple[str, str]]:
    """The address and what is declared of it."""
    options_of(uri)
    yield "endpoint", _address(uri)
    yield "protocol", uri.query.get("protocol", "") + uri.query.get("input", "")
    version = version_of(uri)
    yield ("version", version) if version is not None else ("audit", uri.query.get("audit", ""))


def answers(spec: ModelSpec) -> str:
    """Digest of the two classes that the server finds most likely on each of `FIXED_IMAGES` made images, in order.

    Scores themselves may differ in their last bits between the servers behind one address. `VARIES` for a declared
    randomised model, and for a server whose answers to the same batch differ: preflight reports that.

    Raises:
        SourceError: the server does not answer, or the shape of its images is not known.
        PreflightError: it answers with labels only.
    """
    if spec.stochastic:
        return VARIES
    box = connect(parse_uri(spec.uri), spec)
    images = fixed_images(_shape(box, spec), spec)
    first, second = _picked(box.ask(images), spec), _picked(box.ask(images), spec)
    if np.abs(first - second).max() > REPEAT_TOLERANCE * max(1.0, float(np.abs(first).max())):
        return VARIES
    ranked = np.argsort(-first, axis=1, kind="stable")[:, :2].astype("<i8")
    return hashlib.sha256(ranked.tobytes()).hexdigest()


def fixed_images(shape: tuple[int, int, int], spec: ModelSpec) -> Images:
    """Images (8, C, H, W) of coloured patches, the same always, in the range and normalisation of the contract."""
    channels, height, width = shape
    patches = np.random.default_rng(8).random((FIXED_IMAGES, 3, 4, 4))
    rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    images = patches[:, :channels][:, :, rows][:, :, :, columns]
    contract = spec.input
    images = images * (contract.high - contract.low) + contract.low
    if contract.mean is not None and contract.std is not None:
        images = (images - np.reshape(contract.mean, (1, -1, 1, 1))) / np.reshape(contract.std, (1, -1, 1, 1))
    return np.ascontiguousarray(images, dtype=np.float32)


def _shape(box: BlackBox, spec: ModelSpec) -> tuple[int, int, int]:
    """(C, H, W) of the images that the server takes, as the contract or the server says."""
    contract, stated = spec.input, box.shape if box.shape is not None and len(box.shape) == 3 else (-1, -1, -1)
    height, width = contract.size or stated[1:]
    channels = contract.channels or stated[0]
    if channels not in (1, 3) or min(height, width) < 1:
        expected = "input.channels and input.size of an http: model whose server does not say what it takes"
        actual = f"channels {contract.channels}, size {contract.size}, and {box.shape or 'nothing'} from the server"
        raise SourceError(Problem(f"{spec.name} (input)", expected, actual, "add input: {channels: 3, size: [32, 32]}"))
    return channels, height, width


def _picked(scores: dict[str, Scores], spec: ModelSpec) -> Scores:
    if spec.output is None and len(scores) == 1:
        return next(iter(scores.values()))
    if spec.output in scores:
        return scores[str(spec.output)]
    remedy = "set `output` to the one that has the scores"
    expected = "one output" if spec.output is None else f"an output {spec.output!r}"
    raise PreflightError(Problem(f"{spec.name} (output)", expected, f"outputs {', '.join(scores)}", remedy))


def _address(uri: SourceUri) -> str:
    try:
        parts = urlsplit(uri.rest)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"[\s\\#]", uri.rest)
        port = parts.port
    except ValueError:
        sound, port = False, None
    if not sound or port == 0:
        expected = "http:https://HOST/v2/models/NAME/infer or http:https://HOST/invocations"
        raise SourceError(Problem(uri.text, expected, repr(uri.rest)))
    if "@" in parts.netloc:
        remedy = "name a variable that holds a token with token_env="
        raise SourceError(Problem(uri.text, "an address without credentials", "a user or a password in it", remedy))
    return uri.rest


def _token(variable: str | None, where: str) -> str:
    if variable is None:
        return ""
    token = os.environ.get(variable, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        actual = "an empty or no variable" if not token else "one with control or non-ASCII characters"
        remedy = "export it where the audit starts"
        raise SourceError(Problem(f"{where} (token_env)", f"a token in the variable {variable}", actual, remedy))
    return token


def _word(text: str) -> str:
    if not re.fullmatch(r"[\w.+:@/-]{1,200}", text):
        raise ValueError("a version of letters, digits and .+:@/-")
    return text


def _variable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", text):
        raise ValueError("the name of an environment variable (never the token itself)")
    return text


def _positive(text: str) -> int:
    if (value := whole(text)) < 1:
        raise ValueError("a whole number of at least 1")
    return value


def _few(text: str) -> int:
    if not 1 <= (value := whole(text)) <= 64:
        raise ValueError("a whole number from 1 to 64")
    return value


def _amount(text: str) -> float:
    try:
        value = number(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise ValueError("a number above 0, at most 86400")
    return value


SCHEME = ModelScheme(load, ingredients, gradients=False, answers=answers)
