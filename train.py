"""Train a model from a YAML config. This file, read from top to bottom, says what training is.

    python train.py configs/quickstart.yaml                       # or a built-in name: python train.py quickstart
    python train.py configs/rostok.yaml optim.lr=3e-4 model.n_layer=4 name=small
    python train.py configs/rostok.yaml                           # again: goes on from the newest checkpoint
    python train.py configs/rostok.yaml --fresh                   # begin anew, the old run folder is replaced

The run lands in checkpoints/NAME (see rostok/checkpoint.py). Make the data first: python prepare.py --help
"""

import argparse
import dataclasses
import math
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from model import GPT, GPTConfig, WindowMLP, WindowMLPConfig, build_model
from rostok import checkpoint
from rostok.config import dump_yaml, find_config, load_config, read_yaml
from rostok.errors import UserError, run_main
from rostok.loader import RowLoader, evaluation_rows
from rostok.metrics import MetricsLog, plot_losses
from rostok.optim import OptimConfig, build_optimizer, set_rate
from rostok.runtime import Runtime, RuntimeConfig, choose_runtime
from rostok.schedule import ScheduleConfig, check_schedule, multiplier
from rostok.shards import Data, open_data
from rostok.tokenizer import Tokenizer, load_tokenizer

# ---------------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class DataConfig:
    """The folder of token shards that prepare.py made."""

    path: str = "data/stories"


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. `vocab_size` and `start_id` of the model are taken from the data."""

    name: str = "run"  # the run folder is OUT/NAME
    out: str = "checkpoints"
    data: DataConfig = field(default_factory=DataConfig)
    model: GPTConfig | WindowMLPConfig = field(default_factory=GPTConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    tokens: Annotated[int, Field(gt=0)] = 6_000_000  # training targets over the whole run
    batch: Annotated[int, Field(gt=0)] = 8  # rows of `context` tokens in one forward pass
    accumulate: Annotated[int, Field(gt=0)] = 1  # forward passes in one step
    seed: Annotated[int, Field(ge=0)] = 0
    eval_every: Annotated[int, Field(gt=0)] = 100  # steps
    eval_rows: Annotated[int, Field(gt=0)] = 64
    save_every: Annotated[int, Field(gt=0)] = 200  # steps
    log_every: Annotated[int, Field(gt=0)] = 10  # steps
    keep: Annotated[int, Field(gt=0)] = 2  # newest checkpoints that are kept, besides the best

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.accumulate * self.model.context

    @property
    def steps(self) -> int:
        return max(1, round(self.tokens / self.tokens_per_step))


# ---------------------------------------------------------------------------------------------------- training


def train(config: TrainConfig, fresh: bool = False, quiet: bool = False) -> Path:
    """Train, or go on training, the run that `config` describes. Gives the run folder. Raises UserError."""
    say = (lambda *_: None) if quiet else print
    runtime = choose_runtime(config.runtime)
    data = open_data(Path(config.data.path))
    tokenizer = load_tokenizer(Path(config.data.path))
    config = fit_to_data(config, data, tokenizer)
    check_schedule(config.schedule, config.steps)
    run = open_run_folder(config, tokenizer, fresh)

    model = build_model(config.model)
    model.init_weights(torch.Generator().manual_seed(config.seed))
    model.to(runtime.device).train()
    optimizer = build_optimizer(model, config.optim)
    loader = RowLoader(data.split("train"), config.model.context, config.batch, config.seed)
    held_out = HeldOut(data, tokenizer, config)
    state = resume(run, model, optimizer, loader) or {"step": 0, "tokens": 0, "seconds": 0.0, "best": None}
    log = MetricsLog(run / "metrics.jsonl", resume_at=state["step"])
    say(describe(config, runtime, model, state))

    batches = to_device(loader, runtime.device)
    bar = tqdm(
        total=config.steps, initial=state["step"], unit="step", disable=True if quiet else None, leave=False
    )
    started = time.perf_counter() - state["seconds"]
    for step in range(state["step"], config.steps):
        lr = config.optim.lr * multiplier(config.schedule, step, config.steps)
        set_rate(optimizer, lr)
        loss, norm = training_step(model, optimizer, batches, config, runtime)
        state["step"], state["tokens"] = step + 1, (step + 1) * config.tokens_per_step
        state["seconds"] = time.perf_counter() - started
        last = state["step"] == config.steps

        if last or state["step"] % config.log_every == 0:
            record = {"step": state["step"], "tokens": state["tokens"], "seconds": round(state["seconds"], 3)}
            log.write(**record, loss=loss, lr=lr, grad_norm=norm)
            bar.set_postfix_str(f"loss {loss:.3f}, {state['tokens'] / state['seconds']:,.0f} tokens/s")
        bar.update()
        if last or state["step"] % config.eval_every == 0:
            scores = held_out.evaluate(model, runtime)
            log.write(step=state["step"], tokens=state["tokens"], **scores)
            if not bar.disable or not quiet:
                bar.write(progress_line(config, state, loss, scores), file=sys.stdout)
        if last or state["step"] % config.save_every == 0:
            scores = held_out.evaluate(model, runtime)
            save(run, config, model, optimizer, loader, data, tokenizer, state, scores)
    bar.close()

    plot_losses({config.name: run / "metrics.jsonl"}, run / "loss.png")
    say(summary(run, config, state))
    return run


def training_step(
    model: GPT | WindowMLP,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor]],
    config: TrainConfig,
    runtime: Runtime,
) -> tuple[float, float]:
    """One step: the mean loss over all rows of the step (nats a token) and the gradient's norm before clipping."""
    total = torch.zeros((), device=runtime.device)
    for _ in range(config.accumulate):
        ids, targets = next(batches)
        with runtime.autocast():
            loss = (
                model(ids, targets) / config.accumulate
            )  # rows are equally long: the mean of means is the mean
        loss.backward()
        total += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.optim.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total.item(), norm.item()


