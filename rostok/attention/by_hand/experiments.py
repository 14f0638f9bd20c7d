"""The experiments of the texts on attention: each is a function that computes a small table and says what "
"it shows.

    for row in EXPERIMENTS["shuffle"]().rows: print(row)

`attend.py explain variance` prints one; `attend.py explain --list` names them all.
Everything is counted, or computed by the reference in float64 from fixed seeds, so a table is the same on every
run; seconds are left to the benchmarks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from rostok.attention import reference
from rostok.attention.by_hand.examples import EXAMPLES, Text
from rostok.attention.reference import Array


@dataclass(frozen=True)
class Table:
    """What an experiment found. A cell is a number, a string, or a text in both languages."""

    title: Text
    columns: list[Text]
    rows: list[list[float | int | str | Text]]
    note: Text


def _both(text: str) -> Text:
    """A heading that is the same in both languages."""
    return {"en": text, "ru": text}


# ---- why the scores are divided by the square root of d --------------------------------------------------


def entropy(weights: Array) -> Array:
    """Entropy in nats of weights (..., n): ln n when all are equal, 0 when one has everything."""
    return -(weights * np.log(np.where(weights > 0, weights, 1))).sum(axis=-1)


def trace_of_jacobian(weights: Array) -> Array:
    """Sum of p(1 - p): the trace of the softmax's derivative, what is left of the gradient."""
    return (weights * (1 - weights)).sum(axis=-1)


def jacobian_norm(weights: Array) -> Array:
    """Frobenius norm of diag(p) - p p^T."""
    second = (weights**2).sum(axis=-1)
    return np.sqrt(
        np.maximum(second - 2 * (weights**3).sum(axis=-1) + second**2, 0)
    )  # rounding may go below 0


def pair_products(d: int, pairs: int, rng: np.random.Generator) -> Array:
    """Products (pairs,) of independent pairs of standard normal vectors of d numbers, 1,000 pairs at a time."""
    parts = (rng.standard_normal((2, min(1000, pairs - done), d)) for done in range(0, pairs, 1000))
    return np.concatenate([(q * k).sum(axis=-1) for q, k in parts])


def key_products(d: int, queries: int, keys: int, rng: np.random.Generator) -> Array:
    """Products (queries, keys) of standard normal vectors of d numbers, new keys for each query."""
    return np.stack([rng.standard_normal((keys, d)) @ rng.standard_normal(d) for _ in range(queries)])


def variance(
    dims: Sequence[int] = (2, 64, 512, 1024),
    pairs: int = 10_000,
    queries: int = 400,
    keys: int = 64,
    seed: int = 1,
) -> Table:
    """Spread of q.k against d, and what the softmax over `keys` keys becomes with and without 1/sqrt(d)."""
    rng = np.random.default_rng(seed)
    rows: list[list[float | int | str | Text]] = []
    for d in dims:
        spread = pair_products(d, pairs, rng)
        row: list[float | int | str | Text] = [d, float(spread.var()), float(spread.std() / np.sqrt(d))]
        products = key_products(d, queries, keys, rng)
        raw, scaled = reference.softmax(products), reference.softmax(products / np.sqrt(d))
        for measure in (lambda w: w.max(axis=-1), entropy, trace_of_jacobian, jacobian_norm):
            row += [float(measure(raw).mean()), float(measure(scaled).mean())]
        rows.append(row)
    heads = ["d", "Var(q·k)", "std/√d"]
    for en, ru in (
        ("max weight", "наиб. вес"),
        ("entropy", "энтропия"),
        ("Σp(1−p)", "Σp(1−p)"),
        ("‖J‖", "‖J‖"),
    ):
        heads += [f"{en}|{ru}", f"{en} ÷√d|{ru} ÷√d"]
    return Table(
        {"en": "Why divide by √d", "ru": "Зачем делить на √d"},
        [{"en": head.split("|")[0], "ru": head.split("|")[-1]} for head in heads],
        rows,
        {
            "en": f"{queries} queries over {keys} keys, all numbers of mean 0 and variance 1: Var(q·k) = "
            f"d. Without ÷√d "
            f"one key of {keys} takes nearly everything (equal weights: entropy {np.log(keys):.3f}); with "
            f"it the softmax "
            "is the same at every d. Entropy and Σp(1−p) show the lost gradient best: the norm of the "
            "Jacobian falls "
            "only at large d.",
            "ru": f"{queries} запросов по {keys} ключам, все числа со средним 0 и дисперсией 1: Var(q·k) = "
            f"d. Без ÷√d один "
            f"ключ из {keys} забирает почти всё (при равных весах энтропия {np.log(keys):.3f}); с делением "
            f"softmax при "
            "любом d один и тот же. Потерю градиента лучше видно по энтропии и Σp(1−p): норма якобиана "
            "падает только "
            "при больших d.",
        },
    )


