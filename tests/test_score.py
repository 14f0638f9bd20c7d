"""Losses of each target, against plain loops, cross-entropy and transformers."""

import math

import numpy as np
import pytest
import torch
from measured import V, naive_nats, random_texts, tiny
from torch.nn import functional as F

from model import GPT
from rostok.errors import UserError
from rostok.measuring import report
from rostok.measuring.score import leak, score
from rostok.measuring.targets import (
    Entry,
    perplexity,
    stream_windows,
    target_list,
    text_windows,
)


def test_losses_equal_one_call_a_target() -> None:
    model, targets = tiny(), target_list(random_texts([5, 0, 1, 15]), 0)
    losses = score(model, targets, text_windows(targets, 16, 8))
    expected = []
    for i in range(targets.n_texts):
        sequence = [*targets.text(i).tolist(), 0]
        expected += [naive_nats(model, sequence[:n], sequence[n]) for n in range(1, len(sequence))]
    np.testing.assert_allclose(losses.nats, expected, atol=1e-5)


def test_a_text_pays_the_same_bits_in_any_company() -> None:
    """No batch size to depend on: alone, in another order, among others, to the last bit."""
    model, texts = tiny(), random_texts([5, 40, 1, 15, 22, 0])
    together = target_list(texts, 0)
    losses = score(model, together, text_windows(together, 16, 8))
    backwards = target_list(texts[::-1], 0)
    turned = score(model, backwards, text_windows(backwards, 16, 8))
    for i, text in enumerate(texts):
        alone = target_list([text], 0)
        nats = score(model, alone, text_windows(alone, 16, 8)).nats
        assert (nats == losses.nats[together.indices([i])]).all()
        assert (nats == turned.nats[backwards.indices([len(texts) - 1 - i])]).all()


def test_zero_head_gives_exactly_the_vocabulary() -> None:
    """Equal logits cost ln V, to the last digits."""
    model = tiny(tied=False)
    assert model.head is not None
    torch.nn.init.zeros_(model.head.weight)
    targets = target_list(random_texts([5, 30, 0]), 0, [b""] + [b"xy"] * (V - 1))
    row = report.numbers(Entry("zero", 16, targets, score(model, targets, text_windows(targets, 16, 8))))
    assert row["nats"] == pytest.approx(math.log(V), rel=1e-14)
    assert row["perplexity"] == pytest.approx(V, rel=1e-13)
    assert row["bits_per_byte"] == pytest.approx(math.log2(V) / 2)


def copier(ids: torch.Tensor) -> torch.Tensor:
    """Knows that after n comes n + 1."""
    return 1000.0 * F.one_hot((ids + 1) % V, V).float()


def test_perfect_copier_gives_perplexity_one() -> None:
    targets = target_list([np.arange(V), np.arange(V)], 0)
    losses = score(copier, targets, text_windows(targets, 16, 5))
    assert perplexity(losses.nats.mean()) == 1.0
    assert losses.hits.all()


def parrot(ids: torch.Tensor) -> torch.Tensor:
    """Says what it just heard: perfect if the targets were shifted by one."""
    return 1000.0 * F.one_hot(ids, V).float()


def prophet(ids: torch.Tensor) -> torch.Tensor:
    """Reads the next token off its input: perfect inside a window, until it is asked by `leak`."""
    return 1000.0 * F.one_hot(ids.roll(-1, dims=1), V).float()


def test_shifted_targets_would_be_caught() -> None:
    targets = target_list([np.arange(V)], 0)
    assert score(parrot, targets, text_windows(targets, 64, 5)).nats.min() == 1000
    assert leak(parrot, targets.inputs) == 0


def test_a_model_that_sees_the_future_is_caught() -> None:
    targets = target_list(random_texts([40]), 0)
    losses = score(prophet, targets, text_windows(targets, 64, 5))
    assert losses.nats.max() == 0  # it looks wonderful
    assert leak(prophet, targets.inputs) > 1
    assert leak(tiny(64), targets.inputs) < 1e-6


