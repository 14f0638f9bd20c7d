"""The worked examples of the four texts on attention: what each text printed, and what is exact.

One source of truth: `attend.py explain`, docs/worked-examples.md, the page and the tests read EXAMPLES.

    EXAMPLES["S0-14"].values        what the text printed beside the exact value, with its status
    compute(EXAMPLES["S0-14"])      the same values computed now, by the reference
    examples_json()                 everything as plain data for a page

A handle names text and place: S0 "The mathematics of attention, step by step" (Ukrainian), S1 an interview
note, S2 "attention weights by hand", S3 the chapter "Attention" (all Russian), W3 its two-dimensional
playground. Variants of ours have a suffix: S0-14-causal. Left out: what only a trained model can show.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from rostok.attention import reference
from rostok.attention.reference import Array

Text = dict[str, str]  # {"en": ..., "ru": ...}
Status = Literal["OK", "ROUND", "OFF", "LOOSE", "OURS"]
Kind = Literal["attention", "softmax", "mixture", "multi-head", "numbers"]

STATUS: dict[str, Text] = {
    "OK": {"en": "right as printed", "ru": "напечатано верно"},
    "ROUND": {"en": "right, but coarse", "ru": "верно, но грубо"},
    "OFF": {
        "en": "the printed number is wrong; ours is the exact one",
        "ru": "напечатано неверно; точное — наше",
    },
    "LOOSE": {"en": "the wording needs a qualification", "ru": "сказанное нуждается в оговорке"},
    "OURS": {"en": "not in the text; ours", "ru": "в тексте этого нет; наше"},
}


@dataclass(frozen=True)
class Value:
    """One value of an example. `printed` keeps the text's digits as strings, so that its precision is known.

    `name` is unique in its example; the value is compute(example)[of], or its entry `at`. A printed number is
    exact * factor (100 for per cent, 1e-6 for millions), rounded; ">12" means more than 12.
    """

    name: str
    exact: Any
    printed: Any = None
    status: Status = "OK"
    of: str = ""
    at: int | tuple[int, ...] | None = None
    factor: float = 1

    def pick(self, computed: Mapping[str, Any]) -> Array:
        """This value out of what `compute` gives."""
        whole = np.asarray(computed[self.of or self.name], dtype=np.float64)
        return whole if self.at is None else whole[self.at]


@dataclass(frozen=True)
class Example:
    """A worked example. `inputs` are plain lists; which ones, the table at `compute` says for each kind."""

    handle: str
    title: Text
    kind: Kind
    inputs: dict[str, Any]
    values: tuple[Value, ...]
    note: Text | None = None
    aliases: tuple[str, ...] = field(default=())

    @property
    def printed(self) -> dict[str, Any]:
        return {value.name: value.printed for value in self.values if value.printed is not None}

    @property
    def exact(self) -> dict[str, Any]:
        return {value.name: value.exact for value in self.values}

    @property
    def status(self) -> str:
        """The worst mark among its values: OFF, LOOSE, ROUND, OK or OURS."""
        marks = {value.status for value in self.values}
        return next(mark for mark in ("OFF", "LOOSE", "ROUND", "OK", "OURS") if mark in marks)


def _rows(name: str, rows: list[tuple[str, Any, Any]], of: str, status: Status = "OK") -> tuple[Value, ...]:
    """One Value a row of a matrix: (label, exact, printed)."""
    return tuple(
        Value(f"{label}-{name}", exact, printed, status if printed is not None else "OURS", of, at)
        for at, (label, exact, printed) in enumerate(rows)
    )


def _own(name: str, exact: Any, of: str = "", at: int | tuple[int, ...] | None = None) -> Value:
    """A value that the text does not print."""
    return Value(name, exact, None, "OURS", of, at)


# ---- inputs that several examples share ------------------------------------------------------------------

_FISH = {
    "tokens": ["cat", "eats", "fish"],
    "x": [[1, 2], [3, 1], [2, 4]],
    "w_q": [[1, 0], [0, 1]],
    "w_k": [[1, 0], [0, 1]],
    "w_v": [[0, 1], [1, 0]],
}
_MILK = {
    "tokens": ["кошка", "пьёт", "молоко"],
    "q": [[1, 0], [0, 1], [1, 1]],
    "k": [[1, 0], [0, 1], [1, 1]],
    "v": [[10, 0], [0, 10], [5, 5]],
}
_SHE = {
    "tokens": ["she"],
    "keys": ["girl", "ball", "red", "ran"],
    "q": [[1.4, 0.7]],
    "k": [[1.6, 0.9], [-1.2, 1.3], [-1.5, -0.6], [0.4, -1.6]],
    "v": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0.5]],
    "scale": 1.0,
}
_SHE_WEIGHTS = {  # sharpness -> weights, to six places
    0.25: [0.479241, 0.192906, 0.124549, 0.203304],
    0.5: [0.709455, 0.114950, 0.047918, 0.127676],
    1.0: [0.940556, 0.024692, 0.004291, 0.030462],
    2.0: [0.998244, 0.000688, 0.000021, 0.001047],
    3.0: [0.999948, 0.000018, 0.000000, 0.000034],
    5.0: [1.0, 0, 0, 0],
    10.0: [1.0, 0, 0, 0],
}


def _pet() -> dict[str, Any]:
    """The inputs of S1-14: default_rng(0), drawn in the order Q, K, V."""
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape).tolist()
        for name, shape in (("q", (2, 4)), ("k", (3, 4)), ("v", (3, 5)))
    }


def _heads() -> dict[str, Any]:
    """The inputs of S3-20: default_rng(0); x, then three matrices divided by sqrt(C)."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {"n_head": 3, "mask": "causal", "x": rng.standard_normal((5, 12)).tolist()}
    for name in ("w_q", "w_k", "w_v"):
        inputs[name] = (rng.standard_normal((12, 12)) / np.sqrt(12)).tolist()
    return inputs


