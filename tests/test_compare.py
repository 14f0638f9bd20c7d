"""compare.py from the command line, on runs that were never trained: right numbers or one clear line."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import compare
from model import GPT, GPTConfig, WindowMLPConfig, build_model
from rostok.errors import UserError, run_main
from rostok.measuring.options import options_of
from rostok.runs import load_run
from rostok.text.shards import Data, open_data, whole, write_data
from rostok.text.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from rostok.training import folder as run_folder
from rostok.training.optim import OptimConfig, build_optimizer

MakeRun = Callable[..., Path]


def untrained_run(
    folder: Path, config: GPTConfig | WindowMLPConfig, data: Data, seed: int = 0, lr: float = 0.001, **state
) -> Path:
    """A run folder as train.py leaves it, with weights drawn at random."""
    tokenizer = load_tokenizer(data.folder)
    model = build_model(
        dataclasses.replace(config, vocab_size=tokenizer.vocab_size, start_id=tokenizer.start_id)
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    folder.mkdir(parents=True)
    settings = {"data": {"path": str(data.folder)}, "seed": seed, "optim": {"lr": lr}, "name": folder.name}
    (folder / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    tokenizer.save(folder)
    record = {
        "model": dataclasses.asdict(model.config),
        "tokens": 1000,
        "seconds": 2.5,
        "data_sha256": {split: data.split(split).sha256 for split in ("train", "valid")},
        "tokenizer_sha256": tokenizer.sha256,
    }
    run_folder.save_step(folder, 10, model, build_optimizer(model, OptimConfig()), record | state)
    return folder


TINY = GPTConfig(context=32, n_layer=2, n_head=2, d_model=16, d_mlp=32)
WINDOW = WindowMLPConfig(context=32, d_embed=4, d_hidden=8)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_data: Data) -> tuple[str, str]:
    """A window MLP and a GPT on the tiny data. Shared: do not change them."""
    folder = tmp_path_factory.mktemp("runs")
    return (
        str(untrained_run(folder / "window", WINDOW, tiny_data)),
        str(untrained_run(folder / "gpt", TINY, tiny_data)),
    )


def small_data(folder: Path, held_out: list[str], like: Data | None = None, vocab: int = 280) -> Data:
    """Shards with the given held-out texts."""
    train_texts = ["Tom had a red ball.", "Mia had a red kite.", "Tom and Mia ran home. " * 3]
    tokenizer = load_tokenizer(like.folder) if like else train_tokenizer(train_texts, vocab)
    write_data(folder, {"train": whole(train_texts), "valid": whole(held_out)}, tokenizer)
    return open_data(folder)


def result_of(tmp_path: Path, *words: str) -> dict:
    """The JSON of one comparison."""
    assert compare.main([*words, "--json", str(tmp_path / "result.json"), "--force"]) == 0
    return json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a refused comparison."""
    capsys.readouterr()
    assert run_main(compare.main, list(words)) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert not told.out
    return told.err


# ---------------------------------------------------------------------------------------------------- the table


def test_all_rows_stand_on_the_same_targets(runs, tiny_data: Data, tmp_path, capsys) -> None:
    told = result_of(tmp_path, *runs)
    split = tiny_data.split("valid")
    assert told["held_out"]["texts"] == len(split)
    assert told["held_out"]["targets"] == split.tokens  # each text: its tokens and ◆ for ◆
    assert told["held_out"]["bytes"] == split.bytes
    names = [row["name"] for row in told["rows"]]
    assert names == [
        "window",
        "gpt",
        "gpt, only 8",
        "gpt, ◆ and 8",
        "9-gram",
        "5-gram",
        "trigram",
        "bigram",
        "unigram",
        "uniform",
    ]
    assert {row["targets"] for row in told["rows"]} == {split.tokens}
    by_name = {row["name"]: row for row in told["rows"]}
    assert by_name["uniform"]["perplexity"] == pytest.approx(tiny_data.vocab_size)
    assert by_name["trigram"]["nats"] < by_name["bigram"]["nats"] < by_name["unigram"]["nats"]
    assert by_name["gpt"]["parameters"]["blocks"] > 0
    assert (by_name["gpt"]["tokens"], by_name["gpt"]["seconds"]) == (1000, 2.5)
    shown = capsys.readouterr().out
    assert told["held_out"]["sha256"] in shown
    assert all(word in shown for word in told["words"])
    assert "by the architecture on the same 8 tokens" in shown


