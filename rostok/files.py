"""Files and folders that are there whole or not at all, and one answer to "may this be written?".

    out = check_out(args.out, (".png", ".svg"), args.force)     # before the work, not after it
    write_out(out, content)                                     # raises UserError where the disk says no
    write_file(path, content, durable=True)                     # raises OSError; on the disk when it returns
    with replacing(path) as beside: figure.savefig(beside)      # for libraries that want a path
    with new_folder(path) as beside: ...                        # a whole folder

All of them write under a hidden name beside the target, `.NAME.PROCESS.tmp`, and rename. What a killed process left
under such a name is removed by the next one that writes the same target. What is not a regular file (/dev/stdout, a
pipe) is written through, and a link keeps its place: the file that it names is replaced.
"""

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from rostok.errors import UserError


def write_file(path: Path, content: str | bytes, durable: bool = False) -> None:
    """Write a file whole or not at all. Raises OSError."""
    with replacing(path, durable) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


def write_out(path: Path, content: str | bytes, flag: str = "--out") -> None:
    """Write what the user asked for with `flag`, and the folders above it. Raises UserError."""
    with refusing(path, flag):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)


@contextlib.contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[Path]:
    """A hidden path beside `path` that takes its place at the end, or goes when something fails.

    durable: the content is flushed to the disk before it takes the place of the old one.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = Path(os.path.realpath(path))
    sweep(target)
    beside, _ = hidden_names(target, os.getpid())
    try:
        yield beside
        if durable:
            with beside.open("r+b") as file:
                os.fsync(file.fileno())
        beside.replace(target)
    finally:
        clear(target, os.getpid())


@contextlib.contextmanager
def new_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """A hidden folder beside `path` that takes its place at the end, or goes when something fails.

    replace: a folder that is there already gives way at the end. A link is followed. Raises UserError.
    """
    target = Path(os.path.realpath(path))
    beside, old = hidden_names(target, os.getpid())
    sweep(target)
    try:
        with refusing(path):
            beside.mkdir(parents=True)
        yield beside
        with refusing(path):
            if replace and target.exists():
                target.rename(old)
            beside.rename(target)
    finally:
        clear(target, os.getpid())


def hidden_names(target: Path, process: int) -> tuple[Path, Path]:
    """Where a process writes before it renames, and where it keeps an old folder while it renames."""
    return target.with_name(f".{target.name}.{process}.tmp"), target.with_name(
        f".{target.name}.{process}.old"
    )


def clear(target: Path, process: int) -> None:
    """Remove the hidden files of a process. An old folder whose successor never came gets its name again."""
    beside, old = hidden_names(target, process)
    with contextlib.suppress(OSError):
        if old.exists() and not target.exists():
            old.rename(target)
        for path in (beside, old):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def sweep(target: Path) -> None:
    """Remove what killed processes left beside `target`."""
    name = re.compile(re.escape(f".{target.name}.") + r"(\d+)\.(?:tmp|old)")
    for path in target.parent.glob(f".{glob.escape(target.name)}.*"):
        match = name.fullmatch(path.name)
        if match and not alive(int(match[1])):
            clear(target, int(match[1]))


def alive(process: int) -> bool:
    """Whether another process of this number runs. Windows has no harmless way to ask: yes."""
    if os.name != "posix":
        return process != os.getpid()
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it runs, for another user
        pass
    return process != os.getpid()


@contextlib.contextmanager
def refusing(path: Path, flag: str = "--out") -> Iterator[None]:
    """Raise UserError instead of OSError: `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; give another {flag}") from None


def check_out(
    word: str | Path | None, kinds: Sequence[str] = (), force: bool = False, flag: str = "--out"
) -> Path | None:
    """The file that the user wants written, or None where no word was given. Raises UserError.

    Refused: another ending than `kinds`, a folder, a place below a file, and a file that exists unless `force`.
    """
    if word is None:
        return None
    out = Path(word)
    if not out.name or out.is_dir():
        raise UserError(f"{flag} must name a file. Got '{word}'")
    if kinds and out.suffix.lower() not in kinds:
        raise UserError(f"{flag} must end in one of {', '.join(kinds)}. Got {word}")
    if any(parent.exists() and not parent.is_dir() for parent in out.parents):
        raise UserError(f"{flag} {word} lies below a file, not a folder; name another file")
    if out.is_file() and not force:
        raise UserError(f"{out} exists; give --force to overwrite it, or another {flag}")
    return out


def check_folder(word: str | Path, flag: str = "--out") -> Path:
    """The folder that the user wants written. Raises UserError for the current folder or one above it.

    Also for a place below a file, and for bytes that are not UTF-8.
    """
    out = Path(word)
    where = Path(os.path.realpath(out))
    if str(word) == "" or where == Path.cwd() or where in Path.cwd().parents:
        raise UserError(f"{flag} must name a folder other than the current one and those above. Got '{word}'")
    if any(parent.exists() and not parent.is_dir() for parent in out.parents):
        raise UserError(f"{flag} {word} is below a file, not a folder; name another one")
    try:
        os.fsencode(out).decode()
    except UnicodeError:
        raise UserError(f"{flag} {word} is not UTF-8; give another name") from None
    return out


def flush_folder(folder: Path) -> None:
    """fsync a folder, so that a rename in it outlasts a power cut. Windows has no such call."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
