"""The NumPy reference against torch, against model.py, and against what mathematics promises."""

import doctest
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from model import GPT, GPTConfig, build_model
from rostok.attention import reference
from rostok.attention.by_hand import experiments
from rostok.attention.reference import (
    attention,
    attention_steps,
    causal_mask,
    forward,
    multi_head,
    rms_norm,
    rope,
    score_bound,
    softmax,
    split_heads,
)

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def close(ours, theirs, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


def test_doctests():
    assert doctest.testmod(reference).failed == 0


def test_reference_imports_neither_torch_nor_matplotlib():
    code = "import sys, rostok.attention.reference; print({'torch', 'matplotlib'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


# ---- softmax ---------------------------------------------------------------------------------------------


def test_S1_06_rows_are_positive_and_sum_to_one():
    weights = softmax(normal(50, 7) * 20)
    assert (weights > 0).all()
    close(weights.sum(-1), 1)


def test_S0_12_shift_invariance_and_no_overflow_at_800():
    scores = normal(4, 9)
    close(softmax(scores + 1000), softmax(scores), 1e-13)
    close(softmax([800.0, 799.0]), [0.7310586, 0.2689414], 5e-8)
    for dtype in (np.float64, np.float32, np.float16):
        limit = np.log(float(np.finfo(dtype).max))
        with np.errstate(over="ignore"):
            assert np.isinf(np.exp(np.array(limit * 1.01, dtype=dtype)))
            assert np.isfinite(np.exp(np.array(limit * 0.99, dtype=dtype)))


def test_softmax_of_minus_infinity_is_exactly_zero():
    assert softmax([0.0, -np.inf]).tolist() == [1, 0]


def test_softmax_keeps_float32_and_takes_integers():
    assert softmax(np.array([1, 2], np.float32)).dtype == np.float32
    close(softmax([[1, 2], [2, 1]], axis=0), torch.softmax(torch.tensor([[1.0, 2], [2, 1]]), 0), 1e-7)


# ---- one head --------------------------------------------------------------------------------------------


def test_S1_03_attention_equals_torch_for_any_shape():
    shapes, scales = ((3, 3), (2, 5), (5, 2), (1, 1), (1, 4)), (None, 1.0, 0.3, -2.0)
    for (n, m), d_v, scale, mask in product(shapes, (3, 6), scales, (None, "causal", "boolean")):
        q, k, v = normal(n, 3), normal(m, 3), normal(m, d_v)
        booleans = RNG.random((n, m)) < 0.6
        booleans[:, 0] = True
        ours, weights = attention(q, k, v, scale=scale, mask=booleans if mask == "boolean" else mask)
        theirs = F.scaled_dot_product_attention(
            *(torch.from_numpy(a)[None] for a in (q, k, v)),
            attn_mask=torch.from_numpy(booleans) if mask == "boolean" else None,
            is_causal=mask == "causal",
            scale=scale,
        )[0]
        assert ours.shape == (n, d_v)
        assert weights.shape == (n, m)
        close(ours, theirs.numpy())
        close(weights.sum(-1), 1)


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float64, 1e-13), (torch.float32, 5e-6), (torch.bfloat16, 5e-2)], ids=str
)
def test_S3_23_explicit_softmax_equals_sdpa_at_rostok_size(dtype, atol):
    q, k, v = torch.randn(3, 6, 512, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    theirs = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    numbers = np.float64 if dtype == torch.float64 else np.float32
    ours, _ = attention(
        *(a.float().numpy().astype(numbers) if dtype != torch.float64 else a.numpy() for a in (q, k, v)),
        mask="causal",
    )
    close(ours, theirs.to(torch.float64).numpy(), atol)


def test_S1_04_score_is_a_sum_of_products_and_S2_05_loop_equals_matrix():
    q, k, v = normal(3, 4), normal(5, 4), normal(5, 2)
    steps = attention_steps(q, k, v)
    for i in range(3):
        scores = [sum(q[i, a] * k[j, a] for a in range(4)) for j in range(5)]
        close(steps.dots[i], scores)
        exps = [np.exp(s / 2) for s in scores]  # sqrt(4) = 2
        out = sum(e / sum(exps) * v[j] for j, e in enumerate(exps))
        close(steps.output[i], out)


def test_S1_07_output_mixes_rows_of_v():
    weights = attention(normal(2, 3), normal(3, 3), np.eye(3))
    close(weights[0], weights[1])  # with the unit rows as values, the output is the weights


def test_S3_16_no_weight_above_the_diagonal_and_the_rest_sums_to_one():
    _, weights = attention(normal(6, 4), normal(6, 4), normal(6, 4), mask="causal")
    assert (weights[np.triu_indices(6, 1)] == 0).all()
    close(weights.sum(-1), 1)
    assert weights[0, 0] == 1


def test_causal_mask_is_top_left_and_moves_with_the_past():
    assert causal_mask(1, 3).tolist() == [[True, False, False]]
    assert causal_mask(1, past=2).tolist() == [[True, True, True]]
    assert causal_mask(2, past=1).tolist() == [[True, True, False], [True, True, True]]


def test_future_values_change_nothing_before_them():
    q, k, v = normal(5, 4), normal(5, 4), normal(5, 3)
    before, _ = attention(q, k, v, mask="causal")
    k[4], v[4] = 100, 100
    after, _ = attention(q, k, v, mask="causal")
    assert (before[:4] == after[:4]).all()


@pytest.mark.parametrize(
    ("q", "k", "v", "mask", "message"),
    [
        (normal(2, 3), normal(2, 4), normal(2, 3), None, "rows of one length"),
        (normal(2, 3), normal(3, 3), normal(2, 3), None, "one row a key"),
        (normal(3), normal(3, 3), normal(3, 3), None, "must be matrices"),
        (normal(2, 3), normal(2, 3), normal(2, 3), "future", "None, 'causal' or booleans"),
        (normal(2, 3), normal(2, 3), normal(2, 3), np.ones((3, 2), dtype=bool), r"shape \(2, 2\)"),
        (normal(2, 3), normal(2, 3), normal(2, 3), np.array([[True, True], [False, False]]), "0/0"),
    ],
)
def test_attention_refuses_what_does_not_fit(q, k, v, mask, message):
    with pytest.raises(ValueError, match=message):
        attention(q, k, v, mask=mask)


# ---- many heads, two texts, a cache ----------------------------------------------------------------------


def test_S1_11_split_heads_equal_separate_matrices():
    x, w_q, w_k, w_v, w_o = normal(5, 12), *(normal(12, 12) for _ in range(4))
    together, weights = multi_head(x, w_q, w_k, w_v, 3, w_o=w_o)
    heads = []
    for h in range(3):
        columns = slice(4 * h, 4 * h + 4)
        out, own = attention(x @ w_q[:, columns], x @ w_k[:, columns], x @ w_v[:, columns], mask="causal")
        close(own, weights[h])
        heads.append(out)
    close(together, np.concatenate(heads, axis=1) @ w_o, 1e-10)


def test_S0_18_grouped_queries_equal_repeated_keys_and_values():
    x, w_q, w_k, w_v = normal(5, 12), normal(12, 12), normal(12, 6), normal(12, 6)
    grouped, _ = multi_head(x, w_q, w_k, w_v, 4, n_kv_head=2)
    wide_k, wide_v = (np.concatenate([w[:, :3], w[:, :3], w[:, 3:], w[:, 3:]], axis=1) for w in (w_k, w_v))
    close(grouped, multi_head(x, w_q, wide_k, wide_v, 4)[0])
    with pytest.raises(ValueError, match="multiple of n_kv_head"):
        multi_head(x, w_q, w_k, w_v, 4, n_kv_head=3)


def test_S1_12_three_uses_none_causal_cross():
    x, y, w = normal(4, 6), normal(7, 6), (normal(6, 6), normal(6, 6), normal(6, 6))
    free, free_weights = multi_head(x, *w, 1, mask=None)
    masked, _ = multi_head(x, *w, 1, mask="causal")
    close(free[-1], masked[-1])  # the last token sees the same either way
    assert np.abs(free[0] - masked[0]).max() > 0.01
    assert (free_weights > 0).all()
    w_q, w_k, w_v = w
    close(attention(x @ w_q, x @ w_k, x @ w_v)[0], free)
    out, weights = attention(x @ w_q, y @ w_k, y @ w_v)  # cross-attention: keys and values of another text
    assert out.shape == (4, 6)
    assert weights.shape == (4, 7)


def test_S0_16_cached_steps_equal_the_full_pass():
    q, k, v = normal(3, 7, 4), normal(3, 7, 4), normal(3, 7, 4)  # (H, T, E)
    full, _ = attention(q, k, v, mask="causal")
    for past, end in ((0, 3), (3, 4), (4, 7)):
        mask = causal_mask(end - past, past=past)
        close(attention(q[:, past:end], k[:, :end], v[:, :end], mask=mask)[0], full[:, past:end])


def test_S3_24_a_sum_does_not_care_for_order():
    """The grid: one layer without RoPE 0, two layers without a mask 0, everything else not 0."""
    for layers, causal, positions in product((1, 2), (True, False), (True, False)):
        change = experiments.shuffle_change(layers, causal=causal, positions=positions)
        blind = not positions and (layers == 1 or not causal)
        assert (change < 1e-12) if blind else (change > 0.01), (layers, causal, positions)


# ---- norm, rotation, MLP ---------------------------------------------------------------------------------


def test_rms_norm_equals_torch():
    x, gain = normal(4, 8), normal(8)
    close(
        rms_norm(x, gain, 1e-6), F.rms_norm(torch.from_numpy(x), (8,), torch.from_numpy(gain), 1e-6).numpy()
    )


def test_qk_norm_removes_the_length_of_a_query():
    q = normal(64)
    close(rms_norm(10 * q), rms_norm(q), 1e-5)
    assert np.abs(rms_norm(-q) + rms_norm(q)).max() == 0


def test_rope_keeps_lengths_and_depends_on_the_distance_alone():
    q, k = normal(1, 16), normal(1, 16)

    def score(t: int, j: int) -> float:
        return (rope(q, [t]) @ rope(k, [j]).T).item()

    close(np.linalg.norm(rope(q, [123])), np.linalg.norm(q))
    close(rope(q, [0]), q)
    for distance in (0, 1, 5, 300):
        close(score(distance, 0), score(distance + 17, 17), 1e-10)
    assert abs(score(5, 0) - score(0, 5)) > 1e-3  # the direction counts


def test_rope_of_one_pair_by_hand():
    close(rope([[1.0, 0.0]], [np.pi / 2]), [[0.0, 1.0]])
    close(rope(np.ones((1, 4)), [3], theta=100.0)[0, 1], np.cos(0.3) - np.sin(0.3))  # pair 1: 3 * 100^(-1/2)


def test_score_never_exceeds_the_bound():
    q_gain, k_gain = normal(16), normal(16)
    q, k = rms_norm(normal(200, 16), q_gain), rms_norm(normal(200, 16), k_gain)
    positions = np.arange(200)
    scores = rope(q, positions) @ rope(k, positions).T / 4
    assert np.abs(scores).max() <= score_bound(q_gain, k_gain)
    assert score_bound(np.ones(64), np.ones(64)) == 8


def test_silu_equals_torch_and_does_not_overflow():
    x = normal(3, 4)
    close(reference.silu(x), F.silu(torch.from_numpy(x)).numpy())
    assert reference.silu(np.array([-1e4, 1e4], np.float32)).tolist() == [0, 1e4]


# ---- the whole model -------------------------------------------------------------------------------------


def random_model(**settings) -> GPT:
    """A GPT of random weights, gains not 1 and output matrices not 0, so that every piece counts."""
    config = GPTConfig(
        **{"vocab_size": 97, "context": 24, "n_head": 4, "d_model": 32, "d_mlp": 48, **settings}
    )
    torch.manual_seed(0)
    model = build_model(config)
    assert isinstance(model, GPT)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.copy_(0.5 + torch.rand_like(parameter))
            else:
                parameter.normal_(std=0.3)
    return model.eval()


def as_float64(model: GPT) -> GPT:
    """The model in float64, its table of rotations too: .double() alone would keep float32's rounding in it."""
    model = model.double()
    config = model.config
    angle = torch.outer(
        torch.arange(config.context, dtype=torch.float64),
        config.rope_theta ** (-torch.arange(0, config.d_head, 2, dtype=torch.float64) / config.d_head),
    )
    model.cos, model.sin = angle.cos(), angle.sin()
    return model


def numpy_weights(model: GPT) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


IDS = np.random.default_rng(3).integers(0, 97, 24)


@pytest.mark.parametrize("n_layer", [1, 8])
@pytest.mark.parametrize("n_kv_head", [None, 2, 1])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-4), ("float64", 1e-9)])
@torch.no_grad()
def test_logits_equal_the_models(n_layer, n_kv_head, tied, dtype, atol):
    model = random_model(n_layer=n_layer, n_kv_head=n_kv_head, tied=tied, rope_theta=500.0, norm_eps=1e-5)
    if dtype == "float64":
        model = as_float64(model)
    theirs = model(torch.from_numpy(IDS)[None])[0].numpy()
    ours = forward(numpy_weights(model), model.config, IDS)
    assert ours.dtype == dtype
    close(ours, theirs, atol)


