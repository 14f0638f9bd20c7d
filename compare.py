"""Compare runs on the very same held-out targets: nats, perplexity, bits a byte, each with an interval.

    python compare.py checkpoints/window-mlp checkpoints/gpt-1 checkpoints/rostok
    python compare.py checkpoints/window-mlp checkpoints/rostok --out report.md     # + report.json, report.csv, figures
    python compare.py RUN RUN --data data/other                                     # other held-out text

Every target is scored once, each text alone (docs/perplexity.md tells the protocol). Beside the runs stand four models that
only count. The first run named is the one that the others are measured against. There is no batch size to choose: numbers
do not depend on one. Left out: other tasks than predicting text, and text that is in no shards folder (prepare.py makes one).
"""

import argparse
import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from model import build_model
from rostok.checkpoint import Run, load_run
from rostok.errors import UserError, run_main
from rostok.evaluate import (
    Losses,
    TargetList,
    Window,
    leak,
    memory_windows,
    score,
    stream_windows,
    target_list,
    text_windows,
)
from rostok.ngrams import FIT_TOKENS, NGram, Uniform, fit_ngrams
from rostok.report import Row, as_csv, as_text, tabulate
from rostok.runtime import choose_device
from rostok.shards import Data, open_data
from rostok.tokenizer import Tokenizer, load_tokenizer

MAX_LEAK = 1e-3  # nats; float32 rounding stays far below


def options_of(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, or one of its step folders")
    parser.add_argument("--data", metavar="FOLDER", help="shards to score on (default: those each run was trained from)")
    parser.add_argument("--texts", type=int, metavar="N", help="only the first N held-out texts")
    parser.add_argument("--protocol", choices=("texts", "disjoint"), default="texts", help="disjoint: as others print it")
    parser.add_argument("--stride", type=int, metavar="N", help="new targets a window, in texts longer than the context")
    parser.add_argument("--step", choices=("best", "latest"), help="which checkpoint of a run (default: best)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"))
    parser.add_argument("--ngram-tokens", type=int, default=FIT_TOKENS, metavar="N", help="training tokens to count")
    parser.add_argument("--json", metavar="FILE", help="all numbers")
    parser.add_argument("--csv", metavar="FILE", help="the table")
    parser.add_argument("--out", metavar="FILE.md", help="a report, with .json and .csv beside it")
    options = parser.parse_args(argv)
    if options.texts is not None and options.texts < 1:
        parser.error(f"--texts must be at least 1. Got {options.texts}")
    return options


# 1. What is scored


def data_folder(run: Run, options: argparse.Namespace) -> Path:
    """The shards that a run is scored on: --data, or the run's own. Raises UserError when they are gone."""
    if options.data:
        return Path(options.data)
    folder = Path(run.config["data"]["path"])
    if not (folder / "manifest.json").is_file():
        raise UserError(f"the data of {run.folder} is gone (it was in {folder}); name shards with --data FOLDER")
    return folder


def held_out(data: Data, tokenizer: Tokenizer, limit: int | None) -> TargetList:
    """The held-out texts of a shards folder under a tokenizer: as stored, or decoded and encoded anew."""
    split = data.split("valid")
    texts = [split.text(i) for i in range(min(len(split), limit or len(split)))]
    if tokenizer.sha256 != data.tokenizer_sha256:
        own = load_tokenizer(data.folder)
        plain = [own.decode(text[1:].tolist()) for text in texts]
        texts = [np.array([tokenizer.start_id, *ids]) for ids in tokenizer.encode_batch(plain)]
    return target_list(texts, tokenizer.start_id, [tokenizer.piece(i) for i in range(tokenizer.vocab_size)])


