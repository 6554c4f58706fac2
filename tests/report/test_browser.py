"""The report in a real browser: it draws, sorts, prints, fits a phone, and runs nothing but its own script."""

import base64
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from results_on_disk import UNITS, details, write_result

from ldrf.report import write_report

pytest.importorskip("selenium", reason="needs selenium: pip install 'ldrf[dev]'")
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

ATTACK = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"
LONG = "vit.encoder.layer.11.intermediate.a_rather_long_name_for_a_layer.dense"
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        found = webdriver.Chrome(options=options, service=Service(driver))
    except WebDriverException as problem:
        pytest.skip(f"chromium does not start here: {problem.msg}")
    yield found
    found.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The page of one run, and that of three."""
    runs = tmp_path_factory.mktemp("runs")
    units = {**UNITS, LONG: (3072, 1000, 100), "features.10": (128, 20, 4)}
    one = write_result(runs / "one", units, details(units), skipped=[{"name": ATTACK, "reason": ATTACK}])
    others = [write_result(runs / name, speedup=speedup) for name, speedup in (("two", 2.0), ("five", 5.0))]
    return {"one": write_report([one]), "several": write_report([one, *others])}


@pytest.fixture
def show(browser, pages) -> Callable[..., Any]:
    """``show("one", "dark", 360)``: open a page in a colour scheme at a width, with empty logs."""

    def opened(page: str, scheme: str = "light", width: int = 1100, media: str = "") -> Any:
        for log in ("browser", "performance"):
            browser.get_log(log)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wanted = {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
        browser.get(pages[page].as_uri())
        return browser

    return opened


def requests(browser: Any) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def column(browser: Any, table: str, place: int) -> list[str]:
    return browser.execute_script(
        "const rows = [...document.querySelectorAll(`${arguments[0]} tbody tr`)];"
        "return rows.map(r => r.cells[arguments[1]].innerText.trim())",
        table,
        place,
    )


def press(browser: Any, table: str, place: int) -> str | None:
    head = browser.find_elements(By.CSS_SELECTOR, f"{table} th")[place]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", head)
    head.find_element(By.TAG_NAME, "button").click()
    return head.get_attribute("aria-sort")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["one", "several"])
def test_it_loads_without_a_word_on_the_console_or_a_request(show, pages, page):
    browser = show(page)
    assert browser.get_log("browser") == []
    assert [url for url in requests(browser) if not url.startswith("data:")] == [pages[page].as_uri()]
    assert browser.execute_script("return window.hit") is None, "a layer's name has run"


@pytest.mark.slow
def test_every_figure_is_drawn(show):
    browser = show("one")
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('svg, img')].map(e => {const b = e.getBoundingClientRect();"
        "return [e.getAttribute('class'), b.width, b.height]})"
    )
    kinds = [kind for kind, _, _ in boxes]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"line": 5 + 4 + 1, "plot": 10, "sheet": 2, "photo": 1}
    assert all(wide > 50 and high > 10 for _, wide, high in boxes), boxes
    assert browser.execute_script("return [...document.images].every(i => i.naturalWidth > 0)")
    colours = browser.execute_script(
        "const style = c => getComputedStyle(document.querySelector('svg ' + c));"
        "return [style('.kept').fill, style('.track').fill, style('.curve').stroke, style('.left').fill]"
    )
    assert "none" not in colours and "rgb(0, 0, 0)" not in colours and colours[0] == colours[2] != colours[1]
    bars = browser.execute_script(
        "const wide = (s, c) => s.querySelector(c).getBoundingClientRect().width;"
        "return [...document.querySelectorAll('#widths svg')].map(s => wide(s, '.kept') / wide(s, '.track'))"
    )
    assert bars == pytest.approx([23 / 64, 1, 9 / 128, 1000 / 3072, 20 / 128], abs=0.005)


def test_tables_are_sorted_by_number_and_back(show):
    browser = show("one")
    assert column(browser, "#table table", 3) == ["23", "64", "9", "1000", "20"]
    assert press(browser, "#table table", 3) == "ascending"
    assert column(browser, "#table table", 3) == ["9", "20", "23", "64", "1000"]
    assert press(browser, "#table table", 3) == "descending"
    assert column(browser, "#table table", 3) == ["1000", "64", "23", "20", "9"]
    assert press(browser, "#table table", 0) == "ascending"
    assert column(browser, "#table table", 3) == ["23", "64", "9", "1000", "20"]
    marked = browser.find_elements(By.CSS_SELECTOR, "#table th[aria-sort]")
    assert len(marked) == 1


def test_words_are_sorted_as_people_count_and_missing_figures_come_last(show):
    browser = show("one")
    press(browser, "#table table", 1)
    assert column(browser, "#table table", 1) == ["features.0", "features.3", "features.7", "features.10", LONG]
    for _ in range(2):
        press(browser, "#table table", 8)
        assert column(browser, "#table table", 8)[-1] == "–"


def test_runs_are_sorted_and_a_link_opens_one(show):
    browser = show("several")
    press(browser, "#runs table", 2)
    assert column(browser, "#runs table", 2) == ["2.00×", "3.00×", "5.00×"]
    assert not browser.execute_script("return document.querySelector('#run-2').open")
    link = browser.find_element(By.CSS_SELECTOR, "a[href='#run-2']")
    browser.execute_script("arguments[0].click()", link)
    opened = "return document.querySelector('#run-2').open"
    assert browser.execute_async_script(
        f"const told = arguments[0]; setTimeout(() => told((() => {{{opened}}})()), 100)"
    )


def test_the_code_is_copied_or_selected(show):
    browser = show("one")
    button = browser.find_element(By.CSS_SELECTOR, "#load .copy")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    waited = "const told = arguments[0]; setTimeout(() => told([document.querySelector('#load .copy').textContent,"
    said, selected = browser.execute_async_script(waited + "String(getSelection())]), 300)")
    assert said == "Copied" or "ldrf.load(" in selected


@pytest.mark.parametrize("page", ["one", "several"])
@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_sticks_out_on_a_small_screen(show, page, width):
    browser = show(page, width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    small = browser.execute_script(
        "return [...document.querySelectorAll('svg.line')].filter(e => e.clientWidth < 120).length"
    )
    assert small == 0


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_stands_out_in_both_colour_schemes(show, scheme):
    browser = show("one", scheme)
    ask = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    paper = browser.execute_script(ask, "body", "backgroundColor")
    raised = browser.execute_script(ask, ".tile", "backgroundColor")
    assert (luminance(paper) < 0.2) == (scheme == "dark")
    for selector, kind in (("body", "color"), (".lead", "color"), ("nav a", "color"), ("svg text.rank", "fill")):
        assert contrast(browser.execute_script(ask, selector, kind), paper) >= 4.5, selector
    assert contrast(browser.execute_script(ask, ".tile .note", "color"), raised) >= 4.5


def test_it_prints_light_and_whole(show):
    browser = show("several", "dark", media="print")
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert luminance(paper) == 1.0
    assert browser.execute_script("return getComputedStyle(document.querySelector('.copy')).display") == "none"
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script("return document.querySelectorAll('details:not([open])').length") == 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script("return document.querySelectorAll('details[open]').length") == 0
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2
