"""The explorer in a browser: headless Chromium driven by selenium, one browser for all tests.

Skipped where there is no Chromium with its driver (Debian: apt-get install chromium chromium-driver).
The numbers on the screen are compared with the documents, and these with the reference in test_explorer.py.
"""

# ruff: noqa: E501  (lines of JavaScript)

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from explorer_toy import NASTY, TOM, settings, spaced, toy
from page_browser import PageBrowser, chromium, write_pages

from rostok.attention.page import assemble, codec, demo
from rostok.attention.reference import softmax


def documents() -> dict[str, list[dict[str, Any]]]:
    story = spaced([*TOM, "Tom", "had", "a", "red", "hat", "and", "he", "ran"])
    small = settings(1, 2, 16)
    main = [
        toy(story, text="he", look=("he", "Tom"), steps=[(1, 0), (0, 1)]),
        toy(story, 1, small, text="he", run="gpt-1", look=("he", "Tom"), steps=[]),
        toy(NASTY, 2, text="own"),
    ]
    same = [" no"] * 511
    return {
        "main": main,
        "demo": demo.demo_documents(),
        "one": [toy([])],
        "same": [toy(same, config=settings(1, 2), steps=[])],
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageBrowser]:
    folder, docs = tmp_path_factory.mktemp("pages"), documents()
    with chromium(folder) as session:
        yield PageBrowser(session, write_pages(folder, {n: assemble.page(d) for n, d in docs.items()}), docs)


def row_of(doc: dict[str, Any], layer: int, head: int, t: int) -> np.ndarray:
    return codec.decode(doc)[layer, head, t, : t + 1]


# ---- 1: opens quietly ----


def test_opens_without_errors_or_requests(browser: PageBrowser) -> None:
    browser.driver.get_log("performance")
    for name in browser.paths:
        browser.open(name)
    assert browser.errors() == []
    asked = []
    for entry in browser.driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"].split(":")[0])
    # a browser's own pages (chrome://) may open beside ours; nothing may ask the network
    assert set(asked) <= {"file", "about", "blob", "data", "chrome"}


def test_policy_forbids_the_network(browser: PageBrowser) -> None:
    browser.open("main")
    tried = browser.driver.execute_async_script("""const done = arguments[0];
        fetch('https://example.invalid/').then(() => done('open'), (e) => done(String(e)))""")
    assert "Failed to fetch" in tried
    assert any("Content Security Policy" in line for line in browser.errors())


# ---- 2-5: the viewer ----


