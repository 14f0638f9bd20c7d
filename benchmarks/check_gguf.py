"""Does llama.cpp say the same as Rostok? Export a run to GGUF, run it there, compare tokens, logits and greedy text.

    pip install "rostok[gguf]" llama-cpp-python      # the second compiles llama.cpp: minutes, a C++ compiler, cmake
    python benchmarks/check_gguf.py checkpoints/rostok-mini

For each file type: are the token ids of a few texts equal, how far apart are the logits at most (beside their
spread, the standard deviation), how many of 50 greedy tokens are equal. F32 and F16 must write the same text; Q8_0
rounds weights to 8 bits, so it is measured and not required. llama.cpp's cache is set to float32 (its default is
float16, which alone moves these logits by some thousandths). Left out: speed (llama-bench), sampling, GPUs.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import export  # noqa: E402
from model import build_model  # noqa: E402
from rostok.errors import UserError, run_main  # noqa: E402
from rostok.runs import Run, load_run  # noqa: E402

PROMPT = "Once upon a time, there was a little girl named Lily. She liked to play in the park with her mom. One day,"
TEXTS = [
    PROMPT,
    "It's 1234 o'clock!\n\n  So   late.\t\"Yes\"  ",
    "Жил-был кот — он любил молоко. 猫 🙂 e\u0301",
]
GREEDY = 50


def open_llama(file: Path, context: int) -> Any:
    """The file in llama.cpp, on the CPU, keeping the logits of every position; 0 is its name of float32."""
    try:
        from llama_cpp import Llama  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("this check needs llama-cpp-python; type: pip install llama-cpp-python") from None
    return Llama(str(file), n_ctx=context, n_gpu_layers=0, type_k=0, type_v=0, logits_all=True, verbose=False)


def llama_logits(llama: Any, ids: list[int]) -> np.ndarray:
    """ids (T,) -> logits (T, V)."""
    llama.reset()
    llama.eval(ids)
    return np.array(llama.scores[: len(ids)], dtype=np.float32)


def llama_greedy(llama: Any, ids: list[int], count: int, end_id: int) -> list[int]:
    """The most likely continuation, token by token through llama.cpp's own cache."""
    llama.reset()
    llama.eval(ids)
    for _ in range(count):
        ids = [*ids, int(np.argmax(llama.scores[llama.n_tokens - 1]))]
        if ids[-1] == end_id:
            break
        llama.eval(ids[-1:])
    return ids


def equal_ahead(first: list[int], second: list[int]) -> int:
    """How many tokens at the front of two lists are equal."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def compare(run: Run, kind: str, folder: Path) -> dict[str, Any]:
    """One file type: written, opened by llama.cpp, compared with the run."""
    file = folder / f"{kind}.gguf"
    export.write_gguf(run, file, kind)
    config = export.gpt_config(run)
    llama = open_llama(file, config.context)
    ids = [config.start_id, *run.tokenizer.encode(PROMPT)][: config.context - GREEDY]
    with torch.no_grad():
        ours = run.model(torch.tensor([ids]))[0].numpy()
    theirs = llama_logits(llama, ids)
    count = min(GREEDY, config.context - len(ids))
    our_text = export.greedy(run.model, ids, count, config.start_id)
    same = equal_ahead(our_text[len(ids) :], llama_greedy(llama, ids, count, config.start_id)[len(ids) :])
    tokens = [llama.tokenize(text.encode(), add_bos=True) for text in TEXTS]
    return {
        "type": kind,
        "bytes": file.stat().st_size,
        "same_ids": tokens == [[config.start_id, *run.tokenizer.encode(text)] for text in TEXTS],
        "max_difference": float(np.abs(ours - theirs).max()),
        "spread": float(ours.std()),
        "greedy_equal": same,
        "greedy_of": len(our_text) - len(ids),
    }


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a run folder of a GPT")
    options = parser.parse_args(argv)
    run = load_run(options.run, build_model)
    with tempfile.TemporaryDirectory() as folder:
        rows = [compare(run, kind, Path(folder)) for kind in ("F32", "F16", "Q8_0")]
    print(
        f"{'type':<6} {'bytes':>12} {'token ids':>10} {'max |difference|':>17} {'spread':>7} {'greedy equal':>13}"
    )
    for row in rows:
        ids, greedy = "equal" if row["same_ids"] else "DIFFER", f"{row['greedy_equal']}/{row['greedy_of']}"
        print(f"{row['type']:<6} {row['bytes']:>12,} {ids:>10} {row['max_difference']:>17.2g} ", end="")
        print(f"{row['spread']:>7.2f} {greedy:>13}")
    ok = all(row["same_ids"] for row in rows) and all(
        row["greedy_equal"] == row["greedy_of"] for row in rows[:2]
    )
    print(json.dumps({"check": "gguf", "run": options.run.name, "ok": ok, "rows": rows}))
    return 0 if ok else 1


if __name__ == "__main__":
    raise SystemExit(run_main(main))
