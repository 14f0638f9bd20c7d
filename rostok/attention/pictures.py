"""Figures as bytes, and the text in them."""

import io
from typing import Any


def picture(figure: Any, kind: str) -> bytes:
    """A figure as PNG or SVG bytes; the same figure gives the same bytes."""
    import matplotlib

    out = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else {"Date": None}
    with matplotlib.rc_context({"svg.hashsalt": "rostok"}):
        figure.savefig(out, format=kind, metadata=metadata)
    return out.getvalue()


def plain(text: str) -> str:
    """Text for a figure: a dollar sign would start mathematics in matplotlib."""
    return text.replace("$", r"\$")
