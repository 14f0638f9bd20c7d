"""The two figures of a comparison as PNG: loss by position in the text, and loss against the tokens shown.

    draw_positions(result), draw_sweep(result)      # result: rostok/measuring/report.py. bytes

The same result gives the same bytes: no date and no version is written into a file.
"""

import io
from typing import Any


def draw_positions(result: dict[str, Any]) -> bytes:
    """PNG: mean loss by position in the text, one line a row."""
    from matplotlib.figure import Figure

    bins, names = result["by_position"]["bins"], result["by_position"]["names"]
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for k, (name, look) in enumerate(zip(names, looks(len(names)), strict=True)):
        middles = [(bin_["first"] * bin_["last"]) ** 0.5 for bin_ in bins]
        axes.plot(middles, [bin_["nats"][k] for bin_ in bins], marker="o", ms=3, label=plain(name), **look)
    return png(figure, "position in the text (1: right after ◆)", "Loss by position, held-out text")


def draw_sweep(result: dict[str, Any]) -> bytes:
    """PNG: mean loss against the number of tokens shown, with intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    curves = result["sweep"]["curves"]
    for curve, look in zip(curves, looks(len(curves)), strict=True):
        shown, nats = [p["shown"] for p in curve["points"]], [p["nats"] for p in curve["points"]]
        line = axes.plot(shown, nats, marker="o", ms=4, label=plain(curve["name"]), **look)[0]
        if all(p["interval"] for p in curve["points"]):
            low, high = zip(*(p["interval"] for p in curve["points"]), strict=True)
            axes.fill_between(shown, low, high, color=line.get_color(), alpha=0.15, lw=0)
    return png(figure, "tokens shown before each target", "Loss against context, held-out text")


def looks(count: int) -> list[dict[str, Any]]:
    """A look for each of `count` lines, no two alike: ten colours, then the same ones dashed, dotted, ..."""
    styles = ("-", "--", ":", "-.")
    return [
        {"color": f"C{k % 10}", "ls": styles[k // 10 % 4], "lw": 1.5 if k < 40 else 3} for k in range(count)
    ]


def plain(name: str) -> str:
    """A name that matplotlib takes as it is: no mathematics between dollars."""
    return name.replace("$", r"\$")


def png(figure: Any, xlabel: str, title: str) -> bytes:
    """The figure with its axes: a logarithmic one to the right, nats per token upwards."""
    axes = figure.axes[0]
    axes.set_xscale("log", base=2)
    axes.set(xlabel=xlabel, ylabel="nats per token", title=title)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.grid(alpha=0.25)
    lines = len(axes.get_lines())
    if lines > 8:  # beside the curves, not on them
        figure.legend(loc="outside right upper", frameon=False, fontsize="small", ncols=1 + (lines - 1) // 22)
        figure.set_size_inches(10, 4.5 if lines <= 22 else 5.5)
    else:
        axes.legend(frameon=False)
    out = io.BytesIO()
    figure.savefig(
        out, format="png", metadata={"Software": None}
    )  # no version, no date: the same bytes each time
    return out.getvalue()
