"""`attend.py map`: the attention maps of a trained run as a picture (PNG, SVG), as JSON or as CSV.

    python attend.py map checkpoints/rostok --text "Tom had a ball. One day he" --out maps.png     # all heads
    python attend.py map checkpoints/rostok --text "..." --layer 6 --head 4 --out head.svg         # one, large
    python attend.py map checkpoints/rostok --text "..." --query he --key Tom                      # rank the heads
    python attend.py map checkpoints/rostok --text "..." --out maps.json                           # or .csv

Every output says that the maps were verified, and nothing is written when they were not. Layers and heads count from 1
in what people type and see, from 0 in JSON and CSV. Leaves out: scores of heads (report.py), the page (explorer.py).
"""

import argparse
import csv
import io
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from rostok import __version__
from rostok.attention.heads.capture import View, look, open_subject, verified
from rostok.attention.heads.stories import note_letters
from rostok.attention.languages import add_language_argument, say, section
from rostok.attention.pictures import picture, plain
from rostok.errors import UserError
from rostok.files import check_out, write_out
from rostok.text import reading
from rostok.text.tokenizer import visible

KINDS = (".png", ".svg", ".json", ".csv")
MARK = "#e4572e"  # of the row and the columns that --query and --key ask for
Asked = tuple[int, list[int]] | None  # the query's position, the keys' positions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py map`."""
    add = parser.add_argument
    add("run", metavar="RUN", help="a run folder, a step folder, RUN/latest or RUN/best")
    add_text_arguments(parser)
    add("--layer", type=int, metavar="N", help="with --head: this head alone, large; counted from 1")
    add("--head", type=int, metavar="N")
    add("--query", metavar="WORD", help="rank the heads by how much this word ...")
    add("--key", metavar="WORD", help="... looks at this one, earlier in the text")
    add(
        "--occurrence",
        type=int,
        metavar="N",
        help="which mention of the query word, counted from 1 (the last)",
    )
    add("--out", metavar="FILE", help="maps.png, .svg, .json or .csv")
    add("--force", action="store_true", help="overwrite an existing file")
    add("--json", action="store_true", help="print JSON instead of text")
    add_language_argument(parser, "printed and drawn")


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    """The words that say which text to read."""
    parser.add_argument("--text", metavar="TEXT", help="the text to look at")
    parser.add_argument("--file", metavar="FILE", help="a UTF-8 text file to look at; - reads standard input")
    parser.add_argument(
        "--on-long", choices=("error", "head", "tail"), default="error", help="what to keep of a long text"
    )
    parser.add_argument("--allow-empty", action="store_true", help="an empty text is the start sign alone")


def read_text(args: argparse.Namespace) -> str:
    """The text that --text or --file gives. Raises UserError."""
    if (args.text is None) == (args.file is None):
        raise UserError("give the text to look at: --text 'Once upon a time', or --file FILE, one of the two")
    return reading.typed(args.text, "--text") if args.file is None else reading.read_text(args.file)


def run(args: argparse.Namespace) -> int:
    """`attend.py map`: read the text, verify, print the summary and the ranking, write the file."""
    out = check_out(args.out, KINDS, args.force)
    if (args.query is None) != (args.key is None):
        raise UserError("--query and --key go together: from which word, to which word")
    if args.occurrence is not None and args.query is None:
        raise UserError("--occurrence says which mention of the --query word; give --query and --key too")
    if (args.layer is None) != (args.head is None):
        raise UserError("--layer and --head go together; leave out both for a sheet of all heads")
    if args.layer is not None and (out is None or out.suffix.lower() == ".json"):
        raise UserError(
            "--layer and --head choose what a picture or a CSV shows; give --out FILE.png, .svg or .csv"
        )
    subject = open_subject(args.run)
    subject.check_head(args.layer, args.head)
    text = read_text(args)
    ids, dropped = subject.encode(text, args.on_long, args.allow_empty)
    view = look(subject, ids)
    ranking = view.find(args.query, args.key, args.occurrence) if args.query is not None else None
    note_letters(subject, text, args.lang)
    if out:
        asked = (ranking[0]["query"], ranking[0]["keys"]) if ranking else None
        write(out, view, args, dropped, asked)
    if args.json:
        print(json.dumps(record(view, dropped, ranking, maps=False), ensure_ascii=False, allow_nan=False))
    else:
        print(summary(view, dropped, args.lang))
        if ranking:
            print(ranking_table(view, ranking, args))
        if out:
            print(out)
    return 0


