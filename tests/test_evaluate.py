"""Losses per target, protocols, counting models, intervals: each against something that shares no code with it."""

import math
from collections import Counter, defaultdict
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from model import GPT, GPTConfig, WindowMLPConfig, build_model
from rostok.errors import UserError
from rostok.measuring import classes, gains, ngrams, report, token_page
from rostok.measuring.score import leak, score
from rostok.measuring.targets import (
    Entry,
    Losses,
    TargetList,
    memory_windows,
    perplexity,
    stream_windows,
    target_list,
    text_windows,
)

V = 50


def random_texts(lengths: list[int], seed: int = 0, vocab: int = V) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.concatenate(([0], rng.integers(1, vocab, n))) for n in lengths]


def random_model(config: GPTConfig | WindowMLPConfig, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    model = build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def tiny(context: int = 16, n_kv_head: int = 2, tied: bool = True) -> GPT:
    sizes = GPTConfig(vocab_size=V, context=context, n_layer=2, n_head=2, d_model=16, d_mlp=32)
    model = random_model(replace(sizes, n_kv_head=n_kv_head, tied=tied))
    assert isinstance(model, GPT)
    return model


# ---------------------------------------------------------------------------------------------------- the target list


def test_every_token_and_every_closing_mark_is_a_target_once() -> None:
    targets = target_list([np.array([0, 7, 8]), np.array([0]), np.array([0, 9])], 0)
    assert targets.targets.tolist() == [7, 8, 0, 0, 9, 0]
    assert targets.position.tolist() == [1, 2, 3, 1, 1, 2]
    assert targets.text_of.tolist() == [0, 0, 0, 1, 2, 2]
    assert targets.ends.tolist() == [False, False, True, True, False, True]


def test_hash_tells_lists_apart_and_text_hash_does_not_see_the_tokenizer() -> None:
    pieces = [b"<|endoftext|>", b"a", b"b", b"ab"]
    split = target_list([np.array([0, 1, 2])], 0, pieces)
    glued = target_list([np.array([0, 3])], 0, pieces)
    other = target_list([np.array([0, 1]), np.array([0, 2])], 0, pieces)
    assert len({split.sha256, glued.sha256, other.sha256}) == 3
    assert split.texts_sha256 == glued.texts_sha256 != other.texts_sha256
    assert split.n_bytes == glued.n_bytes == 2


def test_lists_that_cannot_be() -> None:
    with pytest.raises(UserError, match="no held-out texts"):
        target_list([], 0)
    with pytest.raises(UserError, match="not opened by ◆"):
        target_list([np.array([0, 1]), np.array([5, 1])], 0)


# ---------------------------------------------------------------------------------------------------- windows


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=5), st.integers(2, 20), st.data())
def test_windows_ask_for_each_target_once_with_what_stands_before_it(lengths, context, data) -> None:
    targets = target_list(random_texts(lengths), 0)
    stride = data.draw(st.integers(1, context - 1))
    seen = np.zeros(len(targets), int)
    for window in text_windows(targets, context, stride):
        assert len(window.ids) <= context
        assert window.ids[0] == 0
        for at in range(window.skip, len(window.ids)):
            place = window.first + at - window.skip
            seen[place] += 1
            own = targets.inputs[place - at + 1 : place + 1]  # all but the ◆ in front
            assert window.ids[1 : at + 1].tolist() == own.tolist()
            assert at + 1 >= min(targets.position[place], context - stride + 1)
    assert (seen == 1).all()


@pytest.mark.parametrize(("context", "stride"), [(16, 0), (16, 16), (1, 1), (2, 2)])
def test_strides_and_contexts_that_cannot_be(context: int, stride: int) -> None:
    with pytest.raises(UserError, match=r"--stride must be|at least 2"):
        list(text_windows(target_list(random_texts([30]), 0), context, stride))


def test_window_model_in_chunks_is_the_window_model_on_the_whole_text() -> None:
    model = random_model(WindowMLPConfig(vocab_size=V, d_embed=4, d_hidden=8))
    targets = target_list(random_texts([90, 3]), 0)
    chunked = score(model, targets, memory_windows(targets, 8, chunk=13))
    whole = score(model, targets, memory_windows(targets, 8))
    np.testing.assert_allclose(chunked.nats, whole.nats, atol=1e-5)


