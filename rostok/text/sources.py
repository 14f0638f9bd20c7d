"""Where text comes from: files of many kinds, read as chunks.

    find_files("books/*.txt")     words -> paths
    read_chunks(path)             path -> chunks of text
    first_texts(chunks, 100)      no more than so many texts

A chunk is (text, last): a whole text, or a part of a long one, with `last` true where the text ends; so a file larger
than the memory passes through. Bytes are decoded by reading.py; white space at the two ends of a text is dropped.

    file                  texts
    .txt, any other       split at lines that hold only the marker; without such a line the file is one text
    .jsonl .ndjson        one a line: the field of an object, or a plain string
    .json                 a list of such objects or strings (read whole into memory)
    .csv                  one a row: the column with the field's name
    .parquet              one a row (needs pyarrow)
    .gz after any         unpacked while it is read

Standard input and pipes have no such ending: `ReadOptions.kind` says what they hold. What can be read only once is.
Left out: other encodings than UTF-8, cleaning of any kind.
"""

import csv
import glob
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rostok.errors import UserError
from rostok.text.reading import BLOCK, CONVERT, check_text, decode, decode_bytes
from rostok.text.shards import Chunk, is_data_folder

ADVICE = f"{CONVERT}, or type --errors replace to put U+FFFD there"
TABLE_KINDS = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
FOLDER_KINDS = (".txt", *TABLE_KINDS)  # what a folder is searched for


@dataclass(frozen=True)
class ReadOptions:
    """How files become texts.

    split_by: auto | marker (there must be one) | file; errors: strict | replace; kind: auto (by the name) | txt |
    jsonl | json | csv.
    """

    marker: str = "<|endoftext|>"
    split_by: str = "auto"
    errors: str = "strict"
    field: str = "text"
    kind: str = "auto"


# finding files


def find_files(words: Sequence[str]) -> list[Path]:
    """Files, folders (with all below them, in the order of names) and globs -> paths, each once.

    Folders that prepare.py wrote are left out. Raises UserError for a word that matches nothing.
    """
    found = [path for word in words for path in _find(word)]
    return list(dict.fromkeys(found))


def _find(word: str) -> list[Path]:
    path = Path(word)
    if path.is_dir():
        files = [p for p in sorted(path.rglob("*")) if p.is_file() and kind(p) in FOLDER_KINDS]
        inside = [p for p in files if not is_data_folder(p.parent)]
        if not inside:
            raise UserError(
                f"the folder {word} holds none of {' '.join(FOLDER_KINDS)} (.gz too): name the files"
            )
        return inside
    if path.is_char_device() and not word.startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/")):
        raise UserError(f"{word} is a device, which may never end; name a file, or - for standard input")
    if path.exists():
        return [path]
    matches = [Path(match) for match in sorted(glob.glob(word, recursive=True))]
    matches = [p for p in matches if not is_data_folder(p if p.is_dir() else p.parent)]
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


# reading files


def read_chunks(path: Path, options: ReadOptions = ReadOptions()) -> Iterator[Chunk]:
    """The texts of one file, in its order, as chunks. Empty texts come too: the spool counts and drops them.

    Raises UserError for bytes that are not UTF-8 (file and offset), broken JSON (line), a missing field.
    """
    try:
        if kind_of(path, options) == ".parquet":
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
    """The texts of an open, unpacked stream. The path says which kind of file it is, and is named in messages."""
    blocks = decode(file, str(path), options.errors, ADVICE)
    if kind_of(path, options) in TABLE_KINDS:
        return _table(blocks, path, options)
    if options.kind == "auto" and kind(path) not in FOLDER_KINDS:
        blocks = _refuse_json(blocks, path)
    return _plain(blocks, path, options)


def kind_of(path: Path, options: ReadOptions) -> str:
    """The kind of a file as a suffix: what the user says, else what its name says."""
    return kind(path) if options.kind == "auto" else f".{options.kind}"


