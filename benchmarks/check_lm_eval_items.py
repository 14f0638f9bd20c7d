"""Does lm-evaluation-harness prefer what Rostok prefers? Export a run, let both choose in the same pairs.

    pip install "rostok[hf]" "lm_eval[hf]"
    python benchmarks/check_lm_eval_items.py checkpoints/rostok-mini                    # the skills of tinystories
    python benchmarks/check_lm_eval_items.py checkpoints/rostok-mini --items mine.jsonl # one's own pairs, or BLiMP's

Both numbers are the share of pairs whose good continuation costs fewer nats (the harness calls it acc). They must be
equal in all digits. The harness counts a tie as right, since the good one comes first; so does this check, and it says
how many there are. ◆ comes first in both: the harness puts it before an empty prefix on its own, and before another
one with `add_bos_token=True`. BLiMP's sentences follow a blank, as the harness's own task `blimp` has it. Left out:
pairs that are longer than the context, of which the harness drops ◆.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from check_lm_eval import harness  # first: it puts the project's own folder on the path

import export
from model import build_model
from rostok.errors import run_main
from rostok.measuring.skills.ask import chosen_items
from rostok.measuring.skills.scoring import encode_items, score_pairs
from rostok.runs import load_run

TASK = {
    "output_type": "multiple_choice",
    "doc_to_text": "{{prefix}}",
    "doc_to_choice": "{{[good, bad]}}",
    "doc_to_target": 0,
    "target_delimiter": "",
    "metric_list": [{"metric": "acc"}],
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a run folder of a GPT")
    parser.add_argument(
        "--items", default="tinystories", help="a set of skills, or a file (default: tinystories)"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth pair (default: 1)")
    options = parser.parse_args(argv)
    run = load_run(options.run, build_model)
    context = export.gpt_config(run).context
    items = chosen_items(options.items, run.tokenizer)[:: options.every]
    pairs = encode_items(items, run.tokenizer)
    kept = [k for k, pair in enumerate(pairs) if max(len(pair.good), len(pair.bad)) <= context]
    found = score_pairs(run.model, [pairs[k] for k in kept], context)
    ours, ties = float((found.good <= found.bad).mean()), int((found.good == found.bad).sum())
    lines = [{"prefix": items[k].prefix, "good": items[k].good, "bad": items[k].bad} for k in kept]
    with tempfile.TemporaryDirectory() as name:
        export.export_hf(run, Path(name) / "hf", "check_lm_eval_items.py")
        theirs = harness(Path(name) / "hf", TASK, lines, Path(name), bos=True)["acc,none"]
    print(f"{len(kept)} pairs of {len(items)}, the others longer than the context of {context}; ties: {ties}")
    for who, share in (("Rostok", ours), ("lm-evaluation-harness", theirs)):
        print(f"{who:<22} {share!r}")
    told = {
        "run": options.run.name,
        "ok": ours == theirs,
        "pairs": len(kept),
        "rostok": ours,
        "lm_eval": theirs,
    }
    print(json.dumps({"check": "lm_eval_items", **told}))
    return 0 if ours == theirs else 1


if __name__ == "__main__":
    raise SystemExit(run_main(main))
