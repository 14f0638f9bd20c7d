"""Heads: patterns made by hand get the scores that are known for them, and so does a model written by hand."""

import csv
import dataclasses
import json
import shutil
import struct
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import attend
from model import GPTConfig, build_model
from rostok.attention.heads import report, scores, usage
from rostok.attention.heads.capture import SETTINGS, check_fit, open_subject
from rostok.attention.heads.scores import (
    COPIES,
    PERIODS,
    copy_cells,
    copying,
    induction,
    positional_share,
    probes_for,
    repeated,
    rest_of_start,
    summarize,
    text_scores,
    uniform,
    verdicts,
)
from rostok.errors import UserError, run_main
from rostok.runs import without_padding
from rostok.text.shards import whole, write_data
from rostok.text.tokenizer import train_tokenizer
from rostok.training.folder import model_tensors
from rostok.training.head_probe import probe_heads

POOL = np.arange(1, 300)
Array = np.ndarray
Capture = pytest.CaptureFixture[str]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def looking(target: list[int] | Array) -> Array:
    """(T, T) a head whose query t puts all its weight on key target[t]."""
    maps = np.zeros((len(target), len(target)))
    maps[np.arange(len(target)), target] = 1
    return maps


def back(length: int, distance: int) -> Array:
    """A head that looks `distance` tokens back, and at itself where there is nothing so far back."""
    t = np.arange(length)
    return looking(np.where(t >= distance, t - distance, t))


def copier(ids: Array, shift: int) -> Array:
    """A head that looks `shift` places after the latest earlier copy of its token, else at ◆."""
    cells = copy_cells(ids, shift, 0)
    return looking([int(np.flatnonzero(row)[-1]) if row.any() else 0 for row in cells])


# ---- scores ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "neighbour", "entropy"),
    [(64, 0.0523, 1), (128, 0.0312, 1), (256, 0.0182, 1), (512, 0.0104, 1)],
)
def test_even_attention_equals_the_table(length: int, neighbour: float, entropy: float) -> None:
    ids = np.arange(length)  # all different, ◆ first
    found = text_scores(uniform(length), ids, 0)
    for name in ("prev", "self", "bos", "maxw"):
        assert found[name] == pytest.approx(neighbour, abs=5e-5)
    assert found["ent"] == pytest.approx(entropy)
    assert found["sink"] == 0
    assert np.isnan(found["dup"])
    harmonic = (1 / np.arange(1, length + 1)).sum()
    assert found["prev"] == pytest.approx((harmonic - 1.5) / (length - 2))
    back_of = [np.mean(t - np.arange(1, t + 1)) * t / (t + 1) for t in range(2, length)]
    assert found["dist"] == pytest.approx(np.mean(back_of) / (1 - found["bos"]))


@pytest.mark.parametrize(("length", "alpha"), [(64, 0.0741), (128, 0.0424), (256, 0.0239), (512, 0.0133)])
def test_even_attention_on_the_first_key_equals_the_table(length: int, alpha: float) -> None:
    assert uniform(length)[:, 0].mean() == pytest.approx(alpha, abs=5e-5)


@pytest.mark.parametrize(
    ("period", "copies", "base"), [(25, 4, 0.0307), (50, 4, 0.0156), (100, 4, 0.0078), (255, 2, 0.0027)]
)
def test_even_attention_on_repeats_equals_the_table(period: int, copies: int, base: float) -> None:
    probe = repeated(POOL, period, copies, rng(), 0)
    assert len(probe.ids) == 1 + period * copies
    zero, one = induction(uniform(len(probe.ids)), probe.ids, probe.asked, 2)
    assert (zero, one) == (pytest.approx(base, abs=5e-5), pytest.approx(base, abs=5e-5))


def test_perfect_previous_token_head() -> None:
    found = text_scores(back(80, 1), np.arange(80), 0)
    assert found["prev"] == found["prev_free"] == found["local"] == found["dist"] == found["maxw"] == 1
    assert found["self"] == found["bos"] == found["sink"] == found["ent"] == 0


def test_pure_sink_has_no_previous_share_and_no_nan() -> None:
    found = text_scores(looking([0] * 80), np.arange(80), 0)
    assert found["bos"] == found["sink"] == 1
    assert np.isnan(found["prev_free"])
    assert np.isnan(found["dist"])
    assert scores.number(found["prev_free"]) is None


def test_every_start_sign_of_a_packed_window_counts() -> None:
    ids = np.array([0, 5, 6, 0, 7, 8])
    assert text_scores(looking([0, 0, 0, 3, 3, 3]), ids, 0)["bos"] == 1


