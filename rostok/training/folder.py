"""The folder of a run that trains: its lock, what a resume refuses, what it begins with, how a checkpoint is saved.

    with run_lock(run):                                    # nothing in the folder is trusted before
        put_back(run)                                      # a step that was being replaced when its process died
        checkpoint = open_checkpoint(config, print)        # found, read and hashed once; or None
        sweep(run)                                         # delete what a killed process left half-done
        ...
        save_step(run, step, model, optimizer, state)      # then point_best and prune

A step folder is complete or does not exist: it is written under a temporary name, flushed to the disk and renamed;
only then does `latest` name it. The lock falls with the process, in whatever way it ends. Reading a run that nobody
trains: rostok/runs.py, where the layout of the folder is drawn.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from filelock import FileLock, Timeout
from safetensors.torch import save
from torch import Tensor, nn

from rostok.errors import UserError, verb
from rostok.files import check_folder, flush_folder, write_file
from rostok.runs import (
    HASHED,
    Run,
    complete_steps,
    find_step,
    read_metrics,
    read_pointer,
    read_state,
    read_tensors,
    signed,
)
from rostok.text.shards import Data
from rostok.text.tokenizer import Tokenizer
from rostok.training.config import load_config, read_yaml
from rostok.training.schedule import ScheduleConfig, change_of_plan


class HasState(Protocol):
    """An optimizer as rostok/training/optim.py builds it."""

    def tensors(self) -> dict[str, Tensor]: ...
    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None: ...


def save_step(
    run: Path, step: int, model: nn.Module, optimizer: HasState, state: Mapping[str, Any]
) -> "Checkpoint":
    """Save step-NNNNNN with weights, optimizer and `state` (JSON-able), then point `latest` at it.

    Raises UserError (disk full, no permission); the earlier checkpoints are then untouched.
    """
    final = run / f"step-{step:06d}"
    temporary, replaced = run / f".{final.name}.tmp", run / f".{final.name}.replaced"
    try:
        for leftover in (temporary, replaced):
            shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir(parents=True)
        hashes = {}
        for name, tensors in (
            ("model.safetensors", model_tensors(model)),
            ("optimizer.safetensors", optimizer.tensors()),
        ):
            content = save(tensors)
            hashes[name] = hashlib.sha256(content).hexdigest()
            write_file(temporary / name, content, durable=True)
        record = signed({**state, "step": step}, hashes)
        write_file(temporary / "state.json", json.dumps(record, indent=1) + "\n", durable=True)
        flush_folder(temporary)
        if final.exists():  # saved by an earlier start of this run, from the same rows
            final.rename(replaced)
        temporary.rename(final)
        flush_folder(run)
        write_file(run / "latest", final.name + "\n", durable=True)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        put_back(run)
        raise UserError(
            f"cannot save {final}: {error.strerror or error}; earlier checkpoints are untouched: "
            "make room (or give the folder write permission) and type the same command again"
        ) from None
    return Checkpoint(final, record)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}


def point_best(run: Path, checkpoint: "Checkpoint") -> None:
    """Make `best` name this checkpoint if its own validation loss is lower than that of the one it names now.

    A full disk costs a warning, not the run.
    """
    best = read_pointer(run, "best")
    if best == checkpoint.folder or checkpoint.valid_loss >= valid_loss_of(best):
        return
    try:
        write_file(run / "best", checkpoint.folder.name + "\n", durable=True)
    except OSError as error:
        print(f"warning: cannot write {run / 'best'}: {error.strerror}; going on without", file=sys.stderr)


def valid_loss_of(step_folder: Path | None) -> float:
    """The validation loss of a checkpoint; infinite where there is none, or where it is not whole."""
    with contextlib.suppress(UserError):
        return Checkpoint(step_folder, read_state(step_folder)).valid_loss if step_folder else math.inf
    return math.inf


def prune(run: Path, keep: int) -> None:
    """Delete all step folders but the newest `keep` and the best."""
    protected = {read_pointer(run, "best"), read_pointer(run, "latest")}
    for folder in complete_steps(run)[:-keep]:
        if folder not in protected:
            discard(folder)


def discard(step_folder: Path) -> None:
    """Delete a step folder, by way of another name: one that is half deleted must not look like a checkpoint."""
    hidden = step_folder.with_name(f".{step_folder.name}.old")
    with contextlib.suppress(OSError):
        step_folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def put_back(run: Path) -> None:
    """Restore step-N from .step-N.replaced if its replacement was never completed."""
    for path in run.glob(".step-*.replaced"):
        if not (final := run / path.stem[1:]).exists():
            path.rename(final)


def sweep(run: Path) -> None:
    """Delete what a killed process left half-done in a run folder: everything under a temporary name of ours."""
    with writing(run):
        for path in [path for path in run.iterdir() if HIDDEN.fullmatch(path.name)]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


# The names under which files.py and save_step write before they rename.
FILES = r"config\.yaml|tokenizer\.json|metrics\.jsonl|plan\.json|passport\.json|loss\.png|latest|best"
HIDDEN = re.compile(rf"\.step-\d+\.(tmp|old|replaced)|\.({FILES})\.\d+\.(tmp|old)")


@contextlib.contextmanager
def writing(run: Path) -> Iterator[None]:
    """Raise UserError where the run folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write the run folder {run}: {error.strerror}; choose another with out=FOLDER"
        ) from None


