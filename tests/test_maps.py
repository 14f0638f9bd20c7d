"""attend.py map: what is drawn is what the reference computes; every mistake is one line and leaves no file."""

# pyright: reportArgumentType=false

import csv
import json
import shutil
import struct
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hand_built import save_hand_built
from safetensors.torch import load_file, save

import attend
from conftest import write_state
from model import build_model
from rostok.attention.heads import maps
from rostok.attention.heads.capture import Subject, View, look, mentions, nearest_words, open_subject
from rostok.attention.reference import forward
from rostok.errors import run_main
from rostok.runs import load_run, read_state
from rostok.text.shards import Data
from rostok.text.tokenizer import load_tokenizer

TEXT = "Tom had a ball. Tom lost the ball."
Capture = pytest.CaptureFixture[str]


def run(*words: str | Path) -> int:
    return run_main(attend.main, ["map", *(str(word) for word in words)])


@pytest.fixture(scope="module")
def subject(tiny_run: Path) -> Subject:
    return open_subject(tiny_run)


@pytest.fixture
def view(subject: Subject) -> View:
    return look(subject, subject.encode(TEXT)[0])


# ---- values ------------------------------------------------------------------------------------------------


def test_a_run_has_its_folders_name_from_wherever_it_is_opened(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, path in ((tiny_run, "."), (next(tiny_run.glob("step-*")), "..")):
        monkeypatch.chdir(place)
        assert open_subject(path).name == open_subject(tiny_run).name == tiny_run.name


def test_maps_and_losses_are_the_references(view: View, tiny_run: Path) -> None:
    run_folder = load_run(tiny_run, build_model)
    weights = {name: tensor.numpy() for name, tensor in run_folder.model.state_dict().items()}
    trace: dict[str, np.ndarray] = {}
    forward(weights, read_state(run_folder.step_folder)["model"], view.ids, trace)
    for layer in range(2):
        assert np.array_equal(view.maps[layer], trace[f"blocks.{layer}.attn.pattern"])
    ids = torch.tensor(view.ids)[None]
    with torch.no_grad():
        nats = torch.nn.functional.cross_entropy(run_folder.model(ids)[0, :-1], ids[0, 1:], reduction="none")
    assert np.isnan(view.nats[0])
    np.testing.assert_allclose(view.nats[1:], nats.numpy(), atol=1e-4)
    assert max(view.checks.row_sums, view.checks.sdpa) < 1e-5
    assert view.checks.future == 0


def test_json_and_csv_hold_the_same_maps(tiny_run: Path, view: View, tmp_path: Path) -> None:
    for kind in ("json", "csv"):
        assert run(tiny_run, "--text", TEXT, "--out", tmp_path / f"maps.{kind}") == 0
    found = json.loads((tmp_path / "maps.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose(found["maps"], view.maps, atol=1e-6)
    assert found["text"]["pieces"] == view.pieces
    assert found["nats"][0] is None
    assert found["checks"]["future_max"] == 0
    lines = (tmp_path / "maps.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# maps verified: rows sum to 1, no future, A·V equals sdpa, max error")
    rows = list(csv.DictReader(lines[1:]))
    length = len(view.ids)
    assert len(rows) == 2 * 2 * length * (length + 1) // 2
    for row in rows[::37]:
        cell = tuple(int(row[key]) for key in ("layer", "head", "query", "key"))
        assert float(row["weight"]) == pytest.approx(view.maps[cell], rel=1e-5)


def test_one_head_alone_in_csv(tiny_run: Path, view: View, tmp_path: Path) -> None:
    out = tmp_path / "head.csv"
    assert run(tiny_run, "--text", TEXT, "--layer", "2", "--head", "1", "--out", out) == 0
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()[1:]))
    assert {(row["layer"], row["head"]) for row in rows} == {("1", "0")}
    assert sum(float(row["weight"]) for row in rows if row["query"] == "5") == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_pictures_are_whole_and_the_same_each_time(tiny_run: Path, tmp_path: Path, kind: str) -> None:
    sheets = [tmp_path / f"{name}.{kind}" for name in ("a", "b")]
    for out in sheets:
        assert run(tiny_run, "--text", TEXT, "--out", out) == 0
    large = tmp_path / f"large.{kind}"
    words = ["--layer", "1", "--head", "2", "--lang", "ru"]
    assert run(tiny_run, "--text", "It cost $5 and $6.\n\tYes", *words, "--out", large) == 0
    assert sheets[0].read_bytes() == sheets[1].read_bytes()
    for out in (sheets[0], large):
        content = out.read_bytes()
        if kind == "svg":
            assert ElementTree.fromstring(content).tag.endswith("svg")
        else:
            assert content.startswith(b"\x89PNG\r\n\x1a\n")
            assert min(struct.unpack(">II", content[16:24])) > 200


def test_picture_shows_the_weights(view: View) -> None:
    figure = maps.one_head(view, 0, 1, "en")
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown.filled(0), view.maps[0, 1], atol=1e-7)
    assert shown.mask[0, 1]  # the future is paper, not weight 0
    assert not shown.mask[1, 0]
    sheet = maps.sheet(view, "en")
    assert len(sheet.axes) == 5  # four heads and the colour bar
    assert not sheet.axes[0].patches
    marked = maps.sheet(view, "en", (5, [1, 2])).axes[3].patches
    assert [patch.get_xy() for patch in marked] == [
        (-0.5, 4.5),
        (0.5, 0.5),
        (1.5, 1.5),
    ]  # the row, the columns
    np.testing.assert_allclose(sheet.axes[3].images[0].get_array().filled(0), view.maps[1, 1], atol=1e-7)