def test_duplicate_head() -> None:
    probe = repeated(POOL, 20, 3, rng(), 0)
    assert text_scores(copier(probe.ids, 0), probe.ids, 0)["dup"] == 1
    assert text_scores(copier(probe.ids, 1), probe.ids, 0)["dup"] == 0


def test_perfect_induction_is_1_where_a_whole_sum_would_say_0_7426() -> None:
    probe = repeated(POOL, 25, 4, rng(), 0)
    maps = copier(probe.ids, 1)
    assert induction(maps, probe.ids, probe.asked, 9)[1] == 1
    whole = (maps * copy_cells(probe.ids, 1, 0)).sum() / maps.sum()  # TransformerLens, error_measure="mul"
    assert whole == pytest.approx(75 / 101, abs=1e-9)
    assert whole == pytest.approx(0.7426, abs=5e-5)


def lowest_over_periods(head: str, number: int) -> Array:
    """(shifts,) IND_k of a head made by a rule, minimum over all probes."""
    make = {"copier": copier, "back": lambda ids, distance: back(len(ids), distance)}[head]
    probes = probes_for(512, POOL, 0, rng(), 3)
    assert {probe.name for probe in probes} == {
        *(f"{p}x{COPIES}" for p in PERIODS),
        f"{PERIODS[1]}x{COPIES} filler",
    }
    return np.min([induction(make(probe.ids, number), probe.ids, probe.asked, 9) for probe in probes], axis=0)


def test_fixed_distance_is_perfect_at_one_period_and_nothing_at_the_others() -> None:
    probe = repeated(POOL, 25, 4, rng(), 0)
    assert induction(back(len(probe.ids), 24), probe.ids, probe.asked, 9)[1] == 1
    assert lowest_over_periods("back", 24).max() < 0.01


@pytest.mark.parametrize("shift", [1, 6])
def test_shift_is_found(shift: int) -> None:
    found = lowest_over_periods("copier", shift)
    assert found.argmax() == shift
    assert found[shift] > 0.85  # the last `shift` tokens of a copy point into the filler or past the query
    assert np.delete(found, shift).max() < 0.1


def test_positional_share() -> None:
    t = np.arange(40)
    distance = (t[:, None] - t[None, :]).astype(float)
    by_content = rng().normal(size=(2, 40, 40))
    found = positional_share(np.stack([np.cos(distance), *by_content]))
    assert found[0] == pytest.approx(1)
    assert found[1:].max() < 0.12
    assert np.isnan(positional_share(np.zeros((40, 40))))  # no variance to explain


def test_start_is_a_sink_when_its_value_is_short() -> None:
    values = rng().normal(size=(2, 30, 8))
    values[0, 0] = 0  # head 1 takes nothing along from ◆
    values[1, 0] *= 100
    ratio, share = rest_of_start(np.tile(uniform(30), (2, 1, 1)), values, rng().normal(size=(2, 16, 8)))
    assert (ratio[0], share[0]) == (0, 0)
    assert ratio[1] > 50
    assert share[1] > 0.8


def test_copying_of_a_copier_an_eraser_and_nothing() -> None:
    unembed = np.eye(30)
    ids = np.arange(1, 21)
    values = np.tile(unembed[ids], (3, 1, 1))
    proj = np.stack([np.eye(30), -np.eye(30), np.zeros((30, 30))])
    assert copying(values, proj, unembed, ids).tolist() == [1, -1, -1]


def test_verdicts() -> None:
    assert verdicts({"prev": (0.41, 0.03), "bos": (0.25, 0.03)}) == [
        {"kind": "previous", "confidence": "strong", "score": 0.41, "base": 0.03},
        {"kind": "start", "confidence": "partial", "score": 0.25, "base": 0.03},
    ]
    assert verdicts({"prev": (0.9, 0.03), "local": (0.95, 0.1)})[1:] == []  # the neighbour is local
    assert verdicts({"prev": (0.41, 0.1)})[0]["confidence"] == "partial"  # only four times its baseline
    assert verdicts({"prev": (0.19, 0.01), "dup": (None, 0.0)}) == []
    assert verdicts({"prev": (0.45, 0.01)}, least=0.5)[0]["confidence"] == "partial"
    assert [label["kind"] for label in verdicts({"self": (0.9, 0), "bos": (0.9, 0), "ind": (0.9, 0)})] == [
        "induction",
        "start",
    ]


