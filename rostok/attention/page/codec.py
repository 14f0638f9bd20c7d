"""Attention weights as a short string: 48 heads of 512 tokens in about 5 MB instead of 150 MB of JSON.

Two blocks travel together, each one gzip, then base64:

    weights  one byte for every weight of the lower triangle, in the order [layer][head][query][key]
    exact    the 8 largest weights of every row in 24 bits (6e-8, float32's own grain), in the same order

A byte of 255 says: this one is among the exact. The others are `sqrt-u8`, rint(128 sqrt(a)), so that small weights
keep their digits; where that gets too long, `linear-u8`: 254 parts dealt out over the row by largest remainder. In
both, a reader scales the bytes of a row so that, with the exact ones, the row sums to 1. So every weight is right
to 0.004 (0.0027 with sqrt-u8) and every one of the top eight is right to 6e-8.

`page/codec.js` reads the same bytes; tests compare the two. What is left out: nothing above the diagonal is stored.

    block = encode(pattern)          # pattern (L, H, T, T), rows sum to 1, zeros above the diagonal
    decode(block)                    # (L, H, T, T) again
"""

import base64
import gzip
from typing import Any

import numpy as np

TOP = 8  # weights of a row that are kept exactly
EXACT = 255  # the byte that marks them
SCALE = {"sqrt-u8": 128, "linear-u8": 254}  # the byte that would stand for a weight of 1
FULL = 2**24 - 1  # the largest 24-bit number stands for a weight of 1
LONGEST = 4_700_000  # characters of base64; above this sqrt-u8 gives way to linear-u8


def pack(raw: bytes) -> str:
    """Bytes -> gzip -> base64. No time stamp inside: the same bytes always give the same string."""
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode("ascii")


def unpack(text: str) -> bytes:
    """The inverse of `pack`."""
    return gzip.decompress(base64.b64decode(text))


def encode(pattern: np.ndarray, longest: int = LONGEST) -> dict[str, Any]:
    """Code attention weights (L, H, T, T). Gives {"weights": {...}, "exact": {...}}, ready for JSON.

    Raises ValueError where rows do not sum to 1 or a weight lies above the diagonal.
    """
    pattern = np.asarray(pattern, np.float32)
    layers, heads, length, _ = pattern.shape
    if not np.abs(pattern.sum(-1) - 1).max() < 1e-4 or np.triu(pattern, 1).any() or pattern.min() < 0:
        raise ValueError("attention rows must be >= 0, sum to 1 and have zeros above the diagonal")
    flat = pattern.reshape(-1, length, length)  # (L*H, T, T)
    top = np.stack([_top(head) for head in flat])
    coding, text = "sqrt-u8", pack(_bytes(np.rint(SCALE["sqrt-u8"] * np.sqrt(flat)), top))
    if len(text) > longest:
        parts = np.stack([_deal(np.where(t, 0, head)) for head, t in zip(flat, top, strict=True)])
        coding, text = "linear-u8", pack(_bytes(parts, top))
    values = np.rint(FULL * flat[top].astype(np.float64)).astype("<u4")  # in the order of the triangle
    planes = np.ascontiguousarray(values.view(np.uint8).reshape(-1, 4)[:, :3].T)  # equal bytes lie together
    block = {
        "weights": {"coding": coding, "scale": SCALE[coding], "order": "lht-lower", "shape": [layers, heads, length],
                    "base64": text},
        "exact": {"k": TOP, "coding": "u24-planes", "base64": pack(planes.tobytes())},
    }  # fmt: skip
    block["weights"]["max_abs_err"] = float(f"{np.abs(decode(block) - pattern).max():.3g}")
    return block


def decode(block: dict[str, Any]) -> np.ndarray:
    """The weights (L, H, T, T), float32, that a reader of the block sees."""
    layers, heads, length = block["weights"]["shape"]
    power = 2 if block["weights"]["coding"] == "sqrt-u8" else 1
    codes = np.frombuffer(unpack(block["weights"]["base64"]), np.uint8).reshape(layers * heads, -1)
    planes = np.frombuffer(unpack(block["exact"]["base64"]), np.uint8).reshape(3, -1).astype(np.int64)
    values = (planes[0] + 256 * planes[1] + 65536 * planes[2]) / FULL
    ends = np.cumsum((codes == EXACT).sum(-1))
    parts = np.split(values, ends[:-1])
    out = [_head(code, value, length, power) for code, value in zip(codes, parts, strict=True)]
    return np.stack(out).reshape(layers, heads, length, length)


def _head(codes: np.ndarray, values: np.ndarray, length: int, power: int) -> np.ndarray:
    """One head: T(T+1)/2 bytes and its exact values -> weights (T, T)."""
    below = np.tri(length, dtype=bool)
    square = np.zeros((length, length), np.uint8)
    square[below] = codes
    exact = square == EXACT
    out = np.zeros((length, length))
    out[exact] = values
    missing = np.maximum(0, 1 - out.sum(-1, keepdims=True))  # what the row's other weights share
    rest = np.where(exact, 0.0, square) ** power
    total, others = rest.sum(-1, keepdims=True), below & ~exact
    even = others / np.maximum(1, others.sum(-1, keepdims=True))  # where all their bytes are 0
    share = np.where(total > 0, rest / np.where(total > 0, total, 1), even)
    return (out + missing * share).astype(np.float32)


def _top(head: np.ndarray) -> np.ndarray:
    """(T, T) booleans: the 8 largest weights of every row, all of them where a row has fewer."""
    open_ = np.tri(len(head), dtype=bool)
    k = min(TOP, len(head))
    place = np.argpartition(-np.where(open_, head, -1), k - 1, axis=-1)[
        :, :k
    ]  # the past before the closed future
    out = np.zeros_like(open_)
    np.put_along_axis(out, place, True, -1)
    return out & open_


def _deal(rest: np.ndarray) -> np.ndarray:
    """Deal 254 parts over every row in proportion to `rest`; the largest remainders get the parts left over."""
    share = 254 * rest.astype(np.float64) / np.maximum(rest.sum(-1, keepdims=True, dtype=np.float64), 1e-300)
    parts = np.floor(share)
    left = np.rint(share.sum(-1, keepdims=True) - parts.sum(-1, keepdims=True))
    place = np.argsort(np.argsort(parts - share, -1), -1)
    return parts + ((place < left) & (rest > 0))


def _bytes(codes: np.ndarray, top: np.ndarray) -> bytes:
    marked = np.where(top, EXACT, codes).astype(np.uint8)
    return marked[..., np.tri(codes.shape[-1], dtype=bool)].tobytes()  # (..., T(T+1)/2)
