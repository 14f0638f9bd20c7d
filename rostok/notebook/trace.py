"""The steps of one computation by name, and what changes when one of them is edited.

    trace = run.run("Tom had a ball.")
    trace["blocks.5.attn.pattern"]                          # (H, T, T); the names: list(trace)
    trace["blocks.5.attn.hook_pattern"]                     # TransformerLens's name for it
    run.run("Tom had a ball.", edit={"blocks.5.attn.z": 0})  # the loss without the heads of layer 6

The numbers are those of rostok/attention/reference.py: no batch axis, heads first. Layers count from 0 in names.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rostok.attention.heads.capture import Subject
from rostok.attention.reference import forward, losses
from rostok.errors import UserError, nearest

Edit = float | np.ndarray | Callable[[np.ndarray], Any]
READ_ONLY = ("attn.dots", "attn.scaled", "attn.scores")  # the reference computes pattern from its own scores
# TransformerLens's names, without `hook_`, where ours differ. Its q and k are before QK-norm and RoPE. Compared with
# TransformerLens 4.3 on rostok-mini: each value is ours, up to 1e-4 (docs/tools.md).
OTHER_NAMES = {
    "attn.q": "attn.q_raw",
    "attn.k": "attn.k_raw",
    "attn.q_normed": "attn.q_norm",
    "attn.k_normed": "attn.k_norm",
    "attn.rot_q": "attn.q",
    "attn.rot_k": "attn.k",
    "attn.attn_scores": "attn.scores",
    "attn_out": "attn.out",
    "mlp_out": "mlp.out",
    "mlp.pre_linear": "mlp.up",
}


class Trace(Mapping[str, np.ndarray]):
    """Name -> array, of one text. `tokens`, `logits` (T, V) and `nats` (T,), NaN at ◆, are beside it."""

    def __init__(self, tokens: list[str], ids: list[int], values: dict[str, np.ndarray]) -> None:
        self.tokens, self.ids, self._values = tokens, ids, values

    def __getitem__(self, name: str) -> np.ndarray:
        return self._values[own_name(name, self._values)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<trace of {len(self.tokens)} tokens: {len(self)} steps, embed to logits; list(trace) names them>"

    @property
    def logits(self) -> np.ndarray:
        return self._values["logits"]

    @property
    def nats(self) -> np.ndarray:
        """(T,) the loss of each token given those before it; NaN for ◆, which is given."""
        return np.concatenate([[np.nan], losses(self.logits[:-1], self.ids[1:])])


def own_name(name: str, known: Mapping[str, Any]) -> str:
    """A step's name in Rostok, also from TransformerLens's. Raises UserError with the nearest known one."""
    plain = name
    if "hook_" in name:
        plain = name.replace("hook_", "")
        block, rest = re.fullmatch(r"(blocks\.\d+\.)?(.*)", plain, re.DOTALL).groups()  # type: ignore[union-attr]
        plain = (block or "") + OTHER_NAMES.get(rest, rest)
    if plain not in known:
        raise UserError(f"there is no step '{name}'{nearest(plain, known)}; list(run.run(text)) names all")
    return plain


def trace_of(
    subject: Subject, ids: list[int], edit: Mapping[str, Edit] | Callable[[str, np.ndarray], Any] | None
) -> Trace:
    """Run the reference on ids, with edits. Raises UserError for a name that is not there or a shape that differs."""
    plain: dict[str, np.ndarray] = {}
    forward(subject.weights, subject.config, np.asarray(ids), plain)
    if edit is None:
        return Trace(subject.pieces(ids), ids, plain)
    edits = None if callable(edit) else {own_name(name, plain): value for name, value in edit.items()}
    for name in edits or {}:
        if name.endswith(READ_ONLY):
            raise UserError(f"{name} cannot be edited; edit the pattern, or q and k, of that layer")

    def change(name: str, value: np.ndarray) -> np.ndarray:
        if edits is None:
            return _fitting(name, value, edit(name, value))  # type: ignore[operator]
        return _fitting(name, value, _edited(edits[name], value)) if name in edits else value

    values: dict[str, np.ndarray] = {}
    forward(subject.weights, subject.config, np.asarray(ids), values, edit=change)
    return Trace(subject.pieces(ids), ids, values)


def _edited(change: Edit, value: np.ndarray) -> Any:
    return change(value.copy()) if callable(change) else change


def _fitting(name: str, old: np.ndarray, new: Any) -> np.ndarray:
    """The new value in the old one's shape and dtype. Raises UserError."""
    if new is None:
        raise UserError(f"the edit of {name} gave nothing; return the new value")
    try:
        return np.broadcast_to(np.asarray(new, dtype=old.dtype), old.shape)
    except ValueError:
        raise UserError(f"the edit of {name} has shape {np.shape(new)}; it must be {old.shape}") from None
