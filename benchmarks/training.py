"""Speed of a training step: Rostok against a plain Hugging Face transformers loop on a model of the same shape.

    python benchmarks/training.py                          # the shape of configs/rostok.yaml, vocabulary 8192, 8 x 512
    python benchmarks/training.py --rounds 3 --layers 2 --vocab 512 --context 128 --batch 4          # a quick look
    python benchmarks/training.py --sweep                  # also batch, context and width, ours only

A step is forward, loss, backward, clip, AdamW. All variants live in one process and take turns, so that a noisy
machine disturbs them alike; figures are medians over the rounds and ratios are medians of the ratios of each round.
Variants: ours as train.py would run it; Hugging Face Qwen3 (the same model, term for term) in a plain loop with
torch.optim.AdamW's defaults; that with one line of bf16 autocast; that with torch.compile too. `peak_share` counts
6 operations a matmul weight and token and the causal half of attention, over a square matmul in the run's own format.
The last line is JSON. Memory is the peak of the whole process for ours alone (--only ours), so run it apart.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from model import GPTConfig, build_model
from rostok.loader import RowLoader
from rostok.optim import OptimConfig, build_optimizer
from rostok.runtime import (
    Runtime,
    RuntimeConfig,
    choose_runtime,
    compile_blocks,
    flops_per_token,
    matmul_precision,
    measure_peak,
    peak_memory,
    synchronise,
)
from rostok.shards import whole, write_data
from rostok.stories import generate_stories
from rostok.tokenizer import train_tokenizer

Step = Callable[[], float]
VARIANTS = ("ours", "hf_plain", "hf_autocast", "hf_autocast_compiled")


def batch_of(config: GPTConfig, rows: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(config.vocab_size, (rows, config.context), generator=generator).to(device)


def our_step(config: GPTConfig, rows: int, runtime: Runtime) -> Step:
    model = build_model(config).to(runtime.device)
    optimizer = build_optimizer(model, OptimConfig())
    ids = batch_of(config, rows, runtime.device)

    def loss_of() -> torch.Tensor:
        with runtime.autocast():
            return model(ids, ids)

    if runtime.compile:
        compile_blocks(model, loss_of, lambda text: print(text, file=sys.stderr))

    def step() -> float:
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def peer_model(config: GPTConfig, device: torch.device) -> torch.nn.Module:
    """Hugging Face's Qwen3 of the same shape, with its own initialisation."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes: dict[str, Any] = {
        "vocab_size": config.vocab_size, "hidden_size": config.d_model, "intermediate_size": config.hidden,
        "num_hidden_layers": config.n_layer, "num_attention_heads": config.n_head,
        "num_key_value_heads": config.kv_heads, "head_dim": config.d_head,
        "max_position_embeddings": config.context, "tie_word_embeddings": True,
    }  # fmt: skip
    model: Any = Qwen3ForCausalLM(Qwen3Config(**sizes))
    return model.to(device).train()


