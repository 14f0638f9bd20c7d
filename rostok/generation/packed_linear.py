"""Few rows times a matrix of weights on a CPU: packed_linear.cpp, compiled once and loaded with ctypes.

    if available():                                  # AVX2 and a compiler
        layer = PackedLinear(linear.weight, linear.bias, torch.int8)       # or torch.float32, torch.bfloat16
        y = layer(x)                                 # x (..., n_in) float32 -> (..., n_out) float32; no gradients

1. the library's name in $XDG_CACHE_HOME/rostok (~/.cache/rostok) is a hash of source, compiler and flags: each is
   compiled once; its last 32 bytes are the SHA-256 of the rest, so a damaged one is compiled again; where that
   folder cannot be read or written, every process compiles for itself
2. weights are packed into panels of 16 outputs, as packed_linear.cpp reads them; int8 has one scale an output
3. one step of a whole block is one call too (BlockStep); what is left to torch.compile is not worth its time

It shares torch's own threads: both ask the same OpenMP library. Why not torch's products: docs/performance.md.
"""

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rostok.devices import cpp_compiler
from rostok.files import write_file

SOURCE = Path(__file__).with_name("packed_linear.cpp")
FLAGS = ("-std=c++17", "-O3", "-mavx2", "-mfma", "-fopenmp", "-shared", "-fPIC")
PANEL, PADDING = 16, 64  # outputs in a panel; packed_linear.cpp takes up to four panels at a time
POINTER, NUMBER = ctypes.c_void_p, ctypes.c_long
PATIENCE = 300  # seconds; a compiler that takes longer hangs


def available() -> bool:
    """Whether products can be made here. Says on stderr, once, what is missing if only a compiler is."""
    return library() is not None


@functools.cache
def library() -> ctypes.CDLL | None:
    """packed_linear.cpp, compiled; None on another processor, or where compiling fails."""
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return None
    try:
        loaded = ctypes.CDLL(str(compiled)) if whole(compiled := cached()) else build(compiled)
    except (OSError, subprocess.SubprocessError) as error:
        printed = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        said = (printed or str(error)).strip().splitlines()
        print(
            f"note: packed_linear.cpp cannot be compiled here, so texts are written more slowly ({said[0]})",
            file=sys.stderr,
        )
        return None
    for name in ("float32", "bfloat16", "int8"):
        rows, step = getattr(loaded, f"rows_{name}"), getattr(loaded, f"step_{name}")
        rows.argtypes, rows.restype = [*[POINTER] * 4, *[NUMBER] * 3, ctypes.c_int], None
        step.argtypes, step.restype = [ctypes.POINTER(Block), ctypes.c_int], None
    return loaded


def compiler() -> str:
    """The compiler's path. Raises OSError where there is none."""
    if found := cpp_compiler():
        return found
    raise OSError("no g++ or clang++ found")


def cached() -> Path:
    """Where the library of this source, compiler and these flags belongs."""
    version = run_compiler("--version").encode()
    digest = hashlib.sha256(SOURCE.read_bytes() + version + " ".join(FLAGS).encode()).hexdigest()[:16]
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if folder.startswith("~"):  # no HOME and no entry for this user
        raise OSError("no home folder: set XDG_CACHE_HOME")
    return Path(folder, "rostok", f"packed_linear-{digest}.so")


def run_compiler(*words: str) -> str:
    """What the compiler prints. Raises OSError and subprocess.SubprocessError."""
    done = subprocess.run(
        [compiler(), *words], stdin=subprocess.DEVNULL, capture_output=True, check=True,
        encoding="utf-8", errors="replace", timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout


def whole(path: Path) -> bool:
    """Whether a library is there as it was written. To load a damaged one would end the process."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


def build(target: Path) -> ctypes.CDLL:
    """Compile and load; keep the library at `target` if that can be written. Raises OSError, SubprocessError."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "packed_linear.so")
        run_compiler(*FLAGS, str(SOURCE), "-o", str(made))
        content = made.read_bytes()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, content + hashlib.sha256(content).digest(), durable=True)
        except OSError:
            return ctypes.CDLL(str(made))  # stays loaded when the folder goes
    return ctypes.CDLL(str(target))


