"""What a live page carries: the weights of a run, packed, and its tokenizer, so that the browser computes by itself.

    pack(subject, "bf16") -> {"name", "config", "header", "data"}      # page/weights.js reads it
    unpacked(packed) -> {name: array}                                  # the numbers that the browser will compute with
    tokenizer_block(tokenizer) -> {"pieces", "pattern", "start"}       # page/tokenizer.js reads it

Codings: `bf16` (two planes of bytes, the upper ones first: equal bytes lie together and gzip finds them), `f32` (four
planes), `i8` (a byte a number, a bf16 scale for every 32 of a row; norms and biases stay f32). Left out: other groups.
"""

import base64
import gzip
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rostok.attention.heads.capture import Subject
from rostok.attention.reference import forward
from rostok.errors import UserError
from rostok.text.tokenizer import Tokenizer

GROUP = 32  # numbers that share a scale in `i8`
# what \s is in Rust; JavaScript's is another
SPACES = r"\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def changed_share(weights: Mapping[str, np.ndarray]) -> float:
    """The share of the numbers that bf16 would round; 0 for a run that was saved in bf16."""
    changed = sum(int(((w.astype("<f4").view(np.uint32) & 0xFFFF) > 0).sum()) for w in weights.values())
    return changed / max(1, sum(w.size for w in weights.values()))


def price(subject: Subject, packed: Mapping[str, Any], texts: Sequence[Sequence[int]]) -> tuple[float, float]:
    """The mean loss on texts of ids (◆ first), nats a token: with the run's own weights, with the packed ones."""
    own, coded = (
        np.concatenate([nats(weights, subject.config, ids) for ids in texts]).mean()
        for weights in (subject.weights, unpacked(packed))
    )
    return float(own), float(coded)


def nats(weights: Mapping[str, np.ndarray], config: Mapping[str, Any], ids: Sequence[int]) -> np.ndarray:
    """(T - 1,) the loss of every token but the first."""
    logits = (
        forward(weights, config, ids) if config["kind"] == "gpt" else window_forward(weights, config, ids)
    )
    logs = logits[:-1].astype(np.float64)
    logs -= logs.max(-1, keepdims=True)
    return np.log(np.exp(logs).sum(-1)) - logs[np.arange(len(ids) - 1), list(ids[1:])]


def window_forward(
    weights: Mapping[str, np.ndarray], config: Mapping[str, Any], ids: Sequence[int]
) -> np.ndarray:
    """The window MLP of model.py: ids (T,) -> logits (T, V)."""
    padded = [config.get("start_id", 0)] * (config["window"] - 1) + list(ids)
    rows = np.lib.stride_tricks.sliding_window_view(np.array(padded), config["window"])  # (T, window)
    x = weights["embed.weight"][rows].reshape(len(rows), -1)
    hidden = x @ weights["hidden.weight"].T + weights["hidden.bias"]
    hidden = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))  # gelu
    return (hidden @ weights["head.weight"].T + weights["head.bias"]).astype(np.float32)


def pack(subject: Subject, coding: str) -> dict[str, Any]:
    """The run as the page carries it. `coding` is bf16 (rounded where it must be), f32 or i8."""
    header, blobs = [], []
    for name, weight in sorted(subject.weights.items()):
        own = coding_of(weight, coding)
        header.append([name, own, list(weight.shape)])
        blobs.append(encode(weight.astype("<f4"), own))
    data = base64.b64encode(gzip.compress(b"".join(blobs), 9, mtime=0)).decode("ascii")
    return {"name": subject.name, "config": settings(subject), "header": header, "data": data}


def coding_of(weight: np.ndarray, coding: str) -> str:
    """i8 is for matrices whose rows fall into groups; what is small or uneven stays f32."""
    return "f32" if coding == "i8" and (weight.ndim < 2 or weight.shape[-1] % GROUP) else coding


def encode(weight: np.ndarray, coding: str) -> bytes:
    if coding == "i8":
        groups = weight.reshape(-1, GROUP)
        scale = round_up_bf16(np.abs(groups).max(1) / 127)
        codes = np.rint(groups / np.where(scale > 0, scale, 1)[:, None]).astype(np.int8)
        return planes(scale, 2) + codes.tobytes()
    return planes(round_bf16(weight) if coding == "bf16" else weight, 2 if coding == "bf16" else 4)


