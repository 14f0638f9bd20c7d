"""The two models of Rostok: `GPT`, a small decoder-only transformer, and `WindowMLP`, its baseline.

    config = GPTConfig(vocab_size=4096)          # or WindowMLPConfig(...)
    model = build_model(config)
    logits = model(ids)                          # ids (B, T) int64 -> (B, T, V)
    loss = model(ids, targets)                   # targets (B, T) int64 -> mean loss, nats per token
    cache = model.new_cache(batch)               # then model(ids, cache=cache) reads only what is new

GPT is, term for term, what Hugging Face calls Qwen3: pre-RMSNorm, one RMSNorm gain over d_head on q and on k,
then RoPE (half-split), causal attention, SwiGLU, no biases, head tied to the embedding. WindowMLP is the neural
n-gram of Bengio et al. (2003). Left out on purpose: dropout, soft-caps, everything that other programs could not open.

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
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT. `n_kv_head` below `n_head` gives grouped queries; `start_id` is the id of ◆."""

    kind: Annotated[Literal["gpt"], "a transformer, built as Qwen3 is"] = "gpt"
    vocab_size: Annotated[int, "size of the vocabulary; train.py takes it from the data"] = 4096
    context: Annotated[int, "tokens that the model sees at most; the length of a row"] = 512
    n_layer: Annotated[int, "blocks, one after the other"] = 8
    n_head: Annotated[int, "attention heads of a layer"] = 6
    n_kv_head: Annotated[
        int | None, "heads of keys and values; fewer than n_head are shared; null: n_head"
    ] = None
    d_model: Annotated[int, "numbers that describe a token between the blocks"] = 384
    d_mlp: Annotated[int | None, "width of the MLP; null: 8/3 of d_model, up to a multiple of 64"] = None
    tied: Annotated[bool, "the output matrix is the embedding"] = True
    rope_theta: Annotated[float, "base of the angles of RoPE"] = 10000.0
    norm_eps: Annotated[float, "keeps the divisor of RMSNorm above 0"] = 1e-6
    start_id: Annotated[int, "the id of ◆; train.py takes it from the data"] = 0

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_head

    @property
    def kv_heads(self) -> int:
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def hidden(self) -> int:
        """Width of the MLP: as given, or 8/3 d_model rounded up to a multiple of 64 (1024 for 384)."""
        return 64 * math.ceil(8 * self.d_model / 3 / 64) if self.d_mlp is None else self.d_mlp

    @property
    def parameters(self) -> int:
        """How many weights the model has, by arithmetic: nothing is built."""
        attention = 2 * (self.n_head + self.kv_heads) * self.d_head * self.d_model + 2 * self.d_head
        layer = attention + 3 * self.d_model * self.hidden + 2 * self.d_model
        return (2 - self.tied) * self.vocab_size * self.d_model + self.n_layer * layer + self.d_model

    @property
    def kept_bytes(self) -> int:
        """The least that a forward pass keeps for the backward pass, bytes a token (bf16; logits in fp32)."""
        return 2 * self.n_layer * (8 * self.d_model + 4 * self.hidden) + 8 * self.vocab_size

    def __post_init__(self) -> None:
        require_positive(self, "vocab_size", "context", "n_layer", "n_head", "d_model")
        if self.n_layer > 1024:
            raise ValueError(f"n_layer must be at most 1024. Got {self.n_layer}")
        if not 1 <= self.rope_theta < math.inf:
            raise ValueError(f"rope_theta must be 1 or more (10000 is usual). Got {self.rope_theta}")
        if not 0 < self.norm_eps <= 0.1:
            raise ValueError(f"norm_eps must be above 0, at most 0.1. Got {self.norm_eps}")
        if self.d_model % self.n_head or self.d_head % 2:
            raise ValueError(
                f"d_model must be an even multiple of n_head. Got d_model={self.d_model}, "
                f"n_head={self.n_head}; try d_model={2 * self.n_head * max(1, round(self.d_model / self.n_head / 2))}"
            )
        if self.kv_heads < 1 or self.n_head % self.kv_heads:
            raise ValueError(
                f"n_kv_head must divide n_head. Got n_kv_head={self.n_kv_head}, n_head={self.n_head}"
            )
        if self.hidden < 1:
            raise ValueError(f"d_mlp must be at least 1. Got {self.d_mlp}")


