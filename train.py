"""Train a model from a YAML config. This file, read from top to bottom, says what training is.

    python train.py configs/quickstart.yaml                       # or a built-in name: python train.py quickstart
    python train.py configs/rostok.yaml optim.lr=3e-4 model.n_layer=4 name=small
    python train.py configs/rostok.yaml                           # again: goes on from the newest checkpoint
    python train.py configs/rostok.yaml --fresh                   # begin anew, the old run is replaced
    python train.py rostok-mini init_from=checkpoints/rostok-mini name=mine data.path=data/mine   # from trained weights
    python train.py configs/rostok.yaml --check                   # what it will cost and what is wrong; writes nothing
    python train.py --verify-resume checkpoints/rostok            # prove that a resumed run has the same bits
    torchrun --nproc-per-node 8 train.py configs/rostok.yaml      # see docs/distributed.md

The run lands in checkpoints/NAME (see rostok/training/folder.py). Make the data first: python prepare.py --help
"""

import argparse
import contextlib
import dataclasses
import gc
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from model import GPTConfig, WindowMLPConfig, build_model
from rostok import files, runs
from rostok.devices import choose_device, machine_memory
from rostok.errors import Parser, UserError, close_output, run_main, verb
from rostok.runs import read_metrics
from rostok.text.shards import Data, open_data, verify
from rostok.text.tokenizer import Tokenizer, load_tokenizer
from rostok.training import folder as run_folder
from rostok.training import passport
from rostok.training.advisor import (
    AdvisorState,
    Outlook,
    check_finite,
    gigabytes,
    objections,
    refuse_what_cannot_fit,
)
from rostok.training.config import dump_yaml, find_config, load_config, validate
from rostok.training.diary import Diary, describe
from rostok.training.head_probe import ProbeConfig, check_probes
from rostok.training.heldout import HeldOut
from rostok.training.loader import RowLoader
from rostok.training.metrics import board_writer
from rostok.training.optim import OptimConfig, build_optimizer
from rostok.training.ranks import Ranks, from_first_rank, process_group, ranks, sum_over_ranks
from rostok.training.runtime import (
    RuntimeConfig,
    choose_runtime,
    compile_parts,
    flops_per_token,
    measure_peak,
    peak_memory,
)
from rostok.training.schedule import ScheduleConfig, StepPlan, check_schedule, multiplier, planned_steps
from rostok.training.signals import StopWish, stop_wish

# ---------------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class DataConfig:
    """The folder of token shards that prepare.py made."""

    path: str = "data/stories"
    verify: bool = True  # read every shard and compare its hash before the first step


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. `vocab_size` and `start_id` of the model are taken from the data."""

    name: str = "run"  # the run folder is OUT/NAME
    out: str = "checkpoints"
    data: DataConfig = field(default_factory=DataConfig)
    model: GPTConfig | WindowMLPConfig = field(default_factory=GPTConfig)
    init_from: str = ""  # a run, or a step of one, whose weights this run begins with; empty: random ones
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)  # the heads as they form: attend.py forming
    # training targets over the whole run, to the nearest step
    tokens: Annotated[int, Field(ge=1, le=10**15)] = 6_000_000
    batch: Annotated[int, Field(ge=1)] = 8  # rows of `context` tokens in one forward pass
    accumulate: Annotated[int, Field(ge=1)] = 1  # forward passes in one step
    seed: Annotated[int, Field(ge=0)] = 0
    eval_every: Annotated[int, Field(ge=1)] = 100  # steps
    eval_rows: Annotated[int, Field(ge=1)] = 64
    # written at evaluations, to be looked at; 0: none
    sample_tokens: Annotated[int, Field(ge=0, le=10_000)] = 40
    early_stop: Annotated[int, Field(ge=0)] = 0  # stop after so many evaluations without a new best; 0: never
    save_every: Annotated[int, Field(ge=1)] = 200  # steps
    log_every: Annotated[int, Field(ge=1)] = 10  # steps
    keep: Annotated[int, Field(ge=1)] = 2  # newest checkpoints that are kept, besides the best
    tensorboard: bool = False  # also write RUN/tensorboard (pip install rostok[tensorboard])

    def __post_init__(self) -> None:
        if not re.fullmatch(r"(?!\.)[\w.+-]{1,100}", self.name):
            raise ValueError(
                f"name must be a plain name for the run's folder below `out`. Got {self.name[:60]!r}"
            )
        if self.tokens_per_step > self.tokens:
            raise ValueError(
                f"a step takes batch x accumulate x context = {self.tokens_per_step:,} tokens, more than the run's. "
                f"Got tokens={self.tokens}; type tokens={self.tokens_per_step} or more, or lower batch or accumulate"
            )

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.accumulate * self.model.context

    @property
    def steps(self) -> int:
        return max(1, round(self.tokens / self.tokens_per_step))

    @property
    def folder(self) -> Path:
        return Path(self.out) / self.name


# ---------------------------------------------------------------------------------------------------- training


def train(
    config: TrainConfig, fresh: bool = False, quiet: bool = False, stop: StopWish | None = None
) -> Path:
    """Train, or go on training, the run that `config` describes. Gives the run folder. Raises UserError.

    stop: when it wishes so, the run is saved after the step and left.
    """
    training = Training(config, ranks(), quiet)
    config, run = training.config, training.run
    training.adopt(fresh)
    with training.processes(), training.lock():
        training.open_folder(fresh)
        training.begin()
        diary = Diary(training)
        while not training.finished and not training.told_to(stop):
            loss, norm = training.step()
            diary.after_step(loss, norm)
            if training.due(config.eval_every, config.save_every):
                diary.after_evaluation(training.evaluate())
            if training.due(config.save_every):
                training.save()
        # on resuming with a shorter plan the last checkpoint may be one that was never scored
        if training.finished and training.state.scored_at != training.state.step:
            diary.after_evaluation(training.evaluate())
        training.save(last=True)
        diary.close(stop)
    return run


@dataclass
class State:
    """All of a run that is neither weights nor optimizer, as it travels in state.json."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    start_up: float = 0.0  # those of them that went into compiling and first steps, once a start
    best: float | None = None  # lowest held-out loss
    stale: int = 0  # evaluations since then
    scored_at: int = 0  # the step of `scores`
    scores: dict[str, float] = field(default_factory=dict)
    advisor: AdvisorState = field(default_factory=AdvisorState)


