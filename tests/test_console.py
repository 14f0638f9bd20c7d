"""What a training tells before, during and after: --check, TensorBoard, the passport; words that must not end badly."""

# pyright: reportArgumentType=false

import math
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import prepare
import train as front
from conftest import ROOT, tiny_words
from model import GPTConfig, WindowMLPConfig, build_model
from rostok import devices
from rostok.errors import UserError, run_main
from rostok.measuring.ngrams import fit_ngrams, joined
from rostok.measuring.targets import target_list
from rostok.runs import find_step, load_run, read_metrics, read_state
from rostok.text.shards import Data
from rostok.training import passport, preflight
from rostok.training.config import load_config
from rostok.training.heldout import trigram_loss
from rostok.training.loader import evaluation_rows
from rostok.training.metrics import MetricsLog, draw_losses, plot_losses
from rostok.training.options import options_of
from train import TrainConfig


def test_check_says_what_a_run_will_be(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text("seed: 0\n")
    steps, before = [], front.Training.step

    def counted(self: front.Training) -> tuple[float, float]:
        steps.append(self.state.step)
        return before(self)

    monkeypatch.setattr(front.Training, "step", counted)
    assert front.main(["c.yaml", *tiny_words(tiny_data, tmp_path / "out"), "--check", "save_every=999"]) == 0
    told = capsys.readouterr().out
    assert steps == [0, 1, 2, 3, 4], "five steps are timed"
    model = build_model(GPTConfig(vocab_size=320, context=32, n_layer=2, n_head=2, d_model=32))
    count = sum(parameter.numel() for parameter in model.parameters())
    rows = front.RowLoader(tiny_data.split("train"), 32, 4, 0).rows_per_epoch()
    for line in (
        rf"model    gpt, {count:,} parameters \(embedding 10,240, blocks {count - 10240:,}, head 0\)",
        r"runtime  cpu \(as asked\), float32",
        r"data     .*, vocabulary 320",
        r"run      20 steps of 128 tokens, adamw, from scratch",
        rf"size     {2560 / count:.1f} tokens per parameter, {80 / rows:.2f} epochs, \d+\.\d% of an epoch's tokens",
        rf"loss     5\.\d+ at the first step \(ln V = {math.log(320):.3f}\), \d\.\d+ at step 5",
        r"speed    [\d,]+ tokens/s, \d+% of this machine's matmul peak",
        r"time     \d+\.\d minutes for 20 steps",
        r"memory   \d+\.\d GiB at most; checkpoints \d+\.\d GiB on the disk",
        r"check    .*0\.1 tokens per parameter",
        r"check    only \d+ held-out rows",
        r"check    save_every=999 is longer than the run \(20 steps\)",
    ):
        assert re.search(f"^{line}", told, re.MULTILINE), line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.yaml"]


def test_check_of_an_enormous_step_times_a_part_of_it(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    batches, before = [], front.Feed.__next__
    monkeypatch.setattr(front.Feed, "__next__", lambda self: batches.append(1) or before(self))
    (tmp_path / "c.yaml").write_text("seed: 0\n")
    words = [*tiny_words(tiny_data, tmp_path / "out"), "accumulate=1_000_000", "tokens=1e12"]
    assert front.main([str(tmp_path / "c.yaml"), *words, "--check"]) == 0
    assert len(batches) == 5 * 4
    minutes = re.search(r"time     ([\d,.]+) minutes", capsys.readouterr().out)
    assert minutes
    assert float(minutes[1].replace(",", "")) > 1000


def test_check_of_a_run_by_the_clock(
    tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("seed: 0\n")
    words = [*tiny_words(tiny_data, tmp_path / "out"), "tokens=1e12", "schedule.max_minutes=0.2"]
    assert front.main([str(tmp_path / "c.yaml"), *words, "schedule.warmup_steps=999_999", "--check"]) == 0
    told = capsys.readouterr().out
    found = re.search(r"time     0\.[012] minutes for ([\d,]+) steps", told)
    assert found, told
    assert f"warmup_steps=999999 is longer than the {int(found[1].replace(',', ''))} steps that fit" in told
    assert " hours" not in told


def test_check_of_a_run_that_is_there(
    tiny_run: Path, tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("seed: 0\n")
    words = [str(tmp_path / "c.yaml"), *tiny_words(tiny_data, tmp_path), "--check"]
    shutil.copytree(tiny_run, tmp_path / "tiny")
    assert front.main(words) == 0
    assert "check    the run is finished: 20 steps are done" in capsys.readouterr().out
    assert front.main([*words, "tokens=3200"]) == 0
    told = capsys.readouterr().out
    for line in ("resumed at step 20", " at step 21 (ln V", " at step 25\n", "minutes for 5 steps"):
        assert line in told
    (tmp_path / "tiny" / "metrics.jsonl").write_text("xx\n{}\n")
    with pytest.raises(UserError, match="line 1 is not a record"):
        front.main(words)


def test_a_run_that_cannot_begin_leaves_the_old_one(
    tiny_run: Path, tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(tiny_run, tmp_path / "tiny"))
    before = sorted(run.rglob("*"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    config = load_config(TrainConfig, None, [*tiny_words(tiny_data, tmp_path), "tensorboard=true"])
    with pytest.raises(UserError, match="needs TensorBoard"):
        front.train(config, fresh=True, quiet=True)
    assert sorted(run.rglob("*")) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_training_that_nobody_hears_goes_on(tiny_data: Data, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("seed: 0\n")
    words = [sys.executable, "train.py", str(tmp_path / "c.yaml"), *tiny_words(tiny_data, tmp_path)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == 0
    assert done.stderr == "warning: cannot print: No space left on device; training goes on unheard\n"
    assert read_state(find_step(tmp_path / "tiny", "latest"))["step"] == 20


def test_a_record_without_tokens_is_not_drawn(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "loss": 4}\n{"step": 6, "valid_loss": 4}\n')
    plot_losses({"a": tmp_path / "metrics.jsonl"}, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").is_file()


def test_a_run_tells(tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """loss.png, a sample, the speed, advice; and the scores of the held-out rows, by NumPy and from the bytes."""
    words = [*tiny_words(tiny_data, tmp_path), "tokens=5120", "log_every=5", "sample_tokens=7"]
    run = front.train(load_config(TrainConfig, None, words))
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    records, told = read_metrics(run / "metrics.jsonl"), capsys.readouterr().out
    samples = [record["sample"] for record in records if "sample" in record]
    assert len(samples) == 4
    assert all(" ".join(sample.split()) in told for sample in samples)
    speeds = [record for record in records if "tokens_per_s" in record]
    assert len(speeds) >= 7
    assert all(record["tokens_per_s"] > 0 and record["peak_share"] >= 0 for record in speeds)

    opened = load_run(run, build_model, "latest")
    ids, targets = evaluation_rows(tiny_data.split("valid"), 32, 8)
    with torch.no_grad():
        logits = opened.model(torch.from_numpy(ids)).double().numpy()
    high = logits.max(-1, keepdims=True)
    logs = logits - high - np.log(np.exp(logits - high).sum(-1, keepdims=True))
    nats = -np.take_along_axis(logs, targets[..., None], -1)[..., 0]
    start = opened.tokenizer.start_id
    size = len(opened.tokenizer.decode([i for i in targets.flatten().tolist() if i != start]).encode())
    last = [record for record in records if "valid_loss" in record][-1]
    assert last["valid_loss"] == pytest.approx(nats.mean(), abs=1e-5)
    assert last["perplexity"] == pytest.approx(np.exp(nats.mean()), rel=1e-5)
    assert last["bits_per_byte"] == pytest.approx(nats[targets != start].sum() / np.log(2) / size, rel=1e-5)


def test_advice_goes_into_the_log(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(front.Training, "clipped_norm", lambda self: self.optimizer.zero_grad() or 0.0)
    run = front.train(load_config(TrainConfig, None, [*tiny_words(tiny_data, tmp_path), "tokens=512"]))
    advice = [record["advice"] for record in read_metrics(run / "metrics.jsonl") if "advice" in record]
    assert len(advice) == 1
    assert "step 1: the gradient is exactly zero" in advice[0]
    assert f"advice   {advice[0]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "config",
    [
        GPTConfig(vocab_size=100, context=16, n_layer=3, n_head=4, n_kv_head=2, d_model=64, tied=False),
        GPTConfig(vocab_size=300, context=8, n_layer=1, n_head=2, d_model=32, d_mlp=50),
        WindowMLPConfig(vocab_size=100, context=16, window=3, d_embed=5, d_hidden=7),
    ],
)
def test_the_arithmetic_of_sizes_is_that_of_the_model(config: GPTConfig | WindowMLPConfig) -> None:
    """Parameters exactly; what the backward pass keeps never overstated, against what autograd really keeps."""
    model, kept = build_model(config), {}
    assert config.parameters == sum(parameter.numel() for parameter in model.parameters())
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    ids = torch.zeros(2, config.context, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(ids, ids)
    found = sum(size for place, (size, _) in kept.items() if place not in weights)
    assert 0.2 * found < config.kept_bytes * ids.numel() < found + 4 * config.vocab_size * ids.numel()


def test_what_fits_is_not_refused_and_the_advice_fits() -> None:
    config = GPTConfig()
    there = 16 * config.parameters + 8 * config.kept_bytes * config.context
    preflight.refuse_what_cannot_fit(config, 8, there)
    with pytest.raises(UserError, match="type batch=8 or less"):
        preflight.refuse_what_cannot_fit(config, 9, there)
    with pytest.raises(UserError, match="type model.context=256 or less"):
        preflight.refuse_what_cannot_fit(config, 1, there - 15 * config.kept_bytes * config.context // 2)
    with pytest.raises(UserError, match=rf"at most {config.parameters - 1:,} parameters fit"):
        preflight.refuse_what_cannot_fit(config, 1, 16 * config.parameters - 1)


def test_the_memory_of_a_container(tmp_path: Path) -> None:
    limit, cpu = tmp_path / "memory.max", torch.device("cpu")
    machine = devices.machine_memory(cpu, tmp_path / "none")
    for text, wanted in (("max\n", machine), ("1000000\n", 1_000_000), (f"{2**70}\n", machine)):
        limit.write_text(text)
        assert devices.machine_memory(cpu, limit) == wanted


def test_tensorboard_holds_the_numbers_of_the_log(tmp_path: Path) -> None:
    """The event files are read back; what was drawn after the step of a resume is drawn again."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = MetricsLog(tmp_path / "metrics.jsonl", tensorboard=True)
    for step in (1, 2, 3):
        log.write(step=step, loss=5.0 / step, sample="a text is no number")
    log.close()
    time.sleep(0.01)
    log = MetricsLog(tmp_path / "metrics.jsonl", resume_at=2, tensorboard=True)
    log.write(step=3, loss=1.0)
    log.close()
    board = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert board.Tags()["scalars"] == ["loss"]
    drawn = {event.step: event.value for event in board.Scalars("loss")}
    assert drawn == pytest.approx({r["step"]: r["loss"] for r in read_metrics(tmp_path / "metrics.jsonl")})
    assert drawn[3] == 1.0


def test_tensorboard_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(UserError, match=r"type pip install 'rostok\[tensorboard\]'"):
        MetricsLog(tmp_path / "metrics.jsonl", tensorboard=True)


def test_the_passport(tiny_run: Path, tiny_data: Data, tmp_path: Path) -> None:
    [start] = passport.read_starts(tiny_run)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", start["time"])
    assert (start["step"], start["command"]) == (0, sys.argv)
    assert start["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert start["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert start["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", start["commit"])
    wanted = {"device": "cpu", "dtype": "float32", "batch": 4, "accumulate": 1, "world": 1, "compile": False}
    assert wanted.items() <= start["runtime"].items()
    assert {"threads", "processor_name", "torch"} < start["runtime"].keys()
    assert (start["config"]["tokens"], start["config"]["model"]["d_model"]) == (2560, 32)
    assert start["data_sha256"] == {name: tiny_data.split(name).sha256 for name in ("train", "valid")}
    assert start["tokenizer_sha256"] == tiny_data.tokenizer_sha256
    state = read_state(find_step(tiny_run, "latest"))
    assert {
        key: state[key] for key in ("runtime", "data_sha256", "tokenizer_sha256", "versions")
    }.items() <= start.items()

    passport.stamp(tmp_path, 0, {})
    passport.stamp(tmp_path, 7, {"more": 1})
    assert [entry["step"] for entry in passport.read_starts(tmp_path)] == [0, 7]
    (tmp_path / "passport.json").write_text("[")
    assert passport.read_starts(tmp_path) == []


# ------------------------------------------------------------------------------------------------- any words at all

NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from(["nan", "-.inf", "", "[]", "{}", "null", "yes", "1e30"])
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
VALUES = st.one_of(NUMBERS.map(str), TEXTS, st.just('"\\0"'))


def keys(config: object, before: str = "") -> list[str]:
    """Every setting, dotted, and every group of settings."""
    found = []
    for name, value in vars(config).items():
        found += [f"{before}{name}", *(keys(value, f"{before}{name}.") if hasattr(value, "__dict__") else [])]
    return found


SETTINGS = st.tuples(st.sampled_from(keys(TrainConfig())), VALUES).map("=".join)
FLAGS = st.sampled_from(["--check", "--fresh", "--verify-resume", "--nonsense", "model.kind=window-mlp"])


def code_of(main: object, words: list[str]) -> int:
    try:
        return run_main(main, words)  # type: ignore[arg-type]
    except SystemExit as end:  # argparse
        return int(end.code or 0)


def enough(*_: object) -> None:
    raise UserError("all that comes before the model was accepted")


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(SETTINGS, SETTINGS, FLAGS, TEXTS), max_size=4))
def test_no_words_of_train_end_in_a_traceback(
    tiny_data, tmp_path, monkeypatch, capsys, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(front, "build_model", enough)
    Path("c.yaml").write_text("seed: 0\n")
    code = code_of(front.main, ["c.yaml", *tiny_words(tiny_data, tmp_path / "out"), *words])
    told = capsys.readouterr().err
    assert code == 2 or "--help" in words
    assert "error: " in told.strip().split("\n")[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


PREPARE = st.one_of(
    st.tuples(
        st.sampled_from(
            ["--vocab", "--valid-share", "--threads", "--seed", "--marker", "--field", "--stories"]
        ),
        VALUES,
    ).map(list),
    st.sampled_from(
        [["--json"], ["--force"], ["--nonsense"], ["--valid", "tales.txt"], ["--valid", "none.txt"]]
    ),
    TEXTS.map(lambda text: [text]),
)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(PREPARE, max_size=4).map(lambda parts: [word for part in parts for word in part]))
def test_no_words_of_prepare_end_in_a_traceback(tmp_path, monkeypatch, capsys, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tales.txt").write_text("Tom had a ball.\n<|endoftext|>\n" * 5 + "Mia had a kite. " * 9)
    code = code_of(prepare.main, ["--source", "tales.txt", "--vocab", "260", "--out", "data", *words])
    told = capsys.readouterr().err
    assert code in (0, 2)
    assert code == 0 or "error: " in told.strip().split("\n")[-1]
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_loss_png_has_lines_for_guessing_and_the_trigram(tiny_run: Path, tiny_data: Data) -> None:
    """The trigram's level, counted here by hand: its model on the first held-out tokens, each text alone."""
    records = read_metrics(tiny_run / "metrics.jsonl")
    (level,) = [record for record in records if "trigram" in record]
    assert level["guessing"] == pytest.approx(math.log(tiny_data.vocab_size))
    figure = draw_losses({"tiny": tiny_run / "metrics.jsonl"})
    axes = figure.axes[0]
    flat = [line.get_ydata()[0] for line in axes.get_lines() if len(set(line.get_ydata())) == 1]
    assert {level["guessing"], level["trigram"]} <= set(flat)
    assert axes.get_xlabel() == "training tokens, thousand"


def test_the_trigram_of_the_data_is_that_of_compare(tiny_data: Data) -> None:
    """The same counts as compare.py's row, over all held-out targets."""
    train, valid = tiny_data.split("train"), tiny_data.split("valid")
    counted = joined(train.text(i) for i in range(len(train)))
    model = fit_ngrams(*counted, tiny_data.vocab_size, 0, (2, 3, 5))["trigram"]
    targets = target_list([valid.text(i) for i in range(len(valid))], 0)
    assert trigram_loss(tiny_data, 0, len(targets)) == pytest.approx(model.losses(targets).nats.mean())


@pytest.mark.parametrize(
    "words",
    [
        "--settings --check",
        "--settings lr warmup",
        "--schema --settings",
        "quickstart --schema",
        "rostok --settings lr",
    ],
)
def test_what_the_information_modes_have_no_use_for_is_refused(words: str) -> None:
    with pytest.raises(UserError, match="nothing else"):
        options_of(words.split(), "")