@dataclass(frozen=True)
class WindowMLPConfig:
    """Sizes of the baseline: the last `window` tokens, an embedding of `d_embed` each, one hidden layer."""

    kind: Annotated[Literal["window-mlp"], "no attention: the last tokens, side by side"] = "window-mlp"
    vocab_size: Annotated[int, "size of the vocabulary; train.py takes it from the data"] = 4096
    context: Annotated[int, "the length of a training row; the model never sees past its window"] = 512
    window: Annotated[int, "tokens that the model sees"] = 8
    d_embed: Annotated[int, "numbers that describe a token"] = 48
    d_hidden: Annotated[int, "width of the hidden layer"] = 384
    start_id: Annotated[int, "the id of ◆; train.py takes it from the data"] = 0

    @property
    def parameters(self) -> int:
        """How many weights the model has, by arithmetic: nothing is built."""
        layers = (self.window * self.d_embed + 1) * self.d_hidden + (self.d_hidden + 1) * self.vocab_size
        return self.vocab_size * self.d_embed + layers

    @property
    def kept_bytes(self) -> int:
        """The least that a forward pass keeps for the backward pass, bytes a token (bf16; logits in fp32)."""
        return 2 * (self.window * self.d_embed + 2 * self.d_hidden) + 8 * self.vocab_size

    def __post_init__(self) -> None:
        require_positive(self, "vocab_size", "context", "window", "d_embed", "d_hidden")


