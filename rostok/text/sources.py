"""Where text comes from: files of many kinds, the TinyStories data set, and a spool that splits texts in two.

    find_files      words like "books/*.txt" -> paths
    read_chunks     path -> chunks of text
    Spool.add       chunks -> one temporary file
    Spool.split     every text is training, held out or a duplicate
    Spool.chunks    "train" or "valid" -> chunks again

A chunk is (text, last): a whole text, or a part of a long one, with `last` true where the text ends; so a
file larger than the memory passes through. All text is UTF-8 whatever the locale, "\\r\\n" becomes "\\n", a
byte order mark goes, and so does white space at the two ends of a text.

    file                  texts
    .txt, any other       split at lines that hold only the marker; without such a line the file is one text
    .jsonl .ndjson        a line each: the field of an object, or a plain string
    .json                 a list of such objects or strings (read whole into memory)
    .csv                  a row each: the column with the field's name
    .parquet              a row each (needs pyarrow)
    .gz behind any        unpacked while it is read

Left out: other encodings than UTF-8, near duplicates, cleaning of any kind.
"""

import codecs
import csv
import glob
import gzip
import hashlib
import json
import re
import ssl
import tempfile
import urllib.error
import urllib.request
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rostok.errors import UserError
from rostok.text.shards import Chunk

BLOCK = 1 << 20  # bytes read at a time
LONG = 1 << 18  # characters; a longer text is encoded in parts
FEW_TEXTS = 20  # fewer are split by position
TABLE_KINDS = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
FOLDER_KINDS = (".txt", *TABLE_KINDS)  # what a folder is searched for


@dataclass(frozen=True)
class ReadOptions:
    """How files become texts. split_by: auto | marker (there must be one) | file; errors: strict |
    replace.
    """

    marker: str = "<|endoftext|>"
    split_by: str = "auto"
    errors: str = "strict"
    field: str = "text"


# ---------------------------------------------------------------------------------------------- finding files


def find_files(words: Sequence[str]) -> list[Path]:
    """Files, folders (searched deeply, in the order of names) and globs -> paths, each once.

    Raises UserError for a word that matches nothing.
    """
    found = [path for word in words for path in _find(word)]
    return list(dict.fromkeys(found))


def _find(word: str) -> list[Path]:
    path = Path(word)
    if path.is_dir():
        inside = [p for p in sorted(path.rglob("*")) if p.is_file() and kind(p) in FOLDER_KINDS]
        if not inside:
            raise UserError(
                f"the folder {word} holds none of {' '.join(FOLDER_KINDS)} (.gz too): name the files"
            )
        return inside
    if path.exists():
        return [path]
    matches = sorted(Path(match) for match in glob.glob(word, recursive=True))
    if not matches:
        raise UserError(
            f"no such file: {word}; give a file, a folder, a glob in quotes, stories, tinystories or -"
        )
    return [file for match in matches for file in (_find(str(match)) if match.is_dir() else [match])]


def kind(path: Path) -> str:
    """The suffix in small letters, without .gz.

    >>> kind(Path("Tales.TXT.gz"))
    '.txt'
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


# ---------------------------------------------------------------------------------------------- reading files


def read_chunks(path: Path, options: ReadOptions = ReadOptions()) -> Iterator[Chunk]:
    """The texts of one file, in its order, as chunks. Empty texts come too: the spool counts and drops them.

    Raises UserError for bytes that are not UTF-8 (file and offset), broken JSON (line), a missing field.
    """
    try:
        if kind(path) == ".parquet":
            yield from _parquet(path, options)
        else:
            with _open(path) as file:
                yield from read_stream(file, path, options)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UserError(
            f"{path} is not a whole gzip file ({error}); unpack it by hand to see what is left"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None


def read_stream(
    file: BinaryIO | gzip.GzipFile, path: Path, options: ReadOptions = ReadOptions()
) -> Iterator[Chunk]:
    """The texts of an open, unpacked stream; path's suffix says their kind, its name stands in messages."""
    blocks = decode(file, path, options.errors)
    return _table(blocks, path, options) if kind(path) in TABLE_KINDS else _plain(blocks, path, options)


