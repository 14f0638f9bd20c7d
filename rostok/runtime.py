"""Where and how the arithmetic runs: device, number format, threads; each choice with its reason, printed once."""

import contextlib
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field

from rostok.errors import UserError


@dataclass(frozen=True)
class RuntimeConfig:
    """What the user asks for; `auto` leaves the choice to `choose_runtime`."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    threads: Annotated[int, Field(ge=0)] = 0  # 0: as many as torch finds


@dataclass(frozen=True)
class Runtime:
    """What was chosen. `reason` is one line for people."""

    device: torch.device
    dtype: torch.dtype
    threads: int
    reason: str

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The context in which the forward pass runs: mixed precision, or nothing for float32."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)


def choose_runtime(config: RuntimeConfig) -> Runtime:
    """Choose device, number format and threads, and set torch's switches to match. Raises UserError."""
    device, why_device = choose_device(config.device)
    dtype, why_dtype = choose_dtype(config.dtype, device)
    if config.threads:
        torch.set_num_threads(config.threads)
    # on a CPU 'medium' lets oneDNN do fp32 matmuls (twice as fast as the default); on CUDA it allows TF32
    torch.set_float32_matmul_precision("medium" if device.type == "cpu" else "high")
    threads = torch.get_num_threads()
    name = str(dtype).removeprefix("torch.")
    return Runtime(
        device, dtype, threads, f"{device.type} ({why_device}), {name} ({why_dtype}), {threads} threads"
    )


def choose_device(asked: str) -> tuple[torch.device, str]:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if asked == "auto":
        name = next(name for name, there in available.items() if there)
        return torch.device(name), "the fastest that is there"
    if not available[asked]:
        there = " or ".join(name for name, yes in available.items() if yes)
        raise UserError(
            f"runtime.device={asked}, but torch {torch.__version__} sees no such device; use {there}"
        )
    return torch.device(asked), "as asked"


def choose_dtype(asked: str, device: torch.device) -> tuple[torch.dtype, str]:
    native_bf16 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if asked == "auto":
        if native_bf16:
            return torch.bfloat16, "the GPU has native bf16"
        return torch.float32, f"safe everywhere; no native bf16 was looked for on {device.type}"
    if asked == "bf16" and device.type == "cuda" and not native_bf16:
        raise UserError("runtime.dtype=bf16 needs a GPU of compute capability 8.0 or above; use fp32")
    if asked == "fp16":
        raise UserError(
            "runtime.dtype=fp16 needs a loss scaler, which this version has not; use bf16 or fp32"
        )
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[asked], "as asked"