def test_summary_leaves_out_what_is_not_there() -> None:
    mean, spread, n = summarize([np.array([1.0, np.nan]), np.array([3.0, np.nan])])
    assert mean[0] == 2
    assert spread[0] == pytest.approx(2**0.5)
    assert n.tolist() == [2, 0]
    assert np.isnan(mean[1])
    assert np.isnan(spread[1])


@pytest.mark.parametrize("length", [1, 2])
def test_short_text_has_not_enough_tokens(length: int) -> None:
    with pytest.raises(UserError, match="not enough tokens"):
        text_scores(uniform(length), np.arange(length), 0)


def test_small_pool_has_not_enough_tokens() -> None:
    with pytest.raises(UserError, match="not enough tokens"):
        repeated(POOL[:10], 20, 2, rng(), 0)


@pytest.mark.parametrize("context", [24, 32, 64, 101, 256, 512])
def test_probes_fit_the_context(context: int) -> None:
    probes = probes_for(context, POOL, 0, rng(), 2)
    assert max(len(probe.ids) for probe in probes) <= context
    assert len({probe.name for probe in probes}) >= 4
    assert all(probe.asked.sum() >= 3 and not probe.asked[0] for probe in probes)


# ---- a model written by hand -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def card(hand_run: Path) -> dict:
    subject = open_subject(hand_run)
    options = attend.build_parser().parse_args(["heads", str(hand_run), "--texts-count", "6"])
    return report.report(subject, report.held_out(subject, options))


def test_c19_detectors_name_exactly_the_heads_that_were_built(card: dict) -> None:
    labels = {
        (head["layer"], head["head"]): [label["kind"] for label in head["labels"]] for head in card["heads"]
    }
    assert labels == {(0, 0): ["previous"], (0, 1): ["start"], (1, 0): ["induction"], (1, 1): []}
    assert all(label["confidence"] == "strong" for head in card["heads"] for label in head["labels"])
    induction_head = card["heads"][2]["scores"]
    assert induction_head["ind"]["k"] == 1
    assert induction_head["ind"]["v"] > 0.9
    assert induction_head["copy"]["v"] > 0.3
    assert induction_head["ind"]["when_free"] > 0.9
    assert card["checks"]["max_error"] < 1e-5
    assert "maps verified" in card["checks"]["verified"]


def test_card_has_baselines_counts_and_bounds(card: dict) -> None:
    sink, even = card["heads"][1]["scores"], card["heads"][3]
    assert sink["prev_free"]["v"] is None
    assert sink["bos"]["v"] == pytest.approx(1, abs=1e-3)
    assert even["scores"]["prev"]["v"] == pytest.approx(even["scores"]["prev"]["base"], rel=0.02)
    assert all(head["scores"]["prev"]["n"] == card["texts"]["n"] == 6 for head in card["heads"])
    assert all(head["score_max"] <= head["score_bound"] * (1 + 1e-5) for head in card["heads"])
    assert card["heads"][0]["example"]["weight"] > 0.99
    assert [row["changed"] for row in card["sensitivity"]] == [0, 0, 0]
    json.dumps(card, allow_nan=False)


def test_taking_the_start_sign_away_and_replacing_it(card: dict) -> None:
    found = card["start"]
    assert (
        found["replace"]["start"] > 0.25 > 0.1 > found["replace"]["full_stop"]
    )  # one head of four looks at ◆ for itself
    low, high = found["evict"]["interval"]
    assert low <= found["evict"]["nats"] <= high


def run(*words: str | Path) -> int:
    return run_main(attend.main, [str(word) for word in words])


def test_command_prints_a_table_and_writes_each_kind_of_file(
    hand_run: Path, tmp_path: Path, capsys: Capture
) -> None:
    few = ["--texts-count", "3"]
    outs = {kind: tmp_path / f"card.{kind}" for kind in ("png", "svg", "json", "csv")}
    for kind, out in outs.items():
        assert run("heads", hand_run, *few, "--out", out, "--lang", "ru" if kind == "svg" else "en") == 0
    text = capsys.readouterr().out
    assert "induction 1.00" in text or "induction 0.9" in text
    assert "индукция" in text
    assert "maps verified" in text
    assert "карты проверены" in text
    png = outs["png"].read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert min(struct.unpack(">II", png[16:24])) > 100
    assert ElementTree.fromstring(outs["svg"].read_bytes()).tag.endswith("svg")
    assert json.loads(outs["json"].read_text())["format"] == "rostok-heads"
    rows = list(csv.DictReader(outs["csv"].read_text().splitlines()[1:]))
    assert [row["label"].split()[0] for row in rows] == ["previous", "start", "induction", "other"]
    again = tmp_path / "again.png"
    assert run("heads", hand_run, *few, "--out", again) == 0
    assert again.read_bytes() == png


