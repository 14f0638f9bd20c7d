"""Clumsy and hostile input: every outcome is right, or one line on stderr with exit code 2 and nothing half-written."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import attend
import compare
import export
import prepare
import sample
import train
from conftest import tiny_words, write_state
from rostok.errors import LONGEST, UserError, run_main
from rostok.text.shards import Data, open_data
from rostok.text.tokenizer import LONGEST_WORD, cut_words, load_tokenizer, train_tokenizer
from rostok.training.config import load_config
from train import TrainConfig

ROOT = Path(__file__).parent.parent
TEXT = ["--text", "Tom had a ball. Tom lost the ball."]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Call a main() with words that must be refused; the one line that it says."""

    def call(main: Callable[[Sequence[str]], int | None], *words: object) -> str:
        capsys.readouterr()
        try:
            code = run_main(main, [str(word) for word in words])
        except SystemExit as end:  # argparse
            code = end.code
        told = capsys.readouterr()
        assert (code, told.out) == (2, "")
        assert told.err.splitlines()[-1].count("error: ") == 1
        assert told.err.startswith("usage: ") or told.err.count("\n") == 1
        return told.err

    return call


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*"))


# ------------------------------------------------------------------------------------------- what all mains share


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PermissionError(13, "Permission denied", "x.txt"),
            "error: x.txt: Permission denied; check the path",
        ),
        (OSError(28, "No space left on device"), "error: No space left on device; check the path"),
        (MemoryError(), "error: there is not memory enough"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 TB"),
            "error: there is not memory enough",
        ),
        (RuntimeError("CUDA out of memory."), "error: there is not memory enough"),
        (UserError("a\n b \x1b[31m\0"), "error: a b \ufffd[31m\ufffd\n"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise error

    assert run_main(fail, []) == 2
    told = capsys.readouterr().err
    assert told.startswith(line)
    assert told.count("\n") == 1


def test_a_bug_keeps_its_traceback() -> None:
    def fail(_: object) -> int:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        run_main(fail, [])


def test_an_endless_word_is_shortened(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_main(prepare.main, ["--source", "x" * 9000, "--out", str(tmp_path / "data")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: xxx")
    assert told.endswith("File name too long; check the path, its permissions and the disk's room\n")
    assert len(told) < LONGEST + 20


SHARED = "import sys\nfrom rostok.errors import run_main\nraise SystemExit(run_main(lambda words: print('x' * 99), []))"


@pytest.mark.skipif(os.name != "posix", reason="pipes and /dev/full")
def test_a_closed_pipe_is_no_error_and_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-c", SHARED]
    out, into = os.pipe()
    os.close(out)
    with os.fdopen(into, "w") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(b"error: No space left on device")
        assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="a shell that closes streams")
@pytest.mark.parametrize(
    ("closed", "out", "told"), [(">&-", "", "y\n"), ("2>&-", "x\n", ""), (">&- 2>&-", "", "")]
)
def test_what_goes_to_a_closed_stream_goes_nowhere(closed: str, out: str, told: str) -> None:
    """Nor into the other stream."""
    code = SHARED.replace("print('x' * 99)", "print('x') or print('y', file=sys.stderr)")
    words = ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, code]
    done = subprocess.run(words, capture_output=True, cwd=ROOT, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, told)


def test_closed_standard_input_is_one_line(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.chdir(tmp_path)
    for main, words in (
        (sample.main, [tiny_run, "--interactive"]),
        (sample.main, [tiny_run, "--prompt-file", "-"]),
        (attend.main, ["map", tiny_run, "--file", "-"]),
        (prepare.main, ["--source", "-"]),
    ):
        assert "standard input is closed" in refused(main, *words)


# ---------------------------------------------------------------------------------------------------- prepare.py


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", ""], "must not be empty"),
        (["--out", ""], "must not be empty"),
        (["--tokenizer", ""], "must not be empty"),
        (["--valid", "blank.txt"], "the files of --valid hold no text"),
        (["--source", "-", "--valid", "-"], "standard input can be read once"),
        (["--threads", "0"], "wanted 1 to 1024"),
        (["--threads", "99999999999"], "wanted 1 to 1024"),
        (["--vocab", "99999999999"], "too large: type --vocab 1000000 or less"),
        (["--vocab", "9" * 30], "too large: type --vocab 1000000 or less"),
        (["--out", "tales.txt/data"], "--out tales.txt/data is below a file, not a folder"),
        (["--source", "loop"], "loop cannot be read"),
        (["--source", "number.jsonl"], "number.jsonl, line 1 has a int in the field 'text', wanted text"),
    ],
)
def test_prepare(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tales.txt").write_text("Tom had a ball. " * 30)
    Path("blank.txt").write_text(" \n\t\n")
    Path("number.jsonl").write_text('{"text": 5}\n')
    Path("loop").symlink_to("loop")
    source = [] if "--source" in words else ["--source", "tales.txt"]
    assert message in refused(prepare.main, *source, *words)
    assert not leftovers(tmp_path)
    assert not Path("data").exists() or not list(Path("data").iterdir())


def test_endless_words_are_learnt_from_in_parts() -> None:
    """One word of 100,000 letters took minutes: the trainer's time grows with the square of a word's length."""
    text = "ab " + "x" * 100_000 + "  y" + " " * 5000 + "z"
    parts = list(cut_words([text, "", "short"]))
    assert "".join(parts) == text + "short"
    assert max(map(len, parts)) <= 2 * LONGEST_WORD
    ordinary = "Tom had a ball. " * 500
    assert list(cut_words([ordinary])) == [ordinary]
    tokenizer = train_tokenizer([text, "\0" * 100_000], 270)
    assert tokenizer.decode(tokenizer.encode(text)) == text


# ------------------------------------------------------------------------------------------- tokenizers and shards


@pytest.fixture(scope="module")
def tokenizer_file(tiny_data: Data) -> dict:
    return json.loads((tiny_data.folder / "tokenizer.json").read_text(encoding="utf-8"))


def put(content: dict, value: object, *keys: str | int) -> str:
    """The JSON with another value at a place (deleted for None)."""
    result = json.loads(json.dumps(content))
    place = result
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(result)


@pytest.mark.parametrize("number", ["7", -1, 1.5, None, True, 3, 1000, 10**20])
def test_ids_that_are_none(number: object, tokenizer_file: dict, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(put(tokenizer_file, number, "model", "vocab", "a"))
    with pytest.raises(UserError, match=r"is not a byte-level BPE|is damaged"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        ([["a", 1]], ("model", "vocab")),
        ("x", ("added_tokens", 0, "id")),
        (1.0, ("added_tokens", 0, "id")),
        *[(value, ("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex")) for value in ("(", "", 5, None)],
    ],
)
def test_damaged_tokenizer(
    value: object, keys: tuple[str | int, ...], tokenizer_file: dict, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text(put(tokenizer_file, value, *keys))
    with pytest.raises(UserError, match=r"is not a byte-level BPE|is damaged"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"tiktoken": 5}', '{"tiktoken": ["a"]}', '{"tiktoken": "x"}']
)
def test_foreign_tokenizer(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=r"is not a tokenizer file|tiktoken does not know"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("value", [None, "x", -1, 1.5, True, [], {}])
@pytest.mark.parametrize(
    "keys",
    [
        ("start_id",),
        ("tokenizer",),
        ("tokenizer", "vocab_size"),
        ("splits",),
        ("splits", "valid"),
        ("splits", "valid", "tokens"),
        ("shards",),
        ("shards", 0, "texts"),
    ],
)
def test_damaged_manifest(
    value: object, keys: tuple[str | int, ...], tiny_data: Data, tmp_path: Path
) -> None:
    if (value, keys) in (([], ("splits", "valid")), ({}, ("splits",))):
        value = 5  # an empty list has no keys to miss: the same branch
    (tmp_path / "manifest.json").write_text(put(tiny_data.manifest, value, *keys))
    with pytest.raises(UserError, match=r"is damaged"):
        open_data(tmp_path)


@pytest.mark.parametrize("number", [0, 65537, 10**30])
def test_a_vocabulary_that_the_ids_cannot_have(number: int, tiny_data: Data, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(put(tiny_data.manifest, number, "tokenizer", "vocab_size"))
    with pytest.raises(UserError, match=r"is damaged .*uint16 does not hold"):
        open_data(tmp_path)


# ---------------------------------------------------------------------------------------------------- configs


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tokens=" + "9" * 400, "tokens: must be less than or equal to 1000000000000000"),
        ("tokens=" + "9" * 5000, "tokens must be a whole number"),
        ("tokens=1e30", "tokens: must be less than or equal to 1000000000000000. Got 1e30"),
        ("batch=99999999999999999999", "type tokens=51199999999999999999488 or more, or lower batch"),
        ("optim.lr=" + "9" * 400, "optim.lr must be a finite number"),
        ("seed=1e19", "type seed=9223372036854775807"),
        ("tokens=2024-99-99", "tokens must be a whole number"),
    ],
)
def test_numbers_that_no_computer_holds(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(TrainConfig, None, [word])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("runtime.threads=1000000000", "must be less than or equal to 1024. Got 1000000000; type runtime.threads=1024"),
        ("runtime.threads=-1", "runtime.threads: must be greater than or equal to 0. Got -1; type runtime.threads=0"),
        ("runtime.device=cdua", "runtime.device: must be .*Got 'cdua'; did you mean 'cuda'"),
        ("optim.lr=2", "optim.lr: .*less than or equal to 1. Got 2; type optim.lr=1"),
        ("optim.lr=0", "optim.lr: must be greater than 0. Got 0"),
        ("optim.muon_lr=1e300", "type optim.muon_lr=1"),
        ("optim.weight_decay=50", "type optim.weight_decay=1"),
        ("optim.eps=1e-300", "type optim.eps=1e-12"),
        ("optim.clip=0", "type optim.clip=1e-06"),
        ("optim.beta2=1", "optim.beta2: must be less than 1"),
        ("schedule.max_minutes=1e308", "type schedule.max_minutes=1000000.0"),
        ("schedule.final=-1", "type schedule.final=0"),
        ("tokens=1e18", "type tokens=1000000000000000"),
        ("batch=0", "type batch=1"),
        ("accumulate=1e15", "x context = 4,096,000,000,000,000,000 tokens, more than .*lower"),
        ("keep=0", "type keep=1"),
        ("sample_tokens=1e12", "type sample_tokens=10000"),
        ("model.n_layer=1_000_000_000", "model.n_layer must be at most 1024"),
        ("model.rope_theta=0", "model.rope_theta must be 1 or more"),
        ("model.rope_theta=nan", "model.rope_theta must be a finite number. Got nan"),
        ("model.norm_eps=-1", "model.norm_eps must be above 0"),
        ("model.norm_eps=0", "model.norm_eps must be above 0"),
        ("model.start_id=4096", "model.start_id must be an id from 0 to 4095. Got 4096"),
        ("model.start_id=-1", "model.start_id must be an id from 0 to 4095. Got -1"),
        ("model.vocab_size=0", "model.vocab_size must be at least 1. Got 0"),
    ],
)  # fmt: skip
def test_numbers_out_of_range_and_what_is_nearest(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(TrainConfig, None, [word])


def test_every_number_of_a_config_has_a_least_value() -> None:
    """No numeric setting takes -1 or the largest float and whole number in silence, but those that are harmless."""
    harmless = {
        "seed",
        "eval_every",
        "eval_rows",
        "early_stop",
        "save_every",
        "log_every",
        "keep",
        "probe.every",
    }
    harmless |= {
        "optim.clip",
        "schedule.warmup_steps",
        "model.rope_theta",
    }  # the warm-up is compared with the run
    harmless |= {
        "batch",
        "model.vocab_size",
        "model.context",
        "model.n_head",
        "model.n_kv_head",
        "model.d_model",
    }
    harmless |= {"model.d_mlp", "model.window", "model.d_embed", "model.d_hidden"}  # compared with the memory

    def numbers(config: object, before: str) -> list[str]:
        found = []
        for field in dataclasses.fields(config):  # type: ignore[arg-type]
            value, name = getattr(config, field.name), f"{before}{field.name}"
            if dataclasses.is_dataclass(value):
                found += numbers(value, f"{name}.")
            elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                found.append(name)
        return found

    for kind in ("gpt", "window-mlp"):
        words = [f"model.kind={kind}"]
        for name in numbers(load_config(TrainConfig, None, words), ""):
            with pytest.raises(UserError, match=name.rpartition(".")[2]):
                load_config(TrainConfig, None, [*words, f"{name}=-1"])
            if name not in harmless:
                with pytest.raises(UserError, match=name.rpartition(".")[2]):
                    load_config(TrainConfig, None, [*words, f"{name}={2**62}"])


def train_refuses(refused: Callable[..., str], data: Data, out: Path, *words: str) -> list[str]:
    """What --check and a training say to the same words; neither leaves anything behind."""
    Path("c.yaml").write_text("seed: 0\n")
    words = ("c.yaml", *tiny_words(data, out), *words)
    told = [refused(train.main, *more, *words) for more in (["--check"], [])]
    assert not out.exists() or not out.is_dir()
    return told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.d_model=1_000_000"], "parameters fit: lower model.d_model, model.n_layer or the vocabulary"),
        (["model.d_model=4_000_000_000_000_000_000"], "parameters fit: lower model.d_model"),
        (["model.d_mlp=1_000_000_000_000"], "parameters fit: lower model.d_model"),
        (["model.n_layer=1024", "model.d_model=4096"], "parameters fit: lower model.d_model"),
        (["batch=1e12", "tokens=1e15"], r"type batch=\d+ or less, and more accumulate"),
        (["model.context=1e12", "tokens=1e15"], r"type model.context=\d+ or less"),
        (["model.vocab_size=1e15"], "model.vocab_size=1000000000000000, but in .* it is 320; .* leave it out"),
        (["model.vocab_size=300"], "model.vocab_size=300, but in .* it is 320; .* leave it out"),
        (["model.start_id=7"], "model.start_id=7, but in .* it is 0; .* leave it out"),
    ],
)  # fmt: skip
def test_what_cannot_fit_is_refused_before_it_is_built(
    words: list[str], message: str, tiny_data: Data, tmp_path: Path, refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "build_model", lambda _: pytest.fail("a model was built"))
    for told in train_refuses(refused, tiny_data, tmp_path / "out", *words):
        assert re.search(message, told), told


