"""The tokenizer against Hugging Face's own code, id for id; ◆; published encodings without a network."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
import tiktoken
import tiktoken.load
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from rostok.errors import UserError
from rostok.text.tokenizer import QWEN2_PATTERN, START, Tokenizer, load_tokenizer, train_tokenizer

TEXTS = [
    "Once upon a time there was a little fox. The little fox had a red ball, and the ball was lost.",
    "\u201cThank you!\u201d said the fox. \u201cYou\u2019re welcome,\u201d said the owl \u2014 and they\u2019ll play.",
    "Жила-была маленькая зайчиха по имени Пушинка. Пушинка очень любила прыгать!",
    "caf\u00e9 cafe\u0301 \u00e2\u20ac\u0153mojibake\u00e2\u20ac\u2122 123 4567\n\n  x\t\r\ny",
    "\U0001f98a \U0001f468\u200d\U0001f469\u200d\U0001f467",
]


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return train_tokenizer(TEXTS * 3, 420)


def hf(tokenizer: Tokenizer, folder: Path) -> tokenizers.Tokenizer:
    """The saved file opened by Hugging Face's library, a literal ◆ being text there too."""
    other = tokenizers.Tokenizer.from_file(str(tokenizer.save(folder)))
    other.encode_special_tokens = True
    return other


@pytest.mark.parametrize("text", [*TEXTS, "", " ", "\n", f"a {START} b{START}", "\x00\x7f", "a" * 1000])
def test_same_ids_as_hugging_face(ours: Tokenizer, tmp_path: Path, text: str) -> None:
    ids = ours.encode(text)
    assert ids == hf(ours, tmp_path).encode(text).ids
    assert ours.decode(ids) == text
    assert b"".join(ours.token_bytes(i) for i in ids) == text.encode()


def test_same_ids_on_real_text(shared_data: Path, tmp_path: Path) -> None:
    """Every file, 100 kB from its head and 100 kB before its end: English, Russian, quotes, mojibake, lone \\r."""
    texts: dict[str, list[str]] = {}
    for file in sorted(shared_data.glob("*.txt")):
        raw = file.read_bytes()
        places = (*range(0, 100_000, 20_000), *range(-100_000, 0, 20_000))
        parts = [raw[i:][:20_000] for i in places]
        texts[file.name] = [part.decode(errors="ignore") for part in parts]
    ours = train_tokenizer((part for parts in texts.values() for part in parts[::5]), 2000)
    other = hf(ours, tmp_path)
    for name, parts in texts.items():
        for part, expected in zip(parts, other.encode_batch_fast(parts), strict=True):
            assert ours.encode(part) == expected.ids, name
            assert ours.decode(expected.ids) == part, name


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60))
def test_any_text_comes_back(text: str) -> None:
    tokenizer = _CACHED()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def _CACHED(made: list[Tokenizer] = []) -> Tokenizer:  # noqa: B006 (made once for all examples)
    if not made:
        made.append(train_tokenizer(TEXTS * 3, 420))
    return made[0]


def test_layout_of_the_ids(ours: Tokenizer) -> None:
    assert ours.start_id == 0
    assert ours.token_bytes(0) == START.encode()
    assert {ours.token_bytes(i) for i in range(1, 257)} == {bytes([b]) for b in range(256)}
    assert ours.vocab_size == 420 == ours.encoding.n_vocab
    assert ours.name == "bpe-420"


def test_literal_start_is_ordinary_text(ours: Tokenizer) -> None:
    text = f"the fox wrote {START} on a wall"
    assert 0 not in ours.encode(text)
    with ThreadPoolExecutor(2) as pool:
        arrays = ours.encode_arrays([text] * 100, pool)
    assert [ids.tolist() for ids in arrays] == ours.encode_batch([text] * 100, threads=2)


def test_file_marks_start_as_special(ours: Tokenizer, tmp_path: Path) -> None:
    """An exported run's tokenizer reads `<|endoftext|>` as ◆, as every other system does with this file."""
    assert tokenizers.Tokenizer.from_file(str(ours.save(tmp_path))).encode(START).ids == [0]