@torch.no_grad()
def test_a_plain_mapping_of_settings():
    model = random_model(n_layer=2)
    ours = forward(numpy_weights(model), {"n_layer": 2, "n_head": 4}, IDS)
    close(ours, model(torch.from_numpy(IDS)[None])[0].numpy(), 1e-4)


def test_losses_equal_torch():
    logits, targets = normal(6, 9) * 50, RNG.integers(9, size=6)
    theirs = F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(targets), reduction="none")
    close(reference.losses(logits, targets), theirs.numpy(), 1e-11)


def test_trace_has_every_step_and_the_steps_fit_together():
    model = random_model(n_layer=2, n_kv_head=2)
    weights = numpy_weights(as_float64(model))
    trace: dict[str, np.ndarray] = {}
    logits = forward(weights, model.config, IDS, trace)
    block = "blocks.1."
    part = {name.removeprefix(block): value for name, value in trace.items() if name.startswith(block)}
    names = (
        *("resid_pre", "attn.norm", "attn.q_raw", "attn.k_raw", "attn.v", "attn.q_norm", "attn.k_norm"),
        *(
            "attn.q",
            "attn.k",
            "attn.dots",
            "attn.scaled",
            "attn.scores",
            "attn.pattern",
            "attn.z",
            "attn.result",
        ),
        *("attn.out", "resid_mid", "mlp.norm", "mlp.pre", "mlp.up", "mlp.post", "mlp.out", "resid_post"),
    )
    assert tuple(part) == names  # in the order of the work
    assert set(trace) - {n for n in trace if n.startswith("blocks.")} == {"embed", "final_norm", "logits"}
    assert part["attn.q"].shape == (4, 24, 8)
    assert part["attn.k"].shape == (2, 24, 8)
    assert part["attn.pattern"].shape == (4, 24, 24)
    assert part["attn.result"].shape == (4, 24, 32)
    close(part["resid_mid"], part["resid_pre"] + part["attn.result"].sum(0))
    close(part["resid_post"], part["resid_mid"] + part["mlp.out"])
    close(part["resid_pre"], trace["blocks.0.resid_post"])
    close(part["attn.q"], rope(part["attn.q_norm"], np.arange(24)))
    close(part["attn.scaled"] * np.sqrt(8), part["attn.dots"], 1e-10)
    close(part["attn.pattern"], softmax(part["attn.scores"]))
    close(part["attn.pattern"].sum(-1), 1)
    assert (np.triu(part["attn.pattern"], 1) == 0).all()
    close(part["attn.z"], part["attn.pattern"] @ np.repeat(part["attn.v"], 2, axis=0))
    q, k, v = (torch.from_numpy(part[f"attn.{name}"])[None] for name in "qkv")
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    close(part["attn.z"], theirs[0].numpy(), 1e-5)
    gains = (weights[block + "attn.q_norm.weight"], weights[block + "attn.k_norm.weight"])
    assert np.abs(part["attn.scaled"]).max() <= score_bound(*gains)
    close(trace["logits"], logits, 0)


