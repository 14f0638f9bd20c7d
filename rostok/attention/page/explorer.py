"""The explorer: one HTML file, without any request to anywhere, to see and play with attention.

    python attend.py page checkpoints/rostok --out page.html                     # the three built-in stories
    python attend.py page checkpoints/rostok --text "Once upon a time ..." --steps 6.4 --out page.html
    python attend.py page checkpoints/rostok --compare checkpoints/gpt-1 --out page.html
    python attend.py page --demo --out page.html                                 # no model needed

    python attend.py page checkpoints/rostok --live --out page.html              # the run itself is inside: type in it

The documents come from document.py, or from demo.py; live.py packs a run; assemble.py makes the file.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rostok.attention.heads.capture import Subject, open_subject, spelling
from rostok.attention.heads.maps import read_text
from rostok.attention.page import live
from rostok.attention.page.assemble import page
from rostok.attention.page.demo import demo_documents
from rostok.attention.page.document import describe_model, document, opening
from rostok.attention.page.stories import stories
from rostok.attention.reference import forward
from rostok.errors import UserError
from rostok.files import check_out, write_out
from rostok.runs import data_of, texts_of
from rostok.text.shards import open_data
from rostok.text.tokenizer import Tokenizer

BIG = 8e6  # bytes of a static page, from where the command says what makes it smaller


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py page`."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run folder, or one of its step folders")
    parser.add_argument("--demo", action="store_true", help="heads that follow rules; no run needed")
    parser.add_argument("--text", help="the text to look at (default: three built-in stories)")
    parser.add_argument("--file", help="a text file to look at; - reads standard input")
    parser.add_argument(
        "--compare",
        metavar="RUN2",
        action="append",
        help="another run of the same tokenizer, side by side; may be given again",
    )
    parser.add_argument(
        "--live", action="store_true", help="a page that holds the run and computes: type a text in it"
    )
    parser.add_argument(
        "--small", action="store_true", help="with --live: weights of 8 bits; says what it costs"
    )
    parser.add_argument("--query", help="open the page at the last mention of this word ...")
    parser.add_argument("--key", help="... and on the head that looks hardest from it to this word")
    parser.add_argument(
        "--steps", default="", metavar="L.H[,L.H]|all", help="heads whose q, k and v travel along, from 1"
    )
    parser.add_argument(
        "--on-long", choices=["error", "head", "tail"], default="error", help="what to keep of a long text"
    )
    parser.add_argument("--allow-empty", action="store_true", help="an empty text is the start sign alone")
    parser.add_argument(
        "--out", default="page.html", help="a .html page, or .json for its documents (page.html)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def run(args: argparse.Namespace) -> int:
    """`attend.py page`: gather documents, write the page, print one line."""
    out = check_out(args.out, (".html", ".json"), args.force) or Path("page.html")
    if args.demo == bool(args.run):
        raise UserError("give a run folder or --demo, one of the two")
    asked = [name for name in ("text", "file", "compare", "query", "key") if getattr(args, name) is not None]
    asked += ["steps"] * bool(args.steps)
    if args.demo and asked:
        raise UserError(f"--demo shows its own texts and heads. Got --{asked[0]}; give a run folder for that")
    if (args.query is None) != (args.key is None):
        raise UserError("--query and --key go together: from which word, to which word")
    if args.query is not None and args.text is None and args.file is None:
        raise UserError("--query and --key are words of your text; give --text or --file too")
    if args.small and not args.live:
        raise UserError("--small is for a live page; give --live too")
    if args.live:
        return run_live(args, out)
    documents = demo_documents() if args.demo else run_documents(args)
    if out.suffix.lower() == ".json":
        content = json.dumps(documents, ensure_ascii=False, allow_nan=False).encode()
    else:
        content = page(documents).encode()
    write_out(out, content)
    if len(content) > BIG:
        print(
            f"{len(content) / 1e6:.1f} MB is much for a mail or a phone: fewer heads in --steps make it smaller, "
            "and --live has all of them",
            file=sys.stderr,
        )
    texts, runs = ({doc[part]["name"] for doc in documents} for part in ("text", "model"))
    print(f"{out}: texts {len(texts)}, runs {len(runs)}, {len(content) / 1e6:.2f} MB")
    return 0


def run_live(args: argparse.Namespace, out: Path) -> int:
    """`attend.py page --live`: pack the runs, say what was rounded and what it costs, write the page."""
    if args.demo or args.steps or out.suffix.lower() != ".html":
        raise UserError("--live wants a run and an --out that ends in .html, without --demo and --steps")
    runs = open_runs(args, ("gpt", "window-mlp"))
    texts = {name: (text, look) for name, (text, *look) in _texts(args, runs[0].tokenizer).items()}
    ids = {
        name: [subject.encode(text, "head", True)[0] for subject in runs] for name, (text, _) in texts.items()
    }
    packs = [live.pack(subject, "i8" if args.small else "bf16") for subject in runs]
    for number, (subject, packed) in enumerate(zip(runs, packs, strict=True)):
        packed["model"] = describe_model(subject.name, "trained", subject.weights, live.settings(subject))
        if args.small or live.changed_share(subject.weights):
            print(
                price_line(subject, packed, args.small, [lists[number] for lists in ids.values()]), flush=True
            )
    contents = {
        "runs": packs,
        "tokenizer": live.tokenizer_block(runs[0].tokenizer),
        "texts": {
            name: {"text": text, "view": live_view(runs, ids[name], look)}
            for name, (text, look) in texts.items()
        },
    }
    content = page([], runs=contents).encode()
    write_out(out, content)
    print(f"{out}: live, runs {len(runs)}, {len(content) / 1e6:.2f} MB")
    return 0


def price_line(subject: Subject, packed: dict[str, Any], small: bool, shown: Sequence[Sequence[int]]) -> str:
    """What rounding costs: on held-out texts of the run's data, where these are at hand, else on the page's texts."""
    texts, where = held_out(subject), "held-out texts"
    if not texts:
        texts, where = shown, "texts of the page (the data of the run is not here)"
    own, coded = live.price(subject, packed, texts)
    share, bits = (1.0, "8 bits") if small else (live.changed_share(subject.weights), "bf16")
    return (
        f"{subject.name}: {share:.0%} of the weights rounded to {bits}; loss on {len(texts)} {where} "
        f"{own:.4f} -> {coded:.4f} nats a token ({coded - own:+.4f})"
    )


def held_out(subject: Subject, tokens: int = 4000) -> list[Sequence[int]]:
    """The first held-out texts of the data that a run was trained on, about `tokens` tokens; none where it is gone."""
    try:
        if subject.run is None:
            return []
        data = open_data(data_of(subject.run.folder, subject.run.config))
    except UserError:
        return []
    texts: list[Sequence[int]] = []
    for ids in texts_of(data, "valid", subject.tokenizer, 1000):
        if sum(map(len, texts)) >= tokens:
            break
        if len(ids) > 1:
            texts.append(ids[: subject.context].tolist())
    return texts


def live_view(
    runs: Sequence[Subject], ids: Sequence[Sequence[int]], look: Sequence[str | None]
) -> dict[str, int]:
    """Where the first run that has attention opens on a text, as `opening` says."""
    for subject, own in zip(runs, ids, strict=True):
        if subject.config["kind"] == "gpt":
            trace: dict[str, np.ndarray] = {}
            forward(subject.weights, subject.config, own, trace, keep=lambda name: name.endswith("pattern"))
            words = (str(look[0]), str(look[1])) if look and look[0] is not None else None
            return opening(np.stack(list(trace.values())), spelling(subject.tokenizer, own), words)
    return {"layer": 0, "head": 0, "token": len(ids[0]) - 1}


def open_runs(args: argparse.Namespace, kinds: Sequence[str] = ("gpt",)) -> list[Subject]:
    """The runs that the words name, all of one tokenizer and each with a name of its own. Raises UserError."""
    runs = [open_subject(path, kinds) for path in (args.run, *(args.compare or []))]
    for subject in runs[1:]:
        if subject.tokenizer.sha256 != runs[0].tokenizer.sha256:
            raise UserError(
                f"{runs[0].name} and {subject.name} have different tokenizers; compare runs of one tokenizer"
            )
    names = [subject.name for subject in runs]
    numbers = [names[:at].count(name) for at, name in enumerate(names)]
    return [
        replace(subject, name=f"{subject.name} ({n + 1})" if n else subject.name)
        for subject, n in zip(runs, numbers, strict=True)
    ]


def run_documents(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A document for every text and run that the words ask for."""
    runs = open_runs(args)
    out = []
    for name, (text, *look) in _texts(args, runs[0].tokenizer).items():
        for number, subject in enumerate(runs):
            ids, dropped = subject.encode(text, args.on_long, args.allow_empty)
            steps = _steps(args.steps, subject.n_layer, subject.n_head) if not number else None
            doc = document(subject.weights, subject.config, ids, subject.tokenizer, run=subject.name, text=name,
                           look=(look[0], look[1]) if look else None, steps=steps, dropped=dropped)  # fmt: skip
            out.append(doc)
    return out


def _texts(args: argparse.Namespace, tokenizer: Tokenizer) -> dict[str, tuple[str, ...]]:
    """Name -> (text, query word, key word) or (text,)."""
    if args.text is None and args.file is None:
        return dict(stories(tokenizer))
    text = read_text(args)
    return {"own": (text, args.query, args.key) if args.query is not None else (text,)}


def _steps(words: str, n_layer: int, n_head: int) -> list[tuple[int, int]] | None:
    """Words to pairs: "6.4,1.2" -> [(5, 3), (0, 1)]; "all" -> every head; "" -> None, the head that opens the page."""
    if not words:
        return None
    if words == "all":
        return [(layer, head) for layer in range(n_layer) for head in range(n_head)]
    out = []
    for word in words.split(","):
        match = re.fullmatch(r"\s*(\d+)\.(\d+)\s*", word)
        layer, head = (int(match[1]), int(match[2])) if match else (0, 0)
        if not (1 <= layer <= n_layer and 1 <= head <= n_head):
            raise UserError(
                f"--steps wants layer.head like 1.2, layers 1 to {n_layer}, heads 1 to {n_head}. Got {word!r}"
            )
        out.append((layer - 1, head - 1))
    return out
