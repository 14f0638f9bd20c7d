"""Train a model from a YAML config. This file, read from top to bottom, says what training is.

    python train.py configs/quickstart.yaml                       # or a built-in name: python train.py quickstart
    python train.py configs/rostok.yaml optim.lr=3e-4 model.n_layer=4 name=small
    python train.py configs/rostok.yaml                           # again: goes on from the newest checkpoint
    python train.py configs/rostok.yaml --fresh                   # begin again, the old run is replaced
    python train.py rostok-mini init_from=checkpoints/rostok-mini name=mine data.path=data/mine   # from trained weights
    python train.py quickstart --grid seed=0,1,2 optim.lr=1e-3,3e-3   # six runs, one after the other, and their table
    python train.py --settings warmup                             # the settings that speak of it; without a word: all
    python train.py configs/rostok.yaml --check                   # what it will cost and what is wrong; writes nothing
    python train.py --verify-resume checkpoints/rostok            # prove that a resumed run has the same bits
    torchrun --nproc-per-node 8 train.py configs/rostok.yaml      # see docs/distributed.md

The run lands in checkpoints/NAME (see rostok/runs.py). Make the data first: python prepare.py --help
"""

from rostok.errors import parse_early
from rostok.training.options import options_of

if __name__ == "__main__":  # --help and wrong words need not wait for torch
    parse_early(lambda argv: options_of(argv, __doc__))

import contextlib
import dataclasses
import gc
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn

from model import GPTConfig, WindowMLPConfig, build_model
from rostok.devices import choose_device, machine_memory
from rostok.errors import UserError, run_main
from rostok.runs import load_run
from rostok.text.shards import open_data, verify
from rostok.text.tokenizer import load_tokenizer
from rostok.training import folder as run_folder
from rostok.training import passport
from rostok.training.advisor import AdvisorState, check_finite
from rostok.training.config import Folder, dump_yaml, find_config, load_config, renamed
from rostok.training.console import Console, Speaker
from rostok.training.folder import Checkpoint, load_init_weights, open_checkpoint, refuse_other_data
from rostok.training.grid import cells, run_grid
from rostok.training.head_probe import ProbeConfig, check_probes
from rostok.training.heldout import HeldOut
from rostok.training.loader import Feed, RowLoader
from rostok.training.metrics import board_writer
from rostok.training.optim import OptimConfig, build_optimizer
from rostok.training.preflight import check, fit_to_data, refuse_what_cannot_fit, refuse_without_effect
from rostok.training.proof import verify_resume
from rostok.training.ranks import Ranks, from_first_rank, on_rank_zero, process_group, ranks, sum_over_ranks
from rostok.training.runtime import RuntimeConfig, choose_runtime, compile_parts, flops_per_token
from rostok.training.schedule import ScheduleConfig, StepPlan, check_schedule, multiplier, planned_steps
from rostok.training.settings import tell_settings
from rostok.training.signals import StopWish, stop_wish

