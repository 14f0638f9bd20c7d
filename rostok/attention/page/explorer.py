"""The explorer: one HTML file, without any request to anywhere, to see and play with attention.

    python attend.py page checkpoints/rostok --out page.html                     # the three built-in stories
    python attend.py page checkpoints/rostok --text "Once upon a time ..." --steps 6.4 --out page.html
    python attend.py page checkpoints/rostok --compare checkpoints/gpt-1 --out page.html
    python attend.py page --demo --out page.html                                 # no model needed

    document(weights, config, ids, tokenizer) -> dict      # what a run computes on one text: a JSON document
    demo_documents() -> [dict, ...]                        # heads drawn by rule, for a page without a model
    page([dict, ...]) -> str                               # the documents inside the page

The page is page/page.html, page/page.css, page/strings/*.json and page/*.js, put together here and nothing else: no
framework, no build step. The scripts are ES modules that Node runs in the tests; in the page they are one script, in
the order of SCRIPTS, which page/loader.js unpacks. The page's own Content-Security-Policy allows these two scripts
and the style sheet by their hashes, and no connection at all.

What a document holds is described in docs/explorer.md. It is strict JSON (no NaN), about 150 KB at 64 tokens.
"""

import argparse
import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rostok import __version__
from rostok.attention.by_hand.examples import examples_json
from rostok.attention.heads import scores
from rostok.attention.heads.capture import Spelling, Subject, aim, open_subject, spelling
from rostok.attention.heads.maps import read_text
from rostok.attention.page import codec, live
from rostok.attention.reference import forward, rms_norm, rope, softmax
from rostok.errors import UserError
from rostok.files import check_out, write_out
from rostok.text.tokenizer import Tokenizer

FORMAT, VERSION = "rostok-attention", 1
SCRIPTS = ["core", "codec", "kinds", "ui", "live", "documents", "figure", "next", "viewer", "focus", "write", "change",
           "heads", "way", "steps", "plane", "mask", "window", "scale", "cards", "keys", "address", "app"]  # fmt: skip
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
    "sampling",
    "worker",
]
LANGUAGES = ["en", "ru"]  # strings/LANGUAGE.json
CARDS = ["S3-12", "S2-02", "S2-03", "S0-14"]  # of rostok.attention.by_hand.examples
PROGRAMS = ["one", "causal"]
ASSETS = Path(__file__).parent

# What a learner should look at first: the strongest head from the last mention of a word to another word opens the
# page. The same word twice means: from its first piece to the piece that followed when it was said before.
STORIES: dict[str, tuple[str, str, str]] = {
    "he": (
        "Once upon a time there was a boy named Tom. Tom had a red ball. One day the ball rolled under a big bush. "
        "Tom looked and looked for it. Then he saw something red and smiled.",
        "he",
        "Tom",
    ),
    "doll": (
        "Mia had a new doll. Mia took the doll everywhere: to the park, to the shop and to her grandma. At night "
        "Mia was very tired. She washed her face, gave her mom a kiss and put the doll",
        "the",
        "doll",
    ),
    "name": (
        "Once upon a time there was a little dragon. His name was Zorbin Plax. He lived on a green hill and he was "
        "afraid of the dark. One night a small star fell on the hill, and it was afraid too. \"Do not cry,\" said "
        "Zorbin Plax. \"I will make a fire for you.\" After that Zorbin Plax was not afraid any more.",
        "Zorbin",
        "Zorbin",
    ),
}  # fmt: skip
# The same for a tokenizer that has learned Russian.
RUSSIAN: dict[str, tuple[str, str, str]] = {
    "he": (
        "Жил-был мальчик, которого звали Том. У Тома был красный мяч. Однажды мяч укатился под большой куст. "
        "Том искал и искал его. Потом он увидел что-то красное и улыбнулся.",
        "он",
        "Том",
    ),
    "doll": (
        "У Маши была новая кукла. Маша брала куклу всюду: в парк, в магазин и к бабушке. Вечером Маша очень устала. "
        "Она умылась, поцеловала маму и положила куклу",
        "положила",
        "куклу",
    ),
    "name": (
        "Жил-был маленький дракон. Его звали Зорбин Плакс. Он жил на зелёном холме и боялся темноты. Однажды ночью на "
        "холм упала маленькая звезда, и она тоже боялась. «Не плачь, — сказал Зорбин Плакс. — Я разведу для тебя "
        "огонь». С тех пор Зорбин Плакс больше не боялся.",
        "Зорбин",
        "Зорбин",
    ),
}  # fmt: skip


