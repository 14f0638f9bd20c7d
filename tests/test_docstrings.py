"""Every worked example in a docstring of the library says what happens."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [*sorted((ROOT / "rostok").rglob("*.py")), ROOT / "model.py"]
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in FILES
    if ">>>" in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_worked_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0
