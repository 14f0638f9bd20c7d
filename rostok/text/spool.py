"""A spool: every text once in one temporary file, then split into a training part and a held-out part.

    spool = Spool(folder)
    spool.add(chunk)              chunk after chunk, a validation file's first
    spool.end_of_valid()          only where there is such a file
    spool.split(0.05)             every text becomes training, held out or a dropped duplicate
    spool.chunks("train")         the texts of a part again, long ones cut where no token lies across

Left out: near duplicates.
"""

import codecs
import hashlib
import re
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from rostok.errors import UserError
from rostok.text.mojibake import is_mojibake, repair
from rostok.text.reading import BLOCK
from rostok.text.shards import Chunk

LONG = 1 << 18  # characters; a longer text is encoded in parts
FEW_TEXTS = 20  # fewer are split by position
NEAR, FAR = (
    0.1,
    0.5,
)  # of the held-out bytes: how far a split by position may move to the end of a line or word


class Spool:
    """Every text as UTF-8 in one temporary file, with what the split needs: where each text is, and its digest.

    mojibake: what to do with damaged texts (warn: take them as they are | repair | drop); `damaged` counts them.
    Memory: 32 bytes a text. `end_of_valid()` marks all texts so far as the user's validation set: they are used
    as they are, and equal texts of the training part are dropped.
    """

    def __init__(self, folder: Path, mojibake: str = "warn") -> None:
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".spool-")  # noqa: SIM115 (open while the spool lives)
        self._bounds = array("q")  # begin, end of each text
        self._digests = bytearray()  # 16 bytes each
        self._size = self._begin = 0
        self._hash = hashlib.sha256()
        self._given = 0  # number of texts of the validation file; they come first
        self.empty = self.duplicates = self.damaged = 0
        self._mojibake, self._is_damaged = mojibake, False
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
        """Append a chunk. Returns whether a text that is not empty ended with it."""
        text, last = chunk
        if is_mojibake(text):
            self._is_damaged = True
            text = repair(text) if self._mojibake == "repair" else text
        raw = text.encode()
        self._file.write(raw)
        self._hash.update(raw)
        self._size += len(raw)
        return last and self._end_text()

    def _end_text(self) -> bool:
        dropped = self._is_damaged and self._mojibake == "drop"
        if dropped:
            self._size = self._file.seek(self._begin)
        self.damaged += self._is_damaged
        self._is_damaged = False
        filled = self._size > self._begin
        if filled:
            self._bounds.extend((self._begin, self._size))
            self._digests += self._hash.digest()[:16]
        elif not dropped:
            self.empty += 1
        self._begin, self._hash = self._size, hashlib.sha256()
        return filled

    def end_of_valid(self) -> None:
        """All texts so far are the validation part, those that follow the training part. UserError if none."""
        if not len(self):
            raise UserError("the files of --valid hold no text: give others, or leave --valid out")
        self._given = len(self)

    def split(self, valid_share: float) -> str:
        """Drop exact duplicates, divide the rest into `ranges`; returns how: "given", "hash" or "position".

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
        """Hold out the last `share` of the bytes, cut at the end of a line or after a word near that place."""
        lengths = bounds[:, 1] - bounds[:, 0]
        goal = int(lengths.sum() * (1 - share))
        ends = np.cumsum(lengths)
        text = min(int(np.searchsorted(ends, goal, side="right")), len(bounds) - 1)
        begin, end = (int(x) for x in bounds[text])
        held = int(lengths.sum() * share)
        cut = self._good_cut(begin, begin + goal - int(ends[text] - lengths[text]), end, held)
        train = np.concatenate([bounds[:text], [[begin, cut]]])
        valid = np.concatenate([[[cut, end]], bounds[text + 1 :]])
        return {"train": train[train[:, 0] < train[:, 1]], "valid": valid[valid[:, 0] < valid[:, 1]]}

    def _good_cut(self, begin: int, cut: int, end: int, held: int) -> int:
        """The end of a line that is within NEAR of `cut`, the one before it first; else of a word.

        Else the nearest end of either within FAR; else `cut` itself, moved to the end of a character.
        """
        low, high = max(begin, cut - BLOCK), min(end, cut + BLOCK)
        self._file.seek(low)
        raw = self._file.read(high - low)
        at = cut - low
        lines, words = (
            [i + 1 for i in (raw.rfind(x, 0, at), raw.find(x, at)) if i >= 0] for x in (b"\n", b" ")
        )
        by_distance = sorted([*lines, *words], key=lambda i: abs(i - at))
        for places, far in ((lines, NEAR * held), (words, NEAR * held), (by_distance, FAR * held)):
            close = [i for i in places if abs(i - at) <= far and i < len(raw)]
            if close:
                return low + close[0]
        while at < len(raw) and raw[at] & 0xC0 == 0x80:  # inside a character of several bytes
            at += 1
        return low + at

    def _require_both(self, texts: int, how: str, share: float) -> None:
        if texts == 0:
            lost = f", {self.damaged} texts with mojibake were dropped" if self._mojibake == "drop" else ""
            raise UserError(
                f"the source holds no text (only white space, if anything{lost}): give another file"
            )
        for part, ranges in self.ranges.items():
            if len(ranges) == 0:
                wish = f"--valid-share {0.2 if share < 0.2 else 0.1} or --valid FILE"
                reason = (
                    f"{texts} texts ({self.duplicates} duplicates dropped), split by {how}, share {share}"
                )
                if how == "given":
                    wish, reason = "another file", f"all {texts} texts are in the files of --valid too"
                raise UserError(f"the {part} part would be empty: {reason}; give more texts, or type {wish}")

    @property
    def held_out_share(self) -> float:
        """The share of the bytes that is held out, after `split`."""
        held = self.bytes_of("valid")
        return held / (held + self.bytes_of("train"))

    def bytes_of(self, split: str) -> int:
        return int((self.ranges[split][:, 1] - self.ranges[split][:, 0]).sum())

    def chunks(self, split: str) -> Iterator[Chunk]:
        """The texts of "train" or "valid" in their order; long ones in parts, cut where no token lies across."""
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
    """16-byte digests -> (whether each is the first of its equals, a number that equal ones have in common)."""
    words = np.frombuffer(digests, dtype=[("a", "<u8"), ("b", "<u8")])
    order = np.lexsort((words["b"], words["a"]))  # stable: equals keep their order
    ordered = words[order]
    new = np.ones(len(words), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    first, number = np.empty(len(words), dtype=bool), np.empty(len(words), dtype=np.int64)
    first[order], number[order] = new, np.cumsum(new)
    return first, number


def held_out_by_hash(digests: bytes, share: float) -> np.ndarray:
    """Which texts are held out: those whose digest, read as a fraction, is below the share."""
    words = np.frombuffer(digests, dtype="<u8")[::2]
    return words < np.uint64(min(share, 1.0) * float(1 << 63)) * np.uint64(2)


# Where a text may be cut and encoded in two parts without changing an id: before a blank between a letter or
# digit and a letter, or after a line break between a visible character and a letter or digit. None of the split
# patterns (Qwen2's, gpt2, cl100k_base, o200k_base) has a match across such a border.
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
