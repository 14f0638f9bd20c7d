"""The built-in stories: reproducible, all different, right in grammar (checked without the frames)."""

import hashlib
import inspect
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from rostok.errors import UserError
from rostok.text.stories import plots as stories_module
from rostok.text.stories import teller
from rostok.text.stories.plots import PLOTS, generate_stories, main, make_story, measure
from rostok.text.stories.teller import TABLES, Story, Words, polish, read_sections, words

COUNT = 70 * len(PLOTS)
FIRST_THREE = "bf99a663ef4a313bf5a87b6f5efed5f9a4816fdb09ced7886df7d33bf27bab39"


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    """70 stories of each plot."""
    plots = list(PLOTS)
    return [make_story(7, i, plots[i % len(plots)]) for i in range(COUNT)]


@pytest.fixture(scope="module")
def texts(stories) -> list[str]:
    return [str(story) for story in stories]


def sentences(text: str) -> list[str]:
    return re.split(r'(?<=[.!?"]) |\n', re.sub(r"\b(Mrs?)\.", r"\1", text))


def found(pattern: str, texts: list[str]) -> list[str]:
    """Where the pattern occurs, with a little of the text around it."""
    return [t[max(0, m.start() - 40) : m.end() + 20] for t in texts for m in re.finditer(pattern, t)]


# ---- reproducible ------------------------------------------------------------------------------------------


def test_first_stories_are_the_same_for_ever():
    """If this fails, a change of words or plots has changed every built-in corpus: say so in the notes."""
    text = "\n\n".join(generate_stories(3, seed=0))
    assert hashlib.sha256(text.encode()).hexdigest() == FIRST_THREE


def test_a_story_depends_on_seed_and_number_alone():
    forward = [str(make_story(5, i)) for i in range(20)]
    assert [str(make_story(5, i)) for i in reversed(range(20))] == forward[::-1]
    assert list(generate_stories(20, seed=5)) == forward
    assert list(generate_stories(20, seed=6)) != forward


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_hash_seed_does_not_matter(hash_seed):
    code = "from rostok.text.stories.plots import *; print('\\n\\n'.join(generate_stories(40, 3)), end='')"
    env = os.environ | {"PYTHONHASHSEED": hash_seed}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert out.stdout.decode().replace("\r", "") == "\n\n".join(generate_stories(40, 3))


def test_no_two_stories_are_equal(texts):
    assert len(set(texts)) == COUNT


# ---- grammar -----------------------------------------------------------------------------------------------


def test_a_and_an(texts):
    # "a useful", "a unicorn", "a ukulele": a vowel on paper, a consonant in the ear
    assert not found(r"\b[Aa] (?!unicorn|useful|ukulele|one\b)[aeiouAEIOU]\w*", texts)
    assert not found(r"\b[Aa]n (?!hour|honest)[^aeiouAEIOU]\w*", texts)
    assert polish("a egg. it is a honest man") == "An egg. It is an honest man"


def test_pronouns_agree(stories, texts):
    """In a story whose people are all girls and women nobody is "he", and the other way around."""
    checked = Counter()
    for story, text in zip(stories, texts, strict=True):
        pronouns = {forms["he"] for forms in story.cast.values() if "he" in forms}
        if len(pronouns) == 1:
            (pronoun,) = pronouns
            wrong = "he|him|his|himself" if pronoun == "she" else "she|her|hers|herself"
            assert not found(rf"(?i)\b({wrong})\b", [text])
            checked[pronoun] += 1
    assert min(checked["he"], checked["she"]) > 50


def test_marks_and_spaces(texts):
    assert not found(r"[{}\[\]|]", texts), "left over from a frame"
    assert not found(r"  | \n|\n | [,.!?;:]|[,.!?][,.]", texts)
    assert not found(r"\b(\w+) \1\b", texts)
    assert all(text.isascii() and text.count('"') % 2 == 0 for text in texts)
    assert not [text for text in texts if not re.search(r'[.!?]"?$', text)]


def test_sentences_begin_with_capitals(texts):
    assert not found(r'^"?[a-z]|\n"?[a-z]|(?<!Mr)(?<!Mrs)\. "?[a-z]|[!?] [a-z]|\." [a-z]', texts)
    assert found(r'[!?]" [a-z]', texts), "a question in quotation marks does not end the sentence"


def test_past_tense(texts):
    """No bare stems after a subject: "she walk", "he go"."""
    rows = [row for section in read_sections("verbs") for row in words().tables[section]]
    stems = "|".join(sorted({row[0].split()[0] for row in rows} - {row[1].split()[0] for row in rows}))
    told = [re.sub(r'"[^"]*"', '""', text) for text in texts]
    assert not found(rf"\b([Hh]e|[Ss]he) ({stems})\b", told)


# ---- content -----------------------------------------------------------------------------------------------


