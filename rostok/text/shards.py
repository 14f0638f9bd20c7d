"""Token shards: texts as ids in plain .npy files, written as a stream, memory-mapped by their readers.

    data/NAME/manifest.json              what is here: counts, bytes, hashes, source, tokenizer
    data/NAME/tokenizer.json             written by the tokenizer
    data/NAME/train-00000.npy            ids, 1-D, uint16 (uint32 for a vocabulary above 65,536)
    data/NAME/train-00000.offsets.npy    int64: where each text of the shard begins, and the end of the last

A text is stored as ◆ and its tokens; the ◆ of the next text ends it. `np.load` opens every file; nothing is pickled.

    with ShardWriter(folder, "train", vocab_size, start_id) as writer:   # writing, see also `write_data`
        writer.add(ids, text_bytes, last=True)
    data = open_data(folder); train = data.split("train"); train.text(0)  # reading
    verify(folder)                                                        # every hash, every id

Left out: compression (a memory map must see the ids), changing a shard once it is written.
"""

import bisect
import hashlib
import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Protocol

import numpy as np

from rostok.errors import UserError, verb
from rostok.files import write_file

MANIFEST = "manifest.json"
FORMAT = "rostok-shards"
VERSION = 1
SHARD_TOKENS = 64_000_000  # a shard is closed at the first end of a text after so many
BATCH_BYTES = 4 << 20  # text encoded at a time: bounds the memory

Chunk = tuple[str, bool]  # a text or a part of one; True where the text ends


class Encoder(Protocol):
    """What writing needs of a tokenizer (see rostok/text/tokenizer.py)."""

    name: str
    vocab_size: int
    start_id: int
    sha256: str

    def encode_arrays(self, texts: list[str], pool: ThreadPoolExecutor) -> list[np.ndarray]: ...
    def save(self, folder: str | Path) -> Path: ...


def token_dtype(vocab_size: int) -> np.dtype:
    """uint16 while every id fits, else uint32. Little-endian in the file on every machine.

    >>> token_dtype(65536), token_dtype(65537)
    (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, read block by block."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# writing


def write_data(
    folder: str | Path,
    splits: Mapping[str, Iterable[Chunk]],
    tokenizer: Encoder,
    info: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> "Data":
    """Encode chunks of text into a new shards folder and open it. Memory stays bounded for any amount of text.

    splits: {"train": chunks, "valid": chunks}, a chunk being (text, True where the text ends); see `whole`.
    info: entries added to the manifest (source, counts). The folder's old files are overwritten, not removed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, Any]] = []
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        for name, chunks in splits.items():
            with ShardWriter(folder, name, tokenizer.vocab_size, tokenizer.start_id) as writer:
                for batch in _batches(chunks):
                    encoded = tokenizer.encode_arrays([text for text, _ in batch], pool)
                    for (text, last), ids in zip(batch, encoded, strict=True):
                        writer.add(ids, len(text.encode()), last)
            shards += writer.shards
    tokenizer.save(folder)
    _write_manifest(folder, shards, tokenizer, info or {})
    return open_data(folder)


def whole(texts: Iterable[str]) -> Iterator[Chunk]:
    """Texts as chunks: each is complete."""
    return ((text, True) for text in texts)


def _batches(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    batch: list[Chunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk[0])
        if size >= BATCH_BYTES or len(batch) >= 1 << 14:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_manifest(
    folder: Path, shards: list[dict[str, Any]], tokenizer: Encoder, info: Mapping[str, Any]
) -> None:
    names = dict.fromkeys(shard["split"] for shard in shards)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "dtype": token_dtype(tokenizer.vocab_size).name,
        "tokenizer": {"name": tokenizer.name, "vocab_size": tokenizer.vocab_size, "sha256": tokenizer.sha256},
        "start_id": tokenizer.start_id,
        **info,
        "splits": {name: _totals([s for s in shards if s["split"] == name]) for name in names},
        "shards": shards,
    }
    write_file(folder / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=2) + "\n", durable=True)


