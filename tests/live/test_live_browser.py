"""The live page in a real browser: it grows, warns, shows what nodes say as text, and fits a phone."""

import shutil
from collections.abc import Callable, Iterator
from time import monotonic, sleep

import pytest

pytest.importorskip("selenium", reason="selenium is not installed: pip install 'lidfl[dev]'")
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from lidfl.live.serving import served
from lidfl.live.watch import Watch
from tests.live.test_live import EVIL, ROLL, nodes, progress

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
CHROMEDRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and CHROMEDRIVER), reason="Chromium is not installed: apt-get install chromium chromium-driver"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, Service(CHROMEDRIVER))
    yield driver
    driver.quit()


def eventually(what: Callable[[], bool]) -> None:
    until = monotonic() + 15
    while not what():
        assert monotonic() < until, "it is not shown"
        sleep(0.1)


def text(browser: Chrome, name: str) -> str:
    return browser.find_element(By.ID, name).text


def test_the_page_grows_round_by_round_warns_and_trusts_nobody(browser: Chrome) -> None:
    watch = Watch("a federation", rounds=9, voters=3, nodes=nodes)
    with served(watch, 0) as address:
        browser.get(address)
        assert "waiting" in text(browser, "status")
        watch.observe(progress(0, 2, {0: 1, 1: 1, 2: 1}))
        eventually(lambda: text(browser, "status") == "round 1 of 9")
        assert len(browser.find_elements(By.CSS_SELECTOR, "#lineage line")) == 3
        watch.observe(
            progress(1, 1, {0: 2, 1: 0, 2: 0, 3: 0}, late=(1,), removed=(1,), refused={"garbage": 2}, roll=ROLL)
        )
        eventually(lambda: len(browser.find_elements(By.CSS_SELECTOR, "#lineage line")) == 7)
        assert "the margin has shrunk from 2 to 1" in text(browser, "alerts")
        assert "margin, estimated" in text(browser, "numbers")
        assert "margin if all newcomers lie" in text(browser, "numbers")
        assert browser.find_element(By.CSS_SELECTOR, "#numbers .bad b").text == "-1"
        rows = browser.find_elements(By.CSS_SELECTOR, "#nodes tr")
        assert "well" in rows[0].text
        assert "misbehaving" in rows[1].text
        assert EVIL.split('"')[0] in rows[1].text, "what a node says is shown, not run"
        assert browser.title == "a federation"
        assert "Lineage" in browser.find_element(By.TAG_NAME, "body").text
    eventually(lambda: "the server has ended" in text(browser, "status"))
    log: list[dict[str, str]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    assert not [entry for entry in log if "Content Security" in entry["message"]]


def test_the_page_fits_a_phone(browser: Chrome) -> None:
    watch = Watch("a federation with a long name, " * 4, rounds=900, voters=3, nodes=nodes)
    for number in range(120):
        watch.observe(progress(number, 1, {0: 1, number + 2: 2}, removed=(number + 2,), roll=ROLL))
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    with served(watch, 0) as address:
        browser.get(address)
        eventually(lambda: text(browser, "status") == "round 120 of 900")
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= 390, "only figures and tables scroll sideways, in their own frames"
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
