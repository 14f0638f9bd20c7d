"""An example computed, checked and written out: its steps, the checks, and the printed beside the exact values.

    report = explain(EXAMPLES["S0-14"])
    report.as_text("en"), report.as_json(), report.checks_hold

The steps of an attention are similarity, scale, mask, softmax, mix. torch is imported for the comparison only.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostok.attention import languages
from rostok.attention.by_hand.examples import Example, Value, compute
from rostok.attention.languages import section
from rostok.attention.reference import Array
from rostok.errors import UserError
from rostok.measuring.tables import plain_table

LIMIT = 12  # rows and columns of a matrix that are printed; the rest shows as an ellipsis


def say(key: str, lang: str, *values: Any) -> str:
    """A word of this command in `lang`."""
    return languages.say(lang, "explain", key, *values)


@dataclass(frozen=True)
class Report:
    """An example, all its steps, and the checks."""

    example: Example
    computed: dict[str, Any]
    row_sum_error: float | None  # largest |row sum - 1|; None where there are no weights
    torch_difference: float | None  # largest |ours - torch's|; None where torch has nothing to say

    @property
    def checks_hold(self) -> bool:
        return (self.row_sum_error or 0) < 1e-6 and (self.torch_difference or 0) < self.tolerance

    @property
    def tolerance(self) -> float:
        """1e-9 at the size of the largest output; large scores lose as many digits as they have."""
        sizes = [float(np.abs(self.computed.get(name, 1.0)).max()) for name in ("output", "scaled")]
        return 1e-9 * max(1.0, sizes[0]) * max(1.0, sizes[1])

    def as_text(self, lang: str) -> str:
        example = self.example
        lines = [f"{example.handle}  {example.title[lang]}", ""]
        lines += STEPS[example.kind](example, self.computed, lang)
        lines += self.check_lines(lang)
        lines += value_lines(example, lang)
        if example.note:
            lines += ["", f"{say('note', lang)}: {example.note[lang]}"]
        return "\n".join(lines)

    def check_lines(self, lang: str) -> list[str]:
        lines = []
        if self.row_sum_error is not None:
            lines.append(say("row_sums", lang, self.row_sum_error))
        if self.torch_difference is not None:
            key = "torch" if self.torch_difference < self.tolerance else "not_torch"
            lines.append(say(key, lang, self.torch_difference))
        return lines

    def as_json(self) -> str:
        example = self.example
        steps = {name: plain(value) for name, value in self.computed.items()}
        return json.dumps(
            {
                "format": "rostok-explain",
                "version": 1,
                "handle": example.handle,
                "kind": example.kind,
                "title": example.title,
                "status": example.status if example.values else None,
                "inputs": example.inputs,
                "steps": steps,
                "values": [value.record() for value in example.values],
                "note": example.note,
                "checks": {
                    "row_sum_error": self.row_sum_error,
                    "torch_max_abs_difference": self.torch_difference,
                },
            },
            ensure_ascii=False,
            allow_nan=False,
        )


def explain(example: Example) -> Report:
    """Compute an example and check it: rows of weights sum to 1, and torch gives the same output."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            computed = compute(example)
    except ValueError as error:
        raise UserError(str(error)) from None
    weights = np.asarray(computed["weights"]) if example.kind != "numbers" else None
    if weights is not None and not np.isfinite(weights).all():
        raise UserError(
            "the scores overflow float64: no softmax can be taken. Use smaller numbers or a smaller --scale"
        )
    error = None if weights is None else float(np.abs(weights.sum(axis=-1) - 1).max())
    return Report(example, computed, error, torch_difference(example, computed))


def torch_difference(example: Example, computed: Mapping[str, Any]) -> float | None:
    """Largest difference between our output and torch's, in float64; None for what is no attention."""
    if example.kind not in ("attention", "multi-head"):
        return None
    import torch
    from torch.nn import functional as F

    if example.kind == "attention":
        q, k, v = (torch.from_numpy(np.ascontiguousarray(computed[name])) for name in "qkv")
    else:
        x, h = np.array(example.inputs["x"]), example.inputs["n_head"]
        q, k, v = (
            torch.from_numpy(x @ np.array(example.inputs[name])).unflatten(-1, (h, -1)).transpose(0, 1)
            for name in ("w_q", "w_k", "w_v")
        )  # (H, T, E)
    theirs = F.scaled_dot_product_attention(
        q[None],
        k[None],
        v[None],
        is_causal=example.inputs.get("mask") == "causal",
        scale=example.inputs.get("scale"),
    )[0]
    if example.kind == "multi-head":
        theirs = theirs.transpose(0, 1).flatten(1)  # (T, H*E)
    return float(np.abs(theirs.numpy() - computed["output"]).max())


