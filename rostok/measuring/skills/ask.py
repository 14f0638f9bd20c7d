"""Put the questions to all runs, and to models that only count: from a set's name to what each model preferred.

items = chosen_items("stories", tokenizer)
pairs, columns = ask_all(items, runs, rows, training, offsets)      # columns: name -> Found of each seed
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from rostok.errors import UserError, nearest
from rostok.measuring.ngrams import fit_ngrams
from rostok.measuring.skills.items import Item, read_items
from rostok.measuring.skills.scoring import Found, Pair, count_pairs, encode_item, encode_items, score_pairs
from rostok.measuring.skills.sets import SETS, make_items
from rostok.runs import Run
from rostok.text.tokenizer import Tokenizer


def chosen_items(which: str, tokenizer: Tokenizer, skill: str | None = None) -> list[Item]:
    """The items of a set, chosen for a tokenizer, or of a file; of one skill where it is named. Raises UserError."""
    if which not in SETS and Path(which).is_file():
        items = read_items(Path(which))
    else:
        items = make_items(which, lambda item: encode_item(item, tokenizer).equal)
    known = list(dict.fromkeys(item.skill for item in items))
    if skill is not None and skill not in known:
        raise UserError(f"no skill is named {skill}{nearest(skill, known)}; wanted one of {', '.join(known)}")
    return [item for item in items if skill in (None, item.skill)]


def ask_all(
    items: Sequence[Item],
    runs: Sequence[Run],
    rows: Sequence[tuple[str, list[int]]],
    training: np.ndarray,
    offsets: np.ndarray,
) -> tuple[list[Pair], dict[str, list[Found]]]:
    """What each row of runs preferred, then trigram, bigram and unigram. Raises UserError for several tokenizers."""
    tokenizer = runs[0].tokenizer
    if any(run.tokenizer.sha256 != tokenizer.sha256 for run in runs):
        raise UserError("--skills needs runs with one tokenizer; name such runs")
    pairs = encode_items(items, tokenizer)
    found = []
    for run in runs:
        model: Any = run.model
        bar = tqdm(pairs, desc=run.folder.name, unit="item", disable=None, leave=False)
        found.append(score_pairs(model, bar, model.config.context))
    columns = {name: [found[i] for i in group] for name, group in rows}
    counters = fit_ngrams(training, offsets, tokenizer.vocab_size, tokenizer.start_id, (2, 3))
    for name in reversed(counters):
        columns[name] = [count_pairs(counters[name], pairs, tokenizer.start_id)]
    return pairs, columns


def with_new_words(items: Sequence[Item], training: np.ndarray, tokenizer: Tokenizer) -> list[bool]:
    """For each item whether it has a word that the training ids never spell."""
    spelled = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    spelled[tokenizer.start_id] = b" "
    known = words_of(b"".join(spelled[i] for i in training.tolist()).decode("utf-8", errors="replace"))
    return [not words_of(f"{item.prefix}{item.good} {item.prefix}{item.bad}") <= known for item in items]


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
