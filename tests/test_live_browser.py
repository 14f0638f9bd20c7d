"""The live page in a browser: type, and everything follows; switch off, and see; no request, WASM or not."""

# ruff: noqa: E501  (lines of JavaScript)

import argparse
import json
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from explorer_toy import settings, weights
from page_browser import PageBrowser, chromium
from safetensors.numpy import save
from test_explorer import write_run
from test_live import edit_of

from model import build_model
from rostok.attention.heads.ablate import silence
from rostok.attention.heads.capture import Subject
from rostok.attention.page import explorer
from rostok.attention.reference import forward, softmax
from rostok.text.tokenizer import Tokenizer, train_tokenizer

TEXT = "Tom had a red hat. Mia had a doll. Tom had"


@pytest.fixture(scope="module")
def tokenizer(tiny_texts: list[str]) -> Tokenizer:
    return train_tokenizer(tiny_texts, 300)


@pytest.fixture(scope="module")
def runs(tokenizer: Tokenizer) -> dict[str, Subject]:
    V = tokenizer.vocab_size
    small = {**settings(vocab_size=V), "context": 48, "d_mlp": 64}
    one = {**settings(1, 2, 16, vocab_size=V), "context": 32, "d_mlp": 64}
    torch.manual_seed(0)
    window = {"kind": "window-mlp", "vocab_size": V, "context": 48, "window": 3, "d_embed": 8, "d_hidden": 16}
    net = {name: value.numpy() for name, value in build_model(window).state_dict().items()}
    made = {"toy": (small, weights(small)), "one": (one, weights(one, 1)), "window": (window, net)}
    return {
        name: Subject(name, rounded(tensors), config, tokenizer) for name, (config, tensors) in made.items()
    }