def test_the_vocabulary_of_the_data_may_be_said(tiny_data: Data, tmp_path: Path) -> None:
    words = [*tiny_words(tiny_data, tmp_path), "model.vocab_size=320", "model.start_id=0"]
    config = load_config(TrainConfig, None, words)
    assert train.Training(config, train.Ranks()).config.model == config.model


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder that nobody can write to")
def test_out_that_cannot_be_written(
    tiny_data: Data, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file/deep", Path("/proc/x")):
        for told in train_refuses(refused, tiny_data, out):
            assert re.search(r"cannot write the run folder .*choose another with out=FOLDER", told), told
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optim.muon_lr=1e-3"], "optim.muon_lr has no effect here: optim.kind is adamw; leave it out"),
        (["optim={muon_momentum: 0.9}"], "optim.muon_momentum has no effect here"),
        (["schedule.kind=cosine", "schedule.decay_share=0.2"], "schedule.decay_share has no effect here"),
        (["schedule.kind=constant", "schedule.final=0.2"], "schedule.final has no effect here"),
        (
            ["model.kind=window-mlp", "probe.every=5"],
            "probe.every has no effect here: a window-mlp has no heads",
        ),
        (["model.n_kv_head=0"], "model.n_kv_head must divide n_head. Got n_kv_head=0"),
        (["model.d_mlp=0"], "model.d_mlp must be at least 1"),
    ],
)
def test_a_setting_without_effect_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text("optim:\n  kind: adamw\n")
    with pytest.raises(UserError, match=message):
        train.main(["c.yaml", *words])


