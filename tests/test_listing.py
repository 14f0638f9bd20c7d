"""rostok/measuring/listing.py: `rostok ls` and `rostok diff`, beside what torch and the run's own files say."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from model import build_model
from rostok import front
from rostok.cli import main
from rostok.errors import UserError
from rostok.measuring import listing
from rostok.runs import load_run


@pytest.fixture
def place(tmp_path: Path, tiny_run: Path, tiny_window_run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs in checkpoints/ and no shipped ones."""
    for run, name in ((tiny_run, "a"), (tiny_window_run, "b")):
        shutil.copytree(run, tmp_path / "checkpoints" / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(front, "front_folder", lambda: tmp_path / "nowhere")
    return tmp_path / "checkpoints"


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, dict]:
    assert main(["ls", "--json"]) == 0
    return {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}


def test_ls_counts_what_torch_counts(place: Path, capsys) -> None:
    rows = listed(capsys)
    for name, row in rows.items():
        model = load_run(place / name, build_model).model
        assert row["parameters"] == sum(p.numel() for p in model.parameters())
        assert row["tokens"] == 2560
        assert row["state"] == "finished"
    scores = [
        json.loads(line).get("valid_loss", 9)
        for line in (place / "a" / "metrics.jsonl").read_text().splitlines()
    ]
    assert rows["a"]["val loss"] == min(scores)
    assert (rows["a"]["model"], rows["b"]["model"]) == ("gpt", "window-mlp")


def test_ls_says_how_far_a_run_is(place: Path, capsys) -> None:
    config = (place / "a" / "config.yaml").read_text(encoding="utf-8")
    (place / "a" / "config.yaml").write_text(config.replace("tokens: 2560", "tokens: 5120"), encoding="utf-8")
    assert listed(capsys)["a"]["state"] == "20/40 steps"
    limited = config.replace("tokens: 2560", "tokens: 5120").replace("max_minutes: 0.0", "max_minutes: 1.0")
    (place / "a" / "config.yaml").write_text(limited, encoding="utf-8")
    (place / "a" / "plan.json").write_text('{"2": 30, "10": 20}', encoding="utf-8")
    assert listed(capsys)["a"]["state"] == "finished"
    for file in place.glob("a/step-*/optimizer.safetensors"):
        file.unlink()
    assert listed(capsys)["a"]["state"] == "weights only"
    shutil.rmtree(place / "a" / "step-000020")
    shutil.rmtree(place / "a" / "step-000010")
    assert listed(capsys)["a"]["state"] == "no checkpoint"


def test_early_stopping_is_told(place: Path) -> None:
    config = {"tokens": 1000, "batch": 1, "accumulate": 1, "model": {"context": 10}, "early_stop": 2}
    config["schedule"] = {"max_minutes": 0.0}
    assert listing.progress(place, config, {"step": 30, "stale": 2}) == "stopped early"
    assert listing.progress(place, config, {"step": 30, "stale": 1}) == "30/100 steps"
    assert listing.progress(place, {"name": "imported"}, {"step": 0}) == ""


def test_the_table_fits_80_columns(place: Path, capsys) -> None:
    (place / "a").rename(place / ("a-run-with-a-very-long-name" * 3))
    assert main(["ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80


def test_diff_shows_what_differs_and_nothing_else(place: Path, capsys) -> None:
    assert main(["diff", "a", "b", "--json"]) == 0
    rows = {row["setting"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["model.kind"] == {"setting": "model.kind", "a": "gpt", "b": "window-mlp"}
    assert rows["model.n_layer"]["b"] is None
    assert not rows.keys() & {"tokens", "seed", "name", "optim.lr"}
    assert main(["diff", "a", "a"]) == 0
    assert capsys.readouterr().out == "no setting differs\n"
    assert main(["diff", "a", "b"]) == 0
    assert "model.window" in capsys.readouterr().out


def test_mistakes_are_told(place: Path) -> None:
    with pytest.raises(UserError, match="two runs or more. Got a alone"):
        main(["diff", "a"])
    with pytest.raises(UserError, match="there are a, b"):
        main(["diff", "a", "nothing"])
    with pytest.raises(UserError, match="there is no run below nowhere"):
        main(["ls", "nowhere"])
    assert main(["ls", str(place)]) == 0


def test_a_file_that_is_no_safetensors_has_no_count(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 8 + b"nonsense")
    assert listing.count_parameters(tmp_path) is None
    assert listing.count_parameters(tmp_path / "none") is None


def test_the_notebook_has_the_same_table(place: Path) -> None:
    from rostok.notebook.many import list_runs

    (place / "b" / "best").unlink()
    shutil.rmtree(place / "b" / "step-000020")
    shutil.rmtree(place / "b" / "step-000010")
    assert [(row["name"], row["state"]) for row in list_runs().dicts()] == [
        ("a", "finished"),
        ("b", "no checkpoint"),
    ]
    assert torch.get_num_threads() == 1


def test_names_with_escape_sequences_do_not_reach_a_terminal(capsys):
    listing.show([{"na\x1bme": "x\x1b[31my"}], ["na\x1bme"], False)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_config_that_is_a_pipe_does_not_hang(tmp_path, tiny_run, capsys):
    run = shutil.copytree(tiny_run, tmp_path / "a", ignore=shutil.ignore_patterns(".lock"))
    (run / "config.yaml").unlink()
    os.mkfifo(run / "config.yaml")
    assert listing.ls([str(tmp_path)]) == 0
    assert "no checkpoint" in capsys.readouterr().out
    with pytest.raises(UserError, match="it is a pipe"):
        listing.diff([str(run), str(tiny_run)])
