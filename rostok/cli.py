"""`rostok VERB ...`: run one of the front files (train.py, sample.py, ...) from wherever they lie.

    rostok train rostok optim.lr=3e-4        the same as: python train.py rostok optim.lr=3e-4
    rostok ls | rostok diff RUN RUN          the runs, and what differs (rostok/measuring/listing.py)
    rostok quickstart                        all of it once, on built-in stories (rostok/quickstart.py)
    rostok --help | --version

In a checkout the front files lie beside the package; in a wheel they travel as rostok/app/*.py. A front file runs as
`__main__` with its own folder first on sys.path, as if Python had been given the file itself. That is all.
"""

import difflib
import sys
import types
from collections.abc import Sequence

from rostok import __version__
from rostok.errors import UserError, run_main
from rostok.front import front_folder
from rostok.quickstart import quickstart

VERBS = {
    "prepare": "text -> tokenizer and token shards",
    "train": "train a model from a config",
    "sample": "write text from a prompt",
    "compare": "perplexity of several models on the same held-out targets",
    "attend": "look inside attention",
    "export": "a run -> Hugging Face folder or GGUF file, and back",
    "ls": "the runs that are here",
    "diff": "the settings in which runs differ",
    "quickstart": "all of it once: stories, two models, their table, a text",
}

USAGE = "\n".join(
    ["usage: rostok VERB ...", "", "verbs:"]
    + [f"  {verb:<10} {what}" for verb, what in VERBS.items()]
    + ["", "rostok VERB --help says more; rostok --version prints the version"]
)


def nearest(word: str) -> str:
    """A hint for a mistyped verb, or the list of verbs when none is near."""
    near = difflib.get_close_matches(word.lower(), VERBS, n=1)
    return f"did you mean rostok {near[0]}?" if near else f"the verbs are {', '.join(VERBS)}."


def main(argv: Sequence[str]) -> int | None:
    """Run the front file that `argv[0]` names with the other words. Raises UserError for an unknown verb."""
    if not argv:
        print(USAGE, file=sys.stderr)
        return UserError.exit_code
    verb, *words = argv
    if verb in ("-h", "--help"):
        print(USAGE)
    elif verb in ("-V", "--version"):
        print(f"rostok {__version__}")
    elif verb not in VERBS:
        raise UserError(f"rostok has no verb '{verb}'; {nearest(verb)} See rostok --help")
    elif verb == "quickstart":
        return quickstart(words)
    elif verb in ("ls", "diff"):
        from rostok.measuring import listing  # the other verbs need not wait for it

        return getattr(listing, verb)(words)
    else:
        run_front(verb, words)
    return 0


def run_front(verb: str, words: Sequence[str]) -> None:
    """Run VERB.py as `python VERB.py words...` would. It ends, as every front file does, with SystemExit(code)."""
    folder = front_folder()
    file = folder / f"{verb}.py"
    if not file.is_file():
        raise UserError(
            f"{verb}.py is not in {folder}; install Rostok again: pip install --force-reinstall rostok"
        )
    sys.argv = [f"rostok {verb}", *words]  # runpy would put the path here, and --help would show it
    sys.path.insert(0, str(folder))
    module = types.ModuleType("__main__")
    module.__file__ = str(file)
    sys.modules["__main__"] = module
    exec(compile(file.read_bytes(), file, "exec"), module.__dict__)


def console() -> int:
    """The console script `rostok` and `python -m rostok`."""
    return run_main(main)


if __name__ == "__main__":
    raise SystemExit(console())