def test_command_with_ablation_groups_and_context(
    hand_run: Path, tmp_path: Path, tiny_texts: list[str], capsys: Capture
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text(
        "\n<|endoftext|>\n".join(" ".join(tiny_texts[i : i + 3]) for i in range(12)), encoding="utf-8"
    )
    words = ["--texts", file, "--texts-count", "3", "--ablate-texts", "2", "--icl", "5", "--json"]
    assert run("heads", hand_run, *words, "--ablate", "all", "--group", "label") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ablation"]["kinds"] == ["zero", "mean", "pattern"]
    best = max(found["heads"], key=lambda head: head["ablation"]["zero"]["pair"]["nats"])
    assert (best["layer"], best["head"]) in {(0, 0), (1, 0)}  # induction needs both
    assert found["heads"][1]["ablation"]["zero"]["all"]["nats"] == 0  # the hand-built sink carries nothing
    groups = {group["name"]: group for group in found["groups"]}
    assert len(groups["induction"]["heads"]) == len(groups["random, as many as induction"]["heads"]) == 1
    icl = found["icl"]
    assert icl["texts"] == 5
    assert icl["score"] == pytest.approx(icl["late_nats"] - icl["early_nats"], abs=1e-4)
    assert (
        run(
            "heads",
            hand_run,
            "--texts",
            file,
            "--texts-count",
            "3",
            "--ablate-texts",
            "1",
            "--group",
            "layer",
            "--lang",
            "ru",
        )
        == 0
    )
    assert "слой 2 (2)" in capsys.readouterr().out
    assert run("heads", hand_run, *words[:-1], "--group", "label", "--lang", "ru") == 0
    text = capsys.readouterr().out
    assert "столько же случайных, сколько индукция (1)" in text
    assert not any(word in text for word in ("random", "induction", "other", " all ", " pair "))


def test_ablation_of_one_long_text_has_an_interval(hand_run: Path) -> None:
    subject = open_subject(hand_run)
    text = np.concatenate(([subject.tokenizer.start_id], rng().integers(1, 300, 290)))
    card = {"heads": [{"layer": la, "head": he, "labels": []} for la in range(2) for he in range(2)]}
    for ids, wanted in ((text, True), (text[:200], False)):  # stretches of 256 targets are drawn
        usage.add_ablation(card, subject, [ids], "zero", None, 0)
        assert (card["heads"][0]["ablation"]["zero"]["all"]["interval"] is not None) == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--texts-count", "0"], "--texts-count must be at least 1"),
        (["--icl", "0"], "--icl must be at least 1"),
        (["--ablate-texts", "3"], "--ablate-texts is for --ablate and --group"),
        (["--out", "card.pdf"], "must end in one of"),
        (["--data", "a", "--texts", "b"], "one of the two"),
        (["--data", "nowhere"], "nowhere"),
        (["--texts", "nowhere.txt"], "nowhere.txt"),
        (["--texts", "short.txt"], "not enough tokens"),
        (["--icl", "5", "--texts", "middle.txt"], "not enough tokens"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    hand_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text("Hi.\n<|endoftext|>\nYes.")
    Path("middle.txt").write_text("Tom had a ball in the")
    before = sorted(tmp_path.iterdir())
    assert run("heads", hand_run, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_run_without_data_or_with_lost_data(hand_run: Path, tmp_path: Path, capsys: Capture) -> None:
    lost = shutil.copytree(hand_run, tmp_path / "lost")
    (lost / "config.yaml").write_text("data: {path: gone}\n")
    assert run("heads", lost) == 2
    assert "is not here (it was in gone); name the texts with --data" in capsys.readouterr().err
    (lost / "config.yaml").unlink()
    assert run("heads", lost) == 2
    assert "name the texts with --data FOLDER or --texts FILE" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["heads", "name", "pronoun"])
@pytest.mark.parametrize("word", ["-1", "1.5", "x"])
def test_seed_is_a_whole_number_of_at_least_0(
    command: str, word: str, hand_run: Path, capsys: Capture
) -> None:
    with pytest.raises(SystemExit) as caught:
        attend.main([command, str(hand_run), "--seed", word])
    assert caught.value.code == 2
    assert "--seed: must be a whole number of at least 0" in capsys.readouterr().err


def test_settings_are_those_of_the_model() -> None:
    assert {field.name for field in dataclasses.fields(GPTConfig)} == SETTINGS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_theta": 0.5}, "rope_theta is 0.5"),
        ({"start_id": -1}, "start_id is -1"),
        ({"tied": False}, "tensor head.weight"),
        ({"colour": 1}, "unknown setting colour"),
        ({"n_layer": 3}, "missing or unknown tensor blocks.2"),
        ({"vocab_size": True}, "vocab_size is True"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    change: dict[str, object], message: str, hand_run: Path
) -> None:
    subject = open_subject(hand_run)
    assert subject.run is not None
    with pytest.raises(UserError, match=message):
        check_fit(subject.weights, {**subject.config, **change}, subject.run)


def test_ids_that_the_tokenizer_cannot_spell_are_left_out(hand_run: Path) -> None:
    subject = open_subject(hand_run)
    assert subject.run is not None
    size = subject.config["vocab_size"]
    wide = {**subject.weights, "embed.weight": np.pad(subject.weights["embed.weight"], ((0, 40), (0, 0)))}
    weights, config = without_padding(wide, {**subject.config, "vocab_size": size + 40}, subject.run)
    assert config["vocab_size"] == len(weights["embed.weight"]) == subject.tokenizer.vocab_size
    with pytest.raises(UserError, match="put the run's own tokenizer back"):
        without_padding(wide, {**subject.config, "vocab_size": 200}, subject.run)


def test_window_model_has_no_heads(tiny_window_run: Path, capsys: Capture) -> None:
    assert run("heads", tiny_window_run) == 2
    assert "no attention to look at" in capsys.readouterr().err


def test_shards_of_another_tokenizer_are_encoded_again(
    hand_run: Path, tmp_path: Path, tiny_texts: list[str]
) -> None:
    other = train_tokenizer(tiny_texts, 300)
    write_data(tmp_path / "other", {"train": whole(tiny_texts[8:]), "valid": whole(tiny_texts[:8])}, other)
    subject = open_subject(hand_run)
    options = attend.build_parser().parse_args(["heads", str(hand_run), "--data", str(tmp_path / "other")])
    found = report.held_out(subject, options).all
    assert sorted(subject.tokenizer.decode(ids[1:]) for ids in found) == sorted(tiny_texts[:8])


# ---- learning ----------------------------------------------------------------------------------------------


def learn(n_layer: int, fixed: int | None, steps: int) -> tuple[float, float]:
    """Train a tiny GPT, one head a layer, on ◆ and rows of 4 to 10 different tokens (or always `fixed`), repeated.

    Gives the loss on the copies of the last steps, nats, and the best induction score that a probe finds.
    """
    torch.manual_seed(0)
    generator, rate = np.random.default_rng(1), 6e-3
    config = GPTConfig(vocab_size=32, context=33, n_layer=n_layer, n_head=1, d_model=32, d_mlp=32)
    model = build_model(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, step / 20) * min(1, 2 * (1 - step / steps))
        period = fixed or int(generator.integers(4, 11))
        block = 1 + generator.random((32, 31)).argsort(1)[:, :period]
        row = np.tile(block, 32 // period + 1)[:, :32]
        ids = torch.from_numpy(np.concatenate((np.zeros((32, 1), int), row), axis=1))
        logits = model(ids[:, :-1]).transpose(1, 2)
        nats = torch.nn.functional.cross_entropy(logits, ids[:, 1:], reduction="none")
        loss = nats[:, period + 1 :].mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    weights = {name: tensor.numpy() for name, tensor in model_tensors(model).items()}
    found = probe_heads(weights, dataclasses.asdict(config), np.arange(1, 32))["induction"]
    return float(np.mean(losses[-20:])), float(np.max(found))


@pytest.mark.slow
def test_two_layers_learn_induction_and_the_detectors_say_so() -> None:
    loss, found = learn(n_layer=2, fixed=None, steps=350)
    assert loss < 0.2
    assert found > 0.6


@pytest.mark.slow
def test_one_layer_learns_no_induction() -> None:
    loss, found = learn(n_layer=1, fixed=None, steps=200)
    assert loss > 1
    assert found < 0.3


@pytest.mark.slow
def test_one_layer_copies_at_a_fixed_distance_and_the_detectors_are_not_fooled() -> None:
    loss, found = learn(n_layer=1, fixed=8, steps=200)
    assert loss < 0.2
    assert found < 0.3


def test_names_of_scores_that_labels_use() -> None:
    assert set(scores.KINDS.values()) - {"ind"} <= set(text_scores(uniform(5), np.arange(5), 0))
