"""Experiments on attention: each is a function that computes a small table and a note on what it shows.

    for row in EXPERIMENTS["shuffle"]().rows: print(row)

`attend.py explain variance` prints one; `attend.py explain --list` names them all.
Everything is counted, or computed by the reference in float64 from fixed seeds, so a table is the same on every
run; seconds are left to the benchmarks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np

from rostok.attention import reference
from rostok.attention.by_hand.examples import EXAMPLES
from rostok.attention.languages import Text, in_all
from rostok.attention.reference import Array

Row = list[float | int | str | Text]  # a cell is a number, a string, or a text in every language


@dataclass(frozen=True)
class Table:
    """What an experiment found."""

    title: Text
    columns: list[Text]
    rows: list[Row]
    note: Text


def table(name: str, rows: list[Row], **numbers: Any) -> Table:
    """The table of an experiment: its words come from rostok/attention/words/, `numbers` fill their braces."""
    title, note, columns = (in_all("experiments", name, part) for part in ("title", "note", "columns"))
    heads = [
        {lang: columns[lang][i].format(**numbers) for lang in columns} for i in range(len(columns["en"]))
    ]
    return Table(title, heads, rows, {lang: text.format(**numbers) for lang, text in note.items()})


# ---- why the scores are divided by the square root of d --------------------------------------------------


def entropy(weights: Array) -> Array:
    """Entropy in nats of weights (..., n): ln n when all are equal, 0 when one has everything."""
    return -(weights * np.log(np.where(weights > 0, weights, 1))).sum(axis=-1)


def trace_of_jacobian(weights: Array) -> Array:
    """Sum of p(1 - p): the trace of the softmax's derivative, what is left of the gradient."""
    return (weights * (1 - weights)).sum(axis=-1)


def jacobian_norm(weights: Array) -> Array:
    """Frobenius norm of diag(p) - p p^T."""
    second = (weights**2).sum(axis=-1)
    return np.sqrt(
        np.maximum(second - 2 * (weights**3).sum(axis=-1) + second**2, 0)
    )  # rounding may go below 0


def pair_products(d: int, pairs: int, rng: np.random.Generator) -> Array:
    """Products (pairs,) of independent pairs of standard normal vectors of d numbers, 1,000 pairs at a time."""
    parts = (rng.standard_normal((2, min(1000, pairs - done), d)) for done in range(0, pairs, 1000))
    return np.concatenate([(q * k).sum(axis=-1) for q, k in parts])


def key_products(d: int, queries: int, keys: int, rng: np.random.Generator) -> Array:
    """Products (queries, keys) of standard normal vectors of d numbers, new keys for each query."""
    return np.stack([rng.standard_normal((keys, d)) @ rng.standard_normal(d) for _ in range(queries)])


def variance(
    dims: Sequence[int] = (2, 64, 512, 1024),
    pairs: int = 10_000,
    queries: int = 400,
    keys: int = 64,
    seed: int = 1,
) -> Table:
    """Spread of q.k against d, and what the softmax over `keys` keys becomes with and without 1/sqrt(d)."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for d in dims:
        spread = pair_products(d, pairs, rng)
        row: Row = [d, float(spread.var()), float(spread.std() / np.sqrt(d))]
        products = key_products(d, queries, keys, rng)
        raw, scaled = reference.softmax(products), reference.softmax(products / np.sqrt(d))
        for measure in (lambda w: w.max(axis=-1), entropy, trace_of_jacobian, jacobian_norm):
            row += [float(measure(raw).mean()), float(measure(scaled).mean())]
        rows.append(row)
    return table("variance", rows, queries=queries, keys=keys, equal=np.log(keys))


# ---- the shuffled past -----------------------------------------------------------------------------------


def stack(x: Array, weights: Sequence[Sequence[Array]], *, causal: bool, positions: bool) -> Array:
    """Attention layers with a residual stream, nothing else: x (T, D) -> (T, D). A triple (W_q, W_k, W_v) each."""
    for w_q, w_k, w_v in weights:
        q, k = x @ w_q, x @ w_k
        if positions:
            q, k = reference.rope(q, np.arange(len(x))), reference.rope(k, np.arange(len(x)))
        x = x + reference.attention(q, k, x @ w_v, mask="causal" if causal else None)[0]
    return x


def shuffle_change(layers: int, *, causal: bool, positions: bool, seed: int = 0) -> float:
    """The largest change of the last token's output over all 24 orders of the four tokens before it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((5, 8))
    weights = [[rng.standard_normal((8, 8)) / np.sqrt(8) for _ in range(3)] for _ in range(layers)]
    outputs = [
        stack(x[[*order, 4]], weights, causal=causal, positions=positions)[-1]
        for order in permutations(range(4))
    ]
    return float(np.abs(np.array(outputs) - outputs[0]).max())


