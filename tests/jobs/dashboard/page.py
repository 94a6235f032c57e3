"""What tests ask of a page in the browser."""

from __future__ import annotations

import json
import time
from typing import Any

from .conftest import AUDITS, FLEET

PHONE = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}


class Page:
    """What tests ask of the page."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser = browser
        self.address = address
        self.expected: list[str] = []

    def js(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def until(self, condition: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not self.js(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"{condition}: {self.text('main')[:2000]}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.js("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def go(self, path: str, heading: str) -> None:
        self.js("location.hash = arguments[0]", path)
        self.until(f"document.querySelector('h1')?.textContent.includes({heading!r})")

    def ids(self) -> dict[str, str]:
        """Ids of the fleet's audits by audit id, as the links of its page say."""
        self.go(f"#/fleet/{FLEET}", FLEET)
        links = "[...document.querySelectorAll('tbody th a')].map(a => a.getAttribute('href').split('/').pop())"
        result = self.js(f"return {links}")
        return {next(audit for audit in AUDITS if each.startswith(audit)): each for each in result}

    def choose(self, label: str, text: str) -> None:
        """Choose an option of the select with that label."""
        self.js(
            "const [label, text] = arguments;"
            "const found = [...document.querySelectorAll('main label')].find(l => l.firstChild.textContent === label);"
            "const box = found.querySelector('select');"
            "box.value = [...box.options].find(o => o.textContent === text).value;"
            "box.dispatchEvent(new Event('change'))",
            label,
            text,
        )

    def rows(self, caption: str) -> list[list[str]]:
        """The cells of a table, once it is there: parts of a page come one after the other."""
        table = (
            "[...document.querySelectorAll('main table')]"
            f".find(t => t.caption.textContent.startsWith({json.dumps(caption)}))"
        )
        self.until(table)
        cells: list[list[str]] = self.js(
            f"return [...{table}.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent.trim()))"
        )
        return cells

    def drawn(self) -> None:
        """Wait until the first figure, which is brought into view, is drawn."""
        self.until("document.querySelector('.canvas')")
        self.js("document.querySelector('.canvas').scrollIntoView()")
        self.until(
            "document.querySelector('.canvas') && "
            "[...document.querySelectorAll('.canvas')].some(c => c.querySelector('.main-svg'))"
        )
