"""The pages of docs/: each command says what it costs, and each flag in it is one that the program knows."""

import contextlib
import importlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path.name for path in ROOT.glob("docs/*.md") if path.name != "worked-examples.md"
)  # run by test_explain
PROGRAMS = ("python ", "scripts/", "torchrun ", "rostok ", "pip ", "zcat ")


def commands(page: str) -> list[str]:
    """The command lines of the page's blocks, fenced or indented, with their remarks; continued lines joined."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = "\n".join([*re.findall(r"```sh\n(.*?)```", text, re.DOTALL), *re.findall(r"(?m)^ {4}.*$", text)])
    joined = re.sub(r"\\\n\s*", "", lines)
    return [line.strip() for line in joined.splitlines() if line.strip().startswith(PROGRAMS)]


def help_of(program: str, words: list[str]) -> str:
    """What `python PROGRAM.py [verb] --help` prints."""
    verb = words[:1] if program == "attend" else []
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        importlib.import_module(program).main([*verb, "--help"])
    return said.getvalue()


@pytest.mark.parametrize("page", PAGES)
def test_each_command_says_what_it_costs_and_has_flags_that_are_known(page: str) -> None:
    for line in commands(page):
        assert re.search(r"# .*costs: ", line), f"{page}: {line}"
        front = re.match(r"(?:python (\w+)\.py|rostok (\w+)) (.*?)#", line)
        if front:
            words = front[3].split()
            known = help_of(front[1] or front[2], words)
            assert known
            for flag in (word.split("=")[0] for word in words if word.startswith("--")):
                assert flag in known, f"{page}: {flag} of {line}"
