"""Runs that are one recipe: those whose settings differ in the seed alone."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import yaml

from model import build_model
from rostok.errors import UserError
from rostok.measuring.recipes import grouped, named_runs, rows_of
from rostok.runs import load_run


def test_runs_that_differ_in_more_than_their_seed_stay_apart() -> None:
    configs = [{"seed": 0, "lr": 1}, {"seed": 1, "lr": 1}, {"seed": 1, "lr": 2}, {"seed": 0, "lr": 1}]
    names = ["a-0", "a-1", "b", "a-copy"]
    assert grouped(names, configs) == [("a-*", [0, 1]), ("b", [2]), ("a-copy", [3])]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a=x,"], "wanted NAME=RUN"),
        (["=x"], "wanted NAME=RUN"),
        (["a\nb=x"], "one line of 40 signs"),
        (["\x1b[31m=x"], "one line of 40 signs"),
        (["n" * 300 + "=x"], "one line of 40 signs"),
        (["a=x,x"], "x is named twice"),
        (["a=x", "a=x"], "x is named twice"),
    ],
)
def test_words_that_make_no_rows(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as told:
        named_runs(words)
    assert str(told.value).isprintable()


def test_rows_that_cannot_be(tiny_run: Path, tiny_window_run: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(tiny_run, tmp_path / "other")
    config = yaml.safe_load((tiny_run / "config.yaml").read_text(encoding="utf-8"))
    config["seed"], config["optim"]["lr"] = config["seed"] + 1, 0.5
    (tmp_path / "other" / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    run, other, window = (load_run(f, build_model) for f in (tiny_run, tmp_path / "other", tiny_window_run))
    assert rows_of([("a", ""), ("a", "")], [run, other]) == [("a", [0, 1])]
    assert "the runs of a differ in optim.lr too" in capsys.readouterr().err
    for given, runs, message in (
        ([("a", "x"), ("a", "y")], [run, run], "names a run twice"),
        ([("a", "x"), ("a", "y")], [run, window], "are different models"),
        ([("trigram", "x")], [run], "two rows would be named trigram"),
        ([(run.folder.name, "x"), (None, "y")], [other, run], "two rows would be named"),
    ):
        with pytest.raises(UserError, match=message):
            rows_of(given, runs)
    named = dataclasses.replace(run, folder=tmp_path / "7-gram")
    with pytest.raises(UserError, match="name one otherwise"):
        rows_of([(None, "x")], [named])
