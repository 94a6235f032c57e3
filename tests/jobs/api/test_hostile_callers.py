"""What a hostile caller tries: others' files, code, tokens, and the server's time."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from jobs.api.admission import admitted
from jobs.api.serve import build
from jobs.api.settings import Settings, digests, load_settings, plain
from jobs.submission.signing import KEY, KEY_PATH
from jobs.web import guard
from services.errors import ConfigError, NotAllowed
from tests.jobs.api.conftest import client_of

from .conftest import TOKEN


def with_model(fleet: dict[str, Any], uri: str, **more: Any) -> dict[str, Any]:
    return {**fleet, "models": [{"name": "m", "uri": uri, **more}]}


@pytest.mark.parametrize(
    "uri",
    [
        "factory:os:system?command=id",
        "factory:services.training.epochs.run:main",
        "factory:services.training.architectures._private:f",
        "factory:services.training.architectures:_hidden",
        "factory:services.training.architectures:small_cnn?weights=/etc/passwd",
        "factory:services.training.architectures:small_cnn?weights=weights.safetensors",
        "factory:services.training.architectures:small_cnn?weights=s3://bucket/w.safetensors",
        "factory:services.training.architectures:small_cnn?weights={paths}/../../../etc/passwd",
        "factory:services.training.architectures:small_cnn?width=/etc/passwd",
        "factory:services.training.architectures:small_cnn?width=~root",
        "torchscript:/etc/passwd",
        "torchscript:{paths}/../x.ts",
        "torchscript:~/x.ts",
        "torchscript:{paths}x/y.ts",
        "torchscript:{paths}/link/passwd",
        "torchscript:{paths}/a\x00b",
        "onnx:{paths}/x.onnx",
        "torchvision:resnet18?weights=resnet18.pt",
        "torchvision:../resnet18?weights=DEFAULT",
        "robustbench:Standard?dataset=cifar10",
        "robustbench:Standard?model_dir=models",
        "mlflow:models:/shop@champion?source=/etc",
        "mlflow:mlflow-artifacts:/../x",
        "mlflow:runs:/0123/%2e%2e/%2e%2e/private",
        "mlflow:models:/shop/1/%2e%2e/x",
        "no scheme",
    ],
)
def test_code_and_paths_that_are_not_granted_are_refused(
    fleet: dict[str, Any], settings: Settings, uri: str, tmp_path: Path
) -> None:
    folder = Path(settings.allow.paths[0])
    if not (folder / "link").exists():
        (folder / "link").symlink_to("/etc")
    with pytest.raises((NotAllowed, ConfigError)):
        admitted(with_model(fleet, uri.format(paths=folder)), settings)


def test_what_a_measure_opens_is_granted_or_refused_too(fleet: dict[str, Any], settings: Settings) -> None:
    for uri in ("torchscript:/etc/passwd", "factory:os:system", "factory:services.training.mappers:vae?weights=/etc/x"):
        with pytest.raises(NotAllowed, match=r"measures\[0\]\.mapper"):
            admitted({**fleet, "measures": [{"name": "projection", "mapper": uri}], "gates": []}, settings)


def test_generated_samples_are_granted_or_refused_as_samples_are(fleet: dict[str, Any], settings: Settings) -> None:
    with pytest.raises(NotAllowed, match=r"generated\.uri"):
        admitted({**fleet, "measures": ["great"], "gates": [], "generated": {"uri": "npz:/etc/shadow"}}, settings)


@pytest.mark.parametrize(
    "uri",
    [
        "npz:/etc/shadow",
        "npz:s3://bucket/x.npz",
        "imagefolder:/home",
        "torchvision:CIFAR10?root=data",
        "torchvision:CIFAR10",
        "hf:x",
    ],
)
def test_samples_that_are_not_granted_are_refused(fleet: dict[str, Any], settings: Settings, uri: str) -> None:
    with pytest.raises(NotAllowed, match=r"administrator|worker"):
        admitted({**fleet, "samples": {"uri": uri}}, settings)


@given(st.text(max_size=40))
@pytest.mark.long
def test_no_text_is_a_path_outside_what_is_granted(text: str) -> None:
    from jobs.submission.allow import path_refusals

    granted = ("/srv/granted",)
    if not list(path_refusals("x", f"/srv/granted/{text}", granted)):
        assert os.path.realpath(f"/srv/granted/{text}").startswith("/srv/granted")
    if not list(path_refusals("x", text, granted)):
        assert text.startswith("/srv/granted")


def test_what_follows_an_audit_is_the_servers_to_grant(fleet: dict[str, Any], settings: Settings) -> None:
    """Requests from the server's network, its secrets as signatures, aliases and baselines that others rely on."""
    hooks = [
        {"url": "https://internal.example.org/admin", "secret_env": "AWS_SECRET_ACCESS_KEY"},
        {"url_env": "HOME"},
        {"url": "http://localhost:9200/"},
    ]
    registered = with_model(fleet, "mlflow:models:/shop@candidate", promote={"alias": "champion"})
    gates = [{"measure": "clean", "metric": "aggregate", "at_least": 0.5}]
    requested = {**registered, "gates": gates, "notify": hooks, "accept": "passed"}
    with pytest.raises(NotAllowed) as caught:
        admitted(requested, settings)
    refused = [problem.where for problem in caught.value.problems]
    assert refused == [
        "notify[0].url",
        "notify[0].secret_env",
        "notify[1].url",
        "notify[2].url",
        "promote",
        "accept",
    ]
    granted = {"notify": ("internal.example.org",), "secrets": ("HOOK",), "promote": True, "accept": True}
    generous = settings.model_copy(update={"allow": settings.allow.model_copy(update=granted)})
    own = [{"url": "https://internal.example.org/hook", "secret_env": "HOOK"}]
    config = admitted({**requested, "notify": own}, generous).config
    assert config.notify[0].url == own[0]["url"] and config.accept == "passed"
    for url in ("https://internal.example.org.evil.org/", "https://internal.example.org@evil.org/"):
        with pytest.raises((NotAllowed, ConfigError)):
            admitted({**requested, "notify": [{"url": url}]}, generous)


