"""The words of compare.py's command line. Here and not in compare.py, so that --help need not wait for torch."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rostok.errors import Parser, UserError
from rostok.files import check_out
from rostok.measuring.ngrams import FIT_TOKENS

REPORT = (".md", ".json", ".csv", "-position.png", "-position.csv", "-context.png", "-context.csv")


# fmt: off
def options_of(argv: Sequence[str], description: str | None = None) -> argparse.Namespace:
    """Raises UserError for words that do not go together, and for files that cannot be written."""
    parser = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folder, one of its step folders, or NAME=RUN,RUN,...")
    add("--data", metavar="FOLDER", help="shards to score on (default: those that each run was trained on)")
    add("--texts", type=count, metavar="N", help="only the first N held-out texts")
    add("--protocol", choices=("texts", "disjoint"), default="texts", help="disjoint: blocks of one stream")
    add("--stride", type=count, metavar="N", help="new targets a window in long texts (default: half the context)")
    add("--step", choices=("best", "latest"), help="which checkpoint of a run (default: best)")
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"))
    add("--ngram-tokens", type=count, default=FIT_TOKENS, metavar="N", help="training tokens that are counted")
    add("--at", type=int, metavar="N", help="also show each GPT only N tokens (default 8, 0: do not)")
    add("--at-targets", type=int, metavar="N", help="on a sample of N targets (default 5000, 0: all)")
    add("--context-sweep", type=count, nargs="?", const=2000, metavar="N", help="loss against context, on N targets")
    add("--skills", nargs="?", const="stories", metavar="SET", help="stories (default), tinystories, russian or FILE")
    add("--show", metavar="SKILL", help="with --skills: ten items of a skill, and what the models prefer")
    add("--json", metavar="FILE", help="all numbers")
    add("--csv", metavar="FILE", help="the table")
    add("--out", metavar="FILE.md", help="a report; .json, .csv and figures beside it")
    add("--wide", action="store_true", help="all columns of the tables, not only those that fit 80 characters")
    add("--force", action="store_true", help="overwrite files that exist")
    options = parser.parse_args(argv)
    check_files(options)
    if (options.at or 0) < 0 or (options.at_targets or 0) < 0:
        parser.error("--at and --at-targets must be 0 or more")
    refuse_without_use(options)
    return options
# fmt: on


def check_files(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written before the work, not after it. Raises UserError."""
    words = [(options.json, "--json"), (options.csv, "--csv")]
    if check_out(options.out, force=True):  # it names a file; which ones are written, report_files says
        words += [(path, "--out") for path in report_files(Path(options.out)).values()]
    found = [check_out(word, force=options.force, flag=flag) for word, flag in words]
    given = [os.path.realpath(path) for path in found if path]
    if len(set(given)) < len(given):
        raise UserError("--out, --json and --csv must be different files")


def report_files(out: Path) -> dict[str, Path]:
    """Ending -> file of all that a report is made of."""
    stem = out.with_suffix("") if out.suffix == ".md" else out
    return {ending: stem.with_name(stem.name + ending) for ending in REPORT}


def refuse_without_use(options: argparse.Namespace) -> None:
    """Refuse options that would be ignored beside others, and fill in the defaults. Raises UserError."""
    alone = {"--stride": options.stride, "--at": options.at, "--context-sweep": options.context_sweep}
    for flag, value in alone.items():
        if value and options.protocol == "disjoint":
            raise UserError(
                f"{flag} has no use with --protocol disjoint, which has windows of its own; leave it out"
            )
    if options.skills is None and options.show is not None:
        raise UserError("--show SKILL shows items of --skills; give --skills too")
    if options.skills is not None:
        refuse_beside_skills(options)
    if options.at_targets is not None and options.at == 0 and not (options.out or options.json):
        raise UserError("--at-targets has no use with --at 0; leave one of them out")
    options.at = 8 if options.at is None else options.at
    options.at_targets = 5000 if options.at_targets is None else options.at_targets


def refuse_beside_skills(options: argparse.Namespace) -> None:
    """Refuse what --skills has no use for: it scores pairs, not held-out texts. Raises UserError."""
    names = ("out", "context_sweep", "texts", "stride", "at", "at_targets")
    useless = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None]
    useless += ["--protocol"] if options.protocol == "disjoint" else []
    if useless:
        raise UserError(f"--skills has no use for {', '.join(useless)}; leave it out")


def count(text: str) -> int:
    """A whole number of at least 1, or argparse's one line."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number
