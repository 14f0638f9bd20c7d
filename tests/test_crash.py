"""What a run survives, and what it refuses: kills, full disks, damaged and swapped files, two runs in one folder."""

import contextlib
import dataclasses
import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import train as front
from conftest import ROOT, tiny_words, write_state
from model import build_model
from rostok import files, runs
from rostok.errors import UserError
from rostok.runs import read_metrics
from rostok.text.shards import Data, whole, write_data
from rostok.text.tokenizer import load_tokenizer, train_tokenizer
from rostok.training import folder as run_folder
from rostok.training.config import load_config
from rostok.training.folder import Checkpoint, read_checkpoint
from rostok.training.metrics import MetricsLog
from rostok.training.proof import first_difference, saved_tensors, tensors_of
from rostok.training.ranks import Ranks
from rostok.training.signals import StopWish
from train import TrainConfig, Training, train


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rostok.training.console.plot_losses", lambda *_: None)


def words_of(data: Data, out: Path, *words: str) -> list[str]:
    quick = [
        "tokens=1280",
        "save_every=2",
        "eval_every=1000",
        "eval_rows=4",
        "sample_tokens=0",
    ]
    return [*tiny_words(data, out), *quick, *words]


def config_of(data: Data, out: Path, *words: str) -> TrainConfig:
    return load_config(TrainConfig, None, words_of(data, out, *words))


@pytest.fixture
def own_data(tiny_data: Data, tmp_path: Path) -> Path:
    """A copy of the tiny shards that a test may damage."""
    return Path(shutil.copytree(tiny_data.folder, tmp_path / "data"))


def names(run: Path) -> list[str]:
    return [folder.name for folder in runs.complete_steps(run)]


# ---------------------------------------------------------------------------------------------------- saving


def set_write_file(monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], None]) -> None:
    """Let every file of a run be written by this function."""

    def write_file(path: Path, content: str | bytes, durable: bool = False) -> None:
        write(path, content.encode() if isinstance(content, str) else content)

    for module in (files, run_folder):
        monkeypatch.setattr(module, "write_file", write_file)


