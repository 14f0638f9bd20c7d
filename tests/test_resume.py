"""A run that is interrupted and resumed gives the same bits as one that is not: weights, optimizer, rows, losses."""

import dataclasses
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import train as front
from conftest import tiny_words, write_state
from model import build_model
from rostok import runs
from rostok.devices import has_native_bf16
from rostok.errors import UserError
from rostok.runs import read_metrics
from rostok.text.shards import Data, whole, write_data
from rostok.text.tokenizer import train_tokenizer
from rostok.training import folder as run_folder
from rostok.training import passport, preflight
from rostok.training.config import load_config
from rostok.training.folder import read_checkpoint
from rostok.training.heldout import HeldOut
from rostok.training.loader import Feed, RowLoader
from rostok.training.proof import first_difference, saved_tensors
from rostok.training.ranks import Ranks
from rostok.training.signals import StopWish
from train import TrainConfig, Training, train


class StopAfter(StopWish):
    """A stop wish that comes true after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps + 1

    def __getattribute__(self, name: str) -> object:
        if name == "signal":
            self.left -= 1
            return 15 if self.left <= 0 else 0
        return super().__getattribute__(name)


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rostok.training.console.plot_losses", lambda *_: None)


def check(config: TrainConfig, fresh: bool = False, steps: int = 5) -> None:
    """`train.py --check`, with fewer steps if asked."""
    training = Training(config, Ranks())
    preflight.check(training, training.open(fresh), steps)


def verify_resume(run: Path) -> bool:
    return front.main(["--verify-resume", str(run)]) == 0


def config_of(data: Data, out: Path, *words: str) -> TrainConfig:
    base = [w for w in tiny_words(data, out) if not w.startswith(("eval_every", "save_every"))]
    return load_config(TrainConfig, None, [*base, "log_every=1", "sample_tokens=0", *words])


def bits(run: Path) -> dict[str, Tensor]:
    return saved_tensors(runs.find_step(run, "latest"))


def losses(run: Path) -> list[tuple[float, ...]]:
    records = read_metrics(run / "metrics.jsonl")
    keys = ("step", "loss", "lr", "grad_norm", "valid_loss")
    return [tuple(r[k] for k in keys if k in r) for r in records if "loss" in r or "valid_loss" in r]


def assert_same_run(one: Path, other: Path) -> None:
    assert first_difference(bits(one), bits(other)) is None
    states = [runs.read_state(runs.find_step(run, "latest")) for run in (one, other)]
    for key in ("step", "tokens", "loader", "scaler", "scores", "best", "advisor"):
        assert states[0][key] == states[1][key], key
    assert losses(one) == losses(other)


WAYS = {
    "fp32, accumulation": ["accumulate=2"],
    "muon": ["optim.kind=muon", "schedule.kind=cosine"],
    "bf16": ["runtime.dtype=bf16", "accumulate=2"],
    "fp16 with its scaler": ["runtime.dtype=fp16"],
    "window-mlp": [],
}


@pytest.mark.parametrize("way", WAYS)
def test_interrupted_equals_straight(way: str, tiny_data: Data, tmp_path: Path) -> None:
    """C01: 20 steps straight, and 7 + 6 + 7 with two interruptions off every beat, from processes that know nothing."""
    words = [*WAYS[way], "tokens=2560" if "accumulate=2" not in WAYS[way] else "tokens=5120", "eval_every=5"]
    config = config_of(tiny_data, tmp_path / "a", *words)
    if way == "window-mlp":
        config = dataclasses.replace(config, model=front.WindowMLPConfig(context=32, d_hidden=64))
    straight = train(config, quiet=True)
    again = dataclasses.replace(config, out=str(tmp_path / "b"))
    torch.manual_seed(123)  # the global generator must not matter
    for stop in (StopAfter(7), StopAfter(6), None):
        run = train(again, quiet=True, stop=stop)
        torch.rand(5)
    assert runs.read_state(runs.find_step(run, "latest"))["step"] == 20
    assert_same_run(straight, run)


def test_evaluations_and_probes_change_nothing(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = train(config_of(tiny_data, tmp_path / "a", "eval_every=1000", "save_every=1000"), quiet=True)
    before = HeldOut.evaluate

    def noisy(self: HeldOut, *arguments: object) -> dict[str, float]:
        torch.rand(7)  # an evaluation, a probe that draws from the global generator
        return before(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(HeldOut, "evaluate", noisy)
    often = train(
        config_of(
            tiny_data, tmp_path / "b", "eval_every=3", "save_every=2", "sample_tokens=5", "probe.every=3"
        ),
        quiet=True,
    )
    assert [r["step"] for r in read_metrics(often / "metrics.jsonl") if "heads" in r] == [3, 6, 9, 12, 15, 18]
    assert first_difference(bits(plain), bits(often)) is None


def test_every_row_once_an_epoch_over_a_resume(tiny_data: Data) -> None:
    """C02: about 90 % of the first epoch, a resume, then on to the end of the third."""
    split = tiny_data.split("train")
    loader = RowLoader(split, 32, 3, seed=5)
    rows = [loader.rows_per_epoch(epoch) for epoch in range(3)]
    first = Feed(loader, torch.device("cpu"))
    seen: Counter[bytes] = Counter()
    done, resume_at = 0, int(0.9 * rows[0]) // 3
    while done < resume_at:
        seen.update(row.numpy().tobytes() for row in next(first)[0])
        done += 1
    second = Feed(RowLoader(split, 32, 3, seed=5), torch.device("cpu"))
    second.load_state(json.loads(json.dumps(first.state)))
    while done < -(-sum(rows) // 3):
        seen.update(row.numpy().tobytes() for row in next(second)[0])
        done += 1
    wanted = Counter(loader.row(e, i)[:-1].tobytes() for e in range(3) for i in range(rows[e]))
    extra = seen - wanted  # the last batch may reach into the fourth epoch
    assert not wanted - seen
    assert extra.total() <= 2


def test_other_batch_split_goes_on_with_the_same_rows(
    tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["batch=2", "accumulate=4", "tokens=2560"]
    straight = train(config_of(tiny_data, tmp_path / "a", *words), quiet=True)
    train(config_of(tiny_data, tmp_path / "b", *words), quiet=True, stop=StopAfter(5))
    other = config_of(tiny_data, tmp_path / "b", "batch=8", "accumulate=1", "tokens=2560")
    run = train(other)
    assert "goes on with batch 2 -> 8, accumulate 4 -> 1" in capsys.readouterr().out
    for one, two in zip(losses(straight), losses(run), strict=True):
        assert one == pytest.approx(two, abs=2e-5)
    with pytest.raises(UserError, match="8 rows a step, now 16"):
        train(config_of(tiny_data, tmp_path / "b", "batch=16", "tokens=2560"), quiet=True)


def test_another_number_of_processes_is_seen(tiny_run: Path, tiny_data: Data, tmp_path: Path) -> None:
    training = Training(config_of(tiny_data, tmp_path), Ranks(0, 2), quiet=True)
    latest = runs.find_step(tiny_run, "latest")
    training.load(read_checkpoint(latest))
    assert passport.changed(training.provenance(), runs.read_state(latest)) == [
        "batch 4 -> 2",
        "world 1 -> 2",
    ]


def test_other_settings_are_refused(tiny_data: Data, tmp_path: Path) -> None:
    run = train(config_of(tiny_data, tmp_path), quiet=True)
    for words, named in (("optim.lr=1", "optim.lr: 0.002, now 1.0"), ("eval_rows=4", "eval_rows: 8, now 4")):
        with pytest.raises(UserError, match=rf"other settings \({named}\).*--fresh"):
            train(config_of(tiny_data, tmp_path, words), quiet=True)
        check(config_of(tiny_data, tmp_path, words), fresh=True, steps=1)
    (run / "passport.json").write_text("[1]", encoding="utf-8")
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("batch: 4", "batch:"), encoding="utf-8")
    with pytest.raises(UserError, match="config.yaml: batch must be a whole number. Got null"):
        train(config_of(tiny_data, tmp_path), quiet=True)
    (run / "config.yaml").write_text(text.replace("tokens: 2560", "tokens: 2.56e3"), encoding="utf-8")
    train(config_of(tiny_data, tmp_path), quiet=True)  # a person may write it so


class Clock:
    """Time that goes on by a hundredth of a second with every look at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 0.01
        return self.now


