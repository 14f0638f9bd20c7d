"""`train.py --verify-resume RUN`: does a resumed training of this run have the same bits? Writes nothing into the run.

A few steps are trained from a checkpoint, once without a break and once with a save and a fresh start in the middle.
Both must give the same weights, optimizer state and next row, those of the next saved checkpoint, and the losses that
metrics.jsonl logged.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from rostok.runs import complete_steps, find_step, read_metrics, read_tensors
from rostok.training import passport
from rostok.training.config import load_config, renamed, validate
from rostok.training.folder import Checkpoint, model_tensors, read_checkpoint, save_step
from rostok.training.trained import Trained

C = TypeVar("C")


def verify_resume(run: Path, settings: type[C], begin: Callable[[C], Trained], most: int = 20) -> bool:
    """Train up to `most` steps twice and compare. Prints "identical", or the first difference; returns which it was.

    settings: the dataclass of the run's settings; begin: makes a new training of them. Raises UserError.
    """
    run = find_step(run).parent  # a step names its run
    run = run if run.name.strip(".") else run.resolve()
    start, *later = map(read_checkpoint, complete_steps(run)[-2:])
    first = start.state["step"]
    config = renamed(settings_at(settings, run, first), run, "rename the folder")
    reach = later[0].state["step"] - first if later else most + 1
    steps = reach if reach <= most else max(2, min(most, config.log_every))

    straight, losses = retrain(begin(config), start, steps)
    half, losses_before = retrain(begin(config), start, steps // 2)
    with tempfile.TemporaryDirectory() as folder:
        middle = save_step(Path(folder), half.state.step, half.model, half.optimizer, half.record())
        resumed, losses_after = retrain(begin(config), middle, steps - steps // 2)

    found: list[str | None] = []
    if straight.feed.state != resumed.feed.state:
        found.append(f"the next row is {resumed.feed.state} after resuming, {straight.feed.state} without")
    found.append(first_difference(tensors_of(straight), tensors_of(resumed)))
    found += differing_losses(losses, {**losses_before, **losses_after}, "after resuming")
    logged = {r["step"]: r["loss"] for r in read_metrics(run / "metrics.jsonl") if "loss" in r}
    made = [passport.changed(straight.provenance(), checkpoint.state) for checkpoint in (start, *later)]
    if changed := max(made, key=len):
        print(f"note     the run had other arithmetic ({', '.join(changed)}): compared with itself alone")
        logged, reach = {}, 0
    found += differing_losses(losses, logged, "in metrics.jsonl")
    compared = f"{len(losses.keys() & logged.keys())} logged losses"
    if reach == steps:
        found.append(first_difference(tensors_of(straight), saved_tensors(later[0].folder)))
        compared += f", {later[0].folder.name}"
    differences = [text for text in found if text]
    print(
        f"{start.folder}: {steps} steps straight on; {steps // 2} and {steps - steps // 2} with a resume; {compared}"
    )
    print(f"different: {differences[0]}" if differences else "identical")
    return not differences


def settings_at(cls: type[C], run: Path, step: int) -> C:
    """The settings with which the run went on from this step: its passport's, or (older runs) its config.yaml's."""
    for start in reversed(passport.read_starts(run)):
        if isinstance(start, dict) and "config" in start and start.get("step", 0) <= step:
            return validate(cls, start["config"], str(run / "passport.json"))
    return load_config(cls, run / "config.yaml")


def retrain(training: Trained, start: Checkpoint, steps: int) -> tuple[Trained, dict[int, float]]:
    """Train `steps` steps from a checkpoint; also returns the losses by step. Writes nothing."""
    training.load(start)
    training.plan.budget = 0.0  # the plans of the run hold, no new ones are made
    training.compile()
    losses = {}
    for _ in range(steps):
        loss, _ = training.step()
        losses[training.state.step] = loss
    return training, losses


def tensors_of(training: Trained) -> dict[str, Tensor]:
    """All tensors of a training, the optimizer's with a word before their names."""
    optimizer = {f"optimizer {name}": tensor for name, tensor in training.optimizer.tensors().items()}
    return {**model_tensors(training.model), **optimizer}


def saved_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, under the names that tensors_of gives them."""
    optimizer = read_tensors(folder, "optimizer.safetensors")
    model = read_tensors(folder, "model.safetensors")
    return {**model, **{f"optimizer {name}": tensor for name, tensor in optimizer.items()}}


def first_difference(mine: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str | None:
    """The first tensor that is not bit for bit the same in both, with the size of the difference; None if all are."""
    for name in sorted(mine.keys() | other.keys()):
        if name not in mine or name not in other:
            return f"{name} is in one of the two only"
        a, b = mine[name].cpu(), other[name].cpu()
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{name} is {tuple(a.shape)} {a.dtype} in one and {tuple(b.shape)} {b.dtype} in the other"
        if not torch.equal(a, b):
            return f"{name} differs by up to {(a.double() - b.double()).abs().max().item():.1e}"
    return None


def differing_losses(mine: dict[int, float], other: dict[int, float], where: str) -> list[str]:
    return [
        f"the loss of step {step} is {other[step]!r} {where}, {mine[step]!r} without"
        for step in mine
        if step in other and mine[step] != other[step]
    ]
