"""Apple's GPU (MPS) has no float64: nothing of that type may be computed where the model is. Tested without a Mac.

A model's weights are marked as being on a device of their own; whatever is computed from a marked tensor is marked too,
and is refused when it is float64. `.cpu()` and `.to("cpu")` take the mark off, as they would bring a tensor back.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import train
from conftest import tiny_words
from model import build_model
from rostok.generation import generate
from rostok.measuring import score
from rostok.measuring.targets import target_list, text_windows
from rostok.runs import load_run
from rostok.text.shards import Data
from rostok.training.config import load_config


class NoFloat64(Exception):
    """What a Mac says with a TypeError."""


class Gpu(TorchDispatchMode):
    """Refuses float64 in what is computed from marked tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.marked: dict[int, Any] = {}  # storages, held so that no other one takes their place
        self.computed = 0

    def mark(self, tensor: torch.Tensor) -> None:
        self.marked[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()

    def has(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.marked

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if any(self.has(one) for one in given):
            made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
            wrong = [one for one in [*given, *made] if one.dtype == torch.float64]
            if wrong:
                raise NoFloat64(f"{func}: the device of the model has no float64")
            self.computed += 1
            for one in made:
                self.mark(one)
        return result


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """The mode, switched on, with `.cpu()` and `.to("cpu")` as ways out of it."""
    mode, plain_to = Gpu(), torch.Tensor.to

    def leave(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        with _disable_current_modes():
            return tensor.clone()

    def to(tensor: torch.Tensor, *words: Any, **named: Any) -> torch.Tensor:
        return leave(tensor) if words[:1] == ("cpu",) else plain_to(tensor, *words, **named)

    monkeypatch.setattr(torch.Tensor, "cpu", leave)
    monkeypatch.setattr(torch.Tensor, "to", to)
    for module in (generate, score):  # what they do on a Mac
        monkeypatch.setattr(module, "at_hand", leave)
    with mode:
        yield mode


def mark_model(gpu: Gpu, model: torch.nn.Module) -> None:
    for tensor in [*model.parameters(), *model.buffers()]:
        gpu.mark(tensor)


def test_the_mark_finds_float64(gpu: Gpu) -> None:
    weight = torch.ones(3)
    gpu.mark(weight)
    assert (weight * 2).cpu().double().sum().item() == 6
    with pytest.raises(NoFloat64, match="has no float64"):
        (weight * 2).double()
    with pytest.raises(NoFloat64, match="has no float64"):
        torch.mul(weight, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_training_the_validation_loss_and_its_sample(
    optimizer: str, gpu: Gpu, tiny_data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = train.Training.begin

    def marked(training: train.Training, fresh: bool) -> None:
        begin(training, fresh)
        mark_model(gpu, training.model)

    monkeypatch.setattr(train.Training, "begin", marked)
    words = [*tiny_words(tiny_data, tmp_path), f"optim.kind={optimizer}", "sample_tokens=8", "tokens=640"]
    run = train.train(load_config(train.TrainConfig, None, words), quiet=True)
    assert (run / "step-000005" / "model.safetensors").is_file()
    assert gpu.computed > 1000


def test_comparing(gpu: Gpu, tiny_run: Path, tiny_data: Data) -> None:
    run = load_run(tiny_run, build_model)
    mark_model(gpu, run.model)
    valid = tiny_data.split("valid")
    targets = target_list([np.array(valid.text(i)) for i in range(2)], run.tokenizer.start_id)
    losses = score.score(run.model, targets, text_windows(targets, 32, 16))
    assert len(losses.nats) == len(targets)
    assert gpu.computed > 50
