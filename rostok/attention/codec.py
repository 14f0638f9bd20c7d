"""Attention weights as a short string: 48 heads of 512 tokens in about 4 MB instead of 150 MB of JSON.

Two blocks travel together, each one gzip, then base64:

    exact    the 8 largest weights of every row: their positions, and their values in 24 bits (6e-8, float32's own grain)
    weights  every other weight of the lower triangle as one byte, in the order [layer][head][query][key]

The byte is `sqrt-u8`, rint(255 sqrt(a)): small weights keep their digits. Where that gets too long, `linear-u8` is used:
255 parts are dealt out over the row by largest remainder. In both, a reader scales the bytes of a row so that, with
the exact ones, the row sums to 1. So every weight is right to 0.004 and every one of the top eight is right to 6e-8.

`page/codec.js` reads the same bytes; tests compare the two. What is left out: nothing above the diagonal is stored.

    block = encode(pattern)          # pattern (L, H, T, T), rows sum to 1, zeros above the diagonal
    decode(block)                    # (L, H, T, T) again
"""

import base64
import gzip
from typing import Any

import numpy as np

TOP = 8  # weights of a row that are kept exactly
FULL = 2**24 - 1  # the largest 24-bit number stands for a weight of 1
LONGEST = 4_600_000  # characters of base64; above this sqrt-u8 gives way to linear-u8


def pack(raw: bytes) -> str:
    """Bytes -> gzip -> base64. No time stamp inside: the same bytes always give the same string."""
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode("ascii")


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
    tops = [_top(head) for head in flat]
    index, value = (np.stack(parts) for parts in zip(*tops, strict=True))  # (L*H, T, k) each
    rest = flat.copy()
    np.put_along_axis(rest, index, 0.0, -1)  # the exact ones are not told twice
    coding, text = "sqrt-u8", pack(_lower(np.rint(255 * np.sqrt(rest))))
    if len(text) > longest:
        coding, text = "linear-u8", pack(b"".join(_lower(_deal(head)) for head in rest))
    block = {
        "weights": {"coding": coding, "order": "lht-lower", "shape": [layers, heads, length], "base64": text},
        "exact": {"k": index.shape[-1], "index": pack(_planes(index, 2)), "value": pack(_planes(value, 3))},
    }
    block["weights"]["max_abs_err"] = float(f"{np.abs(decode(block) - pattern).max():.3g}")
    return block


def decode(block: dict[str, Any]) -> np.ndarray:
    """The weights (L, H, T, T), float32, that a reader of the block sees."""
    layers, heads, length = block["weights"]["shape"]
    power = 2 if block["weights"]["coding"] == "sqrt-u8" else 1
    codes = np.frombuffer(unpack(block["weights"]["base64"]), np.uint8).reshape(layers * heads, -1)
    shape = (layers * heads, length, block["exact"]["k"])
    index = _from_planes(unpack(block["exact"]["index"]), 2).reshape(shape)
    value = _from_planes(unpack(block["exact"]["value"]), 3).reshape(shape) / FULL
    out = [_head(*parts, power) for parts in zip(codes, index, value, strict=True)]
    return np.stack(out).reshape(layers, heads, length, length)


def _head(codes: np.ndarray, index: np.ndarray, value: np.ndarray, power: int) -> np.ndarray:
    """One head: (T(T+1)/2) bytes, exact positions and values (T, k) -> weights (T, T)."""
    below = np.tril(np.ones((len(index), len(index)), bool))
    rest = np.zeros(below.shape, np.float32)
    rest[below] = (codes / np.float32(255)) ** power
    missing = np.maximum(0, 1 - value.sum(-1, keepdims=True))  # what the row's other weights share
    total = rest.sum(-1, keepdims=True)
    others = below.copy()
    np.put_along_axis(others, index, False, -1)
    even = others * missing / np.maximum(1, others.sum(-1, keepdims=True))  # where all their bytes are 0
    out = np.where(total > 0, rest * missing / np.where(total > 0, total, 1), even)
    np.put_along_axis(out, index, value, -1)
    return (out * below).astype(np.float32)  # the padding of rows shorter than k falls away


def _top(head: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (ascending) and 24-bit values of the k largest weights of every row of (T, T)."""
    k = min(TOP, len(head))
    masked = np.where(np.tri(len(head), dtype=bool), head, -1)  # the past goes before the closed future
    index = np.sort(np.argpartition(-masked, k - 1, axis=-1)[:, :k], -1)
    return index, np.rint(FULL * np.take_along_axis(head, index, -1).astype(np.float64)).astype(np.int64)


def _deal(rest: np.ndarray) -> np.ndarray:
    """Deal 255 parts over every row in proportion to `rest`; the largest remainders get the parts left over."""
    share = 255 * rest.astype(np.float64) / np.maximum(rest.sum(-1, keepdims=True, dtype=np.float64), 1e-300)
    parts = np.floor(share)
    left = np.rint(share.sum(-1, keepdims=True) - parts.sum(-1, keepdims=True))
    place = np.argsort(np.argsort(parts - share, -1), -1)
    return parts + ((place < left) & (rest > 0))


def _lower(codes: np.ndarray) -> bytes:
    return codes[..., np.tri(codes.shape[-1], dtype=bool)].astype(np.uint8).tobytes()  # (..., T(T+1)/2)


def _planes(numbers: np.ndarray, width: int) -> bytes:
    """Whole numbers as `width` byte planes, lowest bytes first: equal bytes lie together, so gzip finds them."""
    flat = numbers.astype("<u4").reshape(-1, 1).view(np.uint8)[:, :width]
    return np.ascontiguousarray(flat.T).tobytes()


def _from_planes(raw: bytes, width: int) -> np.ndarray:
    planes = np.frombuffer(raw, np.uint8).reshape(width, -1).astype(np.int64)
    return (planes << (8 * np.arange(width))[:, None]).sum(0)