@pytest.mark.parametrize(
    ("url", "passes"),
    [
        ("https://hooks.example.org/x", True),
        ("https://HOOKS.example.org:443/x", True),
        ("https://hooks.example.org:8265/api/jobs/", False),
        ("http://hooks.example.org/x", False),
        ("http://hooks.example.org:6379/", False),
        ("https://chat.example.org:8443/x", True),
        ("https://chat.example.org/x", False),
        ("http://localhost:9200/", True),
        ("http://localhost:8265/api/jobs/", False),
        ("https://localhost/", False),
        ("https://evil.test\\.hooks.example.org/", False),
        ("https://evil.test?@hooks.example.org/", False),
        ("https://hooks.example.org.:443/", False),
        ("https://127.0.0.1/", False),
        ("https://0x7f000001/", False),
    ],
)
def test_a_granted_host_is_no_grant_for_its_other_ports(
    fleet: dict[str, Any], settings: Settings, url: str, passes: bool
) -> None:
    granted = {"notify": ("hooks.example.org", "chat.example.org:8443", "localhost:9200")}
    generous = settings.model_copy(update={"allow": settings.allow.model_copy(update=granted)})
    asked = {**fleet, "notify": [{"url": url, "insecure": True}]}
    if passes:
        assert admitted(asked, generous).config.notify[0].url == url
    else:
        with pytest.raises((NotAllowed, ConfigError), match=r"notify\[0\]"):
            admitted(asked, generous)


def test_what_a_caller_submits_is_signed_with_what_was_granted(
    fleet: dict[str, Any], settings: Settings, caller: TestClient
) -> None:
    """Whoever writes to the storage afterwards changes neither the fleet nor the allow-list that its audit checks."""
    name = caller.post("/v1/audits", json=fleet).json()["id"]
    body = json.loads((Path(settings.storage) / "submissions" / name / "fleet.json").read_text())
    assert len(body["signature"]) == 64 and body["allow"] == settings.allow.model_dump(mode="json")
    caller.post(f"/v1/audits/{name}/cancel")


