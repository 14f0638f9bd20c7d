"""sample.py as a user meets it: every mode on a tiny run, every error one line, no word that ends in a traceback."""

# pyright: reportArgumentType=false

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import sample
from conftest import write_state
from model import build_model
from rostok import runs
from rostok.errors import run_main
from rostok.generation import session
from rostok.generation.copies import open_training
from rostok.runs import load_run
from rostok.text.shards import whole, write_data
from rostok.text.tokenizer import train_tokenizer


@pytest.fixture
def say(capsys, tiny_run):
    """Run sample.py on the tiny run: (exit code, stdout, stderr)."""

    def run(*words: str, folder: Path | str = tiny_run) -> tuple[int, str, str]:
        try:
            code = run_main(sample.main, [str(folder), *words])
        except SystemExit as stop:  # argparse
            code = int(stop.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_a_prompt_is_continued(say):
    code, out, err = say("--prompt", "Tom had", "--tokens", "12", "--seed", "3")
    assert code == 0
    assert out.startswith("Tom had")
    assert "tokens" in err
    assert say("--prompt", "Tom had", "--tokens", "12", "--seed", "3")[1] == out
    assert "\033" not in out + err


def test_with_and_without_cache_past_the_context(say):
    words = ("--prompt", "Tom had a red hat", "--tokens", "80", "--temperature", "0", "--json")
    plain, cached = (json.loads(say(*words, *more)[1]) for more in (["--no-cache"], []))
    assert cached["ids"] == plain["ids"]
    assert "longer than the context of 32 tokens" in say(*words)[2]
    stopped = json.loads(say(*words, "--past", "stop")[1])
    assert stopped["finish"] in ("context", "end")
    assert stopped["ids"] == cached["ids"][: len(stopped["ids"])]


def test_many_prompts_from_files(say, tmp_path, monkeypatch):
    lines, records = tmp_path / "p.txt", tmp_path / "p.jsonl"
    lines.write_text("Tom\nMia had\n", encoding="utf-8")
    records.write_text('"Tom"\n\n{"prompt": "Mia had"}\n', encoding="utf-8")
    one = say("--prompt-file", str(lines), "--tokens", "5", "--samples", "2")[1]
    assert one.count("--- ") == 4
    assert say("--prompt-file", str(records), "--tokens", "5", "--samples", "2", "--batch", "3")[1] == one
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Tom\nMia had\n")))
    assert say("--prompt-file", "-", "--tokens", "5", "--samples", "2")[1] == one


def test_lines_of_prompt_files_end_at_line_ends_only(tmp_path):
    for name, content in (
        ("p.txt", "\ufeffTom\u2028\x85had\r\n\nMia"),
        ("p.jsonl", '\ufeff"Tom\u2028\x85had"\n{"prompt": ""}\r\n\n"Mia"\n'),
    ):
        (tmp_path / name).write_bytes(content.encode())
        options = sample.parse(["run", "--prompt-file", str(tmp_path / name)])
        assert sample.read_prompts(options) == ["Tom\u2028\x85had", "", "Mia"]


def test_json_says_it_all(say):
    out = say("--json", "--samples", "3", "--tokens", "6", "--top-tokens", "4", "--prompt", "Tom")[1]
    records = [json.loads(line) for line in out.splitlines()]
    assert [r["sample"] for r in records] == [0, 1, 2]
    for r in records:
        assert r["finish"] in ("length", "end")
        assert len(r["ids"]) == len(r["pieces"]) == len(r["logprobs"]) == len(r["top"]) <= 6
        assert all(len(top) == 4 and top[0]["logprob"] >= top[-1]["logprob"] for top in r["top"])
        assert r["tokens_per_second"] > 0
    alone = json.loads(say("--json", "--tokens", "6", "--prompt", "Tom")[1])
    assert alone["ids"] == records[0]["ids"]


def test_stop_text(say):
    whole = json.loads(say("--json", "--prompt", "Tom", "--tokens", "40", "--temperature", "0")[1])["text"]
    stop = whole[5:8]
    cut = json.loads(
        say("--json", "--prompt", "Tom", "--tokens", "40", "--temperature", "0", "--stop", stop)[1]
    )
    assert cut["finish"] == "stop"
    assert cut["text"] == whole[: whole.index(stop)]


def test_tables_for_learners(say, tiny_window_run):
    out = say("--prompt", "Tom", "--tokens", "3", "--top-tokens", "10")[1]
    assert out.count("step ") == 3
    assert out.count("\n") == 2 + 3 * 12
    beside = say("--prompt", "Tom", "--tokens", "40", "--compare", str(tiny_window_run))[1]
    assert tiny_window_run.name in beside
    assert beside.count("step ") <= 40


def test_trace_of_a_copy_and_of_human_text(say, tiny_run, tiny_data, tiny_texts):
    """Against strings: what is said to be copied is in a training text, and one token more is not."""
    code, out, err = say("--trace", "--prompt", "Tom", "--tokens", "20", "--seed", "1")
    assert code == 0
    assert out.startswith("Tom")
    assert "in a row are in the training text" in err
    assert "of 8 held-out texts" in err or "of 9 held-out texts" in err or "of 10 held-out texts" in err
    [record] = map(json.loads, say("--trace", "--json", "--prompt", "Tom", "--tokens", "20")[1].splitlines())
    training = [text for i, text in enumerate(tiny_texts) if i % 8]
    assert any(record["trace"]["span"] in text for text in training)
    assert record["trace"]["human"]["texts"] > 5
    assert say("--trace", "--tokens", "0")[0] == 0
    assert "the median of 6 texts" in say("--trace", "--samples", "6", "--tokens", "20")[2]

    run = load_run(tiny_run, build_model)
    copied = open_training(run, "").trace([("", run.tokenizer.encode(training[3]))])
    assert copied.traces[0].longest == len(copied.texts[0])
    assert copied.traces[0].found == copied.traces[0].spans


def test_trace_needs_the_data_of_the_run(say, tmp_path, tiny_run, tiny_window_run):
    copy = tmp_path / "copy"
    shutil.copytree(tiny_run, copy)
    config = yaml.safe_load((copy / "config.yaml").read_text(encoding="utf-8"))
    config["data"]["path"] = str(tmp_path / "gone")
    (copy / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    code, out, err = say("--trace", folder=copy)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "name the texts with --trace FOLDER" in err
    other = tmp_path / "other"
    texts = ["Another tokenizer.", "It has other ids."]
    write_data(other, {"train": whole(texts), "valid": whole(texts)}, train_tokenizer(texts, 260))
    assert "made with another tokenizer" in say("--trace", str(other))[2]


def test_every_kind_of_model_and_place(say, tiny_run, tiny_window_run):
    for folder in (tiny_window_run, tiny_run / "latest", tiny_run / "best", next(tiny_run.glob("step-*"))):
        assert say("--tokens", "40", folder=folder)[0] == 0


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch announces another home for its int8 types
@pytest.mark.parametrize("weights", ["auto", "fp32", "bf16", "int8"])
def test_forms_of_weights(say, weights):
    code, out, _ = say("--tokens", "10", "--weights", weights, "--prompt", "Tom")
    assert code == 0
    assert out.startswith("Tom")


def test_the_text_is_the_same_with_any_number_of_threads(say):
    before = torch.get_num_threads()
    texts = {say("--tokens", "30", "--threads", str(n), "--prompt", "Tom")[:2] for n in (1, 3)}
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)
    [(code, out)] = texts
    assert (code, out[:3]) == (0, "Tom")


def test_interactive(say, monkeypatch):
    good = ["Tom had", "", "/temp 0.5", "/top-k 5", "/seed 4", "/undo", "/undo", "/undo", "/tokens 3", "Mia"]
    bad = ["/temp x", "/top-p 7", "/tokens -1", "/what", "/new", "/quit", "unread"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(good + bad)))
    code, out, err = say("--interactive", "--tokens", "20")
    assert code == 0
    assert out.startswith("Tom had")
    assert "unread" not in out
    for part in (
        "nothing to undo",
        "/temp wants a number. Got 'x'",
        "top-p must be",
        "/tokens must be 0",
        "/quit",
    ):
        assert part in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("Tom had\n a hat\n"))  # ends without /quit
    assert say("--interactive", "--tokens", "20", "--weights", "fp32")[0] == 0


