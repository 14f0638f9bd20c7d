"""Take a run to other programs, and back.

    python export.py checkpoints/rostok --out rostok-hf              # Hugging Face folder: transformers, vLLM, lm-eval
    python export.py checkpoints/rostok --out rostok-hf --check      # ... and prove that both say the same
    python export.py checkpoints/rostok --to gguf --out rostok.gguf  # llama.cpp, Ollama (--type F32, F16, Q8_0)
    python export.py rostok-hf --import --out checkpoints/again      # a Hugging Face folder as a run, bit for bit

A GPT is exported as Qwen3ForCausalLM, which it is term for term; the window MLP has no counterpart and is refused.
Weights keep the type that the run stores. docs/formats.md says which file holds what.
Left out: uploading (huggingface-cli upload does it), the optimizer's state.
"""

from rostok.errors import parse_early
from rostok.formats.options import options_of

if __name__ == "__main__":  # --help and wrong words need not wait for torch
    parse_early(lambda argv: options_of(argv, __doc__))

import hashlib
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from model import GPT, GPTConfig, build_model
from rostok import __version__
from rostok.errors import UserError, run_main, verb
from rostok.files import check_folder, new_folder, write_file
from rostok.formats import hf
from rostok.formats.model_card import model_card
from rostok.runs import Run, load_run, read_tensors, signed
from rostok.text.tokenizer import Tokenizer, load_tokenizer

KEPT = "rostok.json"  # what Hugging Face has no file for: the run's config, state and original post-processor
CHECK_TEXTS = (
    'Once upon a time there was a little girl. She said: "Let\'s go!"\n\n  The end.\t1234 + 5 = 1239\r\n',
    "Жил-был кот. Он любил молоко — и сметану! 猫はミルクが好き。 e\u0301 é ﬁ 🙂🙂 ",
    "<|endoftext|> inside a text is ordinary characters",
)


# run -> Hugging Face folder


def export_hf(run: Run, out: Path, command: str) -> None:
    """Write the Hugging Face folder `out`, whole or not at all. Raises UserError (window MLP, `out` exists)."""
    config = gpt_config(run)
    settings = hf.config_to_hf(config)
    text, replaced = hf.add_opening(tokenizer_json(run.tokenizer, run.folder), config.start_id)
    kept = {
        "rostok": __version__,
        "config_yaml": (run.folder / "config.yaml").read_text(encoding="utf-8"),
        "state": {key: value for key, value in run.state.items() if key not in ("sha256", "rng")},
        "post_processor": replaced,
    }
    weights = hf.weights_to_hf(read_tensors(run.step_folder, "model.safetensors"), config)
    try:
        card = model_card(run, config, out.name, command)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{run.folder / 'config.yaml'} or {run.step_folder / 'state.json'} is damaged ({error}); "
            "put back the file that the training wrote"
        ) from None

    with new_folder(out) as part:
        write_file(part / "model.safetensors", save(weights, {"format": "pt"}), durable=True)
        write_json(part / "config.json", settings)
        write_json(part / "generation_config.json", generation_config(config))
        write_json(part / "tokenizer_config.json", hf.tokenizer_config(config.context))
        write_json(part / KEPT, kept)
        write_file(part / "tokenizer.json", text, durable=True)
        write_file(part / "README.md", card, durable=True)
        if (run.folder / "metrics.jsonl").is_file():
            shutil.copyfile(run.folder / "metrics.jsonl", part / "metrics.jsonl")


def gpt_config(run: Run) -> GPTConfig:
    """The config of a run that can be exported. Raises UserError for a window MLP and for a start_id that is not ◆."""
    hf.refuse_window_mlp(run.model.config)
    assert isinstance(run.model, GPT)
    if run.model.config.start_id != run.tokenizer.start_id:
        raise UserError(
            f"{run.step_folder / 'state.json'} says start_id {run.model.config.start_id}, the tokenizer "
            f"{run.tokenizer.start_id}; import the folder again"
        )
    return run.model.config


def tokenizer_json(tokenizer: Tokenizer, folder: Path) -> str:
    """The run's tokenizer.json; where the run names a published encoding, one made from its ranks."""
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    if "tiktoken" not in json.loads(text):
        return text
    encoding = tokenizer.encoding
    return hf.published_json(encoding._pat_str, encoding._mergeable_ranks, encoding._special_tokens)


def generation_config(config: GPTConfig) -> dict[str, Any]:
    """generation_config.json: ◆ ends a text. How to draw tokens, and how many, is left to the caller."""
    return {f"{role}_token_id": config.start_id for role in ("bos", "eos", "pad")}


def check_new(out: Path) -> None:
    """Raise UserError when `out` does not name something new."""
    check_folder(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already; choose another --out or delete it first")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_file(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n", durable=True)


# Hugging Face folder -> run


