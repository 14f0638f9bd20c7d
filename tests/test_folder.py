"""The folder of a run that trains: its lock, what a start refuses, what it begins with, which checkpoints are kept."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from conftest import ROOT, tiny_words, write_state
from model import build_model
from rostok import runs
from rostok.errors import UserError
from rostok.text.shards import Data
from rostok.text.tokenizer import train_tokenizer
from rostok.training import folder as run_folder
from rostok.training import preflight
from rostok.training.config import load_config
from rostok.training.proof import first_difference, saved_tensors
from rostok.training.ranks import Ranks
from train import State, TrainConfig, Training, train


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rostok.training.console.plot_losses", lambda *_: None)


def config_of(data: Data, out: Path, *words: str) -> TrainConfig:
    quick = ["tokens=1280", "save_every=2", "eval_every=1000", "eval_rows=4", "sample_tokens=0"]
    return load_config(TrainConfig, None, [*tiny_words(data, out), *quick, *words])


def names(run: Path) -> list[str]:
    return [folder.name for folder in runs.complete_steps(run)]


def check(config: TrainConfig, steps: int = 5) -> None:
    """`train.py --check`, with fewer steps if asked."""
    training = Training(config, Ranks())
    preflight.check(training, training.open(False), steps)


def test_newest_and_best_are_kept(tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([3.0, 1.0, 2.0, 2.5, 2.2])

    def scores(*_: object) -> dict[str, float]:
        return {"valid_loss": next(values), "perplexity": 1.0, "bits_per_byte": 1.0}

    monkeypatch.setattr("train.HeldOut.evaluate", scores)
    run = train(config_of(tiny_data, tmp_path, "keep=2"), quiet=True)
    assert names(run) == ["step-000004", "step-000008", "step-000010"]
    assert runs.find_step(run, "best").name == "step-000004"
    assert runs.find_step(run, "latest").name == "step-000010"


def test_a_lone_checkpoint_without_its_state_is_refused(tiny_data: Data, tmp_path: Path) -> None:
    run = train(config_of(tiny_data, tmp_path, "save_every=1000"), quiet=True)
    state, kept = run / "step-000010" / "state.json", (run / "metrics.jsonl").read_bytes()
    content = state.read_bytes()
    state.unlink()
    with pytest.raises(UserError, match=r"step-000010 has no state.json.*no other.*--fresh"):
        train(config_of(tiny_data, tmp_path), quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == kept
    state.write_bytes(content)
    (run / "best").write_text("garbage")
    config = (run / "config.yaml").read_bytes()
    with pytest.raises(UserError, match=r"best must hold .* Got 'garbage'; write one into it, or delete it"):
        train(config_of(tiny_data, tmp_path, "tokens=2560"), quiet=True)
    assert (run / "config.yaml").read_bytes() == config


def test_a_run_without_its_config_is_refused(tiny_data: Data, tmp_path: Path) -> None:
    run = train(config_of(tiny_data, tmp_path), quiet=True)
    (run / "config.yaml").unlink()
    with pytest.raises(UserError, match=r"holds checkpoints, but no config.yaml.*--fresh"):
        train(config_of(tiny_data, tmp_path, "model.n_layer=1"), quiet=True)
    train(config_of(tiny_data, tmp_path, "model.n_layer=1"), quiet=True, fresh=True)


def test_what_no_training_saved_cannot_be_gone_on_from(tiny_data: Data, tmp_path: Path) -> None:
    """An imported run has weights and no more."""
    run = train(config_of(tiny_data, tmp_path), quiet=True)
    path = runs.find_step(run, "latest") / "state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    kept = (run / "config.yaml").read_bytes()
    for what in ("loader", "optimizer.safetensors"):
        state.pop(what, None)
        state["sha256"].pop(what, None)
        write_state(path, state)
        with pytest.raises(UserError, match=rf"to train on from \({what} is not in.*init_from=.*tiny"):
            train(config_of(tiny_data, tmp_path, "tokens=2560"), quiet=True)
        state["loader"] = {}
        assert (run / "config.yaml").read_bytes() == kept


def test_two_runs_into_one_folder(tiny_data: Data, tmp_path: Path) -> None:
    config = config_of(tiny_data, tmp_path)
    with (
        run_folder.run_lock(tmp_path / "tiny"),
        pytest.raises(UserError, match="another training is writing"),
    ):
        train(config, quiet=True, fresh=True)
    train(config, quiet=True)


def test_the_lock_holds_between_processes_and_dies_with_them(tmp_path: Path) -> None:
    code = "import sys, pathlib, time\nfrom rostok.training.folder import run_lock\n"
    code += "with run_lock(pathlib.Path(sys.argv[1])):\n print('held', flush=True)\n time.sleep(60)"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another training is writing"), run_folder.run_lock(tmp_path):
            pass
        holder.kill()
    with run_folder.run_lock(tmp_path):
        pass


def test_weights_that_cannot_be_begun_with_are_refused(
    tiny_run: Path, tiny_window_run: Path, tiny_data: Data, tmp_path: Path
) -> None:
    def begin(source: Path, *words: str) -> None:
        train(config_of(tiny_data, tmp_path / "out", f"init_from={source}", *words), quiet=True, fresh=True)

    kept = train(config_of(tiny_data, tmp_path / "out"), quiet=True)
    before = saved_tensors(runs.find_step(kept, "latest"))
    with pytest.raises(
        UserError, match=r"another shape; give this run its own: model.n_layer=2 model.n_head=2"
    ):
        begin(tiny_run, "model.n_layer=1", "model.n_head=1")
    with pytest.raises(UserError, match="its own: model.n_kv_head=2 model.tied=true$"):
        begin(tiny_run, "model.n_kv_head=1", "model.tied=false")
    with pytest.raises(UserError, match=r"its own: model.kind=window-mlp model.window=8"):
        begin(tiny_window_run)
    with pytest.raises(UserError, match="no run folder"):
        begin(tmp_path / "nothing")
    with pytest.raises(UserError, match="this run itself; give the new one another name"):
        begin(kept)
    wide = Path(shutil.copytree(tiny_run, tmp_path / "wide"))
    training = Training(config_of(tiny_data, tmp_path), Ranks(), quiet=True)
    model = dataclasses.replace(training.config.model, vocab_size=tiny_data.vocab_size + 8)
    record = {**training.record(), "model": dataclasses.asdict(model)}
    run_folder.save_step(wide, 30, build_model(model), training.optimizer, record)
    begin(wide / "latest", "name=cut")  # the ids that only pad the vocabulary are left out
    other = Path(shutil.copytree(tiny_run, tmp_path / "other"))
    tokenizer = train_tokenizer(["quite another text " * 9], 280)
    tokenizer.save(other)
    state = runs.find_step(other) / "state.json"
    saved = json.loads(state.read_text(encoding="utf-8"))
    write_state(state, {**saved, "tokenizer_sha256": tokenizer.sha256})
    with pytest.raises(UserError, match=r"another tokenizer than that of .*--tokenizer \S*other \.\.\."):
        begin(other / "latest")
    assert (
        first_difference(before, saved_tensors(runs.find_step(kept, "latest"))) is None
    )  # --fresh replaces nothing before it can begin


def test_a_checkpoint_is_read_once_a_start(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found, read and hashed once, by a training and by --check, and by a training only when it holds the lock."""
    run = train(config_of(tiny_data, tmp_path, "tokens=1280", "save_every=5"), quiet=True)
    newest = runs.find_step(run, "latest") / "state.json"
    reads, before = [], Path.read_text

    def counted(self: Path, *given: Any, **named: Any) -> str:
        if self == newest:
            held = FileLock(run / ".lock", timeout=0, is_singleton=False)
            try:
                held.acquire()
                held.release()
                reads.append("free")
            except Timeout:
                reads.append("locked")
        return before(self, *given, **named)

    def first_step(self: Training) -> tuple[float, float]:
        monkeypatch.setattr(Path, "read_text", before)
        return step(self)

    step = Training.step
    monkeypatch.setattr(Path, "read_text", counted)
    monkeypatch.setattr(Training, "step", first_step)
    check(config_of(tiny_data, tmp_path, "save_every=5"), steps=1)
    assert reads == ["free"]
    monkeypatch.setattr(Path, "read_text", counted)
    train(config_of(tiny_data, tmp_path, "tokens=1536", "save_every=5"), quiet=True)
    assert reads == ["free", "locked"]


