"""How sources are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.errors import SourceError
from services.loading.uris import extent, flag, local_path, one_of, parse_uri, scalar, whole


def test_scheme_rest_and_decoded_query() -> None:
    uri = parse_uri("factory:pkg.mod:make?weights=a+b%3Fc.pt&layers=%5B%5B%22relu%22%5D%5D&n=3")
    assert (uri.scheme, uri.rest) == ("factory", "pkg.mod:make")
    assert dict(uri.query) == {"weights": "a+b?c.pt", "layers": '[["relu"]]', "n": "3"}


def test_mlflow_addresses_keep_their_colons_and_at_signs() -> None:
    assert parse_uri("mlflow:models:/cat dog@prod").rest == "models:/cat dog@prod"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.pt", "expected a source written scheme:rest, found no scheme"),
        ("npz:a.npz?scale", "expected options written key=value, each key once, found 'scale'"),
        ("npz:a.npz?scale=1&scale=255", "each key once, found 'scale=255'"),
    ],
)
def test_malformed(text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        parse_uri(text)


def test_all_wrong_options_at_once() -> None:
    uri = parse_uri("npz:a.npz?scael=1&layout=CHWN&n=-1")
    with pytest.raises(SourceError) as caught:
        uri.options(scale=str, layout=one_of("NHWC", "NCHW"), n=whole)
    text = str(caught.value)
    assert "did you mean 'scale'?" in text
    assert "one of NHWC, NCHW, found 'CHWN'" in text
    assert "a whole number, found '-1'" in text


def test_scalars_are_numbers_and_booleans_only() -> None:
    assert [scalar(text) for text in ("3", "0.5", "true", "null", "[1]", "x")] == [3, 0.5, True, None, "[1]", "x"]


def test_converters() -> None:
    assert (flag("true"), flag("0"), extent("3x32x48")) == (True, False, (3, 32, 48))
    with pytest.raises(ValueError, match="true or false"):
        flag("yes")
    with pytest.raises(ValueError, match="joined by x"):
        extent("32x0")


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert local_path("~/a") == Path("/somewhere/a")
