"""From logits to text: filters, the reader (prefill and single steps over a cache), sampling, streaming.

    sampling = Sampling(temperature=0.8, top_p=0.95)
    results = generate(model, [[0, 17, 4], [0, 5]], sampling, new_tokens=50, seed=1, end_id=0)   # a batch of prompts
    for token in stream(Reader(model, [[0, 17, 4]]), sampling, 50, seed=1): ...                  # token by token

The model is an argument. It needs `limit` (most tokens of one text, or None), `new_cache(batch)`, and
`model(ids, cache=cache, last=True)`, as GPT and WindowMLP have them; a fake of five lines will do.

1. a Reader holds the rows of ids and gives the logits of the next token of each, from a cache where it can
2. filters change logits, in Hugging Face's order: repetition penalty, temperature, top-k, top-p, min-p
3. one uniform number a sample and step picks the token; sample i has a generator of its own, made from seed and i,
   so that it is the same in a batch of any size
4. a TextStream turns ids into text that is safe to show: whole letters, never a part of a stop string

Left out: beam search, speculative decoding, batches whose rows come and go.
"""

import codecs
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from rostok.devices import at_hand
from rostok.errors import UserError

Past = Literal["roll", "stop"]
Finish = Literal["end", "stop", "length", "context"]
BLOCK = 256  # uniform numbers that a sample's generator draws at a time


class LanguageModel(Protocol):
    """What this module asks of a model, besides being callable as `model(ids, cache=cache, last=True)`."""

    @property
    def limit(self) -> int | None: ...

    def new_cache(self, batch: int) -> Any: ...

    def __call__(self, ids: Tensor, *, cache: Any = None, last: bool = False) -> Tensor: ...


# ---------------------------------------------------------------------------------------------------- filters


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. The defaults leave the model's own distribution as it is.

    temperature 0 takes the likeliest token (of equal ones the lowest id). top_k 0, top_p 1, min_p 0 and
    repetition_penalty 1 are off. Raises UserError for anything out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @property
    def greedy(self) -> bool:
        """Temperatures too near 0 to divide by count as 0."""
        return self.temperature < 1e-6

    def __post_init__(self) -> None:
        for name, low, high, hint in (
            ("temperature", 0, 100, "0 takes the likeliest token, 0.8 is a good start"),
            ("top_k", 0, math.inf, "0 is off, 40 is usual"),
            ("top_p", 0, 1, "1 is off, 0.95 is usual"),
            ("min_p", 0, 1, "0 is off, 0.05 is usual"),
            ("repetition_penalty", 0.01, 100, "1 is off, 1.1 is usual"),
        ):
            value = getattr(self, name)
            if not low <= value <= high or value == math.inf:  # nan compares as False
                span = "of 0 or more" if high == math.inf else f"from {low} to {high}"
                raise UserError(f"{name.replace('_', '-')} must be a number {span}. Got {value}; {hint}")