def test_what_is_planted_comes_back(stories, texts):
    for story, text in zip(stories, texts, strict=True):
        word = rf"\b{re.escape(story.planted)}\b"
        where = [i for i, sentence in enumerate(sentences(text)) if re.search(word, sentence)]
        assert where, text
        assert where[-1] - where[0] >= 2, text


def test_the_song_comes_back_word_for_word(stories, texts):
    """Every story has a song of its own; most sing it again."""
    songs = [polish(story.cast["g"][""])[1:] for story in stories]
    times = [text.count(song) for text, song in zip(texts, songs, strict=True)]
    assert min(times) >= 1
    assert sum(n >= 2 for n in times) > COUNT / 2
    assert len(set(songs)) > 0.9 * COUNT


def test_what_is_lost_is_found_where_it_was_left():
    for i in range(100):
        story = make_story(2, i, "lost")
        spot = re.sub(r"\b(the|an?) ", "(the|an?) ", story.cast["t"]["where"])
        assert len(re.findall(rf"(?i)\b{spot}\b", str(story))) == 2, (spot, str(story))


def test_invented_names_stay_whole(stories, texts):
    """Whoever is called Zorbin Plax is called Zorbin or Zorbin Plax, and nobody else is."""
    two_parts = 0
    for story, text in zip(stories, texts, strict=True):
        for being in (story.hero, story.friend):
            last = being.forms["full"].removeprefix(being.call).strip()
            assert set(re.findall(rf"\b{being.call} ([A-Z][a-z]+)", text)) <= {last}, text
            two_parts += bool(last)
    assert two_parts > COUNT / 4


def test_nobody_hands_over_what_is_not_held():
    story = make_story(0, 0)
    thing = story.thing("t")
    story.give(thing, story.hero)
    with pytest.raises(AssertionError, match="does not hold"):
        story.give(thing, story.elder, story.friend)


def test_variety(texts):
    figures = measure(texts)
    assert len(PLOTS) >= 12
    assert figures["equal stories"] == 0
    assert 120 <= figures["median words"] <= 220
    assert figures["word forms in lower case"] >= 2000
    assert 6.9 <= figures["word entropy, bits"] <= 10.3  # within 20 % of TinyStories
    assert 0.245 <= figures["gzip ratio"] <= 0.366


# ---- word lists --------------------------------------------------------------------------------------------

FILES = (*TABLES, "lists", "names", "frames", "plots")


def test_sections_have_names_of_their_own():
    heads = Counter(section for name in FILES for section in read_sections(name))
    assert max(heads.values()) == 1, heads.most_common(3)


def test_word_lists_are_tidy():
    for name in FILES:
        for section, lines in read_sections(name).items():
            assert lines, f"{name}: @{section} is empty"
            assert len(set(lines)) == len(lines), f"{name}: a line of @{section} is there twice"
            assert not [line for line in lines if "  " in line], f"{name}: two blanks in @{section}"
            assert all(line.count("[") == line.count("]") for line in lines), f"{name}: @{section}"
    for section in read_sections("lists") | read_sections("names"):
        items = words().items[section]
        assert len(items) == len(set(items)), f"@{section}: {Counter(items).most_common(1)} is there twice"


def test_tables_have_full_rows():
    for section, rows in words().tables.items():
        assert len({len(row) for row in rows}) == 1, section
        assert len({row[0] for row in rows}) == len(rows), f"@{section}: a word is there twice"
        assert all(cell for row in rows for cell in row), section


def test_every_section_is_used():
    """Lists and frames that nothing asks for are dead."""
    sources = [line for name in FILES for lines in read_sections(name).values() for line in lines]
    for module in (stories_module, teller):
        sources.append(inspect.getsource(module))
    source = "\n".join(sources)
    built = ("look.", "weather.", "day.", "detail.", "tail.", "tint.", "call", "answer")  # "look." + sort
    for name in ("lists", "frames", "plots"):
        for section in read_sections(name):
            assert section.startswith(built) or re.search(rf"""[{{"'?]{section}[}}"']""", source), section


def test_unknown_word_list_is_named():
    with pytest.raises(ValueError, match=r"'nonsense', in the frame"):
        Words().compile("a {nonsense} word")


# ---- command -----------------------------------------------------------------------------------------------


def test_command_prints_and_measures(capsys, tmp_path):
    reference = tmp_path / "real.txt"
    reference.write_text("One day a cat sat.\n<|endoftext|>\nThe end came.\n", encoding="utf-8")
    main(["--count", "2", "--seed", "9", "--plot", "lost"])
    assert capsys.readouterr().out.count("\n\n") == 2
    main(["--count", "30", "--measure", "--reference", str(reference)])
    out = capsys.readouterr().out
    assert "MB/s" in out
    assert "reference" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [(["--count", "0"], "--count 0"), (["--measure", "--reference", "no.txt"], "no such file")],
)
def test_command_errors(argv, message):
    with pytest.raises(UserError, match=message):
        main(argv)