def plain(value: Any) -> Any:
    """Arrays as nested lists for JSON; infinities (closed scores, overflow) as null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if not isinstance(value, float) or np.isfinite(value) else None


# ---- the steps as text -----------------------------------------------------------------------------------


def attention_lines(example: Example, computed: Mapping[str, Any], lang: str) -> list[str]:
    """The five cards of one attention: similarity, scale, mask, softmax, mix."""
    queries, keys = labels(example, computed, lang)
    q, v, inputs = computed["q"], computed["v"], example.inputs
    lines: list[str] = []
    if "x" in inputs:
        lines += [f"0. {say('projections', lang)}"]
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            lines += matrix_lines(computed[name], [f"{name} {row}" for row in rows])
        lines += [""]
    lines += [f"1. {say('similarity', lang)}", *matrix_lines(computed["dots"], queries, keys), ""]
    scale, d = inputs.get("scale"), q.shape[1]
    how = f"÷ √{d} = {np.sqrt(d):.4f}" if scale is None else f"× {scale:g}"
    lines += [f"2. {say('scale', lang)}: {how}", *matrix_lines(computed["scaled"], queries, keys), ""]
    if inputs.get("mask") == "causal":
        lines += [
            f"3. {say('mask', lang)}",
            *matrix_lines(computed["masked"], queries, keys, say("closed", lang)),
            "",
        ]
    else:
        lines += [f"3. {say('mask', lang)}: {say('no_mask', lang)}", ""]
    weights = computed["weights"]
    sums = np.concatenate([weights[:, :LIMIT], weights.sum(axis=1, keepdims=True)], axis=1)
    more = len(keys) - LIMIT
    heads = [*keys[:LIMIT], ("… " if more > 0 else "") + say("sum", lang)]
    lines += [f"4. {say('softmax', lang)}", *matrix_lines(sums, queries, heads, limit=LIMIT + 1), ""]
    lines += [f"5. {say('mix', lang)}", *matrix_lines(computed["output"], queries)]
    if len(keys) <= 5 and v.shape[1] <= 5:
        last = " + ".join(f"{w:.4f}·{vector(row)}" for w, row in zip(weights[-1], v, strict=True))
        lines += [f"   {queries[-1]}: {last} = {vector(computed['output'][-1], 4)}"]
    return [*lines, ""]


def softmax_lines(example: Example, computed: Mapping[str, Any], lang: str) -> list[str]:
    """Scores, exponents, their sum, weights."""
    scale = example.inputs.get("scale")
    lines = [f"1. {say('scores', lang)}: {vector(example.inputs['scores'])}"]
    if scale is not None:
        lines.append(f"   × {scale:.6g} = {vector(computed['scaled'], 4)}")
    if np.isfinite(computed["total"]):
        exps = [
            f"   exp({s:.6g}) = {e:.6g}" for s, e in zip(computed["scaled"], computed["exps"], strict=True)
        ]
        lines += [f"2. {say('exps', lang)}", *exps, f"   {say('sum', lang)} = {computed['total']:.8g}"]
    else:
        top = computed["scaled"].max()
        exps = [f"   exp({s:g} − {top:g}) = {np.exp(s - top):.6g}" for s in computed["scaled"]]
        lines += [f"2. {say('exps', lang)}: {say('too_large', lang)}", *exps]
    shares = [f"   {s:>8.6g} → {w:.6f}" for s, w in zip(computed["scaled"], computed["weights"], strict=True)]
    return [*lines, f"3. {say('weights', lang)}", *shares, ""]


def mixture_lines(example: Example, computed: Mapping[str, Any], lang: str) -> list[str]:
    """A weighted sum of named values."""
    names = example.inputs["tokens"]
    parts = [f"{w:.2f} × V({name})" for w, name in zip(computed["weights"], names, strict=True)]
    return [f"{say('output', lang)} = " + " + ".join(parts), f"= {vector(computed['output'], 4)}", ""]


def multi_head_lines(example: Example, computed: Mapping[str, Any], lang: str) -> list[str]:
    """The weights of each head and the glued output."""
    lines: list[str] = []
    for head, weights in enumerate(computed["weights"]):
        sums = np.concatenate([weights, weights.sum(axis=1, keepdims=True)], axis=1)
        numbers = [str(t) for t in range(len(weights))]
        lines += [
            f"{say('head', lang)} {head}",
            *matrix_lines(sums, numbers, [*numbers, say("sum", lang)]),
            "",
        ]
    return [*lines, say("output", lang), *matrix_lines(computed["output"], None), ""]


def number_lines(example: Example, computed: Mapping[str, Any], lang: str) -> list[str]:
    """The formula or the data behind some numbers."""
    formula = example.inputs.get("formula") or example.inputs.get("sentence")
    if formula:
        return [f"{say('formula', lang)}: {formula}" if "formula" in example.inputs else f"“{formula}”", ""]
    return [*matrix_lines(np.array(example.inputs["x"]), example.inputs["tokens"]), ""]


STEPS: dict[str, Callable[[Example, Mapping[str, Any], str], list[str]]] = {
    "attention": attention_lines,
    "softmax": softmax_lines,
    "mixture": mixture_lines,
    "multi-head": multi_head_lines,
    "numbers": number_lines,
}


def labels(example: Example, computed: Mapping[str, Any], lang: str) -> tuple[list[str], list[str]]:
    """Names of the queries and of the keys: the example's tokens, or numbers from 1."""
    tokens, keys = example.inputs.get("tokens"), example.inputs.get("keys")
    n, m = computed["dots"].shape
    queries = tokens or [f"{say('query', lang)} {i + 1}" for i in range(n)]
    return queries, keys or tokens or [f"{say('key', lang)} {j + 1}" for j in range(m)]


