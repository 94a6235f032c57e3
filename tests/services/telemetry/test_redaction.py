"""What counts as a secret in a text, and what must be left alone."""

from __future__ import annotations

import time

import pytest

from services.errors import MOST, Problem
from services.telemetry.redaction import redacted, redacted_line, redacted_tree
from tracking.bundle.marker import without_secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://bob:s3cret@db/x", "postgresql://bob:***@db/x"),
        ("see http://:tok@host and https://a:b@c", "see http://:***@host and https://a:***@c"),
        ("a file at https:/bob:s3cret@host/x", "a file at https:/bob:***@host/x"),
        ("s3://bucket/a?secret=abc&x=1", "s3://bucket/a?secret=***&x=1"),
        ("factory:m:f?api_key=a%20b&depth=3", "factory:m:f?api_key=***&depth=3"),
        ("X-Amz-Signature=0a1b&X-Amz-Date=2", "X-Amz-Signature=***&X-Amz-Date=2"),
        ("db?user=u&PASSWORD=p", "db?user=u&PASSWORD=***"),
        ("f({'token': 'abc', 'depth': 3})", "f({'token': '***', 'depth': 3})"),
        ('{"db_password":"a b"}', '{"db_password":"*** b"}'),
        ("a token: the second", "a token: the second"),
        ("npz:data/test.npz?scale=255", "npz:data/test.npz?scale=255"),
        ("http://host:8265/a@b", "http://host:8265/a@b"),
        ("mlflow:models:/a@b", "mlflow:models:/a@b"),
    ],
)
def test_secrets_are_hidden_and_nothing_else(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert Problem(text, "x", text).where == shown


def test_trees_keep_their_shape() -> None:
    tree = {"a": ["http://u:p@h", ("t?token=1",)], "token": 3, "n": None}
    assert redacted_tree(tree) == {"a": ["http://u:***@h", ("t?token=***",)], "token": 3, "n": None}


def test_a_tracking_uri_shows_neither_password_nor_options_that_are_secret() -> None:
    assert (
        without_secret("postgresql://bob:s3cret@db/x?sslpassword=y&a=1") == "postgresql://bob@db/x?sslpassword=***&a=1"
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("https://user:pa:ss/wo@rd@host:8080/x", "https://***@host:8080/x"),
        ("redis://:secret@host", "redis://***@host"),
        ("https://ghp_abcdef@github.com/a", "https://***@github.com/a"),
        ("http://host:8080/models:/name@champion", "http://host:8080/models:/name@champion"),
        ("https://host/path@v1", "https://host/path@v1"),
        ("mlflow:models:/signs@candidate", "mlflow:models:/signs@candidate"),
        ("GET /a?X-Amz-Signature=abc123&b=1", "GET /a?X-Amz-Signature=***&b=1"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic ***"),
        ("a bearer token that is known", "a bearer token that is known"),
        ("expected a token: none found", "expected a token: none found"),
    ],
)
def test_what_is_struck_out_of_a_line_of_a_log_and_what_stays(text: str, kept: str) -> None:
    assert redacted_line(text) == kept


def test_hostile_texts_cost_no_time() -> None:
    start = time.process_time()
    for text in ("a://" * 20_000, "token" * 20_000 + "=", "secret=" * 20_000, "http://" + ":" * 50_000):
        redacted(text)
        redacted_line(text)
    assert time.process_time() - start < 5


def test_a_message_is_of_bounded_length_and_turns_no_text_around() -> None:
    output = Problem("a\x1b[2J", "b\u202egnp", "c" * 5_000, "d\ne")
    assert (output.where, output.expected, output.remedy) == ("a\\x1b[2J", "b\\u202egnp", "d\ne")
    forged = Problem("dir/x\n2026-11-29 error forged", "images", "1: y\n2026-11-29 error forged.png")
    assert (forged.where, forged.found) == ("dir/x\\n2026-11-29 error forged", "1: y\\n2026-11-29 error forged.png")
    assert len(output.found) == MOST


def test_a_password_that_a_library_quotes_without_its_scheme() -> None:
    assert redacted('Invalid bucket name "bob:hunter2@bucket"') == 'Invalid bucket name "bob:***@bucket"'
    assert redacted("'mlflow:models:/name@alias'") == "'mlflow:models:/name@alias'"
