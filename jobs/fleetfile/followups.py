"""The fields of the fleet file about what follows an audit: who is notified, and which alias moves."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from jobs.fleetfile.parts import Part

EnvName = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
When = Literal["fail", "undecided", "error", "worse", "always"]
LOCAL = ("localhost", "127.0.0.1", "::1")
NOTHING_FOLLOWS: dict[str, Any] = {"accept": "by-hand", "notify": [], "promote": None}
"""Fields of a fleet that is audited beside another one: what is to follow, follows that one."""
RESERVED_ALIAS = r"(?i)latest|v\d+"
"""Aliases that MLflow keeps for itself."""


def url_fault(url: str, insecure: bool) -> str:
    """What keeps an address from being notified; "" when nothing does."""
    if len(url) > 2000 or not re.fullmatch(r"[!-~]+", url):
        return "at most 2000 printable ASCII characters without blanks"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "an https URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "an https URL"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "a URL without user, password and fragment; sign with secret_env, or keep the whole URL in url_env"
    if parts.scheme == "http" and parts.hostname not in LOCAL and not insecure:
        return "https, but for this machine (or insecure: true)"
    return ""


def shown_url(url: str) -> str:
    """The URL without what may hold a secret: user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl() + ("?..." if parts.query else "")


def _refused(expected: str, url: str | None) -> PydanticCustomError:
    """An error that does not show the URL whole."""
    actual = "no url" if url is None else shown_url(url)[:120]
    return PydanticCustomError("value_error", "{error}", {"error": expected, "found": actual})


def without_queries(config: dict[str, Any]) -> dict[str, Any]:
    """A fleet's configuration as bundles and MLflow keep it: what follows the ? of a webhook's URL may be a token."""
    hooks = [
        {**hook, "url": shown_url(hook["url"]) if hook.get("url") else hook.get("url")}
        for hook in config.get("notify", ())
    ]
    return {**config, "notify": hooks} if hooks else config


class NotifyConfig(Part):
    """A webhook that is notified when an audit ends."""

    url: str | None = Field(None, description="Where to POST; https. The query is kept out of logs and bundles.")
    url_env: EnvName | None = Field(None, description="A variable that holds the URL, in place of `url`.")
    when: tuple[When, ...] = Field(
        ("fail", "error", "worse"), min_length=1, description="Outcomes; worse than the accepted audit; or always."
    )
    secret_env: EnvName | None = Field(
        None, description="A variable that holds the secret of the signature; left out, deliveries are not signed."
    )
    insecure: bool = Field(False, description="Allow http to other machines.")

    @model_validator(mode="after")
    def _one_url(self) -> NotifyConfig:
        if (self.url is None) == (self.url_env is None):
            raise _refused("one of url and url_env", self.url)
        if self.url is not None and (fault := url_fault(self.url, self.insecure)):
            raise _refused(fault, self.url)
        return self


class PromoteConfig(Part):
    """An alias of MLflow's registry that follows the audits."""

    alias: str = Field(pattern=r"^[A-Za-z0-9_-]{1,200}$", description="Moved to the audited version when it passes.")

    @model_validator(mode="after")
    def _not_reserved(self) -> PromoteConfig:
        if re.fullmatch(RESERVED_ALIAS, self.alias):
            raise ValueError("another alias than latest and v1, v2 ..., which MLflow keeps for itself")
        return self
