"""YAML and dotted words into validated dataclasses (cases C05 and C06), and every file in configs/."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import Field

from rostok.errors import UserError, run_main
from rostok.text.shards import Data
from rostok.training.config import dump_yaml, find_config, load_config
from train import TrainConfig

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))


@dataclass(frozen=True)
class Inner:
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    note: str | None = None


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    steps: int = 10
    on: bool = False
    mode: Literal["a", "b"] = "a"
    limit: float | None = None


def load(text: str, *words: str, folder: Path) -> Outer:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(Outer, path, words)


@pytest.mark.parametrize(
    ("written", "value"), [("1e-3", 1e-3), ("3e-4", 3e-4), ("1", 1.0), ("010", 10.0), ("2.5E+2", 250)]
)
def test_C05_numbers_are_floats_however_written(tmp_path: Path, written: str, value: float) -> None:
    from_file = load(f"inner:\n  learning_rate: {written}\n", folder=tmp_path).inner.learning_rate
    from_word = load_config(Outer, None, [f"inner.learning_rate={written}"]).inner.learning_rate
    assert from_file == from_word == value
    assert type(from_file) is type(from_word) is float


@pytest.mark.parametrize("written", ["abc", "nan", ".inf", "true", "[1]", "null", "1:30"])
def test_C05_what_is_no_number_is_refused_by_key(tmp_path: Path, written: str) -> None:
    with pytest.raises(UserError, match=r"inner\.learning_rate"):
        load(f"inner:\n  learning_rate: {written}\n", folder=tmp_path)
    with pytest.raises(UserError, match=r"inner\.learning_rate"):
        load_config(Outer, None, [f"inner.learning_rate={written}"])


def test_C06_a_misspelt_key_gets_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="unknown key 'learning_rte' below 'inner'; did you mean 'learning_rate'"
    ):
        load("inner:\n  learning_rte: 1\n", folder=tmp_path)
    with pytest.raises(UserError, match="did you mean 'steps'"):
        load_config(Outer, None, ["step=3"])
    with pytest.raises(UserError, match="unknown key 'zzz'; known: inner, steps"):
        load_config(Outer, None, ["zzz=3"])


def test_C06_a_key_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 2: the key 'steps' is given twice"):
        load("steps: 1\nsteps: 2\n", folder=tmp_path)


def test_C06_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is empty"):
        load("# nothing\n", folder=tmp_path)


def test_C06_an_equals_sign_in_a_value_survives() -> None:
    assert load_config(Outer, None, ["inner.note=2+2=4"]).inner.note == "2+2=4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 1.5\n", "steps must be a whole number. Got 1.5"),
        ("steps: yes\n", "steps must be a whole number. Got yes"),
        ("inner: 3\n", "inner must hold `key: value` lines. Got 3"),
        ("- a\n", "must hold `key: value` lines. Got a list"),
        ("mode: c\n", r"mode: .*'a' or 'b'.*Got 'c'"),
        ("inner:\n  learning_rate: -1\n", r"inner.learning_rate: .*greater than 0. Got -1"),
        ("a: [\n", "is not YAML"),
        ("1: 2\n", "unknown key '1'; known"),
        ("[1]: 2\n", "line 1: a key must be a word. Got a list"),
        ("on: 2\n", "on must be true or false. Got 2"),
        ("mode:\n", "mode: must be 'a' or 'b'. Got 'null'"),
        ("!!python/object/apply:os.system [ls]\n", "must hold `key: value` lines. Got a list"),
    ],
)
def test_each_mistake_has_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(text, folder=tmp_path)


@pytest.mark.parametrize("word", ["steps", "=3", "inner..note=1", ".steps=1"])
def test_a_word_that_is_no_setting_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="wanted key=value"):
        load_config(Outer, None, [word])


def test_a_word_below_a_value_is_refused() -> None:
    with pytest.raises(UserError, match="the command line: steps must be a whole number. Got a dict"):
        load_config(Outer, None, ["steps=1", "steps.more=2"])


def test_words_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    config = load("steps: 20\nmode: b\n", "steps=6e2", "on=true", "limit=null", folder=tmp_path)
    assert (config.steps, config.mode, config.on, config.inner) == (600, "b", True, Inner())


def test_a_kind_chooses_the_class_and_replaces_the_other_settings() -> None:
    config = load_config(TrainConfig, find_config("gpt-1", CONFIGS[0].parent), ["model.kind=window-mlp"])
    assert config.model.kind == "window-mlp"
    with pytest.raises(UserError, match="must be one of gpt, window-mlp. Got 'gtp'; did you mean 'gpt'"):
        load_config(TrainConfig, None, ["model.kind=gtp"])


def test_the_models_own_errors_come_through() -> None:
    with pytest.raises(UserError, match=r"model.d_model must be an even multiple of n_head. Got d_model=100"):
        load_config(TrainConfig, None, ["model.d_model=100"])


@pytest.mark.parametrize("name", ["../../evil", "/abs", ".", "..", "a/b", "x" * 300, "nul\x00"])
def test_a_run_is_a_folder_below_out(name: str) -> None:
    with pytest.raises(UserError, match="name must be a plain name"):
        load_config(TrainConfig, None, [f"name='{name}'"] if "\x00" not in name else ['name="nul\\0"'])


def test_a_missing_config_names_the_built_in_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no config 'rostock'; .*did you mean 'rostok'"):
        find_config("rostock", CONFIGS[0].parent)
    with pytest.raises(UserError, match="none.yaml cannot be read"):
        load_config(Outer, tmp_path / "none.yaml")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_file_in_configs_loads_and_opens_with_a_comment(path: Path) -> None:
    config = load_config(TrainConfig, path)
    assert config.name == path.stem
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert yaml.safe_load(dump_yaml(config))["name"] == path.stem


def test_a_dumped_config_reads_back_equal(tmp_path: Path) -> None:
    config = load_config(TrainConfig, None, ["model.kind=window-mlp", "optim.lr=3e-4"])
    (tmp_path / "c.yaml").write_text(dump_yaml(config), encoding="utf-8")
    assert load_config(TrainConfig, tmp_path / "c.yaml") == config


def test_the_three_models_of_the_comparison_see_the_same() -> None:
    runs = [
        load_config(TrainConfig, CONFIGS[0].parent / f"{n}.yaml") for n in ("rostok", "gpt-1", "window-mlp")
    ]
    assert len({(run.data.path, run.tokens, run.tokens_per_step) for run in runs}) == 1


def test_a_user_error_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> int:
        raise UserError("what came\nwhat was wanted")

    assert run_main(fail, []) == 2
    assert capsys.readouterr().err == "error: what came what was wanted\n"


def test_ctrl_c_is_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    assert run_main(interrupt, []) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("word", ["2024", "6e6", "0x10", "no", "1:30", "2026-11-30", "null_", "010"])
def test_a_setting_that_is_text_is_taken_as_it_was_typed(word: str, tmp_path: Path) -> None:
    assert load_config(TrainConfig, None, [f"name={word}"]).folder.name == word if ":" not in word else True
    assert load(f"inner:\n  note: {word}\n", folder=tmp_path).inner.note == word
    assert load_config(Outer, None, [f"inner.note={word}"]).inner.note == word


@pytest.mark.parametrize(
    ("word", "value"), [("6e6", 6_000_000), ("6_000_000", 6_000_000), ("010", 10), ("1.0", 1)]
)
def test_whole_numbers_however_written(word: str, value: int, tmp_path: Path) -> None:
    assert load(f"steps: {word}\n", folder=tmp_path).steps == value
    assert load_config(Outer, None, [f"steps={word}"]).steps == value


def test_a_mapping_on_the_command_line_mixes_with_the_other_words() -> None:
    config = load_config(Outer, None, ["inner.note=a", "inner={learning_rate: 1e-2}"])
    assert config.inner == Inner(1e-2, "a")
    with pytest.raises(UserError, match="the key 'note' is given twice"):
        load_config(Outer, None, ["inner={note: a, note: b}"])
    with pytest.raises(UserError, match="unknown key '1' below 'inner'"):
        load_config(Outer, None, ["inner={1: 2}"])


def test_who_is_blamed(tmp_path: Path) -> None:
    """What was typed, not the file that it was added to."""
    with pytest.raises(UserError, match="^the command line: unknown key 'lr'"):
        load("steps: 3\n", "lr=1", folder=tmp_path)
    with pytest.raises(UserError, match=r"config.yaml: steps must be a whole number. Got x"):
        load("steps: x\n", "on=true", folder=tmp_path)


def test_the_home_folder_is_meant_by_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left as it is, `out: ~/runs` would make a folder named `~`, and cleaning up would end in a catastrophe."""
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "c.yaml"
    path.write_text("out: ~/runs\n", encoding="utf-8")
    assert load_config(TrainConfig, path).out == str(tmp_path / "runs")
    assert load_config(TrainConfig, None, ["data.path=~/d"]).data.path == str(tmp_path / "d")
    for word in ("out=~nobody-of-this-name/x", "out=$HOME/x", "init_from=${HOME}", "out=a\0b"):
        with pytest.raises(
            UserError, match=f"the command line: {word.partition('=')[0]}: write the path out"
        ):
            load_config(TrainConfig, None, [word])
    with pytest.raises(UserError, match="out must be text. Got null"):
        load_config(TrainConfig, None, ["out=~"])
    with pytest.raises(UserError, match="a setting: byte 0xff .* is not UTF-8"):
        load_config(TrainConfig, None, ["out=\udcff"])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("max_steps=10", r"unknown key 'max_steps': the length of a run is told in tokens: tokens=N"),
        ("model.n_embd=64", r"unknown key 'n_embd' below 'model': it is model\.d_model"),
        ("threads=2", r"unknown key 'threads'; did you mean runtime\.threads\?|it is runtime\.threads"),
        ("runtime.device=gpu", r"Got 'gpu'; did you mean 'cuda'"),
        ("data=data/x", r"data must hold .* Got data/x; type data\.path=data/x"),
        ("tokens=1Q", r"tokens must be a whole number\. Got 1Q"),
    ],
)
def test_habits_of_others_are_answered_and_the_word_is_blamed(word: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"^the command line: .*{message}"):
        load_config(TrainConfig, CONFIGS[0], [word])


