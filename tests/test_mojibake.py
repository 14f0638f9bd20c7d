"""Mojibake: found, repaired, and not seen where text of some language is in order."""

import pytest

from rostok.text.mojibake import is_mojibake, repair

WHOLE = ["“Café” – it’s £5, …", "Ёж и уж", "naïve façade à côté", "100 € ™ 🙂", "¡Señor! «Ça»"]


@pytest.mark.parametrize("text", WHOLE)
def test_what_another_encoding_made_is_undone(text: str) -> None:
    raw = text.encode()
    latin = raw.decode("latin-1")
    assert is_mojibake(latin)
    assert repair(latin) == text
    windows = "".join(
        bytes([b]).decode("cp1252") if b not in b"\x81\x8d\x8f\x90\x9d" else chr(b) for b in raw
    )
    assert repair(windows) == text
    assert not is_mojibake(text)
    assert not is_mojibake("plain text")


@pytest.mark.parametrize(
    "text", ["AMANHÃ” – fim", "l’été « voilà » ", "ĐÀ NẴNG, CÂU", "Ðá Ñu", "IRMÃ…", "château”…"]
)
def test_ordinary_text_is_not_mojibake(text: str) -> None:
    assert not is_mojibake(text)


def test_a_lost_last_byte_is_the_closing_quotation_mark() -> None:
    assert repair("â€œNo!â€ said Tom. â€œYesâ€\n") == "“No!” said Tom. “Yes”\n"


def test_real_text(shared_data) -> None:
    """The held-out TinyStories have 51 such texts, the training file none; no other language is taken for it."""
    count = lambda name: sum(map(is_mojibake, (shared_data / name).read_text("utf-8").split("<|endoftext|>")))  # noqa: E731
    assert count("tinystories-valid.txt") == 51
    for name in (
        "tinystories-train.txt",
        "tinystories-ru-valid.txt",
        "wikitext-2-valid.txt",
        "fairytales-valid.txt",
    ):
        assert count(name) == 0