def stories(tokenizer: Tokenizer) -> dict[str, tuple[str, str, str]]:
    """The built-in stories in the language that the tokenizer spells in fewer tokens a word."""

    def tokens_a_word(texts: Mapping[str, tuple[str, str, str]]) -> float:
        text = " ".join(story for story, _, _ in texts.values())
        return len(tokenizer.encode(text)) / len(text.split())

    return RUSSIAN if tokens_a_word(RUSSIAN) < tokens_a_word(STORIES) else STORIES


# ---- one run on one text -> a document ---------------------------------------------------------------------


def document(
    weights: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    ids: Sequence[int],
    tokenizer: Spelling,
    *,
    run: str = "rostok",
    text: str = "own",
    look: tuple[str, str] | None = None,
    steps: Sequence[tuple[int, int]] | None = None,
    heads: Sequence[Mapping[str, Any]] | None = None,
    dropped: int = 0,
) -> dict[str, Any]:
    """Run the NumPy reference on `ids` (with ◆ in front) and gather what the page shows.

    config     model.py's GPTConfig as a mapping
    run, text  short names; documents of one text by several runs are shown side by side
    look       (query word, key word): the strongest head from the one to the other opens the page
    steps      0-based (layer, head) pairs whose q, k and v travel along for the step cards; None: the opening head
    heads      a report card's records instead of the scores on this text
    dropped    tokens of the text that did not fit into the context and were left out

    Raises UserError where a weight is not a number.
    """
    length, n_layer = len(ids), int(config["n_layer"])
    wanted = re.compile(r"blocks\.\d+\.attn\.(q_raw|k_raw|v|pattern|z)|logits")
    trace: dict[str, np.ndarray] = {}
    forward(weights, config, np.asarray(ids), trace, keep=lambda name: bool(wanted.fullmatch(name)))
    pattern = np.stack([trace[f"blocks.{layer}.attn.pattern"] for layer in range(n_layer)])  # (L, H, T, T)
    for layer in range(n_layer):
        if not np.isfinite(pattern[layer]).all():
            raise UserError(
                f"layer {layer + 1} of {run} gives weights that are not numbers; take an older step of the run"
            )
    pieces, partial = zip(*(_piece(tokenizer.token_bytes(int(i))) for i in ids), strict=True)
    pieces = ["◆" if i == tokenizer.start_id else piece for i, piece in zip(ids, pieces, strict=True)]
    view = opening(pattern, spelling(tokenizer, ids), look)
    if steps is None:
        steps = [(view["layer"], view["head"])]
    return {
        "format": FORMAT,
        "version": VERSION,
        "created_with": __version__,
        "model": _model(run, "trained", weights, config),
        "text": {"name": text, "ids": [int(i) for i in ids], "pieces": list(pieces), "T": length,
                 "start": [int(i) == tokenizer.start_id for i in ids], "partial": list(partial), "dropped": dropped},
        "losses": losses(trace["logits"], ids, tokenizer),
        **codec.encode(pattern),
        "qkv": _qkv(trace, weights, config, steps),
        "heads": list(heads) if heads is not None else head_scores(pattern, ids, tokenizer.start_id),
        "even": even_scores(ids, tokenizer.start_id),
        "view": view,
        "checks": {"row_sum_max_err": _short(np.abs(pattern.sum(-1) - 1).max()),
                   "future_max": float(np.triu(pattern, 1).max())},
    }  # fmt: skip


