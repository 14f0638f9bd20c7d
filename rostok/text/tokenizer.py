"""Text <-> token ids: a byte-level BPE that we train, or one of tiktoken's published encodings.

    tokenizer = train_tokenizer(texts, vocab_size=4096)     # Hugging Face `tokenizers` learns the merges
    tokenizer.save("data/stories")                          # data/stories/tokenizer.json, Hugging Face format
    tokenizer = load_tokenizer("data/stories")              # tiktoken does the encoding and the decoding
    tokenizer = load_tokenizer("gpt2")                      # published: gpt2, cl100k_base, ...

In our tokenizers id 0 is ◆ (`<|endoftext|>`), ids 1 to 256 are the single bytes, then come the merges in the order in
which they were learnt. tiktoken needs only that order, so a token's rank is its id. The split pattern is the one of
Qwen2 tokenizers: an exported run keeps its ids wherever Qwen2 tokenizers are known. Qwen2's NFC normalisation is left
out: tiktoken has none, and without it decode(encode(text)) == text for every text.

Left out: normalisers, several special tokens, any tokenizer that is not byte-level BPE.
"""

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import tiktoken
import tiktoken.load

from rostok.errors import UserError
from rostok.files import write_file
from rostok.front import find_run

START = "<|endoftext|>"  # ◆
FILE_NAME = "tokenizer.json"
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SMALLEST_VOCABULARY = 257  # ◆ and the 256 bytes
LARGEST_VOCABULARY = 1_000_000  # to be learnt; the trainer takes its memory for all of it at once
LONGEST_BLANK = 500_000  # white space in a row; tiktoken's regular expressions fail at a million
LONGEST_WORD = 1000  # characters; the time to learn from a word grows with the square of its length
DOWNLOAD_TIMEOUT = (5, 30)  # seconds to connect, seconds between two bytes


class Tokenizer:
    """A `tiktoken.Encoding` together with the file that it came from.

    name, vocab_size, start_id (the id of ◆), encoding, and sha256: of the bytes of tokenizer.json, or of the
    name for a published encoding.
    """

    def __init__(self, encoding: tiktoken.Encoding, file_text: str, sha256: str) -> None:
        self.encoding = encoding
        self.name = encoding.name
        self.vocab_size = encoding.n_vocab
        self.start_id: int = encoding._special_tokens[START]
        self.sha256 = sha256
        self._file_text = file_text

    def encode(self, text: str) -> list[int]:
        """The ids of ordinary text: no ◆ is put in front, and a literal `<|endoftext|>` is ordinary characters."""
        return [id for part in cut_blanks(text) for id in self.encoding.encode_ordinary(part)]

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """`encode` of each text, on several threads (default: one for each core)."""
        with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
            return [ids.tolist() for ids in self.encode_arrays(texts, pool)]

    def encode_arrays(
        self, texts: Sequence[str], pool: ThreadPoolExecutor, group: int = 64
    ) -> list[np.ndarray]:
        """As `encode_batch`, but uint32 arrays, from a pool that the caller keeps: faster, for the shard writer."""
        groups = [texts[i : i + group] for i in range(0, len(texts), group)]
        return [ids for done in pool.map(self._encode_group, groups) for ids in done]

    def _encode_group(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [self._encode_array(text) for text in texts]

    def _encode_array(self, text: str) -> np.ndarray:
        parts = [self.encoding.encode_to_numpy(part, disallowed_special=()) for part in cut_blanks(text)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are not UTF-8 (part of a character) become U+FFFD, ◆ `<|endoftext|>`."""
        return b"".join(self._token_bytes[i] for i in ids).decode("utf-8", errors="replace")

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token; `<|endoftext|>` for ◆, none for an id that the encoding leaves unused."""
        return self._token_bytes[id]

    @cached_property
    def _token_bytes(self) -> list[bytes]:
        found = [b""] * self.vocab_size
        for token, id in (*self.encoding._mergeable_ranks.items(), *self.encoding._special_tokens.items()):
            found[id] = token.encode() if isinstance(token, str) else token
        return found

    def save(self, folder: str | Path) -> Path:
        """Write folder/tokenizer.json: Hugging Face format, or `{"tiktoken": name}` for a published
        encoding.
        """
        path = Path(folder) / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, self._file_text)
        return path


def spell(raw: bytes) -> str:
    """The text of a token's bytes; those of a part of a character are shown as ⟨D0⟩.

    >>> spell(b" he"), spell(b"\\xd0")
    (' he', '⟨D0⟩')
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"⟨{byte:02X}⟩" if byte > 127 else chr(byte) for byte in raw)


HIDDEN = (
    "Cc",
    "Cf",
    "Cn",
    "Co",
    "Zl",
    "Zp",
)  # Unicode categories of what shows nothing, or changes what shows


def visible(raw: bytes) -> str:
    """The same with all of it to be seen: a line's end as ⏎, a tab as ⇥, control characters as ⟨U+202E⟩.

    >>> visible(b"a\\n"), visible("\\u202e".encode())
    ('a⏎', '⟨U+202E⟩')
    """
    text = spell(raw).replace("\n", "⏎").replace("\t", "⇥")
    return "".join(f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in HIDDEN else c for c in text)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a byte-level BPE (Gage 1994; Sennrich et al. 2016) of at most `vocab_size` ids from texts.

    A small text has fewer pairs worth merging: then fewer ids come out, and `vocab_size` of the result says
    how many. Raises UserError when vocab_size is below 257 (◆ and the 256 bytes).
    """
    check_vocab_size(vocab_size)
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(QWEN2_PATTERN), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])  # pyright: ignore[reportAttributeAccessIssue]
    bpe.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[START],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(cut_words(texts), trainer)
    return _from_json(bpe.to_str(pretty=True), "the new tokenizer")


