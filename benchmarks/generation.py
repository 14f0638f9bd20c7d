"""Tokens a second of our generation and of Hugging Face's `generate`, on the same weights, in one process.

    python benchmarks/generation.py                                # Rostok's shape, random weights, vocabulary 8192
    python benchmarks/generation.py checkpoints/rostok --text valid.txt  # a run, and what each form costs
    python benchmarks/generation.py --clock cpu --threads 1        # on a busy machine: processor time of one thread

Every round runs all variants one after the other, greedy; a ratio is the median over rounds of ratios within a round.
A table for people, one line of JSON last for programs. Left out: sampling (it costs both sides the same), training.
"""

# transformers' models and torch's modules have attributes that no checker knows
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false

import argparse
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from model import GPT, GPTConfig, build_model
from rostok.errors import UserError, run_main
from rostok.formats.hf import config_to_hf, weights_to_hf
from rostok.generation.generate import CompiledSteps, Sampling, generate
from rostok.generation.quantize import compiles, prepare_for_generation
from rostok.runs import load_run

GREEDY = Sampling(temperature=0)
OURS = {
    "fp32": "fp32",
    "bf16": "bf16",
    "int8_eager": "int8",
    "int8": "int8",
}  # the last one as with --compile
Run = Callable[[list[list[int]], int], Any]


def new_model(run: str | None) -> GPT:
    """The model of a run, or Rostok's shape with drawn weights."""
    if run:
        model = load_run(run, build_model).model
    else:
        torch.manual_seed(0)
        model = build_model(GPTConfig(vocab_size=8192)).eval()
        for parameter in model.parameters():
            if parameter.ndim == 2:  # also those that start at zero, or every token would be like the other
                torch.nn.init.normal_(parameter, std=0.02)
    if not isinstance(model, GPT):
        raise UserError("wanted the run of a GPT: Hugging Face has nothing to set against a window MLP")
    return model.requires_grad_(False)


def hugging_face(model: GPT, dtype: torch.dtype) -> Run:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    drop = ("architectures", "torch_dtype")
    settings = {key: value for key, value in config_to_hf(model.config).items() if key not in drop}
    theirs = Qwen3ForCausalLM(Qwen3Config(**settings | {"eos_token_id": None})).eval()
    theirs.load_state_dict(weights_to_hf(model.state_dict(), model.config), strict=False)
    theirs.to(dtype)

    def run(prompts: list[list[int]], new: int) -> Any:
        ids = torch.tensor(prompts)
        mask = torch.ones_like(ids)
        return theirs.generate(ids, attention_mask=mask, max_new_tokens=new, do_sample=False, pad_token_id=0)

    return run


def ours(run: str | None, variant: str) -> Run:
    model: Any = new_model(run)
    prepare_for_generation(model, OURS[variant])  # pyright: ignore[reportArgumentType]
    if variant == "int8" and compiles(model):
        model = CompiledSteps(model)
    return lambda prompts, new: generate(model, prompts, GREEDY, new)