# ---- the shuffled past -----------------------------------------------------------------------------------


def stack(x: Array, weights: Sequence[Sequence[Array]], *, causal: bool, positions: bool) -> Array:
    """Attention layers with a residual stream, nothing else: x (T, D) -> (T, D). A triple (W_q, W_k, W_v) each."""
    for w_q, w_k, w_v in weights:
        q, k = x @ w_q, x @ w_k
        if positions:
            q, k = reference.rope(q, np.arange(len(x))), reference.rope(k, np.arange(len(x)))
        x = x + reference.attention(q, k, x @ w_v, mask="causal" if causal else None)[0]
    return x


def shuffle_change(layers: int, *, causal: bool, positions: bool, seed: int = 0) -> float:
    """The largest change of the last token's output over all 24 orders of the four tokens before it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((5, 8))
    weights = [[rng.standard_normal((8, 8)) / np.sqrt(8) for _ in range(3)] for _ in range(layers)]
    outputs = [
        stack(x[[*order, 4]], weights, causal=causal, positions=positions)[-1]
        for order in permutations(range(4))
    ]
    return float(np.abs(np.array(outputs) - outputs[0]).max())


def shuffle() -> Table:
    """S3-24: does the order of the past matter to the last token? Layers, mask and RoPE switched."""
    yes: Text = {"en": "yes", "ru": "да"}
    no: Text = {"en": "no", "ru": "нет"}
    rows: list[list[float | int | str | Text]] = []
    for layers, causal, positions in product((1, 2), (True, False), (False, True)):
        change = shuffle_change(layers, causal=causal, positions=positions)
        rows.append(
            [layers, *(yes if on else no for on in (causal, positions)), change, yes if change > 1e-9 else no]
        )
    return Table(
        {"en": "The shuffled past", "ru": "Перемешанное прошлое"},
        [
            {"en": "layers", "ru": "слоёв"},
            {"en": "mask", "ru": "маска"},
            _both("RoPE"),
            {"en": "change", "ru": "изменение"},
            {"en": "order matters", "ru": "порядок важен"},
        ],
        rows,
        {
            "en": "One attention layer without positions cannot tell orders apart, masked or not. Two "
            "layers under a causal "
            "mask can: each earlier token's own past changes (Haviv et al. 2022). RoPE always can.",
            "ru": "Один слой внимания без позиций не различает порядок, с маской и без неё. Два слоя под "
            "причинной маской "
            "различают: у каждого прошлого токена меняется собственное прошлое (Haviv и др., 2022). RoPE "
            "различает всегда.",
        },
    )


# ---- costs -----------------------------------------------------------------------------------------------


def cost(
    lengths: Sequence[int] = (8, 16, 32, 64, 128, 256, 512, 1024), d_head: int = 64, heads: int = 48
) -> Table:
    """S1-09, S3-17: scores and multiplications of one pass against the number of tokens T."""
    rows: list[list[float | int | str | Text]] = [
        [
            t,
            t * t,
            t * (t + 1) // 2,
            t * (t - 1) // 2,
            heads * t * t,
            t * t * 2 * d_head,
            heads * t * t * 2 * d_head,
        ]
        for t in lengths
    ]
    return Table(
        {"en": "The cost of attention against T", "ru": "Цена внимания в зависимости от T"},
        [
            _both("T"),
            _both("T²"),
            {"en": "kept T(T+1)/2", "ru": "открыто T(T+1)/2"},
            {"en": "masked T(T−1)/2", "ru": "закрыто T(T−1)/2"},
            {"en": f"scores × {heads}", "ru": f"оценок × {heads}"},
            {"en": "multiplications a head", "ru": "умножений на голову"},
            {"en": f"× {heads}", "ru": f"× {heads}"},
        ],
        rows,
        {
            "en": "n queries and m keys cost n·m·(d_k + d_v) multiplications. Twice the text, four times "
            "the work.",
            "ru": "n запросов и m ключей стоят n·m·(d_k + d_v) умножений. Текст вдвое длиннее — работы "
            "вчетверо больше.",
        },
    )


def window(widths: Sequence[int] = (8, 16, 32, 64, 128, 256, 512)) -> Table:
    """S3-03: weights of the first layer of a window MLP against its window, beside one layer of attention."""
    rows: list[list[float | int | str | Text]] = [[w, w * 48, w * 48 * 384, 4 * 384**2] for w in widths]
    return Table(
        {"en": "The cost of a wider window", "ru": "Цена расширения окна"},
        [
            {"en": "window", "ru": "окно"},
            {"en": "inputs W·48", "ru": "входов W·48"},
            {"en": "weights W·48·384", "ru": "весов W·48·384"},
            {"en": "attention layer 4·384²", "ru": "слой внимания 4·384²"},
        ],
        rows,
        {
            "en": "A window pays for each place with its own weights; attention uses the same ones at "
            "every distance.",
            "ru": "Окно платит за каждое место отдельными весами; внимание на любом расстоянии использует "
            "одни и те же.",
        },
    )


def cache(lengths: Sequence[int] = (1, 64, 128, 256, 512), layers: int = 8, d_model: int = 384) -> Table:
    """S0-16: scores of one head, and memory, when n tokens are generated with and without a KV cache."""
    rows: list[list[float | int | str | Text]] = []
    for n in lengths:
        triangle, square, cached = (
            n * (n + 1) * (n + 2) // 6,
            n * (n + 1) * (2 * n + 1) // 6,
            n * (n + 1) // 2,
        )
        rows.append(
            [
                n,
                square,
                triangle,
                cached,
                square / cached,
                triangle / cached,
                2 * layers * d_model * 4 * n / 2**20,
            ]
        )
    return Table(
        {"en": "The KV cache", "ru": "KV-кеш"},
        [
            {"en": "tokens", "ru": "токенов"},
            {"en": "scores, full squares", "ru": "оценок, квадраты"},
            {"en": "triangles", "ru": "треугольники"},
            {"en": "with the cache", "ru": "с кешем"},
            {"en": "squares ÷ cached", "ru": "квадраты ÷ кеш"},
            {"en": "triangles ÷ cached", "ru": "треугольники ÷ кеш"},
            {"en": "cache, MiB (fp32)", "ru": "кеш, МиБ (fp32)"},
        ],
        rows,
        {
            "en": "Scores of one head, summed over all steps. The cache trades them for memory that grows "
            "with the text.",
            "ru": "Оценки одной головы, сумма по всем шагам. Кеш меняет их на память, которая растёт "
            "вместе с текстом.",
        },
    )


def groups(kv_heads: Sequence[int] = (6, 3, 2, 1), tokens: int = 512) -> Table:
    """S0-18: what fewer key/value heads save in Rostok (8 layers, 6 query heads of 64)."""
    rows: list[list[float | int | str | Text]] = [
        [g, 2 * 8 * 64 * g * 4 * tokens / 2**20, 384 * (6 + 2 * g) * 64, 384 * (6 + 2 * g) * 64 + 384**2]
        for g in kv_heads
    ]
    return Table(
        {"en": "Grouped queries", "ru": "Общие ключи (grouped queries)"},
        [
            {"en": "KV heads", "ru": "голов KV"},
            {"en": f"cache at {tokens}, MiB", "ru": f"кеш на {tokens}, МиБ"},
            {"en": "qkv parameters", "ru": "параметров qkv"},
            {"en": "with W_O", "ru": "вместе с W_O"},
        ],
        rows,
        {
            "en": "6 is plain multi-head attention, 1 is multi-query. Query heads of a group share keys "
            "and values.",
            "ru": "6 — обычное многоголовое внимание, 1 — multi-query. Головы запросов одной группы делят "
            "ключи и значения.",
        },
    )


# ---- softmax ---------------------------------------------------------------------------------------------


def overflow() -> Table:
    """S0-12: exp(800) in three number formats, with and without the shift by the maximum."""
    rows: list[list[float | int | str | Text]] = []
    for name in ("float64", "float32", "float16"):
        scores = np.array([800.0, 799.0], dtype=name)
        with np.errstate(over="ignore", invalid="ignore"):
            exps = np.exp(scores)
            naive = exps / exps.sum()
        limit = float(np.log(float(np.finfo(scores.dtype).max)))
        rows.append(
            [name, limit, str(exps[0]), str(naive[0]), *(float(w) for w in reference.softmax(scores))]
        )
    return Table(
        {"en": "exp(800) does not fit", "ru": "exp(800) не помещается"},
        [
            {"en": "format", "ru": "формат"},
            {"en": "exp() ends at", "ru": "предел exp()"},
            _both("exp(800)"),
            {"en": "naive weight", "ru": "вес напрямую"},
            {"en": "shifted: 800", "ru": "со сдвигом: 800"},
            _both("799"),
        ],
        rows,
        {
            "en": "inf / inf is nan. With the maximum subtracted first the exponents are 0 and −1, and the "
            "weights the same.",
            "ru": "inf / inf — это nan. Если сначала вычесть максимум, показатели равны 0 и −1, а веса те "
            "же.",
        },
    )


def sharpness(values: Sequence[float] = (0, 0.25, 0.5, 1, 2, 3, 5, 10)) -> Table:
    """W3, S3-21: the weights of "she" when all scores are multiplied by a sharpness."""
    inputs = EXAMPLES["S3-12"].inputs
    scores = (np.array(inputs["q"]) @ np.array(inputs["k"]).T)[0]
    rows: list[list[float | int | str | Text]] = []
    for value in values:
        weights = reference.softmax(scores * value)
        rows.append([value, *(float(w) for w in weights), float(entropy(weights))])
    return Table(
        {"en": "Sharpness: from an average to a lookup", "ru": "Резкость: от среднего к поиску"},
        [
            {"en": "sharpness", "ru": "резкость"},
            *map(_both, inputs["keys"]),
            {"en": "entropy", "ru": "энтропия"},
        ],
        rows,
        {
            "en": "0 averages everyone; a large sharpness is a dictionary that returns the nearest key. "
            "Only in between is "
            "there a gradient to learn from.",
            "ru": "При 0 усредняются все; большая резкость — это словарь, который возвращает ближайший "
            "ключ. Градиент, на "
            "котором учатся, есть только посередине.",
        },
    )


def bound(lengths: Sequence[int] = (2, 64, 256, 512), gain: float = 1.0) -> Table:
    """The largest weight QK-norm allows one key over T - 1 rivals of score 0, at head size 64."""
    best = reference.score_bound(np.full(64, gain), np.ones(64))
    rows: list[list[float | int | str | Text]] = [
        [t, best, float(reference.softmax(np.array([best] + [0.0] * (t - 1)))[0])] for t in lengths
    ]
    return Table(
        {"en": "How sharp QK-norm lets a head be", "ru": "Насколько резкой QK-norm позволяет быть голове"},
        [
            _both("T"),
            {"en": "largest score", "ru": "наиб. оценка"},
            {"en": "largest weight", "ru": "наиб. вес"},
        ],
        rows,
        {
            "en": "Both vectors have length √64 · gain, so |q·k|/√64 ≤ 8 at gain 1. The gains are shared "
            "by a layer's heads.",
            "ru": "Оба вектора имеют длину √64 · усиление, поэтому |q·k|/√64 ≤ 8 при усилении 1. Усиления "
            "общие для голов слоя.",
        },
    )


# ---- losses, and one word in two sentences ---------------------------------------------------------------


def perplexity(losses: Sequence[float] = (3.31, 2.87)) -> Table:
    """S3-26: nats a token -> perplexity and bits, and what their gap means."""
    rows: list[list[float | int | str | Text]] = [
        [
            nats,
            float(np.exp(nats)),
            float(np.exp(nats - 0.005)),
            float(np.exp(nats + 0.005)),
            nats / float(np.log(2)),
        ]
        for nats in losses
    ]
    gap = losses[0] - losses[-1]
    return Table(
        {"en": "From nats to perplexity", "ru": "От натов к перплексии"},
        [
            {"en": "nats", "ru": "натов"},
            {"en": "perplexity", "ru": "перплексия"},
            {"en": "from", "ru": "от"},
            {"en": "to", "ru": "до"},
            {"en": "bits", "ru": "бит"},
        ],
        rows,
        {
            "en": f"“From … to”: what a loss rounded to two places leaves open. The gap of {gap:.2f} nats "
            f"is a factor of "
            f"{np.exp(gap):.3f} in perplexity.",
            "ru": f"«От … до» — что оставляет открытым потеря, округлённая до двух знаков. Разрыв в "
            f"{gap:.2f} ната — это "
            f"множитель {np.exp(gap):.3f} в перплексии.",
        },
    )


def random_weights(config: dict[str, int], seed: int = 0) -> dict[str, Array]:
    """Random float64 weights of a small GPT under model.py's names, for experiments that need no training."""
    rng = np.random.default_rng(seed)
    d, h, g, m = (
        config["d_model"],
        config["n_head"],
        config.get("n_kv_head", config["n_head"]),
        config["d_mlp"],
    )
    e = d // h
    weights = {
        "embed.weight": rng.standard_normal((config["vocab_size"], d)),
        "final_norm.weight": np.ones(d),
    }
    for layer in range(config["n_layer"]):
        shapes = {
            "attn.qkv": ((h + 2 * g) * e, d),
            "attn.proj": (d, h * e),
            "mlp.gate": (m, d),
            "mlp.up": (m, d),
        }
        for name, (rows, columns) in {**shapes, "mlp.down": (d, m)}.items():
            weights[f"blocks.{layer}.{name}.weight"] = rng.standard_normal((rows, columns)) / np.sqrt(columns)
        for name, size in (("attn_norm", d), ("mlp_norm", d), ("attn.q_norm", e), ("attn.k_norm", e)):
            weights[f"blocks.{layer}.{name}.weight"] = np.ones(size)
    return weights