@contextlib.contextmanager
def run_lock(run: Path) -> Iterator[None]:
    """Hold the run folder for writing. Raises UserError when another process holds it, or it is not a run's.

    Of a start that is refused nothing is left: neither the lock file nor an empty folder.
    """
    refuse_foreign(run)
    path = run / ".lock"
    lock, new = FileLock(path, timeout=0), [place for place in (path, run) if not place.exists()]
    with writing(run):
        run.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise UserError(
                f"another training is writing to {run}; wait for it, stop it, or give this one another name=..."
            ) from None
    with lock:
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):  # a folder that is not empty stays
                for place in new:
                    place.rmdir() if place.is_dir() else place.unlink()
            raise


def refuse_unwritable(run: Path) -> None:
    """Raise UserError when the run folder could not be written. The try is a file without a name."""
    parent = next(path for path in (run, *run.parents) if os.path.lexists(path))
    try:
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise UserError(
            f"cannot write the run folder {run}: {parent}: {error.strerror}; choose another with out=FOLDER"
        ) from None
    refuse_foreign(check_folder(run, "out=... name=..."))


def refuse_foreign(run: Path) -> None:
    """Raise UserError when `run` is a folder that holds files and is not a run's."""
    if not run.is_dir() or any(map(is_checkpoint, complete_steps(run))):
        return
    names = sorted(
        path.name for path in run.iterdir() if path.name != ".lock" and not HIDDEN.fullmatch(path.name)
    )
    if names and not holds_settings(run / "config.yaml"):
        raise UserError(
            f"{run} is not a run of train.py (it holds {names[0]}); choose another folder with name=... or out=FOLDER"
        )


def is_checkpoint(step_folder: Path) -> bool:
    """Whether save_step wrote the state of this step folder: it is signed."""
    try:
        return bool(read_state(step_folder))
    except UserError:
        return False


def holds_settings(path: Path) -> bool:
    """Whether a file holds the settings of a run, as dump_yaml writes them."""
    try:
        settings = read_yaml(path)
    except UserError:
        return False
    return {"name", "out", "data", "model", "optim", "schedule", "tokens"} <= settings.keys()


