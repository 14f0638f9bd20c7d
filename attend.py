"""Look inside attention: by hand, on small numbers, and in a trained run.

    python attend.py explain --list                 # the worked examples and the experiments
    python attend.py explain S0-14                  # "cat eats fish", step by step; also: she, milk, variance, shuffle
    python attend.py explain she --lang ru --plot she.svg
    python attend.py explain --q q.csv --k k.csv --v v.csv --causal
    python attend.py explain S0-14 --json
    python attend.py map RUN --text "Tom had a ball. One day he" --query he --key Tom --out maps.png
    python attend.py heads RUN --out card.png       # what every head does; --ablate: is it used
    python attend.py name RUN RUN2                  # an invented name, heard for the second time
    python attend.py pronoun RUN                    # "he" -> "Tom"
    python attend.py forming RUN --out forming.png  # the heads as they formed; trained with probe.every=N
    python attend.py page RUN --out page.html       # one offline page

This file only parses words. In rostok/attention/: explain is by_hand/explain.py, map heads/maps.py, heads
heads/report.py, page page/explorer.py; name, pronoun and forming are files of heads/ with these names.
"""

import argparse
from collections.abc import Callable, Sequence

from rostok.attention.by_hand import explain
from rostok.attention.heads import forming, maps, name, pronoun, report
from rostok.attention.page import explorer
from rostok.errors import Parser, run_main

AddArguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]

# name -> (what --help says, its words, what it does)
SUBCOMMANDS: dict[str, tuple[str, AddArguments, Run]] = {
    "explain": (
        "a worked example, an experiment or your own matrices, step by step",
        explain.add_arguments,
        explain.run,
    ),
    "map": ("maps of all heads of a trained run on a text", maps.add_arguments, maps.run),
    "heads": (
        "the report card of every head: what it does, how sure, is it used",
        report.add_arguments,
        report.run,
    ),
    "name": (
        "an invented name: how sure is the model when it comes again",
        name.add_arguments,
        name.run,
    ),
    "pronoun": ("does a head send he and she to the name", pronoun.add_arguments, pronoun.run),
    "forming": (
        "the heads as they form during training, against the loss",
        forming.add_arguments,
        forming.run,
    ),
    "page": (
        "one offline page to see and play with attention",
        explorer.add_arguments,
        explorer.run,
    ),
}


def build_parser() -> argparse.ArgumentParser:
    """One parser with a subparser for each entry of SUBCOMMANDS."""
    parser = Parser(description="Look inside attention.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command, (help_text, add_arguments, _) in SUBCOMMANDS.items():
        add_arguments(subparsers.add_parser(command, help=help_text, description=help_text))
    return parser


def main(argv: Sequence[str]) -> int:
    """Run one subcommand; give its exit code."""
    args = build_parser().parse_args(argv)
    return SUBCOMMANDS[args.command][2](args)


if __name__ == "__main__":
    raise SystemExit(run_main(main))