def rounded(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As a run that was saved in bf16."""
    return {name: torch.from_numpy(w).bfloat16().float().numpy() for name, w in tensors.items()}


@pytest.fixture(scope="module")
def browser(
    tmp_path_factory: pytest.TempPathFactory, runs: dict[str, Subject], tokenizer: Tokenizer
) -> Iterator[PageBrowser]:
    folder = tmp_path_factory.mktemp("live")
    for name, run in runs.items():
        write_run(folder / name, dict(run.config), save(dict(run.weights)))
        tokenizer.save(folder / name)
    words = ["--text", TEXT, "--live", "--out", str(folder / "live.html")]
    compare = ["--compare", str(folder / "one"), "--compare", str(folder / "window")]
    parser = argparse.ArgumentParser()
    explorer.add_arguments(parser)
    args: Namespace = parser.parse_args([str(folder / "toy"), *compare, *words])
    assert explorer.run(args) == 0
    with chromium(folder) as session:
        yield PageBrowser(session, {"live": folder / "live.html"}, {})


def ask(browser: PageBrowser, what: str, **asked: Any) -> Any:
    return browser.driver.execute_async_script(
        "const done = arguments[2]; rostok.ask(arguments[0], arguments[1]).then(done, (e) => done(String(e)))",
        what,
        asked,
    )


def type_text(browser: PageBrowser, text: str) -> None:
    browser.js("document.documentElement.dataset.read = 0")
    browser.js(
        "const e = document.querySelector('#text'); e.value = arguments[0]; e.dispatchEvent(new Event('input', {bubbles: true}))",
        text,
    )
    browser.wait("return Number(document.documentElement.dataset.read) > 0")


def logits_of(browser: PageBrowser, run: int, count: int) -> np.ndarray:
    return np.array([ask(browser, "logits", run=run, t=t) for t in range(count)])


@pytest.mark.parametrize("products", ["WASM", "JavaScript"])
def test_opens_quietly_and_computes_what_the_model_does(
    browser: PageBrowser, runs: dict[str, Subject], products: str
) -> None:
    browser.requests()
    browser.open("live", "lang=en" + "&plain=1" * (products == "JavaScript"))
    assert browser.js("return rostok.live.products") == products
    ids = [0, *runs["toy"].tokenizer.encode(TEXT)]
    model = build_model(runs["toy"].config)
    model.load_state_dict({name: torch.from_numpy(w) for name, w in runs["toy"].weights.items()})
    with torch.no_grad():
        want = model.eval()(torch.tensor([ids]))[0].numpy()
    np.testing.assert_allclose(logits_of(browser, 0, len(ids)), want, atol=5e-5)
    assert browser.errors() == []
    assert browser.requests() <= {"file", "about", "blob", "data", "chrome"}


def test_typing_changes_everything(browser: PageBrowser, runs: dict[str, Subject]) -> None:
    browser.open("live", "lang=en&l=2&h=1")
    text = TEXT + " a kite in the park"
    type_text(browser, text)
    run, ids = runs["toy"], [0, *runs["toy"].tokenizer.encode(text)]
    trace: dict[str, np.ndarray] = {}
    logits = forward(run.weights, run.config, ids, trace)
    assert len(browser.all("#strip-a .tok")) == len(ids)
    assert browser.js("return document.querySelector('#strip-a [aria-selected=true]').dataset.t") == str(
        len(ids) - 1
    )
    row = trace["blocks.1.attn.pattern"][0, -1]
    assert browser.readout()["start"] == pytest.approx(row[0], abs=0.00051)
    shown = browser.texts(".guesses .n")
    best = np.sort(softmax(logits[-1].astype(np.float64)))[::-1][:5]
    np.testing.assert_allclose([float(x.rstrip("%")) for x in shown], 100 * best, atol=0.051)
    facts = browser.texts("#facts dd")
    assert facts[4] == str(len(ids))
    browser.click("#tok-a-3")
    assert f"rank {1 + (logits[3] > logits[3, ids[4]]).sum()}" in browser.text("#next-a .small")
    browser.wait("return document.querySelectorAll('.step').length === 6")
    browser.state()  # waits until the address follows
    browser.open("live", browser.js("return location.hash").removeprefix("#"))
    assert browser.js("return document.querySelector('#text').value") == text


def test_fast_typing_ends_on_the_last_token(browser: PageBrowser) -> None:
    """Keys pressed while the model computes: the newest text wins, and its last token is the chosen one."""
    browser.open("live", "lang=en")
    browser.js("""const area = document.querySelector('#text');
        for (const end of ['', 'Tom', 'Tom had', arguments[0]]) {
            area.value = end;
            area.dispatchEvent(new Event('input', { bubbles: true }));
        }""", TEXT + " a kite")  # fmt: skip
    browser.wait(
        "return document.querySelector('#strip-a .tok:last-of-type').getAttribute('aria-selected') === 'true'"
    )
    chosen = browser.js("return Number(document.querySelector('#strip-a [aria-selected=true]').dataset.t)")
    assert chosen == len(browser.all("#strip-a .tok")) - 1 > 12
    assert browser.state()["t"] == str(chosen)


def test_switching_off_shows_before_and_after(browser: PageBrowser, runs: dict[str, Subject]) -> None:
    browser.open("live", "lang=en&l=1&h=2&t=6")
    browser.wait("return document.querySelector('[data-key=off-head]')")
    browser.click("[data-key=off-head]")
    browser.wait("return document.querySelector('#effect')")
    run, ids = runs["toy"], [0, *runs["toy"].tokenizer.encode(TEXT)]
    want = forward(run.weights, run.config, ids, edit=silence([(0, 1)]))
    np.testing.assert_allclose(logits_of(browser, 0, len(ids)), want, atol=1e-4)
    assert browser.state()["off"] == "1.2"
    assert browser.js("return document.querySelectorAll('.thumb.off').length") == 1
    assert len(browser.all("#next-a td.was.n")) == 5
    assert "1.2" in browser.text(".focus-change")  # in sight in every section
    browser.click("[data-key=off-layer]")
    browser.click("[data-key=off-mlp]")
    browser.wait("return document.querySelectorAll('.thumb.off').length === 2")
    assert browser.state().items() >= {"off": "1.1_1.2", "mlp": "1"}.items()
    browser.open("live", "lang=en&t=6&off=1.2")  # a link brings the change along
    browser.wait("return document.querySelector('#effect')")
    np.testing.assert_allclose(logits_of(browser, 0, len(ids)), want, atol=1e-4)
    browser.click("[data-key=all-on]")
    browser.wait("return !document.querySelector('#effect')")
    np.testing.assert_allclose(logits_of(browser, 0, 4), forward(run.weights, run.config, ids)[:4], atol=5e-5)


def test_a_key_is_closed_by_hand(browser: PageBrowser, runs: dict[str, Subject]) -> None:
    """In the list, and by a double click in the map; the map shows the hatch there."""
    run, ids = runs["toy"], [0, *runs["toy"].tokenizer.encode(TEXT)]
    browser.open("live", "lang=en&l=1&h=2&t=6")
    key = int(
        browser.js(
            "return document.querySelector('#strip-a').closest('.panel').querySelector('.keys tr[data-key]').dataset.key"
        )
    )
    browser.click(f"[data-key=shut-{key}]")
    browser.wait(f"return document.querySelector('tr.shut[data-key=\"{key}\"]')")
    assert browser.state()["cut"] == f"6-{key}"
    got = logits_of(browser, 0, len(ids))
    want = forward(run.weights, run.config, ids, edit=edit_of(run, {"closed": [(6, key)]}))
    np.testing.assert_allclose(got, want, atol=1e-4)

    def clear(q: int, k: int) -> str:
        return f"""const c = document.querySelector('#map-a'), size = c.width / {len(ids)};
            return c.getContext('2d').getImageData(Math.floor({k}.5 * size), Math.floor({q}.5 * size), 1, 1).data[3] === 0"""

    browser.wait(clear(6, key))
    assert not browser.js(clear(5, min(key, 5)))
    browser.js("""const c = document.querySelector('#map-a'), box = c.getBoundingClientRect(), n = arguments[0];
        c.dispatchEvent(new MouseEvent('dblclick', {clientX: box.x + .5 * box.width / n, clientY: box.y + 3.5 * box.height / n}))""",
        len(ids))  # fmt: skip
    browser.wait(clear(3, 0))
    assert browser.state()["cut"] == f"6-{key}_3-0"
    assert browser.errors() == []


def test_which_heads_matter(browser: PageBrowser, runs: dict[str, Subject]) -> None:
    browser.open("live", "lang=en&t=6")
    browser.wait("return document.querySelector('#matter')")
    browser.click("#matter")
    browser.wait("return document.querySelector('#matter-note')")
    run, ids = runs["toy"], [0, *runs["toy"].tokenizer.encode(TEXT)]

    def log_p(edit: Any = None) -> float:
        return float(
            np.log(softmax(forward(run.weights, run.config, ids, edit=edit)[6].astype(np.float64)))[ids[7]]
        )

    label = browser.js(
        "return document.querySelector('.thumb[data-l=\"1\"][data-h=\"0\"]').getAttribute('aria-label')"
    )
    assert float(label.split()[-1].replace("−", "-")) == pytest.approx(
        log_p(silence([(1, 0)])) - log_p(), abs=0.0051
    )


def test_the_parts_of_a_guess_sum_up(browser: PageBrowser) -> None:
    browser.open("live", "lang=en&t=9")
    browser.wait("return document.querySelector('#way-sum')")
    browser.js("document.querySelector('#way').scrollIntoView()")
    browser.wait("return document.querySelector('#flow-sources')")
    assert browser.all("#flow path.flow")
    assert float(browser.js("return document.querySelector('#way-sum').dataset.off")) < 1e-4
    assert len(browser.all(".lens tbody tr")) == 3  # the embedding and two layers
    last, said = browser.text(".lens tbody tr:last-child .chip"), browser.text(".guesses .chip")
    assert last == said


def test_write_on(browser: PageBrowser, runs: dict[str, Subject]) -> None:
    browser.open("live", "lang=en")
    for name, value in (("temperature", 0), ("count", 6)):
        browser.js(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change'))",
            name,
            value,
        )
    browser.click("#write")
    browser.wait("return /written|ended/.test(document.querySelector('#write-note').textContent)")
    run = runs["toy"]
    ids = [0, *run.tokenizer.encode(TEXT)]
    for _ in range(6):
        ids.append(int(forward(run.weights, run.config, ids)[-1].argmax()))
        if ids[-1] == 0:
            ids.pop()
            break
    assert browser.js("return document.querySelector('#text').value") == run.tokenizer.decode(ids[1:])
    assert browser.errors() == []


def test_two_runs_and_the_window(browser: PageBrowser, runs: dict[str, Subject]) -> None:
    browser.open("live", "lang=en&cmp=1&run2=one&t=5")
    browser.wait("return document.querySelector('#readout-b b')")
    run, ids = runs["one"], [0, *runs["one"].tokenizer.encode(TEXT)][:32]
    trace: dict[str, np.ndarray] = {}
    forward(run.weights, run.config, ids, trace)
    browser.click("#tok-a-5")  # writes the address
    h = int(browser.state()["h2"]) - 1
    assert browser.readout("b")["start"] == pytest.approx(
        trace["blocks.0.attn.pattern"][h, 5, 0], abs=0.00051
    )
    browser.open(
        "live", "lang=en&cmp=1&run2=one&t=5&under=other"
    )  # the loss of each token of both, and the difference
    browser.wait("return document.querySelectorAll('#strip-b .tok').length > 20")

    def nll(name: str) -> np.ndarray:
        logits = forward(runs[name].weights, runs[name].config, ids).astype(np.float64)[:-1]
        return -np.log(softmax(logits))[np.arange(len(ids) - 1), ids[1:]]

    shown = [x.replace("−", "-") for x in browser.texts("#strip-a small")[1 : len(ids)]]
    np.testing.assert_allclose([float(x) for x in shown], nll("toy") - nll("one"), atol=0.0051)
    browser.open("live", "lang=en&run=window&t=5")
    assert browser.js("return document.querySelector('.panel').classList.contains('no-maps')")
    assert len(browser.texts(".guesses .n")) == 5
    browser.wait("return document.querySelector('#way').hidden && document.querySelector('#steps').hidden")
    assert browser.errors() == []


def test_any_text_is_harmless(browser: PageBrowser) -> None:
    browser.open("live")
    for text in ("", "</script><img src=x onerror=alert(1)>", "\ud83d\ude42 Ж\u2028\u202e", "no " * 200):
        browser.js("0")
        type_text(browser, text)
    assert "48" in browser.texts("#facts dd")[4]
    assert browser.text("#facts div:last-child dt") == "Not shown"
    assert browser.errors() == []


def test_page_policy_and_one_file(browser: PageBrowser) -> None:
    text = browser.paths["live"].read_text("utf-8")
    assert "default-src 'none'; script-src 'sha256-" in text
    assert "worker-src blob:" in text
    assert "'unsafe" not in text.replace("'wasm-unsafe-eval'", "")
    assert "http" not in text.replace("http-equiv", "")
    assert json.loads(json.dumps(browser.js("return Object.keys(rostok)"))) == ["ask", "live"]
