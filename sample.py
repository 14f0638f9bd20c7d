"""Let a trained run write: stream its text, weigh its choices, talk to it.

    python sample.py checkpoints/quickstart --prompt "Once upon a time"
    python sample.py checkpoints/quickstart --samples 4 --temperature 1 --top-p 0.95 --seed 7
    python sample.py checkpoints/quickstart --prompt-file prompts.txt --json > texts.jsonl      # - reads stdin
    python sample.py checkpoints/quickstart --prompt "One day" --tokens 12 --top-tokens 10      # what it weighed
    python sample.py checkpoints/quickstart --prompt "One day" --compare checkpoints/window-mlp # beside another's
    python sample.py checkpoints/quickstart --interactive

A run is a run folder (its best step), a step folder, RUN/latest or RUN/best. Text goes to stdout, remarks to stderr.
All settings are explained in docs/sampling.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rostok.errors import Parser, UserError, refuse_idle, run_main
from rostok.generation.session import (
    MOST_TOKENS,
    interact,
    make_reader,
    note,
    note_blank,
    paint,
    prompt_ids,
    put,
    sampling_of,
    shown,
)
from rostok.text.reading import check_text, read_text, typed

if TYPE_CHECKING:  # torch takes a second to import: --help and wrong words need not wait for it
    from rostok.generation.copies import Training
    from rostok.generation.generate import Choice, Token
    from rostok.runs import Run

MOST_SAMPLES = 10_000  # hours of work for any model here; more is a slip of the finger


# ---------------------------------------------------------------------------------------------------- the command line


def parser_of() -> Parser:
    parser = Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    # fmt: off
    add("run", help="a run folder, a step folder, RUN/latest or RUN/best")
    add("--prompt", metavar="TEXT", help="what the text begins with (default: nothing)")
    add("--prompt-file", metavar="FILE", help="many prompts: one a line, or .jsonl; - is stdin")
    add("--interactive", action="store_true", help="write together, line by line")
    add("--samples", type=whole(1, MOST_SAMPLES), default=1, metavar="N", help="texts for each prompt (1)")
    add("--tokens", type=whole(0, MOST_TOKENS), default=200, metavar="N", help="new tokens at most (200)")
    add("--temperature", type=float, default=0.8, help="0 takes the likeliest token (0.8)")
    add("--top-k", type=int, default=0, metavar="K", help="choose among the K likeliest; 0 is off (0)")
    add("--top-p", type=float, default=1.0, metavar="P", help="choose among those that sum to P; 1 is off (1)" )
    add("--min-p", type=float, default=0.0, metavar="P", help="drop those below P times the likeliest; 0 is off (0)")
    add("--repetition-penalty", type=float, default=1.0, metavar="X", help="above 1 avoids what is there; 1 is off (1)")
    add("--seed", type=int, default=0, help="the same seed gives the same texts (0)")
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be given several times")
    add("--past", choices=("roll", "stop"), default="roll", help="past the context: a shorter window, or stop (roll)")
    add("--json", action="store_true", help="one JSON record a text: ids, pieces, log-probabilities, speed")
    add("--top-tokens", type=whole(1, 1000), metavar="N", help="show the N likeliest tokens at every step")
    add("--trace", nargs="?", const="", metavar="FOLDER", help="how much is copied from the run's training shards")
    add("--compare", metavar="RUN2", help="show beside it what another run with the same tokenizer would say")
    add("--batch", type=whole(1, 1024), default=16, metavar="N", help="texts written at a time (16)")
    add("--no-cache", action="store_true", help="read everything again for each token: slow, the same text")
    add("--weights", choices=("auto", "fp32", "bf16", "int8"), default="auto", help="their number format (auto)")
    add("--compile", action="store_true", help="compile single steps where token_step.cpp does not make them")
    add("--threads", type=whole(1, 1024), metavar="N", help="of the processor, at most (as many as it has cores)")
    add("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    # fmt: on
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Raises UserError, or ends with argparse's line, for words that do not go together."""
    parser = parser_of()
    options = parser.parse_args(argv)
    if sum((options.prompt is not None, options.prompt_file is not None, options.interactive)) > 1:
        parser.error("--prompt, --prompt-file and --interactive exclude each other; give one of them")
    if options.interactive and (options.json or options.compare or options.top_tokens or options.samples > 1):
        parser.error("--interactive goes without --json, --compare, --top-tokens and --samples")
    if options.trace is not None and (options.interactive or options.compare or options.top_tokens):
        parser.error("--trace goes without --interactive, --compare and --top-tokens")
    if options.json and options.compare:
        parser.error("--json goes without --compare, which is a table; give one of them")
    one_by_one = options.interactive or ((options.compare or options.top_tokens) and not options.json)
    refuse_idle(parser.given(options), {"batch": (not one_by_one, "texts are written one at a time")})
    choosing = parser.given(options) & {"seed", "samples", "top_k", "top_p", "min_p"}
    if 0 <= options.temperature < 1e-6 and not options.interactive and choosing:
        names = ", ".join("--" + name.replace("_", "-") for name in sorted(choosing))
        note(f"at temperature 0 the likeliest token is taken: {names} changes no text")
    options.prompt = options.prompt and typed(options.prompt, "--prompt")
    options.stop = [typed(text, "--stop") for text in options.stop]
    return options


