"""prepare.py whole: words in, a data folder and a summary out; what is refused, re-used, replaced, cleaned up."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prepare
from rostok.errors import UserError, run_main
from rostok.text.shards import open_data, verify
from rostok.text.tokenizer import load_tokenizer

ROOT = Path(__file__).parent.parent
MARKER = "\n<|endoftext|>\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def story_file(here: Path, tiny_texts: list[str]) -> Path:
    path = here / "tales.txt"
    path.write_text(MARKER.join(tiny_texts) + MARKER, encoding="utf-8")
    return path


def run(*words: str) -> dict[str, Any]:
    """prepare.py with --json and a small vocabulary (unless words say otherwise) -> its summary."""
    size = [] if "--tokenizer" in words or "--vocab" in words else ["--vocab", "300"]
    buffer, before = io.StringIO(), sys.stdout
    sys.stdout = buffer
    try:
        assert prepare.main([*words, *size, "--json"]) in (None, 0)
    finally:
        sys.stdout = before
    return json.loads(buffer.getvalue())


def texts_in(folder: str | Path, split: str) -> list[str]:
    data, tokenizer = open_data(folder), load_tokenizer(folder)
    part = data.split(split)
    return [tokenizer.decode(part.text(i)[1:].tolist()) for i in range(len(part))]


def test_own_file(story_file: Path, tiny_texts: list[str]) -> None:
    summary = run("--source", "tales.txt", "--valid-share", "0.2")
    data = verify("data/tales")
    train, valid = texts_in("data/tales", "train"), texts_in("data/tales", "valid")
    assert sorted(train + valid) == sorted(tiny_texts)
    assert not set(train) & set(valid)
    assert (summary["train"]["texts"], summary["valid"]["texts"]) == (len(train), len(valid))
    assert summary["train"]["bytes"] == sum(len(text.encode()) for text in train)
    assert (summary["out"], summary["vocab_size"], summary["split_by"]) == ("data/tales", 300, "hash")
    assert data.manifest["source"] == {"name": "tales", "files": ["tales.txt"]}
    assert sorted(path.name for path in Path("data").iterdir()) == ["tales"]


def test_tokenizer_is_learnt_from_the_training_part_only(here: Path) -> None:
    (here / "train.txt").write_text(MARKER.join(f"aa bb {i}" for i in range(40)))
    (here / "valid.txt").write_text("zyzyzyzyzyzyzyzy " * 50)
    run("--source", "train.txt", "--valid", "valid.txt")
    tokenizer = load_tokenizer("data/train")
    assert b"aa" in tokenizer._token_bytes
    assert not [token for token in tokenizer._token_bytes if b"zy" in token]
    assert texts_in("data/train", "valid") == [("zyzyzyzyzyzyzyzy " * 50).strip()]


def test_literal_marker_inside_a_text(here: Path) -> None:
    """C10: no error, no false end of a text."""
    (here / "a.txt").write_text(MARKER.join(f"{i} wrote <|endoftext|> in a line" for i in range(40)))
    run("--source", "a.txt", "--valid-share", "0.3")
    both = texts_in("data/a", "train") + texts_in("data/a", "valid")
    assert sorted(both) == sorted(f"{i} wrote <|endoftext|> in a line" for i in range(40))


def test_one_long_text(here: Path) -> None:
    text = "".join(f"Line number {i} of the play.\n" for i in range(500))
    (here / "play.txt").write_text(text)
    assert run("--source", "play.txt", "--valid-share", "0.1")["split_by"] == "position"
    assert texts_in("data/play", "train") + texts_in("data/play", "valid") == [
        text[: (cut := text.rindex("\n", 0, int((len(text) - 1) * 0.9)) + 1)],
        text[cut:].strip(),
    ]


def fake_stories(monkeypatch: pytest.MonkeyPatch, word: str = "fox") -> None:
    def generate_stories(count: int, seed: int) -> Iterator[str]:
        return (
            f"Once a {word} counted to {i * seed}. It was a good day for number {i}." for i in range(count)
        )

    module = types.ModuleType("rostok.text.stories.plots")
    module.__dict__["generate_stories"] = generate_stories
    monkeypatch.setitem(sys.modules, "rostok.text.stories.plots", module)


def test_built_in_stories_and_reuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words again only say that it is ready; other words, seeds or grammars are refused without --force."""
    fake_stories(monkeypatch)
    words = ["--source", "stories", "--stories", "300"]
    first = run(*words)
    assert first["train"]["texts"] + first["valid"]["texts"] == 300
    before = Path("data/stories/manifest.json").stat().st_mtime_ns
    again = run(*words)
    assert again["reused"]
    assert again["train"] == first["train"]
    assert Path("data/stories/manifest.json").stat().st_mtime_ns == before
    for other in (["--seed", "3"], ["--stories", "301"], ["--vocab", "310"], ["--valid-share", "0.2"]):
        with pytest.raises(
            UserError, match="data/stories holds other data or was made with other options: type --force"
        ):
            run(*words, *other)
    fake_stories(monkeypatch, "wolf")
    with pytest.raises(UserError, match="--force"):
        run(*words)
    assert not run(*words, "--force")["reused"]
    assert "wolf" in texts_in("data/stories", "train")[0]
    assert [path.name for path in Path("data").iterdir()] == ["stories"]