def test_a_server_whose_audits_run_elsewhere_needs_a_key(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = {**plain(settings), "address": "http://127.0.0.1:9"}
    monkeypatch.delenv(KEY, raising=False)
    monkeypatch.delenv(KEY_PATH, raising=False)
    with pytest.raises(ConfigError, match=KEY_PATH):
        build(remote, {})
    monkeypatch.setenv(KEY, "0123456789abcdef" * 2)
    build(remote, {})


def test_a_server_without_an_allow_list_audits_nothing(fleet: dict[str, Any], settings: Settings) -> None:
    bare = Settings.model_validate({"storage": settings.storage, "tokens": [{"name": "ci", "env": "CI_TOKEN"}]})
    with pytest.raises(NotAllowed) as caught:
        admitted(fleet, bare)
    assert [problem.where for problem in caught.value.problems] == ["models[0].uri", "samples.uri"]


def test_the_server_decides_on_storage_tracking_cluster_and_rights(fleet: dict[str, Any], settings: Settings) -> None:
    greedy = {
        **fleet,
        "storage": "/etc",
        "factories": ["*"],
        "confine": ["/"],
        "tracking": {"uri": "http://evil.example.org", "experiment": "theirs"},
        "resources": {
            "runner": "ray",
            "address": "ray://evil:1",
            "workers": 500,
            "gpus": 8,
            "cpus": 64,
            "batch": 60000,
        },
    }
    config = admitted(greedy, settings).config
    assert config.storage == settings.storage
    assert (config.factories, config.confine) == (settings.allow.factories, settings.allow.paths)
    assert (config.tracking.uri, config.tracking.experiment, config.tracking.enabled) == (None, None, False)
    resources = config.resources
    assert (resources.runner, resources.address, resources.workers) == ("local", None, 1)
    assert (resources.gpus, resources.cpus, resources.batch) == (0, 4, 1024)
    with pytest.raises(NotAllowed, match="allow_unpickling"):
        admitted(with_model(fleet, fleet["models"][0]["uri"], allow_unpickling=True), settings)
    many = settings.model_copy(update={"limits": settings.limits.model_copy(update={"models": 1})})
    two = [{**fleet["models"][0], "name": name} for name in "ab"]
    with pytest.raises(NotAllowed, match="at most 1"):
        admitted({**fleet, "models": two}, many)


def test_a_refusal_reaches_the_caller_with_403_and_starts_nothing(
    caller: TestClient, fleet: dict[str, Any], settings: Settings
) -> None:
    answer = caller.post("/v1/audits", json=with_model(fleet, "factory:os:system?command=id"))
    assert answer.status_code == 403 and answer.json()["error"] == "NotAllowed"
    assert "administrator" in answer.json()["problems"][0]["remedy"]
    assert not Path(settings.storage).exists()


def test_a_body_that_is_too_long_is_refused_whatever_its_headers_say(caller: TestClient, settings: Settings) -> None:
    long = b"a" * (settings.limits.body + 1)
    answer = caller.post("/v1/audits", content=long, headers={"content-type": "text/yaml"})
    assert answer.status_code == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b"a" * (settings.limits.body // 10)

    streamed = caller.post("/v1/audits", content=chunks(), headers={"content-type": "text/yaml"})
    assert streamed.status_code == 413 and streamed.json()["error"] == "TooLarge"


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("application/yaml", "[" * 5000, "nested"),
        ("application/json", "[" * 100_000, "nested"),
("application/yaml", "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]" for i in range(8)), "expands"),
        ("application/yaml", "!!python/object/apply:os.system ['id']", "valid YAML"),
        ("application/json", '{"fleet": "a", "fleet": "b"}', "each key once"),
        ("application/json", '{"seed": NaN', "valid JSON"),
        ("application/json", "[]", "a mapping"),
        ("application/json", b"\xff\xfe", "UTF-8"),
        ("application/json", "", "valid JSON"),
        ("application/yaml", "", "a mapping"),
    ],
)  # fmt: skip
def test_bodies_made_to_hurt(caller: TestClient, kind: str, body: str | bytes, said: str) -> None:
    answer = caller.post("/v1/audits", content=body, headers={"content-type": kind})
    assert answer.status_code == 422, answer.text
    assert any(word in answer.text for word in said.split("|"))


