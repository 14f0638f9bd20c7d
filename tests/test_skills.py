"""Skills: the set is fixed, the scoring exact, the truth the world's."""

import dataclasses
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from measured import V, naive_nats, tiny

from rostok.errors import UserError
from rostok.measuring.ngrams import fit_ngrams, joined
from rostok.measuring.skills.ask import chosen_items
from rostok.measuring.skills.items import Item, hash_of, read_items, write_items
from rostok.measuring.skills.scoring import Found, Pair, count_pairs, encode_item, encode_items, score_pairs
from rostok.measuring.skills.sets import SETS, make_items
from rostok.measuring.skills.shares import paired_interval, share_interval
from rostok.measuring.skills.table import show_items, skills_csv, skills_text, tabulate_skills
from rostok.measuring.skills.world import frames, sections
from rostok.text.stories.plots import generate_stories
from rostok.text.stories.teller import words
from rostok.text.tokenizer import Tokenizer, load_tokenizer, train_tokenizer

MASCULINE = ("Петя", "Ваня", "Миша", "Коля", "Дима", "Вова", "Гриша", "Федя", "Боря", "Сеня")
TEXTS = ["Tom had a red ball.", "Mia had a blue kite.", "Who had the ball? Tom had it."]


@pytest.fixture(scope="module")
def sets() -> dict[str, list[Item]]:
    return {which: make_items(which, each=67) for which in SETS}


def test_a_set_is_large_enough_and_the_same_each_time(sets) -> None:
    for which, items in sets.items():
        counts = Counter((item.skill, item.grade) for item in items)
        assert len(SETS[which][1]) >= 12
        assert len(counts) == 3 * len(SETS[which][1])
        assert set(counts.values()) == {67}
        assert len(set(items)) == len(items)
        assert all(item.good != item.bad and item.good[0] == item.bad[0] == " " for item in items)
        assert hash_of(make_items(which, each=3)) == hash_of(make_items(which, each=3))
        assert hash_of(make_items(which, seed=1, each=3)) != hash_of(make_items(which, each=3))


def test_every_skill_has_200_pairs_of_equal_length() -> None:
    """Under the tokenizer of the shipped runs, and under one made as the quickstart's is, from fewer stories."""
    enough("tinystories", load_tokenizer(Path(__file__).parent.parent / "checkpoints" / "rostok-mini"))
    enough("stories", train_tokenizer(generate_stories(2000, 1), 4096))


def test_every_russian_skill_has_200_pairs_of_equal_length(shared_data: Path) -> None:
    text = (shared_data / "tinystories-ru-valid.txt").read_text(encoding="utf-8")
    enough("russian", train_tokenizer(text.split("<|endoftext|>"), 4096))


def enough(which: str, tokenizer: Tokenizer) -> None:
    items = chosen_items(which, tokenizer)
    equal = [encode_item(item, tokenizer).equal for item in items]
    counts = Counter((item.skill, item.grade) for item, alike in zip(items, equal, strict=True) if alike)
    assert set(counts.values()) == {80}
    assert len(counts) == 3 * len(SETS[which][1])
    others = Counter((item.skill, item.grade) for item, alike in zip(items, equal, strict=True) if not alike)
    assert max(others.values()) == 20


def test_russian_endings_agree(sets) -> None:
    """Who acts in the true choice has the gender of the name; what is taken is in the accusative."""
    for item in sets["russian"]:
        words = re.findall(r"[а-яёА-ЯЁ]+", item.prefix)
        if item.skill == "verb":
            actor = next(word for word in words[1:] if word[0].isupper())
            assert (item.good[-1] == "а") == (actor[-1] in "ая" and actor not in MASCULINE), item
        elif item.skill == "case":
            assert (item.good[-2], item.bad[-2]) == ("у", "а"), item
        elif item.skill == "number":
            noun = next(word for word in words if word not in ("Утром", "В", "тот", "день", "Сначала"))
            assert (item.good == " были") == (noun[-1] in "ыи"), item


def test_which_choice_is_true_cannot_be_told_from_the_choices_alone(sets) -> None:
    """Where the two choices come from one list, each is the true one about equally often, early or late in the text."""
    for skill in ("owner", "holder", "swap", "where", "lost", "color", "speaker", "food"):
        items = [item for item in sets["tinystories"] if item.skill == skill]
        later = np.mean(
            [item.prefix.rfind(item.good.strip()) > item.prefix.rfind(item.bad.strip()) for item in items]
        )
        assert 0.2 < later < 0.8, skill