def test_max_minutes_ends_on_time_and_resumes_exactly(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["tokens=1e9", "schedule.max_minutes=0.005", "log_every=5", "save_every=10", "keep=1000"]
    words += ["schedule.kind=linear", "eval_every=1000"]
    config = config_of(tiny_data, tmp_path, *words)
    monkeypatch.setattr(front, "time", Clock())
    run = train(config, quiet=True)
    final, steps = bits(run), runs.complete_steps(run)
    assert runs.read_state(steps[-1])["seconds"] == pytest.approx(0.3, abs=0.03)
    rates = [r["lr"] for r in read_metrics(run / "metrics.jsonl") if "lr" in r]
    assert rates[-1] < 0.15 * max(rates)
    record = losses(run)

    for folder in steps[1:]:  # as if killed long ago: the plan of those steps is on the disk
        run_folder.discard(folder)
    monkeypatch.setattr(front, "time", Clock())
    train(config, quiet=True)
    assert first_difference(final, bits(run)) is None
    assert losses(run) == record


def test_max_minutes_of_long_steps(tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first plan comes after two steps, however rare the log: 0.3 s are 30 looks at the clock."""
    words = [
        "tokens=1e9",
        "schedule.max_minutes=0.005",
        "log_every=1000",
        "eval_every=1000",
        "save_every=1000",
    ]
    monkeypatch.setattr(front, "time", Clock())
    run = train(config_of(tiny_data, tmp_path, *words), quiet=True)
    assert runs.read_state(runs.find_step(run))["seconds"] == pytest.approx(0.3, abs=0.03)


def test_tokens_may_change_in_a_run_by_the_clock(
    tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is time for more steps than asked for: the run's own number holds, whatever was planned before."""
    words = ["schedule.max_minutes=1", "log_every=4", "schedule.warmup_steps=1"]

    def steps_after(tokens: int, stop: StopWish | None = None) -> int:
        monkeypatch.setattr(front, "time", Clock())
        run = train(config_of(tiny_data, tmp_path, *words, f"tokens={tokens}"), quiet=True, stop=stop)
        return runs.read_state(runs.find_step(run, "latest"))["step"]

    assert steps_after(128 * 10) == 10
    assert steps_after(128 * 20, StopAfter(5)) == 15
    assert steps_after(128 * 17) == 17


def test_verify_resume_of_one_checkpoint_and_under_its_own_settings(
    tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = train(config_of(tiny_data, tmp_path / "one", "save_every=1000"), quiet=True)
    assert verify_resume(one)
    assert ", step" not in capsys.readouterr().out.splitlines()[0].split("resume; ")[1]
    run = train(config_of(tiny_data, tmp_path, "save_every=10", "schedule.kind=linear"), quiet=True)
    train(
        config_of(tiny_data, tmp_path, "tokens=1280", "schedule.kind=linear"), quiet=True
    )  # nothing is left to do
    assert verify_resume(run)
    with pytest.raises(UserError, match="takes a run and nothing else. Got 'optim.lr=5'"):
        front.main(["--verify-resume", str(run), "optim.lr=5"])


def test_verify_resume(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tiny_run, tiny_run / "latest", runs.find_step(tiny_run)):
        assert verify_resume(path)
        out = capsys.readouterr().out
        assert "1 logged losses, step-000020" in out
        assert out.endswith("identical\n")


def test_verify_resume_of_a_run_with_other_arithmetic(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(tiny_run, tmp_path / "tiny"))
    state = runs.complete_steps(run)[-2] / "state.json"
    saved = json.loads(state.read_text(encoding="utf-8"))
    saved["runtime"]["world"] = 2
    write_state(state, saved)
    (run / "metrics.jsonl").write_text('{"step": 20, "loss": 1.0}\n', encoding="utf-8")  # of two processes
    assert verify_resume(run)
    out = capsys.readouterr().out
    assert "other arithmetic (world 2 -> 1): compared with itself alone" in out
    assert "0 logged losses\n" in out


def test_verify_resume_names_what_differs(
    tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(config_of(tiny_data, tmp_path, "tokens=1280", "save_every=5"), quiet=True)
    changed = runs.find_step(run, "latest")
    tensors = runs.read_tensors(changed, "model.safetensors")
    tensors["blocks.1.mlp.up.weight"][3, 4] += 1e-3
    training = Training(load_config(TrainConfig, run / "config.yaml"), Ranks(), quiet=True)
    training.load(read_checkpoint(changed))
    training.model.load_state_dict(tensors)
    run_folder.save_step(run, 10, training.model, training.optimizer, training.record())
    assert front.main(["--verify-resume", str(run)]) == 1
    assert "different: blocks.1.mlp.up.weight differs by up to 1.0e-03" in capsys.readouterr().out

    text = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in text]
    for record in records:
        if record["step"] == 7 and "loss" in record:
            record["loss"] += 1e-7
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    assert not verify_resume(run)
    assert "the loss of step 7 is" in capsys.readouterr().out

    before = Training.record

    def next_row(self: Training) -> dict[str, Any]:
        found = before(self)
        return {**found, "loader": {**found["loader"], "index": found["loader"]["index"] + 1}}

    with monkeypatch.context() as patch:
        patch.setattr(Training, "record", next_row)
        assert not verify_resume(run)
    assert "different: the next row is {" in capsys.readouterr().out
    monkeypatch.chdir(run)
    assert not verify_resume(Path())
    with pytest.raises(UserError, match="no run folder"):
        verify_resume(tmp_path / "nothing")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler warns of many things of its own
@pytest.mark.parametrize(("dtype", "apart"), [("fp32", 1e-4), ("bf16", 2e-2)])
def test_compiled_interrupted_equals_straight(
    dtype: str, apart: float, tiny_data: Data, tmp_path: Path
) -> None:
    if dtype == "bf16" and not has_native_bf16(torch.device("cpu")):
        pytest.skip("no bf16 arithmetic here: nobody compiles for it")
    words = ["runtime.compile=always", f"runtime.dtype={dtype}", "tokens=1280", "accumulate=2"]
    words += ["runtime.threads=2"]  # with one, sums could not come in another order
    if dtype == "bf16":  # long enough for blockwise attention
        words += ["model.context=128", "tokens=5120"]
    config = config_of(tiny_data, tmp_path / "a", *words)
    straight = train(config, quiet=True)
    again = dataclasses.replace(config, out=str(tmp_path / "b"))
    for stop in (StopAfter(2), None):
        run = train(again, quiet=True, stop=stop)
    assert runs.read_state(runs.find_step(run, "latest"))["runtime"]["compile"]
    assert_same_run(straight, run)
    assert not [name for name in bits(run) if "_orig_mod" in name or "module." in name]
    never = dataclasses.replace(config.runtime, compile="never")
    eager = train(dataclasses.replace(config, out=str(tmp_path / "c"), runtime=never), quiet=True)
    for one, two in zip(losses(straight), losses(eager), strict=True):
        assert one == pytest.approx(two, abs=apart)


def test_a_longer_run_is_said(tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(config_of(tiny_data, tmp_path, "tokens=1280"), quiet=True)
    run = train(config_of(tiny_data, tmp_path, "tokens=1536"))
    assert "resume   planned for 1,280 tokens, from here on for 1,536" in capsys.readouterr().out
    assert runs.read_state(runs.find_step(run, "latest"))["tokens"] == 1536


def test_rest_of_real_text(shared_data: Path, tmp_path: Path) -> None:
    """Resume on real text, in the middle of an epoch."""
    texts = (shared_data / "tinystories-valid.txt").read_text(encoding="utf-8").split("<|endoftext|>")[:200]
    splits = {"train": whole(texts[20:]), "valid": whole(texts[:20])}
    data = write_data(tmp_path / "data", splits, train_tokenizer(texts, 400))
    config = config_of(data, tmp_path / "a", "tokens=2560", "eval_every=7")
    straight = train(config, quiet=True)
    again = dataclasses.replace(config, out=str(tmp_path / "b"))
    train(again, quiet=True, stop=StopAfter(9))
    assert_same_run(straight, train(again, quiet=True))


def test_a_run_begins_with_the_weights_of_another(
    tiny_run: Path, tiny_data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(shutil.copytree(tiny_run, tmp_path / "source"))
    words = ["seed=1", "model.context=16", "model.n_kv_head=2"]  # as many as heads, which is the default
    config = config_of(tiny_data, tmp_path / "a", f"init_from={source}", *words)
    check(config)  # the same weights, and nothing written
    told = capsys.readouterr().out
    assert f"with the weights of {source}" in told
    assert not (tmp_path / "a").exists()
    straight = train(config, quiet=True)
    first = next(r["loss"] for r in read_metrics(straight / "metrics.jsonl") if "loss" in r)
    training = Training(config, Ranks(), quiet=True)
    training.model.load_state_dict(runs.load_run(source, build_model).model.state_dict())
    ids, targets = next(training.feed)
    assert training.model(ids, targets).item() == first
    assert f"loss     {first:.3f} at the first step" in told

    again = dataclasses.replace(config, out=str(tmp_path / "b"))
    train(again, quiet=True, stop=StopAfter(4))
    shutil.rmtree(source)  # a resumed run does not need it
    check(again)
    again = dataclasses.replace(again, init_from=f"{source}/../source/")  # the same folder
    assert_same_run(straight, train(again, quiet=True))
    with pytest.raises(UserError, match=r"other settings \(init_from: \S+, now \"\"\)"):
        train(dataclasses.replace(again, init_from=""), quiet=True)
