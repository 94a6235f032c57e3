"""The dashboard's own page, open in headless Chromium while a drill runs: what its requests take, and what it shows."""

from __future__ import annotations

import shutil
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.drills.stackside import Api
from services.errors import Problem, ResourceError

COLLECT = """
const found = performance.getEntriesByType("resource").filter(each => each.name.includes("/v1/"));
performance.clearResourceTimings();
return found.map(each => [each.duration / 1000, each.responseStatus]);
"""


class OpenPage(threading.Thread):
    """Keeps the first view open, which asks for running audits and their progress again and again.

    Attributes:
        seconds: what each request of the page's took.
        refused: status of each that was not answered with 200.
        faults: lines of the browser's console that are faults.
    """

    def __init__(self, api: Api, token: str, picture: Path) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.refused: list[int] = []
        self.faults: list[str] = []
        self._picture = picture
        self._over = threading.Event()
        self._browser = browser()
        self._browser.get(f"{api.root}/#token={token}")

    def run(self) -> None:
        try:
            while not self._over.wait(10.0):
                self._collect()
                self._browser.save_screenshot(str(self._picture))
            self._collect()
            entries = self._browser.get_log("browser")
            self.faults += [each["message"] for each in entries if each["level"] == "SEVERE"]
        except Exception as error:  # whatever ends the browser is a fault of the drill's, told at its end
            self.faults.append(f"{type(error).__name__}: {error}".splitlines()[0])
        finally:
            self._browser.quit()

    def end(self) -> None:
        """Close the page."""
        self._over.set()
        self.join(60)
        if self.is_alive():
            self.faults.append("the browser does not end")

    def _collect(self) -> None:
        for seconds, status in self._browser.execute_script(COLLECT):
            self.seconds.append(seconds)
            if status != 200:
                self.refused.append(status)


def browser() -> Any:
    """Headless Chromium, and its console in the log "browser": for drills, benchmarks and tests.

    Raises:
        ResourceError: Selenium or Chromium's driver is not there.
    """
    driver = shutil.which("chromedriver")
    if driver is None or find_spec("selenium") is None:
        remedy = "make install, and your system's packages chromium and chromium-driver"
        raise ResourceError(Problem("--page", "selenium and chromedriver", "not both are installed", remedy))
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service(driver), options=options)