@pytest.mark.parametrize("length", [6, 25])
def test_the_sheet_names_the_tokens_of_a_short_text(length: int, subject: Subject) -> None:
    view = look(subject, (subject.encode(TEXT)[0] * 3)[:length])
    sheet = maps.sheet(view, "en")
    names = [piece.replace(" ", "·").replace("\n", "⏎") for piece in view.pieces] if length == 6 else []
    keys, queries = sheet.axes[3], sheet.axes[0]  # below the last row and beside the first column
    assert [tick.get_text() for tick in keys.get_xticklabels()] == names
    assert [tick.get_text() for tick in queries.get_yticklabels()] == names
    assert not keys.get_yticklabels()
    assert not queries.get_xticklabels()


# ---- ranking -----------------------------------------------------------------------------------------------


def test_ranking_is_the_weight_from_last_query_piece_to_all_key_pieces(view: View) -> None:
    at, keys = view.aim("lost", "Tom")
    assert "".join(view.pieces[at - 1 : at + 1]).endswith("lost"[-1:])
    found = view.find("lost", "Tom")
    assert len(found) == 4
    weights = [row["weight"] for row in found]
    assert weights == sorted(weights, reverse=True)
    top = found[0]
    assert top["weight"] == pytest.approx(float(view.maps[top["layer"], top["head"], at, keys].sum()))
    assert max(keys) < at


def test_occurrence_chooses_among_mentions(view: View) -> None:
    second = view.find("ball", "Tom")[0]
    first = view.find("ball", "Tom", occurrence=1)[0]
    assert first["query"] < second["query"]
    assert view.find("ball", "Tom", occurrence=2)[0]["query"] == second["query"]
    assert len(second["keys"]) == 2 * len(first["keys"])  # both mentions of Tom stand before the second ball
    assert view.find("Tom", "ball")[0]["query"] == mentions(view.raw, "Tom")[1][-1]


def test_ranking_is_printed_and_in_json(tiny_run: Path, capsys: Capture) -> None:
    words = ["--text", TEXT, "--query", "lost", "--key", "Tom"]
    assert run(tiny_run, *words) == 0
    out = capsys.readouterr().out
    assert "maps verified" in out
    assert "'lost' (position" in out
    assert run(tiny_run, *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["ranking"]) == 4
    assert "maps" not in found
    assert run(tiny_run, *words, "--lang", "ru") == 0
    assert "карты проверены" in capsys.readouterr().out


def test_a_word_is_found_whatever_its_pieces(subject: Subject, tiny_run: Path) -> None:
    text = "Жил Том. Он don't."
    view = look(subject, subject.encode(text)[0])
    for word in ("Жил", "Том", "Он", "don't", "."):
        for places in mentions(view.raw, word):
            spelt = subject.tokenizer.decode([view.ids[place] for place in places])
            assert spelt.strip() == word or word in spelt
            assert word not in subject.tokenizer.decode([view.ids[place] for place in places[:-1]])
    assert [len(mentions(view.raw, word)) for word in ("◆", "Том", ".", "Ж", "о", "ж")] == [1, 1, 2, 0, 0, 0]
    assert run(tiny_run, "--text", text, "--query", "Он", "--key", "Том") == 0
    assert run(tiny_run, "--text", text, "--query", "don't", "--key", "Он") == 0
    cut = [b"\x96 a", b" \xd0", b"\x96 b"]  # a text may begin within a letter
    assert [mentions(cut, word) for word in ("a", "Ж", "b")] == [[[0]], [[1, 2]], [[2]]]