def shuffle() -> Table:
    """S3-24: does the order of the past matter to the last token? Layers, mask and RoPE switched."""
    yes, no = (in_all("experiments", "shuffle", word) for word in ("yes", "no"))
    rows: list[Row] = []
    for layers, causal, positions in product((1, 2), (True, False), (False, True)):
        change = shuffle_change(layers, causal=causal, positions=positions)
        rows.append(
            [layers, *(yes if on else no for on in (causal, positions)), change, yes if change > 1e-9 else no]
        )
    return table("shuffle", rows)


# ---- costs -----------------------------------------------------------------------------------------------


def cost(
    lengths: Sequence[int] = (8, 16, 32, 64, 128, 256, 512, 1024), d_head: int = 64, heads: int = 48
) -> Table:
    """S1-09, S3-17: scores and multiplications of one pass against the number of tokens T."""
    rows: list[Row] = [
        [
            t,
            t * t,
            t * (t + 1) // 2,
            t * (t - 1) // 2,
            heads * t * t,
            t * t * 2 * d_head,
            heads * t * t * 2 * d_head,
        ]
        for t in lengths
    ]
    return table("cost", rows, heads=heads)


def window(widths: Sequence[int] = (8, 16, 32, 64, 128, 256, 512)) -> Table:
    """S3-03: weights of the first layer of a window MLP against its window, beside one layer of attention."""
    rows: list[Row] = [[w, w * 48, w * 48 * 384, 4 * 384**2] for w in widths]
    return table("window", rows)


def cache(lengths: Sequence[int] = (1, 64, 128, 256, 512), layers: int = 8, d_model: int = 384) -> Table:
    """S0-16: scores of one head, and memory, when n tokens are generated with and without a KV cache."""
    rows: list[Row] = []
    for n in lengths:
        triangle, square, cached = (
            n * (n + 1) * (n + 2) // 6,
            n * (n + 1) * (2 * n + 1) // 6,
            n * (n + 1) // 2,
        )
        rows.append(
            [
                n,
                square,
                triangle,
                cached,
                square / cached,
                triangle / cached,
                2 * layers * d_model * 4 * n / 2**20,
            ]
        )
    return table("cache", rows)


def groups(kv_heads: Sequence[int] = (6, 3, 2, 1), tokens: int = 512) -> Table:
    """S0-18: what fewer key/value heads save in Rostok (8 layers, 6 query heads of 64)."""
    rows: list[Row] = [
        [g, 2 * 8 * 64 * g * 4 * tokens / 2**20, 384 * (6 + 2 * g) * 64, 384 * (6 + 2 * g) * 64 + 384**2]
        for g in kv_heads
    ]
    return table("groups", rows, tokens=tokens)


# ---- softmax ---------------------------------------------------------------------------------------------


def overflow() -> Table:
    """S0-12: exp(800) in three number formats, with and without the shift by the maximum."""
    rows: list[Row] = []
    for name in ("float64", "float32", "float16"):
        scores = np.array([800.0, 799.0], dtype=name)
        with np.errstate(over="ignore", invalid="ignore"):
            exps = np.exp(scores)
            naive = exps / exps.sum()
        limit = float(np.log(float(np.finfo(scores.dtype).max)))
        rows.append(
            [name, limit, str(exps[0]), str(naive[0]), *(float(w) for w in reference.softmax(scores))]
        )
    return table("overflow", rows)


