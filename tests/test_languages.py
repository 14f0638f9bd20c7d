"""The words of attend.py: every language has all of them, with the same blanks to fill."""

import re
import string

import pytest

from rostok.attention.languages import LANGUAGES, missing, say, section, words


def blanks(text: str) -> list[str]:
    return sorted(f"{name}:{form}" for _, name, form, _ in string.Formatter().parse(text) if name is not None)


def texts(tree: object) -> list[str]:
    if isinstance(tree, dict):
        return [text for key in sorted(tree) for text in texts(tree[key])]
    return [text for item in tree for text in texts(item)] if isinstance(tree, list) else [str(tree)]


def test_english_and_russian_are_there() -> None:
    assert {"en", "ru"} <= set(LANGUAGES)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_nothing_is_missing_in_a_language(lang: str) -> None:
    assert missing(lang) == []
    for english, own in zip(texts(words("en")), texts(words(lang)), strict=True):
        assert blanks(english) == blanks(own)


def test_a_hole_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(words("ru")["explain"], "mask")
    assert missing("ru") == ["/explain/mask"]


def test_a_text_is_filled_in_and_common_words_are_in_every_section() -> None:
    assert re.fullmatch(r"saved a\.png", say("en", "explain", "saved", "a.png"))
    assert section("ru", "forming")["layer"] == "слой"
