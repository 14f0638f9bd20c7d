"""The viewer in a notebook's cell, in headless Chromium: two of them on one page, each ready, without an error."""

import time
from pathlib import Path

from page_browser import PageBrowser
from test_explorer_browser import browser

import rostok

__all__ = ["browser"]  # the fixture


def test_two_views_in_one_notebook(browser: PageBrowser, tiny_run: Path, tmp_path: Path) -> None:
    run = rostok.load(tiny_run)
    views = [run.attention(text) for text in ("the cat saw the dog", "the dog ran")]
    cells = [view._repr_html_() for view in views]
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{cells[0]}<p>{cells[1]}</body>", "utf-8")
    browser.errors()  # those of the tests before
    browser.driver.get(page.as_uri())
    shown = []
    for frame in browser.all("iframe"):
        browser.driver.switch_to.frame(frame)
        browser.wait("return document.documentElement.dataset.ready === '1'")
        shown.append(browser.js("return document.querySelectorAll('#strip-a .tok').length"))
        assert browser.js("return document.querySelectorAll('svg, canvas').length") > 0
        browser.driver.switch_to.default_content()
    assert shown == [len(view.tokens) for view in views]
    assert len(set(shown)) == 2
    time.sleep(0.2)
    assert browser.errors() == []


def test_the_page_in_a_frame_asks_for_nothing(browser: PageBrowser, tiny_run: Path, tmp_path: Path) -> None:
    page = tmp_path / "one.html"
    page.write_text(rostok.load(tiny_run).attention("the cat")._repr_html_(), "utf-8")
    browser.driver.get("about:blank")
    browser.driver.get_log("performance")
    browser.driver.get(page.as_uri())
    time.sleep(0.5)
    asked = [entry["message"] for entry in browser.driver.get_log("performance")]
    assert not [line for line in asked if "Network.requestWillBeSent" in line and '"url":"http' in line]
