"""Filters against Hugging Face's, draws, the window's policy, stop strings; models are fakes of a few lines."""

# pyright: reportArgumentType=false

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rostok.errors import UserError
from rostok.generation import generate as g
from rostok.generation.generate import (
    Reader,
    Sampling,
    TextStream,
    at_hand,
    generate,
    stream,
    tokens_dropped,
)


class Fake:
    """A model without weights: the next token is the last one plus 1, and sometimes twice that."""

    def __init__(self, vocab: int = 50, limit: int | None = 16) -> None:
        self.vocab, self.limit, self.seen = vocab, limit, []

    def new_cache(self, batch):
        raise AssertionError("the tests below read without a cache")

    def __call__(self, ids, *, cache=None, last=False):
        self.seen.append(ids[0].tolist())
        logits = torch.zeros(*ids.shape, self.vocab)
        logits.scatter_(-1, ((ids + 1) % self.vocab)[..., None], 4.0)
        logits.scatter_(-1, ((2 * ids + 3) % self.vocab)[..., None], 3.0)
        return logits[:, -1:] if last else logits


def write(prompt, n, **settings):
    sampling = settings.pop("sampling", Sampling(temperature=0))
    return generate(settings.pop("model", Fake()), [prompt], sampling, n, cached=False, **settings)[0]


def random_logits(rows=6, vocab=40, scale=3.0):
    return scale * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(0))


# ------------------------------------------------------------------------------------------------- filters


def hf_filters(logits, ids, sampling: Sampling):
    """The same filters by transformers, in the order of its `generate`."""
    from transformers.generation import logits_process as hf

    steps = [hf.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)]
    steps.append(hf.TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        steps.append(hf.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        steps.append(hf.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        steps.append(hf.MinPLogitsWarper(sampling.min_p))
    return hf.LogitsProcessorList(steps)(ids, logits.clone())


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_k", [0, 1, 7, 1040])
@pytest.mark.parametrize("top_p", [0.0, 1e-9, 0.5, 0.95, 1.0])
@pytest.mark.parametrize(("min_p", "penalty"), [(0.0, 1.0), (0.1, 1.3), (1.0, 0.8)])
def test_filters_equal_hugging_faces(temperature, top_k, top_p, min_p, penalty):
    sampling = Sampling(temperature, top_k, top_p, min_p, penalty)
    logits, ids = random_logits(), torch.arange(30).view(6, 5)
    seen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, ids, True)
    ours, theirs = g.apply_filters(logits, sampling, seen), hf_filters(logits, ids, sampling)
    assert torch.equal(ours == -math.inf, theirs == -math.inf)
    assert torch.allclose(ours.softmax(-1), theirs.softmax(-1), atol=1e-6)


def test_each_filter_alone_equals_hugging_faces():
    from transformers.generation import logits_process as hf

    logits, ids = random_logits(), torch.arange(30).view(6, 5)
    seen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, ids, True)
    pairs = [
        (g.scale_temperature(logits, 0.7), hf.TemperatureLogitsWarper(0.7)),
        (g.keep_top_k(logits, 3), hf.TopKLogitsWarper(3)),
        (g.keep_top_p(logits, 0.9), hf.TopPLogitsWarper(0.9)),
        (g.keep_min_p(logits, 0.2), hf.MinPLogitsWarper(0.2)),
        (g.penalise_repeats(logits, seen, 1.2), hf.RepetitionPenaltyLogitsProcessor(1.2)),
    ]
    for ours, theirs in pairs:
        assert torch.equal(ours, theirs(ids, logits.clone()))


def test_ties():
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0]])
    assert g.keep_top_k(logits, 1).isfinite().tolist() == [[False, True, True, False]]
    assert g.keep_top_p(logits, 1e-9).isfinite().tolist() == [[False, False, True, False]]
    assert g.apply_filters(logits, Sampling(temperature=0)).isfinite().tolist() == [
        [False, True, False, False]
    ]