def test_keep_chooses_what_is_traced():
    model = random_model(n_layer=2)
    trace: dict[str, np.ndarray] = {}
    forward(numpy_weights(model), model.config, IDS, trace, keep=lambda name: name.endswith("pattern"))
    assert list(trace) == ["blocks.0.attn.pattern", "blocks.1.attn.pattern"]


@pytest.mark.parametrize("n_kv_head", [None, 1])
def test_S0_16_cached_logits_equal_the_full_pass(n_kv_head):
    model = random_model(n_layer=3, n_kv_head=n_kv_head)
    weights = numpy_weights(model)
    full = forward(weights, model.config, IDS)
    cache: reference.Cache = []
    pieces = [forward(weights, model.config, IDS[a:b], cache=cache) for a, b in ((0, 10), (10, 11), (11, 24))]
    close(np.concatenate(pieces), full, 1e-4)
    assert len(cache) == 3
    assert cache[0][0].shape == (n_kv_head or 4, 24, 8)


def test_grouped_queries_equal_full_heads_with_repeated_keys_and_values():
    grouped = random_model(n_layer=2, n_kv_head=2)
    weights = numpy_weights(as_float64(grouped))
    wide = dict(weights)
    for layer in range(2):
        name = f"blocks.{layer}.attn.qkv.weight"
        q, k, v = np.split(weights[name], [32, 48])
        repeated = [np.repeat(w.reshape(2, 8, 32), 2, axis=0).reshape(32, 32) for w in (k, v)]
        wide[name] = np.concatenate([q, *repeated])
    ours = forward(weights, grouped.config, IDS)
    close(forward(wide, {"n_layer": 2, "n_head": 4}, IDS), ours, 1e-9)