def _model(
    run: str, kind: str, weights: Mapping[str, np.ndarray], config: Mapping[str, Any]
) -> dict[str, Any]:
    names = ["n_kv_head", "d_model", "context", "vocab_size", "rope_theta", "window"]
    parameters = sum(int(np.size(w)) for w in weights.values())
    shown = {name: config.get(name, 0) for name in ("n_layer", "n_head")}  # a window MLP has neither
    shown |= {name: config.get(name) for name in names}
    d_head = int(config["d_model"]) // int(config["n_head"]) if shown["n_head"] else None
    return {
        "name": run,
        "kind": kind,
        **shown,
        "norm_eps": config.get("norm_eps", 1e-6),
        "d_head": d_head,
        "parameters": parameters,
    }


def _piece(raw: bytes) -> tuple[str, bool]:
    """The text of a token, and whether its bytes are a part of a character: those are shown as <D0>."""
    try:
        return raw.decode("utf-8"), False
    except UnicodeDecodeError:
        return "".join(f"⟨{byte:02X}⟩" if byte > 127 else chr(byte) for byte in raw), True


def _short(x: float, digits: int = 4) -> float:
    return float(f"{x:.{digits}g}")


def losses(logits: np.ndarray, ids: Sequence[int], tokenizer: Spelling) -> dict[str, Any]:
    """For every token how well it was foreseen: nats, probability, rank (1 is best), what was expected instead.

    Classes: start (position 0, nobody foretells it), new, seen (it stood earlier in the text), pair (it stood
    earlier after the same token: an induction head could copy it).
    """
    ids = [int(i) for i in ids]
    out: dict[str, Any] = {"nll": [None], "p": [None], "rank": [None], "class": ["start"], "top": [[]]}
    seen, pairs = {ids[0]}, set()
    for t in range(1, len(ids)):
        p = softmax(logits[t - 1].astype(np.float64))
        own = p[ids[t]]
        kind = "pair" if (ids[t - 1], ids[t]) in pairs else "seen" if ids[t] in seen else "new"
        out["nll"].append(_short(-np.log(max(own, 1e-300))))
        out["p"].append(_short(own))
        out["rank"].append(int((p > own).sum()) + 1)
        out["class"].append(kind)
        out["top"].append(_likeliest(p, tokenizer))
        seen.add(ids[t])
        pairs.add((ids[t - 1], ids[t]))
    out["after"] = _likeliest(softmax(logits[-1].astype(np.float64)), tokenizer)
    out["summary"] = {}
    for kind in ("new", "seen", "pair"):
        at = [t for t, c in enumerate(out["class"]) if c == kind]
        mean = {
            key: _short(float(np.mean([out[key][t] for t in at]))) if at else None for key in ("nll", "p")
        }
        out["summary"][kind] = {"n": len(at), "loss": mean["nll"], "p": mean["p"]}
    return out


def _likeliest(p: np.ndarray, tokenizer: Spelling, k: int = 5) -> list[list[Any]]:
    """The k likeliest tokens of one distribution: [[piece, probability], ...]."""
    best = np.argsort(-p, kind="stable")[:k].tolist()
    names = ["◆" if i == tokenizer.start_id else _piece(tokenizer.token_bytes(i))[0] for i in best]
    return [[name, _short(float(p[i]))] for name, i in zip(names, best, strict=True)]


