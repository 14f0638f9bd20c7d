"""Attention and the whole GPT in NumPy, every step by name and in the order a reader would do it by hand.

Nothing here shares code with model.py, so that each proves the other: the tests hold their logits equal.

    weights = open_subject("checkpoints/rostok").weights       # heads/capture.py; name -> NumPy array
    trace = {}
    logits = forward(weights, {"n_layer": 8, "n_head": 6}, [0, 17, 4, 250], trace)
    trace["blocks.5.attn.pattern"][3]            # layer 6, head 4: a (T, T) map whose rows sum to 1

The file climbs from the arithmetic to the model: softmax -> one head -> many heads -> the norm and the
rotation -> forward(). It leaves out batches, dropout, training and speed. Only numpy is imported.

Shapes: T time (tokens), S keys where they are more than T, D d_model, H heads, G key/value heads, E d_head,
M d_mlp, V vocab.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = Array | str | None  # None: all open; "causal"; or booleans, True where a query may look (as in torch)
Edit = Callable[[str, Array], Array]  # (name of a step, its value) -> the value to go on with
Cache = list[tuple[Array, Array]]  # one (k, v) a layer, each (G, tokens so far, E)


# ---- attention, one head -----------------------------------------------------------------------------------


def softmax(scores: npt.ArrayLike, axis: int = -1) -> Array:
    """Scores -> positive weights that sum to 1 along `axis`. A score of -inf gets exactly 0.

    The maximum is subtracted first: the result is the same, and exp() cannot overflow.

    >>> softmax([2.0, 1.0, 0.1]).round(3).tolist()
    [0.659, 0.242, 0.099]
    >>> softmax([800.0, 799.0]).round(4).tolist()
    [0.7311, 0.2689]
    """
    scores = np.asarray(scores)
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    exps = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


def causal_mask(n: int, m: int | None = None, past: int = 0) -> Array:
    """Booleans (n, m), True where query t may see key j: j <= t + past. `past` counts keys before query 0.

    With past=0 and n != m the mask is aligned at the top left, as torch's `is_causal` is.

    >>> causal_mask(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    m = n + past if m is None else m
    return np.arange(m)[None, :] <= np.arange(n)[:, None] + past


@dataclass(frozen=True)
class Steps:
    """What one attention computes, in order. Leading axes (heads) are allowed in front of each shape."""

    dots: Array  # (n, m) similarity: q_i . k_j
    scaled: Array  # (n, m) times the scale
    masked: Array  # (n, m) -inf where the mask is closed
    weights: Array  # (n, m) softmax of each row
    output: Array  # (n, d_v) each row a mixture of the ROWS of v


def attention_steps(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, *, scale: float | None = None, mask: Mask = None
) -> Steps:
    """softmax(q k^T * scale + mask) v for q (..., n, d), k (..., m, d), v (..., m, d_v): all five steps.

    `scale` is what the products are multiplied by: 1/sqrt(d) if None, 1.0 for the unscaled textbook start.
    Raises ValueError for shapes that do not fit and for a query to which every key is closed.
    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
    """
    q, k, v = (np.asarray(a) for a in (q, k, v))
    if q.ndim < 2 or k.ndim < 2 or v.ndim < 2:
        raise ValueError(f"q, k and v must be matrices. Got shapes {q.shape}, {k.shape}, {v.shape}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have rows of one length. Got q {q.shape} and k {k.shape}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have one row a key each. Got k {k.shape} and v {v.shape}")
    n, m = q.shape[-2], k.shape[-2]
    dots = q @ np.swapaxes(k, -1, -2)  # (..., n, m)
    scaled = dots * (1 / float(np.sqrt(q.shape[-1])) if scale is None else scale)
    masked = np.where(_open(mask, n, m), scaled, -np.inf).astype(scaled.dtype, copy=False)
    weights = softmax(masked)
    return Steps(dots, scaled, masked, weights, weights @ v)  # output (..., n, d_v)


def attention(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, *, scale: float | None = None, mask: Mask = None
) -> tuple[Array, Array]:
    """The same as `attention_steps`, giving only (output (..., n, d_v), weights (..., n, m))."""
    steps = attention_steps(q, k, v, scale=scale, mask=mask)
    return steps.output, steps.weights


def _open(mask: Mask, n: int, m: int) -> Array:
    """The mask as booleans that broadcast against (n, m)."""
    if mask is None:
        return np.ones((n, m), dtype=bool)
    if isinstance(mask, str):
        if mask != "causal":
            raise ValueError(f"mask must be None, 'causal' or booleans. Got {mask!r}")
        return causal_mask(n, m)
    if mask.dtype != bool or mask.shape[-2:] != (n, m):
        raise ValueError(f"mask must be booleans of shape ({n}, {m}). Got {mask.dtype} {mask.shape}")
    if not mask.any(axis=-1).all():
        raise ValueError("mask closes every key to a query: its softmax would be 0/0. Open at least one key")
    return mask


# ---- many heads ------------------------------------------------------------------------


def split_heads(x: npt.ArrayLike, n_head: int) -> Array:
    """Cut the columns into heads: (T, H*E) -> (H, T, E)."""
    x = np.asarray(x)
    return x.reshape(x.shape[0], n_head, -1).transpose(1, 0, 2)


def join_heads(z: npt.ArrayLike) -> Array:
    """Glue the heads back: (H, T, E) -> (T, H*E)."""
    z = np.asarray(z)
    return z.transpose(1, 0, 2).reshape(z.shape[1], -1)


def multi_head(
    x: npt.ArrayLike,
    w_q: npt.ArrayLike,
    w_k: npt.ArrayLike,
    w_v: npt.ArrayLike,
    n_head: int,
    *,
    n_kv_head: int | None = None,
    w_o: npt.ArrayLike | None = None,
    mask: Mask = "causal",
) -> tuple[Array, Array]:
    """Self-attention of x (T, D) in `n_head` heads: (output (T, H*E or D), weights (H, T, T)).

    Matrices multiply from the right, as textbooks write them: w_q (D, H*E), w_k, w_v (D, G*E), w_o (H*E, D).
    With n_kv_head = G < H, each group of H/G query heads shares one key and value (grouped queries,
    Ainslie et al. 2023).
    """
    x, groups = np.asarray(x), n_kv_head or n_head
    if n_head % groups:
        raise ValueError(f"n_head must be a multiple of n_kv_head. Got {n_head} and {groups}")
    q = split_heads(x @ np.asarray(w_q), n_head)  # (H, T, E)
    k, v = (
        np.repeat(split_heads(x @ np.asarray(w), groups), n_head // groups, axis=0) for w in (w_k, w_v)
    )  # (H, T, E)
    z, weights = attention(q, k, v, mask=mask)  # (H, T, E), (H, T, T)
    y = join_heads(z)  # (T, H*E)
    return (y if w_o is None else y @ np.asarray(w_o)), weights


# ---- the other parts of a block ---------------------------------------------------------------------------


def rms_norm(x: npt.ArrayLike, gain: npt.ArrayLike | float = 1.0, eps: float = 1e-6) -> Array:
    """x / sqrt(mean(x^2) + eps) * gain along the last axis: the length is lost, the direction stays."""
    x = np.asarray(x)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * gain


def rope(x: npt.ArrayLike, positions: npt.ArrayLike, theta: float = 10000.0) -> Array:
    """Rotate each pair (x_i, x_{i+E/2}) of x (..., T, E) by the angle position * theta^(-2i/E).

    The dot product of a rotated query and a rotated key depends on the distance of their positions alone
    (Su et al. 2021, RoFormer). Lengths do not change.
    """
    x = np.asarray(x)
    half = x.shape[-1] // 2
    angles = np.outer(np.asarray(positions), theta ** (-np.arange(half) / half))  # (T, E/2)
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    x1, x2 = x[..., :half], x[..., half:]
    return np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], axis=-1)


