"""Opens a run, reads a text with it, and verifies the attention maps (used by map, heads, name, pronoun, page).

    subject = open_subject("checkpoints/rostok")                 # weights in NumPy float32, settings, tokenizer
    ids, dropped = subject.encode("Once upon a time ...")        # ◆ in front
    view = look(subject, ids)                                    # maps (L, H, T, T), losses, checks
    view.find("he", "Tom")                                       # the heads, by how much "he" looks at "Tom"

The numbers are those of rostok/attention/reference.py. Leaves out: drawing (maps.py), scoring heads (scores.py).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rostok.attention.languages import say
from rostok.attention.reference import Array, forward, losses
from rostok.errors import UserError
from rostok.runs import Opened, open_run, without_padding
from rostok.text.tokenizer import Tokenizer, spell

# The settings and tensors of model.py's GPT; head.weight and head.bias are also the window MLP's.
SETTINGS = {"kind", "vocab_size", "context", "n_layer", "n_head", "n_kv_head", "d_model", "d_mlp", "rope_theta",
            "norm_eps", "tied", "start_id"}  # fmt: skip
BLOCK = (
    "attn_norm",
    "attn.qkv",
    "attn.q_norm",
    "attn.k_norm",
    "attn.proj",
    "mlp_norm",
    "mlp.gate",
    "mlp.up",
    "mlp.down",
)
TOLERANCE = 1e-5  # of row sums and of A·V against scaled_dot_product_attention, in float32


class Spelling(Protocol):
    """What is needed of a tokenizer to know what its ids spell: the bytes of a token, the id of the start sign."""

    @property
    def start_id(self) -> int: ...
    def token_bytes(self, id: int, /) -> bytes: ...


@dataclass(frozen=True)
class Subject:
    """A run to look into: its name, weights (float32), model settings and tokenizer."""

    name: str
    weights: Mapping[str, Array]
    config: Mapping[str, Any]
    tokenizer: Tokenizer
    run: Opened | None = None  # where it came from

    @property
    def n_layer(self) -> int:
        return int(self.config["n_layer"])

    @property
    def n_head(self) -> int:
        return int(self.config["n_head"])

    @property
    def context(self) -> int:
        return int(self.config["context"])

    def encode(self, text: str, on_long: str = "error", allow_empty: bool = False) -> tuple[list[int], int]:
        """Text -> ids with ◆ in front, and how many tokens `on_long` (head or tail are kept) left out.

        Raises UserError for an empty text, and for a long one where on_long is "error".
        """
        if not text and not allow_empty:
            raise UserError(
                "the text is empty; give some words, or --allow-empty to see the start sign alone"
            )
        ids = [self.tokenizer.start_id, *self.tokenizer.encode(text)]
        over = len(ids) - self.context
        if over <= 0:
            return ids, 0
        if on_long == "error":
            raise UserError(
                f"the text has {len(ids)} tokens with ◆, the model sees {self.context}; give --on-long head or tail"
            )
        return (ids[: self.context] if on_long == "head" else ids[:1] + ids[over + 1 :]), over

    def pieces(self, ids: Sequence[int] | Array) -> list[str]:
        """What each token spells; ◆ for the start sign."""
        return [self.piece(int(i)) for i in ids]

    def piece(self, i: int) -> str:
        return "◆" if i == self.tokenizer.start_id else spell(self.tokenizer.token_bytes(i))

    def check_head(self, layer: int | None, head: int | None) -> None:
        """Raise UserError unless the 1-based layer and head exist (None is fine)."""
        inside = layer is None or 1 <= layer <= self.n_layer
        inside = inside and (head is None or 1 <= head <= self.n_head)
        if not inside:
            raise UserError(
                f"this model has layers 1 to {self.n_layer}, heads 1 to {self.n_head}. Got layer {layer}, head {head}"
            )


def open_subject(path: str | Path, kinds: Sequence[str] = ("gpt",)) -> Subject:
    """A run, a step folder, RUN/latest or RUN/best. Raises UserError for a model that is not of one of the kinds."""
    run = open_run(path)
    config = run.state["model"]
    if config.get("kind") not in kinds:
        raise UserError(
            f"{path} is a {config.get('kind')}, which has no attention to look at; give a gpt run"
        )
    weights = {name: tensor.float().numpy() for name, tensor in run.tensors().items()}
    if config["kind"] == "gpt":
        check_fit(weights, config, run)
    weights, config = without_padding(weights, config, run)
    name = run.step_folder.resolve().parent.name or run.step_folder.name
    return Subject(name, weights, config, run.tokenizer, run)


def check_fit(weights: Mapping[str, Array], config: Mapping[str, Any], run: Opened) -> None:
    """Raise UserError unless these are the weights of the model that `config` describes: one token goes through."""
    try:
        check_settings(config)
        if odd := names_of(config) ^ weights.keys():
            raise ValueError(f"missing or unknown tensor {min(odd)}")
        if len(weights["embed.weight"]) != config["vocab_size"]:
            raise ValueError(f"there are {len(weights['embed.weight'])} ids")
        with np.errstate(all="ignore"):  # a broken weight is reported by look(), by layer and head
            forward(weights, config, np.zeros(1, dtype=np.int64))
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise run.refuse_weights(error) from None


def check_settings(config: Mapping[str, Any]) -> None:
    """Raise ValueError for settings that no GPT of model.py has, or of values that it refuses."""
    if odd := config.keys() - SETTINGS:
        raise ValueError(f"unknown setting {min(odd)}")
    for key in ("vocab_size", "context", "n_layer", "n_head"):
        if type(config[key]) is not int or config[key] < 1:
            raise ValueError(f"{key} is {config[key]!r}")
    if not 0 <= config.get("start_id", 0) < config["vocab_size"]:
        raise ValueError(f"start_id is {config['start_id']!r}")
    if not 1 <= config.get("rope_theta", 10000) < float("inf"):
        raise ValueError(f"rope_theta is {config['rope_theta']!r}")


def names_of(config: Mapping[str, Any]) -> set[str]:
    """The names of a GPT's tensors."""
    names = {"embed.weight", "final_norm.weight"} | (
        {"head.weight"} if not config.get("tied", True) else set()
    )
    return names | {f"blocks.{i}.{part}.weight" for i in range(config["n_layer"]) for part in BLOCK}