def number(value: float, digits: int = 4) -> str:
    """A number for a table: integers as they are, small ones not rounded to nothing, others with `digits` places."""
    if not np.isfinite(value):
        return str(float(value))
    if abs(value - round(value)) < 1e-14 * max(1, abs(value)) < 1 and (value == 0 or abs(value) > 0.5):
        return str(round(value))
    if abs(value) < 10.0**-digits or abs(value) >= 1e6:
        return f"{value:.3g}"
    return f"{value:.{digits}f}"


def vector(values: Any, digits: int = 4) -> str:
    """[1, 2.5, 3]"""
    return "[" + ", ".join(number(float(value), digits) for value in values) + "]"


def matrix_lines(
    matrix: Array,
    rows: list[str] | None,
    columns: list[str] | None = None,
    closed: str = "−∞",
    limit: int = LIMIT,
) -> list[str]:
    """A matrix as aligned lines, at most `limit` rows and columns; -inf shows as `closed`."""
    cells = [[closed if x == -np.inf else number(float(x)) for x in row[:limit]] for row in matrix[:limit]]
    heads = list(columns[:limit]) if columns else []
    if matrix.shape[1] > limit:
        cells, heads = [[*row, "…"] for row in cells], [*heads, "…"] if heads else []
    names = list(rows[:limit]) if rows else [""] * len(cells)
    table = [["", *heads]] if heads else []
    table += [[name, *row] for name, row in zip(names, cells, strict=True)]
    if matrix.shape[0] > limit:
        table.append(["…"])
    return ["   " + line for line in aligned(table)]


def aligned(table: list[list[str]]) -> list[str]:
    """Columns of text: the first to the left, the others to the right; a short row is filled with nothing."""
    width = max(map(len, table))
    rows = [[*row, *[""] * (width - len(row))] for row in table]
    return plain_table(rows[0], rows[1:]).split("\n")


def value_text(value: Any, factor: float = 1) -> str:
    """An exact value for a table, six places, in the unit of its printed twin."""
    if np.ndim(value) > 1:
        return ", ".join(f"[{value_text(row, factor)}]" for row in value)
    if np.ndim(value) == 1:
        return " ".join(value_text(item, factor) for item in value)
    scaled = value * factor
    if isinstance(scaled, int) or abs(scaled) < 1e-4:
        return f"{scaled:.7g}" if isinstance(scaled, float) else str(scaled)
    return f"{scaled:.6f}".rstrip("0").rstrip(".")


def printed_text(printed: Any) -> str:
    """What the text printed, or a dash."""
    return "—" if printed is None else " ".join(printed) if isinstance(printed, list) else printed


def unit_text(value: Value) -> str:
    """The name of a value with the unit in which it was printed."""
    return value.name + {100: ", %", 1e-6: ", 10⁶"}.get(value.factor, "")


def value_lines(example: Example, lang: str) -> list[str]:
    """The table printed | exact | status of an example, where the text printed something or we recorded a number."""
    rows = [value for value in example.values if value.printed is not None or example.kind == "numbers"]
    if not rows:
        return []
    statuses = section(lang, "status")
    table = [[say(name, lang) for name in ("value", "printed", "exact", "status")]]
    table += [
        [unit_text(v), printed_text(v.printed), value_text(v.exact, v.factor), statuses[v.status]]
        for v in rows
    ]
    return ["", *aligned(table)]