def peer_step(config: GPTConfig, rows: int, device: torch.device, autocast: bool, compiled: bool) -> Step:
    model = peer_model(config, device)
    forward: Any = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = batch_of(config, rows, device)

    def step() -> float:
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            loss = forward(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def make(name: str, config: GPTConfig, rows: int, runtime: Runtime) -> Step:
    torch.set_float32_matmul_precision("highest")
    if name == "ours":
        return our_step(config, rows, runtime)
    return peer_step(config, rows, runtime.device, "autocast" in name, "compiled" in name)


def timed(name: str, step: Step, runtime: Runtime) -> float:
    """Seconds of one step. Each side has its own matmul precision: ours from runtime.py, the peer's torch's default."""
    ours, _ = matmul_precision(runtime.device)
    torch.set_float32_matmul_precision(ours if name == "ours" else "highest")
    synchronise(runtime.device)
    started = time.perf_counter()
    step()
    synchronise(runtime.device)
    return time.perf_counter() - started


def loader_speed(rows: int = 8, context: int = 512, seconds: float = 1.0) -> float:
    """Tokens a second of RowLoader on shards of built-in stories."""
    with tempfile.TemporaryDirectory() as folder:
        texts = list(generate_stories(500))
        splits = {"train": whole(texts[50:]), "valid": whole(texts[:50])}
        data = write_data(folder, splits, train_tokenizer(texts, 512))
        loader = RowLoader(data.split("train"), context, rows, seed=0)
        next(loader)
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            next(loader)
            count += rows * context
        return count / (time.perf_counter() - started)


def measure(
    names: Sequence[str], config: GPTConfig, rows: int, runtime: Runtime, rounds: int
) -> dict[str, list[float]]:
    """Seconds of each variant's step, round by round."""
    steps = {name: make(name, config, rows, runtime) for name in names}
    for name, step in steps.items():  # the first one compiles and touches memory
        timed(name, step, runtime)
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(timed(name, step, runtime))
    return times


def sweep(base: GPTConfig, rows: int, runtime: Runtime, rounds: int) -> None:
    changes = [("batch", n, {}) for n in (1, 4, 16)]
    changes += [("context", n, {"context": n}) for n in (128, 512, 2048, 4096)]
    changes += [("width", n, {"d_model": n, "n_head": n // 64}) for n in (128, 256, 512)]
    print("\n| changed | tokens/s |\n|---|---|")
    for what, value, change in changes:
        config = dataclasses.replace(base, **change)
        number = value if what == "batch" else max(1, rows * base.context // config.context)
        times = measure(["ours"], config, number, runtime, rounds)["ours"]
        print(f"| {what} {value} | {number * config.context / statistics.median(times):,.0f} |")


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("layers", 8), ("heads", 6), ("width", 384), ("vocab", 8192), ("context", 512),
                          ("batch", 8), ("rounds", 5), ("threads", 0)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--compile", choices=("always", "never"), default="always", help="of ours")
    parser.add_argument("--dtype", choices=("auto", "fp32", "bf16", "fp16"), default="auto", help="of ours")
    parser.add_argument("--only", choices=VARIANTS, nargs="+", default=list(VARIANTS))
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args(argv)
    config = GPTConfig(
        vocab_size=options.vocab, context=options.context, n_layer=options.layers, n_head=options.heads,
        d_model=options.width,
    )  # fmt: skip
    settings = RuntimeConfig(dtype=options.dtype, compile=options.compile, threads=options.threads)
    runtime = choose_runtime(settings)
    print(runtime.reason)
    times = measure(options.only, config, options.batch, runtime, options.rounds)
    tokens, peak = options.batch * options.context, measure_peak(runtime)
    flops = flops_per_token(build_model(config))
    print("\n| variant | tokens/s | ours is faster by |\n|---|---|---|")
    result: dict[str, Any] = {}
    for name in options.only:
        line = ""
        if name != "ours" and "ours" in times:
            ratios = [a / b for a, b in zip(times[name], times["ours"], strict=True)]
            result[f"ratio_{name}"] = round(statistics.median(ratios), 3)
            line = f"{result[f'ratio_{name}']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {name} | {tokens / statistics.median(times[name]):,.0f} | {line} |")
    if "ours" in times:
        speed = tokens / statistics.median(times["ours"])
        result |= {"peak_share": round(speed * flops / peak, 3), "tokens_per_s": round(speed, 1)}
        print(f"\nmatmul peak {peak / 1e9:,.0f} GFLOP/s; ours reaches {result['peak_share']:.0%} of it")
    result["peak_memory_mib"] = round(peak_memory(runtime.device) / 2**20)
    result["loader_tokens_per_s"] = round(loader_speed(context=min(512, options.context)))
    print(
        f"memory {result['peak_memory_mib']:,} MiB at most; loader {result['loader_tokens_per_s']:,} tokens/s"
    )
    if options.sweep:
        sweep(config, options.batch, runtime, options.rounds)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
