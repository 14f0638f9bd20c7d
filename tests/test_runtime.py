"""Device, number format, compiler and threads: what is chosen, why, and what happens where it is not there."""

import math
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

import model as models
from model import GPT, WindowMLPConfig, attend_blockwise, attend_causal, build_model
from rostok.devices import has_native_bf16, processor_name
from rostok.errors import UserError
from rostok.training import runtime
from rostok.training.advisor import Advisor, AdvisorState, check_finite, spike
from rostok.training.preflight import Outlook, objections
from rostok.training.ranks import Ranks
from rostok.training.runtime import (
    Runtime,
    RuntimeConfig,
    choose_compile,
    choose_dtype,
    choose_runtime,
    compile_parts,
    flops_per_token,
    measure_peak,
    medium_is_fp32,
    peak_memory,
)

ROOT = Path(__file__).parent.parent
CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")


PLAIN = Runtime(torch.device("cpu"), torch.float32, True, 1, "")


def test_every_choice_has_its_reason() -> None:
    chosen = choose_runtime(RuntimeConfig(device="cpu", dtype="fp32", compile="never"))
    assert re.fullmatch(
        r"cpu \(as asked\), float32 \(as asked\), (oneDNN )?fp32\nnot compiled \(as asked\), \d+ threads \(.*\)",
        chosen.reason,
    )
    assert chosen.fingerprint["dtype"] == "float32"


def test_fp32_is_fp32() -> None:
    """'medium' is torch's word for oneDNN, which on a processor with AMX multiplies fp32 matrices in bf16."""
    choose_runtime(RuntimeConfig(device="cpu", dtype="fp32", compile="never"))
    a, b = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close((a @ b).double(), a.double() @ b.double(), rtol=0, atol=1e-4)
    flags = (
        set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
        if Path("/proc/cpuinfo").is_file()
        else ""
    )
    assert medium_is_fp32() or "amx_bf16" in flags or "bf16" in flags or not flags


@pytest.mark.parametrize(
    ("flags", "native"),
    [("avx2 fma", False), ("avx512f avx512_bf16", True), ("amx_tile amx_bf16", True), ("asimd bf16", True)],
)
def test_bf16_on_a_cpu_only_where_it_is_native(flags: str, native: bool, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flags}\n", encoding="utf-8")
    assert has_native_bf16(CPU, tmp_path / "cpuinfo") is native
    assert not has_native_bf16(CPU, tmp_path / "none")
    assert choose_dtype("auto", CPU, native)[0] == (torch.bfloat16 if native else torch.float32)


def test_number_formats_elsewhere() -> None:
    assert choose_dtype("auto", CUDA, True)[0] == torch.bfloat16
    assert choose_dtype("auto", CUDA, False)[0] == torch.float16
    assert choose_dtype("auto", MPS, False)[0] == torch.float32
    assert "emulated" in choose_dtype("bf16", CPU, False)[1]
    with pytest.raises(UserError, match=r"compute capability 8.0"):
        choose_dtype("bf16", CUDA, False)
    with pytest.raises(UserError, match=r"not tested on mps; use runtime.dtype=fp32"):
        choose_dtype("bf16", MPS, False)


def test_a_device_that_is_not_there() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(
        UserError, match=r"the device cuda was asked for, but torch .* does not see one; use cpu"
    ):
        choose_runtime(RuntimeConfig(device="cuda"))


def test_compiling_pays_only_for_long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "missing_compiler", lambda _: "")
    assert choose_compile("auto", CPU, 1e12) == (
        False,
        "a run of 1e+12 operations is too short to pay for it",
    )
    assert choose_compile("auto", CPU, 1e15)[0]
    assert choose_compile("always", CPU, 0.0) == (True, "as asked")
    assert choose_compile("auto", CPU, 1e15, 1.5) == (
        False,
        "a run of 1.5 minutes is too short to pay for it",
    )
    assert choose_compile("auto", CPU, 1e15, 10.0)[0]
    assert not choose_compile("auto", MPS, 1e15)[0]
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "/none")
    assert choose_compile("auto", CPU, 1e15) == (False, "no C++ compiler is installed")


