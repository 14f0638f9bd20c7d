"""Headless Chromium driven by selenium, for the tests of the page: one browser a module, and words to work it.

Skips where there is no Chromium with its driver (Debian: apt-get install chromium chromium-driver).
"""

# ruff: noqa: E501  (lines of JavaScript)

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,900",
    "--lang=en-US",
]


class PageBrowser:
    """A page in a real browser, and a few words to work it with."""

    def __init__(
        self, driver: Any, paths: dict[str, Path], documents: dict[str, list[dict[str, Any]]]
    ) -> None:
        self.driver, self.paths, self.documents = driver, paths, documents

    def open(self, name: str, state: str = "lang=en") -> None:
        self.driver.get("about:blank")
        self.driver.get(f"{self.paths[name].as_uri()}#{state}")
        self.wait("return document.documentElement.dataset.ready === '1'")

    def js(self, code: str, *args: Any) -> Any:
        return self.driver.execute_script(code, *args)

    def wait(self, code: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not self.js(code):
            assert time.monotonic() < end, f"waited in vain for: {code}"
            time.sleep(0.02)

    def find(self, css: str) -> Any:
        return self.driver.find_element("css selector", css)

    def all(self, css: str) -> list[Any]:
        return self.driver.find_elements("css selector", css)

    def click(self, css: str) -> None:
        self.js(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'}); e.click()",
            css,
        )

    def text(self, css: str) -> str:
        return self.js("return document.querySelector(arguments[0]).textContent", css)

    def texts(self, css: str) -> list[str]:
        return self.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", css)

    def press(self, key: str, shift: bool = False) -> None:
        """A key to what has the focus."""
        self.js("""const at = document.activeElement;
            at.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], shiftKey: arguments[1], bubbles: true, cancelable: true}))""",
                key, shift)  # fmt: skip

    def slide(self, css: str, value: float) -> None:
        self.js("""const e = document.querySelector(arguments[0]); e.focus(); e.value = arguments[1];
            e.dispatchEvent(new Event('input', {bubbles: true}))""", css, value)  # fmt: skip

    def state(self) -> dict[str, str]:
        part = self.driver.execute_async_script(  # the address follows a moment later
            "const done = arguments[0]; setTimeout(() => done(location.hash), 170)"
        ).removeprefix("#")
        return dict(pair.split("=", 1) for pair in part.split("&"))

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def readout(self, panel: str = "a") -> dict[str, float]:
        rows = self.js("""return [...document.querySelectorAll(`#readout-${arguments[0]} .reading`)].map(
            (e) => [e.dataset.part, e.querySelector('b').textContent])""", panel)  # fmt: skip
        return {part: float(value.replace(",", ".")) for part, value in rows}

    def requests(self) -> set[str]:
        """The schemes of everything that the pages asked for since the last call."""
        asked = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.add(message["params"]["request"]["url"].split(":")[0])
        return asked


def write_pages(folder: Path, pages: dict[str, str]) -> dict[str, Path]:
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """A session, closed at the end."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in [*FLAGS, f"--user-data-dir={folder / 'profile'}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options=options, service=Service(driver))
    session.set_script_timeout(20)
    try:
        yield session
    finally:
        session.quit()
        connection: Any = session.command_executor
        connection.close()  # the sockets that it kept alive
