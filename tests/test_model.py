"""The models: counts, causality, the same numbers as transformers' Qwen3, clear errors."""

# torch's modules have attributes that no checker knows
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportIndexIssue=false, reportOptionalSubscript=false

import math

import pytest
import torch
from torch.nn import functional as F

from model import GPT, GPTConfig, RMSNorm, WindowMLP, WindowMLPConfig, apply_rope, build_model, rope_tables

TINY = GPTConfig(vocab_size=50, context=16, n_layer=2, n_head=4, d_model=32)


def random_model(config: GPTConfig | WindowMLPConfig, seed: int = 0) -> GPT | WindowMLP:
    """A model whose every weight is drawn, also those that start at zero or one."""
    model, generator = build_model(config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def test_parameter_counts_of_the_book() -> None:
    model = build_model(GPTConfig())
    attention = model.blocks[0].attn
    assert attention.qkv.weight.numel() + attention.proj.weight.numel() == 589_824
    assert attention.q_norm.weight.numel() + attention.k_norm.weight.numel() == 128
    assert sum(p.numel() for p in model.parameters()) == sum(model.parameter_groups().values()) == 15_736_192
    window = build_model(WindowMLPConfig())
    assert window.hidden.weight.numel() == 147_456
    assert sum(window.parameter_groups().values()) == sum(p.numel() for p in window.parameters())


@pytest.mark.parametrize(("kv", "qkv"), [(6, 442_368), (3, 294_912), (2, 245_760), (1, 196_608)])
def test_grouped_queries_shrink_qkv_as_the_book_counts(kv: int, qkv: int) -> None:
    assert GPT(GPTConfig(n_layer=1, n_kv_head=kv)).blocks[0].attn.qkv.weight.numel() == qkv


def test_attention_count_does_not_depend_on_the_number_of_heads() -> None:
    counts = {h: GPT(GPTConfig(n_layer=1, n_head=h)).blocks[0].attn.qkv.weight.numel() for h in (1, 3, 6, 12)}
    assert len(set(counts.values())) == 1


@pytest.mark.parametrize(("tied", "excess"), [(False, 0.15), (True, 0.6)])
def test_first_loss_is_near_a_uniform_guess(tied: bool, excess: float) -> None:
    """A tied head begins by guessing the token it just read, which costs a little more than guessing uniformly."""
    ids = torch.randint(0, 4096, (2, 65), generator=torch.Generator().manual_seed(0))
    model = build_model(GPTConfig(n_layer=2, tied=tied))
    model.init_weights(torch.Generator().manual_seed(0))
    assert 0 < model(ids[:, :-1], ids[:, 1:]).item() - math.log(4096) < excess


@pytest.mark.parametrize("config", [TINY, WindowMLPConfig(vocab_size=50, window=3)], ids=["gpt", "window"])
def test_loss_is_the_mean_cross_entropy_of_the_logits(config: GPTConfig | WindowMLPConfig) -> None:
    model = random_model(config)
    ids = torch.randint(0, 50, (3, 11))
    expected = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(model(ids[:, :-1], ids[:, 1:]), expected)


@pytest.mark.parametrize("config", [TINY, WindowMLPConfig(vocab_size=50, window=3)], ids=["gpt", "window"])
def test_no_gradient_flows_from_the_past_to_the_future(config: GPTConfig | WindowMLPConfig) -> None:
    model = random_model(config)
    seen: list[torch.Tensor] = []
    model.embed.register_forward_hook(lambda _m, _i, out: (seen.append(out), out.retain_grad())[1])
    model(torch.randint(0, 50, (1, 12)))[0, 5].sum().backward()
    offset = seen[0].shape[1] - 12  # WindowMLP embeds the ◆ before the start too
    assert seen[0].grad is not None
    by_position = seen[0].grad[0].abs().sum(-1)[offset:]
    assert by_position[6:].max() == 0
    assert by_position[5] > 0


def test_window_mlp_sees_exactly_its_window() -> None:
    model = random_model(WindowMLPConfig(vocab_size=50, window=3))
    ids = torch.randint(1, 50, (1, 10))
    changed = ids.clone()
    changed[0, 4] = (ids[0, 4] + 1) % 50
    moved = (model(ids) - model(changed)).abs().amax(-1)[0] > 0
    assert moved.tolist() == [4 <= t <= 6 for t in range(10)]


def test_before_the_start_stands_the_start_token() -> None:
    model = random_model(WindowMLPConfig(vocab_size=50, window=4, start_id=7))
    with_start = torch.tensor([[7, 7, 7, 3, 9]])
    torch.testing.assert_close(model(with_start)[:, 3:], model(with_start[:, 3:]))


@pytest.mark.parametrize("n_kv_head", [4, 2, 1])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_transformers_qwen3(n_kv_head: int, tied: bool) -> None:
    transformers = pytest.importorskip("transformers")
    config = GPTConfig(
        vocab_size=50, context=16, n_layer=2, n_head=4, n_kv_head=n_kv_head, d_model=32, tied=tied
    )
    model = random_model(config)
    other = transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=50, hidden_size=32, intermediate_size=config.hidden, num_hidden_layers=2, head_dim=8,
            num_attention_heads=4, num_key_value_heads=n_kv_head, tie_word_embeddings=tied,
            max_position_embeddings=16, attention_bias=False,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        )
    ).eval()  # fmt: skip
    names = {
        "embed": "model.embed_tokens",
        "final_norm": "model.norm",
        "head": "lm_head",
        "blocks": "model.layers",
    }
    names |= {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", "attn": "self_attn"}
    names |= {"proj": "o_proj", "gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    weights = {}
    for name, tensor in model.state_dict().items():
        new = ".".join(names.get(part, part) for part in name.split("."))
        if "qkv" in name:
            for letter, part in zip("qkv", tensor.split((32, 8 * n_kv_head, 8 * n_kv_head)), strict=True):
                weights[new.replace("qkv", f"{letter}_proj")] = part
        else:
            weights[new] = tensor
    other.load_state_dict(weights, strict=not tied)
    ids = torch.randint(0, 50, (2, 16))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), other(ids).logits, atol=2e-5, rtol=1e-5)