def penalise_repeats(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits (..., V) of tokens that are `seen` (..., V), bool, made less likely: positive ones divided by the
    penalty, negative ones multiplied (CTRL, arXiv:1909.05858)."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def scale_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Logits (..., V) over a temperature above 0."""
    return logits / temperature


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """The k highest logits (..., V) stay, the others become -inf. Whatever equals the k-th stays too. 0: all stay.

    >>> keep_top_k(torch.tensor([1.0, 3.0, 2.0]), 2)
    tensor([-inf, 3., 2.])
    """
    if k < 1 or k >= logits.shape[-1]:
        return logits
    lowest = logits.topk(k).values[..., -1:]
    return logits.masked_fill(logits < lowest, -math.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """The fewest likeliest tokens whose probabilities sum to p or more stay, at least one (Holtzman et al. 2020,
    arXiv:1904.09751). Of equal tokens at the border those with higher ids stay."""
    if p >= 1:
        return logits
    ascending, order = logits.sort(stable=True)
    drop = ascending.softmax(-1).cumsum(-1) <= 1 - p
    drop[..., -1] = False
    return logits.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -math.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """The tokens stay whose probability is at least p times that of the likeliest (arXiv:2407.01082)."""
    if p <= 0:
        return logits
    probabilities = logits.softmax(-1)
    return logits.masked_fill(probabilities < p * probabilities.amax(-1, keepdim=True), -math.inf)


def apply_filters(logits: Tensor, sampling: Sampling, seen: Tensor | None = None) -> Tensor:
    """All filters on logits (..., V), in Hugging Face's order. At temperature 0 only the likeliest token stays."""
    if seen is not None and sampling.repetition_penalty != 1:
        logits = penalise_repeats(logits, seen, sampling.repetition_penalty)
    if sampling.greedy:
        best = logits.argmax(-1, keepdim=True)
        return torch.full_like(logits, -math.inf).scatter(-1, best, 0.0)
    logits = scale_temperature(logits - logits.amax(-1, keepdim=True), sampling.temperature)
    return keep_min_p(keep_top_p(keep_top_k(logits, sampling.top_k), sampling.top_p), sampling.min_p)


def choose(logits: Tensor, uniform: Tensor) -> Tensor:
    """Ids (B,) drawn from logits (B, V), one number `uniform` (B,), float64 from [0, 1), a row: where it falls on the
    running sum of the probabilities. A token of probability 0 is never chosen."""
    total = logits.double().softmax(-1).cumsum(-1)  # (B, V)
    height = (uniform[:, None] * total[:, -1:]).minimum(total[:, -1:].nextafter(total.new_zeros(())))
    return torch.searchsorted(total, height, right=True)[:, 0]


def sample_generator(seed: int, index: int) -> torch.Generator:
    """The generator of sample `index`: another one for each pair of seed and index, whatever the batch."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


# ---------------------------------------------------------------------------------------------------- reading


def tokens_dropped(length: int, limit: int | None) -> int:
    """How many tokens behind the first one the window leaves out, for a text of `length` tokens: a pure function, so
    that a cache, no cache and a prompt of any length lead to the same window.

    The window always keeps the first token (◆). When it is full it drops half of the context at once, then grows
    again: keys and values that were computed with dropped tokens in view would be wrong, so it is read again each time.

    >>> [tokens_dropped(n, 8) for n in (7, 8, 9, 12, 13)]
    [0, 0, 4, 4, 8]
    """
    if limit is None or length <= limit:
        return 0
    half = limit - limit // 2
    return half * math.ceil((length - limit) / half)


class Reader:
    """Rows of ids that a model reads, and the logits of what comes next.

    rows[i] is the whole text of row i, its first token is ◆. `append` writes on, `cut` takes back. `past` says what
    happens when a text outgrows the model's limit: "roll" reads a shorter window again (`notice(row, shown)` is
    called), "stop" ends the row. Without `cached` every token re-reads its window: slow, and the same.
    """

    def __init__(
        self,
        model: LanguageModel,
        rows: Sequence[Sequence[int]],
        past: Past = "roll",
        cached: bool = True,
        chunk: int | None = None,
        notice: Callable[[int, int], None] | None = None,
    ) -> None:
        if not rows or not all(rows):
            raise ValueError("every row needs at least one token: ◆")
        self.model, self.rows = model, [list(row) for row in rows]
        self.past, self.chunk, self.notice = past, chunk, notice
        self.cache: Any = model.new_cache(len(rows)) if cached else None
        self.device = next((p.device for p in getattr(model, "parameters", list)()), torch.device("cpu"))
        self.alive = [True] * len(rows)
        self.dropped = [0] * len(rows)

    def append(self, row: int, *ids: int) -> None:
        self.rows[row].extend(ids)

    def cut(self, row: int, length: int) -> None:
        """Forget all tokens of a row from `length` on; what is left is read again."""
        del self.rows[row][length:]
        self.forget(row)

    def forget(self, row: int) -> None:
        if self.cache is not None:
            self.cache.length[row] = 0

    def full(self, row: int) -> bool:
        """Whether a row has outgrown the model and must not roll."""
        return self.past == "stop" and tokens_dropped(len(self.rows[row]), self.model.limit) > 0

    def window(self, row: int) -> list[int]:
        """The tokens of a row that the model sees."""
        ids = self.rows[row]
        return ids[:1] + ids[1 + self.dropped[row] :]

    @torch.inference_mode()
    def next_logits(self) -> Tensor:
        """Logits (B, V) of the token after each living row; the rows that are not alive hold nothing of use."""
        living = [i for i, alive in enumerate(self.alive) if alive]
        if self.cache is None:
            for i in living:
                self.slide(i, 0)
            return self.gather({i: self.read(self.window(i), None) for i in living})
        held = self.cache.length.tolist()
        for i, alive in enumerate(self.alive):
            # a dead row goes along with the others' steps and must not grow past the context
            unread = self.slide(i, held[i]) if alive else 0
            if unread != held[i]:
                self.cache.length[i] = held[i] = unread
        stepping = [i for i in living if held[i] and held[i] == len(self.rows[i]) - self.dropped[i] - 1]
        if not stepping:
            return self.gather(self.prefill(living, held))
        ids = torch.tensor([[row[-1]] for row in self.rows], device=self.device)
        logits = self.model(ids, cache=self.cache, last=True)[:, -1]
        if len(stepping) == len(self.rows):
            return logits
        for i, n in enumerate(held):  # all rows went along; those that had nothing to read forget it
            if i not in stepping:
                self.cache.length[i] = n
        reading = [i for i in living if i not in stepping]
        return self.gather(dict.fromkeys(stepping, None) | self.prefill(reading, held), logits)

    def slide(self, row: int, held: int) -> int:
        """Move the window of a row where its length asks for it; gives how much of `held` in the cache stays."""
        dropped = tokens_dropped(len(self.rows[row]), self.model.limit)
        if dropped != self.dropped[row]:
            self.dropped[row], held = dropped, 0
            if dropped and self.notice:
                self.notice(row, len(self.rows[row]) - dropped)
        # a row that was read to its end reads its last token again
        return min(held, len(self.rows[row]) - dropped - 1)

    def prefill(self, rows: list[int], held: list[int]) -> dict[int, Tensor]:
        """Read what is new in some rows, each alone; a row with the same window as an earlier one copies it."""
        results: dict[int, Tensor] = {}
        seen: dict[tuple[int, ...], int] = {}
        for i in rows:
            window = self.window(i)
            twin = seen.setdefault(tuple(window), i)
            if twin != i:
                self.cache.copy(twin, i)
                results[i] = results[twin]
            else:
                results[i] = self.read(window[held[i] :], self.cache.row(i))
        return results

    def read(self, ids: list[int], cache: Any) -> Tensor:
        """Logits (V,) after one row's ids, which are read in chunks when there is a cache."""
        size = self.chunk if self.chunk and cache is not None else len(ids)
        logits = None
        for first in range(0, len(ids), size):
            part = torch.tensor([ids[first : first + size]], device=self.device)
            logits = self.model(part, cache=cache, last=True)
        assert logits is not None, "nothing to read"
        return logits[0, -1]

    def gather(self, results: Mapping[int, Tensor | None], logits: Tensor | None = None) -> Tensor:
        """(B, V) from single rows; a row that is None stays as it stands in `logits`."""
        if logits is None:
            first = next(x for x in results.values() if x is not None)
            if len(results) == len(self.rows) == 1:
                return first[None]
            logits = first.new_zeros(len(self.rows), len(first))
        for i, row in results.items():
            if row is not None:
                logits[i] = row
        return logits


class CompiledSteps:
    """A model whose single steps run as one graph of torch.compile. The first step then takes from seconds to minutes.

    The model has to have `run`, the arithmetic of its call, as GPT has it.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.run = model, torch.compile(model.run, dynamic=True)
        self.limit, self.new_cache, self.parameters = model.limit, model.new_cache, model.parameters

    def __call__(self, ids: Tensor, *, cache: Any = None, last: bool = False) -> Tensor:
        if cache is None or ids.shape[1] > 1 or not cache.length.any():
            return self.model(ids, cache=cache, last=last)
        return self.run(ids, None, cache, cache.take(1), last)


# ---------------------------------------------------------------------------------------------------- sampling


@dataclass(frozen=True)
class Choice:
    """One token that the model weighed: its own log-probability (nats), and its share after the filters."""

    id: int
    logprob: float
    share: float


@dataclass(frozen=True)
class Token:
    """One new token of one row. `finish` is set on the last: "end" (◆), "stop", "length" or "context".

    A row whose text is full under "stop" ends with a Token of id -1 if not even one token fits.
    """

    row: int
    id: int
    text: str = ""  # what may be shown now that this token has come; empty without `texts`
    logprob: float = math.nan
    top: tuple[Choice, ...] = ()
    finish: Finish | None = None


def stream(
    reader: Reader,
    sampling: Sampling,
    new_tokens: int,
    seed: int = 0,
    first_sample: int = 0,
    end_id: int | None = None,
    top: int | None = None,
    texts: Sequence["TextStream"] = (),
) -> Iterator[Token]:
    """Write up to `new_tokens` tokens to every row of the reader, and yield each as it is chosen, row after row.

    Row i is sample `first_sample + i` of the seed. A row ends at `end_id`, when its TextStream in `texts` meets a
    stop text, after `new_tokens`, or at the model's limit (`past="stop"`). `texts`, one a row, also give each token
    the text that may be shown. `top` = n adds log-probabilities and the n likeliest tokens.
    Raises UserError when the model gives logits that are not numbers.
    """
    generators = [sample_generator(seed, first_sample + i) for i in range(len(reader.rows))]
    seen = None
    reader.alive = [new_tokens > 0 and not reader.full(i) for i in range(len(reader.rows))]
    for i, alive in enumerate(reader.alive):
        if not alive:
            yield Token(i, -1, finish="context" if new_tokens > 0 else "length")
    uniforms, choose_rows = torch.empty(0), getattr(reader.model, "choose", None)
    for step in range(new_tokens):
        if not any(reader.alive):
            return
        logits = at_hand(reader.next_logits().float())
        if sampling.repetition_penalty != 1:
            seen = mark_seen(reader, seen, logits, end_id)
        if step % BLOCK == 0 and not sampling.greedy:
            draws = [torch.rand(BLOCK, generator=g, dtype=torch.float64) for g in generators]
            uniforms = torch.stack(draws, 1).to(logits.device)  # (BLOCK, B)
        uniform = None if sampling.greedy else uniforms[step % BLOCK]
        if choose_rows and top is None:
            chosen, kept = choose_rows(logits, sampling, seen, uniform), logits
        else:
            chosen, kept = pick(logits, sampling, seen, uniform, weighed=top is not None)
        for i, id in enumerate(chosen):
            if id < 0 and reader.alive[i]:
                raise UserError(
                    "the model's logits are not numbers: this run has diverged; take an earlier checkpoint"
                )
            if reader.alive[i]:
                reader.append(i, id)
                text = texts[i].push(id) if texts and id != end_id else ""
                finish = None
                if id == end_id:
                    finish = "end"
                elif texts and texts[i].stopped:
                    finish = "stop"
                elif step == new_tokens - 1:
                    finish = "length"
                elif reader.full(i):
                    finish = "context"
                reader.alive[i] = finish is None
                extra = weigh(logits[i], kept[i], id, top) if top is not None else {}
                if texts and finish:
                    text += texts[i].close()
                yield Token(i, id, text, finish=finish, **extra)


def pick(
    logits: Tensor, sampling: Sampling, seen: Tensor | None, uniform: Tensor | None, weighed: bool = True
) -> tuple[list[int], Tensor]:
    """Ids chosen from logits (B, V), -1 where those are not finite, and the filtered logits that they were chosen
    from, which are only right if they are to be `weighed`."""
    if not math.isfinite(logits.sum().item()):
        return [-1] * len(logits), logits
    if uniform is None and seen is None and not weighed:  # the usual greedy step: no filter would change it
        return logits.argmax(-1).tolist(), logits
    kept = apply_filters(logits, sampling, seen)
    return (kept.argmax(-1) if uniform is None else choose(kept, uniform)).tolist(), kept


def mark_seen(reader: Reader, seen: Tensor | None, logits: Tensor, end_id: int | None) -> Tensor:
    """Which tokens (B, V) each row holds, prompt and all, without ◆: ending a text is no repetition."""
    if seen is None:
        seen = torch.zeros_like(logits, dtype=torch.bool)
        for i, ids in enumerate(reader.rows):
            seen[i, torch.tensor(ids, device=seen.device)] = True
    else:
        last = torch.tensor([[ids[-1]] for ids in reader.rows], device=seen.device)
        seen.scatter_(1, last, True)
    if end_id is not None:
        seen[:, end_id] = False
    return seen


def weigh(logits: Tensor, kept: Tensor, id: int, top: int) -> dict[str, Any]:
    """The log-probability of the chosen token, and the `top` likeliest, of one row's logits (V,)."""
    logprobs, shares = logits.log_softmax(-1), kept.softmax(-1)
    ids = logprobs.topk(min(top, len(logprobs))).indices.tolist()
    choices = tuple(Choice(i, logprobs[i].item(), shares[i].item()) for i in ids)
    return {"logprob": logprobs[id].item(), "top": choices}


@dataclass
class Result:
    """What was written after one prompt: ids (with the closing ◆, if there is one) and why it ended."""

    ids: list[int] = field(default_factory=list)
    finish: Finish = "length"


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling | None = None,
    new_tokens: int = 100,
    seed: int = 0,
    end_id: int | None = None,
    past: Past = "roll",
    cached: bool = True,
    chunk: int | None = None,
) -> list[Result]:
    """Continue every prompt (ids, ◆ first) in one batch. The arguments are those of Reader and stream."""
    results = [Result() for _ in prompts]
    reader = Reader(model, prompts, past, cached, chunk)
    for token in stream(reader, sampling or Sampling(), new_tokens, seed, end_id=end_id):
        if token.id >= 0:
            results[token.row].ids.append(token.id)
        results[token.row].finish = token.finish or "length"
    return results


# ---------------------------------------------------------------------------------------------------- text


class TextStream:
    """Ids one by one -> text that may be shown: whole UTF-8 characters, nothing that could still become a stop text.

    `stopped` is True once one of the stop texts has come; the text ends before it.
    `token_bytes` gives the bytes of an id.
    """

    def __init__(self, token_bytes: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self.token_bytes, self.stops = token_bytes, [s for s in stops if s]
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.held, self.stopped = "", False

    def push(self, id: int) -> str:
        """The text that can be shown now that this token has come."""
        if self.stopped:
            return ""
        self.held += self.decoder.decode(self.token_bytes(id))
        hits = [at for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if hits:
            self.stopped = True
            return self.held[: min(hits)]
        keep = max((overlap(self.held, stop) for stop in self.stops), default=0)
        shown, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        return shown

    def close(self) -> str:
        """What was held back, when no more tokens come. Half a character becomes U+FFFD."""
        return "" if self.stopped else self.held + self.decoder.decode(b"", final=True)


def overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a beginning of `stop`.

    >>> overlap("the en", "end of it")
    2
    """
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
