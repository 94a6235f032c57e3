"""What stands between backticks is code, and stays text whatever it holds."""

from __future__ import annotations

import pytest

from tracking.report.markup import coded


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("run `classwise sync` later", "run <code>classwise sync</code> later"),
        ("`a` and `b`", "<code>a</code> and <code>b</code>"),
        ("cat`s <b>", "cat`s &lt;b&gt;"),
        ("`<script>` & co", "<code>&lt;script&gt;</code> &amp; co"),
        ("", ""),
    ],
)
def test_parts_between_backticks_are_code(text: str, shown: str) -> None:
    assert str(coded(text)) == shown
