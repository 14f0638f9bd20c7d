"""Text -> tokenizer and token shards.

    python prepare.py                                        # 20,000 built-in stories -> data/stories
    python prepare.py --source stories --stories 50000 --seed 7 --out data/more-stories
    python prepare.py --source tinystories --stories 100000  # the first 100,000 (downloads 2.2 GB)
    python prepare.py --source shakespeare.txt               # your own: -> data/shakespeare
    python prepare.py --source train.txt --valid valid.txt --out data/mine --vocab 8192
    python prepare.py --source "books/*.txt" notes/ chats.jsonl.gz --field body --out data/mix
    zcat big.gz | python prepare.py --source - --out data/big
    python prepare.py --source new.txt --tokenizer data/mine # with the ids of another data folder
    python prepare.py --source new.txt --tokenizer gpt2      # with a published tiktoken encoding
    python prepare.py --source web.txt --mojibake repair     # â€œ becomes “ again

    1. read     files, folders, globs (.txt .jsonl .json .csv .parquet, each also .gz) into one temporary file
    2. split    exact duplicates dropped; held out by a hash of the text's content, few texts by position
    3. learn    a byte-level BPE on the training part only
    4. encode   in parallel, batch after batch, into .npy shards
    5. rename   the finished folder to its name

Left out: cleaning, near duplicates, encodings other than UTF-8. See docs/data.md.
"""

import argparse
import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rostok.errors import Parser, UserError, refuse_idle, run_main, verb, visible
from rostok.files import check_folder, new_folder
from rostok.text.advice import hint_for, training_for, typed_out
from rostok.text.corpus import STORIES, Corpus, open_corpus, utf8
from rostok.text.reading import typed
from rostok.text.shards import Chunk, Data, foreign_names, is_data_folder, open_data, write_data
from rostok.text.sources import ReadOptions
from rostok.text.spool import Spool
from rostok.text.tokenizer import Tokenizer, check_vocab_size, load_tokenizer, train_tokenizer

VOCABULARY = 4096
TOKENIZER_BYTES = 32_000_000  # the tokenizer learns from at most this much text, evenly spread
MAX_THREADS = 1024
# Options that have no effect on some sources: None until the user gives one, so that it can be refused there.
DEFAULTS = {
    "valid_share": 0.05,
    "seed": 1,
    "marker": "<|endoftext|>",
    "split_by": "auto",
    "field": "text",
    "errors": "strict",
    "kind": "auto",
    "mojibake": "warn",
}
RECIPE_VERSION = 1  # after a change here no old folder counts as ready


def main(argv: Sequence[str]) -> int | None:
    """Prepare what the words ask for and print a summary."""
    args = parse(argv)
    started = time.perf_counter()
    marker, column = typed(args.marker, "--marker").strip(), typed(args.field, "--field")
    options = ReadOptions(marker, args.split_by, args.errors, column, args.kind)
    corpus = open_corpus(args.source, args.valid, options, args.stories, args.seed)
    refuse_without_effect(args, corpus)
    out = check_folder(args.out or Path("data") / corpus.name)
    tokenizer = load_tokenizer(args.tokenizer) if args.tokenizer else None
    recipe = recipe_hash(corpus, args, tokenizer)
    if found := existing(out, recipe, args.force):
        return report(found, {"reused": True}, args.json)
    data, timing = prepare(corpus, out, args, tokenizer, recipe)
    return report(
        data, {"reused": False, "seconds": round(time.perf_counter() - started, 2), **timing}, args.json
    )


