"""The built-in stories, in the language that a run's tokenizer spells best, and a note on texts of another language.

stories_of(subject, "name")["opening"]          # from rostok/attention/words/LANG.yaml
note_letters(subject, text, "en")               # one line on stderr where a word takes more than 2.5 tokens
"""

from typing import Any

from rostok.attention.heads.capture import Subject
from rostok.attention.languages import LANGUAGES, say, section
from rostok.runs import remark
from rostok.text.tokenizer import Tokenizer

MOST_TOKENS = 2.5  # per word; a tokenizer that learned a text's language needs about 1.3


def tokens_per_word(tokenizer: Tokenizer, text: str) -> float:
    return len(tokenizer.encode(text)) / max(1, len(text.split()))


def sample(lang: str) -> str:
    """Some sentences of a language."""
    story = section(lang, "stories")["name"]
    return story["opening"] + "".join(story["filler"])


def language_of(tokenizer: Tokenizer) -> str:
    """The language whose built-in story takes the fewest tokens per word."""
    return min(LANGUAGES, key=lambda lang: tokens_per_word(tokenizer, sample(lang)))


def stories_of(subject: Subject, kind: str) -> dict[str, Any]:
    """The stories of a kind, "name" or "pronoun", in the language of the run."""
    return section(language_of(subject.tokenizer), "stories")[kind]


def note_letters(subject: Subject, text: str, lang: str) -> None:
    """Say on stderr that a text is spelled nearly letter by letter, where it is."""
    ratio = tokens_per_word(subject.tokenizer, text)
    if ratio > MOST_TOKENS:
        remark("note     " + say(lang, "common", "letters", name=subject.name, ratio=ratio))