def to_device(loader: RowLoader, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    for ids, targets in loader:
        yield torch.from_numpy(ids).to(device), torch.from_numpy(targets).to(device)


# ---------------------------------------------------------------------------------------------------- held-out text


class HeldOut:
    """A fixed set of held-out rows. compare.py has the full protocol; this is the running check."""

    def __init__(self, data: Data, tokenizer: Tokenizer, config: TrainConfig) -> None:
        self.ids, self.targets = evaluation_rows(data.split("valid"), config.model.context, config.eval_rows)
        self.batch = config.batch
        lengths = np.array([len(tokenizer.piece(i)) for i in range(tokenizer.vocab_size)])
        lengths[tokenizer.start_id] = 0  # ◆ is no text: it has no bytes, and bits per byte leave its nats out
        self.start_id, self.bytes = tokenizer.start_id, int(lengths[self.targets].sum())

    @torch.no_grad()
    def evaluate(self, model: GPT | WindowMLP, runtime: Runtime) -> dict[str, float]:
        """Loss (nats a token), perplexity and bits per byte; summed in float64."""
        model.eval()
        parts = []
        for first in range(0, len(self.ids), self.batch):
            ids = torch.from_numpy(self.ids[first : first + self.batch]).to(runtime.device)
            targets = torch.from_numpy(self.targets[first : first + self.batch]).to(runtime.device)
            with runtime.autocast():
                logits = model(ids)
            parts.append(
                F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none").cpu()
            )
        model.train()
        nats = torch.cat(parts).double().numpy()
        text_nats = nats[self.targets.flatten() != self.start_id].sum()
        loss = float(nats.mean())
        bits = float(text_nats / math.log(2) / max(1, self.bytes))
        return {"valid_loss": loss, "perplexity": math.exp(min(loss, 700.0)), "bits_per_byte": bits}


# ---------------------------------------------------------------------------------------------------- the run folder


def fit_to_data(config: TrainConfig, data: Data, tokenizer: Tokenizer) -> TrainConfig:
    """The config with the vocabulary and ◆ of the data. Raises UserError when the two do not belong together."""
    if tokenizer.sha256 != data.tokenizer_sha256:
        raise UserError(
            f"{data.folder}/tokenizer.json is not the one the shards were made with; prepare the data again"
        )
    model = dataclasses.replace(config.model, vocab_size=data.vocab_size, start_id=tokenizer.start_id)
    return dataclasses.replace(config, model=model)


def open_run_folder(config: TrainConfig, tokenizer: Tokenizer, fresh: bool) -> Path:
    """Make the run folder, or check that the one that is there is the same run. Raises UserError."""
    run = Path(config.out) / config.name
    if fresh:
        shutil.rmtree(run, ignore_errors=True)
    text = dump_yaml(config)
    try:
        run.mkdir(parents=True, exist_ok=True)
        if checkpoint.complete_steps(run) and (run / "config.yaml").is_file():
            refuse_other_config(config, run)
        checkpoint.write_text(run / "config.yaml", text)
        tokenizer.save(run)
    except OSError as error:
        raise UserError(
            f"cannot write the run folder {run}: {error}; choose another with out=FOLDER"
        ) from None
    return run


def refuse_other_config(config: TrainConfig, run: Path) -> None:
    """Raise UserError when a run of that name was made with other settings that would change its result."""
    free = ("tokens", "runtime", "eval_every", "eval_rows", "save_every", "log_every", "keep", "out", "name")
    old, new = read_yaml(run / "config.yaml"), dataclasses.asdict(config)
    changed = [key for key in new if key not in free and new[key] != old.get(key)]
    if changed:
        raise UserError(
            f"{run} holds a run with other settings ({', '.join(changed)}); "
            f"give this one another name=..., or replace the old one with --fresh"
        )


def resume(run: Path, model: GPT | WindowMLP, optimizer: Any, loader: RowLoader) -> dict[str, Any] | None:
    """Load the newest checkpoint into model, optimizer and loader; None where there is none. Raises UserError."""
    steps = checkpoint.complete_steps(run)
    if not steps:
        return None
    folder = checkpoint.find_step(run, "latest")
    state = checkpoint.read_state(folder)
    model.load_state_dict(checkpoint.read_tensors(folder, "model.safetensors"))
    checkpoint.load_optimizer(optimizer, folder)
    loader.load_state(state["loader"])
    return {key: state[key] for key in ("step", "tokens", "seconds", "best")}


def save(
    run: Path,
    config: TrainConfig,
    model: GPT | WindowMLP,
    optimizer: torch.optim.Optimizer,
    loader: RowLoader,
    data: Data,
    tokenizer: Tokenizer,
    state: dict[str, Any],
    scores: dict[str, float],
) -> None:
    """Save a checkpoint, move `latest` and, when the held-out loss is the lowest so far, `best`; prune the old ones."""
    is_best = state["best"] is None or scores["valid_loss"] < state["best"]
    state["best"] = scores["valid_loss"] if is_best else state["best"]
    record = {
        **state,
        **scores,
        "model": dataclasses.asdict(config.model),
        "loader": loader.state(),
        "data_sha256": {split: data.split(split).sha256 for split in ("train", "valid")},
        "tokenizer_sha256": tokenizer.sha256,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }
    folder = checkpoint.save_step(run, state["step"], model, optimizer, record)
    if is_best:
        checkpoint.point_best(run, folder)
    checkpoint.prune(run, config.keep)


# ---------------------------------------------------------------------------------------------------- what is printed


def describe(config: TrainConfig, runtime: Runtime, model: GPT | WindowMLP, state: dict[str, Any]) -> str:
    groups = model.parameter_groups()
    parts = ", ".join(f"{name} {count:,}" for name, count in groups.items())
    begin = f"resumed at step {state['step']}" if state["step"] else "from scratch"
    return (
        f"model    {config.model.kind}, {sum(groups.values()):,} parameters ({parts})\n"
        f"runtime  {runtime.reason}\n"
        f"data     {config.data.path}, vocabulary {config.model.vocab_size:,}\n"
        f"run      {config.steps:,} steps of {config.tokens_per_step:,} tokens, {begin}; "
        f"guessing uniformly costs {math.log(config.model.vocab_size):.2f} nats"
    )


def progress_line(config: TrainConfig, state: dict[str, Any], loss: float, scores: dict[str, float]) -> str:
    return (
        f"step {state['step']:>6,}/{config.steps:,}  loss {loss:.3f}  held out {scores['valid_loss']:.3f}  "
        f"perplexity {scores['perplexity']:.2f}  bits/byte {scores['bits_per_byte']:.3f}  "
        f"{state['tokens'] / state['seconds']:,.0f} tokens/s"
    )


def summary(run: Path, config: TrainConfig, state: dict[str, Any]) -> str:
    latest = checkpoint.read_state(checkpoint.find_step(run, "latest"))
    return (
        f"\ntrained  {state['tokens']:,} tokens in {state['seconds']:,.0f} s\n"
        f"held out {latest['valid_loss']:.4f} nats a token, perplexity {latest['perplexity']:.2f}, "
        f"{latest['bits_per_byte']:.4f} bits a byte (best {state['best']:.4f})\n"
        f"saved    {run}\n"
        f"next     python sample.py {run} --prompt 'Once upon a time'"
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "config", help="a YAML file, or a built-in name such as rostok, gpt-1, window-mlp, quickstart"
    )
    parser.add_argument(
        "words", nargs="*", metavar="key=value", help="settings that override the file, dotted"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="replace the run folder instead of going on from it"
    )
    options = parser.parse_args(argv)
    path = find_config(options.config, Path(__file__).parent / "configs")
    config = load_config(TrainConfig, path, options.words)
    if config.name == TrainConfig.name:
        config = dataclasses.replace(config, name=path.stem)
    train(config, options.fresh)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main(main))
