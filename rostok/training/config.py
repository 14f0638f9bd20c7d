"""Configs: a YAML file and dotted words (`optim.lr=3e-4`) into a validated dataclass. Defaults < file < words.

    config = load_config(TrainConfig, Path("configs/rostok.yaml"), ["optim.lr=3e-4", "model.n_layer=4"])

The settings of a thing are beside the thing (OptimConfig in optim.py, GPTConfig in model.py); this file only reads,
merges, checks and writes them. A value in a file or a word is text, and the declared type says what it means:
`name=2024` is a name, `seed=010` is 10, `1:30` is not a number. pydantic does that, and tells the dataclasses of a
union apart by their `kind`.
"""

import dataclasses
import os
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, ConfigDict, ValidationError, create_model

from rostok.errors import UserError, nearest, verb
from rostok.text.reading import read_text, typed
from rostok.training.habits import VALUES
from rostok.training.settings import instead, list_settings

T = TypeVar("T")
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)
# the first word of pydantic's name for a mistake -> what was wanted
WANTED = {
    "int": "be a whole number",
    "float": "be a number",
    "finite": "be a finite number",
    "string": "be text",
}
WANTED |= {"bool": "be true or false"} | dict.fromkeys(("dataclass", "model"), "hold `key: value` lines")


def expanded(folder: str) -> str:
    """A path with the home folder in the place of `~`. Raises ValueError where only a shell knows what is meant."""
    path = os.path.expanduser(folder)
    if path.startswith("~") or os.path.expandvars(path) != path or "\0" in path:
        raise ValueError(f"write the path out, without ~, $NAME or \\0. Got {folder!r}")
    return path


Folder = Annotated[str, AfterValidator(expanded)]


class Whole(int):
    """A whole number written as 6e6 or 6M: for a number 6000000, for a text what was typed."""

    text: str

    def __str__(self) -> str:
        return self.text


def scalar(text: str) -> str | Whole | None:
    """What an unquoted word of YAML means here: null, a whole number such as 6e6 or 6M, else the text itself."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    found = re.fullmatch(r"([-+]?\d[\d_.]*)(?:[eE]\+?(\d{1,3})|([kMB]))", text)
    if not found:
        return text
    digits, power, letter = found.groups()
    plain = f"{digits}e{power or {'k': 3, 'M': 6, 'B': 9}[letter]}"
    try:
        number = Whole(float(plain))
    except (ValueError, OverflowError):  # 1_0__0M, 1e400
        return text
    number.text = text
    return number if number == float(plain) else text


class Loader(yaml.BaseLoader):
    """PyYAML's loader of plain text, made to know null and to refuse a key that is given twice."""

    def construct_scalar(self, node: Any) -> Any:
        text = super().construct_scalar(node)
        return scalar(text) if node.style is None else text  # a quoted word is text

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in node.value:
            line = f"{self.name}, line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise UserError(f"{line}: a key must be a word. Got a list or a mapping")
            if key.value in result:
                raise UserError(f"{line}: the key '{key.value}' is given twice; delete one of the two")
            result[key.value] = self.construct_object(value, deep)
        return result


def parse_yaml(text: str, name: str) -> Any:
    """What a YAML text holds: mappings, lists, text, None. `name` is for messages. Raises UserError."""
    try:
        loader = Loader(text)
        loader.name = name
        return loader.get_single_data()
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{name} is not YAML: {error}") from None


