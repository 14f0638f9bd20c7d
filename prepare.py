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

    1. read     files, folders, globs (.txt .jsonl .json .csv .parquet, each also .gz) into one temporary file
    2. split    exact duplicates dropped; held out by a hash of the text's content, few texts by position
    3. learn    a byte-level BPE on the training part only
    4. encode   in parallel, batch after batch, into .npy shards
    5. rename   the finished folder to its name

Left out: cleaning, near duplicates, encodings other than UTF-8. See docs/data.md.
"""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rostok.errors import Parser, UserError, run_main, standard_input
from rostok.files import new_folder
from rostok.text import hub
from rostok.text.shards import MANIFEST, Chunk, Data, file_sha256, open_data, write_data
from rostok.text.sources import ReadOptions, find_files, first_texts, read_chunks, read_stream
from rostok.text.spool import Spool
from rostok.text.tokenizer import Tokenizer, check_vocab_size, load_tokenizer, train_tokenizer

STORIES = 20_000  # built-in stories unless --stories says otherwise
VOCABULARY = 4096
TOKENIZER_BYTES = 32_000_000  # the tokenizer learns from at most this much text, evenly spread
MAX_THREADS = 1024
RECIPE_VERSION = 1  # after a change here no old folder counts as ready


@dataclass
class Source:
    """What is to be read: `recipe` identifies it; `train` and `valid` are chunks (valid None: split train)."""

    name: str
    recipe: dict[str, Any] | None  # None: cannot be known beforehand (stdin)
    train: Iterable[Chunk]
    valid: Iterable[Chunk] | None = None
    files: list[str] = field(default_factory=list)


def main(argv: Sequence[str]) -> int | None:
    """Prepare what the words ask for and print a summary."""
    args = parse(argv)
    started = time.perf_counter()
    source = open_source(args)
    out = Path(args.out or Path("data") / source.name)
    tokenizer = load_tokenizer(args.tokenizer) if args.tokenizer else None
    recipe = recipe_hash(source, args, tokenizer)
    if found := existing(out, recipe, args.force):
        return report(found, {"reused": True}, args.json)
    data, timing = prepare(source, out, args, tokenizer, recipe)
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
    add("--valid-share", type=float, default=0.05, metavar="X",
        help="share held out otherwise (default 0.05)")
    add("--vocab", type=int, metavar="N", help=f"size of the vocabulary to learn (default {VOCABULARY})")
    add("--tokenizer", metavar="NAME",
        help="use this one: a data folder, a run folder, or gpt2, cl100k_base, ...")
    add("--stories", type=int, metavar="N",
        help=f"how many texts to read (default: {STORIES} built-in stories, all texts of other sources)")
    add("--seed", type=int, default=1, metavar="N", help="of the built-in stories (default 1)")
    add("--marker", default="<|endoftext|>", metavar="LINE", help="the line between two texts of a .txt file")
    add("--split-by", choices=("auto", "marker", "file"), default="auto",
        help="how a .txt file is cut into texts")
    add("--field", default="text", metavar="NAME", help="field of .jsonl/.json, column of .csv/.parquet")
    add("--errors", choices=("strict", "replace"), default="strict",
        help="what to do with bytes that are not UTF-8")
    add("--threads", type=int, metavar="N", help="threads that encode (default: one for each core)")
    add("--force", action="store_true", help="prepare again, replace the folder that is there")
    add("--json", action="store_true", help="print the summary as one line of JSON")
    # fmt: on
    args = parser.parse_args(argv)
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
    if not args.marker.strip() or "\n" in args.marker:
        raise UserError("--marker must be one line that is not empty, such as '<|endoftext|>'")
    if "-" in args.source and "-" in (args.valid or []):
        raise UserError("standard input can be read once: give --source or --valid a file instead of -")
    if len(args.source) > 1 and {"-", "stories", "tinystories"} & set(args.source):
        raise UserError(
            "stories, tinystories and - stand alone after --source; files and folders may be many"
        )


# what is to be read


def open_source(args: argparse.Namespace) -> Source:
    word = args.source[0]
    if word == "stories" and not Path(word).exists():
        source = built_in(args.stories or STORIES, args.seed)
    elif word == "tinystories" and not Path(word).exists():
        source = tinystories(args.stories)
    else:
        source = own_text(args.source, read_options(args), args.stories)
    if args.valid:
        given = own_text(args.valid, read_options(args), None)
        source.valid = given.train
        source.files += given.files
        if source.recipe is not None:
            source.recipe["valid"] = given.recipe
    return source


def read_options(args: argparse.Namespace) -> ReadOptions:
    return ReadOptions(utf8(args.marker).strip(), args.split_by, args.errors, utf8(args.field))


def utf8(word: str) -> str:
    """A word from the command line or a file's name as UTF-8, whatever the locale made of it."""
    return os.fsencode(word).decode(errors="replace")


