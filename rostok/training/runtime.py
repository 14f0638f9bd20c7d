"""Where and how the arithmetic runs: device, number format, compiler, threads, processes; each choice with its reason.

    runtime = choose_runtime(RuntimeConfig(), flops=1e15)
    print(runtime.reason)
    with runtime.autocast(): ...

    with process_group(ranks()) as place: ...           # torchrun's processes; a plain run is rank 0 of 1

Left out: model parallelism of any kind. A model of 15 million parameters fits everywhere.
"""

import contextlib
import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn

from rostok.devices import choose_device, has_native_bf16, missing_compiler, processor_name
from rostok.errors import UserError

# Compiling takes the better part of a minute and saves a third of the time: it pays from a few minutes of work on.
COMPILE_FLOPS = {"cpu": 3e13, "cuda": 1e15}
COMPILE_MINUTES = 3


@dataclass(frozen=True)
class RuntimeConfig:
    """Device, number format, compiler, threads; where it is `auto`, Rostok chooses and says why."""

    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], "auto: the fastest that is there"] = "auto"
    dtype: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"], "number format of products; weights stay fp32"
    ] = "auto"
    compile: Annotated[
        Literal["auto", "always", "never"], "torch.compile; auto: where the run is long enough"
    ] = "auto"
    threads: Annotated[int, Field(ge=0, le=1024), "of the CPU; 0: as many as torch finds"] = 0


@dataclass(frozen=True)
class Runtime:
    """What was chosen. `reason` is for people, one choice a line; `fingerprint` is all that rounding depends on."""

    device: torch.device
    dtype: torch.dtype
    compile: bool
    threads: int
    reason: str
    native_bf16: bool = False

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The context in which the forward pass runs: mixed precision, or nothing for float32."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """Scales the loss so that fp16 gradients do not vanish; does nothing in the other formats."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)

    @property
    def fingerprint(self) -> dict[str, str | int | bool]:
        dtype = str(self.dtype).removeprefix("torch.")
        return {
            "device": self.device.type, "processor_name": processor_name(self.device.type), "dtype": dtype,
            "compile": self.compile, "threads": self.threads, "torch": torch.__version__,
        }  # fmt: skip


def choose_runtime(
    config: RuntimeConfig, flops: float = 0.0, local_rank: int = 0, minutes: float = 0.0
) -> Runtime:
    """Choose device, number format, compiler and threads, and set torch's switches to match. Raises UserError.

    flops: floating-point operations of the whole run, which may have to end after so many `minutes` (0: no limit); a
    short one is not compiled.
    """
    device, why_device = choose_device(config.device, local_rank)
    native = has_native_bf16(device)
    dtype, why_dtype = choose_dtype(config.dtype, device, native)
    compiles, why_compile = choose_compile(config.compile, device, flops, minutes)
    if config.threads:
        torch.set_num_threads(config.threads)
    if device.type == "cpu":
        keep_freed_memory()
    precision, matmul = matmul_precision(device)
    torch.set_float32_matmul_precision(precision)
    threads = torch.get_num_threads()
    name = str(dtype).removeprefix("torch.")
    reason = (
        f"{device.type} ({why_device}), {name} ({why_dtype}), {matmul}\n"
        f"{'compiled' if compiles else 'not compiled'} ({why_compile}), {threads} threads "
        f"({'as asked' if config.threads else 'all that torch finds'})"
    )
    return Runtime(device, dtype, compiles, threads, reason, native)


def choose_dtype(asked: str, device: torch.device, native_bf16: bool) -> tuple[torch.dtype, str]:
    kind = device.type
    if asked == "auto":
        if native_bf16:
            return torch.bfloat16, f"this {kind} has bf16 arithmetic"
        if kind == "cuda":
            return torch.float16, "this GPU has no bf16 arithmetic; the loss is scaled"
        return torch.float32, f"no bf16 arithmetic in this {kind}" if kind == "cpu" else "safe on mps"
    if asked == "bf16" and kind == "cuda" and not native_bf16:
        raise UserError(
            "runtime.dtype=bf16 needs a GPU of compute capability 8.0 or above; use runtime.dtype=fp16 or fp32"
        )
    if asked != "fp32" and kind == "mps":
        raise UserError(f"runtime.dtype={asked} is not tested on mps; use runtime.dtype=fp32")
    slow = ", emulated and slow here" if asked != "fp32" and kind == "cpu" and not native_bf16 else ""
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[asked], f"as asked{slow}"


def matmul_precision(device: torch.device) -> tuple[str, str]:
    """torch's name for how matrices of fp32 are multiplied, and the same in words.

    On a CPU 'medium' hands them to oneDNN, which is faster where it keeps fp32 arithmetic (AMD, older Intel); with AMX
    and on some Arm processors it rounds them to bf16, and fp32 would be fp32 in name only.
    """
    if device.type == "cuda":
        return "high", "TF32 for what is left in fp32"
    if device.type == "cpu" and medium_is_fp32():
        return "medium", "oneDNN fp32"
    return "highest", "fp32"


