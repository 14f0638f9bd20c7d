"""rostok/cli.py: verbs find their front file and run it as Python itself would."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import rostok
from rostok import cli, errors
from rostok.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def front(tmp_path, monkeypatch) -> Path:
    """A front folder with one front file, which tells what it was given."""
    (tmp_path / "helper_of_train.py").write_text("WORD = 'helped'\n")
    (tmp_path / "train.py").write_text(
        '"""A front file."""\n'
        "import sys\nfrom helper_of_train import WORD\n"
        "if __name__ == '__main__':\n    print(__file__, sys.argv, WORD)\n    raise SystemExit(3)\n"
    )
    monkeypatch.setattr(cli, "front_folder", lambda: tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return tmp_path


def test_a_verb_runs_its_file_as_main_with_its_folder_first(front, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["train", "rostok", "optim.lr=1"])
    assert exit_.value.code == 3
    out = capsys.readouterr().out
    assert out == f"{front / 'train.py'} ['rostok train', 'rostok', 'optim.lr=1'] helped\n"
    assert sys.path[0] == str(front)


def test_a_missing_front_file_is_named(front):
    with pytest.raises(UserError, match=r"sample\.py is not in"):
        cli.main(["sample"])


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("trian", "did you mean rostok train"),
        ("Sample", "rostok sample"),
        ("xyzzy", "the verbs are prepare, train"),
    ],
)
def test_an_unknown_verb_is_answered_with_the_nearest(word, hint):
    with pytest.raises(UserError, match=hint):
        cli.main([word])


def test_help_version_and_no_words(capsys):
    assert cli.main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert all(f"  {verb} " in usage for verb in cli.VERBS)
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"rostok {rostok.__version__}\n"
    assert cli.main([]) == 2
    assert capsys.readouterr().err == usage


def test_every_front_file_has_a_verb():
    assert {path.stem for path in ROOT.glob("*.py")} - {"model"} <= set(cli.VERBS)


def test_the_exit_code_reaches_the_shell():
    """`python -m rostok`: no traceback, code 2, and torch is not imported for it."""
    words = [sys.executable, "-X", "importtime", "-m", "rostok", "trian"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 2
    assert "error: rostok has no verb 'trian'; did you mean rostok train? See rostok --help" in done.stderr
    assert "Traceback" not in done.stderr
    assert "torch" not in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--no-such-option"]])
@pytest.mark.parametrize("verb", ["prepare", "train", "sample", "compare", "attend", "export", "ls", "diff"])
def test_help_and_wrong_words_need_no_torch(verb: str, words: list[str]) -> None:
    """torch takes seconds to import; who asks for help should not wait for it."""
    command = [sys.executable, "-X", "importtime", "-m", "rostok", verb, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == (0 if words == ["--help"] else 2)
    assert "usage: " in (done.stdout if words == ["--help"] else done.stderr)
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "argparse" in imported
    assert not imported & {"torch", "matplotlib", "pydantic", "transformers"}


@pytest.mark.parametrize("verb", ["prepare", "train", "sample", "compare", "attend", "export"])
def test_an_error_about_a_word_of_two_lines_is_one_line(verb: str, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        importlib.import_module(verb).main(["--no\nsuch", "a", "b"])
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


def test_messages_name_the_command_as_it_was_called(monkeypatch) -> None:
    assert errors.verb("sample") == "python sample.py"
    monkeypatch.setattr(sys, "argv", ["rostok train"])
    assert errors.verb("sample") == "rostok sample"


def test_two_dashes_are_no_value() -> None:
    """argparse would read `--seed=--` as no value at all, and go on."""
    for name in ("sample", "prepare", "compare"):
        words = ["--seed=--"] if name != "compare" else ["rostok-mini", "--at=--"]
        done = subprocess.run([sys.executable, ROOT / f"{name}.py", *words], capture_output=True, text=True)
        assert done.returncode == 2
        assert "wanted a value after =. Got '--'" in done.stderr
