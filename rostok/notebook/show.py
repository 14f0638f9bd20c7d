"""What a notebook cell shows: a picture as PNG, a table as HTML. Without a notebook both have a short text form."""

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rostok.files import check_out, replacing


class Picture:
    """A matplotlib figure that a cell shows, whether pyplot is imported or not. `figure` is the figure itself."""

    def __init__(self, figure: Any, what: str) -> None:
        self.figure, self.what = figure, what

    def __repr__(self) -> str:
        return f"<picture: {self.what}; .save('file.png') writes it>"

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.figure.savefig(out, format="png", metadata={"Software": None})
        return out.getvalue()

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write it as .png, .svg or .pdf. Raises UserError for a file that exists, unless `force`."""
        out = check_out(path, (".png", ".svg", ".pdf"), force, "the file")
        assert out is not None
        with replacing(out) as beside:
            self.figure.savefig(beside, format=out.suffix[1:].lower())
        return out


class Table:
    """Rows of text and numbers under names: `columns`, `rows`; a cell shows it as HTML."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.columns, self.rows = list(columns), [list(row) for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def dicts(self) -> list[dict[str, Any]]:
        """One dict a row: what pandas.DataFrame takes."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def __repr__(self) -> str:
        lines = [self.columns, *([_text(value) for value in row] for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        right = [all(_is_number(row[i]) for row in self.rows) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if end else cell.ljust(width)
                for cell, width, end in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_text(value))}</td>" for value in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
