"""`attend.py map`: the attention maps of a trained run as a picture (PNG, SVG), as JSON or as CSV.

    python attend.py map checkpoints/rostok --text "Tom had a ball. One day he" --out maps.png     # all heads
    python attend.py map checkpoints/rostok --text "..." --layer 6 --head 4 --out head.svg         # one, large
    python attend.py map checkpoints/rostok --text "..." --query he --key Tom                      # rank the heads
    python attend.py map checkpoints/rostok --text "..." --out maps.json                           # or .csv

Every output says that the maps were verified, and nothing is written when they were not. Layers and heads count from 1
in what people type and see, from 0 in JSON and CSV. Leaves out: scores of heads (heads.py), the page (explorer.py).
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
from rostok.attention.heads.capture import View, is_text, look, open_subject
from rostok.errors import UserError, standard_input

KINDS = (".png", ".svg", ".json", ".csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of `attend.py map`."""
    add = parser.add_argument
    add("run", metavar="RUN", help="a run folder, a step folder, RUN/latest or RUN/best")
    add_text_arguments(parser)
    add("--layer", type=int, metavar="N", help="with --head: this head alone, large; counted from 1")
    add("--head", type=int, metavar="N")
    add("--query", metavar="WORD", help="rank the heads by how much this word ...")
    add("--key", metavar="WORD", help="... looks at this one, which stands before it")
    add(
        "--occurrence",
        type=int,
        metavar="N",
        help="which mention of the query word, counted from 1 (the last)",
    )
    add("--out", metavar="FILE", help="maps.png, .svg, .json or .csv")
    add("--force", action="store_true", help="overwrite an existing file")
    add("--json", action="store_true", help="print JSON instead of text")
    add("--lang", choices=("en", "ru"), default="en", help="the language of what is printed and drawn (en)")


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
    if args.text is not None:
        if not is_text(args.text):
            raise UserError("--text is not UTF-8 text; give it in UTF-8, or --file FILE")
        return args.text
    try:
        return standard_input().read() if args.file == "-" else Path(args.file).read_text("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {args.file}: {error.strerror}; give another --file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{args.file} is not UTF-8 text (byte {error.start}); give a text file") from None


def run(args: argparse.Namespace) -> int:
    """`attend.py map`: read the text, verify, print the summary and the ranking, write the file."""
    out = check_out(args.out, KINDS, args.force)
    if (args.query is None) != (args.key is None):
        raise UserError("--query and --key go together: from which word, to which word")
    if args.occurrence is not None and args.query is None:
        raise UserError("--occurrence says which mention of the --query word; give --query and --key too")
    if (args.layer is None) != (args.head is None):
        raise UserError("--layer and --head go together; leave out both for a sheet of all heads")
    subject = open_subject(args.run)
    subject.check_place(args.layer, args.head)
    ids, dropped = subject.encode(read_text(args), args.on_long, args.allow_empty)
    view = look(subject, ids)
    ranking = view.find(args.query, args.key, args.occurrence) if args.query is not None else None
    if out:
        write(out, view, args, dropped)
    if args.json:
        print(json.dumps(record(view, dropped, ranking, maps=False), ensure_ascii=False, allow_nan=False))
    else:
        print(summary(view, dropped, args.lang))
        if ranking:
            print(ranking_table(view, ranking, args))
        if out:
            print(out)
    return 0


def check_out(word: str | None, kinds: tuple[str, ...], force: bool) -> Path | None:
    """The path to write to. Raises UserError for an unknown ending, a missing folder or a file that exists."""
    if word is None:
        return None
    out = Path(word)
    if out.suffix.lower() not in kinds:
        raise UserError(f"--out must end in one of {', '.join(kinds)}. Got {word}")
    if not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent} for --out; make it first")
    if out.exists() and not force:
        raise UserError(f"{out} exists; give --force to overwrite it, or another --out")
    return out


def write_file(out: Path, content: bytes) -> None:
    """Write whole or not at all. Raises UserError where the disk says no."""
    beside = out.with_name(f".{out.name}.tmp")
    try:
        beside.write_bytes(content)
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UserError(f"cannot write {out}: {error.strerror}; give another --out") from None


def write(out: Path, view: View, args: argparse.Namespace, dropped: int) -> None:
    kind = out.suffix.lower()
    if kind == ".json":
        text = json.dumps(record(view, dropped, None, maps=True), ensure_ascii=False, allow_nan=False)
        write_file(out, text.encode())
    elif kind == ".csv":
        write_file(out, table(view, args.layer, args.head).encode())
    else:
        whole = args.layer is None
        draw = sheet(view, args.lang) if whole else one_head(view, args.layer - 1, args.head - 1, args.lang)
        write_file(out, picture(draw, kind[1:]))


def summary(view: View, dropped: int, lang: str) -> str:
    """One line on the text, one on the checks."""
    nats = view.nats[1:]
    loss = f"{nats.mean():.3f}" if len(nats) else "–"
    left_out = {"en": f", {dropped} left out", "ru": f", {dropped} не вошло"}[lang] if dropped else ""
    words = {
        "en": f"{view.subject.name}: {len(view.ids)} tokens with ◆{left_out}, loss {loss} nats a token",
        "ru": f"{view.subject.name}: токенов с ◆: {len(view.ids)}{left_out}, потери {loss} ната на токен",
    }
    verified = {
        "en": view.checks.line(),
        "ru": "карты проверены: строки дают 1, будущее закрыто, A·V равно sdpa, "
        f"наибольшая ошибка {max(view.checks.row_sums, view.checks.sdpa):.1e}",
    }
    return f"{words[lang]}\n{verified[lang]}"


