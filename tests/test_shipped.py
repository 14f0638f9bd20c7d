"""The trained models in the box: they load, score a text of ours as pinned, and write the same greedy text everywhere.

The pins are what the shipped weights gave; ship new weights, and they change: this file, run, prints them.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model import build_model
from rostok import runs
from rostok.generation.generate import CompiledSteps, Sampling, generate
from rostok.measuring.score import score
from rostok.measuring.targets import target_list, text_windows

ROOT = Path(__file__).parent.parent
HELD_OUT = [  # written for this test, so that no model has seen it
    "One day, a little girl named Nora found a blue kite in the park. Nora wanted to fly the kite, but there was no "
    'wind. She sat down and waited. A big bird came and said, "I can help you, Nora." The bird flapped its wings and '
    "the kite went up and up. Nora was so happy. She said thank you to the bird, and they became good friends.",
    "Sam and his mom went to the shop to buy some bread. Sam saw a red apple and asked his mom if he could have it. "
    "His mom said yes. On the way home Sam shared the apple with a hungry squirrel.",
]
START = ", there was a little girl named Lily. She loved to play with her toys and "
PINNED = {  # nats per token on HELD_OUT; greedy continuation of "Once upon a time"
    "rostok-mini": (1.72210, START + "eat yummy food. One day, she found a big, red"),
    "gpt-1-mini": (2.06023, START + "eat yummy food. One day, she found a big, red"),
    "window-mlp-mini": (2.62521, START + "eat yummy food. One day, they found a big box in"),
}


@cache
def shipped(name: str) -> runs.Run:
    return runs.load_run(ROOT / "checkpoints" / name, build_model)


def nats(run: runs.Run) -> float:
    ids = [np.array([run.tokenizer.start_id, *run.tokenizer.encode(text)]) for text in HELD_OUT]
    targets = target_list(ids, run.tokenizer.start_id)
    context: int = run.state["model"]["context"]
    return float(score(run.model, targets, text_windows(targets, context, context // 2)).nats.mean())


def prompt_of(run: runs.Run) -> list[int]:
    return [run.tokenizer.start_id, *run.tokenizer.encode("Once upon a time")]


def greedy(run: runs.Run, model: Any = None, rows: int = 1, **options) -> list[str]:
    speaker: Any = run.model if model is None else model
    results = generate(speaker, [prompt_of(run)] * rows, Sampling(temperature=0), 30, **options)
    return [run.tokenizer.decode(result.ids) for result in results]


@pytest.mark.parametrize("name", PINNED)
def test_weights_are_those_of_the_record_and_small(name: str) -> None:
    run = shipped(name)
    weights = (run.step_folder / "model.safetensors").read_bytes()
    assert run.state["sha256"]["model.safetensors"] == hashlib.sha256(weights).hexdigest()
    assert len(weights) < 10_000_000
    assert (run.folder / "README.md").is_file()


def test_all_together_stay_under_20_mb() -> None:
    assert len(PINNED) == 3
    assert (
        sum(path.stat().st_size for name in PINNED for path in shipped(name).folder.rglob("*.*")) < 20_000_000
    )


@pytest.mark.parametrize("name", PINNED)
def test_perplexity_on_the_held_out_text_is_the_pinned_one(name: str) -> None:
    assert nats(shipped(name)) == pytest.approx(PINNED[name][0], abs=2e-4)


@pytest.mark.parametrize("name", PINNED)
def test_greedy_text_is_the_pinned_one(name: str) -> None:
    assert greedy(shipped(name)) == [PINNED[name][1]]


@pytest.mark.parametrize("name", PINNED)
def test_greedy_text_is_the_same_uncached_in_a_batch_and_in_chunks(name: str) -> None:
    run, text = shipped(name), PINNED[name][1]
    assert greedy(run, cached=False) == [text]
    assert greedy(run, rows=8) == [text] * 8
    assert all(greedy(run, chunk=chunk) == [text] for chunk in (1, 2, 3))


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch announces another home for its int8 types
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own imports
def test_greedy_text_is_the_same_compiled() -> None:
    run = shipped("gpt-1-mini")
    assert greedy(run, CompiledSteps(run.model)) == [PINNED["gpt-1-mini"][1]]


if __name__ == "__main__":
    for shipped_name in ("rostok-mini", "gpt-1-mini", "window-mlp-mini"):
        print(
            f'    "{shipped_name}": ({nats(shipped(shipped_name)):.5f}, {greedy(shipped(shipped_name))[0]!r}),'
        )
