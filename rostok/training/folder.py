"""One run folder, all of it readable, none of it pickled.

    checkpoints/NAME/  config.yaml  tokenizer.json  metrics.jsonl  loss.png
                       step-001000/ model.safetensors  optimizer.safetensors  state.json
                       latest, best: one line of text each, the name of a step folder

A step folder is complete or does not exist: it is written under a temporary name, flushed to the disk and renamed;
only then does `latest` name it. state.json holds the SHA-256 of both tensor files and of its own other lines, and
loading checks them. A run that writes holds a lock on the folder, which the system releases when the process ends, in
whatever way it ends.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save
from torch import Tensor, nn

from rostok.errors import UserError
from rostok.files import flush_folder, write_file
from rostok.runs import complete_steps, read_pointer, read_state, read_tensors, signed


class HasState(Protocol):
    """An optimizer as rostok/training/optim.py builds it."""

    def tensors(self) -> dict[str, Tensor]: ...
    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None: ...


def save_step(run: Path, step: int, model: nn.Module, optimizer: HasState, state: Mapping[str, Any]) -> Path:
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
        if final.exists():  # made by an earlier life of this run, from the same rows
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
    return final


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}


def load_optimizer(optimizer: HasState, step_folder: Path) -> None:
    """Put a step folder's optimizer state into an optimizer that was built from the same config."""
    optimizer.load_tensors(read_tensors(step_folder, "optimizer.safetensors"))


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


def point_best(run: Path, step_folder: Path) -> None:
    """Make `best` name this step folder, where its own held-out loss is lower than that of the one it names."""
    best = read_pointer(run, "best")
    if held_out_loss(step_folder) < (held_out_loss(best) if best else math.inf):
        write_file(run / "best", step_folder.name + "\n", durable=True)


def held_out_loss(step_folder: Path) -> float:
    """The loss that was measured at this very step; infinite where none was, or where the folder is not whole."""
    with contextlib.suppress(UserError):
        state = read_state(step_folder)
        if state.get("scored_at") == state["step"]:
            return state.get("valid_loss", math.inf)
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
    """Give a checkpoint that was moved aside its name again, where the newer one of the same step has not come."""
    for path in run.glob(".step-*.replaced"):
        if not (final := run / path.stem[1:]).exists():
            path.rename(final)


def sweep(run: Path) -> None:
    """Delete what a killed process left half-done in a run folder: everything under a temporary name."""
    put_back(run)
    for path in [*run.glob(".*.tmp"), *run.glob(".*.old"), *run.glob(".*.replaced")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


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
    """Hold the run folder for writing. Raises UserError when another process holds it."""
    with writing(run):
        run.mkdir(parents=True, exist_ok=True)
        file = (run / ".lock").open("w")
    with file:
        try:
            lock_file(file.fileno())
        except OSError:
            raise UserError(
                f"another training is writing to {run}; wait for it, stop it, or give this one another name=..."
            ) from None
        yield


def refuse_unwritable(run: Path) -> None:
    """Raise UserError when the run folder could not be written. The try is a file without a name."""
    place = next(path for path in (run, *run.parents) if os.path.lexists(path))
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise UserError(
            f"cannot write the run folder {run}: {place}: {error.strerror}; choose another with out=FOLDER"
        ) from None


def lock_file(handle: int) -> None:
    """Lock an open file at once or raise OSError; the lock falls with the process."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def clear(run: Path) -> None:
    """Empty a run folder of all that a training writes there, but for the lock."""
    for path in run.glob("step-*"):
        discard(path)
    for name in ("latest", "best", "metrics.jsonl", "plan.json", "passport.json", "loss.png"):
        (run / name).unlink(missing_ok=True)
    shutil.rmtree(run / "tensorboard", ignore_errors=True)
