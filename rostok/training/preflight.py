"""What can be known of a run before its first step: what does not fit, and `train.py --check`, which writes nothing.

config = fit_to_data(config, data, tokenizer)          # vocabulary and ◆ come from the data
refuse_what_cannot_fit(config.model, batch, memory)    # before the model is built
check(training, checkpoint)                            # a few timed steps: what the run will cost, what is wrong
"""

import dataclasses
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rostok.devices import machine_memory
from rostok.errors import UserError, refuse_idle, verb
from rostok.measuring.recipes import flat
from rostok.text.advice import hint_for, training_for, typed_out
from rostok.text.shards import Data
from rostok.text.tokenizer import Tokenizer
from rostok.training.config import parse_words
from rostok.training.console import describe
from rostok.training.folder import Checkpoint
from rostok.training.runtime import measure_peak, peak_memory
from rostok.training.trained import Trained


def fit_to_data(config: Any, data: Data, tokenizer: Tokenizer) -> Any:
    """The settings (train.TrainConfig) with the vocabulary and ◆ of the data. Raises UserError when they differ."""
    data.check_tokenizer(tokenizer)
    found = {"vocab_size": data.vocab_size, "start_id": tokenizer.start_id}
    for name, number in found.items():
        came = getattr(config.model, name)
        if came not in (number, getattr(type(config.model), name)):  # neither the data's nor the default
            raise UserError(
                f"model.{name}={came}, but in {data.folder} it is {number}; it is taken from the data: leave it out"
            )
    model = dataclasses.replace(config.model, **found)
    return dataclasses.replace(config, model=model)


def refuse_without_effect(config: Any, words: Sequence[str]) -> None:
    """Raise UserError for a setting that was typed and does nothing beside the others. A file may hold such ones."""
    optim, schedule, kind = config.optim, config.schedule, config.model.kind
    muon = (optim.kind == "muon", f"optim.kind is {optim.kind}")
    effects = {
        "optim.muon_lr": muon,
        "optim.muon_momentum": muon,
        "schedule.decay_share": (schedule.kind == "wsd", f"schedule.kind is {schedule.kind}"),
        "schedule.final": (schedule.kind != "constant", "schedule.kind is constant"),
        "probe.every": (kind == "gpt" or not config.probe.every, f"a {kind} has no heads"),
    }
    refuse_idle(flat(parse_words(words)), effects)


class Sizes(Protocol):
    """What the arithmetic of a model's config says (model.py)."""

    @property
    def parameters(self) -> int: ...
    @property
    def kept_bytes(self) -> int: ...
    @property
    def context(self) -> int: ...


def refuse_what_cannot_fit(model: Sizes, batch: int, there: int) -> None:
    """Raise UserError when a training step needs more than the `there` bytes of memory. Nothing is built for it.

    A lower bound: weight, gradient and two moments of each parameter in fp32, and what the backward pass must keep.
    """
    weights, row = 16 * model.parameters, model.kept_bytes * model.context
    if weights + batch * row <= there:
        return
    rows = (there - weights) // row
    if weights > there:
        hint = f"at most {there // 16:,} parameters fit: lower model.d_model, model.n_layer or the vocabulary"
    elif rows:
        hint = f"type batch={rows} or less, and more accumulate"
    else:
        hint = f"type model.context={max(1, (there - weights) // model.kept_bytes)} or less"
    raise UserError(
        f"training needs at least {gigabytes(weights + batch * row)} of memory, and {gigabytes(there)} are there "
        f"({model.parameters:,} parameters, batches of {batch:,} x {model.context:,} tokens); {hint}"
    )


def gigabytes(size: float) -> str:
    """
    >>> gigabytes(1_288_490_188)
    '1.2 GiB'
    """
    return f"{size / 2**30:,.1f} GiB"


# ---------------------------------------------------------------------------------------------------- --check


