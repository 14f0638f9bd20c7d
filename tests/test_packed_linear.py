"""Products of few rows: the kernel against torch's own in every form and shape, and life without a compiler."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rostok.generation import packed_linear
from rostok.generation.packed_linear import PackedLinear, available

ROOT = Path(__file__).parent.parent
needs_kernel = pytest.mark.skipif(not available(), reason="no AVX2 or no compiler here")
# the products of a run that writes, with and without the kernel
WRITE = """
import torch
from model import GPTConfig, build_model
from rostok.generation.generate import Sampling, generate
from rostok.generation.quantize import prepare_for_generation
from rostok.generation.packed_linear import available

torch.manual_seed(0)
model = build_model(GPTConfig(vocab_size=97, context=32, n_layer=2, n_head=2, d_model=32)).requires_grad_(False)
for parameter in model.parameters():
    parameter += 0.15 * torch.randn(parameter.shape)
prepare_for_generation(model, "fp32")
print(available(), generate(model, [[0, 5, 6]], Sampling(temperature=0), 40)[0].ids)
"""


def in_float32(weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The weights that a form really stands for."""
    if dtype != torch.int8:
        return weight.to(dtype).float()
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    return (weight / scale).round() * scale


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize(("n_out", "n_in"), [(1, 1), (16, 8), (97, 31), (64, 100), (130, 384)])
def test_equals_torch(dtype, n_out, n_in):
    generator = torch.Generator().manual_seed(n_out)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    linear = nn.Linear(n_in, n_out)
    with torch.no_grad():
        linear.weight.copy_(draw(n_out, n_in))
        linear.weight[0] = 0  # a row without a scale
    ours, weight = PackedLinear(linear.weight, linear.bias, dtype), in_float32(linear.weight.detach(), dtype)
    for count in (0, 1, 2, 3, 4, 6, 7, 13, 16, 31):
        x = draw(count, n_in)
        want = F.linear(x.double(), weight.double(), linear.bias.detach().double()).float()
        torch.testing.assert_close(ours(x), want, atol=2e-5, rtol=1e-5)
    wide = draw(2, 3, 2 * n_in)
    for x in (wide[..., ::2], wide[..., :n_in], wide[:, -1:, n_in:]):  # not contiguous
        torch.testing.assert_close(ours(x), F.linear(x, weight, linear.bias.detach()), atol=2e-5, rtol=1e-5)


@needs_kernel
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads():
    x, layer = torch.randn(16, 384), PackedLinear(torch.randn(520, 384), None, torch.int8)
    together = layer(x)
    for count in range(1, 17):
        assert torch.equal(layer(x[:count]), together[:count])
    torch.set_num_threads(2)
    assert torch.equal(layer(x), together)


@needs_kernel
def test_what_it_cannot_multiply():
    layer = PackedLinear(torch.ones(3, 4), None, torch.float32)
    for x in (torch.ones(4, dtype=torch.bfloat16), torch.ones(5)):
        with pytest.raises(ValueError, match="wanted float32 rows of 4"):
            layer(x)


def write_in(**environment: str) -> subprocess.CompletedProcess[str]:
    """Write in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", WRITE], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )


@needs_kernel
def test_without_a_compiler_there_is_one_line_and_the_same_text(tmp_path):
    usual = write_in(PATH="/usr/bin:/bin", XDG_CACHE_HOME=str(tmp_path))
    assert (usual.stdout[:4], usual.stderr) == ("True", "")
    assert [path.suffix for path in (tmp_path / "rostok").iterdir()] == [".so"]
    bare = write_in(PATH=str(tmp_path), HOME=str(tmp_path))
    assert bare.stdout == usual.stdout.replace("True", "False")
    assert bare.stderr == (
        "note: packed_linear.cpp cannot be compiled here, so texts are written more slowly (no g++ or clang++ found)\n"
    )


@needs_kernel
def test_a_cache_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "rostok").write_text("a file where the folder should be")
    library = packed_linear.build(tmp_path / "rostok" / "rows.so")
    assert library.rows_int8
    assert [path.name for path in tmp_path.iterdir()] == ["rostok"]


@needs_kernel
@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:15000], lambda _: b"", lambda whole: b"?" + whole[1:]]
)
def test_a_damaged_library_is_compiled_again(tmp_path, monkeypatch, capsys, damage):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(packed_linear, "FLAGS", tuple(flag for flag in packed_linear.FLAGS if flag != "-O3"))
    target = packed_linear.cached()
    packed_linear.build(target)
    content = target.read_bytes()
    target.unlink()  # the one that is loaded stays as it is
    target.write_bytes(damage(content))
    assert not packed_linear.whole(target)
    assert packed_linear.library.__wrapped__() is not None
    assert packed_linear.whole(target)
    assert capsys.readouterr().err == ""


@needs_kernel
def test_a_home_that_is_not_there_or_cannot_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("")
    assert packed_linear.library.__wrapped__() is not None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(packed_linear.os.path, "expanduser", lambda path: path)
    assert packed_linear.library.__wrapped__() is None
    assert "(no home folder: set XDG_CACHE_HOME)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "said"),
    [("exec sleep 60", "timed out"), ("printf '\\377 broken' >&2; exit 1", "\ufffd broken")],
)
def test_a_compiler_that_hangs_or_does_not_speak_utf8(tmp_path, monkeypatch, capsys, script, said):
    (tmp_path / "cc").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "cc"))
    monkeypatch.setattr(packed_linear, "PATIENCE", 0.5)
    monkeypatch.setattr(packed_linear.torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert packed_linear.library.__wrapped__() is None
    assert said in capsys.readouterr().err


@needs_kernel
def test_source_that_does_not_compile(tmp_path, monkeypatch, capsys):
    broken = tmp_path / "packed_linear.cpp"
    broken.write_text("#error out of order\n")
    monkeypatch.setattr(packed_linear, "SOURCE", broken)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert packed_linear.library.__wrapped__() is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "out of order" in said
    assert not (tmp_path / "rostok").exists()
