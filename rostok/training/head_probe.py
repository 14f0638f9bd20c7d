"""How far the heads have come, looked at while a model trains: probe.every=100 writes it to metrics.jsonl.

A probe reads a few rows of repeated random tokens, always the same, with the NumPy reference: no random state
and no bit of the training is touched. The scores are those of attention/heads/scores.py;
`attend.py forming` draws them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from rostok.attention.heads.forming import KINDS
from rostok.attention.heads.scores import induction, probes_for, shifts_for, text_scores, token_pool
from rostok.attention.reference import Array, forward
from rostok.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ProbeConfig:
    """Whether and how often a training looks at its heads."""

    every: Annotated[
        int, Field(ge=0), "steps between looks at the heads, for attend.py forming; 0: never"
    ] = 0


def probe_heads(
    weights: Mapping[str, Array], config: Mapping[str, Any], pool: Array, seed: int = 0
) -> dict[str, list[list[float]]]:
    """Induction, previous-token and start scores of all heads, (L, H) lists, from one small set of repeated tokens.

    Induction is the best shift >= 1 of the minimum over periods. weights: name -> float32 array, as
    rostok.attention.reference.forward takes them; pool: the ids to draw from.
    """
    start_id, rng = int(config["start_id"]), np.random.default_rng(seed)
    probes = probes_for(int(config["context"]), pool, start_id, rng, rows=1)
    shifts, by_probe, others = shifts_for(probes), [], []
    for probe in probes:
        trace: dict[str, Array] = {}
        forward(weights, config, probe.ids, trace, keep=lambda name: name.endswith("attn.pattern"))
        maps = np.stack(list(trace.values()))
        by_probe.append(induction(maps, probe.ids, probe.asked, shifts, start_id))
        scores = text_scores(maps, probe.ids, start_id)
        others.append(np.stack([scores["prev"], scores["bos"]]))
    found = (np.min(by_probe, axis=0)[1:].max(0), *np.mean(others, axis=0))
    return {
        name: np.round(values.astype(float), 4).tolist() for name, values in zip(KINDS, found, strict=True)
    }


def check_probes(context: int, tokenizer: Tokenizer) -> None:
    """Raise UserError where a model of this context and tokenizer cannot be probed: before a training, not in it."""
    pool = token_pool(tokenizer, np.zeros(tokenizer.vocab_size))
    probes_for(context, pool, tokenizer.start_id, np.random.default_rng(0), rows=1)


def probe_model(
    tensors: Mapping[str, Any], config: Mapping[str, Any], tokenizer: Tokenizer
) -> dict[str, list[list[float]]]:
    """probe_heads of a model in training: its state dict (torch tensors, any type, on the CPU) and settings."""
    weights = {name: tensor.float().numpy() for name, tensor in tensors.items()}
    return probe_heads(weights, config, token_pool(tokenizer, np.zeros(tokenizer.vocab_size)))