# ---- the arithmetic of the "numbers" examples ------------------------------------------------------------


def _softmax_of(scores: list[float], scale: float = 1.0) -> Array:
    return reference.softmax(np.array(scores) * scale)


def _least_best_score() -> float:
    """Over all directions of a unit query, the smallest best score among the four keys of "she"."""
    angles = np.linspace(0, 2 * np.pi, 1_000_001)
    return float((np.stack([np.cos(angles), np.sin(angles)], 1) @ np.array(_SHE["k"]).T).max(1).min())


def _qk_norm_change() -> float:
    """How much a query ten times longer changes the normalised query."""
    q = np.random.default_rng(0).standard_normal(64)
    return float(np.abs(reference.rms_norm(10 * q) - reference.rms_norm(q)).max())


def _top_left() -> list[float]:
    """The weights of one query over three keys under a causal mask aligned at the top left."""
    return reference.attention(np.ones((1, 2)), np.ones((3, 2)), np.ones((3, 2)), mask="causal")[1][
        0
    ].tolist()


NUMBERS: dict[str, Callable[[], dict[str, Any]]] = {
    "S0-01": lambda: {"sum": sum([0.65, 0.20, 0.10, 0.05])},
    "S0-03": lambda: {
        "shape": np.array([[0.2, 0.5, 0.1, 0.7], [0.8, 0.3, 0.6, 0.2], [0.4, 0.9, 0.5, 0.1]]).shape
    },
    "S0-12-limits": lambda: {
        name: float(np.log(float(np.finfo(dtype).max)))
        for name, dtype in (("float64", np.float64), ("float32", np.float32), ("float16", np.float16))
    },
    "S0-16": lambda: {
        "uncached-triangle": sum(n * (n + 1) // 2 for n in range(1, 513)),
        "uncached-square": sum(n * n for n in range(1, 513)),
        "cached": sum(range(1, 513)),
        "numbers-per-token": 2 * 8 * 384,
        "bytes-per-token": 2 * 8 * 384 * 4,
        "full-context-fp32-MiB": 2 * 8 * 384 * 4 * 512 / 2**20,
        "full-context-fp16-MiB": 2 * 8 * 384 * 2 * 512 / 2**20,
    },
    "S0-17": lambda: {"GPT-2": 768 // 12, "GPT-3": 12288 // 96, "Rostok": 384 // 6},
    "S0-18": lambda: {
        "cache-MiB": [2 * 8 * 64 * g * 4 * 512 / 2**20 for g in (6, 3, 2, 1)],
        "qkv-parameters": [384 * (6 + 2 * g) * 64 for g in (6, 3, 2, 1)],
        "with-output-matrix": [384 * (6 + 2 * g) * 64 + 384**2 for g in (6, 3, 2, 1)],
    },
    "S3-02": lambda: {"inputs": 8 * 48},
    "S3-03": lambda: {
        "window-8": 8 * 48 * 384,
        "window-512": 512 * 48 * 384,
        "windows-16-to-256": [w * 48 * 384 for w in (16, 32, 64, 128, 256)],
    },
    "S3-05": lambda: {"heads": 8 * 6, "head-size": 384 // 6},
    "S3-07-lead": lambda: {"lead-20": np.log(0.82 / 0.18 * 20), "lead-50": np.log(0.82 / 0.18 * 50)},
    "S3-13-ratio": lambda: {"ratio": np.exp(-3.0) / np.exp(-9.0)},
    "S3-17": lambda: {
        "scores-512": 512**2,
        "masked-512": 512 * 511 // 2,
        "masked-share": (512 * 511 // 2) / 512**2,
        "kept-512": 512 * 513 // 2,
        "all-48-heads": 48 * 512**2,
        "kept-48-heads": 48 * 512 * 513 // 2,
        "kept-8-to-512": [t * (t + 1) // 2 for t in (8, 16, 32, 64, 128, 256, 512)],
        "doubled": 1024**2 / 512**2,
    },
    "S3-19": lambda: {
        "four-matrices": 4 * 384**2,
        "with-norm-gains": 4 * 384**2 + 2 * 64,
        "eight-layers": 8 * (4 * 384**2 + 2 * 64),
        "qkv": 384 * 1152,
    },
    "S3-23-top-left": lambda: {"weights": _top_left()},
    "S3-26": lambda: {
        "window-perplexity": np.exp(3.31),
        "gpt-1-perplexity": np.exp(2.87),
        "window-range": np.exp([3.305, 3.315]),
        "gpt-1-range": np.exp([2.865, 2.875]),
        "gap": 3.31 - 2.87,
        "gap-factor": np.exp(3.31 - 2.87),
        "window-bits": 3.31 / np.log(2),
        "gpt-1-bits": 2.87 / np.log(2),
    },
    "W3-directions": lambda: {"least-best-score": _least_best_score()},
    "W3-long-query-rostok": lambda: {"change": _qk_norm_change()},
    "W3-bound": lambda: {
        "bound": reference.score_bound(np.ones(64), np.ones(64)),
        "best-weight": [_softmax_of([8.0] + [0.0] * (t - 1))[0] for t in (2, 64, 256, 512)],
    },
}


# ---- what each kind computes -----------------------------------------------------------------------------


def compute(example: Example) -> dict[str, Any]:
    """All values of an example, computed now by the reference. By kind:

    attention   q, k, v or x, w_q, w_k, w_v [kv_source, scale, mask] -> q k v and the fields of Steps
    softmax     scores [scale] -> scaled exps total weights
    mixture     weights, v -> sum output
    multi-head  x, w_q, w_k, w_v, n_head -> output weights sum sum-of-squares by-hand-scores
    numbers     the function NUMBERS[handle]
    """
    return {
        "attention": _attention,
        "softmax": _softmax,
        "mixture": _mixture,
        "multi-head": _multi_head,
        "numbers": lambda _: NUMBERS[example.handle](),
    }[example.kind](example.inputs)


def qkv(inputs: Mapping[str, Any]) -> tuple[Array, Array, Array]:
    """The three matrices of an attention example: as given, or from x (keys from kv_source, if any)."""
    if "q" in inputs:
        q, k, v = (np.array(inputs[name], dtype=np.float64) for name in ("q", "k", "v"))
        return q, k, v
    x = np.array(inputs["x"], dtype=np.float64)
    source = np.array(inputs.get("kv_source", inputs["x"]), dtype=np.float64)
    return x @ np.array(inputs["w_q"]), source @ np.array(inputs["w_k"]), source @ np.array(inputs["w_v"])


def _attention(inputs: Mapping[str, Any]) -> dict[str, Any]:
    q, k, v = qkv(inputs)
    steps = reference.attention_steps(q, k, v, scale=inputs.get("scale"), mask=inputs.get("mask"))
    return {"q": q, "k": k, "v": v, **vars(steps)}


def _softmax(inputs: Mapping[str, Any]) -> dict[str, Any]:
    scaled = np.array(inputs["scores"], dtype=np.float64) * inputs.get("scale", 1.0)
    with np.errstate(over="ignore"):
        exps = np.exp(scaled)  # as a text writes it; inf where float64 ends
        total = exps.sum()
    return {"scaled": scaled, "exps": exps, "total": total, "weights": reference.softmax(scaled)}


def _mixture(inputs: Mapping[str, Any]) -> dict[str, Any]:
    weights = np.array(inputs["weights"], dtype=np.float64)
    return {
        "weights": weights,
        "sum": weights.sum(),
        "output": weights @ np.array(inputs["v"], dtype=np.float64),
    }


def _multi_head(inputs: Mapping[str, Any]) -> dict[str, Any]:
    x, w_q, w_k = (np.array(inputs[name]) for name in ("x", "w_q", "w_k"))
    output, weights = reference.multi_head(x, w_q, w_k, inputs["w_v"], inputs["n_head"], mask=inputs["mask"])
    d = x.shape[1] // inputs["n_head"]
    by_hand = (x[:4] @ w_k)[:, :d] @ (x[3] @ w_q)[:d] / np.sqrt(d)  # token 3 in head 0
    return {
        "output": output,
        "weights": weights,
        "sum": output.sum(),
        "sum-of-squares": (output**2).sum(),
        "by-hand-scores": by_hand,
        "by-hand-weights": np.exp(by_hand) / np.exp(by_hand).sum(),
    }


# ---- the examples ----------------------------------------------------------------------------------------

_LIST: tuple[Example, ...] = (
    Example(
        "S0-01",
        {"en": "The weights of “it”", "ru": "Веса слова «it»"},
        "numbers",
        {"sentence": "The animal didn't cross the street because it was tired"},
        (Value("sum", 1.0, "1.00"),),
        {
            "en": "An illustration: nobody computed 0.65, 0.20, 0.10, 0.05. A trained model gives its own.",
            "ru": "Иллюстрация: числа 0,65, 0,20, 0,10, 0,05 никто не вычислял. Обученная модель даст свои.",
        },
        ("it",),
    ),
    Example(
        "S0-03",
        {"en": "The matrix X of “The cat sat”", "ru": "Матрица X для «The cat sat»"},
        "numbers",
        {
            "tokens": ["The", "cat", "sat"],
            "x": [[0.2, 0.5, 0.1, 0.7], [0.8, 0.3, 0.6, 0.2], [0.4, 0.9, 0.5, 0.1]],
        },
        (Value("shape", [3, 4], ["3", "4"]),),
    ),
    Example(
        "S0-10",
        {
            "en": "Large scores without the scale: [180, 210, 95]",
            "ru": "Большие оценки без масштаба: [180, 210, 95]",
        },
        "softmax",
        {"scores": [180, 210, 95]},
        (Value("weights", [9.357623e-14, 1.0, 1.137980e-50], ["0.00", "1.00", "0.00"], "LOOSE"),),
        {
            "en": "The weights are right. Scores this large are not usual at d = 512: for numbers of mean "
            "0 and variance "
            "1 their spread is √512 = 22.63, so 210 lies 9.3 spreads out.",
            "ru": "Веса верны. Но такие оценки при d = 512 не «обычное дело»: у чисел со средним 0 и "
            "дисперсией 1 их "
            "разброс равен √512 = 22,63, так что 210 отстоит на 9,3 разброса.",
        },
    ),
    Example(
        "S0-10-scaled",
        {"en": "The same scores divided by √512", "ru": "Те же оценки, делённые на √512"},
        "softmax",
        {"scores": [180, 210, 95], "scale": 512**-0.5},
        (
            _own("scaled", [7.954951, 9.280777, 4.198447]),
            _own("weights", [0.208827, 0.786294, 0.004879]),
        ),
    ),
    Example(
        "S0-11",
        {"en": "Softmax of [3.2, 4.0, 1.0, 6.2, 8.0]", "ru": "Softmax от [3.2, 4.0, 1.0, 6.2, 8.0]"},
        "softmax",
        {"scores": [3.2, 4.0, 1.0, 6.2, 8.0]},
        (
            Value(
                "exps",
                [24.5325302, 54.5981500, 2.7182818, 492.7490411, 2980.9579870],
                ["24.53", "54.60", "2.72", "492.75", "2980.96"],
            ),
            Value("total", 3555.5559902, "3555.56"),
            Value("token-1", 0.00689977, "0.69", "OK", "weights", 0, 100),
            Value("token-2", 0.01535573, "1.54", "OK", "weights", 1, 100),
            Value("token-3", 0.00076452, "0.08", "OK", "weights", 2, 100),
            Value("token-4", 0.13858565, "13.86", "OK", "weights", 3, 100),
            Value("token-5", 0.83839433, "83.83", "OFF", "weights", 4, 100),
        ),
        {
            "en": "Token 5 gets 83.84 %, not 83.83 %. The printed column adds up to exactly 100.00, the "
            "exact one, rounded, "
            "to 100.01: the last digit was shaved.",
            "ru": "Токен 5 получает 83,84 %, а не 83,83 %. Напечатанный столбец в сумме даёт ровно 100,00, "
            "точный после "
            "округления — 100,01: последнюю цифру подрезали.",
        },
    ),
    Example(
        "S0-12",
        {
            "en": "Softmax of [800, 799]: exp(800) overflows",
            "ru": "Softmax от [800, 799]: exp(800) не помещается",
        },
        "softmax",
        {"scores": [800, 799]},
        (_own("weights", [0.731059, 0.268941]),),
        {
            "en": "float64 ends at exp(709.78). With the maximum subtracted first, nothing overflows and "
            "the result is the same.",
            "ru": "float64 кончается на exp(709,78). Если сначала вычесть максимум, ничего не "
            "переполнится, а ответ тот же.",
        },
        ("overflow-softmax",),
    ),
    Example(
        "S0-12-limits",
        {"en": "Where exp() ends", "ru": "Где кончается exp()"},
        "numbers",
        {"formula": "ln(largest number)"},
        (_own("float64", 709.782713), _own("float32", 88.722839), _own("float16", 11.089866)),
    ),
    Example(
        "S0-13",
        {"en": "The output for “it”, a weighted sum", "ru": "Выход для «it», взвешенная сумма"},
        "mixture",
        {
            "tokens": ["animal", "street", "tired", "rest"],
            "weights": [0.65, 0.20, 0.10, 0.05],
            "v": [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
        },
        (
            Value("output", [0.65, 0.20, 0.10, 0.05], ["0.65", "0.20", "0.10", "0.05"]),
            _own("sum", 1.0),
        ),
    ),
    Example(
        "S0-14",
        {"en": "“cat eats fish”", "ru": "«cat eats fish»"},
        "attention",
        _FISH,
        (
            Value("fish-dots", [10, 10, 20], ["10", "10", "20"], "OK", "dots", 2),
            _own("dots", [[5, 5, 10], [5, 10, 10], [10, 10, 20]]),
            _own("v", [[2, 1], [1, 3], [4, 2]]),
            _own(
                "scaled",
                [
                    [3.535534, 3.535534, 7.071068],
                    [3.535534, 7.071068, 7.071068],
                    [7.071068, 7.071068, 14.142136],
                ],
            ),
            *_rows(
                "weights",
                [
                    ("cat", [0.027538, 0.027538, 0.944924], None),
                    ("eats", [0.014362, 0.492819, 0.492819], None),
                    ("fish", [0.000848, 0.000848, 0.998304], None),
                ],
                "weights",
            ),
            Value("fish-self", 0.998304, "99.8", "OK", "weights", (2, 2), 100),
            *_rows(
                "output", [("cat", [3.862310, 2.0], None), ("eats", [2.492819, 2.478457], None)], "output"
            ),
            Value("fish-output", [3.995761, 2.0], ["3.997", "2.001"], "OFF", "output", 2),
        ),
        {
            "en": "The output of “fish” is [3.9958, 2.0000]. The printed [3.997, 2.001] is what weights "
            "rounded by hand to "
            "[0, 0.001, 0.999] give; the second number is exactly 2 whatever the weight: w·1 + w·3 + (1 − "
            "2w)·2 = 2.",
            "ru": "Выход слова «fish» — [3,9958, 2,0000]. Напечатанное [3,997, 2,001] получается из весов, "
            "округлённых "
            "вручную до [0, 0,001, 0,999]; второе число равно ровно 2 при любом весе: w·1 + w·3 + (1 − "
            "2w)·2 = 2.",
        },
        ("fish", "cat", "cat-eats-fish"),
    ),
    Example(
        "S0-14-causal",
        {"en": "“cat eats fish” with a causal mask", "ru": "«cat eats fish» с причинной маской"},
        "attention",
        {**_FISH, "mask": "causal"},
        (
            _own("eats-weights", [0.028318, 0.971682, 0], "weights", 1),
            _own("cat-output", [2, 1], "output", 0),
            _own("eats-output", [1.028318, 2.943364], "output", 1),
            _own("fish-output", [3.995761, 2.0], "output", 2),
        ),
    ),
    Example(
        "S0-14-unscaled",
        {"en": "“cat eats fish” without ÷√2", "ru": "«cat eats fish» без ÷√2"},
        "attention",
        {**_FISH, "scale": 1.0},
        (
            _own("fish-weights", [0.0000454, 0.0000454, 0.9999092], "weights", 2),
            _own("fish-output", [3.999773, 2.0], "output", 2),
        ),
    ),
    Example(
        "S0-15",
        {
            "en": "Cross-attention: two queries, three keys of another text",
            "ru": "Перекрёстное внимание: два запроса, три чужих ключа",
        },
        "attention",
        {
            "tokens": ["il", "dort"],
            "keys": ["the", "cat", "sleeps"],
            "x": [[1, 0, 1], [0, 2, 0]],
            "kv_source": [[0, 0], [1, 0], [0, 1]],
            "w_q": [[1, 0], [0, 1], [1, 0]],
            "w_k": [[1, 0], [0, 1]],
            "w_v": [[1, 0, 2], [0, 1, 2]],
        },
        (
            _own("weights", [[0.163579, 0.672842, 0.163579], [0.163579, 0.163579, 0.672842]]),
            _own("output", [[0.672842, 0.163579, 1.672842], [0.163579, 0.672842, 1.672842]]),
        ),
        {
            "en": "Ours: the text only names the kind. Q comes from one sequence, K and V from another; n "
            "≠ m and d_v ≠ d_k.",
            "ru": "Наш пример: текст только называет этот вид. Q берётся из одного текста, K и V — из "
            "другого; n ≠ m, d_v ≠ d_k.",
        },
        ("cross",),
    ),
    Example(
        "S0-16",
        {"en": "The KV cache in numbers", "ru": "KV-кеш в числах"},
        "numbers",
        {"formula": "512 tokens, 8 layers, 384 wide"},
        (
            _own("uncached-triangle", 22500864),
            _own("uncached-square", 44870400),
            _own("cached", 131328),
            _own("numbers-per-token", 6144),
            _own("bytes-per-token", 24576),
            _own("full-context-fp32-MiB", 12),
            _own("full-context-fp16-MiB", 6),
        ),
        {
            "en": "The text says O(n²) a step becomes O(n). Recomputing K and V alone is O(n) a step; "
            "O(n²) is the full re-run "
            "with its scores. With the cache a step makes O(1) projections and O(n) scores.",
            "ru": "В тексте: шаг за O(n²) становится шагом за O(n). Пересчёт одних K и V стоит O(n) за "
            "шаг; O(n²) — это полный "
            "повтор вместе с оценками. С кешем шаг делает O(1) проекций и O(n) оценок.",
        },
    ),
    Example(
        "S0-17",
        {"en": "The size of a head", "ru": "Размер головы"},
        "numbers",
        {"formula": "d_model / n_head"},
        (Value("GPT-2", 64, "64"), Value("GPT-3", 128, "128"), _own("Rostok", 64)),
    ),
    Example(
        "S0-18",
        {
            "en": "Grouped queries in Rostok: 6, 3, 2, 1 key heads",
            "ru": "Общие ключи в Ростке: 6, 3, 2, 1 голова ключей",
        },
        "numbers",
        {"formula": "2 · 8 · 64 · G · 4 B · 512;  384 · (6 + 2G) · 64"},
        (
            _own("cache-MiB", [12, 6, 4, 2]),
            _own("qkv-parameters", [442368, 294912, 245760, 196608]),
            _own("with-output-matrix", [589824, 442368, 393216, 344064]),
        ),
        {
            "en": "Not every size of the models that the text names does this: of LLaMA-2 only 34B and 70B "
            "share key heads.",
            "ru": "Не все размеры названных моделей так устроены: у LLaMA-2 общие ключи есть только в 34B "
            "и 70B.",
        },
    ),
    Example(
        "S1-14",
        {
            "en": "Two queries, three keys, values of five numbers",
            "ru": "Два запроса, три ключа, значения из пяти чисел",
        },
        "attention",
        _pet(),
        (
            _own("scaled", [[-0.158068, -0.569074, 0.173166], [-0.427106, -0.575925, 0.850641]]),
            _own("weights", [[0.327261, 0.216968, 0.455771], [0.183477, 0.158107, 0.658416]]),
            _own(
                "output",
                [
                    [-0.481822, 0.190538, -0.490247, 0.262225, 0.441281],
                    [-0.673468, -0.004562, -0.372615, 0.348226, 0.341916],
                ],
            ),
        ),
        {
            "en": "Step 4 of the text says `output = scores @ V`; it must be `weights @ V`: with the "
            "scores row 0 would be "
            "[-0.208, 0.171, 0.602, 0.299, -0.231]. And an output mixes the ROWS of V, not its columns.",
            "ru": "В шаге 4 напечатано `output = scores @ V`; нужно `weights @ V`: с оценками строка 0 "
            "вышла бы "
            "[-0,208, 0,171, 0,602, 0,299, -0,231]. И выход — смесь СТРОК матрицы V, а не столбцов.",
        },
        ("pet",),
    ),
    Example(
        "S2-02",
        {"en": "Softmax of [2.0, 1.0, 0.1]", "ru": "Softmax от [2.0, 1.0, 0.1]"},
        "softmax",
        {"scores": [2.0, 1.0, 0.1]},
        (Value("weights", [0.659001, 0.242433, 0.098566], ["0.659", "0.242", "0.099"]),),
        None,
        ("softmax",),
    ),
    Example(
        "S2-03",
        {"en": "“кошка пьёт молоко” (the cat drinks milk)", "ru": "«кошка пьёт молоко»"},
        "attention",
        _MILK,
        (
            _own(
                "scaled", [[0.707107, 0, 0.707107], [0, 0.707107, 0.707107], [0.707107, 0.707107, 1.414214]]
            ),
            *_rows(
                "weights",
                [
                    ("koshka", [0.401112, 0.197776, 0.401112], ["0.40", "0.20", "0.40"]),
                    ("pyot", [0.197776, 0.401112, 0.401112], ["0.20", "0.40", "0.40"]),
                    ("moloko", [0.248255, 0.248255, 0.503490], ["0.25", "0.25", "0.50"]),
                ],
                "weights",
            ),
            *_rows(
                "output",
                [
                    ("koshka", [6.016681, 3.983319], ["6.02", "3.98"]),
                    ("pyot", [3.983319, 6.016681], ["3.98", "6.02"]),
                    ("moloko", [5.0, 5.0], ["5.00", "5.00"]),
                ],
                "output",
            ),
        ),
        None,
        ("milk", "кошка", "молоко", "koshka"),
    ),
    Example(
        "S2-03-causal",
        {"en": "“кошка пьёт молоко” with a causal mask", "ru": "«кошка пьёт молоко» с причинной маской"},
        "attention",
        {**_MILK, "mask": "causal"},
        (
            _own("pyot-weights", [0.330238, 0.669762, 0], "weights", 1),
            _own("koshka-output", [10, 0], "output", 0),
            _own("pyot-output", [3.302385, 6.697615], "output", 1),
            _own("moloko-output", [5.0, 5.0], "output", 2),
        ),
    ),
    Example(
        "S3-02",
        {"en": "A window of 8 tokens, 48 numbers each", "ru": "Окно из 8 токенов по 48 чисел"},
        "numbers",
        {"formula": "8 · 48"},
        (Value("inputs", 384, "384"),),
    ),
    Example(
        "S3-03",
        {"en": "What a wider window costs", "ru": "Сколько стоит расширить окно"},
        "numbers",
        {"formula": "W · 48 · 384"},
        (
            Value("window-8", 147456, "147456"),
            Value("window-512", 9437184, "9.4", "ROUND", factor=1e-6),
            _own("windows-16-to-256", [294912, 589824, 1179648, 2359296, 4718592]),
        ),
    ),
    Example(
        "S3-05",
        {"en": "8 layers of 6 heads; 384 cut in 6", "ru": "8 слоёв по 6 голов; 384 на 6 частей"},
        "numbers",
        {"formula": "8 · 6;  384 / 6"},
        (Value("heads", 48, "48"), Value("head-size", 64, "64")),
    ),
    Example(
        "S3-07-lead",
        {"en": "The lead that 82 % of the attention needs", "ru": "Какой отрыв нужен для 82 % внимания"},
        "numbers",
        {"formula": "ln(0.82 / 0.18 · n)"},
        (_own("lead-20", 4.512080), _own("lead-50", 5.428370)),
        {
            "en": "Over 20 or 50 equal rivals. QK-norm at gain 1 allows scores of ±8, so 82 % is within "
            "reach.",
            "ru": "Над 20 или 50 равными соперниками. QK-norm при усилении 1 допускает оценки ±8, так что "
            "82 % достижимы.",
        },
    ),
    Example(
        "S3-12",
        {"en": "“she” asks who is a girl", "ru": "«she» спрашивает, кто тут девочка"},
        "attention",
        _SHE,
        (
            Value(
                "scores", [2.87, -0.77, -2.52, -0.56], ["+2.87", "-0.77", "-2.52", "-0.56"], "OK", "scaled", 0
            ),
            Value(
                "weights",
                [0.940556, 0.024692, 0.004291, 0.030462],
                ["0.941", "0.025", "0.004", "0.030"],
                "OK",
                "weights",
                0,
            ),
            Value("output", [0.955787, 0.039923, 0.019522], ["0.956", "0.04", "0.02"], "OK", "output", 0),
        ),
        {
            "en": "No ÷√d here: the text that this comes from divides only later.",
            "ru": "Здесь нет ÷√d: глава делит только позже.",
        },
        ("she", "girl"),
    ),
    Example(
        "S3-12-scaled",
        {"en": "“she” with ÷√2", "ru": "«she» с делением на √2"},
        "attention",
        {key: value for key, value in _SHE.items() if key != "scale"},
        (_own("weights", [0.842599, 0.064240, 0.018638, 0.074524], "weights", 0),),
    ),
    Example(
        "S3-13",
        {"en": "All scores negative: −3, −5, −6, −9", "ru": "Все оценки отрицательны: −3, −5, −6, −9"},
        "softmax",
        {"scores": [-3, -5, -6, -9]},
        (_own("weights", [0.842034, 0.113957, 0.041922, 0.002087]),),
        {
            "en": "They still sum to 1; the least bad key wins. Attention cannot look nowhere.",
            "ru": "Сумма всё равно 1: побеждает наименее плохой ключ. Внимание не умеет никуда не смотреть.",
        },
        ("quiz",),
    ),
    Example(
        "S3-13-ratio",
        {"en": "How much larger e⁻³ is than e⁻⁹", "ru": "Во сколько раз e⁻³ больше e⁻⁹"},
        "numbers",
        {"formula": "exp(-3) / exp(-9)"},
        (_own("ratio", 403.4287935),),
    ),
    Example(
        "S3-17",
        {"en": "How many scores a pass computes", "ru": "Сколько оценок считает один проход"},
        "numbers",
        {"formula": "T²;  T(T + 1)/2;  48 heads"},
        (
            Value("scores-512", 262144, "262144"),
            _own("masked-512", 130816),
            _own("masked-share", 0.499023),
            _own("kept-512", 131328),
            Value("all-48-heads", 12582912, ">12", "ROUND", factor=1e-6),
            _own("kept-48-heads", 6303744),
            _own("kept-8-to-512", [36, 136, 528, 2080, 8256, 32896, 131328]),
            Value("doubled", 4, "4"),
        ),
        {
            "en": "“More than 12 million”: 12.58 million. The mask closes 49.90 % of them.",
            "ru": "«Больше 12 миллионов» — это 12,58 миллиона. Маска закрывает 49,90 % из них.",
        },
    ),
    Example(
        "S3-19",
        {"en": "Parameters of one attention layer", "ru": "Параметры одного слоя внимания"},
        "numbers",
        {"formula": "4 · 384²"},
        (
            Value("four-matrices", 589824, "589824"),
            _own("with-norm-gains", 589952),
            _own("eight-layers", 4719616),
            _own("qkv", 442368),
        ),
        {
            "en": "QK-norm adds 2 · 64 gains a layer, whatever the number of heads.",
            "ru": "QK-norm добавляет 2 · 64 усиления на слой при любом числе голов.",
        },
    ),
    Example(
        "S3-20",
        {
            "en": "Three heads, five tokens, twelve numbers each",
            "ru": "Три головы, пять токенов по двенадцать чисел",
        },
        "multi-head",
        _heads(),
        (
            *(
                Value(f"head-0-row-{t}", exact, printed, "OK", "weights", (0, t))
                for t, (exact, printed) in enumerate(
                    (
                        ([1, 0, 0, 0, 0], ["1.00", "0.00", "0.00", "0.00", "0.00"]),
                        ([0.534706, 0.465294, 0, 0, 0], ["0.53", "0.47", "0.00", "0.00", "0.00"]),
                        ([0.107355, 0.263611, 0.629034, 0, 0], ["0.11", "0.26", "0.63", "0.00", "0.00"]),
                        (
                            [0.265165, 0.191242, 0.211649, 0.331944, 0],
                            ["0.27", "0.19", "0.21", "0.33", "0.00"],
                        ),
                        (
                            [0.024676, 0.059105, 0.300458, 0.504167, 0.111594],
                            ["0.02", "0.06", "0.30", "0.50", "0.11"],
                        ),
                    )
                )
            ),
            _own("head-1-row-4", [0.089941, 0.063046, 0.304396, 0.345645, 0.196972], "weights", (1, 4)),
            _own("head-2-row-4", [0.193945, 0.130631, 0.115815, 0.486001, 0.073608], "weights", (2, 4)),
            _own("by-hand-scores", [-0.007282, -0.334094, -0.232706, 0.217330]),
            _own("by-hand-weights", [0.265165, 0.191242, 0.211649, 0.331944]),
            _own("y-0-0", -0.194752, "output", (0, 0)),
            _own("y-0-1", 0.434314, "output", (0, 1)),
            _own("y-0-2", 0.577257, "output", (0, 2)),
            _own("y-4-11", -0.076245, "output", (4, 11)),
            _own("sum", 2.660500),
            _own("sum-of-squares", 27.985161),
        ),
        None,
        ("heads", "multi-head"),
    ),
    Example(
        "S3-23-top-left",
        {
            "en": "One query, three keys under torch's is_causal",
            "ru": "Один запрос и три ключа под is_causal из torch",
        },
        "numbers",
        {"formula": "key j is open if j <= query row"},
        (_own("weights", [1, 0, 0]),),
        {
            "en": "The mask is aligned at the top left, so the one query sees key 0 alone: a decoder with "
            "a cache must pass "
            "is_causal=False.",
            "ru": "Маска выровнена по левому верхнему углу, и единственный запрос видит только ключ 0: с "
            "кешем нужно "
            "is_causal=False.",
        },
    ),
    Example(
        "S3-26",
        {"en": "From nats to perplexity: 3.31 and 2.87", "ru": "От натов к перплексии: 3,31 и 2,87"},
        "numbers",
        {"formula": "exp(nats);  nats / ln 2"},
        (
            Value("window-perplexity", 27.3851255, "27", "ROUND"),
            Value("gpt-1-perplexity", 17.6370182, "18", "ROUND"),
            _own("window-range", [27.2485416, 27.5223940]),
            _own("gpt-1-range", [17.5490532, 17.7254241]),
            _own("gap", 0.44),
            _own("gap-factor", 1.5527072),
            _own("window-bits", 4.7753206),
            _own("gpt-1-bits", 4.1405348),
        ),
        {
            "en": "The ranges are what ±0.005 nats, the rounding of the losses, leaves open. Compare "
            "models only on one "
            "tokenizer and the same held-out targets.",
            "ru": "Диапазоны — то, что оставляет открытым округление потерь, ±0,005 ната. Сравнивать "
            "модели можно только "
            "на одном токенизаторе и одних и тех же отложенных токенах.",
        },
    ),
    Example(
        "W3-zero",
        {"en": "Zero query: everyone gets a quarter", "ru": "Нулевой запрос: каждому по четверти"},
        "attention",
        {**_SHE, "q": [[0, 0]]},
        (
            Value("weights", [0.25, 0.25, 0.25, 0.25], ["25", "25", "25", "25"], "OK", "weights", 0, 100),
            _own("output", [0.375, 0.375, 0.375], "output", 0),
        ),
        None,
        ("zero",),
    ),
    *(
        Example(
            f"W3-sharpness-{sharpness:g}",
            {
                "en": f"“she” with sharpness {sharpness:g}",
                "ru": f"«she» с резкостью {sharpness:g}".replace(".", ","),
            },
            "attention",
            {**_SHE, "scale": sharpness},
            (_own("weights", weights, "weights", 0),),
            {
                "en": "A query times m is the same as a sharpness of m: the inverse of a temperature.",
                "ru": "Запрос, умноженный на m, — то же, что резкость m: величина, обратная температуре.",
            },
        )
        for sharpness, weights in _SHE_WEIGHTS.items()
    ),
    Example(
        "W3-nobody",
        {
            "en": "Nobody fits: all four keys turn away",
            "ru": "Никто не подходит: все четыре ключа отвернулись",
        },
        "attention",
        {**_SHE, "k": [[-2.161, 0.037], [-2.589, -1.965], [-3.607, -1.357], [-5.053, -2.750]]},
        (
            _own("scores", [-2.9995, -5.0001, -5.9997, -8.9992], "scaled", 0),
            _own("weights", [0.842098, 0.113897, 0.041917, 0.002088], "weights", 0),
        ),
        None,
        ("nobody",),
    ),
    Example(
        "W3-directions",
        {
            "en": "With the first keys no query can dislike all four",
            "ru": "С исходными ключами нельзя отвернуться от всех",
        },
        "numbers",
        {"formula": "min over directions of max over keys of q · k, |q| = 1"},
        (_own("least-best-score", 1.052979),),
        {
            "en": "Whatever its direction, a unit query has a score of at least 1.053 with some key: the "
            "keys must move.",
            "ru": "Куда ни поверни единичный запрос, с каким-то ключом оценка не меньше 1,053: двигать "
            "надо ключи.",
        },
    ),
    Example(
        "W3-long-query-rostok",
        {"en": "A ten times longer query in Rostok", "ru": "Запрос в десять раз длиннее в Ростке"},
        "numbers",
        {"formula": "max |rms_norm(10 q) - rms_norm(q)|"},
        (_own("change", 0.0000015),),
        {
            "en": "QK-norm removes the length of a query, so the playground's second experiment does not "
            "hold in Rostok: there "
            "sharpness lives in the gains of q_norm and k_norm.",
            "ru": "QK-norm убирает длину запроса, поэтому второй опыт из песочницы в Ростке не работает: "
            "резкость там живёт "
            "в усилениях q_norm и k_norm.",
        },
    ),
    Example(
        "W3-bound",
        {"en": "The largest weight that QK-norm allows", "ru": "Наибольший вес, который допускает QK-norm"},
        "numbers",
        {"formula": "|s| <= √64;  e⁸ / (e⁸ + T − 1) for T = 2, 64, 256, 512"},
        (_own("bound", 8), _own("best-weight", [0.999665, 0.979303, 0.921198, 0.853664])),
    ),
)

EXAMPLES: dict[str, Example] = {example.handle: example for example in _LIST}


def find(name: str) -> Example | None:
    """The example with this handle or alias, in any case; None if there is none."""
    wanted = name.strip().casefold()
    for example in _LIST:
        if wanted in (example.handle.casefold(), *(alias.casefold() for alias in example.aliases)):
            return example
    return None


@cache
def examples_json() -> str:
    """EXAMPLES as JSON: a list of {handle, title, kind, status, aliases, inputs, values, note}; no NaN."""
    rows = [
        {
            "handle": example.handle,
            "title": example.title,
            "kind": example.kind,
            "status": example.status,
            "aliases": list(example.aliases),
            "inputs": example.inputs,
            "values": [
                {
                    "name": v.name,
                    "printed": v.printed,
                    "exact": v.exact,
                    "status": v.status,
                    "factor": v.factor,
                }
                for v in example.values
            ],
            "note": example.note,
        }
        for example in _LIST
    ]
    return json.dumps(rows, ensure_ascii=False, allow_nan=False)
