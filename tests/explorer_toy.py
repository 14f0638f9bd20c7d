"""Toy runs for the explorer's tests: weights drawn at random, a tokenizer that is a list of pieces."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rostok.attention.page import document

STORY = "Once upon a time there was a boy named Tom. Tom had a red ball. Then he smiled and Tom ran"
TOM = STORY.split(" ")
NASTY = [
    "</script><script>document.title='broken'</script>", " <img src=x onerror=document.title='broken'>",
    '"', "'", "&amp;", " {{script}}", "\n", "\t", " ", "\x00", "\x1b", "\u202eabc", "שלום", " مرحبا",
    "👩‍👩‍👧", "🙂", "\u2028", "\\u003c", "<!--", "-->", "a" * 90,
]  # fmt: skip


class Spelling:
    """A tokenizer of fixed pieces; id 0 is ◆."""

    start_id = 0

    def __init__(self, pieces: Sequence[str | bytes]) -> None:
        self.pieces = [b"<|endoftext|>", *(p.encode() if isinstance(p, str) else p for p in pieces)]

    def token_bytes(self, id: int, /) -> bytes:
        return self.pieces[id]


def settings(n_layer: int = 2, n_head: int = 2, d_head: int = 16, vocab_size: int = 64) -> dict[str, Any]:
    return {"kind": "gpt", "n_layer": n_layer, "n_head": n_head, "n_kv_head": None, "d_model": n_head * d_head,
            "context": 512, "vocab_size": vocab_size, "rope_theta": 10000.0, "norm_eps": 1e-6}  # fmt: skip


def weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights, large enough that attention is uneven; all gains differ from one."""
    rng, D = np.random.default_rng(seed), config["d_model"]
    E = D // config["n_head"]

    def draw(*shape: int, scale: float = 0.3) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    out = {"embed.weight": draw(config["vocab_size"], D), "final_norm.weight": 1 + draw(D, scale=0.1)}
    for layer in range(config["n_layer"]):
        parts = {
            "attn_norm.weight": 1 + draw(D, scale=0.1), "mlp_norm.weight": 1 + draw(D, scale=0.1),
            "attn.qkv.weight": draw(3 * D, D), "attn.proj.weight": draw(D, D),
            "attn.q_norm.weight": 1.5 + draw(E, scale=0.1), "attn.k_norm.weight": 1 + draw(E, scale=0.1),
            "mlp.gate.weight": draw(2 * D, D), "mlp.up.weight": draw(2 * D, D), "mlp.down.weight": draw(D, 2 * D),
        }  # fmt: skip
        out |= {f"blocks.{layer}.{name}": value for name, value in parts.items()}
    return out


def spaced(words: Sequence[str]) -> list[str]:
    """Words with the space in front that a tokenizer leaves there."""
    return [words[0], *(" " + word for word in words[1:])]


def toy(
    words: Sequence[str | bytes], seed: int = 0, config: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A document of a toy run on these pieces; equal pieces get equal ids."""
    config = config or settings()
    kinds = list(dict.fromkeys(words))
    pieces = Spelling([*kinds, *(f" w{i}" for i in range(config["vocab_size"] - 1 - len(kinds)))])
    ids = [0, *(kinds.index(word) + 1 for word in words)]
    return document.document(weights(config, seed), config, ids, pieces, **more)
