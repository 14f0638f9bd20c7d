"""Tokens a second of our generation, of Hugging Face's `generate` and of llama.cpp, on the same weights, in one run.

    python benchmarks/generation.py                                  # Rostok's shape, random weights, vocabulary 8192
    python benchmarks/generation.py RUN --peers                      # a run, and llama.cpp on a GGUF file of it
    python benchmarks/generation.py RUN --text valid.txt             # a run, and what each number format costs in loss
    python benchmarks/generation.py RUN --peers --busy 2             # while two other processes keep the cores busy

`--peers` needs `pip install llama-cpp-python` (its C++ is compiled, 4 minutes) and the extra `export`. Each program
runs with one thread and with all of them, once; the better is taken. Then every round runs all programs one after the
other; a ratio is the median over rounds of ratios within a round. A table for people, one line of JSON last for
programs. Left out: training (benchmarks/training.py); batches of llama.cpp.
"""

# transformers' models and torch's modules have attributes that no checker knows
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportMissingImports=false

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from export import write_gguf
from model import GPT, GPTConfig, build_model
from rostok.devices import processor_name
from rostok.errors import UserError, run_main
from rostok.formats.hf import config_to_hf, weights_to_hf
from rostok.generation.generate import Sampling, generate
from rostok.generation.quantize import prepare_for_generation
from rostok.runs import load_run

GREEDY, SAMPLED = Sampling(temperature=0), Sampling(temperature=0.8, top_p=0.95)
FORMATS = {"fp32": "F32", "bf16": "F16", "int8": "Q8_0"}  # ours, and llama.cpp's with as many bits
Program = Callable[[list[list[int]], int], Any]  # prompts, new tokens
Programs = dict[str, Callable[[int], Program]]  # name -> threads -> the program


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


def hugging_face(model: GPT, dtype: torch.dtype, threads: int) -> Program:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    drop = ("architectures", "torch_dtype")
    settings = {key: value for key, value in config_to_hf(model.config).items() if key not in drop}
    theirs = Qwen3ForCausalLM(Qwen3Config(**settings | {"eos_token_id": None})).eval()
    theirs.load_state_dict(weights_to_hf(model.state_dict(), model.config), strict=False)
    theirs.to(dtype)

    def run(prompts: list[list[int]], new: int) -> Any:
        torch.set_num_threads(threads)
        ids = torch.tensor(prompts)
        mask = torch.ones_like(ids)
        return theirs.generate(ids, attention_mask=mask, max_new_tokens=new, do_sample=False, pad_token_id=0)

    return run


def ours(model: GPT, weights: str, sampling: Sampling, threads: int) -> Program:
    torch.set_num_threads(threads)
    packed = prepare_for_generation(model, weights)
    return lambda prompts, new: generate(packed, prompts, sampling, new)


def llama_cpp(file: Path, context: int, threads: int) -> Program:
    """llama.cpp through its C interface: as little Python as a greedy loop needs."""
    import llama_cpp as api

    both = {"n_threads": threads, "n_threads_batch": threads}
    model = api.Llama(str(file), n_ctx=context, n_batch=context, verbose=False, **both)
    handle, size = model.ctx, model.n_vocab()

    def read(ids: list[int]) -> int:
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        if api.llama_decode(handle, api.llama_batch_get_one(tokens, len(ids))):
            raise UserError("llama.cpp cannot read these tokens")
        return int(numpy.ctypeslib.as_array(api.llama_get_logits(handle), (size,)).argmax())

    def run(prompts: list[list[int]], new: int) -> list[int]:
        api.llama_memory_clear(api.llama_get_memory(handle), True)
        written = [read(prompts[0])]
        while len(written) < new:
            written.append(read(written[-1:]))
        return written

    run.model = model  # or it would be freed
    return run


def programs_of(options: argparse.Namespace, model: GPT, folder: Path) -> Programs:
    result: Programs = {
        "hf_fp32": lambda threads: hugging_face(model, torch.float32, threads),
        "hf_bf16": lambda threads: hugging_face(model, torch.bfloat16, threads),
    }
    for name in options.formats.split(","):
        result[name] = lambda threads, name=name: ours(model, name, GREEDY, threads)
        result[f"{name}_sampled"] = lambda threads, name=name: ours(model, name, SAMPLED, threads)
        if options.peers:
            kind = FORMATS[name]
            write_gguf(load_run(options.run, build_model), folder / f"{kind}.gguf", kind)
            result[f"llama_{kind}"] = lambda threads, kind=kind: llama_cpp(
                folder / f"{kind}.gguf", model.config.context, threads
            )
    return result


def seconds_of(program: Program, prompts: list[list[int]], new: int) -> float:
    started = time.perf_counter()
    program(prompts, new)
    return time.perf_counter() - started


