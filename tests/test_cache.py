"""The KV cache against no cache: every way to cut a text into chunks and to pack texts into a batch."""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import warnings

import pytest
import torch
from torch import Tensor

from model import (
    GPT,
    GPTConfig,
    WindowMLPConfig,
    attend_causal,
    attend_single,
    attend_visible,
    build_model,
)
from rostok.formats.hf import config_to_hf, weights_to_hf
from rostok.generation.generate import CompiledSteps, Sampling, generate
from rostok.generation.quantize import best_weights, compiles, prepare_for_generation

CONFIGS = [
    GPTConfig(vocab_size=97, context=32, n_layer=2, n_head=4, d_model=32),
    GPTConfig(vocab_size=97, context=32, n_layer=2, n_head=4, n_kv_head=2, d_model=32, tied=False),
    GPTConfig(vocab_size=97, context=32, n_layer=1, n_head=4, n_kv_head=1, d_model=32),
    WindowMLPConfig(vocab_size=97, window=4, d_embed=8, d_hidden=32),
]
GREEDY = Sampling(temperature=0)


def lively(config):
    """A model whose every weight is drawn, so that nothing is zero or one by chance of initialisation."""
    model, generator = build_model(config).eval().requires_grad_(False), torch.Generator().manual_seed(1)
    model.init_weights(generator)
    for parameter in model.parameters():
        parameter += 0.15 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.fixture(params=CONFIGS, ids=["plain", "grouped", "one-kv-head", "window"])
def model(request):
    return lively(request.param)


def ids_of(*shape: int) -> Tensor:
    return torch.randint(97, shape, generator=torch.Generator().manual_seed(5))


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, atol=1e-5, rtol=0)


@pytest.mark.parametrize("chunks", [[32], [1] * 32, [1, 31], [5, 1, 1, 17, 8], [16, 16]], ids=str)
def test_chunks_of_any_size_give_the_logits_of_the_whole(model, chunks):
    ids, cache = ids_of(3, 32), model.new_cache(3)
    parts = [model(part, cache=cache) for part in ids.split(chunks, dim=1)]
    assert close(torch.cat(parts, 1), model(ids))
    assert cache.length.tolist() == [32] * 3


def test_rows_of_different_lengths(model):
    ids, starts = ids_of(3, 32), (0, 3, 20)
    whole, cache = model(ids), model.new_cache(3)
    for row, n in enumerate(starts):
        if n:
            model(ids[row : row + 1, :n], cache=cache.row(row))
    for size in (4, 1, 1):
        n = cache.length.tolist()
        got = model(torch.stack([ids[r, n[r] : n[r] + size] for r in range(3)]), cache=cache)
        assert close(got, torch.stack([whole[r, n[r] : n[r] + size] for r in range(3)]))


def test_copied_and_shortened_rows(model):
    ids = ids_of(1, 20)
    whole, cache = model(ids)[0], model.new_cache(3)
    model(ids[:, :12], cache=cache.row(1))
    cache.copy(1, 2)
    cache.length[2] -= 1
    assert close(model(ids[:, 11:12], cache=cache.row(2))[0], whole[11:12])
    assert close(model(ids[:, 12:20], cache=cache.row(2))[0], whole[12:20])
    assert close(model(ids[:, 12:13], cache=cache.row(1))[0], whole[12:13])


def test_only_the_last_position(model):
    ids = ids_of(2, 9)
    assert close(model(ids, last=True), model(ids)[:, -1:])
    assert close(model(ids, cache=model.new_cache(2), last=True), model(ids)[:, -1:])


def test_a_full_cache_says_so():
    model = lively(CONFIGS[0])
    cache = model.new_cache(1)
    model(ids_of(1, 32), cache=cache)
    with pytest.raises(ValueError, match="at most 32 tokens. Got 33"):
        model(ids_of(1, 1), cache=cache)
    assert cache.length.tolist() == [32]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_forms_of_attention_are_one(kv_heads):
    generator = torch.Generator().manual_seed(2)
    draw = lambda heads: torch.randn(3, heads, 7, 8, generator=generator)  # noqa: E731
    q, k, v = draw(4), draw(kv_heads), draw(kv_heads)
    triangle = torch.ones(7, 7, dtype=torch.bool).tril()[None, None]
    causal = attend_causal(q, k, v)
    assert close(attend_visible(q, k, v, triangle), causal)
    for t in range(7):
        one, seen = q[:, :, t : t + 1], slice(0, t + 1)
        assert close(attend_single(one, k, v, triangle[:, :, t : t + 1]), causal[:, :, t : t + 1])
        assert close(attend_single(one, k[:, :, seen], v[:, :, seen], None), causal[:, :, t : t + 1])


# ------------------------------------------------------------------------------------------------- whole texts


def greedy(model, prompts, new_tokens, **settings) -> list[list[int]]:
    return [result.ids for result in generate(model, prompts, GREEDY, new_tokens, **settings)]


@pytest.mark.parametrize("length", [1, 2, 5, 20, 31, 32, 33, 100])
def test_cache_or_not_the_same_ids_across_the_limit(model, length):
    prompt = [0, *ids_of(length)[1:].tolist()]
    plain = greedy(model, [prompt], 50, cached=False)
    assert len(plain[0]) == 50
    assert greedy(model, [prompt], 50) == plain
    assert greedy(model, [prompt], 50, chunk=3) == plain