@dataclass(frozen=True)
class Checks:
    """How far the maps are from what they must be; all three are near 0."""

    row_sums: float  # max |sum of a row - 1|
    future: float  # largest weight on a later token
    sdpa: float  # max |A·V - torch's scaled_dot_product_attention|

    @property
    def worst(self) -> float:
        return max(self.row_sums, self.sdpa)

    def line(self) -> str:
        return verified(self.worst)


def verified(error: float, lang: str = "en") -> str:
    """The line that says that maps were verified, and how exactly."""
    return say(lang, "common", "verified", error=error)


@dataclass(frozen=True)
class View:
    """One text read by one run."""

    subject: Subject
    ids: list[int]
    maps: Array  # (L, H, T, T), row t: how query t shares its attention
    logits: Array  # (T, V)
    checks: Checks
    trace: Mapping[
        str, Array
    ]  # q, k, v, scaled, pattern, z of each layer, named as reference.forward names them

    @cached_property
    def pieces(self) -> list[str]:
        return self.subject.pieces(self.ids)

    @cached_property
    def nats(self) -> Array:
        """(T,) loss of each token given those before it; NaN for the first, which is given."""
        return np.append(np.nan, losses(self.logits[:-1], self.ids[1:]))

    def find(self, query: str, key: str, occurrence: int | None = None) -> list[dict[str, Any]]:
        """All heads, by the weight that the query word's last token gives to the tokens of the key word before it.

        `occurrence` (1-based) chooses among several mentions of the query word; else the last one that has the key
        word before it. Raises UserError when a word is not there.
        """
        at, keys = self.aim(query, key, occurrence)
        weights = self.maps[:, :, at, keys].sum(-1)  # (L, H)
        order = np.argsort(-weights, axis=None, kind="stable")
        heads = zip(*np.unravel_index(order, weights.shape), strict=True)
        return [
            {"layer": int(la), "head": int(he), "weight": float(weights[la, he]), "query": at, "keys": keys}
            for la, he in heads
        ]

    def aim(self, query: str, key: str, occurrence: int | None = None) -> tuple[int, list[int]]:
        """The query's position and the key word's positions before it."""
        asked, keys = aim(self.raw, query, key, occurrence)
        return asked[-1], [i for mention in keys for i in mention]

    @property
    def raw(self) -> list[bytes]:
        return spelling(self.subject.tokenizer, self.ids)


# ---- words of a text, whatever tokens spell them ----------------------------------------------------------------


def spelling(tokenizer: Spelling, ids: Sequence[int]) -> list[bytes]:
    """The bytes that each token puts into the text; ◆ is a character of its own."""
    return ["◆".encode() if i == tokenizer.start_id else tokenizer.token_bytes(int(i)) for i in ids]


def spans(raw: Sequence[bytes], pattern: str) -> list[tuple[str, list[int]]]:
    """What a pattern finds in the text of these tokens, each with the positions of the tokens that spell it."""
    text = b"".join(raw).decode("utf-8", "surrogateescape")  # half a character stays what it is
    begins = np.cumsum([0, *(len(sign.encode("utf-8", "surrogateescape")) for sign in text)])
    ends = np.cumsum([len(piece) for piece in raw])
    found = []
    for match in re.finditer(pattern, text):
        first, last = np.searchsorted(ends, begins[[match.start(), match.end()]] - [0, 1], "right")
        found.append((match[0], list(range(first, last + 1))))
    return found