def test_click_on_a_token_shows_its_row(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&l=2&h=1")
    doc = browser.documents["main"][0]
    for t in (0, 1, 7, doc["text"]["T"] - 1):
        browser.click(f"#tok-a-{t}")
        row = row_of(doc, 1, 0, t)
        got = browser.readout()
        want = {
            "start": row[0],
            "self": row[t] if t else 0,
            "previous": row[t - 1] if t > 1 else 0,
            "future": 0,
            "sum": 1,
        }
        for part, value in want.items():
            assert got[part] == pytest.approx(value, abs=0.00051), (t, part)
        assert got["other"] == pytest.approx(1 - want["start"] - want["self"] - want["previous"], abs=0.00051)
        shown = browser.js("""return [...document.querySelectorAll('[data-panel=a] .keys tbody tr')].map(
            (r) => [Number(r.dataset.key), r.querySelector('.n').textContent])""")  # fmt: skip
        assert len(shown) == min(8, t + 1)
        for key, value in shown:
            assert float(value) == pytest.approx(row[key], abs=5.1e-5)
    browser.js("document.querySelector('[data-panel=a] .full').open = true")
    browser.wait("return document.querySelectorAll('.full tbody tr').length > 0")
    cells, row = browser.texts(".full tbody td:last-child"), row_of(doc, 1, 0, doc["text"]["T"] - 1)
    for cell, weight in zip(
        cells, row, strict=True
    ):  # the eight largest are exact, the others coded in a byte
        digits = 1e-4 if "≈" not in cell else 0.0051
        assert float(cell.removeprefix("≈ ")) == pytest.approx(weight, abs=digits)
    assert sum("≈" not in cell for cell in cells) == 8


def test_layers_and_heads_by_mouse_and_keys(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&l=1&h=1&t=5")
    doc = browser.documents["main"][0]
    browser.click('[data-panel=a] [aria-label="Layer"] [data-value="1"]')
    browser.click('[data-panel=a] [aria-label="Head"] [data-value="1"]')
    assert browser.readout()["start"] == pytest.approx(row_of(doc, 1, 1, 5)[0], abs=0.00051)
    browser.js("document.getElementById('tok-a-5').focus()")
    for key, state in [
        ("ArrowUp", {"l": "1"}), ("[", {"h": "1"}), ("2", {"h": "2"}), ("]", {"h": "1"}), ("ArrowDown", {"l": "2"}),
        ("ArrowRight", {"t": "6"}), ("ArrowLeft", {"t": "5"}), ("Home", {"t": "0"}), ("End", {"t": str(doc["text"]["T"] - 1)}),
    ]:  # fmt: skip
        browser.press(key)
        assert browser.state().items() >= state.items(), key
    assert (
        browser.js("return document.activeElement.id") == f"tok-a-{doc['text']['T'] - 1}"
    )  # the focus came along
    browser.press("Escape")
    browser.js(
        "document.getElementById('tok-a-3').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"
    )
    assert browser.state().items() >= {"t": "3", "pin": "0"}.items()
    browser.press("Enter")
    browser.js(
        "document.getElementById('tok-a-4').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"
    )
    assert browser.state()["t"] == "3"


def test_thumbnails_open_their_head(browser: PageBrowser) -> None:
    browser.open("main")
    browser.wait("return document.querySelectorAll('.thumb').length === 4")
    browser.click('.thumb[data-l="1"][data-h="1"]')
    assert browser.state().items() >= {"l": "2", "h": "2"}.items()
    assert browser.js("return document.querySelector('.thumb[aria-selected=true]').dataset.l") == "1"
    doc = browser.documents["main"][0]
    for sort in ("label", "previous", "entropy"):
        browser.js("""const s = document.querySelector('#heads-controls select'); s.value = arguments[0];
            s.dispatchEvent(new Event('change'))""", sort)  # fmt: skip
        order = browser.js(
            "return [...document.querySelectorAll('.thumb')].map((b) => [Number(b.dataset.l), Number(b.dataset.h)])"
        )
        if sort != "label":
            scores = {(h["layer"], h["head"]): h["scores"][sort]["v"] for h in doc["heads"]}
            assert [scores[tuple(o)] for o in order] == sorted(scores.values(), reverse=True)
    assert browser.js("return document.querySelector('.thumb canvas').width") == min(64, doc["text"]["T"])


def test_the_future_is_closed(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&t=6")
    browser.wait("return document.querySelectorAll('[data-panel=a] .arcs path').length > 0")
    assert browser.js(
        "return [...document.querySelectorAll('[data-panel=a] .arcs path')].every((p) => Number(p.dataset.key) <= 6)"
    )
    states = browser.js("""return [...document.querySelectorAll('#strip-a .tok')].map((tok) => [tok.classList.contains('future'),
        getComputedStyle(tok).backgroundImage.includes('gradient'), tok.querySelector('small').textContent])""")
    for t, (future, hatched, below) in enumerate(states):
        assert future == hatched == (t > 6)
        assert (below == "–") == (t > 6)


def test_map_of_the_head(browser: PageBrowser) -> None:
    """The colours of the canvas grow with the weight, and a click on a row chooses its token."""
    browser.open("main", "lang=en&l=2&h=1&t=20")
    doc = browser.documents["main"][0]
    T = doc["text"]["T"]
    pixels = browser.js("""const c = document.getElementById('map-a'), n = arguments[0], cell = c.width / n, pen = c.getContext('2d');
        return Array.from({length: n}, (_, q) => Array.from({length: q + 1}, (__, k) =>
            pen.getImageData((k + .5) * cell, (q + .5) * cell, 1, 1).data[0]))""", T)  # fmt: skip
    weights = codec.decode(doc)[1, 0]
    pairs = [(weights[q, k], pixels[q][k]) for q in range(T) if q != 20 for k in range(q + 1)]
    pairs.sort()
    reds = [red for _, red in pairs]
    assert np.corrcoef(np.sqrt([w for w, _ in pairs]), reds)[0, 1] < -0.97
    box = browser.js(
        "const r = document.getElementById('map-a').getBoundingClientRect(); return [r.left, r.top, r.width]"
    )
    browser.js("""const [x, y, w] = arguments[0]; document.getElementById('map-a').dispatchEvent(new MouseEvent('click',
        {bubbles: true, clientX: x + w * .1, clientY: y + w * (9.5 / arguments[1])}))""", box, T)  # fmt: skip
    assert browser.state()["t"] == "9"
    assert "Layer 2, head 1" in browser.find("#map-a").get_attribute("aria-label")


def test_losses_under_the_tokens(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&under=p&t=9")
    losses = browser.documents["main"][0]["losses"]
    shown = browser.texts("#strip-a small")
    assert shown[0] == ""
    for t, text in enumerate(shown[1:], 1):
        assert float(text.rstrip("%")) == pytest.approx(
            100 * losses["p"][t], abs=0.51 if losses["p"][t] >= 0.1 else 0.051
        )
    facts = browser.texts("#token-a .mini dd")
    assert facts[1] == str(losses["rank"][9])
    assert float(facts[2].split()[0]) == pytest.approx(losses["nll"][9], abs=0.0051)
    assert facts[3] == {"new": "first time", "seen": "seen", "pair": "seen pair"}[losses["class"][9]]
    rows = browser.js(
        "return [...document.querySelectorAll('#seen tr[data-class]')].map((r) => [r.dataset.run, r.dataset.class, r.children[1].textContent])"
    )
    for doc in browser.documents["main"][:2]:
        for kind, row in doc["losses"]["summary"].items():
            assert [doc["model"]["name"], kind, str(row["n"])] in rows


def test_two_heads_and_two_runs(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&t=7&l=1&h=1")
    browser.click("#compare")
    browser.wait(
        "return document.querySelectorAll('.panel').length === 2 && document.querySelector('#readout-b b')"
    )
    first, second = browser.documents["main"][:2]
    state = browser.state()
    assert state["run2"] == "gpt-1"
    assert browser.readout("a")["start"] == pytest.approx(row_of(first, 0, 0, 7)[0], abs=0.00051)
    assert browser.readout("b")["start"] == pytest.approx(
        row_of(second, 0, int(state["h2"]) - 1, 7)[0], abs=0.00051
    )
    browser.click("#tok-b-4")
    assert browser.readout("a")["start"] == pytest.approx(row_of(first, 0, 0, 4)[0], abs=0.00051)


# ---- 6: the step cards ----


def test_step_cards(browser: PageBrowser) -> None:
    doc = browser.documents["main"][0]
    browser.open("main", "lang=en&l=2&h=1&t=12")
    browser.wait("return document.querySelectorAll('.step').length === 6")
    row = row_of(doc, 1, 0, 12)
    weights = browser.js(
        "return [...document.querySelectorAll('[data-step=\"5\"] tbody tr')].map((r) => [Number(r.dataset.key), r.lastChild.textContent])"
    )
    for key, text in weights:
        assert float(text) == pytest.approx(row[key], abs=2e-3)
    scaled = browser.js(
        "return [...document.querySelectorAll('[data-step=\"4\"] tbody tr')].map((r) => Number(r.lastChild.textContent.replace('−', '-')))"
    )
    by_hand = softmax(np.array(scaled)) * sum(row[key] for key, _ in weights)
    np.testing.assert_allclose(by_hand, [row[key] for key, _ in weights], atol=3e-3)
    assert "largest difference" in browser.text(".check")
    browser.click('.thumb[data-l="1"][data-h="1"]')
    # no numbers of that head here: another one is shown
    browser.wait("return document.querySelector('.steps-note')")
    assert "Layer 2, head 1" in browser.text(".steps-for")
    browser.click(".steps-note button:last-child")
    browser.wait("return !document.querySelector('.steps-note')")
    assert browser.state().items() >= {"l": "1", "h": "2"}.items()


# ---- 7-10: the playgrounds ----


def plane(browser: PageBrowser) -> tuple[list[float], list[float]]:
    rows = browser.js(
        "return [...document.querySelectorAll('#plane-out tr[data-row]')].map((r) => [...r.querySelectorAll('.n')].map((c) => c.textContent))"
    )
    return [float(s.replace("−", "-")) for s, _ in rows], [float(w.rstrip("%")) for _, w in rows]


def test_plane_experiments(browser: PageBrowser) -> None:
    browser.open("demo")
    assert plane(browser)[0] == [2.87, -0.77, -2.52, -0.56]
    browser.click("[data-key=x-zero]")
    assert plane(browser)[1] == [25, 25, 25, 25]
    browser.click("[data-key=x-start]")
    browser.slide("#sharp", 2)
    assert plane(browser)[1][0] == 99.8
    browser.click("[data-key=x-nobody]")
    scores, weights = plane(browser)
    assert scores == [-3, -5, -6, -9]
    assert weights == [84.2, 11.4, 4.2, 0.2]
    assert browser.text("#plane-sum") == "100.0%"
    browser.click("[data-key=x-long]")
    assert plane(browser)[1][0] == 99.8
    browser.click("#norm")
    long = plane(browser)
    assert "changes nothing" in browser.text("#plane-note")
    browser.click("[data-key=x-start]")
    assert plane(browser) == long
    browser.click("#norm")
    browser.js("document.querySelector('[data-key=h-1]').focus()")
    browser.press("ArrowRight")
    assert plane(browser)[0][0] == pytest.approx(1.5 * 1.6 + 0.7 * 0.9, abs=0.006)
    browser.press("ArrowLeft", shift=True)
    assert plane(browser)[0][0] == pytest.approx(0.5 * 1.6 + 0.7 * 0.9, abs=0.006)
    assert browser.js("return document.activeElement.dataset.key") == "h-1"


def test_several_tokens_ask_together(browser: PageBrowser) -> None:
    """Shift and a click: the mean over their rows; the arrows with Shift too. The address keeps them."""
    browser.open("main", "lang=en&l=2&h=1&t=6")
    doc = browser.documents["main"][0]
    browser.js(
        "document.querySelector('#tok-a-9').dispatchEvent(new MouseEvent('click', {bubbles: true, shiftKey: true}))"
    )
    assert browser.state()["also"] == "9"
    assert browser.js(
        "return [...document.querySelectorAll('#strip-a [aria-selected=true]')].map((e) => e.dataset.t)"
    ) == ["6", "9"]
    rows = [row_of(doc, 1, 0, t) for t in (6, 9)]
    assert browser.readout()["start"] == pytest.approx(np.mean([row[0] for row in rows]), abs=0.002)
    mean = rows[1] / 2
    mean[:7] += rows[0] / 2
    shown = browser.js(
        "return [...document.querySelectorAll('.keys tr[data-key]')].map((r) => [r.dataset.key, r.querySelector('.n').textContent])"
    )
    for key, weight in shown:
        assert float(weight) == pytest.approx(mean[int(key)], abs=0.002)
    assert "and 1 more" in browser.text(".keys h3")
    browser.js("document.querySelector('#tok-a-6').focus()")
    browser.press("ArrowRight", shift=True)
    assert browser.state().items() >= {"t": "7", "also": "6_9"}.items()
    browser.click("#tok-a-3")
    assert "also" not in browser.state()


def test_the_start_token_can_be_hidden(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&l=2&h=1&t=9")
    row = row_of(browser.documents["main"][0], 1, 0, 9)
    browser.click("#hide")
    shown = dict(
        browser.js(
            "return [...document.querySelectorAll('.keys tr[data-key]')].map((r) => [r.dataset.key, Number(r.querySelector('.n').textContent)])"
        )
    )
    assert "0" not in shown
    for key, weight in shown.items():
        assert weight == pytest.approx(row[int(key)] / (1 - row[0]), abs=0.004)
    assert browser.readout()["start"] == pytest.approx(row[0], abs=0.002)  # the shares stay what they are
    assert browser.state()["hide"] == "1"


def test_thumbnails_and_steps_of_the_second_run(browser: PageBrowser) -> None:
    """The second panel opens on the head that tells most; the bar under the header chooses of which panel all else is."""
    browser.open("main", "lang=en")
    browser.click("#compare")
    browser.wait("return document.querySelectorAll('.thumb').length === 4")
    second = browser.documents["main"][1]
    order = ["induction", "previous", "same", "start", "self", "other"]
    best = min(
        second["heads"],
        key=lambda h: (order.index(h["label"]), -(h["scores"].get(h["label"]) or {"v": 0})["v"]),
    )
    browser.wait(f"return location.hash.includes('h2={best['head'] + 1}')")
    browser.click("#focus [data-value=b]")
    browser.wait("return document.querySelectorAll('.thumb').length === 2")
    assert browser.js("return document.querySelector('.thumb[aria-selected=true]').dataset.h") == str(
        best["head"]
    )
    browser.click(".thumb[data-h='1']")
    assert browser.state().items() >= {"of": "b", "h2": "2", "l2": "1"}.items()
    assert browser.errors() == []


def test_a_link_shows_the_same_playgrounds(browser: PageBrowser) -> None:
    """The arrangement of the plane, the closed cells of the mask and the answers are in the address."""
    browser.open("demo")
    browser.js("document.querySelector('[data-key=h1]').focus()")
    browser.press("ArrowRight", shift=True)
    for key in ("m0-1", "m3-4", "quiz-shuffle-1"):
        browser.click(f"[data-key={key}]")
    looks = """return [document.querySelector('#plane-svg').outerHTML, [...document.querySelectorAll('.cell')].map((c) => c.className + c.textContent),
        document.querySelector('#quiz-body').innerHTML]"""
    before, state = browser.js(looks), browser.state()
    assert state.items() >= {"mask": "2.0.0.16.0.0", "quiz": "-1"}.items()
    browser.open("demo", "&".join(f"{name}={value}" for name, value in state.items()))
    assert browser.js(looks) == before
    browser.open("demo", "lang=en&plane=nobody&mask=oops&quiz=99")
    assert plane(browser)[0] == [-3, -5, -6, -9]
    assert not browser.all(".cell.shut, .option.right, .option.wrong")
    assert browser.errors() == []


def test_plane_by_mouse(browser: PageBrowser) -> None:
    from selenium.webdriver import ActionChains

    browser.open("demo")
    browser.js("document.getElementById('plane-svg').scrollIntoView({block: 'center'})")
    ball = browser.find("[data-key=h1] .dot")
    before = plane(browser)[0][1]
    ActionChains(browser.driver).click_and_hold(ball).move_by_offset(60, 0).release().perform()
    assert plane(browser)[0][1] > before + 0.5
    assert browser.errors() == []


def test_mask_builder(browser: PageBrowser) -> None:
    browser.open("demo")
    browser.click("#mask-check")
    assert "still sees the future" in browser.text("#mask-note")
    browser.click("[data-key=m2-2]")
    browser.click("#mask-check")
    assert "diagonal stays open" in browser.text("#mask-note")
    browser.click("[data-key=m2-2]")
    for i in range(6):
        for j in range(i + 1, 6):
            browser.click(f"[data-key=m{i}-{j}]")
    browser.click("#mask-check")
    assert browser.text("#mask-note").startswith("Right.")
    for i in range(6):
        row = [int(c) for c in browser.texts(f"[data-key^='m{i}-']") if c]
        assert len(row) == i + 1
        assert sum(row) == pytest.approx(100, abs=3)
    browser.click("[data-key=m4-1]")
    browser.click("#mask-check")
    assert "some of the past" in browser.text("#mask-note")
    browser.click("[data-key=m0-0]")
    assert "NaN" in browser.text("#mask-note")
    assert browser.text("[data-key=m0-0]") == "NaN"
    counts = dict(
        browser.js(
            "return [...document.querySelectorAll('#counts [data-count]')].map((d) => [d.dataset.count, d.querySelector('dd').textContent])"
        )
    )
    assert counts == {
        "all": "262,144",
        "kept": "131,328",
        "masked": "130,816",
        "total": "1,572,864",  # in the six heads of the demo
        "twice": "× 4",
    }
    browser.slide("#length", 8)
    assert browser.text("[data-count=kept] dd") == "36"


def test_window_against_attention(browser: PageBrowser) -> None:
    browser.open("demo")
    assert "No: it stands 30 tokens back" in browser.text("#window-note")
    assert browser.text("[data-cost=window] b") == "147,456"
    assert browser.text("[data-cost=attention] b") == "589,824"
    assert len(browser.all(".wtok.inside")) == 8
    for width, answer in [(29, "No"), (30, "Yes"), (512, "Yes")]:
        browser.slide("#width", width)
        assert f"in the window? {answer}" in browser.text("#window-note")
    assert browser.text("[data-cost=window] b") == "9,437,184"
    assert browser.state()["W"] == "512"
    browser.click("[data-key=w3]")
    assert "not been said yet" in browser.text("#window-note")


def test_root_of_d(browser: PageBrowser) -> None:
    browser.open("demo", "lang=en&d=64")
    browser.wait("return document.querySelector('#scale-charts')")

    def measure(side: str, name: str) -> float:
        return float(browser.text(f"[data-side={side}] [data-measure={name}] dd").split()[0].rstrip("%"))

    assert measure("raw", "sd") == pytest.approx(8, rel=0.05)
    assert measure("scaled", "sd") == pytest.approx(1, rel=0.05)
    assert measure("raw", "top") == pytest.approx(80, abs=5)  # 0.799 and 0.566 nats with normal numbers
    assert measure("raw", "entropy") == pytest.approx(0.566, abs=0.15)
    assert measure("scaled", "entropy") == pytest.approx(3.697, abs=0.05)
    browser.slide("#size", 9)
    assert browser.state()["d"] == "512"
    assert measure("raw", "sd") == pytest.approx(22.6, rel=0.05)
    assert measure("raw", "entropy") == pytest.approx(0.168, abs=0.1)


def test_quizzes(browser: PageBrowser) -> None:
    browser.open("demo")
    for name in ("negative", "shuffle"):
        browser.click(f"[data-key=quiz-{name}-0]")
        assert browser.text(f"[data-quiz={name}] .explain").startswith("Not quite.")
        browser.click(f"[data-key=quiz-{name}-1]")
        assert browser.text(f"[data-quiz={name}] .explain").startswith("Yes.")
    assert browser.texts("[data-quiz=negative] td:last-child") == ["84.20%", "11.40%", "4.19%", "0.21%"]
    assert "0.659001" in browser.text("[data-example=S2-02]")
    assert browser.text("[data-program=one] samp").startswith("scores")


# ---- 11-13: language, keyboard, labels ----


def words(browser: PageBrowser) -> list[str]:
    return browser.js("""const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) { const n = walk.currentNode, p = n.parentElement;
            if (!p.closest('script, noscript, #old, bdi, [translate=no], #langs, .wtok, .top, .side') && n.textContent.trim()) out.push(n.textContent); }
        for (const e of document.querySelectorAll('[aria-label]')) out.push(e.getAttribute('aria-label'));
        return out""")


@pytest.mark.parametrize("page", ["main", "demo"])
def test_russian_is_whole(browser: PageBrowser, page: str) -> None:
    """In English no Cyrillic but that of the examples; in Russian none of the English strings, in no label either."""
    browser.open(page)
    browser.wait("return document.querySelector('.thumb') && document.querySelector('#scale-charts')")
    assert browser.js("return document.documentElement.lang") == "en"
    examples = re.compile("кошка|пьёт|молоко|Русский")
    assert [w for w in words(browser) if re.search("[а-яё]", w) and not examples.search(w)] == []
    browser.click('#langs [data-lang="ru"]')
    browser.wait("return /[а-я]/.test(document.querySelector('.thumb-kind').textContent + '')")
    browser.wait("return /[а-я]/.test(document.querySelector('#scale-charts .small').textContent)")
    browser.wait("return /[а-я]/.test(document.querySelector('.step h3')?.textContent ?? '')")
    strings = assemble.strings()
    english = {text for key, text in strings["en"].items() if text != strings["ru"][key] and len(text) > 2}
    shown = words(browser)
    assert english.isdisjoint(w.strip() for w in shown)
    assert len([w for w in shown if re.search("[а-яё]", w)]) > 150
    assert browser.js("return [document.documentElement.lang, document.title]") == [
        "ru",
        "Куда смотрит модель? · Rostok",
    ]
    assert browser.state()["lang"] == "ru"
    assert browser.errors() == []


def test_keys_leave_fields_alone(browser: PageBrowser) -> None:
    browser.open("main")
    browser.js("document.querySelector('#viewer-controls select').focus()")
    browser.press("l")
    assert browser.js("return document.documentElement.lang") == "en"
    browser.js("document.activeElement.blur()")
    browser.press("l")
    browser.wait("return document.documentElement.lang === 'ru'")
    browser.press("l")
    browser.press("t")
    browser.wait("return document.querySelector('.full').open")
    browser.press("e")
    assert browser.state()["ex"] == "own"
    browser.press("c")
    assert browser.state()["cmp"] == "1"
    browser.press("?")
    assert browser.js("return document.querySelector('#keys').open")
    browser.click("#keys-close")
    assert not browser.js("return document.querySelector('#keys').open")


def test_keys_by_their_place_and_off(browser: PageBrowser) -> None:
    """Under a Russian layout L is д; and single keys can be switched off, for people who speak to the computer."""
    typed = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'д', code: 'KeyL', bubbles: true, cancelable: true}))"
    browser.open("main")
    browser.js(typed)
    browser.wait("return document.documentElement.lang === 'ru'")
    browser.js("document.querySelector('#keys-on').click()")
    browser.js(typed)
    assert browser.state().items() >= {"lang": "ru", "keys": "0"}.items()


def test_exports_of_heads_and_numbers(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&l=2&h=1&cmp=1&run2=rostok")
    browser.wait(
        "return document.querySelector('#heads-controls .save') && document.querySelector('#readout-b b')"
    )
    browser.js("""window.saved = []; HTMLAnchorElement.prototype.click = function () { if (this.download) window.saved.push([this.download, this.href]); };
        const make = URL.createObjectURL; window.blobs = []; URL.createObjectURL = (b) => { window.blobs.push(b); return make(b); };
        document.querySelector('#heads-controls .save button').click(); document.querySelector('#viewer .save button').click();
        [...document.querySelectorAll('#viewer-controls button')].pop().click()""")
    sizes = []
    for name, href in browser.js("return window.saved")[:2]:
        assert name.endswith(".svg")
        sizes.append(
            browser.driver.execute_async_script(
                "const [href, done] = arguments, i = new Image(); i.onload = () => done([i.width, i.height]); i.onerror = () => done(null); i.src = href",
                href,
            )
        )
    assert sizes[0] is not None
    assert sizes[1][1] > 1200  # both panels, one under the other
    csv = browser.driver.execute_async_script(
        "const done = arguments[0]; window.blobs.pop().text().then(done)"
    )
    rows = [line.split(",") for line in csv.strip().split("\r\n")]
    doc = browser.documents["main"][0]
    T = doc["text"]["T"]
    assert len(rows) == 1 + T * (T + 1) // 2
    last = rows[-1]
    assert last[:2] == [str(T - 1), str(T - 1)]
    assert float(last[-2]) == pytest.approx(row_of(doc, 1, 0, T - 1)[-1], abs=1e-5)


def test_tab_reaches_everything(browser: PageBrowser) -> None:
    """Every control can have the focus and shows it; a group of many (strip, grid, mask) is one stop."""
    browser.open("main")
    browser.wait("return document.querySelector('.thumb') && document.querySelector('#scale-charts')")
    lost = browser.js("""return [...document.querySelectorAll('main button, main input, main select, main a, main summary, header button, header a, .handle')]
        .filter((e) => e.checkVisibility() && e.tabIndex < 0 && !e.closest('[role=grid], [role=listbox], .wstrip')).map((e) => e.outerHTML.slice(0, 90))""")
    assert lost == []
    for group in (".strip", ".thumbs", ".mask-grid", ".wstrip"):
        assert (
            browser.js('return document.querySelectorAll(`${arguments[0]} [tabindex="0"]`).length', group)
            == 1
        ), group
    from selenium.webdriver import Keys

    browser.js("""document.getElementById('main').focus(); window.walked = [];
        addEventListener('focusin', ({target: e}) => window.walked.push([e.id || e.dataset.key || e.dataset.value || e.textContent.slice(0, 30),
            getComputedStyle(e).outlineStyle !== 'none' || e.matches('.handle')]))""")
    browser.driver.switch_to.active_element.send_keys(Keys.TAB * 70)
    walked = browser.js("return window.walked")
    seen, plain = {name for name, _ in walked}, [name for name, ring in walked if not ring]
    assert {"compare", "sharp", "norm", "h0", "h-1", "mask-check", "length", "size", "width"} <= seen
    assert plain == []


CHECKS = """
const out = [], seen = new Set(), visible = (e) => e.checkVisibility();
const name = (e) => (e.getAttribute('aria-label') || (e.getAttribute('aria-labelledby') || '').split(' ').map((i) => document.getElementById(i)?.textContent ?? '').join('')
    || (e.labels && [...e.labels].map((l) => l.textContent).join('')) || e.textContent || e.title || '').trim();
for (const e of document.querySelectorAll('[id]')) { if (seen.has(e.id)) out.push('id twice: ' + e.id); seen.add(e.id); }
for (const e of document.querySelectorAll('button, input, select, summary, [role=img], [role=grid], [role=listbox], [role=option], [role=group], [role=button], section'))
    if (visible(e) && !name(e)) out.push('no name: ' + e.outerHTML.slice(0, 100));
for (const e of document.querySelectorAll('[role=option]')) if (!e.closest('[role=listbox]')) out.push('option alone');
for (const e of document.querySelectorAll('[role=gridcell]')) if (!e.closest('[role=row]')?.closest('[role=grid]')) out.push('cell alone');
for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) out.push('img');
let level = 0;
for (const h of document.querySelectorAll('main h1, main h2, main h3')) { const l = Number(h.tagName[1]); if (l > level + 1) out.push('heading ' + h.textContent); level = l; }
if (document.querySelectorAll('h1').length !== 1) out.push('h1');
for (const tag of ['header', 'nav', 'main', 'footer']) if (document.querySelectorAll(tag).length !== 1) out.push(tag);
const parse = (c) => { const m = c.match(/[\\d.]+/g)?.map(Number) ?? [0, 0, 0, 0]; return c.startsWith('color(') ? [m[0] * 255, m[1] * 255, m[2] * 255, m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1]; };
const light = (c) => { const [r, g, b] = c.map((x) => ((x /= 255) <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4)); return .2126 * r + .7152 * g + .0722 * b; };
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const p = walk.currentNode.parentElement;
  if (!walk.currentNode.textContent.trim() || !visible(p) || p.closest('script, .sr, .skip, svg, dialog, header, .tok small')) continue;
  let e = p, back = null;
  while (e) { const s = getComputedStyle(e), c = parse(s.backgroundColor); if (s.backgroundImage !== 'none' && e.tagName !== 'SELECT') { back = null; break; } if (c[3] === 1) { back = c; break; } e = e.parentElement; }
  if (!back) continue;
  const [x, y] = [light(parse(getComputedStyle(p).color)), light(back)].sort((a, b) => b - a), ratio = (x + .05) / (y + .05);
  if (ratio < 4.5) out.push('contrast ' + ratio.toFixed(2) + ': ' + p.className + ' ' + walk.currentNode.textContent.slice(0, 30));
}
return [...new Set(out)];
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", ["main", "demo"])
def test_labels_roles_and_contrast(browser: PageBrowser, page: str, theme: str) -> None:
    browser.open(page, f"lang=ru&cmp=1&theme={theme}")
    browser.wait("return document.querySelector('.thumb') && document.querySelector('#scale-charts')")
    assert browser.js(CHECKS) == []


# ---- 14: any text is harmless; the shortest and the dullest ----


def test_nasty_text_is_only_text(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&ex=own")
    browser.wait(
        "return document.querySelectorAll('#strip-a .tok').length === arguments[0]".replace(
            "arguments[0]", str(len(NASTY) + 1)
        )
    )
    shown = browser.texts("#strip-a bdi")
    assert shown[1] == NASTY[0]
    assert shown[2] == NASTY[1].strip()
    assert shown[7:13] == ["⏎", "⇥", "␣", "␀", "␛", "⟨202E⟩abc"]
    assert browser.js("return document.querySelectorAll('main img, main script').length") == 0
    assert "broken" not in browser.js("return document.title")
    for t in (1, 2, 7, 12, len(NASTY)):
        browser.click(f"#tok-a-{t}")
        assert browser.readout()["sum"] == 1
    assert browser.errors() == []


def test_one_token(browser: PageBrowser) -> None:
    browser.open("one")
    assert browser.readout() == {"start": 1, "previous": 0, "self": 0, "other": 0, "future": 0, "sum": 1}
    browser.js("document.getElementById('tok-a-0').focus()")
    for key in ("ArrowRight", "ArrowLeft", "End", "]", "ArrowDown"):
        browser.press(key)
    assert browser.errors() == []


def test_512_equal_tokens(browser: PageBrowser) -> None:
    browser.open("same", "lang=en&l=1&h=1")
    browser.click("#tok-a-511")
    got, row = browser.readout(), row_of(browser.documents["same"][0], 0, 0, 511)
    assert got["sum"] == 1
    assert got["self"] == pytest.approx(row[511], abs=0.00051)
    assert len(browser.all("#strip-a .tok")) == 512
    assert browser.errors() == []


# ---- 16-17: every width, the address, files ----


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_nothing_sticks_out(browser: PageBrowser, width: int) -> None:
    try:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for page, state in [("main", "lang=ru&cmp=1&ex=own"), ("demo", "lang=ru")]:
            browser.open(page, state)
            browser.wait("return document.querySelector('.thumb') && document.querySelector('#scale-charts')")
            assert browser.js("return document.documentElement.scrollWidth") <= width
            wide = browser.js("""const hidden = (e) => { for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== 'visible') return true; return false; };
                return [...document.querySelectorAll('main *')].filter((e) => e.checkVisibility() && !e.closest('svg, .sr') && !hidden(e)
                && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.className + ' ' + e.textContent.slice(0, 40))""")
            assert wide == []
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_address_restores_the_state(browser: PageBrowser) -> None:
    state = {"lang": "ru", "theme": "dark", "ex": "he", "l": "2", "h": "2", "t": "11", "cmp": "1", "run2": "gpt-1", "h2": "2", "under": "rank",
             "sort": "start", "sharp": "2.5", "norm": "1", "d": "16", "T": "100", "W": "40", "wt": "20"}  # fmt: skip
    browser.open("main", "&".join(f"{k}={v}" for k, v in state.items()))
    browser.wait("return document.querySelector('#readout-b b')")
    browser.click("#tok-a-11")  # writes the address
    assert browser.state().items() >= state.items()
    assert browser.find("#sharp").get_attribute("value") == "2.5"
    assert browser.find("#norm").is_selected()
    assert browser.text("#tok-a-11 small") == str(browser.documents["main"][0]["losses"]["rank"][11])
    assert browser.js("return document.documentElement.dataset.theme") == "dark"
    browser.open(
        "main", "l=99&h=-1&t=abc&ex=nothing&d=3&W=0&T=9999&lang=xx&sort=%E0%A4&sharp=x"
    )  # nonsense is harmless
    assert browser.readout()["sum"] == 1
    assert browser.errors() == []


def test_view_as_svg_and_png(browser: PageBrowser) -> None:
    import base64
    import struct
    from xml.etree import ElementTree

    browser.open("main", "lang=en&ex=own&t=9")
    browser.js("""window.saved = []; HTMLAnchorElement.prototype.click = function () { if (this.download) window.saved.push([this.download, this.href]); };
        document.querySelector('#viewer .save button').click(); document.querySelectorAll('#viewer .save button')[1].click();
        document.querySelector('#plane-body .save button').click()""")
    browser.wait("return window.saved.length === 3")
    read = """const done = arguments[1]; const image = new Image(); image.onload = () => { const c = document.createElement('canvas'); c.width = image.width; c.height = image.height;
        const pen = c.getContext('2d'); pen.drawImage(image, 0, 0); done([image.width, image.height, [...pen.getImageData(3, 3, 1, 1).data]]); }; image.src = arguments[0]"""
    for name, href in browser.js("return window.saved"):
        width, height, pixel = browser.driver.execute_async_script(read, href)
        assert pixel == [255, 255, 255, 255]
        assert (width, height) == (
            (960, height)
            if name.endswith("svg") and "plane" not in name
            else (1920, height)
            if name.endswith("png")
            else (460, 460)
        )
    dark = """const [href, box, done] = arguments, image = new Image(); image.onload = () => { const c = document.createElement('canvas'); c.width = image.width; c.height = image.height;
        const pen = c.getContext('2d'); pen.drawImage(image, 0, 0); const d = pen.getImageData(...box).data; let n = 0;
        for (let i = 0; i < d.length; i += 4) if (d[i] + d[i + 1] + d[i + 2] < 240) n++; done(n); }; image.src = href"""
    plane_picture = next(href for name, href in browser.js("return window.saved") if "plane" in name)
    box = browser.js(
        "const b = [...document.querySelectorAll('#plane-svg .tag')].find((t) => t.textContent === 'red').getBBox(); return [b.x, b.y, b.width, b.height].map(Math.round)"
    )
    assert browser.driver.execute_async_script(dark, plane_picture, box) > 40  # the halo is under the letters
    svg = browser.js("return new XMLSerializer().serializeToString(document.querySelector('#plane-svg'))")
    ElementTree.fromstring(svg)
    assert {name.rsplit(".")[-1] for name, _ in browser.js("return window.saved")} == {"svg", "png"}
    shot = base64.b64decode(browser.driver.get_screenshot_as_base64())
    assert shot[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", shot[16:20])[0] >= 1000


def test_print_is_light(browser: PageBrowser) -> None:
    browser.open("main", "lang=en&theme=dark")
    browser.js("dispatchEvent(new Event('beforeprint'))")
    assert browser.js("return document.documentElement.dataset.theme") == "light"
    browser.js("dispatchEvent(new Event('afterprint'))")
    assert browser.js("return document.documentElement.dataset.theme") == "dark"