def require_positive(config: "GPTConfig | WindowMLPConfig", *names: str) -> None:
    """Raise ValueError for a size below 1, or for a `start_id` outside the vocabulary."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name} must be at least 1. Got {getattr(config, name)}")
    if not 0 <= config.start_id < config.vocab_size:
        raise ValueError(f"start_id must be an id from 0 to {config.vocab_size - 1}. Got {config.start_id}")


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


def rope_rows(cos: Tensor, sin: Tensor, at: "Slots | None", time: int) -> tuple[Tensor, Tensor]:
    """cos and sin at the positions of one call: (T, E/2), or (B, 1, T, E/2) where texts differ in length."""
    if at is None:
        return cos[:time], sin[:time]
    cos, sin = cos[at.index], sin[at.index]
    return (cos, sin) if cos.ndim == 2 else (cos[:, None], sin[:, None])


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i+E/2}) of (..., T, E) by its angle; the dot product then depends on distance alone."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


# ---------------------------------------------------------------------------------------------------- attention
# Four implementations of the same attention; tests hold them equal. q (B, H, T, E); k and v (B, K, S, E); K divides H.


def attend_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each query sees the keys up to its own position (S = T): torch's fused kernel, or blocks where faster."""
    on_cpu = q.device.type == "cpu" and q.dtype == torch.bfloat16
    if on_cpu and q.requires_grad and q.shape[2] >= 128 and q.shape[1] == k.shape[1]:
        return attend_blockwise(q, k, v)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def attend_blockwise(q: Tensor, k: Tensor, v: Tensor, blocks: int = 4) -> Tensor:
    """The same, in `blocks` blocks of queries, each with the keys up to the end of the block: plain matmuls that skip
    most of the future. For training in bf16 on a CPU, where torch's fused kernel is much slower than a matmul."""
    parts, time, end = [], q.shape[2], 0
    sizes = [(block + 1) * time // blocks - block * time // blocks for block in range(blocks)]
    future = future_scores(time).to(q.dtype)
    with torch.autocast(q.device.type, enabled=False):  # softmax sums in fp32 by itself, and keeps q's format
        queries, keys, values = (x.split(sizes, 2) for x in (q * q.shape[3] ** -0.5, k, v))
        for block in range(blocks):
            start, end = end, end + sizes[block]
            seen = torch.cat(keys[: block + 1], 2)  # joining blocks has a faster backward pass than slicing
            scores = queries[block] @ seen.transpose(2, 3) + future[start:end, :end]  # (B, H, T/blocks, end)
            parts.append(scores.softmax(-1) @ torch.cat(values[: block + 1], 2))
    return torch.cat(parts, dim=2)


@torch.compiler.assume_constant_result  # reading a table is faster than comparing in the compiled loop
def future_scores(time: int) -> Tensor:
    """What is added to the scores: -inf where the key comes after the query, else 0. (T, T), bf16."""
    if time not in FUTURE:
        FUTURE[time] = torch.full((time, time), -torch.inf, dtype=torch.bfloat16).triu(1)
    return FUTURE[time]


FUTURE: dict[int, Tensor] = {}


def attend_visible(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """Each query sees the keys that `visible` (B or 1, 1, T, S), bool, allows; None: all of them.

    Never `is_causal` here: with T != S torch aligns its triangle at the top left, and one query would see key 0 only.
    """
    return F.scaled_dot_product_attention(q, k, v, visible, enable_gqa=q.shape[1] != k.shape[1])


def attend_single(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """The same for a single query (T = 1), written out: on a CPU torch's fused kernel wastes most of its time there."""
    grouped = q.view(q.shape[0], k.shape[1], -1, q.shape[3])  # (B, K, H/K, E)
    scores = grouped @ k.transpose(2, 3) * q.shape[3] ** -0.5  # (B, K, H/K, S)
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return (scores.softmax(-1) @ v).view_as(q)


@dataclass(frozen=True)
class Slots:
    """The positions that the tokens of one call take in a KVCache, and which keys they see."""

    index: Tensor  # positions: (T,) where all rows are equally long, else (B, T)
    span: int  # keys to look at: positions 0 .. span-1
    visible: Tensor | None  # (B or 1, 1, T, span), bool; None: every query sees all of them
    first: bool  # the cache was empty: plain causal attention


class KVCache:
    """Keys and values of the tokens read so far, one text a row; rows may have different lengths.

    `length` (B,) int64, on the CPU, is the number of tokens in each row. Lowering an entry forgets the tokens after it.
    `row(i)` gives one row, for reading a text on its own; `copy(i, j)` copies it to another row.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], length: Tensor) -> None:
        self.keys, self.values, self.length = keys, values, length  # keys: n_layer times (B, K, context, E)

    def row(self, i: int) -> "KVCache":
        """Row i as a cache of one row that shares its memory."""
        keys, values = ([x[i : i + 1] for x in part] for part in (self.keys, self.values))
        return KVCache(keys, values, self.length[i : i + 1])

    def copy(self, source: int, target: int) -> None:
        """Copy row `source` to row `target`."""
        n = self.length[target] = self.length[source]
        for x in (*self.keys, *self.values):
            x[target, :, :n] = x[source, :, :n]

    def take(self, time: int) -> Slots:
        """Reserve the next `time` positions of each row. Raises ValueError when a row would grow past the context."""
        starts, capacity, device = self.length.tolist(), self.keys[0].shape[2], self.keys[0].device
        shortest, longest = min(starts), max(starts)
        span = longest + time
        if span > capacity:
            raise ValueError(
                f"the model sees at most {capacity} tokens. Got {span}; read a shorter window again"
            )
        ragged = shortest != longest
        index = torch.arange(time) + (self.length[:, None] if ragged else longest)  # (T,) or (B, T)
        index, visible = index.to(device), None
        if ragged or time > 1:
            visible = torch.arange(span, device=device) <= index[..., None]  # (T, S) or (B, T, S)
            visible = visible.view(-1, 1, time, span)
        self.length += time
        return Slots(index, span, visible, longest == 0)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, at: Slots) -> Tensor:
        """Store k and v of the new tokens, then attend from their q to everything in their row. (B, H, T, E)."""
        for store, new in ((self.keys[layer], k), (self.values[layer], v)):
            if at.index.ndim == 1:
                store.index_copy_(2, at.index, new)
            else:
                rows = torch.arange(len(store), device=store.device)[:, None]
                store[rows, :, at.index] = new.transpose(1, 2)  # (B, T, K, E)
        if at.first:
            return attend_causal(q, k, v)
        k, v = (
            self.keys[layer][:, :, : at.span],
            self.values[layer][:, :, : at.span],
        )  # (B, K, S, E)
        form = attend_single if q.shape[2] == 1 and q.device.type == "cpu" else attend_visible
        return form(q, k, v, at.visible)


class Attention(nn.Module):
    """Causal multi-head attention with QK-norm and RoPE; heads of one layer share the two norm gains."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.n_head, self.n_kv_head, self.d_head = config.n_head, config.kv_heads, config.d_head
        self.qkv = nn.Linear(config.d_model, (self.n_head + 2 * self.n_kv_head) * self.d_head, bias=False)
        self.q_norm = RMSNorm(self.d_head, config.norm_eps)
        self.k_norm = RMSNorm(self.d_head, config.norm_eps)
        self.proj = nn.Linear(self.n_head * self.d_head, config.d_model, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: KVCache | None, at: Slots | None) -> Tensor:
        batch, time, _ = x.shape
        heads = (self.n_head, self.n_kv_head, self.n_kv_head)
        q, k, v = self.qkv(x).view(batch, time, -1, self.d_head).transpose(1, 2).split(heads, dim=1)
        q = apply_rope(self.q_norm(q), cos, sin)  # (B, H, T, E)
        k = apply_rope(self.k_norm(k), cos, sin)  # (B, K, T, E)
        z = cache.attend(self.layer, q, k, v, at) if cache and at else attend_causal(q, k, v)  # (B, H, T, E)
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

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.attn_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attn = Attention(config, layer)
        self.mlp_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: KVCache | None, at: Slots | None) -> Tensor:
        x = x + self.attn(self.attn_norm(x), cos, sin, cache, at)
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Decoder-only transformer. `model(ids)` gives logits, `model(ids, targets)` the mean loss in nats per token."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
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

    def forward(
        self, ids: Tensor, targets: Tensor | None = None, cache: KVCache | None = None, last: bool = False
    ) -> Tensor:
        """ids (B, T) int64 -> logits (B, T, V); with targets (B, T) the mean loss in nats per token (scalar).

        With a cache the ids continue its rows, in chunks of any size. With `last` only the logits of the last
        position are computed, (B, 1, V). Raises ValueError when a text would be longer than `config.context`.
        """
        time = ids.shape[1]
        if time > self.config.context:
            raise ValueError(
                f"the model sees at most {self.config.context} tokens. Got {time}; shorten the text"
            )
        at = cache.take(time) if cache else None
        return self.run(ids, targets, cache, at, last)

    def run(
        self, ids: Tensor, targets: Tensor | None, cache: KVCache | None, at: Slots | None, last: bool
    ) -> Tensor:
        """The arithmetic of `forward`, apart from the bookkeeping, so that torch.compile can take it whole."""
        x = self.embed(ids)  # (B, T, D)
        cos, sin = rope_rows(self.cos, self.sin, at, ids.shape[1])
        for block in self.blocks:
            x = block(x, cos, sin, cache, at)
        return self.logits(x[:, -1:] if last else x) if targets is None else self.loss(x, targets)

    def logits(self, x: Tensor) -> Tensor:
        """The output of the blocks (B, T, D) -> logits (B, T, V)."""
        x = self.final_norm(x)
        return F.linear(x, self.embed.weight) if self.head is None else self.head(x)

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of `logits(x)`. A method of its own, for torch.compile to fuse its passes."""
        return mean_loss(self.logits(x), targets)

    def new_cache(self, batch: int) -> KVCache:
        """An empty cache for `batch` texts of up to `config.context` tokens."""
        shape = (batch, self.config.kv_heads, self.config.context, self.config.d_head)
        keys, values = ([self.embed.weight.new_zeros(shape) for _ in self.blocks] for _ in range(2))
        return KVCache(keys, values, torch.zeros(batch, dtype=torch.int64))

    @property
    def limit(self) -> int | None:
        """The most tokens that one text may have."""
        return self.config.context

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

    def forward(
        self,
        ids: Tensor,
        targets: Tensor | None = None,
        cache: "WindowCache | None" = None,
        last: bool = False,
    ) -> Tensor:
        """ids (B, T) int64 -> logits (B, T, V); with targets the mean loss. Slots before the text are ◆.

        `cache` and `last` are as in GPT.forward; a text may be of any length.
        """
        window, start = self.config.window, self.config.start_id
        ids = F.pad(ids, (window - 1, 0), value=start) if cache is None else cache.take(ids, window, start)
        if last:
            ids = ids[:, -window:]
        x = self.embed(ids).unfold(1, window, 1)  # (B, T, d_embed, window), oldest first
        x = x.transpose(2, 3).flatten(2)  # (B, T, window * d_embed)
        return self.logits(x) if targets is None else self.loss(x, targets)

    def logits(self, x: Tensor) -> Tensor:
        """The embeddings of a window, (B, T, window * d_embed), -> (B, T, V)."""
        return self.head(F.gelu(self.hidden(x)))

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of `logits(x)`, as in GPT."""
        return mean_loss(self.logits(x), targets)

    def new_cache(self, batch: int) -> "WindowCache":
        """An empty cache for `batch` texts of any length."""
        ids = torch.zeros(batch, 2 * self.config.window, dtype=torch.int64, device=self.embed.weight.device)
        return WindowCache(ids, torch.zeros(batch, dtype=torch.int64))

    @property
    def limit(self) -> int | None:
        """The most tokens that one text may have: any number."""
        return None

    def parameter_groups(self) -> dict[str, int]:
        """Parameters by group; the first layer is window * d_embed * d_hidden weights and d_hidden biases."""
        layer, head = self.hidden, self.head
        return {
            "embedding": self.embed.weight.numel(),
            "first layer": layer.weight.numel() + layer.bias.numel(),
            "head": head.weight.numel() + head.bias.numel(),
        }


class WindowCache:
    """The last ids of each row, which is all that WindowMLP needs: position p is in slot p % slots. Used like KVCache.

    There are twice as many slots as the window has tokens, so that a token can be stored and forgotten again.
    """

    def __init__(self, ids: Tensor, length: Tensor) -> None:
        self.ids, self.length = ids, length  # (B, slots) and (B,), int64

    def row(self, i: int) -> "WindowCache":
        return WindowCache(self.ids[i : i + 1], self.length[i : i + 1])

    def copy(self, source: int, target: int) -> None:
        self.ids[target], self.length[target] = self.ids[source], self.length[source]

    def take(self, ids: Tensor, window: int, start_id: int) -> Tensor:
        """Store the new ids (B, T); return them after the window - 1 ids before them, (B, window - 1 + T)."""
        slots, time = self.ids.shape[1], ids.shape[1]
        before = (self.length[:, None] + torch.arange(1 - window, 0)).to(ids.device)
        old = self.ids.gather(1, before % slots).masked_fill(before < 0, start_id)
        new = (self.length[:, None] + torch.arange(time)).to(ids.device) % slots
        self.ids.scatter_(1, new[:, -slots:], ids[:, -slots:])
        self.length += time
        return torch.cat((old, ids), dim=1)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of logits (B, T, V) at targets (B, T), in float32, nats per token."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def build_model(config: GPTConfig | WindowMLPConfig | Mapping[str, Any]) -> GPT | WindowMLP:
    """The model of a config. For a mapping, as read from a run folder, `kind` says which model it is."""
    if isinstance(config, Mapping):
        config = WindowMLPConfig(**config) if config.get("kind") == "window-mlp" else GPTConfig(**config)
    return GPT(config) if isinstance(config, GPTConfig) else WindowMLP(config)