def test_losses_that_are_not_numbers_are_refused() -> None:
    targets = target_list(random_texts([4]), 0)
    with pytest.raises(UserError, match="5 of its losses are not numbers"):
        score(lambda ids: torch.full((*ids.shape, V), math.nan), targets, text_windows(targets, 16, 8))


def test_thirty_thousand_tokens_beside_three() -> None:
    targets = target_list(random_texts([30_000, 3, 1, 0]), 0)
    losses = score(parrot, targets, text_windows(targets, 512, 256))
    assert len(losses.nats) == 30_001 + 4 + 2 + 1


def as_qwen3(model: GPT):
    """The same weights in Hugging Face's own code."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    c = model.config
    config = Qwen3Config(
        vocab_size=c.vocab_size,
        hidden_size=c.d_model,
        intermediate_size=c.hidden,
        num_hidden_layers=c.n_layer,
        num_attention_heads=c.n_head,
        num_key_value_heads=c.kv_heads,
        head_dim=c.d_head,
        max_position_embeddings=c.context,
        rms_norm_eps=c.norm_eps,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
    )
    other = Qwen3ForCausalLM(config).eval()
    names = {
        "attn_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        "attn.q_norm": "self_attn.q_norm",
    }
    names |= {"attn.k_norm": "self_attn.k_norm", "attn.proj": "self_attn.o_proj"}
    names |= {f"mlp.{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    weights = {"model.embed_tokens.weight": model.embed.weight, "model.norm.weight": model.final_norm.weight}
    weights["lm_head.weight"] = model.embed.weight
    own = model.state_dict()
    for i in range(c.n_layer):
        heads = own[f"blocks.{i}.attn.qkv.weight"].split([c.n_head * c.d_head, *[c.kv_heads * c.d_head] * 2])
        for part, weight in zip("qkv", heads, strict=True):
            weights[f"model.layers.{i}.self_attn.{part}_proj.weight"] = weight
        for ours, theirs in names.items():
            weights[f"model.layers.{i}.{theirs}.weight"] = own[f"blocks.{i}.{ours}.weight"]
    other.load_state_dict(weights)
    return other


def test_both_protocols_equal_a_loop_over_transformers() -> None:
    model = tiny(16, n_kv_head=1)
    other = as_qwen3(model)
    texts = random_texts([5, 40, 1, 15, 16, 17, 0])
    targets = target_list(texts, 0)

    def theirs(ids: list[int], wanted: list[int]) -> float:
        """Summed nats of the last len(wanted) answers, by Hugging Face's own loss."""
        labels = [-100] * (len(ids) - len(wanted)) + wanted
        with torch.no_grad():
            loss = other(
                torch.tensor([ids]), shift_labels=torch.tensor([labels]), labels=torch.tensor([labels])
            ).loss
        return loss.item() * len(wanted)

    total = 0.0
    for text in texts:
        sequence = [*text.tolist(), 0]  # ids[k] is answered by sequence[k + 1]
        total += theirs(sequence[:-1][:16], sequence[1:17])
        done = min(len(text), 16)
        while done < len(text):  # 8 new targets, each behind ◆ and the 15 tokens up to it
            end = min(len(text), done + 8)
            total += theirs([0, *sequence[end - 15 : end]], sequence[done + 1 : end + 1])
            done = end
    ours = score(model, targets, text_windows(targets, 16, 8))
    assert ours.nats.sum() == pytest.approx(total, rel=1e-6)

    stream = [*np.concatenate(texts).tolist(), 0]
    blocks = range(0, len(stream) - 1, 16)
    total = sum(theirs(stream[b : b + 16][: len(stream) - 1 - b], stream[b + 1 : b + 17]) for b in blocks)
    ours = score(model, targets, stream_windows(targets, 16))
    assert ours.nats.sum() == pytest.approx(total, rel=1e-6)
