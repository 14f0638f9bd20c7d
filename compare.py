"""Compare runs on the very same held-out targets: nats, perplexity, bits per byte, each with an interval.

    python compare.py checkpoints/window-mlp checkpoints/gpt-1 checkpoints/rostok
    python compare.py checkpoints/window-mlp checkpoints/rostok --out report.md     # + report.json, report.csv, figures
    python compare.py RUN RUN --data data/other                                     # other held-out text
    python compare.py a=RUN1,RUN2,RUN3 b=RUN4,RUN5,RUN6                             # two recipes, three seeds each
    python compare.py RUN RUN --skills tinystories                                  # what they can do

Every target is scored once, each text alone (docs/perplexity.md has the protocol). Beside the runs are models
that only count. Runs whose settings differ in `seed` alone are one row; its intervals know seeds as well as texts.
 The first run named is the one that the others are measured against. There is no batch size
to choose: numbers do not depend on one. Left out: other tasks than predicting text, and text that is in no shards
folder (prepare.py makes one).
"""

from rostok.errors import parse_early
from rostok.measuring.options import options_of, report_files

if __name__ == "__main__":  # --help and wrong words need not wait for torch
    parse_early(lambda argv: options_of(argv, __doc__))

import argparse
import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from model import build_model
from rostok.devices import choose_device
from rostok.errors import UserError, run_main
from rostok.files import write_out
from rostok.measuring.classes import by_class, classes
from rostok.measuring.figures import draw_positions, draw_sweep
from rostok.measuring.gains import (
    by_position,
    control,
    is_window,
    position_bins,
    sample_texts,
    sees,
    shown_less,
    sweep,
)
from rostok.measuring.ngrams import fit_ngrams, joined, uniform
from rostok.measuring.overlap import in_common
from rostok.measuring.recipes import named_runs, row_names, rows_of, settings_of
from rostok.measuring.report import as_csv, as_markdown, as_text, same_targets, sweep_csv, tabulate
from rostok.measuring.score import leak, score
from rostok.measuring.skills.ask import ask_all, chosen_items, with_new_words
from rostok.measuring.skills.table import show_items, skills_csv, skills_text, tabulate_skills
from rostok.measuring.tables import csv_text
from rostok.measuring.targets import (
    Entry,
    Losses,
    TargetList,
    Window,
    memory_windows,
    one_recipe,
    stream_windows,
    target_list,
    text_windows,
)
from rostok.runs import Run, data_of, load_run, texts_of
from rostok.text.shards import Data, open_data
from rostok.text.tokenizer import Tokenizer, load_tokenizer

MAX_LEAK = 1e-3  # of a logit; float32 rounding stays far below
NO_LOSSES = Losses(np.zeros(0), np.zeros(0, bool))


# 1. What is scored


