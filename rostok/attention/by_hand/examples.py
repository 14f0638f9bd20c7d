"""The worked examples of attention: what the source printed, and what is exact.

One source of truth: `attend.py explain`, docs/worked-examples.md, the page and the tests read EXAMPLES.

    EXAMPLES["S0-14"].values        what the text printed beside the exact value, with its status
    compute(EXAMPLES["S0-14"])      the same values computed now, by the reference
    examples_json()                 everything as plain data for a page

The numbers are in examples.yaml, the titles and notes in rostok/attention/words/. A handle names source and place:
S0, S1 and S2 are three lessons on the arithmetic of attention, S3 a chapter of a course, W3 the chapter's
two-dimensional playground (docs/worked-examples.md names them). Variants of ours have a suffix: S0-14-causal.
Left out: what only a trained model can show.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from rostok.attention import reference
from rostok.attention.languages import LOADER, Text, has, in_all
from rostok.attention.reference import Array

Status = Literal["OK", "ROUND", "OFF", "LOOSE", "OURS"]
Kind = Literal["attention", "softmax", "mixture", "multi-head", "numbers"]

STATUSES = ("OFF", "LOOSE", "ROUND", "OK", "OURS")  # the worst first


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

    def record(self) -> dict[str, Any]:
        """This value as JSON and programs take it."""
        names = ("name", "printed", "exact", "status", "factor")
        return {name: getattr(self, name) for name in names}

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
        return next(mark for mark in STATUSES if mark in marks)


# ---- inputs that are random numbers ----------------------------------------------------------------------


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


DRAWN = {"S1-14": _pet, "S3-20": _heads}  # examples whose inputs are random numbers


# ---- the arithmetic of the "numbers" examples ------------------------------------------------------------


def _softmax_of(scores: list[float], scale: float = 1.0) -> Array:
    return reference.softmax(np.array(scores) * scale)


def _least_best_score() -> float:
    """Over all directions of a unit query, the smallest best score among the four keys of "she"."""
    angles = np.linspace(0, 2 * np.pi, 1_000_001)
    return float(
        (np.stack([np.cos(angles), np.sin(angles)], 1) @ np.array(EXAMPLES["S3-12"].inputs["k"]).T)
        .max(1)
        .min()
    )


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


def _read() -> dict[str, Example]:
    """Every example of examples.yaml by its handle, with its words in all languages."""
    text = Path(__file__).with_suffix(".yaml").read_text("utf-8")
    return {row["handle"]: _example(**row) for row in yaml.load(text, LOADER)["examples"]}


def _example(
    handle: str, kind: Kind, inputs: dict[str, Any], values: list[dict[str, Any]], aliases: Sequence[str] = ()
) -> Example:
    note = in_all("examples", handle, "note") if has("examples", handle, "note") else None
    return Example(
        handle,
        in_all("examples", handle, "title"),
        kind,
        DRAWN[handle]() if handle in DRAWN else inputs,
        tuple(_value(**value) for value in values),
        note,
        tuple(aliases),
    )


def _value(printed: Any = None, status: Status | None = None, **rest: Any) -> Value:
    """A value of the file: one that the text does not print is ours, another right unless the file says more."""
    rest["at"] = tuple(rest["at"]) if isinstance(rest.get("at"), list) else rest.get("at")
    return Value(printed=printed, status=status or ("OURS" if printed is None else "OK"), **rest)


EXAMPLES = _read()


def find(name: str) -> Example | None:
    """The example with this handle or alias, in any case; None if there is none."""
    wanted = name.strip().casefold()
    for example in EXAMPLES.values():
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
            "values": [value.record() for value in example.values],
            "note": example.note,
        }
        for example in EXAMPLES.values()
    ]
    return json.dumps(rows, ensure_ascii=False, allow_nan=False)
