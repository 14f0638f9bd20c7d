"""The two models of Rostok: `GPT`, a small decoder-only transformer, and `WindowMLP`, its baseline.

    config = GPTConfig(vocab_size=4096)          # or WindowMLPConfig(...)
    model = build_model(config)
    logits = model(ids)                          # ids (B, T) int64 -> (B, T, V)
    loss = model(ids, targets)                   # targets (B, T) int64 -> mean loss, nats a token

GPT is, term for term, what Hugging Face calls Qwen3: pre-RMSNorm, one RMSNorm gain over d_head on q and on k,
then RoPE (half-split), causal attention, SwiGLU, no biases, head tied to the embedding. WindowMLP is Bengio's
neural n-gram (2003). Left out on purpose: dropout, soft-caps, all that a run could not take along into other programs.

Shapes: B batch, T time, D d_model, H heads, K key-value heads, E d_head, M d_mlp, V vocabulary.

Initialisation
    what                            how                     why
    embedding, qkv, gate, up, head  normal, std 0.02        logits start small: the first loss is ln V and a little more
                                                            (a tied head begins by guessing the token it just read;
                                                            0.005 avoids that, yet learns slower: docs/tried.md)
    proj, down (write to residual)  zero                    each block starts as the identity, so depth costs nothing
                                                            at the first steps (as in Fixup and ReZero)
    RMSNorm gains                   one                     the norm starts as a plain norm
    WindowMLP embedding             normal, std 1           its hidden layer has no norm in front of it
    WindowMLP hidden                normal, std 1/sqrt(in)  keeps the variance through its one layer (LeCun)
    biases (WindowMLP only)         zero
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT. `n_kv_head` below `n_head` gives grouped queries; `start_id` is the id of ◆."""

    kind: Literal["gpt"] = "gpt"
    vocab_size: int = 4096
    context: int = 512
    n_layer: int = 8
    n_head: int = 6
    n_kv_head: int | None = None
    d_model: int = 384
    d_mlp: int | None = None
    tied: bool = True
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6
    start_id: int = 0

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_head

    @property
    def kv_heads(self) -> int:
        return self.n_kv_head or self.n_head

    @property
    def hidden(self) -> int:
        """Width of the MLP: as given, or 8/3 d_model rounded up to a multiple of 64 (1024 for 384)."""
        return self.d_mlp or 64 * math.ceil(8 * self.d_model / 3 / 64)

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context", "n_layer", "n_head", "d_model"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1. Got {getattr(self, name)}")
        if self.d_model % self.n_head or self.d_head % 2:
            raise ValueError(
                f"model.d_model must be an even multiple of model.n_head. Got d_model={self.d_model}, "
                f"n_head={self.n_head}; try d_model={2 * self.n_head * max(1, round(self.d_model / self.n_head / 2))}"
            )
        if self.kv_heads < 1 or self.n_head % self.kv_heads:
            raise ValueError(
                f"model.n_kv_head must divide model.n_head. Got n_kv_head={self.n_kv_head}, n_head={self.n_head}"
            )
        if self.hidden < 1:
            raise ValueError(f"model.d_mlp must be at least 1. Got {self.d_mlp}")


