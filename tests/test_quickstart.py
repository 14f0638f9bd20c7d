"""rostok/quickstart.py: the commands in their order, on a small number of tokens, without bash."""

import subprocess
import sys
from pathlib import Path

import pytest

from rostok import quickstart
from rostok.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


def test_the_first_step_that_fails_ends_it(monkeypatch, capsys) -> None:
    """Each step is a command of its own, and is printed before it runs."""
    called: list[list[str]] = []

    def run(words: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        called.append(words)
        return subprocess.CompletedProcess(words, 0 if len(called) < 3 else 5)

    monkeypatch.setattr(quickstart.subprocess, "run", run)
    assert quickstart.quickstart(["tokens=2048"]) == 5
    assert [words[3:5] for words in called] == [
        ["prepare", "--source"],
        ["train", "quickstart"],
        ["train", "quickstart-window"],
    ]
    assert all(words[:3] == [sys.executable, "-m", "rostok"] for words in called)
    assert called[1][-1] == "tokens=2048"
    assert "$ rostok train quickstart tokens=2048" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["tokens"], ["--fresh=1"]])
def test_only_settings_are_taken(words: list[str]) -> None:
    with pytest.raises(UserError, match="takes settings such as tokens"):
        quickstart.quickstart(words)


def test_help_says_what_it_does(capsys) -> None:
    assert quickstart.quickstart(["--help"]) == 0
    assert "nothing to two trained models" in capsys.readouterr().out


@pytest.mark.slow
def test_it_runs_whole_in_an_empty_folder(tmp_path: Path, monkeypatch) -> None:
    """Few stories and few tokens: a table, a story and a picture come out."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    small = "import rostok.quickstart as q; from rostok.cli import main; plain = q.steps\n"
    small += "q.steps = lambda words: [[w if w != '2500' else '60' for w in s] for s in plain(words)]\n"
    small += "raise SystemExit(main(['quickstart', 'tokens=4096', 'eval_rows=8', 'schedule.warmup_steps=1']))"
    words = [sys.executable, "-c", small]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nats/token" in done.stdout
    assert "Once upon a time" in done.stdout
    assert (tmp_path / "checkpoints" / "quickstart" / "loss.png").is_file()