def test_another_type_of_body_is_refused(caller: TestClient) -> None:
    assert caller.post("/v1/audits", content="x", headers={"content-type": "text/plain"}).status_code == 415
    assert caller.post("/v1/audits", content="x").status_code == 415


@pytest.mark.parametrize("name", ["m\n", "a\x1b[31mb", "a\u202eb", "\u200b", " m"])
def test_names_with_control_characters_are_refused(caller: TestClient, fleet: dict[str, Any], name: str) -> None:
    answer = caller.post("/v1/audits", json={**fleet, "models": [{**fleet["models"][0], "name": name}]})
    assert answer.status_code == 422 and "models[0].name" in answer.text


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..%2f..%2fetc-0123456789abcdef", "a%00-0123456789abcdef", "%2e%2e"]
)
def test_ids_that_are_paths_are_no_ids(caller: TestClient, name: str) -> None:
    for path in (f"/v1/audits/{name}", f"/v1/audits/{name}/result", f"/v1/audits/{name}/logs"):
        assert caller.get(path).status_code in (404, 422)


@pytest.mark.parametrize("key", ["a" * 201, " ", "é".encode().decode("latin-1")])
def test_keys_are_bounded(caller: TestClient, fleet: dict[str, Any], key: str) -> None:
    answer = caller.post("/v1/audits", json=fleet, headers={"idempotency-key": key.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code in (202, 422) and (answer.status_code == 422 or not key.strip())


@pytest.mark.parametrize("header", ["", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", TOKEN])
def test_a_wrong_token_is_refused_and_compared_in_constant_time(
    caller: TestClient, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(guard.hmac, "compare_digest", counted)
    answer = caller.get("/v1/audits", headers={"authorization": header})
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert compared == [(32, 32)]


def test_only_so_many_audits_wait_or_run(settings: Settings, fleet: dict[str, Any]) -> None:
    limits = {**plain(settings)["limits"], "submissions": 1}
    slow = {**fleet, "measures": [{"name": "pgd", "steps": 500, "epsilons": [0.02]}]}
    with client_of(settings, limits=limits) as caller:
        with ThreadPoolExecutor(6) as pool:
            sent = pool.map(
                lambda key: caller.post("/v1/audits", json=slow, headers={"idempotency-key": key}), "aabbcc"
            )
        codes = sorted((answer.status_code, answer.json().get("id", "")) for answer in sent)
        assert [code for code, _ in codes] == [202, 202, 429, 429, 429, 429] and codes[0] == codes[1]
        first = caller.get(f"/v1/audits/{codes[0][1]}").json()
        second = caller.post("/v1/audits", json=fleet)
        assert (second.status_code, second.json()["error"]) == (429, "TooMany")
        again = caller.post("/v1/audits", json=slow, headers={"idempotency-key": first["key"]})
        assert again.json()["id"] == first["id"]
        caller.post(first["links"]["cancel"])
        while caller.get(first["links"]["self"]).json()["state"] == "running":
            pass


def test_settings_name_every_fault(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("storage: runs\ntokens: []\nallow: {paths: [data, /a/../b]}\nlimit: {}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert len(caught.value.problems) == 5  # each folder is one
    file.write_text(
        f"storage: {tmp_path}\ntokens: [{{name: a, env: NONE}}, {{name: b, file: {file}x, env: CI_TOKEN}}]\n"
    )
    with pytest.raises(ConfigError) as caught:
        digests(load_settings(file), {"CI_TOKEN": TOKEN})
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError, match="at least 24 characters"):
        digests(settings, {"CI_TOKEN": "short"})
