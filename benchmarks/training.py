"""Speed of a training step: Rostok against a plain Hugging Face transformers loop on a model of the same shape.

    python benchmarks/training.py                          # the shape of configs/rostok.yaml, vocabulary 8192, 8 x 512
    python benchmarks/training.py --rounds 3 --layers 2 --vocab 512 --context 128 --batch 4          # a quick look
    python benchmarks/training.py --sweep                  # also batch, context and width, ours only

A step is forward, loss, backward, clip, AdamW. Each variant lives in a process of its own, and they take turns, a few
steps each, another one first in each round, so that a noisy machine disturbs them alike; figures are medians over the
rounds and ratios are medians of the ratios of each round. Memory is the most that each process ever held.
Variants: ours as train.py would run it; Hugging Face Qwen3 (the same model, term for term) in a plain loop with
torch.optim.AdamW's defaults; that with one line of bf16 autocast; that with torch.compile too. `peak_share` counts
6 operations a matmul weight and token and the causal half of attention, over the best of all square matmuls in the
run's own format, some of which are tried in every round. The last line is JSON.
"""

import argparse
import dataclasses
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from model import GPTConfig, build_model
from rostok.devices import choose_device
from rostok.text.shards import whole, write_data
from rostok.text.stories.plots import generate_stories
from rostok.text.tokenizer import train_tokenizer
from rostok.training.loader import RowLoader
from rostok.training.optim import OptimConfig, build_optimizer
from rostok.training.runtime import (
    Runtime,
    RuntimeConfig,
    choose_runtime,
    compile_parts,
    flops_per_token,
    measure_peak,
    peak_memory,
    synchronise,
)

Step = Callable[[], float]
STEPS = 3  # in a turn
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
        compile_parts(model, runtime, rows, lambda text: print(text, file=sys.stderr))

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


def make(name: str, config: GPTConfig, rows: int, settings: RuntimeConfig) -> tuple[Step, torch.device]:
    """A variant's step, in this process from now on. The peer's process keeps torch's own switches."""
    if name == "ours":
        runtime = choose_runtime(settings)
        return our_step(config, rows, runtime), runtime.device
    device, _ = choose_device(settings.device)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    return peer_step(config, rows, device, "autocast" in name, "compiled" in name), device


def serve(name: str, config: GPTConfig, rows: int, settings: RuntimeConfig, pipe: Connection) -> None:
    """The life of a variant's process: the seconds of one step for every True that comes, a few in a row, as in
    training; at False, its memory."""
    step, device = make(name, config, rows, settings)
    step()  # the first one compiles and touches memory
    while pipe.recv():
        synchronise(device)
        started = time.perf_counter()
        for _ in range(STEPS):
            step()
        synchronise(device)
        pipe.send((time.perf_counter() - started) / STEPS)
    pipe.send(peak_memory(device))


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


@dataclasses.dataclass
class Timing:
    """One variant's seconds a step, round by round, and its process's most bytes of memory."""

    seconds: list[float]
    memory: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measure(
    names: Sequence[str], config: GPTConfig, rows: int, settings: RuntimeConfig, rounds: int
) -> tuple[dict[str, Timing], float]:
    """Let the variants take turns, each in its own process. Gives their timings, and the FLOP/s of the best matmul that
    was seen between the turns."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    processes = []
    for name in names:
        pipes[name], end = context.Pipe()
        processes.append(context.Process(target=serve, args=(name, config, rows, settings, end), daemon=True))
        processes[-1].start()
        end.close()  # so that a variant that dies is noticed
        ask(pipes[name])  # one after the other: when this is answered, the variant has compiled
    timings = {name: Timing([]) for name in names}
    order, peak, runtime = deque(names), 0.0, choose_runtime(settings)
    for _ in range(rounds):
        for name in order:
            timings[name].seconds.append(ask(pipes[name]))
        order.rotate(1)
        peak = max(peak, measure_peak(runtime))
    for name, pipe in pipes.items():
        timings[name].memory = int(ask(pipe, False))
    for process in processes:
        process.join()
    return timings, peak


def plain_peak(runtime: Runtime) -> float:
    """FLOP/s of the best matmul in fp32 without any switch of ours: what a plain loop could reach at most."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return max(measure_peak(dataclasses.replace(runtime, dtype=torch.float32)) for _ in range(3))
    finally:
        torch.set_float32_matmul_precision(before)


def ask(pipe: Connection, step: bool = True) -> float:
    try:
        pipe.send(step)
        return pipe.recv()
    except (EOFError, OSError):
        raise SystemExit("a variant's process has ended; what it printed above says why") from None


def sweep(base: GPTConfig, rows: int, settings: RuntimeConfig, rounds: int) -> None:
    changes = [("batch", n, {}) for n in (1, 4, 16)]
    changes += [("context", n, {"context": n}) for n in (128, 512, 2048, 4096)]
    changes += [("width", n, {"d_model": n, "n_head": n // 64}) for n in (128, 256, 512)]
    print("\n| changed | tokens/s | MiB | of peak |\n|---|---|---|---|")
    for what, value, change in changes:
        config = dataclasses.replace(base, **change)
        number = value if what == "batch" else max(1, rows * base.context // config.context)
        timings, peak = measure(["ours"], config, number, settings, rounds)
        timing = timings["ours"]
        speed = number * config.context / timing.median
        share = speed * flops_per_token(build_model(config)) / peak
        print(f"| {what} {value} | {speed:,.0f} | {timing.memory / 2**20:,.0f} | {share:.0%} |", flush=True)


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
    timings, peak = measure(options.only, config, options.batch, settings, options.rounds)
    tokens, runtime = options.batch * options.context, choose_runtime(settings)
    print(f"{runtime.reason}\n\n| variant | tokens/s | MiB | ours is faster by |\n|---|---|---|---|")
    result: dict[str, Any] = {}
    for name, timing in timings.items():
        line = ""
        if name != "ours" and "ours" in timings:
            ratios = [a / b for a, b in zip(timing.seconds, timings["ours"].seconds, strict=True)]
            result[f"ratio_{name}"] = round(statistics.median(ratios), 3)
            line = f"{result[f'ratio_{name}']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        result[f"memory_mib_{name}"] = round(timing.memory / 2**20)
        print(f"| {name} | {tokens / timing.median:,.0f} | {result[f'memory_mib_{name}']:,} | {line} |")
    if "ours" in timings:
        speed = tokens / timings["ours"].median
        flops = flops_per_token(build_model(config))
        result |= {"peak_share": round(speed * flops / peak, 3), "tokens_per_s": round(speed, 1)}
        plain = plain_peak(runtime)
        result["peak_ratio"] = round(peak / plain, 2)
        print(
            f"\nmatmul peak {peak / 1e9:,.0f} GFLOP/s, of which ours reaches {result['peak_share']:.0%}; "
            f"in fp32 as torch multiplies it by default {plain / 1e9:,.0f}, {result['peak_ratio']:.2f} times less"
        )
    result["loader_tokens_per_s"] = round(loader_speed(context=min(512, options.context)))
    print(f"loader {result['loader_tokens_per_s']:,} tokens/s")
    if options.sweep:
        sweep(config, options.batch, settings, options.rounds)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