def bank() -> Table:
    """S0-07: the query, key and value of one word in two sentences, layer by layer, in an untrained model."""
    config = {"n_layer": 3, "n_head": 2, "d_model": 16, "d_mlp": 32, "vocab_size": 16}
    weights = random_weights(config)
    traces: list[dict[str, Array]] = [{}, {}]
    for ids, trace in zip(([0, 1, 2, 9], [0, 5, 6, 9]), traces, strict=True):  # 9 is "bank", last in both
        reference.forward(weights, config, ids, trace)
    rows: list[list[float | int | str | Text]] = []
    for layer in range(config["n_layer"]):
        names = [f"blocks.{layer}.attn.{part}" for part in ("q_raw", "k_raw", "v")]
        rows.append(
            [layer + 1, *(float(np.abs(traces[0][n][:, -1] - traces[1][n][:, -1]).max()) for n in names)]
        )
    return Table(
        {"en": "“bank” in two sentences", "ru": "«bank» в двух предложениях"},
        [{"en": "layer", "ru": "слой"}, *(_both(f"max Δ{name}") for name in "qkv")],
        rows,
        {
            "en": "At layer 1 the word brings its bare embedding, so q, k and v are the same in both "
            "sentences; from layer 2 "
            "on they carry the context.",
            "ru": "В слое 1 слово приносит голый эмбеддинг, и q, k, v в обоих предложениях одинаковы; "
            "начиная со слоя 2 они "
            "несут контекст.",
        },
    )


EXPERIMENTS: dict[str, Callable[[], Table]] = {
    "variance": variance,
    "shuffle": shuffle,
    "cost": cost,
    "window": window,
    "cache": cache,
    "groups": groups,
    "overflow": overflow,
    "sharpness": sharpness,
    "bound": bound,
    "perplexity": perplexity,
    "bank": bank,
}
ALIASES = {
    "S0-07": "bank",
    "S1-05": "variance",
    "S1-08": "variance",
    "S1-09": "cost",
    "S3-15": "variance",
    "S3-21": "sharpness",
    "S3-24": "shuffle",
    "gqa": "groups",
    "exp(800)": "overflow",
}
