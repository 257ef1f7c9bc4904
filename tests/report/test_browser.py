"""Reports in a real browser: they open without a network, are drawn, answer the mouse, and fit a phone."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

import lidfl
from lidfl import Experiment
from lidfl.report import write_report

pytest.importorskip("selenium", reason="selenium is not installed: pip install 'lidfl[dev]'")
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
CHROMEDRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and CHROMEDRIVER), reason="Chromium is not installed: apt-get install chromium chromium-driver"
)

DESKTOP, PHONE = 1280, 390
LIGHT_INK, DARK_INK = "rgb(28, 31, 36)", "rgb(230, 232, 235)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    # A container has no sandbox to offer and little shared memory.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, Service(CHROMEDRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run."""
    out = tmp_path_factory.mktemp("run") / "run"
    lidfl.run(Experiment(rounds=60, out=str(out)))
    return write_report([out])[0]


@pytest.fixture(scope="module")
def sweep_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two methods under two attacks at two Byzantine fractions."""
    folder = tmp_path_factory.mktemp("sweep")
    for fraction in (0.4, 0.6):
        for method in ("lidfl", "fedavg"):
            for attack in ("sign_flip", "gauss"):
                out = str(folder / f"{method}-{attack}-{fraction}")
                own = Experiment(method=method, attack=attack, byzantine_fraction=fraction, rounds=10, out=out)
                lidfl.run(own)
    return write_report([folder])[0]


def open_page(browser: Chrome, page: Path, *, width: int = DESKTOP, scheme: str = "light") -> None:
    """Open a page and wait until it says that all is drawn."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    preference = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", preference)
    browser.get(page.as_uri())
    until(lambda: drawn_after(browser))


def until(condition: Any, seconds: float = 20) -> Any:
    """Wait for something to be true."""
    end = monotonic() + seconds
    while not (value := condition()):
        assert monotonic() < end, "waited in vain"
        sleep(0.05)
    return value


def drawn_after(browser: Chrome) -> str | None:
    """How many milliseconds after it was opened the page was drawn."""
    value: str | None = browser.execute_script("return document.documentElement.dataset.drawn")
    return value


def charts(browser: Chrome) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, ".chart svg")


def log(browser: Chrome, kind: str) -> list[dict[str, Any]]:
    """What the browser has logged since it was last asked."""
    entries: list[dict[str, Any]] = browser.get_log(kind)  # type: ignore[no-untyped-call]
    return entries


