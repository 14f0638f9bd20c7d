"""The devices of this machine: which one to take, what it is called, what it can do, how much memory it has."""

import os
import platform
import shutil
import sys
from functools import cache
from pathlib import Path

import torch

from rostok.errors import UserError

CPUINFO = Path("/proc/cpuinfo")  # Linux


def choose_device(asked: str, local_rank: int = 0) -> tuple[torch.device, str]:
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = next(name for name, there in available.items() if there) if asked == "auto" else asked
    if not available[name]:
        there = " or ".join(name for name, yes in available.items() if yes)
        raise UserError(
            f"the device {asked} was asked for, but torch {torch.__version__} does not see one; use {there}"
        )
    device = (
        torch.device(name, local_rank % torch.cuda.device_count()) if name == "cuda" else torch.device(name)
    )
    if name == "cuda":
        torch.cuda.set_device(device)
    return device, "the fastest that is there" if asked == "auto" else "as asked"


def at_hand(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor where float64 can be computed: on the CPU for one on a device that has none (Apple's MPS)."""
    return tensor.cpu() if tensor.device.type == "mps" else tensor


def has_native_bf16(device: torch.device, cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor multiplies bf16 matrices itself: a GPU from Ampere on, a CPU with avx512_bf16, AMX or
    Arm's bf16. Elsewhere bf16 is emulated, several times slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu" or not cpuinfo.is_file():
        return False
    words = set(cpuinfo.read_text(encoding="utf-8", errors="replace").split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


@cache
def processor_name(device: str, cpuinfo: Path = CPUINFO) -> str:
    """Name of the GPU or CPU; stored with a run because another processor may round differently."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    told = {}
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            told.setdefault(key.strip(), value.strip())
    if "model name" not in told:
        return platform.processor() or platform.machine()
    return f"{told['model name']} (family {told.get('cpu family')}, model {told.get('model')})"


def cpp_compiler() -> str | None:
    """The path of a C++ compiler: $CXX, else one of the usual names; None where there is none."""
    names = [os.environ.get("CXX", ""), "cl" if sys.platform == "win32" else "g++", "c++", "clang++"]
    return next((path for name in names if name and (path := shutil.which(name))), None)


def missing_compiler(device: torch.device) -> str:
    """Why torch.compile cannot work here, or nothing."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return "" if has_triton() else "triton is missing"
    return "" if cpp_compiler() else "no C++ compiler is installed"


def machine_memory(device: torch.device, limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """All the bytes that a run could have: of the GPU, else of the machine."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    there = 2**40  # Windows does not say without help
    if hasattr(os, "sysconf"):
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:  # a container may have less
        return min(there, int(limit.read_text()))
    except (OSError, ValueError):  # none, or "max"
        return there
