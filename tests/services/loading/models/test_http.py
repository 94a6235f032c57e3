"""Black boxes behind HTTP, against real servers: what is sent, what is taken for scores, how often is asked again."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from services.errors import ClasswiseError, PreflightError, ResourceError, SourceError
from services.loading.models.schemes.http import for_one_audit
from services.loading.models.scoring_client import LONGEST_WAIT, Answer, Manners, ScoringClient, pause_after, seconds_of
from services.loading.models.scoring_protocols import KServe, MLflowScoring
from services.loading.models.source import fingerprint, load_model
from services.records import InputContract, ModelSpec
from tests.scoring import Served, kserve, mlflow_server, of_network

SHAPE = (3, 6, 5)
CONTRACT = InputContract(mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.3))
IMAGES = torch.rand(11, *SHAPE, generator=torch.Generator().manual_seed(1))


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(90, 4))


def spec(uri: str, **fields: object) -> ModelSpec:
    return ModelSpec("vendor", uri, **fields)  # type: ignore[arg-type]


def scores(served: Served, options: str = "", **fields: object) -> torch.Tensor:
    loaded = load_model(spec(f"{served.uri}{options}", **fields))
    assert loaded.network is not None and not loaded.differentiable
    return loaded.network(IMAGES)


def test_the_scores_are_those_of_the_network_behind_the_server() -> None:
    with kserve(of_network(network()), SHAPE) as served:
        found = scores(served, "?batch=4&concurrency=3", input=CONTRACT)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (CONTRACT.mean, CONTRACT.std))
    torch.testing.assert_close(found, network()((IMAGES - mean) / std).detach())


def test_requests_go_side_by_side_and_no_more_than_allowed() -> None:
    with kserve(of_network(network()), SHAPE, seconds=0.05) as served:
        scores(served, "?batch=1&concurrency=3")
        assert served.most_busy == 3


def test_a_named_output_is_picked_and_an_input_named_by_hand() -> None:
    with kserve(of_network(network()), SHAPE, metadata=False) as served:
        contract = InputContract(size=(6, 5), channels=3)
        found = scores(served, "?input=pixels", output="scores", input=contract)
        with pytest.raises(PreflightError, match=r"expected an output 'logits', found outputs scores"):
            scores(served, "?input=pixels", output="logits", input=contract)
    torch.testing.assert_close(found, network()(IMAGES).detach())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_mlflows_scoring_server(tmp_path: Path) -> None:
    import mlflow
    from mlflow.models import infer_signature

    example = IMAGES[:1].numpy()
    signature = infer_signature(example, network()(IMAGES[:1]).detach().numpy())
    mlflow.pytorch.save_model(network(), str(tmp_path / "m"), signature=signature, serialization_format="pickle")
    with mlflow_server(str(tmp_path / "m")) as url:
        asked = spec(f"http:{url}?version=3", input=InputContract(size=(6, 5), channels=3))
        loaded = load_model(asked)
        assert loaded.network is not None
        torch.testing.assert_close(loaded.network(IMAGES), network()(IMAGES).detach())
        with pytest.raises(SourceError, match=r"add input: \{channels: 3, size: \[32, 32\]\}"):
            fingerprint(spec(f"http:{url}"))


# --- identity -----------------------------------------------------------------------------------------------------


def test_a_server_is_known_by_address_version_and_answers() -> None:
    with kserve(of_network(network()), SHAPE) as served:
        first = fingerprint(spec(f"{served.uri}?version=1"))
        assert fingerprint(spec(f"{served.uri}?version=1&rate=1000&timeout=5")) == first
        assert fingerprint(spec(f"{served.uri}?version=2")) != first
        served.score = lambda images: of_network(network())(images) + 1e-7
        assert fingerprint(spec(f"{served.uri}?version=1")) == first
        served.score = of_network(network(seed=1))
        assert fingerprint(spec(f"{served.uri}?version=1")) != first


def test_without_a_version_nothing_is_found_again() -> None:
    assert (
        for_one_audit("http:http://h/v2/models/m/versions/3/infer", "a") == "http:http://h/v2/models/m/versions/3/infer"
    )
    assert for_one_audit("http:http://h/invocations?version=2", "a") == "http:http://h/invocations?version=2"
    marked = for_one_audit("http:http://h/invocations?rate=2", "a")
    assert marked == "http:http://h/invocations?rate=2&audit=a" == for_one_audit(marked, "b")
    with kserve(of_network(network()), SHAPE) as served:
        one, other = (fingerprint(spec(for_one_audit(served.uri, audit))) for audit in "ab")
    assert one != other


def test_a_server_that_does_not_repeat_itself_has_one_fingerprint_and_is_left_to_preflight() -> None:
    draws = np.random.default_rng(0)
    with kserve(lambda images: draws.normal(size=(len(images), 4)).astype(np.float32), SHAPE) as served:
        asked = spec(f"{served.uri}?version=1")
        assert fingerprint(asked) == fingerprint(asked)


# --- what is no server of scores ----------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [np.zeros(8, dtype=np.int64), np.zeros((8, 1), dtype=np.int64)])
def test_labels_only_are_refused_by_name(labels: np.ndarray) -> None:
    with (
        kserve(lambda images: labels[: len(images)], SHAPE) as served,
        pytest.raises(PreflightError, match=r"a score of every class \(n, K\), found labels only; return the logits"),
    ):
        fingerprint(spec(served.uri))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", r"expected JSON with `predictions`, found <html>"),
        (b'{"error": "no"}', r"JSON with `predictions`"),
        (b'{"predictions": ["cat", "dog"]}', r"labels only"),
        (b'{"predictions": [[1.0, 2.0]]}', r"shape \(1, 2\) for 2 images"),
        (b'{"predictions": [[1.0, 2.0], [1.0]]}', r"expected predictions \(n, K\)"),
    ],
)
def test_other_answers_are_refused(body: bytes, words: str) -> None:
    with pytest.raises(ClasswiseError, match=words):
        MLflowScoring("m").scores(body, 2)


def test_a_frame_of_named_columns_is_scores_in_their_order() -> None:
    body = json.dumps({"predictions": [{"cat": 0.25, "dog": 0.75}, {"dog": 0.5, "cat": 0.5}]}).encode()
    np.testing.assert_allclose(MLflowScoring("m").scores(body, 2)[""], [[0.25, 0.75], [0.5, 0.5]])


def test_a_malformed_tensor_is_refused() -> None:
    for output in ({}, {"name": "y", "shape": [2, 3], "data": [1.0]}, {"name": "y", "shape": "x", "data": []}):
        with pytest.raises(SourceError, match=r"m \(answer\): expected outputs with name, shape and data"):
            KServe("m", "x").scores(json.dumps({"outputs": [output]}).encode(), 2)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("http:ftp://h/v2/models/m/infer", r"expected http:https://HOST/v2/models/NAME/infer"),
        ("http://h/v2/models/m/infer", r"expected http:https://HOST/v2/models/NAME/infer"),
        ("http:http://user:pass1234@h/invocations", r"an address without credentials.*token_env="),
        ("http:http://h:99999/invocations", r"expected http:https://HOST"),
        ("http:http://h/predict", r"or say which it is with protocol=kserve"),
        ("http:http://h/invocations?token=abc123456", r"expected one of the options .*token_env"),
        ("http:http://h/invocations?token_env=a-b", r"the name of an environment variable \(never the token itself\)"),
        ("http:http://h/invocations?budget=0&rate=0", r"(?s)at least 1.*a number above 0"),
        ("http:http://h/invocations?token_env=CLASSWISE_NO_SUCH", r"a token in the variable CLASSWISE_NO_SUCH"),
    ],
)
def test_a_wrong_source_is_one_clear_error(uri: str, words: str) -> None:
    with pytest.raises(SourceError, match=words) as caught:
        fingerprint(spec(uri, input=InputContract(size=(6, 5), channels=3)))
    assert "pass1234" not in str(caught.value)


# --- manners ------------------------------------------------------------------------------------------------------


def test_the_token_is_sent_and_stands_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_TOKEN", "s3cret-enough")
    with kserve(of_network(network()), SHAPE, token="s3cret-enough") as served:
        loaded = load_model(spec(f"{served.uri}?token_env=VENDOR_TOKEN"))
        assert "s3cret-enough" not in repr(loaded) + repr(loaded.network.network)  # type: ignore[union-attr]
        with pytest.raises(SourceError, match=r"HTTP 401: .*who are you.*; name the variable that holds its token"):
            fingerprint(spec(served.uri))


def test_a_busy_server_is_asked_again_when_it_says_so() -> None:
    with kserve(of_network(network()), SHAPE) as served:
        slept: list[float] = []
        client = ScoringClient("m", Manners(), sleep=slept.append)
        served.faults = [(503, {"retry-after": "7"}), (429, {}), (502, {})]
        body = KServe("m", "pixels").request(IMAGES[:2].numpy())
        client.ask(served.uri.removeprefix("http:"), body, images=2)
        assert slept[0] == 7.0 and 0.5 <= slept[1] <= 1.0 and 1.0 <= slept[2] <= 2.0
        assert client.sent == 8
        assert served.requests == 4
        served.faults = [(503, {})] * 9
        with pytest.raises(SourceError, match=r"found HTTP 503 after 6 tries: .*overloaded"):
            client.ask(served.uri.removeprefix("http:"), body, images=2)
        served.faults = [(400, {}), (400, {})]
        with pytest.raises(SourceError, match=r"found HTTP 400: "):
            client.ask(served.uri.removeprefix("http:"), body, images=2)


def test_no_redirect_is_followed() -> None:
    with kserve(of_network(network()), SHAPE) as served:
        served.faults = [(302, {"location": f"http://127.0.0.1:{served.port}/v2/models/net"})]
        with pytest.raises(SourceError, match=r"HTTP 302, a redirect, which is not followed"):
            ScoringClient("m", Manners()).ask(served.uri.removeprefix("http:"), b"{}")


def test_a_server_that_is_gone_or_silent_is_given_up() -> None:
    client = ScoringClient("m", Manners(retries=1, timeout=0.2), sleep=lambda seconds: None)
    with pytest.raises(SourceError, match=r"ConnectionRefusedError.* after 2 tries; check the address"):
        client.ask("http://127.0.0.1:9/invocations", b"{}")
    with (
        kserve(of_network(network()), SHAPE, seconds=1.0) as served,
        pytest.raises(SourceError, match=r"(?i)timed? ?out.* after 2 tries"),
    ):
        client.ask(served.uri.removeprefix("http:"), KServe("m", "pixels").request(IMAGES[:2].numpy()))


def test_pauses_double_and_have_an_end() -> None:
    busy = Answer(503)
    assert [pause_after(tries, busy, 9, 0.0) for tries in (1, 2, 3)] == [0.25, 0.5, 1.0]
    assert pause_after(6, busy, 5, 0.0) is None
    assert pause_after(1, Answer(404), 5, 0.0) is None
    assert pause_after(1, Answer(429, wait=LONGEST_WAIT + 1), 5, 0.0) is None
    assert pause_after(1, Answer(None, error="TLS", final=True), 5, 0.0) is None


def test_retry_after_is_seconds_or_a_date() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    dates = ("Thu, 01 Jan 2026 12:00:30 GMT", "Thu, 01 Jan 2026 11:00:00 GMT")
    assert [seconds_of(text, now) for text in ("120", *dates, "soon", None)] == [120.0, 30.0, 0.0, None, None]


def test_the_rate_is_kept_by_all_threads_together() -> None:
    times: list[float] = []
    lock = threading.Lock()
    clock = time.monotonic
    client = ScoringClient("m", Manners(rate=50.0, retries=0))

    def ask() -> None:
        with pytest.raises(SourceError):
            client.ask("http://127.0.0.1:9/", b"")
        with lock:
            times.append(clock())

    began = clock()
    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(times) - began >= 5 / 50.0


def test_a_budget_is_not_exceeded() -> None:
    with kserve(of_network(network()), SHAPE) as served:
        loaded = load_model(spec(f"{served.uri}?budget=30&batch=4"))
        assert loaded.network is not None
        loaded.network(IMAGES)
        loaded.network(IMAGES)
        before = served.images
        with pytest.raises(ResourceError, match=r"vendor \(budget\): expected at most 30 images, found (2\d|30) sent"):
            loaded.network(IMAGES)
        assert served.images <= before + 8
