"""The spool: every text once, duplicates dropped, split in two by hash or by position, long texts cut."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conftest import joined
from rostok.errors import UserError
from rostok.text import spool as spools
from rostok.text.shards import whole
from rostok.text.spool import Spool, cut_long


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


def test_chunks_of_a_text_make_one_digest(spool: Spool) -> None:
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
    [("one two three four", "one two three "), ("ЁЁЁЁЁЁЁЁ", "ЁЁЁЁЁЁ"), ("abcdefgh", "abcde")],
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
    with pytest.raises(
        UserError, match=r"train part would be empty: all 30 texts are in the files of --valid"
    ):
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

    monkeypatch.setattr(spools, "LONG", 40)
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
    monkeypatch.setattr(spools, "LONG", 300)
    chunks = list(cut_long(["x" * 1000] * 30, limit=5000))
    assert "".join(text for text, _ in chunks) == "x" * 30_000
    assert max(len(text) for text, _ in chunks) <= 6000
    assert [last for _, last in chunks].count(True) == 1
    assert chunks[-1][1]


def test_long_text_goes_through_the_spool_in_parts(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "LONG", 1000)
    monkeypatch.setattr(spools, "BLOCK", 777)
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