def silu(x: npt.ArrayLike) -> Array:
    """x * sigmoid(x), written with tanh so that nothing overflows."""
    x = np.asarray(x)
    return x * 0.5 * (1 + np.tanh(x / 2))


def score_bound(q_gain: npt.ArrayLike, k_gain: npt.ArrayLike) -> float:
    """The largest |score| that QK-norm allows: sqrt(E) * max|q_gain| * max|k_gain|; RoPE keeps lengths."""
    q_gain, k_gain = np.asarray(q_gain), np.asarray(k_gain)
    return float(np.sqrt(q_gain.shape[-1]) * np.abs(q_gain).max() * np.abs(k_gain).max())


# ---- the whole model ---------------------------------------------------------------------------------------


def forward(
    weights: Mapping[str, Array],
    config: Any,
    ids: Sequence[int] | Array,
    trace: dict[str, Array] | None = None,
    *,
    cache: Cache | None = None,
    keep: Callable[[str], bool] | None = None,
    edit: Edit | None = None,
) -> Array:
    """Token ids (T,) -> logits (T, V) in the dtype of the weights. `config`: model.py's or a mapping like it.

    Steps go into `trace` under these names (all, or those for which keep(name) is true), L = 0, 1, ...:

        embed, blocks.L.resid_pre                (T, D)     the stream that enters the block
        blocks.L.attn.norm                       (T, D)     RMSNorm of it
        blocks.L.attn.q_raw, k_raw, v            (H|G, T, E) the projections, cut into heads
        blocks.L.attn.q_norm, k_norm             (H|G, T, E) after QK-norm
        blocks.L.attn.q, k                       (H|G, T, E) after RoPE: these are multiplied
        blocks.L.attn.dots, scaled, scores       (H, T, S)  q.k; divided by sqrt(E); -inf in the future
        blocks.L.attn.pattern                    (H, T, S)  softmax: the weights
        blocks.L.attn.z                          (H, T, E)  the mixture of values
        blocks.L.attn.result                     (H, T, D)  what each head adds to the stream
        blocks.L.attn.out, blocks.L.resid_mid    (T, D)     the sum of heads; the stream after it
        blocks.L.mlp.norm                        (T, D)
        blocks.L.mlp.pre, up, post               (T, M)     gate before silu; up; silu(gate) * up
        blocks.L.mlp.out, blocks.L.resid_post    (T, D)
        final_norm                               (T, D)
        logits                                   (T, V)

    With `cache` (start with an empty list, keep passing it) ids are the NEW tokens; S counts old ones too.
    `edit` may replace the value of any step but dots, scaled and scores; what follows is computed from it (ablate.py).
    """
    ids = np.asarray(ids)
    if ids.ndim != 1 or ids.size == 0:
        raise ValueError(f"ids must be one row of at least one token. Got shape {ids.shape}")
    setting = (
        config.get if isinstance(config, Mapping) else lambda name, default: getattr(config, name, default)
    )

    def note(name: str, value: Array) -> Array:
        if edit is not None:
            value = edit(name, value)
        if trace is not None and (keep is None or keep(name)):
            trace[name] = value
        return value

    x = note("embed", weights["embed.weight"][ids])  # (T, D)
    for layer in range(setting("n_layer", 8)):
        name = f"blocks.{layer}."
        w = {key.removeprefix(name): value for key, value in weights.items() if key.startswith(name)}
        past = cache[layer] if cache is not None and layer < len(cache) else None
        x, kv = _block(x, w, setting, past, lambda part, value, at=name: note(at + part, value))
        if cache is not None:
            cache[layer : layer + 1] = [kv]
    x = note("final_norm", rms_norm(x, weights["final_norm.weight"], setting("norm_eps", 1e-6)))
    head = weights.get("head.weight", weights["embed.weight"])  # tied: the embedding is the head
    return note("logits", x @ head.T)  # (T, V)