def held_out(data: Data, tokenizer: Tokenizer, limit: int | None) -> TargetList:
    """The held-out texts of a shards folder under a tokenizer."""
    texts = list(texts_of(data, "valid", tokenizer, limit))
    return target_list(
        texts, tokenizer.start_id, [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    )


def windows_for(model: Any, targets: TargetList, options: argparse.Namespace) -> list[Window]:
    """What a model may see, by its kind and the protocol."""
    if options.protocol == "disjoint":
        return list(stream_windows(targets, model.config.context))
    if is_window(model):
        return list(memory_windows(targets, model.config.window))
    return list(
        text_windows(targets, model.config.context, options.stride or max(1, model.config.context // 2))
    )


# 2. Scoring


def score_run(name: str, run: Run, targets: TargetList, options: argparse.Namespace) -> Entry:
    """One row for one run. Raises UserError for a model that sees the future."""
    model: Any = run.model
    known, highest = model.config.vocab_size, targets.targets.max()
    if highest >= known:
        raise UserError(
            f"{run.folder} knows {known} ids, but the held-out text has id {highest}; check its tokenizer.json"
        )
    windows = windows_for(model, targets, options)
    refuse_lookahead(name, model, windows)
    bar = tqdm(windows, desc=name, unit="window", disable=None, leave=False)
    try:
        losses = score(model, targets, bar)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    told = {key: run.state.get(key) for key in ("tokens", "seconds", "step")}
    about = {key: value if isinstance(value, int | float) else None for key, value in told.items()}
    return Entry(name, sees(model), targets, losses, {"parameters": model.parameter_groups(), **about})


def refuse_lookahead(name: str, model: Any, windows: Sequence[Window]) -> None:
    """Raise UserError when a logit moves although only later tokens were changed. Asks the two longest windows."""
    for window in sorted(windows, key=lambda w: -len(w.ids))[:2]:
        moved = leak(model, window.ids)
        if not moved <= MAX_LEAK:
            raise UserError(
                f"{name} sees the future: its answers move by {moved:.3g} when only later tokens change; "
                "its perplexity means nothing; correct the mask of the model"
            )


def counting_rows(
    training: np.ndarray, offsets: np.ndarray, targets: TargetList, size: int, seen: int
) -> list[Entry]:
    """Kneser-Ney from the longest order down, unigram and uniform, fitted on training ids; `seen`: the order of a
    window model's own view."""
    orders = sorted({2, 3, 5, seen})
    models = {"uniform": uniform(size), **fit_ngrams(training, offsets, size, targets.start_id, orders)}
    about = {"tokens": len(training)}
    return [
        Entry(name, model.order - 1, targets, model.losses(targets), about, counts=True)
        for name, model in reversed(models.items())
    ]


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


def load(path: str, options: argparse.Namespace, device: str) -> Run:
    if options.step and (Path(path) / "state.json").is_file():
        raise UserError(
            f"{path} is one step of a run; leave --step {options.step} out, or name its run folder"
        )
    return load_run(path, build_model, options.step, device)


def compare(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Load, score and tabulate: the result for JSON, and the files that --out asks for, by ending."""
    device, _ = choose_device(options.device)
    given = named_runs(options.runs)
    runs = [load(path, options, str(device)) for _, path in given]
    groups = rows_of(given, runs)
    folders = [Path(options.data) if options.data else data_of(run.folder, run.config) for run in runs]
    opened = {folder: open_data(folder) for folder in dict.fromkeys(folders)}
    lists: dict[tuple[Path, str], TargetList] = {}

    def targets_for(folder: Path, tokenizer: Tokenizer) -> TargetList:
        key = folder, tokenizer.sha256
        if key not in lists:
            lists[key] = held_out(opened[folder], tokenizer, options.texts)
        return lists[key]

    targets = [targets_for(folder, run.tokenizer) for run, folder in zip(runs, folders, strict=True)]
    data = opened[folders[0]]
    shared = len({run.tokenizer.sha256 for run in runs}) == 1
    counter = runs[0].tokenizer if shared else load_tokenizer(data.folder)
    own = targets_for(folders[0], counter)
    named = list(zip(row_names(runs), runs, targets, strict=True))
    same_targets(
        [Entry(name, 0, its, NO_LOSSES) for name, _, its in named]
    )  # refuse before the work, not after it
    refuse_for_these(runs, options)
    with full_precision():
        scored = [score_run(name, run, its, options) for name, run, its in named]
        rows = [one_recipe(name, [scored[i] for i in group]) for name, group in groups]
        for row, settings in zip(rows, settings_of(groups, runs), strict=True):
            row.about["settings"] = settings
        training, offsets = joined(texts_of(data, "train", counter), options.ngram_tokens)
        seen = max([sees(run.model) for run in runs if is_window(run.model)] or [8]) + 1
        counted = counting_rows(training, offsets, own, counter.vocab_size, seen)
        firsts = [group[0] for _, group in groups]
        extra, files = study(
            [runs[i].model for i in firsts], [scored[i] for i in firsts], rows, counted, options
        )
    common, clean = in_common(own, training)
    told: dict[str, Any] = {
        "data": str(folders[0]),
        "protocol": protocol_words(options),
        "arithmetic": f"float32 on {device}",
        "notes": notes(runs, folders, opened),
        "common": common,
    }
    if shared and 0 < len(clean) < own.n_texts:
        indices, part = own.indices(clean.tolist()), own.subset(clean.tolist())
        told["clean"] = tabulate([row.at(indices, part) for row in [*rows, *counted]])
    return tabulate([*rows, *extra.pop("rows"), *counted]) | told | extra, files


def compare_skills(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The table of skills as a dict, and as text: of the runs, beside trigram, bigram and unigram."""
    device, _ = choose_device(options.device)
    given = named_runs(options.runs)
    runs = [load(path, options, str(device)) for _, path in given]
    items = chosen_items(options.skills, runs[0].tokenizer, options.show)
    data = open_data(Path(options.data) if options.data else data_of(runs[0].folder, runs[0].config))
    training, offsets = joined(texts_of(data, "train", runs[0].tokenizer), options.ngram_tokens)
    with full_precision():
        pairs, columns = ask_all(items, runs, rows_of(given, runs), training, offsets)
    result = tabulate_skills(items, pairs, columns, with_new_words(items, training, runs[0].tokenizer))
    return result, show_items(items, columns, options.show) if options.show is not None else skills_text(
        result, options.wide
    )


def refuse_for_these(runs: Sequence[Run], options: argparse.Namespace) -> None:
    """Refuse options that these runs have no use for. Raises UserError."""
    contexts = [sees(run.model) for run in runs if not is_window(run.model)]
    if options.stride and not contexts:
        raise UserError("--stride has no use for window models alone; leave it out")
    if options.at > 8 and contexts and options.at >= max(contexts):
        raise UserError(
            f"--at {options.at} is not less than any context ({max(contexts)}); give a smaller number"
        )


def study(
    models: Sequence[Any],
    rows: list[Entry],
    recipes: list[Entry],
    counted: list[Entry],
    options: argparse.Namespace,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where the gain comes from. What is asked for, and can be had: one tokenizer, each text alone.

    models and rows: the first seed of each recipe, which stands for it where a model is run again.
    """
    extra: dict[str, Any] = {"rows": []}
    files: dict[str, Any] = {}
    alike = all(row.targets.sha256 == rows[0].targets.sha256 for row in [*rows, *counted])
    if not alike or options.protocol == "disjoint":
        return extra, files
    chosen = sample_texts(rows[0].targets, options.at_targets or len(rows[0].targets))
    if options.at:
        less, split = shown_less(models, rows, chosen, options.at)
        extra["split"] = split
        if less and less[0].targets is rows[0].targets:
            extra["rows"] = less
        elif less:
            indices, part = rows[0].targets.indices(chosen), less[0].targets
            extra["narrow"] = tabulate([*(row.at(indices, part) for row in rows), *less])
    if options.out or options.json:
        shown = [*recipes, *counted[:-1]]
        targets, losses = rows[0].targets, [row.losses for row in shown]
        bins = by_position(targets, losses, position_bins(int(targets.position.max())))
        extra["by_position"] = {"names": [row.name for row in shown], "bins": bins}
        extra["by_class"] = by_class(targets, classes(targets), losses)
        many = sample_texts(targets, 10 * options.at_targets or len(targets))  # one pass a text: cheap
        extra["control"] = control(models, rows, many)
        each = by_position(targets, losses, np.arange(1, int(targets.position.max()) + 1))
        lines = [[one["first"], one["targets"], *one["nats"]] for one in each]
        files["position.csv"] = csv_text(["position", "targets", *[row.name for row in shown]], lines)
    if options.context_sweep:
        extra["sweep"] = sweep(models, rows, options.context_sweep)
    return extra, files


def notes(runs: Sequence[Run], folders: Sequence[Path], opened: dict[Path, Data]) -> list[str]:
    """What a reader must know beside the numbers."""
    result = []
    for run, folder in zip(runs, folders, strict=True):
        trained = run.state.get("data_sha256")
        if not isinstance(trained, dict) or trained.get("valid") != opened[folder].split("valid").sha256:
            result.append(
                f"{run.folder.resolve().name} was trained from other shards: make sure that it has not read "
                "these texts; the counting models have learnt from this folder's training part"
            )
    return result


def protocol_words(options: argparse.Namespace) -> str:
    if options.protocol == "disjoint":
        return "disjoint: all texts as one stream, in blocks of each model's context (counting models: each text alone)"
    stride = f"{options.stride} targets" if options.stride else "half the context"
    return f"each text alone, between ◆ and ◆; longer ones by windows opened by ◆, stride {stride}"


def write_report(out: Path, result: dict[str, Any], files: dict[str, Any], as_json: str) -> None:
    """OUT.md with OUT.json, OUT.csv and the figures, each with its CSV."""
    paths = report_files(out)
    written: dict[str, str | bytes] = {".json": as_json, ".csv": as_csv(result)}
    if "by_position" in result:
        written |= {"-position.png": draw_positions(result), "-position.csv": files["position.csv"]}
    if "sweep" in result:
        written |= {"-context.png": draw_sweep(result), "-context.csv": sweep_csv(result)}
    written[".md"] = as_markdown(result, paths[".md"].stem)
    for ending, content in written.items():
        write_out(paths[ending], content)


def main(argv: Sequence[str]) -> int:
    options = options_of(argv, __doc__)
    if options.skills is not None:
        result, text = compare_skills(options)
        files, table = {}, skills_csv(result)
    else:
        result, files = compare(options)
        text, table = as_text(result, options.wide), as_csv(result)
    print(text)
    as_json = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if options.out:
        write_report(Path(options.out), result, files, as_json)
    if options.json:
        write_out(Path(options.json), as_json)
    if options.csv:
        write_out(Path(options.csv), table)
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main(main))