def test_undo_and_a_kept_cache_lead_to_the_same_text(say, monkeypatch):
    def last(lines: str, *words: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        return say("--interactive", "--tokens", "9", "--temperature", "0", *words)[1].splitlines()[-1]

    straight = last("Tom had\n Mia\n")
    assert last("Tom had\n Ben was\n/undo\n Mia\n") == straight
    assert last("Tom had\n Mia\n", "--no-cache") == straight


def test_a_stop_text_is_not_read_by_the_next_turn(say, monkeypatch):
    sessions, begin = [], session.Session.__init__
    monkeypatch.setattr(
        session.Session, "__init__", lambda *given: sessions.append(given[0]) or begin(*given)
    )

    def last(lines: str, *words: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        out = say("--interactive", "--tokens", "20", "--temperature", "0.7", *words)[1]
        session = sessions.pop()
        read = b"".join(map(session.run.tokenizer.token_bytes, session.reader.rows[0][1:])).decode(
            errors="replace"
        )
        assert read.replace("\n", "") == out.replace("\n", "")
        return out

    whole = last("Tom had\n")
    stop = whole[13:16]  # in the middle of a text, perhaps of a token
    cut = last("Tom had\n", "--stop", stop)
    assert cut == whole[: whole.index(stop, 7)] + "\n"
    assert last("Tom had\n Mia\n", "--stop", stop).startswith(cut + " Mia")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--temperature", "-1"], "temperature must be"),
        (["--temperature", "abc"], "invalid float value"),
        (["--tokens", "-1"], "whole number of 0 or more"),
        (["--samples", "0"], "whole number of 1 or more"),
        (["--samples", "999999999999"], "--samples: must be 10000 or less. Got '999999999999'"),
        (["--tokens", "1000000000000"], "--tokens: must be 1000000 or less"),
        (["--batch", "1000000000000"], "--batch: must be 1024 or less"),
        (["--top-tokens", "1000000000000"], "--top-tokens: must be 1000 or less"),
        (["--prompt", "a", "--interactive"], "exclude each other"),
        (["--json", "--interactive"], "goes without"),
        (["--trace", "--interactive"], "--trace goes without --interactive"),
        (["--json", "--compare", "no-such-run"], "--json goes without --compare"),
        (["--prompt-file", "no-such-file"], "no-such-file cannot be read"),
        (["--compare", "no-such-run"], "there is no run folder no-such-run"),
        (["--seed", "x"], "invalid int value"),
        (["--nonsense"], "unrecognized arguments"),
    ],
)
def test_errors_are_one_line(say, words, message):
    code, out, err = say(*words)
    assert code == 2
    assert not out
    assert message in err.splitlines()[-1]


