"""How fast is the explorer's page, and what does it look like? Headless Chromium opens it and answers.

    python benchmarks/explorer.py                            # a page of 512 tokens x 48 heads, weights at random
    python benchmarks/explorer.py page.html                  # a page of your own
    python benchmarks/explorer.py --live checkpoints/rostok-mini            # a live page of a run: typing, writing
    python benchmarks/explorer.py page.html --shots folder   # and a picture of every section, wide and narrow, light
                                                             # and dark, English and Russian

First paint is the browser's own `first-contentful-paint`. A click is measured from the event to the first task after
the next frame, when its effect has been laid out and painted; its `cpu` is what the page's main thread computed for
it, whatever else the machine was doing. Random weights are the worst case for the size of a file.
On a live page a key press is measured from the input event to the picture of all maps (the frame is not counted);
`--slow 4` slows the processor four times, `--plain` does without WASM. A long task is one above 50 ms.
Needs selenium, and chromium with chromium-driver. Left out: other browsers, phones.
"""

import argparse
import base64
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rostok.attention.page import assemble, document  # noqa: E402
from rostok.errors import UserError, run_main  # noqa: E402

SECTIONS = ["viewer", "heads", "way", "steps", "plane", "scale", "mask", "window", "quiz"]
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
CLICK = """const done = arguments[1], start = performance.now();
    document.querySelector(arguments[0]).click();
    requestAnimationFrame(() => {
        const after = new MessageChannel();
        after.port1.onmessage = () => done(performance.now() - start);
        after.port2.postMessage(0);
    })"""


class Words:
    """A tokenizer of invented words; id 0 is ◆."""

    start_id = 0

    def token_bytes(self, id: int, /) -> bytes:
        return f" {'aeiou'[id % 5]}{'bdklmnrst'[id % 9]}{'aeiou'[id // 5 % 5]}".encode()


def random_document(length: int = 512) -> dict[str, Any]:
    """Eight layers of six heads of 64 on `length` tokens, all weights drawn at random."""
    rng, D, E, V = np.random.default_rng(0), 384, 64, 200
    config = {"n_layer": 8, "n_head": 6, "d_model": D, "context": 512, "vocab_size": V, "rope_theta": 10000.0}
    weights = {"embed.weight": rng.standard_normal((V, D)), "final_norm.weight": np.ones(D)}
    for layer in range(8):
        shapes = {
            "attn.qkv": (3 * D, D),
            "attn.proj": (D, D),
            "mlp.gate": (64, D),
            "mlp.up": (64, D),
            "mlp.down": (D, 64),
        }
        drawn = {f"{name}.weight": 0.05 * rng.standard_normal(shape) for name, shape in shapes.items()}
        gains = {
            "attn_norm": np.ones(D),
            "mlp_norm": np.ones(D),
            "attn.q_norm": np.full(E, 1.5),
            "attn.k_norm": np.ones(E),
        }
        drawn |= {f"{name}.weight": gain for name, gain in gains.items()}
        weights |= {f"blocks.{layer}.{name}": value for name, value in drawn.items()}
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    ids = [0, *rng.integers(1, V, length - 1).tolist()]
    return document.document(weights, config, ids, Words())


def open_browser(folder: Path) -> Any:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        raise UserError("no chromium and chromedriver here; type: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS, f"--user-data-dir={folder}", "--window-size=1280,900"]:
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(driver))


def show(browser: Any, page: Path, state: str) -> float:
    """Open the page in a state; seconds until the viewer is ready."""
    browser.get("about:blank")
    start = time.monotonic()
    browser.get(f"{page.resolve().as_uri()}#{state}")
    ready = "return document.documentElement.dataset.ready === '1' && !!document.querySelector('.thumb')"
    while not browser.execute_script(ready):
        if time.monotonic() - start > 60:
            raise UserError(f"{page} does not get ready in a minute; is it a page of attend.py page?")
        time.sleep(0.01)
    return time.monotonic() - start


def measure(browser: Any, page: Path) -> dict[str, float]:
    """First paint, ready, and the median click on a token and on a head, all in milliseconds."""
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    opened = [show(browser, page, "lang=en") for _ in range(3)]
    paint = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    out = {"first_paint": browser.execute_script(paint), "all_heads_ready": 1000 * statistics.median(opened)}
    count = browser.execute_script("return document.querySelectorAll('#strip-a .tok').length")
    heads = browser.execute_script("return document.querySelectorAll('.thumb').length")
    for name, targets in {
        "token_click": [f"#tok-a-{count * n // 11}" for n in range(1, 11)],
        "head_click": [
            f".thumb-row:nth-child({1 + n % (heads // 6 or 1)}) .thumb:nth-child({1 + n % 4})"
            for n in range(10)
        ],
    }.items():
        times = []
        for target in targets:
            before = busy(browser)
            times.append((browser.execute_async_script(CLICK, target), busy(browser) - before))
        out[name], out[f"{name}_cpu"] = (statistics.median(column) for column in zip(*times, strict=True))
    return out


TYPE = """const [text, done] = arguments, area = document.querySelector('#text'), root = document.documentElement;
    const before = Number(root.dataset.read ?? 0), start = performance.now();
    new MutationObserver((_, own) => {
        if (Number(root.dataset.read) <= before) return;
        own.disconnect();
        done(performance.now() - start);
    }).observe(root, { attributes: true });
    area.value = text;
    area.dispatchEvent(new Event('input', { bubbles: true }));"""
