"""token_step.cpp and choose_token.cpp, compiled once for this machine's processor and loaded with ctypes.

    if available():
        library().step_int8(...)

The library's name in $XDG_CACHE_HOME/rostok (~/.cache/rostok) is a hash of the sources, the flags, the compiler and
what it knows of this processor: each is compiled once. Its last 32 bytes are the SHA-256 of the rest, so a damaged one
is compiled again. Where that folder cannot be read or written, every process compiles for itself.
"""

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rostok.devices import cpp_compiler
from rostok.files import write_file

SOURCES = tuple(Path(__file__).with_name(name) for name in ("token_step.cpp", "choose_token.cpp"))
HEADERS = tuple(Path(__file__).with_name(name) for name in ("multiply.hpp", "team.hpp"))
FLAGS = (
    "-std=c++20",
    "-O3",
    "-fopenmp-simd",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-shared",
    "-fPIC",
    "-pthread",
)
PATIENCE = 300  # seconds; a compiler that takes longer hangs


def available() -> bool:
    """Whether there is a library. Says on stderr, once, why not."""
    return library() is not None


@functools.cache
def library() -> ctypes.CDLL | None:
    """The sources, compiled; None where that fails."""
    try:
        target, flags = cached()
        return load(target) if whole(target) else build(target, flags)
    except (OSError, subprocess.SubprocessError) as error:
        printed = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
        said = (printed or str(error)).strip().splitlines()
        print(
            f"note: token_step.cpp cannot be compiled here, so texts are written more slowly ({said[0]})",
            file=sys.stderr,
        )
        return None


def compiler() -> str:
    """The compiler's path. Raises OSError where there is none."""
    if found := cpp_compiler():
        return found
    raise OSError("no g++ or clang++ found")


def cached() -> tuple[Path, tuple[str, ...]]:
    """Where the library belongs, and the flags that it is compiled with. Raises OSError, SubprocessError."""
    native, macros = processor()
    flags = (*FLAGS, native)
    known = (
        b"".join(source.read_bytes() for source in SOURCES + HEADERS)
        + macros.encode()
        + " ".join(flags).encode()
    )
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if folder.startswith("~"):  # no HOME and no entry for this user
        raise OSError("no home folder: set XDG_CACHE_HOME")
    return Path(folder, "rostok", f"token_step-{hashlib.sha256(known).hexdigest()[:16]}.so"), flags


def processor() -> tuple[str, str]:
    """The flag that compiles for this processor, and the compiler's macros with it: its version and what it may use."""
    try:
        return "-march=native", run_compiler("-march=native", "-dM", "-E", "-x", "c++", os.devnull)
    except subprocess.CalledProcessError:  # clang on Arm, before version 15
        return "-mcpu=native", run_compiler("-mcpu=native", "-dM", "-E", "-x", "c++", os.devnull)


def run_compiler(*words: str) -> str:
    """What the compiler prints. Raises OSError and subprocess.SubprocessError."""
    done = subprocess.run(
        [compiler(), *words], stdin=subprocess.DEVNULL, capture_output=True, check=True,
        encoding="utf-8", errors="replace", timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout


def whole(path: Path) -> bool:
    """Whether a library is as it was written. To load a damaged one would end the process."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


def build(target: Path, flags: tuple[str, ...]) -> ctypes.CDLL:
    """Compile and load; keep the library at `target` if that can be written. Raises OSError, SubprocessError."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "token_step.so")
        run_compiler(*flags, *map(str, SOURCES), "-o", str(made))
        content = made.read_bytes()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, content + hashlib.sha256(content).digest(), durable=True)
        except OSError:
            return load(made)  # stays loaded when the folder goes
    return load(target)


def load(path: Path) -> ctypes.CDLL:
    """The library with the types of its functions. Raises OSError."""
    loaded, pointer, number = ctypes.CDLL(str(path)), ctypes.c_void_p, ctypes.c_int64
    for name in ("float32", "bfloat16", "int8"):
        getattr(loaded, f"step_{name}").argtypes = [pointer, pointer, ctypes.c_int]
        getattr(loaded, f"linear_{name}").argtypes = [*[pointer] * 3, number, number, ctypes.c_int]
    loaded.choose_rows.argtypes = [*[pointer] * 3, *[number] * 3, pointer, pointer]
    return loaded
