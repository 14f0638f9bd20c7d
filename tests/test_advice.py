"""rostok/text/advice.py: what is proposed for a text can be typed, and suits its size and its tokenizer."""

import shlex
from pathlib import Path

import pytest

import prepare
from rostok.text import advice
from rostok.text.shards import Data, open_data, whole, write_data
from rostok.text.stories.plots import generate_stories
from rostok.text.tokenizer import load_tokenizer, train_tokenizer
from rostok.training.config import find_config, load_config
from train import TrainConfig

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """English, under the tokenizer of rostok-mini."""
    folder = tmp_path_factory.mktemp("advice") / "book"
    texts = list(generate_stories(150, 1))
    tokenizer = load_tokenizer(ROOT / "checkpoints" / "rostok-mini")
    write_data(folder, {"train": whole(texts[8:]), "valid": whole(texts[:8])}, tokenizer)
    return open_data(folder)


def settings(words: list[str]) -> TrainConfig:
    return load_config(TrainConfig, find_config(words[0], ROOT / "configs"), words[1:])


def test_data_of_the_shipped_tokenizer_begin_with_its_weights(stories: Data) -> None:
    config = settings(advice.training_for(stories))
    assert (config.init_from, config.name) == ("rostok-mini", "book")
    assert abs(config.tokens - 2 * stories.split("train").tokens) < 5000
    assert advice.hint_for(stories) == ""


def test_a_small_text_is_not_read_a_hundred_times(tiny_data: Data) -> None:
    config = settings(advice.training_for(tiny_data))
    assert config.tokens == 50_000  # four times the text, but no fewer than this
    assert config.early_stop == 4
    assert config.data.path == str(tiny_data.folder)


class Sized:
    """Data of a given number of training tokens."""

    def __init__(self, tokens: int) -> None:
        self.folder, self.tokenizer_sha256, self.tokens = Path("data/x"), "", tokens

    def split(self, _: str) -> "Sized":
        return self


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (100_000, "quickstart name=x data.path=data/x tokens=400_000 early_stop=4"),
        (375_000, "quickstart name=x data.path=data/x"),
        (3_000_000, "rostok-mini name=x data.path=data/x"),
        (200_000_000, "rostok name=x data.path=data/x"),
    ],
)
def test_the_config_grows_with_the_text(tokens: int, words: str) -> None:
    assert advice.training_for(Sized(tokens)) == words.split()  # type: ignore[arg-type]


def test_english_is_told_of_the_trained_weights_and_russian_is_not(tmp_path: Path) -> None:
    english = [
        f"The old king had {n} sons, and the youngest of them went into the forest." for n in range(40)
    ]
    russian = [f"У старого короля было {n} сыновей, и младший из них ушёл в лес." for n in range(40)]
    for name, texts, wanted in (("en", english, True), ("ru", russian, False)):
        folder = tmp_path / name
        write_data(
            folder, {"train": whole(texts[4:]), "valid": whole(texts[:4])}, train_tokenizer(texts, 400)
        )
        assert bool(advice.hint_for(open_data(folder))) == wanted


def test_without_the_shipped_model_nothing_is_said_of_it(stories: Data, monkeypatch) -> None:
    monkeypatch.setattr(advice, "find_run", lambda path: Path("nowhere"))
    assert advice.hint_for(stories) == ""
    assert "init_from" not in " ".join(advice.training_for(stories))


def test_the_prompt_is_the_texts_own(tmp_path: Path, stories: Data) -> None:
    prompt = advice.prompt_for(stories)
    tokenizer, valid = load_tokenizer(stories.folder), stories.split("valid")
    texts = [tokenizer.decode(valid.text(i)[1:].tolist()) for i in range(len(valid))]
    assert any(text.startswith(prompt) for text in texts)
    assert shlex.split(advice.quoted(prompt)) == ["--prompt", prompt]
    write_data(
        tmp_path / "d",
        {"train": whole(["a b"]), "valid": whole(['$x "y" `z` %PATH%'])},
        train_tokenizer(["a b"], 300),
    )
    assert advice.prompt_for(open_data(tmp_path / "d")) == advice.quoted("") == ""


def test_prepare_says_it(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("\n<|endoftext|>\n".join(generate_stories(60, 1)), encoding="utf-8")
    prepare.main(["--source", "book.txt", "--vocab", "400"])
    *_, hint, following = capsys.readouterr().out.splitlines()
    assert hint.startswith("hint      --tokenizer rostok-mini reads this text too")
    assert following.startswith("next      python train.py quickstart name=book data.path=data/book tokens=")
    prepare.main(
        ["--source", "book.txt", "--tokenizer", str(ROOT / "checkpoints" / "rostok-mini"), "--out", "data/b"]
    )
    *_, before, following = capsys.readouterr().out.splitlines()
    assert before.startswith("written")
    assert "init_from=rostok-mini" in following
