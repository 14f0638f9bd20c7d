"""A two-layer GPT whose weights are written by hand: layer 1 has a previous-token head and a sink, layer 2 an induction
head and one that looks everywhere evenly. Case C19: the detectors must name exactly these.

The stream is cut into parts: a constant, "is this ◆", who the token is, who the token before is. RoPE turns fast pairs
of a head by much and slow pairs by nearly nothing, so a constant query and key in the fast pairs make a head that
looks at a fixed distance, and anything written into the slow pairs is compared as if there were no RoPE.
"""

import dataclasses
from pathlib import Path

import numpy as np
import torch
import yaml

from model import GPTConfig, build_model
from rostok.text.tokenizer import Tokenizer
from rostok.training.folder import save_step
from rostok.training.optim import OptimConfig, build_optimizer

D, E, WHO = 128, 64, 40  # stream, head, coordinates that say who a token is
CONSTANT, START, TOKEN, BEFORE = 0, 1, slice(2, 2 + WHO), slice(2 + WHO, 2 + 2 * WHO)
PAIRS, FAST, SHARP = E // 2, 10, 4.0
THETA = 1e12
SLOW = [i + half for half in (0, PAIRS) for i in range(FAST, PAIRS)]  # the slow pairs' coordinates of a head


def hand_built_weights(vocab_size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """The state dict of GPTConfig(n_layer=2, n_head=2, d_model=128, rope_theta=1e12)."""
    rng = np.random.default_rng(seed)
    embed = np.zeros((vocab_size, D))
    embed[:, CONSTANT], embed[:, START] = 1, -1
    embed[0, START] = 1
    who = rng.normal(size=(vocab_size, WHO))
    embed[:, TOKEN] = 3 * who / np.linalg.norm(who, axis=1, keepdims=True)

    read = np.zeros((WHO, D))  # who the token is
    read[:, TOKEN] = np.eye(WHO)
    read_before = np.zeros((WHO, D))
    read_before[:, BEFORE] = np.eye(WHO)
    weights = {"embed.weight": embed, "final_norm.weight": np.ones(D)}
    for layer, heads in enumerate(([previous(), start()], [match(read, read_before), even()])):
        name = f"blocks.{layer}."
        values = np.zeros((2, E, D))
        values[0, :WHO] = read  # the first head of each layer carries who the token is ...
        proj = np.zeros((D, 2 * E))
        proj[BEFORE if layer == 0 else TOKEN, :WHO] = np.eye(WHO) * (
            1 if layer == 0 else 8
        )  # ... to where it is used
        rows = [head[part] for part in (0, 1) for head in heads]
        weights[name + "attn.qkv.weight"] = np.concatenate([*rows, *values])
        weights[name + "attn.proj.weight"] = proj
        for part in ("q", "k"):
            weights[name + f"attn.{part}_norm.weight"] = np.full(E, SHARP)
        for part in ("attn", "mlp"):
            weights[name + f"{part}_norm.weight"] = np.ones(D)
        weights |= {name + "mlp.gate.weight": np.zeros((64, D)), name + "mlp.up.weight": np.zeros((64, D))}
        weights[name + "mlp.down.weight"] = np.zeros((D, 64))
    return {key: value.astype(np.float32) for key, value in weights.items()}


def previous() -> tuple[np.ndarray, np.ndarray]:
    """(W_Q, W_K), (E, D) each: a constant key, and a query turned by one step, so that distance 1 fits best."""
    query, key = np.zeros((E, D)), np.zeros((E, D))
    angles = THETA ** (-np.arange(FAST) / PAIRS)  # of one step
    key[:FAST, CONSTANT] = 1
    query[:FAST, CONSTANT], query[PAIRS : PAIRS + FAST, CONSTANT] = np.cos(angles), -np.sin(angles)
    return query, key


def start() -> tuple[np.ndarray, np.ndarray]:
    """A constant query; the key of ◆ points its way, all others point away."""
    query, key = np.zeros((E, D)), np.zeros((E, D))
    query[SLOW, CONSTANT], key[SLOW, START] = 1, 1
    return query, key


def match(read: np.ndarray, read_before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Query: who I am. Key: who stands before you."""
    query, key = np.zeros((E, D)), np.zeros((E, D))
    query[SLOW[:WHO]], key[SLOW[:WHO]] = read, read_before
    return query, key


def even() -> tuple[np.ndarray, np.ndarray]:
    query, key = np.zeros((E, D)), np.zeros((E, D))
    query[SLOW, CONSTANT], key[SLOW, CONSTANT] = 1, 1
    return query, key


def save_hand_built(run: Path, tokenizer: Tokenizer, data: Path | None, **changes: float) -> Path:
    """The model as a run folder; `changes` put one number into all of a tensor."""
    config = GPTConfig(
        vocab_size=tokenizer.vocab_size,
        context=256,
        n_layer=2,
        n_head=2,
        d_model=D,
        d_mlp=64,
        rope_theta=THETA,
    )
    weights = hand_built_weights(tokenizer.vocab_size)
    for name, value in changes.items():
        weights[name][:] = value
    model = build_model(config)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    run.mkdir(parents=True)
    tokenizer.save(run)
    (run / "config.yaml").write_text(
        yaml.safe_dump({"data": {"path": str(data)}} if data else {"name": "hand"})
    )
    optimizer = build_optimizer(model, OptimConfig())
    save_step(run, 1, model, optimizer, {"model": dataclasses.asdict(config)})
    return run