@pytest.mark.parametrize("flag", [["--fresh"], ["--check"], ["--grid", "seed=0,1"]])
def test_verify_resume_stands_alone(flag: list[str]) -> None:
    with pytest.raises(UserError, match=f"{flag[0]} has no effect here: --verify-resume takes a run"):
        train.main(["--verify-resume", "run", *flag])


def test_dates_and_large_seeds(tmp_path: Path) -> None:
    assert load_config(TrainConfig, None, ["seed=9007199254740993"]).seed == 9007199254740993  # 2^53 + 1
    assert load_config(TrainConfig, None, ["name=2024-99-99"]).name == "2024-99-99"
    (tmp_path / "date.yaml").write_text("name: 2024-99-99\n")
    assert load_config(TrainConfig, tmp_path / "date.yaml").name == "2024-99-99"


# ------------------------------------------------------------------------------------------------ damaged runs


def damaged(run: Path, to: Path, file: str, change: Callable[[dict], object] | str) -> Path:
    """A copy of a run in which one file holds another text, or its JSON was changed."""
    shutil.copytree(run, to)
    step = (run / "latest").read_text().strip()
    path = to / file.replace("STEP", step)
    if isinstance(change, str):
        path.write_text(change)
    else:
        content = json.loads(path.read_text(encoding="utf-8"))
        change(content)
        write_state(path, content)
    return to


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("[" * 100_000, "is not a checkpoint's state"),
        ('{"sha256": {}}', "does not say what the model is"),
        (lambda state: state.update(model="x"), "does not say what the model is"),
        *[
            (lambda state, key=key, value=value: state["model"].update({key: value}), "do not fit the model")
            for key, value in [
                ("n_layer", 5), ("n_layer", 1), ("n_layer", 0), ("n_layer", "x"), ("n_head", 5), ("vocab_size", 5),
                ("context", -1), ("n_kv_head", 7), ("n_kv_head", "x"),
            ]
        ],
        (lambda state: state["model"].pop("n_head"), "do not fit the model"),
        (lambda state: state.update(tokenizer_sha256="0" * 64), "is not the one this run was trained with"),
    ],
)  # fmt: skip
def test_attend_with_a_damaged_state(
    change: Callable[[dict], object] | str,
    message: str,
    tiny_run: Path,
    tmp_path: Path,
    refused: Callable[..., str],
) -> None:
    run = damaged(tiny_run, tmp_path / "run", "STEP/state.json", change)
    assert message in refused(attend.main, "map", run, *TEXT, "--out", tmp_path / "maps.json")
    assert not (tmp_path / "maps.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [*TEXT, "--layer", "0", "--head", "0", "--out", "m.svg"],
            "layers 1 to 2, heads 1 to 2. Got layer 0, head 0",
        ),
        ([*TEXT, "--layer", "-1", "--head", "1", "--out", "m.svg"], "Got layer -1, head 1"),
        ([*TEXT, "--query", "", "--key", ""], "'' is not in the text"),
        ([*TEXT, "--occurrence", "1"], "--occurrence says which mention"),
        ([*TEXT, "--out", ".png"], "--out must end in one of"),
        (["--text", ""], "the text is empty"),
        (["--file", "nothing.txt"], "nothing.txt cannot be read"),
        (["--text", "word " * 999], "give --on-long head or tail"),
    ],
)
def test_attend_map_words(
    words: list[str], message: str, tiny_run: Path, refused: Callable[..., str]
) -> None:
    assert message in refused(attend.main, "map", tiny_run, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--list", "--plot", "x.png"], "--list takes no --plot"),
        (["--q", "junk.npy", "--k", "junk.npy", "--v", "junk.npy"], "junk.npy holds no matrix"),
    ],
)
def test_attend_explain_words(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("junk.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{" + b"junk" * 90)
    assert message in refused(attend.main, "explain", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["junk.npy"]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.yaml", "", "is damaged"),
        ("config.yaml", "- 1", "is damaged"),
        ("config.yaml", "data: 5", "is damaged"),
        ("config.yaml", "data:\n  path: 5", "is damaged"),
        ("STEP/state.json", lambda state: state.update(data_sha256=[1]), "is damaged"),
        ("STEP/state.json", lambda state: state.update(valid_loss="x"), "is damaged"),
    ],
)
def test_export_of_a_damaged_run(
    file: str, change: Callable[[dict], object] | str, message: str, tiny_run: Path, tmp_path: Path,
    refused: Callable[..., str],
) -> None:  # fmt: skip
    run = damaged(tiny_run, tmp_path / "run", file, change)
    assert message in refused(export.main, run, "--out", tmp_path / "hf")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("out", ["", ".", "..", "/", "file", "file/hf", "x" * 300])