def clear(run: Path) -> None:
    """Delete all that a training writes into a run folder, but for the lock. Raises UserError.

    Nothing is deleted where a step folder also holds a file that is not a checkpoint's.
    """
    with writing(run):
        steps = [path for path in run.iterdir() if re.fullmatch(r"step-\d+", path.name)]
        for path in [path for step in steps for path in step.iterdir() if path.name not in HASHED]:
            raise UserError(f"{path} is not a file of train.py: move it, or choose another name=...")
        for path in steps:
            discard(path)
        for name in ("latest", "best", "metrics.jsonl", "plan.json", "passport.json", "loss.png"):
            (run / name).unlink(missing_ok=True)
        for path in (run / "tensorboard").glob("events.out.tfevents.*"):
            path.unlink()


def write_run_files(
    run: Path, config: str, tokenizer: Tokenizer, checkpoint: "Checkpoint | None", fresh: bool
) -> None:
    """Write config.yaml and tokenizer.json, and finish what a kill interrupted. Raises UserError.

    fresh: what the run left there before is deleted. Called when nothing is refused any more.
    """
    if fresh:
        clear(run)
    if checkpoint:
        point_best(run, checkpoint)  # a kill may have come between a save and this
    with writing(run):
        write_file(run / "config.yaml", config, durable=True)
        tokenizer.save(run)
        if not checkpoint:  # left by an earlier start that was killed before its first checkpoint
            (run / "plan.json").unlink(missing_ok=True)


def last_checkpoint_hint(run: Path) -> str:
    """Hint for error messages: where the last good checkpoint is."""
    latest = run / "latest"
    return f"The last good checkpoint is {latest}." if latest.is_file() else "No checkpoint was saved yet."


