"""What `import rostok` gives: the same numbers as the commands and as torch, short reprs, the viewer in a cell."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import rostok
import sample
from rostok.errors import UserError
from rostok.notebook import many
from rostok.notebook.run import Run
from rostok.notebook.show import Table

ROOT = Path(__file__).resolve().parent.parent
TEXT = "the cat saw the dog and the cat ran"


@pytest.fixture(scope="module")
def run(tiny_run: Path) -> Run:
    return rostok.load(tiny_run)


def torch_nats(run: Run, text: str) -> np.ndarray:
    """The losses by torch's own cross entropy; a text that fits into the context."""
    ids = torch.tensor([run.tokenizer.start_id, *run.tokenizer.encode(text)])
    with torch.inference_mode():
        logits = run.model(ids[None])[0]
    return torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="none").numpy()


def short_text(run: Run) -> str:
    ids = run.tokenizer.encode(TEXT)[:20]
    return run.tokenizer.decode(ids)


def test_importing_costs_no_torch_and_all_names_are_there() -> None:
    code = (
        "import sys, rostok; assert 'torch' not in sys.modules; assert 'numpy' not in sys.modules\n"
        "assert all(getattr(rostok, name) for name in rostok.__all__); assert set(rostok.__all__) <= set(dir(rostok))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    assert (ROOT / "rostok" / "py.typed").is_file()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = rostok.lode  # type: ignore[attr-defined]


def test_generate_writes_what_sample_py_writes(run: Run, tiny_run: Path, capsys) -> None:
    words = ["--prompt", "the cat", "--tokens", "30", "--seed", "7", "--weights", "fp32", "--top-p", "0.9"]
    assert sample.main([str(tiny_run), *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert run.generate("the cat", tokens=30, seed=7, top_p=0.9) == "the cat" + told["text"]
    assert run.generate("", tokens=3) != ""


def test_score_is_torchs_cross_entropy(run: Run) -> None:
    text = short_text(run)
    score = run.score(text)
    np.testing.assert_allclose(score.nats, torch_nats(run, text), atol=1e-5)
    assert "".join(score.tokens) == text
    assert score.mean == pytest.approx(score.nats.mean())
    assert score.perplexity == pytest.approx(np.exp(score.mean))


def test_a_text_longer_than_the_context_is_scored_whole(run: Run) -> None:
    text = (TEXT + " ") * 8
    assert len(run.score(text).nats) == len(run.tokenizer.encode(text)) > run.settings["model"]["context"]


def test_the_window_mlp_writes_and_scores_but_has_no_attention(tiny_window_run: Path) -> None:
    run = rostok.load(tiny_window_run)
    np.testing.assert_allclose(run.score(TEXT).nats, torch_nats(run, TEXT), atol=1e-5)
    assert run.generate("the", tokens=4, temperature=0).startswith("the")
    with pytest.raises(UserError, match="is a window-mlp, which has no attention"):
        run.attention("the cat")


def test_empty_and_long_texts_are_refused(run: Run) -> None:
    for call in (run.score, run.attention, run.run):
        with pytest.raises(UserError, match="the text is empty"):
            call("")
    with pytest.raises(UserError, match="the model sees 32"):
        run.attention(TEXT * 8)


def test_attention_and_trace_are_the_models(run: Run) -> None:
    """NumPy's maps and losses against torch's logits; a head counts from 1."""
    text = short_text(run)
    view, trace = run.attention(text), run.run(text)
    np.testing.assert_allclose(view.nats[1:], torch_nats(run, text), atol=1e-4)
    np.testing.assert_allclose(trace.nats[1:], torch_nats(run, text), atol=1e-4)
    np.testing.assert_array_equal(view.head(2, 1).map, view.maps[1, 0])
    np.testing.assert_allclose(trace["blocks.1.attn.hook_pattern"][0], view.maps[1, 0], atol=1e-6)
    assert view.tokens == trace.tokens
    assert view.logits.shape == trace.logits.shape == (len(view.tokens), 320)


def test_find_names_the_heads_by_their_weight(run: Run) -> None:
    view = run.attention("the cat saw the dog")
    found = view.find("dog", "cat", top=3)
    weights = [head.weight or 0.0 for head in found]
    assert weights == sorted(weights, reverse=True)
    assert [head.looks("dog", "cat") for head in found] == pytest.approx(weights)
    assert re.fullmatch(r"\[<head \d\.\d of tiny, weight 0\.\d+>.*\]", str(found))


@pytest.mark.parametrize(("layer", "head"), [(0, 1), (3, 1), (1, 3)])
def test_a_head_that_is_not_there_is_refused(run: Run, layer: int, head: int) -> None:
    with pytest.raises(UserError, match="layers 1 to 2, heads 1 to 2"):
        run.attention("the cat").head(layer, head)
    with pytest.raises(UserError, match="two whole numbers"):
        run.attention("the cat").head(1.5, 1)  # type: ignore[arg-type]


def test_an_edit_is_what_the_torch_model_gives_with_that_weight_changed(tiny_run: Path) -> None:
    """z of layer 2 set to 0 is its output projection set to 0."""
    run = rostok.load(tiny_run)
    plain = run.run("the cat saw")
    edited = run.run("the cat saw", edit={"blocks.1.attn.hook_z": 0})
    with torch.no_grad():
        dict(run.model.named_parameters())["blocks.1.attn.proj.weight"].zero_()
    np.testing.assert_allclose(edited.nats[1:], torch_nats(run, "the cat saw"), atol=1e-4)
    assert not np.allclose(edited.logits, plain.logits)


def test_edits_come_as_arrays_and_functions(run: Run) -> None:
    half = run.run("the cat", edit={"blocks.0.mlp.out": lambda value: value / 2})
    other = run.run("the cat", edit=lambda name, value: value / 2 if name == "blocks.0.mlp.out" else value)
    fixed = run.run("the cat", edit={"blocks.0.hook_mlp_out": half["blocks.0.mlp.out"]})
    np.testing.assert_array_equal(half.logits, other.logits)
    np.testing.assert_array_equal(half.logits, fixed.logits)
    assert not np.allclose(half.logits, run.run("the cat").logits)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"blocks.0.attn.pattrn": 0}, "no step 'blocks.0.attn.pattrn'; did you mean 'blocks.0.attn.pattern'"),
        ({"blocks.0.attn.scores": 0}, "cannot be edited; edit the pattern"),
        ({"blocks.0.mlp.out": np.zeros((2, 3))}, r"shape \(2, 3\); it must be"),
        ({"blocks.0.mlp.out": lambda value: None}, "gave nothing; return the new value"),
    ],
)
def test_edits_that_cannot_be_made_are_refused(run: Run, edit: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run.run("the cat", edit=edit)


def test_what_a_cell_prints_is_short(run: Run) -> None:
    view = run.attention("the cat saw the dog")
    shown = [
        run,
        view,
        view.head(1, 1),
        view.plot(),
        run.score("the cat"),
        run.run("the cat"),
        view.head(1, 1).plot(),
    ]
    assert all(0 < len(repr(item)) < 150 for item in shown)
    assert repr(run) == f"<run tiny: gpt, 2 x 2 heads, {run.parameters:,} parameters, step 20>"
    assert view.plot()._repr_png_().startswith(b"\x89PNG")


def test_the_cell_shows_the_page_in_a_frame_of_its_own(run: Run) -> None:
    shown = run.attention('the cat <b>&"saw')._repr_html_()
    frame = re.fullmatch(r'<iframe [^<>]*srcdoc="([^"]*)"></iframe>', shown)
    assert frame
    assert 'sandbox="allow-scripts allow-downloads"' in shown
    assert "http://" not in shown.replace("http://www.w3.org", "")
    assert "<" not in frame[1]


def test_a_picture_is_written_once(run: Run, tmp_path: Path) -> None:
    picture = run.attention("the cat").plot()
    assert picture.save(tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")
    with pytest.raises(UserError, match="exists"):
        picture.save(tmp_path / "a.svg")
    with pytest.raises(UserError, match="must end in one of"):
        picture.save(tmp_path / "a.gif")


def test_a_table_in_text_and_html() -> None:
    table = Table(["name", "tokens", "loss"], [["<a>", 1200, 1.5], ["b", None, 2.25]])
    assert repr(table) == "name  tokens    loss\n<a>    1,200  1.5000\nb             2.2500"
    assert "<td>&lt;a&gt;</td>" in table._repr_html_()
    assert table.dicts()[1] == {"name": "b", "tokens": None, "loss": 2.25}
    assert len(table) == 2


def test_training_from_python_is_train_py(tiny_data, tmp_path: Path, monkeypatch) -> None:
    """Train a tiny run, list it, draw it, compare it; a second call loads what is finished."""
    monkeypatch.chdir(tmp_path)
    settings = {
        "model": {"kind": "gpt", "n_layer": 1, "n_head": 2, "d_model": 32, "context": 32},
        "data.path": str(tiny_data.folder),
        "runtime.device": "cpu",
        "runtime.threads": 1,
        "tokens": 1280,
        "batch": 4,
        "eval_rows": 4,
        "eval_every": 5,
        "schedule.warmup_steps": 1,
    }
    run = rostok.train("quickstart", name="mine", quiet=True, **settings)
    assert (run.name, run.step) == ("mine", 10)
    assert rostok.train("quickstart", name="mine", quiet=True, **settings).step == 10
    names = [row["name"] for row in rostok.list_runs().dicts()]
    assert names[0] == "mine"
    assert "rostok-mini" in names
    assert rostok.losses("mine", run).figure.axes[0].get_xlabel()
    table = rostok.compare("mine", texts=2)
    assert table.rows[0]["name"] == "mine"
    assert "perplexity" in repr(table)
    assert table._repr_html_().startswith("<pre>")


def test_wrong_settings_and_runs_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="unknown key 'lr'|lr"):
        rostok.train("quickstart", lr=1)
    with pytest.raises(UserError, match="no run folder rostok-mimi; there are .*did you mean 'rostok-mini'"):
        rostok.load("rostok-mimi")
    for call in (rostok.losses, rostok.compare):
        with pytest.raises(UserError, match="which runs"):
            call()


def test_a_run_without_a_checkpoint_is_listed_as_such(tmp_path: Path, monkeypatch) -> None:
    broken = tmp_path / "checkpoints" / "broken"
    broken.mkdir(parents=True)
    (broken / "config.yaml").write_text("name: broken\n")
    monkeypatch.chdir(tmp_path)
    assert [row["state"] for row in many.list_runs().dicts() if row["name"] == "broken"] == ["no checkpoint"]