class Training:
    """A run, alive: model, optimizer, data and state, and what is done with them."""

    def __init__(self, config: TrainConfig, place: Ranks, quiet: bool = False) -> None:
        self.place, self.quiet = place, quiet or not place.first
        self.clock = time.perf_counter()
        self.data = (verify if config.data.verify else open_data)(Path(config.data.path))
        self.tokenizer = load_tokenizer(Path(config.data.path))
        self.config = config = fit_to_data(config, self.data, self.tokenizer)
        self.run = Path(config.out) / config.name
        check_schedule(config.schedule, config.steps)
        if config.tensorboard:
            board_writer()
        if config.probe.every and isinstance(config.model, GPTConfig):
            check_probes(config.model.context, self.tokenizer)

        batch, self.accumulate = place.share(config.batch, config.accumulate)
        device, _ = choose_device(config.runtime.device, place.local)
        refuse_what_cannot_fit(config.model, batch, machine_memory(device))
        self.model = build_model(config.model)
        self.model.init_weights(torch.Generator().manual_seed(config.seed))
        self.flops = flops_per_token(self.model)
        minutes = config.schedule.max_minutes
        self.runtime = choose_runtime(config.runtime, self.flops * config.tokens, place.local, minutes)
        self.model.to(self.runtime.device).train()
        self.net: nn.Module = self.model  # what a step calls: the model, or the model in DDP's wrapping
        self.optimizer = build_optimizer(self.model, config.optim, self.runtime.native_bf16)
        self.scaler = self.runtime.scaler()

        split, context = self.data.split("train"), config.model.context
        loader = RowLoader(split, context, batch, config.seed, place.rank, place.world)
        self.feed = Feed(loader, self.runtime.device)
        self.held_out = HeldOut(
            self.data.split("valid"), self.tokenizer, context, config.eval_rows, batch, place
        )
        self.plan = StepPlan(self.run / "plan.json", config.schedule, config.steps)
        self.state = State()
        self.saved: tuple[int, int] | None = None  # step and scored_at of the newest checkpoint
        self.cold_until = 0  # the step with which compiling and first touches of memory are behind us

    def begin(self) -> None:
        """Load the newest checkpoint, where there is one; then compile and join the other processes."""
        latest = self.resume()
        self.first_does(lambda: self.sign_folder(latest))  # only now: nothing is refused any more
        if not self.finished:
            self.compile()
        if latest and (changed := self.changed(read_training(latest))):
            self.say(f"note     goes on with {', '.join(changed)}: the same rows, but other last bits")
        if self.place.world > 1:
            devices = [self.runtime.device] if self.runtime.device.type == "cuda" else None
            self.net = nn.parallel.DistributedDataParallel(self.model, device_ids=devices)
        self.clock -= self.state.seconds
        self.cold_until = self.state.step + 1
        if self.place.first:
            config = dataclasses.asdict(self.config)
            passport.stamp(self.run, self.state.step, {"config": config, **self.facts()})

    def step(self) -> tuple[float, float]:
        """One step: the mean loss over all its rows (nats a token) and the gradient's norm before clipping.

        Raises UserError when either is not a number; the weights are then those of the step before.
        """
        config, state = self.config, self.state
        self.optimizer.set_share(self.rate_share())
        total = torch.zeros((), device=self.runtime.device)
        for part in range(self.accumulate):
            ids, targets = next(self.feed)
            with self.runtime.autocast(), self.sync(last=part == self.accumulate - 1):
                loss = (
                    self.net(ids, targets) / self.accumulate
                )  # rows are equally long: means may be averaged
                self.scaler.scale(loss).backward()
            total += loss.detach()
        loss = sum_over_ranks(total).item() / self.place.world
        norm = self.clipped_norm()
        figures = {"loss": loss, "gradient's norm": norm}
        # an fp16 gradient may overflow: the step is left out and the scale lowered, while there is one to lower
        if not math.isfinite(norm) and self.scaler.get_scale() > 1:
            del figures["gradient's norm"]
        check_finite(state.step + 1, figures, self.kept)
        if math.isfinite(norm):
            self.optimizer.step()
        self.scaler.update()
        self.optimizer.zero_grad()

        state.step, state.tokens = state.step + 1, state.tokens + config.tokens_per_step
        before, state.seconds = state.seconds, time.perf_counter() - self.clock
        if state.step == self.cold_until:
            state.start_up += state.seconds - before
        if self.plan.due(state.step, config.log_every):
            self.replan()
        return loss, norm

    def sync(self, last: bool) -> contextlib.AbstractContextManager[object]:
        """Gradients are averaged over the processes once a step: in the backward pass of its last part."""
        return contextlib.nullcontext() if last or self.net is self.model else self.net.no_sync()  # type: ignore

    def clipped_norm(self) -> float:
        """Clip the whole gradient to `optim.clip`; its norm before that."""
        if self.scaler.is_enabled():
            for part in self.optimizer.parts:
                self.scaler.unscale_(part)
        return nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optim.clip).item()

    def rate_share(self) -> float:
        """The share of the peak learning rate that the next step takes."""
        return multiplier(self.config.schedule, self.state.step, self.plan.steps(self.state.step))

    def replan(self) -> None:
        """With `schedule.max_minutes`: fit the number of steps to the time that is left."""
        state = self.state
        steps = planned_steps(state.step, state.seconds, state.start_up, self.plan.budget)
        steps = int(from_first_rank(steps, self.runtime.device))
        self.plan.revise(state.step, steps, write=self.place.first)

    def compile(self) -> None:
        """Compile the model's parts where the runtime says so; where that fails, go on without."""
        if self.runtime.compile:
            works = compile_parts(self.model, self.trial, self.say)
            self.runtime = dataclasses.replace(self.runtime, compile=works)

    def trial(self) -> Tensor:
        """A loss to try the compiler on."""
        ids = torch.zeros(self.feed.loader.batch, self.config.model.context, dtype=torch.int64)
        with self.runtime.autocast():
            return self.model(ids.to(self.runtime.device), ids.to(self.runtime.device))

    def evaluate(self) -> dict[str, float]:
        """Score the held-out rows, and note whether the loss is the lowest so far."""
        scores, state = self.held_out.evaluate(self.model, self.runtime), self.state
        check_finite(state.step, {"held-out loss": scores["valid_loss"]}, self.kept)
        better = state.best is None or scores["valid_loss"] < state.best
        state.best = scores["valid_loss"] if better else state.best
        state.stale = 0 if better else state.stale + 1
        state.scores, state.scored_at = scores, state.step
        return scores

    def kept(self) -> str:
        """A sentence on what is left when a run must stop."""
        latest = self.run / "latest"
        return (
            f"The last good checkpoint is {latest}." if latest.is_file() else "No checkpoint was saved yet."
        )

    def due(self, *every: int) -> bool:
        """Whether something that is done every so many steps, and at the end, is to be done now."""
        return self.finished or any(self.state.step % n == 0 for n in every)

    @property
    def finished(self) -> bool:
        patience = self.config.early_stop
        enough = 0 < patience <= self.state.stale
        return enough or self.state.step >= self.plan.steps(self.state.step)

    def told_to(self, stop: StopWish | None) -> bool:
        """Whether a signal asks any of the processes to stop."""
        signal = torch.tensor(float(stop.signal if stop else 0), device=self.runtime.device)
        return sum_over_ranks(signal).item() > 0

    def say(self, text: str) -> None:
        """Tell people, if anybody listens. A reader that went away (head, a full disk) is no reason to lose a run."""
        if not self.quiet:
            try:
                print(text, flush=True)
            except OSError as error:
                self.quiet = True
                close_output()
                print(f"warning: cannot print: {error.strerror}; training goes on unheard", file=sys.stderr)

    # ------------------------------------------------------------------------------------------------ to the disk

    @contextlib.contextmanager
    def processes(self) -> Iterator[None]:
        """Be one of torchrun's processes, and let go of DDP before leaving them.

        Were its reducer the last to hold the process group, its end would wait, with Python's lock in hand, for a
        thread of the group that waits for this lock.
        """
        with process_group(self.place, self.runtime.device):
            try:
                yield
            finally:
                self.net = self.model
                gc.collect()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run folder for writing; the first process does so for all. Raises UserError."""
        with contextlib.ExitStack() as held:
            self.first_does(lambda: held.enter_context(run_folder.run_lock(self.run)))
            yield

    def open_folder(self, fresh: bool) -> None:
        """Sweep the run folder, and check that what it holds is this run. Raises UserError."""
        self.first_does(lambda: open_run_folder(self.config, self.data, self.tokenizer, self.say, fresh))

    def sign_folder(self, latest: Path | None) -> None:
        """Write config.yaml and tokenizer.json, and put right what a kill left undone. Raises UserError."""
        if latest:
            self.note_best(latest)  # where a kill came between a save and this note
        with run_folder.writing(self.run):
            files.write_file(self.run / "config.yaml", dump_yaml(self.config), durable=True)
            self.tokenizer.save(self.run)
            if not latest:
                self.plan.path.unlink(missing_ok=True)  # of a life that ended before its first save

    def first_does(self, work: Callable[[], object]) -> None:
        """Let the first process do what must be done once. Where it refuses, all raise UserError, and none waits."""
        refusal = None
        try:
            if self.place.first:
                work()
        except UserError as error:
            refusal = error
        if from_first_rank(float(refusal is not None), self.runtime.device):
            raise refusal or UserError("the first process has said what is wrong")

    def save(self, last: bool = False) -> None:
        """Save a checkpoint and prune the old ones, unless the newest already holds this step and its scores.

        While the run goes on, a full disk is a warning, not its end.
        """
        now = (self.state.step, self.state.scored_at)
        if not self.place.first or self.saved == now:
            return
        try:
            folder = run_folder.save_step(
                self.run, self.state.step, self.model, self.optimizer, self.record()
            )
            self.saved = now
            self.note_best(folder)
            run_folder.prune(self.run, self.config.keep)
        except UserError as error:
            if last or self.finished:
                raise
            print(f"warning: {error}", file=sys.stderr)

    def note_best(self, folder: Path) -> None:
        """Let `best` name this checkpoint, where it is the best of those that are saved."""
        try:
            run_folder.point_best(self.run, folder)
        except OSError as error:
            print(
                f"warning: cannot write {self.run / 'best'}: {error.strerror}; going on without",
                file=sys.stderr,
            )

    def adopt(self, fresh: bool = False) -> None:
        """Take over the weights that `init_from` names, unless this run goes on from a checkpoint of its own.

        Raises UserError where the other run's tokenizer or shape is another.
        """
        if not self.config.init_from or (runs.complete_steps(self.run) and not fresh):
            return
        path = Path(self.config.init_from)
        source = runs.load_run(path, build_model)
        theirs, ours = shape(source.model.config), shape(self.config.model)  # type: ignore[arg-type]
        if source.folder.resolve() == self.run.resolve():
            raise UserError(f"init_from={path} is this run itself; give the new one another name=...")
        if source.tokenizer.sha256 != self.tokenizer.sha256:
            raise UserError(
                f"init_from={path} was trained with another tokenizer than that of {self.data.folder}; "
                f"prepare the data with its own: {verb('prepare')} --tokenizer {source.folder} ..."
            )
        if theirs["vocab_size"] != ours["vocab_size"]:
            raise UserError(
                f"init_from={path} has {theirs['vocab_size']} rows for the {ours['vocab_size']} tokens of its "
                "tokenizer; a padded model can be sampled and measured, not trained on"
            )
        differing = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        if differing:
            given = {key: json.dumps(theirs[key]).strip('"') for key in differing if key in theirs}
            settings = " ".join(f"model.{key}={value}" for key, value in given.items())
            raise UserError(
                f"init_from={path} holds a model of another shape; give this run its own: {settings}"
            )
        self.model.load_state_dict(source.model.state_dict())

    def resume(self) -> Path | None:
        """Go back to the newest checkpoint, where there is one; gives its folder."""
        if not runs.complete_steps(self.run):
            return None
        latest = runs.find_step(self.run, "latest", self.say)
        self.load(latest)
        return latest

    def load(self, folder: Path) -> None:
        """Go back to a checkpoint. Raises UserError when it is damaged or belongs to other data."""
        saved = read_training(folder)
        refuse_other_data(saved, self.data, self.tokenizer)
        self.model.load_state_dict(runs.read_tensors(folder, "model.safetensors"))
        run_folder.load_optimizer(self.optimizer, folder)
        self.feed.load_state(saved["loader"])
        self.plan.load()
        if saved["scaler"]:
            self.scaler.load_state_dict(saved["scaler"])
        kept = {field.name: saved[field.name] for field in dataclasses.fields(State)}
        self.state = State(**{**kept, "advisor": AdvisorState(**saved["advisor"])})
        self.saved = (self.state.step, self.state.scored_at)

    def changed(self, saved: dict[str, Any]) -> list[str]:
        """What of the arithmetic is another than in a checkpoint's state, so that last bits may differ."""
        now, before = self.facts()["runtime"], saved["runtime"]
        return [
            f"{key} {before[key]} -> {now[key]}" for key in now if key in before and now[key] != before[key]
        ]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the run, the optimizer's with a word before their names."""
        optimizer = {f"optimizer {name}": tensor for name, tensor in self.optimizer.tensors().items()}
        return {**run_folder.model_tensors(self.model), **optimizer}

    def record(self) -> dict[str, Any]:
        """What state.json holds besides the hashes of the tensors."""
        return {
            **dataclasses.asdict(self.state),
            **self.state.scores,
            "model": dataclasses.asdict(self.config.model),
            "loader": self.feed.state,
            "scaler": self.scaler.state_dict(),
            **self.facts(),
            "versions": passport.versions(),
        }

    def facts(self) -> dict[str, Any]:
        """What the arithmetic and the data are, for state.json and the passport."""
        layout = {"batch": self.feed.loader.batch, "accumulate": self.accumulate, "world": self.place.world}
        return {
            "runtime": {**self.runtime.bits, **layout},
            "data_sha256": {split: self.data.split(split).sha256 for split in ("train", "valid")},
            "tokenizer_sha256": self.tokenizer.sha256,
        }


