"""Models in the form that generation runs fastest: `prepare_for_generation(model, "fp32" | "bf16" | "int8")`.

    CPU with a C++ compiler   a GPT's steps are single calls of token_step.cpp, a WindowMLP's Linears are its products
        fp32  the same numbers, packed
        bf16  half the bytes; activations, keys and values are rounded to bfloat16 too
        int8  a quarter; one scale for each output, and for each row of activations; keys and values in bfloat16
    elsewhere                 what torch has
        fp32  on a CPU matrices of as many outputs as inputs, or more, are stored transposed: up to twice as fast
        bf16  weights and arithmetic; fast only where the device multiplies bf16
        int8  x86 only (FBGEMM): activations are quantised with one scale a batch, so there a text may depend on its
              neighbours
    auto  bf16 on GPUs that multiply it, else fp32: on a CPU it never changes the text

Left out: int4, groups of scales, a cache in int8.
"""

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rostok.errors import UserError
from rostok.generation.native import available
from rostok.generation.packed_gpt import PackedGPT, PackedLinear

Weights = Literal["auto", "fp32", "bf16", "int8"]
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


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

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, True)


def prepare_for_generation(model: Any, weights: Weights) -> Any:
    """The model in a form for generation: another object, or the same one changed in place. It cannot be trained.

    Raises UserError where the device has no such form.
    """
    device = next(model.parameters()).device
    chosen = best_weights(device) if weights == "auto" else weights
    if device.type == "cpu" and available():
        if hasattr(model, "blocks"):
            return PackedGPT(model, FORMATS[chosen])
        replace_linears(model, lambda linear: PackedLinear(linear.weight, linear.bias, FORMATS[chosen]))
    elif chosen == "bf16":
        model.to(torch.bfloat16)
    elif chosen == "int8":
        if device.type != "cpu" or "fbgemm" not in torch.backends.quantized.supported_engines:
            raise UserError(
                f"--weights int8 needs an x86 processor. Got {device.type}; use --weights fp32 or bf16"
            )
        untie_head(model)
        replace_linears(model, lambda linear: Int8Linear(linear.weight.detach(), linear.bias))
    elif device.type == "cpu":
        untie_head(model)
        replace_linears(model, transpose_weight)
    return model


def compiles(model: Any) -> bool:
    """Whether torch.compile can take the steps of a prepared model and has something to gain."""
    return (
        hasattr(model, "run")
        and not isinstance(model, PackedGPT)
        and not any(isinstance(module, PackedLinear | Int8Linear) for module in model.modules())
    )


def replace_linears(model: nn.Module, form: Callable[[nn.Linear], nn.Module]) -> None:
    """Put `form(linear)` in the place of every Linear."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, form(child))


def transpose_weight(linear: nn.Linear) -> nn.Linear:
    """Store the weight transposed where that multiplies one row faster."""
    if linear.out_features >= linear.in_features:
        linear.weight = nn.Parameter(linear.weight.detach().t().contiguous().t(), requires_grad=False)
    return linear


def best_weights(device: torch.device) -> Weights:
    """bf16 on a GPU that multiplies it, else fp32."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        return "bf16"
    return "fp32"


def untie_head(model: nn.Module) -> None:
    """Give a tied model a head of its own: the same numbers, stored for multiplying instead of looking up."""
    embed = getattr(model, "embed", None)
    if isinstance(embed, nn.Embedding) and getattr(model, "head", embed) is None:
        head = nn.Linear(embed.embedding_dim, embed.num_embeddings, bias=False, device="meta")
        head.weight = nn.Parameter(embed.weight.detach().clone(), requires_grad=False)
        model.head = head