@pytest.mark.parametrize("dies_at", ["model.safetensors", "optimizer.safetensors", "state.json", "latest"])
def test_a_kill_during_a_save_leaves_the_older_checkpoint(
    dies_at: str, tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C03. The kill is an exception that nothing catches, half-way through writing that file at step 6."""
    config = config_of(tiny_data, tmp_path / "a")
    straight = runs.find_step(train(config_of(tiny_data, tmp_path / "b"), quiet=True), "latest")
    before = files.write_file

    def dies(path: Path, content: bytes) -> None:
        if path.name == dies_at and (b"step-000006" in content or "step-000006" in str(path)):
            path.with_name(f".{path.name}.99.tmp").write_bytes(content[: len(content) // 2])
            raise SystemError("killed")
        before(path, content)

    set_write_file(monkeypatch, dies)
    with pytest.raises(SystemError):
        train(config, quiet=True)
    set_write_file(monkeypatch, before)
    run = tmp_path / "a" / "tiny"
    assert runs.read_state(runs.find_step(run, "latest"))["step"] == 4
    assert ("step-000006" in names(run)) == (dies_at == "latest")
    train(config, quiet=True)
    assert not [path for path in run.rglob(".*") if path.name != ".lock"]
    latest = runs.find_step(run, "latest")
    assert first_difference(saved_tensors(straight), saved_tensors(latest)) is None


def test_a_kill_while_a_checkpoint_gives_way_to_a_newer_one(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two renames the run has the step under a hidden name only: the next start puts it back."""
    config = config_of(tiny_data, tmp_path, "save_every=1000")
    run = train(config, quiet=True)
    (folder,) = runs.complete_steps(run)
    before, rename = saved_tensors(folder), Path.rename
    training = Training(config, Ranks(), quiet=True)
    training.load(read_checkpoint(folder))
    training.saved = None

    def dies(self: Path, target: Path) -> Path:
        if self.name.endswith(".tmp") and self.is_dir():
            raise SystemError("killed")
        return rename(self, target)

    def full(self: Path, target: Path) -> Path:
        return dies(self, target) if not self.name.endswith(".tmp") else full_disk(self, b"")  # type: ignore

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(UserError, match="earlier checkpoints are untouched"):
            training.save()
        assert first_difference(before, saved_tensors(folder)) is None
        patch.setattr(Path, "rename", dies)
        with pytest.raises(SystemError):
            training.save()
    assert not folder.exists()
    train(config, quiet=True)
    assert first_difference(before, saved_tensors(folder)) is None
    assert [path.name for path in run.glob(".*")] == [".lock"]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kill -9 is POSIX")
def test_torture_in_small() -> None:
    """kill -9 at six moments, three of them in the middle of a save. `scripts/torture` alone takes a hundred."""
    command = [sys.executable, str(ROOT / "scripts" / "torture"), "--kills", "6", "--steps", "300"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["kills"], told["identical"]) == (6, True)


def full_disk(path: Path, content: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_in_the_middle_is_survived(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, calls = files.write_file, []

    def full_at_step_4(path: Path, content: bytes) -> None:
        if "step-000004" in str(path):
            calls.append(path)
            full_disk(path, content)
        before(path, content)

    set_write_file(monkeypatch, full_at_step_4)
    run = train(config_of(tiny_data, tmp_path, "keep=9"), quiet=True)
    assert calls
    assert names(run) == ["step-000002", "step-000006", "step-000008", "step-000010"]
    assert "warning: cannot save" in (err := capsys.readouterr().err)
    assert "No space left on device" in err


def test_full_disk_at_the_end_is_an_error_and_the_older_checkpoint_stays(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files.write_file
    set_write_file(
        monkeypatch,
        lambda path, c: (full_disk if "step-000010" in str(path) else before)(path, c),
    )
    with pytest.raises(UserError, match="No space left.*earlier checkpoints are untouched"):
        train(config_of(tiny_data, tmp_path), quiet=True)
    run = tmp_path / "tiny"
    assert runs.read_state(runs.find_step(run, "latest"))["step"] == 8


def test_a_log_on_a_full_disk_costs_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    log.write(step=1, loss=1.0)
    log.write(step=2, loss=1.0)
    assert capsys.readouterr().err.count("warning: cannot write") == 1


def test_half_a_record_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, before = tmp_path / "metrics.jsonl", Path.open

    class FullDisk:
        """A file that takes five letters and no more."""

        def __init__(self, path: Path) -> None:
            self.file = before(path, "a", encoding="utf-8")

        def __enter__(self) -> "FullDisk":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, text: str) -> None:
            self.file.write(text[:5])
            self.file.flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = MetricsLog(path)
    log.write(step=1, loss=1.0)
    with monkeypatch.context() as full:
        full.setattr(Path, "open", lambda self, *_, **__: FullDisk(self))
        log.write(step=2, loss=1.0)
    log.write(step=3, loss=1.0)
    assert [record["step"] for record in read_metrics(path)] == [1, 3]


@pytest.mark.parametrize(
    "line",
    [
        b"1",
        b"{}",
        b"[1]",
        b'{"step": "x"}',
        b"{",
        b'{"st\xe5p": 1}',
        b'{"step": 1e400}',
        b"[" * 100_000,
        b'{"step": 1, "loss": NaN}',
        b'{"step": 1, "loss": "x"}',
    ],
)
def test_a_line_that_is_no_record_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(line + b'\n{"step": 1}\n')
    with pytest.raises(UserError, match="line 1 is not a record"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_a_folder_that_cannot_be_written(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write the run folder.*out=FOLDER"):
        train(config_of(tiny_data, tmp_path / "file"), quiet=True)

    def read_only(path: Path, content: bytes) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    set_write_file(monkeypatch, read_only)
    with pytest.raises(UserError, match="cannot write the run folder.*Permission denied"):
        train(config_of(tiny_data, tmp_path), quiet=True)


def test_best_is_the_best_of_the_saved_ones(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = iter([9.0, 3.0, 1.0, 2.5, 9.0, 2.0, 9.0, 2.2, 9.0, 2.1])  # the 1.0 of step 3 is not saved

    def scores(*_: object) -> dict[str, float]:
        return {"valid_loss": next(values), "perplexity": 1.0, "bits_per_byte": 1.0}

    def full(path: Path, content: bytes) -> None:
        if path.name == "best" and b"step-000006" in content:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        before(path, content)

    before = files.write_file
    monkeypatch.setattr("train.HeldOut.evaluate", scores)
    set_write_file(monkeypatch, full)
    run = train(config_of(tiny_data, tmp_path, "eval_every=1", "keep=9"), quiet=True)
    assert "best: No space left on device; going on without" in capsys.readouterr().err
    assert runs.find_step(run, "best").name == "step-000010"  # step 6 could not be noted
    set_write_file(monkeypatch, before)
    for later in ("step-000008", "step-000010"):
        shutil.rmtree(run / later)
    (run / "latest").write_text("step-000006\n", encoding="utf-8")
    training = Training(config_of(tiny_data, tmp_path), Ranks(), quiet=True)
    training.begin(fresh=False)  # takes the note up that is missing
    assert runs.find_step(run, "best").name == "step-000006"


def test_a_pointer_to_what_is_not_there(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Something else is taken only with a line that says what and why; nothing is taken for an explicit best."""
    run = Path(shutil.copytree(tiny_run, tmp_path / "run"))
    newest = runs.complete_steps(run)[-1]
    (run / "latest").write_text("step-000099\n")
    (run / "best").write_text("step-000098\n")
    assert runs.find_step(run / "latest") == newest
    told = capsys.readouterr().err
    assert told.endswith(
        f"latest names step-000099, which is not there or not complete; taking {newest.name} instead\n"
    )
    assert told.count("\n") == 1
    lines: list[str] = []
    assert runs.find_step(run, "latest", lines.append) == newest
    assert len(lines) == 1
    assert runs.find_step(run) == newest
    assert "best names step-000098, which is not there" in capsys.readouterr().err
    with pytest.raises(
        UserError, match=rf"no best checkpoint.*names step-000098.*{newest.name} is there: give that"
    ):
        runs.find_step(run / "best")
    (run / "latest").write_text(newest.name)
    (run / "best").unlink()
    assert runs.find_step(run) == newest
    assert capsys.readouterr().err == ""
    with pytest.raises(UserError, match=r"no best checkpoint.*there is no .*best"):
        runs.find_step(run, "best")
    (run / "latest").unlink()
    assert runs.find_step(run) == newest
    assert "there is no" in capsys.readouterr().err


def test_a_resume_says_which_checkpoint_it_takes_instead(
    tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(tiny_data, tmp_path)
    run = train(config, quiet=True)
    (run / "latest").write_text("step-000099\n")
    train(config)
    assert (
        "names step-000099, which is not there or not complete; taking step-000010 instead"
        in capsys.readouterr().out
    )


# ---------------------------------------------------------------------------------------------------- damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def bad_json(path: Path) -> None:
    path.write_text("{", encoding="utf-8")


def other_row(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count('"index": ') == 1
    path.write_text(text.replace('"index": ', '"index": 1'), encoding="utf-8")


def other_name(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace('"optimizer.', '"nptimizer.'), encoding="utf-8")


DAMAGE = {
    "truncated weights": ("model.safetensors", cut, "has changed since it was saved"),
    "a flipped bit": ("optimizer.safetensors", flip, "has changed since it was saved"),
    "a missing file": ("optimizer.safetensors", Path.unlink, "No such file"),
    "a broken state.json": ("state.json", bad_json, "not a checkpoint's state"),
    "another row in state.json": ("state.json", other_row, "it has changed since it was saved"),
    "another name among the hashes": ("state.json", other_name, "it has changed since it was saved"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_an_older_one_offered(
    kind: str, tiny_data: Data, tmp_path: Path
) -> None:
    file, damage, message = DAMAGE[kind]
    config = config_of(tiny_data, tmp_path)
    run = train(config, quiet=True)
    good = saved_tensors(runs.find_step(run, "latest"))
    damage(run / "step-000010" / file)
    before = (run / "config.yaml").read_bytes()
    with pytest.raises(UserError, match=f"{message}.*step-000008 is there too.*delete .*step-000010"):
        train(dataclasses.replace(config, tokens=2560), quiet=True)
    assert (run / "config.yaml").read_bytes() == before
    shutil.rmtree(run / "step-000010")
    train(config, quiet=True)
    assert first_difference(good, saved_tensors(run / "step-000010")) is None


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo spoilt",)


def test_a_pickled_checkpoint_is_refused_and_ours_is_safetensors(tiny_data: Data, tmp_path: Path) -> None:
    """C04: no file of a run is read by unpickling; a pickle under the right name is not opened."""
    run = train(config_of(tiny_data, tmp_path), quiet=True)
    folder = runs.find_step(run, "latest")
    (folder / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state["sha256"] = {}  # as if all hashes were right
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(UserError, match="not a safetensors file"):
        runs.read_tensors(folder, "model.safetensors")


def test_missing_or_damaged_shards_are_refused(own_data: Path, tiny_data: Data, tmp_path: Path) -> None:
    config = config_of(tiny_data, tmp_path, f"data.path={own_data}")
    train(config, quiet=True)
    shard = own_data / "train-00000.npy"
    content = shard.read_bytes()
    flip(shard)
    with pytest.raises(UserError, match=r"train-00000.npy .*(was changed|position)"):
        train(config, quiet=True)
    shard.unlink()
    with pytest.raises(UserError, match="train-00000.npy cannot be read"):
        train(config, quiet=True)
    shard.write_bytes(content)
    train(config, quiet=True)


def test_other_shards_of_the_same_size_are_refused(
    own_data: Path, tiny_data: Data, tiny_texts: list[str], tmp_path: Path
) -> None:
    """Prepared again from reordered texts: every file is whole and as long as before, and still not this run's."""
    config = config_of(tiny_data, tmp_path, f"data.path={own_data}")
    train(config, quiet=True)
    texts = [text for i, text in enumerate(tiny_texts) if i % 8]
    size = (own_data / "train-00000.npy").stat().st_size
    tokenizer = load_tokenizer(own_data)
    write_data(own_data, {"train": whole(texts[::-1]), "valid": whole(tiny_texts[::8])}, tokenizer)
    assert (own_data / "train-00000.npy").stat().st_size == size
    with pytest.raises(UserError, match="the train shards in .* are not those of this run"):
        train(config, quiet=True)


def test_a_swapped_tokenizer_is_refused(
    own_data: Path, tiny_data: Data, tiny_texts: list[str], tmp_path: Path
) -> None:
    config = config_of(tiny_data, tmp_path, f"data.path={own_data}")
    train(config, quiet=True)
    other = train_tokenizer(tiny_texts[:40], 320)
    other.save(own_data)
    with pytest.raises(UserError, match="was made with the tokenizer"):
        train(config, quiet=True)
    splits = {"train": whole(tiny_texts[8:]), "valid": whole(tiny_texts[:8])}
    write_data(own_data, splits, other)
    run = tmp_path / "tiny"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    words = [
        str(write(tmp_path / "c.yaml", "seed: 0")),
        *words_of(tiny_data, tmp_path, f"data.path={own_data}"),
    ]
    for refused in (lambda: train(config, quiet=True), lambda: front.main([*words, "--check"])):
        with pytest.raises(UserError, match="another tokenizer than this run"):
            refused()
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    runs.load_run(run, build_model)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: full_disk(tmp_path, b""))
    with pytest.raises(OSError, match="No space"):
        files.write_file(tmp_path / "config.yaml", "seed: 0", durable=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["my config.yaml"], ["--verify-resume", "my run"]])
def test_a_name_that_no_run_can_have(
    words: list[str], tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my config.yaml", "seed: 0")
    shutil.copytree(tiny_run, tmp_path / "my run")
    with pytest.raises(UserError, match=r"plain name.* Got 'my .*; (type name=|rename the folder)"):
        front.main(words)


def test_the_optimizer_of_another_kind_is_refused(tiny_data: Data, tmp_path: Path) -> None:
    run = train(config_of(tiny_data, tmp_path), quiet=True)
    training = Training(config_of(tiny_data, tmp_path, "optim.kind=muon"), front.Ranks(), quiet=True)
    with pytest.raises(UserError, match=r"the optimizer's state is that of another model or optim.kind"):
        training.load(read_checkpoint(runs.find_step(run, "latest")))


# ---------------------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals_save_and_leave(
    number: signal.Signals, code: int, tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The signal comes in the middle of step 4; the checkpoint is that of step 4, and the run goes on from there."""
    words = [w for w in words_of(tiny_data, tmp_path, "save_every=1000") if not w.startswith("tokens")]
    config = tmp_path / "c.yaml"
    config.write_text("tokens: 1280\n", encoding="utf-8")
    before = torch.nn.utils.clip_grad_norm_
    count = iter(range(100))

    def clip(*arguments: object) -> object:
        if next(count) == 3:
            os.kill(os.getpid(), number)
        return before(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clip)
    handler = signal.getsignal(number)
    assert front.main([str(config), *words]) == code
    assert "after step 4 and saved; the same command goes on" in capsys.readouterr().out
    assert signal.getsignal(number) is handler
    assert names(tmp_path / "tiny") == ["step-000004"]
    assert front.main([str(config), *words]) == 0
    assert "resumed at step 4" in capsys.readouterr().out


def test_a_stop_at_a_save_saves_once_and_never_says_so_in_vain(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop, before, step = StopWish(), run_folder.save_step, Training.step
    saves: list[int] = []

    def counted(run: Path, number: int, *rest: object) -> Checkpoint:
        saves.append(number)
        return before(run, number, *rest)  # type: ignore[arg-type]

    def stopped(self: Training) -> tuple[float, float]:
        stop.signal = signal.SIGTERM if self.state.step == 3 else 0
        return step(self)

    monkeypatch.setattr(run_folder, "save_step", counted)
    monkeypatch.setattr(Training, "step", stopped)
    train(config_of(tiny_data, tmp_path / "a"), quiet=True, stop=stop)
    assert saves == [2, 4]
    stop.signal, write_bytes = 0, files.write_file
    set_write_file(monkeypatch, lambda p, c: (full_disk if "000004" in str(p) else write_bytes)(p, c))
    with pytest.raises(UserError, match="cannot save .*step-000004"):
        train(config_of(tiny_data, tmp_path / "b"), stop=stop)
    assert "and saved" not in capsys.readouterr().out
    assert names(tmp_path / "b" / "tiny") == ["step-000002"]


def test_stopped_before_any_evaluation(
    tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Elsewhere(StopWish):
        """A signal that another process got: seen when all are asked, gone when this one is."""

        def __getattribute__(self, name: str) -> object:
            return next(asked) if name == "signal" else super().__getattribute__(name)

    words = ["eval_every=1000", "save_every=1000"]
    asked = iter([0, 0, 0, 15, 0])
    train(config_of(tiny_data, tmp_path, *words, "tokens=1280"), stop=Elsewhere())
    assert "stopped  by a signal to another process after step 3 and saved" in capsys.readouterr().out
    run = train(config_of(tiny_data, tmp_path, *words, "tokens=384"))  # the 3 steps that are done
    told = capsys.readouterr().out
    assert "held out" in told.split("trained  384 tokens")[1]
    assert "valid_loss" in runs.read_state(runs.find_step(run, "best"))


def test_training_in_a_thread_needs_no_signals(tiny_data: Data, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("tokens: 640\n", encoding="utf-8")
    words = [w for w in words_of(tiny_data, tmp_path) if not w.startswith("tokens")]
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(front.main([str(config), *words])))
    thread.start()
    thread.join()
    assert codes == [0]


# ---------------------------------------------------------------------------------------------------- not a number


@contextlib.contextmanager
def spoilt(monkeypatch: pytest.MonkeyPatch, at: set[int], value: float) -> Iterator[None]:
    """Gradients that are no numbers, in the steps that are `at` this place from now on."""
    before, count = front.Training.clipped_norm, iter(range(1, 1000))

    def norm(self: Training) -> float:
        if next(count) in at:
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                parameter.grad[...] = value
        return before(self)

    with monkeypatch.context() as patch:
        patch.setattr(front.Training, "clipped_norm", norm)
        yield


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_not_a_number_stops_before_the_weights_are_spoilt(
    value: float, tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny_data, tmp_path)
    with (
        spoilt(monkeypatch, {7}, value),
        pytest.raises(UserError, match=r"step 7: the gradient's norm is .* last good checkpoint .*optim.lr"),
    ):
        train(config, quiet=True)
    run = tmp_path / "tiny"
    assert names(run)[-1] == "step-000006"
    assert all(t.isfinite().all() for t in saved_tensors(run / "step-000006").values())
    training = Training(config, Ranks(), quiet=True)
    training.load(read_checkpoint(run / "step-000006"))
    before = {name: tensor.clone() for name, tensor in tensors_of(training).items()}
    with spoilt(monkeypatch, {1}, value), pytest.raises(UserError):
        training.step()
    assert first_difference(before, tensors_of(training)) is None


def test_not_a_number_before_the_first_save(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        spoilt(monkeypatch, {1}, float("nan")),
        pytest.raises(UserError, match="No checkpoint was saved yet"),
    ):
        train(config_of(tiny_data, tmp_path), quiet=True)


def test_a_held_out_loss_that_is_no_number(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([3.0, float("nan")])
    monkeypatch.setattr("train.HeldOut.evaluate", lambda *_: {"valid_loss": next(values)} | SCORES)
    with pytest.raises(
        UserError, match="step 4: the validation loss is nan; stopped, .* last good checkpoint"
    ):
        train(config_of(tiny_data, tmp_path), quiet=True)
    assert names(tmp_path / "tiny") == ["step-000002"]


SCORES = {"perplexity": 1.0, "bits_per_byte": 1.0}


def test_fp16_skips_an_overflow_and_goes_on(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny_data, tmp_path, "runtime.dtype=fp16", "log_every=1")
    training = Training(config, Ranks(), quiet=True)
    training.step()
    before, scale = {n: t.clone() for n, t in tensors_of(training).items()}, training.scaler.get_scale()
    with spoilt(monkeypatch, {1}, float("inf")):
        training.step()
    assert first_difference(before, tensors_of(training)) is None
    assert training.scaler.get_scale() == scale / 2
    training.step()
    assert first_difference(before, tensors_of(training))
    with spoilt(monkeypatch, {7}, float("inf")):
        run = train(config, quiet=True)
    assert read_metrics(run / "metrics.jsonl")[-1]["step"] == 10


def test_fp16_that_overflows_at_every_scale_is_stopped(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """65,536 is halved sixteen times; a weaker scale than 1 would not help either."""
    config = config_of(tiny_data, tmp_path, "runtime.dtype=fp16", "tokens=12800")
    with (
        spoilt(monkeypatch, set(range(3, 100)), float("inf")),
        pytest.raises(UserError, match="step 19: the gradient's norm is"),
    ):
        train(config, quiet=True)


def test_early_stop(tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([3.0, 2.0, 2.5, 2.6, 2.7])
    monkeypatch.setattr(
        "train.HeldOut.evaluate",
        lambda *_: {"valid_loss": next(values), "perplexity": 1.0, "bits_per_byte": 1.0},
    )
    words = ["eval_every=2", "early_stop=2", "tokens=2560", "keep=9"]
    run = train(config_of(tiny_data, tmp_path, *words), quiet=True)
    assert names(run)[-1] == "step-000008"
    assert train(config_of(tiny_data, tmp_path, *words), quiet=True) == run


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("step/state.json", b"[" * 99999, "is not a checkpoint's state"),
        ("best", b"\xff", "must hold the name of a step folder"),
        ("config.yaml", b"- 1\n", "holds no settings"),
        ("config.yaml", b"\xff", "cannot read"),
    ],
)
def test_damaged_text_files_are_one_line(
    tiny_run: Path, tmp_path: Path, name: str, content: bytes, wanted: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    path = runs.find_step(run) / "state.json" if name.startswith("step/") else run / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=wanted):
        runs.load_run(run, build_model)


@pytest.mark.parametrize("model", ["x", [], {"kind": "gpt", "sizes": 3}])
def test_a_state_that_describes_no_model_is_one_line(tiny_run: Path, tmp_path: Path, model: object) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    path = runs.find_step(run) / "state.json"
    write_state(path, json.loads(path.read_text()) | {"model": model})
    with pytest.raises(UserError, match="do not fit the model|does not say what the model is"):
        runs.load_run(run, build_model)
