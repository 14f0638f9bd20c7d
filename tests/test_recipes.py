"""Runs that are one recipe: those whose settings differ in the seed alone."""

from rostok.measuring.recipes import grouped


def test_runs_that_differ_in_more_than_their_seed_stay_apart() -> None:
    configs = [{"seed": 0, "lr": 1}, {"seed": 1, "lr": 1}, {"seed": 1, "lr": 2}, {"seed": 0, "lr": 1}]
    names = ["a-0", "a-1", "b", "a-copy"]
    assert grouped(names, configs) == [("a-*", [0, 1]), ("b", [2]), ("a-copy", [3])]
