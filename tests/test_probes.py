"""The probes of names and pronouns: their stories, their arithmetic, and what they find in a model written by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import attend
from model import build_model
from rostok.attention.heads import name as name_module
from rostok.attention.heads import pronoun as pronoun_module
from rostok.attention.heads.capture import Subject, open_subject
from rostok.attention.heads.name import (
    causal,
    check_name,
    controls,
    expect,
    gain,
    induction_heads,
    later,
    name_heads,
    of_mentions,
    random_names,
    swapped,
    tell,
    window_logits,
)
from rostok.attention.heads.pronoun import prompts, pronoun_probe
from rostok.attention.heads.stories import language_of, note_letters
from rostok.attention.languages import words as words_of
from rostok.errors import UserError, run_main
from rostok.runs import load_run
from rostok.text.tokenizer import train_tokenizer

NAME = "Vyx Plo"
STORIES = words_of("en")["stories"]
Capture = pytest.CaptureFixture[str]


def run(*words: str | Path) -> int:
    return run_main(attend.main, [str(word) for word in words])


@pytest.fixture(scope="module")
def subject(hand_run: Path) -> Subject:
    return open_subject(hand_run)


# ---- the name ----------------------------------------------------------------------------------------------


def test_story_names_the_dragon_three_times_with_the_same_pieces(subject: Subject) -> None:
    story = tell(subject, NAME, tokens=10)
    assert story.mentions.shape[0] == 3
    for mention in story.mentions:
        assert subject.tokenizer.decode(story.ids[mention]).strip() == NAME
    assert subject.tokenizer.decode(story.ids[1:]).count(NAME) == 3
    absent, other = tell(subject, NAME, "", 10), tell(subject, NAME, "Kib", 10)
    assert absent.mentions.shape[0] == other.mentions.shape[0] == 2
    assert "name was" not in subject.tokenizer.decode(absent.ids)
    assert "name was Kib." in subject.tokenizer.decode(other.ids)


def test_filler_grows_and_has_no_z(subject: Subject) -> None:
    distances = [np.subtract(*tell(subject, "Vy", tokens=n).mentions[[1, 0], 0]) for n in (1, 30, 60)]
    assert distances == sorted(distances)
    assert distances[2] - distances[1] >= 20
    assert "Z" not in "".join(STORIES["name"]["filler"])


def test_swapped_name_keeps_its_first_letter() -> None:
    assert swapped("Zorbin Plax", "alkemudo") == "Zalkemu Plax"[:6] + " Plax"


@pytest.mark.parametrize("name", ["", " Vyx", "  "])
def test_name_must_be_a_word(subject: Subject, name: str) -> None:
    with pytest.raises(UserError, match="--name must be a word or two"):
        check_name(subject, name)


def test_name_of_few_pieces_is_refused(subject: Subject) -> None:
    with pytest.raises(UserError, match="at least three"):
        check_name(subject, "I")


def test_name_whose_pieces_differ_is_refused_with_all_splits(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STORIES["name"], "again", [" One day{name}s father", " The birds saw{name}."])
    good = tell(subject, NAME, tokens=10)
    shifted = lambda text, begin, length, ends: [*good.mentions[0]][: 3 if begin > 80 else 4]  # noqa: E731
    monkeypatch.setattr(name_module, "pieces_at", shifted)
    with pytest.raises(UserError, match="falls into other pieces each time: .* / .* / "):
        tell(subject, NAME, tokens=10)


def test_probabilities_and_ranks_of_mentions(subject: Subject) -> None:
    story = tell(subject, NAME, tokens=10)
    expected = np.full((len(story.ids), 320), 1e-4)
    place = story.mentions[1, 1]
    expected[place - 1, story.ids[place]] = 0.5
    expected[place - 1, [5, 6]] = 0.9
    p, rank = of_mentions(expected, story)
    assert p.shape == story.mentions.shape
    assert (p[1, 1], rank[1, 1]) == (0.5, 3)
    assert rank[0, 0] == 1
    assert gain(p) == pytest.approx(np.log(0.5 / 1e-4))
    assert later(p) == pytest.approx((0.5 + 1e-4 * (p.shape[1] - 2)) / (p.shape[1] - 1))


def test_hand_built_induction_knows_the_name_again(subject: Subject) -> None:
    stories = random_names(subject, 6, seed=1)
    assert len({tuple(story.pieces) for story in stories}) == 6
    chances = [of_mentions(expect(subject, story.ids), story)[0] for story in stories]
    assert np.mean([later(p) for p in chances]) > 5 * np.mean([p[0, 1:].mean() for p in chances])
    best, second = name_heads(subject, stories[0])[:2]
    assert (best["layer"], best["head"]) == (1, 0)
    assert (
        best["weight"] > 2 * second["weight"]
    )  # shared among all the places after this small vocabulary's " "
    assert induction_heads(subject, seed=0, count=1) == [(1, 0)]
    found = controls(subject, NAME, 10)
    assert (
        found["no_mention"]["p"][1]
        < of_mentions(expect(subject, tell(subject, NAME, tokens=10).ids), tell(subject, NAME, tokens=10))[0][
            1, 1
        ]
    )


def test_filler_is_between_the_mentions_of_every_name(
    subject: Subject, hand_run: Path, capsys: Capture
) -> None:
    distance = lambda story: story.mentions[1, 0] - story.mentions[0, 0]  # noqa: E731
    near, far = (random_names(subject, 3, 0, tokens) for tokens in (5, 90))
    assert max(map(distance, near)) + 60 < min(map(distance, far))
    assert distance(check_name(subject, NAME, 5)) + 60 < distance(check_name(subject, NAME, 90))
    found = []
    for tokens in ("5", "90"):
        assert run("name", hand_run, "--name", NAME, "--names", "3", "--filler", tokens, "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["runs"][0]["random_names"])
    assert found[0]["second"] != found[1]["second"]


def test_random_names_depend_on_the_seed_alone(subject: Subject) -> None:
    first, again, other = (random_names(subject, 3, seed) for seed in (0, 0, 1))
    assert [list(story.ids) for story in first] == [list(story.ids) for story in again]
    assert [list(story.ids) for story in first] != [list(story.ids) for story in other]


def test_silencing_the_induction_head_takes_the_name_away(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert causal(subject, [], 0) is None  # four heads are too few to draw three others from
    monkeypatch.setattr(name_module, "TOP", 1)
    monkeypatch.setattr(name_module, "induction_heads", lambda subject, seed: [(1, 0)])
    found = causal(subject, random_names(subject, 4, 0), 0)
    assert found is not None
    assert found["induction"]["mean"] < 0.5 * found["clean"]["mean"]
    assert found["clean"]["n"] == 4


def test_window_model_in_numpy_equals_torch(tiny_window_run: Path) -> None:
    subject = open_subject(tiny_window_run, ("window-mlp",))
    ids = np.array([0, 5, 9, 200, 31, 7, 8, 9, 10, 11, 12])
    with torch.no_grad():
        wanted = load_run(tiny_window_run, build_model).model(torch.from_numpy(ids)[None])[0].numpy()
    np.testing.assert_allclose(window_logits(subject.weights, subject.config, ids), wanted, atol=1e-4)


def test_name_command_for_a_gpt_and_a_window_model(
    hand_run: Path, tiny_window_run: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Subject, "context", property(lambda _: 256)
    )  # the tiny window run was trained on rows of 32
    out = tmp_path / "name.json"
    words = ["name", hand_run, tiny_window_run, "--name", NAME, "--names", "4", "--filler", "5"]
    assert run(*words, "--out", out) == 0
    text = capsys.readouterr().out
    assert "under 1 %" in text
    assert "tiny-window (window-mlp)" in text
    assert "4 random names" in text
    found = json.loads(out.read_text(encoding="utf-8"))
    gpt, window = found["runs"]
    assert "heads" in gpt
    assert "heads" not in window
    assert len(gpt["p"]) == 3
    assert len(gpt["p"][0]) == len(gpt["pieces"])
    assert gpt["ratio"][1] == pytest.approx(gpt["p"][1][1] / gpt["p"][0][1], rel=1e-3)
    low, high = gpt["random_names"]["second"]["interval"]
    assert low <= gpt["random_names"]["second"]["mean"] <= high
    assert run(*words, "--lang", "ru", "--json") == 0
    assert json.loads(capsys.readouterr().out) == found
    assert run(*words, "--lang", "ru") == 0
    assert "меньше процента" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", ""], "--name must be a word or two"),
        (["--name", "Zorbin \udcff"], "--name: byte 0xff at offset 7 is not UTF-8"),
        (["--name", NAME, "--filler", "0"], "--filler must be at least 1"),
        (["--name", NAME, "--names", "1"], "--names must be 2 to 1000"),
        (["--name", NAME, "--filler", "900"], "less than the context"),
        (["--name", NAME, "--out", "name.png"], "must end in one of .json"),
    ],
)
def test_mistakes_are_one_line(hand_run: Path, capsys: Capture, words: list[str], message: str) -> None:
    assert run("name", hand_run, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


# ---- the pronoun -------------------------------------------------------------------------------------------


def test_sixty_prompts_end_in_the_pronoun_and_know_their_places(subject: Subject) -> None:
    made, wrong, apart = (
        prompts(subject, 0),
        prompts(subject, 0, wrong=True),
        prompts(subject, 0, between=True),
    )
    assert len(made) == 60
    tales = STORIES["pronoun"]
    for p, q, r in zip(made, wrong, apart, strict=True):
        text, other = (subject.tokenizer.decode(x.ids[1:]) for x in (p, q))
        name = next(
            name for name in (*tales["boys"], *tales["girls"]) if f"{name} " in text or f"{name}." in text
        )
        assert text.endswith(" he" if name in tales["boys"] else " she")
        assert other.endswith(" she" if name in tales["boys"] else " he")
        spelt = subject.tokenizer.decode(p.ids[p.name])
        assert spelt.replace(" ", "").replace(name, "") == ""
        assert subject.tokenizer.decode(p.ids[p.distractor]) in [frame["noun"] for frame in tales["frames"]]
        assert len(r.ids) > len(p.ids) + 10


def test_head_is_chosen_on_one_half_and_reported_on_the_other(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that is good on the first half only is chosen, and is found out."""
    weights = np.zeros((60, 2, 2))
    weights[:30, 1, 0], weights[30:, 0, 1] = 0.9, 0.9
    monkeypatch.setattr(
        pronoun_module,
        "looks",
        lambda subject, made: (weights[60 - len(made) :], weights[60 - len(made) :] / 3),
    )
    found = pronoun_probe(subject)
    assert (found["layer"], found["head"], found["chosen_share"]) == (1, 0, 1)
    assert found["held_out"]["name"]["share"]["mean"] == 0
    assert found["held_out"]["name"]["share"]["n"] == 30


