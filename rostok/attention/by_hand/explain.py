"""Explain attention step by step: a worked example, an experiment or the user's own small matrices.

`attend.py explain` is this file's run(): the steps are similarity, scale, mask, softmax, mix, each with its
numbers; then the row sums, the comparison with torch, and what the text printed beside what is exact.
Everything is computed by rostok/attention/reference.py; torch is imported only for the comparison, matplotlib only
for a plot. Left out: trained models (`attend.py map` looks into those).
"""

import argparse
import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from rostok.attention.by_hand.examples import EXAMPLES, STATUS, Example, Text, Value, compute, find
from rostok.attention.by_hand.experiments import ALIASES, EXPERIMENTS, Table
from rostok.attention.reference import Array
from rostok.errors import UserError

LIMIT = 12  # rows and columns of a matrix that are printed; the rest shows as an ellipsis

WORDS: dict[str, Text] = {
    "projections": {"en": "From X: queries, keys, values", "ru": "Из X: запросы, ключи, значения"},
    "similarity": {"en": "Similarity: q · k", "ru": "Похожесть: q · k"},
    "scale": {"en": "Scale", "ru": "Масштаб"},
    "mask": {"en": "Mask", "ru": "Маска"},
    "no mask": {"en": "none, every query sees every key", "ru": "нет, каждый запрос видит все ключи"},
    "softmax": {"en": "Softmax of each row: the weights", "ru": "Softmax по строкам: веса"},
    "mix": {
        "en": "Mix: each output is a weighted sum of the rows of V",
        "ru": "Смесь: выход — взвешенная сумма строк V",
    },
    "closed": {"en": "closed", "ru": "закрыто"},
    "sum": {"en": "sum", "ru": "сумма"},
    "output": {"en": "output", "ru": "выход"},
    "head": {"en": "head", "ru": "голова"},
    "scores": {"en": "Scores", "ru": "Оценки"},
    "exps": {"en": "exp of each score", "ru": "exp каждой оценки"},
    "too large": {"en": "inf: too large for float64", "ru": "inf: не помещается в float64"},
    "weights": {"en": "Weights: divided by the sum", "ru": "Веса: делим на сумму"},
    "formula": {"en": "Formula", "ru": "Формула"},
    "row sums": {
        "en": "each row of weights sums to 1, max error {0:.1e}",
        "ru": "веса каждой строки в сумме дают 1, наибольшая ошибка {0:.1e}",
    },
    "torch": {
        "en": "equal to torch's scaled_dot_product_attention, max difference {0:.1e}",
        "ru": "совпадает со scaled_dot_product_attention из torch, наибольшая разница {0:.1e}",
    },
    "not torch": {
        "en": "NOT equal to torch's scaled_dot_product_attention, max difference {0:.1e}",
        "ru": "НЕ совпадает со scaled_dot_product_attention из torch, наибольшая разница {0:.1e}",
    },
    "value": {"en": "value", "ru": "величина"},
    "printed": {"en": "printed", "ru": "напечатано"},
    "exact": {"en": "exact", "ru": "точно"},
    "status": {"en": "status", "ru": "оценка"},
    "note": {"en": "Note", "ru": "Замечание"},
    "own": {"en": "Your matrices", "ru": "Ваши матрицы"},
    "query": {"en": "query", "ru": "запрос"},
    "key": {"en": "key", "ru": "ключ"},
    "examples": {"en": "Worked examples", "ru": "Разобранные примеры"},
    "experiments": {"en": "Experiments", "ru": "Опыты"},
    "how": {
        "en": "Show one: python attend.py explain {0}    your own: --q Q.csv --k K.csv --v V.csv",
        "ru": "Показать: python attend.py explain {0}    свои матрицы: --q Q.csv --k K.csv --v V.csv",
    },
    "saved": {"en": "saved {0}", "ru": "сохранено: {0}"},
}


def say(key: str, lang: str, *values: Any) -> str:
    """A word of this command in `lang`."""
    return WORDS[key][lang].format(*values)