def whole(least: int, most: int) -> Any:
    """An argparse type: a whole number from `least` to `most`."""

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of {least} or more. Got {text!r}")
        if number > most:
            raise argparse.ArgumentTypeError(f"must be {most} or less. Got {text[:60]!r}")
        return number

    return convert


def read_prompts(options: argparse.Namespace) -> list[str]:
    """The prompts that were asked for. Raises UserError for a file that cannot be read."""
    name = options.prompt_file
    prompts = [options.prompt or ""] if name is None else prompts_of(name)
    note_blank(*prompts)
    return prompts


def prompts_of(name: str) -> list[str]:
    """One prompt a line: of a .jsonl file, and where every line is a JSON object with a "prompt", its string."""
    text = read_text(name).removesuffix("\n")
    lines = text.split("\n") if text else []  # U+2028 and the like end no line here
    pairs = [(line, f"{name}, line {n}") for n, line in enumerate(lines, 1) if line.strip()]
    as_json = name.lower().endswith(".jsonl")
    if (
        not as_json
        and pairs
        and all(isinstance(parsed(line), dict) and "prompt" in parsed(line) for line, _ in pairs)
    ):
        as_json = True
        note(f"{name} is read as JSON lines")
    if as_json:
        lines = [json_prompt(line, place) for line, place in pairs]
    if not lines:
        raise UserError(f"{name} holds no prompt; wanted one a line")
    return lines