# ---------------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class DataConfig:
    """The folder of token shards that prepare.py made."""

    path: Annotated[Folder, "the folder that prepare.py wrote"] = "data/stories"
    verify: Annotated[bool, "read every shard and compare its hash before the first step"] = True


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. `vocab_size` and `start_id` of the model are taken from the data."""

    name: Annotated[str, "the run folder is OUT/NAME"] = "run"
    out: Annotated[Folder, "the folder of run folders"] = "checkpoints"
    data: DataConfig = field(default_factory=DataConfig)
    model: Annotated[GPTConfig | WindowMLPConfig, Field(discriminator="kind")] = GPTConfig()  # noqa: RUF009
    init_from: Annotated[Folder, "a run whose weights this one begins with; empty: random ones"] = ""
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    tokens: Annotated[int, Field(ge=1, le=10**15), "the length of the run, to the nearest step"] = 6_000_000
    batch: Annotated[int, Field(ge=1), "rows of `context` tokens in one forward pass"] = 8
    accumulate: Annotated[int, Field(ge=1), "forward passes in one step"] = 1
    seed: Annotated[int, Field(ge=0, le=2**63 - 1), "of the first weights and the order of the rows"] = 0
    eval_every: Annotated[int, Field(ge=1), "steps between two measurements of the validation loss"] = 100
    eval_rows: Annotated[int, Field(ge=1), "held-out rows that it is measured on"] = 64
    sample_tokens: Annotated[int, Field(ge=0, le=10_000), "tokens written then, to look at; 0: none"] = 40
    early_stop: Annotated[int, Field(ge=0), "end after so many of them without a new best; 0: never"] = 0
    save_every: Annotated[int, Field(ge=1), "steps between two checkpoints"] = 200
    log_every: Annotated[int, Field(ge=1), "steps between two records of the training loss"] = 10
    keep: Annotated[int, Field(ge=1), "newest checkpoints that are kept, besides the best"] = 2
    tensorboard: Annotated[bool, "also write RUN/tensorboard (pip install 'rostok[tensorboard]')"] = False

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
    """Train, or go on training, the run that `config` describes. Returns the run folder. Raises UserError.

    fresh: replace the run that is there. stop: when a signal has come, the run is saved after the step and left.
    """
    training = Training(config, ranks(), quiet)
    config = training.config
    with training.processes(), training.lock():
        training.begin(fresh)
        console = Console(training)
        while not training.finished and not training.stop_requested(stop):
            loss, norm = training.step()
            console.after_step(loss, norm)
            if training.due(config.eval_every, config.save_every):
                console.after_evaluation(training.evaluate())
            if training.due(config.save_every):
                training.save()
        # on resuming with a shorter plan the last checkpoint may be one that was never scored
        if training.finished and training.state.scored_at != training.state.step:
            console.after_evaluation(training.evaluate())
        training.save(last=True)
        console.close(stop)
    return training.run


@dataclass
class State:
    """All of a run that is neither weights nor optimizer, as it is saved in state.json."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    start_up: float = 0.0  # those of them that went into compiling and first steps, once a start
    best: float | None = None  # the lowest validation loss
    stale: int = 0  # evaluations since then
    scored_at: int = 0  # the step of `scores`
    scores: dict[str, float] = field(default_factory=dict)
    advisor: AdvisorState = field(default_factory=AdvisorState)


