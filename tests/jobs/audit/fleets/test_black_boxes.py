"""Audits of models behind scoring servers: the numbers, the queries, the cache, and what is refused before any."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from jobs.audit.audit import Finished, run_audit, validate_sources
from jobs.audit.session import source_environment
from jobs.fleetfile.reading import validate_fleet
from jobs.submission.allow import AllowConfig, refusals
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError, ConfigError, PreflightError, SourceError
from services.loading.preflight.bounds import most_queries
from services.records import Outcome
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import load_weights
from tests.scoring import Score, kserve, of_network

MEASURES = ["clean", {"name": "great", "activation": "softmax"}]
QUERIES = [
    {"name": "square", "queries": 60, "epsilons": [0.1]},
    {"name": "pr", "radii": [0.1], "draws": 20},
    {"name": "probacc", "radii": [0.1], "rho": 0.1},
    {"name": "binomial", "radii": [0.1]},
    {"name": "radius", "sigma": 0.25, "select": 10, "draws": 100, "alpha": 0.05},
]


class Noted(Quiet):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)

    @property
    def most(self) -> int:
        """Of the images that it says the audit sends."""
        line = next(line for line in self.lines if "of its budget" in line)
        return int(line.split("at most ")[1].split()[0].replace(",", ""))


@pytest.mark.parametrize(("measure", "cost"), [("clean", 1), ({"name": "pr", "radii": [0.1], "draws": 20}, 21)])
def test_the_estimate_of_a_fixed_cost_is_exact_but_for_preflight(
    digits_fleet: dict[str, Any], score: Score, measure: Any, cost: int
) -> None:
    with kserve(score) as served:
        data = fleet_of(digits_fleet, f"{served.uri}?version=1&budget=50000")
        audit({**data, "measures": ["clean"], "samples": {**data["samples"], "limit": 30}})
        audit({**data, "measures": [measure]}, noted := Noted())
    assert noted.most == 2 * 16 + most_queries(40) + (40 if cost == 1 else 40 * cost)


@pytest.fixture
def score(digit_weights: dict[str, str]) -> Score:
    network = small_cnn(width=8)
    network.load_state_dict(load_weights(digit_weights["good"]))
    return of_network(network.eval())


def fleet_of(digits_fleet: dict[str, Any], uri: str, **fields: Any) -> dict[str, Any]:
    black = {"name": "good", "uri": uri, **fields}
    return {**digits_fleet, "models": [black], "samples": {"uri": "sklearn:digits?split=test", "limit": 40}}


def audit(data: dict[str, Any], reporter: Quiet | None = None) -> Finished:
    return run_audit(validate_fleet(data), reporter or Quiet())


def rows(finished: Finished) -> dict[str, list[float | None]]:
    model = finished.result.models[0]
    return {
        each.series.key: [row.score.value for row in each.groups] for each in model.series if each.grouping == "class"
    }


@pytest.mark.slow
def test_the_numbers_are_those_of_the_network_itself_and_queries_stay_within_the_estimate(
    digits_fleet: dict[str, Any], score: Score
) -> None:
    measures = [*MEASURES, *QUERIES]
    own = {**digits_fleet, "models": digits_fleet["models"][:1], "measures": measures}
    own["samples"] = {"uri": "sklearn:digits?split=test", "limit": 40}
    with kserve(score) as served:
        remote = fleet_of(digits_fleet, f"{served.uri}?version=1&budget=1000000&batch=25")
        noted = Noted()
        finished = audit({**remote, "measures": measures}, noted)
        assert 0 < served.images <= noted.most
        before = served.images
        again = audit({**remote, "measures": measures}, noted := Noted())
        assert served.images - before == 16  # by which it is known again
        assert noted.most <= 2 * 16 + 96 + 64 * 62  # attacks may have a gallery and a transfer left to do
    for key, values in rows(audit(own)).items():
        np.testing.assert_allclose(
            np.array(rows(finished)[key], float), np.array(values, float), atol=1e-6, err_msg=key
        )
        assert rows(again)[key] == rows(finished)[key]
    assert again.result.models[0].forwards == 0
    facts = finished.result.models[0].facts
    assert facts["endpoint"].endswith("/v2/models/net/infer") and facts["declared_version"] == "1"


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
def test_preflight_asks_no_more_than_it_says(digits_fleet: dict[str, Any], score: Score, outputs: str) -> None:
    """A server that guesses makes preflight try everything that it has."""

    def worse(images: np.ndarray) -> np.ndarray:
        scores = np.roll(score(images[..., ::-1].copy()), 1, axis=1)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores if outputs == "logits" else np.asarray(powers / powers.sum(axis=1, keepdims=True))

    with kserve(worse) as served:
        data = fleet_of(digits_fleet, served.uri, outputs=outputs, overrule=["chance", "class-order", "input"])
        data["samples"] = {"uri": "sklearn:digits?split=test"}
        audit({**data, "measures": ["clean"]})
        count = 360
        assert served.images <= 2 * 16 + most_queries(count) + count


def test_an_audit_over_the_budget_is_refused_before_it_starts(digits_fleet: dict[str, Any], score: Score) -> None:
    with kserve(score) as served:
        data = {**fleet_of(digits_fleet, f"{served.uri}?version=1&budget=2000"), "measures": ["clean", QUERIES[0]]}
        with pytest.raises(ConfigError, match=r"good \(budget\): expected at most 2,000 images, found an audit"):
            audit(data)
        assert served.images == 16


def test_without_a_version_nothing_is_kept(digits_fleet: dict[str, Any], score: Score) -> None:
    with kserve(score) as served:
        data = fleet_of(digits_fleet, served.uri)
        audit(data)
        first = served.images
        assert audit(data).result.models[0].forwards > 0
        assert served.images == 2 * first


def test_a_server_that_changes_under_an_audit_is_an_error(digits_fleet: dict[str, Any], score: Score) -> None:
    asked: list[int] = []

    def changing(images: np.ndarray) -> np.ndarray:
        asked.append(len(images))
        return score(images) if len(asked) <= 2 else np.roll(score(images), 3, axis=1)

    with (
        kserve(changing) as served,
        pytest.raises(ClasswiseError, match=r"the weights and code the audit began with, found others"),
    ):
        audit(fleet_of(digits_fleet, f"{served.uri}?version=1"))


def test_a_server_that_does_not_repeat_itself_is_found_by_preflight(digits_fleet: dict[str, Any], score: Score) -> None:
    noise = np.random.default_rng(0)

    def noisy(images: np.ndarray) -> np.ndarray:
        scores = score(images)
        return scores + noise.normal(size=scores.shape).astype(np.float32) / 10

    with kserve(noisy) as served:
        data = fleet_of(digits_fleet, f"{served.uri}?version=1")
        with pytest.raises(PreflightError, match=r"two identical passes to agree.*declare stochastic: true"):
            audit(data)
        data["models"][0]["stochastic"] = True
        assert audit(data).result.outcome is Outcome.PASS


@pytest.mark.parametrize("scheme", ["http", "onnx", "logits"])
def test_measures_that_a_source_cannot_serve_are_refused_by_name_in_validate(
    digits_fleet: dict[str, Any], scheme: str
) -> None:
    uri = {"http": "http:http://127.0.0.1:9/invocations?retries=0", "onnx": "onnx:none.onnx", "logits": "logits:none"}
    data = fleet_of(digits_fleet, uri[scheme])
    measures = ["clean", "pgd", {"name": "minimal"}, "apgd", QUERIES[0]]
    with pytest.raises(SourceError) as caught:
        validate_sources(validate_fleet({**data, "measures": measures}))
    wheres = [problem.where for problem in caught.value.problems]
    refused = ["good, pgd", "good, minimal", "good, apgd", *(["good, square"] if scheme == "logits" else [])]
    assert wheres[: len(refused)] == refused and len(wheres) == len(refused) + 1
    assert "square" in caught.value.problems[0].remedy or scheme == "logits"


def test_the_example_of_the_docs(score: Score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).resolve().parents[4] / "docs" / "sources.md").read_text()
    (block,) = [each for each in re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S) if "fleet: vendor" in each]
    monkeypatch.setenv("VENDOR_TOKEN", "s3cret-enough")
    with kserve(score, token="s3cret-enough") as served:
        block = block.replace("127.0.0.1:8080", f"127.0.0.1:{served.port}").replace("rate=20&", "rate=2000&")
        data = yaml.safe_load(block)
        data["samples"]["limit"] = 60
        own = {
            "storage": str(tmp_path),
            "tracking": {"enabled": False, "figures": False},
            "resources": {"runner": "local"},
        }
        finished = audit({**data, **own})
    assert finished.result.outcome is Outcome.PASS
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept and not any(b"s3cret-enough" in content for content in kept)


def test_workers_get_the_token_and_nothing_else(digits_fleet: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_TOKEN", "s3cret-enough")
    monkeypatch.setenv("OTHER_TOKEN", "another")
    data = fleet_of(digits_fleet, "http:http://h/invocations?token_env=VENDOR_TOKEN")
    assert source_environment(validate_fleet(data).config) == (("VENDOR_TOKEN", "s3cret-enough"),)


# --- the service --------------------------------------------------------------------------------------------------

GRANTED = {"samples": ["sklearn"], "models": ["http"], "urls": ["https://scores.example.org/v2/models/"]}


def refused(digits_fleet: dict[str, Any], uri: str, **granted: Any) -> list[str]:
    allow = AllowConfig.model_validate({**GRANTED, **granted})
    return [str(problem) for problem in refusals(validate_fleet(fleet_of(digits_fleet, uri)), allow)]


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/v2/models/m/infer",
        "http://scores.example.org/v2/models/m/infer",
        "https://scores.example.org:8443/v2/models/m/infer",
        "https://scores.example.org.evil.org/v2/models/m/infer",
        "https://scores.example.org/v2/admin/infer",
        "https://scores.example.org/v2/models/../../admin/infer",
        "https://scores.example.org/v2/models/%2e%2e/admin/infer",
        "https://scores.example.org\\@127.0.0.1/v2/models/m/infer",
        "https://scores.example.org@127.0.0.1/v2/models/m/infer",
        "https://[::1]/v2/models/m/infer",
        "file:///etc/passwd",
    ],
)
def test_a_caller_reaches_granted_addresses_alone(digits_fleet: dict[str, Any], address: str) -> None:
    (problem,) = refused(digits_fleet, f"http:{address}")
    assert "an address below https://scores.example.org/v2/models/" in problem


def test_the_granted_address_and_the_granted_secret_pass(digits_fleet: dict[str, Any]) -> None:
    uri = "http:https://scores.example.org/v2/models/net/versions/3/infer?token_env=VENDOR_TOKEN"
    assert refused(digits_fleet, uri, secrets=["VENDOR_TOKEN"]) == []
    assert "a variable among (none)" in refused(digits_fleet, uri)[0]
    assert "an address below (none)" in refused(digits_fleet, uri, urls=[], secrets=["VENDOR_TOKEN"])[0]
    assert "one of the schemes onnx" in refused(digits_fleet, uri, models=["onnx"])[0]


@pytest.mark.parametrize("url", ["https://h", "https://h/v2", "ftp://h/", "https://a:b@h/", "https://h/a/../"])
def test_granted_addresses_are_plain_and_end_in_a_slash(url: str) -> None:
    with pytest.raises(ValueError, match="end in a slash"):
        AllowConfig(urls=(url,))