def write(out: Path, view: View, args: argparse.Namespace, dropped: int, asked: Asked) -> None:
    """The file of --out, by its ending."""
    kind = out.suffix.lower()
    if kind == ".json":
        text = json.dumps(record(view, dropped, None, maps=True), ensure_ascii=False, allow_nan=False)
        write_out(out, text)
    elif kind == ".csv":
        write_out(out, table(view, args.layer, args.head))
    else:
        if args.layer is None:
            figure = sheet(view, args.lang, asked)
        else:
            figure = one_head(view, args.layer - 1, args.head - 1, args.lang, asked)
        write_out(out, picture(figure, kind[1:]))


def summary(view: View, dropped: int, lang: str) -> str:
    """One line on the text, one on the checks."""
    nats = view.nats[1:]
    loss = f"{nats.mean():.3f}" if len(nats) else "–"
    left_out = say(lang, "map", "left_out", n=dropped) if dropped else ""
    line = say(lang, "map", "loss", name=view.subject.name, n=len(view.ids), left_out=left_out, loss=loss)
    return f"{line}\n{verified(view.checks.worst, lang)}"


def ranking_table(view: View, ranking: list[dict[str, Any]], args: argparse.Namespace) -> str:
    at, keys = ranking[0]["query"], ", ".join(map(str, ranking[0]["keys"]))
    words = say(args.lang, "map", "ranking", query=args.query, at=at, key=args.key, keys=keys)
    rows = [f"{row['layer'] + 1:>5} {row['head'] + 1:>4}  {row['weight']:.4f}" for row in ranking[:10]]
    return "\n".join([words, say(args.lang, "map", "columns"), *rows])


def record(view: View, dropped: int, ranking: list[dict[str, Any]] | None, maps: bool) -> dict[str, Any]:
    """All that `map` knows, as JSON; the maps are full squares, exact zeros above the diagonal."""
    nats = [None, *(round(float(x), 6) for x in view.nats[1:])]
    result: dict[str, Any] = {
        "format": "rostok-maps", "version": 1, "created_with": __version__,
        "model": {"name": view.subject.name, **dict(view.subject.config)},
        "text": {"ids": view.ids, "pieces": view.pieces, "dropped": dropped},
        "nats": nats,
        "checks": {"row_sum_max_err": view.checks.row_sums, "future_max": view.checks.future,
                   "sdpa_max_abs_diff": view.checks.sdpa, "verified": view.checks.line()},
    }  # fmt: skip
    if ranking is not None:
        result["ranking"] = ranking
    if maps:
        result["maps"] = np.round(view.maps.astype(np.float64), 7).tolist()
    return result


