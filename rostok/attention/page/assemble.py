"""Puts the page together: documents, or whole runs, and page.html, page.css, strings/*.json and the scripts.

    page([document, ...]) -> str                       # a static page
    page([], runs=contents) -> str                     # a live one; contents: see explorer.run_live

No framework, no build step. The scripts are ES modules that Node runs in the tests; in the page they are one script, in
the order of SCRIPTS, which loader.js unpacks. The page's own Content-Security-Policy allows these two scripts and the
style sheet by their hashes, and no connection at all; a live page may also start its worker (WORKER) and its WASM.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rostok.attention.by_hand.examples import examples_json
from rostok.attention.page import codec
from rostok.errors import UserError

SCRIPTS = ["core", "codec", "kinds", "ui", "live", "documents", "figure", "next", "asked", "listens", "viewer", "focus",
           "write", "change", "heads", "way", "flow", "steps", "plane", "mask", "window", "scale", "cards", "keys",
           "address", "app"]  # fmt: skip
WORKER = [
    "core",
    "codec",
    "tokenizer",
    "products",
    "forward",
    "windowmlp",
    "weights",
    "kinds",
    "measure",
    "rollout",
    "sampling",
    "worker",
]
LANGUAGES = ["en", "ru"]  # strings/LANGUAGE.json
CARDS = ["S3-12", "S2-02", "S2-03", "S0-14"]  # of rostok.attention.by_hand.examples
PROGRAMS = ["one", "causal"]
ASSETS = Path(__file__).parent


def page(
    documents: Sequence[Mapping[str, Any]], title: str = "Rostok", runs: Mapping[str, Any] | None = None
) -> str:
    """Documents -> the whole HTML text. The first document is the one that is shown first.

    With `runs` (run_live()) the page carries the runs themselves and computes its documents.
    """
    if not documents and runs is None:
        raise UserError("a page needs at least one text; give --text, --file or --demo")
    loader = _squeeze((ASSETS / "loader.js").read_text("utf-8"))
    style = _tighten((ASSETS / "page.css").read_text("utf-8"))
    data = [f'<script type="application/json" class="document">{_json(doc)}</script>' for doc in documents]
    data += _live_parts(runs) if runs else []
    packed = [  # the script last: it reads the others
        _packed("application/json", "strings", _json(strings())),
        _packed("application/json", "examples", _json(_examples())),
        _packed("module", "app", code := script()),
    ]
    parts = {
        "title": html.escape(title),
        "policy": "; ".join([
            "default-src 'none'", f"script-src {_hash(loader)} {_hash(code)}" + " 'wasm-unsafe-eval'" * bool(runs),
            f"style-src {_hash(style)}", "img-src blob: data:", *(["worker-src blob:"] if runs else []),
            "base-uri 'none'", "form-action 'none'"]),
        "style": style,
        "documents": "\n".join(data),
        "packed": "\n".join(packed),
        "loader": loader,
    }  # fmt: skip
    template = _squeeze((ASSETS / "page.html").read_text("utf-8"))
    return re.sub(
        r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template
    )  # one pass: no text is read twice


def _examples() -> dict[str, Any]:
    """The worked examples that the page shows as cards, and the programs with what they print."""
    rows = {row["handle"]: row for row in json.loads(examples_json())}
    shown = ("handle", "title", "values")
    values = ("name", "exact", "factor")
    cards = [{name: rows[handle][name] for name in shown} for handle in CARDS]
    for card in cards:
        card["values"] = [{name: value[name] for name in values} for value in card["values"]]
    return {"examples": cards, "programs": [_program(name) for name in PROGRAMS]}


def _program(name: str) -> dict[str, str]:
    """programs/NAME.txt: a program, a line of four hyphens, what it prints (a test runs it)."""
    code, output = (ASSETS / "programs" / f"{name}.txt").read_text("utf-8").split("----\n")
    return {"name": name, "code": code, "output": output}


def _live_parts(contents: Mapping[str, Any]) -> list[str]:
    """What only a live page holds: the runs without their weights, the weights, the worker and its fast products."""
    runs = [{name: value for name, value in run.items() if name != "data"} for run in contents["runs"]]
    products = codec.pack((ASSETS / "products.wasm").read_bytes())
    return [
        _packed("application/json", "runs", _json({**contents, "runs": runs})),
        *(f'<script type="text/plain" class="weights">{run["data"]}</script>' for run in contents["runs"]),
        _packed("text/plain", "worker", script(WORKER)),
        f'<script type="text/plain" id="products">{products}</script>',
    ]


def script(names: Sequence[str] = SCRIPTS) -> str:
    """These scripts as one."""
    return "".join(_inline(ASSETS / f"{name}.js") for name in names)


def strings() -> dict[str, dict[str, str]]:
    """The words of the page: language -> key -> text."""
    return {name: json.loads((ASSETS / "strings" / f"{name}.json").read_text("utf-8")) for name in LANGUAGES}


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _inline(path: Path) -> str:
    """A module without its imports and exports: all of them share one script."""
    text = re.sub(r"^import [^;]*;\n", "", path.read_text("utf-8"), flags=re.M)
    return _squeeze(re.sub(r"^export ", "", text, flags=re.M))


def _squeeze(text: str) -> str:
    """Drop indentation, empty lines and lines that are only a // comment."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//")) + "\n"


def _tighten(css: str) -> str:
    """The style sheet without the white space that only people need."""
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r": ", ":", css)).strip() + "\n"


def _packed(kind: str, name: str, text: str) -> str:
    text = codec.pack(text.encode("utf-8"))
    return f'<script type="text/plain" data-gzip="{kind}" data-name="{name}">{text}</script>'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
