"""Rostok <-> Hugging Face: names of weights, config, tokenizer. Pure functions; export.py reads and writes the files.

    hf = weights_to_hf(weights, config)            # a dict of tensors for Qwen3ForCausalLM
    weights_from_hf(hf, config_from_hf(settings))  # the same dict back, bit for bit

A GPT is a Qwen3 term for term, so nothing is computed here: the fused qkv is cut into q, k, v (or put together), and
names change. The tokenizer gets a rule that puts ◆ in front of every text, which in a run is part of the token stream.
Left out: the window MLP (no counterpart exists); biases, RoPE scaling, sliding windows of other Qwen3 models (refused).
"""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rostok.errors import UserError

OPENING = "<|endoftext|>"
Sizes = Any  # a GPTConfig; the library never imports model.py, it is handed what it needs

TOP = {
    "embed.weight": "model.embed_tokens.weight",
    "final_norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "attn.proj": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


# weights


def name_pairs(n_layer: int, tied: bool) -> dict[str, str]:
    """Rostok name -> Hugging Face name, for every weight but the fused qkv.

    >>> name_pairs(1, tied=True)["blocks.0.mlp.up.weight"]
    'model.layers.0.mlp.up_proj.weight'
    """
    pairs = {ours: theirs for ours, theirs in TOP.items() if not (tied and ours == "head.weight")}
    for i in range(n_layer):
        for ours, theirs in LAYER.items():
            pairs[f"blocks.{i}.{ours}.weight"] = f"model.layers.{i}.{theirs}.weight"
    return pairs


def weights_to_hf(weights: Mapping[str, Tensor], config: Sizes) -> dict[str, Tensor]:
    """A GPT's state dict under Hugging Face's names; qkv (q heads, k heads, v heads) cut in three. Types are kept."""
    result = {theirs: weights[ours] for ours, theirs in name_pairs(config.n_layer, config.tied).items()}
    rows = [count * config.d_head for count in (config.n_head, config.kv_heads, config.kv_heads)]
    for i in range(config.n_layer):
        for letter, part in zip("qkv", weights[f"blocks.{i}.attn.qkv.weight"].split(rows), strict=True):
            result[f"model.layers.{i}.self_attn.{letter}_proj.weight"] = part.contiguous()
    return result


def weights_from_hf(weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The inverse of `weights_to_hf`; `config` is what `config_from_hf` gave. Raises UserError for a missing weight."""
    if config["n_layer"] > len(weights):
        raise UserError(
            f"model.safetensors has {len(weights)} tensors, too few for {config['n_layer']} layers"
        )
    pairs = name_pairs(config["n_layer"], config["tied"])
    parts = [[f"model.layers.{i}.self_attn.{x}_proj.weight" for x in "qkv"] for i in range(config["n_layer"])]
    wanted = [*pairs.values(), *itertools.chain(*parts)]
    missing = [name for name in wanted if name not in weights]
    unknown = sorted(set(weights) - set(wanted) - ({"lm_head.weight"} if config["tied"] else set()))
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {unknown[0]}, which no GPT of Rostok has"
        raise UserError(f"model.safetensors {what}; only the weights of a plain Qwen3ForCausalLM can be read")
    result = {ours: weights[theirs] for ours, theirs in pairs.items()}
    for i, names in enumerate(parts):
        result[f"blocks.{i}.attn.qkv.weight"] = torch.cat([weights[name] for name in names])
    return result


# config


def refuse_window_mlp(config: Any) -> None:
    """Raises UserError for a model that no other program knows."""
    if config.kind != "gpt":
        raise UserError(
            f"a {config.kind} cannot be exported: neither transformers nor llama.cpp has such a model; "
            "export a run whose config says kind: gpt"
        )


def config_to_hf(config: Sizes) -> dict[str, Any]:
    """config.json of a Qwen3ForCausalLM. Raises UserError for the window MLP.

    `rope_theta` is there twice: transformers 5 reads `rope_parameters`, transformers 4 and others the old key.
    `dtype` says how to calculate; it is float32 whatever type the file stores, as everywhere in Rostok.
    """
    refuse_window_mlp(config)
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.d_head,
        "hidden_size": config.d_model,
        "intermediate_size": config.hidden,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rope_scaling": None,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": config.n_layer,
        "layer_types": ["full_attention"] * config.n_layer,
        "tie_word_embeddings": config.tied,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": config.start_id,
        "eos_token_id": config.start_id,
        "pad_token_id": config.start_id,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def config_from_hf(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The `model:` section of a run from a Qwen3 config.json. Raises UserError for what no GPT of Rostok has.

    `start_id` is left out: the tokenizer knows it, and other programs leave bos_token_id empty.
    """
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    heads, width = settings.get("num_attention_heads"), settings.get("hidden_size")
    if not isinstance(heads, int) or not isinstance(width, int) or heads < 1 or not isinstance(rope, Mapping):
        raise UserError(
            "config.json has no num_attention_heads, hidden_size and rope settings of a Qwen3 model"
        )
    wanted = {
        "model_type": (settings.get("model_type"), "qwen3"),
        "hidden_act": (settings.get("hidden_act", "silu"), "silu"),
        "attention_bias": (bool(settings.get("attention_bias")), False),
        "use_sliding_window": (bool(settings.get("use_sliding_window")), False),
        "rope_type": (rope.get("rope_type", "default"), "default"),
        "head_dim": (settings.get("head_dim", 128), width // heads),
    }
    for key, (came, want) in wanted.items():
        if came != want:
            raise UserError(f"config.json: {key} must be {want} for a GPT of Rostok. Got {came}")
    try:
        config = {
            "kind": "gpt",
            "vocab_size": settings["vocab_size"],
            "context": settings["max_position_embeddings"],
            "n_layer": settings["num_hidden_layers"],
            "n_head": heads,
            "n_kv_head": settings["num_key_value_heads"],
            "d_model": width,
            "d_mlp": settings["intermediate_size"],
            "tied": settings.get("tie_word_embeddings", False),
            "rope_theta": float(rope.get("rope_theta") or settings["rope_theta"]),
            "norm_eps": settings["rms_norm_eps"],
        }
    except KeyError as error:
        raise UserError(f"config.json lacks {error}; is this the folder of a Qwen3 model?") from None
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"config.json: rope_theta must be a number. Got {rope.get('rope_theta')!r}") from None
    for key in ("vocab_size", "context", "n_layer", "n_head", "n_kv_head", "d_model", "d_mlp"):
        if type(config[key]) is not int or not 1 <= config[key] < 1 << 31:
            raise UserError(
                f"config.json: the {key} must be a whole number from 1 to 2^31. Got {config[key]!r}"
            )
    return config


# tokenizer


def post_processor_span(text: str) -> tuple[int, int]:
    """Begin and end of the value of the top-level key "post_processor" in the text of a tokenizer.json."""
    match = re.search(r'"post_processor"\s*:\s*', text)
    if not match:
        raise UserError(
            'tokenizer.json has no "post_processor"; it must be one that the tokenizers library wrote'
        )
    return match.end(), json.JSONDecoder().raw_decode(text, match.end())[1]


def opening_processor(start_id: int, earlier: dict[str, Any] | None) -> dict[str, Any]:
    """A post-processor of the tokenizers library that puts ◆ in front of each text, after an earlier one."""
    opening = {"SpecialToken": {"id": OPENING, "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [opening, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [opening, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {OPENING: {"id": OPENING, "ids": [start_id], "tokens": [OPENING]}},
    }
    return {"type": "Sequence", "processors": [earlier, template]} if earlier else template


def opens(processor: Any) -> bool:
    """Whether a post-processor puts ◆ in front of each text already.

    >>> opens(opening_processor(0, {"type": "ByteLevel"})), opens({"type": "ByteLevel"}), opens(None)
    (True, False, False)
    """
    match processor:
        case {"type": "Sequence", "processors": [*parts]}:
            return any(opens(part) for part in parts)
        case {"single": [{"SpecialToken": {"id": token}}, *_]}:
            return token == OPENING
    return False


def add_opening(text: str, start_id: int) -> tuple[str, str]:
    """tokenizer.json that opens each text with ◆ once, and the JSON value that was replaced. All other bytes stay.

    >>> add_opening('{"post_processor": null, "model": {}}', 0)[1]
    'null'
    """
    start, end = post_processor_span(text)
    replaced = text[start:end]
    earlier = json.loads(replaced)
    if opens(earlier):
        return text, replaced
    processor = opening_processor(start_id, earlier)
    return text[:start] + json.dumps(processor, ensure_ascii=False) + text[end:], replaced


def remove_opening(text: str, replaced: str) -> str:
    """The inverse of `add_opening`: the run's own tokenizer.json, byte for byte."""
    start, end = post_processor_span(text)
    return text[:start] + replaced + text[end:]


def found_processor(text: str, start_id: int) -> str | None:
    """What `add_opening` replaced, found in its result (spacing may differ); None for another text."""
    template = opening_processor(start_id, None)
    match json.loads(text).get("post_processor"):
        case {"type": "Sequence", "processors": [earlier, last]} if last == template:
            return json.dumps(earlier, ensure_ascii=False)
        case found if found == template:
            return "null"
    return None


def tokenizer_config(context: int) -> dict[str, Any]:
    """tokenizer_config.json. PreTrainedTokenizerFast takes tokenizer.json as it is; Qwen2Tokenizer would add NFC.

    `split_special_tokens`: a literal <|endoftext|> inside a text is text, as in Rostok; ◆ comes from the opening.
    `padding_side`: texts of a batch must end at the same place, or generation goes on from the padding.
    """
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": OPENING,
        "eos_token": OPENING,
        "pad_token": OPENING,
        "unk_token": None,
        "padding_side": "left",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "model_input_names": ["input_ids", "attention_mask"],
    }


def published_json(pattern: str, ranks: Mapping[bytes, int], specials: Mapping[str, int]) -> str:
    """A published tiktoken encoding as tokenizer.json, by transformers' converter.

    pattern, ranks, specials: `encoding._pat_str`, `._mergeable_ranks`, `._special_tokens`. Raises UserError when
    transformers is not installed.
    """
    try:
        from transformers.convert_slow_tokenizer import TikTokenConverter
    except ImportError:
        raise UserError(
            "this run has a published tokenizer, and writing that as tokenizer.json needs transformers; "
            'install it with: pip install "rostok[hf]"'
        ) from None
    # In the regex library of tokenizers `{1,3}+` means "repeated", not "possessive"; `{1,3}` matches the same text.
    converter: Any = TikTokenConverter(pattern=pattern.replace("}+", "}"))
    converter.load_tiktoken_bpe = lambda _: dict(ranks)
    vocab, merges = converter.extract_vocab_merges_from_model("")
    vocab |= (
        specials  # a special token keeps its id only if the vocabulary has it, where ids before it are unused
    )
    converter.extract_vocab_merges_from_model = lambda _: (vocab, merges)
    converter.extra_special_tokens = list(specials)
    return converter.converted().to_str(pretty=True)
