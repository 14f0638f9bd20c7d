"""rostok/training/settings.py and habits.py: each setting is explained once; page and schema say what the code says."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import train
from rostok.errors import UserError
from rostok.training.config import load_config, validate
from rostok.training.habits import ANSWERS, answer
from rostok.training.settings import as_text, instead, list_settings, schema
from train import TrainConfig

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def dotted(values: dict, above: str = "") -> set[str]:
    """The names of all settings of a config, by dataclasses.asdict."""
    found: set[str] = set()
    for key, value in values.items():
        found |= dotted(value, f"{above}{key}.") if isinstance(value, dict) else {above + key}
    return found


def fits(value: Any, rule: dict, whole: dict) -> bool:
    """Whether a value follows a rule of a JSON schema: the part of draft 7 that ours uses, nothing else."""
    if "$ref" in rule:
        rule = whole["$defs"][rule["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in rule:
        return any(fits(value, option, whole) for option in rule["anyOf"])
    kinds = {
        "object": dict,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    wanted = rule.get("type", [])
    types = [kinds[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted)]
    is_bool = isinstance(value, bool)
    if types and not any(isinstance(value, one) and (one is bool or not is_bool) for one in types):
        return False
    if ("const" in rule and value != rule["const"]) or ("enum" in rule and value not in rule["enum"]):
        return False
    if isinstance(value, str):
        return re.search(rule.get("pattern", ""), value) is not None
    if isinstance(value, dict):
        known = value.keys() <= rule["properties"].keys()
        return known and all(fits(item, rule["properties"][key], whole) for key, item in value.items())
    if not isinstance(value, int | float):
        return True
    low, high = rule.get("minimum", -math.inf), rule.get("maximum", math.inf)
    above, below = rule.get("exclusiveMinimum", -math.inf), rule.get("exclusiveMaximum", math.inf)
    return low <= value <= high and above < value < below


def test_every_setting_is_listed_and_explained() -> None:
    gpt = dotted(dataclasses.asdict(TrainConfig()))
    window = dotted(dataclasses.asdict(load_config(TrainConfig, None, ["model.kind=window-mlp"])))
    listed = list(list_settings(TrainConfig))
    assert {one.key for one in listed} == gpt | window
    assert not [one.key for one in listed if len(one.text) < 10]


def test_defaults_are_those_of_the_dataclasses() -> None:
    listed = [one for one in list_settings(TrainConfig) if "window-mlp" not in one.group]
    words = [f"{one.key}={one.default}" for one in listed if one.key != "init_from"]
    assert load_config(TrainConfig, None, words) == TrainConfig()


def test_the_page_is_what_the_code_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Where this fails: python train.py --settings, into docs/settings.md."""
    assert train.main(["--settings"]) == 0
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    printed = capsys.readouterr().out
    assert f"```text\n{printed}```\n" in page
    assert max(map(len, printed.splitlines())) <= 80


def test_the_schema_is_what_the_code_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Where this fails: python train.py --schema > configs/schema.json."""
    assert train.main(["--schema"]) == 0
    assert (ROOT / "configs" / "schema.json").read_text(encoding="utf-8") == capsys.readouterr().out


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_schema_takes_every_config(path: Path) -> None:
    """As an editor does it, with its own reading of numbers: 6e-3 is one, 6_000_000 is a word."""
    text, whole = path.read_text(encoding="utf-8"), schema(TrainConfig)
    assert text.startswith("# yaml-language-server: $schema=schema.json\n")
    assert fits(yaml.safe_load(text), whole, whole)
    words = text.replace("true", "'true'")  # nothing of ours is true or false
    assert fits(yaml.load(words, yaml.BaseLoader), whole, whole)


@pytest.mark.parametrize(
    "wrong",
    [
        {"optim": {"lr": 2}},
        {"optim": {"learning_rate": 0.1}},
        {"tokens": "many"},
        {"model": {"kind": "gpt", "window": 8}},
        {"schedule": {"kind": "cosin"}},
        {"seed": -1},
    ],
)
def test_the_schema_refuses_what_training_refuses(wrong: dict) -> None:
    whole = schema(TrainConfig)
    assert not fits(wrong, whole, whole)
    with pytest.raises(UserError):
        validate(TrainConfig, wrong, "test")


def test_a_word_finds_its_settings() -> None:
    assert "schedule.warmup_steps" in as_text(TrainConfig, "Warm")
    assert "optim.lr" not in as_text(TrainConfig, "warmup")
    with pytest.raises(UserError, match=r"no setting speaks of 'epochs': .*tokens=N"):
        train.main(["--settings", "epochs"])
    with pytest.raises(UserError, match="no setting speaks of 'xyzzy'; without a word: all of them"):
        train.main(["--settings", "xyzzy"])


def test_habits_name_settings_that_are_there() -> None:
    """Whatever an answer tells one to type is a setting, or an option of the command that it names."""
    keys = {one.key for one in list_settings(TrainConfig)}
    names = [name for names in ANSWERS for name in names.split()]
    assert len(names) == len(set(names))
    for told in ANSWERS.values():
        for word in re.findall(r"\b(?:optim|model|schedule|runtime|data)\.\w+", told):
            assert word in keys, told
        for word in re.findall(r"(?<![\w.])(\w+)=", told):
            assert word in keys, told
    top = {name for name in names if name in keys}
    assert not top, "a real setting needs no answer"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("max_steps", "tokens=N"),
        ("model.block_size", "model.context"),
        ("n_embd", "model.d_model"),
        ("dropout", "there is no dropout"),
        ("wandb", "tensorboard=true"),
        ("Batch-Size", "it is batch"),
    ],
)
def test_a_habit_is_answered(name: str, wanted: str) -> None:
    assert wanted in (answer(name) or "")
    assert wanted in instead(TrainConfig, name)


def test_a_setting_in_the_wrong_place_is_found() -> None:
    assert instead(TrainConfig, "weight_decay") == "; did you mean optim.weight_decay?"
    assert instead(TrainConfig, "optim.threads") == "; did you mean runtime.threads?"
    assert instead(TrainConfig, "kind").count(" or ") == 2
    assert instead(TrainConfig, "xyzzy") == ""
