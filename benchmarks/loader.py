"""How fast the loader puts batches together: a table for people, one JSON line last for programs.

    python benchmarks/loader.py                    # shards of random texts, made in a temporary folder
    python benchmarks/loader.py data/tinystories   # shards of your own

Time is that of the process (`time.process_time`), so neighbours on the machine do not count. Left out: cold disks.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rostok.errors import run_main
from rostok.text.shards import Split, open_data, whole, write_data
from rostok.text.tokenizer import train_tokenizer
from rostok.training.loader import RowLoader

CASES = [(256, 16), (512, 8), (512, 64), (1024, 8)]  # context, batch


def main(argv: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        split = open_data(argv[0] if argv else make(Path(folder))).split("train")
        results = [measure(split, context, batch) for context, batch in CASES]
    print(f"{'context':>8}{'batch':>7}{'plan ms':>10}{'batch ms':>10}{'M tokens/s':>12}{'left out':>10}")
    for r in results:
        print(
            f"{r['context']:>8}{r['batch']:>7}{r['plan_ms']:>10.1f}{r['batch_ms']:>10.3f}"
            f"{r['mtok_per_s']:>12.1f}{r['left_out']:>10.1%}"
        )
    print(json.dumps({"benchmark": "loader", "tokens": split.tokens, "results": results}))


def make(folder: Path) -> Path:
    """Eight thousand texts of 20 to 400 words, as stories have them."""
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}" for a in ("ka", "lo", "mi", "ru", "se") for b in ("", "n", "ta", "vo")])
    texts = [" ".join(rng.choice(words, rng.integers(20, 400))) for _ in range(8000)]
    write_data(folder, {"train": whole(texts)}, train_tokenizer(texts[:200], 300))
    return folder


def measure(split: Split, context: int, batch: int) -> dict[str, float]:
    """Batches for one epoch at most; the epoch's plan is timed by itself."""
    loader = RowLoader(split, context, batch, seed=1)
    started = time.process_time()
    left_out = loader.left_out_share
    planned = time.process_time()
    steps = max(1, min(2_000_000 // (context * batch), loader.rows_per_epoch() // batch - 1))
    for _ in range(steps):
        next(loader)
    spent = time.process_time() - planned
    return {
        "context": context,
        "batch": batch,
        "plan_ms": round(1e3 * (planned - started), 2),
        "batch_ms": round(1e3 * spent / steps, 4),
        "mtok_per_s": round(steps * context * batch / spent / 1e6, 1),
        "left_out": round(left_out, 4),
    }


if __name__ == "__main__":
    raise SystemExit(run_main(main))
