"""What a run computes on one text, as the JSON document that the page shows: maps, losses, kinds of heads, q, k and v.

    document(weights, config, ids, tokenizer) -> dict

The fields are described in docs/explorer.md. It is strict JSON (no NaN), about 150 KB at 64 tokens. page/worker.js
computes the same in a live page; tests/test_live.py compares the two.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rostok import __version__
from rostok.attention.heads import scores
from rostok.attention.heads.capture import Spelling, aim, spelling
from rostok.attention.page import codec
from rostok.attention.reference import forward, softmax
from rostok.errors import UserError

FORMAT, VERSION = "rostok-attention", 1


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
        "model": describe_model(run, "trained", weights, config),
        "text": {"name": text, "ids": [int(i) for i in ids], "pieces": list(pieces), "T": length,
                 "start": [int(i) == tokenizer.start_id for i in ids], "partial": list(partial), "dropped": dropped},
        "losses": losses(trace["logits"], ids, tokenizer),
        **codec.encode(pattern),
        "qkv": qkv_block(trace, weights, config, steps),
        "heads": list(heads) if heads is not None else head_scores(pattern, ids, tokenizer.start_id),
        "even": even_scores(ids, tokenizer.start_id),
        "view": view,
        "checks": {"row_sum_max_err": _short(np.abs(pattern.sum(-1) - 1).max()),
                   "future_max": float(np.triu(pattern, 1).max())},
    }  # fmt: skip


def describe_model(
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


def qkv_block(
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
