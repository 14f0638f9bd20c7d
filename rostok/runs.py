"""A run folder, read: which checkpoint a path means, its state and tensors, the model in it.

    checkpoints/NAME/  config.yaml  tokenizer.json  metrics.jsonl  loss.png
                       step-001000/ model.safetensors  optimizer.safetensors  state.json
                       latest, best: one line of text each, the name of a step folder

All of it is readable, none of it pickled. state.json holds the SHA-256 of both tensor files and of its own other lines,
and loading checks them. Writing one: rostok/training/folder.py. torch is imported only where tensors are read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from rostok.errors import UserError, nearest, verb
from rostok.front import find_run, known_runs
from rostok.text.shards import Data
from rostok.text.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Opened:
    """A run folder and one of its checkpoints, read without building the model."""

    folder: Path
    step_folder: Path
    state: dict[str, Any]

    @cached_property
    def config(self) -> dict[str, Any]:
        """The settings of config.yaml. Raises UserError."""
        path = self.folder / "config.yaml"
        if path.is_fifo():  # to read it would wait for a writer
            raise UserError(f"cannot read {path}: it is a pipe; put the run's own back")
        try:
            config = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
            raise UserError(f"cannot read {path}: {error}") from None
        if not isinstance(config, dict):
            raise UserError(f"{path} is damaged: it holds no settings; put the run's own back")
        return config

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the run was trained with. Raises UserError."""
        tokenizer = load_tokenizer(self.folder / "tokenizer.json")
        if tokenizer.sha256 != self.state.get("tokenizer_sha256", tokenizer.sha256):
            raise UserError(
                f"{self.folder / 'tokenizer.json'} is not the one this run was trained with; put the right one back"
            )
        return tokenizer

    def tensors(self) -> dict[str, Tensor]:
        """The weights, in the type they were saved in. Raises UserError."""
        return read_tensors(self.step_folder, "model.safetensors", self.state)

    def refuse_weights(self, why: object) -> UserError:
        """The error for weights that are not those of the model in state.json."""
        return UserError(
            f"the weights in {self.step_folder} do not fit the model its state.json describes: {why}"
        )


def open_run(path: str | Path, step: str | None = None) -> Opened:
    """Find the checkpoint that a path means and read its state; the rest is read when it is asked for."""
    step_folder = find_step(Path(path), step)
    folder, state = step_folder.parent, read_state(step_folder)
    if not isinstance(state.get("model"), dict):
        raise UserError(
            f"{step_folder / 'state.json'} does not say what the model is; give another step of the run"
        )
    return Opened(folder, step_folder, state)


@dataclass(frozen=True)
class Run:
    """A trained run, opened: the model in eval mode, float32."""

    model: nn.Module
    tokenizer: Tokenizer
    config: dict[str, Any]
    state: dict[str, Any]
    folder: Path
    step_folder: Path


def load_run(
    path: str | Path,
    build_model: Callable[[Mapping[str, Any]], nn.Module],
    step: str | None = None,
    device: str = "cpu",
) -> Run:
    """Open a run for use: weights in float32, eval mode, with its tokenizer. Raises UserError for all that is wrong."""
    opened = open_run(path, step)
    tensors, config = opened.tensors(), opened.config
    if bad := next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None):
        raise UserError(
            f"{opened.step_folder} has diverged: {bad} holds inf or nan{other_steps(opened.step_folder)}"
        )
    try:
        tensors, settings = without_padding(tensors, opened.state["model"], opened)
        model = build_model(settings)
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise opened.refuse_weights(error) from None
    model = model.to(device).eval()
    return Run(model, opened.tokenizer, config, opened.state, opened.folder, opened.step_folder)


PER_ID = ("embed.weight", "head.weight", "head.bias")  # tensors with a row for each id of the vocabulary