def _block(
    x: Array,
    w: Mapping[str, Array],
    setting: Callable[[str, Any], Any],
    past: tuple[Array, Array] | None,
    note: Callable[[str, Array], Array],
) -> tuple[Array, tuple[Array, Array]]:
    """One block: (the stream that leaves it (T, D), its keys and values so far)."""
    eps = setting("norm_eps", 1e-6)
    x = note("resid_pre", x)
    normed = note("attn.norm", rms_norm(x, w["attn_norm.weight"], eps))
    out, kv = _attend(normed, w, setting, past, lambda part, value: note(f"attn.{part}", value))
    x = note("resid_mid", x + out)
    normed = note("mlp.norm", rms_norm(x, w["mlp_norm.weight"], eps))
    pre = note("mlp.pre", normed @ w["mlp.gate.weight"].T)  # (T, M)
    up = note("mlp.up", normed @ w["mlp.up.weight"].T)
    post = note("mlp.post", silu(pre) * up)
    return note("resid_post", x + note("mlp.out", post @ w["mlp.down.weight"].T)), kv  # (T, D)


def _attend(
    x: Array,
    w: Mapping[str, Array],
    setting: Callable[[str, Any], Any],
    past: tuple[Array, Array] | None,
    note: Callable[[str, Array], Array],
) -> tuple[Array, tuple[Array, Array]]:
    """The attention of one block: (what it adds to the stream (T, D), its keys and values so far)."""
    n_head, eps, theta = setting("n_head", 6), setting("norm_eps", 1e-6), setting("rope_theta", 10000.0)
    d_head = w["attn.q_norm.weight"].shape[0]
    n_kv_head = setting("n_kv_head", None) or n_head
    if w["attn.qkv.weight"].shape[0] != (n_head + 2 * n_kv_head) * d_head:
        raise ValueError(
            f"qkv {w['attn.qkv.weight'].shape} does not fit {n_head} + 2 x {n_kv_head} heads of {d_head}"
        )
    cuts = [n_head * d_head, (n_head + n_kv_head) * d_head]
    q, k, v = np.split(x @ w["attn.qkv.weight"].T, cuts, axis=-1)  # (T, H*E), (T, G*E), (T, G*E)
    q = note("q_raw", split_heads(q, n_head))  # (H, T, E)
    k = note("k_raw", split_heads(k, n_kv_head))  # (G, T, E)
    v = note("v", split_heads(v, n_kv_head))
    q = note("q_norm", rms_norm(q, w["attn.q_norm.weight"], eps))
    k = note("k_norm", rms_norm(k, w["attn.k_norm.weight"], eps))
    start = 0 if past is None else past[0].shape[1]
    positions = np.arange(start, start + len(x))
    q, k = note("q", rope(q, positions, theta)), note("k", rope(k, positions, theta))
    if past is not None:
        k, v = np.concatenate([past[0], k], axis=1), np.concatenate([past[1], v], axis=1)  # (G, S, E)
    shared = n_head // n_kv_head  # query heads that share one key and value
    steps = attention_steps(
        q, np.repeat(k, shared, axis=0), np.repeat(v, shared, axis=0), mask=causal_mask(len(x), past=start)
    )
    note("dots", steps.dots)  # (H, T, S)
    note("scaled", steps.scaled)
    note("scores", steps.masked)
    pattern = note("pattern", steps.weights)
    z = steps.output if pattern is steps.weights else pattern @ np.repeat(v, shared, axis=0)
    z = note("z", z)  # (H, T, E)
    proj = split_heads(w["attn.proj.weight"], n_head)  # (D, H*E) -> (H, D, E)
    result = note("result", z @ proj.transpose(0, 2, 1))  # (H, T, D)
    return note("out", result.sum(axis=0)), (k, v)


def losses(logits: Array, targets: npt.ArrayLike) -> Array:
    """(T,) the loss in nats of targets (T,) given logits (T, V), in float64."""
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return (
        np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(logits)), np.asarray(targets, dtype=np.int64)]
    )
