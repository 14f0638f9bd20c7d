"""Numbers for people, and a table as text for a terminal, as Markdown and as CSV.

    print(plain_table(["model", "nats"], [["rostok", "2.306"]]))
    markdown_table(head, lines); csv_text(head, lines)

Names of folders are anybody's, so whatever goes into Markdown is escaped. Left out: colours, wrapping.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def number(value: float | None, digits: int = 2) -> str:
    if value is None:
        return "n/a"
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.2e}"


def bounds(pair: Sequence[float] | None) -> str:
    return f"[{pair[0]:.4f}, {pair[1]:.4f}]" if pair else "n/a"


def signed(pair: Sequence[float] | None) -> str:
    return f"[{pair[0]:+.4f}, {pair[1]:+.4f}]" if pair else ""


def plain_table(head: list[str], lines: list[list[str]], width: int | None = None) -> str:
    """Columns in line, for a terminal; the first to the left, the others to the right.

    width: the columns of the terminal; long words of the first column are shortened in the middle to fit into it.
    """
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    if width:
        widths[0] = max(min(widths[0], 8), widths[0] - max(0, sum(widths) + 2 * len(widths) - 2 - width))
    rows = [
        "  ".join(
            shortened(cell, w).ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in [head, *lines]
    ]
    return "\n".join(row.rstrip() for row in rows)


def shortened(word: str, width: int) -> str:
    """A word of at most `width` characters: the middle of a longer one gives way.

    >>> shortened("rostok-mini-seed-1", 10)
    'rosto…ed-1'
    """
    return (
        word
        if len(word) <= width
        else word[: (width + 1) // 2 - 0] + "…" + word[len(word) - (width // 2 - 1) :]
    )


def markdown_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {markdown_escape(line)}" for line in lines)


def markdown_escape(text: str) -> str:
    """Names of folders are anybody's: nothing in them may end a cell or open a tag."""
    text = " ".join(text.split())
    for sign in "\\`*_<>|":
        text = text.replace(sign, "\\" + sign)
    return text.replace("](", "]\\(")


def markdown_table(head: list[str], lines: list[list[str]]) -> str:
    rows = [[markdown_escape(cell) for cell in line] for line in [head, *lines]]
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def csv_text(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(lines)
    return out.getvalue()