@dataclass(frozen=True)
class WindowMLPConfig:
    """Sizes of the baseline: the last `window` tokens, an embedding of `d_embed` each, one hidden layer."""

    kind: Literal["window-mlp"] = "window-mlp"
    vocab_size: int = 4096
    context: int = 512  # the length of a training row; the model itself never sees past its window
    window: int = 8
    d_embed: int = 48
    d_hidden: int = 384
    start_id: int = 0

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context", "window", "d_embed", "d_hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1. Got {getattr(self, name)}")


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) * gain (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        # under autocast x can be bf16 and the gain fp32: cast the gain, or rms_norm leaves its fused path
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rope_tables(context: int, d_head: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin of position * theta^(-2i/E), each (context, E/2), for i = 0 .. E/2-1 (RoFormer, arXiv:2104.09864)."""
    frequency = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
    angle = torch.outer(torch.arange(context, dtype=torch.float64), frequency)
    return angle.cos().float(), angle.sin().float()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i+E/2}) of (..., T, E) by its angle; the dot product then depends on distance alone."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    """Causal multi-head attention with QK-norm and RoPE; heads of one layer share the two norm gains."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head, self.n_kv_head, self.d_head = config.n_head, config.kv_heads, config.d_head
        self.qkv = nn.Linear(config.d_model, (self.n_head + 2 * self.n_kv_head) * self.d_head, bias=False)
        self.q_norm = RMSNorm(self.d_head, config.norm_eps)
        self.k_norm = RMSNorm(self.d_head, config.norm_eps)
        self.proj = nn.Linear(self.n_head * self.d_head, config.d_model, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, time, _ = x.shape
        heads = (self.n_head, self.n_kv_head, self.n_kv_head)
        q, k, v = self.qkv(x).view(batch, time, -1, self.d_head).transpose(1, 2).split(heads, dim=1)
        q = apply_rope(self.q_norm(q), cos, sin)  # (B, H, T, E)
        k = apply_rope(self.k_norm(k), cos, sin)  # (B, K, T, E)
        grouped = self.n_kv_head != self.n_head
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)  # (B, H, T, E)
        return self.proj(z.transpose(1, 2).reshape(batch, time, -1))  # (B, T, D)


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)) (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.hidden, bias=False)
        self.up = nn.Linear(config.d_model, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer: attention moves information between positions, the MLP works on each position alone."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attn = Attention(config)
        self.mlp_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Decoder-only transformer. `model(ids)` gives logits, `model(ids, targets)` the mean loss in nats a token."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.final_norm = RMSNorm(config.d_model, config.norm_eps)
        self.head = None if config.tied else nn.Linear(config.d_model, config.vocab_size, bias=False)
        cos, sin = rope_tables(config.context, config.d_head, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.init_weights()

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Draw every weight as the table at the head of this file says."""
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                nn.init.ones_(parameter)
            elif name.endswith(("proj.weight", "down.weight")):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=0.02, generator=generator)

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Tensor:
        """ids (B, T) int64 -> logits (B, T, V); with targets (B, T) the mean loss in nats a token (scalar).

        Raises ValueError when T is longer than `config.context`.
        """
        time = ids.shape[1]
        if time > self.config.context:
            raise ValueError(
                f"the model sees at most {self.config.context} tokens. Got {time}; shorten the text"
            )
        x = self.embed(ids)  # (B, T, D)
        cos, sin = self.cos[:time], self.sin[:time]
        for block in self.blocks:
            x = block(x, cos, sin)
        head = self.embed.weight if self.head is None else self.head.weight
        return head_or_loss(self.final_norm(x), head, targets)

    def parameter_groups(self) -> dict[str, int]:
        """Parameters by group. A tied head is counted once, as the embedding."""
        blocks = sum(p.numel() for p in self.blocks.parameters()) + self.final_norm.weight.numel()
        head = 0 if self.head is None else self.head.weight.numel()
        return {"embedding": self.embed.weight.numel(), "blocks": blocks, "head": head}


class WindowMLP(nn.Module):
    """Feed-forward language model over the last `window` tokens (Bengio et al. 2003). Same call as GPT."""

    def __init__(self, config: WindowMLPConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.d_embed)
        self.hidden = nn.Linear(config.window * config.d_embed, config.d_hidden)
        self.head = nn.Linear(config.d_hidden, config.vocab_size)
        self.init_weights()

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Draw every weight as the table at the head of this file says."""
        nn.init.normal_(self.embed.weight, std=1.0, generator=generator)
        nn.init.normal_(self.hidden.weight, std=self.hidden.in_features**-0.5, generator=generator)
        nn.init.normal_(self.head.weight, std=0.02, generator=generator)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Tensor:
        """ids (B, T) int64 -> logits (B, T, V); with targets the mean loss. Before the text's start stands ◆."""
        window = self.config.window
        padded = F.pad(ids, (window - 1, 0), value=self.config.start_id)  # (B, T + window - 1)
        x = self.embed(padded).unfold(1, window, 1)  # (B, T, d_embed, window), oldest first
        x = x.transpose(2, 3).reshape(*ids.shape, -1)  # (B, T, window * d_embed)
        return head_or_loss(F.gelu(self.hidden(x)), self.head.weight, targets, self.head.bias)

    def parameter_groups(self) -> dict[str, int]:
        """Parameters by group; the first layer is window * d_embed * d_hidden weights and d_hidden biases."""
        layer, head = self.hidden, self.head
        return {
            "embedding": self.embed.weight.numel(),
            "first layer": layer.weight.numel() + layer.bias.numel(),
            "head": head.weight.numel() + head.bias.numel(),
        }


def head_or_loss(x: Tensor, weight: Tensor, targets: Tensor | None, bias: Tensor | None = None) -> Tensor:
    """The last step of both models: logits (B, T, V), or the mean cross-entropy in float32."""
    logits = F.linear(x, weight, bias)
    if targets is None:
        return logits
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def build_model(config: GPTConfig | WindowMLPConfig | Mapping[str, Any]) -> GPT | WindowMLP:
    """The model that a config describes; a mapping (as read from a run folder) is told apart by its `kind`."""
    if isinstance(config, Mapping):
        config = WindowMLPConfig(**config) if config.get("kind") == "window-mlp" else GPTConfig(**config)
    return GPT(config) if isinstance(config, GPTConfig) else WindowMLP(config)
