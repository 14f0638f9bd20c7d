"""torchrun on this machine, over gloo: two processes are one training, and a killed one comes back by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, tiny_words
from rostok import runs
from rostok.runs import read_metrics
from rostok.text.shards import Data
from rostok.training.config import load_config
from rostok.training.proof import first_difference, saved_tensors
from train import TrainConfig, train

KILLER = '''
"""train.py, with a rank 1 that dies by kill -9 behind step 5 of its first life, and comes late into its second: what
its first life left in torchrun's store is then all that rank 0 could find."""
import os, signal, sys, time
if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == ("1", "1"):
    time.sleep(2)
sys.path.insert(0, {root!r})
import train
before = train.Training.step
def step(self):
    result = before(self)
    if (os.environ["RANK"], self.state.step, os.environ["TORCHELASTIC_RESTART_COUNT"]) == ("1", 5, "0"):
        os.kill(os.getpid(), signal.SIGKILL)
    return result
train.Training.step = step
raise SystemExit(train.main(sys.argv[1:]))
'''


def torchrun(*words: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_two_processes_are_one_training_and_survive_a_kill(tiny_data: Data, tmp_path: Path) -> None:
    """Equal losses (1e-6, fp32) with the same global batch, accumulation on both sides; rank 1 is killed in between and
    torchrun restarts both, which go on from the last checkpoint (step 4) without a word from anybody, to the same bits
    as two processes that nobody kills."""
    extra = [
        "tokens=2048",
        "batch=2",
        "accumulate=4",
        "log_every=1",
        "save_every=4",
        "sample_tokens=0",
    ]
    words = [*tiny_words(tiny_data, tmp_path / "one"), *extra]
    straight = train(load_config(TrainConfig, None, words), quiet=True)
    config, killer = tmp_path / "c.yaml", tmp_path / "killer.py"
    config.write_text("seed: 0\n", encoding="utf-8")
    killer.write_text(KILLER.format(root=str(ROOT)), encoding="utf-8")
    words = [*tiny_words(tiny_data, tmp_path / "two"), *extra]
    out = torchrun("--max-restarts", "1", str(killer), str(config), *words)
    assert "2 processes" in out
    assert "resumed at step 4" in out
    run = tmp_path / "two" / "tiny"
    keys = ("loss", "valid_loss", "grad_norm")
    one, two = (
        [{k: r[k] for k in keys if k in r} for r in read_metrics(x / "metrics.jsonl")]
        for x in (straight, run)
    )
    assert len(one) == len(two)
    for first, second in zip(one, two, strict=True):
        assert first == pytest.approx(second, abs=1e-6, rel=1e-6)
    state = runs.read_state(runs.find_step(run, "latest"))
    assert (state["step"], state["runtime"]["world"], state["runtime"]["accumulate"]) == (8, 2, 2)
    final = saved_tensors(runs.find_step(run, "latest"))
    assert not [name for name in final if "module." in name]
    torchrun("train.py", str(config), *tiny_words(tiny_data, tmp_path / "three"), *extra)
    undisturbed = saved_tensors(runs.find_step(tmp_path / "three" / "tiny", "latest"))
    assert first_difference(final, undisturbed) is None