def check(training: Trained, checkpoint: Checkpoint | None, steps: int = 5) -> None:
    """Print what a run will be and cost, and what is wrong with it, from a few timed steps. Writes nothing."""
    if checkpoint:
        training.load(checkpoint)
    print(describe(training))
    done, past = training.state.step, training.state.seconds
    if training.finished:
        print(f"check    the run is finished: {done:,} steps are done; more of them with a larger tokens=")
        return
    training.compile()
    start_up = past + time.perf_counter() - training.clock
    budget, training.plan.budget = training.plan.budget, 0.0  # no plan is written
    parts = training.accumulate
    training.accumulate = min(parts, 4)  # of a large step a part is timed
    losses, times = [], []
    for _ in range(steps):
        started = time.perf_counter()
        losses.append(training.step()[0])
        times.append(time.perf_counter() - started)
    seconds = sorted(times)[steps // 2] * parts / training.accumulate
    config = training.config
    fit = round((budget - start_up) / seconds) if budget else config.steps
    outlook = look_ahead(training, done, min(config.steps - done, max(1, fit)), seconds)
    first = f"step {done + 1:,}" if done else "the first step"
    speed = config.tokens_per_step / seconds
    print(
        f"size     {outlook.tokens / outlook.parameters:.1f} tokens per parameter, {outlook.epochs:.2f} epochs, "
        f"{training.feed.loader.left_out_share:.1%} of an epoch's tokens are left out at row ends\n"
        f"loss     {losses[0]:.3f} at {first} (ln V = {math.log(config.model.vocab_size):.3f}), "
        f"{losses[-1]:.3f} at step {done + steps:,}\n"
        f"speed    {speed:,.0f} tokens/s, "
        f"{speed * training.flops / measure_peak(training.runtime):.0%} of this machine's matmul peak\n"
        f"time     {outlook.seconds / 60:,.1f} minutes for {outlook.steps - done:,} steps\n"
        f"memory   {gigabytes(outlook.memory)} at most; checkpoints {gigabytes(outlook.disk)} on the disk"
    )
    found = objections(outlook)
    for line in found or ["nothing that was looked for is wrong"]:
        print(f"check    {line}")
    if outlook.epochs > 8 or too_large(outlook):
        print(f"fits     {verb('train')} {typed_out(training_for(training.data))}")
        if hint := hint_for(training.data):
            print(f"hint     {hint}")


@dataclass(frozen=True)
class Outlook:
    """What is known of a run before its first step."""

    parameters: int
    tokens: int
    epochs: float
    held_out_rows: int
    seconds: float
    memory: int  # bytes, as measured over the timed steps
    memory_there: int
    disk: int  # bytes of the checkpoints
    disk_there: int
    lr: float
    steps: int
    warmup_steps: int
    save_every: int
    init_from: str = ""


def look_ahead(training: Trained, done: int, steps: int, seconds: float) -> Outlook:
    """The outlook of `steps` more steps of `seconds` each, after `done` of them."""
    config, parameters = training.config, list(training.model.parameters())
    state_bytes = 4 * sum(t.numel() for t in [*parameters, *training.optimizer.tensors().values()])
    parent = next(path for path in (training.run, *training.run.parents) if path.exists())
    return Outlook(
        parameters=sum(p.numel() for p in parameters),
        tokens=(done + steps) * config.tokens_per_step,
        epochs=(done + steps) * config.batch * config.accumulate / training.feed.loader.rows_per_epoch(),
        held_out_rows=training.held_out.rows,
        seconds=seconds * steps,
        memory=peak_memory(training.runtime.device),
        memory_there=machine_memory(training.runtime.device),
        disk=state_bytes * (min(config.keep, steps) + 1),
        disk_there=shutil.disk_usage(parent).free,
        lr=config.optim.lr,
        init_from=config.init_from,
        steps=done + steps,
        warmup_steps=config.schedule.warmup_steps,
        save_every=config.save_every,
    )


def too_large(run: Outlook) -> bool:
    """Whether a model that begins with random weights has more of them than it will see tokens."""
    return run.tokens < run.parameters and not run.init_from


def objections(run: Outlook) -> list[str]:
    """What is wrong with a run that has not begun, or will be; a sentence each."""
    found = []
    if run.epochs > 8:
        found.append(
            f"every text is seen {run.epochs:.0f} times: expect overfitting; more text or fewer tokens="
        )
    if too_large(run):
        found.append(
            f"{run.tokens / run.parameters:.1f} tokens per parameter: a large model for so short a run; 20 are usual"
        )
    if run.held_out_rows < 16:
        found.append(f"only {run.held_out_rows} held-out rows: the validation loss will be noisy")
    if run.lr > 1e-2:
        found.append(f"optim.lr={run.lr:g} is high: 1e-3 to 5e-3 is usual for models of this size")
    if run.seconds > 24 * 3600:
        found.append(f"it will take {run.seconds / 3600:.0f} hours: set schedule.max_minutes, or use a GPU")
    if run.memory > 0.9 * run.memory_there:
        found.append(
            f"it needs {gigabytes(run.memory)} of {gigabytes(run.memory_there)}: halve batch, double accumulate"
        )
    if run.disk > run.disk_there:
        found.append(
            f"checkpoints need {gigabytes(run.disk)}, the disk has {gigabytes(run.disk_there)}: make room"
        )
    if run.warmup_steps > run.steps:
        found.append(
            f"schedule.warmup_steps={run.warmup_steps} is longer than the {run.steps} steps that fit into the time: "
            f"schedule.warmup_steps={run.steps // 10}"
        )
    if run.save_every > run.steps:
        found.append(
            f"save_every={run.save_every} is longer than the run ({run.steps} steps): a kill loses all of it"
        )
    return found