def built_in(count: int, seed: int) -> Source:
    """The stories of the grammar. The first ones are part of the recipe: a new grammar is a new source."""
    from rostok.text.stories.plots import generate_stories

    head = "\n".join(islice(generate_stories(count, seed), 20))
    recipe = {"stories": count, "seed": seed, "head": hashlib.sha256(head.encode()).hexdigest()}
    return Source("stories", recipe, ((story, True) for story in generate_stories(count, seed)))


def tinystories(count: int | None) -> Source:
    """TinyStories as its authors published it: the first `count` training stories, the whole validation file."""
    dataset = hub.TINYSTORIES
    train, valid = (hub.fetch(dataset, file) for file in (dataset.train, dataset.valid))
    recipe = {"repo": dataset.repo, "revision": dataset.revision, "stories": count}
    chunks = first_texts(read_chunks(train), count)
    names = [dataset.train.name, dataset.valid.name]
    return Source("tinystories", recipe, chunks, read_chunks(valid), names)


def own_text(words: Sequence[str], options: ReadOptions, count: int | None) -> Source:
    if list(words) == ["-"]:
        chunks = read_stream(standard_input().buffer, Path("standard input"), options)
        return Source("stdin", None, first_texts(chunks, count))
    files = find_files(words)
    names = [utf8(file.name) for file in files]
    hashes = [file_sha256(file) for file in files]
    recipe = {"files": list(zip(names, hashes, strict=True)), "options": asdict(options), "stories": count}
    chunks = (chunk for file in files for chunk in read_chunks(file, options))
    name = Path(words[0].rstrip("/")).name.split(".")[0].strip("*?[]") or "mine"
    return Source(name, recipe, first_texts(chunks, count), None, names)


def recipe_hash(source: Source, args: argparse.Namespace, tokenizer: Tokenizer | None) -> str | None:
    """Equal recipes give equal folders; None when the source can be read only once."""
    if source.recipe is None:
        return None
    learn = {"tokenizer": tokenizer.sha256 if tokenizer else args.vocab}
    recipe = {"version": RECIPE_VERSION, **source.recipe, **learn, "valid_share": args.valid_share}
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def existing(out: Path, recipe: str | None, force: bool) -> Data | None:
    """The data in `out` where this recipe made it; None where new data may be written.

    Raises UserError for other data without --force, and always for a folder that prepare.py did not write.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not (out / MANIFEST).is_file():
        raise UserError(f"{out} exists and is no data folder: give another --out")
    try:
        data = open_data(out)
        _ = [data.split(name) for name in ("train", "valid")]
    except UserError:  # damaged, or written by another version
        return None
    if not force and (recipe is None or data.manifest.get("recipe") != recipe):
        raise UserError(f"{out} holds other data or was made with other options: type --force to replace it")
    return None if force else data


# the work


def prepare(
    source: Source, out: Path, args: argparse.Namespace, tokenizer: Tokenizer | None, recipe: str | None
) -> tuple[Data, dict[str, float]]:
    """Steps 1 to 5 of the head of this file. Returns the new data and how long the steps took."""
    with new_folder(out, replace=True) as folder, closing(Spool(folder)) as spool:
        read(source, spool)
        how = spool.split(args.valid_share)
        learning = time.perf_counter()
        tokenizer = tokenizer or train_tokenizer(spool.sample("train", TOKENIZER_BYTES), args.vocab)
        encoding = time.perf_counter()
        info = {
            "source": {"name": utf8(source.name), "files": source.files},
            "recipe": recipe,
            "split_by": how,
            "valid_share": None if how == "given" else args.valid_share,
            "duplicates": spool.duplicates,
            "empty": spool.empty,
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


def read(source: Source, spool: Spool) -> None:
    """Put everything into the spool, a validation part of the user's first."""
    with tqdm(desc="reading", unit="B", unit_scale=True, disable=None) as bar:
        for part in (source.valid, source.train):
            for chunk in part or ():
                before = spool.size
                spool.add(chunk)
                bar.update(spool.size - before)
            if part is source.valid and part is not None:
                spool.end_of_valid()


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
        print(f"{data.folder} is ready: made from the same text with the same options (--force: again)")
    else:
        print("\n".join(lines(summary)))


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


if __name__ == "__main__":
    raise SystemExit(run_main(main))
