"""rostok/front.py: the front files as modules, and runs by their short names."""

import subprocess
import sys
from pathlib import Path

import pytest

from rostok import front, runs
from rostok.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, with one run in checkpoints/."""
    step = tmp_path / "checkpoints" / "mine" / "step-000010"
    step.mkdir(parents=True)
    (step / "state.json").write_text("{}")
    (step.parent / "config.yaml").write_text("name: mine\n")
    (step.parent / "best").write_text("step-000010\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_front_folder_of_a_checkout_and_of_a_wheel(tmp_path: Path, monkeypatch) -> None:
    assert front.front_folder() == ROOT
    app = tmp_path / "rostok" / "app"
    app.mkdir(parents=True)
    (app / "train.py").touch()
    monkeypatch.setattr(front, "__file__", str(tmp_path / "rostok" / "front.py"))
    assert front.front_folder() == app


def test_a_model_py_of_the_user_stays_what_it_is(tmp_path: Path) -> None:
    """A user's own model.py is on the path and already imported; Rostok's train.py still finds ours."""
    (tmp_path / "model.py").write_text("MINE = 1\n")
    code = (
        "import model, sys; from rostok.front import front; train = front('train');"
        "assert train.build_model.__module__ == 'rostok.app.model', train.build_model;"
        "assert sys.modules['model'].MINE == 1; assert front('train') is train"
    )
    words = [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; {code}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_short_name_is_found_here_and_among_the_shipped_runs(place: Path) -> None:
    here = Path("checkpoints/mine/step-000010")
    for word in ("mine", "mine/best", "mine/step-000010", "checkpoints/mine"):
        assert runs.find_step(Path(word)) == here, word
    shipped = ROOT / "checkpoints" / "rostok-mini"
    assert runs.find_step(Path("rostok-mini")).parent == shipped
    assert runs.find_step(Path("checkpoints/rostok-mini")).parent == shipped


def test_a_folder_that_is_there_wins_over_a_short_name(place: Path) -> None:
    (place / "mine").mkdir()
    assert front.find_run(Path("mine")) == Path("mine")
    assert front.find_run(place / "none") == place / "none"


def test_an_unknown_run_is_answered_with_those_that_exist(place: Path) -> None:
    with pytest.raises(
        UserError, match=r"no run folder mins; there are mine, gpt-1-mini, .*rostok-mini.*'mine'"
    ):
        runs.find_step(Path("mins"))


def test_where_no_run_is_the_way_to_one_is_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(front, "__file__", str(tmp_path / "rostok" / "front.py"))
    with pytest.raises(UserError, match="there is no run folder none; train one"):
        runs.find_step(Path("none"))
