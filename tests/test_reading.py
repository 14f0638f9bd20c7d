"""Text from outside: UTF-8 whatever the locale, line ends as one, bad bytes and half characters refused."""

import io
from pathlib import Path

import pytest

from rostok.errors import UserError
from rostok.text import reading
from rostok.text.reading import check_text, decode, read_line, read_text, typed


def test_line_ends_and_byte_order_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the border of a block goes through "\\r\\n" or a letter; a lone "\\r" is text."""
    raw = "\ufeffa\r\nб\ufeff\r\n\rc\r".encode()
    for block in range(1, 9):
        monkeypatch.setattr(reading, "BLOCK", block)
        assert "".join(decode(io.BytesIO(raw), "x")) == "a\nб\ufeff\n\rc\r"


def test_a_file_standard_input_and_a_word_give_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a locale of ASCII too: bytes are read, not what Python made of them."""
    raw, text = "\ufeffкот\r\ncafé".encode(), "кот\ncafé"
    (tmp_path / "a.txt").write_bytes(raw)
    assert read_text(tmp_path / "a.txt") == text
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="ascii"))
    assert read_text("-") == text
    assert typed("кот\r\ncafé", "--prompt") == text
    stream = io.BytesIO(raw + b"\n\n")
    assert [read_line(stream) for _ in range(4)] == ["кот", "café", "", None]


def test_bad_bytes_are_refused_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"abc\xe9")
    with pytest.raises(UserError, match=r"a.txt: byte 0xe9 at offset 3 is not UTF-8 .*; convert it"):
        read_text(tmp_path / "a.txt")
    with pytest.raises(UserError, match="--prompt: byte 0xe9 at offset 3 is not UTF-8"):
        typed("caf\udce9", "--prompt")
    with pytest.raises(UserError, match="standard input: byte 0xff at offset 0"):
        read_line(io.BytesIO(b"\xff\n"))
    with pytest.raises(UserError, match=r"line 3: a text holds half a character \(U\+D83D\)"):
        check_text("a\ud83d", "line 3")
    with pytest.raises(UserError, match=r"none.txt cannot be read \(No such file"):
        read_text(tmp_path / "none.txt")
