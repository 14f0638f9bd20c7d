"""Ablation: what is silenced is silenced exactly, and nothing else; the reference's edit agrees with torch's model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model import GPT
from rostok.attention.heads.ablate import (
    all_heads,
    changes,
    forbid,
    mean_outputs,
    nats_of,
    silence,
    steps_of,
)
from rostok.attention.heads.capture import Subject, open_subject
from rostok.attention.reference import forward
from rostok.text.tokenizer import load_tokenizer
from rostok.training.folder import model_tensors

IDS = np.array([0, 17, 4, 250, 17, 4, 9, 30])


@pytest.fixture
def subject(tiny_model: GPT, tiny_run: Path) -> Subject:
    """Two layers, two heads, all weights random."""
    weights = {name: tensor.numpy() for name, tensor in model_tensors(tiny_model).items()}
    config = {**vars(tiny_model.config)}
    return Subject("tiny", weights, config, load_tokenizer(tiny_run / "tokenizer.json"))


def changed(subject: Subject, weights: Mapping[str, np.ndarray]) -> Subject:
    return replace(subject, weights={**subject.weights, **weights})


def without_output(subject: Subject, layer: int, heads: list[int]) -> Subject:
    """The model with the W_O of some heads set to zero."""
    name = f"blocks.{layer}.attn.proj.weight"
    proj = subject.weights[name].copy().reshape(32, 2, 16)
    proj[:, heads] = 0
    return changed(subject, {name: proj.reshape(32, 32)})


def test_silencing_no_head_changes_no_bit(subject: Subject) -> None:
    clean = forward(subject.weights, subject.config, IDS)
    assert np.array_equal(forward(subject.weights, subject.config, IDS, edit=silence([])), clean)
    assert np.array_equal(forward(subject.weights, subject.config, IDS, edit=lambda _, value: value), clean)
    assert not changes(subject, [IDS], [[]], "zero").any()
    assert not changes(subject, [IDS], [[]], "pattern").any()


def test_a_head_that_writes_nothing_is_not_missed(subject: Subject) -> None:
    mute = without_output(subject, 0, [1])
    for kind in ("zero", "mean", "pattern"):
        assert not changes(mute, [IDS], [[(0, 1)]], kind).any()
    assert changes(mute, [IDS], [[(0, 0)]], "zero").any()


@pytest.mark.parametrize("heads", [[0], [1], [0, 1]])
def test_zero_is_the_model_without_the_heads_output(subject: Subject, heads: list[int]) -> None:
    """All heads of a layer together: the sublayer is skipped."""
    silenced = nats_of(subject, IDS, silence([(1, head) for head in heads]))
    assert np.array_equal(silenced, nats_of(without_output(subject, 1, heads), IDS))


def test_zero_equals_a_hook_in_torch(subject: Subject, tiny_model: GPT) -> None:
    def hook(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        z = inputs[0].clone()
        z[..., 16:] = 0  # the second head of two
        return (z,)

    ids = torch.from_numpy(IDS)[None]
    handle = tiny_model.blocks[0].attn.proj.register_forward_pre_hook(hook)  # type: ignore[union-attr]
    with torch.no_grad():
        logits = tiny_model(ids)[0].numpy()
    handle.remove()
    ours = forward(subject.weights, subject.config, IDS, edit=silence([(0, 1)]))
    np.testing.assert_allclose(ours, logits, atol=1e-4)


def test_mean_is_taken_apart_for_the_first_two_places(subject: Subject) -> None:
    other = np.array([0, 5, 6, 7])
    traces = [steps_of(subject, ids, "attn.z") for ids in (IDS, other)]
    means = mean_outputs(traces)["blocks.0.attn.z"]  # (H, 3, E)
    first, second = (trace["blocks.0.attn.z"] for trace in traces)
    np.testing.assert_allclose(means[:, 0], (first[:, 0] + second[:, 0]) / 2, rtol=1e-6)
    np.testing.assert_allclose(means[:, 1], (first[:, 1] + second[:, 1]) / 2, rtol=1e-6)
    rest = np.concatenate((first[:, 2:], second[:, 2:]), axis=1).mean(1)
    np.testing.assert_allclose(means[:, 2], rest, rtol=1e-5)
    trace: dict[str, np.ndarray] = {}
    forward(subject.weights, subject.config, IDS, trace, edit=silence([(0, 1)], {"blocks.0.attn.z": means}))
    assert np.array_equal(trace["blocks.0.attn.z"][1, 5], means[1, 2])
    assert np.array_equal(trace["blocks.0.attn.z"][0], first[0])


def test_mean_does_not_miss_what_is_always_the_same(subject: Subject) -> None:
    """One text of which every token is the same: all values are equal, and so is every mixture of them."""
    same = np.full(6, 9)
    delta = changes(subject, [same], [[(0, 0)]], "mean")
    assert abs(delta).max() < 1e-5
    assert abs(changes(subject, [same], [[(0, 0)]], "zero")).max() > 1e-3


def test_pattern_holds_all_maps_and_differs_from_zero_in_later_layers(subject: Subject) -> None:
    maps = steps_of(subject, IDS, "attn.pattern")
    trace: dict[str, np.ndarray] = {}
    forward(subject.weights, subject.config, IDS, trace, edit=silence([(0, 0)], patterns=maps))
    assert all(np.array_equal(trace[name], value) for name, value in maps.items())
    first, last = [(0, 0)], [(1, 0)]
    held, free = (changes(subject, [IDS], [first, last], kind) for kind in ("pattern", "zero"))
    assert not np.allclose(held[0], free[0], atol=1e-6)  # what layer 2 looks at because of layer 1 is held
    np.testing.assert_allclose(held[1], free[1], atol=1e-5)  # nothing comes after the last layer


def test_forbidden_key_gets_nothing_and_the_rest_grows(subject: Subject) -> None:
    trace: dict[str, np.ndarray] = {}
    forward(subject.weights, subject.config, IDS, trace, edit=forbid(0, 3))
    clean = steps_of(subject, IDS, "blocks.0.attn.pattern")["blocks.0.attn.pattern"]
    found = trace["blocks.0.attn.pattern"]
    assert not found[:, 3:, 0].any()
    np.testing.assert_allclose(found[:, :3], clean[:, :3], rtol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(found[:, 3:, 1:], clean[:, 3:, 1:] / (1 - clean[:, 3:, :1]), rtol=1e-5)


def test_nats_equal_torch(subject: Subject, tiny_model: GPT) -> None:
    targets = torch.from_numpy(np.append(IDS[1:], 0))
    with torch.no_grad():
        logits = tiny_model(torch.from_numpy(IDS)[None])[0]
    wanted = torch.nn.functional.cross_entropy(logits, targets, reduction="none").numpy()
    np.testing.assert_allclose(nats_of(subject, IDS), wanted, atol=1e-4)


def test_induction_needs_both_of_its_heads(hand_run: Path) -> None:
    """In the hand-built model, taking away either head of the pair spoils copying; the other two are not missed."""
    subject = open_subject(hand_run)
    block = np.array([100, 150, 200, 250, 300, 120, 130])
    ids = np.concatenate(([0], block, block))
    delta = changes(subject, [ids], [[place] for place in all_heads(subject)], "zero")[:, 8:-1].mean(1)
    assert dict(zip(all_heads(subject), delta > 0.5, strict=True)) == {
        (0, 0): True, (0, 1): False, (1, 0): True, (1, 1): False,
    }  # fmt: skip
