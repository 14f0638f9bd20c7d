"""What prepare.py reads: built-in stories, TinyStories, or the user's own files.

    corpus = open_corpus(["books/*.txt"], ["valid.txt"], ReadOptions())
    for text, last in corpus.train: ...

Nothing is read before the chunks are asked for, except for the hashes in the recipe. Left out: mixtures with weights.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rostok.errors import standard_input
from rostok.text import hub
from rostok.text.shards import Chunk, file_sha256
from rostok.text.sources import (
    TABLE_KINDS,
    ReadOptions,
    find_files,
    first_texts,
    kind_of,
    read_chunks,
    read_stream,
)

STORIES = 20_000  # built-in stories unless the user says otherwise


@dataclass
class Corpus:
    """What is to be read: `recipe` identifies it; `train` and `valid` are chunks (valid None: split train).

    kinds: "text", "table" or both where files of the user's own are read.
    """

    name: str
    recipe: dict[str, Any] | None  # None: it can be read only once, so it is not known before
    train: Iterable[Chunk]
    valid: Iterable[Chunk] | None = None
    files: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)

    @property
    def built_in(self) -> bool:
        return self.name == "stories" and not self.kinds


def open_corpus(
    words: Sequence[str],
    valid: Sequence[str] | None = None,
    options: ReadOptions | None = None,
    count: int | None = None,
    seed: int = 1,
) -> Corpus:
    """The corpus that the words after --source (and --valid) name. count: no more texts than so many."""
    if words[0] == "stories" and not Path(words[0]).exists():
        corpus = _built_in(count or STORIES, seed)
    elif words[0] == "tinystories" and not Path(words[0]).exists():
        corpus = _tinystories(count)
    else:
        corpus = _own_text(words, options or ReadOptions(), count)
    if valid:
        given = _own_text(valid, options or ReadOptions(), None)
        corpus.valid = given.train
        corpus.files += given.files
        corpus.kinds |= given.kinds
        once = corpus.recipe is None or given.recipe is None
        corpus.recipe = None if once else {**(corpus.recipe or {}), "valid": given.recipe}
    return corpus


def _built_in(count: int, seed: int) -> Corpus:
    """The stories of the grammar. The first ones are part of the recipe: a new grammar is a new corpus."""
    from rostok.text.stories.plots import generate_stories

    head = "\n".join(islice(generate_stories(count, seed), 20))
    recipe = {"stories": count, "seed": seed, "head": hashlib.sha256(head.encode()).hexdigest()}
    return Corpus("stories", recipe, ((story, True) for story in generate_stories(count, seed)))


def _tinystories(count: int | None) -> Corpus:
    """TinyStories as its authors published it: the first `count` training stories, the whole validation file."""
    dataset = hub.TINYSTORIES
    train, valid = (hub.fetch(dataset, file) for file in (dataset.train, dataset.valid))
    recipe = {"repo": dataset.repo, "revision": dataset.revision, "stories": count}
    chunks = first_texts(read_chunks(train), count)
    names = [dataset.train.name, dataset.valid.name]
    return Corpus("tinystories", recipe, chunks, read_chunks(valid), names)


def _own_text(words: Sequence[str], options: ReadOptions, count: int | None) -> Corpus:
    """Files, or standard input. A pipe is read once, so nothing is known of it beforehand."""
    if list(words) == ["-"]:
        files = [Path("standard input")]
        chunks = read_stream(standard_input().buffer, files[0], options)
    else:
        files = find_files(words)
        chunks = (chunk for file in files for chunk in read_chunks(file, options))
    chunks = first_texts(chunks, count)
    kinds = {"table" if kind_of(file, options) in TABLE_KINDS else "text" for file in files}
    if not all(file.is_file() for file in files):
        return Corpus("stdin", None, chunks, kinds=kinds)
    names = [utf8(file.name) for file in files]
    used = asdict(options)
    if used["kind"] == "auto":
        del used["kind"]  # it is not in the recipes of older folders
    hashes = [file_sha256(file) for file in files]
    recipe = {"files": list(zip(names, hashes, strict=True)), "options": used, "stories": count}
    name = Path(words[0].rstrip("/")).name.split(".")[0].strip("*?[]") or "mine"
    return Corpus(name, recipe, chunks, None, names, kinds)


def utf8(name: str) -> str:
    """The name of a file as UTF-8, whatever the locale made of it."""
    return os.fsencode(name).decode(errors="replace")
