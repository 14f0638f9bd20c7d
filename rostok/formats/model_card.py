"""The model card: README.md of an exported folder.

    text = model_card(run, run.model.config, "rostok-hf", "python export.py ...")

It says what the model is, what it was trained on, how well it does, how that was measured, and how to use it. Left out:
anything that the run folder and its data folder do not say.
"""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rostok import __version__
from rostok.formats.hf import Sizes
from rostok.runs import Run


def model_card(run: Run, config: Sizes, name: str, command: str) -> str:
    """README.md of the folder: what it is, what it was trained on, how well it does and how that was measured."""
    state = run.state
    count = sum(parameter.numel() for parameter in run.model.parameters())
    layers = f"{config.n_layer} layer" + "s" * (config.n_layer > 1)
    return f"""---
library_name: transformers
pipeline_tag: text-generation
tags: [rostok, qwen3, tiny]
---

# {escape(name)}

A tiny GPT trained with Rostok: {count:,} parameters, {layers}, {config.n_head} heads
({config.kv_heads} for keys and values), width {config.d_model}, context {config.context} tokens, vocabulary \
{config.vocab_size:,}. Architecture: Qwen3, no custom code.

## Training data

{training_data(run)}

Step {state.get("step", "unknown")}, {state.get("tokens", 0):,} training tokens.

## Held-out text

{held_out(state, config)}

## Use

```python
from transformers import pipeline

write = pipeline("text-generation", model={json.dumps(name, ensure_ascii=False)})
print(write("Once upon a time", max_new_tokens=100, do_sample=True)[0]["generated_text"])
```

`<|endoftext|>` opens every text that the model has seen, so the tokenizer puts it in front of each prompt;
`add_special_tokens=False` leaves it out. lm-evaluation-harness adds its own, hence `add_bos_token=False` there:

```sh
lm_eval --model hf --model_args {shlex.quote(f"pretrained={name},add_bos_token=False")} --tasks ...
```

Fine-tuning: `<|endoftext|>` is also the padding token here. A collator that puts -100 on padding (such as
`DataCollatorForLanguageModeling`) then leaves out the end of each text, and the model forgets to end one. Give
labels of your own, or add a padding token first.

Made with {code(command)} (Rostok {__version__}).
It is small, it makes things up, and it knows only texts like those above.
"""


def training_data(run: Run) -> str:
    """The data section: from the manifest of the shards where they are still there, else their path and hash."""
    path = Path((run.config.get("data") or {}).get("path", "unknown"))
    hashes = ", ".join(f"{split} `{digest}`" for split, digest in run.state.get("data_sha256", {}).items())
    lines = [
        f"Token shards {code(path.as_posix())}" + (f" (SHA-256 of the ids: {hashes})." if hashes else ".")
    ]
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return lines[0]
    source = manifest.get("source")
    if source:
        lines.append(
            f"Source: {code(source if isinstance(source, str) else json.dumps(source, ensure_ascii=False))}"
        )
    for split, counts in manifest.get("splits", {}).items():
        numbers = ", ".join(f"{counts[key]:,} {key}" for key in ("texts", "tokens", "bytes") if key in counts)
        lines.append(f"- {split}: {numbers}")
    return "\n".join(lines)


def held_out(state: Mapping[str, Any], config: Sizes) -> str:
    """The section on perplexity, with its protocol."""
    if "valid_loss" not in state:
        return "Not measured."
    return (
        f"Perplexity {state['perplexity']:.3f} per token (vocabulary {config.vocab_size:,}), "
        f"{state['valid_loss']:.4f} nats per token, {state.get('bits_per_byte', float('nan')):.4f} bits per byte.\n\n"
        "Protocol: the validation loss of the training run. Fixed rows of "
        f"{config.context} tokens of the held-out split, each\nopened by `<|endoftext|>`; the mean over all their "
        "targets, the `<|endoftext|>` that ends a text among them; bits per byte leave it out.\n"
        "Perplexities are comparable for the same tokenizer and protocol only; bits per byte also across tokenizers."
    )


def escape(text: str) -> str:
    r"""Text as it is in Markdown: none of its characters is read as a mark.

    >>> print(escape("my_run*"))
    my\_run\*
    """
    return re.sub(r"([\\`*_\[\]<>#~|])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Text as code in Markdown, whatever marks it holds.

    >>> code("a `b`")
    '`` a `b` ``'
    """
    text = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"
