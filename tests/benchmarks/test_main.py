"""The command that runs all benchmarks."""

from __future__ import annotations

import sys

import pytest

from benchmarks import __main__ as command


def test_without_names_all_are_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    monkeypatch.setattr(command, "ALL", ("attacks", "probabilistic"))
    monkeypatch.setattr(command, "DATA", command.DATA / "absent")
    assert command.main() == 0
    output = capsys.readouterr().out
    assert output.index("== attacks") < output.index("== probabilistic") < output.index("all limits kept")