def import_hf(source: Path, out: Path) -> None:
    """Write the run folder `out` from a Hugging Face folder. Raises UserError for what no GPT of Rostok has."""
    config = hf.config_from_hf(read_json(source / "config.json"))
    text = read_text(source / "tokenizer.json")
    tokenizer = load_tokenizer(source)
    if tokenizer.vocab_size > config["vocab_size"]:
        raise UserError(
            f"{source / 'tokenizer.json'} has {tokenizer.vocab_size} ids, config.json says vocab_size "
            f"{config['vocab_size']}: the model has no embedding for the rest; put the tokenizer of this model there"
        )
    config["start_id"] = tokenizer.start_id
    kept = read_kept(source / KEPT) if (source / KEPT).is_file() else {}
    content = save(hf.weights_from_hf(read_weights(source), config))
    found = kept.get("post_processor") or hf.found_processor(text, config["start_id"])
    text = hf.remove_opening(text, found) if found else text
    state = {"step": 0, "tokens": 0, "best": None, **kept.get("state", {}), "model": config}
    state = signed(state, {"model.safetensors": hashlib.sha256(content).hexdigest()})

    with new_folder(out) as part:
        step = part / f"step-{state['step']:06d}"
        step.mkdir()
        write_file(step / "model.safetensors", content, durable=True)
        write_json(step / "state.json", state)
        write_file(part / "tokenizer.json", text, durable=True)
        write_file(
            part / "config.yaml",
            kept.get("config_yaml") or yaml.safe_dump({"model": config}, sort_keys=False),
            durable=True,
        )
        write_file(part / "latest", step.name + "\n", durable=True)
        if (source / "metrics.jsonl").is_file():
            shutil.copyfile(source / "metrics.jsonl", part / "metrics.jsonl")
        try:
            load_run(part, build_model)  # refuse here, not when the user opens it
        except UserError as error:
            raise UserError(str(error).replace(str(part), str(source))) from None


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; wanted a Hugging Face folder") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}); wanted a Hugging Face folder"
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a JSON object. Got a {type(content).__name__}")
    return content


def read_kept(path: Path) -> dict[str, Any]:
    """rostok.json as `export_hf` wrote it. Raises UserError when it is something else."""
    kept = read_json(path)
    state = kept.get("state")
    texts = all(isinstance(kept.get(key), str) for key in ("config_yaml", "post_processor"))
    if not (
        texts and isinstance(state, dict) and type(state.get("step", 0)) is int and state.get("step", 0) >= 0
    ):
        raise UserError(
            f"{path} was not written by export.py; delete it to import the folder as a foreign one"
        )
    return kept


def read_weights(source: Path) -> dict[str, Tensor]:
    path = source / "model.safetensors"
    try:
        weights = load_file(path)
        if other := [name for name, tensor in weights.items() if not tensor.is_floating_point()]:
            raise UserError(
                f"{path}: {other[0]} is {weights[other[0]].dtype}; wanted float32, float16 or bfloat16"
            )
        return weights
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}; wanted a folder with one model.safetensors") from None


# --check


def check(run: Run, out: Path) -> str:
    """Compare the exported folder, opened by transformers, with the run. Raises UserError where they differ."""
    model, tokenizer = open_with_transformers(out)
    config = gpt_config(run)
    for text in CHECK_TEXTS:
        theirs = tokenizer(text, verbose=False)["input_ids"]
        if theirs != [config.start_id, *run.tokenizer.encode(text)]:
            raise UserError(f"{out}: transformers reads other token ids than Rostok in {text[:30]!r}")
    ids = torch.randint(config.vocab_size, (2, config.context), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        difference = (run.model(ids) - model(ids).logits).abs().max().item()
    if difference > 1e-4:
        raise UserError(
            f"{out}: the logits of transformers and Rostok differ by {difference:.2g}; wanted 1e-4"
        )
    ours = greedy(run.model, [config.start_id], min(100, config.context - 1), config.start_id)
    theirs = ours[:1]
    if count := len(ours) - 1:  # none fits a context of 1
        start = torch.tensor([theirs])
        mask = torch.ones_like(start)
        theirs = model.generate(start, attention_mask=mask, max_new_tokens=count, do_sample=False)[0].tolist()
    if theirs != ours:
        raise UserError(f"{out}: greedy texts of transformers and Rostok differ within {count} tokens")
    return f"checked: same token ids, logits within {difference:.1g}, the same {count} greedy tokens"


def open_with_transformers(folder: Path) -> tuple[Any, Any]:
    """The folder's model (float32, eval) and tokenizer. Raises UserError when transformers is not installed."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar
    except ImportError:
        raise UserError('--check needs transformers; install it with: pip install "rostok[hf]"') from None
    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


@torch.no_grad()
def greedy(model: torch.nn.Module, ids: list[int], count: int, end_id: int) -> list[int]:
    """The most likely continuation, a plain loop without a cache: slow, and hard to get wrong."""
    for _ in range(count):
        ids = [*ids, int(model(torch.tensor([ids]))[0, -1].argmax())]
        if ids[-1] == end_id:
            break
    return ids


# the command


def main(argv: Sequence[str]) -> int:
    options = options_of(argv, __doc__)
    check_new(options.out)
    if options.back:
        import_hf(options.run, options.out)
        print(f"wrote {options.out}; next: {verb('sample')} {shlex.quote(str(options.out))}")
        return 0
    if options.step and (options.run / "state.json").is_file():
        raise UserError(f"{options.run} is one checkpoint already: leave out --step {options.step}")
    run = load_run(options.run, build_model, options.step)
    if options.to == "gguf":
        return write_gguf(run, options.out, options.type or "F16")
    export_hf(run, options.out, shlex.join(["python", "export.py", *argv]))
    print(f"wrote {options.out}")
    if options.check:
        print(check(run, options.out))
    print("next  open it in transformers, vLLM, TransformerLens or a server: docs/tools.md")
    return 0


def write_gguf(run: Run, out: Path, kind: str) -> int:
    from rostok.formats.gguf_file import write_gguf_file

    config = gpt_config(run)
    weights = hf.weights_to_hf(read_tensors(run.step_folder, "model.safetensors"), config)
    tokenizer = json.loads(tokenizer_json(run.tokenizer, run.folder))
    write_gguf_file(out, run.folder.resolve().name, weights, config, tokenizer, kind)
    print(f"wrote {out} ({kind})\nnext  llama.cpp and Ollama open it: docs/tools.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main(main))
