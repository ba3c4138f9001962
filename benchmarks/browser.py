"""How soon a report shows itself in headless Chromium, from disk. Needs selenium, chromium and chromedriver."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from groups import EXAMPLES, Setup
from measure import htareport, run
from table import Line, at_most

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PAINT_S, INTERACTIVE_S = 0.5, 4.0
PATIENCE_S = 20
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Runs before the page's own scripts and notes when Plotly has drawn its first chart.
WATCH = """
new MutationObserver((_, observer) => {
  if (document.querySelector('.js-plotly-plot .main-svg')) {
    window.firstInteractive = performance.now();
    observer.disconnect();
  }
}).observe(document, {childList: true, subtree: true});
"""
PAINTED = "return performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0]"


def browser(setup: Setup) -> Iterator[Line]:
    """Open the example report in a fresh browser, several times."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if importlib.util.find_spec("selenium") is None or not chromium or not shutil.which("chromedriver"):
        yield Line("browser", "left out: needs selenium, chromium and chromedriver")
        return
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        run(htareport("report", EXAMPLES, "-o", report))
        opened = [_open(report, chromium) for _ in range(setup.rounds)]
    paints, interactive = ([each[at] for each in opened] for at in (0, 1))
    yield at_most("first paint with charts", median(paints), PAINT_S, " s", _spread(paints))
    yield at_most("first interactive chart", median(interactive), INTERACTIVE_S, " s", _spread(interactive))


def _open(report: Path, chromium: str) -> tuple[float, float]:
    from selenium.webdriver import Chrome, ChromeOptions  # noqa: PLC0415  optional
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    options = ChromeOptions()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
            driver.get(report.as_uri())
            if not driver.execute_script("return document.querySelector('figure svg, .chart svg') !== null"):
                raise RuntimeError(f"{report.name} has no chart in it")
            paint = _wait(driver, PAINTED)
            driver.execute_script("document.querySelector('figure, .chart').scrollIntoView({block: 'center'})")
            return paint / 1000, _wait(driver, "return window.firstInteractive") / 1000
        finally:
            driver.quit()


def _wait(driver: Chrome, script: str) -> float:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value: Any = driver.execute_script(script)
        if value is not None:
            return float(value)
        time.sleep(0.02)
    return PATIENCE_S * 1000.0


def _spread(seconds: list[float]) -> str:
    return f"{min(seconds):.2f}–{max(seconds):.2f} s"