def test_truth_of_swaps_and_gifts_by_replaying_the_text(sets) -> None:
    """An independent reader of the text: who had what, and what was handed over."""
    for item in [item for item in sets["tinystories"] if item.skill == "swap"]:
        sentences = item.prefix.split(". ")
        first, second = sentences[0].split()[0], sentences[1].split()[0]
        if " and " in sentences[0]:  # "X came with a red ball, and Y came with a blue kite"
            second = sentences[0].split(", and ")[1].split()[0]
        asked = item.prefix.split(" the ")[-1].split()[0]
        swaps = item.prefix.count("swapped") + item.prefix.count("traded")
        had_first = item.prefix.index(f" {asked}") < item.prefix.index(second)
        truth = first if had_first == (swaps % 2 == 0) else second
        assert item.good.strip() == truth, item
    for item in [item for item in sets["tinystories"] if item.skill == "holder"]:
        handed = [s for s in item.prefix.split(". ") if " gave the " in s or " got the " in s]
        last = handed[-1].rstrip(".").split()
        taker = last[-1] if "gave" in last else last[last.index("got") - 1]
        assert item.good.strip() == taker, item


def test_no_frame_is_one_of_the_stories_for_training() -> None:
    known = {str(frame) for section in words().frames.values() for frame in section}
    own = [frame for section in frames("frames").values() for frame in section]
    assert own
    assert not [frame for frame in own if str(frame) in known and len(str(frame)) > 30]


def test_no_frame_is_met_in_stories_for_training() -> None:
    """Every frame with enough words of its own as a pattern, anything in its gaps: not in 400 of those stories."""
    text = "\n".join(generate_stories(400, 1))
    tried = 0
    for line in (line for lines in sections("frames").values() for line in lines):
        gaps = re.sub(r"\\{[^}]*\\}", r"[\\w' ]{1,30}", re.escape(line))
        pattern = gaps.replace(r"\[", "(?:").replace(r"\]", ")").replace(r"\|", "|")
        if sum(map(str.isalpha, re.sub(r"\{[^}]*\}|\[[^]]*\]", "", line))) >= 15:
            tried += 1
            assert not re.search(pattern, text), line
    assert tried > 40


def pairs_of(pairs: list[tuple[list[int], list[int], int, int]]) -> list[Pair]:
    return [Pair(good, bad, a, b, 3, 3) for good, bad, a, b in pairs]


def test_scores_equal_one_call_a_token_and_exchanged_pairs_give_the_complement() -> None:
    rng = np.random.default_rng(0)
    drawn = []
    for k in range(25):  # an odd number: without ties a half is impossible
        prefix = [0, *rng.integers(1, V, 3 + k % 9).tolist()]
        n = int(rng.integers(1, 4))
        drawn.append(
            ([*prefix, *rng.integers(1, V, n).tolist()], [*prefix, *rng.integers(1, V, n).tolist()], n, n)
        )
    model, pairs = tiny(16), pairs_of(drawn)
    found = score_pairs(model, pairs, 16)
    for k, (good, _, n, _) in enumerate(drawn):
        expected = sum(naive_nats(model, good[:i], good[i]) for i in range(len(good) - n, len(good)))
        assert found.good[k] == pytest.approx(expected, rel=1e-5)
    turned = score_pairs(model, [dataclasses.replace(p, good=p.bad, bad=p.good) for p in pairs], 16)
    assert (turned.right == 1 - found.right).all()
    assert found.right.mean() != 0.5


def test_equal_logits_give_exactly_one_half() -> None:
    model = tiny(16, tied=False)
    assert model.head is not None
    torch.nn.init.zeros_(model.head.weight)
    pairs = pairs_of([([0, 1, 2, 3], [0, 1, 4, 5], 2, 2), ([0, 7], [0, 8], 1, 1)])
    found = score_pairs(model, pairs, 16)
    assert found.right.tolist() == [0.5, 0.5]
    assert found.good == pytest.approx([2 * math.log(V), math.log(V)])


