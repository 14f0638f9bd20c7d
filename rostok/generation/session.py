"""`sample.py --interactive`: a person and the model write a text in turn; and the reader that sample.py shares with it.

Left out: anything that knows of a chat. The models here continue text. torch is imported where it is used, since
`sample.py --help` need not wait for it.
"""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from rostok.errors import UserError, standard_input, visible
from rostok.text.reading import decode_bytes

if TYPE_CHECKING:
    from rostok.generation.generate import Reader, Sampling
    from rostok.runs import Run

COLOURS = {"prompt": "\033[2m", "chosen": "\033[1m", "end": "\033[0m"}
MOST_TOKENS = 1_000_000  # hours of work for any model here; more is a slip of the finger
HELP = "/temp 0.5, /top-k 40, /top-p 0.95, /tokens 100, /seed 7, /undo, /new, /quit; other lines are text to continue"


def shown(text: str) -> str:
    """A text of the model or the user: as it is, but without control characters on a terminal."""
    return visible(text) if sys.stdout.isatty() else text


def paint(text: str, colour: str) -> str:
    """`shown`, in a colour on a terminal."""
    return f"{COLOURS[colour]}{shown(text)}{COLOURS['end']}" if text and sys.stdout.isatty() else text


def put(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def sampling_of(options: argparse.Namespace) -> "Sampling":
    from rostok.generation.generate import Sampling

    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    return Sampling(**{name: getattr(options, name) for name in names})


def note_blank(*prompts: str) -> None:
    """Say that a blank at the end makes a text worse: a token begins with its blank, so none fits after this one."""
    if any(prompt.endswith(" ") for prompt in prompts):
        note("the prompt ends in a blank, but words begin with theirs; leave it out")


def prompt_ids(run: "Run", prompt: str) -> list[int]:
    return [run.tokenizer.start_id, *run.tokenizer.encode(prompt)]


def make_reader(run: "Run", rows: list[list[int]], options: argparse.Namespace) -> "Reader":
    """A Reader that says on stderr, once, that a text has outgrown the context."""
    from rostok.devices import choose_device, missing_compiler
    from rostok.generation.generate import CompiledSteps, Reader
    from rostok.generation.quantize import compiles

    said = False
    missing = missing_compiler(choose_device(options.device)[0]) if options.compile else ""
    compiled = options.compile and not missing and compiles(run.model)
    model: Any = CompiledSteps(run.model) if compiled else run.model
    if options.compile and not compiled:
        note(f"--compile has no effect here: {missing or 'these single steps are compiled already'}")

    def notice(_row: int, seen: int) -> None:
        nonlocal said
        if not said:
            note(
                f"the text is longer than the context of {model.limit} tokens; the model now sees "
                f"its first token and the last {seen - 1} (--past stop ends there)"
            )
        said = True

    return Reader(model, rows, options.past, not options.no_cache, notice=notice)


class Session:
    """A text that a person and the model write in turn. What was read stays in the cache."""

    def __init__(self, run: "Run", options: argparse.Namespace) -> None:
        self.run, self.options = run, options
        self.reader = make_reader(run, [[run.tokenizer.start_id]], options)
        self.marks: list[int] = []  # length of the text before each turn
        self.turn = 0
        self.writing = False

    def answer(self, line: str) -> bool:
        """Do what one line says. False ends the session. Raises UserError for a command that cannot be done."""
        if not line.startswith("/"):
            self.writing = True
            self.go_on(line)
            self.writing = False
            return True
        name, _, value = line[1:].partition(" ")
        key = {"temp": "temperature"}.get(name, name).replace("-", "_")
        if name == "quit":
            return False
        if name == "undo":
            self.undo()
        elif name == "new":
            self.reader.cut(0, 1)
            self.marks.clear()
        elif key in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "tokens", "seed"):
            self.set(key, value.strip(), name)
        else:
            print(HELP, file=sys.stderr)
        return True

    def set(self, key: str, value: str, typed: str) -> None:
        kind = type(getattr(self.options, key))
        try:
            changed = argparse.Namespace(**{**vars(self.options), key: kind(value)})
        except ValueError:
            raise UserError(f"/{typed} wants a number. Got {value!r}") from None
        if not 0 <= changed.tokens <= MOST_TOKENS:
            raise UserError(f"/tokens must be 0 or more, at most {MOST_TOKENS}. Got {value[:60]}")
        sampling_of(changed)
        self.options = changed
        if key == "seed":
            self.turn = 0

    def undo(self) -> None:
        if not self.marks:
            raise UserError("there is nothing to undo")
        self.reader.cut(0, self.marks.pop())

    def go_on(self, line: str) -> None:
        from rostok.generation.generate import TextStream, stream

        tokenizer, options = self.run.tokenizer, self.options
        note_blank(line)
        self.marks.append(len(self.reader.rows[0]))
        self.reader.append(0, *tokenizer.encode(line))
        begun, written = len(self.reader.rows[0]), ""
        text = TextStream(tokenizer.token_bytes, options.stop)
        sampling, end = sampling_of(options), tokenizer.start_id
        tokens = stream(
            self.reader, sampling, options.tokens, options.seed, self.turn, end_id=end, texts=[text]
        )
        put(paint(line, "prompt"))
        for token in tokens:
            put(shown(token.text))
            written += token.text
            if token.finish == "end":
                print(file=sys.stderr)
                note("the model ended the text here; type on, or /new")
                del self.reader.rows[0][-1]  # so that the next line goes on with this text
            if token.finish == "stop":  # the next line goes on with what was shown, without the stop text
                self.reader.cut(0, begun)
                self.reader.append(0, *tokenizer.encode(written))
            if token.finish == "context":
                print(file=sys.stderr)
                note("the context is full; /undo, /new, or start with --past roll")
        put("\n")
        self.turn += 1


def interact(run: "Run", options: argparse.Namespace) -> None:
    session, stdin = Session(run, options), standard_input()
    print(HELP, file=sys.stderr)
    while True:
        try:
            line = input("> " if stdin.isatty() else "")
            line = decode_bytes(line.encode("utf-8", "surrogateescape"), "standard input")
            if not session.answer(line):
                return
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
        except EOFError:
            return
        except KeyboardInterrupt:  # ends the text that is being written; at the prompt it ends the session
            session.reader.forget(0)
            put("\n")
            if not session.writing:
                return
            session.writing = False