def test_changed_file_is_noticed_and_damage_is_mended(story_file: Path) -> None:
    run("--source", "tales.txt")
    os.utime(story_file)
    assert run("--source", "tales.txt")["reused"], "only the content counts"
    Path("data/tales/train-00000.npy").write_bytes(b"")
    assert not run("--source", "tales.txt")["reused"]
    verify("data/tales")
    story_file.write_text(story_file.read_text(encoding="utf-8") + "One more.", encoding="utf-8")
    with pytest.raises(UserError, match="--force"):
        run("--source", "tales.txt")


def test_a_linked_folder_is_followed(story_file: Path, here: Path) -> None:
    run("--source", "tales.txt", "--out", "big/disk")
    Path("link").symlink_to("big/disk")
    assert not run("--source", "tales.txt", "--out", "link", "--vocab", "310", "--force")["reused"]
    assert Path("link").is_symlink()
    assert verify("big/disk").vocab_size == 310
    assert sorted(path.name for path in here.iterdir() if path.name != "tales.txt") == ["big", "link"]


def test_foreign_folder_is_never_touched(story_file: Path, here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "diary").write_text("dear")
    for force in ([], ["--force"]):
        with pytest.raises(UserError, match="mine exists and is not a folder that"):
            run("--source", "tales.txt", "--out", "mine", *force)
        with pytest.raises(UserError, match=r"tales.txt exists and is not a folder that"):
            run("--source", "tales.txt", "--out", "tales.txt", *force)
    assert (here / "mine" / "diary").read_text() == "dear"
    (here / "empty").mkdir()
    run("--source", "tales.txt", "--out", "empty")


def test_what_prepare_did_not_write_is_never_deleted(story_file: Path, here: Path) -> None:
    """A manifest.json of another program, the user's own file in a data folder, the current folder."""
    app = here / "app"
    (app / "src").mkdir(parents=True)
    (app / "manifest.json").write_text('{"name": "My PWA"}')
    (app / "src" / "thesis.txt").write_text("precious")
    for force in ([], ["--force"]):
        with pytest.raises(UserError, match=r"app exists and is not a folder that .* wrote"):
            run("--source", "tales.txt", "--out", "app", *force)
    assert (app / "src" / "thesis.txt").read_text() == "precious"
    run("--source", "tales.txt", "--out", "mine")
    book = here / "mine" / "book.txt"
    book.write_text("My own words.\n" * 50)
    for manifest in ((here / "mine" / "manifest.json").read_text(), '{"format": "rostok-shards", "broken'):
        (here / "mine" / "manifest.json").write_text(manifest)
        with pytest.raises(UserError, match=r"mine also holds book.txt"):
            run("--source", "mine/book.txt", "--out", "mine", "--force")
        assert book.exists()
    assert run("--source", "tales.txt", "--out", "other", "--force")["train"]["texts"]
    for out in (".", "..", "data/.."):
        with pytest.raises(UserError, match="must name a folder other than the current one"):
            run("--source", "tales.txt", "--out", out)


