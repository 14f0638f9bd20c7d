"""`attend.py explain`: a worked example, an experiment or the user's own small matrices, step by step.

This file is the command: it finds the example or reads the matrices, and prints lists, pages and pictures. report.py
computes, checks and writes out the steps. Left out: trained models (`attend.py map` looks into those).
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rostok.attention.by_hand.examples import EXAMPLES, Example, find
from rostok.attention.by_hand.experiments import ALIASES, EXPERIMENTS, Table
from rostok.attention.by_hand.matrices import load_matrix
from rostok.attention.by_hand.report import (
    aligned,
    explain,
    labels,
    number,
    printed_text,
    say,
    unit_text,
    value_text,
)
from rostok.attention.languages import add_language_argument, in_all, section
from rostok.attention.pictures import picture
from rostok.attention.reference import Array
from rostok.errors import UserError, nearest, verb
from rostok.files import check_out, write_out

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
    parser.add_argument("--plot", metavar="FILE", help="draw the weights as a heat map, .png or .svg")
    parser.add_argument("--force", action="store_true", help="replace the file of --plot if it exists")
    add_language_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """What `attend.py explain` does. Raises UserError."""
    own = [name for name in ("q", "k", "v") if getattr(args, name)]
    if args.what and own:
        raise UserError(f"give an example ({args.what}) or your own matrices (--{own[0]}), not both")
    refuse_unused(args)
    if args.scale is not None and not np.isfinite(args.scale):
        raise UserError(f"--scale must be a finite number. Got {args.scale}")
    plot = check_out(args.plot, (".png", ".svg"), args.force, "--plot")
    if args.markdown:
        print(markdown(), end="")
        return 0
    if args.list or not (args.what or own):
        print(list_json() if args.json else list_text(args.lang))
        return 0
    found = own_example(args) if own else look_up(args.what)
    if isinstance(found, Table):
        return show_table(found, args)
    example = changed(found, args) if not own else found
    if args.plot and example.kind == "numbers":
        raise UserError(f"{example.handle} has no weights to draw. Try S0-14")
    report = explain(example)
    print(report.as_json() if args.json else report.as_text(args.lang))
    if plot:
        save_plot(example, report.computed, plot, args.lang)
        if not args.json:
            print(say("saved", args.lang, plot))
    return 0 if report.checks_hold else 1


def refuse_unused(args: argparse.Namespace) -> None:
    """Raise UserError for words that would have no effect: nothing is left out silently."""
    words = {"what": args.what, "--q": args.q, "--k": args.k, "--v": args.v}
    words |= {"--plot": args.plot, "--scale": args.scale, "--causal": args.causal or None}
    rest = {
        "--list": args.list or None,
        "--json": args.json or None,
        "--lang": args.lang if args.lang != "en" else None,
    }
    given = [name for name, value in words.items() if value is not None]
    if args.markdown:
        given += [name for name, value in rest.items() if value is not None]
    if given and (args.markdown or args.list):
        name = f"'{args.what}'" if given[0] == "what" else given[0]
        raise UserError(f"{'--markdown' if args.markdown else '--list'} takes no {name}; give one of the two")
    if given and not {"what", "--q", "--k", "--v"} & set(given):
        raise UserError(
            f"{given[0]} needs an example or your own matrices; try {verb('attend')} explain S0-14"
        )
    if args.force and not args.plot:
        raise UserError("--force is for the file of --plot; give --plot FILE too")


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
    hint = nearest(name.casefold(), (known.casefold() for known in names))
    raise UserError(f"no example is called {name!r}{hint}; {verb('attend')} explain --list names them all")


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
    return Example("own", in_all("explain", "own"), "attention", inputs, ())


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
    marks, titles = section(lang, "marks"), section(lang, "experiments")
    lines = [say("examples", lang)]
    lines += [
        f"  {e.handle:<22}{marks[e.status]:<12} {e.title[lang]}{alias_text(e)}" for e in EXAMPLES.values()
    ]
    lines += ["", say("experiments", lang)]
    for name in EXPERIMENTS:
        handles = ", ".join(alias for alias, target in ALIASES.items() if target == name)
        lines.append(f"  {name:<22}{titles[name]['title']}" + (f" ({handles})" if handles else ""))
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

Attention computed by hand on small numbers. The examples come from a chapter on attention of a Russian-language course
on language models ("Attention", the handles S3, and its playground, W3) and from three lessons on the arithmetic of
attention (S0, S1, S2). This project calls them *the chapter* and *the lessons*. They need no trained model.

Every number that they print is computed again here. `printed` is what the source shows, `exact` is what the arithmetic
gives (six places), and the last column compares the two:

- OK: right as printed; ROUND: right, but coarse; OURS: not in the source.
- OFF: the printed number is wrong. **Ours is the exact one**, and the note under the table says why.
- LOOSE: the number is right, the words around it need a qualification.

This page is made by `python attend.py explain --markdown > docs/worked-examples.md`. One test compares it with
`rostok/attention/by_hand/examples.yaml`, another computes each exact value with the NumPy reference.
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


# ---- the heat map ----------------------------------------------------------------------------------------


def save_plot(example: Example, computed: Mapping[str, Any], path: Path, lang: str) -> None:
    """Draw the weights of an example as one heat map a head, with the numbers in the cells; same input, same bytes."""
    import matplotlib

    maps = np.atleast_2d(np.asarray(computed["weights"]))
    maps = maps[None] if maps.ndim == 2 else maps  # (H, n, m)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure = draw_maps(maps, *plot_labels(example, computed, maps, lang), example.title[lang])
        write_out(path, picture(figure, path.suffix.lower()[1:]), "--plot")


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
