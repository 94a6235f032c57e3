"""Addresses that a caller names lead to the granted host and port, however they are spelled."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.fleetfile.reading import validate_fleet
from jobs.submission.allow import AllowConfig, refusals
from services.errors import ConfigError

GRANTED = "https://scores.example.org/v2/models/"
ALLOW = AllowConfig(models=("http",), samples=("sklearn",), urls=(GRANTED,), notify=("hooks.example.org",))

SPELLED = [
    "https://evil.example.org/v2/models/m/infer",
    "http://scores.example.org/v2/models/m/infer",
    "https://scores.example.org:8443/v2/models/m/infer",
    "https://scores.example.org@evil.example.org/v2/models/m/infer",
    "https://scores.example.org:443@evil.example.org/v2/models/m/infer",
    "https://scores.example.org%40evil.example.org/v2/models/m/infer",
    "https://scores.example.org%2f.evil.example.org/v2/models/m/infer",
    "https://scores.example.org\\@evil.example.org/v2/models/m/infer",
    "https://evil.example.org\\.scores.example.org/v2/models/m/infer",
    "https://evil.example.org#@scores.example.org/v2/models/m/infer",
    "https://evil.example.org;scores.example.org/v2/models/m/infer",
    "https://scores.example.org.evil.example.org/v2/models/m/infer",
    "https://scores.example.org./v2/models/m/infer",
    "https://scores.example.org../v2/models/m/infer",
    "https://scores\u3002example\u3002org/v2/models/m/infer",
    "https://\u24e2cores.example.org/v2/models/m/infer",
    "https://xn--scores-.example.org/v2/models/m/infer",
    "https://scores.example.org\t/v2/models/m/infer",
    "https://scores.example.org\r\nHost: evil/v2/models/m/infer",
    "https:///scores.example.org/v2/models/m/infer",
    "https:scores.example.org/v2/models/m/infer",
    "https://scores.example.org/v2/models/../../admin/infer",
    "https://scores.example.org/v2/models/./m/infer",
    "https://scores.example.org/v2/models/%2e%2e/%2e%2e/admin",
    "https://scores.example.org/v2/models/..;/..;/admin",
    "https://scores.example.org/v2/models\\..\\..\\admin",
    "https://scores.example.org//v2/models/m/infer",
    "https://scores.example.org/V2/models/m/infer",
    "https://scores.example.org/v2/modelsx/m/infer",
    *(
        f"{scheme}://{host}/v2/models/m/infer"
        for scheme in ("http", "https")
        for host in (
            *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "[::1]", "[::ffff:127.0.0.1]"),
            *("localhost", "169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "metadata"),
            *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[fe80::1%25eth0]", "169.254.169.254.nip.io"),
        )
    ),
]


def problems(uri: str, hook: str = "") -> list[str]:
    """Where a caller's fleet is refused, by the fleet file's own rules or by the allow-list; none: it is granted."""
    data: dict[str, Any] = {
        "fleet": "f",
        "models": [{"name": "m", "uri": uri}],
        "samples": {"uri": "sklearn:digits"},
        "notify": [{"url": hook, "insecure": True}] if hook else [],
    }
    try:
        return [problem.where for problem in refusals(validate_fleet({**data, "storage": "/srv"}), ALLOW)]
    except ConfigError as error:
        return [problem.where for problem in error.problems]


@pytest.mark.parametrize("url", SPELLED)
def test_no_spelling_of_another_address_is_granted(url: str) -> None:
    assert problems(f"http:{url}")
    hook = url.replace("scores.", "hooks.").replace("/v2/models/m/infer", "/hook")
    own = hook.startswith("https://hooks.example.org/")  # any path of the granted host is granted
    assert own or problems(f"http:{GRANTED}m/infer", hook)


def test_the_granted_addresses_pass_in_any_case_of_letters() -> None:
    for url in (GRANTED, GRANTED.replace("scores", "SCORES")):
        assert not problems(f"http:{url}m/infer", "https://HOOKS.example.org/x")


PARTS = st.sampled_from(
    ["scores.example.org", "evil", "@", ":", "443", "/", "\\", "#", "?", "%", ".", "[", "]", "127.1", "\t", ";", "//"]
)


@given(st.lists(PARTS, max_size=6), st.lists(PARTS, max_size=6))
@example([], ["/"])
def test_what_is_granted_is_sent_to_the_granted_host(before: list[str], after: list[str]) -> None:
    """As the library that sends it reads the address, which is another than the one that judges it."""
    url = f"https://{''.join(before)}scores.example.org{''.join(after)}/v2/models/m/infer"
    if not problems(f"http:{url}"):
        assert urllib.request.Request(url.partition("?")[0]).host == "scores.example.org"
    hook = url.replace("scores.", "hooks.")
    if not problems(f"http:{GRANTED}m/infer", hook):
        assert urllib.request.Request(hook).host in ("hooks.example.org", "hooks.example.org:443", "hooks.example.org:")
