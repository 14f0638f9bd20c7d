"""Generation in C++ against model.py and torch: every form of the machine, every odd shape, every way to choose."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportIndexIssue=false

import ctypes
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from model import GPT, GPTConfig, build_model
from rostok.generation import native, packed_gpt
from rostok.generation.generate import Reader, Sampling, generate, pick
from rostok.generation.native import available
from rostok.generation.packed_gpt import Pace, PackedGPT, PackedLinear, address

pytestmark = pytest.mark.skipif(not available(), reason="no compiler here")
FORMATS = [torch.float32, torch.bfloat16, torch.int8]
ODD = {
    "plain": GPTConfig(vocab_size=97, context=40, n_layer=2, n_head=4, d_model=32),
    "grouped, d_head 10": GPTConfig(
        vocab_size=97, context=33, n_layer=2, n_head=6, n_kv_head=2, d_model=60, d_mlp=37, tied=False
    ),
    "one kv head, d_head 6": GPTConfig(
        vocab_size=101, context=64, n_layer=1, n_head=4, n_kv_head=1, d_model=24, d_mlp=5
    ),
    "one head": GPTConfig(vocab_size=17, context=100, n_layer=3, n_head=1, d_model=130, rope_theta=777.0),
}
# where each machine's compiler finds the other forms of this processor
FLAGS = ("-march=x86-64-v4", "-march=x86-64-v3", "-march=x86-64") if platform.machine() == "x86_64" else ()


def lively(config: GPTConfig) -> GPT:
    """A model whose every weight is drawn."""
    model, generator = build_model(config).eval().requires_grad_(False), torch.Generator().manual_seed(1)
    assert isinstance(model, GPT)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def ids_of(config: GPTConfig, rows: int, size: int) -> torch.Tensor:
    return torch.randint(config.vocab_size, (rows, size), generator=torch.Generator().manual_seed(5))


def divergence(want: torch.Tensor, got: torch.Tensor) -> float:
    """KL, nats per token."""
    a, b = want.log_softmax(-1), got.log_softmax(-1)
    return (a.exp() * (a - b)).sum(-1).mean().item()


# ------------------------------------------------------------------------------------------------------- products


def in_float64(x: torch.Tensor, dtype: torch.dtype, activations: bool) -> torch.Tensor:
    """The numbers that rows of weights or activations really stand for."""
    if dtype == torch.int8:
        scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        return (x / scale).round().double() * scale.double()
    rounded = dtype == torch.bfloat16 and (not activations or "avx512_bf16" in cpu_flags())
    return (x.bfloat16() if rounded else x).double()


def cpu_flags() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize(("n_out", "n_in"), [(1, 1), (16, 8), (97, 31), (64, 100), (130, 384)])
def test_a_linear_equals_torch(dtype, n_out, n_in):
    generator = torch.Generator().manual_seed(n_out)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    linear = nn.Linear(n_in, n_out).requires_grad_(False)
    linear.weight.copy_(draw(n_out, n_in))
    linear.weight[0] = 0  # a row without a scale
    ours, weight = PackedLinear(linear.weight, linear.bias, dtype), in_float64(linear.weight, dtype, False)
    for count in (0, 1, 2, 3, 4, 6, 7, 13, 16, 31, 70):
        x = draw(count, n_in)
        want = F.linear(in_float64(x, dtype, True), weight, linear.bias.double()).float()
        torch.testing.assert_close(ours(x), want, atol=3e-4 if dtype == torch.int8 else 3e-5, rtol=1e-5)
    wide = draw(2, 3, 2 * n_in)
    for x in (wide[..., ::2], wide[..., :n_in], wide[:, -1:, n_in:]):  # not contiguous
        assert torch.equal(ours(x), ours(x.clone()))


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(dtype, monkeypatch):
    x, layer = torch.randn(40, 384), PackedLinear(torch.randn(520, 384), None, dtype)
    together = layer(x)
    for count in (*range(1, 20), 31, 33):
        assert torch.equal(layer(x[:count]), together[:count])
    for threads in (1, 2, 3, 7):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert torch.equal(layer(x), together)


def test_what_a_linear_cannot_multiply():
    layer = PackedLinear(torch.ones(3, 4), None, torch.float32)
    for x in (torch.ones(4, dtype=torch.bfloat16), torch.ones(5)):
        with pytest.raises(ValueError, match="wanted float32 rows of 4"):
            layer(x)


# ------------------------------------------------------------------------------------------------------- the model


@pytest.mark.parametrize("config", ODD.values(), ids=ODD)
def test_logits_are_those_of_the_model(config):
    model, ids = lively(config), ids_of(config, 2, config.context)
    want = model(ids)
    assert (PackedGPT(model, torch.float32)(ids) - want).abs().max() < 1e-4
    for dtype, most in ((torch.bfloat16, 2e-3), (torch.int8, 1e-2)):
        assert 0 <= divergence(want, PackedGPT(model, dtype)(ids)) < most * want.std() ** 2 + 1e-6


@pytest.mark.parametrize("config", ODD.values(), ids=ODD)
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_chunks_and_steps_are_the_whole(config, dtype, threads):
    model, ids = PackedGPT(lively(config), dtype), ids_of(config, 3, 32)
    model.pace = Pace(threads)
    whole = model(ids)
    for chunks in ([32], [1] * 32, [5, 1, 20, 6], [31, 1]):
        cache = model.new_cache(3)
        got = torch.cat([model(part, cache=cache) for part in ids.split(chunks, 1)], 1)
        # an int8 activation that lies between two numbers may fall to either, since sums differ in their last bit
        assert (got - whole).abs().max() < (2e-2 if dtype == torch.int8 else 1e-5)
        assert cache.length.tolist() == [32] * 3
        assert torch.equal(model(ids, last=True), whole[:, -1:])


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_rows_of_different_lengths(dtype):
    """Each text of a batch is what it is alone, to the bit."""
    config = ODD["grouped, d_head 10"]
    model, ids = PackedGPT(lively(config), dtype), ids_of(config, 3, 33)
    cache, alone = model.new_cache(3), [model.new_cache(1) for _ in range(3)]
    for row, n in enumerate((1, 7, 20)):
        model(ids[row : row + 1, :n], cache=cache.row(row))
        model(ids[row : row + 1, :n], cache=alone[row])
    for step in range(12):
        at = [n + step for n in (1, 7, 20)]
        got = model(torch.stack([ids[r, t : t + 1] for r, t in enumerate(at)]), cache=cache)
        for r, t in enumerate(at):
            assert torch.equal(got[r], model(ids[r : r + 1, t : t + 1], cache=alone[r])[0])
    cache.copy(2, 0)
    assert cache.length.tolist() == [32, 19, 32]
    same = model(ids[:1, :1].expand(3, 1), cache=cache)
    assert torch.equal(same[0], same[2])


def test_what_the_model_refuses():
    model = PackedGPT(lively(ODD["plain"]), torch.int8)
    with pytest.raises(ValueError, match="the model sees at most 40 tokens. Got 41"):
        model(torch.zeros(1, 41, dtype=torch.int64))
    for id in (-1, 97):
        with pytest.raises(ValueError, match="wanted ids below 97"):
            model(torch.tensor([[0, id]]))


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_a_model_that_has_diverged_is_told(dtype):
    model = lively(ODD["plain"])
    model.blocks[0].mlp.up.weight[3, 5] = torch.inf
    model.embed.weight[5, 3] = torch.nan
    packed = PackedGPT(model, dtype)
    assert packed.choose(
        packed(torch.tensor([[5]]), last=True)[:, -1], Sampling(), None, torch.zeros(1).double()
    ) == [-1]


def test_the_pace_is_the_faster_one():
    pace = Pace(2)
    for slow, fast in ((1, 2), (2, 1), (1, 2)):
        for _ in range(Pace.AGAIN):
            threads = pace.threads()
            pace.took(3e-3 if threads == slow else 1e-3, threads)
        assert pace.best == fast
    one = Pace(1)
    for _ in range(30):
        assert one.threads() == 1
        one.took(1e-3, 1)


# ------------------------------------------------------------------------------------------------------- forms


def same(dtype: torch.dtype, want: torch.Tensor, got: torch.Tensor) -> bool:
    """To the last bits in float32; in the other formats a processor may round activations where another does not."""
    if dtype == torch.float32:
        return (got - want).abs().max().item() < 1e-5
    return divergence(want, got) < 2e-4


@pytest.mark.parametrize("flag", FLAGS)
def test_other_forms_of_the_machine_say_the_same(flag, tmp_path, monkeypatch):
    config = ODD["grouped, d_head 10"]
    model, ids = lively(config), ids_of(config, 2, 30)
    usual = [PackedGPT(model, dtype)(ids) for dtype in FORMATS]
    macros = native.run_compiler(flag, "-dM", "-E", "-x", "c++", "/dev/null")
    needed = {"__AVX512F__": "avx512f", "__AVX2__": "avx2"}
    if any(macro in macros and flag not in cpu_flags() for macro, flag in needed.items()):
        pytest.skip("this processor has not that form")
    library = native.build(tmp_path / "form.so", (*native.FLAGS, "-O1", flag))
    monkeypatch.setattr(packed_gpt, "library", lambda: library)
    for dtype, want in zip(FORMATS, usual, strict=True):
        form = PackedGPT(model, dtype)
        assert same(dtype, want, form(ids))
        cache = form.new_cache(2)
        got = torch.cat([form(part, cache=cache) for part in ids.split([4, 1, 1, 24], 1)], 1)
        assert same(dtype, want, got)


# the model's structs, read from a file in which addresses are offsets
ON_ARM = """
#include "token_step.cpp"
#include <cstdio>
template <class T> static void move(T& pointer, char* base) { if (pointer) pointer = (T)(base + (int64_t)pointer); }
static void move(Matrix& m, char* base) { move(m.weights, base), move(m.scale, base), move(m.sums, base); }
int main(int, char** args) {
    FILE* file = fopen(args[1], "rb");
    static char base[1 << 24] __attribute__((aligned(64)));
    if (!fread(base, 1, sizeof base, file)) return 1;
    const int64_t* head = (int64_t*)base;  // offsets of the model, the call, the logits; their bytes
    Model& m = *(Model*)(base + head[0]);
    Call& c = *(Call*)(base + head[1]);
    move(m.layers, base), move(m.embed, base), move(m.final_norm, base);
    move(m.cos, base), move(m.sin, base), move(m.head, base);
    for (int64_t i = 0; i < m.n_layer; i++) {
        Layer& l = ((Layer*)m.layers)[i];
        move(l.attn_norm, base), move(l.q_norm, base), move(l.k_norm, base), move(l.mlp_norm, base);
        move(l.qkv, base), move(l.proj, base), move(l.gate_up, base), move(l.down, base);
    }
    move(c.ids, base), move(c.length, base), move(c.keys, base), move(c.values, base), move(c.logits, base);
    STEP(&m, &c, 2);
    fwrite(base + head[2], 1, head[3], stdout);
}
"""


class Image:
    """A file of memory: structs of ctypes with offsets where they had addresses."""

    def __init__(self) -> None:
        self.content, self.places = bytearray(64), {}

    def put(self, data: bytes) -> int:
        at = len(self.content)
        self.content += data + bytes(-len(data) % 64)
        return at

    def tensor(self, tensor: torch.Tensor) -> None:
        kept = tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor
        self.places[address(tensor)] = self.put(kept.numpy().tobytes())

    def struct(self, value: ctypes.Structure) -> int:
        return self.put(bytes(self.moved(value)))

    def moved(self, value: Any) -> Any:
        copy = type(value).from_buffer_copy(value)
        for name, kind in value._fields_:
            if kind is packed_gpt.POINTER:
                setattr(copy, name, self.places.get(getattr(value, name)))
            elif kind is packed_gpt.Matrix:
                setattr(copy, name, self.moved(getattr(value, name)))
        return copy


def tensors_in(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, packed_gpt.Packed):
        return tensors_in([value.weights, value.scale, value.sums])
    return [t for item in value for t in tensors_in(item)] if isinstance(value, list | tuple) else []


@pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-g++") and shutil.which("qemu-aarch64")),
    reason="needs Debian's g++-aarch64-linux-gnu and qemu-user",
)
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("march", ["armv8-a", "armv8.2-a+dotprod"])
def test_the_form_for_arm(dtype, march, tmp_path):
    config = ODD["grouped, d_head 10"]
    model, ids = PackedGPT(lively(config), dtype), ids_of(config, 1, 30)[0].contiguous()
    cache, logits = model.new_cache(1), torch.zeros(30, model.width)
    image = Image()
    for tensor in (*tensors_in(model.kept), ids, cache.length, cache.keys, cache.values, logits):
        image.tensor(tensor)
    layers = image.put(b"".join(bytes(image.moved(layer)) for layer in model.kept[-1]))
    moved = image.moved(model.model)
    content = bytearray(bytes(moved))
    content[:8] = layers.to_bytes(8, "little")
    call = packed_gpt.Call(*map(address, (ids, cache.length, cache.keys, cache.values, logits)), 30, 0, 1)
    head = (image.put(bytes(content)), image.struct(call), image.places[address(logits)], 4 * logits.numel())
    image.content[:32] = b"".join(n.to_bytes(8, "little") for n in head)
    (tmp_path / "image").write_bytes(image.content)
    (tmp_path / "main.cpp").write_text(ON_ARM)
    flags = [flag for flag in native.FLAGS if flag not in ("-shared", "-fPIC", "-O3")]
    step = f"-DSTEP=step_{str(dtype)[6:]}"
    command = [
        "aarch64-linux-gnu-g++",
        *flags,
        "-O1",
        "-static",
        f"-march={march}",
        step,
        f"-I{native.SOURCES[0].parent}",
    ]
    subprocess.run([*command, str(tmp_path / "main.cpp"), "-o", str(tmp_path / "main")], check=True)
    done = subprocess.run(
        ["qemu-aarch64", "-cpu", "max", str(tmp_path / "main"), str(tmp_path / "image")],
        capture_output=True,
        check=True,
    )
    got = torch.frombuffer(bytearray(done.stdout), dtype=torch.float32).view(30, -1)[:, : config.vocab_size]
    assert same(dtype, model(ids[None])[0], got)


# ------------------------------------------------------------------------------------------------------- a process


FORKED = """
import os, torch
from model import GPTConfig, build_model
from rostok.generation.packed_gpt import PackedGPT, Pace
model = PackedGPT(build_model(GPTConfig(vocab_size=97, context=32, n_layer=2, n_head=2, d_model=32)), torch.int8)
model.pace = Pace(3)
ids = torch.arange(32)[None]
want = model(ids)
child = os.fork()
same = torch.equal(model(ids), want)
if child == 0:
    os._exit(0 if same else 1)
