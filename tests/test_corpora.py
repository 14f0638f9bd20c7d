"""Reading text of every kind, cut into chunks anyhow, and splitting it in two; downloads from a server of our own."""

import csv
import doctest
import gzip
import hashlib
import importlib
import io
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostok.errors import UserError
from rostok.text import sources
from rostok.text.shards import Chunk, whole
from rostok.text.sources import (
    ReadOptions,
    Spool,
    cut_long,
    decode,
    find_files,
    read_chunks,
    split_at_marker,
    trim,
)

ROOT = Path(__file__).parent.parent
MARKER = "<|endoftext|>"


def joined(chunks: Iterator[Chunk]) -> list[str]:
    """Chunks -> whole texts."""
    texts, text = [], ""
    for part, last in chunks:
        text += part
        if last:
            texts.append(text)
            text = ""
    assert text == "", "the last chunk ends a text"
    return texts


def read(path: Path, **options: str) -> list[str]:
    return joined(read_chunks(path, ReadOptions(**options)))


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("name", ["text.sources", "text.shards", "training.loader"])
def test_worked_examples_in_docstrings(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"rostok.{name}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0


# ------------------------------------------------------------------------------------------------------------- files


def test_texts_between_markers(tmp_path: Path) -> None:
    """C10: only a line of its own is a marker; trailing markers make no empty text."""
    text = f"one\nline two\n{MARKER}\n\n two says {MARKER} here\n {MARKER} \nthree{MARKER}\n{MARKER}\n\n{MARKER}\n"
    assert read(write(tmp_path / "a.txt", text)) == [
        "one\nline two",
        f"two says {MARKER} here",
        f"three{MARKER}",
    ]


def test_file_without_marker_is_one_text(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", "\nall\n\nof it\n")) == ["all\n\nof it"]
    assert read(write(tmp_path / "b.txt", f"a\n{MARKER}\nb\n"), split_by="file") == [f"a\n{MARKER}\nb"]
    assert read(write(tmp_path / "c.txt", "a\n---\nb"), marker="---") == ["a", "b"]
    with pytest.raises(UserError, match=r"a.txt has no line <\|endoftext\|>: type --split-by file"):
        read(tmp_path / "a.txt", split_by="marker")


def test_empty_file_holds_no_text(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", " \n\n")) == []


@settings(max_examples=60, deadline=None)
@given(st.text("ab \n|<>", max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_pieces_do_not_depend_on_the_blocks(text: str, cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(text)]
    blocks = [text[a:b] for a, b in itertools.pairwise(borders)]
    expected, lines = [""], text.split("\n")
    for i, line in enumerate(lines):  # the slow way: line by line
        if line.strip(" \t") == "<|>":
            expected.append("")
        else:
            expected[-1] += line + ("\n" if i < len(lines) - 1 else "")
    assert joined(split_at_marker(blocks, "<|>")) == expected
    assert joined(trim(split_at_marker(blocks, "<|>"))) == [part.strip() for part in expected]


def test_long_line_is_not_held_back_and_hides_no_marker() -> None:
    blocks = ["x" * 100_000, "y" * 100_000, "<|>\n<|>\nend"]
    assert joined(split_at_marker(blocks, "<|>")) == ["x" * 100_000 + "y" * 100_000 + "<|>\n", "end"]
    assert next(split_at_marker(iter(blocks), "<|>")) == ("x" * 100_000, False)


def test_line_ends_and_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the border of a block goes through "\\r\\n" or a letter; a lone "\\r" is text."""
    raw = "\ufeffa\r\nб\ufeff\r\n\rc\r".encode()
    for block in range(1, 9):
        monkeypatch.setattr(sources, "BLOCK", block)
        assert "".join(decode(io.BytesIO(raw), Path("x"))) == "a\nб\ufeff\n\rc\r"


def test_bad_bytes_name_file_and_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = "Ёж".encode() + b"ab\xffc" + "ё".encode()[:1]
    path = write(tmp_path / "bad.txt", raw)
    for block in (1, 2, 3, 5, 1 << 20):
        monkeypatch.setattr(sources, "BLOCK", block)
        with pytest.raises(UserError, match=r"bad.txt: byte 0xff at offset 6 is not UTF-8.*--errors replace"):
            read(path)
        assert read(path, errors="replace") == ["Ёжab\ufffdc\ufffd"]
    with pytest.raises(UserError, match="offset 4 is not UTF-8"):
        read(write(path, b"abcd\xd1"))


def test_gzip(tmp_path: Path) -> None:
    packed = gzip.compress(f"one\n{MARKER}\ntwo".encode())
    assert read(write(tmp_path / "a.txt.gz", packed)) == ["one", "two"]
    for broken in (b"no gzip", packed[:-9]):
        with pytest.raises(UserError, match="is not a whole gzip file"):
            read(write(tmp_path / "b.txt.gz", broken))


def test_json_lines(tmp_path: Path) -> None:
    lines = '{"text": "one\\r\\ntwo", "n": 1}\n\n"plain"\n{"text": "<|endoftext|>"}'
    assert read(write(tmp_path / "a.jsonl", lines)) == ["one\ntwo", "plain", MARKER]
    assert read(write(tmp_path / "a.jsonl.gz", gzip.compress(lines.encode()))) == [
        "one\ntwo",
        "plain",
        MARKER,
    ]
    assert read(write(tmp_path / "a.ndjson", '{"body": "b"}\n'), field="body") == ["b"]
    with pytest.raises(UserError, match=r"a.jsonl, line 2 is not JSON"):
        read(write(tmp_path / "a.jsonl", '{"text": "a"}\n{"text": '))
    with pytest.raises(
        UserError, match=r"line 1 has no text in a field 'text', only 'body', 'n'; type --field"
    ):
        read(write(tmp_path / "a.jsonl", '{"body": "b", "n": 1}\n'))
    with pytest.raises(UserError, match="only a int"):
        read(write(tmp_path / "a.jsonl", "3\n"))


def test_json(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.json", '[{"text": "a"},\n "b"]')) == ["a", "b"]
    assert read(write(tmp_path / "a.json", '{"text": "only"}')) == ["only"]
    with pytest.raises(UserError, match="entry 1 has no text"):
        read(write(tmp_path / "a.json", '["a", null]'))


def test_half_a_character_in_json(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a\\ud83d"}\n')
    with pytest.raises(UserError, match=r"a.jsonl: a text holds half a character \(U\+D83D\)"):
        read(path)
    assert read(path, errors="replace") == ["a?"]


def test_csv(tmp_path: Path) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["id", "text"], [1, 'a "quoted",\r\nline'], [2, "x" * 200_000], [3, ""]])
    assert read(write(tmp_path / "a.csv", file.getvalue())) == ['a "quoted",\nline', "x" * 200_000, ""]
    with pytest.raises(UserError, match=r"a.csv has no column 'body', only 'id', 'text'; type --field"):
        read(tmp_path / "a.csv", field="body")
    with pytest.raises(UserError, match=r"a.csv, line \d"):
        read(write(tmp_path / "a.csv", 'text\n"open'))


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a\r\nb", None, "в"], "n": [1, 2, 3]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ["a\nb", "", "в"]
    with pytest.raises(UserError, match="has no column 'body', only 'text', 'n'"):
        read(tmp_path / "a.parquet", field="body")
    with pytest.raises(UserError, match="is not a readable parquet file"):
        read(write(tmp_path / "b.parquet", b"nothing"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"needs pyarrow; type pip install 'rostok\[parquet\]'"):
        read(tmp_path / "a.parquet")


def test_find_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for name in ("b.txt", "a.txt", "d/x.TXT", "d/deep/y.jsonl.gz", "d/picture.png", "note.md"):
        write(tmp_path / name, "x")
    assert find_files(["*.txt", "a.txt"]) == [Path("a.txt"), Path("b.txt")]
    assert find_files(["d"]) == [Path("d/deep/y.jsonl.gz"), Path("d/x.TXT")]
    assert find_files(["note.md", "**/x.*"]) == [Path("note.md"), Path("d/x.TXT")]
    with pytest.raises(UserError, match="no such file: c.txt"):
        find_files(["a.txt", "c.txt"])
    with pytest.raises(UserError, match="the folder empty holds none of .txt"):
        find_files(["empty"])


# --------------------------------------------------------------------------------------------------------- splitting


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path)
    yield spool
    spool.close()


def fill(spool: Spool, texts: list[str]) -> Spool:
    for chunk in whole(texts):
        spool.add(chunk)
    return spool


def parts(spool: Spool) -> dict[str, list[str]]:
    return {split: joined(spool.chunks(split)) for split in ("train", "valid")}


def numbered(count: int) -> list[str]:
    return [f"story number {i}" for i in range(count)]


def test_split_by_hash_is_a_property_of_the_text(spool: Spool, tmp_path: Path) -> None:
    assert fill(spool, numbered(1000)).split(0.1) == "hash"
    first = parts(spool)
    assert 60 < len(first["valid"]) < 140
    assert sorted(first["train"] + first["valid"]) == sorted(numbered(1000))
    expected = [
        t for t in numbered(1000) if hashlib.sha256(t.encode()).digest()[7::-1] < bytes([25, 153, 153, 153])
    ]
    assert first["valid"] == expected
    other = fill(Spool(tmp_path), numbered(3000)[::-1])
    other.split(0.1)
    assert set(first["valid"]) == set(parts(other)["valid"]) & set(numbered(1000))
    other.close()


def test_duplicates_are_dropped_and_counted(spool: Spool) -> None:
    texts = numbered(60)
    fill(spool, texts + texts[:7] + ["", texts[3]]).split(0.2)
    assert (spool.duplicates, spool.empty) == (8, 1)
    both = parts(spool)
    assert len(both["train"] + both["valid"]) == len(set(both["train"] + both["valid"])) == 60
    assert [t for t in texts if t in set(both["train"])] == both["train"], "the first of equals, in order"


def test_pieces_of_a_text_make_one_digest(spool: Spool) -> None:
    for chunk in [("ab", False), ("c", True), ("abc", True), ("a", False), ("bc", True)]:
        spool.add(chunk)
    fill(spool, numbered(30)).split(0.5)
    assert spool.duplicates == 2


def test_given_validation_is_used_as_it_is(spool: Spool) -> None:
    fill(spool, ["held out", "twice", "twice"]).end_of_valid()
    assert fill(spool, ["a", "twice", "b", "a"]).split(0.5) == "given"
    assert parts(spool) == {"train": ["a", "b"], "valid": ["held out", "twice", "twice"]}
    assert spool.duplicates == 2


def test_few_texts_are_split_by_position_at_a_line(spool: Spool) -> None:
    lines = "".join(f"line {i}\n" for i in range(200))
    assert fill(spool, ["first", lines]).split(0.1) == "position"
    both = parts(spool)
    assert both["train"][0] == "first"
    assert both["train"][1] + both["valid"][0] == lines
    assert both["train"][1].endswith("\n")
    assert len(both["valid"][0]) == pytest.approx(0.1 * len(lines), abs=10)


@pytest.mark.parametrize(
    ("text", "train"),
    [("one two three four", "one two "), ("ЁЁЁЁЁЁЁЁ", "ЁЁЁЁЁЁ"), ("abcdefgh", "abcde")],
)
def test_position_without_lines(spool: Spool, text: str, train: str) -> None:
    fill(spool, [text]).split(0.3)
    assert parts(spool)["train"] == [train]
    assert parts(spool)["valid"] == [text.removeprefix(train)]


def test_no_text_and_empty_parts_are_refused(spool: Spool, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the source holds no text"):
        fill(spool, ["", ""]).split(0.1)
    with pytest.raises(
        UserError, match=r"valid part would be empty: 30 texts .*by hash.*--valid-share 0.2 or --valid"
    ):
        fill(spool, numbered(30)).split(0.0001)
    spool.end_of_valid()
    with pytest.raises(UserError, match=r"train part would be empty: 30 texts .*another file"):
        spool.split(0.1)
    one = fill(Spool(tmp_path), ["x"])
    with pytest.raises(UserError, match="would be empty: 1 texts"):
        one.split(0.1)
    one.close()


@pytest.mark.parametrize("pattern", ["qwen2", "gpt2", "cl100k_base", "o200k_base"])
def test_long_text_is_cut_where_no_token_lies_across(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids of the parts are the ids of the whole, under each of the split patterns."""
    import tiktoken

    from rostok.text.tokenizer import QWEN2_PATTERN

    monkeypatch.setattr(sources, "LONG", 40)
    patterns = {
        "qwen2": QWEN2_PATTERN,
        "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        "cl100k_base": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "o200k_base": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    }
    import regex

    split = regex.compile(patterns[pattern])
    assert tiktoken  # the patterns are its own
    rng = np.random.default_rng(0)
    alphabet = np.array(
        [*"abЖя19½ \n  \n", "\n\n", "...", "!\n", "\u0301", "'s", " \n ", "/", "\u4e2d", "\t"]
    )
    for _ in range(60):
        text = "".join(rng.choice(alphabet, 400))
        blocks = [text[i : i + 33] for i in range(0, len(text), 33)]
        chunks = [chunk for chunk, _ in cut_long(blocks)]
        assert "".join(chunks) == text
        assert [t for chunk in chunks for t in split.findall(chunk)] == split.findall(text)
        assert len(chunks) > 1


def test_text_without_any_border_is_cut_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LONG", 300)
    chunks = list(cut_long(["x" * 1000] * 30, limit=5000))
    assert "".join(text for text, _ in chunks) == "x" * 30_000
    assert max(len(text) for text, _ in chunks) <= 6000
    assert [last for _, last in chunks].count(True) == 1
    assert chunks[-1][1]


def test_long_text_goes_through_the_spool_in_parts(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LONG", 1000)
    monkeypatch.setattr(sources, "BLOCK", 777)
    text = "Длинный текст без конца.\n" * 2000
    fill(spool, [text]).split(0.1)
    chunks = list(spool.chunks("train"))
    assert len(chunks) > 20
    assert "".join(parts(spool)["train"] + parts(spool)["valid"]) == text


def test_sample_is_spread_evenly(spool: Spool) -> None:
    fill(spool, numbered(2000)).split(0.05)
    some = list(spool.sample("train", spool.bytes_of("train") // 10))
    assert 170 < len(some) < 210
    numbers = [int(text.split()[-1]) for text in some]
    assert numbers == sorted(numbers)
    assert numbers[0] < 50
    assert numbers[-1] > 1950
    assert len(list(spool.sample("train", 10**9))) == len(spool.ranges["train"])


# ------------------------------------------------------------------------------------------------------- downloading

STORIES = "".join(f"Story {i} of a cat and a dog.\n{MARKER}\n" for i in range(90)).encode()
HELD_OUT = f"A held-out story.\n{MARKER}\nAnother one.\n{MARKER}\n".encode()


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's protocol as a download needs: HEAD and GET with ETag, commit, length, ranges."""

    files = {"train.txt": STORIES, "valid.txt": HELD_OUT}  # noqa: RUF012

    def answer(self, body: bool) -> None:
        raw = self.files.get(self.path.rsplit("/", 1)[-1], b"")
        known = raw and self.path.startswith(f"/datasets/own/stories/resolve/{'1' * 40}/")
        begin = int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
        self.send_response(404 if not known else 206 if begin else 200)
        self.send_header("X-Repo-Commit", "1" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(raw).hexdigest()}"')
        self.send_header("Content-Length", str(len(raw) - begin))
        self.end_headers()
        if body:
            self.wfile.write(raw[begin:])

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def prepare_from_hub(
    tmp_path: Path, endpoint: str, size: int = len(STORIES)
) -> subprocess.CompletedProcess[str]:
    """`prepare.py --source tinystories --stories 40` in a process of its own, the data set exchanged for a tiny one."""
    code = f"""
import prepare, rostok.text.sources as c
from rostok.errors import run_main
train = c.HubFile("train.txt", {size}, "{hashlib.sha256(STORIES).hexdigest()}")
valid = c.HubFile("valid.txt", {len(HELD_OUT)}, "{hashlib.sha256(HELD_OUT).hexdigest()}")
c.TINYSTORIES = c.HubDataset("own/stories", "{"1" * 40}", train, valid)
words = ["--source", "tinystories", "--stories", "40", "--vocab", "280", "--out", {str(tmp_path / "out")!r}, "--json"]
raise SystemExit(run_main(prepare.main, words))
"""
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    env |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    env.pop("HF_HUB_OFFLINE", None)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_tinystories_from_a_hub(tmp_path: Path, hub: str) -> None:
    """Downloaded, checked, cut to the first 40 stories, its own validation file used; then once more without a hub."""
    done = prepare_from_hub(tmp_path, hub)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["train"]["texts"], summary["valid"]["texts"], summary["split_by"]) == (40, 2, "given")
    (tmp_path / "out" / "manifest.json").unlink()
    for file in (tmp_path / "out").iterdir():
        file.unlink()
    again = prepare_from_hub(tmp_path, "http://127.0.0.1:9")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["train"] == summary["train"]


def test_wrong_file_from_the_hub_is_refused(tmp_path: Path, hub: str) -> None:
    done = prepare_from_hub(tmp_path, hub, size=len(STORIES) + 1)
    assert done.returncode == 2
    assert f"train.txt has {len(STORIES)} bytes" in done.stderr
    assert "delete it and start again" in done.stderr
    assert not (tmp_path / "out").exists()


def test_offline_is_one_line_at_once(tmp_path: Path) -> None:
    started = time.monotonic()
    done = prepare_from_hub(tmp_path, "http://127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr.startswith("error: train.txt of own/stories could not be downloaded")
    assert done.stderr.endswith("connect once, or stay offline with --source stories\n")
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - started < 30
