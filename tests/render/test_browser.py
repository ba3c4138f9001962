"""The page in Chromium, opened from disk: what only a browser can tell."""

import base64
import json
import random
import shutil
import time

import pandas as pd
import pytest
from render.sample import HOSTILE, REAL, sample
from render.test_findings import ALL as ADVICE
from render.test_findings import report as advised

from htareport.files.output import write
from htareport.render.charts import palette
from htareport.render.charts import ticks as fmt
from htareport.render.html import tables
from htareport.report import Column, Report, Section, Table, TableSpec, Unit, key

selenium = pytest.importorskip("selenium.webdriver", reason="needs selenium")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip
ROWS = "return [...document.querySelectorAll('#table-kernel_breakdown-kernels tbody tr')]"


def chromium(folder, *, scripts=True):
    """A fresh browser that logs its console."""
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    return selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))


def wait(browser, script, seconds=15.0):
    """Wait until a script gives something true, and return that."""
    end = time.monotonic() + seconds
    while not (result := browser.execute_script(script)):
        assert time.monotonic() < end, f"never true: {script}"
        time.sleep(0.05)
    return result


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(sample(), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def browser(path, tmp_path_factory):
    driver = chromium(tmp_path_factory.mktemp("profile"))
    driver.get(path.as_uri())
    yield driver
    driver.quit()


def test_every_chart_becomes_live_on_scroll(browser):
    figures = browser.execute_script("return document.querySelectorAll('figure.zoomable').length")
    assert figures == 14
    assert browser.execute_script("return document.querySelectorAll('figure.live').length") < figures
    for i in range(figures):
        browser.execute_script("document.querySelectorAll('figure.zoomable')[arguments[0]].scrollIntoView()", i)
        wait(browser, f"return document.querySelectorAll('figure.zoomable')[{i}].querySelector('.plot .main-svg')")
    assert browser.execute_script("return document.querySelectorAll('[data-error]').length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 1280
    assert browser.execute_script("return window.__xss") is None
    assert browser.execute_script("return !!document.querySelector('[data-title*=Share], [data-title*=loud]')") is False


def test_console_and_network_are_silent(browser):
    """Runs after the charts: no violation of the policy, and nothing asked for but the file."""
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    sent = [
        entry["message"] for entry in browser.get_log("performance") if "Network.requestWillBeSent" in entry["message"]
    ]
    assert not [message for message in sent if '"url":"http' in message]


def test_tables_sort_search_and_filter(browser):
    count = "return document.querySelector('#table-kernel_breakdown-kernels .count').textContent"
    click = "document.querySelectorAll('#table-kernel_breakdown-kernels th button')[{}].click()"
    assert browser.execute_script(count) == "20 of 400 rows"
    browser.execute_script(click.format(2))
    wait(browser, "return document.querySelector('th[aria-sort=descending]')")
    browser.execute_script(click.format(2))
    frame = sample()["kernel_breakdown"].table().sort_values("sum")
    first = wait(browser, "return document.querySelector('th[aria-sort=ascending]') &&"
                 " document.querySelector('#table-kernel_breakdown-kernels td:not([class])').textContent",
                 )  # fmt: skip
    assert first == fmt.text(int(frame["sum"].iloc[0]), Unit.NANOSECONDS)
    browser.execute_script(
        "const i = document.querySelector('#table-kernel_breakdown-kernels input'); i.value = 'NCCL';"
        "i.dispatchEvent(new Event('input'))"
    )
    found = int(frame["name"].str.contains("nccl").sum())
    wait(browser, f"{count}.endsWith('{found} rows')")
    browser.execute_script(
        "const i = document.querySelector('#table-kernel_breakdown-kernels input'); i.value = '';"
        "i.dispatchEvent(new Event('input'));"
        "const s = document.querySelector('#table-kernel_breakdown-kernels select'); s.value = 'memory';"
        "s.dispatchEvent(new Event('change'))"
    )
    wait(browser, f"{count}.endsWith('{int((frame['kind'] == 'memory').sum())} rows')")


def test_deep_link_finds_a_kernel_that_is_not_shown(browser):
    name = f"{REAL[8]}#368"
    assert name in sample()["kernel_breakdown"].table()["name"].tolist()
    link = tables.anchor(name)
    browser.execute_script("location.hash = arguments[0]", link)
    shown = wait(browser, f"return document.getElementById('{link}')?.textContent")
    assert shown.startswith("Memcpy DtoD (Device -> Device)#368")
    browser.execute_script("location.hash = arguments[0]", tables.anchor(HOSTILE[10]))
    wait(browser, f"return document.getElementById('{tables.anchor(HOSTILE[10])}')")


def test_numbers_read_the_same_in_both_languages(browser):
    numbers = random.Random(5)  # noqa: S311  not for secrets
    cases = [[numbers.choice([0, 1, 0.5, 999.7, 1000, 99.96, 1e-5]) * 10 ** numbers.uniform(-3, 14), str(unit)]
             for unit in Unit if not unit.is_text and not unit.is_id for _ in range(60)]  # fmt: skip
    cases += [
        [-1234567, "ns"],
        [-1234567, "+ns"],
        [0, "+ns"],
        [2**30, "bytes"],
        [0, "ratio"],
        [1, "ratio"],
        [7, "id"],
        [2, "rank"],
        [1234567, "step"],
        [123456, "count"],
        [1e300, "ns"],
        [None, "ns"],
    ]
    shown = browser.execute_script("return arguments[0].map(([value, unit]) => shown(value, unit))", cases)
    assert shown == [fmt.text(value, Unit(unit)) for value, unit in cases]


def test_damaged_addresses_are_no_error(browser):
    browser.get_log("browser")
    browser.execute_script("location.hash = '#%E0%A4%A'")
    browser.execute_script("location.hash = '#no-such-place'")
    assert browser.get_log("browser") == []


def test_dark_colours_are_colours_only(browser):
    names = ["hasOwnProperty", "constructor", "__proto__", "toString", "#1F6FB2"]
    trace = {"name": names[4], "text": names, "customdata": [[name, name] for name in names],
             "line": {"color": "#1F6FB2"}, "marker": {"color": ["#1F6FB2", "toString", "#E69F00"]},
             "fillcolor": "#D0D5DA", "legendgroup": "__proto__"}  # fmt: skip
    spec = {"data": [trace], "layout": {"yaxis": {"ticktext": names}, "font": {"color": "#000"}}}
    browser.execute_script("if (!isDark()) document.getElementById('theme').click()")
    script = "return JSON.stringify(themed(JSON.parse(arguments[0]), JSON.parse(arguments[1])))"
    made = json.loads(browser.execute_script(script, json.dumps(spec), json.dumps(palette.dark_by_light())))
    browser.execute_script("document.getElementById('theme').click()")
    dark = made["data"][0]
    assert (dark["line"]["color"], dark["fillcolor"]) == ("#4A9BE0", "#4A545E")
    assert dark["marker"]["color"] == ["#4A9BE0", "toString", "#F0B429"]
    for name in ("name", "text", "customdata", "legendgroup"):
        assert dark[name] == trace[name]
    assert made["layout"]["yaxis"]["ticktext"] == names


def test_findings_open_by_link_and_have_code_to_copy(tmp_path_factory):
    """Code without the button's text; where there is no clipboard it is selected."""
    path = write(advised(*ADVICE), tmp_path_factory.mktemp("advice") / "r.html")
    driver = chromium(tmp_path_factory.mktemp("profile"))
    try:
        driver.get(f"{path.as_uri()}#f-H4")
        assert wait(driver, "return document.getElementById('f-H4').open")
        button = "document.querySelector('#f-H14 .snippet .copy')"
        assert driver.execute_script(f"return {button}.textContent") == "Copy"
        driver.execute_script("navigator.clipboard.writeText = () => Promise.reject(new Error('none'))")
        driver.execute_script(f"{button}.click()")
        wait(driver, "return String(getSelection()).length")
        assert driver.execute_script("return String(getSelection())") == ADVICE[0].snippet
        driver.execute_script(
            "navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"
        )
        driver.execute_script(f"{button}.click()")
        assert wait(driver, "return window.copied") == ADVICE[0].snippet
        assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []
    finally:
        driver.quit()


def test_names_that_stand_elsewhere_open_where_they_are(tmp_path_factory):
    spec = TableSpec("gaps", "Gaps", (key("at", "At"), Column("before", "Before", Unit.NAME)))
    gaps = Table(spec, pd.DataFrame({"at": [1, 2], "before": [REAL[0], HOSTILE[7] * 9]}))
    kernels = Table(TableSpec("k", "K", (key("name", "Kernel", Unit.NAME),)), pd.DataFrame({"name": [REAL[0], "b"]}))
    section = Section("s", "S", "Kernels", tables=(gaps, kernels))
    path = write(Report("r", sections=(section,)), tmp_path_factory.mktemp("names") / "r.html")
    driver = chromium(tmp_path_factory.mktemp("profile"))
    try:
        driver.get(path.as_uri())
        driver.execute_script("document.querySelector('td.k a').click()")
        shown = "return document.querySelector('#table-s-gaps td.k details[open] code')?.textContent"
        assert wait(driver, shown) == REAL[0]
        driver.execute_script("document.querySelector('#table-s-k th button').click()")
        wait(driver, "return document.querySelector('#table-s-k tbody.all')")
        assert driver.execute_script("return document.querySelectorAll('#table-s-k tbody tr[id]').length") == 2
        driver.execute_script("location.hash = arguments[0]", tables.anchor(HOSTILE[7] * 9))
        wait(driver, "return document.querySelector('#table-s-gaps tr.hit')")
        assert driver.get_log("browser") == []
    finally:
        driver.quit()


def test_tables_say_how_many_rows_they_show(tmp_path_factory):
    """Long names leave room for few rows as markup; the button brings the rest."""
    names = [f"kernel_{i}_{'x' * 4000}" for i in range(30)]
    table = Table(TableSpec("t", "T", (key("name", "Kernel", Unit.NAME),)), pd.DataFrame({"name": names}))
    report = Report("r", sections=(Section("s", "S", "Kernels", tables=(table,)),))
    driver = chromium(tmp_path_factory.mktemp("profile"))
    printed = "return document.querySelector('.tbl .printed').textContent"
    try:
        driver.get(write(report, tmp_path_factory.mktemp("rows") / "r.html").as_uri())
        shown = driver.execute_script("return document.querySelectorAll('.tbl tbody tr').length")
        assert shown < 20
        assert driver.execute_script("return document.querySelector('.count').textContent") == f"{shown} of 30 rows"
        assert driver.execute_script(printed) == f"Printed: the first {shown} of 30 rows."
        driver.execute_script("document.querySelector('.more').click()")
        wait(driver, "return document.querySelectorAll('.tbl tbody tr').length === 30")
        assert driver.execute_script("return document.querySelector('.more').hidden")
        assert driver.execute_script(printed) == ""
    finally:
        driver.quit()


def test_contents_say_where_one_is(browser):
    browser.execute_script("document.getElementById('section-kernel_breakdown').scrollIntoView()")
    wait(browser, "return document.querySelector('nav [aria-current]')?.hash === '#section-kernel_breakdown'")
    assert browser.execute_script("return document.querySelectorAll('nav [aria-current]').length") == 1


def test_phones_keep_first_columns_and_have_large_targets(browser):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    table = "document.querySelector('#table-kernel_breakdown-kernels {}')"
    try:
        left = f"return {table.format('td')}.getBoundingClientRect().left"
        before = browser.execute_script(left)
        browser.execute_script(f"{table.format('.scroll')}.scrollLeft = 200")
        assert browser.execute_script(left) == before
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        small = browser.execute_script(
            "return [...document.querySelectorAll('button, summary, nav a, input, select')]"
            ".map((e) => [e.outerHTML, e.getBoundingClientRect(), e.closest('.card')])"
            ".filter(([, box, card]) => box.width && box.height < 24 && !card).map(([html]) => html)"
        )
        assert small == []
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_wide_tables_show_that_they_scroll(browser):
    images = browser.execute_script("return getComputedStyle(document.querySelector('.scroll')).backgroundAttachment")
    assert images.split(", ")[:4] == ["local", "local", "scroll", "scroll"]


def test_dark_page_prints_white(browser):
    browser.execute_script("if (!isDark()) document.getElementById('theme').click()")
    dark = wait(browser, "return isDark() && getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(15, 20, 24)"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        browser.execute_script("return getComputedStyle(document.querySelector('figure .static')).display") == "block"
    )
    fills = "return getComputedStyle(document.querySelector('figure .static .c0')).fill"
    assert browser.execute_script(fills) == "rgb(31, 111, 178)"
    shown = "return getComputedStyle(document.querySelector({!r})).display"
    assert browser.execute_script(shown.format("details.help:not([open])")) == "none"
    assert browser.execute_script(shown.format("details.finding:not([open]) > div")) == "block"
    assert browser.execute_script(shown.format("#table-kernel_breakdown-kernels .printed")) == "block"
    rows = f"{ROWS}.filter((row) => getComputedStyle(row).display !== 'none').length"
    assert browser.execute_script(rows) == 30
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_scripts_everything_shows(path, tmp_path):
    driver = chromium(tmp_path, scripts=False)
    try:
        driver.get(path.as_uri())
        visible = [e for e in driver.find_elements("css selector", "figure .static svg") if e.is_displayed()]
        assert len(visible) == 14
        rows = driver.find_elements("css selector", "#table-kernel_breakdown-kernels tbody tr")
        assert len(rows) == 50
        assert rows[-1].is_displayed()
        assert not driver.find_element("css selector", ".tools").is_displayed()
    finally:
        driver.quit()
