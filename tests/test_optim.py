"""Optimizers against independent computations; schedules as pure functions."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from model import GPT, GPTConfig, build_model
from rostok.errors import UserError
from rostok.training.config import load_config
from rostok.training.optim import Muon, OptimConfig, build_optimizer, orthogonalise
from rostok.training.schedule import ScheduleConfig, StepPlan, check_schedule, multiplier, planned_steps


def drawn(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16)])
def test_orthogonalise_pulls_singular_values_to_one(shape: tuple[int, int]) -> None:
    values = torch.linalg.svdvals(orthogonalise(drawn(shape, 0), torch.float32))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_muon_equals_torch_on_unfused_matrices() -> None:
    """The same numbers as torch.optim.Muon, which has another loop over them, where both iterate in bf16."""
    ours, theirs = torch.nn.Parameter(drawn((16, 40), 0)), torch.nn.Parameter(drawn((16, 40), 0))
    mine = Muon([("w", ours)], {}, torch.bfloat16, lr=0.01, weight_decay=0.1, momentum=0.9)
    other = torch.optim.Muon(
        [theirs], adjust_lr_fn="match_rms_adamw", lr=0.01, weight_decay=0.1, momentum=0.9
    )
    for step in range(4):
        ours.grad, theirs.grad = drawn((16, 40), 10 + step), drawn((16, 40), 10 + step)
        mine.step()
        other.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_kv_head", [None, 1])
def test_q_k_and_v_are_orthogonalised_apart(n_kv_head: int | None) -> None:
    """The fused weight moves as three separate parameters would."""
    config = GPTConfig(vocab_size=32, context=8, n_layer=1, n_head=2, n_kv_head=n_kv_head, d_model=16)
    model = build_model(config)
    assert isinstance(model, GPT)
    weight = model.get_parameter("blocks.0.attn.qkv.weight")
    rows = [16, 8 * config.kv_heads, 8 * config.kv_heads]
    apart = [torch.nn.Parameter(part.clone()) for part in weight.detach().split(rows)]
    optimizer = build_optimizer(model, OptimConfig(kind="muon", muon_lr=0.01), bf16=True)
    other = torch.optim.Muon(apart, lr=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        gradient = drawn(tuple(weight.shape), step)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        weight.grad = gradient
        for part, rows_of_gradient in zip(apart, gradient.split(rows), strict=True):
            part.grad = rows_of_gradient.clone()
        optimizer.step()
        other.step()
    torch.testing.assert_close(
        weight.detach(), torch.cat([part.detach() for part in apart]), rtol=1e-5, atol=1e-6
    )


def test_adamw_equals_the_formula(tiny_model: GPT) -> None:
    """Two steps of decoupled weight decay written out; vectors get no decay."""
    config = OptimConfig(lr=0.01, weight_decay=0.2)
    optimizer = build_optimizer(tiny_model, config)
    for name in ("blocks.0.mlp.up.weight", "final_norm.weight"):
        parameter = tiny_model.get_parameter(name)
        w, m, v = parameter.detach().double(), 0.0, 0.0
        for step in (1, 2):
            g = drawn(tuple(parameter.shape), step).double()
            m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
            w = w * (1 - 0.01 * (0.2 if w.ndim == 2 else 0.0))
            w = w - 0.01 * (m / (1 - 0.9**step)) / ((v / (1 - 0.95**step)).sqrt() + 1e-8)
            parameter.grad = drawn(tuple(parameter.shape), step)
            optimizer.step()
            parameter.grad = None
        torch.testing.assert_close(parameter.detach().double(), w, rtol=1e-5, atol=1e-6)


def test_who_trains_what(tiny_model: GPT) -> None:
    adamw, muon = build_optimizer(tiny_model, OptimConfig(kind="muon")).parts
    names = set(muon.param_groups[0]["param_names"])
    assert names == {n for n, p in tiny_model.named_parameters() if n.startswith("blocks.") and p.ndim == 2}
    rest = {name for group in adamw.param_groups for name in group["param_names"]}
    assert names | rest == {n for n, _ in tiny_model.named_parameters()}
    assert not names & rest
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.1, 0.0]
    assert (
        len(
            build_optimizer(
                build_model({"kind": "window-mlp", "vocab_size": 9}), OptimConfig(kind="muon")
            ).parts
        )
        == 1
    )


def test_state_goes_round_by_name(tiny_model: GPT) -> None:
    optimizer = build_optimizer(tiny_model, OptimConfig(kind="muon"))
    assert optimizer.tensors() == {}
    for parameter in tiny_model.parameters():
        parameter.grad = drawn(tuple(parameter.shape), 1)
    optimizer.step()
    saved = optimizer.tensors()
    assert "blocks.0.attn.qkv.weight/momentum_buffer" in saved
    assert "embed.weight/exp_avg" in saved
    other = build_optimizer(tiny_model, OptimConfig(kind="muon"))
    other.load_tensors(saved)
    assert all(torch.equal(tensor, other.tensors()[name]) for name, tensor in saved.items())
    with pytest.raises(UserError, match="another model or optim.kind"):
        build_optimizer(tiny_model, OptimConfig()).load_tensors({"nobody/exp_avg": torch.zeros(1)})


# ---------------------------------------------------------------------------------------------------- schedules

KINDS = ("constant", "linear", "cosine", "wsd")


@pytest.mark.parametrize("kind", KINDS)
def test_every_schedule(kind: str) -> None:
    """C18: above 0 at the first step, at the peak behind the warm-up, never above it, `final` at the end."""
    config = load_config(ScheduleConfig, None, [f"kind={kind}", "warmup_steps=10", "final=0.1"])
    shares = [multiplier(config, step, 100) for step in range(101)]
    assert shares[0] == pytest.approx(1 / 11)
    assert shares[10] == 1.0
    assert all(0 < share <= 1 for share in shares)
    assert all(a >= b for a, b in pairwise(shares[10:]))
    assert shares[100] == pytest.approx(1.0 if kind == "constant" else 0.1)
    no_warmup = load_config(ScheduleConfig, None, [f"kind={kind}", "warmup_steps=0"])
    assert multiplier(no_warmup, 0, 100) == 1.0
    with pytest.raises(UserError, match=r"warmup_steps is 10, but the run has 5 steps"):
        check_schedule(config, 5)


def test_schedules_by_hand() -> None:
    half = [multiplier(ScheduleConfig(kind, 0, 0.5), 75, 100) for kind in KINDS]
    assert half == pytest.approx([1.0, 0.25, 0.5 * (1 + math.cos(0.75 * math.pi)), 0.5])


def test_a_plan_by_the_clock(tmp_path: Path) -> None:
    assert planned_steps(step=100, seconds=100.0, start_up=0.0, budget=50.0) == 100  # time is over
    assert planned_steps(step=101, seconds=60.0, start_up=10.0, budget=1e9) == 101 + (1e9 - 60) / 0.5
    config = ScheduleConfig(max_minutes=1.0)
    plan = StepPlan(tmp_path / "plan.json", config, 1000)
    assert plan.steps(0) == 1000
    plan.revise(10, 200)
    plan.revise(20, 220)
    again = StepPlan(tmp_path / "plan.json", config, 1000)
    again.load()
    assert [again.steps(step) for step in (0, 10, 19, 20, 99)] == [1000, 200, 200, 220, 220]
    assert [again.due(step, 10) for step in (10, 20, 30)] == [False, False, True]
    assert not StepPlan(tmp_path / "plan.json", ScheduleConfig(), 1000).due(30, 10)


def test_a_plan_that_cannot_be_written_or_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = StepPlan(tmp_path / "gone" / "plan.json", ScheduleConfig(max_minutes=1.0), 1000)
    plan.revise(10, 200)
    assert "warning: cannot write" in capsys.readouterr().err
    assert plan.steps(10) == 200  # the run goes on by it
    for damaged in ("", "[1]", '{"a": 1}', '{"1": null}', '{"2": Infinity}', '{"2": 0}'):
        (tmp_path / "plan.json").write_text(damaged, encoding="utf-8")
        with pytest.raises(UserError, match="is damaged; delete it"):
            StepPlan(tmp_path / "plan.json", ScheduleConfig(max_minutes=1.0), 1000).load()