def _totals(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of a split; its hash is the hash of its shards' hashes, one after another."""
    counts = {key: sum(shard[key] for shard in shards) for key in ("texts", "tokens", "bytes")}
    joined = "".join(shard["sha256"] for shard in shards)
    return {**counts, "sha256": hashlib.sha256(joined.encode()).hexdigest()}


class ShardWriter:
    """Append texts to the shards of one split. `shards` lists what was written, as the manifest wants it."""

    def __init__(
        self, folder: str | Path, split: str, vocab_size: int, start_id: int, shard_tokens: int = SHARD_TOKENS
    ) -> None:
        self.folder, self.split, self.shard_tokens = Path(folder), split, shard_tokens
        self.dtype = token_dtype(vocab_size)
        self.vocab_size = vocab_size
        self.start_id = start_id
        self.shards: list[dict[str, Any]] = []
        self._file: BinaryIO | None = None
        self._between_texts = True

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def add(self, ids: np.ndarray, size: int, last: bool = True) -> None:
        """Append the ids of a text (or, with `last` false, of a part of it) that has `size` bytes of UTF-8."""
        if ids.size and int(ids.max()) >= self.vocab_size:
            raise ValueError(f"id {int(ids.max())} does not fit a vocabulary of {self.vocab_size}")
        if self._between_texts:
            self._open_text()
        self._put(ids)
        self._bytes += size
        self._between_texts = last
        if last and self._tokens >= self.shard_tokens:
            self._close()

    def _open_text(self) -> None:
        if self._file is None:
            self._name = f"{self.split}-{len(self.shards):05d}"
            self._file = open(self.folder / f"{self._name}.npy", "wb")  # noqa: SIM115 (open across calls)
            self._tokens = self._bytes = 0
            self._offsets = array("q")
            self._write_header(0)
        self._offsets.append(self._tokens)
        self._put(np.array([self.start_id]))

    def _put(self, ids: np.ndarray) -> None:
        assert self._file is not None
        self._file.write(ids.astype(self.dtype).tobytes())
        self._tokens += ids.size

    def _write_header(self, tokens: int) -> None:
        """The header of a 1-D array; numpy pads it so that it keeps its length whatever the count."""
        assert self._file is not None
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (tokens,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def _close(self) -> None:
        if self._file is None:
            return
        self._file.seek(0)
        self._write_header(self._tokens)
        self._file.close()
        self._file = None
        offsets = np.array([*self._offsets, self._tokens], dtype="<i8")
        np.save(self.folder / f"{self._name}.offsets.npy", offsets, allow_pickle=False)
        self.shards.append(self._entry())

    def _entry(self) -> dict[str, Any]:
        ids, offsets = f"{self._name}.npy", f"{self._name}.offsets.npy"
        return {
            "file": ids,
            "offsets": offsets,
            "split": self.split,
            "texts": len(self._offsets),
            "tokens": self._tokens,
            "bytes": self._bytes,
            "sha256": file_sha256(self.folder / ids),
            "offsets_sha256": file_sha256(self.folder / offsets),
        }


# reading


@dataclass(frozen=True)
class Split:
    """One split of a shards folder, memory-mapped once.

    name; where: the split's files, for messages; tokens: count, ◆ included; bytes: UTF-8 bytes of its texts;
    arrays: the ids of each shard; shard_starts: position in the whole stream at which each shard begins;
    starts: position of each text's ◆ in the whole stream, and the end, int64.
    """

    name: str
    where: str
    tokens: int
    bytes: int
    sha256: str
    arrays: list[np.ndarray]
    shard_starts: list[int]
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    def text(self, i: int) -> np.ndarray:
        """The ids of text i, ◆ first: a read-only view into the file."""
        if not 0 <= i < len(self):
            raise IndexError(f"text {i} of {len(self)}")
        return self.read(int(self.starts[i]), int(self.starts[i + 1]))

    def read(self, start: int, stop: int) -> np.ndarray:
        """The ids from start to stop of the whole stream; both must be in one shard, as those of a text are."""
        shard = bisect.bisect_right(self.shard_starts, start) - 1
        base = self.shard_starts[shard]
        return self.arrays[shard][start - base : stop - base]


class Data:
    """An opened shards folder: folder, manifest, tokenizer_name, tokenizer_sha256, vocab_size, start_id."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.tokenizer_name: str = manifest["tokenizer"]["name"]
        self.tokenizer_sha256: str = manifest["tokenizer"]["sha256"]
        self.vocab_size: int = manifest["tokenizer"]["vocab_size"]
        self.start_id: int = manifest["start_id"]

    def split(self, name: str) -> Split:
        """The split "train" or "valid". Raises UserError when it is not there or a file is cut short."""
        try:
            return self._splits[name]
        except KeyError:
            known = ", ".join(self._splits) or "nothing"
            raise UserError(
                f"{self.folder} has no split {name}, only {known}; prepare the data again"
            ) from None

    @cached_property
    def _splits(self) -> dict[str, Split]:
        return {name: self._open(name) for name in self.manifest["splits"]}

    def _open(self, name: str) -> Split:
        shards = [shard for shard in self.manifest["shards"] if shard["split"] == name]
        arrays = [_map(self.folder / s["file"], s["tokens"], self.manifest["dtype"]) for s in shards]
        offsets = [_map(self.folder / s["offsets"], s["texts"] + 1, "int64") for s in shards]
        bases = np.concatenate([[0], np.cumsum([shard["tokens"] for shard in shards], dtype=np.int64)])
        for shard, part in zip(shards, offsets, strict=True):
            if part[0] != 0 or part[-1] != shard["tokens"] or (part[1:] <= part[:-1]).any():
                path = self.folder / shard["offsets"]
                raise UserError(f"{path} does not say where texts begin; prepare the data again with --force")
        starts = [part[:-1] + base for part, base in zip(offsets, bases[:-1], strict=True)]
        totals = self.manifest["splits"][name]
        return Split(
            name=name,
            where=str(self.folder / f"{name}-*.npy"),
            tokens=totals["tokens"],
            bytes=totals["bytes"],
            sha256=totals["sha256"],
            arrays=arrays,
            shard_starts=bases[:-1].tolist(),
            starts=np.concatenate([*starts, bases[-1:]]),
        )

    def check_tokenizer(self, tokenizer: "Encoder") -> None:
        """Raise UserError, naming both, unless the shards were made with this tokenizer."""
        if tokenizer.sha256 != self.tokenizer_sha256:
            raise UserError(
                f"{self.folder} was made with the tokenizer {self.tokenizer_name} "
                f"({self.tokenizer_sha256[:12]}), wanted {tokenizer.name} ({tokenizer.sha256[:12]}); prepare it again "
                "with --tokenizer FOLDER of the wanted one"
            )
        if tokenizer.vocab_size != self.vocab_size:
            raise UserError(
                f"{self.folder / MANIFEST} says {self.vocab_size} ids, its tokenizer has {tokenizer.vocab_size}; "
                "prepare the data again with --force"
            )


def _map(path: Path, length: int, dtype: str) -> np.ndarray:
    """Memory-map one .npy file; refuse it in one line when it is not what the manifest says."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, TokenError) as error:  # the last two: a junk header
        reason = str(error).split("\n")[0]
        raise UserError(f"{path} cannot be read ({reason}); prepare the data again with --force") from None
    if array.shape != (length,) or array.dtype != np.dtype(dtype).newbyteorder("<"):
        raise UserError(
            f"{path} holds {array.shape} of {array.dtype}, the manifest says ({length},) of {dtype}; "
            "prepare the data again with --force"
        )
    return array.view(np.ndarray)  # the same memory, without the cost of memmap's own slicing


def open_data(folder: str | Path) -> Data:
    """Open a folder that prepare.py wrote. Raises UserError for a missing, damaged or newer manifest."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        raise UserError(
            f"no prepared data in {folder} (it has no {MANIFEST}); type {verb('prepare')} --out {folder} to make it "
            f"from built-in stories, {verb('prepare')} --help for your own text, or name another folder"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        _check_manifest(path, manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged ({type(error).__name__}: {error}); prepare the data again"
        ) from None
    return Data(folder, manifest)


def _check_manifest(path: Path, manifest: dict[str, Any]) -> None:
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        raise UserError(
            f"{path} is {manifest.get('format')} version {manifest.get('version')}, wanted {FORMAT} version "
            f"{VERSION}; prepare the data again with this Rostok"
        )
    if manifest["dtype"] not in ("uint16", "uint32"):
        raise UserError(
            f"{path}: dtype {manifest['dtype']} is neither uint16 nor uint32; prepare the data again"
        )
    for shard in manifest["shards"]:
        for name in (shard["file"], shard["offsets"]):
            if Path(name).name != name or "\\" in name or ":" in name or not name.endswith(".npy"):
                raise UserError(
                    f"{path} names the file {name!r}: only .npy files of its own folder are allowed"
                )
        _require(shard, int, "tokens", "texts", "bytes")
        _require(shard, str, "split", "sha256", "offsets_sha256")
    _require(manifest, int, "start_id")
    _require(manifest["tokenizer"], int, "vocab_size")
    _require(manifest["tokenizer"], str, "name", "sha256")
    if not 0 < manifest["tokenizer"]["vocab_size"] <= 1 << (8 * np.dtype(manifest["dtype"]).itemsize):
        raise ValueError(f"{manifest['dtype']} does not hold {manifest['tokenizer']['vocab_size']} ids")
    for name, totals in manifest["splits"].items():
        _require(totals, int, "tokens", "texts", "bytes")
        _require(totals, str, "sha256")
        if totals["tokens"] != sum(s["tokens"] for s in manifest["shards"] if s["split"] == name):
            raise ValueError(f"the shards of {name} do not add up to its tokens")


def _require(entry: Any, kind: type, *keys: str) -> None:
    """Raise KeyError or TypeError unless these entries are of this kind; whole numbers must not be negative."""
    for key in keys:
        if type(entry[key]) is not kind or (kind is int and entry[key] < 0):
            raise TypeError(f"{key} is {entry[key]!r}")


def is_data_folder(folder: Path) -> bool:
    """Whether prepare.py wrote this folder: its manifest says so, even one that is damaged further on."""
    try:
        with open(folder / MANIFEST, "rb") as file:
            return re.match(rb'\s*\{\s*"format":\s*"' + FORMAT.encode() + b'"', file.read(200)) is not None
    except OSError:
        return False


def foreign_names(folder: Path) -> list[str]:
    """The names in a data folder that prepare.py did not write: all but the manifest's. Of a damaged manifest's
    folder, all but the names that shards have."""
    try:
        shards = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["shards"]
        own = {MANIFEST, "tokenizer.json", *(shard[key] for shard in shards for key in ("file", "offsets"))}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        shard = re.compile(r"(train|valid)-\d{5}(\.offsets)?\.npy")
        own = {path.name for path in folder.iterdir() if shard.fullmatch(path.name)} | {
            MANIFEST,
            "tokenizer.json",
        }
    return sorted(path.name for path in folder.iterdir() if path.name not in own or not path.is_file())


def verify(folder: str | Path) -> Data:
    """Read every file: its hash must be the manifest's and every id below vocab_size. Gives the opened data.

    Raises UserError naming the file, and for a wrong id its value, position and the tokenizer. A text must
    begin with ◆ and there must be no other ◆ in it.
    """
    data = open_data(folder)
    for shard in data.manifest["shards"]:
        ids = _map(data.folder / shard["file"], shard["tokens"], data.manifest["dtype"])
        _check_ids(data, shard["file"], ids)
        offsets = _map(data.folder / shard["offsets"], shard["texts"] + 1, "int64")
        if not np.array_equal(np.flatnonzero(ids == data.start_id), offsets[:-1]) or offsets[-1] != len(ids):
            raise UserError(
                f"{data.folder / shard['offsets']} does not point at the ◆ of the texts; "
                "prepare the data again with --force"
            )
        for name, wanted in ((shard["file"], shard["sha256"]), (shard["offsets"], shard["offsets_sha256"])):
            if file_sha256(data.folder / name) != wanted:
                raise UserError(
                    f"{data.folder / name} was changed after it was written (its hash differs from the "
                    "manifest's); prepare the data again with --force"
                )
    return data


def _check_ids(data: Data, name: str, ids: np.ndarray, step: int = 1 << 24) -> None:
    for begin in range(0, len(ids), step):
        part = ids[begin : begin + step]
        if int(part.max()) >= data.vocab_size:
            at = int(np.argmax(part >= data.vocab_size))
            raise UserError(
                f"{data.folder / name} has the id {int(part[at])} at position {begin + at}, but the "
                f"tokenizer {data.tokenizer_name} has only {data.vocab_size} ids; prepare the "
                "data again with --force"
            )