def requested(browser: Chrome) -> set[str]:
    """Every address that the browser asked for since it was last asked."""
    messages = [json.loads(entry["message"])["message"] for entry in log(browser, "performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return {address for address in sent if not address.startswith("data:")}


@pytest.mark.parametrize("name", ["run_page", "sweep_page"])
def test_a_page_opens_without_a_network_and_without_complaint(
    browser: Chrome, name: str, request: pytest.FixtureRequest
) -> None:
    page = request.getfixturevalue(name)
    browser.get("about:blank")
    log(browser, "browser")
    requested(browser)
    open_page(browser, page)
    assert log(browser, "browser") == []
    assert requested(browser) == {page.as_uri()}


@pytest.mark.parametrize(("name", "number"), [("run_page", 9), ("sweep_page", 9)])
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_every_figure_is_drawn_and_fits_the_screen(
    browser: Chrome, name: str, number: int, width: int, request: pytest.FixtureRequest
) -> None:
    open_page(browser, request.getfixturevalue(name), width=width)
    assert len(charts(browser)) == number
    for chart in charts(browser):
        assert 250 < chart.size["width"] <= width
        assert chart.size["height"] > 60
        assert chart.find_elements(By.CSS_SELECTOR, ".role-mark path, .role-mark line")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_page_forbids_what_it_does_not_need(browser: Chrome, run_page: Path) -> None:
    """The timer is there because what the driver itself runs is exempt."""
    open_page(browser, run_page)
    browser.execute_script(
        "setTimeout(() => { try { eval('1'); window.told = 'allowed' } catch (e) { window.told = e.name } })"
    )
    assert until(lambda: browser.execute_script("return window.told")) == "EvalError"


def test_charts_follow_the_page_into_dark_mode(browser: Chrome, run_page: Path) -> None:
    for scheme, ink in [("light", LIGHT_INK), ("dark", DARK_INK)]:
        open_page(browser, run_page, scheme=scheme)
        labels = browser.find_elements(By.CSS_SELECTOR, ".role-axis-label text")
        assert {label.value_of_css_property("fill") for label in labels} == {ink}


@pytest.mark.parametrize(
    ("name", "mark", "words"),
    [
        ("sweep_page", "#heatmap-2 .role-mark.mark-rect", ["method", "attack", "mean", "runs"]),
        ("run_page", "#votes .role-mark.mark-rect", ["round", "model", "votes", "fate"]),
        ("run_page", "#lineage .role-mark.mark-rule", ["model", "made of", "life"]),
    ],
)
def test_a_mark_tells_its_numbers_when_pointed_at(
    browser: Chrome, name: str, mark: str, words: list[str], request: pytest.FixtureRequest
) -> None:
    open_page(browser, request.getfixturevalue(name))
    layer = browser.find_elements(By.CSS_SELECTOR, mark)[-1]
    target = max(layer.find_elements(By.CSS_SELECTOR, "path, line"), key=lambda found: found.size["width"])
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", target)
    ActionChains(browser).move_to_element(target).perform()
    tip = until(lambda: browser.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible"))[0]
    for word in words:
        assert word in tip.text


def test_a_reader_can_switch_methods_off_and_on(browser: Chrome, sweep_page: Path) -> None:
    open_page(browser, sweep_page)

    def lines() -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, "#curves-1-0 .mark-line path"))

    assert lines() == 2
    button = browser.find_element(By.CSS_SELECTOR, 'button.method[value="fedavg"]')
    button.click()
    until(lambda: lines() == 1)
    assert button.get_attribute("aria-pressed") == "false"
    assert "fedavg" not in browser.find_element(By.CSS_SELECTOR, "#heatmap-1-0 svg").text
    button.click()
    until(lambda: lines() == 2)


def test_a_reader_can_choose_an_attack_and_a_chapter(browser: Chrome, sweep_page: Path) -> None:
    open_page(browser, sweep_page)

    def seen() -> int:
        return sum(panel.is_displayed() for panel in browser.find_elements(By.CSS_SELECTOR, ".small .panel"))

    assert seen() == 4
    Select(browser.find_element(By.ID, "group")).select_by_visible_text("sign_flip")
    assert seen() == 2
    Select(browser.find_element(By.ID, "scene")).select_by_index(2)
    assert seen() == 1
    assert not browser.find_element(By.ID, "heatmap-1").is_displayed()
    Select(browser.find_element(By.ID, "group")).select_by_index(0)
    Select(browser.find_element(By.ID, "scene")).select_by_index(0)
    assert seen() == 4


def test_a_sweep_of_150_long_runs_opens_within_three_seconds(
    browser: Chrome, sweep_page: Path, tmp_path: Path
) -> None:
    """5 methods, 6 attacks, 5 seeds, 1,500 rounds.

    On a machine that is slow or busy, three seconds are as much longer as the page of 8 short runs takes longer
    than the second that it needs at most.
    """
    runs = {}
    for method in ("lidfl", "fedavg", "gm", "norm", "cwm"):
        for attack in ("empire", "gauss", "label_flip", "lie", "omniscient", "sign_flip"):
            for seed in range(5):
                settings = asdict(Experiment(dataset="femnist", method=method, attack=attack, seed=seed))
                curve = [(25 * step, 0.6 - 0.5 / step + seed / 100) for step in range(1, 61)]
                summary = {"test_accuracy": curve[-1][1], "deployed_accuracy": curve[-1][1]}
                runs[f"{method}-{attack}-{seed}"] = {"settings": settings, "summary": summary, "curve": curve}
    (tmp_path / "many.json").write_text(json.dumps(runs))
    (page,) = write_report([tmp_path / "many.json"])
    open_page(browser, sweep_page)
    slowness = max(1.0, float(drawn_after(browser) or "inf") / 1000)
    open_page(browser, page)
    assert float(drawn_after(browser) or "inf") < 3000 * slowness


def test_a_table_that_goes_on_beyond_a_phone_says_so_and_its_rows_keep_their_names(
    browser: Chrome, sweep_page: Path
) -> None:
    def cues() -> list[bool]:
        return [cue.is_displayed() for cue in browser.find_elements(By.CSS_SELECTOR, ".cue")]

    open_page(browser, sweep_page)
    assert cues() == [False, False]
    open_page(browser, sweep_page, width=PHONE)
    assert cues() == [True, True]
    name = browser.find_element(By.CSS_SELECTOR, ".numbers tbody th")
    before = name.location["x"]
    browser.execute_script("document.querySelector('.numbers .scroll').scrollLeft = 150")
    assert name.location["x"] == before


def test_methods_whose_lines_lie_on_each_other_are_named_at_their_ends(browser: Chrome, sweep_page: Path) -> None:
    open_page(browser, sweep_page, width=PHONE)
    first = browser.find_element(By.CSS_SELECTOR, ".sheet figure")
    assert first.get_attribute("id") == "breakdown"
    names = first.find_elements(By.CSS_SELECTOR, ".mark-text.role-mark text")
    assert sorted(text.text for text in names) == ["fedavg", "lidfl"]
    assert abs(names[0].location["y"] - names[1].location["y"]) >= 12