def test_pattern_is_the_one_of_qwen2() -> None:
    transformers = pytest.importorskip("transformers.models.qwen2.tokenization_qwen2")
    assert transformers.PRETOKENIZE_REGEX == QWEN2_PATTERN


def test_saved_and_loaded_is_the_same(ours: Tokenizer, tmp_path: Path) -> None:
    file = ours.save(tmp_path)
    for where in (tmp_path, file, str(file)):
        again = load_tokenizer(where)
        assert (again.sha256, again.vocab_size, again.name) == (ours.sha256, ours.vocab_size, ours.name)
        assert again.encode(TEXTS[1]) == ours.encode(TEXTS[1])
    assert again.save(tmp_path / "copy").read_bytes() == file.read_bytes()
    assert list(tmp_path.glob("*.tmp")) == []


def test_training_twice_gives_the_same_file() -> None:
    assert train_tokenizer(TEXTS, 400).sha256 == train_tokenizer(iter(TEXTS), 400).sha256


def test_small_text_gives_a_small_vocabulary() -> None:
    tokenizer = train_tokenizer(["ab ab"], 5000)
    assert 257 <= tokenizer.vocab_size < 300


def test_half_a_letter_is_decoded_as_replacement(ours: Tokenizer) -> None:
    byte = next(i for i in range(257) if ours.token_bytes(i) == b"\xd0")
    assert ours.decode([byte]) == "\ufffd"


def test_too_small_a_vocabulary_is_refused() -> None:
    with pytest.raises(UserError, match="vocabulary of 200 is too small"):
        train_tokenizer(TEXTS, 200)


def test_unknown_name_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no tokenizer at gpt-nine.*cl100k_base.*gpt2"):
        load_tokenizer("gpt-nine")


@pytest.mark.parametrize("text", ["not json", "[1]", "{}", '{"model": {"vocab": {}, "merges": []}}'])
def test_foreign_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=r"is not a (tokenizer file|byte-level BPE)"):
        load_tokenizer(tmp_path)


def test_other_special_tokens_are_refused(ours: Tokenizer, tmp_path: Path) -> None:
    data = json.loads(ours.save(tmp_path).read_text(encoding="utf-8"))
    data["added_tokens"].append(data["added_tokens"][0] | {"content": "<pad>", "id": 420})
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match="only special token"):
        load_tokenizer(tmp_path)


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize("error", [requests.ConnectionError("no route\nto host"), requests.Timeout("slow")])
def test_published_name_without_network(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """C11: one line, at once, and the download had a time limit."""
    limits: list[object] = []

    def get(url: str, timeout: object = None) -> None:
        limits.append(timeout)
        raise error

    monkeypatch.setattr(requests, "get", get)
    original, started = tiktoken.load.read_file, time.monotonic()
    with pytest.raises(UserError, match=r"gpt2 is not in its cache.*TIKTOKEN_CACHE_DIR") as caught:
        load_tokenizer("gpt2")
    assert limits == [(5, 30)]
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 5
    assert tiktoken.load.read_file is original


@pytest.mark.usefixtures("no_cache")
def test_corrupt_download_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = requests.Response()
    answer.status_code, answer._content = 200, b"a login page"
    monkeypatch.setattr(requests, "get", lambda url, timeout: answer)
    with pytest.raises(UserError, match="Hash mismatch"):
        load_tokenizer("gpt2")


def test_published_encoding_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in of two ids behind a hole: a vocabulary need not be dense, ◆ need not be 0."""
    ranks = {bytes([b]): b for b in range(256)}
    special = {START: 300}
    made = tiktoken.Encoding("gpt2", pat_str=QWEN2_PATTERN, mergeable_ranks=ranks, special_tokens=special)
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "gpt2", made)
    tokenizer = load_tokenizer("gpt2")
    assert (tokenizer.name, tokenizer.start_id, tokenizer.vocab_size) == ("gpt2", 300, 301)
    assert tokenizer.decode([104, 299, 105]) == "hi"
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).sha256 == tokenizer.sha256
