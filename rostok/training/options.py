"""The words of train.py's command line. Here and not in train.py, so that --help need not wait for torch."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rostok.errors import Parser, UserError, refuse_idle, verb


def options_of(argv: Sequence[str], description: str | None) -> argparse.Namespace:
    """Raises UserError for words that do not go together."""
    parser = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    # fmt: off
    add("config", nargs="?", help="a YAML file, or a built-in name such as rostok, gpt-1, window-mlp, quickstart")
    add("words", nargs="*", metavar="key=value", help="settings that override the file, dotted")
    add("--fresh", action="store_true", help="replace the run instead of going on from it")
    add("--check", action="store_true", help="say what the run will be; train nothing")
    add("--grid", nargs="+", metavar="key=a,b", help="a run for each combination of these values, then a table")
    add("--settings", nargs="?", const="", metavar="WORD", help="all settings, or those that speak of a word")
    add("--schema", action="store_true", help="the settings as a JSON schema, for editors of YAML files")
    add("--verify-resume", type=Path, metavar="RUN", help="train a few steps of a run again; are the bits the same?")
    # fmt: on
    options = parser.parse_intermixed_args(argv)
    alone = {"verify_resume": "a run and ", "settings": "at most one word and ", "schema": ""}
    given = parser.given(options)
    for name in [name for name in alone if name in given]:
        reason = f"--{name.replace('_', '-')} takes {alone[name]}nothing else"
        if options.config:
            raise UserError(f"{reason}. Got {options.config!r}; leave it out")
        refuse_idle(
            given, {other: (False, reason) for other in ("fresh", "check", "grid", *alone) if other != name}
        )
    if not options.config and not given & alone.keys():
        raise UserError(f"which config? Type {verb('train')} quickstart, or see {verb('train')} --help")
    if options.grid and (options.fresh or options.check or int(os.environ.get("WORLD_SIZE", "1")) > 1):
        raise UserError(
            "--grid goes without --fresh, --check and torchrun; leave them out (--fresh: delete the runs)"
        )
    return options