@pytest.mark.filterwarnings("ignore")  # the compiler warns of many things of its own
def test_a_failing_compiler_costs_one_line(tiny_model: GPT, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.arange(32)[None]
    wanted, told = tiny_model(ids), []
    names = list(tiny_model.state_dict())

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler here\nand many more lines")

    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self, **_: setattr(self, "_compiled_call_impl", broken)
    )
    assert compile_parts(tiny_model, PLAIN, 1, told.append) is False
    assert told == ["compile  failed, going on without it: no compiler here"]
    assert torch.equal(tiny_model(ids), wanted)
    assert list(tiny_model.state_dict()) == names


def test_the_baseline_has_a_part_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda part, **_: taken.append(part) or part)
    model, ids, told = build_model(WindowMLPConfig(vocab_size=64)), torch.arange(32)[None], []
    wanted = model(ids, ids)
    assert compile_parts(model, PLAIN, 1, told.append)
    assert taken == [type(model).loss.__get__(model)]
    assert told == ["compile  the loss in 0 s"]
    assert torch.equal(model(ids, ids), wanted)


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    told = "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: A Processor\n\nmodel\t\t: 18\n"
    (tmp_path / "linux").write_text(told)
    other = platform.processor() or platform.machine()
    for file, wanted in (("linux", "A Processor (family 25, model 17)"), ("nothing", other)):
        assert processor_name("cpu", tmp_path / file) == wanted


def test_figures_of_the_machine(tiny_model: GPT) -> None:
    chosen = choose_runtime(RuntimeConfig(device="cpu", dtype="fp32"))
    assert measure_peak(chosen, sizes=(32, 64), seconds=0.01) > 1e6
    assert peak_memory(CPU) > 1e7


FAULTS = """
import resource, torch
from rostok.training.runtime import keep_freed_memory
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults(), int(keep_freed_memory()), min(faults(), faults()))  # the heap may need some rounds to settle
"""


def test_freed_memory_is_kept() -> None:
    """Where the C library is glibc, freed tensors of 64 MB stay: taken again, they cost no page faults."""
    pytest.importorskip("resource")
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    before, kept, after = map(int, done.stdout.split())
    if not kept:
        pytest.skip("no glibc")
    assert after < before / 10, (before, after)


def test_flops_per_token(tiny_model: GPT) -> None:
    """Two layers of 4 D^2 + 3 D M weights, the tied head, and causal attention: by hand."""
    by_hand = 2 * (4 * 32 * 32 + 3 * 32 * tiny_model.config.hidden) + 320 * 32 + 2 * 32 * 32
    assert flops_per_token(tiny_model) == 6 * by_hand
    window = models.build_model({"kind": "window-mlp", "vocab_size": 100})
    assert flops_per_token(window) == 6 * (8 * 48 * 384 + 384 * 100)


def test_rows_divide_among_processes() -> None:
    assert Ranks(0, 1).share(8, 2) == (8, 2)
    assert Ranks(0, 2).share(8, 2) == (8, 1)
    assert Ranks(0, 2).share(8, 3) == (4, 3)
    assert Ranks(0, 4).share(8, 2) == (4, 1)
    with pytest.raises(
        UserError, match="8 times accumulate=1 rows do not divide among 3 processes; try batch=9"
    ):
        Ranks(0, 3).share(8, 1)


# ---------------------------------------------------------------------------------------------------- attention