# ---------------------------------------------------------------------------------------------------- losses


def naive_nats(model, ids: list[int], target: int) -> float:
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0, -1]
    return F.cross_entropy(logits[None].double(), torch.tensor([target])).item()


def test_losses_equal_one_call_a_target() -> None:
    model, targets = tiny(), target_list(random_texts([5, 0, 1, 15]), 0)
    losses = score(model, targets, text_windows(targets, 16, 8))
    expected = []
    for i in range(targets.n_texts):
        sequence = [*targets.text(i).tolist(), 0]
        expected += [naive_nats(model, sequence[:n], sequence[n]) for n in range(1, len(sequence))]
    np.testing.assert_allclose(losses.nats, expected, atol=1e-5)


def test_a_text_pays_the_same_bits_in_any_company() -> None:
    """No batch size to depend on: alone, in another order, among others, to the last bit."""
    model, texts = tiny(), random_texts([5, 40, 1, 15, 22, 0])
    together = target_list(texts, 0)
    losses = score(model, together, text_windows(together, 16, 8))
    backwards = target_list(texts[::-1], 0)
    turned = score(model, backwards, text_windows(backwards, 16, 8))
    for i, text in enumerate(texts):
        alone = target_list([text], 0)
        nats = score(model, alone, text_windows(alone, 16, 8)).nats
        assert (nats == losses.nats[together.indices([i])]).all()
        assert (nats == turned.nats[backwards.indices([len(texts) - 1 - i])]).all()


def test_zero_head_gives_exactly_the_vocabulary() -> None:
    """Equal logits cost ln V, to the last digits."""
    model = tiny(tied=False)
    assert model.head is not None
    torch.nn.init.zeros_(model.head.weight)
    targets = target_list(random_texts([5, 30, 0]), 0, [b""] + [b"xy"] * (V - 1))
    row = report.numbers(Entry("zero", 16, targets, score(model, targets, text_windows(targets, 16, 8))))
    assert row["nats"] == pytest.approx(math.log(V), rel=1e-14)
    assert row["perplexity"] == pytest.approx(V, rel=1e-13)
    assert row["bits_per_byte"] == pytest.approx(math.log2(V) / 2)


def copier(ids: torch.Tensor) -> torch.Tensor:
    """Knows that after n comes n + 1."""
    return 1000.0 * F.one_hot((ids + 1) % V, V).float()


def test_perfect_copier_gives_perplexity_one() -> None:
    targets = target_list([np.arange(V), np.arange(V)], 0)
    losses = score(copier, targets, text_windows(targets, 16, 5))
    assert perplexity(losses.nats.mean()) == 1.0
    assert losses.hits.all()


def parrot(ids: torch.Tensor) -> torch.Tensor:
    """Says what it just heard: perfect if the targets were shifted by one."""
    return 1000.0 * F.one_hot(ids, V).float()


def prophet(ids: torch.Tensor) -> torch.Tensor:
    """Reads the next token off its input: perfect inside a window, until it is asked by `leak`."""
    return 1000.0 * F.one_hot(ids.roll(-1, dims=1), V).float()


def test_shifted_targets_would_be_caught() -> None:
    targets = target_list([np.arange(V)], 0)
    assert score(parrot, targets, text_windows(targets, 64, 5)).nats.min() == 1000
    assert leak(parrot, targets.inputs) == 0


def test_a_model_that_sees_the_future_is_caught() -> None:
    targets = target_list(random_texts([40]), 0)
    losses = score(prophet, targets, text_windows(targets, 64, 5))
    assert losses.nats.max() == 0  # it looks wonderful
    assert leak(prophet, targets.inputs) > 1
    assert leak(tiny(64), targets.inputs) < 1e-6


def test_losses_that_are_not_numbers_are_refused() -> None:
    targets = target_list(random_texts([4]), 0)
    with pytest.raises(UserError, match="5 of its losses are not numbers"):
        score(lambda ids: torch.full((*ids.shape, V), math.nan), targets, text_windows(targets, 16, 8))