def compare(
    variants: dict[str, Run], prompts: list[list[int]], new: int, rounds: int, clock: Any
) -> dict[str, list]:
    """Seconds of every variant in every round; one shorter round before them warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, run in variants.items():
            started = clock()
            run(prompts, new if number else min(new, 8))
            if number:
                seconds[name].append(clock() - started)
    return seconds


def ratios(seconds: dict[str, list], base: str) -> dict[str, float]:
    """How many times faster than `base` each variant is: the median over rounds."""
    pairs = {name: zip(seconds[base], times, strict=True) for name, times in seconds.items()}
    return {name: round(statistics.median(b / t for b, t in pair), 2) for name, pair in pairs.items()}


def step_costs(run: str | None, clock: Any) -> dict[str, float]:
    """Milliseconds of one fp32 step at batch 1 with so many tokens in the cache: the best of 20."""
    model = new_model(run)
    prepare_for_generation(model, "fp32")
    result, limit = {}, model.config.context
    with torch.inference_mode():
        for held in (limit // 16, limit // 4, limit // 2, limit - 1):
            cache, times = model.new_cache(1), []
            model(torch.zeros(1, held, dtype=torch.int64), cache=cache, last=True)
            for _ in range(20):
                cache.length[0] = held
                started = clock()
                model(torch.zeros(1, 1, dtype=torch.int64), cache=cache, last=True)
                times.append(clock() - started)
            result[str(held)] = round(1e3 * min(times), 2)
    return result


def bandwidth(clock: Any) -> float:
    """GB/s of reading 256 MB: the best of five."""
    block, times = torch.ones(64_000_000), []
    for _ in range(5):
        started = clock()
        block.sum()
        times.append(clock() - started)
    return round(0.256 / min(times), 1)


def megabytes(run: str | None, names: Sequence[str]) -> dict[str, float]:
    """MB of all weights in each form, and of our cache for one text."""
    result = {}
    for name in dict.fromkeys(OURS[name] for name in names):
        model = new_model(run)
        prepare_for_generation(model, name)  # pyright: ignore[reportArgumentType]
        result[name] = size_of(*model.parameters(), *model.buffers())
    cache = new_model(run).new_cache(1)
    return result | {"cache": size_of(*cache.keys, *cache.values)}


def size_of(*tensors: torch.Tensor) -> float:
    return round(1e-6 * sum(tensor.nbytes for tensor in tensors), 1)


@torch.inference_mode()
def perplexities(run: str, text: Path, rows: int = 64) -> dict[str, float]:
    """Perplexity on the first rows of a text under each form of the weights."""
    opened, result = load_run(run, build_model), {}
    context = opened.model.config.context
    ids = opened.tokenizer.encode(text.read_text(encoding="utf-8")[: 8 * context * rows])
    size = context - 1
    parts = [ids[i : i + size] for i in range(0, min(len(ids), rows * size) - size + 1, size)]
    rows_of = torch.tensor([[opened.tokenizer.start_id, *part] for part in parts])
    for weights in ("fp32", "bf16", "int8"):
        model = new_model(run)
        prepare_for_generation(model, weights)
        nats = [
            torch.nn.functional.cross_entropy(model(row[None, :-1])[0].double(), row[1:]).item()
            for row in rows_of
        ]
        result[weights] = round(math.exp(statistics.mean(nats)), 4)
    return result


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", help="a run folder; without one: Rostok's shape, random weights")
    parser.add_argument("--text", type=Path, help="a text to measure perplexity on (needs a run)")
    parser.add_argument("--batches", default="1,16,64")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variants", default="fp32,bf16,int8_eager,int8", help=f"of {', '.join(OURS)}")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(options.threads)
    clock = time.perf_counter if options.clock == "wall" else time.process_time

    base = new_model(options.run)
    variants = {"hf_fp32": hugging_face(base, torch.float32)}
    names = options.variants.split(",")
    if any("bf16" in name for name in names):
        variants["hf_bf16"] = hugging_face(base, torch.bfloat16)
    variants |= {name: ours(options.run, name) for name in names}
    result: dict[str, Any] = {
        "threads": options.threads,
        "clock": options.clock,
        "gb_per_s": bandwidth(clock),
    }
    result["step_ms_at"] = step_costs(options.run, clock)
    print(f"{options.threads} threads, {options.clock} clock, memory {result['gb_per_s']} GB/s", flush=True)
    weights = 4e-9 * (sum(base.parameter_groups().values()))
    share = weights / (1e-3 * min(result["step_ms_at"].values())) / result["gb_per_s"]
    result["share_of_bandwidth"] = round(share, 2)
    print(f"one fp32 step, ms at position: {result['step_ms_at']}; {share:.0%} of that bandwidth")

    result["hf_fp32_mb"] = size_of(*base.parameters())
    result["mb"] = megabytes(options.run, names)
    print(
        f"weights, MB: Hugging Face fp32 {result['hf_fp32_mb']}, ours and a cache {result['mb']}", flush=True
    )

    jobs = [(f"batch{b}", int(b), options.prompt, options.new) for b in options.batches.split(",")]
    jobs.append(("first_token_500", 1, min(500, base.config.context - 1), 1))
    for label, batch, prompt, new in jobs:
        rows = [[0, *(5 + torch.arange(prompt - 1) % 200).tolist()]] * batch
        seconds = compare(variants, rows, new, options.rounds, clock)
        rate = {name: round(batch * new / statistics.median(t), 1) for name, t in seconds.items()}
        result[label] = {"tokens_per_s": rate, "ratio_hf_fp32": ratios(seconds, "hf_fp32")}
        if "hf_bf16" in variants:
            result[label]["ratio_hf_bf16"] = ratios(seconds, "hf_bf16")
        print(f"\n{label:<16} {'tokens/s':>10} {'x HF fp32':>10}")
        for name in variants:
            print(f"{name:<16} {rate[name]:>10.1f} {result[label]['ratio_hf_fp32'][name]:>10.2f}", flush=True)
    if options.run and options.text:
        result["perplexity"] = perplexities(options.run, options.text)
        print("\nperplexity", result["perplexity"])
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main(main))