def test_pronoun_command(hand_run: Path, capsys: Capture) -> None:
    assert run("pronoun", hand_run, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["book"] == 0.82
    assert set(found["held_out"]) == {"name", "distractor", "wrong_pronoun", "words_between"}
    assert found["distance"][0] >= 5
    for lang, word in (("en", "0.82 (layer 6 head 4)"), ("ru", "чужое местоимение")):
        assert run("pronoun", hand_run, "--lang", lang) == 0
        assert word in capsys.readouterr().out


def test_pronoun_needs_heads_and_room(tiny_window_run: Path, tiny_run: Path, capsys: Capture) -> None:
    assert run("pronoun", tiny_window_run) == 2
    assert "no attention to look at" in capsys.readouterr().err
    assert run("pronoun", tiny_run) == 2
    assert "sees only 32" in capsys.readouterr().err


# ---- another language --------------------------------------------------------------------------------------


def russian() -> str:
    """Sentences of the built-in Russian stories, many times over: enough for a small tokenizer."""
    tales = words_of("ru")["stories"]
    frames = [
        frame[kind].format(n="Том") + frame["ask"]
        for frame in tales["pronoun"]["frames"]
        for kind in ("boy", "girl")
    ]
    return " ".join([tales["name"]["opening"], *tales["name"]["filler"], *frames])


def test_stories_are_in_the_language_of_the_tokenizer(subject: Subject) -> None:
    tokenizer = train_tokenizer([russian()] * 3, 600)
    own = replace(subject, tokenizer=tokenizer, config={**subject.config, "context": 512})
    assert language_of(subject.tokenizer) == "en"
    assert language_of(tokenizer) == "ru"
    text = tokenizer.decode(tell(own, "Зорбин Плакс", tokens=10).ids[1:])
    assert text.startswith("Жил-был маленький дракон. Его звали Зорбин Плакс.")
    assert text.count("Зорбин Плакс") == 3
    for p in prompts(own, 0):
        assert tokenizer.decode(p.ids).endswith((" он", " она"))
        assert tokenizer.decode(p.ids[p.name]).split()[0] in (
            *words_of("ru")["stories"]["pronoun"]["boys"],
            *words_of("ru")["stories"]["pronoun"]["girls"],
        )


def test_a_text_that_is_spelled_letter_by_letter_is_noted(subject: Subject, capsys: Capture) -> None:
    note_letters(subject, "Жил-был маленький дракон.", "en")
    assert "Above 2.5 its tokenizer has most likely learned another language" in capsys.readouterr().err
    note_letters(
        replace(subject, tokenizer=train_tokenizer([russian()] * 3, 900)), "Жил-был маленький дракон.", "ru"
    )
    assert capsys.readouterr().err == ""