def test_thirty_thousand_tokens_beside_three() -> None:
    targets = target_list(random_texts([30_000, 3, 1, 0]), 0)
    losses = score(parrot, targets, text_windows(targets, 512, 256))
    assert len(losses.nats) == 30_001 + 4 + 2 + 1


# ---------------------------------------------------------------------------------------------------- transformers


def as_qwen3(model: GPT):
    """The same weights in Hugging Face's own code."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    c = model.config
    config = Qwen3Config(
        vocab_size=c.vocab_size,
        hidden_size=c.d_model,
        intermediate_size=c.hidden,
        num_hidden_layers=c.n_layer,
        num_attention_heads=c.n_head,
        num_key_value_heads=c.kv_heads,
        head_dim=c.d_head,
        max_position_embeddings=c.context,
        rms_norm_eps=c.norm_eps,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
    )
    other = Qwen3ForCausalLM(config).eval()
    names = {
        "attn_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        "attn.q_norm": "self_attn.q_norm",
    }
    names |= {"attn.k_norm": "self_attn.k_norm", "attn.proj": "self_attn.o_proj"}
    names |= {f"mlp.{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    weights = {"model.embed_tokens.weight": model.embed.weight, "model.norm.weight": model.final_norm.weight}
    weights["lm_head.weight"] = model.embed.weight
    own = model.state_dict()
    for i in range(c.n_layer):
        heads = own[f"blocks.{i}.attn.qkv.weight"].split([c.n_head * c.d_head, *[c.kv_heads * c.d_head] * 2])
        for part, weight in zip("qkv", heads, strict=True):
            weights[f"model.layers.{i}.self_attn.{part}_proj.weight"] = weight
        for ours, theirs in names.items():
            weights[f"model.layers.{i}.{theirs}.weight"] = own[f"blocks.{i}.{ours}.weight"]
    other.load_state_dict(weights)
    return other


def test_both_protocols_equal_a_loop_over_transformers() -> None:
    model = tiny(16, n_kv_head=1)
    other = as_qwen3(model)
    texts = random_texts([5, 40, 1, 15, 16, 17, 0])
    targets = target_list(texts, 0)

    def theirs(ids: list[int], wanted: list[int]) -> float:
        """Summed nats of the last len(wanted) answers, by Hugging Face's own loss."""
        labels = [-100] * (len(ids) - len(wanted)) + wanted
        with torch.no_grad():
            loss = other(
                torch.tensor([ids]), shift_labels=torch.tensor([labels]), labels=torch.tensor([labels])
            ).loss
        return loss.item() * len(wanted)

    total = 0.0
    for text in texts:
        sequence = [*text.tolist(), 0]  # ids[k] is answered by sequence[k + 1]
        total += theirs(sequence[:-1][:16], sequence[1:17])
        done = min(len(text), 16)
        while done < len(text):  # 8 new targets, each behind ◆ and the 15 tokens up to it
            end = min(len(text), done + 8)
            total += theirs([0, *sequence[end - 15 : end]], sequence[done + 1 : end + 1])
            done = end
    ours = score(model, targets, text_windows(targets, 16, 8))
    assert ours.nats.sum() == pytest.approx(total, rel=1e-6)

    stream = [*np.concatenate(texts).tolist(), 0]
    blocks = range(0, len(stream) - 1, 16)
    total = sum(theirs(stream[b : b + 16][: len(stream) - 1 - b], stream[b + 1 : b + 17]) for b in blocks)
    ours = score(model, targets, stream_windows(targets, 16))
    assert ours.nats.sum() == pytest.approx(total, rel=1e-6)


# ---------------------------------------------------------------------------------------------------- counting models