class Feed:
    """Batches on the device, one ahead: a GPU gets the next one while it works on this one.

    `state` is the loader's place of the next batch that is handed out.
    """

    def __init__(self, loader: RowLoader, device: torch.device) -> None:
        self.loader, self.device = loader, device
        self.state, self.ahead = loader.state(), None

    def __next__(self) -> tuple[Tensor, Tensor]:
        batch = self.ahead or self.fetch()
        self.state, self.ahead = self.loader.state(), self.fetch()
        return batch

    def load_state(self, state: dict[str, int]) -> None:
        self.loader.load_state(state)
        self.state, self.ahead = self.loader.state(), None

    def fetch(self) -> tuple[Tensor, Tensor]:
        ids, targets = (torch.from_numpy(part) for part in next(self.loader))
        if self.device.type == "cuda":
            ids, targets = ids.pin_memory(), targets.pin_memory()
        return ids.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)


# ---------------------------------------------------------------------------------------------------- the run folder


def shape(model: GPTConfig | WindowMLPConfig) -> dict[str, Any]:
    """The settings that a model's weights depend on: all but the context, and none left to a default."""
    explicit = {"n_kv_head": model.kv_heads, "d_mlp": model.hidden} if isinstance(model, GPTConfig) else {}
    settings = {**dataclasses.asdict(model), **explicit}
    return {key: value for key, value in settings.items() if key != "context"}


