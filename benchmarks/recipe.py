"""Which optimizer, rate and batch learn fastest: held-out loss against tokens and seconds, over a grid.

    python benchmarks/recipe.py --data data/tinystories                    # a short look: 2 optimizers, 1 seed
    python benchmarks/recipe.py --data data/tinystories --full --record grid.jsonl     # rates, batches, 2 seeds: hours
    python benchmarks/recipe.py --data data/tinystories --minutes 10 --peer  # equal time, against a Hugging Face loop

Every line is a whole run of train.py's training with its own schedule, in a temporary folder. `--peer` sets the recipe
of configs/rostok.yaml (with `--full`, the grid) beside the plain Hugging Face loop (Qwen3 of the same shape,
torch.optim.AdamW, constant rate, the best of three rates), on the same rows and scored on the same held-out rows.
`--record FILE` keeps each finished run as a line of JSON; the same command goes on after the last of them. The last
line of the output is JSON.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.training import peer_model
from rostok import runs
from rostok.text.shards import open_data
from rostok.training.config import load_config
from rostok.training.ranks import Ranks
from train import TrainConfig, Training, train

SHORT = [("adamw", 2e-3, 5e-3, 8), ("muon", 3e-3, 5e-3, 8)]
RECIPE = Path(__file__).resolve().parent.parent / "configs" / "rostok.yaml"  # what every run starts from
FULL = [
    *(("muon", 3e-3, lr, batch) for batch, lr in itertools.product((8, 16), (5e-3, 1e-2, 2e-2))),
    *(("adamw", lr, 5e-3, batch) for batch, lr in itertools.product((8, 16), (1e-3, 2e-3, 4e-3))),
    ("muon", 3e-3, 2.5e-3, 8),  # lower still, at the better batch
    ("adamw", 5e-4, 5e-3, 8),
]


class Held:
    """A model that gives logits as ours does, around one of Hugging Face's."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.train, self.eval = model.train, model.eval

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


def run_ours(words: list[str], name: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(
            TrainConfig, RECIPE, [*words, f"out={folder}", f"name={name}", "sample_tokens=0"]
        )
        state = runs.read_state(runs.find_step(train(config, quiet=True), "latest"))
    return {key: state[key] for key in ("valid_loss", "tokens", "seconds")}


def run_peer(words: list[str], lr: float, minutes: float) -> dict[str, float]:
    """The plain loop: same rows, same held-out rows, until the tokens or the minutes are used up."""
    training = Training(load_config(TrainConfig, RECIPE, words), Ranks(), quiet=True)
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(training.config.seed)
    model = peer_model(training.model.config, training.runtime.device)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    started, steps = time.perf_counter(), 0
    while steps < training.config.steps and (not minutes or time.perf_counter() - started < 60 * minutes):
        ids, _ = next(training.feed)
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    seconds = time.perf_counter() - started
    scores = training.held_out.evaluate(Held(model), training.runtime)  # type: ignore[arg-type]
    return {
        "valid_loss": scores["valid_loss"],
        "tokens": steps * training.config.tokens_per_step,
        "seconds": seconds,
    }


def read_record(file: Path, key: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The runs in a record that were made from the same settings and data; half a line (a kill in it) is left out."""
    file.touch()
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError, AttributeError, KeyError):
            result = json.loads(line)
            if result.pop("key", None) == key:
                found[result["run"], result["seed"]] = result
    return found


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="a folder that prepare.py made")
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="end every run by then, in place of --tokens"
    )
    parser.add_argument("--full", action="store_true", help="the whole grid and two seeds")
    parser.add_argument(
        "--peer", action="store_true", help="also the plain Hugging Face loop, at three rates"
    )
    parser.add_argument(
        "--record", type=Path, help="keep each run's result in this file, and go on after its last"
    )
    parser.add_argument("words", nargs="*", metavar="key=value", help="settings of every run")
    options = parser.parse_intermixed_args(argv)
    tokens = 10**10 if options.minutes else options.tokens
    base = [
        f"data.path={options.data}",
        f"tokens={tokens}",
        "eval_every=100000",
        "save_every=100000",
        *options.words,
    ]
    base += [f"schedule.max_minutes={options.minutes}"]
    own = load_config(TrainConfig, RECIPE, base)
    data = open_data(Path(own.data.path))
    made_from = [
        base,
        RECIPE.read_text(encoding="utf-8"),
        *(data.split(s).sha256 for s in ("train", "valid")),
    ]
    key = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]
    results, done = [], read_record(options.record, key) if options.record else {}
    print("| run | seed | held-out loss | tokens | seconds |\n|---|---|---|---|---|", flush=True)

    def row(name: str, seed: int, measure: Callable[[], dict[str, float]]) -> None:
        result = done.get((name, seed)) or {"run": name, "seed": seed, **measure()}
        results.append(result)
        if options.record and (name, seed) not in done:
            with options.record.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps({**result, "key": key}))  # half a line may stand before it
        figures = f"{result['valid_loss']:.4f} | {result['tokens']:,} | {result['seconds']:,.0f}"
        print(f"| {name} | {seed} | {figures} |", flush=True)

    default = [(own.optim.kind, own.optim.lr, own.optim.muon_lr, own.batch)]
    for seed in range(2 if options.full else 1):
        for kind, lr, muon_lr, batch in FULL if options.full else default if options.peer else SHORT:
            name = (
                f"{kind} lr {lr:g}" + (f" muon_lr {muon_lr:g}" if kind == "muon" else "") + f" batch {batch}"
            )
            warmup = min(own.schedule.warmup_steps, max(1, tokens // (10 * batch * own.model.context)))
            words = [f"optim.kind={kind}", f"optim.lr={lr}", f"optim.muon_lr={muon_lr}", f"batch={batch}"]
            words += [f"schedule.warmup_steps={warmup}", f"seed={seed}"]
            row(name, seed, partial(run_ours, [*base, *words], "run"))
        for lr in (5e-4, 1e-3, 2e-3) if options.peer else ():
            row(f"hf adamw lr {lr:g}", seed, partial(run_peer, [*base, f"seed={seed}"], lr, options.minutes))
    ours = [r["valid_loss"] for r in results if not r["run"].startswith("hf")]
    peer = [r["valid_loss"] for r in results if r["run"].startswith("hf")]
    best = min(results, key=lambda r: r["valid_loss"])
    print(json.dumps({"best": best["run"], "best_loss": best["valid_loss"],
                      "ahead_of_hf": round(min(peer) - min(ours), 4) if peer else None, "runs": results}))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