def test_prompt_files_that_are_none(say, tmp_path):
    for name, content, message in (
        ("empty.txt", b"", "holds no prompt"),
        ("binary.txt", b"\xff\xfe\x00", "byte 0xff at offset 0 is not UTF-8"),
        ("bad.jsonl", b'{"prompt": 3}\n', "line 1: wanted a JSON string"),
        ("deep.jsonl", b"[" * 100_000, "line 1: wanted a JSON string"),
    ):
        (tmp_path / name).write_bytes(content)
        code, _, err = say("--prompt-file", str(tmp_path / name))
        assert code == 2
        assert message in err
        assert len(err.splitlines()) == 1


NUMBERS = st.one_of(
    st.integers(-3, 50), st.floats(), st.sampled_from([10**30, "nan", "", "1e-9", "0.5"])
).map(str)
FLAGS = st.sampled_from(
    [
        *("--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty"),
        *("--seed", "--samples", "--batch", "--top-tokens"),
    ]
)
SWITCHES = st.sampled_from([["--json"], ["--no-cache"], ["--past", "stop"], ["--past", "nowhere"]])
WORDS = st.one_of(
    st.tuples(FLAGS, NUMBERS).map(list),
    SWITCHES,
    st.tuples(st.sampled_from(["--prompt", "--stop"]), st.text(max_size=12)).map(list),
    st.text(max_size=6).map(lambda text: [text]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(WORDS, max_size=5).map(lambda parts: [word for part in parts for word in part]))
def test_no_words_end_in_a_traceback(say, words):
    huge = [i for i, word in enumerate(words) if word in ("--samples",) and len(words[i + 1]) > 2]
    for i in huge:  # a million texts are a fair wish, but not here
        words[i + 1] = "3"
    code, _, err = say(*words, "--tokens", "2")
    assert code in (0, 2)
    assert "Traceback" not in err
    if code == 2:
        assert "error: " in err.splitlines()[-1]


# ------------------------------------------------------------------------------------ text from outside, options


def test_text_is_utf8_by_every_way(say, tmp_path, monkeypatch):
    """By word, by file, by standard input under any locale and by hand: the same prompt, the same text."""
    words = ("--tokens", "6", "--json")
    wanted = json.loads(say("--prompt", "Том had\nMia", *words)[1])["ids"]
    (tmp_path / "p.jsonl").write_bytes('\ufeff{"prompt": "Том had\\nMia"}\r\n'.encode())
    assert json.loads(say("--prompt-file", str(tmp_path / "p.jsonl"), *words)[1])["ids"] == wanted
    stdin = io.TextIOWrapper(io.BytesIO('{"prompt": "Том had\\nMia"}\n'.encode()), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", stdin)
    code, out, err = say("--prompt-file", "-", *words)
    assert (code, json.loads(out)["ids"]) == (0, wanted)
    assert "note: - is read as JSON lines" in err
    lines = "Том\n".encode() + b"caf\xe9\n/quit\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines), encoding="latin-1"))
    code, out, err = say("--interactive", "--tokens", "2")
    assert code == 0
    assert out.startswith("Том")
    assert "error: standard input: byte 0xe9 at offset 3 is not UTF-8" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", "caf\udce9"], "--prompt: byte 0xe9"),
        (["--stop", "caf\udce9"], "--stop: byte 0xe9"),
        (["--interactive", "--batch", "2"], "--batch has no effect here: texts are written one at a time"),
        (["--top-tokens", "2", "--batch", "2"], "--batch has no effect here"),
        (["--top-tokens", "0"], "must be a whole number of 1 or more"),
    ],
)
def test_what_is_refused_and_not_guessed(say, words, message):
    code, out, err = say(*words)
    assert (code, out) == (2, "")
    assert message in err.splitlines()[-1]


