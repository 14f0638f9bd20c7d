"""rostok/training/grid.py: cells are ordinary runs, with the bits that train.py gives alone; a grid may be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import train
from conftest import tiny_words
from rostok.errors import UserError
from rostok.text.shards import Data
from rostok.training.config import load_config
from rostok.training.grid import cells, parse_axes

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def config(tmp_path: Path, tiny_data: Data) -> Path:
    """A config of a tiny run, as a YAML file."""
    from rostok.training.config import dump_yaml

    path = tmp_path / "g.yaml"
    path.write_text(dump_yaml(load_config(train.TrainConfig, None, tiny_words(tiny_data, tmp_path / "runs"))))
    return path


def grid(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "train.py"), str(config), *words]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)


def losses(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


@pytest.mark.slow
def test_cells_are_ordinary_runs_and_finished_ones_are_skipped(config: Path) -> None:
    done = grid(config, "--grid", "seed=0,1")
    assert done.returncode == 0, done.stderr
    runs = config.parent / "runs"
    assert sorted(path.name for path in runs.iterdir()) == ["tiny-seed0", "tiny-seed1"]
    alone = load_config(train.TrainConfig, config, ["seed=1", "name=alone"])
    assert losses(train.train(alone, quiet=True)) == losses(runs / "tiny-seed1")
    assert losses(runs / "tiny-seed0") != losses(runs / "tiny-seed1")
    again = grid(config, "--grid", "seed=0,1", "optim.lr=1e-3")  # other cells: the names differ
    assert "finished already" not in again.stdout
    third = grid(config, "--grid", "seed=0,1")
    assert third.stdout.count("finished already") == 2
    assert "tiny-seed1     1   2,560" in third.stdout
    assert "compare.py" in third.stdout


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_reaches_the_cell_and_the_same_command_goes_on(config: Path) -> None:
    words = ["tokens=2_000_000", "log_every=1", "--grid", "seed=0,1"]
    command = [sys.executable, str(ROOT / "train.py"), str(config), *words]
    metrics = config.parent / "runs" / "tiny-seed0" / "metrics.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for _ in range(600):
            if metrics.is_file() and metrics.stat().st_size:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 143, out
    assert "stopped by SIGTERM; the same command goes on from here" in out
    assert "and saved; the same command goes on" in out  # the cell's own words: it was not cut off
    assert not (config.parent / "runs" / "tiny-seed1").exists()


@pytest.mark.slow
def test_a_cell_that_fails_is_told_and_the_others_go_on(config: Path) -> None:
    done = grid(config, "--grid", "schedule.warmup_steps=500,2")
    assert done.returncode == 1
    assert "schedule.warmup_steps is 500, but the run has 20 steps" in done.stderr
    assert "failed, exit code 2" in done.stdout
    assert "finished" in done.stdout.splitlines()[-3]


def test_names_of_cells(tmp_path: Path) -> None:
    def load(words: list[str], ending: str) -> train.TrainConfig:
        return load_config(train.TrainConfig, None, [*words, f"name=x{ending}", f"out={tmp_path}"])

    names = [one.config.name for one in cells(["seed=0,1", "optim.lr=1e-3,3e-3"], load)]
    assert names == ["x-seed0-lr1e-3", "x-seed0-lr3e-3", "x-seed1-lr1e-3", "x-seed1-lr3e-3"]
    both = cells(["data.path=a/b,c", "init_from=d"], load)
    assert [one.config.name for one in both] == ["x-patha_b-init_fromd", "x-pathc-init_fromd"]
    with pytest.raises(UserError, match="two cells of the grid would have the name x-patha_b"):
        cells(["data.path=a/b,a_b"], load)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (["seed"], "such as seed=0,1,2. Got 'seed'"),
        (["seed=0,0"], "Got 'seed=0,0'"),
        (["seed=0,,1"], "Got 'seed=0,,1'"),
        (["seed=0", "seed=1"], "has 'seed' twice"),
        (["name=a,b"], "cannot vary 'name'"),
        ([f"seed={','.join(map(str, range(1001)))}"], "1,001 cells"),
    ],
)
def test_axes_that_are_none(axes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_axes(axes)


def test_all_cells_are_read_before_the_first_is_trained(config: Path) -> None:
    with pytest.raises(UserError, match=r"model\.d_model"):
        train.main([str(config), "--grid", "model.d_model=32,33"])
    with pytest.raises(UserError, match="goes without --fresh"):
        train.main([str(config), "--fresh", "--grid", "seed=0,1"])
    assert not (config.parent / "runs").exists()