def mentions(raw: Sequence[bytes], word: str) -> list[list[int]]:
    """For every mention of a word the positions of the tokens that spell it; "he" is not in "then"."""
    word = word.strip()
    before, after = (r"(?<!\w)" * bool(re.match(r"\w", word)), r"(?!\w)" * bool(re.search(r"\w$", word)))
    return [at for _, at in spans(raw, before + re.escape(word) + after)] if word else []


def aim(
    raw: Sequence[bytes], query: str, key: str, occurrence: int | None = None
) -> tuple[list[int], list[list[int]]]:
    """The positions of the query word's mention, and those of each mention of the key word before it.

    Raises UserError where a word is not in the text, or the key never before the query.
    """
    queries, keys = mentions(raw, query), mentions(raw, key)
    for word, found in ((query, queries), (key, keys)):
        if not found:
            near = nearest_words(word, spans(raw, r"\w+(?:['’]\w+)*|[^\w\s]"))
            raise UserError(f"'{word}' is not in the text{near}")
    if occurrence is not None:
        if not 1 <= occurrence <= len(queries):
            at = ", ".join(str(q[-1]) for q in queries)
            raise UserError(
                f"'{query}' is there {len(queries)} times (at {at}). Got --occurrence {occurrence}"
            )
        queries = [queries[occurrence - 1]]
    for asked in reversed(queries):
        if earlier := [mention for mention in keys if mention[-1] < asked[-1]]:
            return asked, earlier
    raise UserError(
        f"there is no '{key}' before '{query}', and a token sees only the past; swap --query and --key?"
    )


def nearest_words(word: str, words: Sequence[tuple[str, list[int]]]) -> str:
    import difflib

    close = difflib.get_close_matches(word, sorted({text for text, _ in words}), n=3, cutoff=0.3)
    return f"; near it: {', '.join(close)}" if close else "; give a word of the text"


def steps_of(subject: Subject, ids: Sequence[int] | Array, ending: str) -> dict[str, Array]:
    """The steps of one run through the reference whose names end so."""
    trace: dict[str, Array] = {}
    forward(subject.weights, subject.config, ids, trace, keep=lambda name: name.endswith(ending))
    return trace


def maps_of(subject: Subject, ids: Sequence[int] | Array) -> Array:
    """(L, H, T, T), unverified: for many short probes of a run whose maps were verified on a text."""
    return np.stack(list(steps_of(subject, ids, "attn.pattern").values()))


def look(subject: Subject, ids: Sequence[int] | Array) -> View:
    """Run the reference on ids (T,) and verify the maps. Raises UserError when a weight is not a number.

    Raises RuntimeError when the maps fail their checks, which only a bug can cause: nothing may then be written.
    """
    wanted = ("attn.q", "attn.k", "attn.v", "attn.scaled", "attn.pattern", "attn.z", "logits")
    trace: dict[str, Array] = {}
    with np.errstate(invalid="ignore", over="ignore"):  # a broken weight is reported below, by layer and head
        forward(
            subject.weights, subject.config, np.asarray(ids), trace, keep=lambda name: name.endswith(wanted)
        )
    maps = np.stack([trace[f"blocks.{layer}.attn.pattern"] for layer in range(subject.n_layer)])
    bad = np.argwhere(~np.isfinite(maps).all(axis=(2, 3)))
    if len(bad):
        layer, head = bad[0] + 1
        raise UserError(
            f"layer {layer} head {head} of {subject.name} gives weights that are not numbers; take an older step"
        )
    checks = verify(maps, trace)
    if max(checks.row_sums, checks.future, checks.sdpa) > TOLERANCE:
        raise RuntimeError(f"the maps of {subject.name} are wrong: {checks}")
    return View(subject, [int(i) for i in ids], maps, trace["logits"], checks, trace)


def verify(maps: Array, trace: Mapping[str, Array]) -> Checks:
    """Compare maps (L, H, T, T) and mixtures with what they must be; torch's sdpa is the independent judge."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    worst = 0.0
    for layer in range(len(maps)):
        q, k, v, z = (torch.from_numpy(trace[f"blocks.{layer}.attn.{name}"]) for name in ("q", "k", "v", "z"))
        judged = scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=True, enable_gqa=len(q) != len(k)
        )
        largest = float(
            np.abs(trace[f"blocks.{layer}.attn.scaled"]).max()
        )  # float32 rounds large scores coarsely
        scale = max(1.0, float(judged.abs().max()), largest / 32)
        worst = max(worst, float((judged[0] - z).abs().max()) / scale)
    return Checks(float(np.abs(maps.sum(-1) - 1).max()), float(np.triu(maps, 1).max()), worst)