def test_half_a_character_in_a_prompt(say, tmp_path):
    (tmp_path / "p.jsonl").write_text('"a\\ud83d"\n')
    assert (
        "line 1: a text holds half a character (U+D83D)" in say("--prompt-file", str(tmp_path / "p.jsonl"))[2]
    )


def test_what_is_said_of_a_prompt_and_of_options(say, monkeypatch, tiny_window_run):
    assert "note: the prompt ends in a blank" in say("--prompt", "Tom had ", "--tokens", "2")[2]
    assert "note" not in say("--prompt", "Tom had", "--tokens", "2")[2]
    told = say("--temperature", "0", "--seed", "3", "--top-k", "5", "--tokens", "2")[2]
    assert "note: at temperature 0 the likeliest token is taken: --seed, --top-k changes no text" in told
    assert "--past stop has no effect" in say("--past", "stop", "--tokens", "2", folder=tiny_window_run)[2]
    assert "note: --compile has no effect here" in say("--compile", "--tokens", "2")[2]
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.delenv("CXX", raising=False)
    code, _, err = say("--compile", "--tokens", "2", "--weights", "int8")
    assert code == 0
    assert "no C++ compiler is installed" in err


def test_no_control_characters_reach_a_terminal(say, monkeypatch):
    """A prompt can hold what clears a terminal or sets its title; a file gets the text as it is."""
    prompt = "Tom\x1b]0;title\x07\x9b2J\thad\n"
    assert say("--prompt", prompt, "--tokens", "2")[1].startswith(prompt)
    monkeypatch.setattr(sys.stdout.__class__, "isatty", lambda _: True)
    out = say("--prompt", prompt, "--tokens", "2")[1]
    assert out.startswith("\x1b[2mTom\\x1b]0;title\\x07\\x9b2J\thad\n\x1b[0m")
    assert session.shown("\x1b[31mä") == "\\x1b[31mä"


