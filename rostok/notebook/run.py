"""A trained run in Python: write with it, score a text, look at its attention, read and change what happens inside.

    run = load("rostok-mini")                              # a short name, a run folder, a step folder, RUN/latest
    run.generate("Once upon a time", tokens=100, temperature=0.5, seed=1)
    run.score("Tom had a red ball.").mean                  # nats per token
    run.attention("Tom had a red ball. One day he").head(6, 4).map
    run.run("Tom had a ball.")["blocks.5.attn.pattern"]    # every step of the computation, by name

Left out: batches and streaming (rostok/generation/generate.py has both), training (many.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rostok import runs
from rostok.attention.heads.capture import Subject, look
from rostok.errors import UserError
from rostok.front import front
from rostok.notebook.attention import Attention
from rostok.notebook.trace import Edit, Trace, trace_of

if TYPE_CHECKING:
    from torch import nn

    from rostok.text.tokenizer import Tokenizer


def load(path: str | Path, step: str | None = None, device: str = "cpu") -> "Run":
    """Open a trained run. Raises UserError that lists the runs there are.

    path: a short name ("rostok-mini"), a run folder, a step folder; step: "latest" or "best" (best);
    device: "cpu", "cuda" or "mps", for the torch model. Attention is computed in NumPy.
    """
    return Run(runs.load_run(path, front("model").build_model, step, device))


@dataclass(frozen=True)
class Score:
    """How well a run predicts a text. Token i of `tokens` cost `nats[i]`; the first is the first of the text."""

    tokens: list[str]
    nats: np.ndarray

    @property
    def mean(self) -> float:
        """Nats per token."""
        return float(self.nats.mean())

    @property
    def perplexity(self) -> float:
        return float(np.exp(self.mean))

    def __repr__(self) -> str:
        count = len(self.tokens)
        return f"<{self.mean:.4f} nats per token over {count} tokens, perplexity {self.perplexity:.2f}>"


class Run:
    """A trained run, opened by `rostok.load`."""

    def __init__(self, opened: runs.Run) -> None:
        self._opened = opened

    @property
    def name(self) -> str:
        return self._opened.folder.resolve().name

    @property
    def folder(self) -> Path:
        return self._opened.folder

    @property
    def step(self) -> int:
        """The training step that the weights are from."""
        return int(self._opened.state.get("step", 0))

    @property
    def model(self) -> "nn.Module":
        """The torch module, in eval mode: model.py's GPT or WindowMLP."""
        return self._opened.model

    @property
    def tokenizer(self) -> "Tokenizer":
        return self._opened.tokenizer

    @property
    def settings(self) -> dict[str, Any]:
        """What config.yaml of the run holds."""
        return self._opened.config

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def __repr__(self) -> str:
        shape = self._opened.state["model"]
        heads = f"{shape['n_layer']} x {shape['n_head']} heads, " if "n_head" in shape else ""
        kind = shape.get("kind", "gpt")
        return f"<run {self.name}: {kind}, {heads}{self.parameters:,} parameters, step {self.step:,}>"

    def generate(
        self,
        text: str = "",
        tokens: int = 200,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        past: Literal["roll", "stop"] = "roll",
    ) -> str:
        """`text` and what the model writes after it. The settings are those of sample.py (docs/sampling.md)."""
        from rostok.generation.generate import Sampling, generate

        sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
        start = self.tokenizer.start_id
        prompt = [start, *self.tokenizer.encode(text)]
        model: Any = self.model
        [result] = generate(model, [prompt], sampling, tokens, seed, end_id=start, past=past)
        return text + self.tokenizer.decode([i for i in result.ids if i != start])

    def score(self, text: str) -> Score:
        """The loss on each token of a text, of any length. ◆ comes before the first token; the end is not scored."""
        from rostok.measuring.score import score
        from rostok.measuring.targets import memory_windows, target_list, text_windows

        ids = np.array([self.tokenizer.start_id, *self.tokenizer.encode(text)])
        if len(ids) < 2:
            raise UserError("the text is empty; give some words")
        model: Any = self.model
        targets = target_list([ids], self.tokenizer.start_id)
        if "window" in self._opened.state["model"]:
            windows = memory_windows(targets, model.config.window)
        else:
            context = model.config.context
            windows = text_windows(targets, context, max(1, context // 2))
        return Score(self._spell(ids[1:]), score(model, targets, windows).nats[:-1])

    def _spell(self, ids: np.ndarray) -> list[str]:
        return [self.tokenizer.token_bytes(int(i)).decode("utf-8", "backslashreplace") for i in ids]

    def attention(self, text: str) -> Attention:
        """The attention maps of all heads on a text. Raises UserError for a text longer than the context."""
        return Attention(look(self._subject, self._ids(text)))

    def run(
        self, text: str, edit: Mapping[str, Edit] | Callable[[str, np.ndarray], Any] | None = None
    ) -> Trace:
        """Every step of the computation on a text, by name; `edit` changes steps on the way (docs/notebook.md).

        edit: {name: a new value, or a function of the old one}, or a function (name, value) -> value.
        TransformerLens's names with `hook_` are accepted.
        """
        return trace_of(self._subject, self._ids(text), edit)

    def _ids(self, text: str) -> list[int]:
        """◆ and the tokens of a text. Raises UserError where there are none or more than the model sees."""
        ids, most = [self.tokenizer.start_id, *self.tokenizer.encode(text)], self._subject.context
        if len(ids) < 2:
            raise UserError("the text is empty; give some words")
        if len(ids) > most:
            raise UserError(
                f"the text has {len(ids)} tokens with ◆, the model sees {most}; give a shorter text"
            )
        return ids

    @cached_property
    def _subject(self) -> Subject:
        config = self._opened.state["model"]
        if config.get("kind", "gpt") != "gpt":
            raise UserError(
                f"{self.name} is a {config['kind']}, which has no attention to look at; give a gpt run"
            )
        weights = {
            name: value.detach().float().cpu().numpy() for name, value in self.model.state_dict().items()
        }
        return Subject(self.name, weights, config, self.tokenizer)