def test_a_long_item_keeps_the_mark_and_its_newest_tokens() -> None:
    model = tiny(8)
    ids = [0, *range(1, 20)]
    found = score_pairs(model, pairs_of([(ids, [*ids[:-1], 30], 1, 1)]), 8)
    assert found.good[0] == pytest.approx(naive_nats(model, [0, *ids[-8:-1]], 19), rel=1e-5)


def test_counting_models_equal_their_own_losses() -> None:
    texts = [np.array([0, 1, 2, 3, 1, 2]), np.array([0, 3, 1, 2, 2])]
    trigram = fit_ngrams(*joined(texts), V, 0, (2, 3))["trigram"]
    found = count_pairs(
        trigram, pairs_of([([0, 1, 2, 3], [0, 1, 2, 1], 1, 1), ([0, 3, 1], [0, 9, 9], 2, 2)]), 0
    )
    p, _ = trigram.predict(np.array([0, 1, 2]), np.array([0, 3]), np.array([1, 2, 3]), 0)
    assert found.good[0] == pytest.approx(-math.log(p[2]))
    assert found.right.tolist() == [1, 1]


def test_an_item_is_divided_as_the_harness_does() -> None:
    tokenizer = train_tokenizer(TEXTS, 270)
    pair = encode_item(Item("Tom had a", " red ball", " blue kite"), tokenizer)
    assert tokenizer.decode(pair.good[-pair.n_good :]) == " red ball"
    assert (pair.good_bytes, pair.bad_bytes) == (9, 10)
    spaced = encode_item(Item("Tom had a ", "red ball", "blue kite"), tokenizer)
    assert spaced == pair
    whole = encode_item(Item("", "Tom had it.", "Mia had it."), tokenizer)
    assert whole.n_good == len(whole.good) - 1