def slow_kneser_ney(texts: list[list[int]], order: int, vocab: int):
    """Interpolated Kneser-Ney straight from the formulas, with dictionaries."""
    grams: Counter[tuple[int, ...]] = Counter()
    for text in texts:
        padded = [0] * (order - 2) + text + [0]
        for i in range(order - 1, len(padded)):
            grams[tuple(padded[i - order + 1 : i + 1])] += 1
    levels = [grams]
    for _ in range(order - 1):
        levels.append(Counter(gram[1:] for gram in levels[-1]))  # distinct longer grams that end so

    def p(word: int, history: tuple[int, ...], level: int) -> float:
        if level == len(levels):
            return 1 / vocab
        counts = levels[level]
        ones, twos = (sum(c == n for c in counts.values()) for n in (1, 2))
        discount = min(0.95, max(0.05, ones / (ones + 2 * twos))) if ones else 0.5
        own = {gram[-1]: c for gram, c in counts.items() if gram[:-1] == history}
        below = p(word, history[1:], level + 1)
        if not own:
            return below
        total = sum(own.values())
        return (max(own.get(word, 0) - discount, 0) + discount * len(own) * below) / total

    return lambda word, history: p(word, history, 0)


@pytest.mark.parametrize(("name", "order"), [("bigram", 2), ("trigram", 3)])
def test_kneser_ney_equals_the_formulas_and_sums_to_one(name: str, order: int) -> None:
    vocab = 7
    texts = random_texts([9, 4, 0, 12], seed=3, vocab=5)  # ids 5 and 6 never come
    fitted = ngrams.fit_ngrams(texts, vocab, 0)[name]
    slow = slow_kneser_ney([text.tolist() for text in texts], order, vocab)
    for history in np.ndindex(*[vocab] * (order - 1)):
        number = sum(h * vocab**k for k, h in enumerate(reversed(history)))
        fast = fitted.counter.probability(np.full(vocab, number), np.arange(vocab))
        expected = [slow(word, history) for word in range(vocab)]
        np.testing.assert_allclose(fast, expected, rtol=1e-12)
        assert fast.sum() == pytest.approx(1)
        word, p = fitted.counter.best(np.array([number]))
        assert fast[word[0]] == pytest.approx(max(expected))
        assert p[0] == pytest.approx(max(expected))


def test_unigram_and_uniform() -> None:
    train, held_out = random_texts([30, 30], vocab=5), target_list(random_texts([6], seed=1, vocab=7), 0)
    unigram = ngrams.fit_ngrams(train, 7, 0)["unigram"]
    counts = Counter(np.concatenate([np.append(text[1:], 0) for text in train]).tolist())
    expected = [-math.log((counts[w] + 1) / (62 + 7)) for w in held_out.targets.tolist()]
    np.testing.assert_allclose(unigram.losses(held_out).nats, expected)
    uniform = ngrams.NGram(1, 7, ngrams.Uniform(7)).losses(held_out)
    np.testing.assert_allclose(uniform.nats, math.log(7))


def test_counting_stops_at_the_limit_and_copes_with_nothing() -> None:
    texts = random_texts([10, 10, 10])
    cut = [texts[0], texts[1][: 12 - len(texts[0])]]
    few, two = ngrams.fit_ngrams(texts, V, 0, limit=12), ngrams.fit_ngrams(cut, V, 0)
    held_out = target_list(random_texts([8], seed=5), 0)
    assert (few["trigram"].losses(held_out).nats == two["trigram"].losses(held_out).nats).all()
    assert ngrams.fit_ngrams([], V, 0) == {}


# ---------------------------------------------------------------------------------------------------- intervals


def rows_of(nats: list[np.ndarray], targets: TargetList) -> list[Entry]:
    return [Entry(f"m{k}", 8, targets, Losses(n, np.zeros(len(n), bool))) for k, n in enumerate(nats)]


def test_paired_bootstrap_sees_a_small_difference_that_single_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    targets = target_list(random_texts([20] * 100), 0)
    hard = rng.gamma(2, 1, len(targets)) + np.repeat(rng.gamma(2, 1, 100), 21)  # some texts are hard for all
    result = report.tabulate(rows_of([hard, hard - 0.01, hard + rng.normal(0, 1, len(hard))], targets))
    first, better, same = result["rows"]
    assert better["interval"][1] > first["interval"][0]  # they overlap
    assert better["difference_interval"] == pytest.approx((-0.01, -0.01))
    assert same["difference_interval"][0] < 0 < same["difference_interval"][1]
    assert result["words"][0] == "m1 is better than m0 by 0.0100 [0.0100, 0.0100] nats per token"
    assert result["words"][1].startswith("m2 and m0 cannot be told apart: ")
    assert result["resampled"] == "100 texts"