def test_numbers_equal_a_plain_loop(runs, tiny_data: Data, tmp_path) -> None:
    """One forward pass a text (all fit), cross-entropy in float64."""
    run = load_run(runs[0], build_model)
    tokenizer, nats, ends, n_bytes = load_tokenizer(tiny_data.folder), [], 0.0, 0
    split = tiny_data.split("valid")
    for i in range(len(split)):
        ids = split.text(i).astype(np.int64)
        targets = torch.tensor([*ids[1:].tolist(), 0])
        with torch.no_grad():
            logits = run.model(torch.from_numpy(ids)[None])[0].double()
        each = nn.functional.cross_entropy(logits, targets, reduction="none")
        nats.append(each)
        ends += each[-1].item()
        n_bytes += len(tokenizer.decode(ids[1:].tolist()).encode())
    flat = torch.cat(nats)
    told = result_of(tmp_path, *runs, "--at", "0")["rows"][0]
    assert told["nats"] == pytest.approx(flat.mean().item(), rel=1e-6)
    assert told["perplexity"] == pytest.approx(math.exp(flat.mean().item()), rel=1e-6)
    assert told["nats_on_ends"] == pytest.approx(ends / len(split), rel=1e-6)
    assert told["bits_per_byte"] == pytest.approx(
        (flat.sum().item() - ends) / math.log(2) / n_bytes, rel=1e-6
    )


def test_same_runs_give_the_same_bytes(runs, tmp_path, capsys) -> None:
    files = {}
    for name in ("one", "two"):
        out = tmp_path / name / "report.md"
        words = [
            "--out",
            str(out),
            "--context-sweep",
            "50",
            "--csv",
            str(out.with_name("t.csv")),
        ]
        assert compare.main([*runs, *words]) == 0
        files[name] = {path.name: path.read_bytes() for path in sorted(out.parent.iterdir())}
        files[name]["terminal"] = capsys.readouterr().out.encode()
    assert files["one"] == files["two"]
    endings = [".csv", ".json", ".md", "-context.csv", "-context.png", "-position.csv", "-position.png"]
    assert set(files["one"]) == {*(f"report{e}" for e in endings), "t.csv", "terminal"}
    report = files["one"]["report.md"].decode()
    for figure in ("report-position.png", "report-context.png"):
        assert f"({figure})" in report
        assert files["one"][figure].startswith(b"\x89PNG")
    assert "| pair |" in report
    assert files["one"]["t.csv"] == files["one"]["report.csv"]
    assert files["one"]["report.csv"].count(b"\n") == 11


def test_a_sample_stands_in_a_table_of_its_own(runs, tmp_path, capsys) -> None:
    told = result_of(tmp_path, *runs, "--at-targets", "200")
    assert [row["name"] for row in told["narrow"]["rows"]] == ["window", "gpt", "gpt, only 8", "gpt, ◆ and 8"]
    assert told["narrow"]["held_out"]["sha256"] != told["held_out"]["sha256"]
    assert 200 <= told["narrow"]["held_out"]["targets"] < 300
    assert told["narrow"]["held_out"]["sha256"] in capsys.readouterr().out
    first = told["split"][0]
    assert first["architecture"]["nats"] + first["context"]["nats"] == pytest.approx(
        told["narrow"]["rows"][1]["nats"] - told["narrow"]["rows"][0]["nats"]
    )


def test_disjoint_blocks_have_the_same_targets(runs, tmp_path) -> None:
    texts, blocks = result_of(tmp_path, *runs), result_of(tmp_path, *runs, "--protocol", "disjoint")
    assert texts["held_out"]["sha256"] == blocks["held_out"]["sha256"]
    assert texts["rows"][1]["nats"] != blocks["rows"][1]["nats"]
    assert blocks["protocol"].startswith("disjoint")


