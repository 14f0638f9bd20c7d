"""Does lm-evaluation-harness measure what Rostok measures? Export a run, let both score the same held-out texts.

    pip install "rostok[hf]" "lm_eval[hf]"
    python benchmarks/check_lm_eval.py checkpoints/rostok-mini --texts 200

The harness's protocol (rolling log-likelihood): each text alone, opened by ◆; every token is scored once, the closing ◆
is not. A text longer than the context is cut into disjoint windows; a later window is opened by the token before it,
and the last one is filled up with earlier tokens. Rostok's side builds these windows itself and runs its own model.
docs/perplexity.md has compare.py's protocol: it scores the closing ◆ too and opens each window with ◆.

`add_bos_token=False` for the harness: it puts ◆ in front on its own, and the exported tokenizer does so too; without
this word it scores ◆ ◆ text. Left out: every other task of the harness.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import export  # noqa: E402
from model import build_model  # noqa: E402
from rostok.errors import UserError, run_main  # noqa: E402
from rostok.measuring.score import nats_of  # noqa: E402
from rostok.runs import Run, load_run  # noqa: E402
from rostok.text.shards import open_data  # noqa: E402

TASK = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{text}}",
    "metric_list": [{"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}],
}


def held_out_texts(folder: Path, run: Run, count: int) -> list[str]:
    """The first texts of the held-out split, as text. Raises UserError when the shards have other token ids."""
    data = open_data(folder)
    if data.tokenizer_sha256 != run.tokenizer.sha256:
        raise UserError(
            f"{folder} was made with another tokenizer than {run.folder}; name the right shards with --data"
        )
    split = data.split("valid")
    texts = (run.tokenizer.decode(split.text(i)[1:].tolist()) for i in range(min(count, len(split))))
    return [text for text in texts if text.strip()]


def rolling_windows(ids: list[int], context: int) -> Iterator[tuple[list[int], int]]:
    """The harness's windows over [◆, tokens...]: inputs of a window and how many of its last targets count.

    >>> list(rolling_windows([0, 1, 2, 3, 4, 5], context=3))
    [([0, 1, 2], 3), ([2, 3, 4], 2)]
    """
    n = len(ids) - 1  # targets: every token but ◆
    for done in range(0, n, context):
        end = min(done + context, n)
        yield ids[max(0, end - context) : end], end - done


@torch.inference_mode()
def rostok_nats(run: Run, texts: list[str], context: int) -> float:
    """Sum of nats over all tokens of the texts, by the windows above."""
    total = 0.0
    for text in texts:
        ids = [run.tokenizer.start_id, *run.tokenizer.encode(text)]
        for begin, (inputs, counted) in zip(
            range(0, len(ids), context), rolling_windows(ids, context), strict=False
        ):
            logits = run.model(torch.tensor([inputs]))[0, -counted:]  # (counted, V)
            targets = torch.tensor(ids[begin + 1 : begin + 1 + counted])
            total += float(nats_of(logits, targets)[0].sum())
    return total


def harness(
    folder: Path, task: dict[str, Any], lines: Sequence[dict[str, Any]], work: Path, bos: bool
) -> dict[str, Any]:
    """What lm-evaluation-harness says of an exported folder on a task over these lines. Raises UserError without it."""
    try:
        import lm_eval  # pyright: ignore[reportMissingImports]
        from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError("this check needs lm-evaluation-harness; type: pip install 'lm_eval[hf]'") from None
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (work / "lines.jsonl").write_text(text, encoding="utf-8")
    (work / "tasks").mkdir()
    source = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(work / "lines.jsonl")}}}
    whole = {"task": "rostok_check", **source, "test_split": "test", **task, "metadata": {"version": 1}}
    (work / "tasks" / "rostok.yaml").write_text(json.dumps(whole), encoding="utf-8")  # JSON is YAML too
    answer: Any = lm_eval.simple_evaluate(
        model="hf",
        model_args=f"pretrained={folder},dtype=float32,add_bos_token={bos}",
        tasks=["rostok_check"],
        task_manager=TaskManager(include_path=str(work / "tasks")),
        device="cpu",
        batch_size=1,
        bootstrap_iters=0,
    )
    return answer["results"]["rostok_check"]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a run folder of a GPT")
    parser.add_argument("--data", type=Path, help="shards with the held-out texts (default: the run's own)")
    parser.add_argument("--texts", type=int, default=200, help="how many held-out texts (default: 200)")
    options = parser.parse_args(argv)
    run = load_run(options.run, build_model)
    context = export.gpt_config(run).context
    texts = held_out_texts(options.data or Path(run.config["data"]["path"]), run, options.texts)
    with tempfile.TemporaryDirectory() as name:
        export.export_hf(run, Path(name) / "hf", "check_lm_eval.py")
        found = harness(Path(name) / "hf", TASK, [{"text": text} for text in texts], Path(name), bos=False)
    theirs = found["bits_per_byte,none"]
    tokens = sum(len(run.tokenizer.encode(text)) for text in texts)
    long = int(np.sum([len(run.tokenizer.encode(text)) > context for text in texts]))
    n_bytes = sum(len(text.encode()) for text in texts)
    ours = rostok_nats(run, texts, context) / math.log(2) / n_bytes
    print(
        f"{len(texts)} texts, {tokens:,} tokens, {n_bytes:,} bytes; {long} longer than the context of {context}"
    )
    for who, bits in (("Rostok", ours), ("lm-evaluation-harness", theirs)):
        print(
            f"{who:<22} {bits:.6f} bits per byte   perplexity {2 ** (bits * n_bytes / tokens):.4f} per token"
        )
    same = abs(ours - theirs) < 1e-5 * ours
    numbers = {"texts": len(texts), "tokens": tokens, "bytes": n_bytes, "rostok": ours, "lm_eval": theirs}
    print(json.dumps({"check": "lm_eval", "run": options.run.name, "ok": same, **numbers}))
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(run_main(main))