def test_own_items_and_blimp(tmp_path: Path) -> None:
    items = [Item("Tom had", " it", " them", "mine", "easy"), Item("", "A b.", "B a.", "mine", "")]
    (tmp_path / "own.jsonl").write_text(write_items(items), encoding="utf-8")
    assert read_items(tmp_path / "own.jsonl") == items
    line = {"sentence_good": "Cats sleep.", "sentence_bad": "Cats sleeps.", "UID": "agreement", "field": "x"}
    (tmp_path / "blimp.jsonl").write_text(json.dumps(line) + "\n\n", encoding="utf-8")
    assert read_items(tmp_path / "blimp.jsonl") == [
        Item("", " Cats sleep.", " Cats sleeps.", "agreement", "")
    ]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("", "holds no items"),
        ("{}", "line 1: there is no prefix"),
        ("[1", "line 1: Expecting"),
        ('{"prefix": "a", "good": 1, "bad": "b"}', "not a string"),
        ('{"prefix": "a", "good": "", "bad": "b"}', "is empty"),
        ('{"prefix": "a", "good": "b", "bad": "b"}', "are the same"),
        ('{"prefix": "a", "good": "\\ud800", "bad": "b"}', "surrogates not allowed"),
        ('{"sentence_good": 1, "sentence_bad": "b"}', "not a string"),
        ('{"sentence_good": "a"}', "there is no sentence_bad"),
        ("null", "not an object"),
    ],
)
def test_items_that_cannot_be_read(tmp_path: Path, content: str, wanted: str) -> None:
    (tmp_path / "x.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=wanted):
        read_items(tmp_path / "x.jsonl")
    with pytest.raises(UserError, match="cannot read"):
        read_items(tmp_path / "nowhere.jsonl")
    with pytest.raises(UserError, match="wanted a set of skills"):
        make_items("nowhere")


def test_the_table_marks_what_a_trigram_can_do_and_keeps_unequal_pairs_apart() -> None:
    items = [Item("a", " b", " c", skill, "near") for skill in ("easy", "hard") for _ in range(10)]
    pairs = [Pair([0, 1], [0, 2], 1, 1 + (k % 5 == 4), 2, 2) for k in range(20)]
    better, half = np.zeros(20), np.full(20, 0.5)

    def found(right: np.ndarray) -> Found:
        return Found(1 - right, np.full(20, 0.5))

    columns = {
        "run": [found(np.ones(20))],
        "trigram": [found(np.concatenate((np.ones(10), better[:10])))],
        "flat": [found(half)],
    }
    told = tabulate_skills(items, pairs, columns, [False] * 10 + [True] * 10)
    assert [(row["skill"], row["items"], row["local"]) for row in told["kinds"]] == [
        ("easy", 8, True),
        ("hard", 8, False),
    ]
    assert told["total"]["run"]["items"] == 8
    assert told["total"]["run"]["right"] == 1
    assert told["total"]["trigram"]["right"] == 0
    assert told["total"]["flat"]["right"] == 0.5
    assert told["unequal"]["run"]["items"] == 4
    assert told["unknown_words"] == 0.5
    assert told["total"]["trigram"]["difference"] == -1
    assert told["total"]["run"]["margin_per_byte"] == pytest.approx(0.25)
    text = skills_text(told)
    assert "run above chance: easy, hard" in text
    assert "flat at chance: easy, hard" in text
    assert "easy *" in text
    assert "trigram: 0.0% [0.0%, 32.4%], below chance" in text
    assert "worse than run" in text
    assert max(map(len, text.split("\n\n")[1].splitlines())) <= 80
    assert skills_csv(told).count("\n") == 1 + 3 * 4
    shown = show_items(items, columns, "hard", 2)
    assert shown.count("run prefers true, by 0.50 nats") == 2
    assert shown.count("flat prefers neither") == 2


@pytest.mark.parametrize("n", [2, 3, 8, 240])
def test_intervals_of_shares_against_a_search(n: int) -> None:
    """Wilson: every p from which the share is less than 1.96 deviations away. A wrong 3 of 3 proves nothing."""
    grid = np.linspace(0, 1, 200_001)
    for right in {0, 1, n // 2, n}:
        near = grid[np.abs(right / n - grid) <= 1.959963985 * np.sqrt(grid * (1 - grid) / n)]
        drawn = np.repeat([1.0, 0.0], [right, n - right])[None]
        assert share_interval(drawn) == pytest.approx((near[0], near[-1]), abs=1e-4)
    assert share_interval(np.ones((1, 1))) is None


def test_paired_intervals_cover_the_truth() -> None:
    """2,000 studies of 60 pairs with known shares: at least 93 % of the intervals hold the truth."""
    rng = np.random.default_rng(0)
    for both, only, other in ((0.5, 0.2, 0.1), (0.3, 0.05, 0.05), (0.0, 0.9, 0.05)):
        held = 0
        for _ in range(2000):
            drawn = rng.choice(4, 60, p=(both, only, other, 1 - both - only - other))
            first, second = np.isin(drawn, (0, 1))[None] * 1.0, np.isin(drawn, (0, 2))[None] * 1.0
            low, high = paired_interval(first, second) or (0, 0)
            held += low <= only - other <= high
        assert held >= 0.93 * 2000
    assert (paired_interval(np.ones((1, 3)), np.zeros((1, 3))) or (1, 1))[0] < 0
    low, high = share_interval(np.array([[1.0] * 400, [0.9] * 400, [1.0] * 400])) or (0, 0)
    assert (low, high) == (pytest.approx(0.9667 - 4.3027 * 0.1 / 3, abs=1e-4), 1.0)  # Student's t, 2 degrees


def test_a_continuation_must_begin_at_a_token() -> None:
    tokenizer = train_tokenizer(TEXTS * 3, 290)
    joined = next(w for w in ("had", "ball", "Tom", "kite") if len(tokenizer.encode(w)) == 1)
    with pytest.raises(UserError, match="becomes one token"):
        encode_item(Item(joined[:-1], joined[-1], "zzz"), tokenizer)


def test_signs_that_steer_a_terminal_are_written_out(tmp_path: Path) -> None:
    line = {"prefix": "\x1b[31mred", "good": " b", "bad": " c", "skill": "a\nb\x1b"}
    (tmp_path / "x.jsonl").write_text("\ufeff" + json.dumps(line), encoding="utf-8")
    [item] = read_items(tmp_path / "x.jsonl")
    assert item.skill == "a b"
    found = Found(np.zeros(1), np.ones(1))
    assert "\x1b" not in show_items([item], {"run": [found]}, "a b")


def test_encoding_keeps_the_order_of_items() -> None:
    tokenizer = train_tokenizer(TEXTS, 270)
    items = [Item("Tom", " had", " has"), Item("Mia", " had", " has")]
    assert encode_items(items, tokenizer) == [encode_item(item, tokenizer) for item in items]
