"""A class never vanishes from an audit: not by the kind of its files, not by the draw, not by a group's rarity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jobs.audit.audit import run_audit, validate_sources
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.errors import ClasswiseError, SourceError
from services.loading.samples.source import open_samples
from services.records import AuditResult, Outcome, SampleSpec

GATES = [
    {"measure": "clean", "metric": "wcr", "at_least": 0.8},
    {"measure": "clean", "metric": "rdi", "at_most": 0.5},
]

NAMES = np.array([str(k) for k in range(10)])


def digits() -> tuple[np.ndarray, np.ndarray]:
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    return (samples.images(0, len(samples))[:, 0] * 255).round().astype(np.uint8), samples.labels


def audit(fleet: dict[str, Any], **samples: Any) -> AuditResult:
    """The well trained network alone."""
    data = {**fleet, "models": fleet["models"][:1], "measures": ["clean"], "gates": fleet.get("gates", GATES)}
    return run_audit(validate_fleet({**data, "samples": samples}), Quiet()).result


def long_tailed(folder: Path, *, rare: int = 3, kept: int = 4) -> str:
    """Many of nine classes, a few of the rarest, whose images are another digit: its accuracy is 0."""
    images, labels = digits()
    rows = np.concatenate([np.flatnonzero(labels == k)[: kept if k == rare else 90] for k in range(10)])
    others = np.resize(np.flatnonzero(labels == 6), 3_000)
    images, labels = np.concatenate([images[rows], images[others]]), np.concatenate([labels[rows], labels[others]])
    images[labels == rare] = images[np.flatnonzero(labels == 6)[0]]
    np.savez(folder / "d.npz", images=images, labels=labels, classes=NAMES)
    return f"npz:{folder / 'd.npz'}"


def folder_of_digits(root: Path, *, suffix: str = ".png", only: int | None = None, each: int = 30) -> Path:
    images, labels = digits()
    for k in range(10):
        (root / str(k)).mkdir(parents=True)
        for row in np.flatnonzero(labels == k)[:each]:
            Image.fromarray(images[row]).save(root / str(k) / f"{row}.png")
    if only is not None:
        for path in (root / str(only)).iterdir():
            path.rename(path.with_suffix(suffix))
    return root


def test_a_limit_does_not_hide_the_class_that_fails(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    result = audit(digits_fleet, uri=long_tailed(tmp_path), limit=200)
    (by_class,) = (each for each in result.models[0].series if each.grouping == "class")
    assert by_class.missing == () and by_class.groups[3].n == 1
    worst, gap = result.models[0].gates
    assert worst.outcome is not Outcome.PASS and gap.outcome is not Outcome.PASS
    notes = " ".join(result.notes)
    assert "3 (1 of 4)" in notes and "cannot pass" in notes


@pytest.mark.parametrize("kept", [1, 2])
def test_a_nearly_empty_class_clears_no_gate(digits_fleet: dict[str, Any], tmp_path: Path, kept: int) -> None:
    """One or two samples of a class, rightly named: nothing is known of it."""
    images, labels = digits()
    rows = np.concatenate([np.flatnonzero(labels == k)[: kept if k == 0 else 90] for k in range(10)])
    np.savez(tmp_path / "d.npz", images=images[rows], labels=labels[rows], classes=NAMES)
    result = audit(digits_fleet, uri=f"npz:{tmp_path / 'd.npz'}")
    assert result.models[0].series[0].groups[0].score.value == 1.0
    assert [gate.outcome for gate in result.models[0].gates] == [Outcome.UNDECIDED] * 2
    assert f"0 ({kept} of {kept})" in " ".join(result.notes)


def test_a_limit_below_the_number_of_classes_is_an_error_before_any_work(digits_fleet: dict[str, Any]) -> None:
    data = {**digits_fleet, "samples": {"uri": "sklearn:digits?split=test", "limit": 9}}
    with pytest.raises(SourceError, match="a limit of at least 10"):
        validate_sources(validate_fleet(data))


def test_a_group_that_the_draw_leaves_out_bars_a_pass(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    images, labels = digits()
    site = np.where(np.arange(len(labels)) == 898, "rare", "usual")
    np.savez(tmp_path / "d.npz", images=images, labels=labels, site=site)
    gates = [{"measure": "clean", "metric": "wcr", "grouping": "site", "at_least": 0.5}]
    fleet = {**digits_fleet, "groups": ["site"], "gates": gates}
    (gate,) = audit(fleet, uri=f"npz:{tmp_path / 'd.npz'}", limit=100).models[0].gates
    assert gate.outcome is Outcome.UNDECIDED and "site rare" in gate.reason


def test_a_class_whose_files_are_not_read_is_an_error_or_no_pass(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    folder = folder_of_digits(tmp_path / "d", each=30)
    for path in (folder / "3").iterdir():
        path.write_bytes(b"\x00\x00\x00\x18ftypheic")
        path.rename(path.with_suffix(".heic"))
    source = f"imagefolder:{folder}?mode=L"
    with pytest.raises(ClasswiseError, match=r"30 files of 3 not read: \.heic"):
        audit(digits_fleet, uri=source)
    result = audit(digits_fleet, uri=source, on_corrupt="skip")
    assert all(gate.outcome is Outcome.UNDECIDED for gate in result.models[0].gates)
    assert result.samples.intake.unread == {"3": {".heic": 30}} and result.samples.skipped == {"3": 30}
    assert "30 files of 3 not read: .heic" in " ".join(result.notes)


def test_a_class_without_suffixes_is_measured(digits_fleet: dict[str, Any], tmp_path: Path) -> None:
    folder = folder_of_digits(tmp_path / "d", suffix="", only=3)
    assert audit(digits_fleet, uri=f"imagefolder:{folder}?mode=L").samples.counts == (30,) * 10


@pytest.mark.parametrize("declared", [True, False])
def test_a_stray_folder_is_named(digits_fleet: dict[str, Any], tmp_path: Path, declared: bool) -> None:
    folder = folder_of_digits(tmp_path / "d")
    (folder / "misc").mkdir()
    Image.new("L", (8, 8)).save(folder / "misc" / "a.png")
    if declared:
        digits_fleet["models"][0]["classes"] = [str(k) for k in range(10)]
    with pytest.raises(ClasswiseError, match=r"misc.*no class of the model"):
        audit(digits_fleet, uri=f"imagefolder:{folder}?mode=L")
