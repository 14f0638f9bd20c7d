"""The one exception that a user is meant to see, and the one place that turns it into an exit code."""

import argparse
import contextlib
import difflib
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TextIO

NO_MEMORY = ("can't allocate memory", "out of memory")  # how torch says it, in a RuntimeError
LONGEST = 1000  # characters of a message; a longer one loses its middle


class UserError(Exception):
    """A mistake that the user can fix. The message is one line: what came, what was wanted, what to type next."""

    exit_code = 2


class Parser(argparse.ArgumentParser):
    """argparse, whose error stays on one line even if the word it complains about does not."""

    def error(self, message: str) -> NoReturn:
        super().error(" ".join(message.split()))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """argparse would take `--seed=--` for no value at all, and say nothing."""
        for word in sys.argv[1:] if args is None else args:
            if re.fullmatch(r"--[\w-]+=--", word):
                self.error(f"{word}: wanted a value after =. Got '--'")
        return super().parse_known_args(args, namespace)

    def given(self, options: argparse.Namespace) -> set[str]:
        """The names of the options that are not at their default."""
        return {a.dest for a in self._actions if getattr(options, a.dest, a.default) != a.default}


def refuse_idle(given: Collection[str], effects: Mapping[str, tuple[bool, str]]) -> None:
    """Raise UserError for an option that was given and has no effect. effects: name -> (it has one, why not)."""
    for name, (has_effect, reason) in effects.items():
        if name in given and not has_effect:
            word = name if "." in name else f"--{name.replace('_', '-')}"
            raise UserError(f"{word} has no effect here: {reason}; leave it out")


def nearest(word: str, names: Iterable[str]) -> str:
    """The hint for a mistyped word: `; did you mean 'lr'?`, or nothing when no name is near.

    >>> nearest("learning_rte", ["learning_rate", "batch"])
    "; did you mean 'learning_rate'?"
    """
    close = difflib.get_close_matches(word, list(names), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


def verb(name: str) -> str:
    """How a front file is called here: `python NAME.py`, or `rostok NAME` from a wheel or where rostok was called."""
    installed = os.path.isdir(os.path.join(os.path.dirname(__file__), "app"))
    return f"rostok {name}" if installed or sys.argv[0].startswith("rostok ") else f"python {name}.py"


def run_main(main: Callable[[Sequence[str]], int | None], argv: Sequence[str] | None = None) -> int:
    """Run a front file's `main(argv)`; give its exit code. A UserError becomes one line on stderr and exit code 2."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell (>&-): what goes there goes nowhere
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)  # UTF-8 whatever the locale says
        if reconfigure:
            reconfigure(encoding="utf-8", errors="replace")
    try:
        with end_signals():
            return finish(main(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        return refuse(str(error))
    except KeyboardInterrupt as error:
        print("interrupted", file=sys.stderr)
        return 128 + (error.args[0] if error.args else signal.SIGINT)
    except BrokenPipeError:  # the reader (head, less) has gone: nothing is left to say
        close_output()
        return 0
    except SystemExit:  # argparse, after --help or a wrong word
        close_output()
        raise
    except OSError as error:  # a path that cannot be looked at, a full disk: no mistake of the program
        close_output()
        place = f"{error.filename}: " if error.filename is not None else ""
        return refuse(
            f"{place}{error.strerror or error}; check the path, its permissions and the disk's room"
        )
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(sign in str(error) for sign in NO_MEMORY):
            raise
        return refuse("there is not memory enough for this; give it less to work on")


def parse_early(parse: Callable[[Sequence[str]], object]) -> None:
    """Print --help and refuse wrong words before a front file's slow imports; main() parses again."""

    def main(argv: Sequence[str]) -> None:
        parse(argv)

    if code := run_main(main):
        raise SystemExit(code)


@contextlib.contextmanager
def end_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal (SIGHUP) end a command as Ctrl-C does, so that it cleans up.

    A signal that is ignored (nohup) or that has a handler already is left alone.
    """

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []  # Python lets only the main thread set handlers
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def standard_input() -> TextIO:
    """sys.stdin, UTF-8 whatever the locale says. Raises UserError where the shell has closed it (<&-)."""
    if sys.stdin is None:
        raise UserError("standard input is closed; wanted text from it, e.g. < FILE")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    return sys.stdin


def visible(text: str) -> str:
    r"""Text for a terminal: control characters, which can clear it or set its title, are written as \x1b.

    >>> print(visible("red: \x1b[31m"))
    red: \x1b[31m
    """
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but the line end and the tab


def refuse(message: str) -> int:
    """One line on stderr, whatever the message holds; the exit code of a UserError."""
    line = "".join(sign if sign.isprintable() else "\ufffd" for sign in " ".join(message.split()))
    print(
        "error: " + (line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"),
        file=sys.stderr,
    )
    return UserError.exit_code


def finish(code: int | None) -> int:
    """What main() gave, once all that it printed has left: a closed pipe or a full disk shows here, not at exit."""
    sys.stdout.flush()
    return code or 0


def close_output() -> None:
    """Send what was printed; where that fails, let Python's own flush at exit, which would fail too, go nowhere."""
    try:
        finish(0)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