def _refuse_json(blocks: Iterator[str], path: Path) -> Iterator[str]:
    """The same blocks. Raises UserError when they begin as JSON does: nothing in the name said so."""
    for block in blocks:
        if kind := _json_kind(block.lstrip()):
            raise UserError(
                f"{path} holds JSON: type --kind {kind} to read the texts in it, or --kind txt to take it as it is"
            )
        yield block
        yield from blocks


def _json_kind(text: str) -> str | None:
    """What the beginning of a text is.

    >>> _json_kind('{"a": 1}\\n{'), _json_kind('[ {"a": 1},'), _json_kind("{curly} text")
    ('jsonl', 'json', None)
    """
    if re.match(r'\[\s*\{\s*"', text):
        return "json"
    try:
        line = text.partition("\n")[0] if text.startswith("{") else "0"
        return "jsonl" if isinstance(json.loads(line), dict) else None
    except (ValueError, RecursionError):
        return None


def _open(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


def _plain(blocks: Iterator[str], path: Path, options: ReadOptions) -> Iterator[Chunk]:
    """The chunks of a .txt file, trimmed."""
    if options.split_by == "file":
        yield from trim(_unsplit(blocks))
        return
    ends, begun = 0, False
    for text, last in trim(split_at_marker(blocks, options.marker)):
        begun = begun or bool(text)
        if begun:  # nothing between two markers, or after the last, does not count as a text
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
    rest, inside = "", False  # what may still become a marker line; whether rest goes on inside a line
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
    """Whole lines -> chunks. `inside`: the first of them is the end of a line that began earlier."""
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
    if kind_of(path, options) == ".csv":
        texts = _csv(_lines(blocks), path, options.field)
    elif kind_of(path, options) == ".json":
        texts = _json(blocks, path, options.field)
    else:
        texts = _json_lines(blocks, path, options.field)
    return (_clean(text, path, options.errors) for text in texts)


def _clean(text: str, path: Path, errors: str) -> Chunk:
    """Text out of a table: as strict as text out of a file (JSON can hold half a character)."""
    if errors == "replace":
        text = text.encode(errors="replace").decode()
    check_text(text, str(path), "type --errors replace to replace it")
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
        if list(rows.fieldnames or []).count(field) > 1:
            raise UserError(f"{path} has several columns {field!r}; give each a name of its own")
        for row in rows:
            if None in row:  # pyright: ignore[reportUnnecessaryContains]
                raise UserError(
                    f"{path}, line {rows.line_num} has more cells than the header; put a text that holds "
                    "commas in quotation marks"
                )
            yield row[field] or ""
    except csv.Error as error:
        raise UserError(f"{path}, line {rows.line_num}: {error}; save the file as a standard CSV") from None


def _json_lines(blocks: Iterator[str], path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(_lines(blocks), 1):
        if line.strip():
            yield _field(_parse(line, f"{path}, line {number}"), f"{path}, line {number}", field)


def _json(blocks: Iterator[str], path: Path, field: str) -> Iterator[str]:
    content = _parse("".join(blocks), str(path))
    for number, entry in enumerate(content if isinstance(content, list) else [content]):
        yield _field(entry, f"{path}, entry {number}", field)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where} is not JSON ({error}); a file with one object a line is .jsonl, one with a single list is .json"
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
                for cell in _cells(batch.column(0), path, options):
                    yield _clean(
                        _field({options.field: cell}, str(path), options.field), path, options.errors
                    )
    except pa.ArrowException as error:
        raise UserError(f"{path} is not a readable parquet file ({str(error).splitlines()[0]})") from None


def _cells(column: Any, path: Path, options: ReadOptions) -> Iterator[Any]:
    """The cells of a column, "" where one is missing; strings are decoded here, since pyarrow does not check them."""
    bytes_of = {"string": "binary", "large_string": "large_binary"}.get(str(column.type))
    for cell in (column.cast(bytes_of) if bytes_of else column).to_pylist():
        if bytes_of and cell is not None:
            cell = decode_bytes(cell, str(path), options.errors, ADVICE)
        yield "" if cell is None else cell


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
