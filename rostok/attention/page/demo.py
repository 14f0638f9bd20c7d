"""A page without a model: heads drawn by rule, so that one knows in advance what each of them should do.

demo_documents() -> [dict, ...]
"""

import re
from typing import Any

import numpy as np

from rostok import __version__
from rostok.attention.heads import scores
from rostok.attention.page import codec
from rostok.attention.page.document import (
    FORMAT,
    VERSION,
    describe_model,
    even_scores,
    head_scores,
    opening,
    qkv_block,
)
from rostok.attention.page.stories import STORIES
from rostok.attention.reference import rms_norm, rope, softmax


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
        "model": {**describe_model("rules", "rule", {}, config), "parameters": None},
        "text": {"name": name, "ids": ids.tolist(), "pieces": pieces, "T": length,
                 "start": (ids == 0).tolist(), "partial": [False] * length, "dropped": 0},
        "losses": None,
        **codec.encode(pattern),
        "qkv": qkv_block(trace, tensors, config, [(0, 5)]),
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