def parse(argv: Sequence[str]) -> argparse.Namespace:
    examples = (__doc__ or "").partition("\n")[2]
    parser = Parser(
        description="Text -> tokenizer and token shards.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    # fmt: off
    add("--source", nargs="+", default=["stories"], metavar="WORD",
        help="stories, tinystories, files, folders, or - (standard input)")
    add("--out", metavar="FOLDER", help="where the shards go (default data/NAME)")
    add("--valid", nargs="+", metavar="FILE", help="held-out text of your own, used as it is")
    add("--valid-share", type=float, metavar="X",
        help="share held out otherwise (default 0.05)")
    add("--vocab", type=int, metavar="N", help=f"size of the vocabulary to learn (default {VOCABULARY})")
    add("--tokenizer", metavar="NAME",
        help="use this one: a data folder, a run folder, or gpt2, cl100k_base, ...")
    add("--stories", type=int, metavar="N",
        help=f"how many texts to read (default: {STORIES} built-in stories, all texts of other sources)")
    add("--seed", type=int, metavar="N", help="of the built-in stories (default 1)")
    add("--marker", metavar="LINE", help="the line between two texts of a .txt file")
    add("--split-by", choices=("auto", "marker", "file"), help="how a .txt file is cut into texts")
    add("--field", metavar="NAME", help="field of .jsonl/.json, column of .csv/.parquet (default text)")
    add("--kind", choices=("txt", "jsonl", "json", "csv"),
        help="how to read standard input, pipes and files (default: by the end of the name)")
    add("--errors", choices=("strict", "replace"), help="what to do with bytes that are not UTF-8")
    add("--mojibake", choices=("warn", "repair", "drop"),
        help="what to do with texts that hold damaged signs such as â€œ (default warn)")
    add("--threads", type=int, metavar="N", help="threads that encode (default: one for each core)")
    add("--force", action="store_true", help="prepare again, replace the folder that is there")
    add("--json", action="store_true", help="print the summary as one line of JSON")
    # fmt: on
    args = parser.parse_args(argv)
    args.given = {name for name in DEFAULTS if getattr(args, name) is not None}
    for name in DEFAULTS.keys() - args.given:
        setattr(args, name, DEFAULTS[name])
    check(args)
    args.vocab = VOCABULARY if args.vocab is None else args.vocab
    return args


def check(args: argparse.Namespace) -> None:
    """Refuse options that contradict each other before anything is read."""
    if args.out == "" or args.tokenizer == "" or "" in [*args.source, *(args.valid or [])]:
        raise UserError(
            "--source, --valid, --tokenizer and --out must not be empty: is a shell variable unset?"
        )
    if args.threads is not None and not 1 <= args.threads <= MAX_THREADS:
        raise UserError(f"--threads {args.threads}: wanted 1 to {MAX_THREADS}, or leave it out")
    if not 0 < args.valid_share < 1:
        raise UserError(f"--valid-share {args.valid_share}: wanted a share between 0 and 1, such as 0.05")
    if args.vocab is not None:
        check_vocab_size(args.vocab)
    if args.vocab is not None and args.tokenizer:
        raise UserError(
            "--vocab is for a new tokenizer, --tokenizer for one that exists: type one of the two"
        )
    if args.stories is not None and args.stories < 1:
        raise UserError(f"--stories {args.stories}: wanted 1 or more")
    if (args.stories or 0) > 100_000_000:
        raise UserError(f"--stories must be 100,000,000 or less. Got {str(args.stories)[:40]}")
    if not args.marker.strip() or "\n" in args.marker:
        raise UserError("--marker must be one line that is not empty, such as '<|endoftext|>'")
    if "-" in args.source and "-" in (args.valid or []):
        raise UserError("standard input can be read once: give --source or --valid a file instead of -")
    if len(args.source) > 1 and {"-", "stories", "tinystories"} & set(args.source):
        raise UserError(
            "stories, tinystories and - stand alone after --source; files and folders may be many"
        )


def refuse_without_effect(args: argparse.Namespace, corpus: Corpus) -> None:
    """Raise UserError for an option that has no effect on this corpus."""
    by_lines = "text" in corpus.kinds and args.split_by != "file"
    effects = {
        "valid_share": (corpus.valid is None, "the held-out text is given"),
        "seed": (corpus.built_in, "only built-in stories have a seed"),
        "marker": (by_lines, "no .txt file is cut at lines"),
        "split_by": ("text" in corpus.kinds, "no .txt file is read"),
        "field": ("table" in corpus.kinds, "no .jsonl, .json, .csv or .parquet is read (see --kind)"),
        "errors": (bool(corpus.kinds), "no file of your own is read"),
        "kind": (bool(corpus.kinds), "no file of your own is read"),
        "mojibake": (not corpus.built_in, "the built-in stories have none"),
    }
    refuse_idle(args.given, effects)


def recipe_hash(corpus: Corpus, args: argparse.Namespace, tokenizer: Tokenizer | None) -> str | None:
    """Equal recipes give equal folders; None when the source can be read only once."""
    if corpus.recipe is None:
        return None
    learn = {"tokenizer": tokenizer.sha256 if tokenizer else args.vocab}
    recipe = {"version": RECIPE_VERSION, **corpus.recipe, **learn, "valid_share": args.valid_share}
    if args.mojibake != DEFAULTS["mojibake"]:
        recipe["mojibake"] = args.mojibake
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def existing(out: Path, recipe: str | None, force: bool) -> Data | None:
    """The data in `out` where this recipe made it; None where new data may be written.

    Raises UserError for other or damaged data without --force, and always for a folder that prepare.py did not write
    or that holds anything else: replacing it would delete that.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not is_data_folder(out):
        raise UserError(f"{out} exists and is not a folder that {verb('prepare')} wrote: give another --out")
    data, same = None, False
    with contextlib.suppress(UserError):  # a damaged folder is replaced, with --force
        data = open_data(out)
        same = recipe is not None and data.manifest.get("recipe") == recipe
        _ = [data.split(name) for name in ("train", "valid")]
        if same and not force:
            return data
    if foreign := foreign_names(out):
        raise UserError(
            f"{out} also holds {', '.join(foreign[:3])}, not written by {verb('prepare')}: move that, or give "
            "another --out"
        )
    if not force and not same:
        state = "other data or was made with other options" if data else "damaged data"
        raise UserError(f"{out} holds {state}: type --force to replace it")
    return None


# the work


def prepare(
    corpus: Corpus, out: Path, args: argparse.Namespace, tokenizer: Tokenizer | None, recipe: str | None
) -> tuple[Data, dict[str, float]]:
    """Steps 1 to 5 of the head of this file. Returns the new data and how long the steps took."""
    with new_folder(out, replace=True) as folder, contextlib.closing(Spool(folder, args.mojibake)) as spool:
        read(corpus, spool)
        how = spool.split(args.valid_share)
        warn(spool, how, args)
        learning = time.perf_counter()
        tokenizer = tokenizer or train_tokenizer(spool.sample("train", TOKENIZER_BYTES), args.vocab)
        encoding = time.perf_counter()
        info = {
            "source": {"name": utf8(corpus.name), "files": corpus.files},
            "recipe": recipe,
            "split_by": how,
            "valid_share": None if how == "given" else args.valid_share,
            "duplicates": spool.duplicates,
            "empty": spool.empty,
            "mojibake": spool.damaged,
        }
        splits = {name: with_bar(spool, name) for name in ("train", "valid")}
        data = write_data(folder, splits, tokenizer, info, args.threads)
        done = time.perf_counter()
    megabytes = sum(split["bytes"] for split in data.manifest["splits"].values()) / 1e6
    timing = {
        "learn_seconds": round(encoding - learning, 2),
        "encode_seconds": round(done - encoding, 2),
        "encode_mb_per_s": round(megabytes / (done - encoding), 1),
    }
    return open_data(out), timing


def read(corpus: Corpus, spool: Spool) -> None:
    """Put everything into the spool, a validation part of the user's first."""
    with tqdm(desc="reading", unit="B", unit_scale=True, disable=None) as bar:
        for part in (corpus.valid, corpus.train):
            for chunk in part or ():
                before = spool.size
                spool.add(chunk)
                bar.update(spool.size - before)
            if part is corpus.valid and part is not None:
                spool.end_of_valid()


def warn(spool: Spool, how: str, args: argparse.Namespace) -> None:
    """Say on stderr what may spoil the training: damaged texts, and a held-out share that was missed by far."""
    if spool.damaged:
        advice = "--mojibake repair corrects them, --mojibake drop leaves the texts out"
        done = {"warn": advice, "repair": "they were corrected", "drop": "the texts were left out"}[
            args.mojibake
        ]
        what = f"{spool.damaged:,} texts hold signs such as â€œ, which another encoding made of “"
        print(f"{'warning' if done is advice else 'note':9} {what}: {done}", file=sys.stderr)
    share = spool.held_out_share
    if how != "given" and abs(share - args.valid_share) > args.valid_share / 2:
        print(
            f"warning   {share:.1%} of the text is held out, not {args.valid_share:.1%}: its few texts cannot be "
            "divided better; give more texts, or --valid FILE",
            file=sys.stderr,
        )


def with_bar(spool: Spool, split: str) -> Iterator[Chunk]:
    total = spool.bytes_of(split)
    with tqdm(desc=f"encoding {split}", total=total, unit="B", unit_scale=True, disable=None) as bar:
        for text, last in spool.chunks(split):
            yield text, last
            bar.update(len(text.encode()) if not bar.disable else 0)


# the summary


def report(data: Data, timing: dict[str, Any], as_json: bool) -> None:
    summary = {**summarise(data), **timing}
    if as_json:
        print(json.dumps(summary, ensure_ascii=False))
    elif timing["reused"]:
        print(
            visible(f"{data.folder} is ready: made from the same text with the same options (--force: again)")
        )
        print("\n".join(map(visible, proposals(data))))
    else:
        print("\n".join(map(visible, [*lines(summary), *proposals(data)])))


def summarise(data: Data) -> dict[str, Any]:
    manifest = data.manifest
    splits = {name: {**part} for name, part in manifest["splits"].items()}
    for part in splits.values():
        without_opening = max(1, part["tokens"] - part["texts"])
        part["bytes_per_token"] = round(part["bytes"] / without_opening, 3)
    return {
        "out": str(data.folder),
        "tokenizer": manifest["tokenizer"]["name"],
        "vocab_size": data.vocab_size,
        "split_by": manifest["split_by"],
        "duplicates": manifest["duplicates"],
        "empty": manifest["empty"],
        "mojibake": manifest.get("mojibake", 0),
        **splits,
    }


def lines(summary: dict[str, Any]) -> Iterator[str]:
    for name in ("train", "valid"):
        part = summary[name]
        yield (
            f"{name:9} {part['texts']:>11,} texts {part['tokens']:>13,} tokens {part['bytes']:>14,} bytes"
            f"  {part['bytes_per_token']:.2f} bytes per token"
        )
    dropped = f"{summary['duplicates']:,} duplicates and {summary['empty']:,} empty texts dropped"
    yield f"split     by {summary['split_by']}; {dropped}"
    yield f"tokenizer {summary['tokenizer']}: {summary['vocab_size']:,} ids, {summary['learn_seconds']} s"
    yield f"encoding  {summary['encode_mb_per_s']} MB/s; {summary['seconds']} s in all"
    yield f"written   {summary['out']}"


def proposals(data: Data) -> Iterator[str]:
    """What to do with the data now; and a better way, where there is one."""
    own = data.manifest["source"]["name"] not in ("stories", "tinystories")
    if own and (hint := hint_for(data)):
        yield f"hint      {hint} (docs/tutorial.md)"
    yield f"next      {verb('train')} {typed_out(training_for(data))}"


if __name__ == "__main__":
    raise SystemExit(run_main(main))