def cut_blanks(text: str) -> list[str]:
    """The text, cut inside runs of more than LONGEST_BLANK white space characters: almost always in one part.

    >>> [len(part) for part in cut_blanks("x" + " " * 1_100_000 + "y")]
    [500001, 500000, 100001]
    """
    if len(text) <= LONGEST_BLANK:
        return [text]
    runs = re.finditer(rf"(?<!\s)\s{{{LONGEST_BLANK},}}", text)
    cuts = [at for run in runs for at in range(run.start() + LONGEST_BLANK, run.end(), LONGEST_BLANK)]
    return [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]


def cut_words(texts: Iterable[str]) -> Iterator[str]:
    """Split texts inside any run of LONGEST_WORD characters without a word boundary.

    BPE training takes time that grows with the square of a word's length.
    """
    for text in texts:
        begin = 0
        for end in range(LONGEST_WORD, len(text), LONGEST_WORD):
            stretch = text[end - LONGEST_WORD : end]
            if stretch.isspace() or stretch.split(None, 1) == [stretch]:
                yield text[begin:end]
                begin = end
        yield text[begin:]


def check_vocab_size(vocab_size: int) -> None:
    """Raise UserError for a size that has no room for ◆ and the 256 bytes, or that nobody can train."""
    if vocab_size > LARGEST_VOCABULARY:
        raise UserError(
            f"a vocabulary of {vocab_size} is too large: type --vocab {LARGEST_VOCABULARY} or less (4096 suits a "
            "small model)"
        )
    if vocab_size < SMALLEST_VOCABULARY:
        raise UserError(
            f"a vocabulary of {vocab_size} is too small: ◆ and the 256 bytes need {SMALLEST_VOCABULARY}; "
            f"type --vocab {SMALLEST_VOCABULARY} or more"
        )


def load_tokenizer(where: str | Path) -> Tokenizer:
    """A tokenizer from its file, from a folder that holds a tokenizer.json, from a run, or a published one by its name.

    Raises UserError for a missing or foreign file, an unknown name, and a name that cannot be downloaded.
    """
    path = find_run(Path(where))
    file = path / FILE_NAME if path.is_dir() else path
    if file.is_file():
        return _load_file(file)
    if str(where) in tiktoken.list_encoding_names():
        return _published(str(where))
    names = ", ".join(sorted(tiktoken.list_encoding_names()))
    raise UserError(f"no tokenizer at {where}: give a folder with a {FILE_NAME}, or one of the names {names}")