def pieces(dtype: torch.dtype, time: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, time, 16, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("time", [1, 5, 64, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blockwise_attention_equals_the_fused_kernel(dtype: torch.dtype, time: int) -> None:
    """In bf16, where it is used, within one ulp of the largest value; in fp32 within a few. Gradients near that."""
    q, k, v = pieces(dtype, time)
    fused, blocks = attend_causal_sdpa(q, k, v), attend_blockwise(q, k, v)
    ulp = torch.finfo(dtype).eps * 2 ** math.floor(math.log2(fused.abs().max().item()))
    torch.testing.assert_close(blocks, fused, rtol=0, atol=ulp * (1 if dtype == torch.bfloat16 else 4))
    for one, two in zip(
        torch.autograd.grad(fused.square().sum(), (q, k, v)),
        torch.autograd.grad(blocks.square().sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(
            two, one, rtol=0, atol=40 * torch.finfo(dtype).eps * max(1.0, one.abs().max().item())
        )


def attend_causal_sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_blockwise_attention_is_for_training_in_bf16_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.dtype] = []
    monkeypatch.setattr(models, "attend_blockwise", lambda q, k, v: used.append(q.dtype) or q)
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = pieces(dtype, 128)
        attend_causal(q, k, v)
        attend_causal(q.detach(), k.detach(), v.detach())
    assert used == [torch.bfloat16]


# ---------------------------------------------------------------------------------------------------- the advisor


def advisor(vocab_size: int = 1000, warmup: int = 0) -> Advisor:
    return Advisor(AdvisorState(), vocab_size, warmup)


def test_not_finite() -> None:
    check_finite(1, {"loss": 2.0, "gradient's norm": 1.0}, Path("none"))
    for value in (float("nan"), float("inf")):
        with pytest.raises(
            UserError,
            match=rf"step 7: the loss is {value}; stopped, .* No checkpoint was saved yet.*optim.lr",
        ):
            check_finite(7, {"norm": 1.0, "loss": value}, Path("none"))


def test_a_spike() -> None:
    looker = advisor()
    for step in range(50):
        assert looker.after_step(step, 3.0 + 0.01 * (step % 5), 1.0) == []
    told = looker.after_step(50, 5.0, 1.0)
    assert len(told) == 1
    assert "the loss jumped to 5.00" in told[0]
    assert looker.after_step(51, 5.0, 1.0) == []  # said once
    assert spike([1.0] * 10, 9.0) == 0.0


def test_a_plateau_at_the_loss_of_guessing() -> None:
    looker = advisor(vocab_size=1000, warmup=10)
    told = [line for step in range(150) for line in looker.after_step(step, 6.9, 1.0)]
    assert len(told) == 1
    assert "ln V = 6.91" in told[0]
    assert not [line for step in range(150) for line in advisor(1000).after_step(step, 6.0, 1.0)]


def test_a_zero_gradient() -> None:
    assert "exactly zero" in advisor().after_step(5, 3.0, 0.0)[0]


def test_overfitting() -> None:
    looker, told = advisor(), []
    for step, (train_loss, valid_loss) in enumerate([(3.0, 3.0), (2.5, 3.1), (2.0, 3.3), (1.5, 3.5)]):
        looker.state.losses[:] = [train_loss]
        told += looker.after_evaluation(step, valid_loss)
    assert len(told) == 1
    assert "validation loss rises (3.000 to 3.300)" in told[0]


def test_objections_before_a_run() -> None:
    good = Outlook(1000, 20_000, 1.0, 64, 60.0, 1, 10, 1, 10, 1e-3, 100, 20, 50)
    assert objections(good) == []
    bad = Outlook(1000, 500, 30.0, 4, 1e6, 10, 10, 11, 10, 0.1, 100, 101, 200)
    text = " ".join(objections(bad))
    for word in ("30 times", "0.5 tokens per parameter", "4 held-out rows", "optim.lr=0.1", "278 hours",
                 "halve batch", "make room", "save_every=200", "warmup_steps=101 is longer than the 100"):  # fmt: skip
        assert word in text


def test_the_peak_is_not_measured_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of 1 GFLOP/s, as fp16 on many CPUs: no size that takes longer than the time that is given."""
    seen, clock = [], [0.0]

    def slow(a: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        seen.append(len(a))
        clock[0] += 2 * len(a) ** 3 / 1e9
        return a

    monkeypatch.setattr(torch, "mm", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert measure_peak(PLAIN) == pytest.approx(1e9)
    assert set(seen) == {128}
    assert clock[0] < 0.4
