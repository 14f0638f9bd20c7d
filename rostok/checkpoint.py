"""One run folder, all of it readable, none of it pickled.

    checkpoints/NAME/  config.yaml  tokenizer.json  metrics.jsonl  loss.png
                       step-001000/ model.safetensors  optimizer.safetensors  state.json
                       latest, best: one line of text each, the name of a step folder

A step folder is complete or does not exist: it is written under a temporary name, flushed to the disk and renamed;
only then does `latest` name it. state.json holds the SHA-256 of both tensor files, and loading checks them.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from rostok.errors import UserError
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
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def save_step(
    run: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
) -> Path:
    """Save step-NNNNNN with weights, optimizer and `state` (JSON-able), then point `latest` at it.

    Raises UserError (disk full, no permission); the earlier checkpoints are then untouched.
    """
    final = run / f"step-{step:06d}"
    temporary = run / f".{final.name}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        files = {
            "model.safetensors": model_tensors(model),
            "optimizer.safetensors": optimizer_tensors(optimizer),
        }
        hashes = {}
        for name, tensors in files.items():
            content = save(tensors)
            hashes[name] = hashlib.sha256(content).hexdigest()
            write_bytes(temporary / name, content)
        record = {**state, "step": step, "sha256": hashes}
        write_text(temporary / "state.json", json.dumps(record, indent=1) + "\n")
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        flush_folder(run)
        write_text(run / "latest", final.name + "\n")
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"cannot save {final}: {error}; earlier checkpoints are untouched, free space and resume"
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


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as flat tensors named `index.key`; the groups' settings follow from the config."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": torch.as_tensor(value).detach().cpu().contiguous()
        for index, entry in state.items()
        for key, value in entry.items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, step_folder: Path) -> None:
    """Put a step folder's optimizer state into an optimizer that was built from the same config."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in read_tensors(step_folder, "optimizer.safetensors").items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    groups = optimizer.state_dict()["param_groups"]
    if state and len(state) != sum(len(group["params"]) for group in groups):
        raise UserError(
            f"{step_folder}/optimizer.safetensors belongs to another model; resume with the run's own config"
        )
    optimizer.load_state_dict({"state": state, "param_groups": groups})


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
    return f"; try an older checkpoint: {step_folder.parent / others[-1]}" if others else ""


def read_state(step_folder: Path) -> dict[str, Any]:
    path = step_folder / "state.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(state, dict) or not isinstance(state.get("sha256"), dict):
            raise ValueError("no hashes in it")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; wanted a step folder of a run") from None
    except ValueError as error:
        raise UserError(f"{path} is not a checkpoint's state: {error}{other_steps(step_folder)}") from None
    return state


def complete_steps(run: Path) -> list[Path]:
    """The step folders of a run, oldest first."""
    return sorted(path for path in run.glob("step-*") if (path / "state.json").is_file())


def read_pointer(run: Path, name: str) -> Path | None:
    """The step folder that `latest` or `best` names, or None where there is none."""
    try:
        target = (run / name).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    if target != Path(target).name or not target.startswith("step-"):
        raise UserError(f"{run / name} must hold the name of a step folder. Got {target[:60]!r}")
    return run / target


def point_best(run: Path, step_folder: Path) -> None:
    """Make `best` name this step folder."""
    write_text(run / "best", step_folder.name + "\n")


def prune(run: Path, keep: int) -> None:
    """Delete all step folders but the newest `keep` and the best."""
    protected = {read_pointer(run, "best"), read_pointer(run, "latest")}
    for folder in complete_steps(run)[:-keep]:
        if folder not in protected:
            shutil.rmtree(folder, ignore_errors=True)


def find_step(path: Path, step: str | None = None) -> Path:
    """The step folder that a path means: a run folder (its best, else its latest step), RUN/latest, RUN/best or a step.

    Raises UserError that says what was wanted there.
    """
    if path.name in ("latest", "best") and not path.is_dir():
        path, step = path.parent, path.name
    if not path.is_dir():
        raise UserError(f"there is no run folder {path}; train one (python train.py configs/quickstart.yaml)")
    if (path / "state.json").is_file():
        return path
    pointers = [step] if step else ["best", "latest"]
    found = next((folder for name in pointers if (folder := read_pointer(path, name))), None)
    steps = complete_steps(path)
    if found is None or not found.is_dir():
        if step or not steps:
            raise UserError(
                f"{path} holds no {step or 'complete'} checkpoint; wanted step-NNNNNN folders of a run"
            )
        found = steps[-1]
    return found


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
        model = build_model(state["model"])
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"cannot read {folder / 'config.yaml'}: {error}") from None
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"the weights in {step_folder} do not fit the model its state.json describes: {error}"
        ) from None
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    if tokenizer.sha256 != state.get("tokenizer_sha256", tokenizer.sha256):
        raise UserError(
            f"{folder}/tokenizer.json is not the one this run was trained with; put the right one back"
        )
    return Run(model.to(device).eval(), tokenizer, config, state, folder, step_folder)