def test_interval_is_about_two_standard_errors() -> None:
    values = np.random.default_rng(1).normal(3, 1, 400)
    targets = target_list([np.array([0])] * 400, 0)
    low, high = report.tabulate(rows_of([values], targets))["rows"][0]["interval"]
    assert (high - low) == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_few_texts_are_drawn_in_stretches_and_one_stretch_has_no_interval() -> None:
    long = target_list(random_texts([1000]), 0)
    assert report.tabulate(rows_of([np.ones(1001)], long))["resampled"] == "4 stretches of text"
    short = target_list(random_texts([3]), 0)
    result = report.tabulate(rows_of([np.ones(4), np.full(4, 2.0)], short))
    assert result["rows"][0]["interval"] is None
    assert result["words"] == [
        "m1 and m0: too little text for an interval (difference +1.0000 nats per token)"
    ]
    assert "n/a" in report.as_text(result)


def test_rows_of_other_targets_are_refused_and_other_tokens_of_the_same_text_are_not() -> None:
    pieces = [b"<|endoftext|>", b"a", b"b", b"ab"]
    fine = target_list([np.array([0, 1, 2])] * 3, 0, pieces)
    coarse = target_list([np.array([0, 3])] * 3, 0, pieces)
    other = target_list([np.array([0, 3, 3])] * 3, 0, pieces)
    (first,), (second,), (third,) = (rows_of([np.ones(len(t))], t) for t in (fine, coarse, other))
    with pytest.raises(UserError, match="different held-out texts"):
        report.tabulate([first, third])
    result = report.tabulate([first, second])
    assert result["unit"] == "bits per byte"
    assert result["rows"][1]["bits_per_byte"] == pytest.approx(1 / math.log(2) / 2)
    assert result["rows"][1]["difference"] == pytest.approx((1 - 2) / math.log(2) / 2)
    assert "perplexity" not in report.as_text(result)
    assert "only bits per byte can be compared" in report.as_text(result)


# ---------------------------------------------------------------------------------------------------- gains


@pytest.mark.parametrize("opened", [False, True])
def test_narrow_equals_one_call_a_target(opened: bool) -> None:
    model, targets = tiny(16), target_list(random_texts([30, 2, 6]), 0)
    full = score(model, targets, text_windows(targets, 16, 8))
    places = np.arange(len(targets))
    got = gains.narrow(model, targets, full, places, 4, opened)
    expected = []
    for i in range(targets.n_texts):
        sequence = [*targets.text(i).tolist(), 0]
        for n in range(1, len(sequence)):
            before = sequence[1:n] if opened else sequence[:n]
            expected.append(naive_nats(model, [0] * opened + before[-4:], sequence[n]))
    np.testing.assert_allclose(got.nats, expected, atol=1e-5)
    assert model(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 5, V)  # the hook is gone


def test_sampling_whole_texts() -> None:
    targets = target_list(random_texts([9] * 50), 0)
    chosen = gains.sample_texts(targets, 95)
    assert len(chosen) == 10
    assert chosen == gains.sample_texts(targets, 95) == sorted(set(chosen))
    assert gains.sample_texts(targets, 500) == list(range(50))
    part = targets.subset(chosen)
    assert (targets.targets[targets.indices(chosen)] == part.targets).all()
    assert part.sha256 != targets.sha256


PIECES = [
    b"<|endoftext|>",
    b"a",
    b"b",
    b"c",
    b" .",
    "\u0436".encode()[:1],
    *[b"w%d" % i for i in range(V - 6)],
]


def test_classes_by_hand() -> None:
    targets = target_list([np.array([0, 1, 2, 1, 4, 1, 2, 3, 4, 5]), np.array([0, 1])], 0, PIECES)
    names = [classes.CLASSES[k] for k in classes.classes(targets)]
    first = ["new", "new", "seen", "punctuation", "seen", "pair", "new", "punctuation", "new", "end"]
    assert names == [*first, "new", "end"]
    losses = Losses(np.arange(12.0), np.zeros(12, bool))
    told = classes.by_class(targets, classes.classes(targets), [losses])
    assert [entry["targets"] for entry in told] == [5, 2, 1, 2, 2]
    assert told[2]["nats"] == [5.0]