def _open(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


def decode(file: BinaryIO | gzip.GzipFile, path: Path, errors: str = "strict") -> Iterator[str]:
    """Blocks of text out of a stream of bytes: UTF-8, no byte order mark, "\\n" for "\\r\\n" also across
    blocks.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    done, held, begun = 0, "", False  # bytes given to the decoder; a "\r" that waits for its "\n"
    while True:
        raw = file.read(BLOCK)
        waiting = len(decoder.getstate()[0])
        try:
            text = held + decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            at = done - waiting + error.start
            byte = f"0x{error.object[error.start]:02x}"
            raise UserError(
                f"{path}: byte {byte} at offset {at} is not UTF-8 ({error.reason}); "
                "convert the file (iconv -f LATIN1 -t UTF-8), or type --errors replace to put U+FFFD there"
            ) from None
        if text and not begun:
            text, begun = text.removeprefix("\ufeff"), True
        held = "\r" if raw and text.endswith("\r") else ""
        yield text.removesuffix(held).replace("\r\n", "\n")
        done += len(raw)
        if not raw:
            return


def _plain(blocks: Iterator[str], path: Path, options: ReadOptions) -> Iterator[Chunk]:
    """The chunks of a .txt file, trimmed."""
    if options.split_by == "file":
        yield from trim(_unsplit(blocks))
        return
    ends, begun = 0, False
    for text, last in trim(split_at_marker(blocks, options.marker)):
        begun = begun or bool(text)
        if begun:  # nothing between two markers, or behind the last, is no text
            yield text, last
        ends, begun = ends + last, begun and not last
    if options.split_by == "marker" and ends < 2:
        raise UserError(
            f"{path} has no line {options.marker}: type --split-by file, or give its own --marker"
        )


def _unsplit(blocks: Iterable[str]) -> Iterator[Chunk]:
    yield from ((block, False) for block in blocks)
    yield "", True


def split_at_marker(blocks: Iterable[str], marker: str) -> Iterator[Chunk]:
    """Cut a stream at lines that hold nothing but the marker (and blanks); a marker inside a line is text.

    >>> list(split_at_marker(["one\\n<|e", "nd|>\\ntwo <|end|>"], "<|end|>"))
    [('one\\n', False), ('', True), ('two <|end|>', False), ('', True)]
    """
    line = re.compile(rf"^[ \t]*{re.escape(marker)}[ \t]*(?:\n|\Z)", re.MULTILINE)
    rest, inside = "", False  # what may yet become a marker line; whether rest goes on inside a line
    for block in blocks:
        rest += block
        end = rest.rfind("\n") + 1
        if end:
            yield from _cut(rest[:end], line, inside)
            rest, inside = rest[end:], False
        if inside or len(rest) > len(marker) + BLOCK // 16:  # too long for a marker line
            yield rest, False
            rest, inside = "", True
    yield from _cut(rest, line, inside)
    yield "", True


def _cut(lines: str, marker_line: re.Pattern[str], inside: bool) -> Iterator[Chunk]:
    """Whole lines -> chunks; the first of them is no line of its own when `inside`."""
    skip = lines.find("\n") + 1 if inside else 0
    begin = 0
    for match in marker_line.finditer(lines, skip):
        if match.start() > begin:
            yield lines[begin : match.start()], False
        yield "", True
        begin = match.end()
    if begin < len(lines):
        yield lines[begin:], False


def trim(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Drop the white space at both ends of every text, however it is cut into chunks.

    >>> list(trim([(" a ", False), (" b", False), ("\\n", True)]))
    [('a', False), ('  b', False), ('', True)]
    """
    begun, space = False, ""
    for text, last in chunks:
        text = space + text if begun else text.lstrip()
        body = text.rstrip()
        space = text[len(body) :]
        begun = begun or bool(body)
        if body or last:
            yield body, last
        if last:
            begun, space = False, ""


def _table(blocks: Iterator[str], path: Path, options: ReadOptions) -> Iterator[Chunk]:
    """The chunks of a .jsonl, .json or .csv file: a whole text each."""
    if kind(path) == ".csv":
        texts = _csv(_lines(blocks), path, options.field)
    elif kind(path) == ".json":
        texts = _json(blocks, path, options.field)
    else:
        texts = _json_lines(blocks, path, options.field)
    return (_clean(text, path, options.errors) for text in texts)


def _clean(text: str, path: Path, errors: str) -> Chunk:
    """Text out of a table: as strict as text out of a file (half a surrogate pair in JSON is no text)."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        if errors != "replace":
            half = f"U+{ord(text[error.start]):04X}"
            raise UserError(
                f"{path}: a text holds half a character ({half}); --errors replace mends it"
            ) from None
        text = text.encode(errors="replace").decode()
    return text.replace("\r\n", "\n").strip(), True


def _lines(blocks: Iterable[str]) -> Iterator[str]:
    rest: list[str] = []
    for block in blocks:
        *lines, tail = block.split("\n")
        for line in lines:
            yield "".join([*rest, line, "\n"])
            rest = []
        rest.append(tail)
    yield "".join(rest)


def _csv(lines: Iterator[str], path: Path, field: str) -> Iterator[str]:
    csv.field_size_limit(1 << 30)
    rows = csv.DictReader(lines, strict=True)
    try:
        if field not in (rows.fieldnames or []):
            raise UserError(
                f"{path} has no column {field!r}, only {_names(rows.fieldnames)}; type --field NAME"
            )
        for row in rows:
            yield row[field] or ""
    except csv.Error as error:
        raise UserError(f"{path}, line {rows.line_num}: {error}; save the file as a standard CSV") from None


def _json_lines(blocks: Iterator[str], path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(_lines(blocks), 1):
        if line.strip():
            yield _field(_parse(line, f"{path}, line {number}"), f"{path}, line {number}", field)


def _json(blocks: Iterator[str], path: Path, field: str) -> Iterator[str]:
    whole = _parse("".join(blocks), str(path))
    for number, entry in enumerate(whole if isinstance(whole, list) else [whole]):
        yield _field(entry, f"{path}, entry {number}", field)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where} is not JSON ({error}); one object a line is .jsonl, one list is .json"
        ) from None


def _field(entry: Any, where: str, field: str) -> str:
    text = entry.get(field) if isinstance(entry, dict) else entry
    if not isinstance(text, str):
        if isinstance(entry, dict) and field in entry:
            raise UserError(
                f"{where} has a {type(text).__name__} in the field {field!r}, wanted text; type --field NAME"
            )
        names = _names(entry) if isinstance(entry, dict) else f"a {type(entry).__name__}"
        raise UserError(f"{where} has no text in a field {field!r}, only {names}; type --field NAME")
    return text


def _names(names: Iterable[str] | None) -> str:
    return ", ".join(repr(name) for name in names or []) or "nothing"


def _parquet(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(
            f"{path}: reading parquet needs pyarrow; type pip install 'rostok[parquet]'"
        ) from None
    try:
        with pq.ParquetFile(path) as table:
            if options.field not in table.schema_arrow.names:
                names = _names(table.schema_arrow.names)
                raise UserError(f"{path} has no column {options.field!r}, only {names}; type --field NAME")
            for batch in table.iter_batches(batch_size=1024, columns=[options.field]):
                for text in batch.column(0).to_pylist():
                    yield _clean(
                        _field({options.field: text or ""}, str(path), options.field), path, options.errors
                    )
    except pa.ArrowException as error:
        raise UserError(f"{path} is not a readable parquet file ({str(error).splitlines()[0]})") from None


# -------------------------------------------------------------------------------------------------- splitting


class Spool:
    """Every text once, as UTF-8 in one temporary file, with what is needed to split it: where each lies, its
    digest.

    Memory: 32 bytes a text. add_* fills it, `split` decides, `chunks` reads. `given_valid` marks the texts
    of a validation file of the user's own: used as they are, and taken out of the training part where they
    stand in it.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".spool-")  # noqa: SIM115 (open while the spool lives)
        self._bounds = array("q")  # begin, end of each text
        self._digests = bytearray()  # 16 bytes each
        self._size = self._begin = 0
        self._hash = hashlib.sha256()
        self._given = 0  # texts that come from the validation file; they are the first
        self.empty = self.duplicates = 0
        self.ranges: dict[str, np.ndarray] = {}  # split -> (texts, 2) begins and ends

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._digests) // 16

    @property
    def size(self) -> int:
        """UTF-8 bytes of all texts so far."""
        return self._size

    def add(self, chunk: Chunk) -> bool:
        """Append a chunk; gives whether a text (not an empty one) ended with it."""
        text, last = chunk
        raw = text.encode()
        self._file.write(raw)
        self._hash.update(raw)
        self._size += len(raw)
        return last and self._end_text()

    def _end_text(self) -> bool:
        filled = self._size > self._begin
        if filled:
            self._bounds.extend((self._begin, self._size))
            self._digests += self._hash.digest()[:16]
        else:
            self.empty += 1
        self._begin, self._hash = self._size, hashlib.sha256()
        return filled

    def end_of_valid(self) -> None:
        """What was added until now is the validation part; what follows is the training part. UserError without any."""
        if not len(self):
            raise UserError("the files of --valid hold no text: give others, or leave --valid out")
        self._given = len(self)

    def split(self, valid_share: float) -> str:
        """Drop exact duplicates and divide the rest; gives how: "given", "hash" or "position". Fills
        `ranges`.

        Raises UserError when there is no text, or one of the two parts would be empty.
        """
        bounds = np.frombuffer(self._bounds, dtype=np.int64).reshape(-1, 2)
        first, number = first_of_equals(bytes(self._digests))
        if self._given:
            how, valid = "given", np.arange(len(self)) < self._given
            keep = valid | (first & ~np.isin(number, number[valid]))
        else:
            how, keep = "hash", first
            valid = held_out_by_hash(bytes(self._digests), valid_share)
        self.duplicates = int(len(self) - keep.sum())
        self.ranges = {"train": bounds[keep & ~valid], "valid": bounds[keep & valid]}
        if how == "hash" and 0 < keep.sum() < FEW_TEXTS:
            how, self.ranges = "position", self._split_by_position(bounds[keep], valid_share)
        self._require_both(int(keep.sum()), how, valid_share)
        return how

    def _split_by_position(self, bounds: np.ndarray, share: float) -> dict[str, np.ndarray]:
        """The last `share` of the bytes is held out, cut at the end of a line (else behind a word)."""
        lengths = bounds[:, 1] - bounds[:, 0]
        goal = int(lengths.sum() * (1 - share))
        ends = np.cumsum(lengths)
        text = min(int(np.searchsorted(ends, goal, side="right")), len(bounds) - 1)
        begin, end = (int(x) for x in bounds[text])
        cut = self._line_end(begin, begin + goal - int(ends[text] - lengths[text]), end)
        train = np.concatenate([bounds[:text], [[begin, cut]]])
        valid = np.concatenate([[[cut, end]], bounds[text + 1 :]])
        return {"train": train[train[:, 0] < train[:, 1]], "valid": valid[valid[:, 0] < valid[:, 1]]}

    def _line_end(self, begin: int, cut: int, end: int) -> int:
        low, high = max(begin, cut - BLOCK), min(end, cut + BLOCK)
        self._file.seek(low)
        raw = self._file.read(high - low)
        at = cut - low
        for border in (b"\n", b" "):
            places = [place for place in (raw.rfind(border, 0, at), raw.find(border, at)) if place >= 0]
            if places:
                return low + places[0] + 1
        while at < len(raw) and raw[at] & 0xC0 == 0x80:  # inside a letter of several bytes
            at += 1
        return low + at

    def _require_both(self, texts: int, how: str, share: float) -> None:
        if texts == 0:
            raise UserError("the source holds no text (only white space, if anything): give another file")
        for part, ranges in self.ranges.items():
            if len(ranges) == 0:
                wish = (
                    "another file"
                    if how == "given"
                    else f"--valid-share {0.2 if share < 0.2 else 0.1} or --valid FILE"
                )
                raise UserError(
                    f"the {part} part would be empty: {texts} texts ({self.duplicates} duplicates dropped), "
                    f"split by {how}, share {share} held out; give more texts, or type {wish}"
                )

    def bytes_of(self, split: str) -> int:
        return int((self.ranges[split][:, 1] - self.ranges[split][:, 0]).sum())

    def chunks(self, split: str) -> Iterator[Chunk]:
        """The texts of "train" or "valid" in their order; long ones in parts, cut where no token lies
        across.
        """
        for begin, end in self.ranges[split].tolist():
            if end - begin <= LONG:
                self._file.seek(begin)
                yield self._file.read(end - begin).decode(), True
            else:
                yield from cut_long(self._blocks(begin, end))

    def _blocks(self, begin: int, end: int) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")()
        for at in range(begin, end, BLOCK):
            self._file.seek(at)
            yield decoder.decode(self._file.read(min(BLOCK, end - at)))

    def sample(self, split: str, limit: int) -> Iterator[str]:
        """Text of a split, evenly spread over it, about `limit` bytes: what a tokenizer is trained on."""
        share = min(1.0, limit / max(1, self.bytes_of(split)))
        credit = 0.0
        for text, _ in self.chunks(split):
            credit += share * len(text)
            if credit >= len(text) * (1 - 1e-9) or share == 1.0:
                credit -= len(text)
                yield text