def test_S0_06_weights_stay_and_activations_follow_the_input():
    model = random_model(n_layer=1)
    weights = numpy_weights(model)
    before = {name: tensor.copy() for name, tensor in weights.items()}
    first, second = {}, {}
    forward(weights, model.config, IDS, first)
    forward(weights, model.config, IDS[::-1].copy(), second)
    assert all((weights[name] == before[name]).all() for name in before)
    for name in ("q_raw", "k_raw", "v"):
        assert np.abs(first[f"blocks.0.attn.{name}"] - second[f"blocks.0.attn.{name}"]).max() > 0.1


def test_S0_07_a_word_has_one_query_in_layer_1_and_many_above():
    first, *above = experiments.bank().rows
    assert first[1:] == [0, 0, 0]
    assert all(change > 0.01 for row in above for change in row[1:] if isinstance(change, float))


def test_S0_05_shapes_of_the_projections():
    x, w_q, w_v = normal(3, 4), normal(4, 2), normal(4, 5)
    assert split_heads(x @ w_q, 1).shape == (1, 3, 2)
    assert attention(x @ w_q, x @ w_q, x @ w_v)[0].shape == (3, 5)


@pytest.mark.parametrize("ids", [[], [[1, 2]]])
def test_forward_wants_one_row_of_tokens(ids):
    model = random_model(n_layer=1)
    with pytest.raises(ValueError, match="one row of at least one token"):
        forward(numpy_weights(model), model.config, ids)


def test_forward_refuses_a_config_that_does_not_fit():
    model = random_model(n_layer=1)
    with pytest.raises(ValueError, match="does not fit 2 \\+ 2 x 2 heads of 8"):
        forward(numpy_weights(model), {"n_layer": 1, "n_head": 2}, IDS)


def test_S3_19_parameters_of_attention_do_not_depend_on_the_number_of_heads():
    counts = set()
    for n_head in (1, 2, 4):
        model = random_model(n_layer=1, n_head=n_head)
        weights = numpy_weights(model)
        counts.add(weights["blocks.0.attn.qkv.weight"].size + weights["blocks.0.attn.proj.weight"].size)
    assert counts == {4 * 32**2}
    rostok = GPT(GPTConfig(n_layer=1))
    assert sum(p.numel() for name, p in rostok.named_parameters() if ".attn." in name) == 589_952