def test_a_resume_needs_all_of_the_state() -> None:
    assert tuple(State.__dataclass_fields__) == run_folder.STATE


def test_a_foreign_folder_is_left_alone(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export, a project with a config.yaml of its own, the current folder: nothing in them is touched."""
    export = {"tokenizer.json": "theirs", "config.json": "{}", "step-junk/a": "a", ".env.old": "b"}
    project = {"config.yaml": "model: {}\n", "plan.json": "plan", ".backup.old/thesis.txt": "precious"}
    for name, files in (("tiny", export), ("proj", project)):
        for file, content in files.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text(content, encoding="utf-8")
        for fresh in (False, True):
            with pytest.raises(
                UserError, match=r"is not a run of train.py \(it holds .* choose another folder"
            ):
                train(config_of(tiny_data, tmp_path, f"name={name}"), quiet=True, fresh=fresh)
        found = {
            path.relative_to(tmp_path / name).as_posix()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        assert found == set(files)
    monkeypatch.chdir(tmp_path / "tiny")
    with pytest.raises(UserError, match="other than the current one"):
        run_folder.refuse_unwritable(tmp_path / "tiny")


def test_a_start_that_is_refused_leaves_nothing(tiny_data: Data, tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run folder"):
        train(config_of(tiny_data, tmp_path, "init_from=none"), quiet=True)
    assert not (tmp_path / "tiny").exists()
    shipped = Path(shutil.copytree(tiny_run, tmp_path / "tiny", ignore=shutil.ignore_patterns(".lock")))
    before = sorted(shipped.rglob("*"))
    for step in runs.complete_steps(shipped):
        state = runs.read_state(step)
        del state["sha256"]["optimizer.safetensors"]
        write_state(step / "state.json", state)
    with pytest.raises(
        UserError, match=r"to train on from .* another name=\.\.\., and init_from=.*tiny to begin"
    ):
        train(config_of(tiny_data, tmp_path, "tokens=2560", "save_every=10", "eval_rows=8"), quiet=True)
    assert sorted(shipped.rglob("*")) == before


def test_only_names_of_ours_are_swept(tmp_path: Path) -> None:
    ours = [
        ".step-000010.tmp",
        ".step-000010.old",
        ".metrics.jsonl.99999998.tmp",
        ".config.yaml.99999999.tmp",
        ".latest.7.old",
    ]
    theirs = [".env.old", ".x.tmp", ".step-junk.old", "notes.tmp", ".metrics.jsonl.bak.tmp"]
    for name in [*ours, *theirs]:
        (tmp_path / name).mkdir() if "step" in name else (tmp_path / name).write_text("a")
    run_folder.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(theirs)


def test_weights_of_another_model_are_one_line(tiny_run: Path, tiny_data: Data, tmp_path: Path) -> None:
    training = Training(config_of(tiny_data, tmp_path, "model.n_layer=1"), Ranks(), quiet=True)
    with pytest.raises(UserError, match="the weights in .* are not those of this model"):
        training.load(run_folder.read_checkpoint(runs.find_step(tiny_run, "latest")))


def test_damaged_notes_cost_a_line_at_most(tiny_data: Data, tmp_path: Path) -> None:
    deep = "[" * 100_000
    run = train(config_of(tiny_data, tmp_path, "schedule.max_minutes=10"), quiet=True)
    (run / "passport.json").write_text(deep)
    (run / "plan.json").write_text(deep)
    with pytest.raises(UserError, match="plan.json is damaged; delete it"):
        train(config_of(tiny_data, tmp_path, "schedule.max_minutes=10", "tokens=2560"), quiet=True)
    (run / "plan.json").unlink()
    (run / "metrics.jsonl").write_text(deep + "\n{}\n")
    with pytest.raises(UserError, match="line 1 is not a record"):
        train(config_of(tiny_data, tmp_path, "schedule.max_minutes=10", "tokens=2560"), quiet=True)


def test_a_longer_plan_says_what_the_rate_does(
    tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(config_of(tiny_data, tmp_path, "schedule.warmup_steps=0"), quiet=True)
    check(config_of(tiny_data, tmp_path, "schedule.warmup_steps=0", "tokens=2560"), steps=1)
    said = (
        "planned for 1,280 tokens, from here on for 2,560: the rate is at 0% of its peak and goes on at 100%"
    )
    assert said in capsys.readouterr().out


def test_fresh_deletes_nothing_that_train_did_not_write(tiny_data: Data, tmp_path: Path) -> None:
    """A step folder of another program; then a run of ours with a stranger's file among its checkpoints."""
    run = tmp_path / "tiny"
    (run / "step-100").mkdir(parents=True)
    (run / "step-100" / "state.json").write_text('{"mine": 1}')
    (run / ".config.yaml.old").write_text("mine")
    (run / "config.yaml").write_text("a: 1")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    config = config_of(tiny_data, tmp_path, "name=tiny")
    with pytest.raises(UserError, match=r"is not a run of train\.py \(it holds \.config\.yaml\.old\)"):
        train(config, quiet=True, fresh=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    shutil.rmtree(run)
    train(config, quiet=True)
    (run / "tensorboard").mkdir(exist_ok=True)
    (run / "tensorboard" / "mine").write_text("mine")
    stranger = names(run)[-1] + "/precious.bin"
    (run / stranger).write_text("mine")
    with pytest.raises(UserError, match=r"precious\.bin is not a file of train\.py: move it"):
        train(config, quiet=True, fresh=True)
    assert (run / stranger).read_text() == "mine"
    assert names(run)
    (run / stranger).unlink()
    train(config, quiet=True, fresh=True)
    assert (run / "tensorboard" / "mine").read_text() == "mine"


def test_a_step_that_is_not_there_is_named(tiny_run: Path) -> None:
    with pytest.raises(UserError, match="tiny has no step-000099; it has step-000010, step-000020"):
        runs.find_step(tiny_run / "step-000099")