def best_threads(
    make: Callable[[int], Program], most: int, prompts: list[list[int]], new: int
) -> tuple[int, Program]:
    """The number of threads that was faster in one run of each, and the program with it."""
    tried = {}
    for threads in {1, most}:
        program = make(threads)
        seconds_of(program, prompts, min(new, 8))  # warms up
        tried[threads] = (seconds_of(program, prompts, new), program)
    best = min(tried, key=lambda threads: tried[threads][0])
    return best, tried[best][1]


def measure(
    programs: Programs, prompts: list[list[int]], new: int, rounds: int, most: int
) -> tuple[dict[str, int], dict[str, list[float]]]:
    """Threads of each program, and its seconds in every round."""
    chosen = {name: best_threads(make, most, prompts, new) for name, make in programs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, (_, program) in chosen.items():
            seconds[name].append(seconds_of(program, prompts, new))
    return {name: threads for name, (threads, _) in chosen.items()}, seconds


def ratios(seconds: dict[str, list[float]], base: str) -> dict[str, float]:
    """How many times as fast as `base` each program is: the median over rounds."""
    pairs = {name: zip(seconds[base], times, strict=True) for name, times in seconds.items()}
    return {name: round(statistics.median(b / t for b, t in pair), 2) for name, pair in pairs.items()}


@torch.inference_mode()
def losses(run: str, text: Path, rows: int = 64) -> dict[str, float]:
    """Loss on the first rows of a text under model.py and under each format, nats per token."""
    opened: Any = load_run(run, build_model)
    context = opened.model.config.context
    ids = opened.tokenizer.encode(text.read_text(encoding="utf-8")[: 8 * context * rows])
    size = context - 1
    parts = [ids[i : i + size] for i in range(0, min(len(ids), rows * size) - size + 1, size)]
    table = torch.tensor([[opened.tokenizer.start_id, *part] for part in parts])
    result = {}
    for name in ("model.py", *FORMATS):
        model = opened.model if name == "model.py" else prepare_for_generation(new_model(run), name)
        nats = [
            torch.nn.functional.cross_entropy(model(row[None, :-1])[0].double(), row[1:]) for row in table
        ]
        result[name] = round(statistics.mean(loss.item() for loss in nats), 5)
    return result


def print_table(label: str, rate: dict[str, float], threads: dict[str, int], ratio: dict[str, dict]) -> None:
    print(f"\n{label:<16} {'threads':>7} {'tokens/s':>10}" + "".join(f" {f'x {base}':>14}" for base in ratio))
    for name in rate:
        numbers = "".join(f" {of[name]:>14.2f}" for of in ratio.values())
        print(f"{name:<16} {threads[name]:>7} {rate[name]:>10.1f}{numbers}", flush=True)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", nargs="?", help="a run folder; without one: Rostok's shape, random weights")
    add("--peers", action="store_true", help="llama.cpp too: pip install llama-cpp-python (needs a run)")
    add("--text", type=Path, help="a text to measure the loss of each format on (needs a run)")
    add("--batches", default="1,16")
    add("--prompt", type=int, default=32)
    add("--new", type=int, default=256)
    add("--rounds", type=int, default=5)
    add("--formats", default=",".join(FORMATS), help=f"of {', '.join(FORMATS)}")
    add("--threads", type=int, default=torch.get_num_threads(), help="at most")
    add("--busy", type=int, default=0, metavar="N", help="N other processes that compute all the while")
    options = parser.parse_args(argv)
    if (options.peers or options.text) and not options.run:
        raise UserError("--peers and --text need a run, such as checkpoints/rostok-mini")
    return options


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    warnings.filterwarnings("ignore", category=UserWarning)
    model = new_model(options.run)
    print(
        f"{processor_name('cpu')}, at most {options.threads} threads, {options.busy} other processes",
        flush=True,
    )
    result: dict[str, Any] = {"processor": processor_name("cpu"), "busy": options.busy}
    if options.text:
        result["loss"] = losses(options.run, options.text)
        print("loss, nats per token:", result["loss"], flush=True)
    jobs = [(f"batch {b}", int(b), options.prompt, options.new) for b in options.batches.split(",")]
    jobs.append(("first of 500", 1, min(500, model.config.context - 1), 1))
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            programs = programs_of(options, model, Path(folder))
            for label, batch, prompt, new in jobs:
                rows = [[0, *(5 + torch.arange(prompt - 1) % 200).tolist()]] * batch
                used = {k: v for k, v in programs.items() if batch == 1 or not k.startswith("llama")}
                threads, seconds = measure(used, rows, new, options.rounds, options.threads)
                rate = {name: round(batch * new / statistics.median(t), 1) for name, t in seconds.items()}
                bases = [name for name in used if name.startswith(("hf", "llama"))]
                ratio = {base: ratios(seconds, base) for base in bases}
                result[label] = {"tokens_per_s": rate, "threads": threads, "ratio": ratio}
                print_table(label, rate, threads, ratio)
    finally:
        for other in others:
            other.kill()
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main(main))
