"""Small texts, small random models and entries, for the tests of measuring."""

from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional as F

from model import GPT, GPTConfig, WindowMLPConfig, build_model
from rostok.measuring.targets import (
    Entry,
    Losses,
    TargetList,
)

V = 50


def random_texts(lengths: list[int], seed: int = 0, vocab: int = V) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.concatenate(([0], rng.integers(1, vocab, n))) for n in lengths]


def random_model(config: GPTConfig | WindowMLPConfig, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    model = build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tiny(context: int = 16, n_kv_head: int = 2, tied: bool = True) -> GPT:
    sizes = GPTConfig(vocab_size=V, context=context, n_layer=2, n_head=2, d_model=16, d_mlp=32)
    model = random_model(replace(sizes, n_kv_head=n_kv_head, tied=tied))
    assert isinstance(model, GPT)
    return model


def entries_of(nats: list[np.ndarray], targets: TargetList) -> list[Entry]:
    return [Entry(f"m{k}", 8, targets, Losses(n, np.zeros(len(n), bool))) for k, n in enumerate(nats)]


def naive_nats(model, ids: list[int], target: int) -> float:
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0, -1]
    return F.cross_entropy(logits[None].double(), torch.tensor([target])).item()


TOKEN_BYTES = [
    b"<|endoftext|>",
    b"a",
    b"b",
    b"c",
    b" .",
    "\u0436".encode()[:1],
    *[b"w%d" % i for i in range(V - 6)],
]