# ---- the command -----------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py explain`."""
    parser.add_argument(
        "what", nargs="?", metavar="EXAMPLE", help="a handle (S0-14), an alias (she) or an experiment"
    )
    parser.add_argument("--list", action="store_true", help="name all examples and experiments")
    parser.add_argument(
        "--markdown", action="store_true", help="every printed and exact value: docs/worked-examples.md"
    )
    for name, rows in (("q", "queries (n, d)"), ("k", "keys (m, d)"), ("v", "values (m, d_v)")):
        parser.add_argument(
            f"--{name}", metavar="FILE", help=f"your own {rows}: .csv, .npy, .json or plain text"
        )
    parser.add_argument(
        "--scale", type=float, metavar="X", help="multiply the products by X (default 1/sqrt(d))"
    )
    parser.add_argument(
        "--causal", action="store_true", help="close the future: key j is open to query i if j <= i"
    )
    parser.add_argument(
        "--as-printed", action="store_true", help="print the very lines of the text's own program"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the weights as a heat map, .png or .svg")
    parser.add_argument("--force", action="store_true", help="replace the file of --plot if it exists")
    parser.add_argument(
        "--lang", choices=("en", "ru"), default="en", help="language of the output (default en)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """What `attend.py explain` does. Raises UserError for whatever the user can mend."""
    own = [name for name in ("q", "k", "v") if getattr(args, name)]
    if args.what and own:
        raise UserError(f"give an example ({args.what}) or your own matrices (--{own[0]}), not both")
    if args.as_printed and not args.what:
        raise UserError(f"--as-printed knows {', '.join(PROGRAMS)}; name one of them")
    if args.plot and (args.list or args.markdown or args.as_printed or not (args.what or own)):
        raise UserError(
            "--plot draws an example or your own matrices, without --list, --markdown or --as-printed"
        )
    if args.scale is not None and not np.isfinite(args.scale):
        raise UserError(f"--scale must be a finite number. Got {args.scale}")
    if args.plot:
        check_plot_path(Path(args.plot), args.force)
    if args.markdown:
        print(markdown(), end="")
        return 0
    if args.list or not (args.what or own):
        print(list_json() if args.json else list_text(args.lang))
        return 0
    if args.as_printed:
        print(as_printed(args.what), end="")
        return 0
    found = own_example(args) if own else look_up(args.what)
    if isinstance(found, Table):
        return show_table(found, args)
    example = changed(found, args) if not own else found
    if args.plot and example.kind == "numbers":
        raise UserError(f"{example.handle} has no weights to draw. Try S0-14")
    report = explain(example)
    print(report.as_json() if args.json else report.as_text(args.lang))
    if args.plot:
        save_plot(example, report.computed, Path(args.plot), args.lang)
        if not args.json:
            print(say("saved", args.lang, args.plot))
    return 0 if report.checks_hold else 1


def show_table(table: Table, args: argparse.Namespace) -> int:
    """Print an experiment."""
    if args.plot or args.scale is not None or args.causal:
        raise UserError(f"{args.what} is an experiment: it takes no --plot, --scale or --causal. Try S0-14")
    print(table_json(args.what, table) if args.json else table_text(table, args.lang))
    return 0


def look_up(name: str) -> Example | Table:
    """The example or the result of the experiment of this name; UserError with the nearest name otherwise."""
    key = {alias.casefold(): target for alias, target in ALIASES.items()}.get(
        name.casefold(), name.casefold()
    )
    if key in EXPERIMENTS:
        return EXPERIMENTS[key]()
    example = find(name)
    if example:
        return example
    names = [*EXAMPLES, *EXPERIMENTS, *ALIASES, *(alias for e in EXAMPLES.values() for alias in e.aliases)]
    by_case = {known.casefold(): known for known in names}
    near = difflib.get_close_matches(name.casefold(), by_case, n=1, cutoff=0.5)
    hint = f"did you mean {by_case[near[0]]}? " if near else ""
    raise UserError(f"no example is called {name!r}: {hint}python attend.py explain --list names them all")


def changed(example: Example, args: argparse.Namespace) -> Example:
    """The example with --scale and --causal applied; its recorded values then no longer hold and are dropped."""
    if args.scale is None and not args.causal:
        return example
    if example.kind != "attention":
        raise UserError(
            f"--scale and --causal change an attention example, and {example.handle} is none. Try S0-14"
        )
    inputs = dict(example.inputs)
    if args.scale is not None:
        inputs["scale"] = args.scale
    if args.causal:
        inputs["mask"] = "causal"
    return replace(example, inputs=inputs, values=(), note=None)


# ---- the user's own matrices -----------------------------------------------------------------------------


def own_example(args: argparse.Namespace) -> Example:
    """An attention example made of the files of --q, --k and --v."""
    missing = [f"--{name}" for name in ("q", "k", "v") if not getattr(args, name)]
    if missing:
        raise UserError(f"your own matrices need --q, --k and --v. Missing: {' '.join(missing)}")
    q, k, v = (load_matrix(Path(getattr(args, name))) for name in ("q", "k", "v"))
    if q.shape[1] != k.shape[1]:
        raise UserError(
            f"rows of --q and --k must be of one length. Got {q.shape[1]} and {k.shape[1]} numbers a row"
        )
    if k.shape[0] != v.shape[0]:
        raise UserError(f"--k and --v must have as many rows, one a key. Got {k.shape[0]} and {v.shape[0]}")
    inputs: dict[str, Any] = {
        "q": q.tolist(),
        "k": k.tolist(),
        "v": v.tolist(),
        "mask": "causal" if args.causal else None,
    }
    if args.scale is not None:
        inputs["scale"] = args.scale
    return Example("own", WORDS["own"], "attention", inputs, ())


def load_matrix(path: Path) -> Array:
    """A matrix (rows, columns) of finite float64 numbers from .npy, .json, .csv or text; 1-D is one row."""
    readers: dict[str, Callable[[Path], Any]] = {".npy": _read_npy, ".json": _read_json}
    try:
        rows = readers.get(path.suffix.lower(), _read_text)(path)
        matrix = np.asarray(rows)
        if matrix.dtype.kind not in "iuf":  # booleans, text, complex numbers, objects
            raise ValueError(f"numbers are wanted, not {matrix.dtype}")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, TypeError, RecursionError, SyntaxError, TokenError, EOFError) as error:
        raise UserError(f"{path} holds no matrix of numbers, rows of one length: {error}") from None
    matrix = np.atleast_2d(matrix.astype(np.float64))
    if matrix.ndim != 2 or matrix.size == 0:
        raise UserError(f"{path} must hold a matrix with at least one number. Got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise UserError(
            f"{path} has {matrix[row, column]} at row {row + 1}, column {column + 1}; numbers must be finite"
        )
    return matrix


def _read_npy(path: Path) -> Any:
    """A .npy file; a pickled one is refused by NumPy."""
    with path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _read_text(path: Path) -> list[list[float]]:
    """Rows of numbers between commas, semicolons or blanks; empty lines and lines that start with # are skipped."""
    rows: list[list[float]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        separator = next((mark for mark in (",", ";") if mark in line), None)
        try:
            row = [float(cell) for cell in line.split(separator)]
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"line {number} has {len(row)} numbers, the first row has {len(rows[0])}")
        rows.append(row)
    return rows


# ---- the report ------------------------------------------------------------------------------------------


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
            lines.append(say("row sums", lang, self.row_sum_error))
        if self.torch_difference is not None:
            key = "torch" if self.torch_difference < self.tolerance else "not torch"
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
        lines += [f"3. {say('mask', lang)}: {say('no mask', lang)}", ""]
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
        lines += [f"2. {say('exps', lang)}: {say('too large', lang)}", *exps]
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
    """Columns of text: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in table if i < len(row)) for i in range(max(map(len, table)))]
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


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
    table = [[say(name, lang) for name in ("value", "printed", "exact", "status")]]
    table += [
        [unit_text(v), printed_text(v.printed), value_text(v.exact, v.factor), STATUS[v.status][lang]]
        for v in rows
    ]
    return ["", *aligned(table)]


# ---- experiments and the list ----------------------------------------------------------------------------


def table_text(table: Table, lang: str) -> str:
    """An experiment as aligned columns and its note."""

    rows = [[column[lang] for column in table.columns]]
    rows += [[cell_text(cell, lang) for cell in row] for row in table.rows]
    return "\n".join([table.title[lang], "", *aligned(rows), "", table.note[lang]])


def cell_text(cell: Any, lang: str) -> str:
    """A cell of an experiment: a text in `lang`, a string or a number."""
    return cell[lang] if isinstance(cell, dict) else cell if isinstance(cell, str) else number(cell)


def table_json(name: str, table: Table) -> str:
    """An experiment as one JSON object."""
    return json.dumps(
        {"format": "rostok-explain", "version": 1, "experiment": name, **vars(table)},
        ensure_ascii=False,
        allow_nan=False,
    )


def list_text(lang: str) -> str:
    """All examples and experiments, one a line."""
    lines = [say("examples", lang)]
    lines += [f"  {e.handle:<22}{e.status:<6} {e.title[lang]}{alias_text(e)}" for e in EXAMPLES.values()]
    lines += ["", say("experiments", lang)]
    for name in EXPERIMENTS:
        handles = ", ".join(alias for alias, target in ALIASES.items() if target == name)
        lines.append(f"  {name}" + (f" ({handles})" if handles else ""))
    return "\n".join([*lines, "", say("how", lang, "S0-14")])


def markdown() -> str:
    """docs/worked-examples.md: every example with its values, then every experiment."""
    lines = [MARKDOWN_HEAD]
    for example in EXAMPLES.values():
        lines += [
            f"### {example.handle}: {example.title['en']}",
            "",
            f"    python attend.py explain {example.handle}",
            "",
        ]
        rows = [
            [unit_text(v), printed_text(v.printed), value_text(v.exact, v.factor), v.status]
            for v in example.values
        ]
        lines += [*markdown_table(["value", "printed", "exact", ""], rows), ""]
        lines += [example.note["en"], ""] if example.note else []
    lines += [MARKDOWN_EXPERIMENTS, ""]
    for name, experiment in EXPERIMENTS.items():
        table = experiment()
        rows = [[cell_text(cell, "en") for cell in row] for row in table.rows]
        lines += [f"### {name}: {table.title['en']}", "", f"    python attend.py explain {name}", ""]
        lines += [*markdown_table([column["en"] for column in table.columns], rows), "", table.note["en"], ""]
    return "\n".join(lines).rstrip() + "\n"


def markdown_table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]


MARKDOWN_HEAD = """# The worked examples

Every number of the four texts on attention that needs no trained model, computed anew. `printed` is what the text
shows, `exact` is what the arithmetic gives (six places), and the last column says how they stand:

- OK: right as printed; ROUND: right, but coarse; OURS: not in the text.
- OFF: the printed number is wrong. **Ours is the exact one**, and the note under the table says why.
- LOOSE: the number is right, the words around it need a qualification.

This page is made by `python attend.py explain --markdown > docs/worked-examples.md`; a test holds it in step with
`rostok/attention/by_hand/examples.py`, and another computes each exact value with the NumPy reference.
`python attend.py explain she --lang ru` speaks Russian; `--plot she.svg` draws;
`--q q.csv --k k.csv --v v.csv` takes your own numbers.

## Examples
"""
MARKDOWN_EXPERIMENTS = "## Experiments"


def alias_text(example: Example) -> str:
    return f" ({', '.join(example.aliases)})" if example.aliases else ""


def list_json() -> str:
    """The same list for programs."""
    examples = [
        {"handle": e.handle, "aliases": e.aliases, "kind": e.kind, "status": e.status, "title": e.title}
        for e in EXAMPLES.values()
    ]
    return json.dumps({"examples": examples, "experiments": list(EXPERIMENTS)}, ensure_ascii=False)


# ---- the lines that the texts' own programs print --------------------------------------------------------


def as_printed(name: str | None) -> str:
    """What the program in the text prints (S2-02, S2-03, S3-12, S3-20), from the reference's numbers."""
    example = find(name or "")
    if example is None or example.handle not in PROGRAMS:
        raise UserError(f"--as-printed knows {', '.join(PROGRAMS)}. Got {name}")
    return PROGRAMS[example.handle](example.inputs, compute(example))


def _print_softmax(inputs: Mapping[str, Any], computed: Mapping[str, Any]) -> str:
    pairs = zip(inputs["scores"], computed["weights"], strict=True)
    lines = [f"Сырые числа (логиты): {inputs['scores']}", "После softmax:"]
    lines += [f"  логит {score:>4} -> вероятность {weight:.3f}" for score, weight in pairs]
    return "\n".join([*lines, f"Сумма вероятностей: {round(float(sum(computed['weights'])), 5)}", ""])


def _print_milk(inputs: Mapping[str, Any], computed: Mapping[str, Any]) -> str:
    tokens, lines = inputs["tokens"], []
    for token, weights, out in zip(tokens, computed["weights"], computed["output"], strict=True):
        shares = ", ".join(f"{name}={weight:.2f}" for name, weight in zip(tokens, weights, strict=True))
        lines += [f"Токен '{token}':", f"  веса внимания -> {shares}"]
        lines += [f"  выход         -> [{out[0]:.2f}, {out[1]:.2f}]"]
    return "\n".join([*lines, ""])


def _print_she(inputs: Mapping[str, Any], computed: Mapping[str, Any]) -> str:
    rows = zip(inputs["keys"], computed["scaled"][0], computed["weights"][0], strict=True)
    lines = [f"{key:5s} score {score:+.2f} weight {weight:.3f}" for key, score, weight in rows]
    return "\n".join([*lines, f"output: {computed['output'][0].round(3)}", ""])


def _print_heads(_: Mapping[str, Any], computed: Mapping[str, Any]) -> str:
    first = computed["weights"][0]
    same = np.allclose(computed["by-hand-weights"], first[3, :4])
    return (
        f"output: {computed['output'].shape}\nhead 0, weights:\n {first.round(2)}\nby hand matches: {same}\n"
    )


PROGRAMS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "S2-02": _print_softmax,
    "S2-03": _print_milk,
    "S3-12": _print_she,
    "S3-20": _print_heads,
}


# ---- the heat map ----------------------------------------------------------------------------------------


def check_plot_path(path: Path, force: bool) -> None:
    """Before any work: the extension is known, the folder exists, and nothing is overwritten unasked."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise UserError(f"--plot draws .png or .svg. Got {path.name!r}")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} does not exist; make it first")
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file in it")
    if path.exists() and not force:
        raise UserError(f"{path} exists; --force replaces it")


def save_plot(example: Example, computed: Mapping[str, Any], path: Path, lang: str) -> None:
    """Draw the weights of an example as one heat map a head, with the numbers in the cells; same input, same bytes."""
    import matplotlib

    maps = np.atleast_2d(np.asarray(computed["weights"]))
    maps = maps[None] if maps.ndim == 2 else maps  # (H, n, m)
    with matplotlib.rc_context({"svg.hashsalt": "rostok", "svg.fonttype": "none"}):
        figure = draw_maps(maps, *plot_labels(example, computed, maps, lang), example.title[lang])
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        kind = path.suffix.lower()[1:]
        try:
            figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None)
            os.replace(temporary, path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from None
        finally:
            temporary.unlink(missing_ok=True)


def plot_labels(
    example: Example, computed: Mapping[str, Any], maps: Array, lang: str
) -> tuple[list[str], list[str]]:
    """Names along the two axes of a heat map."""
    if example.kind == "attention":
        return labels(example, computed, lang)
    if example.kind == "multi-head":
        return [str(i) for i in range(maps.shape[1])], [str(j) for j in range(maps.shape[2])]
    return [""], [str(key) for key in example.inputs.get("tokens") or example.inputs["scores"]]


def draw_maps(maps: Array, queries: list[str], keys: list[str], title: str) -> Any:
    """A matplotlib Figure of maps (H, n, m): one hue, numbers in the cells, zeros of the future left white."""
    from matplotlib.figure import Figure

    heads, n, m = maps.shape
    figure = Figure(
        figsize=(1.5 + heads * max(2.5, 0.7 * min(m, 16)), 1.2 + max(1.0, 0.6 * min(n, 16))), dpi=120
    )
    for index, axes in enumerate(figure.subplots(1, heads, squeeze=False)[0]):
        axes.imshow(maps[index], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(m), keys if m <= 16 else [""] * m)
        axes.set_yticks(range(n), queries if n <= 16 else [""] * n)
        if n <= 16 and m <= 16:
            for (row, column), weight in np.ndenumerate(maps[index]):
                shade = "white" if weight > 0.6 else "black"
                axes.text(column, row, f"{weight:.3f}", ha="center", va="center", color=shade, fontsize=8)
    figure.suptitle(title)
    figure.set_layout_engine("constrained")
    return figure