def parsed(line: str) -> Any:
    """What a line of JSON holds; None where it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def json_prompt(line: str, where: str) -> str:
    record = parsed(line)
    prompt = record.get("prompt") if isinstance(record, dict) else record
    if not isinstance(prompt, str):
        raise UserError(f'{where}: wanted a JSON string or {{"prompt": "..."}}. Got {line[:60]!r}')
    return check_text(prompt, where)


# ---------------------------------------------------------------------------------------------------- models


def open_run(path: str, options: argparse.Namespace) -> "Run":
    import torch

    from model import build_model
    from rostok.devices import choose_device
    from rostok.generation.quantize import prepare_for_generation
    from rostok.runs import load_run

    if options.threads:
        torch.set_num_threads(options.threads)
    run = load_run(path, build_model, device=choose_device(options.device)[0].type)
    return replace(run, model=prepare_for_generation(run.model, options.weights))


# ---------------------------------------------------------------------------------------------------- writing


@dataclass
class Writing:
    """One text in the making: what `--json` prints of it, and what else is needed on the way."""

    prompt: str
    sample: int
    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish: str = "length"
    tokens: "list[Token]" = field(default_factory=list)
    seconds: float = 0.0


def write(
    run: "Run", options: argparse.Namespace, prompts: Sequence[str], first: int, show: Any = None
) -> list[Writing]:
    """One batch: continue every prompt, sample numbers from `first`. `show` sees each token."""
    from rostok.generation.generate import TextStream, stream

    tokenizer, top = run.tokenizer, options.top_tokens or (0 if options.json else None)
    reader = make_reader(run, [prompt_ids(run, prompt) for prompt in prompts], options)
    writings = [Writing(prompt, first + i) for i, prompt in enumerate(prompts)]
    texts = [TextStream(tokenizer.token_bytes, options.stop) for _ in prompts]
    sampling, started = sampling_of(options), time.perf_counter()
    for token in stream(
        reader, sampling, options.tokens, options.seed, first, tokenizer.start_id, top, texts
    ):
        writing = writings[token.row]
        writing.text += token.text
        if token.id >= 0:
            writing.ids.append(token.id)
            writing.tokens.append(token)
        if token.finish:
            writing.finish, writing.seconds = token.finish, time.perf_counter() - started
        if show:
            show(token)
    return writings


def record(run: "Run", writing: Writing, options: argparse.Namespace) -> dict[str, Any]:
    """What `--json` says of one text. Log-probabilities are the model's own, in nats, before any filter."""
    piece = run.tokenizer.token_bytes
    result: dict[str, Any] = {
        "prompt": writing.prompt,
        "text": writing.text,
        "finish": writing.finish,
        "seed": options.seed,
        "sample": writing.sample,
        "ids": writing.ids,
        "pieces": [show_piece(piece(id)) for id in writing.ids],
        "logprobs": [round(token.logprob, 6) for token in writing.tokens],
        "seconds": round(writing.seconds, 4),
        "tokens_per_second": round(len(writing.ids) / max(writing.seconds, 1e-9), 1),
    }
    if options.top_tokens:
        result["top"] = [[choice_record(run, choice) for choice in token.top] for token in writing.tokens]
    return result


def choice_record(run: "Run", choice: "Choice") -> dict[str, Any]:
    numbers = {"logprob": round(choice.logprob, 6), "share": round(choice.share, 6)}
    return {"id": choice.id, "piece": show_piece(run.tokenizer.token_bytes(choice.id))} | numbers


def show_piece(piece: bytes) -> str:
    """A token's bytes as text; what is not UTF-8 by itself is written \\xNN."""
    return piece.decode("utf-8", errors="backslashreplace")


# ---------------------------------------------------------------------------------------------------- showing