def without_padding(
    weights: Mapping[str, Any], config: Mapping[str, Any], run: Opened
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The model without the ids that only fill up its vocabulary: the tokenizer cannot spell them.

    Raises UserError for a tokenizer of more ids than the model has.
    """
    own, size = run.tokenizer.vocab_size, int(config["vocab_size"])
    if own > size:
        raise UserError(
            f"{run.folder / 'tokenizer.json'} has {own} ids, the model only {size}; put the run's own tokenizer back"
        )
    if own == size:
        return weights, config
    cut = {name: values[:own] for name, values in weights.items() if name in PER_ID and len(values) == size}
    return {**weights, **cut}, {**config, "vocab_size": own}


def data_of(run_folder: Path, config: Any, give: str = "--data FOLDER") -> Path:
    """The shards folder that a run was trained on, as its config.yaml names it. Raises UserError when it is gone.

    config: what config.yaml holds; give: what the user can type instead, for the message.
    """
    try:
        folder = Path(config["data"]["path"])
    except (KeyError, TypeError):  # an imported run
        raise UserError(
            f"{run_folder / 'config.yaml'} names no data.path; name the texts with {give}"
        ) from None
    if not (folder / "manifest.json").is_file():
        raise UserError(
            f"the data of {run_folder} is not here (it was in {folder}); name the texts with {give}; for a FOLDER: "
            f"{verb('prepare')} --source TEXT --tokenizer {run_folder} --out FOLDER"
        )
    return folder


def texts_of(data: Data, split: str, tokenizer: Tokenizer, limit: int | None = None) -> Iterator[np.ndarray]:
    """The texts of a split, [◆, tokens...], under a tokenizer: as stored, or encoded again where it is another one."""
    part = data.split(split)
    stored = (part.text(i) for i in range(min(len(part), limit or len(part))))
    if tokenizer.sha256 == data.tokenizer_sha256:
        yield from stored
        return
    own = load_tokenizer(data.folder)
    while plain := [own.decode(text[1:].tolist()) for text in itertools.islice(stored, 1000)]:
        yield from (np.array([tokenizer.start_id, *ids]) for ids in tokenizer.encode_batch(plain))


def remark(text: str) -> None:
    print(text, file=sys.stderr)


def find_step(path: Path, step: str | None = None, say: Callable[[str], None] = remark) -> Path:
    """The step folder that a path means: a run folder (its best, else its latest step), RUN/latest, RUN/best or a step.

    A short name is looked for in checkpoints/ and among the shipped runs.
    Where a pointer names what is not there, `say` gets a line with what is taken instead; instead of an explicit `best`
    nothing is taken. Raises UserError that says what was wanted there.
    """
    path = find_run(path)
    if path.name in ("latest", "best") and not path.is_dir():
        path, step = path.parent, path.name
    if not path.is_dir() and (steps := complete_steps(path.parent)):
        raise UserError(f"{path.parent} has no {path.name}; it has {', '.join(step.name for step in steps)}")
    if not path.is_dir():
        raise UserError(f"there is no run folder {path}; {other_runs(path)}")
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


def other_runs(path: Path) -> str:
    """What to type instead of a run that is not there: the runs that are, or how to make one."""
    names = [run.name for run in known_runs()]
    if not names:
        return f"train one ({verb('train')} quickstart)"
    shown = ", ".join(names[:12]) + (" ..." if len(names) > 12 else "")
    return f"there are {shown}{nearest(path.name, names)}"


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


def read_tensors(step_folder: Path, name: str, state: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
    """The tensors of one file, checked against the hash in `state`, that folder's state.json. Raises UserError."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = step_folder / name
    try:
        content = path.read_bytes()
        wanted = (state or read_state(step_folder))["sha256"].get(name)
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
        return "; put the right one back, or train again"
    older = step_folder.parent / others[-1]
    return f"; {older} is there too: use that one, and to train on from it delete {step_folder}"


NUMBERS = {"step", "tokens", "seconds", "loss", "lr", "grad_norm", "valid_loss"}  # of a record: finite


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a half-written last line (a kill in the middle of it) is left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if not all(math.isfinite(record[key]) for key in NUMBERS & record.keys()):
                raise ValueError
            records.append({**record, "step": int(record["step"])})
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            if number < len(lines):
                raise UserError(
                    f"{path}, line {number} is not a record of a training; delete the line and try again"
                ) from None
    return records