def fit_to_data(config: TrainConfig, data: Data, tokenizer: Tokenizer) -> TrainConfig:
    """The config with the vocabulary and ◆ of the data. Raises UserError when the two do not belong together."""
    data.check_tokenizer(tokenizer.name, tokenizer.sha256)
    found = {"vocab_size": data.vocab_size, "start_id": tokenizer.start_id}
    for name, number in found.items():
        came = getattr(config.model, name)
        if came not in (number, getattr(type(config.model), name)):  # neither the data's nor the default
            raise UserError(
                f"model.{name}={came}, but in {data.folder} it is {number}; it is taken from the data: leave it out"
            )
    model = dataclasses.replace(config.model, **found)
    return dataclasses.replace(config, model=model)


def renamed(config: TrainConfig, run: Path, hint: str) -> TrainConfig:
    """The config of a run that lies in the folder `run`. Raises UserError for a name that a run cannot have."""
    try:
        return dataclasses.replace(config, out=str(run.parent), name=run.name)
    except ValueError as error:
        raise UserError(f"{error}; {hint}") from None


def open_run_folder(
    config: TrainConfig, data: Data, tokenizer: Tokenizer, say: Callable[[str], None], fresh: bool
) -> None:
    """Sweep the run folder, or empty it; refuse one that holds a run that this one would spoil."""
    with run_folder.writing(config.folder):
        run_folder.sweep(config.folder)
        if fresh and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":  # a restarted worker goes on
            run_folder.clear(config.folder)
    refuse_other_run(config, data, tokenizer, say)


