"""Files that are there whole or not at all."""

import contextlib
import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all: temporary name, flush to the disk, rename."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def flush_folder(folder: Path) -> None:
    """fsync a folder, so that a rename in it outlasts a power cut. Windows has no such call."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