def test_export_to_what_is_no_new_folder(
    out: str, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    refused(export.main, tiny_run, "--out", out)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "mine")]


@pytest.mark.parametrize(
    "words", [["--import", "--to", "gguf"], ["--import", "--check"], ["--import", "--step", "best"],
              ["--to", "gguf", "--check"]]
)  # fmt: skip
def test_export_words_that_exclude_each_other(
    words: list[str], tiny_run: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    refused(export.main, tiny_run, "--out", tmp_path / "hf", *words)
    assert not list(tmp_path.iterdir())


def test_import_of_a_damaged_folder(tiny_run: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    good, bad, out = tmp_path / "good", tmp_path / "bad", tmp_path / "again"
    assert export.main([str(tiny_run), "--out", str(good)]) == 0
    changes: list[tuple[str, object]] = [("config.json", text) for text in ("[]", "5", "[" * 100_000, "{}")]
    changes += [("rostok.json", text) for text in ("[]", "{}", '{"a": 1}')]
    changes += [("tokenizer.json", text) for text in ("", "[]", "{}")]
    sizes = ("num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size", "intermediate_size")
    changes += [("config.json", {key: value}) for key in sizes for value in ("x", None, -1, 0, 10**12, [])]
    changes += [("rostok.json", {"state": value}) for value in ("x", [], {"step": "x"}, {"step": -1})]
    for file, change in changes:
        shutil.copytree(good, bad)
        path = bad / file
        if isinstance(change, dict):
            change = json.dumps(json.loads(path.read_text(encoding="utf-8")) | change)
        path.write_text(str(change))
        refused(export.main, bad, "--import", "--out", out)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "good"]  # not even a hidden half
        shutil.rmtree(bad)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", ""], "--out must name a file"),
        (["--json", "."], "--json must name a file"),
        (["--csv", "file/x.csv"], "lies below a file"),
        (["--json", "same", "--csv", "same"], "must be different files"),
    ],
)
def test_compare_refuses_its_files_before_the_work(
    words: list[str], message: str, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    refused: Callable[..., str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    monkeypatch.setattr(compare, "load_run", None)  # nothing may be loaded
    assert message in refused(compare.main, tiny_run, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ("", "it holds no settings"),
        ("- 1", "it holds no settings"),
        ("data: 5", "name the texts with --data"),
        ("data:\n  path: 5", "name the texts with --data"),
    ],
)
def test_compare_with_a_run_that_names_no_data(
    config: str, wanted: str, tiny_run: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run = damaged(tiny_run, tmp_path / "run", "config.yaml", config)
    assert wanted in refused(compare.main, run)


def test_compare_does_without_what_a_state_only_tells(tiny_run: Path, tmp_path: Path) -> None:
    def spoil(state: dict) -> None:
        state.update(data_sha256=[1], tokens="x", seconds=None)

    run = damaged(tiny_run, tmp_path / "run", "STEP/state.json", spoil)
    assert compare.main([str(run), "--device", "cpu", "--texts", "2", "--at", "0"]) == 0
