"""The validation loss of a training, on a fixed set of held-out rows; a trigram's beside it. compare.py has the full
protocol."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rostok.measuring.ngrams import fit_ngrams, joined
from rostok.text.shards import Data, Split
from rostok.text.tokenizer import Tokenizer
from rostok.training.loader import evaluation_rows
from rostok.training.ranks import Ranks, sum_over_ranks
from rostok.training.runtime import Runtime, uncompiled


class HeldOut:
    """The first `rows` rows of the held-out split. Every process evaluates its share of them."""

    def __init__(
        self, split: Split, tokenizer: Tokenizer, context: int, rows: int, batch: int, place: Ranks
    ) -> None:
        ids, targets = evaluation_rows(split, context, rows)
        lengths = np.array([len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)])
        lengths[tokenizer.start_id] = 0  # ◆ has no bytes: bits per byte leave its nats out
        self.rows, self.count, self.bytes = len(ids), targets.size, int(lengths[targets].sum())
        self.ids, self.targets = ids[place.rank :: place.world], targets[place.rank :: place.world]
        self.start_id, self.batch = tokenizer.start_id, batch

    @torch.no_grad()
    def evaluate(self, model: nn.Module, runtime: Runtime) -> dict[str, float]:
        """Loss (nats per token), perplexity and bits per byte; summed in float64, the same on every process."""
        model.eval()
        sums = torch.zeros(2, dtype=torch.float64)  # nats of all targets, nats of the targets that are text
        for first in range(0, len(self.ids), self.batch):
            ids = torch.from_numpy(self.ids[first : first + self.batch]).to(runtime.device)
            targets = torch.from_numpy(self.targets[first : first + self.batch]).flatten()
            with runtime.autocast(), uncompiled():
                logits = model(ids)
            nats = nats_of(logits, targets.to(runtime.device))
            sums += torch.stack((nats.sum(), nats[targets != self.start_id].sum()))
        model.train()
        total, text = sum_over_ranks(
            sums.to(runtime.device) if runtime.device.type == "cuda" else sums
        ).tolist()
        loss = total / self.count
        return {
            "valid_loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits_per_byte": text / math.log(2) / max(1, self.bytes),
        }


def trigram_loss(data: Data, start_id: int, targets: int, fit_tokens: int = 2_000_000) -> float:
    """What a trigram costs, nats per token, on the first `targets` held-out tokens, about those of HeldOut.

    It counts the first `fit_tokens` tokens of the training text: 6 seconds at most.
    """
    train, valid = data.split("train"), data.split("valid")
    counted = joined((train.text(i) for i in range(len(train))), fit_tokens)
    trigram = fit_ngrams(*counted, data.vocab_size, start_id, (3,))["trigram"]
    ids, offsets = joined((valid.text(i) for i in range(len(valid))), targets)
    p, _ = trigram.predict(ids, offsets, np.append(ids[1:], start_id), start_id)
    return float(-np.log(p).mean())


def nats_of(logits: Tensor, targets: Tensor) -> Tensor:
    """-log p of each target, (N,) float64 on the CPU."""
    losses = F.cross_entropy(logits.flatten(0, 1).float(), targets, reduction="none")
    return losses.cpu().double()