def _load_file(file: Path) -> Tokenizer:
    try:
        text = file.read_bytes().decode()
        published = json.loads(text).get("tiktoken")
    except (ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} is not a tokenizer file ({error}); prepare the data again") from None
    if published and published not in tiktoken.list_encoding_names():
        raise UserError(
            f"{file} names the encoding {published!r}, which tiktoken does not know; prepare the data again"
        )
    return _published(published) if published else _from_json(text, str(file))


def _from_json(text: str, where: str) -> Tokenizer:
    """A Tokenizer from the text of a Hugging Face tokenizer.json: byte-level BPE with ◆ only."""
    data = json.loads(text)
    try:
        vocab: dict[str, int] = data["model"]["vocab"]
        merges = [m.split(" ") if isinstance(m, str) else m for m in data["model"]["merges"]]
        special = {added["content"]: added["id"] for added in data["added_tokens"]}
        pattern = data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
        ranks = {_token_bytes(token): id for token, id in vocab.items() if token not in special}
        merged = [vocab[left + right] for left, right in merges]
        size = len(ranks) + len(special)
        whole = sorted([*ranks.values(), *special.values()]) == list(range(size))
        if not (whole and pattern and all(bytes([byte]) in ranks for byte in range(256))):
            raise ValueError
    except (KeyError, TypeError, IndexError, ValueError, AttributeError):
        raise UserError(
            f"{where} is not a byte-level BPE tokenizer of the kind that prepare.py writes"
        ) from None
    if list(special) != [START] or data.get("normalizer") or merged != sorted(merged):
        raise UserError(
            f"{where}: wanted {START} as the only special token, no normalizer, merges in the order of their "
            "ids; train a tokenizer with prepare.py"
        )
    try:
        encoding = tiktoken.Encoding(
            f"bpe-{size}",
            pat_str=pattern,
            mergeable_ranks=ranks,
            special_tokens=special,
            explicit_n_vocab=size,
        )
    except (ValueError, TypeError) as error:  # ids such as 1.0, a broken split pattern
        raise UserError(f"{where} is damaged ({error}); prepare the data again") from None
    return Tokenizer(encoding, text, hashlib.sha256(text.encode()).hexdigest())


def _byte_characters() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table) -> the byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(hidden)}


_BYTE_OF = _byte_characters()


def _token_bytes(token: str) -> bytes:
    return bytes(_BYTE_OF[character] for character in token)


def _published(name: str) -> Tokenizer:
    """One of tiktoken's encodings, downloaded once into its cache and checked by its hash there."""
    try:
        with _downloads_give_up():
            encoding = tiktoken.get_encoding(name)
    except (OSError, ValueError) as error:  # no network, a time-out, a file with the wrong hash
        reason = str(error).split("\n")[0][:120]
        raise UserError(
            f"tiktoken's encoding {name} is not in its cache and could not be downloaded "
            f"({type(error).__name__}: {reason}); connect once, set TIKTOKEN_CACHE_DIR to a filled cache, or "
            "train your own with --vocab 4096"
        ) from None
    text = json.dumps({"tiktoken": name}) + "\n"
    return Tokenizer(encoding, text, hashlib.sha256(name.encode()).hexdigest())


def _read_url(url: str) -> bytes:
    import requests

    answer = requests.get(url, timeout=DOWNLOAD_TIMEOUT)
    answer.raise_for_status()
    return answer.content


@contextmanager
def _downloads_give_up():
    """Give tiktoken's downloads our time-outs: it has none, and waits for ever where a firewall drops packets."""
    original = tiktoken.load.read_file
    tiktoken.load.read_file = _read_url
    try:
        yield
    finally:
        tiktoken.load.read_file = original
