"""PackedGPT, a GPT whose steps are single calls of token_step.cpp, on a CPU; PackedLinear, a Linear in the same C++.

    packed = PackedGPT(model, torch.int8)            # or torch.float32, torch.bfloat16; `model` is a GPT
    logits = packed(ids, cache=cache, last=True)     # as the GPT's own call; no gradients

1. weights are packed into panels of 16 outputs as multiply.hpp shows; int8 has one scale an output
2. activations are float32 beside float32 weights, else rounded to bfloat16 or to 8 bits, each row by itself
3. keys and values are float32 beside float32 weights, else bfloat16
4. every 200 steps one thread and all of torch's are timed in turn, and the faster is used until then (Pace); the
   numbers are the same

It needs the library of native.py. Left out: the loss, gradients, devices other than the CPU.
"""

import ctypes
import statistics
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rostok.generation.native import library

PANEL, PADDING, PAIRS = 16, 64, 32  # as in multiply.hpp
GROUP = {torch.float32: 1, torch.bfloat16: 2, torch.int8: 4}  # inputs that lie together
POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64


class Matrix(ctypes.Structure):
    """`struct Matrix` of multiply.hpp. The tensors must be kept as long as it is used."""

    _fields_ = (
        *((name, POINTER) for name in ("weights", "scale", "sums")),
        *((name, NUMBER) for name in ("inputs", "panels")),
    )


class Layer(ctypes.Structure):
    """`struct Layer`."""

    _fields_ = (
        *((name, POINTER) for name in ("attn_norm", "q_norm", "k_norm", "mlp_norm")),
        *((name, Matrix) for name in ("qkv", "proj", "gate_up", "down")),
    )


class Model(ctypes.Structure):
    """`struct Model`."""

    _fields_ = (
        ("layers", ctypes.POINTER(Layer)),
        *((name, POINTER) for name in ("embed", "final_norm", "cos", "sin")),
        ("head", Matrix),
        *((name, NUMBER) for name in ("n_layer", "d_model", "n_head", "n_kv", "d_head", "d_mlp", "context")),
        ("eps", ctypes.c_double),
    )


class Call(ctypes.Structure):
    """`struct Call`."""

    _fields_ = (
        *((name, POINTER) for name in ("ids", "length", "keys", "values", "logits")),
        *((name, NUMBER) for name in ("rows", "first_logits", "prompt")),
    )


