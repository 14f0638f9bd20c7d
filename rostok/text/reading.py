"""Text from outside, read the same way by every verb: UTF-8, whatever the locale says.

    read_text("book.txt"), read_text("-")       a whole file; "-" is standard input
    typed(args.prompt, "--prompt")              a word of the command line
    decode(file, "book.txt")                    a stream of bytes, block after block
    check_text(text, "line 3")                  text from elsewhere, such as JSON

A byte order mark at the front is left out and "\\r\\n" becomes "\\n"; a lone "\\r" stays. A byte that is not UTF-8 and
half a character (a lone surrogate) are refused with their place. Left out: other encodings.
"""

import codecs
import contextlib
import gzip
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rostok.errors import UserError, standard_input

BLOCK = 1 << 20  # bytes read at a time
CONVERT = "convert it (iconv -f LATIN1 -t UTF-8)"


def read_text(word: str | Path) -> str:
    """The text of a file, or of standard input for "-". Raises UserError."""
    from_input = str(word) == "-"
    name = "standard input" if from_input else str(word)
    try:
        file = contextlib.nullcontext(standard_input().buffer) if from_input else open(word, "rb")  # noqa: SIM115
        with file as stream:
            return "".join(decode(stream, name))
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror or error})") from None


def typed(word: str, flag: str) -> str:
    """A word of the command line as UTF-8, whatever the locale made of it. Raises UserError."""
    return decode_bytes(os.fsencode(word), flag)


def read_line(file: BinaryIO, name: str = "standard input") -> str | None:
    """The next line of a stream without its end, None at the end of the stream. Raises UserError."""
    raw = file.readline()
    return decode_bytes(raw, name).removesuffix("\n") if raw else None


def decode_bytes(raw: bytes, name: str, errors: str = "strict", advice: str = CONVERT) -> str:
    """As `decode`, of bytes that are all there."""
    return "".join(decode(io.BytesIO(raw), name, errors, advice))


def decode(
    file: BinaryIO | gzip.GzipFile, name: str, errors: str = "strict", advice: str = CONVERT
) -> Iterator[str]:
    """Blocks of text out of a stream of bytes. errors: strict, or replace (U+FFFD for bad bytes)."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    done, held, begun = 0, "", False  # bytes given to the decoder; a "\r" that waits for its "\n"
    while True:
        raw = file.read(BLOCK)
        waiting = len(decoder.getstate()[0])
        try:
            text = held + decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            byte, at = error.object[error.start], done - waiting + error.start
            raise UserError(
                f"{name}: byte 0x{byte:02x} at offset {at} is not UTF-8 ({error.reason}); {advice}"
            ) from None
        if text and not begun:
            text, begun = text.removeprefix("\ufeff"), True
        held = "\r" if raw and text.endswith("\r") else ""
        yield text.removesuffix(held).replace("\r\n", "\n")
        done += len(raw)
        if not raw:
            return


def check_text(text: str, where: str, advice: str = "write the whole character") -> str:
    """The same text. Raises UserError when it holds half a character, as JSON can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise UserError(f"{where}: a text holds half a character ({half}); {advice}") from None
    return text