def test_a_batch_changes_nothing(model):
    prompts = [[0, *ids_of(30 + i)[: 1 + 4 * i].tolist()] for i in range(8)]
    alone = [greedy(model, [prompt], 45)[0] for prompt in prompts]
    assert greedy(model, prompts, 45) == alone
    drawn = generate(model, prompts[:1] * 8, Sampling(), 20, seed=3)
    assert len({tuple(r.ids) for r in drawn}) == 8
    assert generate(model, prompts[:1] * 3, Sampling(), 20, seed=3) == drawn[:3]


def test_rows_that_end_leave_the_others_alone(model):
    prompts = [[0, *ids_of(40)[i : 2 * i].tolist()] for i in range(1, 8)]
    plain = greedy(model, prompts, 40, cached=False)
    end = plain[0][5]
    expected = [ids[: ids.index(end) + 1] if end in ids else ids for ids in plain]
    assert greedy(model, prompts, 40, end_id=end) == expected
    assert greedy(model, prompts, 40, end_id=end, cached=False) == expected


@pytest.mark.parametrize("past", ["roll", "stop"])
def test_a_row_that_ends_with_a_full_cache_leaves_the_others_alone(model, past):
    """The first row has room for 3 tokens: it is full, or ends, when its last position has been read."""
    prompts = [[0, *ids_of(30).tolist()[1:]], [0, 5]]
    alone = [greedy(model, [prompt], 20, past=past)[0] for prompt in prompts]
    assert greedy(model, prompts, 20, past=past) == alone
    end = alone[0][2]
    expected = [ids[: ids.index(end) + 1] if end in ids else ids for ids in alone]
    assert greedy(model, prompts, 20, past=past, end_id=end) == expected


def test_greedy_ids_are_those_of_transformers():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    for config in CONFIGS[:3]:
        ours = lively(config)
        settings = {
            k: v for k, v in config_to_hf(config).items() if k not in ("architectures", "torch_dtype")
        }
        settings |= {"eos_token_id": None, "dtype": torch.float32}
        theirs = Qwen3ForCausalLM(Qwen3Config(**settings)).eval()
        theirs.load_state_dict(weights_to_hf(ours.state_dict(), config), strict=False)
        prompt = torch.tensor([[0, *ids_of(6).tolist()]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # ◆ is id 0 as the padding is: without a mask transformers would leave it out
            mask = torch.ones_like(prompt)
            out = theirs.generate(
                prompt, attention_mask=mask, max_new_tokens=25, do_sample=False, pad_token_id=0
            )
        assert greedy(ours, prompt.tolist(), 25)[0] == out[0, 7:].tolist()


# ------------------------------------------------------------------------------------------------- forms of weights


def test_transposed_weights_are_the_same_numbers(model):
    ids = ids_of(2, 11)
    before = model(ids)
    model = prepare_for_generation(model, "fp32")
    assert close(model(ids), before)
    assert close(model(ids, cache=model.new_cache(2)), before)


def test_single_steps_of_laid_out_weights_are_the_whole(model):
    """Rows of one length, then of different ones; the uncached model that was never laid out is the measure."""
    ids, starts = ids_of(3, 32), (0, 7, 20)
    whole, prompts = model(ids), [[0, *ids_of(30 + i)[: 1 + 4 * i].tolist()] for i in range(7)]
    plain = greedy(model, prompts, 45, cached=False)
    model = prepare_for_generation(model, "fp32")
    cache = model.new_cache(3)
    got = [model(ids[:, t : t + 1], cache=cache) for t in range(32)]
    assert close(torch.cat(got, 1), whole)
    cache = model.new_cache(3)
    for row, n in enumerate(starts):
        if n:
            model(ids[row : row + 1, :n], cache=cache.row(row))
    for step in range(12):
        at = [n + step for n in starts]
        got = model(torch.stack([ids[r, t : t + 1] for r, t in enumerate(at)]), cache=cache)
        assert close(got[:, 0], torch.stack([whole[r, t] for r, t in enumerate(at)]))
    assert greedy(model, prompts, 45) == plain
    assert greedy(model, prompts[:1], 45) == plain[:1]


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch announces another home for its int8 types
def test_int8_and_bf16_are_near(model):
    ids = ids_of(2, 11)
    before = model(ids).log_softmax(-1)
    for weights, most in (("int8", 0.03), ("bf16", 0.03)):
        other = lively(model.config)
        if weights == "int8" and "fbgemm" not in torch.backends.quantized.supported_engines:
            continue
        other = prepare_for_generation(other, weights)
        after = other(ids).float().log_softmax(-1)
        divergence = (before.exp() * (before - after)).sum(-1).mean().item()  # KL, nats per token
        assert 0 <= divergence < most
        assert len(greedy(other, [[0, 1, 2]], 40)[0]) == 40
    assert best_weights(torch.device("meta")) == "fp32"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own imports
def test_compiled_steps_give_the_same_ids():
    model = lively(CONFIGS[2])
    assert isinstance(model, GPT)
    assert compiles(model)
    prompts = [[0, 5, 6], [0, 9]]
    assert greedy(CompiledSteps(model), prompts[:1], 40) == greedy(model, prompts[:1], 40)
    assert greedy(CompiledSteps(model), prompts, 40) == greedy(model, prompts, 40)
    assert not compiles(prepare_for_generation(model, "int8"))