def test_greedy_whatever_the_other_settings():
    prompt, best = [0, 3], [4, 5, 6, 7]
    for settings in ({}, {"top_p": 1.0}, {"top_k": 5}, {"top_p": 0.0, "min_p": 1.0}):
        assert write(prompt, 4, sampling=Sampling(temperature=0, **settings)).ids == best
    for settings in ({"top_k": 1}, {"top_p": 0.0}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 1e-9}):
        assert write(prompt, 4, sampling=Sampling(**settings)).ids == best
    repeats = write([0, 9, 9, 9, 10, 8], 1, sampling=Sampling(temperature=0, repetition_penalty=2.0))
    assert repeats.ids == [19]  # 9 is there already, so the second-best comes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1}, "temperature must be a number from 0 to 100. Got -1"),
        ({"temperature": math.nan}, "temperature .* Got nan"),
        ({"temperature": math.inf}, "temperature .* Got inf"),
        ({"top_k": -1}, "top-k must be a number of 0 or more. Got -1"),
        ({"top_p": 1.5}, "top-p must be a number from 0 to 1. Got 1.5"),
        ({"min_p": -0.1}, "min-p must be"),
        ({"repetition_penalty": 0}, "repetition-penalty must be a number from 0.01"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(UserError, match=message):
        Sampling(**settings)


def test_filters_that_are_off_change_nothing():
    logits = random_logits()
    assert torch.allclose(g.apply_filters(logits, Sampling()).softmax(-1), logits.softmax(-1))
    assert g.keep_top_k(logits, 10**30) is logits


# ------------------------------------------------------------------------------------------------- draws


def test_choose_draws_with_the_probabilities():
    logits = torch.tensor([0.5, 0.0, 0.3, 0.2]).log().expand(20000, 4)
    uniform = torch.rand(20000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    shares = torch.bincount(g.choose(logits, uniform), minlength=4) / 20000
    assert shares[1] == 0
    assert torch.allclose(shares, torch.tensor([0.5, 0.0, 0.3, 0.2]), atol=0.015)


def test_no_uniform_number_chooses_the_impossible():
    logits = torch.tensor([[-math.inf, 1.0, -math.inf, 1.0, -math.inf]])
    for number, id in ((0.0, 1), (1 - 2**-53, 3), (0.25, 1), (0.75, 3)):
        assert g.choose(logits, torch.tensor([number], dtype=torch.float64)).item() == id


def test_samples_do_not_depend_on_the_batch_and_do_on_the_seed():
    run = lambda n, seed: [  # noqa: E731
        r.ids for r in generate(Fake(), [[0]] * n, Sampling(), 12, seed, cached=False)
    ]
    eight = run(8, 1)
    assert run(8, 1) == eight
    assert run(3, 1) == eight[:3]
    assert run(8, 2) != eight
    assert len({ids[0] for ids in eight}) > 1
    tokens = stream(Reader(Fake(), [[0]], cached=False), Sampling(), 12, seed=1, first_sample=5)
    assert [token.id for token in tokens] == eight[5]


def test_logits_that_are_no_numbers():
    class Broken(Fake):
        def __call__(self, ids, *, cache=None, last=False):
            return super().__call__(ids, last=last) * math.nan

    with pytest.raises(UserError, match="diverged"):
        write([0], 1, model=Broken())


# ------------------------------------------------------------------------------------------------- the window


@given(st.integers(1, 40), st.integers(1, 300))
def test_the_window_fits_and_is_not_short(limit, length):
    shown = length - tokens_dropped(length, limit)
    assert 1 <= shown <= limit
    assert shown == length or shown > limit // 2
    assert tokens_dropped(length, None) == 0


@pytest.mark.parametrize("length", [1, 15, 16, 17, 60])
def test_past_the_limit_the_window_keeps_the_first_token(length):
    model, prompt = Fake(limit=16), list(range(length))
    assert len(write(prompt, 20, model=model).ids) == 20
    assert all(seen[0] == 0 and len(seen) <= 16 for seen in model.seen)
    assert len(model.seen[0]) == (length if length <= 16 else length - tokens_dropped(length, 16))


def test_notice_and_stop():
    notices = []
    reader = Reader(Fake(), [[0]], cached=False, notice=lambda *what: notices.append(what))
    list(stream(reader, Sampling(), 30))
    assert notices == [(0, 9), (0, 9)]
    for length, written in ((1, 16), (15, 2), (16, 1), (17, 0), (60, 0)):
        result = write(list(range(length)), 30, past="stop")
        assert (len(result.ids), result.finish) == (written, "context")


def test_why_a_text_ends():
    assert write([0, 3], 4).finish == "length"
    assert write([0, 3], 0) == g.Result([], "length")
    assert write([0, 3], 9, end_id=6) == g.Result([4, 5, 6], "end")
    reader = Reader(Fake(), [[0, 3], [0, 9]], cached=False)
    texts = [TextStream(lambda id: b"<%d>" % id, [stop]) for stop in ("<5>", "<6>")]
    tokens = list(stream(reader, Sampling(temperature=0), 9, texts=texts))
    assert [t.id for t in tokens if t.row == 0] == [4, 5]
    assert "".join(t.text for t in tokens if t.row == 0) == "<4>"
    assert [t.finish for t in tokens if t.finish] == ["stop", "length"]
    with pytest.raises(ValueError, match="at least one token"):
        Reader(Fake(), [[0], []])


def test_log_probabilities_are_the_models_own():
    reader = Reader(Fake(), [[0, 3]], cached=False)
    [token] = stream(reader, Sampling(temperature=0.5, top_k=2), 1, top=3)
    total = math.log(math.exp(4) + math.exp(3) + 48)
    assert [choice.id for choice in token.top[:2]] == [4, 9]
    assert token.top[0].logprob == pytest.approx(4 - total, abs=1e-5)
    assert token.top[0].share == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-5)
    assert token.top[2].share == 0


# ------------------------------------------------------------------------------------------------- text


def pieces_of(text: str, cuts: list[int]) -> list[bytes]:
    data = text.encode()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def test_a_token_is_chosen_on_the_cpu_where_the_device_has_no_float64():
    class Apple:
        device = torch.device("mps")

        def cpu(self):
            return "on the CPU"

    assert at_hand(Apple()) == "on the CPU"  # pyright: ignore[reportArgumentType]
    logits = torch.zeros(1, 3)
    assert at_hand(logits) is logits


@given(
    st.text(max_size=30),
    st.lists(st.integers(0, 200), max_size=9),
    st.lists(st.text("ab да", max_size=3), max_size=2),
)
def test_text_is_whole_letters_and_ends_before_the_first_stop(text, cuts, stops):
    pieces = pieces_of(text, cuts)
    stream = TextStream(lambda i: pieces[i], stops)
    parts = []
    for i in range(len(pieces)):
        parts.append(stream.push(i))
        if stream.stopped:
            break
    shown = "".join(parts) + stream.close()
    hits = [text.find(stop) for stop in stops if stop and stop in text]
    assert stream.stopped == bool(hits)
    assert text.startswith(shown)
    assert "\ufffd" not in shown.replace("\ufffd" if "\ufffd" in text else "", "")
    if not hits:
        assert shown == text
    else:
        assert any(text[len(shown) :].startswith(stop) for stop in stops if stop)


def test_half_a_letter_is_held_back():
    pieces = ["я".encode()[:1], "я".encode()[1:], b"\xd1"]
    stream = TextStream(lambda i: pieces[i])
    assert [stream.push(0), stream.push(1), stream.push(2), stream.close()] == ["", "я", "", "\ufffd"]