print(same, os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_has_threads_of_its_own():
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parent.parent,
    )
    assert (done.stdout, done.stderr) == ("True 0\n", "")


# ------------------------------------------------------------------------------------------------------- choosing

SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0),
    Sampling(temperature=5),
    Sampling(temperature=0.8, top_p=0.95),
    Sampling(top_p=0),
    Sampling(top_p=0.999999),
    Sampling(top_k=1),
    Sampling(top_k=40),
    Sampling(top_k=40, top_p=0.9, temperature=1.3),
    Sampling(min_p=0.05),
    Sampling(min_p=1),
    Sampling(temperature=0, repetition_penalty=1.3),
    Sampling(temperature=0.7, top_k=100, top_p=0.8, min_p=0.02, repetition_penalty=1.2),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_same_token_is_chosen(sampling):
    model, generator = PackedGPT(lively(ODD["plain"]), torch.float32), torch.Generator().manual_seed(1)
    for n in range(120):
        rows, size = 1 + n % 3, (5, 97, 1000, 8192)[n % 4]
        logits = torch.randn(rows, size + 16, generator=generator)[:, :size] * (0.05, 1, 3, 8, 40)[n % 5]
        logits = logits.round() if n % 2 else logits  # many are equal
        seen = torch.rand(rows, size, generator=generator) < 0.1
        uniform = torch.rand(rows, generator=generator, dtype=torch.float64)
        uniform = torch.full_like(uniform, (0.0, 1 - 2**-53)[n % 2]) if n % 10 == 0 else uniform
        given = (seen if sampling.repetition_penalty != 1 else None, None if sampling.greedy else uniform)
        assert model.choose(logits, sampling, *given) == pick(logits, sampling, *given)[0]


def test_logits_that_are_not_numbers_are_never_chosen_from():
    model = PackedGPT(lively(ODD["plain"]), torch.float32)
    for bad in (torch.nan, torch.inf, -torch.inf):
        logits = torch.zeros(2, 97)
        logits[1, 96] = bad
        assert model.choose(logits, Sampling(temperature=0), None, None) == [0, -1]


def test_texts_are_those_of_the_model():
    """Greedy and sampled, cached, past the context: the same ids as model.py writes with torch's choice."""
    model = lively(ODD["plain"])
    packed, prompts = PackedGPT(model, torch.float32), [[0, 5, 6], [0], [0, 9, 3, 3, 7]]
    for sampling in (
        Sampling(temperature=0),
        Sampling(temperature=0.8, top_p=0.9),
        Sampling(repetition_penalty=1.2),
    ):
        want = [result.ids for result in generate(model, prompts, sampling, 90, seed=3)]
        assert [result.ids for result in generate(packed, prompts, sampling, 90, seed=3)] == want
    assert Reader(packed, [[0]]).device == torch.device("cpu")