def batches(prompts: list[str], options: argparse.Namespace) -> Iterator[tuple[int, list[str]]]:
    """(number of the first sample, prompts) of each batch: every prompt `samples` times, `batch` at a time."""
    total = len(prompts) * options.samples
    for first in range(0, total, options.batch):
        yield first, [prompts[i // options.samples] for i in range(first, min(first + options.batch, total))]


def print_texts(run: "Run", options: argparse.Namespace, prompts: list[str]) -> list[Writing]:
    """A single text as it comes; several one after the other, each under a line that numbers it."""
    alone, writings = len(prompts) * options.samples == 1, []
    for first, part in batches(prompts, options):
        if alone:
            put(paint(part[0], "prompt"))
            [writing] = write(run, options, part, first, lambda token: put(shown(token.text)))
            put("\n")
            remark(writing)
            return [writing]
        for writing in write(run, options, part, first):
            put(
                f"--- {writing.sample + 1} ({writing.finish})\n{paint(writing.prompt, 'prompt')}{shown(writing.text)}\n"
            )
            writings.append(writing)
    return writings


def remark(writing: Writing) -> None:
    why = {"end": "the model ended the text", "stop": "a stop text came", "length": "--tokens reached"}
    why["context"] = "the context is full (--past roll goes on)"
    rate = len(writing.ids) / max(writing.seconds, 1e-9)
    print(f"[{len(writing.ids)} tokens, {rate:.0f} a second; {why[writing.finish]}]", file=sys.stderr)


def print_json(
    run: "Run", options: argparse.Namespace, prompts: list[str], training: "Training | None"
) -> None:
    for first, part in batches(prompts, options):
        writings = write(run, options, part, first)
        traces = training.records([(w.prompt, w.ids) for w in writings]) if training else [{}] * len(writings)
        for writing, trace in zip(writings, traces, strict=True):
            put(json.dumps(record(run, writing, options) | trace, ensure_ascii=False) + "\n")


# ---------------------------------------------------------------------------------------------------- learners' tables


def print_choices(run: "Run", options: argparse.Namespace, prompts: list[str], other: "Run | None") -> None:
    """Every step's likeliest tokens: what the model thinks, what the filters leave, and what another run thinks."""
    for first, part in batches(prompts, options):
        for i, prompt in enumerate(part):
            watcher = Watcher(other, prompt, options) if other else None
            put(f"--- {first + i + 1}: {json.dumps(prompt, ensure_ascii=False)}\n")
            step = 0

            def show(token: "Token", watcher: "Watcher | None" = watcher) -> None:
                nonlocal step
                step += 1
                if token.id >= 0:
                    put(step_table(run, token, step, watcher))

            [writing] = write(run, options, [prompt], first + i, show)
            put(f"{paint(prompt, 'prompt')}{shown(writing.text)}\n")


class Watcher:
    """Another run that reads along and says what it would have written."""

    def __init__(self, run: "Run", prompt: str, options: argparse.Namespace) -> None:
        self.name, self.top = run.folder.resolve().name, options.top_tokens
        # this run must not stop at its own context, so its window always rolls
        rolling = argparse.Namespace(**{**vars(options), "past": "roll"})
        self.reader = make_reader(run, [prompt_ids(run, prompt)], rolling)

    def follow(self, id: int) -> "tuple[float, tuple[Choice, ...]]":
        """The log-probability this run gives the chosen token, and its own likeliest ones."""
        import torch

        from rostok.generation.generate import weigh

        with torch.inference_mode():
            logits = self.reader.next_logits()[0].float()
        self.reader.append(0, id)
        seen = weigh(logits, logits, id, self.top)
        return seen["logprob"], seen["top"]


def step_table(run: "Run", token: "Token", step: int, watcher: "Watcher | None") -> str:
    """The lines of one step; `>` marks the token that was chosen."""
    import math

    name = lambda id: json.dumps(show_piece(run.tokenizer.token_bytes(id)), ensure_ascii=False)  # noqa: E731
    logprob, theirs = watcher.follow(token.id) if watcher else (0.0, ())
    head = f"step {step}: {paint(name(token.id), 'chosen')}, the model gave it {math.exp(token.logprob):.1%}"
    lines = [head + (f", {watcher.name} {math.exp(logprob):.1%}" if watcher else "")]
    lines.append("     model  filtered  token" + (" " * 19 + f"{watcher.name}" if watcher else ""))
    for rank, choice in enumerate(token.top):
        mark = ">" if choice.id == token.id else " "
        kept = f"{choice.share:8.1%}" if choice.share else "       -"
        line = f"  {mark} {math.exp(choice.logprob):6.1%}  {kept}  {name(choice.id)}"
        if rank < len(theirs):
            line = f"{line:<46} {math.exp(theirs[rank].logprob):6.1%}  {name(theirs[rank].id)}"
        lines.append(line)
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------------------------------- main


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    prompts = [] if options.interactive else read_prompts(options)
    sampling_of(options)
    run = open_run(options.run, options)
    other = open_run(options.compare, options) if options.compare else None
    if other and other.tokenizer.sha256 != run.tokenizer.sha256:
        raise UserError(
            f"{options.compare} has another tokenizer than {options.run}; --compare needs two runs on the same data"
        )
    if other and not options.top_tokens:
        options.top_tokens = 5
    if options.past == "stop" and run.model.limit is None:
        note(
            f"{options.run} sees its last tokens only, so no text fills its context: --past stop has no effect"
        )
    training = None
    if options.trace is not None:
        from rostok.generation.copies import open_training

        training = open_training(run, options.trace)
    if options.interactive:
        interact(run, options)
    elif options.json:
        print_json(run, options, prompts, training)
    elif options.top_tokens:
        print_choices(run, options, prompts, other)
    else:
        writings = print_texts(run, options, prompts)
        if training:
            print(training.words([(w.prompt, w.ids) for w in writings]), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main(main))
