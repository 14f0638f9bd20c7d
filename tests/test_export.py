"""export.py and rostok/formats/, proved by transformers and gguf: they share no code with us."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import export
from model import GPTConfig, WindowMLPConfig, build_model
from rostok.errors import UserError
from rostok.formats import gguf_file, hf
from rostok.runs import find_step, load_run
from rostok.text.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from rostok.training.folder import point_best, save_step
from rostok.training.optim import OptimConfig, build_optimizer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
TEXTS = ["The cat sat on the mat. ", "Жил-был кот, и был он сыт. ", "It's 1234 o'clock!\n\n\tSo  late. "] * 20
SIZES = {
    "plain": {},
    "grouped": {"n_kv_head": 1},
    "untied": {"tied": False},
    "grouped, untied, odd sizes": {
        "n_kv_head": 2,
        "n_head": 4,
        "tied": False,
        "d_mlp": 96,
        "rope_theta": 500.0,
    },
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, 320)


def make_run(
    folder: Path, tokenizer: Tokenizer, dtype: torch.dtype = torch.float32, window=False, **sizes
) -> Path:
    """A run folder with random weights, large enough that every part of the model shows in the logits."""
    common: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "context": 48}
    gpt: dict[str, Any] = {"n_layer": 2, "n_head": 2, "d_model": 64, "d_mlp": 128, **sizes}
    config = WindowMLPConfig(**common) if window else GPTConfig(**common, **gpt)
    model = build_model(config)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        centre = 1.0 if parameter.ndim == 1 else 0.0
        parameter.data = (centre + 0.15 * torch.randn(parameter.shape, generator=generator)).to(dtype)
    folder.mkdir(parents=True)
    settings = {"name": folder.name, "data": {"path": "data/none"}, "model": dataclasses.asdict(config)}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (folder / "metrics.jsonl").write_text('{"step": 7, "tokens": 70, "valid_loss": 5.5}\n', encoding="utf-8")
    tokenizer.save(folder)
    state = {"model": dataclasses.asdict(config), "tokenizer_sha256": tokenizer.sha256, "tokens": 70}
    state |= {"valid_loss": 5.5, "perplexity": 244.69, "bits_per_byte": 3.1, "best": 5.5, "seconds": 1.0}
    point_best(folder, save_step(folder, 7, model, build_optimizer(model, OptimConfig()), state))
    return folder


def export_run(run: Path, out: Path, *words: str) -> Path:
    assert export.main([str(run), "--out", str(out), *words]) == 0
    return out


# Hugging Face


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_transformers_gives_the_same_logits_and_greedy_text(tmp_path, tokenizer, sizes):
    run = load_run(make_run(tmp_path / "run", tokenizer, **sizes), build_model)
    model, _ = export.open_with_transformers(export_run(run.folder, tmp_path / "hf"))
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.dtype == torch.float32
    ids = torch.randint(run.tokenizer.vocab_size, (3, 48), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        ours = run.model(ids)
        torch.testing.assert_close(model(ids).logits, ours, atol=1e-4, rtol=1e-4)
    assert ours.std() > 0.1
    start = torch.tensor([[0]])
    theirs = model.generate(start, attention_mask=torch.ones_like(start), max_new_tokens=47, do_sample=False)
    assert theirs[0].tolist() == export.greedy(run.model, [0], 47, end_id=0)


def test_check_says_what_it_compared(tmp_path, tokenizer, capsys):
    export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "hf", "--check")
    assert "checked: same token ids, logits within" in capsys.readouterr().out


def test_check_finds_a_wrong_weight_and_a_wrong_token(tmp_path, tokenizer):
    run = load_run(make_run(tmp_path / "run", tokenizer), build_model)
    out = export_run(run.folder, tmp_path / "hf")
    weights = load_file(out / "model.safetensors")
    weights["model.layers.1.self_attn.v_proj.weight"] *= 1.05
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="logits"):
        export.check(run, out)
    content = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["merges"] = content["model"]["merges"][:-9]
    (out / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="token ids"):
        export.check(run, out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_import_brings_the_run_back_bit_for_bit(tmp_path, tokenizer, dtype):
    run = make_run(tmp_path / "run", tokenizer, dtype, n_kv_head=1, tied=False)
    out = export_run(run, tmp_path / "hf")
    assert load_file(out / "model.safetensors")["model.norm.weight"].dtype == dtype
    assert export.main([str(out), "--import", "--out", str(tmp_path / "back")]) == 0
    back = tmp_path / "back"
    for name in ("config.yaml", "tokenizer.json", "metrics.jsonl", "latest", "step-000007/model.safetensors"):
        assert (back / name).read_bytes() == (run / name).read_bytes(), name
    before, after = (json.loads((find_step(f) / "state.json").read_text()) for f in (run, back))
    assert before.pop("sha256")["model.safetensors"] == after.pop("sha256")["model.safetensors"]
    assert before == after
    assert load_run(back, build_model).tokenizer.sha256 == tokenizer.sha256


def test_a_folder_that_rostok_did_not_write_opens_too(tmp_path, tokenizer):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "head_dim": 16,
    }
    heads: dict[str, Any] = {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "bos_token_id": 0,
        "max_position_embeddings": 32,
    }
    theirs = Qwen3ForCausalLM(Qwen3Config(**settings, **heads)).eval()
    theirs.save_pretrained(tmp_path / "hf")
    tokenizer.save(tmp_path / "hf")
    export.main([str(tmp_path / "hf"), "--import", "--out", str(tmp_path / "run")])
    run = load_run(tmp_path / "run", build_model)
    ids = torch.arange(64).view(2, 32)
    with torch.no_grad():
        torch.testing.assert_close(run.model(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4)


def start_last(tokenizer: Tokenizer) -> str:
    """The same tokenizer.json with ◆ as the last id, as other programs append their special tokens."""
    content, last = json.loads(tokenizer._file_text), tokenizer.vocab_size - 1
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = {token: (number or last + 1) - 1 for token, number in vocab.items()}
    content["added_tokens"][0]["id"] = last
    return json.dumps(content)


@pytest.mark.parametrize("bos", [None, 0])
def test_the_opening_token_is_the_tokenizers(tmp_path, tokenizer, bos):
    import gguf

    out = export_run(make_run(tmp_path / "first", tokenizer), tmp_path / "hf")
    (out / "rostok.json").unlink()
    settings = json.loads((out / "config.json").read_text(encoding="utf-8")) | {"bos_token_id": bos}
    (out / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    (out / "tokenizer.json").write_text(start_last(tokenizer), encoding="utf-8")
    export.main([str(out), "--import", "--out", str(tmp_path / "run")])
    run = load_run(tmp_path / "run", build_model)
    last = tokenizer.vocab_size - 1
    assert export.gpt_config(run).start_id == run.tokenizer.start_id == last
    same_ids(run.tokenizer, export_run(run.folder, tmp_path / "again"), TEXTS[:3])
    reader = gguf.GGUFReader(export_run(run.folder, tmp_path / "run.gguf", "--to", "gguf"))
    assert reader.fields["tokenizer.ggml.bos_token_id"].contents() == last


def test_a_run_that_opens_texts_with_another_token_is_refused(tmp_path, tokenizer):
    run = make_run(tmp_path / "run", tokenizer, start_id=5)
    for kind in ("hf", "gguf"):
        refuse("start_id 5, the tokenizer 0", run, "--to", kind, "--out", tmp_path / "out")


def same_ids(tokenizer: Tokenizer, folder: Path, texts: list[str]) -> None:
    """Both tokenizers give the same ids, and the exported one puts ◆ in front."""
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert theirs(text, add_special_tokens=False, verbose=False)["input_ids"] == ids
    assert theirs(texts[0])["input_ids"] == [tokenizer.start_id, *tokenizer.encode(texts[0])]
    assert theirs.bos_token_id == theirs.eos_token_id == tokenizer.start_id
    ids = theirs(texts[0])["input_ids"]
    assert theirs.decode(ids, skip_special_tokens=True) == texts[0]


def with_processor(text: str, processor: Any) -> str:
    return json.dumps(json.loads(text) | {"post_processor": processor}, ensure_ascii=False)


@pytest.mark.parametrize("earlier", [None, {"type": "ByteLevel", "trim_offsets": False}])
def test_an_export_without_rostok_json_comes_back_without_the_opening(tmp_path, tokenizer, earlier):
    text = with_processor(tokenizer._file_text, earlier)
    opened, _ = hf.add_opening(text, tokenizer.start_id)
    assert json.loads(hf.found_processor(opened, tokenizer.start_id) or "0") == earlier
    assert hf.found_processor(text, tokenizer.start_id) is None
    first = export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "first")
    (first / "rostok.json").unlink()
    export.main([str(first), "--import", "--out", str(tmp_path / "back")])
    assert (tmp_path / "back" / "tokenizer.json").read_bytes() == tokenizer._file_text.encode()
    same_ids(tokenizer, export_run(tmp_path / "back", tmp_path / "second"), TEXTS[:3])


def test_a_foreign_opening_is_kept_and_not_doubled(tmp_path, tokenizer):
    """Their template may differ from ours: here it closes each text of a pair too."""
    template = hf.opening_processor(tokenizer.start_id, None)
    template["pair"].append(template["single"][0])
    first = export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "first")
    (first / "rostok.json").unlink()
    text = with_processor(tokenizer._file_text, {"type": "Sequence", "processors": [template]})
    (first / "tokenizer.json").write_text(text, encoding="utf-8")
    export.main([str(first), "--import", "--out", str(tmp_path / "back")])
    second = export_run(tmp_path / "back", tmp_path / "second")
    assert (second / "tokenizer.json").read_text(encoding="utf-8") == text
    same_ids(tokenizer, second, TEXTS[:3])
    export.main([str(second), "--import", "--out", str(tmp_path / "again")])
    assert (tmp_path / "again" / "tokenizer.json").read_text(encoding="utf-8") == text


def test_token_ids_are_equal(tmp_path, tokenizer):
    out = export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "hf")
    same_ids(
        tokenizer, out, [*export.CHECK_TEXTS, *TEXTS[:3], "\x00\u2028 \u00a0x", "  a", "a  ", "\r\n\r\n b"]
    )


def test_token_ids_are_equal_on_real_text(tmp_path, tokenizer, shared_data):
    """The head, and a piece of the middle, of every file; ROSTOK_ALL_TEXT=1 takes all of it (minutes)."""
    size = 10**9 if os.environ.get("ROSTOK_ALL_TEXT") else 15_000
    texts = []
    for file in sorted(shared_data.glob("*.txt")):
        text = file.read_text(encoding="utf-8")
        middle = len(text) // 2
        texts += [text[:size]] if size > len(text) else [text[:size], text[middle : middle + size]]
    out = export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "hf")
    same_ids(tokenizer, out, texts)


def test_the_model_card_says_data_perplexity_protocol_and_command(tmp_path, tokenizer, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shards = tmp_path / "data" / "none"
    shards.mkdir(parents=True)
    splits = {"train": {"texts": 1234, "tokens": 99}}
    (shards / "manifest.json").write_text(json.dumps({"source": "fairy tales", "splits": splits}))
    make_run(tmp_path / "run", tokenizer)
    card = (export_run(Path("run"), Path("hf")) / "README.md").read_text(encoding="utf-8")
    for part in (
        "fairy tales",
        "train: 1,234 texts",
        "Perplexity 244.690",
        "Protocol:",
        "python export.py run --out hf",
    ):
        assert part in card
    assert str(tmp_path) not in card


def test_the_model_card_is_markdown_whatever_the_names(tmp_path, tokenizer, monkeypatch):
    """A name of marks, quotes and blanks: it stays one title, one Python string, one word of the shell."""
    import ast
    import shlex

    monkeypatch.chdir(tmp_path)
    make_run(Path("run"), tokenizer)
    name = 'my "x"_`y` *z*'
    card = (export_run(Path("run"), Path(name)) / "README.md").read_text(encoding="utf-8")
    assert r'# my "x"\_\`y\` \*z\*' in card.splitlines()
    python = card.split("```python\n")[1].split("```")[0]
    calls = [
        node for node in ast.walk(ast.parse(python)) if isinstance(node, ast.keyword) and node.arg == "model"
    ]
    assert [ast.literal_eval(call.value) for call in calls] == [name]
    shell = card.split("```sh\n")[1].split("\n")[0]
    assert shlex.split(shell)[4] == f"pretrained={name},add_bos_token=False"
    assert f"`` python export.py run --out '{name}' ``" in card
    assert "padding token" in card


def test_a_batch_goes_on_as_each_text_alone(tmp_path, tokenizer):
    """Padding is on the left: a short prompt beside a long one is continued as without it."""
    run = make_run(tmp_path / "run", tokenizer)
    model, theirs = export.open_with_transformers(export_run(run, tmp_path / "hf"))
    prompts = ["The cat sat on the mat and", "The"]
    batch = theirs(prompts, padding=True, return_tensors="pt")
    both = model.generate(**batch, max_new_tokens=8, do_sample=False)
    alone = model.generate(**theirs(prompts[1], return_tensors="pt"), max_new_tokens=8, do_sample=False)
    assert both[1, -8:].tolist() == alone[0, -8:].tolist()
    assert "max_length" not in json.loads((tmp_path / "hf" / "generation_config.json").read_text())


def test_check_of_a_context_of_one(tmp_path, tokenizer, capsys):
    run = load_run(make_run(tmp_path / "run", tokenizer), build_model)
    out = export_run(run.folder, tmp_path / "hf")
    object.__setattr__(run.model.config, "context", 1)
    assert "the same 0 greedy tokens" in export.check(run, out)


# errors


def test_an_option_without_effect_is_refused(tmp_path, tokenizer):
    run = make_run(tmp_path / "run", tokenizer)
    refuse(
        "is one checkpoint already: leave out --step latest",
        run / "step-000007",
        "--step",
        "latest",
        "--out",
        tmp_path / "x",
    )
    for words in (["--import", "--to", "gguf"], ["--import", "--check"], ["--to", "gguf", "--check"]):
        with pytest.raises(SystemExit):
            export.main([str(run), "--out", str(tmp_path / "x"), *words])


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path, tokenizer):
    out = export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "hf")
    train_tokenizer(["some other words are longer than these " * 9], 330).save(out)
    larger = load_tokenizer(out).vocab_size
    settings = json.loads((out / "config.json").read_text()) | {"vocab_size": larger - 1}
    (out / "config.json").write_text(json.dumps(settings))
    refuse(
        f"has {larger} ids, config.json says vocab_size {larger - 1}",
        out,
        "--import",
        "--out",
        tmp_path / "back",
    )


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64])
def test_weights_that_are_not_real_numbers_are_refused(tmp_path, tokenizer, dtype):
    out = export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "hf")
    weights = load_file(out / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"].to(dtype)
    save_file(weights, out / "model.safetensors")
    refuse(f"model.norm.weight is {dtype}; wanted float32", out, "--import", "--out", tmp_path / "back")


def refuse(match: str, *words: object) -> None:
    with pytest.raises(UserError, match=match):
        export.main([str(word) for word in words])


def test_the_window_mlp_is_refused_with_a_reason(tmp_path, tokenizer):
    run = make_run(tmp_path / "run", tokenizer, window=True)
    for kind in ("hf", "gguf"):
        refuse("neither transformers nor llama.cpp", run, "--to", kind, "--out", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_nothing_is_overwritten(tmp_path, tokenizer):
    run = make_run(tmp_path / "run", tokenizer)
    refuse("exists already", run, "--out", run)
    refuse("exists already", run, "--to", "gguf", "--out", run)
    out = export_run(run, tmp_path / "hf")
    refuse("exists already", out, "--import", "--out", run)


def test_the_words_of_a_gguf_file_need_to_gguf(tmp_path, tokenizer):
    run = make_run(tmp_path / "run", tokenizer)
    out = tmp_path / "x.gguf"
    refuse(f"--type Q8_0 needs .* --to gguf --type Q8_0 --out {out}$", run, "--type", "Q8_0", "--out", out)
    refuse("--type F16 needs --to gguf", run, "--type", "F16", "--out", tmp_path / "hf")
    refuse(f"--out {out} needs --to gguf; type .* {run} --to gguf --out {out}$", run, "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(SystemExit):
        export.main([str(run), "--import", "--type", "F32", "--out", str(out)])


def test_a_missing_package_gives_its_extra(tmp_path, tokenizer, monkeypatch):
    run = make_run(tmp_path / "run", tokenizer)
    for package, words in {"transformers": ["--check"], "gguf": ["--to", "gguf"]}.items():
        monkeypatch.setitem(sys.modules, package, None)
        extra = {"transformers": "hf"}.get(package, package)
        refuse(rf'pip install "rostok\[{extra}\]"', run, "--out", tmp_path / package, *words)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"model_type": "llama"}, "model_type must be qwen3"),
        ({"head_dim": 128}, "head_dim must be 32"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type must be default"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"vocab_size": None}, "lacks 'vocab_size'"),
        ({"max_position_embeddings": 10**30}, "the context must be a whole number"),
        ({"rope_parameters": {"rope_theta": "x"}}, "rope_theta must be a number"),
    ],
)
def test_a_foreign_config_is_refused_by_name(change, match):
    settings = hf.config_to_hf(GPTConfig(d_model=64, n_head=2)) | change
    settings = {key: value for key, value in settings.items() if value is not None}
    with pytest.raises(UserError, match=match):
        hf.config_from_hf(settings)


def test_a_folder_with_missing_files_or_weights_is_refused(tmp_path, tokenizer):
    out = export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "hf")
    weights = load_file(out / "model.safetensors")
    gone = weights.pop("model.norm.weight")
    for kept, match in (
        ({}, "lacks model.norm.weight"),
        ({"model.norm.weight": gone, "x": gone + 1}, "has x"),
    ):
        save_file(weights | kept, out / "model.safetensors")
        refuse(match, out, "--import", "--out", tmp_path / "back")
    (out / "model.safetensors").write_text("no")
    refuse("one model.safetensors", out, "--import", "--out", tmp_path / "back")
    (out / "config.json").write_text("no")
    refuse("not JSON", out, "--import", "--out", tmp_path / "back")
    refuse("wanted a Hugging Face folder", tmp_path / "nowhere", "--import", "--out", tmp_path / "back")
    assert not (tmp_path / "back").exists()


# published tokenizers


def test_a_published_encoding_becomes_a_tokenizer_json(tokenizer):
    """Ranks alone (what tiktoken publishes) give the same ids through the tokenizers library.

    The special token comes after an unused id, as in cl100k_base.
    """
    from tokenizers import Tokenizer as Theirs

    encoding = tokenizer.encoding
    ranks = {token: rank - 1 for token, rank in encoding._mergeable_ranks.items()}
    special = {"<|endoftext|>": len(ranks) + 1, "<|end|>": len(ranks) + 9}
    pattern = encoding._pat_str.replace(r"\p{N}|", r"\p{N}{1,3}+|").replace(r"\p{L}+", r"\p{L}++")
    text = hf.published_json(pattern, ranks, special)
    theirs = Theirs.from_str(text)
    assert {name: theirs.token_to_id(name) for name in special} == special
    theirs.encode_special_tokens = True
    ours = type(encoding)("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for sample in [*TEXTS[:3], *export.CHECK_TEXTS]:
        assert theirs.encode(sample, add_special_tokens=False).ids == ours.encode_ordinary(sample)


def test_a_published_encoding_needs_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.convert_slow_tokenizer", None)
    with pytest.raises(UserError, match=r'pip install "rostok\[hf\]"'):
        hf.published_json("", {}, {})


# GGUF


@pytest.mark.parametrize("kind", ["F32", "f16", "q8_0"])
def test_a_gguf_file_holds_every_weight_and_the_tokenizer(tmp_path, tokenizer, kind):
    import gguf

    run = make_run(tmp_path / "run", tokenizer, n_kv_head=1)
    file = tmp_path / "run.gguf"
    export_run(run, file, "--to", "gguf", "--type", kind)
    reader = gguf.GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "qwen3"
    assert fields["qwen3.attention.head_count_kv"] == 1
    assert fields["general.quantization_version"] == gguf.GGML_QUANT_VERSION
    assert fields["qwen3.rope.freq_base"] == 10000
    assert fields["tokenizer.ggml.pre"] == "qwen2"
    assert fields["tokenizer.ggml.add_bos_token"] is True
    assert fields["tokenizer.ggml.tokens"][0] == "<|endoftext|>"
    assert len(fields["tokenizer.ggml.merges"]) == tokenizer.vocab_size - 257
    arrays = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    weights = load_run(run, build_model).model.state_dict()
    qkv = torch.cat([torch.tensor(arrays[f"blk.1.attn_{x}.weight"]) for x in "qkv"])
    tolerance = {"F32": 0.0, "f16": 1e-3, "q8_0": 5e-3}[kind]
    pairs = {
        "token_embd": "embed",
        "blk.0.ffn_down": "blocks.0.mlp.down",
        "blk.1.attn_k_norm": "blocks.1.attn.k_norm",
    }
    for theirs, ours in pairs.items():
        torch.testing.assert_close(
            torch.tensor(arrays[f"{theirs}.weight"]), weights[f"{ours}.weight"], atol=tolerance, rtol=0
        )
    torch.testing.assert_close(qkv, weights["blocks.1.attn.qkv.weight"], atol=tolerance, rtol=0)
    assert len(arrays) == 2 + 2 * 11
    assert not list(tmp_path.glob(".*"))


def test_a_gguf_file_is_named_after_the_run_from_inside_it(tmp_path, tokenizer, monkeypatch):
    import gguf

    monkeypatch.chdir(make_run(tmp_path / "tom", tokenizer))
    reader = gguf.GGUFReader(export_run(Path(), tmp_path / "run.gguf", "--to", "gguf"))
    assert reader.fields["general.name"].contents() == "tom"


def test_rows_that_do_not_fit_q8_blocks_stay_f16(tmp_path, tokenizer):
    import gguf

    run = make_run(tmp_path / "run", tokenizer, d_mlp=72)
    export_run(run, tmp_path / "run.gguf", "--to", "gguf", "--type", "Q8_0")
    types = {
        tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / "run.gguf").tensors
    }
    assert types["blk.0.ffn_down.weight"] == "F16"
    assert types["blk.0.ffn_up.weight"] == "Q8_0"


def test_a_split_pattern_that_llama_cpp_has_not_is_refused(tokenizer):
    content = json.loads(tokenizer._file_text)
    content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = r"\S+|\s+"
    with pytest.raises(UserError, match="--to hf"):
        gguf_file.pre_tokenizer(content)


def test_load_tokenizer_reads_an_exported_folder(tmp_path, tokenizer):
    """The opening that export.py adds does not keep Rostok from reading the folder's tokenizer."""
    out = export_run(make_run(tmp_path / "run", tokenizer), tmp_path / "hf")
    assert load_tokenizer(out).encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])