class Training:
    """A run in training: model, optimizer, data and state, and what is done with them."""

    def __init__(self, config: TrainConfig, ranks: Ranks, quiet: bool = False) -> None:
        self.ranks, self.say = ranks, Speaker(quiet or not ranks.first)
        self.clock = time.perf_counter()
        self.data = (verify if config.data.verify else open_data)(Path(config.data.path))
        self.tokenizer = load_tokenizer(Path(config.data.path))
        self.config = config = fit_to_data(config, self.data, self.tokenizer)
        self.run = config.folder
        check_schedule(config.schedule, config.steps)
        if config.tensorboard:
            board_writer()
        if config.probe.every and isinstance(config.model, GPTConfig):
            check_probes(config.model.context, self.tokenizer)

        batch, self.accumulate = ranks.share(config.batch, config.accumulate)
        device, _ = choose_device(config.runtime.device, ranks.local)
        refuse_what_cannot_fit(config.model, batch, machine_memory(device))
        self.model = build_model(config.model)
        self.model.init_weights(torch.Generator().manual_seed(config.seed))
        self.flops = flops_per_token(self.model)
        minutes = config.schedule.max_minutes
        self.runtime = choose_runtime(config.runtime, self.flops * config.tokens, ranks.local, minutes)
        self.model.to(self.runtime.device).train()
        self.net: nn.Module = self.model  # what a step calls: the model, or DDP's wrapper around it
        self.optimizer = build_optimizer(self.model, config.optim, self.runtime.native_bf16)
        self.scaler = self.runtime.scaler()

        split, context = self.data.split("train"), config.model.context
        loader = RowLoader(split, context, batch, config.seed, ranks.rank, ranks.world)
        self.feed = Feed(loader, self.runtime.device)
        valid = self.data.split("valid")
        self.held_out = HeldOut(valid, self.tokenizer, context, config.eval_rows, batch, ranks)
        self.plan = StepPlan(self.run / "plan.json", config.schedule, config.steps)
        self.state = State()
        self.saved: tuple[int, int] | None = None  # step and scored_at of the newest checkpoint
        self.cold_until = 0  # first step after warm-up; earlier ones are not counted in the speed

    def begin(self, fresh: bool) -> None:
        """Go on from the newest checkpoint or begin; write the run's files; compile; join the other processes."""
        fresh &= os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"  # a restarted worker goes on
        ranks, device, files = self.ranks, self.runtime.device, (dump_yaml(self.config), self.tokenizer)
        on_rank_zero(ranks, device, lambda: run_folder.put_back(self.run))
        checkpoint = self.open(fresh)
        # only now: nothing is refused any more
        on_rank_zero(ranks, device, lambda: run_folder.sweep(self.run))
        on_rank_zero(ranks, device, lambda: run_folder.write_run_files(self.run, *files, checkpoint, fresh))
        if not self.finished:
            self.compile()
        if checkpoint and (changed := passport.changed(self.provenance(), checkpoint.state)):
            self.say(f"note     goes on with {', '.join(changed)}: the same rows, but other last bits")
        if ranks.world > 1:
            devices = [device] if device.type == "cuda" else None
            self.net = nn.parallel.DistributedDataParallel(self.model, device_ids=devices)
        self.clock -= self.state.seconds
        self.cold_until = self.state.step + 1
        if ranks.first:
            config = dataclasses.asdict(self.config)
            passport.stamp(self.run, self.state.step, {"config": config, **self.provenance()})

    def open(self, fresh: bool) -> Checkpoint | None:
        """Load the newest checkpoint of the run folder, where there is one, else the weights of `init_from`.

        Writes nothing. Raises UserError when the folder holds another run, or either cannot be loaded.
        """
        config = self.config
        checkpoint = None if fresh else open_checkpoint(config, self.say)
        if checkpoint:
            self.load(checkpoint)
        elif config.init_from:
            source = load_run(config.init_from, build_model)
            load_init_weights(config, source, self.model, self.data, self.tokenizer)
        return checkpoint

    def load(self, checkpoint: Checkpoint) -> None:
        """Go back to a checkpoint. Raises UserError when it is damaged or belongs to other data."""
        saved = checkpoint.state
        refuse_other_data(saved, self.data, self.tokenizer)
        checkpoint.load_weights(self.model)
        self.optimizer.load_tensors(checkpoint.tensors("optimizer.safetensors"))
        self.feed.load_state(saved["loader"])
        self.plan.load()
        if saved["scaler"]:
            self.scaler.load_state_dict(saved["scaler"])
        values = {field.name: saved[field.name] for field in dataclasses.fields(State)}
        self.state = State(**{**values, "advisor": AdvisorState(**saved["advisor"])})
        self.saved = (self.state.step, self.state.scored_at)

    def compile(self) -> None:
        """Compile the model's parts where the runtime says so; where that fails, go on without."""
        if self.runtime.compile:
            works = compile_parts(self.model, self.runtime, self.feed.loader.batch, self.say)
            self.runtime = dataclasses.replace(self.runtime, compile=works)

    def step(self) -> tuple[float, float]:
        """One step: the mean loss over all its rows (nats per token) and the gradient's norm before clipping.

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
        loss = sum_over_ranks(total).item() / self.ranks.world
        norm = self.clipped_norm()
        figures = {"loss": loss, "gradient's norm": norm}
        # an fp16 gradient may overflow: the step is left out and the scale lowered, while there is one to lower
        if not math.isfinite(norm) and self.scaler.get_scale() > 1:
            del figures["gradient's norm"]
        check_finite(state.step + 1, figures, self.run)
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

    def rate_share(self) -> float:
        """The share of the peak learning rate that the next step takes."""
        return multiplier(self.config.schedule, self.state.step, self.plan.steps(self.state.step))

    def sync(self, last: bool) -> contextlib.AbstractContextManager[object]:
        """Gradients are averaged over the processes once a step: in the backward pass of its last part."""
        return contextlib.nullcontext() if last or self.net is self.model else self.net.no_sync()  # type: ignore

    def clipped_norm(self) -> float:
        """Clip the whole gradient to `optim.clip`; its norm before that."""
        if self.scaler.is_enabled():
            for part in self.optimizer.parts:
                self.scaler.unscale_(part)
        return nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optim.clip).item()

    def replan(self) -> None:
        """With `schedule.max_minutes`: fit the number of steps to the time that is left."""
        state = self.state
        steps = planned_steps(state.step, state.seconds, state.start_up, self.plan.budget)
        steps = int(from_first_rank(steps, self.runtime.device))
        self.plan.revise(state.step, steps, write=self.ranks.first)

    def evaluate(self) -> dict[str, float]:
        """Score the held-out rows, and note whether the validation loss is the lowest so far."""
        scores, state = self.held_out.evaluate(self.model, self.runtime), self.state
        check_finite(state.step, {"validation loss": scores["valid_loss"]}, self.run)
        better = state.best is None or scores["valid_loss"] < state.best
        state.best = scores["valid_loss"] if better else state.best
        state.stale = 0 if better else state.stale + 1
        state.scores, state.scored_at = scores, state.step
        return scores

    def save(self, last: bool = False) -> None:
        """Save a checkpoint and prune the old ones, unless the newest already holds this step and its scores.

        While the run goes on, a full disk is a warning, not its end.
        """
        now = (self.state.step, self.state.scored_at)
        if not self.ranks.first or self.saved == now:
            return
        try:
            record = self.record()
            checkpoint = run_folder.save_step(self.run, self.state.step, self.model, self.optimizer, record)
            self.saved = now
            run_folder.point_best(self.run, checkpoint)
            run_folder.prune(self.run, self.config.keep)
        except UserError as error:
            if last or self.finished:
                raise
            print(f"warning: {error}", file=sys.stderr)

    def record(self) -> dict[str, Any]:
        """What state.json holds besides the hashes of the tensors."""
        return {
            **dataclasses.asdict(self.state),
            **self.state.scores,
            "model": dataclasses.asdict(self.config.model),
            "loader": self.feed.state,
            "scaler": self.scaler.state_dict(),
            **self.provenance(),
            "versions": passport.versions(),
        }

    def provenance(self) -> dict[str, Any]:
        """The arithmetic and the data of the run, for state.json and the passport."""
        layout = {"batch": self.feed.loader.batch, "accumulate": self.accumulate, "world": self.ranks.world}
        return passport.provenance({**self.runtime.fingerprint, **layout}, self.data, self.tokenizer)

    @property
    def finished(self) -> bool:
        patience = self.config.early_stop
        enough = 0 < patience <= self.state.stale
        return enough or self.state.step >= self.plan.steps(self.state.step)

    def due(self, *every: int) -> bool:
        """Whether something that is done every so many steps, and at the end, is to be done now."""
        return self.finished or any(self.state.step % n == 0 for n in every)

    def stop_requested(self, stop: StopWish | None) -> bool:
        """Whether a signal asks any of the processes to stop."""
        signal = torch.tensor(float(stop.signal if stop else 0), device=self.runtime.device)
        return sum_over_ranks(signal).item() > 0

    @contextlib.contextmanager
    def processes(self) -> Iterator[None]:
        """Join the process group. Drop the DDP wrapper before the group is destroyed.

        If DDP's reducer holds the last reference to the group, its destructor deadlocks: it holds the GIL while joining
        a thread that needs it.
        """
        with process_group(self.ranks, self.runtime.device):
            try:
                yield
            finally:
                self.net = self.model
                gc.collect()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run folder for writing; the first process does so for all. Raises UserError."""
        with contextlib.ExitStack() as held:
            on_rank_zero(
                self.ranks, self.runtime.device, lambda: held.enter_context(run_folder.run_lock(self.run))
            )
            yield