def pack(weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Weights (n_out, n_in) as panels (n_out / 16, n_in, 16), padded with zeros, and the scales (n_out,) of int8:
    max |w| / 127 of each output."""
    scale = None
    if dtype == torch.int8:
        scale = weight.float().abs().amax(1).clamp(min=1e-12) / 127
        weight = (weight / scale[:, None]).round()
    n_out, n_in = weight.shape
    padded = F.pad(weight.to(dtype), (0, 0, 0, -n_out % PADDING))
    return padded.view(-1, PANEL, n_in).transpose(1, 2).contiguous(), scale


def multiply(x: Tensor, packed: Tensor, scale: Tensor | None, n_out: int) -> Tensor:
    """x (..., n_in) float32 times packed weights -> (..., n_out) float32. Raises ValueError for another x."""
    n_in = packed.shape[1]
    if x.dtype != torch.float32 or x.shape[-1] != n_in or x.device.type != "cpu":
        raise ValueError(
            f"wanted float32 rows of {n_in} on the CPU. Got {x.dtype} {tuple(x.shape)} on {x.device}"
        )
    x = x.contiguous()
    y = x.new_empty(*x.shape[:-1], n_out)
    function = getattr(library(), f"rows_{str(packed.dtype)[6:]}")
    pointers = (address(tensor) for tensor in (x, packed, scale, y))
    function(*pointers, x.numel() // n_in, n_in, n_out, torch.get_num_threads())
    return y


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class PackedLinear(nn.Module):
    """A Linear for generation: weight (n_out, n_in) in `dtype` (float32, bfloat16, int8), all arithmetic in float32."""

    packed: Tensor
    scale: Tensor | None
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        packed, scale = pack(weight.detach(), dtype)
        self.register_buffer("packed", packed)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.n_out = len(weight)

    def forward(self, x: Tensor) -> Tensor:
        y = multiply(x, self.packed, self.scale, self.n_out)
        return y if self.bias is None else y + self.bias


class Block(ctypes.Structure):
    """`struct Block` of packed_linear.cpp."""

    _fields_ = (
        *((name, POINTER) for name in ("attn_norm", "q_norm", "k_norm", "mlp_norm")),
        *((name, POINTER) for name in ("qkv", "proj", "gate", "up", "down")),
        *((f"{name}_scale", POINTER) for name in ("qkv", "proj", "gate", "up", "down")),
        *((name, POINTER) for name in ("x", "keys", "values", "cos", "sin", "position")),
        *(
            (name, NUMBER)
            for name in ("ragged", "rows", "d_model", "n_head", "n_kv", "d_head", "d_mlp", "context")
        ),
        ("eps", ctypes.c_double),
    )


class BlockStep(nn.Module):
    """A block of the GPT whose Linears are PackedLinear: a single step over a cache is one call of the library.

    Longer texts take the block's own code. Arguments and result are the block's; a single step writes over x.
    """

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block
        attn, mlp = block.attn, block.mlp
        norms = (block.attn_norm, attn.q_norm, attn.k_norm, block.mlp_norm)
        linears = (attn.qkv, attn.proj, mlp.gate, mlp.up, mlp.down)
        # in a plain list, since a look-up in a module takes a microsecond
        self.tensors = [*(n.weight for n in norms), *(n.packed for n in linears), *(n.scale for n in linears)]
        self.layer, self.hidden = attn.layer, mlp.gate.n_out
        self.heads = (attn.n_head, attn.n_kv_head, attn.d_head)
        self.eps = block.attn_norm.eps
        self.step = f"step_{str(attn.qkv.packed.dtype)[6:]}"

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Any, place: Any) -> Tensor:
        if cache is None or x.shape[1] != 1:
            return self.block(x, cos, sin, cache, place)
        x, keys, values = x.contiguous(), cache.keys[self.layer], cache.values[self.layer]
        pointers = map(address, (*self.tensors, x, keys, values, cos, sin, place.index))
        sizes = (place.index.ndim == 2, len(x), x.shape[2], *self.heads, self.hidden, keys.shape[2])
        getattr(library(), self.step)(Block(*pointers, *sizes, self.eps), torch.get_num_threads())
        return x