def test_nearest_words() -> None:
    words = [("Tom", [1]), ("ball", [2]), ("lost", [3])]
    assert nearest_words("bal", words) == "; near it: ball"
    assert nearest_words("xyzzy", words) == "; give a word of the text"


# ---- edges -------------------------------------------------------------------------------------------------


def test_the_start_sign_alone(tiny_run: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "one.json"
    assert run(tiny_run, "--text", "", "--allow-empty", "--out", out) == 0
    assert "1 tokens with ◆, loss – nats" in capsys.readouterr().out
    found = json.loads(out.read_text(encoding="utf-8"))
    assert np.ravel(found["maps"]).tolist() == [1, 1, 1, 1]
    assert found["nats"] == [None]
    for kind in ("png", "svg", "csv"):
        assert run(tiny_run, "--text", "", "--allow-empty", "--out", tmp_path / f"one.{kind}") == 0
    assert (
        run(
            tiny_run,
            "--text",
            "",
            "--allow-empty",
            "--layer",
            "1",
            "--head",
            "1",
            "--out",
            tmp_path / "h.png",
        )
        == 0
    )


def test_pieces_that_are_no_whole_character(subject: Subject, tiny_run: Path, tmp_path: Path) -> None:
    text = "Ж 🙂 ע"
    ids, _ = subject.encode(text)
    pieces = subject.pieces(ids)
    assert pieces[:3] == ["◆", "⟨D0⟩", "⟨96⟩"]
    assert look(subject, ids).maps.shape[-1] == len(ids)
    for kind in ("png", "svg", "csv"):
        out = tmp_path / f"maps.{kind}"
        assert run(tiny_run, "--text", text, "--layer", "1", "--head", "1", "--out", out) == 0


def test_markup_in_a_text_is_text(tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "maps.svg"
    text = "</script><img onerror=x>&"
    assert run(tiny_run, "--text", text, "--layer", "1", "--head", "1", "--out", out) == 0
    assert "<img" not in out.read_text(encoding="utf-8")
    ElementTree.parse(out)


def test_a_typed_start_sign_is_text(subject: Subject) -> None:
    ids, _ = subject.encode("<|endoftext|>")
    assert ids.count(subject.tokenizer.start_id) == 1


@pytest.mark.parametrize("keep", ["head", "tail"])
def test_long_text_keeps_its_start_sign_and_says_what_is_left_out(
    tiny_run: Path, subject: Subject, capsys: Capture, keep: str
) -> None:
    text = TEXT * 4
    whole = [subject.tokenizer.start_id, *subject.tokenizer.encode(text)]
    ids, dropped = subject.encode(text, keep)
    assert (len(ids), dropped) == (32, len(whole) - 32)
    assert ids == (whole[:32] if keep == "head" else whole[:1] + whole[-31:])
    assert run(tiny_run, "--text", text, "--on-long", keep) == 0
    assert f"{dropped} left out" in capsys.readouterr().out


def test_text_from_a_file_and_from_standard_input(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    outs = [tmp_path / "a.json", tmp_path / "b.json"]
    assert run(tiny_run, "--file", tmp_path / "text.txt", "--out", outs[0]) == 0
    assert run(tiny_run, "--file", "-", "--out", outs[1]) == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_text_is_the_same_whatever_its_mark_and_line_ends(
    tiny_run: Path, tmp_path: Path, capsys: Capture
) -> None:
    found = []
    for name, raw in (("plain", b"Tom had\na ball."), ("marked", b"\xef\xbb\xbfTom had\r\na ball.")):
        (tmp_path / name).write_bytes(raw)
        assert run(tiny_run, "--file", tmp_path / name, "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["text"]["ids"])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give the text to look at"),
        (["--text", "a", "--file", "b"], "one of the two"),
        (["--text", ""], "the text is empty"),
        (["--text", "Tom \udcff"], "--text: byte 0xff at offset 4 is not UTF-8"),
        (["--text", TEXT * 4], "the model sees 32; give --on-long head or tail"),
        (["--text", TEXT, "--query", "lost"], "--query and --key go together"),
        (["--text", TEXT, "--layer", "1"], "--layer and --head go together"),
        (
            ["--text", TEXT, "--layer", "1", "--head", "1", "--out", "m.json"],
            "give --out FILE.png, .svg or .csv",
        ),
        (["--text", TEXT, "--layer", "3", "--head", "1"], "layers 1 to 2, heads 1 to 2. Got layer 3, head 1"),
        (["--text", TEXT, "--layer", "1", "--head", "-1"], "layers 1 to 2, heads 1 to 2"),
        (["--text", TEXT, "--layer", "0", "--head", "1"], "layers 1 to 2, heads 1 to 2"),
        (
            ["--text", TEXT, "--query", "los", "--key", "Tom"],
            "'los' is not in the text; near it: lost",
        ),
        (["--text", TEXT, "--query", "had", "--key", "lost"], "a token sees only the past"),
        (["--text", TEXT, "--query", "ball", "--key", "Tom", "--occurrence", "3"], "is there 2 times"),
        (["--text", TEXT, "--out", "maps.gif"], "must end in one of .png, .svg, .json, .csv"),
        (["--text", TEXT, "--out", "there.json/maps.png"], "lies below a file"),
        (["--text", TEXT, "--out", "there.json"], "exists; give --force"),
        (["--file", "nowhere.txt"], "nowhere.txt cannot be read"),
        (["--file", "latin.txt"], "latin.txt: byte 0xe9 at offset 0 is not UTF-8"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.json").write_text("mine")
    Path("latin.txt").write_bytes(b"\xe9t\xe9")
    before = sorted(tmp_path.iterdir())
    out = [] if "--out" in words else ["--out", "maps.png"]
    assert run(tiny_run, *words, *out) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
    assert Path("there.json").read_text() == "mine"
    if words[-1:] == ["there.json"]:
        assert run(tiny_run, *words, "--force") == 0


def test_a_disk_that_refuses_leaves_nothing(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    assert run(tiny_run, "--text", TEXT, "--out", tmp_path / "maps.json") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda path: shutil.rmtree(path), "no run folder"),
        (
            lambda path: next(path.glob("step-*/model.safetensors")).write_bytes(b"xx"),
            "has changed since it was saved",
        ),
        (lambda path: next(path.glob("step-*/model.safetensors")).unlink(), "cannot read"),
        (lambda path: [next(path.glob("step-*/state.json")).write_text("{}")], "not a checkpoint's state"),
    ],
)
def test_broken_runs_are_one_line(
    tiny_run: Path, tmp_path: Path, capsys: Capture, break_it, message: str
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(tiny_run, copy, ignore=lambda folder, names: steps_but_one(folder, names))
    break_it(copy)
    assert run(copy, "--text", TEXT, "--out", tmp_path / "maps.png") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "maps.png").exists()


def steps_but_one(_: str, names: list[str]) -> list[str]:
    return sorted(name for name in names if name.startswith("step-"))[:-1]


def test_window_model_has_no_maps(tiny_window_run: Path, capsys: Capture) -> None:
    assert run(tiny_window_run, "--text", TEXT) == 2
    assert "which has no attention to look at; give a gpt run" in capsys.readouterr().err


def test_weights_that_are_no_numbers_are_named(tmp_path: Path, tiny_data: Data, capsys: Capture) -> None:
    tokenizer = load_tokenizer(tiny_data.folder)
    broken = save_hand_built(
        tmp_path / "nan", tokenizer, None, **{"blocks.1.attn.q_norm.weight": float("nan")}
    )
    assert run(broken, "--text", TEXT, "--out", tmp_path / "maps.png") == 2
    assert "layer 2 head 1 of nan gives weights that are not numbers" in capsys.readouterr().err
    assert not (tmp_path / "maps.png").exists()


def test_half_precision_weights_are_read_as_float32(tmp_path: Path, hand_run: Path) -> None:
    import hashlib

    copy = Path(shutil.copytree(hand_run, tmp_path / "half"))
    step = next(copy.glob("step-*"))
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(step / "model.safetensors").items()}
    content = save(tensors)
    (step / "model.safetensors").write_bytes(content)
    state = json.loads((step / "state.json").read_text())
    state["sha256"]["model.safetensors"] = hashlib.sha256(content).hexdigest()
    write_state(step / "state.json", state)
    subject = open_subject(copy)
    assert all(tensor.dtype == np.float32 for tensor in subject.weights.values())
    assert look(subject, subject.encode(TEXT)[0]).checks.row_sums < 1e-5


def test_a_failed_check_writes_nothing(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rostok.attention.heads import capture

    monkeypatch.setattr(capture, "verify", lambda *_: capture.Checks(0.1, 0, 0))
    with pytest.raises(RuntimeError, match="are wrong"):
        run(tiny_run, "--text", TEXT, "--out", tmp_path / "maps.png")
    assert not list(tmp_path.iterdir())