def _qkv(
    trace: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    steps: Sequence[tuple[int, int]],
) -> dict[str, Any] | None:
    """q, k and v before the norm, in float16, of the chosen heads, and what W_O makes of them."""
    if not steps:
        return None
    group = int(config["n_head"]) // int(config.get("n_kv_head") or config["n_head"])
    heads, blobs = [], []
    for layer, head in steps:
        at = f"blocks.{layer}.attn."
        q, k, v = (
            trace[at + "q_raw"][head],
            trace[at + "k_raw"][head // group],
            trace[at + "v"][head // group],
        )
        d_head = q.shape[1]
        w_o = weights[at + "proj.weight"][:, head * d_head : (head + 1) * d_head].T  # (E, D)
        result = trace[at + "z"][head] @ w_o  # (T, D)
        heads.append({
            "layer": layer, "head": head,
            "q_gain": [_short(x) for x in weights[at + "q_norm.weight"]],
            "k_gain": [_short(x) for x in weights[at + "k_norm.weight"]],
            "vo_norm": [_short(x) for x in np.linalg.norm(v @ w_o, axis=1)],
            "result_norm": [_short(x) for x in np.linalg.norm(result, axis=1)],
            "result_start": [[_short(x) for x in row[:6]] for row in result],
        })  # fmt: skip
        blobs += [matrix.astype("<f2").tobytes() for matrix in (q, k, v)]  # (T, E) each
    return {"coding": "f16 qkv raw", "heads": heads, "base64": codec.pack(b"".join(blobs))}


# ---- what kind of head is it, on this text -------------------------------------------------------------------

# The page's name of a kind -> that of scores.py, in the order in which a label is given.
KINDS = {
    "induction": "induction",
    "previous": "previous",
    "same": "duplicate",
    "start": "start",
    "self": "self",
}


def head_scores(pattern: np.ndarray, ids: Sequence[int], start_id: int) -> list[dict[str, Any]]:
    """One record a head: the mean weight that goes where a kind of head looks; `even_scores` are its baseline.

    previous A[t,t-1]; self A[t,t]; start: all ◆; same: earlier copies of the token; induction: the token after an
    earlier copy. Means over t >= 2 that have such a key; None where there is none. A label needs 0.4 and 5 times
    the even attention ("strong") or 0.2 and 3 times ("partial"): a statement about this text, not about the head.
    """
    layers, n_head, length, _ = pattern.shape
    table, even = _means(pattern, ids, start_id), even_scores(ids, start_id)
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = -np.nansum(np.where(pattern > 0, pattern * np.log(pattern), 0), -1)  # (L, H, T)
    spread = (bits[:, :, 1:] / np.log(np.arange(2, length + 1))).mean(-1) if length > 1 else None
    out = []
    for layer in range(layers):
        for head in range(n_head):
            found = {
                kind: None if own is None else {"v": _short(own[layer, head], 3)}
                for kind, own in table.items()
            }
            label, sure = _label(found, even)
            found["entropy"] = None if spread is None else {"v": _short(spread[layer, head], 3)}
            out.append({"layer": layer, "head": head, "label": label, "confidence": sure, "scores": found})
    return out


def even_scores(ids: Sequence[int], start_id: int) -> dict[str, float | None]:
    """What a head that attends evenly to all it may see would score on this text."""
    table = _means(scores.uniform(len(ids)), ids, start_id)
    return {kind: None if own is None else _short(float(own), 3) for kind, own in table.items()}


def _means(pattern: np.ndarray, ids: Sequence[int], start_id: int) -> dict[str, np.ndarray | None]:
    """For each kind the mean weight on its cells over the queries from the third on that have one, else None."""
    cells, asked = scores.kind_cells(ids, start_id), np.arange(len(ids)) >= scores.FIRST
    there = {kind: (cells[name] & asked[:, None]).any() for kind, name in KINDS.items()}
    return {
        kind: scores.mean_weight(pattern, cells[name], asked) if there[kind] else None
        for kind, name in KINDS.items()
    }


def _label(found: Mapping[str, Any], even: Mapping[str, float | None]) -> tuple[str, str]:
    """The first strong label, else the first partial one."""
    known = {
        scores.KINDS[name]: (found[kind]["v"], even[kind] or 0.0)
        for kind, name in KINDS.items()
        if found[kind]
    }
    labels = scores.verdicts(known, most=len(KINDS))
    names = {name: kind for kind, name in KINDS.items()}
    best = min(labels, key=lambda label: label["confidence"] != "strong", default=None)
    return (names[best["kind"]], best["confidence"]) if best else ("other", "")


def opening(pattern: np.ndarray, raw: Sequence[bytes], look: tuple[str, str] | None) -> dict[str, int]:
    """Which layer, head and token (0-based) the page shows first: of all heads the one that looks hardest there.

    `look` names a query word and a key word. Raises UserError where one is not in the text, or the key never before
    the query.
    """
    query, keys = len(raw) - 1, list(range(1, max(1, len(raw) - 2)))  # neither ◆ nor the neighbours
    if look:
        query, keys = _aim(raw, *look)
    weight = pattern[:, :, query, keys].sum(-1)  # (L, H)
    layer, head = np.unravel_index(int(weight.argmax()), weight.shape)
    return {"layer": int(layer), "head": int(head), "token": query}


def _aim(raw: Sequence[bytes], query: str, key: str) -> tuple[int, list[int]]:
    """The last token of the last mention of one word, and the tokens of the earlier mentions of the other."""
    asked, earlier = aim(raw, query, key)
    if query == key and len(asked) > 1:  # a name in pieces: from its first to what followed the first before
        return asked[0], [at[:2][-1] for at in earlier]
    return asked[-1], [place for at in earlier for place in at]


# ---- a page without a model ----------------------------------------------------------------------------------


def demo_documents() -> list[dict[str, Any]]:
    """The three stories, seen by six heads that follow a rule each; no model has learned anything here.

    previous, start, induction, same, an even average, and one of random q and k vectors, for the step cards.
    """
    return [_demo(name, *STORIES[name]) for name in ("name", "doll", "he")]


def _demo(name: str, story: str, query: str, key: str) -> dict[str, Any]:
    pieces = ["◆", *demo_pieces(story)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    ids = np.array([vocabulary[piece] for piece in pieces])
    length, d_head = len(ids), 64
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((length, d_head)).astype("<f2").astype(np.float32) for _ in range(3))
    at = np.arange(length)
    dots = rope(rms_norm(q), at) @ rope(rms_norm(k), at).T / np.sqrt(d_head)
    by_hand = softmax(np.where(np.tri(length, dtype=bool), dots, -np.inf))
    pattern = np.stack([*_drawn(ids), by_hand])[None].astype(np.float32)  # (1, 6, T, T)
    w_o = rng.standard_normal((d_head, 384)).astype(np.float32) / np.sqrt(d_head)
    names = ("q_raw", "k_raw", "v", "z")
    trace = {
        f"blocks.0.attn.{n}": np.stack([x] * 6) for n, x in zip(names, (q, k, v, by_hand @ v), strict=True)
    }
    tensors = {"blocks.0.attn.proj.weight": np.tile(w_o.T, 6), "blocks.0.attn.q_norm.weight": np.ones(d_head),
               "blocks.0.attn.k_norm.weight": np.ones(d_head)}  # fmt: skip
    config = {
        "n_layer": 1,
        "n_head": 6,
        "d_model": 384,
        "context": 512,
        "rope_theta": 10000.0,
        "norm_eps": 1e-6,
    }
    return {
        "format": FORMAT, "version": VERSION, "created_with": __version__,
        "model": {**_model("rules", "rule", {}, config), "parameters": None},
        "text": {"name": name, "ids": ids.tolist(), "pieces": pieces, "T": length,
                 "start": (ids == 0).tolist(), "partial": [False] * length, "dropped": 0},
        "losses": None,
        **codec.encode(pattern),
        "qkv": _qkv(trace, tensors, config, [(0, 5)]),
        "heads": head_scores(pattern, ids.tolist(), 0), "even": even_scores(ids.tolist(), 0),
        "view": opening(pattern, [piece.encode() for piece in pieces], (query, key)),
        "checks": {},
    }  # fmt: skip


def demo_pieces(story: str) -> list[str]:
    """Words and marks with the space in front, as a tokenizer cuts; an unknown name falls into parts."""
    cut = {" Zorbin": [" Z", "or", "bin"], " Plax": [" Pl", "ax"]}
    return [part for word in re.findall(r"\s?\w+|\s?[^\w\s]", story) for part in cut.get(word, [word])]


def _drawn(ids: np.ndarray) -> list[np.ndarray]:
    """Five maps (T, T) by rule. Where a rule finds nothing to look at, the head rests on ◆."""
    length = len(ids)
    asked = np.arange(length)[:, None] >= scores.FIRST
    cells = {kind: where & asked for kind, where in scores.kind_cells(ids, 0).items()}
    rest = scores.uniform(length)  # a little for everybody
    start = np.zeros((length, length))
    start[:, 0] = 1

    def head(where: np.ndarray, share: float) -> np.ndarray:
        count = where.sum(-1, keepdims=True)
        found = where / np.maximum(1, count)
        aim = np.where(count > 0, share * found + (0.92 - share) * start, 0.92 * start)
        return aim + 0.08 * rest

    return [head(cells["previous"], 0.84), head(cells["start"], 0.8), head(cells["induction"], 0.78),
            head(cells["duplicate"], 0.72), rest]  # fmt: skip


# ---- the page ------------------------------------------------------------------------------------------------


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


# ---- the command ---------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py page`."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run folder, or one of its step folders")
    parser.add_argument("--demo", action="store_true", help="heads that follow rules; no run needed")
    parser.add_argument("--text", help="the text to look at (default: three built-in stories)")
    parser.add_argument("--file", help="a text file to look at; - reads standard input")
    parser.add_argument(
        "--compare",
        metavar="RUN2",
        action="append",
        help="another run of the same tokenizer, side by side; may be given again",
    )
    parser.add_argument(
        "--live", action="store_true", help="a page that holds the run and computes: type a text in it"
    )
    parser.add_argument(
        "--small", action="store_true", help="with --live: weights of 8 bits; says what it costs"
    )
    parser.add_argument("--query", help="open the page at the last mention of this word ...")
    parser.add_argument("--key", help="... and on the head that looks hardest from it to this word")
    parser.add_argument(
        "--steps", default="", metavar="L.H[,L.H]|all", help="heads whose q, k and v travel along, from 1"
    )
    parser.add_argument(
        "--on-long", choices=["error", "head", "tail"], default="error", help="what to keep of a long text"
    )
    parser.add_argument("--allow-empty", action="store_true", help="an empty text is the start sign alone")
    parser.add_argument(
        "--out", default="page.html", help="a .html page, or .json for its documents (page.html)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def run(args: argparse.Namespace) -> int:
    """`attend.py page`: gather documents, write the page, print one line."""
    out = check_out(args.out, (".html", ".json"), args.force) or Path("page.html")
    if args.demo == bool(args.run):
        raise UserError("give a run folder or --demo, one of the two")
    asked = [name for name in ("text", "file", "compare", "query", "key") if getattr(args, name) is not None]
    asked += ["steps"] * bool(args.steps)
    if args.demo and asked:
        raise UserError(f"--demo shows its own texts and heads. Got --{asked[0]}; give a run folder for that")
    if (args.query is None) != (args.key is None):
        raise UserError("--query and --key go together: from which word, to which word")
    if args.query is not None and args.text is None and args.file is None:
        raise UserError("--query and --key are words of your text; give --text or --file too")
    if args.small and not args.live:
        raise UserError("--small is for a live page; give --live too")
    if args.live:
        return run_live(args, out)
    documents = demo_documents() if args.demo else run_documents(args)
    if out.suffix.lower() == ".json":
        content = json.dumps(documents, ensure_ascii=False, allow_nan=False).encode()
    else:
        content = page(documents).encode()
    write_out(out, content)
    texts, runs = ({doc[part]["name"] for doc in documents} for part in ("text", "model"))
    print(f"{out}: texts {len(texts)}, runs {len(runs)}, {len(content) / 1e6:.2f} MB")
    return 0


def run_live(args: argparse.Namespace, out: Path) -> int:
    """`attend.py page --live`: pack the runs, say what was rounded and what it costs, write the page."""
    if args.demo or args.steps or out.suffix.lower() != ".html":
        raise UserError("--live wants a run and an --out that ends in .html, without --demo and --steps")
    runs = open_runs(args, ("gpt", "window-mlp"))
    texts = {name: (text, look) for name, (text, *look) in _texts(args, runs[0].tokenizer).items()}
    ids = {
        name: [subject.encode(text, "head", True)[0] for subject in runs] for name, (text, _) in texts.items()
    }
    packs = [live.pack(subject, "i8" if args.small else "bf16") for subject in runs]
    for number, (subject, packed) in enumerate(zip(runs, packs, strict=True)):
        packed["model"] = _model(subject.name, "trained", subject.weights, live.settings(subject))
        changed = 1.0 if args.small else live.changed_share(subject.weights)
        if changed:
            own, coded = live.price(subject, packed, [lists[number] for lists in ids.values()])
            print(f"{subject.name}: {changed:.0%} of the weights rounded to {'8 bits' if args.small else 'bf16'}; "
                  f"loss on {len(ids)} texts {own:.4f} -> {coded:.4f} nats a token ({coded - own:+.4f})")  # fmt: skip
    contents = {
        "runs": packs,
        "tokenizer": live.tokenizer_block(runs[0].tokenizer),
        "texts": {
            name: {"text": text, "view": live_view(runs, ids[name], look)}
            for name, (text, look) in texts.items()
        },
    }
    content = page([], runs=contents).encode()
    write_out(out, content)
    print(f"{out}: live, runs {len(runs)}, {len(content) / 1e6:.2f} MB")
    return 0


def live_view(
    runs: Sequence[Subject], ids: Sequence[Sequence[int]], look: Sequence[str | None]
) -> dict[str, int]:
    """Where the first run that has attention opens on a text, as `opening` says."""
    for subject, own in zip(runs, ids, strict=True):
        if subject.config["kind"] == "gpt":
            trace: dict[str, np.ndarray] = {}
            forward(subject.weights, subject.config, own, trace, keep=lambda name: name.endswith("pattern"))
            words = (str(look[0]), str(look[1])) if look and look[0] is not None else None
            return opening(np.stack(list(trace.values())), spelling(subject.tokenizer, own), words)
    return {"layer": 0, "head": 0, "token": len(ids[0]) - 1}


def open_runs(args: argparse.Namespace, kinds: Sequence[str] = ("gpt",)) -> list[Subject]:
    """The runs that the words name, all of one tokenizer and each with a name of its own. Raises UserError."""
    runs = [open_subject(path, kinds) for path in (args.run, *(args.compare or []))]
    for subject in runs[1:]:
        if subject.tokenizer.sha256 != runs[0].tokenizer.sha256:
            raise UserError(
                f"{runs[0].name} and {subject.name} have different tokenizers; compare runs of one tokenizer"
            )
    names = [subject.name for subject in runs]
    numbers = [names[:at].count(name) for at, name in enumerate(names)]
    return [
        replace(subject, name=f"{subject.name} ({n + 1})" if n else subject.name)
        for subject, n in zip(runs, numbers, strict=True)
    ]


def run_documents(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A document for every text and run that the words ask for."""
    runs = open_runs(args)
    out = []
    for name, (text, *look) in _texts(args, runs[0].tokenizer).items():
        for number, subject in enumerate(runs):
            ids, dropped = subject.encode(text, args.on_long, args.allow_empty)
            steps = _steps(args.steps, subject.n_layer, subject.n_head) if not number else None
            doc = document(subject.weights, subject.config, ids, subject.tokenizer, run=subject.name, text=name,
                           look=(look[0], look[1]) if look else None, steps=steps, dropped=dropped)  # fmt: skip
            out.append(doc)
    return out


def _texts(args: argparse.Namespace, tokenizer: Tokenizer) -> dict[str, tuple[str, ...]]:
    """Name -> (text, query word, key word) or (text,)."""
    if args.text is None and args.file is None:
        return dict(stories(tokenizer))
    text = read_text(args)
    return {"own": (text, args.query, args.key) if args.query is not None else (text,)}


def _steps(words: str, n_layer: int, n_head: int) -> list[tuple[int, int]] | None:
    """Words to pairs: "6.4,1.2" -> [(5, 3), (0, 1)]; "all" -> every head; "" -> None, the head that opens the page."""
    if not words:
        return None
    if words == "all":
        return [(layer, head) for layer in range(n_layer) for head in range(n_head)]
    out = []
    for word in words.split(","):
        match = re.fullmatch(r"\s*(\d+)\.(\d+)\s*", word)
        layer, head = (int(match[1]), int(match[2])) if match else (0, 0)
        if not (1 <= layer <= n_layer and 1 <= head <= n_head):
            raise UserError(
                f"--steps wants layer.head like 1.2, layers 1 to {n_layer}, heads 1 to {n_head}. Got {word!r}"
            )
        out.append((layer - 1, head - 1))
    return out