def table(view: View, layer: int | None, head: int | None) -> str:
    """CSV: a comment line that says what was verified, then layer, head, query, key, both pieces, weight."""
    out = io.StringIO()
    out.write(f"# {view.checks.line()}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["layer", "head", "query", "key", "query_piece", "key_piece", "weight"])
    for la, he, t, j in np.ndindex(view.maps.shape):
        if j <= t and (layer is None or (la, he) == (layer - 1, (head or 1) - 1)):
            weight = f"{view.maps[la, he, t, j]:.7g}"
            writer.writerow([la, he, t, j, view.pieces[t], view.pieces[j], weight])
    return out.getvalue()


# ---- pictures ----------------------------------------------------------------------------------------------


def sheet(view: View, lang: str, asked: Asked = None) -> Any:
    """A figure with one small map a head: layers downwards, heads to the right; a short text's tokens at its edges."""
    from matplotlib.figure import Figure

    n_layer, n_head = view.maps.shape[:2]
    figure = Figure(figsize=(1.25 * n_head + 0.8, 1.25 * n_layer + 1.1), dpi=150, layout="constrained")
    grid = figure.subplots(n_layer, n_head, squeeze=False)
    words = section(lang, "map")
    names = labels(view) if len(view.ids) <= 24 else []  # more have no room
    ticks, size = range(len(names)), min(6.0, 90 / max(1, len(names)))
    for la, he in np.ndindex(n_layer, n_head):
        axes: Any = grid[la, he]
        image = axes.imshow(closed(view.maps[la, he]), **shading())
        mark(axes, asked)
        axes.set(xticks=[], yticks=[])
        axes.tick_params(length=0, pad=1)
        axes.set_facecolor("#dfe3e8")
        if la == 0:
            axes.set_title(f"{words['head']} {he + 1}", fontsize=7)
        if la == n_layer - 1:
            axes.set_xticks(ticks, names, rotation=90, fontsize=size)
        if he == 0:
            axes.set_yticks(ticks, names, fontsize=size)
            axes.set_ylabel(f"{words['layer']} {la + 1}", fontsize=7)
    bar = figure.colorbar(image, ax=grid, shrink=0.4, aspect=40)
    bar.set_label(words["weight"], fontsize=8)
    bar.ax.tick_params(labelsize=7)
    figure.supxlabel(words["keys"], fontsize=8)
    figure.supylabel(words["queries"], fontsize=8)
    width = int(16 * (1.25 * n_head + 0.8))
    figure.suptitle(textwrap.fill(caption(view, lang), width), fontsize=7)
    return figure


def one_head(view: View, layer: int, head: int, lang: str, asked: Asked = None) -> Any:
    """A figure of one head, large, with its tokens and, up to 24 tokens, its numbers."""
    from matplotlib.figure import Figure

    length = len(view.ids)
    size = min(14.0, max(4.0, 0.28 * length + 1.6))
    figure = Figure(figsize=(size, size), dpi=150, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(closed(view.maps[layer, head]), **shading())
    mark(axes, asked)
    axes.set_facecolor("#dfe3e8")
    names = labels(view)
    step = max(1, length // 64)
    axes.set_xticks(range(0, length, step), names[::step], rotation=90, fontsize=7)
    axes.set_yticks(range(0, length, step), names[::step], fontsize=7)
    words = section(lang, "map")
    axes.set(xlabel=words["keys"], ylabel=words["queries"])
    below = textwrap.fill(caption(view, lang), int(10 * size))
    axes.set_title(f"{words['layer']} {layer + 1}, {words['head']} {head + 1}\n{below}", fontsize=8)
    figure.colorbar(image, ax=axes, shrink=0.6, label=words["weight"])
    for t, j in np.ndindex(length, length) if length <= 24 else ():
        weight = view.maps[layer, head, t, j]
        if j <= t and weight >= 0.005:
            dark = "white" if weight > 0.6 else "black"
            axes.text(j, t, f"{weight:.2f}".lstrip("0"), ha="center", va="center", fontsize=5.5, color=dark)
    return figure


def mark(axes: Any, asked: Asked) -> None:
    """Frame the row of the asked query and the columns of its keys."""
    from matplotlib.patches import Rectangle

    if asked:
        at, keys = asked
        frames = [(-0.5, at - 0.5, at + 1, 1), *((key - 0.5, key - 0.5, 1, at - key + 1) for key in keys)]
        for x, y, width, height in frames:
            axes.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=MARK, linewidth=0.7))


def closed(weights: np.ndarray) -> np.ndarray:
    """The map with the future masked out, so that it is drawn as paper and not as weight 0."""
    return np.ma.masked_array(weights, np.triu(np.ones_like(weights, dtype=bool), 1))


def shading() -> dict[str, Any]:
    return {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0, "interpolation": "nearest"}


def labels(view: View) -> list[str]:
    """The tokens as they are drawn, their white space to be seen."""
    start_id, tokenizer = view.subject.tokenizer.start_id, view.subject.tokenizer
    names = ["◆" if i == start_id else visible(tokenizer.token_bytes(i)) for i in view.ids]
    return [plain(name.replace(" ", "·")) for name in names]


def caption(view: View, lang: str) -> str:
    return plain(say(lang, "map", "caption", name=view.subject.name, error=view.checks.worst))
