"""The heads as they form: the probe of a training, what it writes, and that it changes nothing."""

import dataclasses
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import attend
from conftest import tiny_words
from model import GPT
from rostok.errors import UserError, run_main
from rostok.runs import find_step, read_metrics
from rostok.text.shards import Data
from rostok.training.config import load_config
from rostok.training.folder import model_tensors
from rostok.training.head_probe import probe_heads
from train import TrainConfig, train

Capture = pytest.CaptureFixture[str]


def run(*words: str | Path) -> int:
    return run_main(attend.main, ["forming", *(str(word) for word in words)])


@pytest.fixture(scope="module")
def probed_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: Data) -> Path:
    """The tiny run again, with a probe every ten steps."""
    words = [*tiny_words(tiny_data, tmp_path_factory.mktemp("probed")), "probe.every=10"]
    return train(load_config(TrainConfig, None, words), quiet=True)


def test_probe_of_the_same_weights_is_the_same_and_touches_no_random_state(tiny_model: GPT) -> None:
    weights = {name: tensor.numpy() for name, tensor in model_tensors(tiny_model).items()}
    np.random.seed(5)
    torch_state = torch.get_rng_state()
    first, second = (
        probe_heads(weights, dataclasses.asdict(tiny_model.config), np.arange(1, 200)) for _ in range(2)
    )
    drawn = np.random.random()
    np.random.seed(5)
    assert drawn == np.random.random()
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert first == second
    assert set(first) == {"induction", "previous", "start"}
    assert np.shape(first["induction"]) == (2, 2)
    assert 0 <= np.min(first["induction"]) <= np.max(first["previous"]) <= 1


def test_context_without_room_is_refused(tiny_model: GPT) -> None:
    weights = {name: tensor.numpy() for name, tensor in model_tensors(tiny_model).items()}
    config = {**dataclasses.asdict(tiny_model.config), "context": 8}
    with pytest.raises(UserError, match="not enough tokens: repeats need a context of 16"):
        probe_heads(weights, config, np.arange(1, 200))


def test_a_training_that_cannot_be_probed_is_refused_before_it_begins(
    tiny_data: Data, tmp_path: Path
) -> None:
    words = [*tiny_words(tiny_data, tmp_path), "model.context=8", "probe.every=10"]
    with pytest.raises(UserError, match="not enough tokens: repeats need a context of 16, this model's is 8"):
        train(load_config(TrainConfig, None, words), quiet=True)
    assert not list(tmp_path.iterdir())


def test_probes_are_in_metrics_and_change_no_bit_of_the_run(probed_run: Path, tiny_run: Path) -> None:
    probed = [record for record in read_metrics(probed_run / "metrics.jsonl") if "heads" in record]
    assert [record["step"] for record in probed] == [10, 20]
    assert np.shape(probed[0]["heads"]["start"]) == (2, 2)
    tensors = [(find_step(path) / "model.safetensors").read_bytes() for path in (probed_run, tiny_run)]
    assert tensors[0] == tensors[1]


def test_forming_draws_and_prints(
    probed_run: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outs = [tmp_path / name for name in ("a.svg", "b.svg", "c.png")]
    for out in outs:
        assert run(probed_run, "--out", out, "--lang", "ru" if out.suffix == ".png" else "en") == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()
    ElementTree.parse(outs[0])
    assert outs[2].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    text = capsys.readouterr().out
    assert "previous token" in text
    assert "индукция" in text
    assert run(probed_run, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [probe["step"] for probe in found["probes"]] == [10, 20]
    monkeypatch.chdir(probed_run)
    assert run(".", "--json") == 0
    assert json.loads(capsys.readouterr().out)["run"] == found["run"] == probed_run.name


def test_run_without_probes_and_wrong_file(
    tiny_run: Path, probed_run: Path, tmp_path: Path, capsys: Capture
) -> None:
    for words, message in (
        ((tiny_run,), "has no probes in metrics.jsonl; train with probe.every"),
        ((tmp_path / "nowhere",), "there is no run folder"),
        ((probed_run, "--out", "forming.csv"), "must end in one of .png, .svg"),
    ):
        assert run(*words) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"step": 5, "tokens": 9, "heads": 3}',
        '{"step": 5, "tokens": 9, "heads": {"induction": [[1]], "previous": [[1]]}}',
        '{"step": 5, "tokens": 9, "heads": {"induction": [[1]], "previous": [[1]], "start": [[NaN]]}}',
        '{"step": 5, "heads": {"induction": [[1]], "previous": [[1]], "start": [[1]]}}',
        '{"step": 5, "tokens": 9, "heads": {"induction": [[1]], "previous": [[1]], "start": [[1]]}}',
    ],
)
def test_a_damaged_probe_is_one_line(line: str, probed_run: Path, tmp_path: Path, capsys: Capture) -> None:
    text = (probed_run / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n{text}")
    assert run(tmp_path) == 2
    error = capsys.readouterr().err
    assert "delete" in error
    assert error.count("\n") == 1


def test_window_model_has_no_heads_to_probe(tmp_path: Path, tiny_data: Data) -> None:
    words = [word for word in tiny_words(tiny_data, tmp_path) if not word.startswith("model.")]
    words += ["model.kind=window-mlp", "model.context=32", "probe.every=10"]
    folder = train(load_config(TrainConfig, None, words), quiet=True)
    assert not any("heads" in record for record in read_metrics(folder / "metrics.jsonl"))
    shutil.rmtree(folder)