class Sampling(ctypes.Structure):
    """`struct Sampling` of choose_token.cpp."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("temperature", "top_p", "min_p", "penalty")),
        ("top_k", NUMBER),
    )


@dataclass(frozen=True)
class Packed:
    """Weights in panels (panels, inputs / group, 16, group); the scale and the sum of each output, int8 only."""

    weights: Tensor
    scale: Tensor | None
    sums: Tensor | None

    def matrix(self) -> Matrix:
        panels, groups, _, group = self.weights.shape
        return Matrix(*map(address, (self.weights, self.scale, self.sums)), groups * group, panels)


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def padded(n: int, to: int) -> int:
    return -(-n // to) * to


def pack(weight: Tensor, dtype: torch.dtype) -> Packed:
    """Weights (n_out, n_in) float32 in panels. The scale of an int8 output is max |w| / 127."""
    weight = F.pad(weight.detach().float(), (0, -weight.shape[1] % PADDING, 0, -len(weight) % PANEL))
    scale = sums = None
    if dtype == torch.int8:
        scale = weight.abs().amax(1).clamp(min=1e-12) / 127
        weight = (weight / scale[:, None]).round()
        sums = weight.sum(1).to(torch.int32)
    panels = weight.to(dtype).view(-1, PANEL, weight.shape[1] // GROUP[dtype], GROUP[dtype])
    return Packed(panels.transpose(1, 2).contiguous(), scale, sums)


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """Two matrices (n, d) as one: 16 rows of gate, 16 of up, and so on; zeros where n is no multiple of 16."""
    parts = [F.pad(w.detach(), (0, 0, 0, -len(w) % PANEL)).view(-1, PANEL, w.shape[1]) for w in (gate, up)]
    return torch.stack(parts, 1).flatten(0, 2)


class PackedCache:
    """Keys and values of the tokens read so far, in the panels of token_step.cpp. Used like model.py's KVCache.

    keys, values: (B, n_layer, n_kv_head, numbers of one head). length: (B,) int64.
    """

    def __init__(self, keys: Tensor, values: Tensor, length: Tensor) -> None:
        self.keys, self.values, self.length = keys, values, length

    def row(self, i: int) -> "PackedCache":
        """Row i as a cache of one row that shares its memory."""
        return PackedCache(self.keys[i : i + 1], self.values[i : i + 1], self.length[i : i + 1])

    def copy(self, source: int, target: int) -> None:
        """Copy row `source` to row `target`."""
        for x in (self.keys, self.values, self.length):
            x[target] = x[source]


class Pace:
    """How many threads a step takes: one or `most`, whichever was faster when both were last tried.

    Every AGAIN steps, and at the start, TRY steps are timed with each, in turn. One thread is faster for a small
    model, and where other programs keep the cores busy.
    """

    TRY, AGAIN = 5, 200

    def __init__(self, most: int) -> None:
        self.most, self.best, self.step = most, most, 0
        self.seconds: dict[int, list[float]] = {1: [], most: []}

    def threads(self) -> int:
        trial = self.step % self.AGAIN
        return self.best if trial >= 2 * self.TRY else (1, self.most)[trial % 2]

    def took(self, seconds: float, threads: int) -> None:
        """Tell how long the step took that `threads()` was asked for."""
        self.step += 1
        trial = self.step % self.AGAIN
        if trial <= 2 * self.TRY and self.most > 1:
            self.seconds[threads].append(seconds)
        if trial == 2 * self.TRY and self.most > 1:
            self.best = min(self.seconds, key=lambda n: statistics.median(self.seconds[n]))
            self.seconds = {1: [], self.most: []}


class PackedGPT:
    """The model of a GPT for generation: the same call, `new_cache` and `limit`. See the head of this file."""

    def __init__(self, gpt: Any, dtype: torch.dtype) -> None:
        c = self.config = gpt.config
        head = gpt.embed.weight if gpt.head is None else gpt.head.weight
        floats = [gpt.embed.weight, gpt.final_norm.weight, gpt.cos, gpt.sin]
        floats = [x.detach().float().contiguous() for x in floats]
        packed_head = pack(head, dtype)
        self.kept: list[Any] = [floats, packed_head]  # ctypes knows addresses only
        layers = (Layer * c.n_layer)(*(self.layer(block, dtype) for block in gpt.blocks))
        sizes = (c.n_layer, c.d_model, c.n_head, c.kv_heads, c.d_head, c.hidden, c.context)
        self.model = Model(layers, *map(address, floats), packed_head.matrix(), *sizes, c.norm_eps)
        self.kept.append(layers)
        self.by_reference = ctypes.byref(self.model)
        self.width = self.model.head.panels * PANEL  # logits in a row, with the padding
        self.cache_dtype = torch.float32 if dtype == torch.float32 else torch.bfloat16
        functions: Any = library()
        self.step, self.choose_rows = getattr(functions, f"step_{str(dtype)[6:]}"), functions.choose_rows
        self.pace = Pace(torch.get_num_threads())

    def layer(self, block: Any, dtype: torch.dtype) -> Layer:
        attn, mlp = block.attn, block.mlp
        norms = (block.attn_norm, attn.q_norm, attn.k_norm, block.mlp_norm)
        gains = [norm.weight.detach().float() for norm in norms]
        weights = (
            attn.qkv.weight,
            attn.proj.weight,
            interleave(mlp.gate.weight, mlp.up.weight),
            mlp.down.weight,
        )
        packed = [pack(weight, dtype) for weight in weights]
        self.kept.append((gains, packed))
        return Layer(*map(address, gains), *(p.matrix() for p in packed))

    @property
    def limit(self) -> int | None:
        """The most tokens that one text may have."""
        return self.config.context

    def new_cache(self, batch: int) -> PackedCache:
        """An empty cache for `batch` texts of up to `config.context` tokens."""
        c = self.config
        shape = (batch, c.n_layer, c.kv_heads, padded(c.context, PAIRS) * padded(c.d_head, PAIRS))
        keys, values = (torch.zeros(shape, dtype=self.cache_dtype) for _ in range(2))
        return PackedCache(keys, values, torch.zeros(batch, dtype=torch.int64))

    def __call__(self, ids: Tensor, *, cache: PackedCache | None = None, last: bool = False) -> Tensor:
        """ids (B, T) int64 -> logits (B, T, V) float32, or (B, 1, V) with `last`. As GPT.forward, without targets.

        Raises ValueError for a text that is longer than the context, and for ids that the model does not have.
        """
        batch, size = ids.shape
        cache = cache or self.new_cache(batch)
        longest = max(cache.length.tolist()) + size
        if longest > self.config.context:
            raise ValueError(
                f"the model sees at most {self.config.context} tokens. Got {longest}; shorten the text"
            )
        ids = ids.contiguous()
        if not 0 <= min(flat := ids.view(-1).tolist()) <= max(flat) < self.config.vocab_size:
            raise ValueError(f"wanted ids below {self.config.vocab_size}. Got {max(flat)}")
        logits = torch.empty(batch, 1 if last else size, self.width)
        if size == 1:
            self.run(ids, cache, logits, batch, 0, 0)
        else:
            for i in range(batch):
                self.run(ids[i], cache.row(i), logits[i], size, size - 1 if last else 0, 1)
        cache.length += size
        return logits[..., : self.config.vocab_size]

    def run(self, ids: Tensor, cache: PackedCache, logits: Tensor, *sizes: int) -> None:
        """One call of the library: `struct Call`, in its order."""
        call = Call(*map(address, (ids, cache.length, cache.keys, cache.values, logits)), *sizes)
        prompt = sizes[2]
        threads = self.pace.most if prompt else self.pace.threads()
        started = perf_counter()
        self.step(self.by_reference, ctypes.byref(call), threads)
        if not prompt:
            self.pace.took(perf_counter() - started, threads)

    def choose(self, logits: Tensor, sampling: Any, seen: Tensor | None, uniform: Tensor | None) -> list[int]:
        """The ids that generate.py's pick() takes from logits (B, V) of this model; -1 where they are not finite."""
        rows, size = logits.shape
        s = sampling
        asked = Sampling(s.temperature, s.top_p, s.min_p, s.repetition_penalty, s.top_k)
        ids = (NUMBER * rows)()
        pointers = map(address, (logits, seen, uniform))
        self.choose_rows(*pointers, rows, logits.stride(0), size, ctypes.byref(asked), ids)
        return list(ids)


class PackedLinear(nn.Module):
    """A Linear for generation: weight (n_out, n_in) packed in `dtype` (float32, bfloat16, int8).

    x (..., n_in) float32 -> (..., n_out) float32; no gradients. Raises ValueError for another x.
    """

    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.n_out, self.n_in = weight.shape
        self.packed = pack(weight, dtype)
        self.matrix = self.packed.matrix()
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.function = getattr(library(), f"linear_{str(dtype)[6:]}")

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or x.shape[-1] != self.n_in or x.device.type != "cpu":
            raise ValueError(
                f"wanted float32 rows of {self.n_in} on the CPU. Got {x.dtype} {tuple(x.shape)} on {x.device}"
            )
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], self.matrix.panels * PANEL)
        rows, threads = x.numel() // self.n_in, torch.get_num_threads()
        self.function(ctypes.byref(self.matrix), address(x), address(y), rows, self.n_in, threads)
        y = y[..., : self.n_out]
        return y if self.bias is None else y + self.bias
