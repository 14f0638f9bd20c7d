"""A GPT as one GGUF file for llama.cpp and Ollama: weights, sizes and tokenizer, architecture `qwen3`.

    write_gguf_file(Path("rostok.gguf"), "rostok", weights, config, tokenizer, "F16")

Matrices become F32, F16 or Q8_0 (blocks of 32 weights with one scale; F16 where the length of a row is not a multiple
of 32); the gains of the norms stay F32. For qwen3, llama.cpp pairs the halves of a head in RoPE as Rostok does, so no
row is permuted.
Left out: K-quants, imatrix, splitting: `llama-quantize` makes them from an F32 file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rostok.errors import UserError
from rostok.files import refusing, replacing
from rostok.formats.hf import OPENING, Sizes

# Split patterns that are built into llama.cpp under a name; a GGUF file holds the name only.
PRE_TOKENIZERS = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "qwen2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt-2",
}
NORMAL, CONTROL, UNUSED = 1, 3, 5  # token types of GGUF


def write_gguf_file(
    out: Path,
    name: str,
    weights: Mapping[str, Tensor],
    config: Sizes,
    tokenizer: Mapping[str, Any],
    kind: str,
) -> None:
    """Write the file `out`, whole or not at all.

    weights: under Hugging Face's names (hf.weights_to_hf); tokenizer: the content of tokenizer.json;
    kind: F32, F16 or Q8_0. Raises UserError: no gguf package, a tokenizer that llama.cpp does not know, a full disk.
    """
    try:
        import gguf
    except ImportError:
        raise UserError(
            '--to gguf needs the gguf package; install it with: pip install "rostok[gguf]"'
        ) from None
    with refusing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as part:
            writer = gguf.GGUFWriter(part, "qwen3")
            writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
            add_sizes(
                writer, name, config, gguf.LlamaFileType[{"F32": "ALL_F32"}.get(kind, f"MOSTLY_{kind}")]
            )
            add_tokenizer(writer, tokenizer, config)
            add_weights(writer, weights, config, kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()


def add_sizes(writer: Any, name: str, config: Sizes, file_type: int) -> None:
    writer.add_name(name)
    writer.add_file_type(file_type)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.context)
    writer.add_block_count(config.n_layer)
    writer.add_embedding_length(config.d_model)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.d_head)
    writer.add_value_length(config.d_head)
    writer.add_rope_dimension_count(config.d_head)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)


def add_tokenizer(writer: Any, tokenizer: Mapping[str, Any], config: Sizes) -> None:
    """Tokens by id, merges, and ◆ as the token that opens every text and ends it."""
    tokens = [f"[unused{i}]" for i in range(config.vocab_size)]
    types = [UNUSED] * config.vocab_size
    for token, number in tokenizer["model"]["vocab"].items():
        tokens[number], types[number] = token, NORMAL
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], CONTROL
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer(tokenizer))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    for add in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_pad_token_id):
        add(config.start_id)
    writer.add_add_bos_token(True)
    assert tokens[config.start_id] == OPENING


def pre_tokenizer(tokenizer: Mapping[str, Any]) -> str:
    """llama.cpp's name for the pattern that splits text before BPE. Raises UserError for one that it does not know."""
    steps = tokenizer["pre_tokenizer"].get("pretokenizers", [])
    pattern = next((step["pattern"]["Regex"] for step in steps if step["type"] == "Split"), None)
    if pattern not in PRE_TOKENIZERS:
        raise UserError(
            "llama.cpp has no name for this tokenizer's split pattern; export it with --to hf instead"
        )
    return PRE_TOKENIZERS[pattern]


def add_weights(writer: Any, weights: Mapping[str, Tensor], config: Sizes, kind: str) -> None:
    """Every weight under GGUF's name, which the gguf package knows for each Hugging Face name."""
    import gguf

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config.n_layer)
    for name, tensor in weights.items():
        gguf_name = names.get_name(name, try_suffixes=(".weight",))
        assert gguf_name, name
        array = tensor.to(torch.float32).numpy()
        chosen = weight_type(array.shape, kind)
        quantized = gguf.quants.quantize(array, gguf.GGMLQuantizationType[chosen])
        writer.add_tensor(gguf_name, quantized, raw_dtype=gguf.GGMLQuantizationType[chosen])


def weight_type(shape: tuple[int, ...], kind: str) -> str:
    """F32 for a vector; `kind` for a matrix, but F16 where Q8_0's blocks of 32 do not fit its rows.

    >>> weight_type((384,), "Q8_0"), weight_type((384, 48), "Q8_0"), weight_type((384, 64), "Q8_0")
    ('F32', 'F16', 'Q8_0')
    """
    if len(shape) == 1:
        return "F32"
    return "F16" if kind == "Q8_0" and shape[-1] % 32 else kind
