"""`sample.py --trace`: how much of a text is in the training shards word for word, beside human text as long.

    training = open_training(run, "")                   # or a shards folder
    print(training.words([(prompt, ids), ...]))         # lines for a person; records: for --json

Only what the model wrote is compared, not the prompt. The human text is the held-out split: of each story the tokens at
the same places, as many as the model wrote. What a story shares with the training text by being a story is so much.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import numpy as np

from rostok.errors import UserError
from rostok.generation.session import note
from rostok.runs import Run, data_of
from rostok.text.shards import Split, open_data
from rostok.text.spans import Trace, traces
from rostok.text.tokenizer import Tokenizer

Written = tuple[str, Sequence[int]]  # a prompt, and the ids that the model wrote after it
SPAN = 8  # tokens of the spans that are counted
HUMAN = 200  # held-out texts that are compared
FEWEST = 5  # texts without which nothing is said of all


@dataclass(frozen=True)
class Copies:
    """The texts' traces, their ids, and the traces of human text."""

    traces: list[Trace]
    texts: list[np.ndarray]
    human: list[Trace]


@dataclass(frozen=True)
class Training:
    """What a run was trained on, and the stories held out of it."""

    train: Split
    valid: Split
    tokenizer: Tokenizer

    def trace(self, written: Sequence[Written]) -> Copies:
        """Compare texts with the training shards, and beside them held-out texts cut as each of them in turn."""
        texts = [np.array([i for i in ids if i != self.tokenizer.start_id], np.int64) for _, ids in written]
        begins = [len(self.tokenizer.encode(prompt)) for prompt, _ in written]
        cuts = [(begin, begin + len(text)) for begin, text in zip(begins, texts, strict=True) if len(text)]
        human = []
        for k in range(len(self.valid) if cuts else 0):
            begin, end = cuts[k % len(cuts)]
            text = self.valid.text(k)[1:]
            if len(text) >= end and len(human) < HUMAN:
                human.append(text[begin:end])
        found = traces([*texts, *human], self.train.arrays, self.tokenizer.start_id, SPAN)
        return Copies(found[: len(texts)], texts, found[len(texts) :])

    def span(self, found: Copies, k: int) -> str:
        """The longest span of text k that the training shards have, as text."""
        one = found.traces[k]
        return self.tokenizer.decode(found.texts[k][one.begin : one.begin + one.longest].tolist())

    def records(self, written: Sequence[Written]) -> list[dict[str, Any]]:
        """For each text what --json says of it."""
        found = self.trace(written)
        human = summary(found.human)
        return [
            {
                "trace": {
                    "longest": one.longest,
                    "span": self.span(found, k),
                    "share": share([one]),
                    "human": human,
                }
            }
            for k, one in enumerate(found.traces)
        ]

    def words(self, written: Sequence[Written]) -> str:
        """Lines for a person: each text's longest span, and the human text beside it."""
        found, lines = self.trace(written), []
        for k, one in enumerate(found.traces):
            name = "trace" if len(found.traces) == 1 else f"trace {k + 1}"
            lines += [
                f"{name:<9} {one.longest} of {len(found.texts[k])} tokens in a row are in the training text: "
                f"{json.dumps(self.span(found, k), ensure_ascii=False)}",
                f"{'':<9} spans of {SPAN} tokens that are there: {percent(share([one]))} of {one.spans}",
            ]
        lines += together("all", found.traces, f"{len(found.traces)} texts") if len(found.traces) > 1 else []
        human = together("human", found.human, f"{len(found.human)} held-out texts cut to the same length")
        return "\n".join([*lines, *(human or ["human     too few held-out texts are as long as that"])])


def together(name: str, found: Sequence[Trace], what: str) -> list[str]:
    """Two lines about many texts; none about too few."""
    told = summary(found)
    if told is None:
        return []
    low, middle, high = told["longest"]
    return [
        f"{name:<9} {middle:g} in a row, the median of {what} (90 % have {low:g} to {high:g})",
        f"{'':<9} spans of {SPAN} tokens that are there: {percent(told['share'])} of {told['spans']:,}",
    ]


def summary(found: Sequence[Trace]) -> dict[str, Any] | None:
    """5 %, median and 95 % of the longest spans, and the share of all spans; None of too few texts."""
    if len(found) < FEWEST:
        return None
    cuts = quantiles([one.longest for one in found], n=20, method="inclusive")
    spans = sum(one.spans for one in found)
    return {
        "texts": len(found),
        "longest": [cuts[0], cuts[9], cuts[18]],
        "share": share(found),
        "spans": spans,
    }


def share(found: Sequence[Trace]) -> float | None:
    """Of all spans the share that is in the training shards; None where there is no span."""
    spans = sum(one.spans for one in found)
    return round(sum(one.found for one in found) / spans, 6) if spans else None


def percent(number: float | None) -> str:
    return "n/a" if number is None else f"{number:.1%}"


def open_training(run: Run, folder: str) -> Training:
    """The shards that a run was trained on, or those in `folder` where one is given. Raises UserError."""
    data = open_data(folder or data_of(run.folder, run.config, "--trace FOLDER"))
    if data.tokenizer_sha256 != run.tokenizer.sha256:
        raise UserError(
            f"{data.folder} was made with another tokenizer than {run.folder}; --trace needs the shards that the run "
            "was trained on"
        )
    trained = run.state.get("data_sha256")
    if not isinstance(trained, dict) or trained.get("train") != data.split("train").sha256:
        note(f"{run.folder} was trained on other shards than those in {data.folder}")
    return Training(data.split("train"), data.split("valid"), run.tokenizer)