def test_a_damaged_folder_of_other_text_needs_force(story_file: Path, here: Path) -> None:
    run("--source", "tales.txt", "--out", "mine")
    (here / "mine" / "manifest.json").write_text('{"format": "rostok-shards", "version": 1, "brok')
    with pytest.raises(UserError, match="mine holds damaged data: type --force"):
        run("--source", "tales.txt", "--out", "mine")
    run("--source", "tales.txt", "--out", "mine", "--force")
    verify("mine")


def test_output_inside_the_input_folder(story_file: Path, here: Path) -> None:
    (here / "books").mkdir()
    story_file.rename(here / "books" / "tales.txt")
    words = ["--source", "books", "--out", "books/shards"]
    first = run(*words)
    assert run(*words)["reused"]
    assert run(*words, "--force")["train"] == first["train"]
    assert run("--source", "books/*", "--out", "globbed")["train"] == first["train"]


def test_a_source_that_can_be_read_once(story_file: Path, here: Path) -> None:
    """A pipe is read once, together with a file; it cannot be known beforehand, so a second time needs --force."""
    (here / "more.txt").write_text(MARKER.join(f"One more text {i}" for i in range(40)))
    os.mkfifo("pipe")
    for out, words in {"a": ["more.txt", "tales.txt"], "b": ["more.txt", "pipe"]}.items():
        feeder = threading.Thread(target=lambda: Path("pipe").write_bytes(story_file.read_bytes()))
        if out == "b":
            feeder.start()
        summary = run("--source", *words, "--out", out)
        assert summary["train"]["texts"] + summary["valid"]["texts"] == 120
    feeder.join()
    assert texts_in("a", "train") == texts_in("b", "train")
    assert open_data("b").manifest["recipe"] is None
    with pytest.raises(UserError, match="b holds other data or was made with other options"):
        run("--source", "more.txt", "pipe", "--out", "b")