def test_rope_keeps_lengths_and_sees_distance_alone() -> None:
    cos, sin = rope_tables(32, 8, 10000.0)
    q, k = torch.randn(8), torch.randn(8)
    turned_q, turned_k = apply_rope(q.expand(32, 8), cos, sin), apply_rope(k.expand(32, 8), cos, sin)
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm().expand(32))
    torch.testing.assert_close(turned_q[9] @ turned_k[4], turned_q[25] @ turned_k[20])
    assert not torch.allclose(turned_q[9] @ turned_k[4], turned_q[9] @ turned_k[5])


def test_rms_norm_is_its_formula() -> None:
    norm, x = RMSNorm(6, 1e-6), torch.randn(4, 6)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(6))
    torch.testing.assert_close(norm(x), x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight)


def test_longer_than_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 16 tokens. Got 17"):
        build_model(TINY)(torch.zeros(1, 17, dtype=torch.long))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 100}, "even multiple of n_head"),
        ({"n_kv_head": 4}, "n_kv_head must divide"),
        ({"n_layer": 0}, "n_layer must be at least 1. Got 0"),
        ({"d_mlp": -1}, "d_mlp must be at least 1"),
    ],
)
def test_impossible_sizes_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GPTConfig(**settings)  # pyright: ignore[reportArgumentType]


def test_impossible_window_is_refused() -> None:
    with pytest.raises(ValueError, match="window must be at least 1. Got 0"):
        WindowMLPConfig(window=0)


def test_build_model_takes_a_mapping_too() -> None:
    assert isinstance(build_model({"kind": "window-mlp", "vocab_size": 9}), WindowMLP)
    model = build_model({"kind": "gpt", "vocab_size": 9, "n_layer": 1})
    assert isinstance(model, GPT)
    assert model.config.vocab_size == 9