def ranking_table(view: View, ranking: list[dict[str, Any]], args: argparse.Namespace) -> str:
    head = {"en": "layer head  weight", "ru": "слой голова  вес"}[args.lang]
    at, keys = ranking[0]["query"], ranking[0]["keys"]
    words = f"'{args.query}' (position {at}) -> '{args.key}' (position {', '.join(map(str, keys))})"
    if args.lang == "ru":
        words = words.replace("position", "место")
    rows = [f"{row['layer'] + 1:>5} {row['head'] + 1:>4}  {row['weight']:.4f}" for row in ranking[:10]]
    return "\n".join([words, head, *rows])


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


def sheet(view: View, lang: str) -> Any:
    """A figure with one small map a head: layers downwards, heads to the right; a short text's tokens at its edges."""
    from matplotlib.figure import Figure

    n_layer, n_head = view.maps.shape[:2]
    figure = Figure(figsize=(1.25 * n_head + 0.8, 1.25 * n_layer + 1.1), dpi=150, layout="constrained")
    axes = figure.subplots(n_layer, n_head, squeeze=False)
    layer_word, head_word = {"en": ("layer", "head"), "ru": ("слой", "голова")}[lang]
    names = [visible(piece) for piece in view.pieces] if len(view.pieces) <= 24 else []  # more have no room
    ticks, size = range(len(names)), min(6.0, 90 / max(1, len(names)))
    for la, he in np.ndindex(n_layer, n_head):
        place: Any = axes[la, he]
        place.imshow(closed(view.maps[la, he]), **shading())
        place.set(xticks=[], yticks=[])
        place.tick_params(length=0, pad=1)
        place.set_facecolor("#dfe3e8")
        if la == 0:
            place.set_title(f"{head_word} {he + 1}", fontsize=7)
        if la == n_layer - 1:
            place.set_xticks(ticks, names, rotation=90, fontsize=size)
        if he == 0:
            place.set_yticks(ticks, names, fontsize=size)
            place.set_ylabel(f"{layer_word} {la + 1}", fontsize=7)
    width = int(18 * (1.25 * n_head + 0.8))
    figure.suptitle(textwrap.fill(caption(view, lang), width), fontsize=7)
    return figure


def one_head(view: View, layer: int, head: int, lang: str) -> Any:
    """A figure of one head, large, with its tokens and, up to 24 tokens, its numbers."""
    from matplotlib.figure import Figure

    length = len(view.ids)
    size = min(14.0, max(4.0, 0.28 * length + 1.6))
    figure = Figure(figsize=(size, size), dpi=150, layout="constrained")
    place = figure.subplots()
    image = place.imshow(closed(view.maps[layer, head]), **shading())
    place.set_facecolor("#dfe3e8")
    names = [visible(piece) for piece in view.pieces]
    step = max(1, length // 64)
    place.set_xticks(range(0, length, step), names[::step], rotation=90, fontsize=7)
    place.set_yticks(range(0, length, step), names[::step], fontsize=7)
    words = {"en": ("layer", "head", "looks at", "query"), "ru": ("слой", "голова", "смотрит на", "запрос")}[
        lang
    ]
    place.set(xlabel=words[2], ylabel=words[3])
    below = textwrap.fill(caption(view, lang), int(10 * size))
    place.set_title(f"{words[0]} {layer + 1}, {words[1]} {head + 1}\n{below}", fontsize=8)
    figure.colorbar(image, ax=place, shrink=0.6)
    for t, j in np.ndindex(length, length) if length <= 24 else ():
        weight = view.maps[layer, head, t, j]
        if j <= t and weight >= 0.005:
            dark = "white" if weight > 0.6 else "black"
            place.text(j, t, f"{weight:.2f}".lstrip("0"), ha="center", va="center", fontsize=5.5, color=dark)
    return figure


def closed(weights: np.ndarray) -> np.ndarray:
    """The map with the future masked out, so that it is drawn as paper and not as weight 0."""
    return np.ma.masked_array(weights, np.triu(np.ones_like(weights, dtype=bool), 1))


def shading() -> dict[str, Any]:
    return {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0, "interpolation": "nearest"}


def visible(piece: str) -> str:
    """A piece with its white space to be seen; a dollar sign would start mathematics in matplotlib."""
    marked = piece.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·").replace("$", r"\$")
    return "".join(letter if letter.isprintable() else "?" for letter in marked)


def caption(view: View, lang: str) -> str:
    worst = max(view.checks.row_sums, view.checks.sdpa)
    return {
        "en": f"{view.subject.name}: rows sum to 1, grey is the closed future; verified, max error {worst:.0e}",
        "ru": f"{view.subject.name}: строки дают 1, серое: закрытое будущее; проверено, ошибка до {worst:.0e}",
    }[lang].replace("$", r"\$")


def picture(figure: Any, kind: str) -> bytes:
    """A figure as PNG or SVG bytes; the same figure gives the same bytes."""
    import matplotlib

    out = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else {"Date": None}
    with matplotlib.rc_context({"svg.hashsalt": "rostok"}):
        figure.savefig(out, format=kind, metadata=metadata)
    return out.getvalue()
