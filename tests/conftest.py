"""Tiny things, used whole: a corpus, its shards, a model, a trained run; and the way to real text."""

import json
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hand_built import save_hand_built

from model import GPT, GPTConfig, build_model
from rostok.runs import hash_of_state
from rostok.text.shards import Chunk, Data, open_data, whole, write_data
from rostok.text.tokenizer import load_tokenizer, train_tokenizer
from rostok.training.config import load_config
from train import TrainConfig, train

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose by a second thread; a test that trains may set the number for itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """A folder of real text: `../shared/data` beside the checkout, or what ROSTOK_SHARED_DATA names; else skip."""
    folder = Path(os.environ.get("ROSTOK_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no real text here; ROSTOK_SHARED_DATA=FOLDER names it")
    return folder


@pytest.fixture(scope="session")
def tiny_texts() -> list[str]:
    """Eighty short English texts, all different."""
    rng = random.Random(0)
    names, things = ["Tom", "Mia", "Zorbin", "Anna", "Ben"], ["ball", "kite", "red hat", "small boat", "doll"]
    places = ["in the park", "at home", "by the river", "under a tree"]
    return [
        f"{(name := rng.choice(names))} had a {(thing := rng.choice(things))} {rng.choice(places)}. "
        f"{name} lost the {thing} on day {number}. Then {rng.choice(names)} found it. "
        f"\u201cThank you!\u201d said {name}. Day {number} was a good day for the {thing}."
        for number in range(80)
    ]


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str]) -> Data:
    """Shards of the tiny texts under a vocabulary of 320; every eighth text is held out."""
    folder = tmp_path_factory.mktemp("tiny") / "data"
    train_texts = [text for i, text in enumerate(tiny_texts) if i % 8]
    tokenizer = train_tokenizer(train_texts, 320)
    write_data(folder, {"train": whole(train_texts), "valid": whole(tiny_texts[::8])}, tokenizer)
    return open_data(folder)


@pytest.fixture(scope="session")
def tiny_config() -> GPTConfig:
    return GPTConfig(vocab_size=320, context=32, n_layer=2, n_head=2, d_model=32)


@pytest.fixture
def tiny_model(tiny_config: GPTConfig) -> GPT:
    """Two layers, every weight drawn (also those that start at zero or one), eval mode."""
    model, generator = build_model(tiny_config), torch.Generator().manual_seed(0)
    assert isinstance(model, GPT)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tiny_words(data: Data, out: Path) -> list[str]:
    """The settings of a tiny run, as words on the command line."""
    sizes = ["model.n_layer=2", "model.n_head=2", "model.d_model=32", "model.context=32"]
    pace = [
        "tokens=2560",
        "batch=4",
        "eval_rows=8",
        "eval_every=10",
        "save_every=10",
        "schedule.warmup_steps=2",
    ]
    # the same sums on every machine and in every fixture: `auto` may be bf16, and threads change the last bits
    arithmetic = ["runtime.device=cpu", "runtime.dtype=fp32", "runtime.threads=1"]
    return [*sizes, *pace, *arithmetic, f"data.path={data.folder}", f"out={out}", "name=tiny"]


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a state.json that was changed on purpose, with the hash of what it now holds."""
    if isinstance(state.get("sha256"), dict):
        state["sha256"]["state.json"] = hash_of_state(state)
    path.write_text(json.dumps(state), encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: Data) -> Path:
    """The run folder of a two-layer GPT after 20 steps. Shared: do not change it."""
    out = tmp_path_factory.mktemp("runs")
    return train(load_config(TrainConfig, None, tiny_words(tiny_data, out)), quiet=True)


@pytest.fixture(scope="session")
def tiny_window_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: Data) -> Path:
    """The run folder of a window MLP, trained on the same rows as `tiny_run`. Shared: do not change it."""
    words = ["model.kind=window-mlp", "model.context=32", "name=tiny-window"]
    rest = [
        w
        for w in tiny_words(tiny_data, tmp_path_factory.mktemp("runs"))
        if not w.startswith(("model.", "name="))
    ]
    return train(load_config(TrainConfig, None, [*words, *rest]), quiet=True)


@pytest.fixture(scope="session")
def hand_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: Data) -> Path:
    """The run folder of the two-layer model written by hand (hand_built.py). Shared: do not change it."""
    tokenizer = load_tokenizer(tiny_data.folder)
    return save_hand_built(tmp_path_factory.mktemp("hand") / "hand", tokenizer, tiny_data.folder)


def joined(chunks: Iterable[Chunk]) -> list[str]:
    """Chunks -> whole texts."""
    texts, text = [], ""
    for part, last in chunks:
        text += part
        if last:
            texts.append(text)
            text = ""
    assert text == "", "the last chunk ends a text"
    return texts