# ---------------------------------------------------------------------------------------------------- command line


def settings_of(path: Path, words: Sequence[str], ending: str = "") -> TrainConfig:
    """The settings of a run: a YAML file and words. A run without a name takes the file's, with `ending` behind it."""
    config = load_config(TrainConfig, path, words)
    refuse_without_effect(config, words)
    name = path.stem if config.name == TrainConfig.name else config.name
    if name + ending != config.name:
        config = renamed(config, Path(config.out) / (name + ending), "type name=...")
    run_folder.refuse_unwritable(config.folder)
    return config


def main(argv: Sequence[str]) -> int:
    options = options_of(argv, __doc__)
    if options.verify_resume:
        same = verify_resume(options.verify_resume, TrainConfig, lambda c: Training(c, Ranks(), quiet=True))
        return 0 if same else 1
    if options.schema or options.settings is not None:
        return tell_settings(TrainConfig, options.settings)
    path = find_config(options.config, Path(__file__).parent / "configs")
    if options.grid:
        command = [sys.executable, __file__, str(path), *options.words]
        grid = cells(options.grid, lambda words, ending: settings_of(path, [*options.words, *words], ending))
        with stop_wish() as stop:
            return run_grid(grid, command, stop)
    config = settings_of(path, options.words)
    if options.check:
        training = Training(config, Ranks())
        check(training, training.open(options.fresh))
        return 0
    with stop_wish() as stop:
        train(config, options.fresh, stop=stop)
    return stop.exit_code


if __name__ == "__main__":
    raise SystemExit(run_main(main))