def find_config(word: str, folder: Path) -> Path:
    """A config's path: `word` itself if it is there, else the built-in `folder`/word.yaml. Raises UserError."""
    path = Path(word)
    if path.suffix.lower() in (".txt", ".md", ".jsonl", ".json", ".csv", ".parquet", ".gz"):
        made = f"{verb('prepare')} --source {word} --out data/{path.stem}"
        raise UserError(
            f"{word} is no config; for a text: {made}, then data.path=data/{path.stem} behind a config"
        )
    if (path / "manifest.json").is_file():
        raise UserError(
            f"{word} is a data folder; type {verb('train')} quickstart name={path.name} data.path={word}"
        )
    if path.exists() and not path.is_dir():  # a pipe, too
        return path
    built_in = sorted(path.stem for path in folder.glob("*.yaml"))
    if word in built_in:
        return folder / f"{word}.yaml"
    raise UserError(
        f"there is no config '{word}'; give a YAML file or one of {', '.join(built_in)}{nearest(word, built_in)}"
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds. Raises UserError when it is missing, empty, not YAML or not a mapping."""
    content = parse_yaml(read_text(path), str(path))
    if content is None:
        raise UserError(
            f"{path} is empty; wanted at least a line such as `data.path`, see configs/rostok.yaml"
        )
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold `key: value` lines. Got a {type(content).__name__}")
    return content


def parse_words(words: Sequence[str]) -> dict[str, Any]:
    """`["optim.lr=3e-4"]` -> `{"optim": {"lr": "3e-4"}}`. The first `=` ends the key; `{...}` is read as YAML.

    >>> parse_words(["optim.lr=3e-4", "sample.prompt=2+2=4"])
    {'optim': {'lr': '3e-4'}, 'sample': {'prompt': '2+2=4'}}
    """
    result: dict[str, Any] = {}
    for word in words:
        key, equals, text = typed(word, "a setting").partition("=")
        names = key.split(".")
        if not equals or not all(names):
            raise UserError(f"cannot read the setting '{word}'; wanted key=value, such as optim.lr=3e-4")
        value: Any = parse_yaml(text, key) if text.startswith("{") else scalar(text) if text else ""
        for name in reversed(names):
            value = {name: value}
        result = merge(result, value)
    return result


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings as one, `above` winning. A mapping with another `kind` replaces instead of mixing."""
    if "kind" in above and "kind" in below and above["kind"] != below["kind"]:
        return dict(above)
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def load_config(cls: type[T], path: Path | None = None, words: Sequence[str] = ()) -> T:
    """Defaults of `cls` < the YAML file < the words, validated. Raises UserError that names the key."""
    said = parse_words(words)
    return validate(cls, merge(read_yaml(path) if path else {}, said), str(path or "the command line"), said)


def validate(
    cls: type[T], content: Mapping[str, Any], source: str, words: Mapping[str, Any] | None = None
) -> T:
    """A nested mapping as an instance of the dataclass `cls`. Raises UserError that names the key and `source`.

    words: the part of the content that was typed on the command line; a mistake in it is blamed on that.
    """
    kinds = {name: {"kind": part.kind} for name, part in vars(cls()).items() if hasattr(part, "kind")}
    adapter: Any = create_model("Settings", __config__=STRICT, settings=(cls, ...))
    try:
        return adapter.model_validate({"settings": merge(kinds, content)}).settings
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key, names = follow(cls, first["loc"][1:])
    place: Any = words
    for part in key:
        place = place.get(part) if isinstance(place, Mapping) else None
    source = source if place in (None, {}) else "the command line"
    raise UserError(f"{source}: {complaint(cls, '.'.join(key), first, names)}")


def follow(cls: Any, path: Sequence[Any]) -> tuple[list[str], list[str]]:
    """The key that pydantic's path means (behind a union it also names the `kind`), and the settings beside it."""
    key, options, names = [], [cls], []
    for part in path:
        if len(options) > 1:
            options = [option for option in options if option.kind == part]
            continue
        names = [field.name for field in dataclasses.fields(options[0])]
        hint = typing.get_type_hints(options[0]).get(part)
        key, options = [*key, part], list(typing.get_args(hint)) or [hint]
    return key, names


def complaint(cls: Any, key: str, error: Mapping[str, Any], names: Sequence[str]) -> str:
    """What is wrong with the value of `key`, and the nearest thing that is right, where the error knows it."""
    kind, came, limits = str(error["type"]), error["input"], error.get("ctx", {})
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    got = "null" if came is None else str(came)[:60] if isinstance(came, str) else f"a {type(came).__name__}"
    if kind == "unexpected_keyword_argument":
        above, _, name = key.rpartition(".")
        place = f" below '{above}'" if above else ""
        hint = instead(cls, key) or nearest(name, names) or "; known: " + ", ".join(names)
        return f"unknown key '{name}'{place}{hint}"
    if kind == "value_error":  # of one setting, or of several together
        return f"{key}: {message}" if key and isinstance(came, str) else f"{key}.{message}".lstrip(".")
    if kind == "union_tag_invalid":
        tags = limits["expected_tags"].replace("'", "")
        return f"{key}.kind must be one of {tags}. Got '{limits['tag']}'{nearest(limits['tag'], tags.split(', '))}"
    if wanted := WANTED.get(kind.split("_")[0]):
        inner = next((one.key for one in list_settings(cls) if one.key.startswith(f"{key}.")), None)
        return f"{key} must {wanted}. Got {got}" + (
            f"; type {inner}={got}" if inner and isinstance(came, str) else ""
        )
    if "expected" in limits:
        names = limits["expected"].replace("' or '", "', '").strip("'").split("', '")
        return f"{key}: {message}. Got '{got}'{nearest(VALUES.get(got, got), names)}"
    bound = next((limits[name] for name in ("ge", "le") if name in limits), None)
    return f"{key}: {message}. Got {str(came)[:60]}" + ("" if bound is None else f"; type {key}={bound}")


def renamed(config: Any, run: Path, hint: str) -> Any:
    """The settings of a run that lies in the folder `run`. Raises UserError for a name that a run cannot have."""
    try:
        return dataclasses.replace(config, out=str(run.parent), name=run.name)
    except ValueError as error:
        raise UserError(f"{error}; {hint}") from None


def dump_yaml(config: Any) -> str:
    """A dataclass as YAML that `load_config` reads back to an equal one."""
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
