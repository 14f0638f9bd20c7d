"""Clumsy and hostile input: every outcome is right, or one line on stderr with exit code 2 and nothing half-written."""

import json
import os
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
from rostok.config import load_config
from rostok.errors import LONGEST, UserError, run_main
from rostok.shards import Data, open_data
from rostok.tokenizer import LONGEST_WORD, cut_words, load_tokenizer, train_tokenizer
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
        (["--out", "tales.txt/data"], "cannot write tales.txt/data"),
        (["--source", "loop"], "loop: "),
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
        ("tokens=" + "9" * 400, "tokens is too large a number"),
        ("tokens=" + "9" * 5000, "tokens must be a finite number"),
        ("tokens=1e30", "tokens is too large a number"),
        ("batch=99999999999999999999", "batch is too large a number"),
        ("optim.lr=" + "9" * 400, "optim.lr is too large a number"),
        ("tokens=2024-99-99", "tokens must be a number"),
    ],
)
def test_numbers_that_no_computer_holds(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(TrainConfig, None, [word])


def test_dates_and_large_seeds(tmp_path: Path) -> None:
    assert load_config(TrainConfig, None, ["seed=9007199254740993"]).seed == 9007199254740993  # 2^53 + 1
    assert load_config(TrainConfig, None, ["name=2024-99-99"]).name == "2024-99-99"
    (tmp_path / "date.yaml").write_text("name: 2024-99-99\n")
    with pytest.raises(UserError, match=r"date.yaml is not YAML: month must be in 1..12"):
        load_config(TrainConfig, tmp_path / "date.yaml")


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
        path.write_text(json.dumps(content))
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
        ([*TEXT, "--layer", "0", "--head", "0"], "layers 1 to 2, heads 1 to 2. Got layer 0, head 0"),
        ([*TEXT, "--layer", "-1", "--head", "1"], "Got layer -1, head 1"),
        ([*TEXT, "--query", "", "--key", ""], "'' does not stand in the text"),
        ([*TEXT, "--occurrence", "1"], "--occurrence says which mention"),
        ([*TEXT, "--out", ".png"], "--out must end in one of"),
        (["--text", ""], "the text is empty"),
        (["--file", "nothing.txt"], "cannot read nothing.txt"),
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
        (["--as-printed"], "name one of them"),
        (["--list", "--plot", "x.png"], "--plot draws an example or your own matrices"),
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
        ("data: 5", "name the shards to score on with --data"),
        ("data:\n  path: 5", "name the shards to score on with --data"),
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
