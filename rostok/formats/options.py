"""The words of export.py's command line. Here and not in export.py, so that --help need not wait for torch."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from rostok.errors import Parser, UserError, verb


def options_of(argv: Sequence[str], description: str | None = None) -> argparse.Namespace:
    """Raises UserError for words that do not go together."""
    parser = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    # fmt: off
    add("run", type=Path, help="a run folder; with --import a Hugging Face folder")
    add("--out", type=Path, required=True, help="the folder, or the .gguf file, to write")
    add("--to", choices=["hf", "gguf"], default="hf", help="what to write (default: hf)")
    add("--type", type=str.upper, choices=["F32", "F16", "Q8_0"], help="of matrices in a GGUF file (default: F16)")
    add("--step", choices=["best", "latest"], help="which checkpoint (default: best, else latest)")
    add("--check", action="store_true", help="compare the folder with the run through transformers")
    add("--import", action="store_true", dest="back", help="a Hugging Face folder -> a run folder")
    # fmt: on
    options = parser.parse_args(argv)
    if options.back and (options.to != "hf" or options.type or options.check or options.step):
        parser.error("--import takes no --to, --type, --check or --step")
    if options.check and options.to == "gguf":
        parser.error("--check compares a Hugging Face folder; leave it out for --to gguf")
    if options.to != "gguf" and not options.back:
        refuse_gguf_words(options)
    return options


def refuse_gguf_words(options: argparse.Namespace) -> None:
    """Raise UserError for a command that means a GGUF file and asks for a folder."""
    kind = f"--type {options.type} " if options.type else ""
    if kind or options.out.suffix.lower() == ".gguf":
        got = kind.strip() or f"--out {options.out}"
        raise UserError(
            f"{got} needs --to gguf; type {verb('export')} {shlex.quote(str(options.run))} --to gguf {kind}--out "
            f"{shlex.quote(str(options.out))}"
        )