def test_json_lines_through_standard_input(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = "".join(json.dumps({"body": f"Chat number {i}"}) + "\n" for i in range(60)).encode()

    def read_once(*words: str) -> dict[str, Any]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
        return run("--source", "-", *words)

    with pytest.raises(UserError, match="standard input holds JSON: type --kind jsonl"):
        read_once()
    with pytest.raises(UserError, match=r"--field has no effect here: no .jsonl"):
        read_once("--field", "body")
    assert read_once("--kind", "jsonl", "--field", "body")["train"]["texts"] > 40
    assert texts_in("data/stdin", "train")[0].startswith("Chat number")
    assert read_once("--kind", "txt", "--out", "as-it-is")["train"]["texts"] == 1


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--source tales.txt --valid tales.txt --valid-share 0.1", "--valid-share"),
        ("--source tales.txt --seed 2", "--seed"),
        ("--source tales.txt --field body", "--field"),
        ("--source tales.txt --split-by file --marker ***", "--marker"),
        ("--source chats.jsonl --marker ***", "--marker"),
        ("--source chats.jsonl --split-by marker", "--split-by"),
        ("--source stories --errors replace", "--errors"),
        ("--source stories --kind txt", "--kind"),
        ("--source stories --mojibake drop", "--mojibake"),
    ],
)
def test_an_option_without_effect_is_refused(story_file: Path, here: Path, words: str, option: str) -> None:
    (here / "chats.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(UserError, match=f"{option} has no effect here"):
        run(*words.split())


def test_the_same_text_to_train_and_to_hold_out(story_file: Path) -> None:
    with pytest.raises(UserError, match="all 80 texts are in the files of --valid too"):
        run("--source", "tales.txt", "--valid", "tales.txt")


def test_mojibake_is_reported_repaired_or_dropped(
    tiny_texts: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same repair by Python's own codecs; what is not damaged stays, shard for shard."""
    damaged = [
        text.encode().decode("latin-1") if i % 4 == 0 else text for i, text in enumerate(tiny_texts[:60])
    ]
    (here / "web.txt").write_text(MARKER.join(damaged), encoding="utf-8")
    (here / "clean.txt").write_text(MARKER.join(tiny_texts[:60]), encoding="utf-8")
    assert run("--source", "web.txt", "--out", "warn")["mojibake"] == 15
    assert "warning   15 texts hold signs such as â€œ" in capsys.readouterr().err
    run("--source", "clean.txt", "--out", "clean")
    assert capsys.readouterr().err == ""
    assert run("--source", "web.txt", "--mojibake", "repair", "--out", "repair")["mojibake"] == 15
    assert open_data("repair").manifest["shards"] == open_data("clean").manifest["shards"]
    summary = run("--source", "web.txt", "--mojibake", "drop", "--out", "drop")
    assert (summary["train"]["texts"] + summary["valid"]["texts"], summary["empty"]) == (45, 0)
    assert run("--source", "web.txt", "--mojibake", "drop", "--out", "drop")["reused"]


def test_a_split_by_position_near_its_share(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The only line ends are at the front or the end; a text without any place to cut; a warning where it misses."""
    words = " ".join(f"word{i}" for i in range(3000))
    for name, text in {
        "front": f"My title\n{words}",
        "end": f"{words}\nThe end",
        "none": "字" * 9000,
    }.items():
        (here / f"{name}.txt").write_text(text, encoding="utf-8")
        summary = run("--source", f"{name}.txt")
        sizes = [summary[part]["bytes"] for part in ("train", "valid")]
        assert sizes[1] / sum(sizes) == pytest.approx(0.05, abs=0.005)
    capsys.readouterr()
    (here / "few.txt").write_text(MARKER.join(f"{i} " * (2000 if i == 7 else 5) for i in range(30)))
    run("--source", "few.txt", "--valid-share", "0.2")
    assert "of the text is held out, not 20.0%" in capsys.readouterr().err


def test_an_ended_prepare_leaves_nothing(here: Path) -> None:
    """SIGTERM cleans up. What SIGKILL leaves is swept by the next one; other hidden names stay."""
    os.mkfifo("pipe")
    words = [sys.executable, str(ROOT / "prepare.py"), "--source", "pipe", "--out", "data/x"]
    (here / "data").mkdir()
    (here / "data" / ".x.old").write_text("mine")
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        with open("pipe", "wb") as feed:  # opens when prepare.py reads: its folder is there
            feed.write(b"Some text.\n")
            feed.flush()
            assert len(list((here / "data").iterdir())) == 2
            time.sleep(0.3)  # until it waits for more
            process.send_signal(number)
            assert process.wait(30) == (143 if number == signal.SIGTERM else -9)
        assert len(list((here / "data").iterdir())) == (1 if number == signal.SIGTERM else 2)
    (here / "a.txt").write_text("".join(f"Line {i} of a text.\n" for i in range(200)))
    run("--source", "a.txt", "--out", "data/x")
    assert sorted(path.name for path in (here / "data").iterdir()) == [".x.old", "x"]


def test_a_million_blanks(here: Path) -> None:
    """Every way of encoding cuts them; nothing is lost."""
    text = "x" + " " * 2_500_000 + "y"
    (here / "b.txt").write_text(text + "z" * 100)
    run("--source", "b.txt", "--vocab", "257")
    assert "".join(texts_in("data/b", "train") + texts_in("data/b", "valid")) == text + "z" * 100
    tokenizer = load_tokenizer("data/b")
    assert tokenizer.encode(text) == tokenizer.encode_batch([text])[0]


def test_failure_leaves_nothing_behind(story_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old folder stays whole when the new one fails half-way."""
    run("--source", "tales.txt", "--out", "data/x")

    def fail(*words: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(prepare, "write_data", fail)
    with pytest.raises(OSError, match="disk full"):
        run("--source", "tales.txt", "--out", "data/x", "--force")
    assert [path.name for path in Path("data").iterdir()] == ["x"]
    verify("data/x")


def test_tokenizer_of_another_folder(story_file: Path, here: Path) -> None:
    run("--source", "tales.txt")
    (here / "new.txt").write_text("".join(f"Something new, line {i}.\n" for i in range(300)))
    summary = run("--source", "new.txt", "--tokenizer", "data/tales")
    assert summary["tokenizer"] == "bpe-300"
    assert open_data("data/new").tokenizer_sha256 == open_data("data/tales").tokenizer_sha256
    with pytest.raises(UserError, match="type one of the two"):
        run("--source", "new.txt", "--tokenizer", "data/tales", "--vocab", "300")


def test_small_text_says_its_vocabulary(here: Path) -> None:
    (here / "s.txt").write_text("".join(f"ab {i}\n" for i in range(50)))
    summary = run("--source", "s.txt", "--vocab", "5000", "--valid-share", "0.2")
    assert 257 <= summary["vocab_size"] < 400
    assert open_data("data/s").vocab_size == summary["vocab_size"]


def test_files_folders_and_tables_together(here: Path) -> None:
    (here / "d").mkdir()
    (here / "d" / "a.txt").write_text(MARKER.join(f"from a file {i}" for i in range(30)))
    (here / "b.jsonl").write_text(
        "\n".join(json.dumps({"body": f"from a table {i % 20}"}) for i in range(30))
    )
    summary = run("--source", "d", "*.jsonl", "--field", "body", "--out", "out", "--valid-share", "0.3")
    assert (summary["train"]["texts"] + summary["valid"]["texts"], summary["duplicates"]) == (50, 10)
    summary = run(
        "--source",
        "d",
        "b.jsonl",
        "--field",
        "body",
        "--out",
        "few",
        "--valid-share",
        "0.3",
        "--stories",
        "25",
    )
    assert summary["train"]["texts"] + summary["valid"]["texts"] == 25


def test_standard_input(tiny_texts: list[str], here: Path) -> None:
    """Read as UTF-8 whatever the locale; never re-used, since it can be read only once."""
    words = [sys.executable, str(ROOT / "prepare.py"), "--source", "-", "--out", "données", "--vocab", "300"]
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env.pop("PYTHONIOENCODING", None)
    text = MARKER.join(text.replace("park", "парк “ё”") for text in tiny_texts).encode()
    done = subprocess.run(words, input=text, capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"written   donn\xc3\xa9es" in done.stdout or b"written   donn" in done.stdout
    both = texts_in("données", "train") + texts_in("données", "valid")
    assert sorted(both) == sorted(text.replace("park", "парк “ё”") for text in tiny_texts)
    again = subprocess.run(words, input=text, capture_output=True, env=env, check=False)
    assert again.returncode == 2
    assert b"--force" in again.stderr


def test_file_under_the_c_locale(tiny_texts: list[str], here: Path) -> None:
    (here / "сказки.txt").write_bytes(MARKER.join(text + " Ёж." for text in tiny_texts).encode())
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [sys.executable, str(ROOT / "prepare.py"), "--source", "сказки.txt", "--vocab", "300", "--json"]
    done = subprocess.run(words, capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert texts_in("data/сказки", "train")[0].endswith(" Ёж.")
    assert open_data("data/сказки").manifest["source"]["files"] == ["сказки.txt"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "nothing.txt"], "no such file: nothing.txt"),
        (["--source", ""], "--source, --valid, --tokenizer and --out must not be empty"),
        (["--source", "tales.txt", "--marker", "\udcff"], "--marker: byte 0xff at offset 0 is not UTF-8"),
        (["--source", "tales.txt", "--out", "\udcff"], "is not UTF-8; give another name"),
        (["--source", "tales.txt", "--valid-share", "0"], "wanted a share between 0 and 1"),
        (["--source", "tales.txt", "--valid-share", "nan"], "wanted a share between 0 and 1"),
        (["--source", "tales.txt", "--stories", "0"], "wanted 1 or more"),
        (["--source", "tales.txt", "--vocab", "100"], "vocabulary of 100 is too small"),
        (["--source", "tales.txt", "--vocab", "0"], "vocabulary of 0 is too small"),
        (["--source", "tales.txt", "--marker", " "], "must be one line"),
        (["--source", "tales.txt", "stories"], "stand alone after --source"),
        (["--source", "tales.txt", "--tokenizer", "none"], "no tokenizer at none"),
        (["--source", "tales.txt", "--valid-share", "0.0001"], "valid part would be empty: 80 texts"),
        (["--source", "tales.txt", "--valid-share", "1e-17"], "valid part would be empty: 80 texts"),
        (["--source", "blank.txt"], "the source holds no text"),
        (["--source", "bad.txt"], "bad.txt: byte 0xff at offset 3"),
    ],
)
def test_refused_in_one_line(
    story_file: Path, here: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "blank.txt").write_text(" \n\n")
    (here / "bad.txt").write_bytes(b"abc\xffdef")
    assert run_main(prepare.main, words) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert not list((here / "data").glob("*")) if (here / "data").exists() else True


def test_bad_bytes_can_be_replaced(here: Path) -> None:
    (here / "bad.txt").write_bytes(b"abc\xffdef ghi\n" * 20)
    run("--source", "bad.txt", "--errors", "replace", "--valid-share", "0.2")
    assert texts_in("data/bad", "train")[0].startswith("abc\ufffddef ghi\n")


def test_summary_for_people(story_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--source", "tales.txt", "--vocab", "300"]
    prepare.main(words)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "train",
        "valid",
        "split",
        "tokenizer",
        "encoding",
        "written",
        "hint",
        "next",
    ]
    assert lines[-3] == "written   data/tales"
    assert lines[-1].startswith("next      python train.py quickstart name=tales data.path=data/tales")
    prepare.main(words)
    assert capsys.readouterr().out.startswith("data/tales is ready: made from the same text")


def test_memory_does_not_grow_with_the_text(here: Path) -> None:
    """A text of 24 MB in one part without a marker: the live objects of Python stay far below its size."""
    import tracemalloc

    from rostok.text.sources import read_chunks
    from rostok.text.spool import Spool

    rng = np.random.default_rng(0)
    words = np.array(["cat", "dog", "sat", "ran", "house", "tree\n"])
    block = " ".join(rng.choice(words, 60_000)).encode()
    with open(here / "big.txt", "wb") as file:
        for _ in range(24_000_000 // len(block)):
            file.write(block)
    spool = Spool(here)
    tracemalloc.start()
    for chunk in read_chunks(here / "big.txt"):
        spool.add(chunk)
    spool.split(0.1)
    read = sum(len(text) for split in ("train", "valid") for text, _ in spool.chunks(split))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    spool.close()
    assert read > 20_000_000
    assert peak < 10_000_000


def test_force_deletes_only_what_the_manifest_names(story_file: Path, here: Path) -> None:
    prepare.main(["--source", str(story_file), "--vocab", "300", "--out", "d"])
    for mine in ("embeddings-00001.npy", "train-00009.npy"):
        (here / "d" / mine).write_text("mine")
        with pytest.raises(UserError, match=f"d also holds {mine}"):
            prepare.main(["--source", str(story_file), "--vocab", "310", "--out", "d", "--force"])
        (here / "d" / mine).unlink()
    (here / "d" / "labels-12345.npy").mkdir()
    with pytest.raises(UserError, match=r"d also holds labels-12345\.npy"):
        prepare.main(["--source", str(story_file), "--vocab", "310", "--out", "d", "--force"])


def test_devices_and_endless_numbers(here: Path) -> None:
    for words, said in (
        (["--source", "/dev/full"], "/dev/full is a device"),
        (["--stories", "9" * 30], "--stories must be 100,000,000 or less"),
    ):
        with pytest.raises(UserError, match=said):
            prepare.main([*words, "--out", "d"])