@pytest.mark.parametrize(
    ("written", "value"),
    [("1M", 10**6), ("2.5M", 2_500_000), ("20k", 20_000), ("1B", 10**9), ("6e6", 6 * 10**6)],
)
def test_tokens_may_be_written_short(written: str, value: int, tmp_path: Path) -> None:
    assert load_config(TrainConfig, None, [f"tokens={written}"]).tokens == value
    (tmp_path / "c.yaml").write_text(f"tokens: {written}\nname: {written}\n", encoding="utf-8")
    config = load_config(TrainConfig, tmp_path / "c.yaml")
    assert (config.tokens, config.name) == (value, written)


def test_a_text_or_a_data_folder_is_no_config(tiny_data: Data) -> None:
    with pytest.raises(
        UserError, match=r"book\.txt is no config; for a text: .*prepare\.py --source book\.txt"
    ):
        find_config("book.txt", CONFIGS[0].parent)
    with pytest.raises(UserError, match=r"is a data folder; type .* data\.path="):
        find_config(str(tiny_data.folder), CONFIGS[0].parent)


@pytest.mark.parametrize("word", ["1e400", "1_0__0M", "-1e999", "1__0e3"])
def test_numbers_that_python_cannot_read_are_one_line(word: str) -> None:
    with pytest.raises(UserError, match="optim.lr"):
        load_config(TrainConfig, None, [f"optim.lr={word}"])
