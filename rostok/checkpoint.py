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
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from rostok.errors import UserError, verb
from rostok.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True)
class Run:
    """A trained run, opened: the model in eval mode, float32."""

    model: nn.Module
    tokenizer: Tokenizer
    config: dict[str, Any]
    state: dict[str, Any]
    folder: Path
    step_folder: Path


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all: temporary name, flush to the disk, rename."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


class HasState(Protocol):
    """An optimizer as rostok/optim.py builds it."""

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
            write_bytes(temporary / name, content)
        record = signed({**state, "step": step}, hashes)
        write_text(temporary / "state.json", json.dumps(record, indent=1) + "\n")
        flush_folder(temporary)
        if final.exists():  # made by an earlier life of this run, from the same rows
            final.rename(replaced)
        temporary.rename(final)
        flush_folder(run)
        write_text(run / "latest", final.name + "\n")
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        put_back(run)
        raise UserError(
            f"cannot save {final}: {error.strerror or error}; earlier checkpoints are untouched: "
            "make room (or give the folder write permission) and type the same command again"
        ) from None
    return final


def flush_folder(folder: Path) -> None:
    """fsync a folder, so that a rename in it outlasts a power cut. Windows has no such call."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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


def read_tensors(step_folder: Path, name: str) -> dict[str, Tensor]:
    """The tensors of one file, checked against the hash in state.json. Raises UserError."""
    path = step_folder / name
    try:
        content = path.read_bytes()
        wanted = read_state(step_folder)["sha256"].get(name)
        if wanted and hashlib.sha256(content).hexdigest() != wanted:
            raise UserError(
                f"{path} has changed since it was saved (its SHA-256 differs){other_steps(step_folder)}"
            )
        return load(content)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}{other_steps(step_folder)}") from None
    except SafetensorError as error:
        raise UserError(f"{path} is not a safetensors file: {error}{other_steps(step_folder)}") from None


def other_steps(step_folder: Path) -> str:
    others = [path.name for path in complete_steps(step_folder.parent) if path.name != step_folder.name]
    if not others:
        return "; put the right one back, or train anew"
    older = step_folder.parent / others[-1]
    return f"; {older} is there too: use that one, and to train on from it delete {step_folder}"


def read_state(step_folder: Path) -> dict[str, Any]:
    path = step_folder / "state.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        hashes = state.get("sha256") if isinstance(state, dict) else None
        if not isinstance(hashes, dict):
            raise ValueError("no hashes in it")
        if hashes.keys() - HASHED or hashes.get("state.json") not in (None, hash_of_state(state)):
            raise ValueError("it has changed since it was saved (its SHA-256 differs)")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; wanted a step folder of a run") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a checkpoint's state: {error}{other_steps(step_folder)}") from None
    return state


HASHED = {"model.safetensors", "optimizer.safetensors", "state.json"}


def hash_of_state(state: Mapping[str, Any]) -> str:
    """SHA-256 of what state.json holds besides the hashes; JSON gives every number back to the last bit."""
    rest = {key: value for key, value in state.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest).encode()).hexdigest()


def signed(state: Mapping[str, Any], hashes: Mapping[str, str]) -> dict[str, Any]:
    """What a state.json holds: the state, with the hashes of the tensor files and its own."""
    return {**state, "sha256": {**hashes, "state.json": hash_of_state(state)}}


def complete_steps(run: Path) -> list[Path]:
    """The step folders of a run, oldest first."""
    found = [path for path in run.glob("step-*") if (path / "state.json").is_file()]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def read_pointer(run: Path, name: str) -> Path | None:
    """The step folder that `latest` or `best` names, or None where there is none."""
    try:
        target = (run / name).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    if target != Path(target).name or not target.startswith("step-"):
        raise UserError(
            f"{run / name} must hold the name of a step folder. Got {target[:60]!r}; write one into it, or delete it"
        )
    return run / target


def point_best(run: Path, step_folder: Path) -> None:
    """Make `best` name this step folder, where its own held-out loss is lower than that of the one it names."""
    best = read_pointer(run, "best")
    if held_out_loss(step_folder) < (held_out_loss(best) if best else math.inf):
        write_text(run / "best", step_folder.name + "\n")


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


def remark(text: str) -> None:
    print(text, file=sys.stderr)


def find_step(path: Path, step: str | None = None, say: Callable[[str], None] = remark) -> Path:
    """The step folder that a path means: a run folder (its best, else its latest step), RUN/latest, RUN/best or a step.

    Where a pointer names what is not there, `say` gets a line with what is taken instead; instead of an explicit `best`
    nothing is taken. Raises UserError that says what was wanted there.
    """
    if path.name in ("latest", "best") and not path.is_dir():
        path, step = path.parent, path.name
    if not path.is_dir():
        raise UserError(f"there is no run folder {path}; train one ({verb('train')} quickstart)")
    if (path / "state.json").is_file():
        return path
    found, problem = follow_pointers(path, [step] if step else ["best", "latest"])
    steps = complete_steps(path)
    if found is None and (step == "best" or not steps):
        newest = f"; {steps[-1]} is there: give that one" if steps else ""
        raise UserError(
            f"{path} holds no {step or 'complete'} checkpoint, wanted step-NNNNNN folders of a run ({problem}){newest}"
        )
    found = found or steps[-1]
    if problem:
        say(f"note     {problem}; taking {found.name} instead")
    return found


def follow_pointers(run: Path, names: Sequence[str]) -> tuple[Path | None, str]:
    """The first complete step folder that one of these pointers names, and what is wrong with those before it."""
    problem = ""
    for name in names:
        found = read_pointer(run, name)
        if found and (found / "state.json").is_file():
            return found, problem
        if found:
            problem = problem or f"{run / name} names {found.name}, which is not there or not complete"
    return None, problem or f"there is no {run / names[-1]}"


def load_run(
    path: str | Path,
    build_model: Callable[[Mapping[str, Any]], nn.Module],
    step: str | None = None,
    device: str = "cpu",
) -> Run:
    """Open a run for use: weights in float32, eval mode, with its tokenizer. Raises UserError for all that is wrong."""
    step_folder = find_step(Path(path), step)
    folder, state = step_folder.parent, read_state(step_folder)
    tensors = read_tensors(step_folder, "model.safetensors")
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise UserError(
                f"{folder / 'config.yaml'} is damaged: it holds no settings; put the run's own back"
            )
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {folder / 'config.yaml'}: {error}") from None
    try:
        model = build_model(state["model"])
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise UserError(
            f"the weights in {step_folder} do not fit the model its state.json describes: {error}"
        ) from None
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    if tokenizer.sha256 != state.get("tokenizer_sha256", tokenizer.sha256):
        raise UserError(
            f"{folder}/tokenizer.json is not the one this run was trained with; put the right one back"
        )
    return Run(model.to(device).eval(), tokenizer, config, state, folder, step_folder)
