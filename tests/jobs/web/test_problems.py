"""Errors as they are answered, and as OpenAPI describes them."""

from __future__ import annotations

import pytest

from jobs.web.problems import error_body, refused
from services.errors import ConfigError, Problem


def test_every_problem_is_answered_with_its_remedy() -> None:
    body = error_body(ConfigError([Problem("a", "b", "c", "d"), Problem("e", "f", "g")]))
    assert body.model_dump() == {
        "error": "ConfigError",
        "problems": [
            {"where": "a", "expected": "b", "found": "c", "remedy": "d"},
            {"where": "e", "expected": "f", "found": "g", "remedy": ""},
        ],
    }


def test_each_status_has_words_and_an_unknown_one_is_a_mistake() -> None:
    described = refused(401, 404, 410, 429, 503)
    assert set(described) == {401, 404, 410, 429, 503}
    assert len({each["description"] for each in described.values()}) == 5
    with pytest.raises(KeyError):
        refused(418)