def test_stride_and_number_of_texts(runs, tmp_path) -> None:
    runs = (*runs, "--at", "0")
    half, small = result_of(tmp_path, *runs), result_of(tmp_path, *runs, "--stride", "4")
    assert half["held_out"]["sha256"] == small["held_out"]["sha256"]
    assert half["rows"][0]["nats"] == small["rows"][0]["nats"]  # the window MLP sees 8 tokens either way
    assert half["rows"][1]["nats"] != small["rows"][1]["nats"]
    three = result_of(tmp_path, *runs, "--texts", "3")
    assert three["held_out"]["texts"] == 3
    assert three["held_out"]["sha256"] != half["held_out"]["sha256"]


# ---------------------------------------------------------------------------------------------------- seeds


def test_runs_that_differ_in_their_seed_are_one_row(tiny_data: Data, tmp_path, capsys) -> None:
    paths = [str(untrained_run(tmp_path / f"g-s{k}", TINY, tiny_data, seed=k)) for k in range(3)]
    other = [str(untrained_run(tmp_path / f"h-s{k}", TINY, tiny_data, seed=k, lr=0.01)) for k in (3, 4)]
    told = result_of(tmp_path, *paths, *other, "--at", "0", "--csv", str(tmp_path / "t.csv"))
    first, second = told["rows"][:2]
    assert [(row["name"], row["seeds"]) for row in told["rows"][:3]] == [
        ("g-s*", 3),
        ("h-s*", 2),
        ("9-gram", 0),
    ]
    alone = [result_of(tmp_path, path, "--at", "0")["rows"][0]["nats"] for path in paths]
    assert first["nats"] == pytest.approx(np.mean(alone))
    assert first["seed_sd"] == pytest.approx(np.std(alone, ddof=1))
    assert second["settings"] == {"optim.lr": "0.01", "seed": "3,4"}
    assert second["verdict"] in ("better", "worse", "cannot tell")
    low, high = second["difference_interval"]
    assert second["smallest"] == pytest.approx((high - low) / 2)
    head, line = (tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()[:2]
    assert head.endswith(",optim.lr,seed")
    assert line.endswith(',0.001,"0,1,2"')
    shown = capsys.readouterr().out
    assert "2 seeds and 3 seeds could have shown" in shown
    assert "g-s*: 3 seeds, standard deviation over seeds" in shown
    named = result_of(tmp_path, "mine=" + ",".join(paths), *other, "--at", "0")
    assert named["rows"][0]["name"] == "mine"
    assert named["rows"][1]["difference_interval"] == second["difference_interval"]
    assert max(map(len, shown.split("\n\n")[1].splitlines())) <= 80


def test_one_seed_a_row_is_said_to_hold_on_these_texts(runs, tmp_path) -> None:
    told = result_of(tmp_path, *runs, "--at", "0")
    assert all("on these texts" in words for words in told["words"])
    assert "verdict" not in told["rows"][1]


def test_a_table_without_texts_of_new_characters(runs, tiny_data: Data, tmp_path, capsys) -> None:
    data = small_data(tmp_path / "new", ["Tom ran home.", "Tom had a \u0416.", "Mia had a ball."], tiny_data)
    told = result_of(tmp_path, *runs, "--data", str(data.folder), "--at", "0")
    assert (told["common"]["new_texts"], told["common"]["characters"]) == (1, ["\u0416"])
    plain = small_data(tmp_path / "plain", ["Tom ran home.", "Mia had a ball."], tiny_data)
    without = result_of(tmp_path, *runs, "--data", str(plain.folder), "--at", "0")
    assert [row["nats"] for row in told["clean"]["rows"]] == [row["nats"] for row in without["rows"]]
    assert "clean" not in without
    assert "hold characters that training never had: \u0416" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------- odd texts


def test_texts_of_every_odd_length(runs, tiny_data: Data, tmp_path) -> None:
    """One token, none, three words, far beyond the context, letters that take several tokens."""
    held_out = ["a", "", "Tom ran home", "Mia had a ball. " * 60, "Ж\u202e😀", "<|endoftext|>"]
    data = small_data(tmp_path / "odd", held_out, tiny_data)
    told = result_of(tmp_path, *runs, "--data", str(data.folder))
    stored = len(data.split("valid"))
    assert told["held_out"]["texts"] == stored
    assert told["held_out"]["bytes"] == data.split("valid").bytes
    assert all(math.isfinite(row["nats"]) for row in told["rows"])
    assert any("was trained from other shards" in note for note in told["notes"])


@pytest.mark.parametrize("held_out", [["a"], ["Tom ran."]])
def test_too_little_text_for_a_single_window(runs, tiny_data: Data, tmp_path, held_out: list[str]) -> None:
    data = small_data(tmp_path / "short", held_out, tiny_data)
    told = result_of(
        tmp_path, *runs, "--data", str(data.folder), "--out", str(tmp_path / "r.md"), "--context-sweep"
    )
    assert told["rows"][0]["interval"] is None
    assert "too little text for an interval" in told["words"][0]


def test_held_out_texts_that_are_only_a_mark() -> None:
    targets = compare.target_list([np.array([0])], 0, [b"<|endoftext|>", b"a"])
    assert (len(targets), targets.n_bytes) == (1, 0)
    losses = compare.Losses(np.ones(1), np.ones(1, bool))
    assert "n/a" in compare.as_text(compare.tabulate([compare.Entry("m", 8, targets, losses)]))


# ---------------------------------------------------------------------------------------------------- shards


def test_runs_with_different_tokenizers_share_bits_a_byte_only(runs, tiny_texts, tmp_path, capsys) -> None:
    other: Tokenizer = train_tokenizer(tiny_texts, 270)
    write_data(tmp_path / "data", {"train": whole(tiny_texts[:40]), "valid": whole(tiny_texts[::8])}, other)
    coarse = untrained_run(tmp_path / "other", TINY, open_data(tmp_path / "data"))
    for words in (
        [],
        ["--data", str(tmp_path / "data")],
    ):  # each its own shards of the same texts; or one for both
        told = result_of(tmp_path, *runs, str(coarse), *words)
        assert (told["same_tokenizer"], told["unit"], told["held_out"]["targets"]) == (
            False,
            "bits per byte",
            None,
        )
        assert told["held_out"]["texts"] == 10
        shown = capsys.readouterr().out
        assert "only bits per byte can be compared" in shown
        assert "perplexity" not in shown


def test_shards_of_another_tokenizer_than_the_runs(runs, tiny_texts, tiny_data: Data, tmp_path) -> None:
    """The runs share theirs: so the shards are encoded again, for the counting models too, and all is compared."""
    tables = []
    for name, tokenizer in (
        ("own", load_tokenizer(tiny_data.folder)),
        ("other", train_tokenizer(tiny_texts, 270)),
    ):
        texts = {"train": whole(tiny_texts[:40]), "valid": whole(tiny_texts[::8])}
        write_data(tmp_path / name, texts, tokenizer)
        told = result_of(tmp_path, *runs, "--data", str(tmp_path / name))
        assert told["same_tokenizer"]
        tables.append({row["name"]: row["nats"] for row in told["rows"]})
    assert tables[0] == tables[1]


def test_runs_with_different_held_out_texts_are_refused(runs, tiny_data: Data, tmp_path, capsys) -> None:
    data = small_data(tmp_path / "data", ["Tom ran home."], tiny_data)
    other = untrained_run(tmp_path / "other", TINY, data)
    line = error_of(capsys, runs[0], str(other))
    assert "different held-out texts" in line
    assert "--data" in line


def test_a_run_whose_shards_are_gone(runs, tiny_data: Data, tmp_path, capsys) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(tiny_data.folder, moved)
    run = untrained_run(tmp_path / "run", TINY, open_data(moved))
    shutil.rmtree(moved)
    line = error_of(capsys, str(run))
    assert "is not here" in line
    assert "--data FOLDER" in line
    told = result_of(tmp_path, str(run), "--data", str(tiny_data.folder))
    assert told["held_out"]["texts"] == 10
    assert told["notes"] == []  # the same shards in another place


# ---------------------------------------------------------------------------------------------------- refusals


class Seer(GPT):
    """Adds the next token's embedding to each token's: it is told the answer."""

    def forward(self, ids, targets=None):
        return super().forward(ids) + 9 * nn.functional.one_hot(ids.roll(-1, 1), self.config.vocab_size)


def test_a_run_that_sees_the_future_is_refused(runs, tmp_path, capsys, monkeypatch) -> None:
    def build(config):
        model = build_model(config)
        return Seer(model.config) if isinstance(model, GPT) else model

    monkeypatch.setattr(compare, "build_model", build)
    line = error_of(capsys, *runs, "--json", str(tmp_path / "x.json"))
    assert "gpt sees the future" in line
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["nowhere"], "there is no run folder nowhere"),
        (["RUN", "--data", "nowhere"], "nowhere"),
        (["RUN", "--stride", "32"], "--stride must be from 1 to 31 for a context of 32. Got 32"),
        (["RUN", "--protocol", "disjoint", "--stride", "4"], "--stride has no use with --protocol disjoint"),
        (["RUN", "--protocol", "disjoint", "--at", "4"], "--at has no use with --protocol disjoint"),
        (["RUN", "--at", "0", "--at-targets", "9"], "--at-targets has no use with --at 0"),
        (["RUN", "--at", "32"], "--at 32 is not less than any context (32)"),
        (["WINDOW", "--stride", "4"], "--stride has no use for window models alone"),
        (["RUN/step-000010", "--step", "latest"], "is one step of a run; leave --step latest out"),
        (["a=RUN,"], "wanted NAME=RUN,RUN,..."),
        (["RUN", "--json", "compare.py"], "compare.py exists; give --force"),
        (["RUN", "--json", "/dev/null/x.json"], "/dev/null/x.json lies below a file"),
    ],
)
def test_one_line_for_what_cannot_be(runs, capsys, words: list[str], wanted: str) -> None:
    capsys.readouterr()
    words = [word.replace("RUN", runs[1]).replace("WINDOW", runs[0]) for word in words]
    assert run_main(compare.main, words) == 2
    error = capsys.readouterr().err
    assert wanted in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", [["--texts", "0"], ["--texts", "x"], ["--at", "-1"], ["--stride", "0"], []])
