"""The library in C++: compiled once, checked, and life without a compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

from rostok.generation import native
from rostok.generation.native import available

ROOT = Path(__file__).parent.parent
needs_library = pytest.mark.skipif(not available(), reason="no compiler here")
# what a model writes, with and without the library
WRITE = """
import torch
from model import GPTConfig, build_model
from rostok.generation.generate import Sampling, generate
from rostok.generation.quantize import prepare_for_generation
from rostok.generation.native import available

torch.manual_seed(0)
model = build_model(GPTConfig(vocab_size=97, context=32, n_layer=2, n_head=2, d_model=32)).requires_grad_(False)
for parameter in model.parameters():
    parameter += 0.15 * torch.randn(parameter.shape)
model = prepare_for_generation(model, "fp32")
print(available(), generate(model, [[0, 5, 6]], Sampling(temperature=0), 40)[0].ids)
"""


def write_in(**environment: str) -> subprocess.CompletedProcess[str]:
    """Write in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", WRITE], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )


@needs_library
def test_without_a_compiler_there_is_one_line_and_the_same_text(tmp_path):
    usual = write_in(PATH="/usr/bin:/bin", XDG_CACHE_HOME=str(tmp_path))
    assert (usual.stdout[:4], usual.stderr) == ("True", "")
    assert [path.suffix for path in (tmp_path / "rostok").iterdir()] == [".so"]
    bare = write_in(PATH=str(tmp_path), HOME=str(tmp_path))
    assert bare.stdout == usual.stdout.replace("True", "False")
    assert bare.stderr == (
        "note: token_step.cpp cannot be compiled here, so texts are written more slowly (no g++ or clang++ found)\n"
    )


@needs_library
def test_a_cache_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "rostok").write_text("a file where the folder should be")
    _, flags = native.cached()
    library = native.build(tmp_path / "rostok" / "step.so", flags)
    assert library.step_int8
    assert [path.name for path in tmp_path.iterdir()] == ["rostok"]


@needs_library
@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:15000], lambda _: b"", lambda whole: b"?" + whole[1:]]
)
def test_a_damaged_library_is_compiled_again(tmp_path, monkeypatch, capsys, damage):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "FLAGS", tuple(flag for flag in native.FLAGS if flag != "-O3"))
    target, flags = native.cached()
    native.build(target, flags)
    content = target.read_bytes()
    target.unlink()  # the one that is loaded stays as it is
    target.write_bytes(damage(content))
    assert not native.whole(target)
    assert native.library.__wrapped__() is not None
    assert native.whole(target)
    assert capsys.readouterr().err == ""


@needs_library
def test_a_home_that_is_not_there_or_cannot_be_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("")
    assert native.library.__wrapped__() is not None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(native.os.path, "expanduser", lambda path: path)
    assert native.library.__wrapped__() is None
    assert "(no home folder: set XDG_CACHE_HOME)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "said"),
    [("exec sleep 60", "timed out"), ("printf '\\377 broken' >&2; exit 1", "\ufffd broken")],
)
def test_a_compiler_that_hangs_or_does_not_speak_utf8(tmp_path, monkeypatch, capsys, script, said):
    (tmp_path / "cc").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "cc"))
    monkeypatch.setattr(native, "PATIENCE", 0.5)
    assert native.library.__wrapped__() is None
    assert said in capsys.readouterr().err


@needs_library
def test_source_that_does_not_compile(tmp_path, monkeypatch, capsys):
    broken = tmp_path / "token_step.cpp"
    broken.write_text("#error out of order\n")
    monkeypatch.setattr(native, "SOURCES", (broken,))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native.library.__wrapped__() is None
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "out of order" in said
    assert not (tmp_path / "rostok").exists()
