"""Weights in the form that single steps read fastest: `lay_out(model, "fp32" | "bf16" | "int8" | "auto")`.

A step at batch 1 multiplies every weight by one row and is bound by how fast weights can be read and multiplied.

    fp32  on a CPU: matrices of as many outputs as inputs, or more, stored transposed: up to twice as fast, same numbers
    bf16  half the bytes; only fast where the processor multiplies bf16 (GPUs from SM 8.0, CPUs with avx512_bf16 or AMX)
    int8  a scale for each output, activations quantised as they come (FBGEMM, x86 only); a head of its own
    auto  bf16 where the device multiplies it, else fp32. Never int8: it changes the text a little

Left out: int4, groups of scales, a cache in int8. An int8 batch shares one activation scale, so there a text may depend
on its neighbours; with fp32 it does not.
"""

import itertools
import warnings
import weakref
from typing import Literal

import torch
from torch import Tensor, nn

from rostok.errors import UserError

Weights = Literal["auto", "fp32", "bf16", "int8"]


# torch.compile cannot take FBGEMM's packed weights into a graph, but it can take the number of a layer that holds them
_numbers = itertools.count()
_layers: "weakref.WeakValueDictionary[int, Int8Linear]" = weakref.WeakValueDictionary()
_library = torch.library.Library("rostok", "DEF")
_library.define("int8_linear(Tensor x, int number, int n_out) -> Tensor")
_library.impl("int8_linear", lambda x, number, n_out: _layers[number].multiply(x), "CPU")
_library.impl("int8_linear", lambda x, number, n_out: x.new_empty(*x.shape[:-1], n_out), "Meta")


class Int8Linear(nn.Module):
    """A Linear with weights in int8, one scale an output: scale = max |w| / 127. x (..., in) float32 -> (..., out).

    Activations are quantised to 7 bits as they come: 8 would overflow the 16-bit sums of processors without VNNI.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        scale = weight.abs().amax(1).clamp(min=1e-12).double() / 127
        zero = torch.zeros_like(scale, dtype=torch.int64)
        with (
            warnings.catch_warnings()
        ):  # torch announces another home for these types; the kernels are its fastest
            warnings.simplefilter("ignore")
            quantised = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(quantised, bias)
        self.n_out, self.number = len(weight), next(_numbers)
        _layers[self.number] = self

    def multiply(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, True)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return torch.ops.rostok.int8_linear(x, self.number, self.n_out)
        return self.multiply(x)


def lay_out(model: nn.Module, weights: Weights) -> str:
    """Change a model in place for generation and give the form that was chosen. It cannot be trained afterwards.

    Raises UserError where the device has no such form.
    """
    device = next(model.parameters()).device
    chosen = best_weights(device) if weights == "auto" else weights
    if chosen == "bf16":
        model.to(torch.bfloat16)
        return chosen
    if chosen == "int8" and (
        device.type != "cpu" or "fbgemm" not in torch.backends.quantized.supported_engines
    ):
        raise UserError(
            f"--weights int8 needs an x86 processor. Got {device.type}; use --weights fp32 or bf16"
        )
    if device.type == "cpu":
        untie_head(model)
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear) and chosen == "int8":
                    setattr(module, name, Int8Linear(child.weight.detach(), child.bias))
                elif isinstance(child, nn.Linear) and child.out_features >= child.in_features:
                    child.weight = nn.Parameter(
                        child.weight.detach().t().contiguous().t(), requires_grad=False
                    )
    return chosen


def best_weights(device: torch.device) -> Weights:
    """bf16 where the device multiplies it, else fp32."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"
    if device.type == "cpu" and hasattr(torch.cpu, "_is_avx512_bf16_supported"):
        return (
            "bf16" if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported() else "fp32"
        )
    return "fp32"


def untie_head(model: nn.Module) -> None:
    """Give a tied model a head of its own: the same numbers, stored for multiplying instead of looking up."""
    embed = getattr(model, "embed", None)
    if isinstance(embed, nn.Embedding) and getattr(model, "head", embed) is None:
        head = nn.Linear(embed.embedding_dim, embed.num_embeddings, bias=False, device="meta")
        head.weight = nn.Parameter(embed.weight.detach().clone(), requires_grad=False)
        model.head = head
