"""docs/tutorial.md: all of its commands run, in their order and in an empty folder, on a small text and few tokens."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from rostok.text.stories.plots import generate_stories

ROOT = Path(__file__).resolve().parent.parent
SMALL = (
    "tokens=2048 batch=1 eval_every=2 eval_rows=2 schedule.warmup_steps=1 model.context=128 sample_tokens=2"
)


def commands() -> list[list[str]]:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    lines = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines()
    return [shlex.split(line.split(" #")[0]) for line in lines]


def small(words: list[str]) -> list[str]:
    """The same command at a size for a test."""
    if words[1] == "train":
        kept = [word for word in words[2:] if not word.startswith(("tokens=", "eval_every="))]
        return ["train", *kept, *SMALL.split()]
    replaced = {"80": "8", "120": "8", "1024": "300"}
    return [replaced.get(word, word) for word in words[1:]]


def test_every_command_says_what_it_costs() -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("rostok ")]
    assert len(lines) == len(commands()) == 9
    assert all("# costs: " in line for line in lines)


@pytest.mark.slow
def test_all_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("\n".join(generate_stories(150, 1)), encoding="utf-8")
    for words in commands():
        verb, *rest = small(words)
        assert not importlib.import_module(verb).main(rest), words
    assert Path("book.html").is_file()
    assert Path("checkpoints/book/loss.png").is_file()
    assert not Path("checkpoints/rostok-mini").exists()