# What may change from one start of a run to the next; batch and accumulate are compared by their product.
FREE = (
    "tokens",
    "runtime",
    "data",
    "out",
    "name",
    "batch",
    "accumulate",
    "eval_every",
    "sample_tokens",
)
FREE = (*FREE, "probe", "early_stop", "save_every", "log_every", "keep", "tensorboard")


def refuse_other_run(
    config: TrainConfig, data: Data, tokenizer: Tokenizer, say: Callable[[str], None]
) -> None:
    """Raise UserError when the run folder holds checkpoints that this run could not go on from."""
    run = config.folder
    if not (steps := sorted(run.glob("step-*"))):
        return
    missing = ""
    if not runs.complete_steps(run):
        missing = f"{steps[-1]} has no state.json, and there is no other checkpoint"
    elif not (run / "config.yaml").is_file():
        missing = f"{run} holds checkpoints, but no config.yaml to say of what"
    if missing:
        raise UserError(
            f"{missing}; put it back, give this run another name=..., or replace the old one with --fresh"
        )
    refuse_other_config(config, run, say)
    latest = runs.find_step(run, "latest", lambda _: None)
    refuse_other_data(read_training(latest), data, tokenizer)
    runs.read_pointer(run, "best")
    read_metrics(run / "metrics.jsonl")