def test_classes_behind_a_swapped_beginning() -> None:
    own = np.array([0, 7, 8, 9, 10, 11, 12, 13, 20, 21, 22, 23, 24, 25, 26, 27, 7, 8, 30, 10, 21, 22])
    words = np.append(own[1:], 0)
    kinds = gains.kinds_behind_cut(own, words, 8, [False] * V)
    named = {int(words[t]): classes.CLASSES[k] for t, k in enumerate(kinds) if k >= 0}
    assert named == {
        7: "seen",
        8: "pair",
        30: "new",
        10: "seen",
    }  # 21 and 22 still stand behind the cut; ◆ never


def test_control_takes_nothing_from_a_model_of_eight_tokens() -> None:
    targets = target_list(random_texts([40, 60, 50, 3], vocab=40), 0, PIECES)
    window = random_model(WindowMLPConfig(vocab_size=V, context=64, d_embed=4, d_hidden=8))
    gpt = tiny(64)
    rows = [
        Entry("window", 8, targets, score(window, targets, memory_windows(targets, 8))),
        Entry("gpt", 64, targets, score(gpt, targets, text_windows(targets, 64, 32))),
    ]
    told = gains.control([window, gpt], rows, range(4))
    assert [entry["class"] for entry in told] == ["new", "seen", "pair"]
    assert sum(entry["targets"] for entry in told) > 20
    for entry in told[:2]:
        assert abs(entry["rows"][0]["gain"]) < 1e-6
        assert abs(entry["rows"][1]["gain"]) > 1e-6


def test_loss_by_position() -> None:
    targets = target_list(random_texts([20, 3]), 0)
    bins = gains.by_position(
        targets, [Losses(targets.position.astype(float), targets.ends)], gains.position_bins(20)
    )
    assert [(b["first"], b["last"], b["targets"]) for b in bins[:3]] == [(1, 1, 2), (2, 2, 2), (3, 3, 2)]
    assert [b["nats"][0] for b in bins[:8]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sum(b["targets"] for b in bins) == 23


def test_sweep_ends_where_the_full_context_is() -> None:
    model, targets = tiny(32), target_list(random_texts([20, 25]), 0)
    full = score(model, targets, text_windows(targets, 32, 16))
    told = gains.sweep([model], [Entry("gpt", 32, targets, full)], 1000)
    points = told["curves"][0]["points"]
    assert [point["shown"] for point in points] == [8, 16, 32]
    assert points[-1]["nats"] == full.nats.mean()  # no text is longer: the very same losses
    assert points[0]["nats"] != points[1]["nats"]


# ---------------------------------------------------------------------------------------------------- the token page


def test_token_page_is_safe_against_any_text() -> None:
    pieces = [b"<|endoftext|>", b"<script>alert(1)</script>", b'" onmouseover="x', b"\xff"]
    pieces += ["\u202e".encode(), b"\n", b"\0"]
    targets = target_list([np.arange(7)], 0, pieces)
    name = '</title><img src=x onerror="y">'
    page = token_page.token_page(targets, [0], name, np.arange(7.0), "b", np.full(7, 3.0))
    assert "<script" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "\0" not in page
    assert '"x' not in page
    assert "://" not in page
    assert page.count("<bdi") == 2 * 7
    assert "⟨FF⟩" in page
    assert "⟨U+202E⟩" in page
    assert "default-src 'none'" in page
    opened: defaultdict[str, int] = defaultdict(int)
    allowed = {"class", "title", "lang", "dir", "charset", "name", "content", "http-equiv"}

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            opened[tag] += 1
            assert {key for key, _ in attrs} <= allowed

        def handle_endtag(self, tag):
            opened[tag] -= 1

    Tags().feed(page)
    assert {tag for tag, n in opened.items() if n} <= {"meta", "br"}