def windows_for(config: Any, targets: TargetList, options: argparse.Namespace) -> list[Window]:
    """What each model may see, by its kind and the protocol."""
    if options.protocol == "disjoint":
        return list(stream_windows(targets, config.context))
    if config.kind == "window-mlp":
        return list(memory_windows(targets, config.window))
    return list(text_windows(targets, config.context, options.stride or max(1, config.context // 2)))


def sees(config: Any) -> int:
    return config.window if config.kind == "window-mlp" else config.context


# 2. Scoring


def score_run(name: str, run: Run, targets: TargetList, options: argparse.Namespace) -> Row:
    """One row for one run. Raises UserError for a model that sees the future."""
    config = run.model.config
    if targets.targets.max() >= config.vocab_size:
        raise UserError(f"{run.folder} knows {config.vocab_size} ids, the held-out text has id {targets.targets.max()}")
    windows = windows_for(config, targets, options)
    refuse_seer(name, run.model, windows)
    losses = score(run.model, targets, tqdm(windows, desc=name, unit="window", disable=None, leave=False))
    about = {
        "parameters": run.model.parameter_groups(),
        "tokens": run.state.get("tokens"),
        "seconds": run.state.get("seconds"),
        "step": run.state.get("step"),
        "tokenizer": run.tokenizer.sha256,
    }
    return Row(name, sees(config), targets, losses, about)


def refuse_seer(name: str, model: Any, windows: Sequence[Window]) -> None:
    """Raise UserError when a loss moves although only later tokens were changed. Asks the longest windows."""
    for window in sorted(windows, key=lambda w: -len(w.ids))[:2]:
        moved = leak(model, window.ids)
        if not moved <= MAX_LEAK:
            raise UserError(
                f"{name} sees the future: its answers move by {moved:.3g} nats when only later tokens change; "
                "its perplexity means nothing, mend the mask of the model"
            )


def counting_rows(data: Data, targets: TargetList, limit: int) -> list[Row]:
    """Trigram, bigram, unigram, uniform, in the tokenizer of `data`."""
    train = data.split("train")
    texts = (train.text(i) for i in range(len(train)))
    models = fit_ngrams(texts, data.vocab_size, targets.start_id, limit)
    models["uniform"] = NGram(1, data.vocab_size, Uniform(data.vocab_size))
    order = [name for name in ("trigram", "bigram", "unigram", "uniform") if name in models]
    about = {"tokens": min(limit, train.tokens)}
    return [Row(name, models[name].order - 1, targets, models[name].losses(targets), about) for name in order]


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """float32 that is float32: no TF32, no bf16 inside a matmul."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# 3. From the command line to the table


def row_names(runs: Sequence[Run]) -> list[str]:
    """Folder names; with the step where one comes twice."""
    names = [run.folder.resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else f"{run.folder}/{run.step_folder.name}"
        for name, run in zip(names, runs, strict=True)
    ]


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Load, score and tabulate."""
    device, _ = choose_device(options.device)
    runs = [load_run(path, build_model, options.step, str(device)) for path in options.runs]
    folders = [data_folder(run, options) for run in runs]
    opened = {folder: open_data(folder) for folder in dict.fromkeys(folders)}
    lists: dict[tuple[Path, str], TargetList] = {}
    for run, folder in zip(runs, folders, strict=True):
        if (folder, run.tokenizer.sha256) not in lists:
            lists[folder, run.tokenizer.sha256] = held_out(opened[folder], run.tokenizer, options.texts)
    with full_precision():
        rows = [
            score_run(name, run, lists[folder, run.tokenizer.sha256], options)
            for name, run, folder in zip(row_names(runs), runs, folders, strict=True)
        ]
    data = opened[folders[0]]
    own = lists.get((folders[0], data.tokenizer_sha256))
    if own is None:
        own = held_out(data, load_tokenizer(data.folder), options.texts)
    rows += counting_rows(data, own, options.ngram_tokens)
    return tabulate(rows) | {"data": str(folders[0]), "protocol": protocol_words(options)}


def protocol_words(options: argparse.Namespace) -> str:
    if options.protocol == "disjoint":
        return "disjoint: all texts as one stream, cut into blocks of each model's context (counting models: each text alone)"
    stride = f"{options.stride} targets" if options.stride else "half the context"
    return f"each text alone, between ◆ and ◆; longer ones by windows opened by ◆, stride {stride}"


def write(path: Path, text: str) -> None:
    """Write whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; name another file") from None


def main(argv: Sequence[str]) -> int:
    options = options_of(argv)
    result = compare(options)
    text = as_text(result)
    print(text)
    as_json = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if options.out:
        out = Path(options.out).with_suffix("")
        write(out.with_suffix(".md"), f"```\n{text}\n```\n")
        write(out.with_suffix(".json"), as_json)
        write(out.with_suffix(".csv"), as_csv(result))
    if options.json:
        write(Path(options.json), as_json)
    if options.csv:
        write(Path(options.csv), as_csv(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main(main))
