"""A user's matrix out of a file: .npy, .json, .csv or plain text.

load_matrix(Path("q.csv"))      # (rows, columns), float64, all finite; raises UserError
"""

import json
from collections.abc import Callable
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from rostok.attention.reference import Array
from rostok.errors import UserError
from rostok.text.reading import read_text


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
    return json.loads(read_text(path))


def _read_text(path: Path) -> list[list[float]]:
    """Rows of numbers between commas, semicolons or blanks; empty lines and lines that start with # are skipped."""
    rows: list[list[float]] = []
    for at, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        separator = next((mark for mark in (",", ";") if mark in line), None)
        try:
            row = [float(cell) for cell in line.split(separator)]
        except ValueError as error:
            raise ValueError(f"line {at}: {error}") from None
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"line {at} has {len(row)} numbers, the first row has {len(rows[0])}")
        rows.append(row)
    return rows