def sharpness(values: Sequence[float] = (0, 0.25, 0.5, 1, 2, 3, 5, 10)) -> Table:
    """W3, S3-21: the weights of "she" when all scores are multiplied by a sharpness."""
    inputs = EXAMPLES["S3-12"].inputs
    scores = (np.array(inputs["q"]) @ np.array(inputs["k"]).T)[0]
    rows: list[Row] = []
    for value in values:
        weights = reference.softmax(scores * value)
        rows.append([value, *(float(w) for w in weights), float(entropy(weights))])
    return table("sharpness", rows)


def bound(lengths: Sequence[int] = (2, 64, 256, 512), gain: float = 1.0) -> Table:
    """The largest weight QK-norm allows one key over T - 1 rivals of score 0, at head size 64."""
    best = reference.score_bound(np.full(64, gain), np.ones(64))
    rows: list[Row] = [
        [t, best, float(reference.softmax(np.array([best] + [0.0] * (t - 1)))[0])] for t in lengths
    ]
    return table("bound", rows)


# ---- losses, and one word in two sentences ---------------------------------------------------------------


def perplexity(losses: Sequence[float] = (3.31, 2.87)) -> Table:
    """S3-26: nats per token -> perplexity and bits, and what their gap means."""
    rows: list[Row] = [
        [
            nats,
            float(np.exp(nats)),
            float(np.exp(nats - 0.005)),
            float(np.exp(nats + 0.005)),
            nats / float(np.log(2)),
        ]
        for nats in losses
    ]
    gap = losses[0] - losses[-1]
    return table("perplexity", rows, gap=gap, factor=np.exp(gap))


def random_weights(config: dict[str, int], seed: int = 0) -> dict[str, Array]:
    """Random float64 weights of a small GPT under model.py's names, for experiments that need no training."""
    rng = np.random.default_rng(seed)
    d, h, g, m = (
        config["d_model"],
        config["n_head"],
        config.get("n_kv_head", config["n_head"]),
        config["d_mlp"],
    )
    e = d // h
    weights = {
        "embed.weight": rng.standard_normal((config["vocab_size"], d)),
        "final_norm.weight": np.ones(d),
    }
    for layer in range(config["n_layer"]):
        shapes = {
            "attn.qkv": ((h + 2 * g) * e, d),
            "attn.proj": (d, h * e),
            "mlp.gate": (m, d),
            "mlp.up": (m, d),
        }
        for name, (rows, columns) in {**shapes, "mlp.down": (d, m)}.items():
            weights[f"blocks.{layer}.{name}.weight"] = rng.standard_normal((rows, columns)) / np.sqrt(columns)
        for name, size in (("attn_norm", d), ("mlp_norm", d), ("attn.q_norm", e), ("attn.k_norm", e)):
            weights[f"blocks.{layer}.{name}.weight"] = np.ones(size)
    return weights


def bank() -> Table:
    """S0-07: the query, key and value of one word in two sentences, layer by layer, in an untrained model."""
    config = {"n_layer": 3, "n_head": 2, "d_model": 16, "d_mlp": 32, "vocab_size": 16}
    weights = random_weights(config)
    traces: list[dict[str, Array]] = [{}, {}]
    for ids, trace in zip(([0, 1, 2, 9], [0, 5, 6, 9]), traces, strict=True):  # 9 is "bank", last in both
        reference.forward(weights, config, ids, trace)
    rows: list[Row] = []
    for layer in range(config["n_layer"]):
        names = [f"blocks.{layer}.attn.{part}" for part in ("q_raw", "k_raw", "v")]
        rows.append(
            [layer + 1, *(float(np.abs(traces[0][n][:, -1] - traces[1][n][:, -1]).max()) for n in names)]
        )
    return table("bank", rows)


EXPERIMENTS: dict[str, Callable[[], Table]] = {
    "variance": variance,
    "shuffle": shuffle,
    "cost": cost,
    "window": window,
    "cache": cache,
    "groups": groups,
    "overflow": overflow,
    "sharpness": sharpness,
    "bound": bound,
    "perplexity": perplexity,
    "bank": bank,
}
ALIASES = {
    "S0-07": "bank",
    "S1-05": "variance",
    "S1-08": "variance",
    "S1-09": "cost",
    "S3-15": "variance",
    "S3-21": "sharpness",
    "S3-24": "shuffle",
    "gqa": "groups",
    "exp(800)": "overflow",
}