WATCH = """window.longest = 0; new PerformanceObserver((list) => { for (const e of list.getEntries())
    window.longest = Math.max(window.longest, e.duration); }).observe({ entryTypes: ['longtask'] })"""
WRITE = """const [count, text, done] = arguments, times = []; let last = performance.now();
    rostok.ask('write', { run: 0, text, temperature: 0.8, topK: 0, topP: 1, seed: 1, count },
        () => { times.push(performance.now() - last); last = performance.now(); }).then(() => done(times.slice(1)));"""
STORY = (
    "Once upon a time there was a little dog. He had a red ball and a blue hat. One day he saw a big cat. "
)


def measure_live(browser: Any, page: Path, slow: float, plain: bool) -> dict[str, float]:
    """Typing at several lengths, a new text, tokens written; milliseconds."""
    show(browser, page, "lang=en" + "&plain=1" * plain)
    first = "return [performance.now(), performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1]"
    out = {"first_paint": browser.execute_script(first)[1]}
    browser.execute_script(WATCH)
    if slow > 1:
        browser.execute_cdp_cmd("Emulation.setCPUThrottlingRate", {"rate": slow})
    browser.set_script_timeout(120)
    tokens = "return document.querySelectorAll('#strip-a .tok').length"
    for length in (64, 128):
        text = (STORY * 10).split(" ")
        words = int(length / 1.17)
        browser.execute_async_script(TYPE, " ".join(text[:words]))
        times, last = [], " ".join(text[:words])
        for letter in " and then he was so happy":
            last += letter
            times.append(browser.execute_async_script(TYPE, last))
            time.sleep(0.25)
        out[f"key_press_{length}"] = statistics.median(times)
        out[f"key_press_{length}_worst"] = max(times)
        out[f"tokens_{length}"] = browser.execute_script(tokens)
    texts = [opening + STORY * 25 for opening in ("Tom. ", "The end. ", "No. ")]
    times = []
    for text in texts:
        time.sleep(2)  # until the page has drawn all that the text before brought along
        times.append(browser.execute_async_script(TYPE, text))
    out["new_text_512"] = statistics.median(times)
    out["tokens_512"] = browser.execute_script(tokens)
    out["token_written"] = statistics.median(browser.execute_async_script(WRITE, 60, STORY * 4))
    time.sleep(1)
    out["longest_task"] = browser.execute_script("return window.longest")
    return out


def busy(browser: Any) -> float:
    """Milliseconds that the page's main thread has computed so far."""
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1000 * next(m["value"] for m in metrics if m["name"] == "TaskDuration")


def take_shots(browser: Any, page: Path, folder: Path) -> int:
    """Every section at 1280 and 375 px, in both themes and languages, as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for width in (1280, 375):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for theme in ("light", "dark"):
            for lang in ("en", "ru"):
                show(browser, page, f"lang={lang}&theme={theme}")
                browser.execute_script(  # what is out of sight is not painted otherwise
                    "for (const s of document.querySelectorAll('section')) s.style.contentVisibility = 'visible'"
                )
                time.sleep(0.3)
                for section in SECTIONS:
                    target = f"#{section}"
                    find = f"const r = document.querySelector('{target}').getBoundingClientRect();"
                    box = browser.execute_script(find + "return [r.y + scrollY, r.height]")
                    if not box[1]:  # a static page has no way of a guess
                        continue
                    clip = {"x": 0, "y": box[0], "width": width, "height": box[1], "scale": 1}
                    shot = browser.execute_cdp_cmd(
                        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
                    )
                    (folder / f"{section}-{width}-{theme}-{lang}.png").write_bytes(
                        base64.b64decode(shot["data"])
                    )
    return len(list(folder.glob("*.png")))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure the explorer's page in headless Chromium.")
    parser.add_argument(
        "page", nargs="?", help="a page of attend.py page (default: 512 tokens x 48 heads, made here)"
    )
    parser.add_argument("--live", metavar="RUN", help="make a live page of this run and type in it")
    parser.add_argument("--slow", type=float, default=1, help="with --live: slow the processor so many times")
    parser.add_argument("--plain", action="store_true", help="with --live: plain JavaScript instead of WASM")
    parser.add_argument("--shots", metavar="FOLDER", help="also take a picture of every section")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        page, built = Path(args.page or Path(scratch) / "page.html"), 0.0
        if args.live:
            make = [sys.executable, ROOT / "attend.py", "page", args.live, "--live", "--out", page]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        elif not args.page:
            start = time.monotonic()
            page.write_text(assemble.page([random_document()]), "utf-8")
            built = time.monotonic() - start
        browser = open_browser(Path(scratch) / "profile")
        try:
            result = {"megabytes": page.stat().st_size / 1e6, "built_seconds": built}
            result |= (
                measure_live(browser, page, args.slow, args.plain) if args.live else measure(browser, page)
            )
            if args.shots:
                print(f"{take_shots(browser, page, Path(args.shots))} pictures in {args.shots}")
        finally:
            browser.quit()
    for name, value in result.items():
        print(f"{name:16s} {value:10.2f}")
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main(main))