# ---------------------------------------------------------------------------------------------------- what is there


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint and its state.json, read once and checked against its hash."""

    folder: Path
    state: Mapping[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        return read_tensors(self.folder, name, self.state)

    def load_weights(self, model: nn.Module) -> None:
        """Raises UserError for weights of another model."""
        try:
            model.load_state_dict(self.tensors("model.safetensors"))
        except RuntimeError as error:
            raise UserError(f"the weights in {self.folder} are not those of this model: {error}") from None

    @property
    def valid_loss(self) -> float:
        """The loss that was measured at this very step; infinite where none was."""
        scored = self.state.get("scored_at") == self.state["step"]
        return self.state.get("valid_loss", math.inf) if scored else math.inf


class Settings(Protocol):
    """What of a run's settings (train.TrainConfig, a dataclass) is asked for here."""

    @property
    def folder(self) -> Path: ...
    @property
    def tokens(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def accumulate(self) -> int: ...
    @property
    def init_from(self) -> str: ...
    @property
    def model(self) -> Any: ...
    @property
    def schedule(self) -> ScheduleConfig: ...
    @property
    def steps(self) -> int: ...


C = TypeVar("C", bound=Settings)


def open_checkpoint(config: Settings, say: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint that this run goes on from; None in a folder without one. Writes nothing.

    Raises UserError when the folder holds checkpoints that this run could not go on from. Whether the data are the
    same, Training.load asks: it does so for every checkpoint.
    """
    run = config.folder
    if not (steps := sorted(run.glob("step-*"))):
        return None
    missing = ""
    if not complete_steps(run):
        missing = f"{steps[-1]} has no state.json, and there is no other checkpoint"
    elif not (run / "config.yaml").is_file():
        missing = f"{run} holds checkpoints, but no config.yaml to say of what"
    if missing:
        raise UserError(
            f"{missing}; put it back, give this run another name=..., or replace the old one with --fresh"
        )
    old = refuse_other_config(config, run)
    checkpoint = read_checkpoint(find_step(run, "latest", say))
    if old.tokens != config.tokens:
        rate = change_of_plan(config.schedule, checkpoint.state["step"], old.steps, config.steps)
        plan = f"planned for {old.tokens:,} tokens, from here on for {config.tokens:,}"
        say(f"resume   {plan}" + (f": {rate}" if rate else ""))
    read_pointer(run, "best")
    read_metrics(run / "metrics.jsonl")
    return checkpoint


def read_checkpoint(folder: Path) -> Checkpoint:
    """A checkpoint that a training can go on from. Raises UserError for one that was imported."""
    saved = read_state(folder)
    needed = ["loader", "scaler", "runtime", "data_sha256", "tokenizer_sha256", *STATE]
    missing = [key for key in needed if key not in saved]
    if missing or "optimizer.safetensors" not in saved["sha256"]:
        what = missing[0] if missing else "optimizer.safetensors"
        raise UserError(
            f"{folder} is not a checkpoint to train on from ({what} is not in its state.json); "
            f"give this run another name=..., and init_from={folder.parent} to begin with its weights"
        )
    return Checkpoint(folder, saved)


# What a resume needs of state.json besides: the fields of train.State.
STATE = ("step", "tokens", "seconds", "start_up", "best", "stale", "scored_at", "scores", "advisor")
# What may change from one start of a run to the next; batch and accumulate are compared by their product.
FREE = {
    "tokens",
    "runtime",
    "data",
    "out",
    "name",
    "batch",
    "accumulate",
    "eval_every",
    "sample_tokens",
    "probe",
}
FREE |= {"early_stop", "save_every", "log_every", "keep", "tensorboard"}


def refuse_other_config(config: C, run: Path) -> C:
    """The settings with which the run was made. Raises UserError when they would have given another result.

    The data are compared by their hashes (see refuse_other_data), batch and accumulate by their product.
    """
    before = load_config(type(config), run / "config.yaml")
    new, old = dataclasses.asdict(config), dataclasses.asdict(before)  # type: ignore[call-overload]
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
    return before


def differences(key: str, old: Any, new: Any) -> list[str]:
    """What differs between two values of a setting, dotted, as `key: old, now new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(name for name in new if name not in old)]
        return [text for name in keys for text in differences(f"{key}.{name}", old.get(name), new.get(name))]
    return [] if old == new else [f"{key}: {json.dumps(old)}, now {json.dumps(new)}"]


def refuse_other_data(saved: Mapping[str, Any], data: Data, tokenizer: Tokenizer) -> None:
    """Raise UserError when a checkpoint was trained on other shards or with another tokenizer than those here."""
    if saved["tokenizer_sha256"] != tokenizer.sha256:
        raise UserError(
            f"{data.folder} has another tokenizer than this run was trained with; put the right one back"
        )
    for name, wanted in saved["data_sha256"].items():
        if data.split(name).sha256 != wanted:
            raise UserError(
                f"the {name} shards in {data.folder} are not those of this run (their hash differs); "
                "put the right ones back, or begin a run of another name=..."
            )


# ---------------------------------------------------------------------------------------------------- init_from


def load_init_weights(
    config: Settings, source: Run, model: nn.Module, data: Data, tokenizer: Tokenizer
) -> None:
    """Begin with the weights of another run. Raises UserError where its tokenizer or shape is another."""
    path = config.init_from
    theirs, ours = shape(source.model.config), shape(config.model)
    if source.folder.resolve() == config.folder.resolve():
        raise UserError(f"init_from={path} is this run itself; give the new one another name=...")
    if source.tokenizer.sha256 != tokenizer.sha256:
        raise UserError(
            f"init_from={path} was trained with another tokenizer than that of {data.folder}; "
            f"prepare the data with its own: {verb('prepare')} --tokenizer {source.folder} ..."
        )
    differing = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    if differing:
        given = {key: json.dumps(theirs[key]).strip('"') for key in differing if key in theirs}
        settings = " ".join(f"model.{key}={value}" for key, value in given.items())
        raise UserError(f"init_from={path} holds a model of another shape; give this run its own: {settings}")
    model.load_state_dict(source.model.state_dict())


def shape(model: Any) -> dict[str, Any]:
    """The settings that a model's weights depend on: all but the context, and none left to a default."""
    explicit = {"n_kv_head": model.kv_heads, "d_mlp": model.hidden} if model.kind == "gpt" else {}
    settings = {**dataclasses.asdict(model), **explicit}
    return {key: value for key, value in settings.items() if key != "context"}