def test_ids_that_only_pad_a_vocabulary_are_never_drawn(say, tiny_run, tmp_path):
    """Forty rows that the tokenizer cannot spell, all of them likelier than any of its own."""
    wide = Path(shutil.copytree(tiny_run, tmp_path / "wide"))
    step = runs.find_step(wide)
    state, tensors = runs.read_state(step), runs.read_tensors(step, "model.safetensors")
    tensors["embed.weight"] = torch.cat((tensors["embed.weight"], torch.full((40, 32), 9.0)))
    state["model"]["vocab_size"] += 40
    save_file(tensors, step / "model.safetensors")
    del state["sha256"]["model.safetensors"]
    write_state(step / "state.json", state)
    words = ("--prompt", "Tom", "--tokens", "20", "--temperature", "1", "--json", "--top-tokens", "3")
    for record in zip(*(say(*words, folder=run)[1].splitlines() for run in (tiny_run, wide)), strict=True):
        plain, padded = map(json.loads, record)
        assert [padded[key] for key in ("ids", "logprobs", "top")] == [
            plain[key] for key in ("ids", "logprobs", "top")
        ]


def test_every_option_does_something_or_says_so(say, tmp_path, monkeypatch, tiny_window_run):
    """In each way to use sample.py: another text, a word on stderr, or a refusal."""
    (tmp_path / "p.txt").write_text("Mia\n")
    how = {"batch", "no_cache", "weights", "device", "threads", "help", "run"}  # how the same text is made
    values = {
        "prompt": "Mia",
        "prompt_file": str(tmp_path / "p.txt"),
        "samples": "2",
        "tokens": "30",
        "seed": "5",
    }
    values |= {
        "temperature": "1.7",
        "top_k": "1",
        "top_p": "0.01",
        "min_p": "0.99",
        "repetition_penalty": "9",
    }
    values |= {"stop": "a", "past": "stop", "top_tokens": "2", "compare": str(tiny_window_run)}
    flags = {"interactive", "json", "trace", "compile"}
    names = {action.dest for action in sample.parser_of()._actions}
    assert names == how | values.keys() | flags
    for mode in ((), ("--json",), ("--top-tokens", "1"), ("--interactive",)):

        def outcome(*words: str, mode: tuple[str, ...] = mode) -> tuple[int, str, list[str]]:
            monkeypatch.setattr(sys, "stdin", io.StringIO("Tom had\n"))
            code, out, err = say(*mode, "--tokens", "40", *words)
            out = re.sub(r'"(seconds|tokens_per_second|seed)": [\d.]+', "", out)
            return code, out, [line for line in err.splitlines() if not line.startswith("[")]

        plain = outcome()
        for name in sorted(names - how):
            flag = "--" + name.replace("_", "-")
            words = [flag, values[name]] if name in values else [flag]
            if flag not in mode:
                assert outcome(*words) != plain, (mode, words)
