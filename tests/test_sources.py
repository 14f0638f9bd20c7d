"""Reading files of every kind as chunks of text."""

import csv
import gzip
import io
import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import joined
from rostok.errors import UserError
from rostok.text import reading
from rostok.text.sources import ReadOptions, find_files, read_chunks, split_at_marker, trim

MARKER = "<|endoftext|>"


def read(path: Path, **options: str) -> list[str]:
    return joined(read_chunks(path, ReadOptions(**options)))


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_texts_between_markers(tmp_path: Path) -> None:
    """Only a line of its own is a marker; trailing markers make no empty text."""
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
def test_chunks_do_not_depend_on_the_blocks(text: str, cuts: list[int]) -> None:
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


def test_bad_bytes_name_file_and_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = "Ёж".encode() + b"ab\xffc" + "ё".encode()[:1]
    path = write(tmp_path / "bad.txt", raw)
    for block in (1, 2, 3, 5, 1 << 20):
        monkeypatch.setattr(reading, "BLOCK", block)
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
    with pytest.raises(
        UserError, match=r"a.csv, line 3 has more cells than the header; put a text that holds"
    ):
        read(write(tmp_path / "a.csv", "id,text\n1,short\n2,hello, world\n"))
    with pytest.raises(UserError, match="several columns 'text'"):
        read(write(tmp_path / "a.csv", "text,text\na,b\n"))
    with pytest.raises(UserError, match=r"a.csv, line \d"):
        read(write(tmp_path / "a.csv", 'text\n"open'))


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a\r\nb", None, "в"], "n": [1, 2, 3]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ["a\nb", "", "в"]
    with pytest.raises(UserError, match="has no column 'body', only 'text', 'n'"):
        read(tmp_path / "a.parquet", field="body")
    raw = pa.array([b"caf\xe9", b"b\xd0\xb2"])
    for kind in (pa.string(), pa.large_string()):
        strings = raw.cast({pa.string(): pa.binary()}.get(kind, pa.large_binary())).view(kind)
        pq.write_table(pa.table({"text": strings}), tmp_path / "c.parquet")
        with pytest.raises(
            UserError, match=r"c.parquet: byte 0xe9 at offset 3 is not UTF-8.*--errors replace"
        ):
            read(tmp_path / "c.parquet")
        assert read(tmp_path / "c.parquet", errors="replace") == ["caf\ufffd", "bв"]
    pq.write_table(pa.table({"text": [0, 1]}), tmp_path / "d.parquet")
    with pytest.raises(UserError, match="has a int in the field"):
        read(tmp_path / "d.parquet")
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
