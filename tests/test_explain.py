"""attend.py explain: what it prints, draws and refuses."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import attend
from rostok.attention.by_hand import explain
from rostok.attention.by_hand.examples import EXAMPLES
from rostok.attention.by_hand.experiments import EXPERIMENTS
from rostok.attention.by_hand.matrices import load_matrix
from rostok.attention.languages import LANGUAGES
from rostok.errors import UserError, run_main


@pytest.fixture
def run(capsys):
    """Run attend.py with these words: (exit code, stdout, stderr)."""

    def call(*words: str) -> tuple[int, str, str]:
        code = run_main(attend.main, list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def files(tmp_path):
    """q.csv, k.csv, v.csv with n = 2, m = 3, d = 4, d_v = 5."""
    rng = np.random.default_rng(0)
    paths = {}
    for name, shape in (("q", (2, 4)), ("k", (3, 4)), ("v", (3, 5))):
        paths[name] = tmp_path / f"{name}.csv"
        np.savetxt(paths[name], rng.standard_normal(shape), delimiter=",")
    return paths


def words(paths: dict[str, Path]) -> list[str]:
    return [word for name, path in paths.items() for word in (f"--{name}", str(path))]


# ---- what it prints --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_example_explains_itself_and_agrees_with_torch(lang, run):
    for handle, example in EXAMPLES.items():
        code, out, err = run("explain", handle, "--lang", lang)
        assert (code, err) == (0, ""), handle
        assert example.title[lang] in out
        if example.kind in ("attention", "multi-head"):
            word = "equal to torch's" if lang == "en" else "совпадает со scaled_dot_product_attention"
            assert re.search(word + r".* (\d\.\de-[123]\d|0\.0e\+00)", out), handle


def test_fish_step_by_step(run):
    _, out, _ = run("explain", "fish")
    steps = [
        out.index(word) for word in ("1. Similarity", "2. Scale: ÷ √2", "3. Mask", "4. Softmax", "5. Mix")
    ]
    assert steps == sorted(steps)
    assert "fish   10    10    20" in out
    assert "fish  0.0008  0.0008  0.9983    1" in out
    assert "3.997 2.001" in out
    assert "3.995761 2" in out
    assert "the printed number is wrong; ours is the exact one" in out


def test_russian_causal_example_speaks_russian(run):
    _, out, _ = run("explain", "S2-03-causal", "--lang", "ru")
    assert "закрыто" in out
    assert "причинной маской" in out
    assert not re.search(
        r"[A-Za-z]{4,}", re.sub(r"Softmax|scaled_dot_product_attention|torch|causal", "", out)
    )


def test_own_causal_and_scale_change_an_example(run):
    _, out, _ = run("explain", "S0-14", "--causal", "--scale", "1")
    assert "closed" in out
    assert "× 1" in out
    assert "printed" not in out  # the recorded values no longer hold
    _, out, _ = run("explain", "S0-14", "--causal", "--json")
    report = json.loads(out)
    np.testing.assert_allclose(
        report["steps"]["output"], [[2, 1], [1.028318, 2.943364], [3.995761, 2]], atol=5e-7
    )
    assert report["steps"]["masked"][0][1:] == [None, None]
    assert report["values"] == []


def test_json_of_every_example_is_strict(run):
    for handle in EXAMPLES:
        report = json.loads(run("explain", handle, "--json")[1], parse_constant=pytest.fail)
        assert report["handle"] == handle
        assert (report["checks"]["row_sum_error"] is None) == (report["kind"] == "numbers")


@pytest.mark.parametrize("name", [*sorted(set(EXPERIMENTS) - {"variance"}), "S3-24", "GQA", "s0-07"])
def test_experiments(name, run):
    code, out, err = run("explain", name, "--lang", "ru")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) > 4
    report = json.loads(run("explain", name, "--json")[1], parse_constant=pytest.fail)
    assert report["experiment"] == name
    assert all(len(row) == len(report["columns"]) for row in report["rows"])


@pytest.mark.parametrize("arguments", [["--list"], []])
def test_list_names_everything(arguments, run):
    _, out, _ = run("explain", *arguments)
    assert all(handle in out for handle in (*EXAMPLES, *EXPERIMENTS))
    listed = json.loads(run("explain", *arguments, "--json")[1])
    assert [row["handle"] for row in listed["examples"]] == list(EXAMPLES)


def test_the_page_of_examples_is_in_step(monkeypatch):
    monkeypatch.setattr(explain, "EXPERIMENTS", {})  # their tables hold rounding errors of one machine
    page = (Path(__file__).parent.parent / "docs" / "worked-examples.md").read_text(encoding="utf-8")
    assert page.startswith(explain.markdown().rstrip())


# ---- the user's own matrices -----------------------------------------------------------------------------


def test_own_matrices(files, run):
    code, out, _ = run("explain", *words(files), "--json")
    assert code == 0
    np.testing.assert_allclose(
        json.loads(out)["steps"]["output"], EXAMPLES["S1-14"].values[2].exact, atol=5e-7
    )
    code, out, _ = run("explain", *words(files), "--causal", "--scale", "0.5")
    assert code == 0
    assert "query 2" in out
    assert "key 3" in out


def test_every_format_of_a_matrix_gives_the_same(tmp_path):
    rows = [[1.5, -2.0], [0.25, 3.0]]
    (tmp_path / "a.csv").write_text("# a comment\n1.5, -2\n\n0.25,3\n")
    (tmp_path / "b.txt").write_text("\ufeff1.5 -2\n0.25\t3e0\n", encoding="utf-8")
    (tmp_path / "c.json").write_text(json.dumps(rows))
    np.save(tmp_path / "d.npy", np.array(rows, np.float32))
    for path in tmp_path.iterdir():
        assert load_matrix(path).tolist() == rows
    (tmp_path / "row.json").write_text("[1, 2, 3]")
    assert load_matrix(tmp_path / "row.json").tolist() == [[1, 2, 3]]


def test_large_matrices_are_cut_in_print(tmp_path, run):
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).standard_normal((40, 20)))
    code, out, _ = run("explain", *(word for n in "qkv" for word in (f"--{n}", str(tmp_path / f"{n}.npy"))))
    assert code == 0
    assert "…" in out
    assert len(out) < 20_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "1,2\n3\n", "line 2 has 1 numbers, the first row has 2"),
        ("a.csv", "1,two\n", "line 1: could not convert"),
        ("a.csv", "1,\n", "line 1"),
        ("a.csv", "1,nan\n", "nan at row 1, column 2"),
        ("a.csv", "1,1e999\n", "inf at row 1, column 2"),
        ("a.csv", "", "at least one number"),
        ("a.json", "{", "no matrix of numbers"),
        ("a.json", '{"q": 1}', "numbers are wanted"),
        ("a.json", '[["1"]]', "numbers are wanted"),
        ("a.json", "[[true]]", "numbers are wanted"),
        ("a.json", "[[1, 2], [3]]", "no matrix of numbers"),
        ("a.json", "[[[1]]]", r"Got shape (1, 1, 1)"),
        ("a.json", "[" * 100_000, "no matrix of numbers"),
        ("a.npy", "not an array", "no matrix of numbers"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as caught:
        load_matrix(tmp_path / name)
    assert message in str(caught.value)
    assert name in str(caught.value)


def test_pickled_npy_binary_file_and_folder_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "c.npy").write_bytes(b"")
    for name in ("a.npy", "b.csv", "c.npy", "."):
        with pytest.raises(UserError):
            load_matrix(tmp_path / name)


# ---- what it refuses: one line, exit code 2, nothing written ---------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["S0-144"], "did you mean 's0-14'?"),
        (["sheep"], "did you mean 'she'?"),
        (["qqqqqq"], "--list names them all"),
        (["S0-14", "--q", "q.csv"], "not both"),
        (["--q", "q.csv"], "Missing: --k --v"),
        (["--q", "no.csv", "--k", "no.csv", "--v", "no.csv"], "no.csv cannot be read (No such file"),
        (["--list", "S0-14"], "--list takes no 'S0-14'"),
        (["--markdown", "--causal"], "--markdown takes no --causal"),
        (["--markdown", "--lang", "ru"], "--markdown takes no --lang"),
        (["--scale", "2"], "--scale needs an example"),
        (["--causal", "--json"], "--causal needs an example"),
        (["S0-14", "--force"], "give --plot FILE too"),
        (["S0-14", "--scale", "nan"], "--scale must be a finite number"),
        (["S0-11", "--causal"], "S0-11 is none"),
        (["shuffle", "--causal"], "shuffle is an experiment"),
        (["S0-14", "--plot", "a.gif"], "one of .png, .svg"),
        (["S0-17", "--plot", "a.png"], "no weights to draw"),
        (["shuffle", "--plot", "a.png"], "takes no --plot"),
    ],
)
def test_one_clear_line(arguments, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("explain", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_shapes_that_do_not_fit(files, run):
    code, _, err = run("explain", "--q", str(files["v"]), "--k", str(files["k"]), "--v", str(files["v"]))
    assert code == 2
    assert "Got 5 and 4 numbers a row" in err
    code, _, err = run("explain", "--q", str(files["q"]), "--k", str(files["k"]), "--v", str(files["q"]))
    assert code == 2
    assert "Got 3 and 2" in err


def test_scores_beyond_float64(tmp_path, run):
    for name in "qkv":
        (tmp_path / name).write_text("1e200 1e200\n")
    code, out, err = run("explain", *(word for n in "qkv" for word in (f"--{n}", str(tmp_path / n))))
    assert (code, out) == (2, "")
    assert "overflow float64" in err


def test_unknown_subcommand_and_no_subcommand():
    for arguments in (["explode"], [], ["explain", "--lang", "uk"]):
        with pytest.raises(SystemExit) as caught:
            attend.main(arguments)
        assert caught.value.code == 2


def test_each_subcommand_has_help(capsys):
    for name in attend.SUBCOMMANDS:
        with pytest.raises(SystemExit) as caught:
            attend.main([name, "--help"])
        assert caught.value.code == 0
        assert name in capsys.readouterr().out


# ---- the heat map ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handle", "extension"), [("S0-14", "png"), ("S3-20", "svg"), ("S0-11", "png"), ("S0-13", "svg")]
)
def test_plot(handle, extension, run, tmp_path):
    path = tmp_path / f"map.{extension}"
    code, out, _ = run("explain", handle, "--plot", str(path), "--lang", "ru")
    assert code == 0
    assert "сохранено" in out
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no temporary file is left
    if extension == "png":
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    else:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag.endswith("svg")


def test_svg_says_the_tokens_and_is_the_same_each_time(run, tmp_path):
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, second):
        run("explain", "milk", "--plot", str(path))
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text(encoding="utf-8")
    assert "молоко" in text
    assert "0.503" in text


def test_an_existing_file_is_kept_unless_forced(run, tmp_path):
    path = tmp_path / "map.png"
    path.write_text("mine")
    code, _, err = run("explain", "S0-14", "--plot", str(path))
    assert code == 2
    assert "give --force to overwrite it" in err
    assert path.read_text() == "mine"
    assert run("explain", "S0-14", "--plot", str(path), "--force")[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_failing_disk_leaves_no_half_file(run, tmp_path, monkeypatch):
    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, _, err = run("explain", "S0-14", "--plot", str(tmp_path / "map.png"))
    assert code == 2
    assert "No space left on device" in err
    assert list(tmp_path.iterdir()) == []