def test_words_that_argparse_refuses(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as error:
        compare.main(["run", *words] if words else [])
    assert error.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_run_named_twice_and_a_step_folder(runs, tmp_path) -> None:
    told = result_of(tmp_path, runs[1], str(Path(runs[1]) / "step-000010"), "--at", "0")
    first, second = told["rows"][:2]
    assert first["nats"] == second["nats"]
    assert first["name"] == second["name"] == f"{runs[1]}/step-000010"
    assert "on these texts: +0.0000" in told["words"][0]


def test_a_report_overwrites_none_of_its_files(tmp_path):
    """OUT.md also writes OUT.json, OUT.csv and figures: each is looked at before the work."""
    out = tmp_path / "r.md"
    for ending in (".json", ".csv", "-position.png", "-position.csv", "-context.png", "-context.csv"):
        mine = tmp_path / f"r{ending}"
        mine.write_text("mine")
        with pytest.raises(UserError, match=f"r{ending} exists; give --force"):
            options_of(["RUN", "--out", str(out)], "")
        mine.unlink()
    (tmp_path / "sub").mkdir()
    same = [str(tmp_path / "z.x"), str(tmp_path / "sub" / ".." / "z.x")]
    with pytest.raises(UserError, match="must be different files"):
        options_of(["RUN", "--json", same[0], "--csv", same[1]], "")


def test_a_report_named_without_its_ending_overwrites_nothing_either(tmp_path):
    (tmp_path / "r.md").write_text("mine")
    with pytest.raises(UserError, match=r"r\.md exists; give --force"):
        options_of(["RUN", "--out", str(tmp_path / "r")], "")