def read_training(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint that a training can go on from. Raises UserError for one that was imported."""
    saved = runs.read_state(folder)
    needed = ["loader", "scaler", "runtime", "data_sha256", "tokenizer_sha256"]
    missing = [key for key in [*needed, *State.__dataclass_fields__] if key not in saved]
    if missing or "optimizer.safetensors" not in saved["sha256"]:
        what = missing[0] if missing else "optimizer.safetensors"
        raise UserError(
            f"{folder} is no checkpoint to train on from ({what} is not in its state.json); "
            f"begin a run of another name with its weights: name=... init_from={folder.parent}"
        )
    return saved


def refuse_other_config(config: TrainConfig, run: Path, say: Callable[[str], None]) -> None:
    """Raise UserError when a run of that name was made with settings that would have given another result.

    The data are compared by their hashes (see refuse_other_data), batch and accumulate by their product.
    """
    new, old = (dataclasses.asdict(c) for c in (config, load_config(TrainConfig, run / "config.yaml")))
    if Path(new["init_from"]).resolve() == Path(old["init_from"]).resolve():
        old["init_from"] = new["init_from"]
    changed = [text for key in new if key not in FREE for text in differences(key, old[key], new[key])]
    rows = old["batch"] * old["accumulate"]
    if rows != config.batch * config.accumulate:
        changed.append(f"batch x accumulate: {rows} rows a step, now {config.batch * config.accumulate}")
    if changed:
        raise UserError(
            f"{run} holds a run with other settings ({', '.join(changed)}); "
            f"give this one another name=..., or replace the old one with --fresh"
        )
    if old["tokens"] != config.tokens:
        say(f"resume   planned for {old['tokens']:,} tokens, from here on for {config.tokens:,}")


def differences(key: str, old: Any, new: Any) -> list[str]:
    """What differs between two values of a setting, dotted, as `key: old, now new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(name for name in new if name not in old)]
        return [text for name in keys for text in differences(f"{key}.{name}", old.get(name), new.get(name))]
    return [] if old == new else [f"{key}: {json.dumps(old)}, now {json.dumps(new)}"]


def refuse_other_data(saved: dict[str, Any], data: Data, tokenizer: Tokenizer) -> None:
    """Raise UserError when a checkpoint was trained on other shards or with another tokenizer than those here."""
    if saved["tokenizer_sha256"] != tokenizer.sha256:
        raise UserError(
            f"{data.folder} has another tokenizer than this run was trained with; put the right one back"
        )
    for name, wanted in saved["data_sha256"].items():
        if data.split(name).sha256 != wanted:
            raise UserError(
                f"the {name} shards in {data.folder} are not those of this run (their hash differs); "
                "put the right ones back, or begin anew with another name=..."
            )


# ---------------------------------------------------------------------------------------------------- --check


def check(config: TrainConfig, fresh: bool = False, steps: int = 5) -> None:
    """Print what a run will be and cost, and what is wrong with it, from a few timed steps. Writes nothing."""
    training = Training(config, Ranks())
    config = training.config
    if not fresh:
        refuse_other_run(config, training.data, training.tokenizer, print)
        training.resume()
    training.adopt(fresh)
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
    fit = round((budget - start_up) / seconds) if budget else config.steps
    total = min(config.steps - done, max(1, fit))
    rows = training.feed.loader.rows_per_epoch()
    parameters = sum(p.numel() for p in training.model.parameters())
    state_bytes = 4 * sum(
        t.numel() for t in [*training.model.parameters(), *training.optimizer.tensors().values()]
    )
    there = next(path for path in (training.run, *training.run.parents) if path.exists())
    outlook = Outlook(
        parameters=parameters,
        tokens=(done + total) * config.tokens_per_step,
        epochs=(done + total) * config.batch * config.accumulate / rows,
        held_out_rows=training.held_out.rows,
        seconds=seconds * total,
        memory=peak_memory(training.runtime.device),
        memory_there=machine_memory(training.runtime.device),
        disk=state_bytes * (min(config.keep, total) + 1),
        disk_there=shutil.disk_usage(there).free,
        lr=config.optim.lr,
        steps=done + total,
        warmup_steps=config.schedule.warmup_steps,
        save_every=config.save_every,
    )
    peak = measure_peak(training.runtime)
    first = f"step {done + 1:,}" if done else "the first step"
    print(
        f"size     {outlook.tokens / parameters:.1f} tokens a parameter, {outlook.epochs:.2f} epochs, "
        f"{training.feed.loader.left_out_share:.1%} of an epoch's tokens are left out at row ends\n"
        f"loss     {losses[0]:.3f} at {first} (ln V = {math.log(config.model.vocab_size):.3f}), "
        f"{losses[-1]:.3f} at step {done + steps:,}\n"
        f"speed    {config.tokens_per_step / seconds:,.0f} tokens/s, "
        f"{config.tokens_per_step / seconds * training.flops / peak:.0%} of this machine's matmul peak\n"
        f"time     {outlook.seconds / 60:,.1f} minutes for {total:,} steps\n"
        f"memory   {gigabytes(outlook.memory)} at most; checkpoints {gigabytes(outlook.disk)} on the disk"
    )
    for line in objections(outlook) or ["nothing that was looked for is wrong"]:
        print(f"check    {line}")


# ---------------------------------------------------------------------------------------------------- --verify-resume


def verify_resume(run: Path, most: int = 20) -> bool:
    """Train a few steps from a checkpoint, once straight and once with a save and a fresh start in the middle.

    Both must give the same bits, those of the next saved checkpoint, and the losses of metrics.jsonl. Prints
    "identical", or the first thing that differs; gives whether all is identical. Raises UserError without a run.
    """
    run = runs.find_step(run).parent  # a step names its run
    run = run if run.name.strip(".") else run.resolve()
    start, *later = runs.complete_steps(run)[-2:]
    first = runs.read_state(start)["step"]
    config = renamed(settings_at(run, first), run, "rename the folder")
    reach = runs.read_state(later[0])["step"] - first if later else most + 1
    steps = reach if reach <= most else max(2, min(most, config.log_every))

    straight, losses = retrain(config, start, steps)
    half, losses_before = retrain(config, start, steps // 2)
    with tempfile.TemporaryDirectory() as folder:
        middle = run_folder.save_step(
            Path(folder), half.state.step, half.model, half.optimizer, half.record()
        )
        resumed, losses_after = retrain(config, middle, steps - steps // 2)

    reference = run_folder.first_difference
    found: list[str | None] = []
    if straight.feed.state != resumed.feed.state:
        found.append(f"the next row is {resumed.feed.state} after resuming, {straight.feed.state} without")
    found.append(reference(straight.tensors(), resumed.tensors()))
    found += differing_losses(losses, {**losses_before, **losses_after}, "after resuming")
    logged = {r["step"]: r["loss"] for r in read_metrics(run / "metrics.jsonl") if "loss" in r}
    made = [straight.changed(read_training(folder)) for folder in (start, *later)]
    if changed := max(made, key=len):
        print(f"note     the run had other arithmetic ({', '.join(changed)}): compared with itself alone")
        logged, reach = {}, 0
    found += differing_losses(losses, logged, "in metrics.jsonl")
    if reach == steps:
        found.append(reference(straight.tensors(), saved_tensors(later[0])))
    differences = [text for text in found if text]
    compared = f"{len(losses.keys() & logged.keys())} logged losses"
    if reach == steps:
        compared += f", {later[0].name}"
    print(
        f"{start}: {steps} steps straight on; {steps // 2} and {steps - steps // 2} with a resume; {compared}"
    )
    print(f"different: {differences[0]}" if differences else "identical")
    return not differences


def settings_at(run: Path, step: int) -> TrainConfig:
    """The settings with which the run went on from this step: its passport's, else (older runs) its config.yaml's."""
    for start in reversed(passport.read_starts(run)):
        if isinstance(start, dict) and "config" in start and start.get("step", 0) <= step:
            return validate(TrainConfig, start["config"], str(run / "passport.json"))
    return load_config(TrainConfig, run / "config.yaml")


def retrain(config: TrainConfig, start: Path, steps: int) -> tuple[Training, dict[int, float]]:
    """A new training, taken from a checkpoint `steps` further; and its losses by step. Writes nothing."""
    training = Training(config, Ranks(), quiet=True)
    training.load(start)
    training.plan.budget = 0.0  # the plans of the run hold, no new ones are made
    training.compile()
    losses = {}
    for _ in range(steps):
        loss, _ = training.step()
        losses[training.state.step] = loss
    return training, losses


def saved_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, under the names that Training.tensors gives them."""
    optimizer = runs.read_tensors(folder, "optimizer.safetensors")
    model = runs.read_tensors(folder, "model.safetensors")
    return {**model, **{f"optimizer {name}": tensor for name, tensor in optimizer.items()}}


def differing_losses(mine: dict[int, float], other: dict[int, float], where: str) -> list[str]:
    return [
        f"the loss of step {step} is {other[step]!r} {where}, {mine[step]!r} without"
        for step in mine
        if step in other and mine[step] != other[step]
    ]


# ---------------------------------------------------------------------------------------------------- command line


def main(argv: Sequence[str]) -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "config",
        nargs="?",
        help="a YAML file, or a built-in name such as rostok, gpt-1, window-mlp, quickstart",
    )
    parser.add_argument(
        "words", nargs="*", metavar="key=value", help="settings that override the file, dotted"
    )
    parser.add_argument("--fresh", action="store_true", help="replace the run instead of going on from it")
    parser.add_argument("--check", action="store_true", help="say what the run will be; train nothing")
    parser.add_argument(
        "--verify-resume",
        type=Path,
        metavar="RUN",
        help="train a few steps of a run again; are the bits the same?",
    )
    options = parser.parse_intermixed_args(argv)
    if options.verify_resume:
        if options.config:
            raise UserError(
                f"--verify-resume takes a run and nothing else. Got {options.config!r}; leave it out"
            )
        return 0 if verify_resume(options.verify_resume) else 1
    if not options.config:
        raise UserError(f"which config? Type {verb('train')} quickstart, or see {verb('train')} --help")
    path = find_config(options.config, Path(__file__).parent / "configs")
    config = load_config(TrainConfig, path, options.words)
    if config.name == TrainConfig.name:
        config = renamed(config, Path(config.out) / path.stem, "type name=...")
    run_folder.refuse_unwritable(config.folder)
    if options.check:
        check(config, options.fresh)
        return 0
    with stop_wish() as stop:
        train(config, options.fresh, stop=stop)
    return stop.exit_code


if __name__ == "__main__":
    raise SystemExit(run_main(main))