def medium_is_fp32() -> bool:
    """Whether this CPU multiplies fp32 matrices exactly under 'medium': tried with a number that bf16 has not."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        numbers = torch.full((64, 64), 1 + 2.0**-12)
        return bool((numbers @ torch.eye(64) == numbers).all())
    finally:
        torch.set_float32_matmul_precision(before)


def keep_freed_memory() -> bool:
    """Let the C library keep what a step frees for the next one; gives whether it does (glibc only).

    By default glibc returns every large block to the system and takes it again, zeroed page by page: on a fast CPU a
    sixth of a training step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # no glibc: macOS, musl, Windows
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, 2**30) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names and numbers of malloc.h


def choose_compile(asked: str, device: torch.device, flops: float, minutes: float = 0.0) -> tuple[bool, str]:
    if asked != "auto":
        return asked == "always", "as asked"
    least = COMPILE_FLOPS.get(device.type)
    if least is None:
        return False, f"torch.compile is not used on {device.type}"
    if flops < least:
        return False, f"a run of {flops:.0e} operations is too short to pay for it"
    if 0 < minutes < COMPILE_MINUTES:
        return False, f"a run of {minutes:g} minutes is too short to pay for it"
    missing = missing_compiler(device)
    return (False, missing) if missing else (True, f"{flops:.0e} operations pay for it")


def compile_parts(model: nn.Module, runtime: Runtime, batch: int, say: Callable[[str], None] = print) -> bool:
    """Compile every block of the model and its loss in place, and try them on `batch` rows, forward and backward.

    All layers share the code of one block, so that the wait is short. The embedding stays outside: its compiled
    backward pass adds in no fixed order, and runs would differ in their last bits. Parameters keep their names. Where
    compiling fails (no compiler, a platform without one) one line says so and the model runs as it was.
    """
    blocks = list(getattr(model, "blocks", []))
    loss: Any = model.loss
    started = time.perf_counter()
    try:
        for block in blocks:
            block.compile(dynamic=False)
        vars(model)["loss"] = torch.compile(loss, dynamic=False)
        ids = torch.zeros(batch, model.config.context, dtype=torch.int64, device=runtime.device)  # type: ignore
        with runtime.autocast():
            trial = model(ids, ids)
        trial.backward()
    except Exception as error:  # torch.compile raises whatever its many parts raise
        for block in blocks:
            block._compiled_call_impl = None
        vars(model).pop("loss", None)
        reason = missing_compiler(runtime.device) or str(error).strip().splitlines()[0][:160]
        say(f"compile  failed, going on without it: {reason}")
        return False
    finally:
        model.zero_grad(set_to_none=True)
    parts = f"{len(blocks)} blocks and the loss" if blocks else "the loss"
    say(f"compile  {parts} in {time.perf_counter() - started:.0f} s")
    return True


def uncompiled() -> contextlib.AbstractContextManager[object]:
    """Disable torch.compile inside: evaluation and sampling use other shapes and would recompile for each."""
    return torch.compiler.set_stance("force_eager")


def measure_peak(runtime: Runtime, sizes: Sequence[int] = (128, 1024, 2048), seconds: float = 0.3) -> float:
    """FLOP/s of square matmuls in the run's number format, at the best of some sizes (eight times as large on a GPU)
    and of as many tries as fit into `seconds`: what this machine can do at best, measured now.

    A size whose first try would take longer than that is left out: fp16 on most CPUs takes seconds.
    """
    scale, best = 8 if runtime.device.type == "cuda" else 1, 0.0
    for size in (scale * size for size in sizes):
        flops = 2 * size**3
        if best and flops / best > seconds:
            break
        a = torch.ones(size, size, device=runtime.device, dtype=runtime.dtype)
        torch.mm(a, a)  # warms up
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            synchronise(runtime.device)
            started = time.perf_counter()
            torch.mm(a, a)
            synchronise(runtime.device)
            best = max(best, flops / (time.perf_counter() - started))
    return best


def synchronise(device: torch.device) -> None:
    """Wait for a GPU to finish what it was given; a CPU is never behind."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def peak_memory(device: torch.device) -> int:
    """The most bytes this process ever held: on a GPU of its memory, else of the machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def flops_per_token(model: nn.Module) -> float:
    """Floating-point operations of training on one token: 6 for each weight that is multiplied with, and 6 * layers *
    context * width for causal attention (its half that is needed)."""
    config = getattr(model, "config", None)
    tied = bool(getattr(config, "tied", False))
    weights = sum(
        p.numel() for n, p in model.named_parameters() if p.ndim == 2 and (tied or n != "embed.weight")
    )
    attention = (
        len(getattr(model, "blocks", ())) * getattr(config, "context", 0) * getattr(config, "d_model", 0)
    )
    return 6.0 * (weights + attention)


# ---------------------------------------------------------------------------------------------------- processes
