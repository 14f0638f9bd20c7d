"""What a head does, as numbers, from its maps alone: pure functions of weights (L, H, T, T) and token ids (T,).

    scores = text_scores(maps, ids, start_id)            # {"prev": (L, H), "bos": ..., ...} on one text
    even = text_scores(uniform(len(ids)), ids, start_id) # the same for attention that is spread evenly
    probe = repeated(pool, 25, 4, rng, start_id)         # ◆ and 25 random tokens, four times over
    shifts = induction(maps, probe.ids, probe.asked, 9)  # (9, L, H): IND_0 .. IND_8
    labels = verdicts({"ind": (0.6, 0.03), "prev": (0.1, 0.02)})

Definitions and their sources are in docs/attention.md. A score without its baseline and its number of texts means
nothing, so everything here works on `uniform` maps too. Leading axes of maps are free: (T, T), (H, T, T), (L, H, T, T).
A score that a text does not have (no token came twice) is NaN inside, and "–" or null in what people see.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rostok.attention.reference import Array
from rostok.errors import UserError
from rostok.text.tokenizer import Tokenizer

FIRST = 2  # scores begin with query 2, so that "previous" is never ◆
LEAST_FREE = 0.05  # where less attention than this is not on ◆, what it does is not asked
SINK_LENGTH, SINK_SHARE = 64, 0.3  # Gu et al. 2024, arXiv:2410.10781
PERIODS = (20, 25, 30, 50)
COPIES, LEAST_CONTEXT = 4, 16
SHIFTS = 9  # key 0 .. 8 positions after the earlier copy
STRONG, PARTIAL = (0.40, 5.0), (0.20, 3.0)  # least score, least multiple of its baseline
KINDS = {
    "induction": "ind",
    "previous": "prev",
    "duplicate": "dup",
    "start": "bos",
    "self": "self",
    "local": "local",
}


# ---- on ordinary text --------------------------------------------------------------------------------------


def uniform(length: int) -> Array:
    """Attention that knows nothing: each query spreads it evenly over what it may see, (T, T)."""
    return np.tri(length) / np.arange(1, length + 1)[:, None]


def kind_cells(ids: npt.ArrayLike, start_id: int) -> dict[str, Array]:
    """Where each kind of head looks on a text of ids (T,): kind -> (T, T) booleans.

    previous: the token before; self: the token itself; local: the four before; start: every ◆; duplicate: earlier
    copies of the token; induction: the token after an earlier copy.
    """
    ids = np.asarray(ids)
    back = np.arange(len(ids))[:, None] - np.arange(len(ids))[None, :]  # distance to the key
    return {
        "induction": copy_cells(ids, 1, start_id),
        "previous": back == 1,
        "duplicate": copy_cells(ids, 0, start_id),
        "start": (ids == start_id)[None, :] & (back >= 0),
        "self": back == 0,
        "local": (back >= 1) & (back <= 4),
    }


def text_scores(maps: Array, ids: npt.ArrayLike, start_id: int) -> dict[str, Array]:
    """All scores of maps (..., T, T) on one text of ids (T,), each (...); means over the queries t >= 2.

    prev A[t,t-1]; self A[t,t]; bos on every ◆; local on the four tokens before; dup on earlier copies of x_t;
    prev_free prev / what is not on ◆; dist tokens back, ◆ aside; ent entropy / ln(t+1); maxw the largest weight;
    sink 1.0 where key 0 gets more than 0.3 of 64 tokens (Gu et al. 2024). NaN where a text has no such thing.
    Raises UserError for fewer than three tokens.
    """
    ids = np.asarray(ids)
    length = len(ids)
    if length <= FIRST:
        raise UserError(f"not enough tokens: scores begin at the third, the text has {length} with ◆")
    rows = maps[..., FIRST:, :]  # (..., T-2, T)
    cells = {kind: where[FIRST:] for kind, where in kind_cells(ids, start_id).items()}  # (T-2, T) each
    back = np.arange(FIRST, length)[:, None] - np.arange(length)[None, :]  # (T-2, T) distance to the key

    def mass(where: Array) -> Array:  # (..., T-2) the weight of each query on its cells
        return np.einsum("...tj,tj->...t", rows, where.astype(rows.dtype))

    parked, prev = mass(cells["start"]), mass(cells["previous"])
    free = (1 - parked).mean(-1)
    twice = cells["duplicate"].any(-1)
    logs = np.log(np.maximum(rows, 1e-30))
    entropy = -(rows * logs).sum(-1) / np.log(np.arange(FIRST, length) + 1)
    return {
        "prev": prev.mean(-1),
        "prev_free": over(prev.mean(-1), free),
        "self": mass(cells["self"]).mean(-1),
        "bos": parked.mean(-1),
        "sink": sinks(maps),
        "local": mass(cells["local"]).mean(-1),
        "dup": mass(cells["duplicate"])[..., twice].mean(-1) if twice.any() else np.full(free.shape, np.nan),
        "dist": over(mass(np.where(cells["start"], 0, back)).mean(-1), free),
        "ent": entropy.mean(-1),
        "maxw": rows.max(-1).mean(-1),
    }


def over(part: Array, free: Array) -> Array:
    """part / free, NaN where almost nothing is free."""
    enough = free >= LEAST_FREE
    return np.where(enough, part / np.where(enough, free, 1), np.nan)


def sinks(maps: Array) -> Array:
    """1.0 where the first key gets more than 0.3 on average of the first 64 queries, else 0.0; NaN for a short text."""
    if maps.shape[-1] < SINK_LENGTH:
        return np.full(maps.shape[:-2], np.nan)
    return (maps[..., :SINK_LENGTH, 0].mean(-1) > SINK_SHARE).astype(float)


def copy_cells(ids: npt.ArrayLike, shift: int, start_id: int) -> Array:
    """(T, T) True at the keys j < t `shift` positions after an earlier copy of x_t; ◆ is no copy.

    >>> copy_cells([0, 5, 6, 5], 1, 0).astype(int).tolist()   # 5 came before, 6 followed it
    [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    """
    ids = np.asarray(ids)
    past = np.tri(len(ids), k=-1, dtype=bool)
    same = (ids[:, None] == ids[None, :]) & past & (ids != start_id)[None, :]
    cells = np.zeros_like(same)
    cells[:, shift:] = same[:, : len(ids) - shift]
    return cells & past


def positional_share(scores: Array) -> Array:
    """POSR2: the share of the variance of scores (..., T, T) that the distance t - j explains; key 0 is left out.

    One-way analysis of variance over distances: 1 is a head that looks at positions, whatever token is there.
    """
    length = scores.shape[-1]
    t, j = np.tril_indices(length)
    t, j = t[j > 0], j[j > 0]
    values = scores[..., t, j].astype(np.float64).reshape(-1, len(t))  # (heads, cells)
    values -= values.mean(-1, keepdims=True)
    counts = np.bincount(t - j)
    total = (values**2).sum(-1)
    sums = np.stack([np.bincount(t - j, weights=row) for row in values])
    between = (sums**2 / counts).sum(-1)
    share = np.divide(between, total, out=np.full(len(total), np.nan), where=total > 0)
    return share.reshape(scores.shape[:-2])


def rest_of_start(pattern: Array, values: Array, proj: Array) -> tuple[Array, Array]:
    """Is ◆ a sink? (|v_0| / median |v_j|, the share of ◆ in what the head writes), each (H,). One layer.

    pattern (H, T, T), values (H, T, E), proj (H, D, E). The share is |A[t,0] v_0 W_O| / sum_j |A[t,j] v_j W_O|,
    averaged over t >= 2: a sink gets much attention and writes little.
    """
    lengths = np.linalg.norm(values, axis=-1)  # (H, T)
    ratio = lengths[:, 0] / np.maximum(np.median(lengths[:, 1:], axis=-1), 1e-30)
    written = np.linalg.norm(values @ proj.transpose(0, 2, 1), axis=-1)  # (H, T)
    parts = pattern[:, FIRST:] * written[:, None, :]  # (H, T-2, T)
    return ratio, (parts[..., 0] / np.maximum(parts.sum(-1), 1e-30)).mean(-1)


def copying(values: Array, proj: Array, unembed: Array, ids: npt.ArrayLike) -> Array:
    """COPY (H,), -1 .. 1: does what a head carries from token j raise the logit of j? Olsson et al. 2022.

    values (H, T, E), proj (H, D, E), unembed (V, D) with the final norm's gain in it, ids (T,) all different. Logits
    minus their mean over the vocabulary, ReLU, the token's share among the tokens of the text; a share of 0 is -1, one
    of 0.5 or more is 1.
    """
    ids = np.asarray(ids)
    carried = values @ proj.transpose(0, 2, 1)  # (H, T, D)
    raised = np.maximum(carried @ (unembed[ids] - unembed.mean(0)).T, 0)  # (H, T, T) of token j on token i
    own, total = np.diagonal(raised, axis1=1, axis2=2), raised.sum(-1)
    share = np.divide(own, total, out=np.zeros_like(own), where=total > 0)
    return np.minimum(4 * share.mean(-1) - 1, 1.0)


# ---- on repeated tokens ------------------------------------------------------------------------------------


def token_pool(tokenizer: Tokenizer, counts: Array) -> Array:
    """Ids for random probes: tokens of whole characters, without ◆, the middle 92 % by how often they come."""
    ids = [
        i
        for i in range(tokenizer.vocab_size)
        if i != tokenizer.start_id and is_whole(tokenizer.token_bytes(i))
    ]
    order = sorted(ids, key=lambda i: (-counts[i], i))
    edge = round(0.04 * len(order))
    return np.array(order[edge : len(order) - edge])


def is_whole(raw: bytes) -> bool:
    try:
        return raw.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False


@dataclass(frozen=True)
class Probe:
    """◆ and a stretch of tokens, several times over: ids (T,); asked (T,) bool, all copies but the first."""

    ids: Array
    asked: Array
    name: str


def repeated(
    pool: npt.ArrayLike, period: int, copies: int, rng: np.random.Generator, start_id: int, filler: int = 0
) -> Probe:
    """`period` different random tokens, `copies` times, with up to `filler` other ones before each copy but the first.

    Raises UserError where the pool of ids is too small.
    """
    pool = np.asarray(pool)
    if len(pool) < period + (copies - 1) * filler:
        raise UserError(f"not enough tokens: the probe needs {period + (copies - 1) * filler} different ones")
    drawn = rng.permutation(pool)
    block, rest = drawn[:period], drawn[period:]
    parts, asked = [np.array([start_id]), block], [np.zeros(1 + period, bool)]
    for copy in range(copies - 1):
        between = rest[copy * filler :][: int(rng.integers(1, filler + 1)) if filler else 0]
        parts += [between, block]
        asked += [np.zeros(len(between), bool), np.ones(period, bool)]
    name = f"{period}x{copies}" + (" filler" if filler else "")
    return Probe(np.concatenate(parts), np.concatenate(asked), name)


def probes_for(context: int, pool: Array, start_id: int, rng: np.random.Generator, rows: int) -> list[Probe]:
    """`rows` probes for each of several periods, and as many with filler, so that no fixed distance is right in all.

    The periods are 20, 25, 30 and 50 where the context has room for two copies of them, else parts of the context.
    """
    if context < LEAST_CONTEXT:
        raise UserError(
            f"not enough tokens: repeats need a context of {LEAST_CONTEXT}, this model's is {context}"
        )
    periods = (
        PERIODS if context > 2 * PERIODS[-1] else tuple(max(3, context // part) for part in (7, 5, 4, 3))
    )
    probes = []
    for period in sorted(set(periods)):
        copies = min(COPIES, (context - 1) // period)
        probes += [repeated(pool, period, copies, rng, start_id) for _ in range(rows)]
    middle = sorted(set(periods))[1]
    room = (context - 1) // middle
    copies = min(COPIES, room - 1) if room > 2 else 2
    filler = min(9, (context - 1 - middle * copies) // (copies - 1), (len(pool) - middle) // (copies - 1))
    return probes + [repeated(pool, middle, copies, rng, start_id, max(1, filler)) for _ in range(rows)]


def shifts_for(probes: Sequence[Probe]) -> int:
    """How many shifts may be told apart: 9, or fewer where the shortest period is shorter."""
    return min(SHIFTS, *(int(probe.name.split("x")[0]) - 1 for probe in probes))


def induction(maps: Array, ids: npt.ArrayLike, asked: Array, shifts: int, start_id: int = 0) -> Array:
    """IND_k of maps (..., T, T) for k = 0 .. shifts-1, (shifts, ...).

    That is the weight on the keys k positions after an earlier copy of x_t, mean over the asked queries (T,) that have
    one. IND_1 is prefix matching (Olsson et al. 2022).
    """
    return np.stack([mean_weight(maps, copy_cells(ids, k, start_id), asked) for k in range(shifts)])


def mean_weight(maps: Array, cells: Array, asked: Array) -> Array:
    """Mean over the asked queries that have a cell of the weight on their cells (T, T); NaN where none has one."""
    rows = asked & cells.any(-1)
    if not rows.any():
        return np.full(maps.shape[:-2], np.nan)
    return np.einsum("...tj,tj->...t", maps[..., rows, :], cells[rows].astype(maps.dtype)).mean(-1)


def weight_when_free(maps: Array, cells: Array, asked: Array) -> tuple[Array, Array]:
    """The same over the queries that give key 0 less than half ("when it works"), and the share of such queries."""
    rows = asked & cells.any(-1)
    weight = np.einsum("...tj,tj->...t", maps[..., rows, :], cells[rows].astype(maps.dtype))
    free = maps[..., rows, 0] < 0.5
    n = free.sum(-1)
    mean = np.divide((weight * free).sum(-1), n, out=np.full(n.shape, np.nan), where=n > 0)
    return mean, n / max(1, rows.sum())


# ---- verdicts ----------------------------------------------------------------------------------------------


def verdicts(
    scores: Mapping[str, tuple[float | None, float]], least: float = STRONG[0], most: int = 2
) -> list[dict[str, Any]]:
    """At most `most` labels of a head, from {score: (value, baseline)}, in the order of KINDS; [] means "other".

    strong: at least 0.40 and 5 times the baseline; partial: 0.20 and 3 times. `least` moves the 0.40, and 0.20 with it.
    """
    found = []
    for kind, name in KINDS.items():
        value, base = scores.get(name, (None, 0.0))
        for word, share, times in (
            ("strong", 1.0, STRONG[1]),
            ("partial", PARTIAL[0] / STRONG[0], PARTIAL[1]),
        ):
            if value is not None and value >= share * least and value >= times * base:
                found.append({"kind": kind, "confidence": word, "score": value, "base": base})
                break
    kinds = [label["kind"] for label in found]
    if "previous" in kinds:  # one of the four tokens before is the one before
        found = [label for label in found if label["kind"] != "local"]
    return found[:most]


def summarize(values: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Values of several texts, each (...), NaN where a text has none -> mean, standard deviation, count, each (...)."""
    stack = np.stack(values).astype(np.float64)
    there = ~np.isnan(stack)
    n = there.sum(0)
    mean = np.divide(np.where(there, stack, 0).sum(0), n, out=np.full(n.shape, np.nan), where=n > 0)
    square = np.where(there, (stack - mean) ** 2, 0).sum(0)
    return mean, np.sqrt(np.divide(square, n - 1, out=np.full(n.shape, np.nan), where=n > 1)), n


def number(x: Any) -> float | None:
    """A number for JSON, six significant digits; None for NaN."""
    return None if x is None or np.isnan(x) else float(f"{float(x):.6g}")


def seed(word: str) -> int:
    """A --seed: a whole number of at least 0, or argparse's one line."""
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0. Got {word!r}")
    return int(word)
