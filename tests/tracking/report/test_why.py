"""Confusion matrices and the gallery on the page, with names that try to break out of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.records import AuditResult, ConfusedPair, ConfusionResult, Estimate
from services.storage.pictures import png_of
from tracking.bundle.reasons.confusions import Cells, write_confusions
from tracking.bundle.reasons.gallery import write_gallery
from tracking.report.report import write_report
from tracking.report.why import why_of

HOSTILE = "</script><img src=x onerror=alert(1)>"
RNG = np.random.default_rng(0)


def gallery(count: int, shape: tuple[int, int, int] = (3, 8, 8)) -> dict[str, np.ndarray]:
    pictures = np.array([png_of(RNG.random(shape)) for _ in range(count)], dtype=object)
    numbers = dict.fromkeys(("margin_before", "margin_after", "l2", "linf", "gain"), np.full(count, 0.5))
    classes = {"label": np.zeros(count, int), "before": np.zeros(count, int), "after": np.arange(count) % 2 + 1}
    names = {"id": np.arange(count), "key": np.array([f"{HOSTILE}{k}.png" for k in range(count)])}
    ranks = {"rank": np.arange(count) + 1, "of": np.full(count, count), "rounded": np.arange(count) > 0}
    shown = dict.fromkeys(("original", "adversarial", "perturbation"), pictures)
    return {**names, **classes, **numbers, **ranks, **shown}


@pytest.fixture
def audit(small_audit: AuditResult, tmp_path: Path) -> AuditResult:
    """Two models of three classes; the first has nine pictures, the second none."""
    classes = ("cat", HOSTILE, "eel")
    pair = ConfusedPair(0, 1, 6, 10, Estimate(0.6, 0.2, 0.9), 0.1)
    results = [
        ConfusionResult("clean", "clean accuracy", False, "without an attack", (), 1, (0, 1, 2)),
        ConfusionResult("pgd", "PGD accuracy (Linf)", True, "under PGD (Linf)", (pair,), 6, (2, 0, 1)),
    ]
    cells = {"clean": ([0, 0, 1, 2], [0, 1, 1, 2], [9, 1, 5, 5]), "pgd": ([0, 0, 1, 2], [0, 1, 1, 2], [4, 6, 5, 5])}
    for index, model in enumerate(small_audit.models[:2]):
        parts = []
        for result in results:
            labels, predicted, counts = (np.array(values) for values in cells[result.series])
            sides = np.zeros(4), np.ones(4)
            totals = np.array([10, 10, 5, 5])
            parts.append(Cells(result.series, result.title, classes, labels, predicted, counts, totals, *sides, None))
        write_confusions(str(tmp_path), index, model.spec, parts)
    write_gallery(str(tmp_path), 0, small_audit.models[0].spec, gallery(9))
    models = tuple(replace(model, confusions=tuple(results)) for model in small_audit.models[:2])
    return replace(small_audit, models=models, samples=replace(small_audit.samples, classes=classes))


def test_a_page_has_as_many_pictures_as_fit_and_says_how_many_there_are(audit: AuditResult, tmp_path: Path) -> None:
    listed = list(enumerate(audit.models))
    whole = why_of(listed, audit.samples.classes, str(tmp_path)).gallery
    one = sum(map(len, whole["entries"][0]["pictures"]))
    part = why_of(listed, audit.samples.classes, str(tmp_path), most_bytes=3 * one + 200).gallery
    assert (len(whole["entries"]), whole["total"]) == (9, 9) and (len(part["entries"]), part["total"]) == (3, 9)


def test_large_pictures_are_reduced_for_the_page(audit: AuditResult, tmp_path: Path) -> None:
    write_gallery(str(tmp_path), 1, audit.models[1].spec, gallery(1, (1, 250, 200)))
    shown = why_of([(1, audit.models[1])], audit.samples.classes, str(tmp_path)).gallery["entries"][0]["pictures"]
    assert all(picture.startswith("data:image/jpeg") and len(picture) < 30_000 for picture in shown)


def test_bundles_without_either_have_pages_without_either(small_audit: AuditResult, tmp_path: Path) -> None:
    text = Path(write_report(small_audit, str(tmp_path))).read_text()
    assert 'id="confusions"' not in text and 'id="gallery"' not in text and "gallery: none" not in text
    private = replace(small_audit, config={**small_audit.config, "gallery": "none"})
    assert "gallery: none" in Path(write_report(private, str(tmp_path))).read_text()


def test_a_browser_filters_pictures_and_subtracts_matrices(browser: Any, audit: AuditResult, tmp_path: Path) -> None:
    browser.get(Path(write_report(audit, str(tmp_path))).as_uri())
    end = time.monotonic() + 30
    while not browser.execute_script("return document.querySelectorAll('.example').length"):
        assert time.monotonic() < end, "no gallery was drawn"
        time.sleep(0.1)

    def choose(form: str, name: str, value: str) -> None:
        browser.execute_script(
            "const s = document.getElementById(arguments[0]).elements[arguments[1]]; s.value = arguments[2];"
            "s.dispatchEvent(new Event('change', {bubbles: true}))",
            *(form, name, value),
        )

    count = "return document.querySelectorAll('.example').length"
    assert browser.execute_script(count) == 8
    browser.find_element("id", "gallery-more").click()
    assert browser.execute_script(count) == 9
    choose("gallery-filters", "after", "2")
    assert browser.execute_script(count) == 4
    alts = browser.execute_script("return [...document.querySelectorAll('.example img')].map(i => i.alt)")
    assert all(alts) and "taken for eel" in alts[1]
    loaded = "return [...document.querySelectorAll('.example img')].every(i => i.complete && i.naturalWidth === 8)"
    assert browser.execute_script(loaded)
    cells = "return [...document.querySelectorAll('.matrix tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    assert [row[0] for row in browser.execute_script(cells)][:2] == ["eel", "cat"]
    assert browser.execute_script(cells)[1][2:] == ["40", "60"]
    choose("confusion-filters", "less", "clean")
    assert browser.execute_script(cells)[1][2:] == ["-50", "+50"]
    assert browser.execute_script("return document.querySelectorAll('img[src=x]').length") == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