def planes(numbers: np.ndarray, width: int) -> bytes:
    """The `width` upper bytes of float32 numbers, one plane a byte, the highest first."""
    raw = np.ascontiguousarray(numbers, "<f4").view(np.uint8).reshape(-1, 4)
    return b"".join(raw[:, 3 - i].tobytes() for i in range(width))


def round_bf16(numbers: np.ndarray) -> np.ndarray:
    """To the nearest number whose lower 16 bits are zero, ties to even."""
    bits = np.ascontiguousarray(numbers, "<f4").view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).reshape(numbers.shape)


def round_up_bf16(numbers: np.ndarray) -> np.ndarray:
    """To the next number of bf16 that is not smaller, for numbers from 0 on."""
    bits = np.ascontiguousarray(numbers, "<f4").view(np.uint32).astype(np.uint64)
    return ((bits + 0xFFFF) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def unpacked(packed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The weights as page/weights.js reads them."""
    raw, out, at = gzip.decompress(base64.b64decode(packed["data"])), {}, 0

    def take(count: int, width: int) -> np.ndarray:
        nonlocal at
        part = np.frombuffer(raw, np.uint8, count * width, at).reshape(width, count)
        at += count * width
        bits = np.zeros((count, 4), np.uint8)
        bits[:, [3 - i for i in range(width)]] = part.T
        return bits.view("<f4")[:, 0]

    for name, coding, shape in packed["header"]:
        count = int(np.prod(shape))
        if coding == "i8":
            scale = take(count // GROUP, 2)
            codes = np.frombuffer(raw, np.int8, count, at).reshape(-1, GROUP)
            at += count
            out[name] = (codes * scale[:, None]).astype(np.float32).reshape(shape)
        else:
            out[name] = take(count, 2 if coding == "bf16" else 4).reshape(shape)
    return out


def settings(subject: Subject) -> dict[str, Any]:
    """The config with nothing left open, so that the page needs no defaults of model.py."""
    return {"norm_eps": 1e-6, "rope_theta": 10000.0, "start_id": subject.tokenizer.start_id, **subject.config}


def tokenizer_block(tokenizer: Tokenizer) -> dict[str, Any]:
    """Pieces as strings with one character a byte, the split pattern in JavaScript's words, the id of ◆."""
    pieces = [tokenizer.token_bytes(i).decode("latin-1") for i in range(tokenizer.vocab_size)]
    pattern = javascript_pattern(tokenizer.encoding._pat_str)
    return {"pieces": pieces, "pattern": pattern, "start": tokenizer.start_id}


def javascript_pattern(pattern: str) -> str:
    r"""A split pattern of tiktoken, which is Rust's, as JavaScript means it with the flags g and u.

    \s and \S are written out (U+0085 is a space for Rust alone, U+FEFF for JavaScript alone), (?i:...) too, since it
    takes ſ for s; possessive marks go, for none of these patterns could give back what it has taken.
    """
    pattern = re.sub(r"\(\?i:([^)]*)\)", lambda found: f"(?:{either_case(found[1])})", pattern)
    pattern = re.sub(r"(\{\d+(?:,\d*)?\}|[*+?])\+", r"\1", pattern)
    out, inside, at = "", False, 0
    while at < len(pattern):
        two = pattern[at : at + 2]
        if two[0] == "\\" and two in (r"\s", r"\S"):
            if two == r"\S" and inside:
                raise UserError(
                    rf"--live cannot read this tokenizer's pattern: \S inside brackets, {pattern!r}"
                )
            out += SPACES if inside else f"[{'^' if two == chr(92) + 'S' else ''}{SPACES}]"
        elif two[0] == "\\":
            out += two
        else:
            inside = two[0] == "[" or (inside and two[0] != "]")
            out += two[0]
        at += 2 if two[0] == "\\" else 1
    return out


def either_case(words: str) -> str:
    """Letters outside brackets as both cases: 're -> '[rR][eE]; s also as ſ. A bracket of letters gets both cases."""
    longs = {"s": "ſ", "k": "\u212a"}

    def both(letters: str) -> str:
        return "".join(c.lower() + c.upper() + longs.get(c.lower(), "") for c in letters)

    parts = re.split(r"(\[[a-zA-Z]+\])", words)
    return "".join(
        f"[{both(part[1:-1])}]"
        if part.startswith("[")
        else re.sub("[a-zA-Z]", lambda c: f"[{both(c[0])}]", part)
        for part in parts
    )
