"""A page on which every token of a few texts is coloured by which of two models found it easier.

    html = token_page(targets, [0, 1, 2], "window-mlp", nats_a, "rostok", nats_b)

One file that loads nothing and runs nothing: no script, a style that its policy names by hash, every piece of text
escaped and set apart from its neighbours' writing direction. Numbers are in the hover text and in a table. Left out:
more than two models.
"""

import base64
import hashlib
import html
from collections.abc import Sequence

import numpy as np

from rostok.measuring.targets import TargetList
from rostok.text.tokenizer import visible

STEPS = 6  # shades on each side
FULL = 3.0  # nats of difference that take the darkest shade


def style() -> str:
    """The page's style: blue where the second model is better, orange where the first is."""
    rules = [
        "body{font:17px/1.9 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}",
        "body{color:#111;background:#fff}bdi{white-space:pre-wrap;border-radius:3px;padding:2px 0}",
        "table{border-collapse:collapse;font-size:14px;line-height:1.4}",
        "td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}",
        "td:first-child,th:first-child{text-align:left}",
    ]
    for step in range(1, STEPS + 1):
        share = 0.75 * step / STEPS
        rules.append(
            f".b{step}{{background:rgb(86 156 230/{share:.3f})}}.a{step}{{background:rgb(240 150 50/{share:.3f})}}"
        )
    return "".join(rules)


def shade(difference: float) -> str:
    """Class of a token by nats of the first model minus nats of the second: b1..b6, a1..a6, or none near 0.

    >>> shade(0.1), shade(3.0), shade(-9.0)
    ('', 'b6', 'a6')
    """
    step = min(STEPS, round(abs(difference) / FULL * STEPS))
    return f"{'b' if difference > 0 else 'a'}{step}" if step else ""


def token_page(
    targets: TargetList,
    chosen: Sequence[int],
    name_a: str,
    nats_a: np.ndarray,
    name_b: str,
    nats_b: np.ndarray,
) -> str:
    """The page as HTML. nats_a, nats_b (N,) are the two models' losses of all targets of the list."""
    css = style()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    a, b = html.escape(name_a), html.escape(name_b)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'\">",
        '<meta name="viewport" content="width=device-width">',
        f"<title>{a} and {b}, token by token</title>\n<style>{css}</style>\n</head>\n<body>\n<main>",
        f"<h1>{a} and {b}, token by token</h1>",
        f'<p><span class="b{STEPS}">Blue</span>: {b} gave the token more probability. '
        f'<span class="a{STEPS}">Orange</span>: {a} did. The darkest shade is {FULL:g} nats or more. '
        "Hover a token for its numbers, or open the table under its text. ◆ ends a text.</p>",
    ]
    for i in chosen:
        parts += text_section(targets, i, a, nats_a, b, nats_b)
    return "\n".join([*parts, "</main>\n</body>\n</html>\n"])


def text_section(
    targets: TargetList, i: int, a: str, nats_a: np.ndarray, b: str, nats_b: np.ndarray
) -> list[str]:
    """One text: its tokens, its means, and the table of its numbers. Names are escaped already."""
    indices = range(int(targets.offsets[i]), int(targets.offsets[i + 1]))
    tokens, lines = [], []
    for at in indices:
        word, one, two = int(targets.targets[at]), float(nats_a[at]), float(nats_b[at])
        text = html.escape("◆" if word == targets.start_id else visible(targets.token_bytes[word]))
        hover = f"{a} {one:.2f}, {b} {two:.2f}, difference {one - two:+.2f} nats"
        kind = shade(one - two)
        tokens.append(f'<bdi{f" class={kind}" if kind else ""} title="{hover}">{text}</bdi>')
        if text.endswith("⏎"):
            tokens.append("<br>")
        lines.append(
            f"<tr><td><bdi>{text}</bdi></td><td>{one:.3f}</td><td>{two:.3f}</td><td>{one - two:+.3f}</td></tr>"
        )
    mean_a, mean_b = float(np.mean(nats_a[indices])), float(np.mean(nats_b[indices]))
    return [
        f"<section>\n<h2>Text {i + 1}</h2>",
        f"<p>{len(indices):,} targets: {a} {mean_a:.3f}, {b} {mean_b:.3f} nats per token.</p>",
        f'<p dir="auto">{"".join(tokens)}</p>',
        f"<details><summary>Numbers</summary>\n<table><tr><th>token</th><th>{a}</th><th>{b}</th><th>difference</th></tr>",
        *lines,
        "</table></details>\n</section>",
    ]