def first_of_equals(digests: bytes) -> tuple[np.ndarray, np.ndarray]:
    """16-byte digests -> (is the first of its equals, a number that equals share)."""
    words = np.frombuffer(digests, dtype=[("a", "<u8"), ("b", "<u8")])
    order = np.lexsort((words["b"], words["a"]))  # stable: equals keep their order
    ordered = words[order]
    new = np.ones(len(words), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    first, number = np.empty(len(words), dtype=bool), np.empty(len(words), dtype=np.int64)
    first[order], number[order] = new, np.cumsum(new)
    return first, number


def held_out_by_hash(digests: bytes, share: float) -> np.ndarray:
    """Which texts are held out: those whose digest, read as a fraction, is below the share. Stable for each
    text.
    """
    words = np.frombuffer(digests, dtype="<u8")[::2]
    return words < np.uint64(min(share, 1.0) * float(1 << 63)) * np.uint64(2)


# A place where the text may be cut and encoded in two parts without changing an id: in front of a blank
# between a letter or digit and a letter, or behind a line break between a visible sign and a letter or
# digit. None of the split patterns (Qwen2's, gpt2, cl100k_base, o200k_base) has a match across such a place.
_BORDER = re.compile(r"(?<=[^\W_])(?= [^\W\d_])|(?<=\S\n)(?=[^\W_])")


def cut_long(blocks: Iterable[str], limit: int = 16 * LONG) -> Iterator[Chunk]:
    """A long text as chunks of about LONG characters, cut at safe borders; `last` is true on the last one.

    Text without any such border is cut anyway every `limit` characters (4 M).
    """
    rest = ""
    for block in blocks:
        rest += block
        while len(rest) > LONG + 256:
            match = _BORDER.search(rest, LONG)
            cut = match.start() if match else limit if len(rest) > limit else 0
            if not cut or cut >= len(rest) - 1:
                break
            yield rest[:cut], False
            rest = rest[cut:]
    yield rest, True


# ------------------------------------------------------------------------------------------------ TinyStories


@dataclass(frozen=True)
class HubFile:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class HubDataset:
    """Two files of a data set on the Hugging Face hub, at one revision, with what they must be."""

    repo: str
    revision: str
    train: HubFile
    valid: HubFile


TINYSTORIES = HubDataset(
    repo="roneneldan/TinyStories",
    revision="f54c09fd23315a6f9c86f9dc80f725de7d8f9c64",
    train=HubFile(
        "TinyStoriesV2-GPT4-train.txt",
        2_227_753_162,
        "6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443",
    ),
    valid=HubFile(
        "TinyStoriesV2-GPT4-valid.txt",
        22_502_601,
        "6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d",
    ),
)


def fetch(dataset: HubDataset, file: HubFile) -> Path:
    """The path of a file in the hub's local cache, downloaded (and resumed) if need be, size and hash
    checked.

    Raises UserError without network, and for a file that is not the one expected.
    """
    try:
        path = Path(_download(dataset, file))
    except Exception as error:  # the hub's client raises errors of several libraries
        reason = " ".join(str(error).split())[:120]
        raise UserError(
            f"{file.name} of {dataset.repo} could not be downloaded ({type(error).__name__}: {reason}); "
            "connect once, or stay offline with --source stories"
        ) from None
    found = (path.stat().st_size, sha256_of(path))
    if found != (file.size, file.sha256):
        raise UserError(
            f"{path} has {found[0]} bytes, sha256 {found[1][:12]}, wanted {file.size}, {file.sha256[:12]}: "
            "delete it and start again"
        )
    return path


def _download(dataset: HubDataset, file: HubFile) -> str:
    import huggingface_hub as hub

    hub.logging.set_verbosity_error()  # its retries are no news: the outcome is
    download = partial(
        hub.hf_hub_download, dataset.repo, file.name, repo_type="dataset", revision=dataset.revision
    )
    try:
        return download(local_files_only=True)
    except hub.errors.LocalEntryNotFoundError:
        _require_answer(hub.constants.ENDPOINT)
        return download()


def _require_answer(url: str) -> None:
    """Raise OSError unless the address answers anything within seconds; the hub's client would try for half a
    minute.
    """
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10).close()
    except urllib.error.HTTPError:
        pass  # an answer, whatever it says
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLError):
            raise ConnectionError(f"{url} does not answer: {error.reason}") from None


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def first_texts(chunks: Iterable[Chunk], count: int | None) -> Iterator[Chunk]:
    """Chunks up to the end of text number `count` that is not empty; all of them for None."""
    texts, filled = 0, False
    for text, last in chunks:
        yield text, last
        filled = filled or bool(text)
        texts += last and filled
        filled = filled and not last
        if texts == count:
            return
